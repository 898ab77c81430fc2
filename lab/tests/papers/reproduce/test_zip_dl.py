"""The experiment of Zip-DL: attacks by counting, training and noise by brute force, its rows."""

from __future__ import annotations

import itertools
import math
from typing import Any

import networkx as nx
import numpy as np
import pytest

from noisedesign.base.checks import InputError
from noisedesign.system.graph import mixing_matrix
from noisedesign_lab.datasets import Examples
from noisedesign_lab.papers.reproduce import load_settings, named, zip_dl
from noisedesign_lab.papers.reproduce.experiment import SUMMARY, Unit
from noisedesign_lab.papers.reproduce.zip_dl import assumption, attacks, training
from noisedesign_lab.papers.reproduce.zip_dl.ratings import BLOCK, Epoch, dealt

# --- attacks -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("members", "others"),
    [([3.0, 1.0], [2.0, 0.0, 1.0]), ([1.0], [1.0, 1.0]), ([5.0, 6.0], [1.0]), ([0.0], [1.0, 2.0])],
)
def test_area_and_true_positives_by_counting(members: list[float], others: list[float]) -> None:
    wins = [1.0 if m > o else 0.5 if m == o else 0.0 for m in members for o in others]
    found = attacks.roc_auc(np.array(members), np.array(others))
    assert found == pytest.approx(np.mean(wins), rel=1e-12)
    for rate in (0.0, 0.34, 0.5, 1.0):
        thresholds = [-math.inf, *members, *others]
        allowed = [
            np.mean(np.array(members) > t)
            for t in thresholds
            if np.mean(np.array(others) > t) <= rate + 1e-12
        ]
        at = attacks.true_positives_at(rate, np.array(members), np.array(others))
        assert at == pytest.approx(max(allowed)), rate


def test_the_classifier_finds_what_is_there_and_nothing_else() -> None:
    """Members whose losses fall are told from others without fail; of equal distributions the area
    is 1/2 within five standard deviations, sqrt(1/12 (1/m + 1/o))."""
    rng = np.random.default_rng(4)
    levels = np.exp(0.3 * rng.normal(size=(500, 1)))
    falling = levels[:200] * np.exp(-np.arange(5.0)) * np.exp(0.1 * rng.normal(size=(200, 5)))
    steady = levels[200:] * np.exp(0.1 * rng.normal(size=(300, 5)))
    assert attacks.roc_auc(*attacks.classified(falling, steady, rng, epochs=60)) > 0.99
    series = np.exp(rng.normal(size=(1200, 5)))
    own, rest = attacks.classified(series[:600], series[600:], rng, epochs=10)
    assert (len(own), len(rest)) == (180, 180)
    deviation = math.sqrt((1 / 180 + 1 / 180) / 12)
    assert abs(attacks.roc_auc(own, rest) - 0.5) < 5 * deviation


def test_gradients_of_the_classifier_by_differences() -> None:
    rng = np.random.default_rng(2)
    net = attacks.Network(4, rng)
    assert [layer.shape for layer in net.layers] == [(5, 64), (65, 32), (33, 1)]  # two hidden
    x, weights = rng.normal(size=(7, 4)), rng.uniform(1, 3, 7)
    labels = np.array([1.0, 0, 0, 1, 0, 1, 0])

    def loss() -> float:
        logits = net.forward(x)[-1][:, 0]
        of_each = np.logaddexp(0.0, np.where(labels > 0, -logits, logits))
        return float((weights * of_each).sum() / weights.sum())

    for layer, gradient in zip(net.layers, net.gradients(x, labels, weights), strict=True):
        assert gradient.shape == layer.shape
        for spot in [(0, 0), (2, layer.shape[1] - 1), (-1, 0)]:
            step = 1e-6
            layer[spot] += step
            above = loss()
            layer[spot] -= 2 * step
            slope = (above - loss()) / (2 * step)
            layer[spot] += step
            assert gradient[spot] == pytest.approx(slope, abs=1e-8)


# --- data and training ---------------------------------------------------------------------------

USERS, FILMS = 30, 40  # 70 rows of factors: three blocks


