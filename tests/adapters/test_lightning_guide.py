"""The guide to Lightning: its script, killed on the way."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from tests.support.pages import examples
from tests.support.scripts import block, check_a_start_without_a_plan, check_it_goes_on
from tests.support.trainer_rows import trainer_row
from tests.support.trainers import a9a, node_noise, prefix_design

torch = pytest.importorskip("torch", reason="needs the package torch")
pytest.importorskip("opacus", reason="needs the package opacus")
pytest.importorskip("lightning", reason="needs the package lightning")

from tests.adapters.test_lightning import Adult, DesignedNoise, loader, trainer  # noqa: E402

PAGE = "docs/guides/lightning.md"
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


def test_the_script_goes_on_after_a_kill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    a9a(10)  # or skipped
    monkeypatch.chdir(tmp_path)
    exec(examples(PAGE), {})  # the plan
    paths = check_it_goes_on(block(PAGE, "py"), tmp_path)
    models = [torch.load(path) for path in paths]
    for key, numbers in models[0].items():
        assert torch.equal(numbers, models[1][key])


def test_the_script_begins_after_a_start_without_a_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    a9a(10)  # or skipped
    monkeypatch.chdir(tmp_path)
    exec(examples(PAGE), {})  # the plan
    check_a_start_without_a_plan(block(PAGE, "py"), tmp_path)


def test_what_a_step_costs_beside_one_without_noise(tmp_path: Path) -> None:
    torch.set_num_threads(1)
    data = loader()

    class Plain(Adult):
        """Without the arithmetic of the tests."""

        def on_train_batch_start(self, batch: Any, at: int) -> None: ...

        def on_train_batch_end(self, outputs: Any, batch: Any, at: int) -> None: ...

    def seconds(*callbacks: Any) -> float:
        made = trainer(None, tmp_path)
        made.callbacks = list(callbacks)
        start = time.process_time()
        made.fit(Plain(), data)
        return time.process_time() - start

    plain, designed = seconds(), seconds(DesignedNoise(node_noise(prefix_design())))
    assert plain > 0
    trainer_row(
        "Lightning",
        packages=("lightning", "opacus", "torch"),
        works=[
            "one callback, automatic or manual optimization",
            "batches in parts, workers of the loader, bf16",
            "random batches",
            "checkpoints within an epoch, kill -9",
            "no loss of the training step in logs",
        ],
        refuses=[
            "several devices, optimizers or loaders",
            "accumulate_grad_batches, gradient_clip_val",
            "loss scales and parameters in half precision",
            "validation on training data",
        ],
        cost=f"{designed / plain:.1f} of a step without clipping and noise (4,001 parameters, "
        "batch 500)",
    )
