"""Fill in the [reference] table of structured and joint problem files, by the oracles alone.

    python -m tests.support.structured_references problems/{time,space}-structures/*.toml ...

The numbers of every file are stated here again, so that neither a mixing matrix nor a workload
comes from the library. Files that have a table already are left as they are.
"""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np

from tests.support import ROOT, clique_oracles, oracles, structured_oracles as slow
from tests.support.oracles import Array, Interval
from tests.support.weight_cases import balanced, least_noise_by_conic, norm_by_svd

ROUNDING = 1e-12
"""Relative rounding of sums and eigendecompositions of a few hundred terms, with a margin."""

SEARCHED = 1e-6
"""Relative room above what a search without gradients found."""

PROGRAM = "lower: the dual value; upper: tr(H X^-1) of its X made feasible"


def ring(nodes: int) -> Array:
    return oracles.metropolis(nx.cycle_graph(nodes))


def florentine() -> Array:
    return oracles.metropolis(nx.florentine_families_graph())


def erdos_renyi() -> Array:
    return oracles.metropolis(oracles.erdos_renyi(20, 0.2))


def prefix(horizon: int) -> Array:
    workload = oracles.prefix_workload(horizon)
    return workload.T @ workload


def with_search(lower: float, upper: float) -> Interval:
    return Interval(lower, upper * (1 + SEARCHED))


# --- time -----------------------------------------------------------------------------------------

BANDED = (
    "Clarabel on X = C^T C, all patterns listed; lower: X^-1 H X^-1 without its entries inside the "
    "band, repaired, as multiplier; upper: tr(H X^-1) of X made feasible"
)


def ring_banded() -> tuple[Interval, str]:
    gram = oracles.gram_of_powers(ring(12), 24)
    return slow.banded_interval(gram, oracles.fixed_epoch_patterns(3, 8), 4), BANDED


def prefix_banded() -> tuple[Interval, str]:
    patterns = oracles.min_separation_patterns(16, 4, 3)
    return slow.banded_interval(prefix(16), patterns, 4), BANDED


def prefix_toeplitz() -> tuple[Interval, str]:
    gram, patterns = prefix(32), oracles.fixed_epoch_patterns(1, 32)
    root = np.cumprod(np.concatenate([[1.0], (np.arange(1, 32) - 0.5) / np.arange(1, 32)]))
    upper = slow.searched(gram, patterns, slow.toeplitz_strategy, [root[1:]])
    return with_search(oracles.diagonal_interval(gram, width=1e-7).lower, upper), (
        "lower: dual value of the program without a structure, by the fixed point; upper: BFGS on "
        "the coefficients, from the square root of prefix sums"
    )


def ring_banded_inverse() -> tuple[Interval, str]:
    gram, patterns = oracles.gram_of_powers(ring(12), 32), oracles.fixed_epoch_patterns(4, 8)
    upper = slow.searched(
        gram,
        patterns,
        lambda x: slow.banded_inverse(x, 32),
        [np.array([-0.3, -0.1]), np.array([-0.5, 0.0])],
    )
    return with_search(oracles.fixed_epoch_interval(gram, 4, 8).lower, upper), (
        "lower: dual value of the program without a structure, by L-BFGS-B; upper: Nelder-Mead on "
        "the two coefficients, dense"
    )


def prefix_buffered() -> tuple[Interval, str]:
    gram, patterns = prefix(64), oracles.fixed_epoch_patterns(1, 64)
    upper = slow.searched(
        gram,
        patterns,
        lambda x: slow.buffered(x, 64),
        [np.array([-2.0, -1.0, 3.0, 0.0]), np.array([-2.0, -2.0, 0.0, 1.0])],
    )
    return with_search(oracles.diagonal_interval(gram, width=1e-7).lower, upper), (
        "lower: dual value of the program without a structure, by the fixed point; upper: "
        "Nelder-Mead on the two scales and decays, dense"
    )


