"""A secret serves one node, one design and one run, and a step of it one sum of gradients."""

from __future__ import annotations

import gc
import json
import multiprocessing
import os
import signal
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import noisedesign as nd
from noisedesign.adapters.run import Run
from noisedesign.base.checks import InputError
from noisedesign.noise import (
    IntegerNoise,
    NodeNoise,
    Plan,
    Record,
    Rule,
    Secret,
    integer_noise,
    noise,
)
from noisedesign.noise.record import Uses, default_path
from tests.support import ROOT, noise_plans
from tests.support.noise_plans import HORIZON, SECRET, SEEDS, drawn

PLANS = noise_plans.plans()
BANDED = PLANS["banded"]
OTHER = Secret(bytes(range(1, 33)))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "folder" / "records.sqlite3"


def started(path: Path, plan: Plan = BANDED, **kwargs: Any) -> NodeNoise:
    kwargs = {"secret": SECRET} | kwargs
    return noise(plan, seeds=seeds_of(plan), record=path, **kwargs)


def seeds_of(plan: Plan) -> dict[str, Secret]:
    return {s.name: SEEDS[s.name] for s in plan.streams if s.source == "shared"}


ONE = 2.0**-7
"""Small, so that sums of nine or fifty thousand are within the clip."""


def data(value: float = 1.0) -> list[np.ndarray]:
    value *= ONE
    return [np.full(5, value), np.full((2, 2), value, dtype=np.float32)]


# --- one run ----------------------------------------------------------------------------------


def test_nothing_is_used_up_before_it_is_drawn(path: Path) -> None:
    started(path)
    started(path).step(0, 3)


@pytest.mark.parametrize("begin", ["step", "add_"])
def test_a_second_run_is_refused(begin: str, path: Path) -> None:
    source, said = started(path), "was drawn"
    if begin == "step":
        source.step(2, 3)
    else:
        source.add_(data(), 0)
        source.add_(data(), 3)
        said = "was added up to step 3"
    with pytest.raises(
        InputError,
        match=f"secret: expected one that no run has used, got one whose noise {said}. "
        "Go on with that run by resume=True. For another run: Draw a new one: Secret.new()",
    ):
        started(path)
    started(path, secret=OTHER).step(2, 3)


def test_two_runs_at_once(path: Path) -> None:
    """Both were there before either drew: the first to draw has the secret."""
    one, other = started(path), started(path)
    one.add_(data(), 0)
    sums = data(2.0)
    for use in (lambda: other.step(1, 3), lambda: other.add_(sums, 1)):
        with pytest.raises(InputError, match="secret: expected one that no other run uses"):
            use()
    np.testing.assert_array_equal(sums[0], 2 * ONE)
    assert other.next_step == 0
    one.add_(data(), 1)


def test_who_goes_on_with_a_run_takes_it_over(path: Path) -> None:
    one = started(path)
    one.add_(data(), 0)
    started(path, resume=True).add_(data(), 1)
    with pytest.raises(InputError, match="another process draws from, .* up to step 1. Stop one"):
        one.add_(data(), 2)


def test_whose_run_was_taken_over_draws_no_more(path: Path) -> None:
    one = started(path)
    one.step(0, 3)
    started(path, resume=True).step(1, 3)
    with pytest.raises(InputError, match="another process draws from, .* Stop one of them"):
        one.step(1, 3)


def test_going_on_with_what_was_announced_and_drew_nothing(path: Path) -> None:
    """As where a run begins once, and every process goes on with it."""
    started(path)
    started(path, resume=True).add_(data(), 0)
    with pytest.raises(InputError, match="no run has used"):
        started(path)


# --- one node, one design ---------------------------------------------------------------------


@pytest.mark.parametrize("resume", [False, True])
def test_the_secret_of_another_node(resume: bool, path: Path) -> None:
    started(path)
    with pytest.raises(InputError, match="secret: expected a secret of node 3 alone, got that of"):
        started(path, replace(BANDED, node=3), resume=resume)


@pytest.mark.parametrize("resume", [False, True])
def test_the_secret_of_another_design(resume: bool, path: Path) -> None:
    started(path)
    other = replace(BANDED, digest="6" * 64)
    with pytest.raises(InputError, match="a secret of this design alone, got one that served"):
        started(path, other, resume=resume)


