"""The tests under the BLAS kernels of other processors.

    python -m tests.support.kernels          # each of KERNELS, one after the other
    python -m tests.support.kernels Haswell Zen
    python -m tests.support.kernels another  # a machine's tests that another machine would fail

OpenBLAS picks its kernels by processor, and OPENBLAS_CORETYPE picks those of another one: the same
sums, rounded in another order. The exit code is 1 if tests failed under any.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time

KERNELS = ("Haswell", "Zen", "SkylakeX", "Sandybridge", "Prescott")

SAME = {"Zen": "Haswell", "Prescott": "Katmai"}
"""Builds of OpenBLAS in which two kernels are one answer with the other name."""

PROCESSES = ("--numprocesses", "2", "--dist", "loadfile")

ASK = """
import numpy, scipy.linalg, threadpoolctl
matrix = numpy.eye(200) + numpy.ones((200, 200))
scipy.linalg.cholesky(matrix) @ numpy.linalg.inv(matrix)
print(*{one.get("architecture") for one in threadpoolctl.threadpool_info()} - {None})
"""


def chosen(kernel: str = "") -> str:
    """The kernels that numpy and scipy take, with this one asked for or left to the processor.

    Empty where the processor cannot run them, or where they are not OpenBLAS's.
    """
    environment = os.environ | {"OPENBLAS_CORETYPE": kernel}
    if not kernel:
        del environment["OPENBLAS_CORETYPE"]
    found = subprocess.run(
        [sys.executable, "-c", ASK], env=environment, capture_output=True, text=True
    )
    return found.stdout.strip() if found.returncode == 0 else ""


def can_run(kernel: str) -> bool:
    """Whether this processor runs these kernels, and this OpenBLAS has them."""
    return chosen(kernel) in (kernel, SAME.get(kernel))


def another(here: str) -> str:
    """Haswell's kernels, or Prescott's where ``here`` are Haswell's already."""
    return "Prescott" if here in ("Haswell", "Zen") else "Haswell"


def verdict(kernel: str) -> str:
    """How the tests end under these kernels."""
    if not can_run(kernel):
        return "cannot run here"
    started = time.monotonic()
    print(f"\n=== tests under the kernels of {kernel}", flush=True)
    environment = os.environ | {"OPENBLAS_CORETYPE": kernel}
    found = subprocess.run([sys.executable, "-m", "pytest", *PROCESSES], env=environment)
    seconds = time.monotonic() - started
    return f"{'failed' if found.returncode else 'passed'} in {seconds:.0f} s"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.support.kernels")
    parser.add_argument("kernels", nargs="*", metavar="KERNEL", default=KERNELS)
    asked = parser.parse_args(arguments).kernels
    if unknown := set(asked) - {*KERNELS, "another"}:
        parser.error(f"{', '.join(unknown)}: expected another, {', '.join(KERNELS)}")
    here = chosen()
    names = [another(here) if name == "another" else name for name in asked]
    verdicts = {name: verdict(name) for name in names}
    print(f"\nThis processor takes the kernels of {here or 'no OpenBLAS'}.")
    for name, said in verdicts.items():
        print(f"{name:<12} {said}")
    return int(any(said.startswith("failed") for said in verdicts.values()))


if __name__ == "__main__":
    sys.exit(main())
