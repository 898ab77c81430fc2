"""The experiment on gossip averaging: its numbers against the stacked system and written-out loops,
its words against tables made by hand."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest

from noisedesign.privacy.accounting import mu_of
from noisedesign_lab.papers.reproduce.gossip import EXPERIMENT, risk, views
from tests.support import oracles
from tests.support.dense_views import system_matrix

VIEW_UNIT = {
    "graph": "erdos-renyi",
    "nodes": 8,
    "draw": 3,
    "p": 0.4,
    "index": 1,
    "victims": 2,
    "horizons": [1, 3],
}

RISK_UNIT = {
    "graph": "preferential-attachment",
    "nodes": 8,
    "draw": 0,
    "links": 2,
    "horizon": 5,
    "steps": ["constant", "tuned"],
    "epsilons": [0.5],
    "delta": 1e-5,
    "records": 3,
    "dimension": 2,
    "ridge": 0.3,
    "spread": 0.5,
    "seeds": 2,
}


# --- views ----------------------------------------------------------------------------------------


def test_rows_against_the_stacked_system() -> None:
    w = views.drawn(VIEW_UNIT)
    rows = views.run(VIEW_UNIT)
    assert {row["observer"] for row in rows} == {rows[0]["observer"]}
    observer = rows[0]["observer"]
    for row in rows:
        h = system_matrix(w, [observer], horizon=row["horizon"])
        columns = h[:, row["victim"] :: len(w)]
        gram = columns.T @ np.linalg.pinv(h @ h.T) @ columns
        signs = itertools.product([-1.0, 1.0], repeat=row["horizon"])
        exact = max(float(np.array(c) @ gram @ c) for c in signs)
        assert row["exact"] * row["horizon"] >= exact * (1 - 1e-9)
        if row["pair"] != views.FAR:
            low, high = oracles.elliptope(gram)
            assert low * (1 - 1e-6) <= row["exact"] * row["horizon"] <= high * (1 + 1e-6)
        assert row["constant"] * row["horizon"] == pytest.approx(gram.sum(), abs=1e-9)
        assert row["spectral"] == pytest.approx(np.linalg.eigvalsh(gram)[-1], abs=1e-9)
        near = w[observer, row["victim"]] > 0
        itself = row["victim"] == observer
        assert row["pair"] == (views.ITSELF if itself else views.NEAR if near else views.FAR)
    assert sum(row["horizon"] == 3 for row in rows) == 1 + 2 + 2


def test_another_observer_and_the_same_victims_whatever_the_horizons() -> None:
    other = views.run(VIEW_UNIT | {"index": 2, "horizons": [2]})
    again = views.run(VIEW_UNIT | {"horizons": [3]})
    first = [row for row in views.run(VIEW_UNIT) if row["horizon"] == 3]
    assert other[0]["observer"] != first[0]["observer"]
    assert again == first


def test_quantiles_by_hand() -> None:
    rows = [
        {
            "graph": "erdos-renyi",
            "draw": 0,
            "observer": observer,
            "pair": views.FAR,
            "horizon": 2,
            "constant": 0.5,
            "exact": exact,
            "spectral": spectral,
            "claimed": 0.9,
        }
        for observer, exact, spectral in (
            (0, 0.5, 0.54),
            (0, 1.0, 1.3),
            (1, 0.6, 0.6),
            (1, 0.0, 0.0),
        )
    ]
    (row,) = views.quantiles(rows)
    assert (row["pairs"], row["exact_50"], row["constant_95"]) == (4, 0.55, 0.5)
    assert row["within_tenth"] == 0.75  # 8 %, 30 %, 0 % and nothing above nothing
    assert row["within_tenth_of_constant"] == 0.5  # 8 %, 160 %, 20 %, and -100 %
    assert row["above_claimed"] == 0.25
    # Over two observed nodes: below the median 1/2 and 1/2, shares 1/2 and 1, of constants alike.
    assert row["exact_50_low"] == row["exact_50_high"] == pytest.approx(0.55)
    assert (row["within_tenth_low"], row["within_tenth_high"]) == (0.0, 1.0)
    assert row["within_tenth_of_constant_low"] == row["within_tenth_of_constant_high"] == 0.5
    assert not row["claimed_above_one"]


def test_nothing_is_drawn_on_a_logarithmic_axis_where_nothing_has_come_through() -> None:
    rows = [row for index in (0, 1) for row in views.run(VIEW_UNIT | {"index": index})]
    figure = views.growth(views.quantiles(rows), nodes=8)
    values = np.concatenate([line.get_ydata() for axes in figure.axes for line in axes.lines])
    assert np.isnan(values).any()
    assert np.nanmin(values) > 0


# --- risk -----------------------------------------------------------------------------------------


def loss(task: risk.Task, seed: int, node: int, theta: np.ndarray) -> float:
    """f_i, term by term."""
    x, y = task.features[seed, node], task.labels[seed, node]
    terms = [math.log(1 + math.exp(-b * float(a @ theta))) for a, b in zip(x, y, strict=True)]
    return sum(terms) / len(terms) + 0.3 / 2 * float(theta @ theta)


def test_gradients_smoothness_and_minimum() -> None:
    task = risk.Task(RISK_UNIT, nodes=8)
    assert np.allclose(np.linalg.norm(task.features, axis=-1), 1)
    models = np.random.default_rng(0).normal(size=(2, 8, 1, 2))
    found = task.gradients(models)
    for seed, node in itertools.product(range(2), range(8)):
        theta, h = models[seed, node, 0], 1e-6
        for k in range(2):
            e = h * np.eye(2)[k]
            slope = (loss(task, seed, node, theta + e) - loss(task, seed, node, theta - e)) / (
                2 * h
            )
            assert found[seed, node, 0, k] == pytest.approx(slope, abs=1e-8)
    # One record less moves a gradient, as a sum over records by their number, by at most 1 / 3.
    whole = task.gradients(models)
    task.features[:, :, 0] = 0.0
    moved = np.linalg.norm(task.gradients(models) - whole, axis=-1)
    assert 0 < moved.max() <= 1 / 3
    task = risk.Task(RISK_UNIT, nodes=8)
    for seed in range(2):
        total = sum(task.gradients(np.broadcast_to(task.best[:, None, None], (2, 8, 1, 2)))[seed])
        assert np.abs(total).max() < 1e-12
        curvature = np.linalg.eigvalsh(task.features[seed].swapaxes(-1, -2) @ task.features[seed])
        assert task.smoothness >= 0.3 + curvature.max() / 12 - 1e-12


def test_training_is_the_loop_written_out() -> None:
    task, w = risk.Task(RISK_UNIT, nodes=8), views.drawn(RISK_UNIT)
    noise = np.array([0.0, 0.2])
    mean, last = task.excess_risk(w, noise, step=0.7)

    def excess(seed: int, theta: np.ndarray) -> float:
        values = [
            loss(task, seed, i, theta) - loss(task, seed, i, task.best[seed]) for i in range(8)
        ]
        return sum(values) / 8

    for seed, lane in itertools.product(range(2), range(2)):
        rng = np.random.default_rng((seed, 1))
        models, risks = np.zeros((8, 2)), []
        for _ in range(5):
            risks.append(excess(seed, models.mean(axis=0)))
            z = rng.standard_normal((8, 2))
            gradients = [
                task.gradients(np.tile(m, (2, 8, 1, 1)))[seed, i, 0] for i, m in enumerate(models)
            ]
            models = w @ (models - 0.7 * (np.array(gradients) + noise[lane] * z))
        assert mean[seed, lane] == pytest.approx(sum(risks) / 5, rel=1e-9)
        assert last[seed, lane] == pytest.approx(excess(seed, models.mean(axis=0)), rel=1e-9)
        assert min(risks) >= -1e-12


def test_noise_scales_of_the_rows() -> None:
    rows = [row for row in risk.run(RISK_UNIT | {"horizon": 2}) if row["step"] == "constant"]
    w = views.drawn(RISK_UNIT)
    worst = {True: 0.0, False: 0.0}
    for observer, victim in itertools.product(range(8), repeat=2):
        h = system_matrix(w, [observer], horizon=2)
        columns = h[:, victim::8]
        gram = columns.T @ np.linalg.pinv(h @ h.T) @ columns
        signs = itertools.product([-1.0, 1.0], repeat=2)
        found = max(float(np.array(c) @ gram @ c) for c in signs)  # of vectors, too, at two steps
        worst[observer == victim] = max(worst[observer == victim], found)
    mu = mu_of(epsilon=0.5, delta=1e-5)
    by_name: dict[str, Any] = {row["mechanism"]: row for row in rows}
    for name, squared in (
        (risk.OTHERS, worst[False]),
        (risk.VIEW, max(worst.values())),
        (risk.LDP, 2),
        (risk.CENTRAL, 2 / 8),
    ):
        assert by_name[name]["squared_sensitivity"] == pytest.approx(squared, rel=1e-6)
        assert by_name[name]["noise_stddev"] == pytest.approx(math.sqrt(squared) / 3 / mu, rel=1e-6)
    assert by_name[risk.NONE]["noise_stddev"] == 0
    assert len(rows) == 6 * 2 + 1  # two seeds each, and the theorem
    # The claim is the printed equation (5.4), the noise that of (5.5).
    gap = 1 - sorted(abs(np.linalg.eigvalsh(w)))[-2]
    claimed = 2 / 8 + 2 / gap**2 * math.sqrt(2 / 8) + 2 / gap**4
    paper = by_name[risk.PAPER]
    assert paper["squared_sensitivity"] == pytest.approx(claimed)
    wanted = math.sqrt(2 * math.log(1.25e5) * claimed) / 0.5 / 3
    assert paper["noise_stddev"] == pytest.approx(wanted)


def test_a_central_server_is_gradient_descent_on_the_mean() -> None:
    task = risk.Task(RISK_UNIT, nodes=8)
    mean, _ = task.excess_risk(np.full((8, 8), 1 / 8), np.array([0.0]), step=0.7)
    for seed in range(2):
        theta, risks = np.zeros(2), []
        for _ in range(5):
            risks.append(np.mean([loss(task, seed, i, theta) for i in range(8)]))
            theta = theta - 0.7 * task.gradients(np.tile(theta, (2, 8, 1, 1)))[seed].mean(axis=0)[0]
        best = np.mean([loss(task, seed, i, task.best[seed]) for i in range(8)])
        assert mean[seed, 0] == pytest.approx(np.mean(risks) - best, rel=1e-9)


def test_growth_is_a_mean_of_logarithms_over_seeds() -> None:
    """Factors 2 and 8 of two seeds, then 1/4 and 1/4: the mean 4 = exp(1.5 log 4), its interval
    exp(log 4 -+ 12.706 log 2), as the standard error of log 2 and log 8 is log 2; then 1/4."""

    def row(horizon: int, seed: int, last_risk: float | None) -> dict[str, Any]:
        same = {"graph": "erdos-renyi", "draw": 0, "step": "tuned", "mechanism": risk.LDP}
        told = {"epsilon": 0.5, "noise_stddev": 0.1, "horizon": horizon, "seed": seed}
        return same | told | {"last_risk": last_risk}

    rows = [row(*key) for key in ((2, 0, 1.0), (2, 1, 3.0), (4, 0, 2.0), (4, 1, 24.0))]
    rows += [row(8, 0, 0.5), row(8, 1, 6.0), row(8, 0, None) | {"mechanism": risk.THEOREM}]
    up, down, whole = risk.growth(rows)
    assert [(row["from"], row["to"]) for row in (up, down, whole)] == [(2, 4), (4, 8), (2, 8)]
    assert up["factor"] == pytest.approx(4.0)
    assert up["low"] == pytest.approx(4 * 2**-12.7062, rel=1e-4)
    assert up["high"] == pytest.approx(4 * 2**12.7062, rel=1e-4)
    assert down["factor"] == down["low"] == down["high"] == pytest.approx(0.25)
    assert whole["factor"] == pytest.approx(1.0)  # 1/2 and 2


# --- both -----------------------------------------------------------------------------------------


def small() -> Any:
    graphs = {"kinds": ["erdos-renyi", "preferential-attachment"], "nodes": 8, "p": 0.4, "links": 2}
    found = {"draws": 1, "observers": 1, "victims": 2, "horizons": [1, 3]}
    risks = {name: RISK_UNIT[name] for name in ("steps", "delta", "records", "dimension", "ridge")}
    risks |= {"spread": 0.5, "seeds": 2, "epsilons": [0.2, 0.5], "draws": 1, "horizons": [2, 4]}
    both = {"views": graphs | found, "risk": graphs | risks}
    return EXPERIMENT.read({"experiment": "gossip", "description": "small"} | both)


def test_summary_pictures_and_words() -> None:
    settings = small()
    rows = [row for unit in EXPERIMENT.units(settings) for row in EXPERIMENT.run(unit)]
    assert all(set(row) == set(EXPERIMENT.columns) for row in rows)
    found = EXPERIMENT.summary(rows, settings)
    # Two graphs, step sizes and horizons; six noise scales, two epsilons, but one without noise.
    assert len(found) == 2 * 2 * 2 * (6 * 2 + 1)
    one = next(row for row in found if row["mechanism"] == risk.LDP)
    losses = [
        row["risk"]
        for row in rows
        if row["mechanism"] == risk.LDP
        and (row["graph"], row["step"], row["horizon"]) == ("erdos-renyi", "constant", 2)
        and row["epsilon"] == one["epsilon"]
    ]
    assert one["test_loss"] == pytest.approx(sum(losses) / 2)
    assert one["test_loss_low"] < one["test_loss"] < one["test_loss_high"]
    assert one["last_risk_low"] < one["last_risk"] < one["last_risk_high"]
    pictures = EXPERIMENT.pictures(rows, found, settings)
    assert {name: len(figure.axes) for name, figure in pictures.items()} == {
        "sensitivity": 6,
        "spectral-bound": 6,
        "risk-by-steps": 4,
    }
    assert all("fixed responses" in figure.get_suptitle() for figure in pictures.values())
    words = EXPERIMENT.paragraph(rows, found, settings)
    assert words.count("fixed responses") == 2
    assert "T = 3" in words
    assert "T = 4" in words
    tables = EXPERIMENT.tables(rows, settings)
    assert len(tables["sensitivity.csv"]) == 2 * 3 * 2
    assert len(tables["growth.csv"]) == 2 * 2 * 5 * 2
