"""Covariances of shared seeds in matrix inequalities: R is built from a block for every set."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import comb

import numpy as np

from noisedesign.base import linalg as _linalg
from noisedesign.base.checks import Array
from noisedesign.base.monitor import Stop
from noisedesign.conic.data import Point
from noisedesign.conic.program import (
    Assembly,
    Numbers,
    listed,
    lower_triangle,
    moved,
    positive,
    require_size,
    triangle,
)
from noisedesign.families.disjoint.model import precision_within, variances_within
from noisedesign.families.family import Answer, Model
from noisedesign.families.shared_seeds.bound import Multipliers, lower_bound
from noisedesign.families.shared_seeds.program import SeedProgram
from noisedesign.families.shared_seeds.state import Setting, answer_of, feasible_blocks

# Largest certified gap of conic solvers' answers over their tolerance, on the shipped problems:
# repairs of budgets and caps cost the first order.
MARGIN = 30.0


def stated(program: SeedProgram) -> Model:
    """The model in the units of the program."""
    return _model(program, program, unit=1.0)


def scaled(program: SeedProgram) -> Model:
    """The model at unit budgets, and H such that the multipliers of the budgets are about one."""
    normal = program.normalized()
    unit = (_linalg.nuclear_norm(normal.factor) / program.size) ** 2
    return _model(program, replace(normal, gram=normal.gram / unit), unit=unit)


def _model(program: SeedProgram, own: SeedProgram, *, unit: float) -> Model:
    """R = sum_c E_c P_c E_c^T, P_c >= 0; [[R_A, I], [I, X_A]] >= 0 outside of every coalition."""
    size, outside = own.size, own.size - own.known_seeds
    coalitions = comb(size, own.known_seeds)
    entries = sum(triangle(len(nodes)) for nodes in own.sets)
    require_size(
        (1 + coalitions) * entries
        + coalitions * (triangle(outside) + 3 * outside)
        + size
        + sum(len(nodes) for nodes in own.sets),
        of=f"{len(own.sets):,} cliques, {coalitions:,} coalitions",
    )
    assembly = Assembly()
    numbers: list[Numbers] = []
    for nodes in own.sets:
        cost, shared = own.gram[np.ix_(nodes, nodes)], f"seed shared by nodes {listed(nodes)}"
        p = assembly.symmetric("P", len(nodes), cost=cost, meaning=f"covariance of the {shared}")
        positive(assembly, len(nodes), [lower_triangle(p)])
        numbers.append(p)
    for known in own.coalitions:
        rest = np.setdiff1d(np.arange(size), known)
        # Nodes outside the coalition, renumbered; sets are in ascending order, so that lower
        # triangles stay lower triangles.
        r = [
            moved(lower_triangle(p), np.searchsorted(rest, nodes))
            for nodes, p in zip(own.sets, numbers, strict=True)
            if not set(nodes) & set(known)
        ]
        precision_within(assembly, r, own.budget[rest])
    pairs = zip(own.sets, numbers, strict=True)
    everything = [moved(lower_triangle(p), np.array(nodes)) for nodes, p in pairs]
    variances_within(assembly, everything, cap=own.cap)

    def read(point: Point) -> Answer:
        blocks = [point.variables[p - 1] for p in numbers]
        return _read(program, own, unit, blocks, _multipliers(own, point))

    return Model(conic=assembly.finished(formulation="covariance", margin=MARGIN), read=read)


def _multipliers(own: SeedProgram, point: Point) -> Multipliers:
    """Read N_A of R_A, v of the budgets and w of the caps, whose rows and blocks are last."""
    n, coalitions, rows, cap = own.size, own.coalitions, point.rows, None
    if own.cap is not None:
        rows, cap = rows[:-n], rows[-n:]
    factors, weights = [], []
    asked = rows[len(rows) - len(coalitions) * (n - own.known_seeds) :].reshape(len(coalitions), -1)
    blocks = point.blocks[-len(coalitions) :]
    for known, block, v in zip(coalitions, blocks, asked, strict=True):
        rest = np.setdiff1d(np.arange(n), known)
        values, vectors = np.linalg.eigh(block[: len(rest), : len(rest)])
        factors.append(np.zeros((len(rest), n)))  # negative eigenvalues are rounding
        factors[-1][:, rest] = (vectors * np.sqrt(np.maximum(values, 0.0))).T
        weights.append(np.zeros(n))
        weights[-1][rest] = v
    return Multipliers.of_factors(factors, weights=weights, cap=cap)


def _read(
    program: SeedProgram, own: SeedProgram, unit: float, blocks: Sequence[Array], given: Multipliers
) -> Answer:
    """Make the noise feasible; take these multipliers, or those of R and v if they prove more."""
    setting, root = Setting(own.normalized()), np.sqrt(own.budget)
    found = []
    for nodes, block in zip(own.sets, blocks, strict=True):
        units = np.outer(root[list(nodes)], root[list(nodes)])
        values, vectors = np.linalg.eigh(_linalg.symmetrized(block) * units)
        found.append((vectors * np.maximum(values, 0.0)) @ vectors.T)
    flat = setting.layout.flat(found)
    feasible = feasible_blocks(setting, flat, program)
    if feasible is None:
        return Answer(stop=Stop.FAILED)
    normal = given.denormalized(1 / own.budget, unit=1.0)
    pairs = zip(setting.precisions(flat), np.maximum(normal.weights, 0.0), strict=True)
    followed = replace(normal, factors=np.stack([np.sqrt(v)[:, None] * x for x, v in pairs]))
    proofs = [one.denormalized(program.budget, unit=unit) for one in (normal, followed)]
    best = max(proofs, key=lambda one: lower_bound(program, one))
    return answer_of(program, feasible, best, stop=Stop.SOLVED)
