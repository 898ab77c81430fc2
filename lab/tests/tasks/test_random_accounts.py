"""Budgets of batches drawn at random: which mechanisms, how much noise, and what rows say."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
from scipy import integrate, optimize, stats

import noisedesign as nd
from noisedesign.base.checks import InputError
from noisedesign.privacy.amplification import bins_of
from noisedesign_lab.papers.reproduce.ours import squared_error
from noisedesign_lab.tasks.accounts import FIXED, GAUSSIAN, RANDOM, meeting, of_noise
from noisedesign_lab.tasks.mechanisms import Mechanism, Network, mechanism
from noisedesign_lab.tasks.table import fingerprint, train
from noisedesign_lab.tasks.training_file import parse_training
from noisedesign_lab.tasks.training_task import TrainingTask
from tests.support import oracles

TEXT = """
name = "small"
mechanisms = ["none", "ldp", "bsr-2", "mafalda"]
seeds = 2
[graph]
kind = "ring"
nodes = 4
[participation]
kind = "balls-in-bins"
epochs = 2
separation = 3
[data]
kind = "gaussian"
records = 40
features = 2
[loss]
kind = "quadratic"
[privacy]
epsilons = [1.0, 4.0]
delta = 1e-3
adjacency = "zero-out"
accounts = ["fixed", "random"]
"""
SCHEME = nd.participation.BallsInBins(epochs=2, separation=3)
RING = oracles.metropolis(nx.cycle_graph(4))


def parsed(text: str = TEXT, **replaced: str) -> TrainingTask:
    for key, line in replaced.items():
        before = next(one for one in text.splitlines() if one.startswith(f"{key} ="))
        text = text.replace(before, line)
    return parse_training(text, folder=".")


def delta_of_two_bins(stddev: float, epsilon: float, k: int) -> float:
    """The larger of remove and add of two orthogonal bins of squared norm k: the lognormal of one
    by its closed form, that of the other by quadrature."""
    g, strike = k / stddev**2, math.exp(epsilon)
    root = math.sqrt(g)

    def call(level: float) -> float:
        """E (w - level)_+, w = exp(root z - g / 2)."""
        if level <= 0:
            return 1 - level
        d = -math.log(level) / root
        return float(stats.norm.cdf(d + root / 2) - level * stats.norm.cdf(d - root / 2))

    def mean(payoff: Any, kink: float) -> float:
        def weighted(z: float) -> float:
            return float(stats.norm.pdf(z)) * payoff(math.exp(root * z - g / 2))

        at = (math.log(kink) + g / 2) / root
        return float(integrate.quad(weighted, -12, 12, points=[at], limit=200, epsabs=1e-12)[0])

    def put(level: float) -> float:
        return level - 1 + call(level) if level > 0 else 0.0

    remove = mean(lambda w: call(2 * strike - w) / 2, 2 * strike)
    add = mean(lambda w: strike / 2 * put(2 / strike - w), 2 / strike)
    return max(remove, add)


def test_independent_noise_of_two_bins_by_quadrature() -> None:
    scheme = nd.participation.BallsInBins(epochs=3, separation=2)
    task = parsed(
        separation="separation = 2", epochs="epochs = 3", mechanisms='mechanisms = ["ldp"]'
    )
    found = {(row["account"], row["epsilon"]): row for _, row in task.lanes(task.named("ldp"))}
    assert task.participation == scheme
    for epsilon in (1.0, 4.0):
        expected = optimize.brentq(
            lambda s, e=epsilon: delta_of_two_bins(s, e, 3) - 1e-3, 0.5, 10, xtol=1e-9
        )
        assert found[RANDOM, epsilon]["stddev"] == pytest.approx(expected, rel=2e-3)
        assert found[RANDOM, epsilon]["stddev"] >= expected * (1 - 1e-6)
        mu = nd.privacy.mu_of(epsilon=epsilon, delta=1e-3)
        assert found[FIXED, epsilon]["stddev"] == pytest.approx(math.sqrt(3) / mu, rel=1e-9)
        assert found[FIXED, epsilon]["mu"] == pytest.approx(mu, rel=1e-9)


def test_rows_of_both_accounts_side_by_side(tmp_path: Path) -> None:
    found = train(parsed(), output=tmp_path / "rows.csv")
    lines = [(one.mechanism, one.account, one.epsilon) for one in found]
    noisy = [
        (name, account, epsilon)
        for name in ("ldp", "bsr-2", "mafalda")
        for account in (FIXED, RANDOM)
        for epsilon in (1.0, 4.0)
    ]
    assert lines == [("none", "", None), *noisy]
    by = {(one.mechanism, one.account, one.epsilon): one for one in found}
    for name in ("ldp", "bsr-2"):
        for epsilon in (1.0, 4.0):
            fixed, random = by[name, FIXED, epsilon], by[name, RANDOM, epsilon]
            assert random.stddev < fixed.stddev
            assert fixed.mu is not None
            assert random.mu is None  # no such number holds of it at this noise
            assert fixed.which == GAUSSIAN
            assert random.which not in ("", GAUSSIAN)
    for epsilon in (1.0, 4.0):
        fixed, random = by["mafalda", FIXED, epsilon], by["mafalda", RANDOM, epsilon]
        assert random.which == "fixed: C has negative entries"
        assert (random.stddev, random.mu) == (fixed.stddev, fixed.mu)
        assert random.train_loss == fixed.train_loss
    again = train(parsed(), output=tmp_path / "rows.csv")
    assert again.skipped == len(again.rows) == len(found.rows)
    assert again.rows == found.rows


def test_the_account_is_random_where_the_participation_is() -> None:
    text = TEXT.replace('accounts = ["fixed", "random"]', "")
    assert parsed(text).accounts == (RANDOM,)
    fixed = text.replace('kind = "balls-in-bins"', 'kind = "fixed-epoch"')
    assert parsed(fixed).accounts == (FIXED,)
    assert fingerprint(parsed(text)) != fingerprint(parsed(fixed))


KINDS = {
    "cyclic-poisson": "epochs = 2\nseparation = 3\nrate = 0.5",
    "truncated-poisson": (
        "epochs = 2\nseparation = 2\nrate = 0.5\nbatch_size_limit = 3\ngroup_size = 4"
    ),
}


def of_kind(kind: str) -> str:
    before = 'kind = "balls-in-bins"\nepochs = 2\nseparation = 3'
    assert before in TEXT
    return TEXT.replace(before, f'kind = "{kind}"\n{KINDS[kind]}')


def test_rows_of_cyclic_poisson_sampling() -> None:
    """Less noise than of the fixed account, and more for the smaller budget; none where C is not
    covered. Training takes them, with batches of their law."""
    pytest.importorskip("dp_accounting", reason="dp-accounting: .[ledger] brings it")
    text = of_kind("cyclic-poisson")
    task = parsed(text)
    found = train(replace(task, seeds=[0]))
    by = {(one.mechanism, one.account, one.epsilon): one for one in found}
    for name in ("ldp", "bsr-2"):
        for epsilon in (1.0, 4.0):
            fixed, random = by[name, FIXED, epsilon], by[name, RANDOM, epsilon]
            assert (fixed.which, random.which) == (GAUSSIAN, "composition")
            assert fixed.mu is not None
            assert random.mu is random.confidence is None
            assert random.stddev < fixed.stddev
        assert by[name, RANDOM, 4.0].stddev < 0.7 * by[name, RANDOM, 1.0].stddev
    kept = by["mafalda", RANDOM, 1.0]
    assert kept.which == "fixed: C has negative entries"
    assert kept.stddev == by["mafalda", FIXED, 1.0].stddev
    assert parsed(text.replace('accounts = ["fixed", "random"]', "")).accounts == (RANDOM,)


@pytest.mark.parametrize(
    ("kind", "name", "privacy", "why"),
    [
        ("cyclic-poisson", "ldp", {"delta": "delta = 1e-30"}, "delta is lost"),
        ("truncated-poisson", "bsr-3", {}, "columns of C of one record share rows"),
        (
            "truncated-poisson",
            "ldp",
            {"adjacency": 'adjacency = "add-remove"'},
            "truncated Poisson sampling has no account of add-remove",
        ),
    ],
)
def test_what_accounts_of_other_kinds_do_not_hold_for(
    kind: str, name: str, privacy: dict[str, str], why: str
) -> None:
    pytest.importorskip("dp_accounting", reason="dp-accounting: .[ledger] brings it")
    task = parsed(
        of_kind(kind), mechanisms=f'mechanisms = ["{name}"]', epsilons="epsilons = [2.0]", **privacy
    )
    (_, fixed), (lane, random) = task.lanes(task.named(name))
    assert random["which"].startswith(f"fixed: {why}")
    assert (random["stddev"], random["mu"]) == (fixed["stddev"], fixed["mu"])
    assert lane.counts_on is None


def test_the_noise_multiplier_of_other_kinds_gives_its_epsilon_back() -> None:
    pytest.importorskip("dp_accounting", reason="dp-accounting: .[ledger] brings it")
    scheme = nd.participation.CyclicPoisson(epochs=2, separation=3, rate=0.5)
    made = mechanism("bsr-3", Network(mixing=RING, participation=scheme))
    scale = meeting(made, TARGET, account=RANDOM, participation=scheme)
    found = of_noise(
        made,
        scale.noise_multiplier,
        delta=TARGET.delta,
        adjacency=TARGET.adjacency,
        account=RANDOM,
        participation=scheme,
    )
    assert found.random
    assert found.epsilon is not None
    assert TARGET.epsilon * (1 - 2e-4) <= found.epsilon <= TARGET.epsilon


@pytest.mark.parametrize(
    ("accounts", "match"),
    [
        ("[]", "accounts: expected one or more"),
        ('["fixed", "fixed"]', "accounts: expected one or more, each once"),
        ('["randomly"]', "accounts: expected one of"),
    ],
)
def test_accounts_that_are_none(accounts: str, match: str) -> None:
    with pytest.raises(InputError, match=f"privacy.{match}"):
        parsed(accounts=f"accounts = {accounts}")


def test_random_accounts_of_batches_in_order_are_refused() -> None:
    text = TEXT.replace('kind = "balls-in-bins"', 'kind = "fixed-epoch"')
    with pytest.raises(InputError, match='privacy.accounts: expected "fixed" alone'):
        parsed(text)


def test_epsilon_of_noise_multipliers() -> None:
    """The noise that an epsilon asks for gives that epsilon."""
    by_epsilon = parsed(mechanisms='mechanisms = ["ldp"]', epsilons="epsilons = [1.5]")
    scales = [row for _, row in by_epsilon.lanes(by_epsilon.named("ldp"))]
    given = ", ".join(repr(row["stddev"]) for row in scales)
    task = parsed(mechanisms='mechanisms = ["ldp"]', epsilons=f"noise_multipliers = [{given}]")
    rows = {(row["account"], row["stddev"]): row for _, row in task.lanes(task.named("ldp"))}
    for row in scales:
        assert rows[row["account"], row["stddev"]]["epsilon"] == pytest.approx(1.5, rel=5e-3)


def test_white_noise_of_every_kind_has_one_ratio() -> None:
    """Random bins' savings of noise that is white over time are the same for every R, K and server:
    the Gram matrix of the bins is even."""
    names = ["ldp", "whisper", "edge-local", "muffliato-3", "cdp-n2", "cdp-n"]
    task = parsed(mechanisms=f"mechanisms = {names}", epsilons="epsilons = [2.0]")
    ratios = []
    for name in names:
        (_, fixed), (_, random) = task.lanes(task.named(name))
        ratios.append(random["stddev"] / fixed["stddev"])
    assert ratios == pytest.approx([ratios[0]] * len(names), rel=2e-4)
    assert ratios[0] < 0.99


def test_gram_matrices_by_hand() -> None:
    """Columns of C summed over a bin, at the node that shows most."""
    network = Network(mixing=RING, participation=SCHEME, max_variance=20.0)
    c = np.eye(6) + 0.5 * np.eye(6, k=-1)
    bins = np.stack([c[:, j] + c[:, j + 3] for j in range(3)], axis=1)
    made = mechanism("bsr-2", network).strategy
    assert made is not None
    np.testing.assert_allclose(bins_of(made, SCHEME).gram, bins.T @ bins, rtol=1e-12)
    whisper = mechanism("whisper", network)
    assert whisper.design is not None
    assert whisper.strategy is not None
    told = np.diag(np.linalg.inv(whisper.design.covariance)).max()
    gram = bins_of(whisper.strategy, SCHEME).gram
    np.testing.assert_allclose(gram, 2 * told * np.eye(3), rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize("name", ["zip-dl", "kronecker", "mafalda"])
def test_noise_that_no_lemma_covers_keeps_the_fixed_account(name: str) -> None:
    task = parsed(
        mechanisms=f'mechanisms = ["{name}"]', epsilons='epsilons = [2.0]\nresponses = "fixed"'
    )
    (_, fixed), (lane, random) = task.lanes(task.named(name))
    assert random["which"].startswith("fixed: ")
    assert random["stddev"] == fixed["stddev"]
    assert random["mu"] == fixed["mu"]
    assert lane.counts_on is None


def test_sensitivity_of_banded_square_roots() -> None:
    """Bands up to the separation: columns of a bin do not meet, and every participation adds the
    squared norm of a column, which the last ones have less of."""
    network = Network(mixing=RING, participation=SCHEME.fixed)
    made = mechanism("bsr-3", network)
    column = 1 + 0.5**2 + 0.375**2
    assert made.sensitivity_squared == pytest.approx(2 * column, rel=1e-9)
    assert mechanism("bsr-1", network).sensitivity_squared == pytest.approx(2, rel=1e-9)


def test_mechanisms_of_fixed_batches_are_taken_as_they_are() -> None:
    """Their account holds for any batches; for random ones their own strategy is accounted for."""
    task = parsed(epsilons="epsilons = [2.0]")
    made = mechanism("bsr-2", replace(task.network, participation=SCHEME.fixed))
    other: Any = replace(task, mechanisms=[made])
    named = task.lanes(task.named("bsr-2"))
    assert [row["stddev"] for _, row in other.lanes(made)] == [row["stddev"] for _, row in named]
    elsewhere = replace(
        task.network, participation=nd.participation.FixedEpoch(epochs=3, separation=2)
    )
    with pytest.raises(InputError, match="mechanisms: expected noise that is accounted for"):
        task.lanes(mechanism("bsr-2", elsewhere))


RING_6 = oracles.metropolis(nx.cycle_graph(6))
TARGET = nd.PrivacyTarget(epsilon=2.0, delta=1e-4, adjacency="zero-out")


def error(made: Mechanism, scheme: nd.participation.BallsInBins) -> float:
    """Squared error of all iterates on the ring of six, at the noise of a random account."""
    scale = meeting(made, TARGET, account=RANDOM, participation=scheme)
    found = squared_error(made, RING_6, scheme.horizon)
    assert found is not None
    return found * scale.noise_multiplier**2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "other"), [("amplified", "mafalda"), ("amplified-kronecker", "kronecker")]
)
def test_designs_for_random_batches(name: str, other: str) -> None:
    """The noise at their own target is that which they were scaled to, and its fixed sensitivity is
    above 1: nothing of it is accounted for as if it were a design for fixed batches."""
    scheme = nd.participation.BallsInBins(epochs=2, separation=8)
    network = Network(mixing=RING_6, participation=scheme, target=TARGET, max_variance=20.0)
    made = mechanism(name, network)
    assert made.participation == scheme
    assert made.strategy is not None
    assert (made.strategy >= 0).all()
    gram = bins_of(made.strategy, scheme).gram
    assert made.sensitivity_squared == pytest.approx(np.diagonal(gram).max(), rel=1e-9)
    assert made.sensitivity_squared > 1.2
    scale = meeting(made, TARGET, account=RANDOM, participation=scheme)
    unit = 1 / nd.privacy.mu_of(epsilon=2.0, delta=1e-4)
    assert scale.noise_multiplier == pytest.approx(unit, rel=2e-2)
    fixed = mechanism(other, replace(network, participation=scheme.fixed))
    assert error(made, scheme) < 0.9 * error(fixed, scheme)


def test_designs_for_random_batches_ask_for_them_and_for_a_target() -> None:
    scheme = nd.participation.BallsInBins(epochs=2, separation=3)
    with pytest.raises(InputError, match="balls-in-bins"):
        mechanism("amplified", Network(mixing=RING, participation=scheme.fixed, target=TARGET))
    with pytest.raises(InputError, match="epsilons"):
        mechanism("amplified", Network(mixing=RING, participation=scheme))
