"""Solves that are stopped and go on, counted in eigendecompositions, and files that do not fit."""

from __future__ import annotations

import json
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest

from noisedesign.base.checks import InputError
from noisedesign.base.monitor import Bounds, Monitor, Stop
from noisedesign.certify.certificate import lower_bound
from noisedesign.certify.program import DualPoint, Program
from noisedesign.design.solve import Solution, solve
from noisedesign.families.disjoint import solver
from noisedesign.families.disjoint.program import program_of
from noisedesign.files.archive import npy_bytes, pack
from noisedesign.files.checkpoint_file import digest_of
from noisedesign.files.design_file import save_design
from noisedesign.problem.problem import Problem, SpaceProblem, TimeProblem
from noisedesign.results import CheckpointFile
from noisedesign.system.participation import FixedEpoch, single
from tests.support import oracles
from tests.support.command_line import CAPPED, EPOCHS, RING, call, write
from tests.support.without_extras import ELSEWHERE

KARATE = oracles.metropolis(nx.karate_club_graph())
FLORENTINE = oracles.metropolis(nx.florentine_families_graph())
LONG = 1e9
"""Seconds after which nothing here is still running: only the end of a solve is kept."""
AT_ONCE = 1e-9
"""Seconds that are over whenever they are looked at: every iteration is kept."""

PROBLEMS: dict[str, Problem] = {
    "space": SpaceProblem(mixing=KARATE, budget=np.linspace(1, 3, 34)),
    "one epoch": TimeProblem.prefix(participation=single(40)),
    "epochs": TimeProblem.decentralized(
        mixing=FLORENTINE, participation=FixedEpoch(epochs=4, separation=8)
    ),
}
GAP = 1e-10


class Stopping:
    """A checkpoint file that is written in every iteration, and raises after ``calls`` of them."""

    seconds = AT_ONCE

    def __init__(self, path: Path, calls: int, error: type[BaseException]) -> None:
        self.file, self.left, self.error = CheckpointFile(path), calls, error

    def load(self, program: Program) -> np.ndarray | None:
        return self.file.load(program)

    def save(self, program: Program, blocks: np.ndarray) -> None:
        self.file.save(program, blocks)
        self.left -= 1
        if self.left == 0:
            raise self.error


def finished(problem: Problem, **kwargs: Any) -> Solution:
    found = solve(problem, gap=GAP, **kwargs)
    assert found.status == "optimal"
    assert found.certificate is not None
    assert found.certificate.gap <= GAP
    return found


# --- going on -------------------------------------------------------------------------------------


@pytest.mark.parametrize("calls", [2, 3])
@pytest.mark.parametrize("name", PROBLEMS)
def test_an_interrupted_solve_goes_on_where_it_was(name: str, calls: int, tmp_path: Path) -> None:
    problem, path = PROBLEMS[name], tmp_path / "state.npz"
    whole = finished(problem)
    first = solve(problem, gap=GAP, checkpoint=Stopping(path, calls, KeyboardInterrupt))
    assert first.status == "interrupted"
    rest = finished(problem, checkpoint=CheckpointFile(path))
    # The point that was kept is evaluated once more, and nothing else is done twice.
    assert first.evaluations == calls
    assert rest.evaluations <= whole.evaluations - first.evaluations + 1 < whole.evaluations
    assert rest.design is not None
    assert whole.design is not None
    assert rest.design.objective == pytest.approx(whole.design.objective, rel=2 * GAP)
    assert [path.name for path in tmp_path.iterdir()] == ["state.npz"]


@pytest.mark.parametrize("name", PROBLEMS)
def test_out_of_time_and_on(name: str, tmp_path: Path) -> None:
    """A first step each time, until it is solved: what is kept gets better and better."""
    problem, state = PROBLEMS[name], CheckpointFile(tmp_path / "state.npz")
    program = program_of(problem).normalized()
    proved = []
    for _ in range(3):
        found = solve(problem, gap=GAP, checkpoint=state, time_limit=1e-9)
        assert found.status == "time-limit"
        blocks = state.load(program)
        assert blocks is not None
        proved.append(lower_bound(program, DualPoint(blocks=blocks)))
    assert proved == pytest.approx([proved[0]] * 3, rel=1e-12)  # no time, no progress
    finished(problem, checkpoint=state)
    last = state.load(program)
    assert last is not None
    assert lower_bound(program, DualPoint(blocks=last)) > proved[0]