@pytest.fixture
def ratings(monkeypatch: pytest.MonkeyPatch) -> Examples:
    """Thirty users who rate eight to twelve films each, out of forty."""
    rng = np.random.default_rng(8)
    pairs = [(u, f) for u in range(USERS) for f in rng.choice(FILMS, size=8 + u % 5, replace=False)]
    pairs[0] = (0, FILMS - 1)  # the last film is rated
    features = np.array(pairs, dtype=np.float64)
    found = Examples(
        features=features,
        targets=rng.integers(1, 6, size=len(pairs)).astype(np.float64),
        owners=features[:, 0].astype(np.intp),
    )
    monkeypatch.setattr(training, "movielens_small", lambda: found)
    training._every.cache_clear()
    return found


UNIT: Unit = {
    "setting": "as published",
    "nodes": 6,
    "degree": 3,
    "graph_seed": 0,
    "factors": 3,
    "test": 0.3,
    "split_seed": 1,
    "steps": 4,
    "step_size": 0.1,
    "batch_size": 4,
    "clip": math.inf,
    "sigma": 0.01,
    "lanes": [
        ["none", 1, 0.0],
        ["zip-dl", 1, 50.0],
        ["zip-dl", 3, 50.0],
        ["muffliato", 1, 50.0],
        ["muffliato", 3, 50.0],
    ],
    "victims": 2,
    "models": 3,
    "others": 20,
    "epochs": 2,
    "seed": 0,
    "dropout": 0.0,
    "correlation": 0.1,
}


def test_users_lie_with_nodes_in_their_order_and_split_by_user(ratings: Examples) -> None:
    """Four nodes have 8, 8, 7 and 7 of 30 users; 6, 6, 7, 8 and 8 of 8 to 12 ratings train."""
    train, test = dealt(ratings, 4, 0.3, np.random.default_rng(0))
    node = np.repeat(np.arange(4), [8, 8, 7, 7])
    found = []
    for part, counts in ((train, [6, 6, 7, 8, 8]), (test, [2, 3, 3, 3, 4])):
        user, film = part.rows.T
        np.testing.assert_array_equal(np.bincount(user, minlength=USERS), counts * 6)
        np.testing.assert_array_equal(part.node, node[user])
        found += list(zip(user, film - USERS, part.stars, strict=True))
    expected = zip(*ratings.features.T, ratings.targets, strict=True)
    assert sorted(found) == sorted(expected)


@pytest.mark.usefixtures("ratings")
@pytest.mark.parametrize("clip", [math.inf, 0.5])
def test_a_pass_is_that_of_a_loop(clip: float) -> None:
    """Every node that is in steps along the mean gradient of its batches, rating by rating."""
    task = training.Task(UNIT)
    models = task.start()
    rng = np.random.default_rng(0)
    models += rng.normal(0, 0.5, models.shape).astype(np.float32)
    before, expected = models.copy(), models.astype(np.float64)
    present = np.arange(6) != 2
    epoch = Epoch(ratings=task.train, size=4, step_size=0.1, clip=clip)
    epoch.run(models, np.random.default_rng(3), present)
    seen, lengths = [], []
    for batch in epoch.batches(np.random.default_rng(3)):
        seen += [tuple(row) for row in batch.rows]
        for lane, node in itertools.product(range(5), range(6)):
            mine = np.flatnonzero(batch.node == node)
            if not present[node] or not len(mine):
                continue
            model = expected[lane, :, node].reshape(-1, 3)
            gradient = np.zeros_like(model)
            for i in mine:
                user, film = batch.rows[i]
                slope = 2 * (model[user] @ model[film] - batch.stars[i]) / len(mine)
                gradient[user] += slope * model[film]
                gradient[film] += slope * model[user]
            lengths.append(np.linalg.norm(gradient))
            model -= 0.1 * min(1.0, clip / lengths[-1]) * gradient
            expected[lane, :, node] = model.reshape(expected[lane, :, node].shape)
    assert sorted(seen) == sorted(map(tuple, task.train.rows))
    assert np.mean(np.array(lengths) > 0.5) > 0.2
    np.testing.assert_allclose(models, expected, atol=1e-5)
    np.testing.assert_array_equal(models[:, :, 2], before[:, :, 2])


