"""Stacked matrices of small space-time problems, entry by entry, without the library; and designs
of such problems with what is proved of them."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import Any

import networkx as nx
import numpy as np

from noisedesign.base import settings
from noisedesign.base.monitor import Monitor, Stop
from noisedesign.certify.certificate import Certificate
from noisedesign.families.disjoint.family import FULL
from noisedesign.families.kronecker import solver
from noisedesign.families.kronecker.bound import judge_kronecker
from noisedesign.families.kronecker.turned import proved
from noisedesign.families.space_time import SpaceTimeProgram
from noisedesign.forms import DenseStrategy, Noise
from noisedesign.problem.problem import SpaceTimeProblem
from noisedesign.system.participation import FixedEpoch
from tests.support import oracles

Array = Any

GRAPHS: dict[str, Array] = {
    "path-4": oracles.metropolis(nx.path_graph(4)),
    "lollipop": oracles.metropolis(nx.lollipop_graph(3, 2)),
    "ring-5": oracles.metropolis(nx.cycle_graph(5)),
    "ring-6, singular": oracles.metropolis(nx.cycle_graph(6)),
    "complete-3, singular": oracles.metropolis(nx.complete_graph(3)),
    "star-4, singular": oracles.metropolis(nx.star_graph(3)),
    "directed": oracles.row_normalized(nx.path_graph(4)),
    "one node": np.ones((1, 1)),
}


def stacked_workload(w: Array, horizon: int) -> Array:
    """A, (nT, nT), time-major: column (s, v) of row (t, u) is (W^(t-s+1))_uv for t >= s."""
    n = len(w)
    a = np.zeros((n * horizon, n * horizon))
    for t, s in itertools.product(range(horizon), repeat=2):
        if t >= s:
            power = np.linalg.matrix_power(w, t - s + 1)
            a[t * n : (t + 1) * n, s * n : (s + 1) * n] = power
    return a


def patterns_of(n: int, epochs: int, separation: int) -> list[list[int]]:
    """Coordinates of node u at the steps of each class, class by class and node by node."""
    steps = oracles.fixed_epoch_patterns(epochs, separation)
    return [[t * n + u for t in pattern] for pattern in steps for u in range(n)]


def conic_optimum(w: Array, epochs: int, separation: int, tau: Array) -> float:
    """Optimum by Clarabel: tr Y, [[Y, A], [A^T, X]] >= 0, and X_pi <= diag(y), sum y <= tau."""
    import cvxpy as cp

    n, horizon = len(w), epochs * separation
    a = stacked_workload(w, horizon)
    m = len(a)
    x, y = cp.Variable((m, m), symmetric=True), cp.Variable((m, m), symmetric=True)
    limits = [cp.bmat([[y, a], [a.T, x]]) >> 0]
    for number, pattern in enumerate(patterns_of(n, epochs, separation)):
        share = cp.Variable(len(pattern))
        limits += [cp.diag(share) - x[pattern, :][:, pattern] >> 0]
        limits += [cp.sum(share) <= tau[number % n]]
    problem = cp.Problem(cp.Minimize(cp.trace(y)), limits)
    problem.solve(solver="CLARABEL", tol_gap_abs=1e-9, tol_gap_rel=1e-9, tol_feas=1e-9)
    return float(problem.value)


def covariance(size: int, seed: int) -> Array:
    """A positive definite matrix."""
    root = np.random.default_rng(seed).normal(size=(size, size + 2))
    return root @ root.T / size


# --- designs, and what is proved of them ----------------------------------------------------------


def all_iterates(w: Array, epochs: int, separation: int, budget: Any = 1.0) -> SpaceTimeProgram:
    scheme = FixedEpoch(epochs=epochs, separation=separation)
    return SpaceTimeProgram.of(SpaceTimeProblem(mixing=w, participation=scheme, budget=budget))


@dataclass(frozen=True)
class Judged:
    """What a search for joint noise found, and the certificate of it.

    ``strategy`` is C of all nT coordinates, or of the steps alone beside ``covariance`` R.
    """

    problem: SpaceTimeProgram
    certificate: Certificate
    strategy: Array
    stop: Stop
    covariance: Array = None
    history: tuple[float, ...] = ()


def design_full(
    asked: SpaceTimeProgram,
    *,
    gap: float = settings.DEFAULT_GAP,
    time_limit: float | None = None,
    cap: Array = None,
) -> Judged:
    program = replace(asked, cap=cap).full_program()
    answer = FULL.solve(program, monitor=Monitor(gap=gap, time_limit=time_limit))
    negligible = settings.NEGLIGIBLE_PER_GAP * gap
    bound = FULL.bound(program, answer.proof, negligible=negligible).value
    found = []
    for noise in answer.noises:
        found.append((FULL.judge(program, noise, answer.proof, bound=bound), noise))
        if found[-1][0].gap <= gap:
            break
    certificate, noise = min(found, key=lambda one: one[0].objective)
    return Judged(
        problem=asked, certificate=certificate, strategy=noise.dense_strategy, stop=answer.stop
    )


def design_kronecker(
    asked: SpaceTimeProgram,
    *,
    gap: float = settings.DEFAULT_GAP,
    time_limit: float | None = None,
    progress: Any = None,
    cap: Array = None,
    **steps: Any,
) -> Judged:
    monitor = Monitor(gap=gap, time_limit=time_limit, progress=progress)
    capped = replace(asked, cap=cap)
    found = solver.design_kronecker(capped, monitor=monitor, **steps)
    strategy = found.strategy(capped)
    witness = solver.witness_of(capped, found, monitor)
    bound = proved(capped, solver.proof_of(capped, witness, monitor))
    certificate = judge_kronecker(capped, strategy=strategy, covariance=found.space, bound=bound)
    return Judged(
        problem=asked,
        certificate=certificate,
        strategy=strategy,
        covariance=found.space,
        stop=found.stop,
        history=found.history,
    )


def kronecker_noise(noising: Array, covariance: Array) -> Noise:
    """Noise of C^-1 = ``noising`` in time, from which alone it is drawn, and R in space."""
    strategy = DenseStrategy(strategy=np.eye(len(noising)), stored_noising=noising)
    return Noise.of_strategy(strategy, covariance=covariance)
