"""Small wrong changes: the list says what is in the code, and the tool tells noticed from not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support import mutants

TABLE = "def total(values):\n    return sum(values)\n\n\ndef rest(values):\n    return values[1:]\n"
TESTS = """
from noisedesign.table import total

def test_total():
    assert total([1, 2]) == 3
"""


def test_the_list_is_true() -> None:
    """Whoever rewrites a line changes its entry, or takes it out."""
    found = mutants.listed()
    assert len(found) > 200
    assert len({one.id for one in found}) == len(found)
    stale = {one.id: said for one in found if (said := one.wrong(mutants.ROOT))}
    assert stale == {}, "python -m tests.support.mutants --stale"
    for one in found:
        assert one.equivalent is None or len(one.equivalent.split()) > 4, one.id


def entry(name: str, before: str, after: str, **more: Any) -> dict[str, Any]:
    one = {"id": name, "file": "noisedesign/table.py", "before": before, "after": after}
    return one | {"tests": ["tests/test_table.py::test_total"], "equivalent": None} | more


def tree(folder: Path, *entries: dict[str, Any]) -> Path:
    """A project of one module and its tests, with a list of mutants."""
    texts = {
        "noisedesign/__init__.py": "",
        "noisedesign/table.py": TABLE,
        "tests/test_table.py": TESTS,
        str(mutants.LIST): "".join(json.dumps(one) + "\n" for one in entries),
    }
    for name, text in texts.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    return folder


SUM = ("wrong-sum", "sum(values)", "max(values)")  # as long as what it is for
REST = ("wrong-rest", "[1:]", "[2:]")


def test_what_no_test_notices_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = tree(tmp_path, entry(*SUM), entry(*REST))
    assert mutants.main(["--all", "--jobs", "1"], root=root) == 1
    said = {line.split()[0]: line for line in capsys.readouterr().out.splitlines()}
    assert mutants.NOTICED in said["wrong-sum"]
    assert "test_total" in said["wrong-sum"]
    assert mutants.UNNOTICED in said["wrong-rest"]
    assert (root / "noisedesign/table.py").read_text() == TABLE
    assert mutants.main(["wrong-sum"], root=root) == 0
    assert mutants.run(["tests"], root, timeout=0.01)[0] == mutants.ENDLESS


def test_what_is_not_installed_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its tests would skip, and a wrong change would look as if nobody noticed it."""
    root = tree(tmp_path, entry(*SUM), entry(*REST, needs=["no_such_trainer"]))
    assert mutants.main(["--all", "--jobs", "1"], root=root) == 0
    said = capsys.readouterr().out
    assert "1 of 2 are not run: some of no_such_trainer is not installed" in said
    assert "wrong-rest" not in said
    assert mutants.main(["--all", "--needing"], root=root) == 0
    assert "wrong-sum" not in capsys.readouterr().out


def test_tests_that_fail_anyway_notice_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = tree(tmp_path, entry(*SUM))
    (root / "tests/test_table.py").write_text(TESTS.replace("== 3", "== 4"))
    assert mutants.main([], root=root) == 1
    assert "without any mutant" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (entry("a", "no such text", ""), "0 times"),
        (entry("a", "values", "value"), "4 times"),
        (entry("a", "sum(values)", "sum(values)"), "1 times"),
        (entry("a", "sum(values)", "", file="noisedesign/lost.py"), "0 times"),
        (entry(*SUM, tests=["tests/test_lost.py"]), "there is no tests/test_lost.py"),
        (entry(*SUM, tests=["tests/test_table.py::test_tot"]), "there is no"),
        (entry(*SUM, tests=[]), "no test is named"),
    ],
)
def test_what_is_no_longer_true_is_listed(
    wrong: dict[str, Any], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = tree(tmp_path, wrong)
    assert mutants.main(["--stale"], root=root) == 1
    assert said in capsys.readouterr().out


def test_a_sample_is_its_seeds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"sum-{i}" for i in range(20)]
    root = tree(tmp_path, *(entry(name, *SUM[1:]) for name in names), entry(*REST, equivalent="x"))
    tried: list[list[str]] = []
    monkeypatch.setattr(mutants, "judge", lambda chosen, **_: tried.append([m.id for m in chosen]))
    for arguments in (["--seed", "1"], ["--seed", "1"], ["--seed", "2"], ["--all"]):
        assert mutants.main([*arguments, "--sample", "5"], root=root) == 0
    assert tried[0] == tried[1] != tried[2]
    assert len(tried[2]) == 5
    assert tried[3] == names  # what is argued to be equivalent is not run
