"""The page of every figure, table and theorem: what the tool writes from the results, and whole."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.project.test_guides import names_of_tests
from tests.project.test_locks import tool
from tests.support import ROOT, pages

TOOL = tool("every_figure")
SOURCES = {name: TOOL.source(name) for name in TOOL.SOURCES}
ROWS = [(name, row) for name, of in SOURCES.items() for row in of.rows]
MEASURED = [row for _, row in ROWS if row.measure]
PARTIAL = ("gossip-sensitivity", "pndp-by-distance")  # of who does not read all messages


def test_the_page_is_what_the_tool_writes() -> None:
    assert pages.read(TOOL.PAGE) == TOOL.page()


def test_every_numbered_item_has_a_row() -> None:
    """Numbers are counted in the sources by hand; consecutive ones are there one by one."""
    for name, of in SOURCES.items():
        for kind, count in of.numbered.items():
            found = {row.number for row in of.rows if row.number.split()[0] == kind}
            assert len(found) == count, (name, kind, sorted(found))
            if kind in ("Figure", "Table"):
                assert found == {f"{kind} {k}" for k in range(1, count + 1)}
        items = [row.item for row in of.rows]
        assert len(set(items)) == len(items)


def test_what_rows_name_exists() -> None:
    tests = names_of_tests()
    for _, row in ROWS:
        assert set(row.tests) <= tests, row.item
        assert not row.picture or (ROOT / "docs" / "pictures" / f"{row.picture}.svg").exists()
        stored = row.measure and (TOOL.EXPERIMENTS / f"{row.measure['csv']}.csv").exists()
        assert stored or not row.measure or row.until, row.item
        assert not row.command or row.command.startswith("noisedesign "), row.item
        assert bool(row.published) <= bool(row.place), row.item


def test_a_verdict_rests_on_something() -> None:
    """A number of the results, a test, a reason why nothing was done, or a page that tells more."""
    for _, row in ROWS:
        assert bool(row.measure) != bool(row.verdict), row.item
        if row.measure:
            continue
        assert row.verdict in (*TOOL.VERDICTS, TOOL.NEITHER), row.item
        if row.verdict in (TOOL.AGREES, TOOL.WEAKLY, TOOL.NOT):
            assert row.tests, row.item
        elif row.verdict in (TOOL.OPEN, TOOL.UNDONE):
            assert row.note, row.item


def test_what_a_test_refutes_is_among_the_errata() -> None:
    told = pages.read("docs/errata.md")
    for _, row in ROWS:
        if row.verdict == TOOL.NOT and not row.command:
            assert any(test in told for test in row.tests), row.item


def test_every_command_says_how_long_it_ran_as_its_page_does() -> None:
    took = {command: time for of in SOURCES.values() for command, time in of.took.items()}
    assert {row.command for row in MEASURED} == set(took)
    written = TOOL.page()
    for command, time in took.items():
        if command.startswith("noisedesign reproduce "):
            told = pages.read(f"docs/experiments/{command.rpartition(' ')[2]}.md")
            assert time in " ".join(told.split()), command
        assert f"| `{command}` | {time} |" in written


def test_what_readers_of_a_part_learn_is_labelled() -> None:
    of_parts = [row for row in MEASURED if row.measure["csv"] in PARTIAL]
    assert len(of_parts) >= 9
    assert all("fixed responses" in row.note for row in of_parts)


def test_what_is_to_be_measured_is() -> None:
    """What is not says why."""
    lost = [row.item for row in MEASURED if TOOL.judgement(row).here == TOOL.UNMEASURED]
    assert len(MEASURED) >= 25
    assert not lost


# --- how it comes to its verdicts -----------------------------------------------------------------

STORED = """place,name,level,loss,loss_low,loss_high
ring,a,1,10,9,11
ring,b,1,20,18,22
ring,a,2,5,4,6
ring,b,2,5.5,5,7
star,a,1,30,,
star,b,1,31,,
path,a,1,,,
path,b,1,7,6,8
line,a,1,4,3,5
line,a,2,nan,,
line,b,1,7,6,8
line,b,2,7,6,8
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "x.csv").write_text(STORED, encoding="utf-8")
    return tmp_path


A_RING = {"csv": "x", "where": {"place": "ring", "name": "a"}, "column": "loss"}
ONE = A_RING | {"where": {"place": "ring", "name": "a", "level": 1}}
STAR = A_RING | {"where": {"place": "star", "name": "a"}}
LINE = A_RING | {"where": {"place": "line", "name": "a"}}
THAN_B = {"than": {"name": "b"}, "by": ["level"], "less": True}


