"""Lightning with designed noise: the callback, its checkpoints, and what it keeps from logs."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from noisedesign import InputError
from noisedesign.noise import NodeNoise
from tests.adapters.torch_networks import RATE, by_hand, flat, network, numbers
from tests.support.adapters import check_noise, designed_covariance
from tests.support.trainers import a9a, check_learned, node_noise, prefix_design, random_noise

torch = pytest.importorskip("torch", reason="needs the package torch")
pytest.importorskip("opacus", reason="needs the package opacus")
lightning = pytest.importorskip("lightning", reason="needs the package lightning")

from torch.utils.data import DataLoader, TensorDataset  # noqa: E402

from noisedesign.adapters.lightning import DesignedNoise  # noqa: E402

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
pytestmark = [
    pytest.mark.filterwarnings("ignore:Full backward hook"),
    pytest.mark.filterwarnings("ignore:'loss' is not logged"),
]


class Adult(lightning.LightningModule):
    """The network over a9a; ``noises`` is what moved it beside the sums by hand."""

    def __init__(self, scheduler: str = "") -> None:
        super().__init__()
        self.net, self.scheduler, self.noises = network(), scheduler, []

    def training_step(self, batch: Any, at: int) -> Any:
        x, y = batch
        loss = torch.nn.functional.binary_cross_entropy_with_logits(self.net(x)[:, 0], y)
        self.log("loss", loss)
        return loss

    def validation_step(self, batch: Any, at: int) -> None:
        self.log("right", ((self.net(batch[0])[:, 0] > 0) == batch[1]).float().mean())

    def configure_optimizers(self) -> Any:
        sgd = torch.optim.SGD(self.net.parameters(), lr=RATE)
        constant = torch.optim.lr_scheduler.LambdaLR(sgd, lambda _: 1.0) if self.scheduler else None
        return {
            "": sgd,
            "dict": {"optimizer": sgd, "lr_scheduler": constant},
            "lists": ([sgd], [{"scheduler": constant}]),
        }[self.scheduler]

    def on_train_batch_start(self, batch: Any, at: int) -> None:
        self.before = flat(self.net)
        self.exact = by_hand(self.net, *batch)

    def on_train_batch_end(self, outputs: Any, batch: Any, at: int) -> None:
        divided = self.optimizers().optimizer.expected_batch_size
        self.noises.append((self.before - flat(self.net)) / RATE * divided - self.exact)


def loader(records: int = 2000, batch_size: int = 500, **how: Any) -> Any:
    x, y = (torch.from_numpy(part[:records]) for part in a9a())
    return DataLoader(TensorDataset(x, y), batch_size=batch_size, **how)


def trainer(callback: Any, folder: Path, **how: Any) -> Any:
    defaults = {
        "max_epochs": 3, "accelerator": "cpu", "devices": 1, "logger": False,
        "enable_checkpointing": False, "enable_progress_bar": False,
        "enable_model_summary": False, "default_root_dir": folder,
    }  # fmt: skip
    more = how.pop("callbacks", [])
    return lightning.Trainer(callbacks=[callback, *more], **{**defaults, **how})


def fitted(folder: Path, noise: NodeNoise | None = None, **how: Any) -> tuple[Any, Any, Any]:
    names = ("max_physical_batch_size", "public", "grad_sample_mode")
    own = {key: how.pop(key) for key in names if key in how}
    data = how.pop("data", None) or loader()
    fit = {key: how.pop(key) for key in ("ckpt_path", "val_dataloaders") if key in how}
    callback = DesignedNoise(node_noise(prefix_design()) if noise is None else noise, **own)
    module = how.pop("module", None) or Adult()
    made = trainer(callback, folder, **how)
    made.fit(module, data, **fit)
    return module, callback, made


@pytest.mark.parametrize("scheduler", ["", "dict", "lists"])
def test_noise_in_the_parameters_is_that_of_the_design(scheduler: str, tmp_path: Path) -> None:
    module, callback, _ = fitted(tmp_path, module=Adult(scheduler))
    noises = np.array(module.noises)
    assert noises.shape == (12, flat(module.net).size)
    check_noise(designed_covariance(prefix_design()), noises)
    assert callback.engine.get_epsilon(1e-5) == 6.0
    batches = callback.engine.run.batches(2000, batch_size=500)
    data = tuple(part[:2000] for part in a9a())
    check_learned(numbers(module.net), numbers(network()), batches, data, rate=RATE / 500)


@pytest.mark.parametrize(
    "how", [{"precision": "bf16-mixed"}, {"data": {"num_workers": 1}}, {"max_epochs": 1}]
)
def test_ways_of_training(how: dict[str, Any], tmp_path: Path) -> None:
    if "data" in how:
        how = {"data": loader(**how["data"])}
    module, _, _ = fitted(tmp_path, **how)
    exact = [node_noise(prefix_design()).step(t, 4001) for t in range(len(module.noises))]
    assert len(exact) == 4 * how.get("max_epochs", 3)
    # In bfloat16 a gradient is off by some thousandths, and the sum is of 500.
    np.testing.assert_allclose(module.noises, exact, atol=1 if "precision" in how else 1e-3)


def test_large_batches_in_parts(tmp_path: Path) -> None:
    whole, _, _ = fitted(tmp_path)
    parts, callback, _ = fitted(tmp_path, max_physical_batch_size=200)
    assert (len(parts.noises), callback.engine.run.step) == (36, 12)
    for a, b in zip(whole.net.parameters(), parts.net.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-3)


def test_batches_that_the_node_draws_some_of_them_empty(tmp_path: Path) -> None:
    module, _, _ = fitted(tmp_path, random_noise(), data=loader(12, 2), max_epochs=2)
    exact = [random_noise().step(t, 4001) for t in range(12)]
    np.testing.assert_allclose(module.noises, exact, atol=1e-3)


def test_the_loss_of_the_training_data_is_not_logged(tmp_path: Path) -> None:
    x, y = (torch.from_numpy(part[2000:2100]) for part in a9a())
    others = DataLoader(TensorDataset(x, y), batch_size=50)
    with pytest.warns(UserWarning, match="'loss' is not logged"):
        _, _, made = fitted(tmp_path, val_dataloaders=others, max_epochs=1)
    assert set(made.callback_metrics) == {"right"}
    _, _, made = fitted(tmp_path, node_noise(prefix_design(), 2), max_epochs=1, public=["loss"])
    assert set(made.callback_metrics) == {"loss"}
    data = loader()
    with pytest.raises(InputError, match="val_dataloaders: expected records that are not trained"):
        fitted(tmp_path, data=data, val_dataloaders=data)
    fitted(tmp_path, data=data, val_dataloaders=data, public=["evaluation"], max_epochs=1)


def test_what_other_callbacks_log_of_it_is_left_out(tmp_path: Path) -> None:
    class Logs(lightning.Callback):
        def on_train_batch_end(self, _: Any, module: Any, outputs: Any, *__: Any) -> None:
            self.log("one", outputs["loss"])
            self.log_dict({"more": outputs["loss"]})

    with pytest.warns(UserWarning, match="is not logged"):
        _, _, made = fitted(tmp_path, max_epochs=1, callbacks=[Logs()])
    assert not made.callback_metrics


@pytest.mark.parametrize("at", [4, 6])
def test_going_on_from_a_checkpoint(at: int, tmp_path: Path) -> None:
    """At the end of a round, and within one: the same noise, bit by bit the same model."""

    class Killed(lightning.Callback):
        def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
            if trainer.global_step == at:
                trainer.save_checkpoint(tmp_path / "last.ckpt")
            if trainer.global_step == at + 1:
                raise ZeroDivisionError

    def source(name: str, **how: Any) -> NodeNoise:
        return node_noise(prefix_design(), record=tmp_path / f"{name}.sqlite3", **how)

    whole, _, _ = fitted(tmp_path, source("whole"))
    with pytest.raises(ZeroDivisionError):
        fitted(tmp_path, source("killed"), callbacks=[Killed()])
    again, callback, _ = fitted(
        tmp_path, source("killed", resume=True), ckpt_path=tmp_path / "last.ckpt"
    )
    assert callback.engine.run.step == 12
    np.testing.assert_array_equal(flat(again.net), flat(whole.net))
    np.testing.assert_array_equal(again.noises, whole.noises[at:])


# --- what is refused ---


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("accumulate_grad_batches", 2),
        ("gradient_clip_val", 1.0),
        ("overfit_batches", 1),
        ("precision", "bf16-true"),
        ("precision", "16-true"),
        ("max_epochs", 4),
        ("max_epochs", -1),
        ("max_steps", 13),
    ],
)
def test_arguments_that_are_refused(field: str, value: Any, tmp_path: Path) -> None:
    what = "max_epochs" if field == "max_steps" else field
    with pytest.raises(InputError, match=f"^{what}: expected"):
        fitted(tmp_path, **{field: value})


def test_several_devices_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lightning.Trainer, "world_size", property(lambda _: 2))
    made = trainer(DesignedNoise(node_noise(prefix_design())), tmp_path)
    with pytest.raises(InputError, match="devices: expected 1, as Opacus clips on one, got 2"):
        made.callbacks[0].setup(made, Adult(), "fit")


def test_other_ways_around_the_design_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="batch_size: expected 4 batches a round"):
        fitted(tmp_path, data=loader(batch_size=400))
    with pytest.raises(InputError, match="grad_sample_mode"):
        fitted(tmp_path, grad_sample_mode="ghost")
    with pytest.raises(InputError, match="num_workers: expected 0 with max_physical"):
        fitted(tmp_path, data=loader(num_workers=1), max_physical_batch_size=100)
    with pytest.raises(InputError, match="train_dataloaders: expected one DataLoader"):
        fitted(tmp_path, data=[loader(), loader()])

    class Two(Adult):
        def configure_optimizers(self) -> Any:
            return [torch.optim.SGD([p], lr=1.0) for p in self.net.parameters()]

    with pytest.raises(InputError, match="configure_optimizers: expected one optimizer"):
        fitted(tmp_path, module=Two())


def test_an_optimizer_of_the_modules_own_moves_nothing(tmp_path: Path) -> None:
    class Own(Adult):
        def __init__(self) -> None:
            super().__init__()
            self.automatic_optimization = False
            self.sgd = torch.optim.SGD(self.net.parameters(), lr=RATE)

        def training_step(self, batch: Any, at: int) -> None:
            self.manual_backward(super().training_step(batch, at))
            self.sgd.step()

    with pytest.raises(InputError, match="optimizer: expected gradients with the noise of a step"):
        fitted(tmp_path, module=Own())
