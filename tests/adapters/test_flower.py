"""Flower's clients with designed noise."""

from __future__ import annotations

import itertools
import time
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from noisedesign import InputError
from noisedesign.noise import Secret, noise
from noisedesign.problem.calibration import calibrate
from tests.support.adapters import audit_noise, check_noise, designed_covariance
from tests.support.trainer_rows import times, trainer_row
from tests.support.trainers import (
    CLIP,
    california,
    follow,
    node_noise,
    pair_secrets,
    prefix_design,
    random_noise,
    secret,
    seeds_design,
)

pytest.importorskip("flwr", reason="needs the package flwr")

from flwr.app import (
    Array,
    ArrayRecord,
    ConfigRecord,
    Context,
    Message,
    Metadata,
    MetricRecord,
    RecordDict,
)
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg

from noisedesign.adapters.flower import DesignedNoise, dropout_metrics
from noisedesign.adapters.run import Run

NODES, STEPS, HIDDEN = 4, 4, 200
Model = dict[str, np.ndarray]


# --- a model, in numpy ---


def start() -> Model:
    rng = np.random.default_rng(0)
    hidden = rng.standard_normal((8, HIDDEN)).astype(np.float32) / np.float32(8**0.5)
    return {"hidden": hidden, "out": np.zeros(HIDDEN, dtype=np.float32)}


def trained(model: Model, x: np.ndarray, y: np.ndarray, *, rate: float = 0.3) -> Model:
    """Three steps of gradient descent on the mean squared error of tanh(x A) b."""
    a, b = model["hidden"].copy(), model["out"].copy()
    for _ in range(3):
        h = np.tanh(x @ a)
        wrong = (h @ b - y) / len(y)
        a -= rate * x.T @ (np.outer(wrong, b) * (1 - h**2))
        b -= rate * h.T @ wrong
    return {"hidden": a, "out": b}


def loss(model: Model) -> float:
    x, y = california()
    return float(np.mean((np.tanh(x @ model["hidden"]) @ model["out"] - y) ** 2))


def record(model: Model) -> ArrayRecord:
    return ArrayRecord({name: Array(a) for name, a in model.items()})


def model_of(arrays: ArrayRecord) -> Model:
    return {name: a.numpy() for name, a in arrays.items()}


def flat(model: Model) -> np.ndarray:
    return np.concatenate([a.ravel() for a in model.values()]).astype(np.float64)


def clipped(update: np.ndarray) -> np.ndarray:
    return update * min(1.0, CLIP / np.linalg.norm(update))


def client(mod: DesignedNoise, train: Any) -> ClientApp:
    """``train``: model and context -> model."""
    app = ClientApp(mods=[mod])

    @app.train()
    def _(message: Message, context: Context) -> Message:
        model = train(model_of(message.content["arrays"]), context)
        metrics = MetricRecord({"num-examples": 1, "loss": 0.25})
        content = RecordDict({"arrays": record(model), "metrics": metrics})
        return Message(content, reply_to=message)

    @app.evaluate()
    def _(message: Message, context: Context) -> Message:
        return Message(RecordDict({"metrics": MetricRecord({"loss": 0.5})}), reply_to=message)

    return app


# --- the whole of it, in Flower's simulation ---


