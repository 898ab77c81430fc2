"""The common part of all adapters: a node's noise, who took part when, and which step is next."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from noisedesign.base import checks as _checks
from noisedesign.base.checks import InputError
from noisedesign.noise.attendance import Attendance
from noisedesign.noise.batches import Batches, RandomBatches
from noisedesign.noise.plan import agrees
from noisedesign.noise.source import NodeNoise, list_of_arrays


class Run:
    """One training run of one node: every step once, one after another, so that no record takes
    part unseen.

    Where the participation of the design is random, :meth:`batches` draws who takes part, from the
    node's secret, and no other batches are taken.

    Args:
        noise: of the node.
        clip: the norm that gradients are clipped to, which must be the design's.
        divided: whether a plan with a batch size is for it, as sums are divided before noise.
        chooser: who says who takes part, in words, where that is not this node, so that a design
            for random participation is not for it.

    Raises:
        InputError: another clip; a plan for divided sums where noise is added to sums; random
            participation that this node does not draw.

    Examples:
        >>> import numpy as np
        >>> import noisedesign as nd
        >>> from noisedesign.adapters.run import Run
        >>> from noisedesign.noise import noise
        >>> scheme = nd.participation.FixedEpoch(epochs=2, separation=3)
        >>> target = nd.PrivacyTarget(epsilon=1.0, clip=1.0)
        >>> problem = nd.TimeProblem.prefix(participation=scheme, privacy=target)
        >>> run = Run(noise(nd.solve(problem).design, node=0, record=False), clip=1.0)
        >>> batches = run.batches(9)
        >>> for step in range(run.horizon):
        ...     run.add_([np.zeros(4)], records=batches[step])  # the sum of clipped gradients
        >>> run.step
        6
    """

    alone = False  # whether all other ranks of torch.distributed are nodes of their own

    def __init__(
        self,
        noise: NodeNoise,
        *,
        clip: float | None = None,
        divided: bool = False,
        chooser: str = "",
    ) -> None:
        expected = "a NodeNoise, as noisedesign.noise.noise(...) gives it"
        _checks.instance(noise, NodeNoise, field="noise", expected=expected)
        claim = noise.claim
        if claim.clip is None or claim.rule is None:
            expected = "noise of a design with a clip and a participation"
            remedy = "State epsilon, delta and clip in [privacy], and make the node's plan anew."
            raise InputError("noise", expected=expected, got="noise without", remedy=remedy)
        agrees("clip", clip, claim.clip)
        if claim.batch_size is not None and not divided:
            expected = "a plan for sums: this trainer divides after noise is added"
            got = f"one for sums divided by {claim.batch_size}"
            remedy = "Make the node's plan without batch_size."
            raise InputError("batch_size", expected=expected, got=got, remedy=remedy)
        self.noise = noise
        self._random = claim.rule.random is not None
        if self._random and chooser:
            expected = f"one in which {chooser} may say who takes part"
            got = f"{claim.participation}, which the node has to draw in secret"
            remedy = "Design for fixed-epoch or min-separation."
            raise InputError("participation", expected=expected, got=got, remedy=remedy)
        self._records: int | None = None
        self.step = noise.next_step
        self._shapes: list[list[int]] | None = None

    @property
    def horizon(self) -> int:
        """T, the number of steps."""
        return self.noise.plan.horizon

    @property
    def clip(self) -> float:
        """The norm that gradients are clipped to, in their units."""
        assert self.noise.claim.clip is not None
        return self.noise.claim.clip

    @property
    def attendance(self) -> Attendance:
        """Who took part when.

        Raises:
            InputError: participation is random, and nobody has asked for :meth:`batches`.
        """
        return self.noise.attendance()

    def batches(
        self, records: int, *, batch_size: int | None = None, seed: int | None = None
    ) -> Batches | RandomBatches:
        """Batches as the design says: :class:`noisedesign.noise.Batches` or, where participation
        is random, :class:`noisedesign.noise.RandomBatches`.

        Args:
            records: N, of the node, numbered 0 to N - 1.
            batch_size: the most of a batch, or of batches that are drawn their mean size, rounded;
                by default what the design is for.
            seed: of the shuffle, by default 0; none where batches are drawn in secret.

        Returns:
            The records of every step.

        Raises:
            InputError: as there; a seed, or another mean size, of batches that are drawn.
        """
        if not self._random:
            rule, horizon = self.attendance.rule, self.horizon
            seed = 0 if seed is None else seed
            return Batches(rule, horizon=horizon, records=records, batch_size=batch_size, seed=seed)
        if seed is not None:
            _checks.seed(seed, field="seed")
            expected = "none: batches are drawn from the secret of the node"
            remedy = "Privacy rests on nobody knowing them. Leave it out."
            raise InputError("seed", expected=expected, got=str(seed), remedy=remedy)
        found = self.noise.batches(records)
        self._records = found.records
        if batch_size is not None:
            size, mean = _checks.positive_int(batch_size, field="batch_size"), found.expected_size
            if abs(size - mean) >= 1:
                expected = f"{mean:g}, rounded: the mean size of batches that are drawn, or none"
                raise InputError("batch_size", expected=expected, got=str(size))
        return found

    def attend(self, records: Iterable[Hashable]) -> None:
        """Check that ``records``, all that is in the sum of the next step, may be, and count them.

        Args:
            records: by number or word.

        Raises:
            InputError: one more often, or closer together, than the design is for.
        """
        self.attendance.check(records, self.step)

    def add_(self, arrays: Sequence[np.ndarray], *, records: Iterable[Hashable]) -> None:
        """Noise of the next step added in place to the sum of clipped gradients, which ends the
        step; on an error nothing is added, and the step stays.

        Args:
            arrays: the sum, float32 or float64, which are changed.
            records: those whose gradients are in it.

        Raises:
            InputError: as :meth:`noisedesign.noise.NodeNoise.add_`; a model of other shapes than
                before.
        """
        arrays = list_of_arrays(arrays, field="parameters")
        with self.one_step([list(np.shape(array)) for array in arrays]):
            self.noise.add_(arrays, self.step, records=records)

    @contextmanager
    def one_step(self, shapes: list[list[int]]) -> Iterator[int]:
        """The next step, of a model of these shapes; without an error it is done.

        Args:
            shapes: of all arrays of the model.

        Returns:
            A context, whose value is the step.

        Raises:
            InputError: other shapes than before.
        """
        if self._shapes not in (None, shapes):
            expected = "the shapes of the steps before"
            remedy = "Noise of one design is for one model; for another one draw a new secret."
            raise InputError("parameters", expected=expected, got="others", remedy=remedy)
        yield self.step
        self._shapes = shapes
        self.step += 1

    def skip(self, records: Iterable[Hashable]) -> None:
        """Go on with the step after, where these took part in this one in another way.

        Args:
            records: those that took part in it, which are counted.

        Raises:
            InputError: as :meth:`attend`.
        """
        self.attend(records)
        self.step += 1

    def skip_used(self) -> range:
        """Go on after all steps whose noise was added, with a model from an older checkpoint.

        It is for training that does not compute the same sums again, bit by bit; what does goes on
        from the step of the checkpoint, and has the same noise.

        Returns:
            The steps that are left out.
        """
        first = self.step
        self.step = max(first, 1 + max(self.noise.steps, default=-1))
        return range(first, self.step)

    def state_dict(self) -> dict[str, Any]:
        """The state for a checkpoint, without the secret.

        Returns:
            JSON values.
        """
        return {
            "step": self.step,
            "shapes": self._shapes,
            "noise": self.noise.state_dict(),
            "attendance": {} if self._random else self.attendance.state_dict(),
            "drawn": self._records,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on after :meth:`state_dict`.

        Args:
            state: what it gave.

        Raises:
            InputError: not such a state, or of another design, node or secret.
        """
        keys = {"step", "shapes", "noise", "attendance"}
        if not isinstance(state, Mapping) or not keys <= set(state):
            raise InputError("state", expected="what state_dict gave", got=_checks.describe(state))
        step = _checks.positive_int(state["step"], field="state.step", minimum=0)
        self.noise.load_state_dict(state["noise"])
        if self._random:
            if (drawn := state.get("drawn")) is not None:
                self.batches(drawn)
        else:
            self.attendance.load_state_dict(state["attendance"])
        self.step, self._shapes = step, state["shapes"]