def turning(x: Array, horizon: int) -> Array:
    """C of a buffer and a pair: scales, atanh of the decay and of the modulus, and the angle."""
    decay, modulus = np.tanh(x[3]), np.tanh(x[4])
    ages = np.arange(horizon - 1)
    wave = modulus**ages * np.exp(1j * x[5] * ages)
    tail = x[0] * decay**ages + x[1] * wave.real + x[2] * wave.imag
    return slow.toeplitz(np.concatenate([[1.0], tail]))


def prefix_signed() -> tuple[Interval, str]:
    gram, patterns = prefix(32), oracles.fixed_epoch_patterns(4, 8)
    upper = slow.searched(
        gram, patterns, lambda x: turning(x, 32), [np.array([0.3, 0.2, 0.0, 0.5, 1.0, 0.8])]
    )
    return with_search(oracles.fixed_epoch_interval(gram, 4, 8).lower, upper), (
        "lower: dual value of the program without a structure, by L-BFGS-B; upper: Nelder-Mead on "
        "one buffer and a pair, dense, sensitivity by absolute values of C^T C"
    )


# --- space ----------------------------------------------------------------------------------------

CLIQUES = (
    "Clarabel on the blocks of R; lower: its multipliers scaled until they hold on every clique; "
    "upper: its blocks scaled to the budgets"
)
GROUPS = (
    ("Medici", "Acciaiuoli", "Barbadori", "Ridolfi", "Tornabuoni", "Salviati", "Pazzi"),
    ("Peruzzi", "Castellani", "Strozzi", "Bischeri"),
    ("Albizzi", "Guadagni", "Ginori", "Lamberteschi"),
)


def in_cliques(
    w: Array, cliques: Sequence[clique_oracles.Clique], **limits: Any
) -> tuple[Interval, str]:
    return clique_oracles.clique_interval(w.T @ w, cliques, **limits), CLIQUES


def edge_local(w: Array, **limits: Any) -> tuple[Interval, str]:
    return in_cliques(w, clique_oracles.near(w), **limits)


def complete_capped() -> tuple[Interval, str]:
    optimum = oracles.complete_graph_capped(10, cap=4.0)
    return Interval(optimum, optimum), (
        "unrestricted optimum: R = a I + b J with (1/x + 9/a) / 10 = 1 and (x + 9 a) / 10 = 4, x = "
        "a + 10 b; diagonally dominant, so pairs make it"
    )


def florentine_clusters() -> tuple[Interval, str]:
    rows = list(nx.florentine_families_graph())
    return in_cliques(florentine(), [tuple(rows.index(name) for name in g) for g in GROUPS])


def florentine_decor() -> tuple[Interval, str]:
    w = florentine()
    gram = w.T @ w
    upper = float(np.sum(gram * slow.decor_covariance(gram, w)))
    return with_search(oracles.diagonal_interval(gram, width=1e-7).lower, upper), (
        "lower: dual value of the program without a structure, by the fixed point; upper: a scalar "
        "search for the coefficient"
    )


def florentine_independent() -> tuple[Interval, str]:
    tau = np.ones(15)
    tau[[1, 4, 8]] = 0.5, 2.0, 0.25
    optimum = float((np.square(florentine()).sum(axis=0) / tau).sum())
    return Interval(optimum, optimum), "R_ii = 1 / tau_i, and tr(W R W^T) of it"


# --- space-time -----------------------------------------------------------------------------------


def ring_full() -> tuple[Interval, str]:
    a = slow.stacked_workload(ring(8), 12)
    return slow.full_interval(a.T @ a, 8, 1, 12), (
        f"fixed point on all 96 pairs of step and node, stacked matrices written out; {PROGRAM}"
    )


def ring_kronecker() -> tuple[Interval, str]:
    w = ring(8)
    a = slow.stacked_workload(w, 12)

    def best(gram: Array) -> Array:
        return np.linalg.inv(oracles.diagonal_interval(gram, width=1e-10).gram)

    upper = slow.kronecker_value(w, 12, time=best, space=best)
    return with_search(slow.full_interval(a.T @ a, 8, 1, 12).lower, upper), (
        "lower: dual value on all 96 pairs of step and node; upper: alternation of the fixed "
        "points of the two factors, stacked matrices written out"
    )


