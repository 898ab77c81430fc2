"""Runs without an end that go on from what they kept, after a kill and after tampering."""

from __future__ import annotations

import os
import shutil
import signal
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import noisedesign as nd
from noisedesign.noise import NodeNoise, Record, Secret, noise
from noisedesign.noise.source import BLOCK, LATEST

SIZE, EVERY = 40, 4


def plan(**of: Any) -> nd.noise.Plan:
    design = nd.UnboundedDesign(
        problem=nd.UnboundedProblem(privacy=nd.PrivacyTarget(epsilon=1.0), **of),
        scales=np.array([0.25, 0.125]),
        decays=np.array([0.5, 0.75]),
        squared_sensitivity=2.0,
        ratio=2.0,
        worst=1,
    )
    return design.node_plan(0)


PLAN = plan()


def added(source: NodeNoise, steps: range, dtype: Any = np.float64, size: int = SIZE) -> np.ndarray:
    found = []
    for t in steps:
        sums = [np.zeros(size, dtype=dtype)]
        source.add_(sums, t, records=[f"r{t}"])
        found.append(sums[0])
    return np.array(found)


class Draws:
    """The steps whose white noise was drawn."""

    def __init__(self, source: NodeNoise) -> None:
        self.steps: list[int] = []
        draw = source._draw

        def counted(stream: Any, s: int, *rest: Any) -> Any:
            self.steps.append(s)
            return draw(stream, s, *rest)

        source._draw = counted  # type: ignore[method-assign]


def files(record: Path) -> list[Path]:
    return sorted(record.with_name(f"{record.name}.states").glob("*"))


@pytest.fixture
def record(tmp_path: Path) -> Path:
    return tmp_path / "record.sqlite3"


def run(record: Path, secret: Secret, steps: range, **of: Any) -> np.ndarray:
    return added(noise(PLAN, secret=secret, record=record, keep_every=EVERY, **of), steps)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_restart_goes_on_from_what_was_kept_bit_for_bit(record: Path, dtype: Any) -> None:
    secret = Secret.new()
    whole = added(noise(PLAN, secret=secret, record=False), range(16), dtype)
    begun = noise(PLAN, secret=secret, record=record, keep_every=EVERY)
    assert (added(begun, range(10), dtype) == whole[:10]).all()
    again = noise(PLAN, secret=secret, record=record, keep_every=EVERY, resume=True)
    draws = Draws(again)
    assert (added(again, range(10, 16), dtype) == whole[10:]).all()
    assert draws.steps == list(range(8, 16))  # kept after step 7


def test_without_files_it_begins_at_the_first_step(record: Path) -> None:
    secret = Secret.new()
    source = noise(PLAN, secret=secret, record=record, keep_every=0)
    added(source, range(10))
    assert not files(record)
    again = noise(PLAN, secret=secret, record=record, resume=True, keep_every=0)
    draws = Draws(again)
    added(again, range(10, 11))
    assert draws.steps == list(range(11))


def test_a_step_of_an_older_checkpoint_is_reached_from_the_older_file(record: Path) -> None:
    secret = Secret.new()
    whole = run(record, secret, range(12))
    again = noise(PLAN, secret=secret, record=record, keep_every=EVERY, resume=True)
    draws = Draws(again)
    # The same sum once more, and then further back than both files.
    assert (added(again, range(9, 12)) == whole[9:]).all()
    assert draws.steps == [8, 9, 10, 11]  # kept after steps 7 and 11
    assert (again.step(3, SIZE) == whole[3]).all()
    assert draws.steps[4:] == [0, 1, 2, 3]
    once_more = noise(PLAN, secret=secret, record=record, keep_every=EVERY, resume=True)
    assert (once_more.step(11, SIZE) == whole[11]).all()  # the step of the later file itself


def test_a_killed_process_loses_no_more_than_the_steps_since(record: Path, tmp_path: Path) -> None:
    secret = Secret.new()
    secret.save(tmp_path / "node.secret")
    PLAN.save(tmp_path / "node.plan")
    script = f"""
import numpy as np, os, signal
from noisedesign.noise import noise
source = noise("node.plan", secret="node.secret", record="record.sqlite3", keep_every={EVERY})
for t in range(30):
    if t == 13:
        os.kill(os.getpid(), signal.SIGKILL)
    source.add_([np.zeros({SIZE})], t, records=[str(t)])
"""
    ended = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, check=False)
    assert ended.returncode == -signal.SIGKILL
    again = noise(PLAN, secret=secret, record=record, resume=True)
    assert again.next_step == 13
    draws = Draws(again)
    found = added(again, range(13, 16))
    assert draws.steps == [12, 13, 14, 15]
    assert (found == added(noise(PLAN, secret=secret, record=False), range(16))[13:]).all()