def test_a_seed_serves_all_who_share_it_and_nobody_else(path: Path) -> None:
    shared = replace(PLANS["seeds"], streams=PLANS["seeds"].streams[:1])
    started(path, shared, secret=None).add_(data(), 0)
    partner = replace(shared, node=1)
    started(path, partner, secret=None).add_(data(7.0), 0)  # its own gradients
    with pytest.raises(InputError, match="secret: expected a secret of node 2 alone|secret for"):
        started(path, BANDED, secret=SEEDS["a"])
    with pytest.raises(InputError, match="secret: expected"):
        started(path, replace(BANDED, node=3), secret=SEEDS["a"])


def test_a_dealers_secret_serves_all_nodes(path: Path) -> None:
    started(path, PLANS["full"]).add_(data(), 0)
    started(path, replace(PLANS["full"], node=0)).add_(data(3.0), 0)
    with pytest.raises(InputError, match="secret: expected a secret"):
        started(path, replace(BANDED, node=1))


# --- one sum a step ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "other",
    [
        [np.full(5, ONE + 2.0**-59), data()[1]],
        [data()[0], data()[1].astype(np.float64)],
        data()[::-1],
        [data()[0], data()[1] * np.array([[1, 1], [1, 2]], dtype=np.float32)],
        [np.full(9, ONE)],
        [-data()[0], data()[1]],
    ],
)
def test_other_data_at_a_step_that_was_used(other: list[np.ndarray], path: Path) -> None:
    started(path).add_(data(), 2)
    source = started(path, resume=True)
    before = [array.copy() for array in other]
    with pytest.raises(
        InputError, match="step: expected noise of every step .* got other data at step 2"
    ):
        source.add_(other, 2)
    for array, copy in zip(other, before, strict=True):
        np.testing.assert_array_equal(array, copy)


