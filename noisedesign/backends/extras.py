"""What only some solvers can do: compute on a device, and go on from a checkpoint."""

from __future__ import annotations

from dataclasses import dataclass, replace

from noisedesign._checks import InputError, describe
from noisedesign.backends.base import Backend, Checkpoint
from noisedesign.backends.native import NativeBackend
from noisedesign.backends.native.device import CPU, device_of, index_of
from noisedesign.formulations import Program


@dataclass(frozen=True, kw_only=True)
class Extras:
    """What is asked for beyond a plain solve: the name of a ``device``, a ``checkpoint``."""

    device: str = CPU.name
    checkpoint: Checkpoint | None = None

    def __post_init__(self) -> None:
        if self.checkpoint is not None and not isinstance(self.checkpoint, Checkpoint):
            raise InputError(
                "checkpoint", expected="a CheckpointFile", got=describe(self.checkpoint),
                remedy="Write checkpoint=CheckpointFile(path).",
            )  # fmt: skip

    def refused(self, by: str) -> None:
        """Raise InputError where anything is asked for, since ``by`` can do none of it."""
        self._refuse_device(by)
        self._refuse_checkpoint(by)

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
        elif program.participation.epochs > 1:
            self._refuse_device("the solver of several epochs")
        return replace(solver, device=device_of(self.device))

    @property
    def versions(self) -> dict[str, str]:
        """Versions of what computes on the device, which shape a design's digits."""
        return device_of(self.device).versions

    def _refuse_device(self, by: str) -> None:
        if index_of(self.device) is not None:
            raise InputError(
                "device", expected="cpu", got=describe(self.device),
                remedy="What runs on CUDA devices is the native solver of single participation "
                f"without limits, not {by}.",
            )  # fmt: skip

    def _refuse_checkpoint(self, by: str) -> None:
        if self.checkpoint is not None:
            raise InputError(
                "checkpoint", expected="none here", got="one",
                remedy="What keeps checkpoints are the native solvers of problems without limits, "
                f"structures and observers, not {by}.",
            )  # fmt: skip
