"""Opake: a design as a strategy of its matrix-factorization noise, drawn with the node's secret.

Noise is added to the sums of clipped gradients; a mean is taken after."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

import torch
from opake.dpftrl.noise.types import MFNoiseState
from opake.pytree import tree_flatten, tree_unflatten
from opake.serialization import register_serializer

from noisedesign.adapters.pytorch import add_to
from noisedesign.adapters.run import Run
from noisedesign.base import checks as _checks
from noisedesign.base.checks import InputError
from noisedesign.noise.source import NodeNoise

_SAME = 1e-9  # relative difference of standard deviations that a product of floats explains


@dataclass(frozen=True)
class DesignedStrategy:
    """A strategy for ``opake.dpftrl.noise.mf_gaussian_noise``, in one run of one node.

    The generator of Opake has 64 bits of key and draws nothing here, whatever ``key=`` is: noise is
    the node's own, of a cipher with a key of 256 bits, recorded, and bit by bit that of
    ``noise(...)``.

    Args:
        noise: of the node; its plan is for sums, so without a batch size.

    Raises:
        InputError: as :class:`noisedesign.adapters.run.Run`.

    Examples:
        >>> import noisedesign as nd
        >>> import torch
        >>> from noisedesign.adapters.opake import DesignedStrategy
        >>> from noisedesign.noise import noise
        >>> from opake.dpftrl.noise import mf_gaussian_noise
        >>> from opake.random import key
        >>> from opake.types import clipped
        >>> target = nd.PrivacyTarget(epsilon=1.0, clip=1.0)
        >>> scheme = nd.participation.single(2)
        >>> problem = nd.TimeProblem.prefix(participation=scheme, privacy=target)
        >>> strategy = DesignedStrategy(noise(nd.solve(problem).design, node=0, record=False))
        >>> add_noise, state = mf_gaussian_noise(
        ...     {"w": torch.zeros(3)}, strategy, key=key(0), **strategy.schema()
        ... )
        >>> strategy.attend(["ann", "bob"])
        >>> noisy, state = add_noise(clipped({"w": torch.zeros(3)}, max_norm=1.0), state)
        >>> strategy.run.step, bool((noisy.pytree["w"] != 0).all())
        (1, True)
    """

    noise: NodeNoise

    if TYPE_CHECKING:  # no fields: Opake's caches take all of them for what is computed
        run: Run
        _records: dict[int, list[Any]]

    def __post_init__(self) -> None:
        object.__setattr__(self, "run", Run(self.noise))
        object.__setattr__(self, "_records", {})

    def schema(self) -> dict[str, Any]:
        """Return what the design says of ``mf_gaussian_noise`` and Opake's ``mf_gaussian``.

        Returns:
            ``noise_multiplier``, ``n_steps``, ``min_sep`` and ``max_participations``.
        """
        rule = self.noise.claim.rule
        assert rule is not None
        return {
            "noise_multiplier": self.noise.claim.noise_stddev / self.run.clip,
            "n_steps": self.run.horizon,
            "min_sep": rule.min_sep,
            "max_participations": rule.most,
        }

    def attend(self, records: Iterable[Hashable]) -> None:
        """Say which records are in the sum of the next step, before its noise is added.

        Args:
            records: all of them, by number or word.

        Raises:
            InputError: no list of records.
        """
        expected = "the records of the batch, a list"
        self._records.clear()
        self._records[self.run.step] = _checks.listed(records, field="records", expected=expected)

    def sensitivity(
        self, *, n_steps: int, min_sep: int = 1, max_participations: int | None = None
    ) -> float:
        """Sensitivity of C, as Opake's accountants ask for it.

        Args:
            n_steps: horizon.
            min_sep: the fewest steps between two participations of a record.
            max_participations: the most of a record; None: as many as fit.

        Returns:
            Of the adjacency of the design, in units of the clip, not squared. Replacing a record
            counts twice, though Opake's own strategies take that it is added or removed.

        Raises:
            InputError: more participations than the design is for.
        """
        said = self.schema()
        fit = -(-n_steps // min_sep)
        most = fit if max_participations is None else min(max_participations, fit)
        for name, given, most_of in (
            ("n_steps", n_steps, n_steps <= said["n_steps"]),
            ("min_sep", min_sep, min_sep >= said["min_sep"] or most == 1),
            ("max_participations", most, most <= said["max_participations"]),
        ):
            if not most_of:
                expected = f"{said[name]}, as the design is for"
                remedy = "Give **strategy.schema(): Opake assumes more where it is left out."
                raise InputError(name, expected=expected, got=f"{given}", remedy=remedy)
        assert self.noise.claim.mu is not None
        found: float = self.noise.claim.mu * said["noise_multiplier"]
        return found

    def coefficients(self, **_: Any) -> NoReturn:
        """Refused: amplification of Opake is for its own matrices.

        Returns:
            Nothing.

        Raises:
            InputError: always.
        """
        raise self._not_theirs("coefficients")

    def gram_matrix(self, **_: Any) -> NoReturn:
        """Refused, as :meth:`coefficients`.

        Returns:
            Nothing.

        Raises:
            InputError: always.
        """
        raise self._not_theirs("gram_matrix")

    def streaming_matrix(self, **_: Any) -> NoReturn:
        """Refused: noise is the node's own, and not of Opake's generator.

        Returns:
            Nothing.

        Raises:
            InputError: always.
        """
        raise self._not_theirs("streaming_matrix")

    def raw_noise_factory(
        self, grad_template: Any, *, n_steps: int, key: Any, **_: Any
    ) -> tuple[Callable[..., Any], MFNoiseState, Callable[[int], float]]:
        """Give ``mf_gaussian_noise`` what it asks for: noise of a step, the first state, and
        standard deviations relative to the first argument's.

        Args:
            grad_template: not used.
            n_steps: at most the horizon of the design.
            key: of Opake, which nothing is drawn by.

        Returns:
            These three.

        Raises:
            InputError: more steps than the design is for.
        """
        if n_steps > self.run.horizon:
            expected = f"{self.run.horizon} at most: the design is for that many"
            raise InputError("n_steps", expected=expected, got=f"{n_steps}")
        state = MFNoiseState(_inner_state=None, _step_counter=self.run.step, _rng_key=key)
        deviations = [math.sqrt(v) for v in self.noise.plan.variances]
        unit = self.noise.claim.noise_stddev
        return self._add, state, lambda step: deviations[step] / unit

    def _add(self, grads: Any, state: MFNoiseState, *, stddev: Any) -> tuple[Any, MFNoiseState]:
        """The sum with the noise of the next step, and the state after it."""
        unit, step = self.noise.claim.noise_stddev, self.run.step
        if not isinstance(stddev, float) or not math.isclose(stddev, unit, rel_tol=_SAME):
            expected = f"{unit:g}, the noise multiplier times the norm of clipping, of the design"
            remedy = "Clip to the design's norm, sum and do not normalize, and give **schema()."
            got = _checks.describe(stddev)
            raise InputError("noise_multiplier", expected=expected, got=got, remedy=remedy)
        if state._step_counter != step:
            expected = f"that of step {step}, the next one"
            raise InputError("state", expected=expected, got=f"{state._step_counter}")
        if step not in self._records:
            expected = f"the records in the sum of step {step}"
            remedy = "Say them before its noise is added: strategy.attend(records)."
            raise InputError("records", expected=expected, got="nobody's word", remedy=remedy)
        leaves, tree = tree_flatten(grads)
        for leaf in leaves:
            _checks.instance(leaf, torch.Tensor, field="grads", expected="a tree of tensors")
        noisy = [leaf.detach().clone() for leaf in leaves]
        add_to(noisy, self.run, records=self._records[step])
        self._records.clear()
        after = MFNoiseState(_inner_state=None, _step_counter=step + 1, _rng_key=state._rng_key)
        return tree_unflatten(tree, noisy), after

    @staticmethod
    def _not_theirs(field: str) -> InputError:
        expected = "no matrix of Opake: noise, and what random batches add to privacy, are ours"
        remedy = "Ask strategy.noise.claim, or noisedesign for random participation."
        return InputError(field, expected=expected, got="a call", remedy=remedy)


def _saved(strategy: DesignedStrategy) -> dict[str, Any]:
    """The digest of the plan and where the run is; secrets stay where they are."""
    return {"type": "DesignedStrategy", "run": strategy.run.state_dict()}


def _restored(template: DesignedStrategy, state: Any) -> DesignedStrategy:
    template.run.load_state_dict(dict(state).get("run", {}))
    return template


register_serializer(DesignedStrategy, _saved, _restored)
