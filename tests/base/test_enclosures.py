"""Enclosures hold what exact arithmetic gives, on matrices that round as badly as they may."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest

from noisedesign.base import enclosures
from noisedesign.base.enclosures import (
    EPS,
    PIECE,
    SPARSE,
    TINY,
    Enclosure,
    Interval,
    Outer,
    Rounded,
    U,
    column_norms,
    contraction,
    definite_inverse,
    exactly,
    finer_product,
    gram,
    gram_blocks,
    gram_residual,
    inner,
    outer_product,
    product,
    products_down,
    products_up,
    residual,
    row_norms,
    sum_up,
    symmetric_part,
    times,
)

Array = np.ndarray
Exact = list[list[Fraction]]


def exact(a: Array) -> Exact:
    return [[Fraction(x) for x in row] for row in a.tolist()]


def times_exactly(a: Exact, b: Exact) -> Exact:
    columns = list(zip(*b, strict=True))
    return [[sum(map(Fraction.__mul__, row, c), Fraction(0)) for c in columns] for row in a]


def entries(of: Callable[[Fraction, Fraction], Fraction], a: Array, b: Array) -> Exact:
    return [list(map(of, r, s)) for r, s in zip(exact(a), exact(b), strict=True)]


def holds(found: Enclosure, truth: Exact) -> bool:
    rad = np.broadcast_to(found.rad, found.mid.shape)
    return all(
        abs(Fraction(m) - t) <= Fraction(r)
        for mids, rads, row in zip(found.mid.tolist(), rad.tolist(), truth, strict=True)
        for m, r, t in zip(mids, rads, row, strict=True)
    )


def rough(rows: int, columns: int, seed: int) -> Array:
    """Entries of all sizes, whose products cancel."""
    rng = np.random.default_rng(seed)
    found = rng.standard_normal((rows, columns)) * 10.0 ** rng.uniform(-8, 8, (1, columns))
    found[:, 1::2] = -found[:, : columns - columns % 2 : 2] * (1 + EPS)
    return np.asarray(found)


SHAPES = [(1, 1, 1), (3, 4, 2), (5, PIECE + 3, 4), (2, 2 * PIECE + 1, 2)]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("seed", range(2))
def test_products_are_enclosed(shape: tuple[int, int, int], seed: int) -> None:
    rows, length, columns = shape
    a, b = rough(rows, length, seed), rough(columns, length, seed + 10).T.copy()
    assert holds(product(a, b), times_exactly(exact(a), exact(b)))
    assert holds(gram(a), times_exactly(exact(a.T), exact(a)))
    zero = exactly(np.zeros((rows, columns)))
    truth = [[-x for x in row] for row in times_exactly(exact(a), exact(b))]
    assert holds(residual(zero, a, b), truth)


def test_products_of_enclosures_hold_those_of_their_ends() -> None:
    a, b = rough(3, 5, 1), rough(4, 5, 2).T.copy()
    spread = np.abs(a) * 1e-3
    for sign in (-1.0, 1.0):
        end = a + sign * spread * (1 - 1e-9)
        assert holds(product(Enclosure(a, spread), b), times_exactly(exact(end), exact(b)))
        assert holds(
            product(b.T.copy(), Enclosure(a, spread).transposed()),
            times_exactly(exact(b.T), exact(end.T)),
        )


def test_a_residual_knows_an_inverse_better_than_a_product() -> None:
    rng = np.random.default_rng(0)
    a = rng.standard_normal((16, 16)) + 1e3 * np.ones((16, 16))
    b = np.linalg.inv(a)
    identity = exactly(np.eye(16))
    fine, coarse = residual(identity, a, b), identity.minus(product(a, b))
    assert fine.rad.max() < 1e-5 * coarse.rad.max()
    truth = times_exactly(exact(a), exact(b))
    truth = [[Fraction(i == j) - x for j, x in enumerate(row)] for i, row in enumerate(truth)]
    assert holds(fine, truth)
    assert holds(coarse, truth)


def test_norms_and_sums_are_rounded_to_their_side() -> None:
    a = rough(6, 9, 3)
    squares = times_exactly(exact(a), exact(a.T))
    assert all(Fraction(x) ** 2 >= squares[i][i] for i, x in enumerate(row_norms(a).tolist()))
    assert column_norms(a.T.copy()) == pytest.approx(row_norms(a), rel=1e-14)
    total = sum((sum(row, Fraction(0)) for row in exact(np.abs(a))), Fraction(0))
    assert total <= Fraction(sum_up(np.abs(a))) <= total * (1 + Fraction(3 * EPS))
    v, w = np.abs(a[0]), np.abs(a[1])
    dot = sum((Fraction(x) * Fraction(y) for x, y in zip(v, w, strict=True)), Fraction(0))
    assert Fraction(products_down(v, w)) <= dot <= Fraction(products_up(v, w))
    assert products_up(v, w) <= products_down(v, w) * (1 + 20 * EPS)


@pytest.mark.parametrize("columns", [1, 7, 2 * PIECE + 5])
def test_inner_products_are_enclosed(columns: int) -> None:
    a, b = rough(4, columns, 5), rough(4, columns, 6)
    rows = zip(exact(a), exact(b), strict=True)
    truth = sum((sum(map(Fraction.__mul__, x, y), Fraction(0)) for x, y in rows), Fraction(0))
    found = inner(exactly(a), b)
    assert Fraction(found.lower) <= truth <= Fraction(found.upper)
    wider = inner(Enclosure(a, np.abs(a) * 1e-6), b)
    assert wider.lower < found.lower < found.upper < wider.upper


@pytest.mark.parametrize("shape", [(6, 6), (9, 4), (3, 7), (1, 1)])
@pytest.mark.parametrize("away", [0.0, 1e-8, 1e-3, 0.2])
def test_contractions_have_singular_values_below_their_norm(
    shape: tuple[int, int], away: float
) -> None:
    """To fifty digits, and near to 1; what is far from orthogonal is none."""
    rng = np.random.default_rng(9)
    left, _, right = np.linalg.svd(rng.standard_normal(shape), full_matrices=False)
    z = left @ right * (1 + away * rng.standard_normal(shape) / math.sqrt(shape[0] * shape[1]))
    for scale in (1.0, 0.7):
        found = contraction(z / scale, scale=scale)
        assert found is not None
        step, missing = found
        square = z.T @ z if shape[0] >= shape[1] else z @ z.T
        assert missing == pytest.approx(np.linalg.norm(square - np.eye(min(shape))), abs=1e-14)
        with mpmath.workdps(50):
            largest = max(mpmath.svd_r(mpmath.matrix(step.matrix.tolist()), compute_uv=False))
            assert 1 - missing**2 - 1e-13 <= largest <= step.norm <= 1 + 1e-13
    assert contraction(2 * np.eye(3)) is None
    assert contraction(np.full((2, 2), np.nan)) is None


TRIANGLES = [
    ("lower", "lower"),
    ("lower", "upper"),
    ("upper", "lower"),
    ("upper", ""),
    ("", "lower"),
]


@pytest.mark.parametrize("shapes", TRIANGLES)
def test_zeros_of_triangles_are_left_out(shapes: tuple[str, str]) -> None:
    """Of products in several pieces; the same as with them."""
    size = 2 * PIECE + 5
    rng = np.random.default_rng(22)
    cut = {"lower": np.tril, "upper": np.triu, "": np.asarray}
    a, b = (cut[shape](rng.standard_normal((size, size))) for shape in shapes)
    found = outer_product(a, b, shapes=shapes)
    assert found.mid == pytest.approx(a @ b, abs=1e-12)
    zero = exactly(np.zeros((size, size)))
    assert residual(zero, a, b).rad.max() < 1e-12


def test_blocks_of_a_gram_matrix_are_enclosed() -> None:
    a = rough(2 * PIECE + 3, 6, 23)
    columns = np.array([[0, 2, 4], [1, 3, 5]])
    found, truth = gram_blocks(a, columns), times_exactly(exact(a.T), exact(a))
    for steps, mid, rad in zip(columns.tolist(), *found, strict=True):
        assert holds(Enclosure(mid, rad), [[truth[i][j] for j in steps] for i in steps])


def test_sparse_products_are_enclosed() -> None:
    """Zeros are left out, and rounding is that of the entries that are there."""
    a, b = np.zeros((5, 20 * SPARSE)), rough(3, 20 * SPARSE, 21).T.copy()
    a[np.arange(5), 7 * np.arange(5)], a[2, 9] = math.pi, -1 / 3
    found = product(a, b)
    assert holds(found, times_exactly(exact(a), exact(b)))
    assert found.rad.max() < product(a + 1e-300, b).rad.max() / 8
    b[0, 0] = np.nan
    assert not math.isfinite(float(product(a, b).largest.max()))


def test_sums_and_differences_of_enclosures() -> None:
    a, b = rough(3, 3, 7), rough(3, 3, 8)
    truth = [
        [x - y for x, y in zip(r, s, strict=True)] for r, s in zip(exact(a), exact(b), strict=True)
    ]
    assert holds(exactly(a).minus(exactly(b)), truth)
    half = [
        [(x + y) / 2 for x, y in zip(r, s, strict=True)]
        for r, s in zip(exact(a), exact(a.T), strict=True)
    ]
    assert holds(symmetric_part(a), half)
    even = a + a.T
    assert symmetric_part(even).exact
    units = 2.0 ** np.array([-3, 0, 5])
    scaled = exactly(even).scaled(units)
    assert scaled.exact
    assert (scaled.mid / units / units[:, None] == even).all()


def test_what_is_not_finite_is_enclosed_by_nothing() -> None:
    a = np.array([[np.nan, 1.0], [1.0, 1.0]])
    found = inner(exactly(a), a)
    assert not found.lower <= found.upper
    assert not math.isfinite(float(product(a, a).largest.max()))
    assert Interval(1.0, 3.0).width == 2.0


def test_what_is_known_of_a_product_without_its_radii() -> None:
    """Norms, columns and weighted sums hold of the exact product, and so of its difference from
    what was computed."""
    a, b = rough(4, PIECE + 9, 11), rough(4, PIECE + 9, 12).T.copy()
    found, truth = outer_product(a, b), times_exactly(exact(a), exact(b))
    columns = list(zip(*truth, strict=True))
    for norm, column in zip(found.column_norms().tolist(), columns, strict=True):
        assert sum(x * x for x in column) <= Fraction(norm) ** 2
    assert sum(x * x for column in columns for x in column) <= Fraction(found.norm()) ** 2
    weights = np.abs(rough(4, 4, 13))
    weights = weights + weights.T
    error = [
        [abs(Fraction(m) - t) for m, t in zip(mids, row, strict=True)]
        for mids, row in zip(found.mid.tolist(), truth, strict=True)
    ]
    assert any(any(row) for row in error)
    sums = times_exactly(exact(weights), error)
    for i, weighed in enumerate((found.weighed(weights) * (1 + 100 * EPS)).tolist()):
        assert sums[i][i] <= Fraction(weighed)
    dot = inner(found, weights)
    pairs = zip(truth, exact(weights), strict=True)
    exactly_it = sum((sum(map(Fraction.__mul__, x, y), Fraction(0)) for x, y in pairs), Fraction(0))
    assert Fraction(dot.lower) <= exactly_it <= Fraction(dot.upper)


# --- errors that are put in -----------------------------------------------------------------------


def lower(size: int, seed: int) -> Array:
    return np.tril(rough(size, size, seed))


@pytest.mark.parametrize("size", [1, 5, 11])
@pytest.mark.parametrize("shape", ["", "lower"])
def test_what_a_gram_matrix_leaves_is_enclosed(size: int, shape: str) -> None:
    a = lower(size, 1) if shape else rough(PIECE + size, size, 1)
    target = exactly(symmetric_part(a.T @ a).mid)
    found = gram_residual(target, a, shape=shape)
    truth = times_exactly(exact(a.T), exact(a))
    pairs = zip(exact(target.mid), truth, strict=True)
    left = [[t - x for t, x in zip(*rows, strict=True)] for rows in pairs]
    assert holds(found, left)
    assert (found.mid == found.mid.T).all()
    wider = Enclosure(target.mid, np.abs(target.mid) * 1e-3)
    assert (gram_residual(wider, a, shape=shape).rad >= found.rad).all()
    units = np.sqrt(np.multiply.outer(np.diagonal(target.mid), np.diagonal(target.mid)))
    assert (found.rad <= 32 * EPS * units).all()


def test_products_of_triangles_are_those_of_matrices() -> None:
    a, b = lower(7, 2), lower(7, 3)
    for left, right, shapes in (
        (a, b.T.copy(), ("lower", "upper")),
        (rough(4, 7, 4), b.T.copy(), ("", "upper")),
        (a, b, ("lower", "lower")),
    ):
        found = times(left, right, shapes=shapes)
        assert found == pytest.approx(left @ right, rel=1e-13, abs=1e-13 * np.abs(a).max() ** 2)


SMALL = 6
OUTER = 4 * (SMALL + 4)
"""Roundings that a radius by norms stands for; those with more bits stand for a few."""


def as_enclosure(found: Any) -> Enclosure:
    rad = np.multiply.outer(found.rows, found.columns)
    return Enclosure(found.mid, rad)


ENCLOSED: dict[str, tuple[Callable[[Array, Array], Enclosure], int]] = {
    "product": (product, OUTER),
    "outer product": (lambda a, b: as_enclosure(outer_product(a, b)), OUTER),
    "gram": (lambda a, b: gram(b), OUTER),
    "blocks of a gram": (
        lambda a, b: Enclosure(*(x[0] for x in gram_blocks(b, np.arange(SMALL)[None, :]))),
        OUTER,
    ),
    "residual": (lambda a, b: residual(exactly(np.zeros((SMALL, SMALL))), -a, b), 4),
    "finer product": (lambda a, b: finer_product(exactly(a), exactly(b)), 4),
    "residual of a gram": (lambda a, b: gram_residual(exactly(-(np.ones((SMALL, SMALL)))), b), 4),
}


@pytest.mark.parametrize("name", ENCLOSED)
def test_an_error_of_some_units_in_the_last_place_is_caught(name: str) -> None:
    """Of one entry, in units of the largest there may be: radii hold what arithmetic does, and
    hardly more."""
    rng = np.random.default_rng(7)
    a, b = (rng.uniform(0.5, 1.0, (SMALL, SMALL)) for _ in range(2))
    enclosed, ulps = ENCLOSED[name]
    left = exact(b.T) if "gram" in name else exact(a)
    truth = times_exactly(left, exact(b))
    if name == "residual of a gram":
        truth = [[-1 - x for x in row] for row in truth]
    found = enclosed(a, b)
    assert holds(found, truth)
    for sign in (-1, 1):
        wrong = found.mid.copy()
        wrong[2, 3] += sign * ulps * np.spacing(np.abs(found.mid).max())
        assert not holds(Enclosure(wrong, found.rad), truth)


@pytest.mark.parametrize("ulps", [8, 64])
def test_an_error_in_a_contraction_shows_in_its_norm(ulps: int) -> None:
    q = np.linalg.qr(np.random.default_rng(8).standard_normal((SMALL, SMALL)))[0]
    found = contraction(q)
    assert found is not None
    wrong = found[0].matrix * (1 + ulps * EPS)
    with mpmath.workdps(50):
        largest = max(mpmath.svd_r(mpmath.matrix(wrong.tolist()), compute_uv=False))
    honest = found[0].norm - 1
    assert 0 < honest < 512 * EPS
    assert (largest > found[0].norm) == (ulps * EPS > honest)


# --- what is not known of the factors ------------------------------------------------------------


def added(a: Exact, b: Exact, sign: int = 1) -> Exact:
    return [[x + sign * y for x, y in zip(r, s, strict=True)] for r, s in zip(a, b, strict=True)]


def transposed(a: Exact) -> Exact:
    return [list(column) for column in zip(*a, strict=True)]


def ends(found: Enclosure) -> list[Exact]:
    """The two matrices that are farthest from its midpoint, all entries to one side."""
    return [added(exact(found.mid), exact(found.rad), sign) for sign in (1, -1)]


UNITS = 2.0 ** np.array([-3, 0, 5])

OF_TWO: dict[str, tuple[Callable[..., Enclosure], Callable[..., Exact]]] = {
    "sum": (Enclosure.plus, lambda x, y, mid: added(x, y)),
    "difference": (Enclosure.minus, lambda x, y, mid: added(x, y, -1)),
    "product": (product, lambda x, y, mid: times_exactly(x, y)),
    "finer product": (finer_product, lambda x, y, mid: times_exactly(x, y)),
    "product with a matrix": (
        lambda a, b: product(a.mid, b),
        lambda x, y, mid: times_exactly(mid, y),
    ),
    "product of a matrix": (
        lambda a, b: product(b, a.mid),
        lambda x, y, mid: times_exactly(y, mid),
    ),
    "finer product with a matrix": (
        lambda a, b: finer_product(exactly(a.mid), b),
        lambda x, y, mid: times_exactly(mid, y),
    ),
    "finer product of a matrix": (
        lambda a, b: finer_product(b, exactly(a.mid)),
        lambda x, y, mid: times_exactly(y, mid),
    ),
    "residual": (
        lambda a, b: residual(b, a.mid, a.mid),
        lambda x, y, mid: added(y, times_exactly(mid, mid), -1),
    ),
    "residual of a gram": (
        lambda a, b: gram_residual(Enclosure(b.mid + b.mid.T, b.rad + b.rad.T), a.mid),
        lambda x, y, mid: added(added(y, transposed(y)), times_exactly(transposed(mid), mid), -1),
    ),
    "multiple": (
        lambda a, b: a.scaled_by(0.1),
        lambda x, y, mid: [[Fraction(0.1) * one for one in row] for row in x],
    ),
    "other units": (
        lambda a, b: a.scaled(UNITS),
        lambda x, y, mid: [
            [Fraction(u) * one * Fraction(v) for v, one in zip(UNITS.tolist(), row, strict=True)]
            for u, row in zip(UNITS.tolist(), x, strict=True)
        ],
    ),
}
"""What is made of two enclosures, and of two matrices in them and the midpoint of the first."""


def wide(seed: int) -> list[Enclosure]:
    """Around positive numbers, whose ends are as far away as ends may be, around 0, and around what
    cancels; with radii from a thousandth to the whole."""
    rng = np.random.default_rng(seed)
    positive, mixed = rng.uniform(0.5, 1.0, (3, 3)), rough(3, 3, seed)
    return [
        Enclosure(positive, 1e-3 * rng.uniform(0.5, 1.0, (3, 3))),
        Enclosure(np.zeros((3, 3)), np.ones((3, 3))),
        Enclosure(mixed, np.abs(mixed)),
        Enclosure(-positive, np.diag([0.3, 0.0, 0.7])),
    ]


@pytest.mark.parametrize("name", OF_TWO)
def test_ends_are_held_however_far_they_are(name: str) -> None:
    """Without a tolerance: what an operation forgets of a radius is as large as the radius."""
    of, truly = OF_TWO[name]
    for a in wide(31):
        for b in wide(32):
            found = of(a, b)
            for x in ends(a):
                for y in ends(b):
                    assert holds(found, truly(x, y, exact(a.mid)))


def test_norms_and_sums_of_enclosures_hold_those_of_their_ends() -> None:
    weights, signs = np.abs(rough(3, 3, 34)), rough(3, 3, 35)
    for a in wide(36):
        found, by_row = inner(a, weights), inner(a, signs)
        for end in ends(a):
            flat = [x for row in end for x in row]
            assert sum(x * x for x in flat) <= Fraction(a.norm()) ** 2
            for norms, lines in ((a.row_norms(), end), (a.column_norms(), transposed(end))):
                for norm, line in zip(norms.tolist(), lines, strict=True):
                    assert sum(x * x for x in line) <= Fraction(norm) ** 2
            assert all(abs(x) <= Fraction(y) for x, y in zip(flat, a.largest.flat, strict=True))
            for interval, by in ((found, weights), (by_row, signs)):
                dot = sum(x * Fraction(y) for x, y in zip(flat, by.ravel().tolist(), strict=True))
                assert Fraction(interval.lower) <= dot <= Fraction(interval.upper)


@pytest.mark.parametrize("size", [1.0, 0.0])
@pytest.mark.parametrize("around", [1.0, 0.0])
def test_norms_and_sums_of_radii_by_rows_and_columns(size: float, around: float) -> None:
    """Of radii r_i c_j + TINY, which is all there is where nothing else is known."""
    rng = np.random.default_rng(33)
    rows, columns = size * rng.uniform(1e-3, 1.0, 3), rng.uniform(1e-3, 1.0, 4)
    outer = Outer(around * rng.standard_normal((3, 4)), rows, columns)
    spread = [[Fraction(r) * Fraction(c) + Fraction(TINY) for c in columns] for r in rows]
    by = np.abs(rough(3, 4, 37))
    interval = inner(outer, by)
    for sign in (1, -1):
        end = added(exact(outer.mid), spread, sign)
        flat = [x for row in end for x in row]
        assert sum(x * x for x in flat) <= Fraction(outer.norm()) ** 2
        for norm, column in zip(outer.column_norms().tolist(), transposed(end), strict=True):
            assert sum(x * x for x in column) <= Fraction(norm) ** 2
        dot = sum(x * Fraction(y) for x, y in zip(flat, by.ravel().tolist(), strict=True))
        assert Fraction(interval.lower) <= dot <= Fraction(interval.upper)
    weights = np.abs(rough(4, 3, 38))
    sums = times_exactly(exact(weights), spread)
    for i, weighed in enumerate((outer.weighed(weights) * (1 + 100 * EPS)).tolist()):
        assert sums[i][i] <= Fraction(weighed)


# --- roundings as bad as they may be --------------------------------------------------------------


def of_bits(rng: np.random.Generator, shape: tuple[int, int], bits: int) -> Array:
    """Numbers about 1 of so many bits."""
    return np.asarray(1 + rng.integers(1, 2 ** (bits - 1), shape) / 2.0 ** (bits - 1))


@pytest.mark.parametrize("left", [24, 53])
@pytest.mark.parametrize("right", [24, 53])
def test_products_that_cancel_leave_roundings_that_radii_hold(left: int, right: int) -> None:
    """[U, U] [V; -V] is 0, and so is the product of two columns (u, v) and (v, -u): what is found
    instead is of the roundings of sums whose terms are not small. Of 24 bits nothing is cut off."""
    rng = np.random.default_rng(41)
    u, v = of_bits(rng, (8, 11), left), of_bits(rng, (11, 8), right)
    a, b = np.hstack([u, u]), np.vstack([v, -v])
    zero = [[Fraction(0)] * 8 for _ in range(8)]
    target = exactly(np.zeros((8, 8)))
    for found in (product(a, b), residual(target, a, b), finer_product(exactly(a), exactly(b))):
        assert holds(found, zero)
    outer = outer_product(a, b)
    assert holds(as_enclosure(outer), zero)
    one, other = of_bits(rng, (11, 4), left), of_bits(rng, (11, 4), right)
    both = np.block([[one, other], [other, -one]])
    truth = times_exactly(exact(both.T), exact(both))
    assert all(truth[j][4 + j] == 0 for j in range(4))
    assert holds(gram(both), truth)
    minus = [[-x for x in row] for row in truth]
    assert holds(gram_residual(target, both), minus)


@pytest.mark.parametrize("few", [False, True])
def test_sums_that_lose_every_term_but_the_first_are_held(few: bool) -> None:
    """1 and then halves of its last place, each of which is rounded away where terms are added in
    turn; of a sparse matrix in one long row among short ones."""
    length = 20 * SPARSE
    a = np.zeros((2 * SPARSE, length)) if few else np.full((2, length), U)
    a[0, 1:], a[:, 0] = U, 1.0
    b = np.ones((length, 2))
    found = product(a, b)
    assert holds(found, times_exactly(exact(a), exact(b)))
    if few:
        assert found.mid[0, 0] == 1  # all of them were


@pytest.mark.parametrize("power", [-600, -530, -510])
def test_products_that_underflow_are_held(power: int) -> None:
    """To nothing, or to numbers of few bits: squares of norms underflow as well."""
    a, b = (np.ldexp(rough(6, 6, seed), power) for seed in (51, 52))
    for name, (enclosed, _) in ENCLOSED.items():
        truth = times_exactly(exact(b.T) if "gram" in name else exact(a), exact(b))
        if name == "residual of a gram":
            truth = [[-1 - x for x in row] for row in truth]
        assert holds(enclosed(a, b), truth), name
    lost = np.full(8, math.sqrt(0.75)) * 2.0**-537  # each product is rounded up by a third
    exactly_it = sum((Fraction(x) * Fraction(x) for x in lost.tolist()), Fraction(0))
    assert Fraction(products_down(lost, lost)) <= exactly_it <= Fraction(products_up(lost, lost))


def test_sums_of_numbers_that_are_all_rounded_one_way() -> None:
    """1 and what is lost beside it; products a little above half a last place, or below it."""
    assert Fraction(sum_up(np.array([1.0, 1e-17]))) >= 1 + Fraction(1e-17)
    for count in range(1, 32):
        for k in range(-4, 5):
            a = np.full(count, 1 + 2.0**26 * EPS)
            b = np.full(count, 1 + (2.0**25 + k) * EPS)
            truth = count * Fraction(a[0]) * Fraction(b[0])
            assert Fraction(products_down(a, b)) <= truth <= Fraction(products_up(a, b))


@pytest.mark.parametrize("roundings", [1, 7, 300])
def test_sums_of_what_took_many_roundings(roundings: int) -> None:
    for a in (1.0, 0.7, -1.3):
        found = inner(Rounded(np.array([[a]]), roundings), np.array([[0.3]]))
        for sign in (-1, 1):
            truth = Fraction(a) * Fraction(0.3) * (1 + sign * roundings * Fraction(U))
            assert Fraction(found.lower) <= truth <= Fraction(found.upper)


@pytest.mark.parametrize("size", [1, 40, 400])
@pytest.mark.parametrize("sign", [-1, 1])
def test_a_contraction_of_products_as_wrong_as_they_may_be(
    size: int, sign: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Units of rounding of 2^-24, all of them made, and to one side."""
    summed, unit = enclosures._summed, 2.0**-24

    def wrong(a: Array, b: Array, *more: Any) -> tuple[Array, int]:
        found, depth = summed(a, b, *more)
        return found + sign * depth * unit * (np.abs(a) @ np.abs(b)), depth

    monkeypatch.setattr(enclosures, "_summed", wrong)
    monkeypatch.setattr(enclosures, "U", unit)
    made = contraction(np.full((size, 1), size**-0.5))
    assert made is not None
    assert np.linalg.norm(made[0].matrix) <= made[0].norm < 1 + 4 * (size + 9) * unit


