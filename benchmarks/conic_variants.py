"""What :mod:`benchmarks.conic` compares: problems, formulations, scalings and options."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np

import noisedesign as nd
from noisedesign.base.checks import Array
from noisedesign.certify.program import DualPoint, Program
from noisedesign.conic.data import Point, slacks
from noisedesign.conic.program import Assembly, ConicProgram, constant, lower_triangle
from noisedesign.families.disjoint import model as conic_model
from noisedesign.families.disjoint.model import ConicModel
from noisedesign.files.problem_file import load_problem
from noisedesign.problem.problem import Problem

GAP = 1e-6
PROBLEMS = Path(__file__).parents[1] / "problems"

Options = dict[str, Any]


def instances() -> dict[str, Callable[[], Problem]]:
    def shipped(name: str) -> Problem:
        return load_problem(PROBLEMS / f"{name}.toml").problem

    def space(graph: nx.Graph, **limits: Any) -> Problem:
        return nd.SpaceProblem(mixing=nd.mixing_matrix(graph), **limits)

    def random(nodes: int) -> nx.Graph:
        return nd.build_graph("erdos-renyi", nodes=nodes, p=0.2, seed=0)

    def steps(epochs: int, separation: int) -> Problem:
        return nd.TimeProblem.decentralized(
            mixing=nd.mixing_matrix(nd.build_graph("florentine")),
            participation=nd.participation.FixedEpoch(epochs=epochs, separation=separation),
        )

    def prefix(horizon: int) -> Problem:
        return nd.TimeProblem.prefix(
            participation=nd.participation.FixedEpoch(epochs=1, separation=horizon)
        )

    return {
        **{
            name: partial(shipped, f"whisper/{name}")
            for name in (
                "florentine",
                "erdos-renyi-20-p02",
                "ring-20",
                "karate",
                "ego-148",
                "erdos-renyi-20-p10-capped",
                "florentine-floored",
            )
        },
        "erdos-renyi-60": lambda: space(random(60)),
        "erdos-renyi-20-capped": lambda: space(random(20), max_variance=1.3),
        "star-10": lambda: space(nx.star_graph(9)),
        "complete-12-capped": lambda: space(nx.complete_graph(12), max_variance=10.0),
        "prefix-32": lambda: prefix(32),
        "prefix-64": lambda: prefix(64),
        "time-3x6": lambda: steps(3, 6),
        "time-6x10": lambda: steps(6, 10),
        "time-20x4": lambda: steps(20, 4),
        **{name: partial(shipped, f"prefix/{name}") for name in ("prefix-8x16", "prefix-20x19")},
    }


# --- formulations that are not worth offering -----------------------------------------------------


def with_factor(program: Program, *, parts: int, symmetric: bool) -> ConicModel:
    """``compact`` with L = H^1/2, or with a triangular L."""
    root = None
    if symmetric:
        values, vectors = np.linalg.eigh(program.gram)
        root = (vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T
    return conic_model.build(replace(program, exact_factor=root), formulation="compact")


@dataclass(frozen=True, kw_only=True, eq=False)
class DualModel:
    """max 2 tr(Q) - sum of prices with [[U, Q], [Q^T, H]] >= 0: X is in the multiplier."""

    conic: ConicProgram
    program: Program
    scale: float

    def gram(self, point: Point) -> Array:
        return point.blocks[0][: self.program.size, : self.program.size]

    def dual(self, point: Point) -> DualPoint:
        patterns = self.program.participation.patterns
        block = slacks(self.conic, point.variables)[0]
        return DualPoint(blocks=block[patterns[:, :, None], patterns[:, None, :]] * self.scale)


def dual(program: Program, *, parts: int) -> DualModel:
    """The dual itself."""
    scale = conic_model.lower_bound_scale(program.factor)
    size, patterns = program.size, program.participation.patterns
    assembly = Assembly()
    prices = assembly.vector("p", len(patterns), cost=np.ones(len(patterns)), meaning="prices")
    same = np.zeros((size, size), dtype=bool)
    for pattern in patterns:
        same[np.ix_(pattern, pattern)] = ~np.eye(len(pattern), dtype=bool)
    off = assembly.symmetric("U", size, free=same, meaning="multipliers off the diagonal")
    q = assembly.vector("Q", size**2, cost=-2 * np.eye(size).ravel(), meaning="any matrix")
    i, j = np.indices((size, size)).reshape(2, -1)
    diagonal = np.empty(size, dtype=np.intp)
    diagonal[patterns] = prices[:, None]
    at = np.arange(size)
    assembly.block(
        2 * size,
        [
            (diagonal, at, at, 1.0),
            lower_triangle(off),
            (q, j + size, i, 1.0),
            constant(np.tril(program.gram / scale), row=size, column=size),
        ],
    )
    return DualModel(conic=assembly.finished(formulation="dual"), program=program, scale=scale)


# --- variants -------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Variant:
    """A formulation, the options besides those of the backend, and scales switched off."""

    formulation: str | Callable[..., ConicModel | DualModel]
    options: Options | None = None
    parts: int | None = None
    plain: bool = False
    constants: dict[str, float] | None = None


COMMON = {
    "compact": Variant(formulation="compact"),
    "compact, L = H^1/2": Variant(formulation=partial(with_factor, symmetric=True)),
    "compact, L triangular": Variant(formulation=partial(with_factor, symmetric=False)),
    "covariance": Variant(formulation="covariance"),
    "dual": Variant(formulation=dual),
    "balanced (default)": Variant(formulation="balanced"),
}
VARIANTS: dict[str, dict[str, Variant]] = {
    "scs": COMMON
    | {
        "balanced, untuned": Variant(formulation="balanced", plain=True),
        "balanced, two parts": Variant(formulation="balanced", parts=2),
        "balanced, scale 0.1": Variant(formulation="balanced", options={"scale": 0.1}),
        "balanced, scale 0.3": Variant(formulation="balanced", options={"scale": 0.3}),
        "balanced, scale 1": Variant(formulation="balanced", options={"scale": 1.0}),
        "balanced, scale 3": Variant(formulation="balanced", options={"scale": 3.0}),
        "balanced, not normalised": Variant(formulation="balanced", options={"normalize": False}),
        "balanced, fixed scale": Variant(formulation="balanced", options={"adaptive_scale": False}),
        "balanced, alpha 1.8": Variant(formulation="balanced", options={"alpha": 1.8}),
        "balanced, rho_x 1e-3": Variant(formulation="balanced", options={"rho_x": 1e-3}),
        "balanced, no acceleration": Variant(
            formulation="balanced", options={"acceleration_lookback": 0}
        ),
        "balanced, acceleration 10": Variant(
            formulation="balanced", options={"acceleration_interval": 10}
        ),
        "balanced, more price lift": Variant(formulation="balanced", constants={"PRICE_LIFT": 0.3}),
        "balanced, more H lift": Variant(formulation="balanced", constants={"OBJECTIVE_LIFT": 0.1}),
        "balanced, tenth of gap": Variant(
            formulation="balanced", options={"eps_abs": GAP / 10, "eps_rel": GAP / 10}
        ),
        "balanced, root of gap / 10": Variant(
            formulation="balanced", options={"eps_abs": GAP**0.5 / 10, "eps_rel": GAP**0.5 / 10}
        ),
    },
    "clarabel": COMMON
    | {
        **{
            f"balanced, {parts} part{'s' * (parts > 1)}": Variant(
                formulation="balanced", parts=parts
            )
            for parts in (1, 3, 4)
        },
        **{
            f"balanced, {title}": Variant(
                formulation="balanced",
                options=dict.fromkeys(("tol_gap_abs", "tol_gap_rel", "tol_feas"), tolerance),
            )
            for title, tolerance in (("tolerance = gap", GAP), ("tenth of gap", GAP / 10))
        },
        "balanced, not equilibrated": Variant(
            formulation="balanced", options={"equilibrate_enable": False}
        ),
        "balanced, qdldl": Variant(
            formulation="balanced", options={"direct_solve_method": "qdldl"}
        ),
        "balanced, not chordal": Variant(
            formulation="balanced", options={"chordal_decomposition_enable": False}
        ),
        "balanced, no presolve": Variant(
            formulation="balanced", options={"presolve_enable": False}
        ),
        "balanced, longer steps": Variant(
            formulation="balanced", options={"max_step_fraction": 0.999}
        ),
        "compact, not chordal": Variant(
            formulation="compact", options={"chordal_decomposition_enable": False}
        ),
    },
}
