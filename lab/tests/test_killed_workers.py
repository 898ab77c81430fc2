"""Real schedulers and workers, killed while reproduce, train and check-results are at work: what
was finished is there, and what was lost is computed again or named."""

from __future__ import annotations

import csv
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure

import noisedesign as nd
from noisedesign.base import cluster as clustering
from noisedesign.surveys.check_results import check_results
from noisedesign_lab.papers import reproduce as registry
from noisedesign_lab.papers.reproduce.experiment import Experiment, Settings
from noisedesign_lab.papers.reproduce.run import ROWS, reproduce
from noisedesign_lab.papers.reproduce.statistics import over_seeds
from noisedesign_lab.tasks.table import train
from tests.support.clusters import Processes, deadly_rows, processes
from tests.support.command_line import MODULE, environment, hear_ctrl_c

pytestmark = pytest.mark.slow

UNITS = 8
TASK = """
name = "slow"
mechanisms = ["none", "ldp", "kronecker"]
seeds = 6
[graph]
kind = "ring"
nodes = 8
[participation]
epochs = 4
separation = 50
[data]
kind = "gaussian"
records = 40000
features = 20
[loss]
kind = "quadratic"
[training]
record_every = 50
[privacy]
epsilons = [1.0, 4.0]
"""
PROBLEMS = ("ring-10", "star-10", "complete-40-capped", "prefix-min-separation-18")


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Processes]:
    """Two workers whose nannies begin others in their places."""
    with processes(tmp_path_factory.mktemp("two")) as running:
        yield running


def killing(cluster: Processes, at: int) -> tuple[list[int], Callable[[int, int], None]]:
    """Progress that kills a worker once so much is done, and says so in a list."""
    killed: list[int] = []

    def progress(done: int, total: int) -> None:
        if not killed and done >= at:
            assert done < total
            cluster.kill_one()
            killed.append(done)

    return killed, progress


def lines(path: Path) -> list[str]:
    return sorted(path.read_text().splitlines())


# --- the same as two processes of this machine, in all digits -------------------------------------


def test_training_is_the_same(two: Processes, tmp_path: Path) -> None:
    task = tmp_path / "task.toml"
    task.write_text(TASK)
    killed, progress = killing(two, at=1)
    train(task, output=tmp_path / "cluster.csv", cluster=two.address, progress=progress)
    assert len(killed) == 1
    train(task, output=tmp_path / "jobs.csv", jobs=2)
    assert lines(tmp_path / "cluster.csv") == lines(tmp_path / "jobs.csv")
    assert len(lines(tmp_path / "jobs.csv")) == 1 + 5 * 6 * 5  # lanes, seeds and recorded steps


def test_an_experiment_is_the_same(two: Processes, tmp_path: Path) -> None:
    killed, progress = killing(two, at=2)
    how: Any = {"quick": True}
    reproduce("gossip", tmp_path / "cluster", cluster=two.address, progress=progress, **how)
    assert len(killed) == 1
    reproduce("gossip", tmp_path / "jobs", jobs=2, **how)
    for name in (ROWS, "summary.csv", "growth.csv"):
        assert lines(tmp_path / "cluster" / name) == lines(tmp_path / "jobs" / name)


