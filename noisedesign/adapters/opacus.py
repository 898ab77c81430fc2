"""Opacus: its engine with designed noise and batches, and the design's own epsilon.

Noise is added to the sums of clipped gradients; Opacus divides by the expected batch size after."""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Iterator
from typing import Any

import torch
from opacus import PrivacyEngine
from opacus.accountants import IAccountant
from opacus.accountants.analysis.gdp import eps_from_mu
from opacus.grad_sample import GradSampleModuleFastGradientClipping
from opacus.optimizers import DPOptimizer, DPOptimizerFastGradientClipping
from opacus.optimizers.optimizer import _check_processed_flag, _mark_as_processed
from opacus.utils.fast_gradient_clipping_utils import (
    DPLossFastGradientClipping,
    DPTensorFastGradientClipping,
)
from torch.utils._pytree import tree_map
from torch.utils.data import DataLoader, Sampler

from noisedesign.adapters.pytorch import _RUNS, Gradients, add_to, has_noise
from noisedesign.adapters.run import Run
from noisedesign.base import checks as _checks
from noisedesign.base.checks import InputError
from noisedesign.noise.batches import Batches, RandomBatches
from noisedesign.noise.plan import agrees
from noisedesign.noise.source import NodeNoise


class DesignedOptimizer(DPOptimizer):
    """Opacus' optimizer, but for its noise. :meth:`Engine.make_private` makes one.

    Args:
        optimizer: wrapped.
        run: of the node whose model this is.
        batches: which step's batch the loader gave out last.
        expected_batch_size: as of ``DPOptimizer``.
        loss_reduction: likewise.
    """

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        *,
        run: Run,
        batches: RoundBatches,
        expected_batch_size: int | None,
        loss_reduction: str = "mean",
    ) -> None:
        super().__init__(
            optimizer,
            noise_multiplier=run.noise.claim.noise_stddev / run.clip,
            max_grad_norm=run.clip,
            expected_batch_size=expected_batch_size,
            loss_reduction=loss_reduction,
        )
        self._run, self._batches, self._samples = run, batches, 0

    def clip_and_accumulate(self) -> None:
        """Clip and accumulate as ``DPOptimizer`` does, and count the records."""
        self._samples += len(self._get_flat_grad_sample(self.params[0]))
        super().clip_and_accumulate()

    def zero_grad(self, set_to_none: bool = False) -> None:
        """Reset gradients as ``DPOptimizer`` does.

        Args:
            set_to_none: likewise.
        """
        super().zero_grad(set_to_none)
        if not self._is_last_step_skipped:
            self._samples = 0

    def attach_step_hook(self, fn: Callable[[DPOptimizer], None]) -> None:
        """Attach a hook as to ``DPOptimizer``, but none of an accountant of independent noise.

        Args:
            fn: likewise.

        Raises:
            InputError: the hook of an accountant of Opacus.
        """
        owner = inspect.getclosurevars(fn).nonlocals.get("self") if inspect.isfunction(fn) else None
        if isinstance(owner, IAccountant) and not isinstance(owner, Accountant):
            raise _not_theirs("step_hook", type(owner).__name__)
        super().attach_step_hook(fn)

    def add_noise(self) -> None:
        """Noise of the next step in ``p.grad``, to the sum over the batch of that step.

        Raises:
            InputError: as :meth:`Run.add_`; gradients of another batch; a clip or a noise
                multiplier that was changed, as schedulers of Opacus do.
        """
        agrees("max_grad_norm", self.max_grad_norm, self._run.clip)
        stated = self._run.noise.claim.noise_stddev / self._run.clip
        agrees("noise_multiplier", self.noise_multiplier, stated)
        records = self._batches._of_next_step(self._samples)
        for p in self.params:
            _check_processed_flag(p.summed_grad)
        noisy = [p.summed_grad.clone() for p in self.params]
        add_to(noisy, self._run, records=records)
        for p, grad in zip(self.params, noisy, strict=True):
            p.grad = grad.view_as(p)
            has_noise(p)
            _mark_as_processed(p.summed_grad)