@pytest.mark.parametrize(
    ("measure", "here", "verdict"),
    [
        (ONE | {"near": 10.5}, "10 (9 to 11)", "agrees"),
        (ONE | {"near": 10.9, "within": 0.05}, "10 (9 to 11)", "open"),  # it holds much else
        (ONE | {"near": 11.5, "within": 0.2}, "10 (9 to 11)", "agrees weakly"),
        (ONE | {"near": 11.5}, "10 (9 to 11)", "does not agree"),
        (STAR | {"near": 32.0}, "30", "agrees"),  # up to a tenth, and the page says so
        (STAR | {"near": 32.0, "exact": True}, "30", "agrees"),
        (STAR | {"near": 40.0}, "30", "does not agree"),
        (ONE | {"at_most": 11}, "10 (9 to 11)", "agrees"),
        (ONE | {"at_most": 10}, "10 (9 to 11)", "agrees weakly"),
        (ONE | {"at_most": 9.5}, "10 (9 to 11)", "open"),
        (ONE | {"at_most": 8}, "10 (9 to 11)", "does not agree"),
        (ONE | {"at_least": 9}, "10 (9 to 11)", "agrees"),
        (ONE | {"at_least": 12}, "10 (9 to 11)", "does not agree"),
        (ONE | {"at_least": 9, "times": 0.01, "percent": 100}, "10 % (9 to 11)", "does not agree"),
        (A_RING | {"take": "mean", "near": 7.5}, "7.5", "agrees"),
        (A_RING | {"take": "least", "at_most": 6}, "5 (4 to 6)", "agrees"),
        (ONE | {"over": {"name": "b"}, "near": 0.5}, "0.5", "agrees"),
        # 10 / 20 at level 1, over 5 / 5.5 at level 2.
        (ONE | {"over": {"name": "b"}, "against": {"level": 2}, "near": 0.55}, "0.55", "agrees"),
        (STAR | THAN_B | {"exact": True}, "30 against 31", "agrees"),
        (ONE | {"per": "loss_low", "near": 1.11}, "1.11 (1 to 1.22)", "agrees"),
        (A_RING | {"near": 7.5}, "not yet measured", "open"),  # of two rows, none said which
        (A_RING | {"csv": "y", "near": 1}, "not yet measured", "open"),
        (A_RING | {"column": "risk", "take": "mean", "near": 1}, "not yet measured", "open"),
        (A_RING | {"where": {"name": "a"}, "take": "mean", "near": 15}, "not yet measured", "open"),
        (A_RING | THAN_B, "less in 2 of 2, by more than both intervals in 1", "agrees weakly"),
        (ONE | THAN_B, "10 (9 to 11) against 20 (18 to 22)", "agrees"),
        (ONE | {"than": {"name": "b"}, "more": True}, "10 (9 to 11)", "does not agree"),
        (STAR | THAN_B, "30 against 31", "agrees weakly"),  # no interval tells how sure that is
        (A_RING | {"than": 3, "more": True}, "more in 2 of 2", "agrees"),
        # The row without a number is not left out, which would leave one that agrees.
        (LINE | THAN_B, "not yet measured", "open"),
        (LINE | {"than": 9, "less": True}, "not yet measured", "open"),
        (
            LINE | {"where": {"place": "line", "name": "a", "level": 2}, "near": 7},
            "not yet measured",
            "open",
        ),
        # 10 at level 1 and 5 at 2: 7.07 is half way in logarithms.
        (
            A_RING | {"column": "level", "crosses": "loss", "level": 50**0.5, "near": 2**0.5},
            "1.41",
            "agrees",
        ),
    ],
)
def test_verdicts_by_hand(measure: dict, here: str, verdict: str, folder: Path) -> None:
    found = TOOL.judged(measure, folder)
    assert found.here.startswith(here)
    assert found.verdict == verdict


def test_rules_are_said(folder: Path) -> None:
    for measure, rule in (
        (ONE | {"near": 10.5}, "the interval holds the published number"),
        (STAR | {"near": 32.0}, "within 10 %; no interval is stored"),
        (STAR | {"near": 32.0, "exact": True}, "within 10 %"),
        (STAR | {"at_most": 31.0}, "no interval is stored"),
        (STAR | {"at_most": 31.0, "exact": True}, ""),
        (STAR | {"near": 40.0}, "25 % off; no interval is stored"),
        (ONE | {"at_most": 11.0}, "the whole interval is on that side"),
    ):
        assert TOOL.judged(measure, folder).rule == rule


def test_narrow_intervals_have_ends() -> None:
    assert TOOL.shown(TOOL.Value(1.0026, 1.0009, 1.0047)) == "1.003 (1.001 to 1.005)"
    assert TOOL.shown(TOOL.Value(0.2, 0.15, 0.25), percent=100) == "20 % (15 to 25)"


def test_other_results_make_another_page(tmp_path: Path) -> None:
    """A changed number reaches the page, and so does a file that is gone."""
    shutil.copytree(TOOL.EXPERIMENTS, tmp_path / "experiments")
    changed = tmp_path / "experiments"
    path = changed / "mafalda-summary.csv"
    path.write_text(pages.read(path).replace(",gain,", ",won,", 1), encoding="utf-8")
    (changed / "whisper-saved.csv").unlink()
    text = TOOL.page(changed)
    assert "| 31 % (section 7.2) | not yet measured" in text
    assert text.count(TOOL.UNMEASURED) >= TOOL.page().count(TOOL.UNMEASURED) + 6