def test_the_same_data_again_gets_the_same_noise(path: Path) -> None:
    """As after a crash between the record and the checkpoint."""
    first, again = data(), data()
    started(path).add_(first, 2)
    started(path, resume=True).add_(again, 2)
    for one, other in zip(first, again, strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_model_of_another_size(path: Path) -> None:
    source = started(path)
    source.add_(data(), 0)
    with pytest.raises(InputError, match="parameters: expected 9 numbers, as in the steps before"):
        source.add_([np.full(10, ONE)], 1)
    with pytest.raises(InputError, match="parameters: expected 9 numbers"):
        started(path, resume=True).add_([np.full(8, ONE)], 1)
    started(path, resume=True).add_([np.full(9, ONE)], 1)


@pytest.mark.parametrize("make", [noise, integer_noise])
def test_a_run_goes_on_with_its_own_secret(make: Any, path: Path) -> None:
    """With a new one, noise of later steps would take back what no step before has had."""
    with pytest.raises(InputError, match="secret: expected that of the run that goes on, got none"):
        make(BANDED, record=path, resume=True)


def test_a_run_goes_on_with_all_its_secrets(path: Path) -> None:
    plan = PLANS["seeds, banded"]
    running = started(path, plan)
    running.add_(data(), 0)
    with pytest.raises(InputError, match="secret: expected the secrets of the run that goes on"):
        started(path, plan, secret=OTHER, resume=True)
    running.add_(data(), 1)  # it was not taken over
    assert started(path, plan, resume=True).steps == {0, 1}


def test_secrets_of_two_runs_of_one_node_are_not_mixed(path: Path) -> None:
    """All of them are known, of the same node and design, and served other steps."""
    plan = PLANS["seeds, banded"]
    first = started(path, plan)
    first.add_(data(), 0)
    first.add_(data(), 1)
    others = {name: Secret.new() for name in seeds_of(plan)}
    noise(plan, secret=OTHER, seeds=others, record=path).add_(data(), 0)
    for secret, seeds in ((OTHER, seeds_of(plan)), (SECRET, others)):
        with pytest.raises(InputError, match="secret: .*got some that served other steps than"):
            noise(plan, secret=secret, seeds=seeds, record=path, resume=True)
    assert noise(plan, secret=OTHER, seeds=others, record=path, resume=True).steps == {0}
    assert started(path, plan, resume=True).steps == {0, 1}


def test_who_reads_the_record_learns_no_secret_and_cannot_try_data(path: Path) -> None:
    started(path).add_(data(), 0)
    content = path.read_bytes()
    assert SECRET.value not in content
    assert SECRET.value.hex().encode() not in content
    with sqlite3.connect(path) as database:
        ((kept,),) = database.execute("SELECT data FROM steps").fetchall()
    other = started(path.with_name("other"), secret=OTHER)
    other.add_(data(), 0)
    with sqlite3.connect(other._uses.record.path) as database:
        ((keyed,),) = database.execute("SELECT data FROM steps").fetchall()
    assert len(kept) == len(keyed) == 16
    assert kept != keyed


# --- who took part ----------------------------------------------------------------------------

TWICE = Rule(most=2, min_sep=3)
SPACED = replace(BANDED, claim=replace(BANDED.claim, rule=TWICE))


def test_who_took_part_is_known_after_a_restart(path: Path) -> None:
    """By what was told with the sums, or before them; numbers, words, and an empty batch."""
    source = started(path, SPACED)
    source.add_(data(), 0, records=[7, "ann", (1, "b")])
    source.attendance().check(np.array([8]), 1)
    source.attendance().check([9], 1)
    source.add_(data(), 1)
    source.add_([np.zeros(5), np.zeros((2, 2), dtype=np.float32)], 2, records=[])
    source.attendance().check([], 5)
    again = started(path, SPACED, resume=True)
    assert again.next_step == 3
    attendance = again.attendance()
    assert [attendance.number(t) for t in range(6)] == [3, 2, 0, None, None, 0]
    for record, t in ((7, 2), (np.int64(7), 1), ("ann", 2), ((1, "b"), 1), (8, 3), (9.0, 2)):
        with pytest.raises(InputError, match="in steps ., ., less than 3 apart"):
            again.add_(data(), t, records=[record])
        with pytest.raises(InputError, match="in steps ., ., less than 3 apart"):
            attendance.check([record], t)
    again.add_(data(), 3, records=[7, "ann"])
    third = started(path, SPACED, resume=True)
    with pytest.raises(InputError, match="record 7 3 times, where the design is for 2"):
        third.attendance().check([7], 6)
    third.attendance().check([8], 6)
    third.add_(data(), 1, records=[8, 9])  # the same step again


def test_noise_in_integers_knows_who_took_part(path: Path) -> None:
    def made(resume: bool) -> IntegerNoise:
        return integer_noise(SPACED, secret=SECRET, record=path, resume=resume)

    made(False).release([np.array([[0.25], [0.5]])], 0, records=["ann", "bob"])
    with pytest.raises(InputError, match="record 'bob' in steps 0, 2, less than 3 apart"):
        made(True).release([np.array([[0.25]])], 2, records=["bob"])


def test_who_is_in_the_sums_is_said_of_every_step_or_of_none(path: Path) -> None:
    source = started(path, SPACED)
    source.add_(data(), 0)
    for how in ({}, {"resume": True}):
        if how:
            source = started(path, SPACED, **how)
        with pytest.raises(InputError, match="records: expected who is in the sum of step 0"):
            source.add_(data(), 1, records=[7])
        source.attendance().check([7], 1)
        with pytest.raises(InputError, match="records: expected who is in the sum of step 0"):
            source.add_(data(), 1)
    source.attendance().check([8], 0)
    source.add_(data(), 1)
    for made in (source, started(path, SPACED, resume=True)):
        for told in (None, 3):
            with pytest.raises(InputError, match="records: expected who is in the sum of step 2"):
                made.add_(data(), 2, records=told)
    assert source.steps == {0, 1}


def test_a_checkpoint_adds_to_who_is_known(path: Path) -> None:
    """An older one takes nobody back; one without a record says it all."""
    source = started(path, SPACED)
    source.add_(data(), 0, records=[7])
    older = json.loads(json.dumps(source.attendance().state_dict()))
    source.add_(data(), 1, records=[8])
    newer = json.loads(json.dumps(source.attendance().state_dict()))
    for made in (source, started(path, SPACED, resume=True)):
        made.attendance().load_state_dict(older)
        with pytest.raises(InputError, match="record 8 in steps 1, 2"):
            made.attendance().check([8], 2)
    unkept = noise(SPACED, secret=SECRET, record=False)
    unkept.attendance().load_state_dict(newer)
    assert unkept.attendance().told == {0, 1}
    with pytest.raises(InputError, match="record 8 in steps 1, 2"):
        unkept.add_(data(), 2, records=[8])
    named = {"steps": [[7, [0]], ["8", [1]]]}  # as checkpoints once had them
    first = noise(SPACED, secret=OTHER, record=path)
    first.attendance().load_state_dict(named)
    for made in (first, noise(SPACED, secret=OTHER, record=path, resume=True)):
        with pytest.raises(InputError, match="record '8' in steps 1, 2"):
            made.attendance().check(["8"], 2)


def test_who_reads_the_record_cannot_try_names(path: Path) -> None:
    started(path, SPACED).add_(data(), 0, records=["alice@example.org", 1234567])
    content = path.read_bytes()
    assert b"alice" not in content
    assert b"1234567" not in content
    state = json.dumps(started(path, SPACED, resume=True).attendance().state_dict())
    assert "alice" not in state
    with sqlite3.connect(path) as database:
        ((kept,),) = database.execute("SELECT who FROM attendance").fetchall()
    other = noise(SPACED, secret=OTHER, record=path)
    other.add_(data(), 0, records=["alice@example.org", 1234567])
    with sqlite3.connect(path) as database:
        found = {who for (who,) in database.execute("SELECT who FROM attendance")}
    assert len(kept) == 32
    assert len(found) == 2
    assert not {who[:16] for who in found} & {who[16:] for who in found}


def test_who_took_part_belongs_to_the_run(path: Path) -> None:
    one = started(path, SPACED)
    one.add_(data(), 0, records=[7])
    started(path, SPACED, resume=True)
    with pytest.raises(InputError, match="one that another process draws from"):
        one.attendance().check([8], 1)


def test_records_of_the_version_before_know_no_attendance(path: Path) -> None:
    """So that who took part has to be told, as of a checkpoint."""
    source = started(path, SPACED)
    source.add_(data(), 0, records=[7])
    state = source.attendance().state_dict()
    with sqlite3.connect(path) as database:
        database.executescript("DROP TABLE attendance; DROP TABLE batches; PRAGMA user_version = 1")
    again = started(path, SPACED, resume=True)
    assert again.next_step == 1
    with pytest.raises(InputError, match="records: expected who is in the sum of step 0"):
        again.add_(data(), 1, records=[7])
    again.attendance().load_state_dict(state)
    with pytest.raises(InputError, match="record 7 in steps 0, 1"):
        again.add_(data(), 1, records=[7])
    again.add_(data(), 1, records=[8])


# --- a run that goes on -----------------------------------------------------------------------


def test_the_next_step_is_that_of_the_record(path: Path) -> None:
    started(path).step(3, 2)
    assert started(path, resume=True).next_step == 0
    source = started(path, resume=True)
    for t in (0, 1, 4):
        source.add_(data(), t)
    assert source.next_step == started(path, resume=True).next_step == 5


def test_a_record_that_does_not_know_the_run_is_no_record_of_it(path: Path) -> None:
    """Lost, empty, another one, or none: else the same noise would hide other data."""
    source = started(path)
    source.add_(data(), 0)
    state = source.state_dict()
    said = "record: expected a record in .* of the run that goes on, got one that does not know it"
    for other in (path.with_name("other"), path):
        if other == path:
            path.unlink()
        with pytest.raises(InputError, match=said):
            started(other, resume=True)
    with pytest.raises(InputError, match="record: expected the record of the run .* got none"):
        noise(BANDED, secret=SECRET, record=False, resume=True)
    begun = started(path)  # nobody can see that it once was
    with pytest.raises(InputError, match="record: expected step 0 among those whose noise was"):
        begun.load_state_dict(state)


def test_a_run_that_is_known_in_part_does_not_go_on(path: Path) -> None:
    plan = PLANS["seeds, banded"]
    started(path, plan).step(0, 3)
    with pytest.raises(InputError, match="secret: expected the secrets of the run that goes on"):
        started(path, plan, secret=OTHER, resume=True)
    with sqlite3.connect(path) as database:
        kept = database.execute("SELECT count(*), count(DISTINCT run) FROM uses").fetchone()
    assert kept == (3, 1)  # nothing of it was written


# --- processes --------------------------------------------------------------------------------


def draws_a_step(where: tuple[Path, int]) -> str:
    path, value = where
    try:
        source = started(path)
        source.add_(data(float(value)), 0)
    except InputError as error:
        return error.field
    return "drawn"


def test_of_many_processes_one_draws(path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(3, mp_context=context) as pool:
        found = sorted(pool.map(draws_a_step, [(path, value) for value in range(6)]))
    assert found == ["drawn"] + ["secret"] * 5


def in_a_fork(use: Any) -> str:
    """What it is refused for there."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:  # pragma: no cover
        try:
            use()
            said = "taken"
        except InputError as error:
            said = f"{error}"
        os.write(writer, said.encode())
        os._exit(0)
    os.waitpid(child, 0)
    os.close(writer)
    with os.fdopen(reader, encoding="utf-8") as stream:
        return stream.read()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
@pytest.mark.parametrize("recorded", [True, False])
def test_a_fork_is_no_second_process_of_the_run(recorded: bool, path: Path) -> None:
    """Neither draws what the other draws, nor has records take part unseen."""
    source = noise(SPACED, secret=SECRET, record=path if recorded else False)
    source.add_(data(), 0, records=[1])
    source.step(1, 2)
    attendance, run = source.attendance(), Run(source)
    integers = integer_noise(SPACED, secret=OTHER, record=False)
    for use in (
        lambda: source.step(1, 2),
        lambda: source.add_(data(), 1, records=[7]),
        lambda: attendance.check([7], 1),
        lambda: run.add_(data(), records=[7]),
        lambda: run.skip([7]),
        lambda: integers.release([np.array([1])], 0),
    ):
        assert in_a_fork(use).startswith("noise: expected the process that made it, ")
    source.add_(data(), 2, records=[7])
    with pytest.raises(InputError, match="record 7 in steps 1, 2"):
        attendance.check([7], 1)


def test_a_claim_holds_the_record_until_it_is_written(path: Path) -> None:
    """Else two processes would both find a secret that nobody has used."""
    record, begun = Record(path), []

    class Watched(Record):
        @contextmanager
        def _open(self) -> Iterator[sqlite3.Connection]:
            with super()._open() as database:
                database.set_trace_callback(begun.append)
                yield database

    watched = Watched(path)
    uses = Uses(watched, ("s",), 2)
    for ask in (
        lambda: uses.claim({"s": ("own", False)}, digest=BANDED.digest, resume=False),
        lambda: uses.begin(),
        lambda: uses.use(0, data=b"d", dimension=1, who=None),
        lambda: uses.attend(0, b""),
    ):
        begun.clear()
        ask()
        assert begun[0] == "BEGIN IMMEDIATE"
    assert record.steps(secret="s", node=2) == {0}


RUN = """
import json, sys
import numpy as np
from pathlib import Path
from noisedesign.noise import Plan, noise
folder, stop = Path(sys.argv[1]), int(sys.argv[2])
plan, secret = folder / "node.plan", folder / "secret"
kept, record = folder / "checkpoint.npz", folder / "record"
source = noise(plan, secret=secret, record=record, resume=record.exists())
start, model = 0, np.zeros(50_000, dtype=np.float32)
if kept.exists():
    found = np.load(kept)
    start, model = int(found["step"]), found["model"]
    source.load_state_dict(json.loads(str(found["state"])))
    assert source.next_step == start
for t in range(start, source.plan.horizon):
    sums = np.full(50_000, t / 2**16, dtype=np.float32)
    source.add_([sums[:7], sums[7:]], t)
    if t == stop:
        print("added", flush=True)
        sys.stdin.read()  # killed here, with the step recorded and no checkpoint of it
    model += sums
    np.savez(folder / "new.npz", step=t + 1, model=model, state=json.dumps(source.state_dict()))
    (folder / "new.npz").replace(kept)
print("done", flush=True)
"""


@pytest.mark.skipif(os.name != "posix", reason="SIGKILL is of POSIX")
@pytest.mark.parametrize("name", ["banded", "blt"])
def test_a_run_that_was_killed_goes_on_with_the_same_noise(name: str, tmp_path: Path) -> None:
    """Killed twice, after the noise of steps 2 and 4 was added and before it was kept."""
    plan = PLANS[name]
    plan.save(tmp_path / "node.plan")
    SECRET.save(tmp_path / "secret")

    def run(stop: int) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-c", RUN, str(tmp_path), str(stop)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
        )

    for stop in (2, 4):
        with run(stop) as process:
            assert process.stdout.readline() == "added\n"
            process.send_signal(signal.SIGKILL)
            assert process.wait() == -signal.SIGKILL
    with run(-1) as process:
        assert process.communicate()[0] == "done\n"
    straight, model = drawn(plan), np.zeros(50_000, dtype=np.float32)
    for t in range(HORIZON):
        model += np.float32(t / 2**16) + straight.step(t, 50_000, dtype=np.float32)
    np.testing.assert_array_equal(np.load(tmp_path / "checkpoint.npz")["model"], model)


# --- the file ---------------------------------------------------------------------------------


def test_where_the_record_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOISEDESIGN_RECORDS", str(tmp_path / "named"))
    assert default_path() == tmp_path / "named"
    noise(BANDED, secret=SECRET).step(0, 1)
    assert (tmp_path / "named").is_file()
    monkeypatch.delenv("NOISEDESIGN_RECORDS")
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    assert default_path() == tmp_path / "state" / "noisedesign" / "records.sqlite3"
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    expected = tmp_path / ".local" / "state" / "noisedesign" / "records.sqlite3"
    assert default_path() == expected
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path / "local"))
    assert default_path() == tmp_path / "local" / "noisedesign" / "records.sqlite3"


def test_without_a_record_nothing_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOISEDESIGN_RECORDS", str(tmp_path / "named"))
    for _ in range(2):
        noise(BANDED, secret=SECRET, record=False).add_(data(), 0)
    assert not (tmp_path / "named").exists()


def garbage(path: Path) -> None:
    path.write_bytes(b"no database at all" * 100)


def cut(path: Path) -> None:
    started(path).add_(data(), 0)
    gc.collect()  # nobody has it open
    path.write_bytes(path.read_bytes()[:5000])


def folder(path: Path) -> None:
    path.mkdir()


@pytest.mark.parametrize("damage", [garbage, cut, folder])
def test_a_record_that_is_damaged(damage: Any, tmp_path: Path) -> None:
    path = tmp_path / "record"
    damage(path)
    with pytest.raises(InputError, match=r"record: expected a record of what was drawn at .* got"):
        started(path).step(0, 1)


def test_a_record_of_a_later_version(path: Path) -> None:
    started(path).step(0, 1)
    with sqlite3.connect(path) as database:
        database.execute("PRAGMA user_version = 4")
    with pytest.raises(InputError, match="record: expected version 3 in .*, got version 4"):
        started(path, resume=True)


@pytest.mark.skipif(
    os.name != "posix" or getattr(os, "geteuid", int)() == 0, reason="root may write anywhere"
)
def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    tmp_path.chmod(stat.S_IRUSR | stat.S_IXUSR)
    try:
        with pytest.raises(InputError, match="record: expected .* Name another file in NOISEDES"):
            started(tmp_path / "new" / "record")
        with pytest.raises(InputError, match="record: expected"):
            started(tmp_path / "record")
    finally:
        tmp_path.chmod(stat.S_IRWXU)


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="there is no /proc")
def test_a_folder_that_nobody_can_write() -> None:
    with pytest.raises(InputError, match="record: expected .* Name another file in NOISEDESIGN"):
        started(Path("/proc/folder/record"))


def test_a_folder_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="record: expected a record of what was drawn"):
        started(tmp_path / "file" / "record")


@pytest.mark.parametrize("again", [False, True])
def test_a_record_that_went_away(again: bool, path: Path) -> None:
    """A run does not go on as if nothing had been drawn."""
    source = started(path)
    source.add_(data(), 0)
    path.unlink()
    if again:
        Record(path)
    sums = data()
    with pytest.raises(InputError, match=r"^record: expected"):
        source.add_(sums, 1)
    np.testing.assert_array_equal(sums[0], ONE)


def test_nodes_are_named_where_a_design_has_names(path: Path) -> None:
    design, secret = nd.baseline(named_problem(), "ldp"), Secret.new()
    use: Any = {"secret": secret, "record": path, "clip": 1.0}
    state = noise(design, node="Ann", **use).state_dict()
    assert type(state["node"]) is int  # torch.load takes no other class of a checkpoint
    with pytest.raises(InputError, match="a secret of node Bob alone, got that of node Ann"):
        noise(design, node="Bob", **use)
    with pytest.raises(InputError, match="node: expected one of the 2 nodes Ann, Bob, got nothing"):
        noise(design, **use)
    plan = design.node_plan("Bob")  # a file, which knows no other node's name
    with pytest.raises(InputError, match="a secret of node 1 alone, got that of node 0"):
        noise(plan, **use)


def named_problem() -> nd.SpaceProblem:
    target = nd.PrivacyTarget(epsilon=1.0, clip=1.0, steps=2)
    w = np.full((2, 2), 0.5)
    return nd.SpaceProblem(mixing=w, nodes=("Ann", "Bob"), privacy=target)
