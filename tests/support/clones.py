"""Trainers that are in no package index: folders with their source as their authors keep it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support import ROOT

VARIABLES = {
    "DECOR": "NOISEDESIGN_DECOR",
    "FedML": "NOISEDESIGN_FEDML",
    "GossiPy": "NOISEDESIGN_GOSSIPY",
    "MFDL": "NOISEDESIGN_MFDL",
    "decentralizepy": "NOISEDESIGN_DECENTRALIZEPY",
    "WhisperDSGD": "NOISEDESIGN_WHISPER",
}


def clone(name: str) -> Path:
    """The folder of a trainer, named by its variable or cloned by ``make test-trainers``."""
    variable = VARIABLES[name]
    folder = Path(os.environ.get(variable) or ROOT / ".trainers" / name)
    if not folder.is_dir():
        reason = f"{name} is in no package index: {variable} names a folder with it"
        pytest.skip(reason, allow_module_level=True)
    return folder
