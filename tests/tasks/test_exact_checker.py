"""The checker in integers: cases by hand, and every entry of every array of small files changed."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import mpmath
import numpy as np
import pytest

from noisedesign.base.checks import InputError
from noisedesign.design.solve import solve
from noisedesign.families.banded.bound import multipliers_of, repaired_multipliers
from noisedesign.families.banded.family import Banded
from noisedesign.families.family import family_of
from noisedesign.files.design_file import save_design
from noisedesign.files.problem_file import parse_problem
from noisedesign.forms import BandedStrategy, Noise
from noisedesign.forms.structure import SpaceStructure, TimeStructure
from noisedesign.observers import pndp
from noisedesign.problem.problem import SpaceProblem, SpaceTimeProblem, TimeProblem
from noisedesign.system.participation import FixedEpoch, single
from tests.support.check_design import checked, checker
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


def product(a: Matrix, b: Matrix) -> Matrix:
    """Of Kronecker."""
    return [[x * y for x in row for y in other] for row in a for other in b]


def iterates(w: Matrix, horizon: int) -> Matrix:
    """L of all iterates: W^(t-s+1) in row t and column s, of nodes each."""
    powers, nothing = [w], [[Fraction()] * len(w) for _ in w]
    for _ in range(horizon - 1):
        powers.append(times(w, powers[-1]))
    blocks = [
        [powers[t - s] if s <= t else nothing for s in range(horizon)] for t in range(horizon)
    ]
    return [[x for block in row for x in block[i]] for row in blocks for i in range(len(w))]


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


def patterns(entry: dict[str, Any], nodes: int = 1) -> list[tuple[int, ...]]:
    """Of steps, or of steps with each of the nodes, those of the same steps together."""
    b = entry["separation"] * nodes
    if entry["epochs"]:
        return [tuple(range(j, b * entry["epochs"], b)) for j in range(b)]
    sets = itertools.chain.from_iterable(
        itertools.combinations(range(entry["horizon"]), k)
        for k in range(1, entry["max_participations"] + 1)
    )
    return [s for s in sets if all(y - x >= b for x, y in itertools.pairwise(s))]


def of_bands(arrays: Arrays, said: Manifest) -> tuple[Matrix, Fraction]:
    """U as `noisedesign` has it, nothing in the band beside the diagonal, and its price."""
    structure = said["structure"]
    program = Banded().program_of_gram(
        np.tri(said["horizon"]).T @ np.tri(said["horizon"]),
        participation=FixedEpoch(**{x: said["participation"][x] for x in ("epochs", "separation")}),
        structure=TimeStructure(kind="banded", bands=structure["bands"]),
    )
    noise = Noise.of_strategy(BandedStrategy(bands=arrays["strategy_bands"]))
    found = multipliers_of(program, {"dual_shares": arrays["dual_shares"]}, noise=noise)
    assert found is not None
    u = repaired_multipliers(program, found)
    assert u is not None
    price = sum((max(Fraction(u[t, t]) for t in p) for p in patterns(said["participation"])), 0)
    return exactly((u + u.T) / 2), Fraction(price)


def multipliers(arrays: Arrays, said: Manifest, tau: list[Fraction]) -> tuple[Matrix, Fraction]:
    """U and its price, of the blocks as they are stored."""
    if said["design"] == "space":
        parts = [
            ((i,), [[x]], t)
            for i, (x, t) in enumerate(zip(arrays["dual_weights"], tau, strict=True))
        ]
    elif "dual_roots" in arrays:
        roots, known = arrays["dual_roots"], patterns(said["participation"], len(arrays["mixing"]))
        blocks = [root @ root.T for j in range(roots.shape[1]) for root in roots[:, j]]
        parts = list(zip(known, blocks, tau, strict=True))
    elif {"dual_blocks", "unrestricted_blocks"} & set(arrays):
        blocks = arrays.get("dual_blocks", arrays.get("unrestricted_blocks"))
        nodes = len(arrays["mixing"]) if said["design"] == "space-time" else 1
        parts = list(zip(patterns(said["participation"], nodes), blocks, tau, strict=True))
    else:
        steps, blocks, parts = iter(arrays["pattern_steps"]), iter(arrays["pattern_blocks"]), []
        for k in map(int, arrays["pattern_lengths"]):
            where = tuple(int(next(steps)) for _ in range(k))
            parts.append((where, [[next(blocks) for _ in where] for _ in where], Fraction(1)))
    size = len(arrays["mixing"]) if said["design"] != "time" else 1
    size *= said["horizon"] or 1
    u, price = [[Fraction()] * size for _ in range(size)], Fraction()
    for where, block, t in parts:
        own = exactly(np.array(block))
        price += max(own[i][i] for i in range(len(own))) * t
        for (i, s), (j, r) in itertools.product(enumerate(where), repeat=2):
            u[s][r] += (own[i][j] + own[j][i]) / 2
    return u, price


def by_its_family(said: Manifest, arrays: Arrays, honest: Arrays) -> tuple[Any, Fraction]:
    """The program of shared seeds or of observers, None of a W that is none, and its bound by
    `noisedesign`: 0 of numbers that are no multipliers of it."""
    asked = parse_problem(said["problem"]["text"], folder=Path()).problem
    data = {x: arrays[x] for x in ("mixing", "budget", "max_variance") if x in arrays}
    try:
        problem: Any = replace(asked, **data)
    except InputError:
        return None, Fraction()
    family: Any = family_of(problem)
    program = family.program(problem)
    try:
        found = family.bound(program, {x: honest[x] for x in family.proof if x in honest}).value
    except (InputError, ValueError):
        found = 0.0
    return program, Fraction(found)


def of_blocks(arrays: Arrays, sets: Sequence[tuple[int, ...]]) -> Matrix | None:
    """R, the sum of blocks of these sets; None where one is not positive definite, their number or
    the R of the file is another."""
    n = len(arrays["covariance"])
    if arrays["clique_blocks"].size != sum(len(c) ** 2 for c in sets):
        return None
    r, flat = [[Fraction()] * n for _ in range(n)], iter(exactly(arrays["clique_blocks"])[0])
    for c in sets:
        block = [[next(flat) for _ in c] for _ in c]
        block = [
            [(x + y) / 2 for x, y in zip(*z, strict=True)]
            for z in zip(block, turned(block), strict=True)
        ]
        if inverse(block) is None:
            return None
        for (i, s), (j, t) in itertools.product(enumerate(c), repeat=2):
            r[s][t] += block[i][j]
    off = np.abs(np.array(r, dtype=float) - arrays["covariance"]).max()
    return r if off <= 2e-12 * np.abs(arrays["covariance"]).max() else None


def heard(said: Manifest, w: np.ndarray) -> list[tuple[list[int], list[int]]]:
    """What every observer hears, and whose data it is to learn little of; all nodes hear all."""
    n, found = len(w), []
    for who in said["observers"]:
        inside = who["coalition"]
        nodes = [j for j in range(n) if j in inside or any(w[i, j] for i in inside)]
        found.append((nodes, [j for j in nodes if j not in inside]))
    return found or [([*range(n)], [*range(n)])]


def true(said: Manifest, arrays: Arrays, honest: Arrays) -> bool:
    """Whether a file claims what is so: of the bound, what its multipliers prove as they were."""
    space, parts = (
        said["design"] == "space",
        not {"dual_prices", "observer_ranks"}.isdisjoint(honest),
    )
    if parts:
        program, least = by_its_family(said, arrays, honest)
        if program is None:
            return False
    if space:
        r, w = exactly(arrays["covariance"]), exactly(arrays["mixing"])
        if "clique_blocks" in arrays:
            made = of_blocks(arrays, program.sets)
            if made is None:
                return False
            r = made
        h, used, tau = times(turned(w), w), [], []
        if r != turned(r) or inverse(r) is None:
            return False
        for nodes, victims in heard(said, arrays["mixing"]):
            x = inverse([[r[i][j] for j in nodes] for i in nodes])
            assert x is not None
            used += [x[i][i] for i, node in enumerate(nodes) if node in victims]
            tau += [Fraction(arrays["budget"][node]) for node in victims]
    else:
        strategy, both = arrays.get("strategy"), said["design"] == "space-time"
        if strategy is None:
            diagonals = enumerate(arrays["strategy_bands"])
            strategy = sum(np.diag(x[: said["horizon"] - i], -i) for i, x in diagonals)
            factor = exactly(np.tri(said["horizon"]))
        signs = (said["structure"] or {}).get("nonnegative") and (strategy < 0).any()
        c = exactly(strategy)
        if np.triu(strategy, 1).any() or signs:
            return False
        if both:
            factor = iterates(exactly(arrays["mixing"]), said["horizon"])
        elif "workload_factor" in arrays:
            factor = exactly(arrays["workload_factor"])
        x, h = times(turned(c), c), times(turned(factor), factor)
        r_ = inverse(x)
        if r_ is None:
            return False
        r, known = r_, patterns(said["participation"], len(arrays["mixing"]) if both else 1)
        if "covariance" in arrays:
            of_nodes = exactly(arrays["covariance"])
            precision = inverse(of_nodes)
            if of_nodes != turned(of_nodes) or precision is None:
                return False
            r, x = product(r, of_nodes), product(x, precision)
        tau = exactly(arrays.get("pattern_budget", np.ones(len(known))))[0]
        if both:
            tau = exactly(arrays["budget"])[0] * said["participation"]["separation"]
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
    if not parts:
        known_bands = "strategy_bands" in arrays
        u, price = of_bands(honest, said) if known_bands else multipliers(honest, said, tau)
        least = bound(h, u, price, *duals, limits=(cap or nothing, floor or nothing))
    told = Fraction(said["objective"]), Fraction(said["lower_bound"])
    return kept and abs(told[0] - objective) <= ROOM * objective and told[1] <= least * (1 + ROOM)


# --- every entry, changed -------------------------------------------------------------------------

FILES = COVERED | {
    "uneven": COVERED["in time"].replace("[privacy]", "[budget]\ntau = [1.0, 2.0, 0.5]\n[privacy]"),
    "capped": COVERED["in time"].replace("[privacy]", "[limits]\nmax_variance = 2.5\n[privacy]"),
    "singular": COVERED["in space"].replace('"path"', '"complete"'),
}
SLOW = tuple(name for name in FILES if name != "in space")


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


# --- by hand --------------------------------------------------------------------------------------

NUMBERS = re.compile(r"mu <= (\S+) for.*objective <= (\S+), .* >= (\S+), gap <= (\S+)", re.DOTALL)


def proved(problem: Any, folder: Path, **how: Any) -> list[Fraction]:
    design = solve(problem, **how).design
    assert design is not None
    said = checked(save_design(design, folder / "d.npz"))
    found = NUMBERS.search(said.words)
    assert found, said.words
    assert "taken from the file: the whole problem" in said.words
    return [Fraction(x) for x in found.groups()]


def test_one_node_has_a_variance_of_one(tmp_path: Path) -> None:
    mu, high, low, gap = proved(SpaceProblem(mixing=np.eye(1)), tmp_path)
    assert 1 - ROOM < low <= 1 <= high < 1 + ROOM
    assert high / low - 1 <= gap * (1 + ROOM) + Fraction(1e-15)
    assert mu**2 * high >= 1 - Fraction(1e-15)  # noise of this variance moved by 1


def test_a_budget_of_a_quarter_is_half_of_mu(tmp_path: Path) -> None:
    mu, high, low, _ = proved(SpaceProblem(mixing=np.eye(1), budget=0.25), tmp_path)
    assert abs(mu - Fraction(1, 2)) < ROOM
    assert low <= 4 <= high


def test_two_prefix_sums_cost_the_golden_ratio_squared(tmp_path: Path) -> None:
    _, high, low, gap = proved(TimeProblem.prefix(participation=single(2)), tmp_path, gap=1e-12)
    with mpmath.workdps(50):
        golden = Fraction(str((3 + mpmath.sqrt(5)) / 2))
    assert low <= golden <= high
    assert gap < 1e-11


def test_one_node_alone_has_two_prefix_sums(tmp_path: Path) -> None:
    problem = SpaceTimeProblem(
        mixing=np.eye(1), participation=single(2), budget=4.0, joint="kronecker"
    )
    mu, high, low, gap = proved(problem, tmp_path, gap=1e-11)
    with mpmath.workdps(50):
        golden = Fraction(str((3 + mpmath.sqrt(5)) / 2))
    assert low <= golden / 4 <= high
    assert gap < 1e-9
    assert abs(mu - 2) < ROOM


def test_two_nodes_in_one_step_cost_half_the_square_of_the_trace(tmp_path: Path) -> None:
    """W = [[3, 1], [1, 3]] / 4 has the eigenvalues 1 and 1/2, and nodes look alike: R is W^-1 times
    3/4, (tr W)^2 / 2 = 9/8."""
    w = np.array([[0.75, 0.25], [0.25, 0.75]])
    for joint in ("kronecker", "full"):
        problem = SpaceTimeProblem(mixing=w, participation=single(1), joint=joint)
        (tmp_path / joint).mkdir()
        _, high, low, gap = proved(problem, tmp_path / joint, gap=1e-9)
        assert low <= Fraction(9, 8) <= high
        assert gap < 1e-8


def test_two_steps_without_memory_cost_their_two_sums(tmp_path: Path) -> None:
    """C of one diagonal, of a single step of a record, is 1: the two sums have errors 1 and 2; and
    C of all diagonals has less."""
    structure = TimeStructure(kind="banded", bands=1)
    problem = TimeProblem.prefix(participation=single(2), structure=structure)
    _, high, low, _ = proved(problem, tmp_path, gap=1e-12)
    assert low <= 3 <= high
    said, arrays = opened((tmp_path / "d.npz").read_bytes())
    for key, value, words in (
        ("unrestricted_lower_bound", 2.9, "lower bound 2.9: 2.618"),
        ("structure", said["structure"] | {"bands": 2}, "do not fit 1 nodes and 2 steps"),
        ("structure", said["structure"] | {"time": "dense"}, "do not fit 1 nodes and 2 steps"),
    ):
        (tmp_path / "d.npz").write_bytes(written(said | {key: value}, arrays))
        refused = checked(tmp_path / "d.npz")
        assert (refused.code, words in refused.words) == (1, True), refused


def test_two_nodes_of_whom_one_looks_hide_half_of_a_variance(tmp_path: Path) -> None:
    """Node 0 knows its own noise; what it does not know of that of node 1 has a variance of 1, and
    averaging leaves a quarter of it with both: 1/2, whatever node 0 adds. Alone, without observers,
    it would be 2 (1 - sqrt(1/2)) within the same cap."""
    problem = SpaceProblem(
        mixing=np.full((2, 2), 0.5),
        max_variance=2.0,
        observers=(pndp(nodes=[0]),),
        participation=single(1),
        responses="fixed",
    )
    mu, high, low, gap = proved(problem, tmp_path)
    assert low <= Fraction(1, 2) <= high
    assert gap < 1e-5
    assert abs(mu - 1) < 1e-6


def test_nodes_that_share_no_seed_cost_the_trace_of_the_square(tmp_path: Path) -> None:
    """W = (I + J) / 4 of three nodes, each of a cluster of its own: R = I, and tr W^2 = 9/8. All
    noise could have (tr W)^2 / 3 = 3/4. Of two that share one, with the third alone, R is
    [[a, x], [x, a]] with a = 1 + x^2 / a, and 3/8 (2 a + 1) + 5/8 x is 1.096 at best."""
    w = (np.eye(3) + np.ones((3, 3))) / 4
    x = np.linspace(-2, 0, 200_001)
    a = (1 + np.sqrt(1 + 4 * x**2)) / 2
    pair = Fraction(float((3 / 8 * (2 * a + 1) + 5 / 8 * x).min()))
    for clusters, least, off in (((0, 1, 2), Fraction(9, 8), ROOM), ((0, 0, 1), pair, 1e-9)):
        structure = SpaceStructure(kind="clusters", clusters=clusters)
        folder = tmp_path / str(clusters[1])
        folder.mkdir()
        _, high, low, _ = proved(SpaceProblem(mixing=w, structure=structure), folder, gap=1e-9)
        assert low <= least * (1 + Fraction(off)) <= high * (1 + 2 * Fraction(off))
        assert high / low - 1 < 1e-6


def test_noise_of_no_such_structure_is_refused(tmp_path: Path) -> None:
    """C (x) R passed off as that of all pairs, C of a step less, and of another sign."""
    said, arrays = opened(made("kronecker", tmp_path))
    signed, plain = opened(made("nonnegative", tmp_path))
    plain["strategy"][1, 0] *= -1
    plain["noising_matrix"] = np.linalg.inv(plain["strategy"])
    full = json.loads(json.dumps(said))
    full["structure"]["joint"] = "full"
    fewer = arrays | {x: arrays[x][:2, :2] for x in ("strategy", "noising_matrix")}
    for manifest, held, words in (
        (full, arrays, "do not fit 3 nodes and 3 steps"),
        (said, fewer, "do not fit 3 nodes and 3 steps"),
        (signed, plain, "C has a negative entry"),
    ):
        manifest["problem"] = {"text": "", "sha256": ""}
        (tmp_path / "d.npz").write_bytes(written(manifest, held))
        refused = checked(tmp_path / "d.npz")
        assert (refused.code, words in refused.words) == (1, True), refused


def test_a_complete_graph_averages_whatever_is_capped(tmp_path: Path) -> None:
    """W = J / 2 of two nodes, caps of 2 = c: R = [[2, x], [x, 2]] has an error of 1 + x / 2 and
    [R^-1]_11 = 2 / (4 - x^2) <= 1, so that x = -sqrt 2 at best."""
    problem = SpaceProblem(mixing=np.full((2, 2), 0.5), max_variance=2.0)
    _, high, low, _ = proved(problem, tmp_path, gap=1e-10)
    with mpmath.workdps(50):
        least = Fraction(str(2 * (1 - mpmath.sqrt(2) / 2)))
    assert low <= least <= high


# --- whatever floating point guesses --------------------------------------------------------------


def test_what_only_rounding_makes_positive_definite_has_no_inverse() -> None:
    """Cholesky's algorithm in float64 takes some matrices with a negative eigenvalue."""
    rng, tried, exact = np.random.default_rng(1), 0, checker().Exact
    for _ in range(400):
        g = rng.standard_normal((4, 3))
        r = (g @ g.T + (g @ g.T).T) / 2
        try:
            root = np.linalg.inv(np.linalg.cholesky(r))
        except np.linalg.LinAlgError:
            continue
        if inverse(exactly(r)) is None:
            tried += 1
            with pytest.raises(SystemExit):
                checker().inverse(exact.of(r), exact.of(root, 62), "R")
    assert tried > 5


