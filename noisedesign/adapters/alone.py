"""The sum of clipped gradients of a torch model, each of a record that is alone in the model.

Whatever a loss averages over, and whatever a model computes over its batch, no record's gradient
depends on another record, as clipping needs it to."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch.func import functional_call, grad_and_value, vmap

from noisedesign.base import checks as _checks
from noisedesign.base.checks import InputError

BELOW = 1 - 2.0**-20
"""Norms are clipped to this part of the clip: products in float32 are rounded, by 2^-24 each."""

Batch = Mapping[str, Any]


class Alone(torch.nn.Module):
    """Adds sums of clipped gradients to ``p.grad`` of all parameters that need one.

    Records are computed side by side by ``torch.func.vmap`` where the model allows it, and one
    after another where it does not, which is said once in a warning.

    Args:
        model: all that is trained.
        loss: of the model and a batch of one record, one number.
        clip: the norm of every record's gradient, over all parameters, not squared.
        at_once: how many records side by side, which memory has to hold the gradients of; 1: one
            after another; None: all of a batch.

    Raises:
        InputError: no module, no positive clip or number of records.

    Examples:
        >>> import torch
        >>> from noisedesign.adapters.alone import Alone
        >>> model = torch.nn.Linear(2, 1, bias=False)
        >>> alone = Alone(model, lambda model, batch: model(batch["x"]).sum(), clip=1.0)
        >>> losses = alone.add_({"x": torch.tensor([[3.0, 4.0], [0.6, 0.0]])})
        >>> [round(number, 5) for number in model.weight.grad[0].tolist()]  # (3, 4) / 5 + (0.6, 0)
        [1.2, 0.8]
    """

    def __init__(
        self,
        model: torch.nn.Module,
        loss: Callable[[Any, Any], torch.Tensor],
        *,
        clip: float,
        at_once: int | None = None,
    ) -> None:
        super().__init__()
        _checks.instance(model, torch.nn.Module, field="model", expected="a module")
        self.model, self._loss = model, loss
        self.clip = _checks.real(clip, field="clip", low=0)
        if at_once is not None:
            at_once = _checks.positive_int(at_once, field="at_once")
        self._at_once = at_once

    def forward(self, batch: Batch) -> torch.Tensor:
        """The loss of a batch of one record.

        Args:
            batch: tensors of one row each.

        Returns:
            One number.
        """
        return self._loss(self.model, batch)

    def add_(
        self, batch: Batch, *, scale: Mapping[str, torch.Tensor] | None = None
    ) -> torch.Tensor:
        """The clipped gradients of a batch, added to ``p.grad``.

        Args:
            batch: tensors with a row a record, by name; what is no tensor is every record's.
            scale: what every record's gradient is multiplied by before it is clipped, by name of
                a parameter of the model, and made of nothing that no noise hides; None: 1.

        Returns:
            The loss of every record, which no noise hides.

        Raises:
            InputError: tensors of another number of rows; a loss that is not one number; a scale
                of other parameters or shapes.
        """
        moved = {
            name.removeprefix("model."): p for name, p in self.named_parameters() if p.requires_grad
        }
        if scale is not None and {n: s.shape for n, s in scale.items()} != {
            name: p.shape for name, p in moved.items()
        }:
            expected = "a tensor for every parameter that needs a gradient, of its shape"
            raise InputError("scale", expected=expected, got=f"{len(scale)} that differ")
        for p in moved.values():
            if p.grad is None:
                p.grad = torch.zeros_like(p)
        rows = {name: part for name, part in batch.items() if torch.is_tensor(part)}
        rest = {name: part for name, part in batch.items() if name not in rows}
        counts = {len(part) if part.dim() else -1 for part in rows.values()}
        if len(counts) != 1 or -1 in counts:
            expected = "tensors of one row a record each"
            got = f"rows {sorted(counts)}" if counts else "no tensor"
            raise InputError("batch", expected=expected, got=got)
        (count,) = counts
        if not count:
            return torch.zeros(0)
        if self._at_once != 1:
            state = torch.get_rng_state()
            try:
                return self._side_by_side(moved, rows, rest, scale)
            except InputError:
                raise
            except Exception as error:
                warnings.warn(
                    "Records are computed one after another, as the model cannot be under "
                    f"torch.func.vmap: {str(error).splitlines()[0][:200]}",
                    stacklevel=2,
                )
                self._at_once = 1
                torch.set_rng_state(state)  # so that a restart draws the same dropout
        losses = []
        for i in range(count):
            loss = self({**{name: part[i : i + 1] for name, part in rows.items()}, **rest})
            self._check(loss)
            parts = list(torch.autograd.grad(loss, list(moved.values()), allow_unused=True))
            if scale is not None:
                parts = [
                    None if g is None else g * scale[n] for n, g in zip(moved, parts, strict=True)
                ]
            (factor,) = clip_factors([g[None] for g in parts if g is not None], self.clip)
            for p, part in zip(moved.values(), parts, strict=True):
                if part is not None and p.grad is not None:
                    p.grad += (factor.to(part.dtype) * part).to(p.grad)
            losses.append(loss.detach())
        return torch.stack(losses)

    def _side_by_side(self, moved: Any, rows: Batch, rest: Batch, scale: Any) -> torch.Tensor:
        def one(parameters: Any, record: Batch) -> torch.Tensor:
            alone = {name: part[None] for name, part in record.items()}
            named = {f"model.{name}": p for name, p in parameters.items()}
            loss: torch.Tensor = functional_call(self, named, ({**alone, **rest},))
            self._check(loss)
            return loss

        named = {name: p.detach() for name, p in moved.items()}
        each, losses = vmap(
            grad_and_value(one), in_dims=(None, 0), randomness="different", chunk_size=self._at_once
        )(named, dict(rows))
        if scale is not None:
            each = {name: part * scale[name] for name, part in each.items()}
        factors = clip_factors(each.values(), self.clip)
        sums = {
            name: torch.tensordot(factors.to(part.dtype), part, dims=1).to(moved[name].grad)
            for name, part in each.items()
        }  # all before any is added: what fails, for want of memory, is computed again
        for name, p in moved.items():
            p.grad += sums[name]
        return losses.detach()

    def _check(self, loss: Any) -> None:
        if not torch.is_tensor(loss) or loss.dim():
            expected = "one number for a record"
            got = f"shape {tuple(loss.shape)}" if torch.is_tensor(loss) else _checks.describe(loss)
            raise InputError("loss", expected=expected, got=got)


def clip_factors(gradients: Iterable[torch.Tensor], clip: float) -> torch.Tensor:
    """Return what makes the norms of records over all parameters the clip at most.

    Args:
        gradients: of every parameter, with a row a record.
        clip: Euclidean, not squared.

    Returns:
        A number a record, float64, at most 1; none that is a number where a norm is none.

    Examples:
        >>> import torch
        >>> from noisedesign.adapters.alone import clip_factors
        >>> rows = [torch.tensor([[3.0], [0.3]]), torch.tensor([[4.0], [0.4]])]  # norms 5 and 1/2
        >>> [round(factor, 5) for factor in clip_factors(rows, 1.0).tolist()]
        [0.2, 1.0]
    """
    flat = [g.reshape(len(g), -1) for g in gradients]
    norms = [torch.linalg.vector_norm(g, dim=1, dtype=torch.float64) for g in flat]
    norm = torch.linalg.vector_norm(torch.stack(norms), dim=0).clamp(min=1e-30)
    found: torch.Tensor = (clip * BELOW / norm).clamp(max=1.0)
    return found
