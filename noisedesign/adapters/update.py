"""Any loop that sends arrays: numpy arrays in, the same with the noise of a node out.

Frameworks of federated and of gossip learning differ in who calls whom, and agree on what is sent:
the arrays of a model or of an update. Noise goes between training and sending."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from noisedesign.adapters.run import Run
from noisedesign.base import checks as _checks
from noisedesign.base.checks import InputError
from noisedesign.noise.source import NodeNoise, list_of_arrays

Arrays = TypeVar("Arrays", Sequence[np.ndarray], Mapping[str, np.ndarray])

UNITS = ("node", "record")


class NoisyUpdate:
    """Noise of the steps of one node, on arrays that a loop of another program is about to send.

    ``unit`` says who is protected, and so who clips. ``"node"``: all data of this node as one. What
    comes in is the update of a round, which is clipped here as a whole; the node takes part in the
    rounds it sends in. ``"record"``: what comes in is the sum of the gradients of records, each
    clipped before, and the records are named.

    Args:
        noise: of the node.
        clip: the Euclidean norm, over all arrays, of an update or of the gradient of a record; must
            be the design's.
        unit: "node" or "record".

    Raises:
        InputError: as :class:`Run`; a design for random participation where ``unit`` is "node", as
            the loop says who takes part.

    Examples:
        >>> import numpy as np
        >>> import noisedesign as nd
        >>> from noisedesign.adapters.update import NoisyUpdate
        >>> from noisedesign.noise import noise
        >>> target = nd.PrivacyTarget(epsilon=1.0, clip=0.5)
        >>> scheme = nd.participation.FixedEpoch(epochs=3, separation=1)
        >>> problem = nd.TimeProblem.prefix(participation=scheme, privacy=target)
        >>> source = noise(nd.solve(problem).design, node=0, record=False)
        >>> noisy = NoisyUpdate(source, clip=0.5, unit="node")
        >>> received = [np.zeros((2, 3)), np.zeros(2)]
        >>> trained = [array + 7.0 for array in received]
        >>> sent = noisy.model(received, trained)
        >>> noisy.run.step, noisy.epsilon, [array.shape for array in sent]
        (1, 1.0, [(2, 3), (2,)])
    """

    def __init__(self, noise: NodeNoise, *, clip: float, unit: str) -> None:
        self._whole = _checks.one_of(unit, field="unit", allowed=UNITS) == "node"
        self.run = Run(noise, clip=clip, chooser="the loop" if self._whole else "")
        self._names: list[str] | None = None

    @property
    def epsilon(self) -> float | None:
        """The epsilon of the whole run, from the first step to the horizon."""
        return self.run.noise.claim.epsilon

    def __call__(
        self, arrays: Arrays, *, records: Iterable[Hashable] | None = None, step: int | None = None
    ) -> Any:
        """Noise of a step on an update, or on a sum.

        Args:
            arrays: what noise is added to, float32 or float64, in a list, or in a mapping by name,
                whose order tells nothing; they stay as they are.
            records: those whose gradients are in the sum; none where the unit is the node.
            step: zero-based, by default the next one. A loop that counts rounds says its round: a
                step may be left out, and one that is sent again has the same noise.

        Returns:
            New arrays, in a list or mapping like what came.

        Raises:
            InputError: as :meth:`Run.add_`; records where there are none, or none where there are;
                other names than before.
        """
        names, copies = self._copies(arrays)
        if self._whole:
            if records is not None:
                got, remedy = "some", 'Say unit="record" for sums of clipped gradients.'
                expected = "none: the update of a node is clipped and counted as one"
                raise InputError("records", expected=expected, got=got, remedy=remedy)
            records = [self.run.noise.plan.node]
            clip_whole(copies, self.run.clip)
        elif records is None:
            expected = "those whose clipped gradients are in the sum"
            remedy = 'Say unit="node" to protect the update of a node as a whole.'
            raise InputError("records", expected=expected, got="none", remedy=remedy)
        due = self.run.step
        if step is not None:
            self.run.step = _checks.positive_int(step, field="step", minimum=0)
        try:
            self.run.add_(copies, records=records)
        except BaseException:
            self.run.step = due
            raise
        self._names = names
        if names is None:
            return copies
        noisy = dict(zip(names, copies, strict=True))
        return {name: noisy[str(name)] for name in arrays}

    def model(self, received: Arrays, trained: Arrays, *, step: int | None = None) -> Any:
        """The model that a node sends after training: the one that came, plus the clipped update,
        plus noise.

        Args:
            received: its arrays before training, as all know them.
            trained: those after.
            step: as above.

        Returns:
            New arrays, as above.

        Raises:
            InputError: as above; arrays of other shapes than came; a unit that is not the node.
        """
        if not self._whole:
            expected = '"node": the difference of two models is the update of a node as a whole'
            raise InputError("unit", expected=expected, got="record")
        before, after = _named(received, "received"), _named(trained, "trained")
        if before.keys() != after.keys():
            got = f"{len(after)} others"
            raise InputError("trained", expected="the arrays that were received", got=got)
        moves = {
            key: difference(f"trained[{key!r}]", array, before[key]) for key, array in after.items()
        }
        if isinstance(trained, Mapping):
            found = self(moves, step=step)
            return {key: before[key] + found[key] for key in trained}
        found = self(list(moves.values()), step=step)
        return [old + move for old, move in zip(before.values(), found, strict=True)]

    def batches(self, records: int, **how: Any) -> Any:
        """Batches as the design says, where the unit is the record: as :meth:`Run.batches`.

        Args:
            records: N, of the node.
            **how: as there.

        Returns:
            The records of every step.

        Raises:
            InputError: as there.
        """
        return self.run.batches(records, **how)

    def state_dict(self) -> dict[str, Any]:
        """The state for a checkpoint, without the secret.

        Returns:
            JSON values.
        """
        return {"run": self.run.state_dict(), "names": self._names}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on after :meth:`state_dict`.

        Args:
            state: what it gave.

        Raises:
            InputError: not such a state, or of another design, node or secret.
        """
        if not isinstance(state, Mapping) or not {"run", "names"} <= set(state):
            raise InputError("state", expected="what state_dict gave", got=_checks.describe(state))
        self.run.load_state_dict(state["run"])
        self._names = state["names"]

    def _copies(self, arrays: Any) -> tuple[list[str] | None, list[np.ndarray]]:
        """Return the names, if any, in an order of their own, and copies of the arrays in it."""
        named = _named(arrays, "arrays")
        names = sorted(named) if isinstance(arrays, Mapping) else None
        if self._names is not None and names != self._names:
            expected = f"the names of the steps before: {', '.join(self._names)}"
            raise InputError("arrays", expected=expected, got=", ".join(names or ["a list"]))
        return names, [_floating(f"arrays[{key!r}]", named[key]) for key in names or named]