def run_simulation(folder: Path) -> Any:
    """NODES clients in processes of Flower's, for the whole horizon; what they sent is kept."""
    from flwr.simulation import run_simulation

    design, x_y = seeds_design(nodes=NODES, steps=STEPS), california()
    plans = [design.node_plan(u).save(folder / f"{u}.plan") for u in range(NODES)]

    def node_of(context: Context) -> int:
        return int(context.node_config["partition-id"])

    def made(context: Context) -> Any:
        """Anew in every round: Flower's clients keep nothing."""
        u = node_of(context)
        own = secret(u) if "own" in {s.source for s in design.node_plan(u).streams} else None
        path = folder / f"{u}.sqlite3"
        seeds = pair_secrets(design, u)
        return noise(plans[u], secret=own, seeds=seeds, record=path, resume=path.exists())

    def train(model: Model, context: Context) -> Model:
        part = slice(node_of(context), None, NODES)
        return trained(model, x_y[0][part], x_y[1][part])

    kept: list[dict[int, Model]] = []
    sent: list[Model] = []

    class Keeping(FedAvg):
        def configure_train(self, server_round: int, arrays: Any, config: Any, grid: Any) -> Any:
            sent.append(model_of(arrays))
            return super().configure_train(server_round, arrays, config, grid)

        def aggregate_train(self, server_round: int, replies: Any) -> Any:
            replies = list(replies)
            found = {}
            for reply in replies:
                assert not reply.has_error(), reply.error.reason
                content = reply.content
                assert dict(content["metrics"]) == {"num-examples": 1}  # no loss of training
                node = content.config_records["noisedesign"]["node"]
                found[node] = model_of(content["arrays"])
            kept.append(found)
            return super().aggregate_train(server_round, replies)

    server, results = ServerApp(), []

    @server.main()
    def _(grid: Any, context: Context) -> None:
        strategy = Keeping(
            fraction_evaluate=0.0,
            min_train_nodes=NODES,
            min_available_nodes=NODES,
            train_metrics_aggr_fn=dropout_metrics,
        )
        arrays = record(start())
        results.append(strategy.start(grid=grid, initial_arrays=arrays, num_rounds=STEPS))

    run_simulation(
        server,
        client(DesignedNoise(made, clip=CLIP), train),
        num_supernodes=NODES,
        backend_config={
            "client_resources": {"num_cpus": 1},
            "init_args": {"num_cpus": 2, "include_dashboard": False},
        },
    )
    drawn = np.empty((STEPS, NODES, flat(start()).size))
    for t, u in itertools.product(range(STEPS), range(NODES)):
        part = slice(u, None, NODES)
        after = trained(sent[t], x_y[0][part], x_y[1][part])
        update = clipped(flat(after) - flat(sent[t]))
        drawn[t, u] = flat(kept[t][u]) - flat(sent[t]) - update
    return design, drawn, results[0]


def test_noise_of_all_clients_is_that_of_the_design_for_the_whole_horizon(tmp_path: Path) -> None:
    """Across clients too: they share seeds."""
    pytest.importorskip("ray", reason="needs the package ray, in which Flower simulates clients")
    design, drawn, result = run_simulation(tmp_path)
    c, stddev = np.asarray(design.strategy), calibrate(design.problem).noise_stddev
    designed = stddev**2 * np.kron(np.linalg.inv(c.T @ c), design.covariance)
    assert np.abs(design.covariance[0, 1]) > 0.1 * design.covariance[0, 0]
    check_noise(designed, drawn)
    for metrics in result.train_metrics_clientapp.values():
        assert metrics["noise-answered"] == [0, 1, 2, 3]
        assert metrics["noise-missing"] == []
        assert metrics["epsilon"] == 6.0
    parts, noise_of = flat(start()), prefix_design(**EVERY_ROUND)
    x, y = california()
    cost = times(
        lambda: client(DesignedNoise(node_noise(noise_of), clip=CLIP), same)(
            sent({"a": parts}, 1), context()
        ),
        lambda: trained(start(), x, y),
    )
    trainer_row(
        "Flower",
        packages=("flwr", "ray"),
        works=["its simulation", "one client protected", "shared seeds, and who is missing"],
        refuses=[
            "random participation",
            "replies with more than a model",
            "a client too often, or past the horizon",
        ],
        cost=f"{cost} three epochs of {len(y):,} records, {parts.size:,} parameters",
    )


# --- one message at a time ---

EVERY_ROUND = {"epochs": 6, "separation": 1}


def sent(model: Model, round_: Any, *, kind: str = "train") -> Message:
    """As it comes from the server."""
    config = {} if round_ is None else {"server-round": round_}
    content = RecordDict({"arrays": record(model), "config": ConfigRecord(config)})
    metadata = Metadata(
        run_id=1,
        message_id="message",
        src_node_id=1,
        dst_node_id=7,
        reply_to_message_id="",
        group_id=str(round_),
        created_at=time.time(),
        ttl=3600.0,
        message_type=kind,
    )
    return Message(metadata=metadata, content=content)


def context(**config: Any) -> Context:
    return Context(run_id=1, node_id=7, node_config=config, state=RecordDict(), run_config={})