def test_a_product_is_that_of_integers() -> None:
    """Of numbers of 20 decimals in size, of both signs, and of the longest digits: -2^k."""
    rng, exact = np.random.default_rng(4), checker().Exact
    for k in (3, 500):
        a, b = (rng.standard_normal((4, k)) * 10.0 ** rng.integers(-9, 9, (4, k)) for _ in "ab")
        b[0] = a[0] = -(2.0 ** (np.arange(k) % 60))
        found = exact.of(a) @ exact.of(b).turned()
        assert [[x * found.unit for x in row] for row in found.m] == times(
            exactly(a), turned(exactly(b))
        )


def test_bounds_on_an_inverse_hold_for_every_guess() -> None:
    rng, exact = np.random.default_rng(2), checker().Exact
    for off in (0.0, 1e-9, 1e-3, 1e-2):
        g = rng.standard_normal((4, 4))
        k = g @ g.T + 4 * np.eye(4)
        k = (k + k.T) / 2
        m = np.linalg.inv(np.linalg.cholesky(k)) * (1 + off * rng.standard_normal((4, 4)))
        found = exact.of(m).turned() @ checker().inverse(exact.of(k), exact.of(m), "R")
        y = inverse(exactly(k))
        assert y is not None
        above = [
            [x * found.unit - z for x, z in zip(*rows, strict=True)]
            for rows in zip(found.m, y, strict=True)
        ]
        assert inverse(above) is not None  # positive definite
        for i in range(4):
            assert above[i][i] <= y[i][i] * (Fraction(100 * off) ** 2 + ROOM)