class GhostOptimizer(DesignedOptimizer, DPOptimizerFastGradientClipping):
    """The same for ghost clipping, where the loss that :meth:`Engine.make_private` returns leaves
    the sum of clipped gradients in ``p.grad``, and nothing else may."""

    _left: tuple[tuple[torch.Tensor, int], ...] = ()  # gradients of the last pass and versions

    def clip_and_accumulate(self) -> None:
        """Nothing: gradients are clipped by the loss."""

    def _clipped(self, samples: int) -> None:
        """Note what ``p.grad`` of all parameters is, the sum over so many records."""
        self._samples += samples
        self._left = tuple((p.grad, p.grad._version) for p in self.params)

    def accumulate(self) -> None:
        """Accumulate as Opacus does, but only what its loss has clipped.

        Raises:
            InputError: gradients of another loss, or changed since.
        """
        now = tuple((p.grad, -1 if p.grad is None else p.grad._version) for p in self.params)
        if len(now) != len(self._left) or any(
            a is not c or b != d for (a, b), (c, d) in zip(now, self._left, strict=True)
        ):
            expected = "what backward() of the criterion that make_private returned left in it"
            got = (
                "gradients that are not clipped, or changed since"
                if any(grad is not None for grad, _ in now)
                else "none"
            )
            remedy = (
                "Take model, optimizer, criterion and loader from make_private, and call "
                "criterion(...).backward() once before every step."
            )
            raise InputError("grad", expected=expected, got=got, remedy=remedy)
        self._left = ()
        super().accumulate()


