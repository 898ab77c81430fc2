"""Hugging Face Transformers: its Trainer with designed noise, every record clipped by itself.

Batches are those that the design is for, noise is added to the sum of clipped gradients, and what
is computed from the data without noise is neither logged nor stored."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils._pytree import tree_map
from torch.utils.data import DataLoader, Dataset, IterableDataset, Sampler
from transformers import Trainer, TrainerCallback
from transformers.trainer_utils import TrainOutput, get_last_checkpoint

from noisedesign.adapters.alone import Alone
from noisedesign.adapters.pytorch import Gradients
from noisedesign.base import checks as _checks
from noisedesign.base.atomic import write_text
from noisedesign.base.checks import InputError
from noisedesign.noise.batches import Batches, RandomBatches
from noisedesign.noise.source import NodeNoise

STATE = "noisedesign.json"
"""The file of a checkpoint that says where the run is."""

_RECORDS = "noisedesign_records"  # which records a batch has, beside what the model is given
_DEFAULT_NORM = 1.0  # max_grad_norm that nobody asked for, of TrainingArguments
_KEPT = {
    "epoch", "step", "learning_rate", "grad_norm", "epsilon", "delta", "train_runtime",
    "train_samples_per_second", "train_steps_per_second",
}  # fmt: skip
"""Logs that are of no record without noise: the norm is that of the gradient with noise."""

_Base: Any = object  # a Trainer, which stands behind it


class Designed(_Base):
    """The part of a Trainer that makes its noise designed; stands before a Trainer among bases.

    Args:
        *args: as of the Trainer.
        noise: of the node; its plan is for sums, so without a batch size.
        public: what is logged though no noise hides it: "loss", of the training data, and
            "evaluation", where it is of the training data.
        at_once: how many records are computed side by side, as of
            :class:`noisedesign.adapters.alone.Alone`.
        skip_used: after a crash, pass over steps whose noise was used, for training that does not
            repeat bit by bit; otherwise they are computed again.
        seed: of the order of records, as of :meth:`noisedesign.adapters.run.Run.batches`.
        **kwargs: as of the Trainer.

    Raises:
        InputError: as :class:`noisedesign.adapters.pytorch.Gradients`; arguments of the Trainer
            that contradict the design, or are not supported.
    """

    def __init__(
        self,
        *args: Any,
        noise: NodeNoise,
        public: Iterable[str] = (),
        at_once: int | None = None,
        skip_used: bool = False,
        seed: int | None = None,
        **kwargs: Any,
    ) -> None:
        _checks.instance(noise, NodeNoise, field="noise", expected="a NodeNoise, of noise(...)")
        self._public = set(_checks.listed(public, field="public", expected="names of what is"))
        for name in self._public:
            _checks.one_of(name, field="public", allowed=("loss", "evaluation"))
        self._skip_used = _checks.flag(skip_used, field="skip_used")
        _without(kwargs.get("model_init"), "model_init", "Make the model, and give it as model=.")
        super().__init__(*args, **kwargs)
        _check_arguments(self)
        self.args.max_grad_norm = 0.0
        self.gradients = Gradients(self.model, noise, clip=_clip_of(noise))
        self._alone = Alone(
            self.model,
            lambda model, batch: self.compute_loss(model, dict(batch)),
            clip=self.gradients.clip,
            at_once=at_once,
        )
        self._batches: Batches | RandomBatches = self.gradients.batches(
            len(self.train_dataset),
            batch_size=self.args.per_device_train_batch_size
            * self.args.gradient_accumulation_steps,
            seed=seed,
        )
        self._parts: list[np.ndarray] = []
        self.add_callback(_Kept(self))

    def get_train_dataloader(self) -> DataLoader[Any]:
        """Batches of the design, each in ``gradient_accumulation_steps`` parts.

        Returns:
            A loader of one round of them, whose batches say which records they have.

        Raises:
            InputError: more steps than the design is for.
        """
        steps, most = self.args.max_steps, self.gradients.horizon
        if steps <= 0:
            steps = int(np.ceil(self.args.num_train_epochs * self._batches.round))
        if steps > most:
            expected = (
                f"{most} steps at most, rounds of {self._batches.round}, as the design is for"
            )
            raise InputError("num_train_epochs", expected=expected, got=f"{steps} steps")
        workers = self.args.dataloader_num_workers
        return DataLoader(
            _Numbered(self.train_dataset),
            batch_sampler=_Parts(self, self._batches),
            collate_fn=_Collated(self.data_collator, self.train_dataset),
            num_workers=workers,
            pin_memory=self.args.dataloader_pin_memory and torch.cuda.is_available(),
            persistent_workers=self.args.dataloader_persistent_workers and workers > 0,
        )

    def train(self, resume_from_checkpoint: Any = None, **kwargs: Any) -> TrainOutput:
        """Train as the Trainer does, from a checkpoint with the same noise.

        Args:
            resume_from_checkpoint: as of the Trainer.
            **kwargs: likewise.

        Returns:
            As the Trainer; the training loss is NaN unless it is public.

        Raises:
            InputError: a checkpoint of another run, or of a Trainer without noise.
        """
        if resume_from_checkpoint is True:
            resume_from_checkpoint = get_last_checkpoint(self.args.output_dir)
            if resume_from_checkpoint is None:
                expected, got = "a folder with a checkpoint", str(self.args.output_dir)
                raise InputError("resume_from_checkpoint", expected=expected, got=got)
        run, self._parts = self.gradients, []
        if resume_from_checkpoint:
            path = Path(resume_from_checkpoint, STATE)
            if not path.is_file():
                expected, got = f"a checkpoint with {STATE}", str(resume_from_checkpoint)
                remedy = "Checkpoints of a Trainer without noise say nothing of a run."
                raise InputError(
                    "resume_from_checkpoint", expected=expected, got=got, remedy=remedy
                )
            run.load_state_dict(json.loads(path.read_text(encoding="utf-8")))
        else:
            run.step = 0  # what was used is not used for other data
        if self._skip_used:
            run.skip_used()
        done = super().train(resume_from_checkpoint=resume_from_checkpoint, **kwargs)
        if "loss" in self._public:
            return done
        metrics = {key: value for key, value in done.metrics.items() if key in _KEPT}
        return TrainOutput(done.global_step, float("nan"), metrics)

    def training_step(
        self, model: Any, inputs: dict[str, Any], num_items_in_batch: Any = None
    ) -> torch.Tensor:
        """Clipped gradients of a part of a batch, and with its last one the noise of the step.

        Args:
            model: as of the Trainer.
            inputs: a batch of the training loader.
            num_items_in_batch: not used: a record's loss is of it alone.

        Returns:
            The mean loss of its records, or 0 where that is not public.

        Raises:
            InputError: records that are not those of the step, as ``Gradients.add_noise_``.
        """
        if _RECORDS not in inputs:
            expected = "a batch of get_train_dataloader(), which says which records it has"
            raise InputError("inputs", expected=expected, got="another one")
        run, step = self.gradients, self.state.global_step
        self._parts.append(inputs.pop(_RECORDS).cpu().numpy())
        last = len(self._parts) == self.args.gradient_accumulation_steps
        if step < run.step:  # its noise was used: no gradient, and no move
            self._parts = [] if last else self._parts
            return torch.zeros((), device=self.args.device)
        if step > run.step:
            expected = f"step {run.step}, the one after the last with noise"
            raise InputError("step", expected=expected, got=f"{step}")
        model.train()
        inputs = self._prepare_inputs(inputs)
        self._alone.model = model
        losses = self._alone.add_(inputs)
        if last:
            records, due = np.concatenate(self._parts), self._batches[step]
            self._parts = []
            if not np.array_equal(np.sort(records), np.sort(due)):
                expected = f"the {len(due)} records of step {step}, each once"
                got = f"{len(records)}, or others"
                raise InputError("train_dataloader", expected=expected, got=got)
            run.add_noise_(records=due)
            for p in run.parameters:
                assert p.grad is not None
                p.grad /= self._batches.expected_size
        if "loss" in self._public and len(losses):
            parts = self.args.gradient_accumulation_steps
            return losses.mean().to(self.args.device) / parts
        return torch.zeros((), device=self.args.device)

    def log(self, logs: dict[str, float], *args: Any, **kwargs: Any) -> None:
        """Log what noise hides, what is public, and epsilon.

        Args:
            logs: as of the Trainer.
            *args: likewise.
            **kwargs: likewise.
        """
        loss = {"loss", "train_loss"} if "loss" in self._public else set()
        claim = self.gradients.noise.claim
        kept: dict[str, float] = {
            key: value
            for key, value in logs.items()
            if key in _KEPT | loss or key.startswith("eval_")
        }
        if claim.epsilon is not None and claim.delta is not None:
            kept |= {"epsilon": claim.epsilon, "delta": claim.delta}
        super().log(kept, *args, **kwargs)

    def floating_point_ops(self, inputs: Any) -> int:
        """Nothing: they tell of the lengths of records.

        Args:
            inputs: as of the Trainer.

        Returns:
            0.
        """
        return 0

    def evaluate(self, eval_dataset: Any = None, *args: Any, **kwargs: Any) -> dict[str, float]:
        """Evaluate as the Trainer does, but not on the training data unless that is public.

        Args:
            eval_dataset: as of the Trainer.
            *args: likewise.
            **kwargs: likewise.

        Returns:
            Likewise.

        Raises:
            InputError: the training data.
        """
        data = self.eval_dataset if eval_dataset is None else eval_dataset
        several = list(data.values()) if isinstance(data, Mapping) else [data]
        if "evaluation" not in self._public and any(one is self.train_dataset for one in several):
            expected = "records that are not trained on: no noise hides metrics"
            remedy = 'If these may be known, public=["evaluation"].'
            raise InputError("eval_dataset", expected=expected, got="train_dataset", remedy=remedy)
        found: dict[str, float] = super().evaluate(eval_dataset, *args, **kwargs)
        return found


class DesignedTrainer(Designed, Trainer):
    """``transformers.Trainer`` with designed noise.

    Args:
        *args: as of the Trainer.
        noise: this and the others as of :class:`Designed`.
        public: likewise.
        at_once: likewise.
        skip_used: likewise.
        seed: likewise.
        **kwargs: as of the Trainer.
    """


class _Kept(TrainerCallback):
    """The state of the run in every checkpoint."""

    def __init__(self, trainer: Designed) -> None:
        self._trainer = trainer

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        folder = Path(self._trainer._get_output_dir(None), f"checkpoint-{state.global_step}")
        text = json.dumps(self._trainer.gradients.state_dict())
        write_text(folder / STATE, text + "\n")


class _Parts(Sampler[list[int]]):
    """Indices of the parts of the batches of one round, the one that training is in."""

    def __init__(self, trainer: Designed, batches: Batches | RandomBatches) -> None:
        self._trainer, self._batches = trainer, batches
        self._parts = trainer.args.gradient_accumulation_steps

    def __len__(self) -> int:
        length: int = self._batches.round * self._parts
        return length

    def __iter__(self) -> Iterator[list[int]]:
        length = self._batches.round
        first = self._trainer.state.global_step // length * length
        for t in range(first, min(first + length, len(self._batches))):
            for part in np.array_split(self._batches[t], self._parts):
                yield part.tolist()


class _Numbered(Dataset[Any]):
    """Records with their numbers."""

    def __init__(self, records: Any) -> None:
        self._records = records

    def __len__(self) -> int:
        return len(self._records)

    def __getitem__(self, at: int) -> tuple[int, Any]:
        return at, self._records[at]


class _Collated:
    """Batches that the collator makes of records, with their numbers; of none an empty one."""

    def __init__(self, collate: Any, records: Any) -> None:
        self._collate, self._records = collate, records

    def __call__(self, numbered: Sequence[tuple[int, Any]]) -> dict[str, Any]:
        numbers = torch.tensor([at for at, _ in numbered], dtype=torch.long)
        batch = dict(self._collate([record for _, record in numbered] or [self._records[0]]))
        if not numbered:
            batch = tree_map(lambda part: part[:0] if torch.is_tensor(part) else part, batch)
        return {**batch, _RECORDS: numbers}


def _clip_of(noise: NodeNoise) -> float:
    if noise.claim.batch_size is not None:
        expected, got = "a plan for sums: this trainer divides after", f"{noise.claim.batch_size}"
        remedy = "Make the node's plan without batch_size."
        raise InputError("batch_size", expected=expected, got=got, remedy=remedy)
    return noise.claim.clip or 0.0


def _check_arguments(trainer: Trainer) -> None:
    """Check that nothing in a Trainer contradicts the design, or is not supported."""
    args = trainer.args
    records = trainer.train_dataset
    if records is None or isinstance(records, IterableDataset) or not hasattr(records, "__len__"):
        got = "none" if records is None else type(records).__name__
        raise InputError("train_dataset", expected="records with numbers and a length", got=got)
    norm = args.max_grad_norm
    if norm not in (None, 0.0, _DEFAULT_NORM):
        remedy = "Records are clipped to the design's clip, one by one; leave it out."
        _without(norm, "max_grad_norm", remedy)
    several = "Noise on several ranks is noisedesign.adapters.pytorch."
    _without(args.world_size > 1 or args.n_gpu > 1, "world_size", several)
    _without(trainer.is_deepspeed_enabled or trainer.is_fsdp_enabled, "fsdp", several)
    _without(
        args.fp16, "fp16", "Its loss scale moves gradients after they were clipped: bf16=True."
    )
    _without(args.torch_compile, "torch_compile", "Records are computed by torch.func.")
    _without(args.auto_find_batch_size, "auto_find_batch_size", "Batches are the design's.")
    tokens = args.include_num_input_tokens_seen not in (False, "no")
    _without(tokens, "include_num_input_tokens_seen", "It tells of the lengths of records.")
    _without(args.ignore_data_skip, "ignore_data_skip", "Every batch is for one step.")


def _without(wrong: Any, field: str, remedy: str) -> None:
    if wrong:
        got = _checks.describe(wrong)
        raise InputError(field, expected="none, with designed noise", got=got, remedy=remedy)
