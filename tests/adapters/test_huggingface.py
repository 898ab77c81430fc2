"""Hugging Face's Trainer with designed noise, on a small transformer that is built here."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from noisedesign import InputError
from noisedesign.noise import NodeNoise
from tests.support.adapters import check_noise, designed_covariance
from tests.support.trainers import CLIP, node_noise, prefix_design, random_noise

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
torch = pytest.importorskip("torch", reason="needs the package torch")
transformers = pytest.importorskip("transformers", reason="needs the package transformers")
pytest.importorskip("accelerate", reason="needs the package accelerate")

from transformers import TrainerCallback, TrainingArguments  # noqa: E402

from noisedesign.adapters.huggingface import STATE, Designed, DesignedTrainer  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:Records are computed one after another")
RECORDS, BATCH, RATE = 24, 6, 0.5


class Words(torch.utils.data.Dataset):
    """Sentences of 5 to 9 words; what follows a word is to be said, but after the end."""

    def __init__(self, records: int = RECORDS) -> None:
        g = torch.Generator().manual_seed(0)
        self.ids = torch.randint(3, 60, (records, 9), generator=g)
        self.lengths = torch.randint(5, 10, (records,), generator=g)

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, i: int) -> dict[str, Any]:
        there = torch.arange(9) < self.lengths[i]
        labels = torch.where(there, self.ids[i], -100)
        return {"input_ids": self.ids[i], "attention_mask": there.long(), "labels": labels}


def speaker(attention: str = "eager") -> Any:
    """Embeddings are tied to the head; sums over tokens are divided by how many there are."""
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        vocab_size=60, n_positions=9, n_embd=24, n_layer=1, n_head=2, resid_pdrop=0.0,
        embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=1, eos_token_id=2,
        attn_implementation=attention,
    )  # fmt: skip
    return transformers.GPT2LMHeadModel(config)


def flat(model: Any) -> np.ndarray:
    moved = [p.detach().flatten() for p in model.parameters() if p.requires_grad]
    return torch.cat(moved).double().numpy()


def by_hand(model: Any, records: Any, data: Any) -> np.ndarray:
    """The sum of gradients that are clipped one by one, by the textbook."""
    total = 0.0
    for i in records:
        model.zero_grad()
        model(**{name: part[None] for name, part in data[int(i)].items()}).loss.backward()
        grads = [p.grad for p in model.parameters() if p.requires_grad]
        gradient = torch.cat([g.flatten() for g in grads]).double().numpy()
        total = total + gradient * min(1.0, CLIP / np.linalg.norm(gradient))
    model.zero_grad()
    return np.asarray(total)


class Watch(TrainerCallback):
    """What moved the parameters in every step beside the sums by hand."""

    def __init__(self) -> None:
        self.trainer: Any = None
        self.noises: list[np.ndarray] = []

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.before, self.step = flat(self.trainer.model), state.global_step

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        trainer = self.trainer
        moved = (self.before - flat(trainer.model)) / RATE * trainer._batches.expected_size
        trainer.model.eval()
        after = {name: p.detach().clone() for name, p in trainer.model.named_parameters()}
        at = 0
        for p in trainer.model.parameters():  # the sums are those of the parameters before
            if p.requires_grad:
                p.data.copy_(torch.from_numpy(self.before[at : at + p.numel()]).view_as(p))
                at += p.numel()
        exact = by_hand(trainer.model, trainer._batches[self.step], trainer.train_dataset)
        trainer.model.load_state_dict(after, strict=False)
        self.noises.append(moved - exact)


def training(
    folder: Path,
    noise: NodeNoise | None = None,
    *,
    model: Any = None,
    data: Any = None,
    watch: bool = True,
    trainer: Any = DesignedTrainer,
    **how: Any,
) -> Any:
    model = speaker() if model is None else model
    own = {key: how.pop(key) for key in ("public", "skip_used", "at_once") if key in how}
    made = {key: how.pop(key) for key in ("eval_dataset", "compute_loss_func") if key in how}
    defaults = {
        "per_device_train_batch_size": BATCH, "num_train_epochs": 3, "save_strategy": "no",
        "report_to": [], "use_cpu": True, "disable_tqdm": True, "logging_steps": 2,
        "remove_unused_columns": False, "lr_scheduler_type": "constant",
    }  # fmt: skip
    args = TrainingArguments(output_dir=str(folder / "out"), **{**defaults, **how})
    watching = Watch()
    moved = [p for p in model.parameters() if p.requires_grad]
    found = trainer(
        model=model,
        args=args,
        train_dataset=Words() if data is None else data,
        optimizers=(torch.optim.SGD(moved, lr=RATE), None),
        callbacks=[watching] if watch else [],
        noise=node_noise(prefix_design()) if noise is None else noise,
        **own,
        **made,
    )
    watching.trainer, found.watching = found, watching
    return found


def test_noise_in_the_parameters_is_that_of_the_design(tmp_path: Path) -> None:
    """Beside sums of gradients of sentences of several lengths, clipped one by one."""
    trainer = training(tmp_path)
    trainer.train()
    noises = np.array(trainer.watching.noises)
    assert noises.shape == (12, flat(trainer.model).size)
    check_noise(designed_covariance(prefix_design()), noises)
    exact = [node_noise(prefix_design()).step(t, noises[0].size) for t in range(12)]
    np.testing.assert_allclose(noises, exact, atol=1e-3)


@pytest.mark.parametrize(
    "how",
    [
        {"attention": "sdpa"},  # whose masks vmap cannot see: one record after another
        {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 3},
        {"dataloader_num_workers": 1},
        {"at_once": 4},
        {"bf16": True},
    ],
)
def test_ways_of_computing_the_sums(how: dict[str, Any], tmp_path: Path) -> None:
    model = speaker(how.pop("attention", "eager"))
    trainer = training(tmp_path, model=model, max_steps=2, **how)
    trainer.train()
    noises = trainer.watching.noises
    exact = [node_noise(prefix_design()).step(t, noises[0].size) for t in range(2)]
    # In bfloat16 gradients are off by a percent: their sum has a norm of 3 at most.
    np.testing.assert_allclose(noises, exact, atol=0.05 if how.get("bf16") else 1e-3)


def test_batches_that_the_node_draws_some_of_them_empty(tmp_path: Path) -> None:
    trainer = training(
        tmp_path, random_noise(), data=Words(12), num_train_epochs=2, per_device_train_batch_size=2
    )
    trainer.train()
    assert any(len(batch) == 0 for batch in trainer._batches)
    noises = trainer.watching.noises
    exact = [random_noise().step(t, noises[0].size) for t in range(12)]
    np.testing.assert_allclose(noises, exact, atol=1e-3)


def test_no_loss_is_logged_or_stored(tmp_path: Path) -> None:
    trainer = training(tmp_path, max_steps=4, save_strategy="steps", save_steps=4, watch=False)
    done = trainer.train()
    assert np.isnan(done.training_loss)
    state = json.loads((tmp_path / "out/checkpoint-4/trainer_state.json").read_text())
    keys = {key for entry in state["log_history"] + [done.metrics] for key in entry}
    assert {"learning_rate", "grad_norm", "epsilon", "delta"} <= keys
    assert not [key for key in keys if "loss" in key or "tokens" in key or "flos" in key]
    assert state["total_flos"] == 0
    assert {entry["epsilon"] for entry in state["log_history"]} == {6.0}
    # On request: the mean over records of the losses of two steps.
    told = training(tmp_path, node_noise(prefix_design(), 2), max_steps=2, public=["loss"])
    done = told.train()
    assert "loss" in told.state.log_history[0]
    assert 3 < done.training_loss < 6  # log 60 is 4.1


def test_metrics_of_the_training_data_are_not_given_away(tmp_path: Path) -> None:
    data = Words()
    trainer = training(tmp_path, data=data, eval_dataset=data, watch=False)
    with pytest.raises(InputError, match="eval_dataset: expected records that are not trained on"):
        trainer.evaluate()
    assert "eval_loss" in trainer.evaluate(Words(5))
    trainer = training(tmp_path, data=data, public=["evaluation"], watch=False)
    assert "eval_loss" in trainer.evaluate(data)


def test_going_on_from_a_checkpoint(tmp_path: Path) -> None:
    """Within an epoch, with dropout: the same noise, bit by bit the same model."""

    def made(name: str, **how: Any) -> Any:
        model = speaker()
        model.transformer.drop.p = 0.2
        noise = node_noise(prefix_design(), record=tmp_path / f"{name}.sqlite3", **how)
        saved = {"save_strategy": "steps", "save_steps": 5}
        return training(tmp_path / name, noise, model=model, watch=False, **saved)

    whole = made("whole")
    whole.train()
    first = made("killed")

    class Killed(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if state.global_step == 7:
                raise KeyboardInterrupt

    first.add_callback(Killed())
    with pytest.raises(KeyboardInterrupt):
        first.train()
    again = made("killed", resume=True)
    again.train(resume_from_checkpoint=True)
    np.testing.assert_array_equal(flat(again.model), flat(whole.model))
    assert again.gradients.step == 12
    assert STATE in os.listdir(tmp_path / "killed/out/checkpoint-5")


def test_steps_that_were_used_are_passed_over(tmp_path: Path) -> None:
    """Where other gradients come out, as of another dropout."""
    record = tmp_path / "record.sqlite3"
    saved = {"save_strategy": "steps", "save_steps": 2}
    first = training(tmp_path, node_noise(prefix_design(), record=record), max_steps=4, **saved)
    first.train()

    def again(**how: Any) -> Any:
        model = speaker()
        source = node_noise(prefix_design(), record=record, resume=True)
        found = training(tmp_path, source, model=model, **how)
        found.train_dataset.ids[:] = 7  # other data
        return found

    checkpoint = str(tmp_path / "out/checkpoint-2")
    with pytest.raises(InputError, match="other data at step 2"):
        again().train(resume_from_checkpoint=checkpoint)
    trainer = again(skip_used=True)
    trainer.train(resume_from_checkpoint=checkpoint)
    noises = trainer.watching.noises
    exact = [node_noise(prefix_design()).step(t, noises[0].size) for t in range(4, 12)]
    np.testing.assert_allclose(noises[2:], exact, atol=1e-3)
    assert trainer.state.global_step == 12


def test_adapters_of_peft_are_all_that_moves(tmp_path: Path) -> None:
    peft = pytest.importorskip("peft", reason="needs the package peft")
    config = peft.LoraConfig(
        r=4, target_modules=["c_attn"], lora_dropout=0.0, task_type="CAUSAL_LM"
    )
    model = peft.get_peft_model(speaker(), config)
    frozen = {n: p.detach().clone() for n, p in model.named_parameters() if not p.requires_grad}
    trainer = training(tmp_path, model=model, num_train_epochs=3)
    trainer.train()
    noises = np.array(trainer.watching.noises)
    assert noises.shape == (12, 4 * 24 + 4 * 72)
    check_noise(designed_covariance(prefix_design()), noises)
    for name, p in model.named_parameters():
        assert name not in frozen or torch.equal(p, frozen[name])


# --- what is refused ---


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("max_grad_norm", 2.0),
        ("fp16", True),
        ("torch_compile", True),
        ("auto_find_batch_size", True),
        ("ignore_data_skip", True),
        ("include_num_input_tokens_seen", "all"),
    ],
)
def test_arguments_that_are_refused(field: str, value: Any, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=f"^{field}: expected none, with designed noise"):
        training(tmp_path, **{field: value})


def test_several_processes_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TrainingArguments, "world_size", property(lambda _: 2))
    with pytest.raises(InputError, match="world_size: expected none, with designed noise"):
        training(tmp_path)


def test_other_ways_around_the_design_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="batch_size: expected 4 batches a round"):
        training(tmp_path, per_device_train_batch_size=5)
    with pytest.raises(InputError, match="num_train_epochs: expected 12 steps at most"):
        training(tmp_path, num_train_epochs=4).train()
    with pytest.raises(InputError, match="batch_size: expected a plan for sums"):
        training(tmp_path, node_noise(prefix_design().node_plan(0, batch_size=6), batch_size=6))
    with pytest.raises(InputError, match="model_init"):
        DesignedTrainer(noise=node_noise(prefix_design()), model_init=speaker)
    with pytest.raises(InputError, match="public"):
        training(tmp_path, public=["secret"])


def test_a_loader_of_ones_own_is_refused(tmp_path: Path) -> None:
    class Other(Designed, transformers.Trainer):
        def get_train_dataloader(self) -> Any:
            return torch.utils.data.DataLoader(self.train_dataset, batch_size=BATCH)

    with pytest.raises(InputError, match="inputs: expected a batch of get_train_dataloader"):
        training(tmp_path, trainer=Other).train()

    class Twice(Designed, transformers.Trainer):
        def get_train_dataloader(self) -> Any:
            loader = super().get_train_dataloader()
            records = next(iter(loader.batch_sampler))
            return torch.utils.data.DataLoader(
                loader.dataset, batch_sampler=[records] * 4, collate_fn=loader.collate_fn
            )

    with pytest.raises(InputError, match="train_dataloader: expected the 6 records of step 1"):
        training(tmp_path, trainer=Twice).train()


def test_a_checkpoint_without_the_run_is_refused(tmp_path: Path) -> None:
    saved = {"save_strategy": "steps", "save_steps": 1, "max_steps": 1}
    training(tmp_path, **saved).train()
    (tmp_path / "out/checkpoint-1" / STATE).unlink()
    with pytest.raises(InputError, match="resume_from_checkpoint: expected a checkpoint with"):
        training(tmp_path).train(resume_from_checkpoint=True)
