"""decentralizepy: a file a node, its graph, and the lines of its config that use them, with the
training and averaging of :mod:`noisedesign.adapters.decentralizepy`."""

from __future__ import annotations

import shlex
from pathlib import Path

import numpy as np

from noisedesign.base.atomic import overwriting, write_text
from noisedesign.base.checks import InputError
from noisedesign.base.nodes import Row
from noisedesign.design.design import Design, fixed_mixing
from noisedesign.files.array_files import require_own_description
from noisedesign.files.exported import to_json, trainer_facts
from noisedesign.forms import Noise
from noisedesign.system.graph import graph_laplacian

ACCEPTS = ("space", "time", "space-time")
DRAWS_BATCHES = True
DESCRIPTION = "files of the nodes (-0.plan, ...), .edges and .ini of decentralizepy, and .json"

_NOTE = (
    "Train by the training named in the .ini, which goes on in the data where it stopped and stops "
    "at the horizon: the trainer's own begins its data anew at every call. Every run needs a new "
    "secret, at the path that the .ini names; whoever has it knows all noise, so that this is a "
    "simulation by one who is trusted. Losses that the trainer logs are of the data itself."
)
_INI = """# Written by noisedesign: the noise of a design for decentralizepy.
[TRAIN_PARAMS]
training_package = noisedesign.adapters.decentralizepy
training_class = NoisyTraining
plans = {start}
secret = {start}.secret
rounds = 1
full_epochs = False
shuffle = False

[SHARING]
sharing_package = noisedesign.adapters.decentralizepy
sharing_class = DesignedSharing
plans = {start}
"""


def noise_of(design: Design) -> Noise:
    """The noise of a design whose nodes can have plans."""
    fixed_mixing(design)
    design.node_plan(Row(0))
    return design.noise


def export(design: Design, path: Path, *, problem_text: str = "") -> tuple[Path, ...]:
    """Write what is known of the design at ``path``, with the commands to run it, and beside it, of
    the same stem, ``.ini``, ``.edges`` and a ``-u.plan`` for every node u."""
    mixing = fixed_mixing(design)
    nodes = len(mixing)
    plans = [design.node_plan(Row(node)) for node in range(nodes)]
    start = path.with_suffix("")
    config, graph = path.with_suffix(".ini"), path.with_suffix(".edges")
    if path in (config, graph):
        remedy = "The files beside it have that name."
        raise InputError("output", expected="a name in .json", got=str(path), remedy=remedy)
    require_own_description(path, to="decentralizepy", files=(graph,))
    metadata = trainer_facts(design, note=_NOTE, problem_text=problem_text) | {
        "to": "decentralizepy",
        "protected_unit": "one example",
        "arrays": {"edges": {"file": graph.name}},
        "commands": _commands(start.absolute(), nodes=nodes, steps=plans[0].horizon),
    }
    links = np.argwhere(np.triu(graph_laplacian(mixing) < 0)).tolist()
    main = write_text(path, to_json(metadata))
    written = [write_text(config, _INI.format(start=start.absolute()))]
    with overwriting():  # it is of this export, as its description says
        lines = [str(nodes), *(f"{i} {j}" for i, j in links)]
        written.append(write_text(graph, "\n".join(lines) + "\n"))
    files = [plan.save(start.with_name(f"{start.name}-{plan.node}.plan")) for plan in plans]
    return (main, *written, *files)


def _commands(start: Path, *, nodes: int, steps: int) -> list[str]:
    """Commands for the trainer's folder, where its own config is copied to START.config.ini."""
    said = shlex.quote(str(start))
    made = f"from noisedesign.noise import Secret; Secret.new().save({str(start) + '.secret'!r})"
    return [
        f"crudini --merge {said}.config.ini < {said}.ini",
        f"rm -f {said}.secret && python -c {shlex.quote(made)}",
        f"cd eval && python testing.py -cf {said}.config.ini -gf {said}.edges -ps {nodes} -ms 1 "
        f"-is {steps} -ld {said}-log -wsd {said}-log",
    ]