@pytest.mark.usefixtures("ratings")
def test_errors_at_home_are_of_a_nodes_own_model() -> None:
    task = training.Task(UNIT)
    models = np.random.default_rng(0).normal(size=task.shape).astype(np.float32)
    found = task.test.errors_at_home(models)
    for error, (user, film), node, stars in zip(
        found, task.test.rows, task.test.node, task.test.stars, strict=True
    ):
        own = models[:, node].reshape(-1, 3)
        assert error == pytest.approx(own[user] @ own[film] - stars, abs=1e-5)


# --- noise ---------------------------------------------------------------------------------------


def test_noise_of_a_message_by_hand() -> None:
    """All weights of a complete graph are 1/n, and Z = Y - mean Y has variance 1 - 1/n."""
    for nodes in (2, 5):
        w = np.full((nodes, nodes), 1 / nodes)
        assert training.message_scale(w) == pytest.approx(math.sqrt(1 - 1 / nodes), rel=1e-12)


def _covariance(w: np.ndarray, out: set[int], victims: list[int]) -> np.ndarray:
    """Covariance of what nodes receive, then of messages of victims to first neighbours, from every
    message written out: node u draws Y_v for its closed neighbourhood and sends to those who are
    in, if it is in."""
    n = len(w)
    rows = np.zeros((n, n, n))  # what node v receives, of Y_(u, j)
    single = np.zeros((len(victims), n, n))
    for u in range(n):
        near = [v for v in range(n) if w[v, u] > 0]
        for v, j in itertools.product(near, near):
            z = float(j == v) - w[j, u] / (len(near) * w[v, u])
            if u not in out and v not in out:
                rows[v, u, j] += w[v, u] * z
            if u in victims and v == min(set(near) - {u}):
                single[victims.index(u), u, j] += z
    flat = np.concatenate([rows, single]).reshape(n + len(victims), -1)
    return np.asarray(flat @ flat.T)


@pytest.mark.parametrize("out", [set(), {1}, {0, 3}, {0, 1, 2, 3, 4}])
def test_noise_of_models_and_messages_by_brute_force(out: set[int]) -> None:
    graph = nx.cycle_graph(5)
    graph.add_edge(0, 2)
    w = mixing_matrix(graph)
    lost = np.array([node in out for node in range(5)])
    found = training.joint_factor(w, np.array([0, 3]), lost)
    np.testing.assert_allclose(found @ found.T, _covariance(w, out, [0, 3]), atol=1e-12)
    np.testing.assert_array_equal(found, np.tril(found))  # models do not wait for messages
    total = float(np.square(np.ones(5) @ found[:5]).sum())
    if not out:
        assert total == pytest.approx(0.0, abs=1e-12)  # the mean of all models is left as it is
    elif len(out) < 5:
        assert total > 1e-3


def test_mixing_without_some_nodes_by_hand() -> None:
    w = mixing_matrix(nx.path_graph(3))
    lost = np.array([True, False, False])
    edge = w[1, 2]
    expected = [[1, 0, 0], [0, 1 - edge, edge], [0, edge, 1 - edge]]
    np.testing.assert_allclose(training.without(w, lost), expected, atol=1e-15)
    np.testing.assert_allclose(training.without(w, ~lost | lost), np.eye(3))
    np.testing.assert_allclose(training.without(w, lost & ~lost), w, atol=1e-15)


def test_who_is_in_follows_its_chain() -> None:
    """Out after being in with 0.3, after being out with 0.3 + 0.5 0.7; in the end 0.3 / 0.65."""
    who = training.presence(0.3, 0.5, 400, np.random.default_rng(0))
    seen = ~np.array(list(itertools.islice(who, 200)))
    assert seen[0].mean() == pytest.approx(0.3, abs=5 * math.sqrt(0.21 / 400))
    before, after = seen[:-1].ravel(), seen[1:].ravel()
    for was, chance in ((False, 0.3), (True, 0.65)):
        close = 5 * math.sqrt(0.25 / (before == was).sum())
        assert after[before == was].mean() == pytest.approx(chance, abs=close)
    assert seen[50:].mean() == pytest.approx(0.3 / 0.65, abs=0.01)


