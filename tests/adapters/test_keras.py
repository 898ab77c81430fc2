"""Keras models on PyTorch that ``fit`` moves by designed noise."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from noisedesign import InputError
from noisedesign.adapters.run import Run
from tests.support import ROOT
from tests.support.adapters import check_noise, designed_covariance
from tests.support.pages import examples
from tests.support.trainer_rows import trainer_row
from tests.support.trainers import (
    CLIP,
    a9a,
    check_learned,
    node_noise,
    prefix_design,
    random_noise,
    sums_by_hand,
)

os.environ["KERAS_BACKEND"] = "torch"  # before it is imported
pytest.importorskip("torch", reason="Keras runs on PyTorch here")
keras = pytest.importorskip("keras", minversion="3", reason="needs the package keras 3")

from noisedesign.adapters.keras import DesignedNoise  # noqa: E402

HIDDEN, RATE, RECORDS = 40, 1.0, 3000


class Net(DesignedNoise, keras.Sequential):
    """logit(x) = tanh(x hidden + bias) . out + shift"""


def net(features: int = 123, *, optimizer: Any = None, hidden: int = HIDDEN, **how: Any) -> Any:
    keras.utils.set_random_seed(1)
    layers = [keras.layers.Dense(hidden, activation="tanh"), keras.layers.Dense(1)]
    made = Net([keras.layers.Input((features,)), *layers])
    loss = keras.losses.BinaryCrossentropy(from_logits=True)
    made.compile(optimizer or keras.optimizers.SGD(RATE), loss, **how)
    return made


def network(model: Any) -> dict[str, np.ndarray]:
    hidden, bias, out, shift = model.get_weights()
    return {"hidden": hidden, "bias": bias, "out": out[:, 0], "shift": shift[0]}


def flat(parts: dict[str, np.ndarray]) -> np.ndarray:
    return np.concatenate([np.ravel(part) for part in parts.values()]).astype(np.float64)


class Kept(keras.callbacks.Callback):
    """The model before and after every step."""

    def __init__(self) -> None:
        super().__init__()
        self.models: list[dict[str, np.ndarray]] = []
        self.logs: list[Any] = []

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        if not self.models:
            self.models.append(network(self.model))

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.models.append(network(self.model))
        self.logs.append(logs)


def test_fit_moves_by_hand_clipped_sums_and_designed_noise() -> None:
    design, (x, y) = prefix_design(epochs=3, separation=4), a9a(RECORDS)
    model, kept = net(), Kept()
    data = model.private(x, y[:, None], node_noise(design), clip=CLIP, steps=4)
    model.fit(data, epochs=3, callbacks=[kept], verbose=0)
    assert data.run.step == 12
    assert not any(kept.logs)  # no loss, which has no noise
    size = RECORDS / 4
    drawn = np.array(
        [
            (flat(before) - flat(after)) / RATE * size
            - flat(sums_by_hand(before, x[data.batches[t]], y[data.batches[t]]))
            for t, (before, after) in enumerate(zip(kept.models, kept.models[1:], strict=False))
        ]
    )
    check_noise(designed_covariance(design), drawn)
    assert node_noise(design).claim.epsilon == 6.0
    row(x, y)


def test_a_model_learns_what_the_right_one_learns() -> None:
    design, data = prefix_design(epochs=10, separation=4, epsilon=1e3), a9a(RECORDS)
    rate = 4.0
    model = net(optimizer=keras.optimizers.SGD(rate))
    start = network(model)
    private = model.private(data[0], data[1][:, None], node_noise(design), clip=CLIP)
    model.fit(private, verbose=0)
    batches = [private.batches[t] for t in range(40)]
    check_learned(network(model), start, batches, data, rate=rate / (RECORDS / 4))


def test_batches_that_are_drawn_are_divided_by_their_mean() -> None:
    """Also those of nothing, which get noise."""
    x, y = np.zeros((9, 3), "float32"), np.zeros((9, 1), "float32")
    model, kept = net(3, hidden=2), Kept()
    data = model.private(x, y, random_noise(), clip=CLIP)
    model.fit(data, verbose=0, callbacks=[kept])
    batches = random_noise().batches(9)
    assert min(len(batch) for batch in batches) == 0
    for t, (before, after) in enumerate(zip(kept.models, kept.models[1:], strict=False)):
        due = batches[t]
        total = flat(sums_by_hand(before, x[due], y[due, 0])) + random_noise().step(t, 11)
        moved = (flat(before) - flat(after)) / RATE
        np.testing.assert_allclose(moved, total / 1.5, atol=2e-5)


def test_momentum_and_callbacks_are_keras_own() -> None:
    design, x, y = prefix_design(), np.zeros((12, 3), "float32"), np.zeros((12, 1), "float32")
    model = net(3, hidden=2, optimizer=keras.optimizers.Adam(0.1))
    data = model.private(x, y, node_noise(design), clip=CLIP, steps=4)
    history = model.fit(data, epochs=2, verbose=0, validation_data=(x, y))
    assert (data.run.step, set(history.history)) == (8, {"val_loss"})


def test_misuse_is_refused() -> None:
    x, y = np.ones((12, 3), "float32"), np.zeros((12, 1), "float32")
    source = node_noise(prefix_design())
    model = net(3, hidden=2)
    before = model.get_weights()
    with pytest.raises(InputError, match="fit: expected what model.private"):
        model.fit(x, y)
    with pytest.raises(InputError, match="train_step: expected a step of fit"):
        model.train_on_batch(x, y)
    with pytest.raises(InputError, match="clip: expected 0.5"):
        model.private(x, y, source, clip=1.0)
    with pytest.raises(InputError, match="y: expected a row for each of the 12"):
        model.private(x, y[:3], source, clip=CLIP)
    layers = keras.layers
    for layer in (layers.BatchNormalization(), layers.Dropout(0.5)):
        other = Net([layers.Input((3,)), layer, layers.Dense(1)])
        other.compile("sgd", "mse")
        with pytest.raises(InputError, match="model: expected layers that keep no averages"):
            other.private(x, y, source, clip=CLIP)
        layer.trainable = False
        if not isinstance(layer, layers.Dropout):
            other.private(x, y, source, clip=CLIP)
    other = Net([layers.Input((3,)), layers.Dense(1, kernel_regularizer="l2")])
    other.compile("sgd", "mse")
    with pytest.raises(InputError, match="model: expected no regularisers"):
        other.private(x, y, source, clip=CLIP)
    with pytest.raises(InputError, match="model: expected a compiled model"):
        Net([layers.Input((3,)), layers.Dense(1)]).private(x, y, source, clip=CLIP)
    scaled = keras.optimizers.SGD(0.1, loss_scale_factor=8.0)
    with pytest.raises(InputError, match="optimizer: expected losses as they are"):
        net(3, hidden=2, optimizer=scaled).private(x, y, source, clip=CLIP)
    with pytest.raises(InputError, match="jit_compile"):
        net(3, hidden=2, jit_compile=True).private(x, y, source, clip=CLIP)
    assert source.steps == frozenset()
    for old, new in zip(before, model.get_weights(), strict=True):
        np.testing.assert_array_equal(old, new)
    data = model.private(x, y, source, clip=CLIP)
    model.fit(data, verbose=0)
    assert len(data) == 0
    with pytest.raises(InputError, match="step: expected 0 to 11"):
        data.step(model)


KILLED = """
import os, sys, time
import numpy as np
from pathlib import Path
from tests.adapters.test_keras import Kept, keras, net
from tests.support.trainers import CLIP, node_noise, prefix_design