def path_full() -> tuple[Interval, str]:
    tau = np.tile([1.0, 1.0, 0.5, 1.0, 2.0], 8)
    a = slow.stacked_workload(oracles.metropolis(nx.path_graph(5)), 8) / np.sqrt(tau)
    return slow.full_interval(a.T @ a, 5, 2, 4), (
        f"L-BFGS-B on all 40 pairs of step and node, stacked matrices written out; {PROGRAM}"
    )


def florentine_banded_decor() -> tuple[Interval, str]:
    w = florentine()
    a = slow.stacked_workload(w, 8)
    patterns = oracles.fixed_epoch_patterns(2, 4)

    def banded(gram: Array) -> Array:
        return np.linalg.inv(slow.banded_interval(gram, patterns, 2).gram)

    upper = slow.kronecker_value(
        w, 8, time=banded, space=lambda gram: slow.decor_covariance(gram, w)
    )
    return with_search(slow.full_interval(a.T @ a, 15, 2, 4).lower, upper), (
        "lower: dual value on all 120 pairs of step and node; upper: alternation of Clarabel in "
        "time and a scalar search in space, stacked matrices written out"
    )


def mafalda_edge_local(w: Array) -> tuple[Interval, str]:
    n, cliques = len(w), clique_oracles.near(w)
    a = slow.stacked_workload(w, 8)

    def time(gram: Array) -> Array:
        return np.linalg.inv(oracles.fixed_epoch_interval(gram, 2, 4, width=1e-8).gram)

    def space(gram: Array) -> Array:
        return np.linalg.inv(clique_oracles.clique_interval(gram, cliques).gram)

    upper = slow.kronecker_value(w, 8, time=time, space=space)
    return with_search(slow.full_interval(a.T @ a, n, 2, 4).lower, upper), (
        "lower: dual value on all pairs of step and node; upper: alternation of L-BFGS-B in time "
        "and Clarabel in space, stacked matrices written out"
    )


# --- objectives -----------------------------------------------------------------------------------


RECURSION = f"H from the recursion run on every unit of noise, then the fixed point; {PROGRAM}"


def noise_blocks(w: Array, horizon: int, **how: Any) -> Array:
    """Model i after step x as a linear map of the noise of node j at step s: [x, i, s, j]."""
    maps, n = np.array(list(slow.noise_to_state(w, horizon, **how))), w.shape[-1]
    return maps.reshape(horizon, n, horizon, n)


def florentine_momentum() -> tuple[Interval, str]:
    blocks = noise_blocks(florentine(), 16, momentum=0.9)
    gram = np.einsum("tisa,tisb->ab", blocks, blocks)
    return oracles.diagonal_interval(gram, width=1e-9), RECURSION


def ring_dropout() -> tuple[Interval, str]:
    gram = sum(chance * w.T @ w for chance, w in slow.node_dropouts(ring(10), 0.2))
    optimum = float(np.sqrt(np.linalg.eigvalsh(gram)).sum() ** 2 / 10)
    return Interval(optimum, optimum), (
        "H over all 1024 sets of nodes that are out; nodes look alike, so the optimum is "
        "(tr H^1/2)^2 / 10"
    )


def path_edge_failures() -> tuple[Interval, str]:
    outcomes = list(slow.edge_failures(oracles.metropolis(nx.path_graph(5)), 0.1))
    blocks = slow.random_gram(outcomes, 8).reshape(8, 5, 8, 5)
    return oracles.fixed_epoch_interval(np.einsum("siti->st", blocks), 2, 4, width=1e-8), (
        f"H over all 16 sets of failed edges, step by step, then L-BFGS-B; {PROGRAM}"
    )


def final_models() -> tuple[Interval, str]:
    blocks = noise_blocks(oracles.metropolis(nx.path_graph(6)), 4)[-1]
    return oracles.fixed_epoch_interval(np.einsum("isj,itj->st", blocks, blocks), 2, 2), (
        f"H from the recursion run on every unit of noise, then L-BFGS-B; {PROGRAM}"
    )


def mean_model() -> tuple[Interval, str]:
    return oracles.fixed_epoch_interval(prefix(32), 4, 8, width=1e-8), (
        f"W keeps the mean, so n times its square is that of prefix sums; then L-BFGS-B; {PROGRAM}"
    )


