"""Graphs of a few nodes in parts, and the solver of large ones made to take them."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from noisedesign.base import together
from noisedesign.distributed import graph as graphs, work
from noisedesign.distributed.mail import Box, Mail
from noisedesign.distributed.rows import Rows
from noisedesign.distributed.world import World
from noisedesign.families.polynomial import bound, operator


def as_if_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take graphs of more than 60 nodes for those whose traces are estimated, by few vectors."""
    monkeypatch.setattr(operator, "DENSE", 60)
    monkeypatch.setattr(bound, "PROBED", 1)
    monkeypatch.setattr(work, "MOST_EXACT", 60)


def in_parts(ends: Sequence[int], find: Callable[[World], Any], *, silence: float = 20.0) -> list:
    """What ``find`` returns in every part, each a thread."""
    boxes = [Box() for _ in ends[1:]]
    found: list[Any] = [None for _ in boxes]
    errors: list[BaseException] = []

    def run(k: int) -> None:
        put = {j: box.put for j, box in enumerate(boxes) if j != k}
        world = World(Mail(k, boxes[k], put, silence=silence), np.asarray(ends))
        try:
            with together.among(world):
                found[k] = find(world)
        except BaseException as error:
            errors.append(error)
            for box in boxes:
                box.end(str(error))

    threads = [threading.Thread(target=run, args=(k,)) for k in range(len(boxes))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return found


def rows_of(mixing: Any, world: World) -> Rows:
    """The rows of a part."""
    w = sparse.coo_array(mixing)
    here = (w.coords[0] >= world.first) & (w.coords[0] < world.end)
    return Rows(world, w.coords[0][here], w.coords[1][here], w.data[here])


def write_folder(
    path: Path, parts: Sequence[Sequence[tuple[int, ...]]], ends: Sequence[int], **more: Any
) -> Path:
    """A folder that another program wrote: of each part its edges, (source, target[, weight])."""
    path.mkdir(exist_ok=True)
    for k, edges in enumerate(parts):
        columns = np.array(edges, dtype=float).reshape(len(edges), -1).T
        table = {"source": columns[0].astype(int), "target": columns[1].astype(int)}
        if len(columns) > 2:
            table["weight"] = columns[2]
        graphs.write_table(path / f"edges-{k:05d}.parquet", table)
    stated = dict(graphs.FORMAT) | {"ends": list(ends)} | more
    (path / graphs.MANIFEST).write_text(json.dumps(stated))
    return path
