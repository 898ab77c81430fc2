"""Designs in parts: those of one process, verified, damaged, interrupted, by the command line."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import noisedesign as nd
from noisedesign.base.checks import InputError
from noisedesign.cli import commands
from noisedesign.distributed import design as designs, graph, mail, tasks, work
from noisedesign.distributed.journal import Journal
from noisedesign.distributed.mail import LostError
from noisedesign.distributed.world import World
from noisedesign.families.polynomial import bound, solver
from noisedesign.families.polynomial.program import SparseProgram
from tests.support.parts import as_if_large, in_parts

TARGET = nd.PrivacyTarget(epsilon=4.0, delta=1e-6, steps=100)


def problem(nodes: int = 300) -> nd.SpaceProblem:
    graph = nd.build_graph("barabasi-albert", nodes=nodes, links=3, seed=1)
    mixing = nd.graphs.sparse_mixing_matrix(graph)
    structure = nd.SpaceStructure(kind="polynomial")
    budget = np.linspace(0.5, 1.0, nodes)
    return nd.SpaceProblem(mixing=mixing, structure=structure, budget=budget, privacy=TARGET)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A graph in two parts, taken for a large one."""
    as_if_large(monkeypatch)
    tasks.store(problem(), tmp_path / "graph", parts=2)
    return tmp_path / "graph"


@pytest.fixture
def small(folder: Path, tmp_path: Path) -> Path:
    """Another, of fewer nodes."""
    tasks.store(problem(nodes=90), tmp_path / "small", parts=2)
    return tmp_path / "small"


def test_the_design_is_that_of_one_process(folder: Path, tmp_path: Path) -> None:
    made = tasks.solve(folder, tmp_path / "design", gap=0.9)
    program = SparseProgram(mixing=problem().mixing, budget=problem().budget)
    noise, operator = list(solver.improving(program, rng=np.random.default_rng(0)))[-1]
    error = bound.error(program, noise)
    assert made.objective == pytest.approx(error.high, rel=1e-9)
    assert made.uncertainty == pytest.approx(error.spread, rel=1e-9)
    assert made.relative_to_ldp == pytest.approx(error.high / program.independent_error, rel=1e-9)
    # Lanczos' rules without reorthogonalisation answer to rounding, on a graph of 300 nodes most.
    lower = bound.proved(program, operator.weights, noise).low
    assert made.lower_bound == pytest.approx(lower, rel=1e-4)
    worst = bound.squared_sensitivity(noise, program.budget)
    assert made.sensitivity_squared == pytest.approx(worst, rel=1e-12)
    assert made.noise_stddev == pytest.approx(nd.calibrate(problem()).noise_stddev, rel=1e-12)
    stated = designs.manifest_at(tmp_path / "design")
    # Every part has the rows of its own nodes, by their names.
    import pyarrow.parquet

    tables = [pyarrow.parquet.read_table(tmp_path / "design" / name) for name, _ in stated["files"]]
    scales = np.concatenate([table["scale"].to_numpy() for table in tables])
    assert scales == pytest.approx(noise.scale, rel=1e-9)
    assert np.concatenate([table["name"].to_numpy() for table in tables]).tolist() == list(
        range(300)
    )
    found = tasks.verify(tmp_path / "design", folder)
    assert found.ok, found
    assert not (tmp_path / "design" / tasks.CHECKPOINT).exists()