def test_a_kill_while_a_file_is_written_leaves_the_older_one(
    record: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = Secret.new()
    run(record, secret, range(8))
    before = [file.read_bytes() for file in files(record)]

    def full(self: Path, target: Path) -> None:
        raise OSError(28, "No space left on device")

    source = noise(PLAN, secret=secret, record=record, keep_every=EVERY, resume=True)
    monkeypatch.setattr(Path, "replace", full)
    with pytest.warns(UserWarning, match="after step 11 were not kept.*No space left"):
        found = added(source, range(8, 12))
    monkeypatch.undo()
    assert [file.read_bytes() for file in files(record)] == before
    assert (found == added(noise(PLAN, secret=secret, record=False), range(12))[8:]).all()


def test_files_tell_nothing_and_are_the_owners_alone(record: Path) -> None:
    secret = Secret.new()
    source = noise(PLAN, secret=secret, record=record, keep_every=EVERY)
    added(source, range(8))
    (lane,) = source._lanes.values()
    two = files(record)
    assert len(two) == 2
    for file in two:
        content = file.read_bytes()
        assert secret.value not in content
        assert secret.value.hex().encode() not in content
        assert not any(row.tobytes()[:16] in content for row in lane.kept)
        if os.name == "posix":
            assert stat.S_IMODE(file.stat().st_mode) == 0o600
            assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    # The same buffers once more, under another key: no two files are alike.
    added(noise(PLAN, secret=secret, record=record, keep_every=EVERY, resume=True), range(4, 8))
    one, other = (file.read_bytes() for file in two)
    assert one.count(b'"step": 7') == other.count(b'"step": 7') == 1
    assert len(one) == len(other)
    assert one[-64:-16] != other[-64:-16]  # what is encrypted, and no tag


@pytest.mark.parametrize("at", ["magic", "step", "salt", "width", "piece", "tag", "cut", "empty"])
def test_a_file_that_was_changed_is_refused_by_name(record: Path, at: str) -> None:
    secret = Secret.new()
    run(record, secret, range(4))
    (file,) = files(record)
    content = file.read_bytes()
    begin = content.index(b"{")
    end = begin + int.from_bytes(content[begin - 8 : begin], "little")
    said = content[begin:end]
    changed = {
        "magic": b"x" + content[1:],
        "step": content.replace(b'"step": 3', b'"step": 2'),
        "salt": content.replace(said[said.index(b'"salt": "') :][9:11], b"zz", 1),
        "width": content.replace(f"[0, {SIZE},".encode(), f"[0, {SIZE - 1},".encode()),
        "piece": content[: end + 5] + bytes([content[end + 5] ^ 1]) + content[end + 6 :],
        "tag": content[:-1] + bytes([content[-1] ^ 1]),
        "cut": content[:-30],
        "empty": b"",
    }[at]
    assert changed != content
    file.write_bytes(changed)
    size = SIZE - 1 if at == "width" else SIZE
    with pytest.raises(nd.InputError, match="the buffers of this run in") as refused:
        noise(PLAN, secret=secret, record=record, resume=True, keep_every=EVERY).step(5, size)
    assert refused.value.field == "state"
    assert str(file) in str(refused.value)
    file.unlink()
    whole = noise(PLAN, secret=secret, record=False).step(5, size)
    assert (noise(PLAN, secret=secret, record=record, resume=True).step(5, size) == whole).all()


@pytest.mark.parametrize("other", ["secret", "design", "node"])
def test_a_file_of_another_run_is_refused(record: Path, tmp_path: Path, other: str) -> None:
    secret, second = Secret.new(), tmp_path / "second.sqlite3"
    run(record, secret, range(4))
    (file,) = files(record)
    of_plan = plan(max_participations=2, separation=3) if other == "design" else PLAN
    of_plan = of_plan.node_plan(1) if other == "node" else of_plan
    own = Secret.new() if other == "secret" else secret
    source = noise(of_plan, secret=own, record=second, keep_every=EVERY)
    added(source, range(4))
    (target,) = files(second)
    shutil.copy(file, target)
    with pytest.raises(nd.InputError, match="one of another run"):
        noise(of_plan, secret=own, record=second, keep_every=EVERY, resume=True)


def test_a_file_that_is_deleted_while_the_run_goes_on_is_done_without(record: Path) -> None:
    secret = Secret.new()
    run(record, secret, range(8))
    again = noise(PLAN, secret=secret, record=record, keep_every=EVERY, resume=True)
    latest = max(files(record), key=lambda one: b'"step": 7' in one.read_bytes())
    latest.unlink()
    draws = Draws(again)
    whole = noise(PLAN, secret=secret, record=False)
    assert (again.step(9, SIZE) == whole.step(9, SIZE)).all()
    assert draws.steps == list(range(4, 10))  # kept after step 3


def test_an_older_file_put_back_is_caught_up_from(record: Path) -> None:
    secret = Secret.new()
    run(record, secret, range(4))
    (file,) = files(record)
    old = file.read_bytes()
    run(record, secret, range(4, 14), resume=True)
    for one in files(record):
        one.unlink()
    file.write_bytes(old)
    again = noise(PLAN, secret=secret, record=record, resume=True)
    draws = Draws(again)
    whole = added(noise(PLAN, secret=secret, record=False), range(15))
    assert (added(again, range(14, 15)) == whole[14:]).all()
    assert draws.steps == list(range(4, 15))
    # What the record knows stands: a step is used once.
    with pytest.raises(nd.InputError, match="other data at step 9"):
        again.add_([np.full(SIZE, 0.01)], 9)
    assert Record(record).steps(secret=secret.fingerprint, node=0) == set(range(15))


def test_models_of_many_blocks_and_of_two_precisions(record: Path) -> None:
    secret, size = Secret.new(), (LATEST + 2) * BLOCK + 7
    source = noise(PLAN, secret=secret, record=record, keep_every=2)
    for t in range(2):
        source.add_([np.zeros(5, dtype=np.float32), np.zeros(size)], t, records=[t])
    again = noise(PLAN, secret=secret, record=record, resume=True, keep_every=2)
    sums = [np.zeros(5, dtype=np.float32), np.zeros(size)]
    draws = Draws(again)
    again.add_(sums, 2, records=[2])
    assert set(draws.steps) == {2}
    whole = noise(PLAN, secret=secret, record=False)
    assert (sums[0] == whole.step(2, 5, dtype=np.float32)).all()
    for start in (5, BLOCK - 3, size - 4):
        expected = whole.step(2, 4, start=start)
        assert (sums[1][start - 5 : start - 1] == expected).all()


def test_blocks_that_were_left_behind_are_not_kept_as_if_they_were_not(record: Path) -> None:
    secret, wide = Secret.new(), np.float64
    source = noise(PLAN, secret=secret, record=record, keep_every=EVERY)
    added(source, range(2))
    added(source, range(2, 4), np.float32)  # the block in float64 stays at step 1
    again = noise(PLAN, secret=secret, record=record, resume=True, keep_every=EVERY)
    whole = noise(PLAN, secret=secret, record=False)
    for dtype in (wide, np.float32):
        assert (again.step(5, SIZE, dtype=dtype) == whole.step(5, SIZE, dtype=dtype)).all()


def test_memory_is_that_of_the_buffers(record: Path) -> None:
    source = noise(PLAN, secret=Secret.new(), record=record, keep_every=8)
    added(source, range(8))
    rows = sum(lane.kept.nbytes for lane in source._lanes.values())
    sizes = [file.stat().st_size for file in files(record)]
    added(source, range(8, 40))
    assert sum(lane.kept.nbytes for lane in source._lanes.values()) == rows == 2 * SIZE * 8
    assert max(file.stat().st_size for file in files(record)) <= sizes[0] + 8
    assert len(files(record)) == 2


def test_bad_numbers_of_steps_are_refused_by_name(record: Path) -> None:
    for wrong in (-1, 2.5, "often"):
        with pytest.raises(nd.InputError) as refused:
            noise(PLAN, secret=Secret.new(), record=record, keep_every=wrong)  # type: ignore[arg-type]
        assert refused.value.field == "keep_every"
    target = nd.PrivacyTarget(epsilon=1.0)
    ends = nd.TimeProblem.prefix(participation=nd.participation.single(2), privacy=target)
    with pytest.raises(nd.InputError, match="the run has an end"):
        noise(nd.baseline(ends, "ldp"), node=0, record=False, keep_every=3)