def same(model: Model, _: Any) -> Model:
    return model


def zeros(d: int = 50, dtype: Any = np.float64) -> Model:
    return {"a": np.zeros(d - 1, dtype=dtype), "b": np.zeros(1, dtype=dtype)}


def test_a_round_alone_has_the_noise_of_its_step_in_any_order(tmp_path: Path) -> None:
    """Also after a restart, and of a client that is made anew: nothing is kept between rounds."""
    design = prefix_design(**EVERY_ROUND)
    where = tmp_path / "records.sqlite3"

    def made(_: Context) -> Any:
        return node_noise(design, record=where, resume=where.exists())

    for round_ in (1, 2, 5, 3):
        reply = client(DesignedNoise(made, clip=CLIP), same)(sent(zeros(), round_), context())
        exact = node_noise(design).step(round_ - 1, (50,))
        np.testing.assert_array_equal(flat(model_of(reply.content["arrays"])), exact)
        said = dict(reply.content["noisedesign"])
        assert (said["node"], said["step"], said["partners"]) == (0, round_ - 1, [])
        assert (said["epsilon"], said["delta"]) == (6.0, 1e-5)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_updates_are_clipped_over_all_arrays(dtype: Any) -> None:
    def far(model: Model, _: Any) -> Model:
        return {name: a + 3 for name, a in model.items()}

    design = prefix_design(**EVERY_ROUND)
    app = client(DesignedNoise(node_noise(design), clip=CLIP), far)
    reply = app(sent({"a": np.ones(3, dtype), "b": np.ones(1, dtype)}, 1), context())
    found = model_of(reply.content["arrays"])
    assert {a.dtype for a in found.values()} == {np.dtype(dtype)}
    expected = 1 + CLIP / 2 + node_noise(design).step(0, (4,), dtype=dtype)
    np.testing.assert_allclose(flat(found), expected, rtol=1e-6)


@pytest.mark.parametrize(("size", "dtype"), [(1e200, np.float64), (1e38, np.float32)])
def test_updates_whose_squares_overflow_are_clipped(size: float, dtype: Any) -> None:
    design = prefix_design(**EVERY_ROUND)
    app = client(
        DesignedNoise(node_noise(design), clip=CLIP),
        lambda model, _: {name: a + dtype(size) for name, a in model.items()},
    )
    found = model_of(app(sent(zeros(4, dtype), 1), context()).content["arrays"])
    expected = CLIP / 2 + node_noise(design).step(0, (4,), dtype=dtype)
    np.testing.assert_allclose(flat(found), expected, atol=1e-6 * CLIP)


def rounds_of(design: Any, d: int, number: int) -> np.ndarray:
    """Noise of every round, of a client made anew for each: each filters all steps before again.
    Without a record nobody sees that it answers more often than designed."""
    mod = DesignedNoise(lambda _: node_noise(design, number), clip=CLIP)
    rounds = range(1, len(design.strategy) + 1)
    replies = [client(mod, same)(sent(zeros(d), round_), context()) for round_ in rounds]
    return np.array([flat(model_of(reply.content["arrays"])) for reply in replies])


def test_noise_over_time_is_that_of_the_design() -> None:
    design = prefix_design()
    assert np.abs(np.tril(design.strategy, -1)).max() > 0.1 * design.strategy[0, 0]
    check_noise(designed_covariance(design), rounds_of(design, 4000, 1))


def test_audit_of_noise_through_the_adapter_does_not_exceed_mu() -> None:
    design, numbers = prefix_design(epochs=2, separation=3), itertools.count(100)
    report = audit_noise(design, lambda d: rounds_of(design, d, next(numbers)), runs=20_000)
    assert not report.exceeds
    assert report.close


def test_nothing_else_that_comes_from_the_data_leaves_the_client() -> None:
    def app_of(public: Any) -> ClientApp:
        mod = DesignedNoise(node_noise(prefix_design(**EVERY_ROUND)), clip=CLIP, **public)
        app = ClientApp(mods=[mod])

        @app.train()
        def _(message: Message, _: Context) -> Message:
            metrics = MetricRecord({"num-examples": 3, "loss": 0.25})
            said = ConfigRecord({"labels": [1, 2]})
            content = RecordDict({"arrays": message.content["arrays"], "m": metrics, "c": said})
            return Message(content, reply_to=message)

        return app

    content = app_of({})(sent(zeros(), 1), context()).content
    assert set(content) == {"arrays", "noisedesign", "m"}
    assert dict(content["m"]) == {"num-examples": 3}
    content = app_of({"public": ("num-examples", "loss")})(sent(zeros(), 1), context()).content
    assert dict(content["m"]) == {"num-examples": 3, "loss": 0.25}