def florentine_consensus() -> tuple[Interval, str]:
    blocks = noise_blocks(florentine(), 12)
    blocks = blocks - blocks.mean(axis=1, keepdims=True)
    return oracles.fixed_epoch_interval(np.einsum("xisj,xitj->st", blocks, blocks), 2, 6), (
        "H from the recursion run on every unit of noise, means subtracted, then L-BFGS-B; "
        f"{PROGRAM}"
    )


def florentine_step_weights() -> tuple[Interval, str]:
    blocks = noise_blocks(florentine(), 6)
    gram = np.einsum("x,xisa,xisb->ab", np.arange(6.0), blocks, blocks)
    return oracles.diagonal_interval(gram, width=1e-9), RECURSION


def florentine_loss() -> tuple[Interval, str]:
    gram = np.zeros((6, 6))
    for curvature in (0.05, 0.8):
        last = noise_blocks(florentine(), 6, curvature=curvature, rates=np.full(6, 0.5))[-1]
        gram += curvature / 2 / 15 * np.einsum("isj,itj->st", last, last)
    return oracles.fixed_epoch_interval(gram, 2, 3, width=1e-8), (
        "H from the recursion run on every unit of noise, per curvature, then L-BFGS-B; " + PROGRAM
    )


def florentine_loss_momentum() -> tuple[Interval, str]:
    gram = np.zeros((15, 15))
    for curvature, count in ((0.05, 3), (0.4, 1)):
        last = noise_blocks(florentine(), 8, curvature=curvature + 0.01, momentum=0.5)[-1]
        gram += count * (curvature + 0.01) / 2 / 15 * np.einsum("isa,isb->ab", last, last)
    return oracles.diagonal_interval(gram, width=1e-9), RECURSION


def path_mixture() -> tuple[Interval, str]:
    blocks = noise_blocks(oracles.metropolis(nx.path_graph(6)), 8)
    every = np.einsum("xisj,xitj->st", blocks, blocks)
    gram = 0.2 * every + 0.8 * np.einsum("isj,itj->st", blocks[-1], blocks[-1])
    return oracles.fixed_epoch_interval(gram, 2, 4, width=1e-8), (
        f"H from the recursion run on every unit of noise, then L-BFGS-B; {PROGRAM}"
    )


def florentine_uneven() -> tuple[Interval, str]:
    """C D is of unit sensitivity for D^-1 H D^-1, where D^2 = 1 / tau."""
    blocks = noise_blocks(florentine(), 8)
    root = np.sqrt(np.tile([1.0, 0.25, 1.0, 2.0], 2))
    gram = np.einsum("xisj,xitj->st", blocks, blocks) / root / root[:, None]
    return oracles.fixed_epoch_interval(gram, 2, 4, width=1e-8), (
        "H from the recursion run on every unit of noise, over the roots of the budgets, then "
        f"L-BFGS-B; {PROGRAM}"
    )


def path_failures_momentum() -> tuple[Interval, str]:
    outcomes = list(slow.edge_failures(oracles.metropolis(nx.path_graph(3)), 0.2))
    gram = np.zeros((4, 4))
    for drawn in itertools.product(outcomes, repeat=4):
        chance = math.prod(share for share, _ in drawn)
        w = np.array([one for _, one in drawn])
        for curvature in (0.1, 0.9):
            blocks = noise_blocks(w, 4, curvature=curvature, momentum=0.5, rates=np.full(4, 0.7))
            gram += chance * np.einsum("xisj,xitj->st", blocks, blocks)
    return oracles.fixed_epoch_interval(gram, 2, 2, width=1e-8), (
        "H from the recursion run on every unit of noise, for all 256 sequences of failed edges "
        f"and per curvature, then L-BFGS-B; {PROGRAM}"
    )


def loss_and_all(w: Array, horizon: int, share: float, **how: Any) -> Array:
    """H of all pairs of step and node: the loss of the last models, and of all iterates a share."""
    n, curvatures = len(w), (0.1, 0.6)
    gram = np.zeros((n * horizon, n * horizon))
    for curvature in curvatures:
        blocks = noise_blocks(w, horizon, curvature=curvature, **how)
        states = blocks.reshape(horizon, n, n * horizon)
        gram += share * np.einsum("xia,xib->ab", states, states)
        gram += (1 - share) * curvature / 2 / n * np.einsum("ia,ib->ab", states[-1], states[-1])
    return gram