class GhostLoss(DPLossFastGradientClipping):
    """Opacus' loss of ghost clipping, which holds every record to the clip of the design."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return _RecordLosses._of(super().__call__(*args, **kwargs))


class _RecordLosses(DPTensorFastGradientClipping):
    """The loss of every record, one number each; arithmetic keeps it that."""

    @classmethod
    def _of(cls, losses: DPTensorFastGradientClipping) -> _RecordLosses:
        return cls(losses.module, losses.optimizer, losses.loss_per_sample, losses.loss_reduction)

    def backward(self) -> None:
        """The two passes of ghost clipping: norms, then the sum of clipped gradients."""
        losses, hooks, optimizer = self.loss_per_sample, self.module, self.optimizer
        if losses.dim() == 2 and losses.shape[1] == 1:
            losses = losses[:, 0]
        agrees("max_grad_norm", hooks.max_grad_norm, optimizer._run.clip)
        known = {id(p) for p in hooks.trainable_parameters}
        if not {id(p) for p in optimizer.params} <= known:
            expected, got = "parameters that are trained from the start", "one unfrozen since"
            raise InputError("module", expected=expected, got=got)
        for p in hooks.trainable_parameters:
            p._norm_sample = None  # no norm of an earlier batch
        (losses.mean() if self.loss_reduction == "mean" else losses.sum()).backward(
            retain_graph=True
        )
        optimizer.zero_grad()
        if any(p._norm_sample is None for p in hooks.trainable_parameters):
            expected, got = "parameters that all take part in the loss", "one that does not"
            remedy = "Freeze it before make_private: requires_grad_(False)."
            raise InputError("module", expected=expected, got=got, remedy=remedy)
        shapes = {tuple(p._norm_sample.shape) for p in hooks.trainable_parameters}
        if shapes != {tuple(losses.shape)} or losses.dim() != 1:
            expected = "one loss a record, and layers whose first axis is that of records"
            got = f"losses of shape {tuple(losses.shape)}, norms of {sorted(shapes)}"
            remedy = (
                "Give outputs and targets one row a record, a criterion with a reduction, and "
                "shape= where it has one loss a token."
            )
            raise InputError("criterion", expected=expected, got=got, remedy=remedy)
        hooks.disable_hooks()
        try:
            (hooks.get_clipping_coef().to(losses.device) * losses).sum().backward()
        finally:
            hooks.enable_hooks()
        optimizer._clipped(len(losses))


def _kept(operation: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    def kept(self: _RecordLosses, other: Any) -> _RecordLosses:
        if torch.is_tensor(other) and other.requires_grad:
            expected = "numbers, and losses of the criterion that make_private returned"
            got = "a tensor with a gradient, which no norm of a record has in it"
            remedy = "Take weight_decay of the optimizer in place of a penalty."
            raise InputError("criterion", expected=expected, got=got, remedy=remedy)
        other = getattr(other, "loss_per_sample", other)
        losses = operation(self.loss_per_sample, other)
        return _RecordLosses(self.module, self.optimizer, losses, self.loss_reduction)

    return kept


for _name in ("truediv", "mul", "add", "sub"):
    setattr(_RecordLosses, f"__{_name}__", _kept(getattr(operator, _name)))
for _name in ("mul", "add"):
    setattr(_RecordLosses, f"__r{_name}__", _kept(getattr(operator, _name)))


class RoundBatches(Sampler[list[int]]):
    """Indices of one round of batches, from the next step of the run on.

    Args:
        batches: of all steps.
        run: of the node.
    """

    def __init__(self, batches: Batches | RandomBatches, run: Run) -> None:
        self._batches, self._run = batches, run
        self.given: int | None = None  # the step whose batch was given out last

    def __len__(self) -> int:
        return self._batches.round

    def _steps(self) -> range:
        """The steps that are left of the round that the next step is in."""
        first, length = self._run.step, self._batches.round
        self._batches[first]
        return range(first, min(self._run.horizon, (first // length + 1) * length))

    def __iter__(self) -> Iterator[list[int]]:
        for t in self._steps():
            self.given = t
            yield self._batches[t].tolist()

    def _of_next_step(self, samples: int) -> list[int]:
        """Return the records of the next step, once as many gradients of them are there."""
        t = self._run.step
        if self.given != t:
            got = "none of them" if self.given is None else f"that of step {self.given}"
            expected = f"the batch of step {t} from the loader of this engine"
            remedy = (
                "Take one optimizer step a batch, and every batch; with a "
                "BatchMemoryManager use num_workers=0."
            )
            raise InputError("data_loader", expected=expected, got=got, remedy=remedy)
        records: list[int] = self._batches[t].tolist()
        if samples != len(records):
            expected = f"a gradient of each of the {len(records)} records of step {t}"
            raise InputError("grad_sample", expected=expected, got=f"{samples}")
        return records


class _Collate:
    """Records made into a batch, none of them into an empty one of the same shapes."""

    def __init__(self, collate: Any, dataset: Any, *, batch_first: bool) -> None:
        self._collate, self._dataset, self._axis = collate, dataset, 0 if batch_first else 1

    def __call__(self, records: list[Any]) -> Any:
        if records:
            return self._collate(records)
        return tree_map(self._emptied, self._collate([self._dataset[0]]))

    def _emptied(self, part: Any) -> Any:
        return part.narrow(self._axis, 0, 0) if torch.is_tensor(part) else part


class RoundLoader(DataLoader[Any]):
    """A loader of one round of batches, which says which one the training loop has.

    Args:
        loader: whose data and workers it has.
        batches: the indices it gives out.
        batch_first: as of Opacus.
    """

    def __init__(
        self, loader: DataLoader[Any], batches: RoundBatches, *, batch_first: bool = True
    ) -> None:
        super().__init__(
            loader.dataset,
            batch_sampler=batches,
            num_workers=loader.num_workers,
            collate_fn=_Collate(loader.collate_fn, loader.dataset, batch_first=batch_first),
            pin_memory=loader.pin_memory,
            timeout=loader.timeout,
            worker_init_fn=loader.worker_init_fn,
            multiprocessing_context=loader.multiprocessing_context,
            generator=loader.generator,
            prefetch_factor=loader.prefetch_factor,
            persistent_workers=loader.persistent_workers,
        )
        self._rounds = batches

    def __iter__(self) -> Iterator[Any]:
        # Workers fetch ahead of the loop, so the step is said again as the batch leaves.
        for t, batch in zip(self._rounds._steps(), super().__iter__(), strict=True):
            self._rounds.given = t
            yield batch


class Accountant(IAccountant):
    """The design's own: one Gaussian mechanism for the whole run, whose steps are correlated.

    Args:
        run: of the node.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        self._run = run

    def step(self, **_: Any) -> None:
        """Nothing: all steps were accounted for when the noise was designed."""

    def get_epsilon(self, delta: float, *args: Any, **kwargs: Any) -> float:
        """Epsilon of the whole run, from its first step on.

        Args:
            delta: of the guarantee.
            *args: as of Opacus, not used.
            **kwargs: likewise.

        Returns:
            It, at that delta.
        """
        claim = self._run.noise.claim
        assert claim.mu is not None
        if delta == claim.delta and claim.epsilon is not None:
            return claim.epsilon
        # Where participation is random mu is that of any order of records: the larger number.
        return float(eps_from_mu(mu=claim.mu, delta=delta))

    def __len__(self) -> int:
        return self._run.step

    @classmethod
    def mechanism(cls) -> str:
        """Its name, as of Opacus.

        Returns:
            "noisedesign".
        """
        return "noisedesign"

    def state_dict(self, destination: Any = None) -> Any:
        """The state of Opacus' accountant, with where the run is.

        Args:
            destination: as of Opacus.

        Returns:
            JSON values, without the secret.
        """
        found = super().state_dict(destination)
        found["run"] = self._run.state_dict()
        return found

    def load_state_dict(self, state_dict: Any) -> None:
        """Go on after :meth:`state_dict`.

        Args:
            state_dict: what it gave.

        Raises:
            InputError: see :meth:`noisedesign.adapters.run.Run.load_state_dict`.
        """
        super().load_state_dict(state_dict)
        self._run.load_state_dict(state_dict.get("run", {}))


