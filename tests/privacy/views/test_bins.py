"""Causal rows of a victim and the Gram of its bins, against accounts of the first t steps.

What the messages of step t add to the Gram of all before is N_t = V_t^T V_t, however V is found; so
Grams of runs that are cut off, message by message (:mod:`transcripts`), say what V has to be.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import pytest

from noisedesign.privacy import views as threats
from noisedesign.privacy.drawn import CausalRows, bins_gram, causal_rows
from noisedesign.system.participation import BallsInBins
from tests.privacy.views.test_brute_force import GRAPHS, algorithms, observers
from tests.support import mixture_oracles as quadrature, transcripts
from tests.support.transcripts import Traced

CLOSE = 1e-8
HORIZON = 4
PATTERNS = BallsInBins(epochs=2, separation=2).bins


def products(seen: CausalRows) -> list[np.ndarray]:
    """N_t of every step."""
    rows = seen.rows if isinstance(seen.rows, np.ndarray) else seen.rows.toarray()
    return [block.T @ block for block in np.split(rows, seen.ends[:-1])]


def bound_by_hand(found: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Sums over bins of N_t, and of |N_t| with what keeps the remainders semidefinite."""
    chosen = np.zeros((HORIZON, len(PATTERNS)))
    for place, steps in enumerate(PATTERNS):
        chosen[list(steps), place] = 1
    attained = chosen.T @ sum(found) @ chosen
    absolute = [chosen.T @ np.abs(one) @ chosen for one in found]
    remainders = [sum(absolute[t:]) for t in range(HORIZON)]
    lacking = max(0.0, *(-np.linalg.eigvalsh(rest)[0] for rest in remainders))
    return attained, sum(absolute) + lacking * np.eye(len(PATTERNS))


def literal_products(
    graph: str, every: int
) -> Iterator[tuple[threats.Algorithm, threats.Observer, int, list[np.ndarray]]]:
    """Of all algorithms, or some, every observer and victim of whom nothing is seen without
    noise."""
    cut = {t: dict_of(graph, t) for t in range(1, HORIZON + 1)}
    for number, (name, (algorithm, _)) in enumerate(cut[HORIZON].items()):
        if number % every or name.startswith("space-time"):  # which is drawn for every horizon
            continue
        runs = {t: cut[t][name][1](Traced()) for t in cut}
        whole = runs[HORIZON]
        for observer, twin in observers(len(whole.nodes), list(whole.pairs)):
            looks = {t: transcripts.look(run, twin) for t, run in runs.items()}
            for victim in (u for u in whole.nodes if u not in twin.coalition):
                grams = {t: look.gram(victim) for t, look in looks.items()}
                if any(steps for _, steps in grams.values()):
                    continue
                padded = [np.zeros((HORIZON, HORIZON))]
                for t, (gram, _) in grams.items():
                    padded.append(np.pad(gram, (0, HORIZON - t)))
                added = [after - before for before, after in itertools.pairwise(padded)]
                yield algorithm, observer, victim, added


def dict_of(graph: str, horizon: int) -> dict[str, tuple[threats.Algorithm, transcripts.Protocol]]:
    return {name: (one, twin) for name, one, twin in algorithms(GRAPHS[graph], horizon)}


@pytest.mark.parametrize(
    ("graph", "every"), [("path", 4), *[pytest.param(g, 1, marks=pytest.mark.slow) for g in GRAPHS]]
)
def test_every_step_adds_what_its_messages_tell(graph: str, every: int) -> None:
    compared, mixed = 0, 0
    for algorithm, observer, victim, added in literal_products(graph, every):
        ((_, seen),) = causal_rows(threats.view(algorithm, observer), [victim])
        size = max(1.0, np.abs(sum(added)).max())
        for mine, theirs in zip(products(seen), added, strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=0, atol=CLOSE * size)
        gram, exact = bins_gram(seen, PATTERNS)
        attained, bound = bound_by_hand(added)
        assert np.linalg.eigvalsh(gram)[0] >= -1e-12 * size
        assert (gram >= attained - CLOSE * size).all()
        if np.abs(bound - attained).max() <= 1e-11 * size:
            assert exact
        elif np.abs(bound - attained).max() > CLOSE * size:
            assert not exact
            mixed += 1
        if exact:
            np.testing.assert_allclose(gram, attained, rtol=0, atol=CLOSE * size)
        else:
            np.testing.assert_allclose(gram, bound, rtol=0, atol=CLOSE * size)
        compared += 1
    assert compared > 50
    assert mixed > 0 or every == 1


