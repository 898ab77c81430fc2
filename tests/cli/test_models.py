"""The command ``model``: a problem file in, a file of a conic program out."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.command_line import call, write
from tests.support.conic_file_readers import read_cbf

RING = """name = "ring-5"
description = "Five in a ring."
design = "space"

[graph]
kind = "ring"
nodes = 5

[reference]
lower = 1.15
upper = 1.25
method = "by eye"
"""


def test_command(tmp_path: Path) -> None:
    problem, path = write(tmp_path, RING), tmp_path / "ring.dat-s"
    outcome = call("model", problem, "-o", path, "--json")
    assert outcome.code == 0
    assert outcome.json() == {
        "file": str(path),
        "format": "sdpa",
        "formulation": "compact",
        "variables": 30,
        "blocks": [10],
        "rows": 5,
        "entries": 30 + 15 + 5 + 5,
    }
    text = path.read_text()
    assert re.search(r"^\* Five in a ring\. .* between 1\.15 and 1\.25 \(by eye\)\.$", text, re.M)
    plain = call("model", problem, "--format", "cbf", "--formulation", "paper", "-o", path)
    assert (plain.code, plain.out) == (0, f"{path}\n")
    assert "paper: 16 variables, 6 blocks of up to 6 rows, 1 linear rows" in plain.err
    assert read_cbf(path).sizes == [5, 6, 6, 6, 6, 6]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("-o", "x.mps"), "format: expected one of cbf, sdpa, mosek-task"),
        (("-o", "x.cbf", "--format", "mps"), "format: expected one of"),
        (("-o", "x.cbf", "--formulation", "dense"), "formulation: expected one of compact"),
        (("-o", "nowhere/x.cbf"), "output: expected an existing folder"),
        ((), "Missing option"),
    ],
)
def test_command_with_bad_input(
    arguments: tuple[str, ...], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    problem = write(tmp_path, RING)
    outcome = call("model", problem, *arguments)
    assert outcome.code == 2
    assert words in outcome.err
    assert list(tmp_path.iterdir()) == [problem]


def test_command_refuses_what_is_not_convex(tmp_path: Path) -> None:
    problem = write(
        tmp_path,
        RING.replace('"space"', '"space-time"') + "[participation]\nepochs = 1\nseparation = 4\n",
    )
    outcome = call("model", problem, "-o", tmp_path / "x.cbf")
    assert outcome.code == 2
    assert "structure.joint: expected a problem that is convex" in outcome.err