def path_loss_full() -> tuple[Interval, str]:
    w = oracles.metropolis(nx.path_graph(4))
    gram = loss_and_all(w, 4, 0.1, momentum=0.5, rates=np.full(4, 0.8))
    return slow.full_interval(gram, 4, 2, 2), (
        "H of all 16 pairs of step and node from the recursion run on every unit of noise, per "
        f"curvature, then L-BFGS-B; {PROGRAM}"
    )


def florentine_loss_modal() -> tuple[Interval, str]:
    w, horizon = florentine(), 6
    gram = loss_and_all(w, horizon, 0.1, rates=np.full(horizon, 0.8))
    _, basis = np.linalg.eigh(w)
    seen = gram.reshape(horizon, len(w), horizon, len(w))
    grams = np.einsum("sitj,im,jm->mst", seen, basis, basis)
    upper = slow.modes_of_mixing(grams, basis, width=1e-6)
    return with_search(slow.full_interval(gram, len(w), 1, horizon).lower, upper), (
        "lower: dual value on all 90 pairs of step and node, H from the recursion run on every "
        "unit of noise; upper: the fixed point for noise that is independent along the "
        "eigenvectors of W"
    )


def florentine_last() -> tuple[Interval, str]:
    weights = np.ones(15)
    weights[1] = 10
    blocks = noise_blocks(florentine(), 8)[-1]
    gram = np.einsum("i,isa,isb->ab", weights, blocks, blocks)
    return oracles.diagonal_interval(gram, width=1e-9), RECURSION


def ring_learning_rates() -> tuple[Interval, str]:
    blocks = noise_blocks(ring(12), 16, rates=np.repeat([1.0, 0.5, 0.25, 0.125], 4))
    gram = np.einsum("xisj,xitj->st", blocks, blocks)
    return oracles.fixed_epoch_interval(gram, 2, 8, width=1e-8), (
        f"H from the recursion run on every unit of noise, then L-BFGS-B; {PROGRAM}"
    )


def ring_pairwise() -> tuple[Interval, str]:
    gram = sum(chance * w.T @ w for chance, w in slow.one_pair(nx.cycle_graph(12)))
    optimum = float(np.sqrt(np.linalg.eigvalsh(gram)).sum() ** 2 / 12)
    return Interval(optimum, optimum), (
        "H over all 12 edges; nodes look alike, so the optimum is (tr H^1/2)^2 / 12"
    )


def path_matchings() -> tuple[Interval, str]:
    outcomes = list(slow.maximal_matchings(nx.path_graph(5)))
    blocks = slow.random_gram(outcomes, 8).reshape(8, 5, 8, 5)
    return oracles.fixed_epoch_interval(np.einsum("siti->st", blocks), 2, 4, width=1e-8), (
        f"H over all maximal matchings, step by step, then L-BFGS-B; {PROGRAM}"
    )


# --- directed graphs, W itself, observers ---------------------------------------------------------


def exchange() -> Array:
    """A_ij = 1 where j sends to i or is i."""
    path = ROOT / "problems/directed/exchange.edges"
    lines = [line.split() for line in path.read_text().splitlines() if not line.startswith("#")]
    names = list(dict.fromkeys(name for line in lines for name in line))
    heard = np.eye(len(names))
    for sender, receiver in lines:
        heard[names.index(receiver), names.index(sender)] = 1.0
    return heard


def exchange_rows() -> tuple[Interval, str]:
    heard = exchange()
    gram = oracles.gram_of_powers(heard / heard.sum(axis=1, keepdims=True), 12)
    return oracles.fixed_epoch_interval(gram, 2, 6, width=1e-8), f"L-BFGS-B; {PROGRAM}"


