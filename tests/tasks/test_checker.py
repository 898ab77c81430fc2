"""The numbers of a design, and the checker that was extracted from its proof: what it accepts by
hand, what it refuses, and that nobody is told "verified" by anything else."""

from __future__ import annotations

import random
import re
import shutil
import stat
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import noisedesign as nd
from noisedesign.tasks.checker import ENVIRONMENT
from noisedesign.tasks.theorem import NUMBERS, numbers, theorem, times
from tests.support import ROOT
from tests.support.command_line import EPOCHS, RING, call, write
from tests.tasks.test_theorem import DESIGNS, fields_of, flat, over_time


def fields(text: str) -> dict[str, list[str]]:
    """Rows of every field by its name, of "name row, row; name row", or of "name row/row, row/row"
    where a matrix is a line."""
    parts = (part.strip().partition(" ") for part in text.split(";"))
    return {name: rows.replace("/", ";").split(", ") if rows else [] for name, _, rows in parts}


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
    "H 1, 0 1; C 1, 0 1; steps 0 1; tau 2; cap; dL 1; dC 1; dt 1; po 2; qo 1; gn 1; gd 1; "
    "M 1 0, 0 1; L 1, 0 1; Z 1 0, 0 1; B 1 0, 0 1; on 0 0; w 0 0; K 1; s 1"
)
# Records of one step each, and an error 7/5 x + y of the noise x, y of two steps, which is small
# where noise is large: H, of rank 1, is [[49, 35], [35, 25]] / 25. Variances up to 625/576 are
# allowed, and X = C^T C = [[25, 7], [7, 25]] / 25 has them: tr(H X^-1) = 5 * 272 / 576 = 85/36.
# That is optimal: H + diag(1324, 196) / 625 = X diag(4, 1) X = L^T L for L = diag(2, 1) X, and of
# B = diag(2, 1), <L B, I>^2 = 25 is at most 5 (tr(H X'^-1) + 1520/576) for all X' allowed.
CAPPED = fields(
    "H 1225, 875 625; C 24, 7 25; steps 0, 1; tau 576 576; cap 625 625; dL 25; dC 25; dt 576; "
    "po 85; qo 36; gn 1; gd 1; M 25 -7, 0 24; L 50 14, 7 25; Z 1 0, 0 1; B 2 0, 0 1; on 0 1; "
    "w 1324 196; K 360000; s 1"
)
# Independent noise of variance 1: an error of 2, as columns of W have norm 1, and no such noise of
# budgets 1 has less. L = I is at most W^T W on each node, but not on both.
SEEDS = fields(
    "W 3 0, 4 5; sets 0, 1; P 1, 1; tau 1 1; cap; dW 5; dR 1; dt 1; po 2; qo 1; gn 1; gd 1; "
    "M 1 0, 0 1; L 5 0, 0 5; Z 1 0, 0 1; b 1 1; w 0 0; Q 1, 1; D 0, 0; K 1; s 1"
)
GOOD = {"space": NODES, "time": STEPS, "time, capped": CAPPED, "seeds": SEEDS}
# The two nodes of the first case, as one set: the root of R, and nothing left of W^T W.
BOTH = (
    "W 5 3, 3 5; sets 0 1; P 25/-15 25; dW 8; dR 16; po 25; qo 32; M 5 3, 0 4; L 5 3, 3 5; "
    "Q 5 -3/0 4; D 0 0/0 0; K 400"
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
        "w 0 1; L 1, 1 1",  # a price of no cap
    ],
    "time, capped": [
        "cap 625 624",
        "cap",  # without which the prices count for nothing
        "w 1325 196",  # a price that is too high, and one that is too low
        "w 1324 195",
        "w 1326 -196; L 50 14, 0 0",
        "tau 575 576",
        "po 850001; qo 360000",
        "gn 999999999; gd 1000000000",
    ],
    "seeds": [
        "P 0, 1; po 1",  # no noise at node 0
        "P 2, 1",
        "P 1",
        "sets 0, 0, 1; P 2, -1, 1; Q 1, 0, 1; D 0, 0, 0",  # a negative block
        "sets 0 1, 1",  # more may be shared
        "tau 999999 1000000; dt 1000000",
        "cap 1 0",
        "po 2000001; qo 1000000",
        "gn 999999999; gd 1000000000",
        "L 6 0, 0 5",
        "D 1, 0",
        "Q 2, 1",
        "b 2 1",
        BOTH + "; Q 5 3/0 4",
        BOTH + "; P 25/-16 25",
    ],
}


def text_of(kind: str, changes: str = "s 1") -> str:
    lines = [NUMBERS, f"{kind.split(',')[0]} 2"]
    for name, rows in (GOOD[kind] | fields(changes)).items():
        lines += [f"{name} {len(rows)}", *rows]
    return "\n".join([*lines, ""])