class _Moves:
    """The guard of one model: no optimizer of PyTorch moves it by a gradient without noise."""

    _check_move = Gradients._check_move

    def __init__(self, model: torch.nn.Module) -> None:
        self.model = model
        _RUNS.add(self)  # type: ignore[arg-type]


class Engine(PrivacyEngine):
    """Opacus' engine for one run of one node; checkpoints of Opacus keep where it is.

    Args:
        noise: of the node; its plan is for sums, so without a batch size.
        seed: of the order of records, as of :meth:`Run.batches`.
        accountant: not to be given: those of Opacus are for independent noise and Poisson
            sampling, and say nothing of this run.
        secure_mode: False; the generator of all noise is a cipher anyway.

    Raises:
        InputError: as :class:`Run`; a seed where participation is random; an accountant.

    Examples:
        >>> import noisedesign as nd
        >>> import torch
        >>> from torch.utils.data import DataLoader, TensorDataset
        >>> from noisedesign.adapters.opacus import Engine
        >>> from noisedesign.noise import noise
        >>> scheme = nd.participation.FixedEpoch.from_records(records=4, batch_size=2, epochs=1)
        >>> target = nd.PrivacyTarget(epsilon=1.0, delta=1e-6, clip=1.0)
        >>> problem = nd.TimeProblem.prefix(participation=scheme, privacy=target)
        >>> engine = Engine(noise(nd.solve(problem).design, node=0, record=False))
        >>> model = torch.nn.Linear(3, 1)
        >>> model, optimizer, loader = engine.make_private(
        ...     module=model,
        ...     optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        ...     data_loader=DataLoader(TensorDataset(torch.ones(4, 3)), batch_size=2),
        ... )
        >>> for (batch,) in loader:
        ...     optimizer.zero_grad()
        ...     model(batch).sum().backward()
        ...     _ = optimizer.step()
        >>> engine.run.step, engine.get_epsilon(delta=1e-6)
        (2, 1.0)
    """

    def __init__(
        self,
        noise: NodeNoise,
        *,
        seed: int | None = None,
        accountant: None = None,
        secure_mode: bool = False,
    ) -> None:
        if accountant is not None:
            raise _not_theirs("accountant", _checks.describe(accountant))
        if secure_mode:
            expected = "False: noise is of ChaCha20, keyed by the node's secret"
            remedy = "Against what the last bits of floats tell take noise in integers."
            raise InputError("secure_mode", expected=expected, got="True", remedy=remedy)
        self.run = Run(noise)
        self.accountant = Accountant(self.run)
        self.secure_mode, self.secure_rng, self.dataset = False, None, None
        self._seed, self._batch_first = seed, True
        self._batches: RoundBatches | None = None
        self._moves: _Moves | None = None

    def make_private(
        self,
        *,
        module: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        data_loader: DataLoader[Any],
        noise_multiplier: None = None,
        max_grad_norm: float | None = None,
        poisson_sampling: bool = False,
        **kwargs: Any,
    ) -> Any:
        """Wrap as Opacus does, but the design says noise, clip and who takes part when.

        Args:
            module: as of Opacus.
            optimizer: as of Opacus.
            data_loader: with a batch size as of :meth:`Run.batches`; its order is not used. One
                pass over the loader that comes back is one round.
            noise_multiplier: not to be given.
            max_grad_norm: the design's, or left out.
            poisson_sampling: False. Opacus' own default is True; left out, batches are those that
                the design is for.
            **kwargs: ``criterion``, ``batch_first``, ``loss_reduction``, ``wrap_model`` and
                ``grad_sample_mode`` (of "ghost" modes that one) as of Opacus.

        Returns:
            Model, optimizer and loader to train with; with "ghost" the criterion before the loader.

        Raises:
            InputError: an argument that contradicts the design, or a second call.
        """
        _without(noise_multiplier is not None, "noise_multiplier", noise_multiplier)
        _without(poisson_sampling, "poisson_sampling", True)
        _without(kwargs.get("noise_generator") is not None, "noise_generator", "one")
        _without(kwargs.get("clipping", "flat") != "flat", "clipping", kwargs.get("clipping"))
        mode = kwargs.get("grad_sample_mode", "hooks")
        _without("ghost_" in mode, "grad_sample_mode", mode)
        agrees("max_grad_norm", max_grad_norm, self.run.clip)
        if self._batches is not None:
            raise InputError("engine", expected="a new one for every model", got="a second call")
        if mode == "ghost":
            _check_tied(module)
        self._batch_first = bool(kwargs.get("batch_first", True))
        found = super().make_private(
            module=module,
            optimizer=optimizer,
            data_loader=data_loader,
            noise_multiplier=0.0,
            max_grad_norm=self.run.clip,
            poisson_sampling=False,
            **kwargs,
        )
        self._moves = _Moves(module)
        return found

    def make_private_with_epsilon(self, **kwargs: Any) -> Any:
        """Refused: the design has its epsilon.

        Args:
            **kwargs: as of Opacus.

        Returns:
            Nothing.

        Raises:
            InputError: always.
        """
        _without(True, "target_epsilon", kwargs.get("target_epsilon"))

    def _prepare_data_loader(
        self, data_loader: DataLoader[Any], *, distributed: bool, **_: Any
    ) -> DataLoader[Any]:
        _without(distributed, "module", "one of several workers")
        records, size = len(data_loader.dataset), data_loader.batch_size
        batches = self.run.batches(records, batch_size=size, seed=self._seed)
        self._batches = RoundBatches(batches, self.run)
        return RoundLoader(data_loader, self._batches, batch_first=self._batch_first)

    def _prepare_optimizer(
        self,
        *,
        optimizer: torch.optim.Optimizer,
        expected_batch_size: int,
        loss_reduction: str = "mean",
        grad_sample_mode: str = "hooks",
        **_: Any,
    ) -> DesignedOptimizer:
        assert self._batches is not None
        return (GhostOptimizer if grad_sample_mode == "ghost" else DesignedOptimizer)(
            optimizer.original_optimizer if isinstance(optimizer, DPOptimizer) else optimizer,
            run=self.run,
            batches=self._batches,
            expected_batch_size=expected_batch_size,
            loss_reduction=loss_reduction,
        )

    def _prepare_criterion(
        self, *, module: Any, optimizer: Any, criterion: Any, loss_reduction: str = "mean", **_: Any
    ) -> GhostLoss:
        return GhostLoss(module, optimizer, criterion, loss_reduction)


