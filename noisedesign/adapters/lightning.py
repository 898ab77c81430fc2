"""Lightning: a callback that makes the training of a module private, with Opacus' clipping.

It puts the optimizer and the loader of :class:`noisedesign.adapters.opacus.Engine` in place of the
module's own, keeps where the run is in checkpoints, and keeps what no noise hides from the logs."""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch.utils.data import DataLoader, Sampler

from noisedesign.adapters.opacus import DesignedOptimizer, Engine, RoundBatches
from noisedesign.base import checks as _checks
from noisedesign.base.checks import InputError
from noisedesign.noise.source import NodeNoise


class DesignedNoise(Callback):
    """The noise, clipping, batches and epsilon of a design, in ``Trainer(callbacks=[...])``.

    Args:
        noise: of the node; its plan is for sums, so without a batch size.
        public: names of metrics that the training step may log though no noise hides them, and
            "evaluation", where that is on the training data.
        max_physical_batch_size: the most records that are computed together; None: a whole batch.
        seed: of the order of records, as of :meth:`noisedesign.adapters.run.Run.batches`.
        **kwargs: ``batch_first``, ``loss_reduction`` and ``grad_sample_mode`` ("hooks" or
            "functorch") as of Opacus.

    Raises:
        InputError: as :class:`noisedesign.adapters.opacus.Engine`.
    """

    def __init__(
        self,
        noise: NodeNoise,
        *,
        public: Iterable[str] = (),
        max_physical_batch_size: int | None = None,
        seed: int | None = None,
        **kwargs: Any,
    ) -> None:
        self.engine = Engine(noise, seed=seed)
        self._public = set(_checks.listed(public, field="public", expected="names of metrics"))
        if max_physical_batch_size is not None:
            most = _checks.positive_int(max_physical_batch_size, field="max_physical_batch_size")
            max_physical_batch_size = most
        if "ghost" in kwargs.get("grad_sample_mode", ""):
            expected, got = '"hooks" or "functorch": the loss is the module\'s own', '"ghost"'
            raise InputError("grad_sample_mode", expected=expected, got=got)
        self._most, self._options = max_physical_batch_size, kwargs
        self._dataset: Any = None
        self._told = False

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Stand between the module and the trainer before these make optimizers and loaders.

        Args:
            trainer: which is to train.
            pl_module: what it trains.
            stage: "fit" alone is changed.

        Raises:
            InputError: a trainer that contradicts the design, or is not supported.
        """
        if stage != "fit":
            return
        _check_trainer(trainer)
        configure, log = pl_module.configure_optimizers, pl_module.log

        def configured() -> Any:
            return self._configured(trainer, pl_module, configure())

        def logged(name: str, value: Any, *args: Any, **kwargs: Any) -> None:
            if trainer.training and name not in self._public:
                self._leave_out(name)
            else:
                log(name, value, *args, **kwargs)

        pl_module.configure_optimizers, pl_module.log = configured, logged
        for callback in trainer.callbacks:  # to which Lightning gave the module's own
            callback.log = logged

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Refuse to evaluate the training data.

        Args:
            trainer: which is to evaluate.
            pl_module: what it trains.

        Raises:
            InputError: the training data, unless "evaluation" is public.
        """
        loaders = trainer.val_dataloaders
        several = loaders if isinstance(loaders, (list, tuple)) else [loaders]
        same = any(getattr(one, "dataset", None) is self._dataset for one in several)
        if self._dataset is not None and same and "evaluation" not in self._public:
            expected = "records that are not trained on: no noise hides metrics"
            remedy = 'If these may be known, public=["evaluation"].'
            raise InputError(
                "val_dataloaders", expected=expected, got="training data", remedy=remedy
            )

    def state_dict(self) -> dict[str, Any]:
        """The state of the run for a checkpoint, without the secret.

        Returns:
            JSON values.
        """
        found: dict[str, Any] = json.loads(json.dumps(self.engine.run.state_dict()))
        return found  # of plain values, as torch.load(weights_only=True) takes them

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from a checkpoint.

        Args:
            state_dict: what :meth:`state_dict` gave.

        Raises:
            InputError: as :meth:`noisedesign.adapters.run.Run.load_state_dict`.
        """
        self.engine.run.load_state_dict(state_dict)

    def _configured(self, trainer: Trainer, module: LightningModule, found: Any) -> Any:
        """Return what the module's ``configure_optimizers`` does, with the engine's optimizer."""
        own, schedulers = _only(found)
        source = trainer.fit_loop._data_source
        loader = source.dataloader()
        if not isinstance(loader, DataLoader):
            expected = "one DataLoader, with a dataset and a batch size"
            raise InputError("train_dataloaders", expected=expected, got=type(loader).__name__)
        _, optimizer, private = self.engine.make_private(
            module=module, optimizer=own, data_loader=loader, wrap_model=False, **self._options
        )
        self._dataset = loader.dataset
        batches = self.engine._batches
        assert batches is not None
        steps, most = trainer.max_steps, self.engine.run.horizon
        if steps < 0:
            steps = math.inf if trainer.max_epochs is None else trainer.max_epochs * len(batches)
        if not 0 <= steps <= most:
            expected = f"{most} steps at most, in rounds of {len(batches)}: the design is so"
            raise InputError("max_epochs", expected=expected, got=f"{steps:g} steps")
        if self._most is not None:
            private = _in_parts(private, batches, most=self._most, optimizer=optimizer)
        source.instance = private
        for scheduler in schedulers:
            scheduler.optimizer = optimizer
        return optimizer if found is own else _replaced(found, own, optimizer)

    def _leave_out(self, name: str) -> None:
        if not self._told:
            warnings.warn(
                f"{name!r} is not logged, like all that the training step computes from the data: "
                f'no noise hides it. If it may be known, public=["{name}"].',
                stacklevel=3,
            )
        self._told = True


class _Parts(Sampler[list[int]]):
    """Batches of a round in parts of a size at most; the optimizer moves after the last of each."""

    def __init__(self, batches: RoundBatches, most: int, optimizer: DesignedOptimizer) -> None:
        self._rounds, self._most, self._optimizer = batches, most, optimizer

    def _count(self, records: int) -> int:
        return max(1, -(-records // self._most))

    def __len__(self) -> int:
        batches = self._rounds._batches
        return sum(self._count(len(batches[t])) for t in range(batches.round))

    def __iter__(self) -> Iterator[list[int]]:
        for batch in self._rounds:
            count = self._count(len(batch))
            for part in range(count):
                self._optimizer.signal_skip_step(do_skip=part < count - 1)
                yield batch[part::count]


def _in_parts(
    loader: DataLoader[Any], batches: RoundBatches, *, most: int, optimizer: DesignedOptimizer
) -> DataLoader[Any]:
    if loader.num_workers:
        expected = "0 with max_physical_batch_size: workers fetch ahead of the optimizer"
        raise InputError("num_workers", expected=expected, got=f"{loader.num_workers}")
    return DataLoader(
        loader.dataset,
        batch_sampler=_Parts(batches, most, optimizer),
        collate_fn=loader.collate_fn,
        pin_memory=loader.pin_memory,
    )


def _only(found: Any) -> tuple[torch.optim.Optimizer, list[Any]]:
    """The optimizer and the schedulers that ``configure_optimizers`` returned."""
    optimizers: list[torch.optim.Optimizer] = []
    schedulers: list[Any] = []

    def look(part: Any) -> None:
        if isinstance(part, torch.optim.Optimizer):
            optimizers.append(part)
        elif isinstance(part, Mapping):
            list(map(look, part.values()))
        elif isinstance(part, (list, tuple)):
            list(map(look, part))
        elif hasattr(part, "optimizer") and hasattr(part, "step"):
            schedulers.append(part)

    look(found)
    if len(optimizers) != 1:
        expected = "one optimizer, of all that is trained"
        raise InputError("configure_optimizers", expected=expected, got=f"{len(optimizers)}")
    return optimizers[0], schedulers


def _replaced(found: Any, own: Any, other: Any) -> Any:
    if isinstance(found, Mapping):
        return {key: _replaced(part, own, other) for key, part in found.items()}
    if isinstance(found, (list, tuple)):
        return type(found)(_replaced(part, own, other) for part in found)
    return other if found is own else found


def _check_trainer(trainer: Trainer) -> None:
    """Check that nothing in a trainer contradicts the design, or is not supported."""
    _without(
        trainer.world_size > 1, "devices", f"{trainer.world_size}", "1, as Opacus clips on one"
    )
    _without(
        trainer.accumulate_grad_batches != 1,
        "accumulate_grad_batches",
        f"{trainer.accumulate_grad_batches}",
        "1; DesignedNoise(max_physical_batch_size=...) takes a batch in parts",
    )
    clip = trainer.gradient_clip_val
    _without(clip is not None, "gradient_clip_val", f"{clip}", "none: records are clipped, by one")
    _without(trainer.overfit_batches > 0, "overfit_batches", f"{trainer.overfit_batches}", "0")
    precise = ("32-true", "64-true", "bf16-mixed")
    _without(trainer.precision not in precise, "precision", f"{trainer.precision}", str(precise))


def _without(wrong: bool, field: str, got: str, expected: str) -> None:
    if wrong:
        raise InputError(field, expected=expected, got=got)