def exchange_push_sum() -> tuple[Interval, str]:
    heard = exchange()
    w = heard / heard.sum(axis=0, keepdims=True)
    gram, mass = np.zeros((12, 12)), np.ones(len(w))
    powers = [np.linalg.matrix_power(w, t) for t in range(13)]
    for t in range(12):
        mass = w @ mass
        models = np.stack([powers[t - s + 1] / mass[:, None] for s in range(t + 1)])
        gram[: t + 1, : t + 1] += np.einsum("sij,tij->st", models, models)
    return oracles.fixed_epoch_interval(gram, 2, 6, width=1e-8), (
        f"H from states divided by W^t 1, then L-BFGS-B; {PROGRAM}"
    )


def ring_one_way() -> tuple[Interval, str]:
    w = (np.eye(8) + np.roll(np.eye(8), 1, axis=0)) / 2
    return oracles.capped_interval(w.T @ w, cap=20.0), f"L-BFGS-B on the dual; {PROGRAM}"


def ring_fastest() -> tuple[Interval, str]:
    # Eigenvalues 1 - 2 a (1 - cos): the second and the last are opposite at the best a.
    cosines = np.cos(2 * np.pi * np.arange(9) / 9)
    share = 1 / (2 - cosines[1] - cosines[4])
    optimum = float(np.abs(1 - 2 * share * (1 - cosines)).sum() ** 2 / 9)
    return Interval(optimum * (1 - 1e-6), optimum * (1 + 1e-6)), (
        "the fastest W of a ring by hand; nodes look alike, so the optimum is "
        "(sum |lambda|)^2 / n, give or take 1e-6 for the accuracy of W"
    )


def least_noise(graph: nx.Graph, *, norm: float, cap: float | None) -> tuple[Interval, str]:
    n = len(graph)
    caps = None if cap is None else np.full(n, cap)
    optimum = least_noise_by_conic(graph, norm=norm, budget=np.ones(n), cap=caps)
    return Interval(optimum * (1 - 2e-6), optimum * (1 + 2e-6)), (
        "Clarabel on the program over W, R^-1 and R, give or take 2e-6 for the accuracy of W"
    )


def least_noise_one_way() -> tuple[Interval, str]:
    drawn = (nx.gnp_random_graph(8, 0.3, seed=1000 * s, directed=True) for s in range(1000))
    graph = next(filter(nx.is_strongly_connected, drawn))
    optimum = least_noise_by_conic(
        graph,
        norm=norm_by_svd(balanced(graph)),
        budget=np.ones(8),
        cap=np.full(8, 10.0),
        node_weights=np.array([2.0, *[1.0] * 7]),
        symmetric=False,
    )
    return Interval(optimum * (1 - 2e-6), optimum * (1 + 2e-6)), (
        "Clarabel on the program over W, R^-1 and R at the norm of A + I, balanced by alternating "
        "scalings; give or take 2e-6 for the accuracy of W"
    )


def ring_neighbours() -> tuple[Interval, str]:
    return slow.observed_interval(ring(6), [(v,) for v in range(6)], horizon=3, cap=20.0), OBSERVED


def path_ends() -> tuple[Interval, str]:
    w = oracles.metropolis(nx.path_graph(5))
    return slow.observed_interval(w, [(0, 4)], horizon=2, cap=10.0), OBSERVED


OBSERVED = (
    "SCS on messages and own noise stacked as they are; upper: its R, shrunk and mixed with "
    "independent noise until dense views meet the budgets; lower: its dual value, less 4e-6"
)


