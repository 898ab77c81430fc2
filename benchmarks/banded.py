"""Banded strategies side by side with jax_privacy: ``python -m benchmarks.banded``.

Prefix sums, single participation. The rival is ``jax_privacy.matrix_factorization.banded.optimize``
at its default 100 steps, in double precision, in a process of its own; its strategy is judged by
the same code as ours, at the same unit sensitivity. ``--rival`` names the Python that has it, by
default this one. Seconds are wall clock: of the rival with compilation; of ours with its bounds,
the median of RUNS. The gaps printed are to the bound by the spectrum of our multipliers, made
outside the clock as the judging of the rival is.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from noisedesign.base.banded_matrices import dense
from noisedesign.base.monitor import Monitor
from noisedesign.certify.certificate import judge_strategy
from noisedesign.certify.repair import unit_strategy
from noisedesign.families.banded import solver as banded
from noisedesign.families.banded.bound import banded_lower_bound
from noisedesign.families.banded.program import BandedProgram, banded_program
from noisedesign.system.participation import MinSeparation, Participation, single
from noisedesign.system.workloads.workload import prefix_gram

RUNS = 3
"""How often we are timed; every run starts anew."""

RIVAL = """
import sys, time
import jax
jax.config.update("jax_enable_x64", True)
import numpy as np
from jax_privacy.matrix_factorization import banded
horizon, bands, path = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
started = time.perf_counter()
strategy = banded.optimize(horizon, bands=bands)
strategy.params.block_until_ready()
seconds = time.perf_counter() - started
np.savez(path, strategy=np.asarray(strategy.materialize()), seconds=seconds)
"""


def rival(program: BandedProgram, python: str) -> tuple[float, float] | None:
    """Seconds and error of jax_privacy's strategy; None, and a sentence, where it cannot run."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "strategy.npz"
        done = subprocess.run(
            [python, "-c", RIVAL, str(program.size), str(program.bands), str(path)],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            reason = (done.stderr.strip().splitlines() or ["no message"])[-1]
            print(f"Not compared: jax_privacy does not run in {python} ({reason}).")
            return None
        found = np.load(path)
        strategy = unit_strategy(program, found["strategy"].astype(np.float64))
        return float(found["seconds"]), judge_strategy(program, strategy, bound=0.0).objective


def ours(
    horizon: int, participation: Participation, bands: int, gap: float
) -> tuple[BandedProgram, float, float, float]:
    """The program, and median seconds, error and certified lower bound of our strategy."""
    seconds = []
    for _ in range(RUNS):
        program = banded_program(
            gram=prefix_gram(horizon=horizon), participation=participation, bands=bands
        )
        started = time.perf_counter()
        answer = banded.solve(program, monitor=Monitor(gap=gap))
        seconds.append(time.perf_counter() - started)
    strategy = unit_strategy(program, dense(answer.columns))
    bound = banded_lower_bound(program, answer.multipliers)
    error = judge_strategy(program, strategy, bound=bound).objective
    return program, statistics.median(seconds), error, bound


def compare(horizon: int, bands: int, gap: float, python: str | None) -> str | None:
    """One line for us, one for the rival; returns the rival that is worth asking again."""
    program, seconds, error, bound = ours(horizon, single(horizon), bands, gap)
    print(f"T = {horizon}, p = {bands}, single participation, squared error over T:")
    print(f"  noisedesign  {error / horizon:.8f}  gap {error / bound - 1:.1e}  {seconds:7.2f} s")
    other = None if python is None else rival(program, python)
    if other is None:
        return None
    print(
        f"  jax_privacy  {other[1] / horizon:.8f}  gap {other[1] / bound - 1:.1e}  "
        f"{other[0]:7.2f} s  ({other[0] / seconds:.1f} times as long)"
    )
    return python


def min_separation(horizon: int, separation: int, most: int, gap: float) -> None:
    scheme = MinSeparation(horizon=horizon, separation=separation, max_participations=most)
    _, seconds, error, bound = ours(horizon, scheme, separation, gap)
    print(f"{scheme}, p = {separation}:")
    print(f"  noisedesign  {error / horizon:.8f}  gap {error / bound - 1:.1e}  {seconds:7.2f} s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rival", default=sys.executable, metavar="PYTHON")
    parser.add_argument("--gap", type=float, default=1e-6)
    arguments = parser.parse_args()
    python: str | None = arguments.rival
    for horizon, bands in ((128, 16), (512, 16), (1024, 16)):
        python = compare(horizon, bands, arguments.gap, python)
    for horizon, separation, most in ((128, 16, 8), (512, 64, 8)):
        min_separation(horizon, separation, most, arguments.gap)


if __name__ == "__main__":
    main()
