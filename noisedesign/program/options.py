"""What only some solvers can do: compute on a device, go on from a checkpoint, or start from the
multipliers of another problem."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from noisedesign.base.checks import InputError, describe
from noisedesign.base.device import CPU, device_of, index_of
from noisedesign.base.monitor import Checkpoint


@dataclass(frozen=True, kw_only=True)
class Options:
    """What is asked for beyond a plain solve: the name of a ``device``, a ``checkpoint``, where to
    ``start``."""

    device: str = CPU.name
    checkpoint: Checkpoint | None = None
    start: Any = None

    def __post_init__(self) -> None:
        if self.checkpoint is not None and not isinstance(self.checkpoint, Checkpoint):
            raise InputError(
                "checkpoint",
                expected="a CheckpointFile",
                got=describe(self.checkpoint),
                remedy="Write checkpoint=CheckpointFile(path).",
            )

    def refuse(self, by: str) -> None:
        """Raise InputError where anything is asked for, since ``by`` can do none of it."""
        if index_of(self.device) is not None:
            able = "runs on CUDA devices"
            raise _refusal("device", able, by, expected="cpu", got=describe(self.device))
        if self.checkpoint is not None:
            raise _refusal("checkpoint", "keeps checkpoints", by)
        if self.start is not None:
            raise _refusal("start", "can start from multipliers", by)

    @property
    def versions(self) -> dict[str, str]:
        """Versions of what computes on the device, which shape a design's digits.

        Raises:
            InputError: no such device here.
        """
        return device_of(self.device).versions


def _refusal(
    field: str, able: str, by: str, *, expected: str = "none here", got: str = "one"
) -> InputError:
    return InputError(
        field,
        expected=expected,
        got=got,
        remedy=f"What {able} are the native solvers of problems without limits, structures and "
        f"observers, not {by}.",
    )
