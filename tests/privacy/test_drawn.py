"""Epsilon of random participation before observers, against mixtures integrated by hand.

The Gram of a victim comes from the algorithm written down message by message (:mod:`transcripts`),
bins are enumerated, and what the attacker gains is integrated over what it sees.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import Any

import networkx as nx
import numpy as np
import pytest

from noisedesign import InputError
from noisedesign.privacy import amplification, drawn, views as threats
from noisedesign.privacy.accounting import epsilon_of
from noisedesign.privacy.exposure import Exposure, account
from noisedesign.system.participation import BallsInBins, FixedEpoch, Participation
from tests.support import mixture_oracles as quadrature, oracles, transcripts
from tests.support.transcripts import Observer, Traced

DELTA = 1e-4
PATH = oracles.metropolis(nx.path_graph(3))
PAIR = np.full((2, 2), 0.5)
ROLES = ("ldp", "pndp", "secure_sum", "tap", "insider", "secldp")
QUICK = [("antipgd", "ldp"), ("banded", "pndp"), ("decor", "secldp")]
TWO_BY_TWO = BallsInBins(epochs=2, separation=2)


def observer_of(kind: str) -> tuple[threats.Observer, Observer]:
    """Node 0 in one of the roles, and its literal twin."""
    if kind == "ldp":
        return threats.ldp(), Observer(kind="ldp")
    return getattr(threats, kind)(nodes=(0,)), Observer(kind=kind, nodes=(0,))  # type: ignore[arg-type]


def cases(w: np.ndarray, horizon: int) -> dict[str, tuple[threats.Algorithm, transcripts.Protocol]]:
    """Algorithms whose strategies have no negative entry, beside their literal twins."""
    common = {"mixing": w, "horizon": horizon}
    c = np.eye(horizon) + 0.5 * np.eye(horizon, k=-1)
    c[-1, 0] = 0.25
    return {
        "dp-d-sgd": (threats.dp_d_sgd(**common), transcripts.independent(w, horizon=horizon)),
        "muffliato": (
            threats.muffliato(**common, rounds=2),
            transcripts.independent(w, horizon=horizon, rounds=2),
        ),
        "antipgd": (threats.antipgd(**common), transcripts.anti_pgd(w, horizon=horizon)),
        "banded": (threats.mf_d_sgd(mixing=w, strategy=c), transcripts.local_strategy(w, c)),
        "decor": (
            threats.decor(**common, node_variance=1.0, edge_variance=2.0),
            transcripts.decor(w, horizon=horizon, node_variance=1.0, edge_variance=2.0),
        ),
        "zip-dl": (threats.zip_dl(**common), transcripts.zip_dl(w, horizon=horizon)),
    }


def grams_of_bins(
    protocol: transcripts.Protocol, twin: Observer, participation: BallsInBins
) -> dict[int, np.ndarray]:
    """Products of the means of the bins of every victim, unit noise and unit gradients."""
    run = protocol(Traced())
    look = transcripts.look(run, twin)
    found = {}
    for victim in (u for u in run.nodes if u not in twin.coalition):
        gram, steps = look.gram(victim)
        assert not steps
        sums = [[gram[np.ix_(i, j)].sum() for j in participation.bins] for i in participation.bins]
        found[victim] = np.array(sums)
    return found


def before(
    algorithm: threats.Algorithm,
    observer: threats.Observer,
    participation: Participation,
    **how: object,
) -> list[Exposure]:
    words = {"adjacency": "zero-out", "delta": DELTA} | how
    return account(algorithm, observer, participation=participation, **words)  # type: ignore[arg-type]


def losses(found: list[Exposure]) -> dict[str, float]:
    assert all(exposure.epsilon is not None for exposure in found)
    return {exposure.node: float(exposure.epsilon or 0.0) for exposure in found}


def holds(gram: np.ndarray, epsilon: float) -> bool:
    """Whether no attacker gains more, to the rounding of the integral."""
    return quadrature.worst_delta(gram, epsilon) <= DELTA * (1 + 1e-6)


def tight(gram: np.ndarray, epsilon: float) -> bool:
    """Whether it holds, and a per cent less does not."""
    return holds(gram, epsilon) and not holds(gram, epsilon / 1.01)


SLOW = [
    pytest.param(name, kind, marks=() if pair in QUICK else pytest.mark.slow)
    for name, kind in itertools.product(cases(PATH, 4), ROLES)
    for pair in [(name, kind)]
]


@pytest.mark.parametrize(("name", "kind"), SLOW)
def test_epsilon_is_that_of_the_mixture_that_is_seen(name: str, kind: str) -> None:
    """Two bins of two steps: never below the integral nor above the account of known steps, and no
    more than a reader of all messages learns."""
    algorithm, protocol = cases(PATH, 4)[name]
    observer, twin = observer_of(kind)
    whole = grams_of_bins(protocol, Observer(kind="ldp"), TWO_BY_TWO)
    noise = 2 * math.sqrt(max(gram.max() for gram in whole.values()))
    seen = grams_of_bins(protocol, twin, TWO_BY_TWO)
    # A reader of all of Zip-DL's messages learns everything: nothing bounds answers to models.
    how = {"noise_multiplier": noise, "responses": "fixed" if name == "zip-dl" else "any"}
    found = before(algorithm, observer, TWO_BY_TWO, **how)
    known = before(algorithm, observer, TWO_BY_TWO.fixed, **how)
    for drawn_steps, fixed in zip(found, known, strict=True):
        assert drawn_steps.epsilon is not None
        assert fixed.epsilon is not None
        assert holds(seen[int(drawn_steps.node)] / noise**2, drawn_steps.epsilon)
        assert drawn_steps.epsilon <= fixed.epsilon * (1 + 1e-9)
        assert (drawn_steps.mu, drawn_steps.sensitivity_squared) == pytest.approx(
            (fixed.mu, fixed.sensitivity_squared)
        )
        assert drawn_steps.random
        assert not fixed.random


@pytest.mark.parametrize("bins", [2, 3])
def test_bins_that_are_orthogonal_are_accounted_for_to_a_per_cent(bins: int) -> None:
    """Noise that is white in time before a reader of all messages: G = k I."""
    participation = BallsInBins(epochs=2, separation=bins)
    algorithm = threats.dp_d_sgd(mixing=PAIR, horizon=2 * bins)
    for exposure in before(algorithm, threats.ldp(), participation, noise_multiplier=2.0):
        assert exposure.epsilon is not None
        assert tight(2 * np.eye(bins) / 4, exposure.epsilon)
        assert exposure.which == "convolution"
        assert exposure.confidence is None
        assert exposure.epsilon_estimate is None


def test_a_replaced_record_is_a_removal_and_an_addition() -> None:
    """Never below two mixtures of opposite means, the worst that one record for another can do."""
    participation = BallsInBins(epochs=1, separation=2)
    algorithm = threats.dp_d_sgd(mixing=PAIR, horizon=2)
    for noise in (1.5, 4.0):
        (first, _) = before(
            algorithm, threats.ldp(), participation, noise_multiplier=noise, adjacency="replace"
        )
        assert first.epsilon is not None
        assert quadrature.replace_delta(np.eye(2) / noise**2, first.epsilon) <= DELTA
        assert first.epsilon <= epsilon_of(mu=2 / noise, delta=DELTA) * (1 + 1e-9)
        plain = before(algorithm, threats.ldp(), participation, noise_multiplier=noise)[0]
        assert plain.epsilon is not None
        assert plain.epsilon < first.epsilon


def test_more_noise_never_costs_privacy() -> None:
    algorithm, participation = threats.antipgd(mixing=PAIR, horizon=4), TWO_BY_TWO
    found = [
        before(algorithm, threats.ldp(), participation, noise_multiplier=noise)[0].epsilon
        for noise in (4.0, 6.0, 9.0, 20.0)
    ]
    assert all(later < earlier for earlier, later in itertools.pairwise(found))  # type: ignore[operator]


def test_noise_of_one_node_is_a_multiplier_of_its_own() -> None:
    algorithm = threats.dp_d_sgd(mixing=PAIR, horizon=2)
    participation = BallsInBins(epochs=1, separation=2)
    both = before(algorithm, threats.ldp(), participation, noise_multiplier=[2.0, 4.0])
    for exposure, noise in zip(both, (2.0, 4.0), strict=True):
        alone = before(algorithm, threats.ldp(), participation, noise_multiplier=noise)[0]
        assert exposure.epsilon == pytest.approx(alone.epsilon, rel=1e-8)
        assert exposure.epsilon is not None
        assert tight(np.eye(2) / noise**2, exposure.epsilon)


def test_who_is_exposed_or_hidden_is_so_whatever_is_drawn() -> None:
    algorithm = threats.dp_d_sgd(mixing=PATH, horizon=2)
    participation = BallsInBins(epochs=1, separation=2)
    for exposure in before(algorithm, threats.shared_seed(nodes=(2,)), participation):
        assert (exposure.epsilon, exposure.which) == (math.inf, "unbounded")
    apart = np.kron(np.eye(2), PAIR)
    hidden = before(
        threats.dp_d_sgd(mixing=apart, horizon=2), threats.pndp(nodes=(0,)), participation
    )
    assert [exposure.epsilon for exposure in hidden[1:]] == [0.0, 0.0]


def test_a_server_draws_for_all_whom_it_averages() -> None:
    """Noise of deviation 1 / 2 on the average of two: a record moves half of its gradient."""
    algorithm = threats.cdp(mixing=PAIR, horizon=2, server_noise="sigma^2/n^2")
    participation = BallsInBins(epochs=1, separation=2)
    for exposure in before(algorithm, threats.central(), participation, noise_multiplier=2.0):
        assert exposure.epsilon is not None
        assert tight(np.eye(2) / 4, exposure.epsilon)
    for exposure in before(algorithm, threats.ldp(), participation):
        assert exposure.epsilon == math.inf


def test_drawn_mixing_is_told_by_the_reader_of_all_messages() -> None:
    participation = BallsInBins(epochs=1, separation=2)
    algorithm = replace(threats.dp_d_sgd(mixing=PATH, horizon=2), drawn=True)
    whole = losses(before(algorithm, threats.ldp(), participation))
    for exposure in before(algorithm, threats.pndp(nodes=(0,)), participation):
        assert exposure.epsilon == whole[exposure.node]
        assert exposure.which == "convolution of all-messages-upper-bound"
        assert "reader of all messages" in exposure.words


def test_mixed_signs_are_bounded_by_both_and_the_less_is_told() -> None:
    """Before node 0 of a triangle with uneven weights some products are negative."""
    w = np.array([[0.6, 0.3, 0.1], [0.3, 0.1, 0.6], [0.1, 0.6, 0.3]])
    algorithm = threats.dp_d_sgd(mixing=w, horizon=4)
    observer = threats.secure_sum(nodes=(0,))
    found = before(algorithm, observer, TWO_BY_TWO, noise_multiplier=2.0)
    whole = losses(before(algorithm, threats.ldp(), TWO_BY_TWO, noise_multiplier=2.0))
    bounds = [exposure for exposure in found if "upper-bound" in exposure.which]
    assert bounds
    for exposure in bounds:
        assert exposure.words.startswith("at most this")
        assert exposure.epsilon is not None
        assert exposure.epsilon <= whole[exposure.node]


def test_victims_that_are_alike_are_asked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    real = amplification.amplified_epsilon

    def counted(*args: object, **how: object) -> object:
        asked.append(args)
        return real(*args, **how)  # type: ignore[arg-type]

    drawn._accounts.cache_clear()
    monkeypatch.setattr(amplification, "amplified_epsilon", counted)
    ring = oracles.metropolis(nx.cycle_graph(6))
    algorithm = threats.dp_d_sgd(mixing=ring, horizon=2)
    progress: list[tuple[int, int]] = []
    found = before(
        algorithm,
        threats.ldp(),
        BallsInBins(epochs=1, separation=2),
        progress=lambda done, total: progress.append((done, total)),
    )
    assert len(asked) == 1
    assert len({exposure.epsilon for exposure in found}) == 1
    assert progress == [(done, 6) for done in range(1, 7)]


def test_no_delta_asks_for_no_epsilon() -> None:
    algorithm = threats.dp_d_sgd(mixing=PAIR, horizon=2)
    (first, _) = before(algorithm, threats.ldp(), BallsInBins(epochs=1, separation=2), delta=None)
    assert (first.epsilon, first.loss) == (None, first.mu)


@pytest.mark.parametrize("kind", ROLES)
def test_negative_strategies_are_refused_before_everybody(kind: str) -> None:
    c = np.array([[1.0, 0.0], [-0.5, 1.0]])
    algorithm = threats.mf_d_sgd(mixing=PATH, strategy=c)
    observer, _ = observer_of(kind)
    with pytest.raises(InputError, match="Near exact privacy amplification") as caught:
        before(algorithm, observer, BallsInBins(epochs=1, separation=2))
    assert caught.value.field == "strategy"
    assert "nonnegative = true" in str(caught.value)
    assert "row 1, column 0" in str(caught.value)
    before(algorithm, observer, FixedEpoch(epochs=1, separation=2))


def test_noise_of_any_covariance_is_a_view_and_no_strategy() -> None:
    """Two steps of two nodes; messages of the second step take back some noise of the first."""
    c = np.array([[1.0, 0.0], [-0.5, 1.0]])
    covariance = np.kron(np.linalg.inv(c.T @ c), np.eye(2))
    algorithm = threats.space_time(mixing=PAIR, covariance=covariance, horizon=2)
    participation = BallsInBins(epochs=1, separation=2)
    found = before(algorithm, threats.ldp(), participation, noise_multiplier=2.0)
    bound = np.abs(c).T @ np.abs(c) / 4
    for exposure in found:
        assert exposure.which.endswith("mixed-signs-upper-bound")
        assert exposure.epsilon is not None
        assert holds(bound, exposure.epsilon)


def test_the_worst_victim_is_the_worst_of_all() -> None:
    """The first and the largest epsilon of a path before its end, and nobody's is too small."""
    path = oracles.metropolis(nx.path_graph(5))
    how = {
        "algorithm": threats.dp_d_sgd(mixing=path, horizon=4),
        "observer": threats.pndp(nodes=(0,)),
        "participation": TWO_BY_TWO,
        "noise_multiplier": 2.0,
        "adjacency": "zero-out",
        "delta": DELTA,
        "responses": "fixed",
    }
    everybody = account(**how)  # type: ignore[arg-type]
    worst = account(**how, worst=True)  # type: ignore[arg-type]
    assert max(worst, key=lambda e: e.loss) == max(everybody, key=lambda e: e.loss)
    for short, full in zip(worst, everybody, strict=True):
        assert short.loss >= full.loss * (1 - 1e-9)
    assert [short.which for short in worst[1:]] == ["unamplified"] * 3


def test_views_that_only_rounding_tells_apart_have_the_account_of_the_larger(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A spy keeps what is accounted for: no entry of what is taken for the same is above it."""
    seen: list[np.ndarray] = []
    of = amplification.amplified_epsilon

    def spied(mixture: Any, **how: Any) -> Any:
        seen.append(mixture.gram)
        return of(mixture, **how)

    monkeypatch.setattr(amplification, "amplified_epsilon", spied)
    accounts = drawn._Accounts(
        drawn.Asked(
            participation=TWO_BY_TWO, delta=1e-5, noise_multiplier=2.0, adjacency="zero-out"
        )
    )
    gram = np.array([[2.0, 0.5], [0.5, 1.0]])
    views = [drawn._View(gram * (1 + by * drawn.ALIKE), "", True) for by in (0.0, 0.4, 0.8)]
    assert len({accounts.of(view).epsilon for view in views}) == len(seen) == 1
    assert all((view.array <= seen[0]).all() for view in views)
    accounts.of(drawn._View(gram * (1 + 1e-9), "", True))
    assert len(seen) == 2
