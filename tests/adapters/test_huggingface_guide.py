"""The guide to Hugging Face: its script, killed on the way, and its loops."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.pages import examples
from tests.support.scripts import block, check_a_start_without_a_plan, check_it_goes_on
from tests.support.trainer_rows import trainer_row
from tests.support.trainers import a9a, check_learned, node_noise, prefix_design, secret

torch = pytest.importorskip("torch", reason="needs the package torch")
transformers = pytest.importorskip("transformers", reason="needs the package transformers")
pytest.importorskip("accelerate", reason="needs the package accelerate")

from tests.adapters.test_huggingface import BATCH, speaker, training  # noqa: E402

PAGE = "docs/guides/huggingface.md"
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


def test_the_script_goes_on_after_a_kill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    a9a(10)  # or skipped
    monkeypatch.chdir(tmp_path)
    exec(examples(PAGE), {})  # the plan
    paths = check_it_goes_on(block(PAGE, "py"), tmp_path, silent="loss")
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


@pytest.mark.parametrize("at", [1, 2])
def test_loops_of_accelerate(at: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With Opacus, and with records that are alone."""
    if at == 1:
        pytest.importorskip("opacus", reason="needs the package opacus")
    from torch.utils.data import DataLoader, TensorDataset

    from noisedesign.noise import Batches, noise
    from tests.adapters.torch_networks import RATE, network, numbers

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NOISEDESIGN_RECORDS", str(tmp_path / "records.sqlite3"))
    prefix_design().node_plan(0).save("node.plan")
    secret(7).save("node.secret")
    x, y = (torch.from_numpy(part[:2000]) for part in a9a())
    module = network()
    scope: dict[str, Any] = {
        "model": module,
        "sgd": torch.optim.SGD(module.parameters(), lr=RATE),
        "loader": DataLoader(TensorDataset(x, y), batch_size=500),
        "criterion": torch.nn.functional.binary_cross_entropy_with_logits,
        "noise": noise,
        "X": x,
        "Y": y,
    }
    exec(block(PAGE, "py", at), scope)
    rule = prefix_design().node_plan(0).claim.rule
    assert rule is not None
    batches = Batches(rule, horizon=12, records=2000, batch_size=500)
    data = (x.numpy(), y.numpy())
    check_learned(numbers(module), numbers(network()), batches, data, rate=RATE / 500)


def test_what_a_step_costs_beside_one_of_the_trainer(tmp_path: Path) -> None:
    """Of the same model and batches, without clipping and noise."""
    torch.set_num_threads(1)

    def seconds(trainer: Any) -> float:
        start = time.process_time()
        trainer.train()
        return time.process_time() - start

    ours = training(tmp_path, node_noise(prefix_design()), watch=False)
    own = transformers.Trainer(model=speaker(), args=ours.args, train_dataset=ours.train_dataset)
    plain, designed = seconds(own), seconds(ours)
    assert np.isfinite(designed / plain)
    parameters = sum(p.numel() for p in ours.model.parameters())
    trainer_row(
        "Hugging Face Trainer",
        packages=("transformers", "accelerate", "peft", "torch"),
        works=[
            "every record alone: language models, tied weights",
            "gradient accumulation, workers of the loader, bf16",
            "peft (LoRA)",
            "random batches",
            "resume_from_checkpoint, kill -9",
            "no loss in logs or checkpoints",
        ],
        refuses=[
            "several processes or GPUs",
            "fp16",
            "torch_compile",
            "evaluation on training data",
        ],
        cost=f"{designed / plain:.1f} of a step without clipping and noise "
        f"({parameters:,} parameters, batch {BATCH})",
    )