x = np.random.default_rng(0).normal(size=(40, 5)).astype("float32")
y = (x[:, :1] > 0).astype("float32")
model, where = net(5, hidden=3), Path("record.sqlite3")
again = where.exists()
if again:
    model.load_weights("at.weights.h5")
data = model.private(x, y, node_noise(prefix_design(), record=where, resume=again), clip=CLIP)
if again:
    data.run.load_state_dict(__import__("json").loads(Path("state.json").read_text()))

class Save(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        weights = np.concatenate([w.ravel() for w in model.get_weights()])
        np.save(f"{data.run.step}-{again}.npy", weights)
        if data.run.step == 5:
            model.save_weights("at.weights.h5")
            Path("state.json").write_text(__import__("json").dumps(data.run.state_dict()))
        if data.run.step == 8 and not again:
            print("now", flush=True)
            time.sleep(600)

model.fit(data, verbose=0, callbacks=[Save()])
print("done", data.run.step)
"""


def test_a_killed_fit_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    """kill -9 three steps after it: these are computed again and get the noise they had."""
    variables = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'lab'}"}
    command = [sys.executable, "-c", KILLED]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=tmp_path, env=variables, stdout=pipe) as first:
        assert first.stdout is not None
        assert any(line == b"now\n" for line in first.stdout)
        first.send_signal(signal.SIGKILL)
    done = subprocess.run(
        command, cwd=tmp_path, env=variables, capture_output=True, text=True, check=False
    )
    assert done.stdout.endswith("done 12\n"), done.stderr[-3000:]
    for step in (6, 7, 8):
        one, two = (np.load(tmp_path / f"{step}-{again}.npy") for again in (False, True))
        np.testing.assert_array_equal(one, two)


def test_the_script_of_the_guide_goes_on_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    a9a(10)  # or skipped
    os.symlink(Path(os.environ["NOISEDESIGN_DATA"], "a9a", "a9a"), tmp_path / "a9a")
    text = examples("docs/guides/keras.md", language="py")
    variables = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "NOISEDESIGN_RECORDS": str(tmp_path / "records"),
    }
    monkeypatch.chdir(tmp_path)
    exec(examples("docs/guides/keras.md"), {})  # the plan
    for epochs, told in ((1, "steps 4 epsilon 6.0\n"), (3, "steps 12 epsilon 6.0\n")):
        script = text.replace("epochs=3", f"epochs={epochs}")
        done = subprocess.run(
            [sys.executable, "-c", script],
            cwd=tmp_path,
            env=variables,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.stdout == told, done.stderr[-3000:]


def row(x: np.ndarray, y: np.ndarray) -> None:
    """Against the same step without noise, in CPU seconds."""
    design = prefix_design(epochs=10, separation=4)

    def spent(run: Any) -> float:
        model = net()
        data = model.private(x, y[:, None], node_noise(design), clip=CLIP)
        data.run = run or data.run
        begun = time.process_time()
        model.fit(data, verbose=0)
        return time.process_time() - begun

    class Silent(Run):
        def add_(self, arrays: Any, *, records: Any) -> None:
            self.step += 1

    silent = Silent(node_noise(design), clip=CLIP)
    trainer_row(
        "Keras 3",
        packages=("keras", "torch"),
        works=[
            "`fit` on PyTorch, its optimizers and callbacks",
            "records clipped one by one",
            "random batches",
            "going on after kill -9",
        ],
        refuses=[
            "JAX and TensorFlow as backends",
            "BatchNormalization and Dropout",
            "regularisers, scaled losses, `jit_compile`",
            "`fit` on other data, `train_on_batch`",
        ],
        cost=f"{spent(None) / spent(silent):.2f} times the same clipped step without noise",
    )