def _check_tied(module: torch.nn.Module) -> None:
    """Check that the norm of a parameter's gradient is that of one layer, as Opacus takes it.

    It refuses two uses of its own layers, but not one of them with another module's."""
    users: dict[torch.nn.Parameter, list[torch.nn.Module]] = {}
    for part in module.modules():
        for p in part.parameters(recurse=False):
            users.setdefault(p, []).append(part)
    for p, parts in users.items():
        samplers = GradSampleModuleFastGradientClipping.NORM_SAMPLERS
        if p.requires_grad and len(parts) > 1 and any(type(part) in samplers for part in parts):
            expected = "parameters of one layer each: ghost clipping takes norms layer by layer"
            got = f"one of {' and '.join(type(part).__name__ for part in parts)}"
            remedy = 'Take grad_sample_mode="hooks".'
            raise InputError("module", expected=expected, got=got, remedy=remedy)


def _not_theirs(field: str, got: str) -> InputError:
    expected = "none of Opacus: its accountants are for independent noise of Poisson batches"
    remedy = "Steps of a design are correlated: ask engine.get_epsilon(delta), which is of the run."
    return InputError(field, expected=expected, got=got, remedy=remedy)


def _without(wrong: bool, field: str, got: Any) -> None:
    if wrong:
        remedy = "Noise, clipping and batches are those of the design: change the design."
        raise InputError(field, expected="nothing", got=_checks.describe(got), remedy=remedy)