@pytest.mark.parametrize("name", PROBLEMS)
def test_a_finished_solve_is_found_finished(name: str, tmp_path: Path) -> None:
    state = CheckpointFile(tmp_path / "state.npz")
    assert finished(PROBLEMS[name], checkpoint=state).evaluations > 1
    assert finished(PROBLEMS[name], checkpoint=state).evaluations == 1


@pytest.mark.parametrize("name", PROBLEMS)
def test_a_smaller_gap_goes_on_from_a_larger_one(name: str, tmp_path: Path) -> None:
    state = CheckpointFile(tmp_path / "state.npz")
    coarse = solve(PROBLEMS[name], gap=1e-2, checkpoint=state)
    assert coarse.status == "optimal"
    whole = finished(PROBLEMS[name])
    assert finished(PROBLEMS[name], checkpoint=state).evaluations < whole.evaluations


@pytest.mark.parametrize("name", PROBLEMS)
def test_what_was_kept_on_the_way_survives_a_crash(name: str, tmp_path: Path) -> None:
    """The process ends without a word: only what was written while it ran is left."""
    path = tmp_path / "state.npz"
    whole = finished(PROBLEMS[name])
    with pytest.raises(SystemError):
        solve(PROBLEMS[name], gap=GAP, checkpoint=Stopping(path, 2, SystemError))
    rest = finished(PROBLEMS[name], checkpoint=CheckpointFile(path))
    assert rest.evaluations < whole.evaluations


def test_what_is_kept_at_the_end_of_a_stopped_solve(tmp_path: Path) -> None:
    """Ctrl-C long before the first write is due."""

    def press(_: Bounds) -> None:
        raise KeyboardInterrupt

    state = CheckpointFile(tmp_path / "state.npz", seconds=LONG)
    found = solve(PROBLEMS["space"], gap=GAP, checkpoint=state, progress=press)
    assert found.status == "interrupted"
    assert state.load(program_of(PROBLEMS["space"]).normalized()) is not None


def test_a_singular_program_is_solved_once(tmp_path: Path) -> None:
    """Also to see whether it has an optimum: and what was kept is gone on with."""
    star = SpaceProblem(mixing=oracles.metropolis(nx.star_graph(9)))
    state = CheckpointFile(tmp_path / "state.npz")
    first = solve(star, checkpoint=state)
    assert first.evaluations == solve(star).evaluations > 1
    again = solve(star, checkpoint=state)
    assert (again.status, again.evaluations) == ("optimal", 1)


class InMemory:
    """A checkpoint that counts."""

    def __init__(self, seconds: float, *, full: bool = False) -> None:
        self.seconds, self.full = seconds, full
        self.saved: list[np.ndarray] = []

    def load(self, program: Program) -> np.ndarray | None:
        return self.saved[-1] if self.saved else None

    def save(self, program: Program, blocks: np.ndarray) -> None:
        if self.full:
            raise OSError("no space left on device")
        self.saved.append(blocks)


@pytest.mark.parametrize("name", PROBLEMS)
def test_how_often_it_is_kept(name: str) -> None:
    often, seldom = InMemory(AT_ONCE), InMemory(LONG)
    finished(PROBLEMS[name], checkpoint=often)
    finished(PROBLEMS[name], checkpoint=seldom)
    assert len(often.saved) > 2
    assert len(seldom.saved) == 1
    program = program_of(PROBLEMS[name]).normalized()
    proved = [lower_bound(program, DualPoint(blocks=blocks)) for blocks in often.saved]
    assert proved == sorted(proved)
    np.testing.assert_array_equal(often.saved[-1], seldom.saved[-1])


@pytest.mark.parametrize("seconds", [AT_ONCE, LONG])
def test_a_full_disk_ends_no_solve(seconds: float) -> None:
    with pytest.warns(RuntimeWarning, match="no space left on device; the solve goes on"):
        finished(PROBLEMS["space"], checkpoint=InMemory(seconds, full=True))


def test_without_a_checkpoint_nothing_is_kept() -> None:
    monitor = Monitor(gap=GAP)
    program = program_of(PROBLEMS["space"]).normalized()
    assert monitor.resumed(program) is None
    assert not monitor.due
    assert solver.solve(program, monitor=monitor).stop is Stop.SOLVED


# --- the file -------------------------------------------------------------------------------------


def program(**changes: Any) -> Program:
    plain = Program(
        gram=np.diag([1.0, 2, 3, 4]),
        participation=FixedEpoch(epochs=2, separation=2),
        budget=np.ones(2),
    )
    return replace(plain, **changes)


BLOCKS = np.array([[[2.0, 0.5], [0.5, 2.0]], [[1.0, -0.25], [-0.25, 1.0]]])


