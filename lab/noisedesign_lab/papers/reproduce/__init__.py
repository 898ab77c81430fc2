"""Experiments of papers. To add one: a module here with its ``EXPERIMENT``, its line in ``NAMES``,
and its settings in ``problems/papers/<name>.toml``."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from noisedesign.base.checks import InputError, did_you_mean
from noisedesign.files.toml import lookup, opened, parsed
from noisedesign_lab.papers.reproduce.experiment import Experiment, Settings, settings_of

FIELD = "experiment"
NAMES = ("mafalda", "whisper", "zip-dl", "gossip", "ours", "balls-in-bins", "loss")
"""Names of experiments: those of their modules, with hyphens; one is loaded when asked for."""


def named(name: str) -> Experiment:
    """The experiment of that name, which is one of ``NAMES``."""
    found: Experiment = import_module(f"{__name__}.{name.replace('-', '_')}").EXPERIMENT
    return found


def load_settings(name: str | Path, *, quick: bool = False) -> tuple[Experiment, Settings]:
    """Return experiment and settings of a name or file; ``quick`` takes those of its [quick]."""
    path = Path("papers", name) if name in NAMES else Path(name)
    with opened(_found(path), field=FIELD) as (_, text):
        tables = parsed(text, field=FIELD)
        which, values = settings_of(tables, known=NAMES, quick=quick)
        experiment = named(which)
        return experiment, experiment.read(values)


def _found(path: Path) -> Path:
    found = lookup(path)
    if not found.is_file():
        expected, got = f"one of {', '.join(NAMES)}, or a file of settings", str(path)
        raise InputError(FIELD, expected=expected, got=got, remedy=did_you_mean(str(path), NAMES))
    return found
