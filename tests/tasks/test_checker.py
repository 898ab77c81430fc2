"""The numbers of a design, and the checker that was extracted from its proof: what it accepts by
hand, what it refuses, and that nobody is told "verified" by anything else."""

from __future__ import annotations

import random
import shutil
import stat
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import noisedesign as nd
from noisedesign.base.checks import InputError
from noisedesign.tasks.checker import ENVIRONMENT
from noisedesign.tasks.theorem import NUMBERS, numbers, theorem, times
from tests.support import ROOT
from tests.support.command_line import EPOCHS, RING, call, write
from tests.tasks.test_theorem import DESIGNS, fields_of, over_time

SHARED = {name for name in DESIGNS if name.startswith(("edges", "neighbourhoods"))}


def fields(text: str) -> dict[str, list[str]]:
    """Rows of every field by its name, of "name row, row; name row"."""
    parts = (part.strip().partition(" ") for part in text.split(";"))
    return {name: rows.split(", ") if rows else [] for name, _, rows in parts}


# W = [[5, 3], [3, 5]] / 8 has the singular values 1 and 1/4, so no noise of budgets 1 has less than
# (1 + 1/4)^2 / 2 = 25/32. R = [[25, -15], [-15, 25]] / 16 has it, and [R^-1]_ii = 1: M^T M is
# 25 R^-1 and M R M^T = 25 I for M = [[5, 3], [0, 4]].
NODES = fields(
    "W 5 3, 3 5; R 25, -15 25; tau 1 1; cap; floor; dW 8; dR 16; dt 1; po 25; qo 32; gn 1; gd 1; "
    "M 5 3, 0 4; L 5 3, 3 5; Z 1 0, 0 1; b 1 1; w 0 0; u 0 0; K 400; s 1"
)
# One record in both of two steps, H = I and C = I: absolute entries of C^T C add up to 2, and
# tr(H (C^T C)^-1) = 2. By Cauchy and Schwarz 4 <= tr(X^-1) tr(X) for all X, and tr(X) <= 2.
STEPS = fields(
    "H 1, 0 1; C 1, 0 1; steps 0 1; tau 2; dL 1; dC 1; dt 1; po 2; qo 1; gn 1; gd 1; "
    "M 1 0, 0 1; L 1, 0 1; Z 1 0, 0 1; B 1 0, 0 1; on 0 0; K 1; s 1"
)
WRONG = {
    "space": [
        "R 24, -15 25",  # too little noise at node 0
        "R 25, -14 25",
        "po 2500001; qo 3200000",
        "gn 999999999; gd 1000000000",
        "tau 999999 1000000; dt 1000000",
        "cap 25 24",
        "floor 25 26",
        "L 6 3, 3 5",  # more than W
        "b 2 1",
        "K 300",
    ],
    "time": [
        "C 1, 1 1",
        "C 1 1, 0 1",  # not lower triangular
        "tau 1999999; dt 1000000",
        "po 2000001; qo 1000000",
        "gn 999999999; gd 1000000000",
        "steps 0",  # a column of B on a step that is not of its pattern
        "on 0 1",  # a pattern that is not there
    ],
}


def text_of(kind: str, changes: str = "s 1") -> str:
    given = NODES if kind == "space" else STEPS
    lines = [NUMBERS, f"{kind} 2"]
    for name, rows in (given | fields(changes)).items():
        lines += [f"{name} {len(rows)}", *rows]
    return "\n".join([*lines, ""])


def read(text: str) -> dict[str, list[list[int]]]:
    """Fields of such a text by their names, as lists of rows."""
    lines = iter(text.splitlines()[2:])
    found = {}
    for line in lines:
        name, count = line.split()
        found[name] = [[int(x) for x in next(lines).split()] for _ in range(int(count))]
    return found


@pytest.mark.parametrize("name", sorted(DESIGNS.keys() - SHARED))
def test_numbers_are_those_of_the_theorem(name: str) -> None:
    design = DESIGNS[name]()
    said = fields_of(theorem(design))
    found = read(numbers(design))
    assert list(found) == list(said)
    for key, value in said.items():
        rows: Any = [] if value is None else [[value]] if isinstance(value, int) else value
        assert found[key] == ([rows] if rows and isinstance(rows[0], int) else rows), key