def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    state = CheckpointFile(tmp_path / "state.npz")
    assert state.load(program()) is None
    assert not (tmp_path / "state.npz").exists()
    for scale in (1.0, 3.0):  # the second in place of the first
        state.save(program(), scale * BLOCKS)
        found = state.load(program())
        assert found is not None
        np.testing.assert_array_equal(found, scale * BLOCKS)
    with np.load(tmp_path / "state.npz", allow_pickle=False) as data:
        np.testing.assert_array_equal(data["multipliers"], 3.0 * BLOCKS)


OTHERS: dict[str, dict[str, Any]] = {
    "last digit of H": {"gram": np.diag([1.0, 2, 3, np.nextafter(4, 5)])},
    "L": {"exact_factor": np.diag([1.0, 2, 3, 4])},
    "budget": {"budget": np.array([1.0, 2.0])},
    "cap": {"cap": np.full(4, 9.0)},
    "floor": {"floor": np.full(4, 9.0)},
    "participation": {"participation": FixedEpoch(epochs=1, separation=4)},
    "order of participation": {"participation": FixedEpoch(epochs=4, separation=1)},
}


@pytest.mark.parametrize("name", OTHERS)
def test_a_checkpoint_of_another_problem(name: str, tmp_path: Path) -> None:
    state = CheckpointFile(tmp_path / "state.npz")
    state.save(program(), BLOCKS)
    before = (tmp_path / "state.npz").read_bytes()
    with pytest.raises(InputError, match="of another problem") as error:
        state.load(program(**OTHERS[name]))
    assert error.value.field == "checkpoint"
    assert "state.npz" in error.value.got
    assert "Name another file" in error.value.remedy
    assert (tmp_path / "state.npz").read_bytes() == before


def test_a_cap_is_not_a_floor_and_a_factor_not_a_gram_matrix() -> None:
    four = np.full(4, 9.0)
    digests = {digest_of(program(**changes)) for changes in OTHERS.values()}
    digests |= {digest_of(program()), digest_of(program(cap=four, floor=four))}
    assert len(digests) == len(OTHERS) + 2
    assert digest_of(program()) == digest_of(program())
    # Where L is stated, rounding in how H was formed from it is no other problem.
    factor = np.diag([1.0, 2, 3, 4])
    one, other = (
        program(gram=np.diag([1.0, 4, 9, last]), exact_factor=factor)
        for last in (16.0, np.nextafter(16.0, 17))
    )
    assert digest_of(one) == digest_of(other)


def refused(path: Path) -> InputError:
    """The one error a damaged file gives, which leaves it as it was."""
    before = path.read_bytes()
    with pytest.raises(InputError) as error:
        CheckpointFile(path).load(program())
    assert error.value.field == "checkpoint"
    assert path.name in error.value.got
    assert path.read_bytes() == before
    return error.value


def test_truncated_anywhere(tmp_path: Path) -> None:
    path = tmp_path / "state.npz"
    CheckpointFile(path).save(program(), BLOCKS)
    whole = path.read_bytes()
    for length in (*range(0, len(whole), 7), len(whole) - 1):
        path.write_bytes(whole[:length])
        refused(path)


def test_a_changed_multiplier(tmp_path: Path) -> None:
    path = tmp_path / "state.npz"
    CheckpointFile(path).save(program(), BLOCKS)
    whole = bytearray(path.read_bytes())
    at = whole.index(BLOCKS.tobytes())
    for byte in range(at, at + BLOCKS.nbytes):
        changed = whole.copy()
        changed[byte] ^= 1
        path.write_bytes(changed)
        refused(path)


def written(path: Path, blocks: Any = BLOCKS, **changes: Any) -> Path:
    """A checkpoint as somebody else might write it."""
    manifest = {"format": "noisedesign-checkpoint", "version": 1, "program": digest_of(program())}
    members = {
        "checkpoint.json": json.dumps(manifest | changes).encode(),
        "multipliers.npy": npy_bytes(blocks),
    }
    path.write_bytes(pack(members))
    return path


@pytest.mark.parametrize(
    ("blocks", "words"),
    [
        (BLOCKS[:1], "shape"),
        (BLOCKS[:, :1, :1], "shape"),
        (np.full((2, 2, 2), np.nan), "positive definite"),
        (np.where(BLOCKS == 0.5, np.inf, BLOCKS), "positive definite"),
        (-BLOCKS, "positive definite"),
        (BLOCKS + 9 * np.array([[0, 1], [1, 0]]), "positive definite"),
        (BLOCKS + np.diag([0.0, 1.0]), "constant diagonals"),
        (np.zeros((2, 2, 2)), "positive definite"),
        (BLOCKS.astype(np.int64), "float64"),
    ],
)
def test_multipliers_no_solver_may_start_from(blocks: Any, words: str, tmp_path: Path) -> None:
    assert words in refused(written(tmp_path / "state.npz", blocks)).expected


