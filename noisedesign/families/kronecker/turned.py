"""Bounds by multipliers of every node's own: plain numpy, of workloads with modes.

B_uj, k x k, one for node u and pattern j, E, orthogonal in time, and S_i, orthogonal in space,
prove the bound of docs/methods/structures.md, "Multipliers of every node's own",

    optimum  >=  ( sum_m ||A_m F_m||_* )^2  /  sum_uj tau_u max_i |row i of B_uj|^2,

    F_m = sum_u q_um B_u E diag_i( [S_i]_um ),      A = sum_m A_m x q_m q_m^T.

Where B_u = v_u^1/2 P^1/2 and all S_i are alike it is that of
:mod:`noisedesign.families.kronecker.bound`, low by what one S and one P miss."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from noisedesign.base import linalg as _linalg, settings
from noisedesign.base.checks import Array
from noisedesign.certify.program import DualPoint
from noisedesign.families.family import Arrays, ArraySpec
from noisedesign.families.kronecker import bound
from noisedesign.families.kronecker.bound import Witness, mode_traces, on_patterns
from noisedesign.families.space_time import SpaceTimeProgram
from noisedesign.problem.problem import SpaceTimeProblem
from noisedesign.system.participation import FixedEpoch
from noisedesign.system.workloads.workload import Modes, Workload

SPECS: Mapping[str, ArraySpec] = {  # the arrays that a design file keeps of it, in their order
    "dual_roots": ArraySpec("B", "nbkk"),
    "dual_basis": ArraySpec("E", "TT"),
    "dual_turns": ArraySpec("S", "gnn"),
}


MODES = "dual_modes"  # Q, which old files leave to the processor that reads them


def turns_of(horizon: int) -> int:
    """The number of S of T columns of E: up to 64, which neighbouring columns share."""
    return min(horizon, 64)


def sizes(problem: SpaceTimeProblem) -> dict[str, int]:
    """Letter -> length, of the axes of :data:`SPECS` and of a witness."""
    steps = problem.participation
    k, b, horizon = steps.epochs, steps.separation, steps.horizon
    return {"n": len(problem.mixing), "b": b, "k": k, "T": horizon, "g": turns_of(horizon)}


def fits(program: SpaceTimeProgram) -> bool:
    """Say whether such a bound suits a program: a workload with modes, arrays of 240 MB at most."""
    n, horizon = program.workload.nodes, program.workload.horizon
    floats = n * horizon**2 + turns_of(horizon) * n**2
    return program.workload.modes is not None and floats <= 30_000_000


@dataclass(frozen=True, eq=False)
class Turned:
    """The proof: B_uj, (n, b, k, k), E, (T, T), and S of neighbouring columns, (turns, n, n)."""

    roots: Array
    basis: Array
    turns: Array
    modes: Array | None = None  # eigenvectors of W as columns, (n, n), that S belong to

    @classmethod
    def of(cls, program: SpaceTimeProgram, witness: Witness) -> Turned:
        """The proof by P x diag(v), with its bound; E as nearly diagonalises all A_m P^1/2."""
        modes, horizon = program.workload.modes, program.workload.horizon
        assert modes is not None
        weights = np.sqrt(np.maximum(witness.weights / np.abs(witness.weights).max(), 0.0))
        blocks = witness.blocks / np.abs(witness.blocks).max()
        values, vectors = np.linalg.eigh(blocks)
        halves = (vectors * np.sqrt(np.maximum(values, 0.0))[:, None, :]) @ vectors.swapaxes(1, 2)
        half = on_patterns(halves, program.participation)
        traces = mode_traces(program, blocks)
        gram = sum(factor.T @ factor for factor in map(modes.factor, range(len(weights))))
        turn = nearest_orthogonal(weights[:, None] * modes.basis * traces)
        return cls(
            roots=weights[:, None, None, None] * halves,
            basis=np.linalg.eigh(half.T @ gram @ half)[1],
            turns=np.tile(turn, (turns_of(horizon), 1, 1)),
            modes=modes.basis,
        )

    @classmethod
    def of_arrays(cls, arrays: Arrays) -> Turned | None:
        """The proof that a design file keeps; None where it keeps none."""
        if not set(SPECS) <= set(arrays):
            return None
        roots, basis, turns = (arrays[name] for name in SPECS)
        return cls(roots, basis, turns, arrays.get(MODES))

    def arrays(self) -> Arrays:
        """The arrays that a design file keeps."""
        found = dict(zip(SPECS, (self.roots, self.basis, self.turns), strict=True))
        return found if self.modes is None else found | {MODES: self.modes}

    def of_workload(self, workload: Workload) -> Modes | None:
        """The modes of a workload that S belong to."""
        return workload.modes if self.modes is None else workload.modes_along(self.modes)

    def parts(self) -> Iterator[tuple[slice, Array]]:
        """Columns of E, and the S that they share."""
        horizon, count = len(self.basis), len(self.turns)
        for i, turn in enumerate(self.turns):
            yield slice(i * horizon // count, (i + 1) * horizon // count), turn

    def price(self, budget: Array) -> float:
        """sum_uj tau_u max_i |row i of B_uj|^2."""
        return float(budget @ self.weights)

    @property
    def full_dual(self) -> DualPoint:
        """Its B_uj B_uj^T as multipliers of the program on all pairs, pattern by pattern."""
        roots = self.roots.swapaxes(0, 1).reshape(-1, *self.roots.shape[2:])
        return DualPoint(blocks=roots @ roots.swapaxes(1, 2))

    @property
    def weights(self) -> Array:
        """sum_j max_i |row i of B_uj|^2 of every node u, shape (n,)."""
        return np.asarray(np.square(self.roots).sum(axis=3).max(axis=2).sum(axis=1))

    def spread(self, participation: FixedEpoch) -> Array:
        """B_u E of every node, shape (n, T, T)."""
        found = np.empty((len(self.roots), *self.basis.shape))
        for j, pattern in enumerate(participation.patterns):
            found[:, pattern] = self.roots[:, j] @ self.basis[pattern]
        return found

    def mixed(self, basis: Array, spread: Array) -> Array:
        """F_m of every mode, shape (n, T, T), of q_m as columns of ``basis``."""
        found = np.empty_like(spread)
        for columns, turn in self.parts():
            found[:, :, columns] = np.tensordot((basis * turn).T, spread[:, :, columns], axes=1)
        return found


def lower_bound(program: SpaceTimeProgram, turned: Turned) -> float:
    """A lower bound on tr(H cov(z)) of any design, squared noise, or 0; E and S are repaired."""
    largest = float(np.abs(turned.roots).max())
    finite = all(np.isfinite(array).all() for array in turned.arrays().values())
    if not (finite and largest > 0) or (modes := turned.of_workload(program.workload)) is None:
        return 0.0
    repaired = Turned(
        roots=turned.roots / largest,  # their scale is free, and at an extreme one sums overflow
        basis=nearest_orthogonal(turned.basis),
        turns=nearest_orthogonal(turned.turns),
    )
    mixed = repaired.mixed(modes.basis, repaired.spread(program.participation))
    trace = sum(_linalg.nuclear_norm(modes.factor(m) @ f) for m, f in enumerate(mixed))
    coordinates = program.workload.nodes * program.workload.horizon
    # The modes, E and S are orthogonal, and modes diagonalise the workload, up to rounding.
    rounding = 16 * settings.rank_tolerance(coordinates)
    found = trace / repaired.price(program.budget) * trace * (1 - rounding)
    return found if 0 < found < np.inf else 0.0


def proved(program: SpaceTimeProgram, proof: Arrays) -> float:
    """The bound on all designs by what a design file keeps, or by independent noise."""
    if (turned := Turned.of_arrays(proof)) is not None:
        return lower_bound(program, turned)
    return bound.lower_bound(program, Witness.of(program, proof))


def nearest_orthogonal(a: Array) -> Array:
    """The polar factor of every matrix of an array, shape (..., m, m)."""
    left, _, right = np.linalg.svd(a)
    return np.asarray(left @ right)


def improved(program: SpaceTimeProgram, turned: Turned) -> tuple[float, Turned]:
    """The bound, about, and better multipliers: Z_m stay, S and then B become the best for them."""
    modes, participation = turned.of_workload(program.workload), program.participation
    assert modes is not None
    spread = turned.spread(participation)
    mixed = turned.mixed(modes.basis, spread)
    trace = 0.0
    for m, f in enumerate(mixed):
        factor = modes.factor(m)
        found, nearest = polar(factor @ f)
        trace += found
        mixed[m] = factor.T @ nearest
    turns = np.empty_like(turned.turns)
    for i, (columns, _) in enumerate(turned.parts()):
        sides = (side[:, :, columns].reshape(len(side), -1) for side in (spread, mixed))
        along = next(sides) @ next(sides).T
        turns[i] = nearest_orthogonal(modes.basis * along)
    better = replace(turned, turns=turns)
    slopes = np.empty_like(mixed)
    for columns, turn in better.parts():
        slopes[:, :, columns] = np.tensordot(modes.basis * turn, mixed[:, :, columns], axes=1)
    roots = np.empty_like(turned.roots)
    for j, pattern in enumerate(participation.patterns):
        roots[:, j] = slopes[:, pattern] @ turned.basis[pattern].T
    lengths = np.linalg.norm(roots, axis=3)
    levels = lengths.sum(axis=2) / program.budget[:, None]
    roots *= (levels[:, :, None] / np.where(lengths > 0, lengths, 1.0))[..., None]
    value = trace / turned.price(program.budget) * trace
    return value, replace(better, roots=roots / np.abs(roots).max())


def polar(a: Array) -> tuple[float, Array]:
    """Nuclear norm and about the polar factor of a matrix, from its Gram matrix."""
    if len(a) < len(a.T):
        norm, turned = polar(a.T)
        return norm, turned.T
    squared, basis = np.linalg.eigh(a.T @ a)
    least = settings.EPS * squared.max(initial=np.finfo(np.float64).tiny)
    root = np.sqrt(np.maximum(squared, least))
    return float(root.sum()), np.asarray(((a @ basis) / root) @ basis.T)
