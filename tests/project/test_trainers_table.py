"""The table of trainers in the guide: what the tests that train wrote, and nothing by hand."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.project.test_locks import tool
from tests.support import ROOT
from tests.support.trainer_rows import FOLDER, trainer_row

TABLE = tool("trainers_table")
WORDS = {"works": ["clips", "a | b"], "refuses": ["half precision"], "cost": "1.1 times"}


def test_the_table_is_that_of_the_stored_rows() -> None:
    rows = TABLE.read_rows()
    text = (TABLE.GUIDES / "trainers.md").read_text(encoding="utf-8")
    assert TABLE.page(text, rows) == text


SHARED = {"__init__", "alone", "jax_noise", "pytorch_ranks", "run", "update"}
"""Modules of adapters that are parts of others, or of several trainers."""


def test_every_adapter_has_a_row_that_a_test_of_it_writes() -> None:
    paths = [*ROOT.glob("tests/adapters/test_*.py"), *ROOT.glob("tests/files/exports/test_*.py")]
    texts = [text for path in paths if "trainer_row(" in (text := path.read_text("utf-8"))]
    rows = TABLE.read_rows().keys()
    for text in texts:
        for name in re.findall(r'trainer_row\(\s*"([^"]+)"', text):
            assert name in rows, name
    for name in rows:
        assert any(f'"{name}"' in text for text in texts), name
    for adapter in {path.stem for path in ROOT.glob("noisedesign/adapters/*.py")} - SHARED:
        assert any(adapter in text for text in texts), adapter


def test_rows_become_lines_and_those_of_other_runs_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    guides, folder = tmp_path / "guides", tmp_path / "rows"
    guides.mkdir()
    (guides / "trainers.md").write_text(f"a\n{TABLE.BEGINS}\nold\n{TABLE.ENDS}\nb\n")
    (guides / "trainers-rows.json").write_text("[]")
    monkeypatch.setattr(TABLE.read_rows, "__defaults__", (guides,))
    monkeypatch.setattr(TABLE.write, "__defaults__", (guides,))
    assert TABLE.main(str(tmp_path)) == 1
    monkeypatch.setenv(FOLDER, str(folder))
    trainer_row("Zeta net", packages=(), **WORDS)
    assert TABLE.main(str(folder)) == 0
    (folder / "zeta-net.json").unlink()
    trainer_row("alpha", packages=("pytest",), **WORDS)
    assert TABLE.main(str(folder)) == 0
    told = capsys.readouterr().out
    assert "1 trainers tested, 2 in the table\nnot reached by this run, as they were: Zeta" in told
    lines = (guides / "trainers.md").read_text().splitlines()
    assert (lines[:2], lines[-2:]) == (["a", TABLE.BEGINS], [TABLE.ENDS, "b"])
    first, second = (line for line in lines if line.startswith(("| alpha", "| Zeta")))
    assert first.startswith(f"| alpha | pytest {pytest.__version__}, Python 3.")
    assert first.endswith(r" | clips; a \| b | half precision | 1.1 times |")
    assert second.startswith("| Zeta net | by its interface, not run | clips")


def test_words_of_a_row_are_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether they are written or not."""
    for folder in ("", str(tmp_path / "rows")):
        monkeypatch.setenv(FOLDER, folder)
        for wrong in ({"works": "clips"}, {"works": []}, {"refuses": [" "]}, {"cost": "a\nb"}):
            with pytest.raises(AssertionError):
                trainer_row("a", packages=(), **{**WORDS, **wrong})
    assert not (tmp_path / "rows").exists()
