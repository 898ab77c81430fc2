"""Exact accounts side by side with the stacked matrices: ``python -m benchmarks.accounts``.

One attacker of the Facebook ego network (148 nodes) against all 147 victims under DP-D-SGD. The
rival forms B = P_a W_T, the rows the attacker sees of the stacked workload, and takes numpy's
pseudo-inverse, as published code does; both are timed in turn, in this process. ``--steps`` picks
the horizon of the comparison, by default the largest whose stacked arrays fit the memory.
"""

from __future__ import annotations

import argparse
import os
import platform
import resource
import sys
import time
from collections.abc import Callable

import networkx as nx
import numpy as np

import noisedesign as nd
from noisedesign.privacy import views as threats
from noisedesign.privacy.exposure import account
from noisedesign.system import datasets
from noisedesign.system.participation import every_step
from noisedesign.tasks import report
from noisedesign.tasks.report import Record

SHARE = 0.6
"""Share of the free memory the rival's arrays may take, by the count of :func:`stacked_bytes`."""

GROWTH = (40, 80, 160, 320, 640)
LONG = 10_000


def seconds(run: Callable[[], object]) -> float:
    started = time.process_time()
    run()
    return time.process_time() - started


def ego_mixing() -> np.ndarray:
    if datasets.local_ego_facebook(414) is None:
        print("no Facebook data: a random graph of the same size", file=sys.stderr)
        return nd.mixing_matrix(nd.build_graph("erdos-renyi", nodes=148, p=0.15, seed=0))
    return nd.mixing_matrix(datasets.ego_facebook(414))


def stacked_bytes(rows: int, nodes: int, horizon: int) -> int:
    """B, its pseudo-inverse and the two factors numpy forms it from, and the projector B^+ B."""
    seen, columns = rows * horizon, nodes * horizon
    return 8 * (4 * seen * columns + columns**2)


def free_bytes() -> int:
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def largest_horizon(rows: int, nodes: int) -> int:
    horizon = 1
    while stacked_bytes(rows, nodes, horizon + 1) <= SHARE * free_bytes():
        horizon += 1
    return horizon


def stacked_grams(mixing: np.ndarray, attacker: int, horizon: int) -> np.ndarray:
    """B^+ B restricted to every victim, shape (victims, T, T), by numpy's pseudo-inverse."""
    n = len(mixing)
    seen = np.flatnonzero(mixing[attacker])
    seen = seen[seen != attacker]
    b = np.zeros((horizon, len(seen), horizon, n))
    power = np.eye(n)
    for lag in range(horizon):
        for step in range(lag, horizon):
            b[step, :, step - lag] = power[seen]
        power = power @ mixing
    b[..., attacker] = 0.0  # the attacker knows its own noise
    stacked = b.reshape(horizon * len(seen), horizon * n)
    projector = np.linalg.pinv(stacked) @ stacked
    return np.stack([projector[u::n, u::n] for u in range(n) if u != attacker])


def our_grams(mixing: np.ndarray, attacker: int, horizon: int) -> list[np.ndarray]:
    algorithm = threats.dp_d_sgd(mixing=mixing, horizon=horizon)
    mechanism = threats.view(algorithm, threats.pndp(nodes=(attacker,)))
    victims = [u for u in range(len(mixing)) if u != attacker]
    return [found.gram for _, found in threats.grams(mechanism, victims)]


def whole_account(mixing: np.ndarray, attacker: int, horizon: int) -> float:
    """Largest squared sensitivity over the victims of the whole account."""
    exposures = account(
        threats.dp_d_sgd(mixing=mixing, horizon=horizon),
        threats.pndp(nodes=(attacker,)),
        participation=every_step(horizon),
        delta=1e-6,
    )
    return max(exposure.sensitivity_squared for exposure in exposures)