def test_a_solve_goes_on_from_its_checkpoint(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = tasks.solve(folder, tmp_path / "whole", gap=0.9)
    add, added = Journal.add, []

    def lost(self: Journal, found: Any) -> None:
        if len(added) == 7:
            raise LostError("the worker of part 1 was lost")
        added.append(self.folder.name)
        add(self, found)

    monkeypatch.setattr(Journal, "add", lost)
    with pytest.raises(LostError):
        tasks.solve(folder, tmp_path / "design", gap=0.9)
    assert not (tmp_path / "design" / designs.MANIFEST).exists()
    again: list[str] = []

    def counted(self: Journal, found: Any) -> None:
        again.append(self.folder.name)
        add(self, found)

    monkeypatch.setattr(Journal, "add", counted)
    made = tasks.solve(folder, tmp_path / "design", gap=0.9)
    assert (made.objective, made.lower_bound) == (expected.objective, expected.lower_bound)
    every: list[str] = []
    monkeypatch.setattr(Journal, "add", lambda self, found: (every.append(""), add(self, found)))
    tasks.solve(folder, tmp_path / "other", gap=0.9)
    assert 0 < len(again) <= len(every) - 6  # what both parts had was not found again


def test_a_damaged_checkpoint_is_told(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "part-00000")
    journal.add((np.ones(2), np.zeros(3)))
    journal.add(np.float64(0.5))
    again = Journal(tmp_path / "part-00000")
    assert again.entries == 2
    again.begin_at(2)
    other = Journal(tmp_path / "part-00001")  # beside one that knows less, nothing of it is left
    for number in range(3):
        other.add(np.float64(number))
    other.begin_at(1)
    assert Journal(tmp_path / "part-00001").entries == 1
    assert [part.tolist() for part in again.next()] == [[1, 1], [0, 0, 0]]
    assert float(again.next()) == 0.5
    assert again.next() is None
    (tmp_path / "part-00000" / "000000.npz").write_bytes(b"PK damaged")
    damaged = Journal(tmp_path / "part-00000")
    damaged.begin_at(2)
    with pytest.raises(OSError, match="delete the folder"):
        damaged.next()


def test_wrong_designs_are_refused_or_found_out(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # So few vectors of so small a graph tell a factor of 3 apart, or not, as they are drawn.
    monkeypatch.setattr(tasks.secrets, "randbits", lambda bits: 7)
    design = tmp_path / "design"
    tasks.solve(folder, design, gap=0.9)
    text = (design / designs.MANIFEST).read_text()
    stated = json.loads(text)

    def with_claims(**claims: Any) -> None:
        changed = stated | {"claims": stated["claims"] | claims}
        (design / designs.MANIFEST).write_text(json.dumps(changed))

    with_claims(
        objective=0.1 * stated["claims"]["objective"],
        lower_bound=10 * stated["claims"]["lower_bound"],
    )
    checks = tasks.verify(design, folder).checks
    assert not checks["objective"]
    assert not checks["lower bound"]
    (design / designs.MANIFEST).write_text(json.dumps(stated | {"noise_stddev": 1.0}))
    assert not tasks.verify(design, folder).checks["noise_stddev"]
    file = design / stated["files"][1][0]
    content = file.read_bytes()
    file.write_bytes(content[:-9] + bytes([content[-9] ^ 1]) + content[-8:])
    (design / designs.MANIFEST).write_text(text)
    with pytest.raises(InputError, match="damaged"):
        tasks.verify(design, folder)
    file.write_bytes(content)
    tasks.store(problem(nodes=90), tmp_path / "other", parts=2)
    with pytest.raises(InputError, match="a design of this graph"):
        tasks.verify(design, tmp_path / "other")


def test_every_claim_is_computed_again(small: Path, tmp_path: Path) -> None:
    design = tmp_path / "design"
    tasks.solve(small, design, gap=0.9)
    stated = json.loads((design / designs.MANIFEST).read_text())
    assert stated["status"] == designs.INACCURATE
    others: dict[str, dict[str, Any]] = {
        "status": {"status": "statistical"},
        "privacy": {"privacy": stated["privacy"] | {"epsilon": 1.0}},
        "relative_to_ldp": {"claims": stated["claims"] | {"relative_to_ldp": 0.5}},
        "confidence": {"claims": stated["claims"] | {"confidence": 1.0}},
        # A claim to know it within 1e-9, of a thousand times the error that was found.
        "uncertainty": {
            "claims": stated["claims"]
            | {"objective": 1000 * stated["claims"]["objective"], "uncertainty": 1e-9}
        },
    }
    for claim, changed in others.items():
        (design / designs.MANIFEST).write_text(json.dumps(stated | changed))
        assert not tasks.verify(design, small).checks[claim], claim


def test_a_manifest_of_anything_else_is_refused(tmp_path: Path) -> None:
    """Whatever its numbers are: a design is read, and nothing of it is computed."""
    claims = dict.fromkeys(designs.CLAIMS, 0.5)
    noise: dict[str, Any] = {"precision": [1.0, 0.5], "noise": [1.0], "bound": 1.0}
    whole = designs.FORMAT | {"claims": claims, "noise": noise, "files": []}
    whole |= {"gap": 0.05, "noise_stddev": 1.0}
    path = tmp_path / designs.MANIFEST
    path.write_text(json.dumps(whole))
    assert designs.manifest_at(tmp_path) == whole
    wrong: list[dict[str, Any]] = [
        {"claims": {name: 0.5 for name in designs.CLAIMS if name != "confidence"}},
        {"claims": []},
        *({"claims": claims | {"objective": x}} for x in (np.inf, np.nan, True, "1", 10**400)),
        {"claims": claims | {"epsilon": 0.1}},
        {"epsilon": 0.1},
        {"noise_stddev": None},
        {"gap": None},
        {"noise": noise | {"bound": 10**400}},
        {"noise": noise | {"precision": [10**400]}},
    ]
    for change in wrong:
        path.write_text(json.dumps(whole | change))
        with pytest.raises(InputError, match="^design"):
            designs.manifest_at(tmp_path)


def test_files_of_a_design_are_those_of_its_parts(small: Path, tmp_path: Path) -> None:
    design = tmp_path / "design"
    tasks.solve(small, design, gap=0.9)
    stated = json.loads((design / designs.MANIFEST).read_text())
    (first, digest), second = stated["files"]
    for files in (
        [second, [first, digest]],
        [[first, digest]],
        [[first, digest], [first, digest]],
        [[f"../design/{first}", digest], second],
        [[1, digest], second],
        [["a\0b", digest], second],
        [first, second],
    ):
        (design / designs.MANIFEST).write_text(json.dumps(stated | {"files": files}))
        with pytest.raises(InputError, match="a file and its digest of each of 2 parts"):
            tasks.verify(design, small)


def test_numbers_out_of_all_proportion_are_refused(small: Path, tmp_path: Path) -> None:
    design, write = tmp_path / "design", designs.write_part

    def huge(path: Path, part: Any, noise: Any, weights: Any) -> list[str]:
        return write(path, part, noise.scaled(1e150), weights)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(designs, "write_part", huge)
        tasks.solve(small, design, gap=0.9)
    with pytest.raises(InputError, match="numbers whose sums are finite"):
        tasks.verify(design, small)


def test_a_folder_keeps_what_somebody_else_put_there(small: Path, tmp_path: Path) -> None:
    design = tmp_path / "design"
    kept = design / tasks.CHECKPOINT / "model.pt"
    kept.parent.mkdir(parents=True)
    kept.write_text("weeks of training")
    (kept.parent / ("0" * work.DIGITS)).mkdir()  # of a former graph
    tasks.solve(small, design, gap=0.9)
    assert [one.name for one in kept.parent.iterdir()] == [kept.name]
    (design / "noise-of-mine.parquet").write_text("mine")
    with pytest.raises(InputError, match="with other files"):
        tasks.solve(small, design, gap=0.9)
    assert (design / "noise-of-mine.parquet").exists()


def test_two_solves_do_not_share_a_folder(small: Path, tmp_path: Path) -> None:
    seen: list[str] = []

    def again(stage: str) -> None:
        if not seen:
            seen.append(stage)
            with pytest.raises(InputError, match="which another process has open"):
                tasks.solve(small, tmp_path / "design", gap=0.9)
            seen.append("refused")

    tasks.solve(small, tmp_path / "design", gap=0.9, tell=again)
    assert seen[1:] == ["refused"]
    assert tasks.verify(tmp_path / "design", small).ok


def test_noise_above_its_budgets_is_found_out(folder: Path, tmp_path: Path) -> None:
    """Whose files and digests are whole, and whose scales are too small by a thousandth."""
    design = tmp_path / "design"
    write = designs.write_part

    def less(path: Path, part: Any, noise: Any, weights: Any) -> list[str]:
        return write(path, part, noise.scaled(0.9995**0.5), weights)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(designs, "write_part", less)
        tasks.solve(folder, design, gap=0.9)
    checks = tasks.verify(design, folder).checks
    assert not checks["budgets"]
    assert not checks["sensitivity"]


def test_a_target_without_steps_is_refused_before_the_work(folder: Path, tmp_path: Path) -> None:
    stated = json.loads((folder / graph.MANIFEST).read_text())
    stated["privacy"]["steps"] = None
    (folder / graph.MANIFEST).write_text(json.dumps(stated))
    told: list[str] = []
    with pytest.raises(InputError, match=r"^privacy\.steps"):
        tasks.solve(folder, tmp_path / "design", tell=told.append)
    assert (told, (tmp_path / "design").exists()) == ([], False)


def test_small_graphs_are_refused(tmp_path: Path) -> None:
    tasks.store(problem(), tmp_path / "graph", parts=2)
    with pytest.raises(InputError, match="more than 1414 nodes"):
        tasks.solve(tmp_path / "graph", tmp_path / "design")


def test_an_error_of_one_part_is_that_of_all(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = World.told

    def fails(self: World, what: Any) -> Any:
        if self.index == 1 and self._letters > 40:
            raise MemoryError("no room in part 1")
        return told(self, what)

    monkeypatch.setattr(World, "told", fails)
    with pytest.raises(MemoryError, match="no room in part 1"):
        tasks.solve(folder, tmp_path / "design")


def test_work_that_is_kept_is_no_part_of_other_such_work(tmp_path: Path) -> None:
    def find(world: World) -> None:
        world.keep(Journal(tmp_path / f"{world.index}"))
        world.kept(lambda: world.kept(lambda: np.ones(1)))

    with pytest.raises(RuntimeError, match="part of other work"):
        in_parts([0, 1, 2], find)


def test_the_command_line(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = '[graph]\nkind = "ring"\nnodes = 70\n[structure]\nspace = "polynomial"\n'
    (tmp_path / "ring.toml").write_text('name = "ring"\ndesign = "space"\n' + text)
    run = CliRunner()

    def asked(*words: str) -> tuple[int, Any]:
        found = run.invoke(commands, ["parts", *map(str, words), "--json"], standalone_mode=False)
        assert found.exception is None, found.exception
        return found.return_value or 0, json.loads(found.stdout)

    ring, design = str(tmp_path / "ring"), str(tmp_path / "ring-design")
    assert asked("store", str(tmp_path / "ring.toml"), ring, "--parts", "3")[1]["parts"] == 3
    code, record = asked("solve", ring, "-o", design, "--gap", "1e-9")
    assert (code, record["status"]) == (1, "inaccurate")
    assert record["sensitivity_squared"] <= 1
    assert record["noise_stddev"] == 1  # without a target, which is said
    words = run.invoke(commands, ["parts", "solve", ring, "-o", design], standalone_mode=False)
    assert "states no privacy target" in words.output
    assert "noise_stddev" not in words.output
    assert ("the gap is above" in words.output) == ("inaccurate" in words.output)
    words = run.invoke(commands, ["parts", "solve", ring, "-o", design, "--gap", "1e-9"])
    assert "inaccurate: the gap is above the one asked for" in words.output
    words = run.invoke(commands, ["parts", "verify", design, ring], standalone_mode=False)
    assert [line.split() for line in words.stdout.splitlines()][:2] == [
        ["ok", "yes"],
        ["budgets", "yes"],
    ]
    code, record = asked("verify", design, ring)
    assert (code, record["ok"]) == (0, True)


def test_what_is_asked_of_one_process_is_exact() -> None:
    for nodes, exact in ((work.MOST_EXACT, True), (work.MOST_EXACT + 1, False)):
        ring = nd.graphs.sparse_mixing_matrix(nd.build_graph("ring", nodes=nodes))
        assert bound.is_exact(SparseProgram(mixing=ring)) is exact


def test_a_part_ends_whose_client_asks_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mail, "ABANDONED", 0.05)
    box = mail.Box()
    box.put(1, (0, "sum"), 3)
    box.put(1, (1, "sum"), 4)
    time.sleep(0.1)
    assert box.take(1, (0, "sum"), silence=1) == 3  # in one process nobody asks
    box.heard()
    time.sleep(0.1)
    with pytest.raises(LostError, match="the client asked nothing for 0.05 s"):
        box.take(1, (1, "sum"), silence=1)
    box.heard()
    with pytest.raises(LostError, match="the client asked nothing"):
        box.take(2, (0, "sum"), silence=60)  # which nobody sends
    box.heard()
    assert box.take(1, (1, "sum"), silence=1) == 4