@pytest.mark.parametrize("limits", ["", "cap", "floor", "both"])
def test_a_bound_holds_for_every_guess(limits: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of a polar factor that is none, or of the other sign."""
    rng, exact, svd = np.random.default_rng(3), checker().Exact, np.linalg.svd
    w = rng.standard_normal((3, 3)) + 3 * np.eye(3)
    cap = np.array([0.3, 0.0, 0.1]) * (limits in ("cap", "both"))
    floor = np.array([0.0, 0.02, 0.01]) * (limits in ("floor", "both"))
    b = np.diag([1.0, 0.5, 2.0])
    held = {"max_variance": np.zeros(3), "min_variance": np.zeros(3)}
    dual_of = {"dual_weights": np.diag(b) ** 2, "dual_cap": cap, "dual_floor": floor}
    known = {(i,): Fraction(5) / Fraction(5.25) for i in range(3)}
    h, nothing = times(turned(exactly(w)), exactly(w)), [Fraction()] * 3
    dual = [exactly(x)[0] for x in (cap, floor)]
    least = bound(h, exactly(b @ b), Fraction(5), *dual, limits=(nothing, nothing))
    for off in (0.0, 1e-6, 0.1, 3.0):

        def guessed(a: np.ndarray, off: float = off, **how: Any) -> Any:
            left, values, right = svd(a, **how)
            return left * (1 + off * rng.standard_normal(left.shape)), values, -right

        monkeypatch.setattr(np.linalg, "svd", guessed)
        found = checker().bound_of(held | dual_of, held, exact.of(w), known, [None], [])
        assert found <= least * (1 + Fraction(1, 10**40))
        assert off > 0 or found >= least * (1 - Fraction(1, 10**11))


def test_a_factor_above_h_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """L^T L <= H is proved, not believed."""
    exact, cholesky = checker().Exact, np.linalg.cholesky
    monkeypatch.setattr(np.linalg, "cholesky", lambda a: 1.01 * cholesky(a))
    one = exact.of(np.eye(2))
    with pytest.raises(np.linalg.LinAlgError):
        checker().integers.below(one, "H - dual_floor")


def test_factors_above_h_on_a_set_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of H = I, L = s I and b = 1 the bound is the trace of H, 2, with s = 1 and no more."""
    exact, pinv, both = checker().Exact, np.linalg.pinv, np.arange(2)
    one = np.array([Fraction(1)] * 2)

    def found() -> Fraction:
        parts = [(both, np.eye(2), np.ones(2))]
        sets = [[0], [1]]
        bound, _ = checker().integers.shared(
            exact.of(np.eye(2)), parts, one, np.zeros(2), None, sets
        )
        return Fraction(bound)

    assert 2 - ROOM < found() <= 2
    monkeypatch.setattr(np.linalg, "pinv", lambda a: 0.99 * pinv(a))
    with pytest.raises(np.linalg.LinAlgError):
        found()


def test_multipliers_cost_their_largest_diagonal_entry() -> None:
    """Blocks [[2, 1], [1, 2]] at budget 3 and [5] at budget 1: 3 * 2 + 5."""
    arrays = {"pattern_lengths": np.array([2.0, 1.0]), "pattern_steps": np.array([0.0, 2.0, 1.0])}
    arrays["pattern_blocks"] = np.array([2.0, 1.0, 1.0, 2.0, 5.0])
    b, price = checker().multipliers(arrays, 3, {(0, 2): 3, (1,): 1, (2,): 7})
    assert abs(price - 11) < ROOM
    u = np.array([[2.0, 0.0, 1.0], [0.0, 5.0, 0.0], [1.0, 0.0, 2.0]])
    np.testing.assert_allclose((b @ b.turned()).floats(), u, atol=1e-14)


def test_patterns_are_those_of_the_participation() -> None:
    entry = {"separation": 2, "epochs": None, "max_participations": 2, "horizon": 4}
    pairs = {(0, 2), (0, 3), (1, 3)}
    assert set(checker().patterns_of(entry)) == {(0,), (1,), (2,), (3,)} | pairs
    entry |= {"epochs": 2, "horizon": None, "max_participations": None}
    assert checker().patterns_of(entry) == [(0, 2), (1, 3)]


def test_too_many_patterns_are_not_covered(capsys: pytest.CaptureFixture[str]) -> None:
    entry = {"separation": 1, "epochs": None, "max_participations": 9, "horizon": 60}
    with pytest.raises(SystemExit) as left:
        checker().patterns_of(entry)
    assert left.value.code == 2
    assert "participation in so many patterns" in capsys.readouterr().out
