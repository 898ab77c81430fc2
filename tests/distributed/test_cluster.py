"""Parts on a real Dask scheduler, with workers that are processes, one of them killed."""

from __future__ import annotations

import inspect
import os
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import noisedesign as nd
from noisedesign.base.checks import InputError
from noisedesign.distributed import design as designs, tasks
from noisedesign.distributed.cluster import Letter
from noisedesign.distributed.mail import Box, LostError, Mail, Tag
from tests.support.parts import as_if_large

distributed = pytest.importorskip("distributed")


def few_vectors() -> None:
    """On a worker: what ``as_if_large`` does here."""
    from noisedesign.distributed import work
    from noisedesign.families.polynomial import bound, operator

    operator.DENSE = work.MOST_EXACT = 60
    bound.PROBED = 1


@pytest.fixture
def cluster() -> Iterator[Any]:
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0"
        ) as found,
        distributed.Client(found, set_as_default=False) as client,
    ):
        client.run(few_vectors)
        found.known = client
        yield found


def stored(folder: Path, nodes: int = 200) -> Path:
    graph = nd.build_graph("barabasi-albert", nodes=nodes, links=3, seed=1)
    tasks.store(nd.SpaceProblem.from_graph(graph), folder, parts=2)
    return folder


class Other:
    """The actor of another worker, as Dask calls it: what it was sent it keeps for ever."""

    def __init__(self) -> None:
        self.sent: list[tuple[Tag, list[Any]]] = []
        self.arrived = False

    def put(self, sender: int, tag: Tag, envelope: list[Any]) -> Any:
        self.sent.append((tag, envelope))
        return SimpleNamespace(done=lambda: self.arrived, result=lambda: None)


def test_what_has_arrived_is_kept_by_nobody() -> None:
    other = Other()
    mail = Mail(0, Box(), {1: partial(Letter, other)})
    data = [np.ones(3), np.ones(4)]
    known = [weakref.ref(each) for each in data]
    while data:
        mail.send(1, (len(data), "halo"), data.pop())
    assert [envelope[0].sum() for _, envelope in other.sent] == [4, 3]
    other.arrived = True
    mail.send(1, (3, "sum"), 5.0)
    assert [each() for each in known] == [None, None]
    assert [(tag, len(envelope)) for tag, envelope in other.sent] == [
        ((2, "halo"), 0),
        ((1, "halo"), 0),
        ((3, "sum"), 1),
    ]


@pytest.mark.slow
def test_a_worker_is_killed_and_the_same_call_goes_on(
    cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    as_if_large(monkeypatch)
    graph = stored(tmp_path / "graph")
    expected = tasks.solve(graph, tmp_path / "here", gap=0.9)  # in threads
    victims = list(cluster.known.run(os.getpid).values())

    def kill(stage: str) -> None:
        if stage.startswith("certifying"):
            while victims:
                os.kill(victims.pop(), signal.SIGKILL)
                victims.clear()

    began = time.monotonic()
    with pytest.raises(LostError):
        tasks.solve(
            graph, tmp_path / "design", cluster=cluster.scheduler_address, gap=0.9, tell=kill
        )
    assert time.monotonic() - began < tasks.LONGEST_SILENCE  # it was told, and did not wait
    assert not (tmp_path / "design" / designs.MANIFEST).exists()
    kept = list((tmp_path / "design" / tasks.CHECKPOINT).glob("*/part-*/*.npz"))
    assert kept
    cluster.known.wait_for_workers(2, timeout=60)
    cluster.known.run(few_vectors)
    made = tasks.solve(graph, tmp_path / "design", cluster=cluster.scheduler_address, gap=0.9)
    assert made.objective == expected.objective
    assert made.lower_bound == pytest.approx(expected.lower_bound, rel=1e-12)
    assert made.sent["halo bytes"] < expected.sent["halo bytes"]  # what was known was not sent
    found = tasks.verify(tmp_path / "design", graph, cluster=cluster.scheduler_address)
    assert found.ok, found


@pytest.mark.slow
def test_wrong_parts_and_too_few_workers_are_told(cluster: Any, tmp_path: Path) -> None:
    graph = stored(tmp_path / "graph")
    address = cluster.scheduler_address
    (graph / "edges-00001.parquet").write_bytes(b"PAR1 damaged")
    with pytest.raises(InputError, match=r"the file that parts\.json names"):
        tasks.solve(graph, tmp_path / "design", cluster=address)
    graph_of_three = nd.build_graph("ring", nodes=9)
    tasks.store(nd.SpaceProblem.from_graph(graph_of_three), tmp_path / "three", parts=3)
    with pytest.raises(InputError, match="3 workers, one a part"):
        tasks.solve(tmp_path / "three", tmp_path / "design", cluster=address)


def test_no_scheduler_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from noisedesign.distributed import cluster as clusters

    monkeypatch.setattr(clusters, "PATIENCE", 0.3)
    with pytest.raises(InputError, match="a scheduler that answers"):
        tasks.solve(stored(tmp_path / "g"), tmp_path / "d", cluster="tcp://127.0.0.1:1")
    assert threading.active_count() < 100


KILLED = """
import os, signal, sys
from noisedesign.distributed import tasks
graph, design, address = sys.argv[1:]
def kill(stage):
    if stage.startswith("improving"):
        os.kill(os.getpid(), signal.SIGKILL)
tasks.solve(graph, design, cluster=address, gap=0.9, tell=kill)
"""


def abandoned_soon() -> None:
    """On a worker: parts end soon after their client."""
    from noisedesign.distributed import mail

    mail.ABANDONED = 2.0


def at_work() -> bool:
    """On a worker: whether a thread of it does the work of a part."""
    frames = [inspect.getouterframes(frame) for frame in sys._current_frames().values()]
    return any(Path(one.filename).match("distributed/work.py") for of in frames for one in of)


@pytest.mark.slow
def test_parts_whose_client_was_killed_end(cluster: Any, tmp_path: Path) -> None:
    cluster.known.run(abandoned_soon)
    graph, design = stored(tmp_path / "graph", nodes=6000), tmp_path / "design"
    told = [sys.executable, "-c", KILLED, str(graph), str(design), cluster.scheduler_address]
    assert subprocess.run(told, check=False).returncode == -signal.SIGKILL
    assert any(cluster.known.run(at_work).values())  # waiting for letters that do not arrive
    latest = time.monotonic() + 60  # a tenth of the silence that parts bear
    while any(cluster.known.run(at_work).values()):
        assert time.monotonic() < latest
        time.sleep(0.5)
    assert not list(design.glob("noise-*"))