def _named(arrays: Any, field: str) -> Mapping[Any, Any]:
    """Return arrays by name, or by number."""
    if isinstance(arrays, Mapping):
        return arrays
    return dict(enumerate(list_of_arrays(arrays, field=field)))


def _floating(field: str, array: Any, *, like: Any = None) -> np.ndarray:
    """Return a copy of an array of numbers that noise can be added to, in C order."""
    shape = np.shape(array if like is None else like)
    dtype = getattr(array, "dtype", None)
    if dtype not in (np.float32, np.float64) or np.shape(array) != shape:
        expected = f"float32 or float64 of shape {shape}"
        got, remedy = _checks.describe(array), "Send what is trained, and nothing that counts."
        raise InputError(field, expected=expected, got=got, remedy=remedy)
    return np.array(array, order="C")


def difference(field: str, trained: Any, received: Any) -> np.ndarray:
    """Return the update of an array, which has to be of numbers that are trained."""
    move = _floating(field, trained, like=received)
    move -= received
    return move


def clip_whole(update: list[np.ndarray], clip: float) -> None:
    """Clip in place to the norm ``clip``, taken in float64 over the largest entry."""
    peak = max((float(np.abs(u).max(initial=0.0)) for u in update), default=0.0)
    if not 0 < peak < np.inf:  # what is not finite is left for the noise to refuse
        return
    square = sum(np.sum(np.square(np.divide(u, peak, dtype=np.float64))) for u in update)
    length = float(np.sqrt(square))  # from 1 on
    if clip / peak < length:
        scale = clip * (1 - 2.0**-22) / length  # no norm is above the clip once rounded to float32
        for array in update:
            array[...] = np.divide(array, peak, dtype=np.float64) * scale