@pytest.mark.usefixtures("ratings")
@pytest.mark.parametrize("out", [set(), {1, 4}])
def test_noise_of_a_step_has_the_covariance_of_its_mechanism(out: set[int]) -> None:
    """Models of zero, so that only noise is left: 4,000 columns, within six standard errors."""
    unit = UNIT | {"factors": 1, "dropout": 0.5}
    task = training.Task(unit)
    w, n, stddev = task.mixing, 6, 0.5
    models = np.zeros((5, 42, n, BLOCK, 3), dtype=np.float32)
    present = np.array([node not in out for node in range(n)])
    rng = np.random.default_rng(5)
    sent = training.Mixing(task).step(models, rng, present, seen=True)
    assert sent.shape == (5, 2, 42 * BLOCK, 3)
    step = training.without(w, ~present)
    for lane, (name, rounds, _) in enumerate(unit["lanes"]):
        received = models[lane].swapaxes(0, 1).reshape(n, -1)
        every = np.concatenate([received, sent[lane].reshape(2, -1)]).astype(np.float64)
        found = every @ every.T / every.shape[1]
        expected = np.zeros((n + 2, n + 2))
        own = np.diag(present.astype(float))
        if name == "zip-dl":
            scale = training.message_scale(w)
            first = _covariance(w, out, list(task.victims)) * (stddev / scale) ** 2
            later = np.eye(n + 2)
            later[:n, :n] = np.linalg.matrix_power(step, rounds - 1)
            expected = later @ first @ later.T
        elif name == "muffliato":
            rows = np.concatenate([np.linalg.matrix_power(step, rounds) @ own, own[task.victims]])
            expected = stddev**2 * rows @ rows.T
        errors = np.sqrt(
            (np.outer(np.diag(expected), np.diag(expected)) + expected**2) / every.shape[1]
        )
        assert (np.abs(found - expected) <= 6 * errors + 1e-9).all(), (name, rounds)
        if name == "zip-dl" and not out:
            assert np.abs(received.sum(axis=0)).max() < 1e-5
            assert math.sqrt(found[n, n]) == pytest.approx(stddev, rel=0.05)


# --- rows ----------------------------------------------------------------------------------------


@pytest.mark.usefixtures("ratings")
def test_rows_of_a_unit() -> None:
    rows = training.run(UNIT)
    assert len(rows) == 3 * 5
    assert {row["step"] for row in rows} == {1, 2, 4}
    for row in rows[-5:]:
        for name in zip_dl.SHARES:
            assert 0 <= row[name] <= 1
    again = training.run(UNIT | {"lanes": UNIT["lanes"][3:4]})
    told = {(row["mechanism"], row["rounds"], row["step"]): row["test_rmse"] for row in rows}
    for row in again:  # lanes share their batches and noise, and nothing else
        expected = told["muffliato", 1, row["step"]]
        assert row["test_rmse"] == pytest.approx(expected, rel=1e-6)
    assert told["muffliato", 1, 4] != told["none", 1, 4]
    by_one = {row["present"] for row in training.run(UNIT | {"dropout": 0.5})}
    assert min(by_one) < 1


@pytest.mark.usefixtures("ratings")
def test_the_rmse_is_a_mean_over_nodes_of_own_users() -> None:
    """A model of zeros errs by the root mean square of the stars of each node's users."""
    task = training.Task(UNIT)
    found = training._measured(task, np.zeros(task.shape, dtype=np.float32))
    for name, part in (("test_rmse", task.test), ("train_rmse", task.train)):
        roots = [math.sqrt(np.mean(np.square(part.stars[part.node == a]))) for a in range(6)]
        assert found[name] == pytest.approx(np.mean(roots), rel=1e-6)
    whole = math.sqrt(np.mean(np.square(task.test.stars)))
    assert found["whole_rmse"] == pytest.approx(whole, rel=1e-6)
    assert found["status"] == "ok"
    gone = training._measured(task, np.full(task.shape, np.nan, dtype=np.float32))
    assert (gone["test_rmse"], gone["status"]) == (None, "diverged")


