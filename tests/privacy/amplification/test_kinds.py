"""What holds for every kind of random participation."""

from __future__ import annotations

import math

import numpy as np
import pytest

import noisedesign as nd
from noisedesign.base.checks import InputError
from noisedesign.privacy.amplification import amplified
from noisedesign.privacy.amplification.account import KINDS, Asked
from noisedesign.privacy.amplification.losses import HEADROOM, every_step
from noisedesign.system.participation import SCHEMES, Participation

pytest.importorskip("dp_accounting", reason="dp-accounting: .[ledger] brings it")

SMALL: list[Participation] = [
    nd.participation.BallsInBins(epochs=3, separation=4),
    nd.participation.RandomAllocation(horizon=12, participations=3),
    nd.participation.CyclicPoisson(epochs=3, separation=4, rate=0.3),
    nd.participation.TruncatedPoisson(
        epochs=3, separation=4, rate=0.3, batch_size_limit=6, group_size=10
    ),
    nd.participation.BMinSepSampling(horizon=12, separation=4, rate=0.3),
]


MUCH = {
    "balls-in-bins": 0.75,
    "random-allocation": 0.9,
    "cyclic-poisson": 0.35,
    "truncated-poisson": 0.55,
    "b-min-sep": 0.5,
}
"""Of the epsilon of an adversary's choice, where a record takes part in 3 of 12 steps or fewer."""


def of_kind(scheme: Participation) -> str:
    return scheme.kind


def test_every_random_scheme_has_an_account() -> None:
    assert {kind for kind, scheme in SCHEMES.items() if scheme.random} == set(KINDS)
    assert [scheme.kind for scheme in SMALL] == list(KINDS)


@pytest.mark.parametrize(
    ("scheme", "adjacency"),
    [
        pytest.param(
            scheme,
            adjacency,
            id=f"{adjacency}-{scheme.kind}",
            # One kind by samples, one adjacency of it.
            marks=[pytest.mark.slow] * ((scheme.kind, adjacency) == ("b-min-sep", "replace")),
        )
        for scheme in SMALL
        for adjacency in ("zero-out", "replace")
    ],
)
def test_never_above_the_account_of_an_adversary_s_choice(
    scheme: Participation, adjacency: str
) -> None:
    """And below it by much where there is something to gain, but by nothing where there is not."""
    column = np.array([1.0, 0.5, 0.25])
    strategy = sum(np.diag(np.full(12 - k, column[k]), -k) for k in range(3))
    patterns = scheme.fixed.maximal_patterns()
    largest = max(float((strategy[:, list(s)].sum(axis=1) ** 2).sum()) for s in patterns)
    if scheme.kind == "random-allocation":  # any three steps: by the products of one with three
        largest = 3 * np.sort(strategy.T @ strategy, axis=1)[:, -3:].sum(axis=1).max()
    for noise in (0.05, 2.0):
        found = amplified(
            scheme, strategy, delta=1e-3, noise_multiplier=noise, adjacency=adjacency, samples=20000
        )
        factor = 2 if adjacency == "replace" else 1
        fixed = nd.privacy.epsilon_of(mu=factor * math.sqrt(largest) / noise, delta=1e-3)
        assert found.epsilon <= fixed * (1 + 1e-6)
        if noise < 1:
            assert found.which == "unamplified"
            assert found.epsilon == pytest.approx(fixed, rel=1e-6)
        else:
            assert found.epsilon < MUCH[scheme.kind] * fixed
        assert found.adjacency == adjacency


@pytest.mark.parametrize("scheme", SMALL, ids=of_kind)
def test_rows_of_an_observer_that_sees_nothing(scheme: Participation) -> None:
    assert amplified(scheme, np.zeros((4, 12)), delta=1e-5).epsilon == 0


@pytest.mark.parametrize("scheme", SMALL, ids=of_kind)
def test_rows_may_be_fewer_or_more_than_steps(scheme: Participation) -> None:
    """Rotated rows that stay nonnegative: a step seen twice at half the variance is the same."""
    options = {"delta": 1e-3, "noise_multiplier": 2.0, "adjacency": "zero-out", "samples": 2000}
    once = amplified(scheme, np.eye(12), **options)  # type: ignore[arg-type]
    twice = amplified(scheme, np.vstack([np.eye(12)] * 2) / 2**0.5, **options)  # type: ignore[arg-type]
    assert twice.epsilon == pytest.approx(once.epsilon, rel=0.15)


@pytest.mark.parametrize("scheme", SMALL, ids=of_kind)
@pytest.mark.parametrize(
    ("bad", "field"),
    [
        ({"rows": np.eye(11)}, "rows"),
        ({"rows": np.eye(12, dtype=np.float32)}, "rows"),
        ({"rows": -np.eye(12)}, "rows"),
        ({"delta": 0.0}, "delta"),
        ({"delta": 1.0}, "delta"),
        ({"noise_multiplier": 0.0}, "noise_multiplier"),
        ({"adjacency": "add"}, "adjacency"),
        ({"confidence": 1.0}, "confidence"),
        ({"samples": 1}, "samples"),
        ({"seed": -1}, "seed"),
    ],
)
def test_wrong_input_names_its_field(
    scheme: Participation, bad: dict[str, object], field: str
) -> None:
    given = {"rows": np.eye(12), "delta": 1e-5} | bad
    with pytest.raises(InputError) as error:
        amplified(scheme, given.pop("rows"), **given)  # type: ignore[arg-type]
    assert error.value.field == field


def test_without_dp_accounting_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "dp_accounting", None)
    with pytest.raises(ModuleNotFoundError, match=r"noisedesign\[ledger\].*balls-in-bins"):
        amplified(
            nd.participation.CyclicPoisson(epochs=2, separation=2, rate=0.5), np.eye(4), delta=1e-5
        )


@pytest.mark.parametrize("adjacency", ["zero-out", "replace"])
def test_no_composition_below_what_doubles_resolve(adjacency: str) -> None:
    """Kinds that have no other bound refuse; b-min-sep sampling goes by its others."""
    rows, steps = np.eye(8) / 2, {"adjacency": adjacency, "confidence": 0.9, "seed": 0}
    scheme = nd.participation.BMinSepSampling(horizon=8, separation=2, rate=0.05)
    pair = every_step(0.25, 0.05, 8)
    resolved = HEADROOM * max(pair.remove.error, pair.add.error)
    assert 1e-14 < resolved < 1e-4
    for delta in (1e-3, 1.01 * resolved, 0.99 * resolved, 1e-14, 1e-30):
        (found,) = KINDS[scheme.kind](scheme, rows, Asked(delta=delta, samples=2, **steps))  # type: ignore[arg-type]
        for remove in (True, False):
            assert ("composition" in found.bounds(1.0, remove=remove)) == (delta >= resolved)
    for poisson in SMALL[1:4]:
        for delta in (1e-13, 1e-30):
            with pytest.raises(InputError, match="delta: expected at least .*doubles"):
                amplified(poisson, np.eye(12), delta=delta, adjacency=adjacency)
