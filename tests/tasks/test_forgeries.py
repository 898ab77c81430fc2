"""Forged files of every kind of noise are refused by `verify` and by the checker of its own."""

from __future__ import annotations

import warnings
from functools import cache
from pathlib import Path

import pytest

from noisedesign.base.checks import InputError
from noisedesign.families.toeplitz.solver import optimize_buffered
from noisedesign.files.design_file import load_design, save_design
from noisedesign.files.problem_file import parse_problem
from noisedesign.system.participation import FixedEpoch
from noisedesign.system.workloads.toeplitz import prefix_workload
from noisedesign.tasks.solve import solve
from noisedesign.tasks.verify import Verification, verify
from tests.support.check_design import checked
from tests.support.forgeries import forged

AT_LEAST = 50
"""Forgeries of each kind of noise."""

PRIVACY = "[privacy]\nepsilon = 2.0\ndelta = 1e-5\n"


def in_space(keys: str, *, kind: str = "path", tau: str = "[1.0, 2.0, 0.5, 1.0]") -> str:
    return (
        f'name = "nodes"\ndesign = "space"\n[graph]\nkind = "{kind}"\nnodes = 4\n'
        f"[budget]\ntau = {tau}\n{keys}{PRIVACY}steps = 10\n"
    )


def in_time(keys: str = "", *, participation: str = "epochs = 2\nseparation = 3") -> str:
    return (
        'name = "steps"\ndesign = "time"\n[workload]\nkind = "prefix"\n'
        f"[participation]\n{participation}\n{keys}{PRIVACY}"
    )


def in_both(keys: str) -> str:
    return (
        'name = "both"\ndesign = "space-time"\n[graph]\nkind = "path"\nnodes = 3\n'
        'weights = "lazy-metropolis-hastings"\n[participation]\nepochs = 1\nseparation = 3\n'
        f"[budget]\ntau = [1.0, 2.0, 1.0]\n{keys}{PRIVACY}"
    )


LIMITS = "[limits]\nmax_variance = 1.5\nmin_variance = 0.9\n"
COVERED = {
    "in space": in_space(""),
    "within limits": in_space(LIMITS, kind="star", tau="[1.0, 2.0, 1.0, 1.0]"),
    "in time": in_time(),
    "of models": in_time()
    .replace('"prefix"', '"decentralized"\n[graph]\nkind = "ring"\nnodes = 4')
    .replace("separation = 3", "separation = 2"),
    "overlapping": in_time(
        participation='kind = "min-separation"\nhorizon = 5\nseparation = 2\nmax_participations = 2'
    ),
}
"""By the checker too."""

OTHERS = {
    "nonnegative": in_time("[structure]\nnonnegative = true\n"),
    "banded": in_time('[structure]\ntime = "banded"\nbands = 2\n'),
    "toeplitz": in_time('[structure]\ntime = "toeplitz"\n'),
    "banded inverse": in_time('[structure]\ntime = "banded-inverse"\nbands = 2\n'),
    "buffered": in_time('[structure]\ntime = "blt"\nbuffers = 1\n'),
    "shared seeds": in_space('[structure]\nspace = "edge-local"\n'),
    "known seeds": in_space('[structure]\nspace = "edge-local"\nknown_seeds = 1\n'),
    "decor": in_space('[structure]\nspace = "decor"\n'),
    "polynomial": in_space('[structure]\nspace = "polynomial"\n'),
    "pairwise": in_space('[structure]\nspace = "pairwise"\n'),
    "kronecker": in_both(""),
    "modal": in_both('[structure]\njoint = "modal"\n'),
    "full": in_both('[structure]\njoint = "full"\n'),
    "observers": in_space(
        '[limits]\nmax_variance = 5.0\n[observers]\nmodel = "pndp"\nnodes = [0, 2]\nhorizon = 1\n'
        "[participation]\nepochs = 1\nseparation = 1\n",
        kind="ring",
    ).replace("steps = 10", "steps = 1"),
    "streaming": "",
    "random": in_time(participation='kind = "balls-in-bins"\nepochs = 1\nseparation = 2'),
}
FILES = COVERED | OTHERS
NOT_PROVED = ("random",)
SLOW = ("random", "banded inverse", "buffered", "known seeds")
"""An account takes a second; what is like another kind."""

PROOFS = ("rigorous", "proved objective", "proved bound", "proved fixed bound")


@cache
def honest(name: str, folder: Path) -> bytes:
    """The file of a design, whose problem's text is in it."""
    path, text = folder / f"{name}.npz", FILES[name]
    if name == "streaming":
        scheme = FixedEpoch(epochs=2, separation=4)
        made = optimize_buffered(
            buffers=1, workload=prefix_workload(horizon=8), participation=scheme
        )
        return save_design(made, path).read_bytes()
    design = solve(parse_problem(text, folder=folder).problem).design
    assert design is not None
    return save_design(design, path, problem_text=text).read_bytes()


def judged(path: Path) -> Verification | None:
    """None of a file that is not read."""
    try:
        return verify(load_design(path), rigorous=True)
    except InputError:
        return None


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW)) for name in FILES],
)
def test_no_forgery_passes(name: str, tmp_path: Path) -> None:
    content, path = honest(name, tmp_path), tmp_path / "forged.npz"
    path.write_bytes(content)
    found, said = judged(path), checked(path)
    assert found is not None
    assert all(check.ok is not False for check in found.checks if check.name not in PROOFS)
    assert found.rigorous == (name not in NOT_PROVED)
    assert said.code == (0 if name in COVERED else 2), said.words
    assert said.words.startswith("proved" if name in COVERED else "not covered")
    passed, tried = [], 0
    for forgery, changed in forged(content):
        path.write_bytes(changed)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            found, said, tried = judged(path), checked(path), tried + 1
        if found is not None and not any(
            check.ok is False for check in found.checks if check.name not in PROOFS
        ):
            passed.append(f"{forgery}: verify")
        if said.code == 0 or said.words.count("\n") != 1:
            passed.append(f"{forgery}: checker, {said}")
        if name in COVERED and said.code != 1 and forgery != "of another format":
            passed.append(f"{forgery}: checker, {said}")
    assert not passed
    assert tried >= AT_LEAST
