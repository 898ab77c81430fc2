"""Steps that are claimed together: nothing is lost with a process, and nothing drawn twice."""

from __future__ import annotations

import gc
import os
import signal
import sqlite3
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from noisedesign.base.checks import InputError
from noisedesign.noise import NodeNoise, Plan, Record, Rule, Secret, claims, noise
from noisedesign.noise.claims import Entry
from noisedesign.noise.filters import Fresh
from noisedesign.noise.record import Uses
from tests.support import ROOT, noise_plans
from tests.support.noise_plans import SECRET

BANDED = noise_plans.plans()["banded"]
CLAIM = replace(BANDED.claim, rule=Rule(most=2, min_sep=3))
LONG = replace(BANDED, filter=Fresh(), horizon=2048, claim=CLAIM)
"""Long enough for claims of 64 steps."""

pytestmark = pytest.mark.skipif(claims.boot() is None, reason="needs the boot's identity of Linux")


def started(path: Path, plan: Plan = LONG, **kwargs: Any) -> NodeNoise:
    return noise(plan, secret=SECRET, record=path, **kwargs)


def data(value: float = 1.0) -> list[np.ndarray]:
    return [np.full(3, 2.0**-7 * value, dtype=np.float32)]


def logs(path: Path) -> list[Path]:
    return list(path.parent.glob(f"{path.name}-*.log"))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "records"


def another_boot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claims, "boot", lambda: "another boot")


@pytest.mark.parametrize(
    ("horizon", "steps"), [(1, 1), (31, 1), (32, 2), (1023, 63), (1024, 64), (2**53, 64)]
)
def test_a_claim_is_a_small_part_of_a_run(horizon: int, steps: int) -> None:
    assert claims.steps_of_a_claim(horizon) == steps


def test_transactions_of_a_run(path: Path) -> None:
    """One for every 64 steps, with one for the first word and one for what is said to the end."""
    source, begun = started(path), []
    with source._uses.record._open() as database:
        database.set_trace_callback(lambda said: begun.append(said))
    for t in range(128):
        source.add_(data(), t, records=[t])
        source.step(t, 3)
    assert sum(said.startswith("BEGIN IMMEDIATE") for said in begun) == 2
    begun.clear()
    source.add_(data(), 128, records=[128])
    assert sum(said.startswith("BEGIN IMMEDIATE") for said in begun) == 1
    assert len(logs(path)) == 1


def test_transactions_are_on_disk_when_they_end(path: Path) -> None:
    with Record(path)._open() as database:
        assert database.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert database.execute("PRAGMA synchronous").fetchone() == (2,)  # full


def test_one_connection_for_all_nodes_of_a_process(path: Path) -> None:
    one, other = Record(path), Record(str(path))
    with one._open() as first:
        pass
    with other._open() as second:
        assert first is second


def test_what_is_in_the_log_counts(path: Path) -> None:
    """For whoever reads the record, goes on with the run, or asks for a step again."""
    source = started(path)
    for t in range(5):
        source.add_(data(t + 1), t, records=[t])
    assert Record(path).steps(secret=SECRET.fingerprint, node=LONG.node) == frozenset(range(5))
    with pytest.raises(InputError, match="whose noise was added up to step 4"):
        started(path)
    source.add_(data(5), 4)  # the same again, also after somebody tried to begin anew
    with pytest.raises(InputError, match="got other data at step 3"):
        source.add_(data(), 3)
    again = started(path, resume=True)
    assert again.steps == frozenset(range(5))
    assert again.next_step == 5
    assert [again.attendance().number(t) for t in range(6)] == [1] * 5 + [None]
    with pytest.raises(InputError, match="record 4 in steps 4, 5"):
        again.add_(data(), 5, records=[4])
    again.add_(data(5), 4, records=[4])
    with pytest.raises(InputError, match="got other data at step 2"):
        again.add_(data(), 2)


