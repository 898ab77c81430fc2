"""PyTorch: designed noise in a loop of one's own, added to the gradients in ``p.grad``.

While the ``Gradients`` of a model are there, no optimizer of PyTorch moves one of its parameters by
a gradient that has no noise."""

from __future__ import annotations

import hashlib
import weakref
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import distributed
from torch.nn.parallel import DistributedDataParallel
from torch.optim.optimizer import register_optimizer_step_pre_hook

from noisedesign.adapters.run import Run
from noisedesign.base import checks as _checks
from noisedesign.base.checks import InputError
from noisedesign.noise import device
from noisedesign.noise.source import NodeNoise

_NOISY = "_noisedesign_noisy"  # attribute of a gradient with noise that no optimizer has taken


class Gradients(Run):
    """The gradients of one model, in one run of one node.

    All parameters that need a gradient get noise. Buffers, which leave with them, may not change:
    averages of BatchNorm are of the data. Of ``DistributedDataParallel`` all ranks add the same
    noise, from one secret, to the same sum, that of all records of the batch.

    Args:
        model: all that is trained, as a module; ``torch.nn.ParameterList`` makes one of tensors.
        noise: of the node. Where its plan has a batch size, ``p.grad`` is the sum divided by it.
        clip: the norm of every record's gradient, over all parameters; must be the design's.

    Raises:
        InputError: as :class:`Run`; no parameters; parameters in shards.

    Examples:
        >>> import noisedesign as nd
        >>> import torch
        >>> from noisedesign.adapters.pytorch import Gradients
        >>> from noisedesign.noise import noise
        >>> target = nd.PrivacyTarget(epsilon=1.0, clip=1.0)
        >>> scheme = nd.participation.single(2)
        >>> problem = nd.TimeProblem.prefix(participation=scheme, privacy=target)
        >>> source = noise(nd.solve(problem).design, node=0, record=False)
        >>> model = torch.nn.Linear(3, 1)
        >>> gradients = Gradients(model, source, clip=1.0)
        >>> for p in model.parameters():
        ...     p.grad = torch.zeros_like(p)  # the sum of clipped gradients
        >>> gradients.add_noise_(records=["ann", "bob"])
        >>> gradients.step, bool((model.weight.grad != 0).all())
        (1, True)
    """

    def __init__(self, model: torch.nn.Module, noise: NodeNoise, *, clip: float) -> None:
        super().__init__(noise, clip=clip, divided=True)
        expected = "a module: the model itself, or torch.nn.ParameterList(tensors)"
        _checks.instance(model, torch.nn.Module, field="model", expected=expected)
        _check_whole(model)
        self.model = model
        if not self.parameters:
            raise InputError("model", expected="parameters that need a gradient", got="none")
        self._buffers = {name: kept.clone() for name, kept in self._kept().items()}
        _RUNS.add(self)

    @property
    def parameters(self) -> list[torch.nn.Parameter]:
        """Parameters of the model that need a gradient now."""
        return [p for p in self.model.parameters() if p.requires_grad]

    def add_noise_(self, *, records: Iterable[Hashable]) -> None:
        """Noise of the next step added in place to ``p.grad``, the sum of clipped gradients; on an
        error none is changed.

        Args:
            records: those whose gradients are in the sum, by number or word.

        Raises:
            InputError: as :func:`add_to`; a parameter without a gradient; a buffer that changed;
                another sum, other records or another secret on another rank.
        """
        self._check_buffers()
        gradients: list[torch.Tensor] = []
        for at, p in enumerate(self.parameters):
            if p.grad is None:
                expected = "the sum of clipped gradients"
                remedy = "Freeze parameters that are not used: requires_grad_(False)."
                raise InputError(
                    f"parameters[{at}].grad", expected=expected, got="none", remedy=remedy
                )
            gradients.append(p.grad)
        add_to(gradients, self, records=records)
        for gradient in gradients:
            setattr(gradient, _NOISY, True)

    def add_(self, arrays: Sequence[np.ndarray], *, records: Iterable[Hashable]) -> None:
        """Add as :meth:`Run.add_`, where all ranks add it to the same.

        Args:
            arrays: likewise.
            records: likewise, of all ranks.

        Raises:
            InputError: likewise; ranks that differ.
        """
        expected = "the records of the batch, a list"
        named = _checks.listed(records, field="records", expected=expected)
        for part in self.model.modules():
            if isinstance(part, DistributedDataParallel):
                self._check_ranks(arrays, named, part.process_group)
        super().add_(arrays, records=named)

    def _kept(self) -> dict[str, torch.Tensor]:
        """Buffers that are in checkpoints of the model."""
        kept = self.model.state_dict().keys()
        return {name: buffer for name, buffer in self.model.named_buffers() if name in kept}

    def _check_buffers(self) -> None:
        for name, buffer in self._kept().items():
            before = self._buffers.get(name)
            if before is None or not torch.equal(before.to(buffer), buffer):
                expected = "a buffer that stays as it was: noise is in gradients alone"
                got = "another value" if before is not None else "a new buffer"
                remedy = (
                    "Averages over batches are of the data: use GroupNorm in place of "
                    "BatchNorm, or its eval() while you train."
                )
                raise InputError(f"model.{name}", expected=expected, got=got, remedy=remedy)

    def _check_ranks(self, arrays: Sequence[np.ndarray], records: list[Any], group: Any) -> None:
        """Check that all ranks do the same: the difference of two sums has no noise."""
        sums = hashlib.blake2b()
        for array in arrays:
            sums.update(array.data)
        said = {
            "secret": (self.noise.plan.digest, self.noise.plan.node, self.noise.fingerprints),
            "step": self.step,
            "records": sorted(
                str(getattr(record, "item", lambda r=record: r)()) for record in records
            ),
            "sums": sums.digest(),
        }
        found: list[Any] = [None] * distributed.get_world_size(group)
        distributed.all_gather_object(found, said, group=group)
        for rank, other in enumerate(found):
            for key, (expected, remedy) in _ON_ALL_RANKS.items():
                if other[key] != said[key]:
                    got = f"another on rank {rank}"
                    raise InputError(key, expected=expected, got=got, remedy=remedy)

    def _check_move(self, parameters: Mapping[int, torch.Tensor], closure: Any) -> None:
        """Check that an optimizer moves parameters of the model by what has noise."""
        names = {id(p): name for name, p in self.model.named_parameters()}
        if names.keys().isdisjoint(parameters):
            return
        if closure is not None:
            expected = "none: gradients that it makes would have no noise"
            raise InputError("closure", expected=expected, got="one")
        for at, p in parameters.items():
            if not hasattr(p.grad, _NOISY):
                whose = names.get(at, "of a parameter outside of the model")
                expected = "gradients with the noise of a step, for one move each"
                got = f"one without noise, {whose}"
                remedy = (
                    "Make Gradients of all that is trained, and call add_noise_ before "
                    "every optimizer.step(). What is done to a gradient after it is done in place."
                )
                raise InputError("optimizer", expected=expected, got=got, remedy=remedy)


