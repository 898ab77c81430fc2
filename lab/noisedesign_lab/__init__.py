"""The laboratory: mechanisms trained side by side, and the papers' experiments and figures."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from noisedesign_lab.tasks.table import TrainingResult, train
    from noisedesign_lab.tasks.training_file import load_training
    from noisedesign_lab.tasks.training_task import TrainingTask

_HOMES = {  # public name -> its module in tasks
    "TrainingResult": "table",
    "TrainingTask": "training_task",
    "load_training": "training_file",
    "train": "table",
}

__all__ = ["TrainingResult", "TrainingTask", "load_training", "train"]


def __getattr__(name: str) -> object:
    """A public name, loaded when it is first asked for."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.tasks.{_HOMES[name]}"), name)