def inverse_of(a: Exact) -> Exact:
    """By elimination."""
    rows = [[*row, *(Fraction(i == j) for j in range(len(a)))] for i, row in enumerate(a)]
    for i in range(len(a)):
        rows[i] = [x / rows[i][i] for x in rows[i]]
        for j in range(len(a)):
            if j != i:
                rows[j] = [x - rows[j][i] * y for x, y in zip(rows[j], rows[i], strict=True)]
    return [row[len(a) :] for row in rows]


@pytest.mark.parametrize(
    ("size", "condition", "rad"), [(3, 1e12, 0.0), (3, 1e6, 1e-8), (3, 3.0, 1e-3), (1, 1.0, 0.5)]
)
def test_inverses_of_all_definite_matrices_of_an_enclosure(
    size: int, condition: float, rad: float
) -> None:
    """Of its midpoint, of its ends and of some on the way, in fractions."""
    one = np.ones((size, size))
    for seed in range(4):
        q = np.linalg.qr(rough(size, size, 60 + seed))[0]
        mid = q * np.geomspace(1, 1 / condition, size) @ q.T
        mid = (mid + mid.T) / 2
        found = definite_inverse(Enclosure(mid, rad * one))
        assert found is not None
        y, away = found
        signs = rough(size, size, seed)
        for by in (0 * one, one, -one, -np.eye(size), np.sign(signs + signs.T)):
            end = added(exact(mid), exact(rad * by))
            off = added(inverse_of(end), exact(y), -1)
            with mpmath.workdps(30):
                rows = [[mpmath.mpf(x.numerator) / x.denominator for x in row] for row in off]
                assert max(mpmath.svd_r(mpmath.matrix(rows), compute_uv=False)) <= away


