"""Memory of native solves, in arrays of the problem's size: ``python -m benchmarks.size``.

Every figure is the peak of a process of its own (its largest resident set, less what it held before
the problem was built), over 8 n^2 bytes: H and W, LAPACK's workspace and all temporaries count, and
some 25 MB that BLAS and the graph take at any size. ``solver`` is the diagonal solver alone,
``whole`` all of ``solve``, checks and certificate included.
"""

from __future__ import annotations

import argparse
import subprocess
import sys

from noisedesign import report

SIZES = (1500,)

PROGRAM = """
import resource, sys
import numpy as np
import noisedesign as nd
from noisedesign.backends import Monitor
from noisedesign.backends.native import diagonal
from noisedesign.formulations import program_of

def peak():
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit

what, n, gap = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
nd.solve(nd.SpaceProblem(mixing=np.eye(2) / 2 + 0.25))  # what is imported late is imported now
before = peak()
graph = nd.build_graph("erdos-renyi", nodes=n, p=20 / n, seed=0)
problem = nd.SpaceProblem(mixing=nd.mixing_matrix(graph))
built = peak()
if what == "solver":
    answer = diagonal.solve(program_of(problem), monitor=Monitor(gap=gap))
    evaluations = answer.evaluations
else:
    evaluations = nd.solve(problem, gap=gap).evaluations
print(before, built, peak(), evaluations)
"""


def measured(what: str, nodes: int, gap: float) -> report.Record:
    command = [sys.executable, "-c", PROGRAM, what, str(nodes), str(gap)]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    before, built, peak, evaluations = (int(word) for word in output.split())
    size = 8 * nodes**2
    return {
        "what": what, "nodes": nodes, "gap": gap, "evaluations": evaluations,
        "arrays": (peak - before) / size, "of_which_building": (built - before) / size,
        "peak_MB": peak / 1e6,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--sizes", type=int, nargs="+", default=list(SIZES), help="numbers of nodes"
    )
    parser.add_argument("--gap", type=float, default=1e-6)
    arguments = parser.parse_args()
    rows = [
        measured(what, nodes, arguments.gap)
        for nodes in arguments.sizes
        for what in ("solver", "whole")
    ]
    report.print_table(rows, list(rows[0]), title="peak memory in arrays of n x n doubles")


if __name__ == "__main__":
    main()
