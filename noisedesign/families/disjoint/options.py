"""What only some solvers can do: compute on a device, go on from a checkpoint, or start from the
multipliers of another problem."""

from __future__ import annotations

from dataclasses import dataclass, replace

from noisedesign.base.checks import Array, InputError, describe
from noisedesign.base.device import CPU, device_of, index_of
from noisedesign.families.disjoint.native import NativeBackend
from noisedesign.families.disjoint.start import Start
from noisedesign.program.backend import Backend, Checkpoint
from noisedesign.program.program import Program


@dataclass(frozen=True, kw_only=True)
class Extras:
    """What is asked for beyond a plain solve: the name of a ``device``, a ``checkpoint``, where to
    ``start``."""

    device: str = CPU.name
    checkpoint: Checkpoint | None = None
    start: Start | None = None

    def __post_init__(self) -> None:
        if self.checkpoint is not None and not isinstance(self.checkpoint, Checkpoint):
            raise InputError(
                "checkpoint",
                expected="a CheckpointFile",
                got=describe(self.checkpoint),
                remedy="Write checkpoint=CheckpointFile(path).",
            )

    def refused(self, by: str) -> None:
        """Raise InputError where anything is asked for, since ``by`` can do none of it."""
        self._refuse_device(by)
        self._refuse_checkpoint(by)
        self._refuse_start(by)

    def given_to(self, solver: Backend, program: Program) -> Backend:
        """``solver`` on the device asked for.

        Raises:
            InputError: no such device here; a solver that cannot do what is asked.
        """
        if not isinstance(solver, NativeBackend):
            self.refused(f"the backend {solver.name}")
            return solver
        if program.limited:
            self.refused("the solvers of problems with limits")
        return replace(solver, device=device_of(self.device))

    def begin_with(self, program: Program) -> Array | None:
        """Multipliers to begin with, of the normalised ``program``, as
        :meth:`noisedesign.families.disjoint.start.Start.blocks`."""
        return None if self.start is None else self.start.blocks(program)

    @property
    def versions(self) -> dict[str, str]:
        """Versions of what computes on the device, which shape a design's digits."""
        return device_of(self.device).versions

    def _refuse_device(self, by: str) -> None:
        if index_of(self.device) is not None:
            able = "runs on CUDA devices"
            raise _refusal("device", able, by, expected="cpu", got=describe(self.device))

    def _refuse_checkpoint(self, by: str) -> None:
        if self.checkpoint is not None:
            raise _refusal("checkpoint", "keeps checkpoints", by)

    def _refuse_start(self, by: str) -> None:
        if self.start is not None:
            raise _refusal("start", "can start from multipliers", by)


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
