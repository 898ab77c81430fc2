"""Memory of native solves, in arrays of the problem's size: ``python -m benchmarks.size``.

Every figure is the peak of a process of its own (its largest resident set, less what it held before
the problem was built), over 8 m^2 bytes: H and W, LAPACK's workspace, the certificate and all
temporaries count, and some 25 MB that BLAS and the graph take at any size. Below m = 2048 it is
blurred by how the allocator reuses memory.
"""

from __future__ import annotations

import argparse
import subprocess
import sys

from noisedesign.tasks import report

SIZES = (2048,)
LARGEST = 4096

PROGRAM = """
import resource, sys, time
import numpy as np
import noisedesign as nd
from noisedesign.system.participation import FixedEpoch

def peak():
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit

def said(bounds):
    gap = bounds.upper / bounds.lower - 1 if bounds.lower > 0 else float("inf")
    print(f"  {bounds.seconds:6.0f} s  gap {gap:.1e}", file=sys.stderr)

epochs, m, gap = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
nd.solve(nd.SpaceProblem(mixing=np.eye(2) / 2 + 0.25))  # what is imported late is imported now
before = peak()
if epochs:
    scheme = FixedEpoch(epochs=epochs, separation=m // epochs)
    problem = nd.TimeProblem.prefix(participation=scheme)
else:
    graph = nd.build_graph("erdos-renyi", nodes=m, p=20 / m, seed=0)
    problem = nd.SpaceProblem(mixing=nd.mixing_matrix(graph))
    del graph
built = peak()
solution = nd.solve(problem, gap=gap, progress=said)
print(before, built, peak(), solution.evaluations, solution.status, solution.certificate.gap)
"""

KINDS = {0: "whisper, erdos-renyi", 1: "prefix, k = 1", 8: "prefix, k = 8"}
"""Epochs, 0 of a problem in space, and what is solved."""


def measured(epochs: int, size: int, gap: float) -> report.Record:
    print(f"{KINDS[epochs]}, m = {size}", file=sys.stderr)
    command = [sys.executable, "-c", PROGRAM, str(epochs), str(size), str(gap)]
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    before, built, peak, evaluations, status, certified = output.split()
    unit = 8 * size**2
    return {
        "problem": KINDS[epochs],
        "m": size,
        "status": status,
        "gap": float(certified),
        "evaluations": int(evaluations),
        "arrays": (int(peak) - int(before)) / unit,
        "of_which_building": (int(built) - int(before)) / unit,
        "peak_MB": int(peak) / 1e6,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--sizes",
        type=int,
        nargs="+",
        default=list(SIZES),
        help=f"nodes, and steps; {LARGEST} takes about ten minutes",
    )
    parser.add_argument("--gap", type=float, default=1e-6)
    arguments = parser.parse_args()
    rows = [measured(kind, size, arguments.gap) for size in arguments.sizes for kind in KINDS]
    report.print_table(rows, list(rows[0]), title="peak memory in arrays of m x m doubles")


if __name__ == "__main__":
    main()