def test_other_versions_and_other_files(tmp_path: Path) -> None:
    path = tmp_path / "state.npz"
    assert CheckpointFile(written(path)).load(program()) is not None  # the helper writes good ones
    for version in (0, 2, None, "1"):
        assert "version 1" in refused(written(path, version=version)).expected
    for program_digest in (None, "", 0):
        assert "this problem" in refused(written(path, program=program_digest)).expected
    assert refused(written(path, format="noisedesign-design")).expected == "a checkpoint"
    np.savez(path, multipliers=BLOCKS)
    refused(path)
    np.savez(path, multipliers=np.array([{"a": 1}], dtype=object))  # a pickle
    refused(path)
    path.write_bytes(b"\x80\x04.")
    refused(path)
    path.write_bytes(b"")
    refused(path)
    for text in (b"[]", b"{", b"\xff", b"1"):
        path.write_bytes(pack({"checkpoint.json": text, "multipliers.npy": npy_bytes(BLOCKS)}))
        refused(path)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:  # a bomb might hide in it
        archive.writestr("checkpoint.json", "{}")
        archive.writestr("multipliers.npy", npy_bytes(BLOCKS))
    refused(path)
    design = solve(SpaceProblem(mixing=FLORENTINE)).design
    assert design is not None
    save_design(design, path, overwrite=True)
    assert refused(path).expected == "a checkpoint"


def test_places_that_are_none(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none" / "state.npz"):
        with pytest.raises(InputError) as error:
            CheckpointFile(path).load(program())
        assert error.value.field == "checkpoint"


@pytest.mark.parametrize("seconds", [0, -1.0, float("nan"), "60"])
def test_time_between_writes_is_positive(seconds: Any) -> None:
    with pytest.raises(InputError, match="seconds"):
        CheckpointFile("state.npz", seconds=seconds)


# --- solvers without checkpoints ------------------------------------------------------------------


@pytest.mark.parametrize("name", ELSEWHERE)
def test_other_solvers_keep_none(name: str, tmp_path: Path) -> None:
    problem, backend = ELSEWHERE[name]
    state = CheckpointFile(tmp_path / "state.npz")
    with pytest.raises(InputError) as error:
        solve(problem, backend=backend, checkpoint=state)
    assert error.value.field == "checkpoint"
    assert not list(tmp_path.iterdir())


def test_a_path_is_no_checkpoint() -> None:
    with pytest.raises(InputError, match=r"CheckpointFile\(path\)"):
        solve(PROBLEMS["space"], checkpoint="state.npz")  # type: ignore[arg-type]


# --- the command ----------------------------------------------------------------------------------


@pytest.mark.parametrize("text", [RING.replace("ring", "path"), EPOCHS], ids=["space", "epochs"])
def test_the_command_goes_on(text: str, tmp_path: Path) -> None:
    path, state = write(tmp_path, text), tmp_path / "state.npz"
    whole = call("solve", path, "--gap", "1e-9", "--json").json()
    options = ("--gap", "1e-9", "--checkpoint", state, "--json")
    first = call("solve", path, *options, "--time-limit", "1e-9")
    assert (first.code, first.json()["status"]) == (1, "time-limit")
    assert state.exists()
    rest = call("solve", path, *options).json()
    assert rest["status"] == "optimal"
    assert rest["objective"] == pytest.approx(whole["objective"], rel=2e-9)
    again = call("solve", path, *options).json()
    assert again["evaluations"] == 1 < whole["evaluations"]


def test_the_command_refuses_in_one_line(tmp_path: Path) -> None:
    state = tmp_path / "state.npz"
    assert call("solve", write(tmp_path, RING), "--checkpoint", state).code == 0
    before = state.read_bytes()
    for text in (EPOCHS, CAPPED):
        outcome = call("solve", write(tmp_path, text), "--checkpoint", state, "--json")
        assert (outcome.code, outcome.out) == (2, "")
        assert outcome.err.count("\n") == 1
        assert "checkpoint: expected" in outcome.err
    state.write_bytes(before[:-1])
    outcome = call("solve", write(tmp_path, RING), "--checkpoint", state)
    assert outcome.code == 2
    assert "state.npz" in outcome.err
    assert state.read_bytes() == before[:-1]