def test_verdicts_are_the_same(two: Processes, tmp_path: Path) -> None:
    rows = []
    for name in PROBLEMS:
        found = nd.solve(nd.load(f"collection/{name}").problem).design
        assert found is not None
        nd.save(found, tmp_path / f"{name}.npz")
        rows.append((f"collection/{name}", "ours", 1.0, f"{name}.npz"))
    with (tmp_path / "runs.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("problem", "solver", "seconds", "answer"), *rows])
    killed, progress = killing(two, at=1)
    how: Any = {"problems": [name for name, *_ in rows], "seed": 3}
    there = check_results(tmp_path / "runs.csv", cluster=two.address, progress=progress, **how)
    assert len(killed) == 1
    assert there.rows == check_results(tmp_path / "runs.csv", jobs=2, **how).rows
    assert [row["status"] for row in there.rows] == ["verified"] * len(PROBLEMS)


# --- who is lost, and what of it ------------------------------------------------------------------


class Rule(Settings):
    losses: list[float]
    deadly: float


RULE = Experiment(
    title="A rule",
    settings=Rule,
    columns={"mechanism": str, "epsilon": float, "test_loss": float},
    units=lambda settings: [
        {"loss": loss, "deadly": loss == settings.deadly} for loss in settings.losses
    ],
    run=deadly_rows,
    summary=lambda rows, _: over_seeds([{**row, "setting": "", "accuracy": None} for row in rows]),
    pictures=lambda *_: {"nothing": Figure()},
    paragraph=lambda *_: "Nothing.",
)


@pytest.fixture
def rule(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Eight units that take a moment each; none is deadly."""
    monkeypatch.setattr(registry, "named", lambda _: RULE)
    path = tmp_path / "rule.toml"
    losses = [float(k) for k in range(1, UNITS + 1)]
    path.write_text(f'experiment = "gossip"\ndescription = "x"\nlosses = {losses}\ndeadly = 0.0\n')
    return path


def rows(folder: Path) -> list[tuple[float, float]]:
    with (folder / ROWS).open(newline="") as file:
        return sorted(
            (float(row["epsilon"]), float(row["test_loss"])) for row in csv.DictReader(file)
        )


def of(losses: range) -> list[tuple[float, float]]:
    return [(float(loss), loss / 3) for loss in losses]


def test_a_worker_is_killed_and_another_started_by_hand(rule: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with processes(tmp_path / "one", workers=1, options=("--no-nanny",)) as one:

        def progress(done: int, total: int) -> None:
            if done == 2 and len(one.running) == 2:
                one.running[-1].kill()
                kept.append((out / ROWS).read_bytes())
                one.worker("--no-nanny")

        kept: list[bytes] = []
        reproduce(rule, out, cluster=one.address, progress=progress)
    assert len(kept) == 1
    assert (out / ROWS).read_bytes().startswith(kept[0])
    assert rows(out) == of(range(1, UNITS + 1))


def test_a_unit_that_ends_every_worker_is_named_and_the_others_are_there(
    rule: Path, tmp_path: Path
) -> None:
    out, text = tmp_path / "out", rule.read_text()
    rule.write_text(text.replace("deadly = 0.0", "deadly = 3.0"))
    once = {"DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "0"}
    with processes(tmp_path / "two", **once) as two:
        with pytest.raises(OSError, match=r'unit \{"loss": 3\.0, "deadly": true\} ended every'):
            reproduce(rule, out, cluster=two.address)
        assert rows(out) == [one for one in of(range(1, UNITS + 1)) if one[0] != 3.0]
        rule.write_text(text)
        counts: list[int] = []
        reproduce(rule, out, cluster=two.address, progress=lambda done, _: counts.append(done))
    assert counts == [UNITS - 1, UNITS]
    assert rows(out) == of(range(1, UNITS + 1))


@pytest.mark.parametrize("lost", ["scheduler", "worker"])
def test_a_cluster_that_is_lost_is_an_error_and_the_next_goes_on(
    lost: str, rule: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clustering, "LONELY_SECONDS", 1.0)
    out, kept = tmp_path / "out", list[bytes]()
    with processes(tmp_path / "first", workers=1, options=("--no-nanny",)) as first:

        def progress(done: int, total: int) -> None:
            if done == 2:
                first.running[0 if lost == "scheduler" else 1].kill()
                kept.append((out / ROWS).read_bytes())

        told = {"scheduler": "the cluster was lost", "worker": "no worker for 1 s; start some"}
        with pytest.raises(OSError, match=told[lost]):
            reproduce(rule, out, cluster=first.address, timeout=1.0, progress=progress)
    found = rows(out)
    assert 2 <= len(found) < UNITS
    with processes(tmp_path / "second", workers=1) as second:
        counts: list[int] = []
        reproduce(rule, out, cluster=second.address, progress=lambda done, _: counts.append(done))
    assert counts[0] == len(found)
    assert (out / ROWS).read_bytes().startswith(kept[0])
    assert rows(out) == of(range(1, UNITS + 1))


@pytest.mark.skipif(sys.platform == "win32", reason="there Ctrl-C is no signal to one process")
def test_ctrl_c_leaves_the_workers_with_nothing_to_do(two: Processes, tmp_path: Path) -> None:
    task, output = tmp_path / "task.toml", tmp_path / "rows.csv"
    task.write_text(TASK.replace("seeds = 6", "seeds = 200"))
    command = [*MODULE, "train", str(task), "-o", str(output), "--cluster", two.address]
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, env=environment(), stdout=pipe, stderr=pipe, text=True, preexec_fn=hear_ctrl_c
    ) as running:
        while not output.exists() or len(lines(output)) < 2:
            assert running.poll() is None
            time.sleep(0.05)
        running.send_signal(signal.SIGINT)
        out, err = running.communicate()
    assert (running.returncode, out) == (130, "")
    assert err.strip() == "noisedesign: error: interrupted; what was finished has been written"
    with two.client() as client:
        tasks = client.run_on_scheduler(lambda dask_scheduler: len(dask_scheduler.tasks))
    assert tasks == 0
    assert len(lines(output)) > 1
