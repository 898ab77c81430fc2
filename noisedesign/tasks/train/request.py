"""Training files as tasks: the data loaded, the graph built, every name and number checked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from noisedesign.files.tables import RESPONSES
from noisedesign.files.toml import opened, renamed
from noisedesign.files.training_file import FIELD, FOR_PEOPLE, training_tables
from noisedesign.tasks.train.mechanisms import check_name, check_names
from noisedesign.tasks.train.training_task import TrainingTask
from noisedesign.training.trainer import DIVERGED

_OF_ROWS = ("mechanisms", "seeds", "privacy")
"""Keys that say which rows there are; what they say of a row is in its own key."""

_KEYS = {
    "clip": "training.clip",
    "rounds": "training.rounds",
    "workload.rounds": "training.rounds",
    "batch_size": "training.batch_size",
    "records": "training.batch_size",
    "measured": "training.measured",
    "whose": "training.models",
    "bound": "training.divergence",
    "max_variance": "training.max_variance",
    "accounts": "privacy.accounts",
    "epsilons": "privacy.epsilons",
    "noise_multipliers": "privacy.noise_multipliers",
    "privacy.epsilon": "privacy.epsilons",
    "privacy.clip": "training.clip",
}
"""Arguments of the library and the keys of a file that set them."""


def load_training(path: str | Path) -> TrainingTask:
    """Read a training file; ``problems/README.md`` describes its keys.

    Data are loaded, from ``NOISEDESIGN_DATA``, the cache or their source, and the graph is built;
    no design is solved.

    Args:
        path: a file, or the name of a shipped one, ``"training/ring-quadratic"``, with ``.toml`` or
            without. What the working directory or its folder ``problems`` has comes first.

    Returns:
        The task, whose rows a table knows again.

    Raises:
        InputError: naming the dotted key at fault and this file; no such file, a folder, not
            UTF-8, not TOML; an unknown mechanism, with those there are.

    Examples:
        >>> import noisedesign as nd
        >>> task = nd.load_training("training/ring-quadratic")
        >>> task.mechanisms
        ('none', 'ldp', 'mafalda', 'kronecker')
    """
    with opened(path, field=FIELD) as (found, text):
        return parse_training(text, folder=found.parent, name=found.stem)


def parse_training(text: str, *, folder: str | Path, name: str = FIELD) -> TrainingTask:
    """As :func:`load_training`, from text; files it names are relative to ``folder``.

    Args:
        name: of the task, where the text gives none.
    """
    file, tables = training_tables(text)
    folder = Path(folder)
    for mechanism in check_names(file.mechanisms):  # before anything is downloaded
        check_name(mechanism)
    participation = file.participation.scheme()
    horizon, how = participation.horizon, file.training
    mixing, _ = file.graph.mixing(folder)
    data = file.data.load(folder)
    keys = dict(_KEYS) | {"mixing": file.graph.weights_key}
    budgets = file.privacy
    with renamed(keys):
        return TrainingTask(
            name=file.name or name,
            loss=file.loss.loss(data),
            examples=data[0],
            test=data[1],
            partition=file.partition.partition(data[0], int(np.shape(mixing)[-1])),
            mixing=mixing,
            random=None if file.mixing is None else file.mixing.random(mixing, file.graph),
            participation=participation,
            mechanisms=tuple(file.mechanisms),
            epsilons=budgets.epsilons,
            noise_multipliers=budgets.noise_multipliers,
            delta=budgets.delta,
            adjacency=budgets.adjacency,
            accounts=budgets.accounts,
            responses=budgets.said(table="privacy"),
            clip=how.clip,
            step_sizes=how.step_sizes(horizon),
            batch_size=how.batch_size,
            rounds=how.rounds,
            seeds=file.seeds,
            record=how.record(horizon),
            measured=how.measured,
            whose=how.models,
            bound=DIVERGED if how.divergence is None else how.divergence,
            max_variance=how.max_variance,
            identity=_identity(tables),
        )


def _identity(tables: dict[str, Any]) -> str:
    """What decides a row besides its mechanism, budget, seed and step; files count by name."""
    said = {key: value for key, value in tables.items() if key not in (*FOR_PEOPLE, *_OF_ROWS)}
    how = {key: value for key, value in said.pop("training", {}).items() if key != "record_every"}
    budgets = tables.get("privacy", {})
    kept = {key: budgets[key] for key in ("delta", "adjacency", *RESPONSES) if key in budgets}
    return json.dumps(said | {"training": how, "privacy": kept}, sort_keys=True, default=str)