@pytest.mark.parametrize("kind", ["evaluate", "query", "evaluate.other"])
def test_replies_to_other_messages_keep_public_metrics_alone(kind: str) -> None:
    """FedAvg asks for evaluations where nobody says otherwise."""
    noise, action = node_noise(prefix_design(**EVERY_ROUND)), kind.partition(".")[2]

    def replies(**public: Any) -> Message:
        app = ClientApp(mods=[DesignedNoise(noise, clip=CLIP, **public)])
        kinds = {"evaluate": app.evaluate, "query": app.query}
        named = [action] if action else []

        @kinds[kind.partition(".")[0]](*named)
        def _(message: Message, _: Context) -> Message:
            metrics = MetricRecord({"num-examples": 7, "loss": float(california()[0][0, 0])})
            said = ConfigRecord({"labels": [1, 2]})
            content = RecordDict({"m": metrics, "c": said, "arrays": record(start())})
            return Message(content, reply_to=message)

        return app(sent(zeros(), None, kind=kind), context())

    reply = replies()
    assert list(reply.content) == ["m"]
    assert dict(reply.content["m"]) == {"num-examples": 7}
    assert set(replies(public=("loss",)).content["m"]) == {"loss"}
    assert dict(FedAvg().aggregate_evaluate(1, [reply]) or {}) == {}
    assert noise.steps == frozenset()


