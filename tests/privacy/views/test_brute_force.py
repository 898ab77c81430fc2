"""Every algorithm before every observer, against the account message by message.

The library conditions, reduces and recurs; :mod:`transcripts` runs the algorithm and stacks what
was seen. They have to agree on every victim's Gram and on which steps are exposed.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from fractions import Fraction

import networkx as nx
import numpy as np
import pytest

from noisedesign.privacy import views as threats
from tests.support import oracles, transcripts
from tests.support.transcripts import Observer, Protocol, Traced

CLOSE = 1e-9
"""Largest difference of two Grams, relative to the larger of 1 and their largest entry."""


def _ring(n: int) -> np.ndarray:
    """Lazy weights 1/2, 1/4, 1/4: singular for n divisible by 4 (eigenvalue (1 + cos pi) / 2)."""
    eye = np.eye(n)
    return eye / 2 + (np.roll(eye, 1, axis=0) + np.roll(eye, -1, axis=0)) / 4


def _blocks(*parts: np.ndarray) -> np.ndarray:
    size = sum(map(len, parts))
    whole, at = np.zeros((size, size)), 0
    for part in parts:
        whole[at : at + len(part), at : at + len(part)] = part
        at += len(part)
    return whole


PAIR = np.full((2, 2), 1 / 2)
GRAPHS = {
    "path": oracles.metropolis(nx.path_graph(3)),
    "triangle, singular": np.full((3, 3), 1 / 3),
    "star": oracles.metropolis(nx.star_graph(3)),
    "star from a leaf": oracles.metropolis(nx.star_graph(3))[::-1, ::-1],
    "ring": oracles.metropolis(nx.cycle_graph(4)),
    "ring, singular": _ring(4),
    "two components": _blocks(PAIR, np.array([[0.75, 0.25], [0.25, 0.75]])),
    "attacker alone": _blocks(np.eye(1), oracles.metropolis(nx.path_graph(3))),
    "row-normalised star": oracles.row_normalized(nx.star_graph(3)),
    "directed": np.array([[1 / 2, 1 / 2, 0], [0, 1 / 3, 2 / 3], [1 / 4, 1 / 4, 1 / 2]]),
    "directed cycle, no self-weight": np.array([[0.0, 1, 0], [0, 0, 1], [1, 0, 0]]),
    "nobody hears node 2": np.array([[1 / 2, 1 / 2, 0], [1 / 4, 3 / 4, 0], [1 / 3, 1 / 3, 1 / 3]]),
}
RANK_TWO = np.array([[1, 0], [-1, 0], [1, 2], [0, 1.0]])


def algorithms(w: np.ndarray, horizon: int) -> Iterator[tuple[str, threats.Algorithm, Protocol]]:
    """Every algorithm and variant of the library beside its literal twin."""
    n, rng = len(w), np.random.default_rng(7)
    common = {"mixing": w, "horizon": horizon}
    yield "dp-d-sgd", threats.dp_d_sgd(**common), transcripts.independent(w, horizon=horizon)
    for k in (1, 2, 3):
        twin = transcripts.independent(w, horizon=horizon, rounds=k)
        yield f"muffliato {k}", threats.muffliato(**common, rounds=k), twin
    yield "antipgd", threats.antipgd(**common), transcripts.anti_pgd(w, horizon=horizon)
    general = np.tril(rng.standard_normal((4, 4)), -1) + np.diag([1.0, 2.0, 1.5, 0.8])
    toeplitz = np.array(
        [[(1, 0.5, -0.3, 0.7)[i - j] if i >= j else 0 for j in range(4)] for i in range(4)]
    )
    for name, c in (("general", general), ("Toeplitz", toeplitz)):
        c = c[:horizon, :horizon]
        for k in (1, 2, 3):
            twin = transcripts.local_strategy(w, c, rounds=k)
            yield f"{name} {k}", threats.mf_d_sgd(mixing=w, strategy=c, rounds=k), twin
    mixed = rng.integers(-2, 3, (n, n)).astype(float)
    for name, r in (
        ("whisper", mixed @ mixed.T + np.eye(n)),
        ("whisper, singular", RANK_TWO[:n] @ RANK_TWO[:n].T),
    ):
        twin = transcripts.whisper(w, r, horizon=horizon)
        yield name, threats.whisper(**common, covariance=r), twin
    for node, edge in ((1.0, 4.0), (0.5, 0.0), (0.0, 2.0)):
        variances = {"node_variance": node, "edge_variance": edge}
        twin = transcripts.decor(w, horizon=horizon, **variances)
        yield f"decor {node} {edge}", threats.decor(**common, **variances), twin
    for neighbourhood, self_message in itertools.product(("closed", "open"), ("unseen", "seen")):
        words = {"neighbourhood": neighbourhood, "self_message": self_message, "variance": 2.0}
        twin = transcripts.zip_dl(w, horizon=horizon, **words)
        yield f"zip-dl {neighbourhood} {self_message}", threats.zip_dl(**common, **words), twin
    size = n * horizon
    root = np.tril(rng.integers(-1, 2, (size, size)), -1) + np.diag(rng.integers(1, 3, size))
    blank = root.astype(float)
    blank[:, : n + 1] = 0.0
    blank[:n] = np.eye(n, size)  # node 0 is left without any noise at step 1, and at step 1 only
    for name, r in (("space-time", root @ root.T), ("space-time, singular", blank @ blank.T)):
        for k in (1, 2):
            twin = transcripts.dealt(w, r.astype(float), horizon=horizon, rounds=k)
            library = threats.space_time(**common, covariance=r.astype(float), rounds=k)
            yield f"{name} {k}", library, twin


def observers(n: int, pairs: list[tuple[int, int]]) -> Iterator[tuple[threats.Observer, Observer]]:
    """Every threat model, over one attacker and coalitions, beside its literal twin."""
    yield threats.ldp(), Observer(kind="ldp")
    yield threats.shared_seed(), Observer(kind="shared_seed")
    yield threats.shared_seed(nodes=(0,)), Observer(kind="shared_seed", nodes=(0,))
    coalitions = [(0,), (0, n - 1), (0, 1)][: n if n < 3 else 3]
    for nodes in coalitions:
        yield threats.tap(nodes=nodes), Observer(kind="tap", nodes=nodes)
        yield threats.insider(nodes=nodes), Observer(kind="insider", nodes=nodes)
        yield threats.secldp(nodes=nodes), Observer(kind="secldp", nodes=nodes)
        for own in ("seeds", "values", "counted"):
            words = {"nodes": nodes, "own_noise": own}
            yield threats.pndp(**words), Observer(kind="pndp", **words)
            yield threats.secure_sum(**words), Observer(kind="secure_sum", **words)
    for known in [(1,), *([(pairs[-1],), (0, pairs[0])] if pairs else [])]:
        twin = Observer(kind="secldp", nodes=(n - 1,), known_seeds=known)
        yield threats.secldp(nodes=(n - 1,), known_seeds=known), twin
        yield threats.secldp(known_seeds=known), Observer(kind="secldp", known_seeds=known)


def disagreements(
    name: str, algorithm: threats.Algorithm, protocol: Protocol
) -> tuple[list[str], int]:
    """What the two accounts of an algorithm do not agree on, and the number of comparisons."""
    run, found, compared = protocol(Traced()), [], 0
    for observer, twin in observers(len(run.nodes), list(run.pairs)):
        literal = transcripts.look(run, twin)
        victims = [u for u in run.nodes if u not in twin.coalition]
        for u, (gram, exposed) in threats.grams(threats.view(algorithm, observer), victims):
            expected, steps = literal.gram(u)
            compared += 1
            hidden = [t for t in range(run.horizon) if t not in steps]
            block = np.ix_(hidden, hidden)
            size = max(1.0, np.abs(expected[block]).max(initial=0.0))
            if tuple(np.flatnonzero(exposed)) != steps:
                found.append(f"{name}, {twin}, victim {u}: exposed {exposed}, not {steps}")
            elif not np.allclose(gram[block], expected[block], rtol=0, atol=CLOSE * size):
                found.append(f"{name}, {twin}, victim {u}:\n{gram}\nnot\n{expected}")
    return found, compared


HORIZONS = (1, 2, 3, 4)


OTHERS = (
    *("path", "triangle, singular", "star", "star from a leaf", "ring", "directed"),
    *("directed cycle, no self-weight", "nobody hears node 2"),
)
"""Four in a row have every algorithm over every horizon: without these, once."""


@pytest.mark.parametrize(
    "graph", [pytest.param(name, marks=[pytest.mark.slow] * (name in OTHERS)) for name in GRAPHS]
)
def test_every_algorithm_before_every_observer(graph: str) -> None:
    """All algorithms on all graphs, over horizons that take turns."""
    found, compared = [], 0
    for horizon in HORIZONS:
        for index, case in enumerate(algorithms(GRAPHS[graph], horizon)):
            if (index + list(GRAPHS).index(graph) + horizon) % len(HORIZONS) == 0:
                more, count = disagreements(*case)
                found += more
                compared += count
    assert not found, "\n".join(found[:20])
    assert compared > 500


@pytest.mark.slow
@pytest.mark.parametrize("horizon", HORIZONS)
@pytest.mark.parametrize("graph", GRAPHS)
def test_every_algorithm_before_every_observer_at_every_horizon(graph: str, horizon: int) -> None:
    found = [x for case in algorithms(GRAPHS[graph], horizon) for x in disagreements(*case)[0]]
    assert not found, "\n".join(found[:20])


# --- far victims, against exact arithmetic --------------------------------------------------------


def test_what_reaches_the_far_end_is_small_and_still_right() -> None:
    """A path of six from one end: Grams down to 1e-4, to ten digits of their own size."""
    graph, horizon = nx.path_graph(6), 5
    weights = [[Fraction(x).limit_denominator(6) for x in row] for row in oracles.metropolis(graph)]
    w = np.array(weights, dtype=float)
    c = [[Fraction(x) for x in row] for row in ((1, 0, 0), (-2, 1, 0), (1, -3, Fraction(1, 4)))]
    cases = [
        (
            threats.dp_d_sgd(mixing=w, horizon=horizon),
            transcripts.independent(weights, horizon=horizon),
        ),
        (
            threats.muffliato(mixing=w, horizon=2, rounds=3),
            transcripts.independent(weights, horizon=2, rounds=3),
        ),
        (
            threats.mf_d_sgd(mixing=w, strategy=np.array(c, dtype=float), rounds=2),
            transcripts.local_strategy(weights, c, rounds=2),
        ),
        (threats.zip_dl(mixing=w, horizon=horizon), transcripts.zip_dl(weights, horizon=horizon)),
    ]
    pairs = [
        (threats.pndp(nodes=(0,)), Observer(kind="pndp", nodes=(0,))),
        (threats.secure_sum(nodes=(0,)), Observer(kind="secure_sum", nodes=(0,))),
        (threats.tap(nodes=(0,)), Observer(kind="tap", nodes=(0,))),
    ]
    for (algorithm, protocol), (observer, twin) in itertools.product(cases, pairs):
        run, mechanism = protocol(Traced()), threats.view(algorithm, observer)
        for u, (gram, exposed) in threats.grams(mechanism, [2, 4, 5]):
            exact, steps = transcripts.eliminated(run, twin, u)
            expected = np.array(exact, dtype=float)
            assert steps == ()
            assert not exposed.any()
            np.testing.assert_allclose(gram, expected, rtol=0, atol=1e-10 * expected.max())
