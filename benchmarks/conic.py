"""SCS and Clarabel at their best: ``python -m benchmarks.conic``.

What each of them takes to a certified gap of 1e-6 in every formulation, scaling and setting we know
of: CPU seconds of the solver alone, over those of ``compact`` at a tolerance of a tenth of the gap,
measured beside it in this process; iterations, seconds to build, and our certified gap. A run whose
answer is not certified to the gap is marked, and is no success however quick it was. Interior-point
methods are given problems of at most ``--largest`` rows, since nothing stops them within a step.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np

import noisedesign as nd
from noisedesign import report
from noisedesign.backends import Monitor, conic_model, get_backend
from noisedesign.backends.conic import ConicBackend
from noisedesign.backends.conic_model import ConicModel
from noisedesign.design import Provenance
from noisedesign.formulations import (
    DualPoint,
    Program,
    denormalized_gram,
    diagonal_dual,
    program_of,
)
from noisedesign.io.problem_file import load_problem
from noisedesign.matrix_inequalities import balanced
from noisedesign.matrix_inequalities.program import Assembly, constant, lower_triangle
from noisedesign.problem import Problem
from noisedesign.report import Record
from noisedesign.solve import certified_design

GAP = 1e-6
PROBLEMS = Path(__file__).parents[1] / "problems"
QUICK = ("florentine", "karate", "time-6x10", "florentine-floored", "complete-12-capped")
SHORT = 0.3
"""Seconds below which a run is repeated, for a median of three."""

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
            participation=nd.FixedEpoch(epochs=epochs, separation=separation),
        )

    def prefix(horizon: int) -> Problem:
        return nd.TimeProblem.prefix(participation=nd.FixedEpoch(epochs=1, separation=horizon))

    return {
        **{name: partial(shipped, f"whisper/{name}") for name in (
            "florentine", "erdos-renyi-20-p02", "ring-20", "karate", "ego-148",
            "erdos-renyi-20-p10-capped", "florentine-floored")},
        "erdos-renyi-60": lambda: space(random(60)),
        "erdos-renyi-20-capped": lambda: space(random(20), max_variance=1.3),
        "star-10": lambda: space(nx.star_graph(9)),
        "complete-12-capped": lambda: space(nx.complete_graph(12), max_variance=10.0),
        "prefix-32": lambda: prefix(32), "prefix-64": lambda: prefix(64),
        "time-3x6": lambda: steps(3, 6), "time-6x10": lambda: steps(6, 10),
        "time-20x4": lambda: steps(20, 4),
        **{name: partial(shipped, f"prefix/{name}") for name in ("prefix-8x16", "prefix-20x19")},
    }  # fmt: skip


# --- formulations that are not worth offering -----------------------------------------------------


def with_factor(program: Program, *, parts: int, symmetric: bool) -> ConicModel:
    """``compact`` with L = H^1/2, or with a triangular L."""
    root = None
    if symmetric:
        values, vectors = np.linalg.eigh(program.gram)
        root = (vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T
    return conic_model.build(replace(program, exact_factor=root), formulation="compact")


def dual(program: Program, *, parts: int) -> ConicModel:
    """The dual itself: max 2 tr(Q) - sum of prices with [[U, Q], [Q^T, H]] >= 0."""
    scale = conic_model.lower_bound_scale(program)
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
        [(diagonal, at, at, 1.0), lower_triangle(off), (q, j + size, i, 1.0),
         constant(np.tril(program.gram / scale), row=size, column=size)],
    )  # fmt: skip
    return ConicModel(
        conic=assembly.finished(name="", formulation="dual", remarks=()), scale=scale,
        precision=lambda slack: slack[0][:size, :size],  # U: swapped with X by `read`
        multipliers=lambda blocks, rows: diagonal_dual(np.ones(size)),
    )  # fmt: skip


def read(model: ConicModel, program: Program, point: Any) -> tuple[Any, DualPoint]:
    if model.conic.formulation != "dual":
        return model.gram(point), model.dual(point)
    size, patterns = program.size, program.participation.patterns
    u = model.gram(point)
    blocks = u[patterns[:, :, None], patterns[:, None, :]] * model.scale
    return point.blocks[0][:size, :size], DualPoint(blocks=blocks)


# --- variants -------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Variant:
    """A formulation, the options besides those of the backend, and scales switched off."""

    formulation: str | Callable[..., ConicModel]
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
    "scs": COMMON | {
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
            formulation="balanced", options={"acceleration_lookback": 0}),
        "balanced, acceleration 10": Variant(
            formulation="balanced", options={"acceleration_interval": 10}),
        "balanced, more price lift": Variant(
            formulation="balanced", constants={"PRICE_LIFT": 0.3}),
        "balanced, more H lift": Variant(
            formulation="balanced", constants={"OBJECTIVE_LIFT": 0.1}),
        "balanced, tenth of gap": Variant(
            formulation="balanced", options={"eps_abs": GAP / 10, "eps_rel": GAP / 10}),
        "balanced, root of gap / 10": Variant(
            formulation="balanced", options={"eps_abs": GAP**0.5 / 10, "eps_rel": GAP**0.5 / 10}),
    },
    "clarabel": COMMON | {
        **{f"balanced, {parts} part{'s' * (parts > 1)}": Variant(
            formulation="balanced", parts=parts) for parts in (1, 3, 4)},
        "balanced, tolerance = gap": Variant(formulation="balanced", options={
            "tol_gap_abs": GAP, "tol_gap_rel": GAP, "tol_feas": GAP}),
        "balanced, not equilibrated": Variant(
            formulation="balanced", options={"equilibrate_enable": False}),
        "balanced, qdldl": Variant(
            formulation="balanced", options={"direct_solve_method": "qdldl"}),
        "balanced, not chordal": Variant(
            formulation="balanced", options={"chordal_decomposition_enable": False}),
        "balanced, no presolve": Variant(
            formulation="balanced", options={"presolve_enable": False}),
        "balanced, longer steps": Variant(
            formulation="balanced", options={"max_step_fraction": 0.999}),
        "compact, not chordal": Variant(
            formulation="compact", options={"chordal_decomposition_enable": False}),
    },
}  # fmt: skip


def holds(variant: Variant, program: Program) -> bool:
    """Whether the formulation is another than ``compact`` turns into, and takes the program."""
    if not isinstance(variant.formulation, str):
        return not program.limited
    if variant.constants and "OBJECTIVE_LIFT" in variant.constants:
        return program.limited
    return conic_model.refusal(program, variant.formulation) is None


def measured(name: str, problem: Problem, variant: Variant, limit: float) -> Record:
    """One solve: its iterations, CPU seconds to build and to solve, and our certified gap."""
    backend = get_backend(name)
    assert isinstance(backend, ConicBackend)
    assert backend.direct is not None
    if variant.plain:
        backend = replace(backend, tuned=None)
    program = program_of(problem)
    normalized = program.normalized()
    kept = {key: getattr(balanced, key) for key in variant.constants or {}}
    for key, value in (variant.constants or {}).items():
        setattr(balanced, key, value)
    started = time.process_time()
    chosen = variant.formulation
    parts = backend.parts if variant.parts is None else variant.parts
    if isinstance(chosen, str):
        model = conic_model.build(normalized, formulation=chosen, parts=parts)
    else:
        model = chosen(normalized, parts=parts)
    run = backend.direct(model.conic)
    built = time.process_time() - started
    for key, value in kept.items():
        setattr(balanced, key, value)
    monitor = Monitor(gap=GAP, tolerance=GAP / 10, time_limit=limit)
    options = backend.options_for(normalized, monitor=monitor, formulation=str(chosen))
    options |= variant.options or {}
    seconds: list[float] = []
    while not seconds or (seconds[0] < SHORT and len(seconds) < 3):
        started = time.process_time()
        found = run(options)
        seconds.append(time.process_time() - started)
    gap = float("inf")
    if found.point is not None:
        x, multipliers = read(model, normalized, found.point)
        design = None
        if x is not None:
            design = certified_design(
                problem, program, gram=denormalized_gram(program, x),
                dual=multipliers.denormalized(program), gap=GAP,
                provenance=Provenance(method="optimal", backend=name, status=found.stop.value),
            )  # fmt: skip
        gap = float("inf") if design is None else design.gap
    return {
        "iterations": found.iterations, "build": built, "seconds": statistics.median(seconds),
        "gap": gap, "certified": gap <= GAP,
    }  # fmt: skip


def compare(name: str, problems: dict[str, Problem], limit: float) -> list[Record]:
    rows: list[Record] = []
    for title, problem in problems.items():
        program = program_of(problem)
        base: float | None = None
        for label, variant in VARIANTS[name].items():
            if not holds(variant, program):
                continue
            print(f"  {name}: {title}, {label}", file=sys.stderr)
            row = measured(name, problem, variant, limit)
            base = row["seconds"] if base is None else base
            rows.append({
                "problem": title, "variant": label, **row, "over_compact": row["seconds"] / base,
            })  # fmt: skip
    return rows


def summary(rows: Sequence[Record]) -> list[Record]:
    """By variant: how many problems are certified, and the geometric mean of the ratios of those
    certified in it and in the default."""
    good = {(row["problem"], row["variant"]): row for row in rows if row["certified"]}
    found = []
    for label in dict.fromkeys(row["variant"] for row in rows):
        mine = [row for row in rows if row["variant"] == label]
        pairs = [
            row["seconds"] / good[row["problem"], "balanced (default)"]["seconds"]
            for row in mine
            if row["certified"] and (row["problem"], "balanced (default)") in good
        ]
        found.append({
            "variant": label, "problems": len(mine),
            "certified": sum(row["certified"] for row in mine),
            "over_default": statistics.geometric_mean(pairs) if pairs else None,
        })  # fmt: skip
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--solvers", default="scs,clarabel")
    parser.add_argument("--quick", action="store_true", help="a few small problems")
    parser.add_argument("--problems", nargs="+", choices=list(instances()), metavar="NAME")
    parser.add_argument("--largest", type=int, default=36, help="rows of X given to Clarabel")
    parser.add_argument("--time-limit", type=float, default=30.0, metavar="SECONDS")
    arguments = parser.parse_args()
    names = arguments.problems or (QUICK if arguments.quick else list(instances()))
    problems = {name: instances()[name]() for name in names}
    for solver in arguments.solvers.split(","):
        small = {
            name: problem
            for name, problem in problems.items()
            if solver == "scs" or program_of(problem).size <= arguments.largest
        }
        rows = compare(solver, small, arguments.time_limit)
        columns = ["problem", "variant", "iterations", "build", "over_compact", "gap", "certified"]
        report.print_table(rows, columns, title=f"{solver}: solver seconds over those of compact")
        found = summary(rows)
        report.print_table(
            found, list(found[0]), title=f"{solver}: by variant; geometric means over the default"
        )


if __name__ == "__main__":
    main()
