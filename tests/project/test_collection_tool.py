"""The tool that keeps the public collection: runs limited by CPU seconds, and files of programs."""

from __future__ import annotations

import csv
import hashlib
import importlib.util
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from noisedesign.design.backends import get_backend
from noisedesign.surveys.check_results import read_verdicts
from noisedesign.surveys.collection import collection
from tests.support import ROOT

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="runs are forked, and limited as Linux does it"
)

RING, KRONECKER = "collection/ring-10", "collection/star-10-kronecker-2x8"


@pytest.fixture(scope="module")
def tool() -> Any:
    spec = importlib.util.spec_from_file_location("collection_tool", ROOT / "tools/collection.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


# --- runs -----------------------------------------------------------------------------------------


def spin(seconds: float) -> None:
    began = time.process_time()
    while time.process_time() - began < seconds:
        pass


def run(
    tool: Any, monkeypatch: pytest.MonkeyPatch, folder: Path, work: Any, *, limit: float
) -> dict[str, Any]:
    """What becomes of a native run that does some work first."""
    native = get_backend("native")
    inner = native.answer

    def answer(*how: Any) -> Any:
        work()
        return inner(*how)

    monkeypatch.setattr(native, "answer", answer)
    monkeypatch.setattr(tool, "_load", lambda backend: None)  # it would do the work twice
    problem = tool.load_problem(RING).problem
    found: dict[str, Any] = tool._in_a_process(problem, "native", 1e-3, limit, folder / "r.npz")
    return found


def test_a_run_that_computes_too_long_is_ended(
    tool: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    found = run(tool, monkeypatch, tmp_path, lambda: spin(60), limit=0.1)
    assert found == {"reason": "ended after 0.1 s of CPU"}


def test_a_run_that_waits_is_not(
    tool: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As one does beside which others run: its limit is long over by the clock on the wall."""
    found = run(tool, monkeypatch, tmp_path, lambda: time.sleep(0.6), limit=0.5)
    assert found["seconds"] < 0.6
    assert (tmp_path / found["answer"]).exists()


def test_processes_that_a_run_starts_count(
    tool: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    code = "import time\nwhile time.process_time() < 0.4: pass"
    work = [sys.executable, "-I", "-S", "-c", code]
    found = run(tool, monkeypatch, tmp_path, lambda: subprocess.run(work, check=True), limit=30.0)
    assert found["seconds"] >= 0.4


def test_a_run_that_dies_has_a_reason(
    tool: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def broken() -> None:
        raise ArithmeticError("no luck")

    died = run(tool, monkeypatch, tmp_path, lambda: tool.os._exit(7), limit=30.0)
    assert died == {"reason": "its process ended with exit code 7"}
    failed = run(tool, monkeypatch, tmp_path, broken, limit=30.0)
    assert failed["reason"] == "ArithmeticError: no luck"


def test_half_a_line_is_taken_back_with_its_problem(tool: Any, tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    assert tool._begun(table, ("problem", "solver")) == []
    assert table.read_text() == "problem,solver\n"
    whole = [{"problem": "a", "solver": "s"}, {"problem": "b", "solver": "s"}]
    tool._append(table, ("problem", "solver"), whole)
    assert tool._begun(table, ("problem", "solver")) == whole
    with table.open("a") as file:
        file.write("b,clara")
    assert tool._begun(table, ("problem", "solver")) == whole[:1]
    assert table.read_text() == "problem,solver\na,s\n"


@pytest.mark.slow
def test_answers_go_on_where_they_ended(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "tools" / "collection.py"), "answers"]
    command += ["-o", str(tmp_path), "--cpu-limit", "5", "--problems", "collection/*-10"]
    subprocess.run([*command, "--backends", "native"], check=True, capture_output=True)
    first = (tmp_path / "answers.csv").read_text()
    (tmp_path / "answers.csv").write_text(first[:-5])
    subprocess.run([*command, "--backends", "native,scs"], check=True, capture_output=True)
    found = rows(tmp_path / "answers.csv")
    wanted = {name for name in collection() if name.startswith("collection/") and "-10" in name}
    asked = {(row["problem"], row["solver"]) for row in found}
    assert {name for name, _ in asked} <= wanted
    assert asked == {(name, solver) for name, _ in asked for solver in ("native", "scs")}
    assert {row["clock"] for row in found} == {"cpu"}
    assert all((tmp_path / row["answer"]).exists() for row in found if row["answer"])


# --- the published results ------------------------------------------------------------------------


def test_the_page_says_what_the_verdicts_do(tool: Any) -> None:
    """All its numbers, but for those of the rules, are written by the command."""
    verdicts = read_verdicts(ROOT / "docs" / "collection-results.csv")
    found = tool.published(verdicts)
    assert found.ok
    assert found.clocks == ("cpu",)
    assert {row["problem"] for row in verdicts} == set(collection())
    assert {row["solver"] for row in verdicts} >= {"native", "scs", "clarabel", "cvxopt", "sdpa"}
    page = (ROOT / "docs" / "guides" / "collection.md").read_text()
    assert f"{tool.BEGIN}\n\n{tool.section(found)}\n{tool.END}" in page
    assert page.startswith(f"# A public collection of problems\n\n{len(collection())} problems")
    assert f"within {tool.CPU_LIMIT:g} s of CPU" in page
    assert f"{tool.GIBIBYTES} GiB" in page


def test_a_section_counts_what_is_late_and_wrong(tool: Any) -> None:
    blank = {"problem": RING, "clock": "cpu", "confidence": None, "excess": 0.0}
    rows = [
        blank | {"solver": "a", "seconds": 1.0, "status": "verified"},
        blank | {"solver": "b", "seconds": 5.5, "status": "verified", "confidence": 0.9},
        blank | {"solver": "b", "seconds": 1.0, "status": "wrong", "excess": None},
        blank | {"solver": "b", "seconds": 5.0, "status": "missing", "excess": None},
    ]
    text = tool.section(tool.published(rows))
    assert "| a | 1 | 1 | " in text
    assert "| b | 3 | 0 | 50 | 0 | 50 | 0 | 50 |" in text
    assert "4 runs: 2 answers verified, 1 runs without one, 1 answers wrong." in text
    assert "1 verified answers came late (1 by b)" in text
    assert f"confidence 0.9 each: those to `{RING}`" in text


# --- programs -------------------------------------------------------------------------------------


def test_programs_are_hashed_or_have_a_reason(tool: Any, tmp_path: Path) -> None:
    asked = ["programs", "--problems", RING, KRONECKER]
    tool.main([*asked, "-o", str(tmp_path / "a")])
    found = rows(tmp_path / "a" / "programs.csv")
    assert [(row["problem"], row["format"]) for row in found] == [
        (name, suffix) for name in (RING, KRONECKER) for suffix in (".cbf", ".dat-s")
    ]
    for row in found[:2]:
        lines = (tmp_path / "a" / f"{RING}{row['format']}").read_bytes().splitlines(keepends=True)
        data = b"".join(line for line in lines if line[:1] not in (b"#", b"*"))
        assert len(data) < sum(map(len, lines))
        assert row["sha256"] == hashlib.sha256(data).hexdigest()
        assert (int(row["bytes"]), row["reason"]) == (len(data), "")
    assert all("convex" in row["reason"] and not row["sha256"] for row in found[2:])
    tool.main([*asked, "-o", str(tmp_path / "b"), "--hashes-only"])
    assert rows(tmp_path / "b" / "programs.csv") == found
    assert not [*(tmp_path / "b").glob("*/*.cbf")]
    tool.main([*asked, "-o", str(tmp_path / "b")])  # goes on: there is nothing left to do
    assert rows(tmp_path / "b" / "programs.csv") == found


def test_no_problem_is_left_out(tool: Any) -> None:
    assert set(tool.files()) == set(collection())