_ON_ALL_RANKS = {
    "secret": (
        "the same plan and secret on all ranks",
        "Save one secret, and load it on every rank; of all but rank 0 with record=False.",
    ),
    "step": ("the same step on all ranks", "Load the same checkpoint on every rank."),
    "records": (
        "the records of the whole batch, on every rank",
        "Name those of all ranks: attendance is that of the batch.",
    ),
    "sums": (
        "the same sums on all ranks",
        "Add up the clipped gradients of all ranks first: torch.distributed.all_reduce(p.grad).",
    ),
}
"""Facts that ranks of one model share, each with what is expected and how to come by it."""

_RUNS: weakref.WeakSet[Gradients] = weakref.WeakSet()


def _before_step(optimizer: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Check every optimizer of PyTorch before it moves anything."""
    listed = [p for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
    moved = {id(p): p for p in listed}
    for run in tuple(_RUNS):
        run._check_move(moved, args[1] if len(args) > 1 else kwargs.get("closure"))
    for p in listed:
        vars(p.grad).pop(_NOISY, None)


register_optimizer_step_pre_hook(_before_step)


def _check_whole(model: torch.nn.Module) -> None:
    """Check that no parameter is in shards, as FSDP has them."""
    sharded = [name for name, p in model.named_parameters() if hasattr(p, "device_mesh")]
    sharded += [name for name, part in model.named_modules() if hasattr(part, "sharding_strategy")]
    if sharded:
        expected = "parameters that are whole on every rank"
        got = f"shards, as of FSDP: {sharded[0] or type(model).__name__}"
        remedy = (
            "Train replicas (DistributedDataParallel): clipping and noise are of the whole "
            "gradient."
        )
        raise InputError("model", expected=expected, got=got, remedy=remedy)


def add_to(tensors: Sequence[torch.Tensor], run: Run, *, records: Iterable[Hashable]) -> None:
    """Noise of the next step of ``run`` added in place to tensors on any device, where they are.

    Args:
        tensors: the sum of clipped gradients, float32 or float64, which are changed.
        run: of the node.
        records: those whose gradients are in the sum, by number or word.

    Raises:
        InputError: as :meth:`Run.add_`; tensors that are expanded, not dense, or of another dtype.

    Examples:
        >>> import noisedesign as nd
        >>> import torch
        >>> from noisedesign.adapters.pytorch import add_to
        >>> from noisedesign.adapters.run import Run
        >>> from noisedesign.noise import noise
        >>> target = nd.PrivacyTarget(epsilon=1.0, clip=1.0)
        >>> scheme = nd.participation.single(2)
        >>> problem = nd.TimeProblem.prefix(participation=scheme, privacy=target)
        >>> run = Run(noise(nd.solve(problem).design, node=0, record=False), clip=1.0)
        >>> total = torch.zeros(3)
        >>> add_to([total], run, records=["ann", "bob"])
        >>> run.step, bool((total != 0).all())
        (1, True)
    """
    if _on_devices(tensors):
        for at, tensor in enumerate(tensors):
            _check_dense(tensor, at)
        with run.one_step([list(tensor.shape) for tensor in tensors]) as step:
            device.add_(run.noise, tensors, step, records=records)
        return
    hosts = [_host(tensor, at) for at, tensor in enumerate(tensors)]
    run.add_([host.numpy() for host in hosts], records=records)
    for tensor, host in zip(tensors, hosts, strict=True):
        if host.data_ptr() != tensor.data_ptr():
            tensor.detach().copy_(host)


def _on_devices(tensors: Sequence[torch.Tensor]) -> bool:
    """Whether a tensor is not the processor's; ranks compare sums on the processor."""
    several = distributed.is_available() and distributed.is_initialized()
    return not several and any(tensor.device.type != "cpu" for tensor in tensors)


def _host(tensor: Any, at: int) -> torch.Tensor:
    _check_dense(tensor, at)
    found: torch.Tensor = tensor.detach().cpu().contiguous()
    return found


def _check_dense(tensor: Any, at: int) -> None:
    """Check that every number of a tensor is one of its own that noise can be added to."""
    field = f"parameters[{at}]"
    if tensor.layout != torch.strided:
        raise InputError(field, expected="a dense tensor", got=str(tensor.layout))
    if tensor.dtype not in (torch.float32, torch.float64):
        got = str(tensor.dtype).removeprefix("torch.")
        remedy = "Sum gradients in float32 or float64: in less, noise is rounded away."
        raise InputError(field, expected="float32 or float64", got=got, remedy=remedy)
    if any(
        stride == 0 and size > 1 for stride, size in zip(tensor.stride(), tensor.shape, strict=True)
    ):
        expected = "a number of its own for every entry"
        got = "an expanded tensor, whose entries share theirs"
        remedy = "Make it one of its own: p.grad = p.grad.clone()."
        raise InputError(field, expected=expected, got=got, remedy=remedy)
