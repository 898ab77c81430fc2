"""Optimal strategies side by side with jax_privacy: ``python -m benchmarks.peers``.

The rival is ``jax_privacy.matrix_factorization.dense.optimize`` at its defaults, in double
precision, in a process of its own; ``--rival`` names the Python that has it, by default this one
(``pip install 'noisedesign[bench]'``, best into an environment of its own). Prefix sums are its
default; the workload of a network, whose Gram matrix is H, is handed over as its argument ``A``, a
factor with A^T A = H.

Its strategy is judged as every answer of a backend is: made feasible, and its error divided by a
certified lower bound. Runs of the two are taken in turn. Seconds are wall clock, of the rival from
the call to the strategy, with compilation but without starting Python; of ours the whole solve,
checks and certificate included. Both use the threads they find.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import noisedesign as nd
from noisedesign.base import linalg as _linalg
from noisedesign.base.machine import this_machine
from noisedesign.certify import repair
from noisedesign.certify.certificate import judge_strategy
from noisedesign.families.disjoint.program import dual_of, program_of
from noisedesign.tasks import report
from noisedesign.tasks.report import Record

GAP = 1e-6
OWN_RUNS = 3
"""How often we run for each run of the rival; we are the quicker one."""

RIVAL = """
import sys, time
import jax
jax.config.update("jax_enable_x64", True)
import jax.numpy as jnp
import numpy as np
from importlib.metadata import version
from jax_privacy.matrix_factorization import dense
given = np.load(sys.argv[1])
factor = jnp.asarray(given["factor"]) if "factor" in given else None
started = time.perf_counter()
strategy = dense.optimize(int(given["horizon"]), epochs=int(given["epochs"]), A=factor)
strategy.block_until_ready()
seconds = time.perf_counter() - started
names = [f"{name} {version(name)}" for name in ("jax_privacy", "jax")]
np.savez(sys.argv[2], strategy=np.asarray(strategy), seconds=seconds, versions=", ".join(names))
"""


@dataclass(frozen=True, kw_only=True)
class Instance:
    """A problem in time, and what to hand over as the workload, shape (T, T), if anything."""

    problem: nd.TimeProblem
    factor: np.ndarray | None = None


@dataclass(frozen=True, kw_only=True)
class Answer:
    """The rival's C, shape (T, T), the seconds it took, and the versions that made it."""

    strategy: np.ndarray
    seconds: float
    versions: str


def prefix(participation: nd.participation.FixedEpoch) -> Instance:
    name = f"prefix, (k, b) = ({participation.epochs}, {participation.separation})"
    return Instance(problem=nd.TimeProblem.prefix(participation=participation, name=name))


def network(graph: str, participation: nd.participation.FixedEpoch, **keys: int) -> Instance:
    """All iterates of a graph with Metropolis-Hastings weights, through a factor of H."""
    mixing = nd.mixing_matrix(nd.build_graph(graph, **keys))
    name = f"{graph}, (k, b) = ({participation.epochs}, {participation.separation})"
    problem = nd.TimeProblem.decentralized(mixing=mixing, participation=participation, name=name)
    factor = _linalg.gram_factor(problem.gram)
    np.testing.assert_allclose(factor.T @ factor, problem.gram, rtol=1e-10, atol=1e-12)
    return Instance(problem=problem, factor=factor)


def instances(*, quick: bool) -> list[Instance]:
    if quick:
        return [
            prefix(nd.participation.single(32)),
            prefix(nd.participation.FixedEpoch(epochs=4, separation=8)),
            network("florentine", nd.participation.FixedEpoch(epochs=2, separation=8)),
        ]
    return [
        *(prefix(nd.participation.single(horizon)) for horizon in (128, 512, 1024)),
        prefix(nd.participation.FixedEpoch(epochs=20, separation=19)),
        network("florentine", nd.participation.FixedEpoch(epochs=20, separation=16)),
        network("ring", nd.participation.single(256), nodes=20),
    ]


def rival(instance: Instance, python: str) -> Answer | str:
    """The rival's answer, or in words why there is none."""
    participation = instance.problem.participation
    assert isinstance(participation, nd.participation.FixedEpoch)
    with tempfile.TemporaryDirectory() as folder:
        given, found = Path(folder, "given.npz"), Path(folder, "found.npz")
        arrays = {} if instance.factor is None else {"factor": instance.factor}
        np.savez(given, horizon=participation.horizon, epochs=participation.epochs, **arrays)
        done = subprocess.run(
            [python, "-c", RIVAL, str(given), str(found)],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            return (done.stderr.strip().splitlines() or ["no message"])[-1]
        with np.load(found) as arrays_found:
            return Answer(
                strategy=arrays_found["strategy"].astype(np.float64),
                seconds=float(arrays_found["seconds"]),
                versions=str(arrays_found["versions"]),
            )


def gap_of(instance: Instance, strategy: np.ndarray, own: nd.Design) -> float:
    """The gap of a strategy to the bound of our multipliers, after the repair that ours gets."""
    program = program_of(instance.problem)
    dual = dual_of(own.proof)
    worth = [
        judge_strategy(program, repair.strategy_of(program, gram), bound=own.lower_bound)
        for thorough in (False, True)
        if (
            gram := repair.feasible_gram(
                program, strategy.T @ strategy, dual=dual, thorough=thorough
            )
        )
        is not None
    ]
    return min((found.gap for found in worth if found.feasible), default=float("inf"))


def against_rival(instance: Instance, python: str, *, runs: int) -> Record:
    """Medians of both, of runs taken in turn, and what each answer is worth."""
    ours: list[float] = []
    theirs: list[float] = []
    ratios: list[float] = []
    for _ in range(runs):
        answer = rival(instance, python)
        if isinstance(answer, str):
            raise RuntimeError(answer)
        own: list[float] = []
        for _ in range(OWN_RUNS):
            started = time.perf_counter()
            design = nd.solve(instance.problem, gap=GAP).design
            own.append(time.perf_counter() - started)
        assert design is not None
        ours += own
        theirs.append(answer.seconds)
        ratios.append(answer.seconds / statistics.median(own))
    theirs_gap = gap_of(instance, answer.strategy, design)
    return {
        "problem": instance.problem.name,
        "runs": runs,
        "seconds": statistics.median(ours),
        "rival_seconds": statistics.median(theirs),
        "times_faster": statistics.median(ratios),
        "gap": design.gap,
        "rival_gap": theirs_gap,
        "rival": answer.versions,
    }


def compare(python: str, *, quick: bool, runs: int) -> tuple[list[Record], str]:
    """A record a problem, or none and in words why."""
    chosen = instances(quick=quick)
    reason = rival(instances(quick=True)[0], python)
    if isinstance(reason, str):
        return [], f"Not compared: jax_privacy does not run in {python} ({reason})."
    rows = []
    for instance in chosen:
        print(f"  {instance.problem.name}", file=sys.stderr)
        rows.append(against_rival(instance, python, runs=runs))
    return rows, ""


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rival", default=sys.executable, metavar="PYTHON")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="small problems")
    options = parser.parse_args(arguments)
    rows, reason = compare(options.rival, quick=options.quick, runs=options.runs)
    if rows:
        report.print_table(rows, list(rows[0]), title="jax_privacy over noisedesign")
    print(reason or this_machine())


if __name__ == "__main__":
    main()