def test_who_is_taken_over_draws_no_more(path: Path) -> None:
    """Also where the claim that it has goes on for sixty steps more."""
    one = started(path)
    one.add_(data(), 0, records=[1])
    other = started(path, resume=True)
    for use in (lambda: one.add_(data(2), 1, records=[2]), lambda: one.step(1, 3)):
        with pytest.raises(InputError, match="another process draws from, .* up to step 0"):
            use()
    with pytest.raises(InputError, match="another process draws from"):
        one.attendance().check([7], 1)
    other.add_(data(), 1, records=[3])
    assert other.steps == {0, 1}
    assert len(logs(path)) == 1  # of the other


def test_a_log_that_was_read_takes_no_more(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As between the reading and the removal of it by whoever takes the run over."""
    one = started(path)
    one.add_(data(), 0)
    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", lambda *_, **__: None)
        other = started(path, resume=True)
    for use in (lambda: one.add_(data(2), 1), lambda: one.step(1, 3)):
        with pytest.raises(InputError, match="another process draws from, .* up to step 0"):
            use()
    assert other.steps == {0}


def test_a_takeover_that_failed_takes_nothing(path: Path) -> None:
    """As where that process died before its transaction was on disk."""
    source = started(path)
    for t in range(3):
        source.add_(data(), t, records=[t])
    log = logs(path)[0]
    assert [entry.kind for entry in claims.entries_of(log, take=True)] == [b"u", b"a"] * 2
    for t in range(3, 6):
        source.add_(data(), t, records=[t])
    again = started(path, resume=True)
    assert again.steps == frozenset(range(6))
    assert [again.attendance().number(t) for t in range(6)] == [1] * 6


def test_after_a_reboot_the_rest_of_a_claim_counts_as_used(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = started(path)
    for t in range(3):
        source.add_(data(), t, records=[t])
    log = logs(path)[0]
    log.write_bytes(log.read_bytes()[:-7])  # the last words did not reach the disk
    another_boot(monkeypatch)
    assert Record(path).steps(secret=SECRET.fingerprint, node=LONG.node) == frozenset(range(64))
    again = started(path, resume=True)
    assert again.next_step == 64
    with pytest.raises(InputError, match="records: expected who is in the sum of step 2"):
        again.add_(data(), 64, records=[9])
    for t in range(2, 64):
        again.attendance().check([100 + t], t)
    with pytest.raises(InputError, match="got step 3, which may have been drawn before the mach"):
        again.add_(data(), 3, records=[103])
    again.add_(data(), 1, records=[1])  # known, the same data
    again.add_(data(), 64, records=[9])
    assert again.steps == frozenset(range(65))


def test_a_log_that_is_gone_counts_as_a_claim_that_is_used_up(path: Path) -> None:
    source = started(path)
    source.add_(data(), 0)
    source.add_(data(), 1)
    logs(path)[0].unlink()
    assert Record(path).steps(secret=SECRET.fingerprint, node=LONG.node) == frozenset(range(64))
    source.add_(data(), 2)  # it knows what it did
    assert Record(path).steps(secret=SECRET.fingerprint, node=LONG.node) == frozenset(range(3))


def test_a_run_that_ends_gives_the_rest_back(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = started(path)
    source.add_(data(), 0, records=[1])
    source.add_(data(), 1, records=[2])
    del source
    gc.collect()
    assert logs(path) == []
    another_boot(monkeypatch)
    again = started(path, resume=True)
    assert again.next_step == 2
    assert [again.attendance().number(t) for t in range(3)] == [1, 1, None]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_fork_that_forgets_a_run_leaves_its_claim(path: Path) -> None:
    """One that has opened the record, for a node of its own: what the run did since is in it."""
    source = started(path)
    source.add_(data(), 0)
    reader, writer = os.pipe()
    child = os.fork()
    if not child:  # pragma: no cover
        os.read(reader, 1)
        Record(path).steps(secret=SECRET.fingerprint, node=LONG.node)
        del source
        gc.collect()
        os._exit(0)
    source.add_(data(2), 1)
    os.write(writer, b"x")
    os.waitpid(child, 0)
    os.close(reader)
    os.close(writer)
    source.add_(data(3), 2)
    assert source.steps == {0, 1, 2}
    with pytest.raises(InputError, match="other data at step 1"):
        source.add_(data(4), 1)


def test_no_claim_where_nobody_knows_the_boot(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claims, "BOOT", path.with_name("none"))
    source = started(path)
    for t in range(3):
        source.add_(data(), t)
    with sqlite3.connect(path) as database:
        assert database.execute("SELECT count(*) FROM steps").fetchone() == (3,)
    assert logs(path) == []


def test_steps_in_any_order(path: Path) -> None:
    source, used = started(path), [100, 3, 101, 70, 4, 2047, 102]
    for at, t in enumerate(used):
        source.add_(data(at), t)
    for at, t in enumerate(used):
        source.add_(data(at), t)
        with pytest.raises(InputError, match=f"other data at step {t}"):
            source.add_(data(at + 0.5), t)
    assert source.steps == frozenset(used)


def test_all_secrets_of_a_run_know_its_steps(path: Path) -> None:
    record, secrets = Record(path), ("one", "two")
    uses = Uses(record, secrets, 3, 2048)
    served = {"one": ("own", False), "two": ("seed", True)}
    uses.claim(served, digest=LONG.digest, resume=False)
    for t in range(2):
        uses.use(t, data=b"d", dimension=1, who=None)
    with sqlite3.connect(path) as database:
        ((run, first, last),) = database.execute("SELECT run, first, last FROM claims").fetchall()
    assert (run, first, last) == (uses.run, 0, 64)
    later = Uses(record, secrets, 3, 2048)
    later.claim(served, digest=LONG.digest, resume=True)
    for secret in secrets:
        assert record.steps(secret=secret, node=3) == {0, 1}
    with sqlite3.connect(path) as database:
        assert database.execute("SELECT count(*) FROM steps").fetchone() == (4,)


def test_a_log_of_a_size_that_another_knows(tmp_path: Path) -> None:
    log = tmp_path / "log"
    claims.created(log)
    entries = [Entry(b"u", 5, b"x" * 16), Entry(b"a", 2**40, b"")]
    size = claims.append(log, entries, size=0)
    assert size == log.stat().st_size
    assert claims.append(log, entries, size=0) is None
    assert claims.append(log, [], size=size) == size
    assert claims.entries_of(log) == entries
    raw = log.read_bytes()
    for cut in range(size):
        log.write_bytes(raw[:cut])
        assert claims.entries_of(log) in ([], entries[:1])
    log.write_bytes(raw[:20] + bytes([raw[20] ^ 1]) + raw[21:])
    assert claims.entries_of(log) == []
    assert claims.append(tmp_path / "none", entries, size=0) is None
    assert claims.entries_of(tmp_path / "none") is None
    with pytest.raises(FileExistsError):
        claims.created(log)
    assert log.stat().st_mode & 0o077 == 0


TRAINS = """
import sys
import numpy as np
from noisedesign.noise import Plan, noise
plan, secret, record, resume = sys.argv[1:]
source = noise(plan, secret=secret, record=record, resume=resume == "1")
for t in range(source.next_step, 2048):
    source.add_([np.full(3, 2.0**-7 * (t % 5), dtype=np.float32)], t, records=[t])
    print(t, flush=True)
"""


def test_kill_9_loses_no_step(path: Path) -> None:
    """Killed at some step of a claim, three times: what was told is known, and the next step is
    the first that was not, or the one after it."""
    plan, secret = LONG.save(path.with_name("plan")), Secret(SECRET.value).save(path.with_name("s"))
    last = -1
    for trial, stop in enumerate((10, 40, 90)):
        arguments = [str(plan), str(secret), str(path), str(int(trial > 0))]
        process = subprocess.Popen(
            [sys.executable, "-c", TRAINS, *arguments],
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
        )
        with process:
            for line in process.stdout:
                last = int(line)
                if last >= stop:
                    break
            process.send_signal(signal.SIGKILL)
            told = [int(line) for line in process.stdout.read().split("\n")[:-1]]
            last = max([last, *told])
        steps = Record(path).steps(secret=SECRET.fingerprint, node=LONG.node)
        assert steps in (frozenset(range(last + 1)), frozenset(range(last + 2)))
        again = started(path, resume=True)
        with pytest.raises(InputError, match=f"other data at step {last}"):
            again.add_(data(11), last, records=[last])
        del again
        gc.collect()
