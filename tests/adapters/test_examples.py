"""The examples in docstrings of adapters, each where its trainer is installed."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from tests.support.examples import run_examples


@pytest.mark.parametrize(
    ("name", "trainer", "version"),
    [
        ("run", "numpy", None),
        ("update", "numpy", None),
        ("pytorch", "torch", None),
        ("noisedesign.noise.device.source", "torch", None),
        ("opacus", "opacus", None),
        ("alone", "torch", None),
        ("opake", "opake.dpftrl", None),
        ("keras", "keras", "3"),
        ("flower", "flwr", None),
        ("pfl", "pfl", None),
        ("jax_privacy", "jax_privacy", "2"),
    ],
)
@pytest.mark.filterwarnings("ignore::UserWarning")  # of Opacus' hooks
def test_examples(
    name: str, trainer: str, version: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KERAS_BACKEND", "torch")
    needed = f"needs the package {trainer} {version or ''}".strip()
    pytest.importorskip(trainer, minversion=version, reason=needed)
    path = name if "." in name else f"noisedesign.adapters.{name}"
    module = importlib.import_module(path)
    run_examples(module, tmp_path, monkeypatch)