REFERENCES: dict[str, Callable[[], tuple[Interval, str]]] = {
    "time-structures/ring-12-banded-3x8": ring_banded,
    "time-structures/prefix-banded-min-separation": prefix_banded,
    "time-structures/prefix-toeplitz-32": prefix_toeplitz,
    "time-structures/ring-12-banded-inverse-4x8": ring_banded_inverse,
    "time-structures/prefix-blt-64": prefix_buffered,
    "time-structures/prefix-signed-blt-4x8": prefix_signed,
    "space-structures/florentine-edge-local": lambda: edge_local(florentine()),
    "space-structures/erdos-renyi-20-edge-local": lambda: edge_local(erdos_renyi()),
    "space-structures/ring-16-edge-local": lambda: edge_local(ring(16)),
    "space-structures/florentine-edge-local-capped": lambda: edge_local(florentine(), cap=1.3),
    "space-structures/florentine-known-seeds": lambda: edge_local(florentine(), known_seeds=1),
    "space-structures/complete-10-edge-local-capped": complete_capped,
    "space-structures/florentine-two-hops": lambda: in_cliques(
        florentine(), clique_oracles.near(florentine(), 2)
    ),
    "space-structures/florentine-neighbourhood": lambda: in_cliques(
        florentine(), clique_oracles.neighbourhoods(florentine())
    ),
    "space-structures/florentine-clusters": florentine_clusters,
    "space-structures/florentine-decor": florentine_decor,
    "space-structures/florentine-independent": florentine_independent,
    "space-time/ring-8-full": ring_full,
    "space-time/ring-8-kronecker": ring_kronecker,
    "space-time/path-5-full-2x4": path_full,
    "space-time/florentine-banded-decor": florentine_banded_decor,
    "space-time/florentine-mafalda-edge-local": lambda: mafalda_edge_local(florentine()),
    "space-time/erdos-renyi-20-mafalda-edge-local": lambda: mafalda_edge_local(erdos_renyi()),
    "space-time/ring-16-mafalda-edge-local": lambda: mafalda_edge_local(ring(16)),
    "directed/exchange-row-stochastic-2x6": exchange_rows,
    "directed/exchange-push-sum-2x6": exchange_push_sum,
    "directed/ring-8-one-way": ring_one_way,
    "mixing-weights/ring-9-fastest": ring_fastest,
    "mixing-weights/florentine-least-noise": lambda: least_noise(
        nx.florentine_families_graph(), norm=norm_by_svd(florentine()), cap=None
    ),
    "mixing-weights/erdos-renyi-20-least-noise": lambda: least_noise(
        oracles.erdos_renyi(20, 0.2), norm=0.92, cap=3.0
    ),
    "mixing-weights/erdos-renyi-8-one-way-least-noise": least_noise_one_way,
    "observers/ring-6-neighbours": ring_neighbours,
    "observers/path-5-both-ends": path_ends,
    "objectives/florentine-momentum": florentine_momentum,
    "objectives/ring-10-dropout": ring_dropout,
    "objectives/path-5-edge-failures-2x4": path_edge_failures,
    "objectives/path-6-last-iterate-2x2": final_models,
    "objectives/ring-9-mean-model-4x8": mean_model,
    "objectives/florentine-consensus-2x6": florentine_consensus,
    "objectives/florentine-step-weights": florentine_step_weights,
    "objectives/florentine-node-weights-last": florentine_last,
    "objectives/florentine-loss-2x3": florentine_loss,
    "objectives/florentine-loss-momentum": florentine_loss_momentum,
    "objectives/path-6-mixture-2x4": path_mixture,
    "objectives/florentine-uneven-budgets-2x4": florentine_uneven,
    "objectives/path-3-edge-failures-momentum-2x2": path_failures_momentum,
    "space-time/path-4-full-loss-2x2": path_loss_full,
    "space-time/florentine-modal-loss-1x6": florentine_loss_modal,
    "objectives/ring-12-learning-rates-2x8": ring_learning_rates,
    "objectives/ring-12-pairwise-gossip": ring_pairwise,
    "objectives/path-5-maximal-matchings-2x4": path_matchings,
}


def fill_in(path: Path) -> None:
    """Append the table to a file that has none."""
    text = path.read_text(encoding="utf-8").rstrip("\n")
    if "[reference]" in text:
        print(f"{path}: has a reference", flush=True)
        return
    found, method = REFERENCES[f"{path.parent.name}/{path.stem}"]()
    lower, upper = found.lower * (1 - ROUNDING), found.upper * (1 + ROUNDING)
    table = f'[reference]\nlower = {lower!r}\nupper = {upper!r}\nmethod = "{method}"\n'
    path.write_text(f"{text}\n\n{table}", encoding="utf-8")
    print(f"{path}: [{lower:.12g}, {upper:.12g}], width {found.width:.2g}", flush=True)


if __name__ == "__main__":
    for name in sys.argv[1:]:
        fill_in(Path(name))