def against_pseudo_inverse(mixing: np.ndarray, attacker: int, horizon: int) -> list[Record]:
    rows = int(np.count_nonzero(mixing[attacker])) - 1
    our_grams(mixing, attacker, 2)  # warm up
    ours, whole = [], []
    theirs: list[np.ndarray] = []
    rival = seconds(lambda: theirs.append(stacked_grams(mixing, attacker, horizon)))
    for _ in range(3):
        ours.append(seconds(lambda: our_grams(mixing, attacker, horizon)))
        whole.append(seconds(lambda: whole_account(mixing, attacker, horizon)))
    found = np.stack(our_grams(mixing, attacker, horizon))
    common = {
        "attacker": f"{attacker} ({rows} neighbours)",
        "T": horizon,
        "stacked_GB": stacked_bytes(rows, len(mixing), horizon) / 1e9,
        "difference": float(np.abs(found - theirs[0]).max()),
    }
    return [
        common | {"timed": "Gram matrices", "ratio": rival / sorted(ours)[1]},
        common | {"timed": "whole account", "ratio": rival / sorted(whole)[1]},
    ]


def growth(mixing: np.ndarray, attacker: int) -> list[Record]:
    rows: list[Record] = []
    before = 0.0
    for horizon in GROWTH:
        taken = sorted(seconds(lambda h=horizon: our_grams(mixing, attacker, h)) for _ in range(3))
        whole = seconds(lambda h=horizon: whole_account(mixing, attacker, h))
        rows.append(
            {
                "T": horizon,
                "seconds": taken[1],
                "whole_account": whole,
                "over_half_the_horizon": taken[1] / before if before else None,
                "peak_MB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3,
            }
        )
        before = taken[1]
    return rows


def long_horizon() -> Record:
    """A single-node view over 10,000 steps of a random graph: two victims at every distance."""
    mixing = nd.mixing_matrix(nd.build_graph("erdos-renyi", nodes=100, p=0.15, seed=0))
    algorithm = threats.dp_d_sgd(mixing=mixing, horizon=LONG)
    hops = nx.single_source_shortest_path_length(nx.from_numpy_array(mixing), 0)
    victims = [
        node
        for distance in range(1, max(hops.values()) + 1)
        for node in [u for u in hops if hops[u] == distance][:2]
    ]
    started = time.process_time()
    exposures = account(
        algorithm, threats.secure_sum(nodes=(0,)), participation=every_step(LONG), victims=victims
    )
    taken = time.process_time() - started
    per_step = [exposure.sensitivity_squared / LONG for exposure in exposures]
    return {
        "T": LONG,
        "victims": len(exposures),
        "seconds": taken,
        "least_per_step": min(per_step),
        "largest_per_step": max(per_step),
        "limit": 1 / 99,
        "which": ", ".join(sorted({exposure.which for exposure in exposures})),
        "peak_MB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--attacker", type=int, default=0)
    parser.add_argument("--steps", type=int, help="horizon of the comparison")
    arguments = parser.parse_args()
    mixing = ego_mixing()
    print(
        f"{platform.machine()}, {os.cpu_count()} cores, numpy {np.__version__}, "
        f"OPENBLAS_NUM_THREADS {os.environ.get('OPENBLAS_NUM_THREADS', 'default')}"
    )
    # Memory first: it is the peak of the process, which the rival would raise.
    print()
    report.print_table(
        growth(mixing, arguments.attacker),
        ["T", "seconds", "whole_account", "over_half_the_horizon", "peak_MB"],
        title="one attacker against all victims, Gram matrices and whole account",
    )
    print()
    report.print_table(
        [long_horizon()],
        [
            "T",
            "victims",
            "seconds",
            "least_per_step",
            "largest_per_step",
            "limit",
            "which",
            "peak_MB",
        ],
        title="a long single-node view",
    )
    seen = int(np.count_nonzero(mixing[arguments.attacker])) - 1
    horizon = arguments.steps or largest_horizon(seen, len(mixing))
    print()
    report.print_table(
        against_pseudo_inverse(mixing, arguments.attacker, horizon),
        ["attacker", "timed", "T", "ratio", "stacked_GB", "difference"],
        title="pseudo-inverse of the stacked matrix over ours (larger is better)",
    )


if __name__ == "__main__":
    main()
