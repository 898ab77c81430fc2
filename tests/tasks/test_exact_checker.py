"""The checker in integers: cases by hand, and every entry of every array of small files changed."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import mpmath
import numpy as np
import pytest

from noisedesign.design.solve import solve
from noisedesign.files.design_file import save_design
from noisedesign.files.problem_file import parse_problem
from tests.support.check_design import checked
from tests.support.forgeries import Arrays, opened, written
from tests.tasks.test_forgeries import COVERED

Manifest = dict[str, Any]
Matrix = list[list[Fraction]]

ROOM = Fraction(1, 10**9)
"""Relative: more than the checker takes for roundings of a claim."""


# --- what is true, by fractions and 50 digits -----------------------------------------------------


def exactly(a: np.ndarray) -> Matrix:
    return [[Fraction(float(x)) for x in row] for row in np.atleast_2d(a)]


def times(a: Matrix, b: Matrix) -> Matrix:
    columns = list(zip(*b, strict=True))
    return [
        [sum((x * y for x, y in zip(row, c, strict=True)), Fraction()) for c in columns]
        for row in a
    ]


def turned(a: Matrix) -> Matrix:
    return [list(column) for column in zip(*a, strict=True)]


def inverse(a: Matrix) -> Matrix | None:
    """By Gauss and Jordan without pivots; None of what is not positive definite."""
    n = len(a)
    rows = [[*row, *(Fraction(i == j) for j in range(n))] for i, row in enumerate(a)]
    for i in range(n):
        if rows[i][i] <= 0:
            return None
        rows[i] = [x / rows[i][i] for x in rows[i]]
        for j in range(n):
            if j != i:
                rows[j] = [x - rows[j][i] * y for x, y in zip(rows[j], rows[i], strict=True)]
    return [row[n:] for row in rows]


def bound(h: Matrix, u: Matrix, price: Fraction, cap: Any, floor: Any, limits: Any) -> Fraction:
    """(tr (U^1/2 N U^1/2)^1/2)^2 / price - <cap, w> + <floor, u>, N = H + diag(w) - diag(u)."""
    n = [row[:] for row in h]
    for i, (w, v) in enumerate(zip(cap, floor, strict=True)):
        n[i][i] += w - v
    with mpmath.workdps(50):
        n_, u_ = (
            mpmath.matrix([[mpmath.mpf(x.numerator) / x.denominator for x in row] for row in m])
            for m in (n, u)
        )
        values, vectors = mpmath.eigsy(u_)
        half = vectors * mpmath.diag([mpmath.sqrt(max(x, 0)) for x in values])
        found = sum(
            mpmath.sqrt(max(x, 0)) for x in mpmath.eigsy(half.T * n_ * half, eigvals_only=True)
        )
        square = Fraction(str(found**2))
    paid = sum((x * y for x, y in zip(limits[0], cap, strict=True)), Fraction())
    gained = sum((x * y for x, y in zip(limits[1], floor, strict=True)), Fraction())
    return square / price - paid + gained


def patterns(entry: dict[str, Any]) -> list[tuple[int, ...]]:
    b = entry["separation"]
    if entry["epochs"]:
        return [tuple(range(j, b * entry["epochs"], b)) for j in range(b)]
    sets = itertools.chain.from_iterable(
        itertools.combinations(range(entry["horizon"]), k)
        for k in range(1, entry["max_participations"] + 1)
    )
    return [s for s in sets if all(y - x >= b for x, y in itertools.pairwise(s))]


def multipliers(arrays: Arrays, said: Manifest, tau: list[Fraction]) -> tuple[Matrix, Fraction]:
    """U and its price, of the blocks as they are stored."""
    if said["design"] == "space":
        parts = [
            ((i,), [[x]], t)
            for i, (x, t) in enumerate(zip(arrays["dual_weights"], tau, strict=True))
        ]
    elif "dual_blocks" in arrays:
        parts = list(zip(patterns(said["participation"]), arrays["dual_blocks"], tau, strict=True))
    else:
        steps, blocks, parts = iter(arrays["pattern_steps"]), iter(arrays["pattern_blocks"]), []
        for k in map(int, arrays["pattern_lengths"]):
            where = tuple(int(next(steps)) for _ in range(k))
            parts.append((where, [[next(blocks) for _ in where] for _ in where], Fraction(1)))
    size = len(arrays["mixing"]) if said["design"] == "space" else len(arrays["strategy"])
    u, price = [[Fraction()] * size for _ in range(size)], Fraction()
    for where, block, t in parts:
        own = exactly(np.array(block))
        price += max(own[i][i] for i in range(len(own))) * t
        for (i, s), (j, r) in itertools.product(enumerate(where), repeat=2):
            u[s][r] += (own[i][j] + own[j][i]) / 2
    return u, price


def true(said: Manifest, arrays: Arrays, honest: Arrays) -> bool:
    """Whether a file claims what is so: of the bound, what its multipliers prove as they were."""
    space = said["design"] == "space"
    if space:
        r, w = exactly(arrays["covariance"]), exactly(arrays["mixing"])
        x, h = inverse(r), times(turned(w), w)
        if r != turned(r) or x is None:
            return False
        tau = exactly(arrays["budget"])[0]
        used = [x[i][i] for i in range(len(x))]
    else:
        c, factor = exactly(arrays["strategy"]), exactly(arrays["workload_factor"])
        if np.triu(arrays["strategy"], 1).any():
            return False
        x, h = times(turned(c), c), times(turned(factor), factor)
        r_ = inverse(x)
        if r_ is None:
            return False
        r, known = r_, patterns(said["participation"])
        tau = exactly(arrays.get("pattern_budget", np.ones(len(known))))[0]
        used = [sum((abs(x[s][t]) for s in p for t in p), Fraction()) for p in known]
    size = len(r)
    cap = exactly(arrays["max_variance"])[0] if "max_variance" in arrays else None
    floor = exactly(arrays["min_variance"])[0] if "min_variance" in arrays else None
    kept = all(a <= b for a, b in zip(used, tau, strict=True))
    kept &= cap is None or all(r[i][i] <= cap[i] for i in range(size))
    kept &= floor is None or all(r[i][i] >= floor[i] for i in range(size))
    objective = sum((h[i][j] * r[j][i] for i in range(size) for j in range(size)), Fraction())
    nothing = [Fraction()] * size
    duals = [
        exactly(honest[f"dual_{k}"])[0] if f"dual_{k}" in honest else nothing
        for k in ("cap", "floor")
    ]
    u, price = multipliers(honest, said, tau)
    least = bound(h, u, price, *duals, limits=(cap or nothing, floor or nothing))
    told = Fraction(said["objective"]), Fraction(said["lower_bound"])
    return kept and abs(told[0] - objective) <= ROOM * objective and told[1] <= least * (1 + ROOM)


# --- every entry, changed -------------------------------------------------------------------------

FILES = COVERED | {
    "uneven": COVERED["in time"].replace("[privacy]", "[budget]\ntau = [1.0, 2.0, 0.5]\n[privacy]"),
    "capped": COVERED["in time"].replace("[privacy]", "[limits]\nmax_variance = 2.5\n[privacy]"),
    "singular": COVERED["in space"].replace('"path"', '"complete"'),
}
SLOW = ("of models", "uneven", "capped", "singular", "overlapping")


@cache
def made(name: str, folder: Path) -> bytes:
    design = solve(parse_problem(FILES[name], folder=folder).problem, gap=1e-9).design
    assert design is not None
    path = save_design(design, folder / "d.npz", problem_text=FILES[name])
    return path.read_bytes()


def changed(arrays: Arrays) -> Iterator[tuple[str, Arrays]]:
    """One entry of one array larger or smaller by as good as nothing or more, without a sign, or
    gone."""
    for name, array in arrays.items():
        for place in np.ndindex(array.shape):
            x = array[place]
            for y in (np.nextafter(x, 9), x * (1 - 1e-11), x * (1 + 1e-7), x + 0.1, -x, 0.0):
                if y != x:
                    copy = array.copy()
                    copy[place] = y
                    yield f"{name}{place} = {y!r}", arrays | {name: copy}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW)) for name in FILES]
)
def test_whatever_entry_is_changed_only_what_is_true_passes(name: str, tmp_path: Path) -> None:
    content, path = made(name, tmp_path), tmp_path / "changed.npz"
    said, arrays = opened(content)
    path.write_bytes(content)
    assert checked(path).code == 0, checked(path).words
    assert true(said, arrays, arrays)
    passed, false = 0, 0
    for what, other in changed(arrays):
        path.write_bytes(written(said, other))
        if checked(path).code == 0:
            passed += 1
            assert true(said, other, arrays), what
        else:
            false += not true(said, other, arrays)
    assert passed > 0  # an ulp of noise, or of a multiplier
    assert false > len(arrays)  # what was refused was false, and not only for want of a proof