@pytest.mark.parametrize("shape", [(3, 3), (6, 4)])
@pytest.mark.parametrize("rank", [1, 3])
def test_norms_of_singular_values_from_above(shape: tuple[int, int], rank: int) -> None:
    """Beside those with 40 digits, of matrices whose singular values are far apart or equal."""
    rng = np.random.default_rng(rank)
    for _ in range(6):
        a = rng.normal(size=(shape[0], rank)) * 10.0 ** rng.integers(-6, 6, size=rank)
        a = np.asarray(a @ rng.normal(size=(rank, shape[1])))
        for case in (a, np.eye(*shape) * a[0, 0]):
            with mpmath.workdps(40):
                values = mpmath.svd_r(mpmath.matrix(case.tolist()), compute_uv=False)
                exact = [mpmath.mpf(max(values)), mpmath.fsum(values)]
            norms = [enclosures.spectral_norm_above(case)]
            norms += [enclosures.nuclear_norm_above(case)] if shape[0] == shape[1] else []
            for found, true in zip(norms, exact, strict=False):
                assert true <= found <= true * (1 + mpmath.mpf(1e-13))


def test_what_is_not_definite_has_no_inverse() -> None:
    """Singular, indefinite, and so within its radii alone."""
    q = np.linalg.qr(rough(3, 3, 64))[0]
    for least, rad in ((0.0, 0.0), (-1e-3, 0.0), (1e-3, 1e-3), (1.0, 0.5)):
        mid = q * np.array([1.0, 1.0, least]) @ q.T
        assert definite_inverse(Enclosure((mid + mid.T) / 2, np.full((3, 3), rad))) is None