@pytest.mark.parametrize("rank", [8, 5])
def test_noise_with_any_covariance_is_whitened_step_by_step(rank: int) -> None:
    """Two nodes, four steps: blocks of the inverse covariance of the first t steps; with rank 5 the
    last message of node 0 is known from those before, and only node 1 is asked for."""
    rng, n = np.random.default_rng(3), 2
    root = np.tril(rng.integers(-2, 3, (8, 8)), -1) + 3.0 * np.eye(8)
    if rank == 5:
        root[[2, 4, 6]] = root[0]  # node 0 adds the same at every step
    algorithm = threats.space_time(
        mixing=np.full((2, 2), 0.5), covariance=root @ root.T, horizon=HORIZON
    )
    ((_, seen),) = causal_rows(threats.view(algorithm, threats.ldp()), [1])
    before = np.zeros((HORIZON, HORIZON))
    for t, mine in enumerate(products(seen), start=1):
        first = root[: n * t]
        inverse = np.linalg.pinv(first @ first.T, rcond=1e-10)[1::2, 1::2]
        after = np.pad(inverse, (0, HORIZON - t))
        np.testing.assert_allclose(mine, after - before, rtol=0, atol=1e-9)
        before = after


def test_rows_may_be_turned_within_a_step() -> None:
    """Rows (1, 1) and (1, -1) of one step are those of twice the identity, of one sign."""
    rows = np.array([[1.0, 1.0], [1.0, -1.0]])
    gram, exact = bins_gram(CausalRows(rows, np.array([0, 2])), [(0,), (1,)])
    assert exact
    np.testing.assert_allclose(gram, 2 * np.eye(2), atol=1e-12)
    # Two steps cannot be turned into one another: the second takes something of the first back.
    rows = np.array([[1.0, 0.0], [-1.0, 1.0]])
    gram, exact = bins_gram(CausalRows(rows, np.array([1, 2])), [(0,), (1,)])
    assert not exact
    np.testing.assert_allclose(gram, [[2.0, 1.0], [1.0, 1.0]], atol=1e-12)


def test_rounding_has_no_sign() -> None:
    rows = np.array([[1.0, 0.0], [-1e-15, 1.0]])
    gram, exact = bins_gram(CausalRows(rows, np.array([1, 2])), [(0,), (1,)])
    assert exact
    assert gram.min() >= 0


def test_more_patterns_than_spectra_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = np.array([[1.0, 0.0], [-1.0, 1.0]])
    monkeypatch.setattr("noisedesign.privacy.drawn.MOST_SPECTRA", 1)
    gram, exact = bins_gram(CausalRows(rows, np.array([1, 2])), [(0,), (1,)])
    assert not exact
    np.testing.assert_allclose(gram, np.abs(rows).T @ np.abs(rows))


def test_what_is_still_to_come_has_a_covariance() -> None:
    """One step tells of four bins in a ring, neighbours by .7, one pair with the other sign. With
    absolute values the least eigenvalue is 1 - 2 * .7 < 0, so the diagonal grows by .4."""
    ring = np.eye(4) + 0.7 * (np.eye(4, k=1) + np.eye(4, k=-1))
    ring[0, 3] = ring[3, 0] = -0.7
    rows = np.linalg.cholesky(ring).T
    gram, exact = bins_gram(CausalRows(rows, np.array([0, 0, 0, 4])), [(0,), (1,), (2,), (3,)])
    assert not exact
    np.testing.assert_allclose(gram, np.abs(ring) + 0.4 * np.eye(4), atol=1e-12)


@pytest.mark.parametrize("turn", [0.4, 1.0, 2.5])
def test_gradients_chosen_while_looking_need_the_bound(turn: float) -> None:
    """y_1 = g_1 + z_1, y_2 = g_2 - g_1 / 2 + z_2: whoever turns the second gradient round when y_1
    is high learns more than from equal gradients, and never more than the bound allows."""
    rows = np.array([[1.5, 0.0], [-0.75, 1.5]])
    gram, exact = bins_gram(CausalRows(rows, np.array([1, 2])), [(0,), (1,)])
    assert not exact
    axis = np.linspace(-10, 10, 801)
    first, second = np.meshgrid(axis, axis, indexing="ij")
    cell = (axis[1] - axis[0]) ** 2 / (2 * np.pi)
    chosen = np.where(first > turn, -1.0, 1.0)  # g_2, of bin 1; g_1 = 1 is that of bin 0
    of_bins = [(1.5, -0.75), (0.0, 1.5 * chosen)]
    without = np.exp(-(first**2 + second**2) / 2)
    with_it = sum(np.exp(-((first - m) ** 2 + (second - k) ** 2) / 2) for m, k in of_bins) / 2
    better = 0
    for epsilon in (0.5, 1.0, 2.0):
        gained = float(np.maximum(with_it - np.exp(epsilon) * without, 0).sum() * cell)
        assert gained <= quadrature.remove_delta(gram, epsilon) * (1 + 1e-3)
        better += gained > quadrature.remove_delta(rows.T @ rows, epsilon) * (1 + 1e-2)
        lost = float(np.maximum(without - np.exp(epsilon) * with_it, 0).sum() * cell)
        assert lost <= quadrature.add_delta(gram, epsilon) * (1 + 1e-3)
    assert better > 0