def read(text: str) -> dict[str, list[list[int]]]:
    """Fields of such a text by their names, as lists of lines."""
    lines = iter(text.splitlines()[2:])
    found = {}
    for line in lines:
        name, count = line.split()
        found[name] = [
            [int(x) for x in next(lines).replace(";", " ").split()] for _ in range(int(count))
        ]
    return found


@pytest.mark.parametrize("name", DESIGNS)
def test_numbers_are_those_of_the_theorem(name: str) -> None:
    design = DESIGNS[name]()
    said = fields_of(theorem(design))
    found = read(numbers(design))
    assert list(found) == list(said)
    for key, value in said.items():
        rows: Any = [] if value is None else [[value]] if isinstance(value, int) else value
        if "sets" in said and key in ("P", "Q", "D"):
            rows = [flat(block) for block in value]
        assert found[key] == ([rows] if rows and isinstance(rows[0], int) else rows), key


def test_a_block_of_shared_seeds_is_a_line() -> None:
    """Of an edge, the lower triangle 1 + 2 and a root 2 + 2, rows between semicolons."""
    lines = numbers(DESIGNS["edges"]()).splitlines()
    assert lines[1] == "seeds 4"
    for name, form in ("P", r"-?\d+;-?\d+ -?\d+"), ("Q", r"-?\d+ -?\d+;-?\d+ -?\d+"):
        at = lines.index(f"{name} 3")
        assert all(re.fullmatch(form, line) for line in lines[at + 1 : at + 4])


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
    for kind in GOOD:
        assert told(checker, text_of(kind)) == (0, "accepted"), kind
    assert told(checker, text_of("space", "cap 25 25; floor 25 25")) == (0, "accepted")
    for more in "cap 1 1", BOTH, BOTH + "; cap 25 25":
        assert told(checker, text_of("seeds", more)) == (0, "accepted"), more
    for kind, changed in WRONG.items():
        for changes in changed:
            assert told(checker, text_of(kind, changes)) == (1, "refused"), changes
    good = text_of("space")
    for text, why in [
        ("", "too early"),
        (good[:-10], "too early"),
        (good + "1\n", "more follows"),
        (good.replace("space 2", "space -2"), "not a number of a row"),
        (good.replace("space 2", "plane 2"), "over space or time, or of shared seeds"),
        (good.replace("tau 1", "tau 2"), "not a whole number: cap"),
        (good.replace("dW 1", "w 1"), "expected the field dW"),
        (good.replace("dW 1\n8", "dW 1\n8 8"), "one of dW"),
        (good.replace("-15", "-1.5"), "not a whole number"),
        (good.replace("of a design\n", "of another\n"), "expected numbers"),
        (text_of("time", "on 0 -1"), "not a number of a row"),
        (text_of("seeds", "P 1/, 1/x"), "not a whole number: x"),
    ]:
        code, said = told(checker, text)
        assert (code, why in said) == (2, True), (why, said)


@BUILT
@pytest.mark.slow
@pytest.mark.parametrize("name", DESIGNS)
def test_checker_accepts_what_is_true_and_nothing_else(name: str, checker: Path) -> None:
    text = numbers(DESIGNS[name]())
    assert told(checker, text) == (0, "accepted")
    said = read(text)
    noise = "C" if "C" in said else "P" if "sets" in said else "R"
    scale = said["dC"][0][0] if noise == "C" else -said["dR"][0][0]
    changes = {
        noise: scale // 10**6,
        "po": said["po"][0][0] // 10**8,
        "gn": said["gd"][0][0] - 1 - said["gn"][0][0],
        "tau": -(said["dt"][0][0] // 10**6) or -1,
    }
    if "sets" in said:
        changes["sets"] = 2
    if said.get("cap"):
        changes["cap"] = -(said["cap"][0][0] // 2)
    for field, by in changes.items():
        lines = text.splitlines()
        at = lines.index(next(line for line in lines if line.startswith(f"{field} "))) + 1
        lines[at] = re.sub(r"-?\d+", lambda x, by=by: str(int(x[0]) + by), lines[at], count=1)
        assert told(checker, "\n".join([*lines, ""])) == (1, "refused"), field


@BUILT
@pytest.mark.slow
@pytest.mark.parametrize("problem", [RING, EPOCHS])
def test_verify_with_the_checker(problem: str, checker: Path, tmp_path: Path) -> None:
    design = tmp_path / "design.npz"
    assert call("solve", write(tmp_path, problem), "-o", design).code == 0
    outcome = call("verify", design, "--verified", "--checker", checker, "--json")
    assert (outcome.code, outcome.json()["verified"]) == (0, True)
