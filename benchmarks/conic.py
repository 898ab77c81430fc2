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
from collections.abc import Sequence
from dataclasses import replace

from benchmarks.conic_variants import GAP, VARIANTS, DualModel, Variant, instances
from noisedesign.base.monitor import Monitor
from noisedesign.certify.program import Program
from noisedesign.conic.solvers import conic_solver
from noisedesign.families.disjoint import model as conic_model
from noisedesign.families.disjoint.family import FAMILY
from noisedesign.families.disjoint.model import ConicModel
from noisedesign.families.disjoint.program import Found, program_of
from noisedesign.families.family import certified
from noisedesign.problem.problem import Problem
from noisedesign.tasks import report
from noisedesign.tasks.report import Record

QUICK = ("florentine", "karate", "time-6x10", "florentine-floored", "complete-12-capped")
SHORT = 0.3
"""Seconds below which a run is repeated, for a median of three."""


def holds(variant: Variant, program: Program) -> bool:
    """Whether the formulation is another than ``compact`` turns into, and takes the program."""
    if not isinstance(variant.formulation, str):
        return not program.limited
    if variant.constants and "OBJECTIVE_LIFT" in variant.constants:
        return program.limited
    return conic_model.unable(program, variant.formulation) is None


def measured(name: str, problem: Problem, variant: Variant, limit: float) -> Record:
    """One solve: its iterations, CPU seconds to build and to solve, and our certified gap."""
    backend = conic_solver(name)
    assert backend.direct is not None
    if variant.plain:
        backend = replace(backend, tuned=None)
    program = program_of(problem)
    normalized = program.normalized()
    kept = {key: getattr(conic_model, key) for key in variant.constants or {}}
    for key, value in (variant.constants or {}).items():
        setattr(conic_model, key, value)
    started = time.process_time()
    chosen = variant.formulation
    parts = backend.parts if variant.parts is None else variant.parts
    model: ConicModel | DualModel
    if isinstance(chosen, str):
        model = conic_model.build(normalized, formulation=chosen, parts=parts)
    else:
        model = chosen(normalized, parts=parts)
    run = backend.direct(model.conic)
    built = time.process_time() - started
    for key, value in kept.items():
        setattr(conic_model, key, value)
    monitor = Monitor(gap=GAP, tolerance=GAP / 10, time_limit=limit)
    options = backend.options(monitor, model.conic)
    options |= variant.options or {}
    seconds: list[float] = []
    while not seconds or (seconds[0] < SHORT and len(seconds) < 3):
        started = time.process_time()
        found = run(options)
        seconds.append(time.process_time() - started)
    gap = float("inf")
    if found.point is not None:
        read = Found(
            stop=found.stop, gram=model.gram(found.point), dual=model.dual(found.point)
        ).denormalized(program)
        answer = FAMILY.answer(program, read)
        bound = FAMILY.bound(program, answer.proof)
        judged = [
            certified(FAMILY, program, noise, answer.proof, bound=bound, everywhere=None)
            for noise in answer.noises
        ]
        gap = min((one.gap for one in judged if one.feasible), default=gap)
    return {
        "iterations": found.iterations,
        "build": built,
        "seconds": statistics.median(seconds),
        "gap": gap,
        "certified": gap <= GAP,
    }


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
            rows.append(
                {"problem": title, "variant": label, **row, "over_compact": row["seconds"] / base}
            )
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
        found.append(
            {
                "variant": label,
                "problems": len(mine),
                "certified": sum(row["certified"] for row in mine),
                "over_default": statistics.geometric_mean(pairs) if pairs else None,
            }
        )
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
        print()
        report.print_table(rows, columns, title=f"{solver}: solver seconds over those of compact")
        found = summary(rows)
        print()
        report.print_table(
            found, list(found[0]), title=f"{solver}: by variant; geometric means over the default"
        )


if __name__ == "__main__":
    main()