def test_seeds_are_refused_by_name() -> None:
    assert len(SHARED) == 3
    with pytest.raises(InputError, match="expected a design without a structure, for the checker"):
        numbers(DESIGNS["edges"]())


@pytest.mark.parametrize("bits", [1, 22, 53, 64, 130])
@pytest.mark.parametrize("inner", [1, 3, 255, 256])
def test_products_are_those_of_whole_numbers(bits: int, inner: int) -> None:
    """Also of the largest sums, all terms of one sign, which a float could round."""
    draw, most = random.Random(bits + inner), 2**bits - 1
    for low in -most, 0, most:
        a = [[draw.randint(low, most) for _ in range(inner)] for _ in range(2)]
        b = [[draw.randint(low, most), -most] for _ in range(inner)]
        product = [[sum(a[i][k] * b[k][j] for k in range(inner)) for j in (0, 1)] for i in (0, 1)]
        assert times(np.array(a, dtype=object), np.array(b, dtype=object)).tolist() == product


def test_a_bound_that_is_better_than_claimed_is_no_error() -> None:
    design = over_time()
    modest = replace(design.certificate, lower_bound=design.certificate.lower_bound * (1 - 1e-6))
    assert fields_of(theorem(replace(design, certificate=modest))) == fields_of(theorem(design))


# --- the command --------------------------------------------------------------------------------


@pytest.fixture
def ring(tmp_path: Path) -> Path:
    design = tmp_path / "ring.npz"
    assert call("solve", write(tmp_path, RING), "-o", design).code == 0
    return design