def _row(step: int, rmse: float | None, name: str = "zip-dl", **others: Any) -> dict[str, Any]:
    return training.empty_row() | {
        "setting": "as published",
        "mechanism": name,
        "rounds": 10 if name == "muffliato" else 1,
        "level": 0.0 if name == "none" else 1.0,
        "seed": 0,
        "step": step,
        "test_rmse": rmse,
        "status": "ok",
        **others,
    }


def test_the_least_error_and_the_rounds_until_a_quarter_above_the_best() -> None:
    """The best without noise is 1.0; 1.25 is reached at steps 2 and 3, the latter of ten rounds."""
    rows = [_row(step, rmse, "none") for step, rmse in ((1, 2.0), (2, 1.25), (3, 1.0))]
    rows += [_row(step, rmse) for step, rmse in ((1, 3.0), (2, 1.2), (3, 1.4))]
    rows += [_row(step, rmse, "muffliato") for step, rmse in ((1, 3.0), (2, 1.3), (3, 1.1))]
    rows += [_row(1, 2.0, seed=1), _row(2, None, seed=1, status="diverged")]
    settings = load_settings("zip-dl")[1]
    found = {row["mechanism"]: row for row in zip_dl.summary(rows, settings)}
    assert found["none"]["test_loss"] == 1.0
    assert found["none"]["rounds_to_target"] == 2
    assert found["muffliato-10"]["rounds_to_target"] == 30
    assert (found["zip-dl"]["test_loss"], found["zip-dl"]["seeds"]) == (math.inf, 2)
    assert found["zip-dl"]["rounds_to_target"] is None  # the second seed has nothing to compare
    kept = zip_dl.summary([row for row in rows if row["seed"] == 0], settings)
    assert {row["mechanism"]: row["test_loss"] for row in kept}["zip-dl"] == 1.2


def test_intervals_of_shares_stay_within_them() -> None:
    """Student's t interval of .9 and 1 is .3147 to 1.5853; that of 0 and .02 begins below 0."""
    rows = [
        _row(1, 1.0, seed=seed, classifier_auc=auc, classifier_tpr=tpr)
        for seed, auc, tpr in ((0, 0.9, 0.0), (1, 1.0, 0.02))
    ]
    (found,) = zip_dl.summary(rows, load_settings("zip-dl")[1])
    assert found["classifier_auc_low"] == pytest.approx(0.95 - 12.7062 * 0.05, abs=1e-5)
    assert (found["classifier_auc_high"], found["classifier_tpr_low"]) == (1.0, 0.0)


# --- Assumption 5.6 ------------------------------------------------------------------------------


def test_distances_of_equal_and_of_other_distributions() -> None:
    """Equal laws are rejected about once in twenty; a mean beside the noise is seen by samples of
    length 1 alone, and a skew shape by both."""
    rng = np.random.default_rng(1)
    normal, again = rng.normal(size=(2, 400, 300)).astype(np.float32)
    same = assumption.distances(normal, 3 * again)
    assert same["ks_rejected"] < 0.1
    assert same["shape_rejected"] < 0.1
    moved = assumption.distances(normal + 2, again)
    assert moved["ks_rejected"] == 1.0
    assert moved["shape_rejected"] < 0.1
    skew = assumption.distances(rng.exponential(size=(400, 300)).astype(np.float32), again)
    assert skew["shape_rejected"] > 0.9
    assert 0 < skew["ks_least"] <= skew["ks_median"] <= skew["ks_most"] <= 1
    first = normal.copy()
    first[:, 1:] = 0.0  # one film is rated: the other coordinates are not compared
    assert (
        assumption.distances(first, again)["ks_least"]
        == assumption.distances(normal[:, :1], again[:, :1])["ks_least"]
    )


