"""PyTorch: designed noise in a loop of one's own, added to the gradients in ``p.grad``.

While the ``Gradients`` of a model are there, no optimizer of PyTorch moves one of its parameters by
a gradient that has no noise."""

from __future__ import annotations

import json
import math
import weakref
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.nn.parallel import DistributedDataParallel
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.utils.weak import WeakIdKeyDictionary

from noisedesign.adapters.alone import BELOW
from noisedesign.adapters.pytorch_ranks import (
    Ranks,
    Said,
    bits_of,
    check_alone,
    hash_of,
    hash_of_record,
    local,
    name_of,
    places_of,
    ranks_of,
)
from noisedesign.adapters.run import Run
from noisedesign.base import checks as _checks
from noisedesign.base.checks import InputError
from noisedesign.noise import device
from noisedesign.noise.hidden import WRAP, Hidden
from noisedesign.noise.source import NodeNoise, not_finite

_NOISY = "_noisedesign_noisy"  # attribute of a gradient with noise that no optimizer has taken


class Gradients(Run):
    """The gradients of one model, in one run of one node.

    All parameters that need a gradient get noise. Buffers, which leave with them, may not change:
    averages of BatchNorm are of the data. On several ranks, which ``DistributedDataParallel`` or
    ``fully_shard`` made of the model, all of them make ``Gradients`` and call what they call
    together: they compare the plan, the secret, the step, the records and the sums, go on from the
    state of rank 0, and add one noise, each a part of it.

    Args:
        model: all that is trained, as a module; ``torch.nn.ParameterList`` makes one of tensors.
        noise: of the node. Where its plan has a batch size, ``p.grad`` is the sum divided by it.
            Rank 0 records what is drawn, and all others have ``record=False``.
        clip: the norm of every record's gradient, over all parameters; must be the design's.
        group: of ranks that hold copies that the model knows nothing of, a process group of
            ``torch.distributed``; False where all ranks beside those that the model knows of are
            other nodes. Left out, there are none beside.

    Raises:
        InputError: as :class:`Run`; no parameters; shards that are not of rows; ranks that the
            model knows nothing of, and no group; ranks that differ; a record on another rank
            than 0.

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
        >>> for record, x in {"ann": torch.ones(3), "bob": torch.zeros(3)}.items():
        ...     gradients.backward_(model(x).square().sum(), record=record)
        >>> gradients.collect_()  # p.grad is the sum of clipped gradients
        >>> gradients.add_noise_(records=["ann", "bob"])
        >>> gradients.step, bool((model.weight.grad != 0).all())
        (1, True)
    """

    def __init__(
        self, model: torch.nn.Module, noise: NodeNoise, *, clip: float, group: Any = None
    ) -> None:
        expected = "a module: the model itself, or torch.nn.ParameterList(tensors)"
        _checks.instance(model, torch.nn.Module, field="model", expected=expected)
        self.model, self._averaged, self._checkpoint = model, False, b""
        self._sums: list[torch.Tensor] | None = None
        self._taken: int | None = None
        self._ranks = ranks_of(model, group)
        if self._ranks is None:
            self._begin(noise, clip)
        else:
            self._ranks.together(lambda: self._begin(noise, clip))
            self._go_on_together()
        self.alone = group is False
        _RUNS.add(self)

    def _begin(self, noise: NodeNoise, clip: float) -> Said:
        """Begin the run on this rank; what all ranks have to say the same of."""
        super().__init__(noise, clip=clip, divided=True)
        if not self.parameters:
            raise InputError("model", expected="parameters that need a gradient", got="none")
        if self._ranks is not None and self._ranks.index > 0 and noise.recorded:
            expected = "record=False on all ranks but rank 0, which records for all"
            raise InputError("record", expected=expected, got="one")
        self._buffers = {name: kept.clone() for name, kept in self._kept().items()}
        run = weakref.ref(self)

        def forward(part: Any, *_: Any) -> None:
            """Notice gradients that DistributedDataParallel is going to average."""
            if (this := run()) and torch.is_grad_enabled() and part.require_backward_grad_sync:
                this._averaged = True

        for part in self.model.modules():
            if isinstance(part, DistributedDataParallel):
                part.register_forward_hook(forward)
        shapes = [(list(p.shape), str(p.dtype)) for p in self.parameters]
        facts = {"plan": (noise.plan.digest, noise.plan.node), "secret": noise.fingerprints}
        return Said({**facts, "model": shapes})

    def _go_on_together(self) -> None:
        """Go on from the state of rank 0, which knows what was recorded."""
        if self._ranks is not None:
            state = self._ranks.of_first(json.dumps(super().state_dict()).encode())
            if self._ranks.index > 0:
                super().load_state_dict(json.loads(state))

    @property
    def parameters(self) -> list[torch.nn.Parameter]:
        """Parameters of the model that need a gradient now."""
        return [p for p in self.model.parameters() if p.requires_grad]

    def backward_(self, loss: torch.Tensor, *, record: Hashable) -> None:
        """Compute the gradient of the loss of one record, clip it, and add it to the sum that
        :meth:`collect_` puts into ``p.grad``, which is cleared.

        Copies of a model take records of their own. Ranks of one mesh of ``fully_shard`` take the
        same record, one after another: FSDP averages what they compute before anybody can clip it.

        Args:
            loss: of one record and no other, not averaged. With ``DistributedDataParallel`` of
                ``model.module(x)``, or within ``model.no_sync()``.
            record: its number or word.

        Raises:
            InputError: gradients that DistributedDataParallel averages; another record on another
                rank of a shard; a gradient that is not finite, or none.
        """
        if self._averaged:
            self._averaged = False
            expected = "gradients of this rank alone, from model.module(x) or in model.no_sync()"
            got = "some that DistributedDataParallel averages before anybody has clipped them"
            raise InputError("loss", expected=expected, got=got)
        parameters, ranks = self.parameters, self._ranks
        for p in parameters:
            p.grad = None
        loss.backward()
        found = [None if p.grad is None else local(p.grad) for p in parameters]
        square = sum(float(g.double().square().sum()) for g in found if g is not None)
        if all(p.grad is None for p in parameters):
            raise InputError("loss", expected="a loss of the model", got="one without a gradient")
        norm = math.sqrt(square)
        if ranks is not None and ranks.joint:
            norm = ranks.norm(square, hash_of(name_of(record)))
        if not math.isfinite(norm):
            raise not_finite("loss")
        if self._sums is None:
            self._sums, self._taken = [torch.zeros_like(local(p)) for p in parameters], 0
        factor = min(1.0, self.clip * BELOW / norm) if norm else 1.0
        for total, gradient in zip(self._sums, found, strict=True):
            if gradient is not None:
                total.add_(gradient.to(total.device), alpha=factor)
        for p in parameters:
            p.grad = None
        self._taken = ((self._taken or 0) + hash_of_record(record)) % WRAP

    def collect_(self) -> None:
        """Put the sum of what :meth:`backward_` clipped, on all ranks, into ``p.grad``; where the
        plan has a batch size it is divided by it.

        All ranks call it, those that had no record of the batch too. :meth:`add_noise_` then has
        to be told of the same records."""
        parameters = self.parameters
        sums = self._sums or [torch.zeros_like(local(p)) for p in parameters]
        for p, total in zip(parameters, sums, strict=True):
            if self._ranks is not None:
                total = self._ranks.summed(total)
            p.grad = torch.zeros_like(p)
            local(p.grad).copy_(total / (self.noise.claim.batch_size or 1))
        self._sums, self._taken = None, 0 if self._sums is None else self._taken

    def add_noise_(self, *, records: Iterable[Hashable]) -> None:
        """Noise of the next step added in place to ``p.grad``, the sum of clipped gradients; on an
        error none is changed.

        Args:
            records: those whose gradients are in the sum, by number or word, on all ranks.

        Raises:
            InputError: as :func:`add_to`; a parameter without a gradient; a buffer that changed;
                other records than those that :meth:`backward_` took; another sum, other records or
                another step on another rank.
        """
        expected = "the records of the batch, a list"
        named = _checks.listed(records, field="records", expected=expected)
        if self._ranks is None:
            gradients = self._gradients()
            self._check_taken(self._taken, named)
            add_to(gradients, self, records=named)
        else:
            gradients = self._add_on_ranks(self._ranks, named)
        self._taken = None
        for p in self.parameters:
            has_noise(p)

    def _gradients(self) -> list[torch.Tensor]:
        self._check_buffers()
        found: list[torch.Tensor] = []
        for at, p in enumerate(self.parameters):
            if p.grad is None:
                expected = "the sum of clipped gradients"
                remedy = (
                    "Freeze parameters that are not used: requires_grad_(False). After "
                    "backward_ call collect_()."
                )
                raise InputError(
                    f"parameters[{at}].grad", expected=expected, got="none", remedy=remedy
                )
            found.append(p.grad)
        return found

    def _add_on_ranks(self, ranks: Ranks, records: list[Any]) -> list[torch.Tensor]:
        """Add the noise of the next step on all ranks, each its part; or on none."""
        gradients: list[torch.Tensor] = []
        flats: list[torch.Tensor] = []

        def say() -> Said:
            gradients[:], _ = self._gradients(), self.attendance
            if places_of(gradients) != ranks.places:
                expected, got = "parameters and shards as they were", "others"
                raise InputError("parameters", expected=expected, got=got)
            for at, gradient in enumerate(gradients):
                _check_dense(local(gradient), at)
            flats[:] = [local(gradient).contiguous().view(-1) for gradient in gradients]
            facts = {
                "checkpoint": self._checkpoint,
                "step": self.step,
                "records": sorted(name_of(record) for record in records),
                "taken": self._taken is None,
            }
            own, bits = ranks.hidden(flats, self.noise), bits_of(flats)
            return Said(facts, own, bits, self._taken or 0)

        def record() -> Said:
            if ranks.index == 0:
                self.noise.hide(step, whole, records=records)
            return Said()

        heard = ranks.together(say)
        whole = sum((said.hidden for said in heard), Hidden())
        self._check_taken(None if self._taken is None else ranks.taken(heard), records)
        with self.one_step([list(g.shape) for g in gradients]) as step:
            ranks.together(record)
            if ranks.index > 0:  # once it is recorded: in memory
                self.noise.hide(step, whole, records=records)
            ranks.add_(flats, self.noise, step)
            for gradient, flat in zip(gradients, flats, strict=True):
                if flat.data_ptr() != local(gradient).data_ptr():
                    local(gradient).copy_(flat.view_as(local(gradient)))
        return gradients

    def _check_taken(self, taken: int | None, records: list[Any]) -> None:
        """Check that ``records`` are those whose gradients were clipped here, if any were."""
        if taken is not None and (taken - sum(map(hash_of_record, records))) % WRAP:
            expected = "those whose gradients backward_ took on all ranks, each once"
            raise InputError("records", expected=expected, got=f"{len(records)} that differ")

    def add_(self, arrays: Sequence[np.ndarray], *, records: Iterable[Hashable]) -> None:
        """Add as :meth:`Run.add_`, where one process holds the model.

        Args:
            arrays: likewise.
            records: likewise.

        Raises:
            InputError: likewise; several ranks.
        """
        if self._ranks is not None:
            expected, got = "add_noise_, which all ranks call", "arrays of one rank"
            raise InputError("parameters", expected=expected, got=got)
        super().add_(arrays, records=records)

    def skip_used(self) -> range:
        """Go on as :meth:`Run.skip_used`; all ranks do as the record of rank 0 says.

        Returns:
            The steps that are left out.
        """
        first = self.step
        if self._ranks is None or self._ranks.index == 0:
            super().skip_used()
        self._go_on_together()
        return range(first, self.step)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on after :meth:`state_dict`, which is the same on all ranks; each of them loads it.

        Args:
            state: what it gave.

        Raises:
            InputError: as :meth:`Run.load_state_dict`.
        """
        super().load_state_dict(state)
        self._checkpoint = hash_of(json.dumps(state, sort_keys=True))

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


_RUNS: weakref.WeakSet[Gradients] = weakref.WeakSet()


_WATCHED = WeakIdKeyDictionary()  # parameters that may have a gradient with noise


def has_noise(parameter: torch.Tensor) -> None:
    """Say that its gradient has noise, until a move or a backward pass."""
    if parameter not in _WATCHED:
        _WATCHED[parameter] = parameter.register_post_accumulate_grad_hook(_more)
    setattr(parameter.grad, _NOISY, True)


def _more(parameter: torch.Tensor) -> None:
    """Notice a backward pass, which adds what has no noise to a gradient that has."""
    vars(parameter.grad).pop(_NOISY, None)


def _before_step(optimizer: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Check every optimizer of PyTorch before it moves anything."""
    listed = [p for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
    moved = {id(p): p for p in listed}
    for run in tuple(_RUNS):
        run._check_move(moved, args[1] if len(args) > 1 else kwargs.get("closure"))
    for p in listed:
        vars(p.grad).pop(_NOISY, None)


register_optimizer_step_pre_hook(_before_step)


def add_to(tensors: Sequence[torch.Tensor], run: Run, *, records: Iterable[Hashable]) -> None:
    """Noise of the next step of ``run`` added in place to tensors on any device, where they are.

    Args:
        tensors: the sum of clipped gradients, float32 or float64, which are changed.
        run: of the node.
        records: those whose gradients are in the sum, by number or word.

    Raises:
        InputError: as :meth:`Run.add_`; tensors that are expanded, not dense or of another dtype; a
            rank beside others of which nobody said, by ``run.alone = True``, that they are other
            nodes.

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
    if not run.alone:
        check_alone()
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
    """Whether one is not the processor's, so that noise is drawn where it is."""
    return any(tensor.device.type != "cpu" for tensor in tensors)


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