def program(tmp_path: Path, lines: str) -> Path:
    path = tmp_path / "checker"
    path.write_text(f"#!/bin/sh\n{lines}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


@pytest.mark.parametrize("how", ["option", "environment", "folder"])
def test_where_there_is_no_checker_it_says_how_to_build_one(
    ring: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    place = tmp_path if how == "folder" else tmp_path / "none"
    if how == "environment":
        monkeypatch.setenv(ENVIRONMENT, str(place))
    outcome = call(
        "verify", ring, "--verified", *([] if how == "environment" else ["--checker", place])
    )
    assert (outcome.code, outcome.out) == (2, "")
    assert f"got none at {place}. `sh proofs/build.sh --checker` builds it" in outcome.err


def test_the_verdict_is_that_of_the_checker(ring: Path, tmp_path: Path) -> None:
    """It is given the numbers, and believed only where code and word are those of a verdict."""
    heard = tmp_path / "heard"
    for lines, code, ok in ("echo accepted", 0, True), ("echo refused; exit 1", 1, False):
        path = program(tmp_path, f"cat > {heard}\n{lines}")
        outcome = call("verify", ring, "--verified", "--checker", path, "--json")
        assert outcome.code == code
        assert outcome.json()["verified"] is ok is outcome.json()["ok"]
        assert heard.read_text() == numbers(nd.load(ring).design)
        last = outcome.json()["checks"][-1]
        assert (last["name"], last["ok"]) == ("verified", ok)
    for lines in ":", "echo accepted; exit 1", "echo refused", "echo more >&2; exit 2":
        outcome = call(
            "verify", ring, "--verified", "--checker", program(tmp_path, f"cat > {heard}\n{lines}")
        )
        assert (outcome.code, outcome.out) == (2, ""), lines
    assert "which said: more" in outcome.err


def test_a_design_that_does_not_hold_is_not_verified(ring: Path, tmp_path: Path) -> None:
    design = nd.load(ring).design
    less = replace(design.noise, space=design.covariance * 0.999)
    path = nd.save(replace(design, noise=less), tmp_path / "less.npz")
    checker = program(tmp_path, "echo accepted")
    outcome = call("verify", path, "--verified", "--checker", checker, "--json")
    assert (outcome.code, outcome.json()["verified"]) == (1, False)


def test_without_the_option_no_checker_is_asked(
    ring: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ENVIRONMENT, "/nowhere")
    outcome = call("verify", ring, "--json")
    assert outcome.code == 0
    assert "verified" not in outcome.json()


def test_prove_writes_the_numbers(ring: Path, tmp_path: Path) -> None:
    path = tmp_path / "ring.txt"
    for _ in range(2):  # its own kind of file is replaced
        outcome = call("prove", ring, "--numbers", "-o", path)
        assert (outcome.code, outcome.out) == (0, f"{path}\n")
        assert f"noisedesign-check < {path}" in outcome.err
        assert path.read_text() == numbers(nd.load(ring).design)


# --- by the checker itself ----------------------------------------------------------------------

BUILT = pytest.mark.skipif(
    shutil.which("coqc") is None or shutil.which("ocamlfind") is None,
    reason="no coqc or no ocamlfind",
)


@pytest.fixture(scope="module")
def checker(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("proofs")
    shutil.copytree(ROOT / "proofs", folder, dirs_exist_ok=True)
    command = ["sh", folder / "build.sh", "--checker"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder / "checker" / "build" / "noisedesign-check"


def told(checker: Path, text: str) -> tuple[int, str]:
    done = subprocess.run([checker], input=text, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout.strip() or done.stderr.strip()


@BUILT
@pytest.mark.slow
def test_checker_by_hand(checker: Path) -> None:
    for kind in "space", "time":
        assert told(checker, text_of(kind)) == (0, "accepted")
    assert told(checker, text_of("space", "cap 25 25; floor 25 25")) == (0, "accepted")
    for kind, changed in WRONG.items():
        for changes in changed:
            assert told(checker, text_of(kind, changes)) == (1, "refused"), changes
    good = text_of("space")
    for text, why in [
        ("", "too early"),
        (good[:-10], "too early"),
        (good + "1\n", "more follows"),
        (good.replace("space 2", "space -2"), "not a number of a row"),
        (good.replace("space 2", "plane 2"), "over space or time"),
        (good.replace("tau 1", "tau 2"), "not a whole number: cap"),
        (good.replace("dW 1", "w 1"), "expected the field dW"),
        (good.replace("dW 1\n8", "dW 1\n8 8"), "one of dW"),
        (good.replace("-15", "-1.5"), "not a whole number"),
        (good.replace("of a design\n", "of another\n"), "expected numbers"),
        (text_of("time", "on 0 -1"), "not a number of a row"),
    ]:
        code, said = told(checker, text)
        assert (code, why in said) == (2, True), (why, said)


@BUILT
@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(DESIGNS.keys() - SHARED))
def test_checker_accepts_what_is_true_and_nothing_else(name: str, checker: Path) -> None:
    text = numbers(DESIGNS[name]())
    assert told(checker, text) == (0, "accepted")
    said = read(text)
    noise, scale = ("R", -said["dR"][0][0]) if "W" in said else ("C", said["dC"][0][0])
    changes = {
        noise: scale // 10**6,
        "po": said["po"][0][0] // 10**8,
        "gn": said["gd"][0][0] - 1 - said["gn"][0][0],
        "tau": -(said["dt"][0][0] // 10**6) or -1,
    }
    for field, by in changes.items():
        lines = text.splitlines()
        at = lines.index(next(line for line in lines if line.startswith(f"{field} "))) + 1
        first, *rest = lines[at].split()
        lines[at] = " ".join([str(int(first) + by), *rest])
        assert told(checker, "\n".join([*lines, ""])) == (1, "refused"), field


@BUILT
@pytest.mark.slow
@pytest.mark.parametrize("problem", [RING, EPOCHS])
def test_verify_with_the_checker(problem: str, checker: Path, tmp_path: Path) -> None:
    design = tmp_path / "design.npz"
    assert call("solve", write(tmp_path, problem), "-o", design).code == 0
    outcome = call("verify", design, "--verified", "--checker", checker, "--json")
    assert (outcome.code, outcome.json()["verified"]) == (0, True)