@pytest.mark.usefixtures("ratings")
def test_the_gradient_of_all_ratings_by_differences() -> None:
    task = training.Task(UNIT | {"nodes": 1, "victims": 0})
    model = np.random.default_rng(0).normal(size=(96, 3))

    def loss(at: np.ndarray) -> float:
        return float(np.mean(np.square(task.train.errors(at))))

    found = assumption.Gradient(task.train, 96)(model)
    for spot in [(0, 0), (5, 2), (USERS + 3, 1), (90, 0)]:
        step = np.zeros_like(model)
        step[spot] = 1e-5
        slope = (loss(model + step) - loss(model - step)) / 2e-5
        assert found[spot] == pytest.approx(slope, abs=1e-5)


@pytest.mark.usefixtures("ratings")
def test_the_whole_experiment_on_few_ratings() -> None:
    experiment, settings = load_settings("zip-dl", quick=True)
    assert experiment is named("zip-dl")
    values = settings.model_dump()
    values["assumption"] |= {"coordinates": 30}
    values["variants"][0] |= {"nodes": 6, "degree": 3, "steps": 3, "victims": 1}
    dropped = values["variants"][0] | {"setting": "dropout 25 %", "dropout": 0.25, "seeds": 1}
    values["variants"].append(dropped)
    small = experiment.read(values)
    units = experiment.units(small)
    named_units = [(unit.get("setting"), unit["seed"]) for unit in units]
    names = ["as published", "dropout 25 %", "as published", None]
    assert named_units == list(zip(names, (0, 0, 1, 0), strict=True))
    rows = [row for unit in units for row in experiment.run(unit)]
    assert {name for row in rows for name in row} == set(experiment.columns)
    found = experiment.summary(rows, small)
    assert set(SUMMARY) <= set(found[0])
    assert {row["setting"] for row in found} == {"as published", "dropout 25 %"}
    assert {row["mechanism"] for row in found} == {"none", "zip-dl", "muffliato-10"}
    further = experiment.tables(rows, small)
    assert [row["level"] for row in further["assumption.csv"]] == [1, 128]
    assert set(experiment.pictures(rows, found, small)) == {"attacks", "dropout"}
    text = experiment.paragraph(rows, found, small)
    assert "**dropout 25 %** (RMSE; threshold, classifier AUC): none at 0: " in text


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"setting": "5,000 steps"}, "names of their own"),  # of another, whose seeds it would be
        ({"setting": "assumption 5.6"}, "names of their own"),
        ({"victims": 101}, "at most 100 nodes"),
    ],
)
def test_settings_that_would_mix_rows_are_refused(change: dict[str, Any], expected: str) -> None:
    experiment, settings = load_settings("zip-dl")
    first, *others = settings.variants
    changed = settings.model_copy(update={"variants": [first.model_copy(update=change), *others]})
    with pytest.raises(InputError, match=expected):
        experiment.units(changed)


def test_the_rate_of_dropout_is_that_of_the_settings() -> None:
    """Whatever the name of a setting says."""
    _, settings = load_settings("zip-dl")
    variants = [
        one.model_copy(update={"setting": "dropout a lot"}) if one.dropout == 0.75 else one
        for one in settings.variants
    ]
    row = {"mechanism": "zip-dl", "level": 16.0, "test_loss": 1.2} | dict.fromkeys(zip_dl.SHARES)
    row |= {f"{name}_{end}": None for name in zip_dl.SHARES for end in ("low", "high")}
    found = [row | {"setting": name} for name in ("as published", "dropout a lot")]
    drawn = zip_dl.pictures([], found, settings.model_copy(update={"variants": variants}))
    (line,) = drawn["dropout"].axes[0].lines
    assert list(line.get_xdata()) == [0.0, 75.0]


def test_nodes_without_ratings_are_refused(ratings: Examples) -> None:
    """They would be told as runs that diverged."""
    settings = load_settings("zip-dl")[1]
    unit = zip_dl.units(settings)[0] | {"nodes": 400, "victims": 0}
    with pytest.raises(InputError, match="ratings to train and to test on"):
        training.Task(unit)