def test_the_client_of_the_guide(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    plan = prefix_design(**EVERY_ROUND, clip=1.0).node_plan(0)
    plan.save("0.plan")
    scope: dict[str, Any] = {"seeds_of": lambda u: {}}
    follow("flower", scope, plan, monkeypatch)
    app = scope["app"]

    @app.train()
    def _(message: Message, _: Context) -> Message:
        metrics = MetricRecord({"num-examples": 1, "loss": 0.25})
        content = RecordDict({"arrays": message.content["arrays"], "metrics": metrics})
        return Message(content, reply_to=message)

    @app.evaluate()
    def _(message: Message, _: Context) -> Message:
        metrics = MetricRecord({"num-examples": 1, "loss": 0.25})
        return Message(RecordDict({"metrics": metrics}), reply_to=message)

    node = {"partition-id": 0}
    for round_ in (1, 2, 4):
        reply = app(sent(zeros(), round_), context(**node))
        exact = noise(plan, secret="0.secret", record=False).step(round_ - 1, (50,))
        np.testing.assert_array_equal(flat(model_of(reply.content["arrays"])), exact)
        _, metrics = scope["strategy"].aggregate_train(round_, [reply])
        assert (metrics["noise-missing"], "loss" in metrics) == ([], False)
        judged = app(sent(zeros(), round_, kind="evaluate"), context(**node))
        assert "loss" not in (scope["strategy"].aggregate_evaluate(round_, [judged]) or {})


def test_what_is_clipped_is_no_longer_than_the_clip(monkeypatch: pytest.MonkeyPatch) -> None:
    """In exact arithmetic, of the numbers as they are rounded, which noise is added to."""
    clipped: list[np.ndarray] = []
    monkeypatch.setattr(Run, "add_", lambda _, arrays, **__: clipped.extend(arrays))
    rng = np.random.default_rng(0)
    for dtype in (np.float32, np.float64):
        for d in (1, 2, 3, 50, 50, 50, 50, 1000):
            clipped.clear()
            far = {name: rng.normal(size=a.shape).astype(dtype) for name, a in zeros(d).items()}
            mod = DesignedNoise(node_noise(prefix_design(**EVERY_ROUND)), clip=CLIP)
            client(mod, lambda _, __, far=far: far)(sent(zeros(d, dtype), 1), context())
            square = sum(Fraction(float(u)) ** 2 for array in clipped for u in array)
            assert square <= Fraction(CLIP) ** 2
            assert square > (1 - Fraction(1, 10**5)) * min(
                Fraction(CLIP) ** 2, sum(Fraction(float(u)) ** 2 for a in far.values() for u in a)
            )


def test_the_model_learns_what_the_right_one_learns() -> None:
    """A target so weak that noise hides little of it."""
    design, (x, y) = seeds_design(epsilon=1e4), california()

    def local(model: Model, u: int) -> Model:
        return trained(model, x[u::NODES], y[u::NODES], rate=0.01)

    model, by_hand = start(), start()
    for t in range(STEPS):
        replies = answers(
            range(NODES),
            t,
            design=design,
            model=model,
            train=lambda m, c: local(m, **c.node_config),
        )
        arrays, _ = FedAvg(train_metrics_aggr_fn=dropout_metrics).aggregate_train(t + 1, replies)
        model = model_of(arrays)
        moves = [clipped(flat(local(by_hand, u)) - flat(by_hand)) for u in range(NODES)]
        parts = np.split(flat(by_hand) + np.mean(moves, axis=0), [8 * HIDDEN])
        by_hand = {"hidden": parts[0].reshape(8, HIDDEN), "out": parts[1]}
    assert loss(by_hand) < 0.75 * loss(start())
    assert loss(model) < (loss(start()) + loss(by_hand)) / 2


def answers(
    nodes: Any, step: int = 0, *, design: Any = None, model: Any = None, train: Any = same
) -> list[Message]:
    design, found = seeds_design() if design is None else design, []
    for u in nodes:
        plan = design.node_plan(u)
        own = secret(u) if "own" in plan.sources else None
        made = noise(plan, secret=own, seeds=pair_secrets(design, u), record=False)
        app = client(DesignedNoise(made, clip=CLIP), train)
        found.append(app(sent(model or zeros(4000), step + 1), context(u=u)))
    return found


def test_partners_that_drop_out_are_reported_and_their_noise_stays() -> None:
    strategy = FedAvg(train_metrics_aggr_fn=dropout_metrics)
    arrays, metrics = strategy.aggregate_train(1, answers([0, 1, 3]))
    assert metrics["noise-answered"] == [0, 1, 3]
    assert metrics["noise-missing"] == [2]
    _, whole = strategy.aggregate_train(1, answers(range(4)))
    assert whole["noise-missing"] == []
    # What is left in the average of three is what the covariance of the design says of them.
    design = seeds_design()
    c, stddev = np.asarray(design.strategy), calibrate(design.problem).noise_stddev
    three = np.array([1, 1, 0, 1]) / 3
    variance = stddev**2 * np.linalg.inv(c.T @ c)[0, 0] * (three @ design.covariance @ three)
    assert np.mean(flat(model_of(arrays)) ** 2) == pytest.approx(
        variance, rel=5 * (2 / 4000) ** 0.5
    )


def test_replies_that_do_not_belong_together_are_refused() -> None:
    def metrics(replies: list[Message]) -> Any:
        return dropout_metrics([reply.content for reply in replies], "num-examples")

    first, other = answers([0, 1])
    with pytest.raises(InputError, match=r"replies.node: .* got node 0 twice"):
        metrics([first, other, first])
    with pytest.raises(InputError, match=r"replies.step: expected one for all, got 0, 2"):
        metrics([first, *answers([1], step=2)])
    design = prefix_design(**EVERY_ROUND)
    app = client(DesignedNoise(node_noise(design, node=3), clip=CLIP), same)
    with pytest.raises(InputError, match="replies.digest"):
        metrics([first, app(sent(zeros(4000), 1), context())])
    plain = ClientApp()

    @plain.train()
    def _(message: Message, _: Context) -> Message:
        return Message(RecordDict({"m": MetricRecord({"num-examples": 1})}), reply_to=message)

    with pytest.raises(InputError, match="replies: expected noise in each"):
        metrics([first, plain(sent(zeros(), 1), context())])


# --- what is refused: the server gets an error in place of a reply ---


def refusal(mod: DesignedNoise, message: Message, train: Any = same) -> str:
    reply = client(mod, train)(message, context())
    assert reply.has_error()
    assert not reply.has_content()
    return str(reply.error.reason)


def test_a_client_that_answers_too_often_or_too_soon_is_refused(tmp_path: Path) -> None:
    """Its rounds are in the record of what was drawn, so that a client made anew sees them."""
    design, where = prefix_design(epochs=2, separation=3), tmp_path / "records.sqlite3"

    def made(_: Context) -> Any:
        return node_noise(design, record=where, resume=where.exists())

    mod = DesignedNoise(made, clip=CLIP)
    assert client(mod, same)(sent(zeros(), 2), context()).has_content()
    untrained: list[int] = []
    reason = refusal(mod, sent(zeros(), 4), lambda *_: untrained.append(1))
    assert "record 0 in steps 1, 3, less than 3 apart" in reason
    assert not untrained
    assert client(mod, same)(sent(zeros(), 5), context()).has_content()


def test_another_update_for_a_round_that_was_answered_is_refused(tmp_path: Path) -> None:
    made = node_noise(prefix_design(**EVERY_ROUND), record=tmp_path / "records.sqlite3")
    mod = DesignedNoise(made, clip=CLIP)
    first = client(mod, same)(sent(zeros(), 1), context())
    again = client(mod, same)(sent(zeros(), 1), context())
    np.testing.assert_array_equal(
        flat(model_of(first.content["arrays"])), flat(model_of(again.content["arrays"]))
    )
    reason = refusal(mod, sent(zeros(), 1), lambda m, _: {k: a + 0.01 for k, a in m.items()})
    assert "other data at step 0" in reason


@pytest.mark.parametrize(
    ("round_", "said"),
    [(7, "expected 0 to 5"), (0, "server-round"), (None, "server-round"), ("1", "server-round")],
)
def test_rounds_outside_the_horizon_are_refused(round_: Any, said: str) -> None:
    mod = DesignedNoise(node_noise(prefix_design(**EVERY_ROUND)), clip=CLIP)
    assert said in refusal(mod, sent(zeros(), round_))


@pytest.mark.parametrize(
    ("train", "said"),
    [
        (lambda m, _: {k: a * np.nan for k, a in m.items()}, "finite"),
        (lambda m, _: {k: a + np.inf for k, a in m.items()}, "finite"),
        (lambda m, _: {k: a.astype(np.float16) for k, a in m.items()}, "reply['a']"),
        (lambda m, _: {k: a.astype(np.int64) for k, a in m.items()}, "reply['a']"),
        (lambda m, _: {"a": m["a"][1:], "b": m["b"]}, "reply['a']"),
        (lambda m, _: {"a": m["a"]}, "the arrays of the message"),
        (lambda m, _: {"b": m["a"], "a": m["a"]}, "the arrays of the message"),
        (lambda m, _: {"a": m["a"], "c": m["b"]}, "the arrays of the message"),
    ],
)
def test_updates_that_noise_cannot_be_added_to_are_refused(train: Any, said: str) -> None:
    made = node_noise(prefix_design(**EVERY_ROUND))
    assert said in refusal(DesignedNoise(made, clip=CLIP), sent(zeros(), 1), train)
    assert made.steps == frozenset()


def test_wrong_clips_and_secrets_are_refused(tmp_path: Path) -> None:
    design = prefix_design(**EVERY_ROUND)
    assert "clip: expected 0.5" in refusal(
        DesignedNoise(node_noise(design), clip=1.0), sent(zeros(), 1)
    )
    divided = node_noise(design.node_plan(0, batch_size=3), batch_size=3)
    assert "batch_size" in refusal(DesignedNoise(divided, clip=CLIP), sent(zeros(), 1))
    where = tmp_path / "records.sqlite3"
    node_noise(design, record=where).add_([np.zeros(3)], 0)

    def other(_: Context) -> Any:
        return noise(design, node=1, secret=Secret(secret(1).value), record=where, resume=True)

    assert "a secret of node 1 alone" in refusal(DesignedNoise(other, clip=CLIP), sent(zeros(), 1))


def test_random_participation_is_refused_as_the_server_says_who_takes_part() -> None:
    words = refusal(DesignedNoise(random_noise(), clip=CLIP), sent(zeros(), 1))
    assert "participation: expected one in which the server may say who takes part" in words
