"""Budgets proved of polynomial noise: by many digits, and what is not so is not proved."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction

import mpmath
import networkx as nx
import numpy as np
import pytest
from numpy.polynomial import Chebyshev
from scipy import sparse

from noisedesign.base.checks import Array
from noisedesign.base.monitor import Monitor
from noisedesign.certify.rigorous import NotProvedError
from noisedesign.families.polynomial import operator as operators, reach, rigorous
from noisedesign.families.polynomial.family import FAMILY
from noisedesign.families.polynomial.operator import Weighted
from noisedesign.forms import PolynomialCovariance
from noisedesign.forms.structure import SpaceStructure
from noisedesign.problem.problem import SpaceProblem
from tests.support import oracles
from tests.support.forged_polynomials import FORGED

W = oracles.metropolis(nx.barabasi_albert_graph(16, 2, seed=0))
BUDGET = np.random.default_rng(2).uniform(0.5, 2.0, 16)


@pytest.fixture(scope="module")
def space() -> PolynomialCovariance:
    structure = SpaceStructure(kind="polynomial")
    problem = SpaceProblem(mixing=W, budget=BUDGET, structure=structure)
    (noise,) = FAMILY.solve(FAMILY.program(problem), monitor=Monitor(gap=0.1)).noises
    assert isinstance(noise.space, PolynomialCovariance)
    return noise.space


@pytest.fixture(scope="module")
def many_digits(space: PolynomialCovariance) -> tuple[Array, Array]:
    """The diagonals of p(B) and of R^-1, to 40 digits before they are rounded."""
    with mpmath.workdps(40):
        n = space.nodes
        a = mpmath.matrix(space.mixing.toarray().tolist())
        for j in range(n):
            root = mpmath.sqrt(mpmath.mpf(float(space.weights[j])))
            for i in range(n):
                a[i, j] *= root
        b = a.T * a
        values, vectors = mpmath.eigsy(b)

        def diagonal(f: object) -> list[mpmath.mpf]:
            seen = [f(x) for x in values]  # type: ignore[operator]
            return [mpmath.fsum(seen[k] * vectors[i, k] ** 2 for k in range(n)) for i in range(n)]

        def series(coefficients: Array) -> object:
            def value(x: mpmath.mpf) -> mpmath.mpf:
                angle = mpmath.acos(2 * x / mpmath.mpf(space.bound) - 1)
                terms = [float(c) * mpmath.cos(j * angle) for j, c in enumerate(coefficients)]
                return mpmath.fsum(terms)

            return value

        p, r = series(space.precision), series(space.noise)
        above = np.array([float(x) for x in diagonal(p)])
        inverse = diagonal(lambda x: 1 / r(x) ** 2)  # type: ignore[operator]
        scale = [mpmath.mpf(float(d)) for d in space.scale]
        return above, np.array([float(x / d) for x, d in zip(inverse, scale, strict=True)])


@pytest.mark.parametrize("full", [0.0, 2.0])
def test_what_is_proved_is_above_what_many_digits_say_and_hardly(
    space: PolynomialCovariance,
    many_digits: tuple[Array, Array],
    full: float,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(operators, "DENSE_FROM", full)
    monkeypatch.setattr(reach, "RUN", 7)
    operator = Weighted(mixing=space.mixing, weights=space.weights, bound=space.bound)
    found = rigorous.diagonal_above(operator, space.precision)
    diagonal, inverse = many_digits
    assert np.all(found >= diagonal)
    np.testing.assert_allclose(found, diagonal, rtol=3e-12)
    proved = rigorous.squared_sensitivity(space, BUDGET)
    true = float((inverse / BUDGET).max())
    assert true <= proved <= min(true * (1 + 2e-4), 1)


@pytest.mark.parametrize(
    "forged",
    [
        *FORGED,
        lambda s: {"precision": np.append(s.precision, np.zeros(1000))},
        lambda s: {"scale": s.scale * np.nan},
        lambda s: {"mixing": -s.mixing},
    ],
)
def test_what_is_forged_is_not_proved(space: PolynomialCovariance, forged: object) -> None:
    changed = replace(space, **forged(space))  # type: ignore[operator]
    with suppress(NotProvedError):
        assert not rigorous.squared_sensitivity(changed, BUDGET) <= 1


@pytest.mark.parametrize("degree", [0, 1, 2, 5, 60])
def test_a_series_is_bounded_from_below_and_hardly(degree: int) -> None:
    for seed in range(5):
        coefficients = np.random.default_rng([degree, seed]).standard_normal(degree + 1)
        found = rigorous.least([Fraction(float(c)) for c in coefficients])
        seen = float(Chebyshev(coefficients)(np.cos(np.linspace(0, np.pi, 100_001))).min())
        room = 1e-5 * float(np.abs(coefficients).sum())
        assert seen - room <= found <= seen + 1e-9 * room


def test_a_least_value_between_points_is_not_missed() -> None:
    """(x - s)^2 with s where no point is: its least value is 0."""
    for s in np.random.default_rng(0).uniform(-1, 1, 50):
        s = Fraction(float(s))
        series = [s * s + Fraction(1, 2), -2 * s, Fraction(1, 2)]
        assert -1e-5 <= rigorous.least(series) <= 0
        assert rigorous.least([series[0] + Fraction(1, 10**5), *series[1:]]) > 0


def test_products_of_series_are_exact() -> None:
    """T_1 T_2 = (T_1 + T_3) / 2, in the fractions that proofs take."""
    one, two = (np.array([Fraction(x) for x in xs], object) for xs in ((0, 1), (0, 0, 1)))
    product = list(np.polynomial.chebyshev.chebmul(one, two))
    assert product == [0, Fraction(1, 2), 0, Fraction(1, 2)]
    assert all(isinstance(x, (int, Fraction)) for x in product)


def test_nothing_is_proved_of_eigenvalues_at_the_bound() -> None:
    """The mean has the eigenvalue 1, exactly; nothing is left for rounding."""
    space = PolynomialCovariance(
        mixing=sparse.csr_array(np.full((4, 4), 0.25)),
        weights=np.ones(4),
        bound=1.0,
        precision=np.ones(1),
        noise=np.ones(1),
        scale=np.ones(4),
    )
    with pytest.raises(NotProvedError, match="eigenvalues"):
        rigorous.squared_sensitivity(space, np.ones(4))
    wider = replace(space, bound=1 + 1e-12)
    assert 1 <= rigorous.squared_sensitivity(wider, np.ones(4)) <= 1 + 1e-14


def dense(mixing: Array, bound: float, degrees: Sequence[int]) -> list[list[mpmath.mpf]]:
    """Diagonals of T_j(2 B / b - 1), B = W^T W, to forty digits."""
    with mpmath.workdps(40):
        w = mpmath.matrix(mixing.tolist())
        x = w.T * w * (2 / mpmath.mpf(bound))
        for i in range(x.rows):
            x[i, i] -= 1
        values, vectors = mpmath.eigsy(x)
        n, found = x.rows, []
        for j in degrees:
            terms = [mpmath.chebyt(j, value) for value in values]
            seen = (mpmath.fsum(vectors[i, k] ** 2 * terms[k] for k in range(n)) for i in range(n))
            found.append(list(seen))
    return found


@pytest.mark.parametrize("name", ["complete", "ring"])
def test_diagonals_of_every_degree_are_above_forty_digits_where_errors_grow(name: str) -> None:
    """Of one Chebyshev polynomial alone, and with either sign, without a tolerance. A bound that is
    just above the eigenvalue 1 has errors grow with the square of the degree: those of A by 360 000
    times, and a polynomial says nothing of its own rounding."""
    graph = nx.complete_graph(4) if name == "complete" else nx.cycle_graph(5)
    mixing = oracles.metropolis(graph)
    degrees = (0, 1, 2, 7, 60, 600)
    for bound in (1 + 1e-9, 1 + 3e-7, 1.1):
        weights = np.ones(len(mixing))
        operator = Weighted(mixing=sparse.csr_array(mixing), weights=weights, bound=bound)
        for degree, truth in zip(degrees, dense(mixing, bound, degrees), strict=True):
            for sign in (1.0, -1.0):
                coefficients = sign * np.eye(1, degree + 1, degree)[0]
                found = rigorous.diagonal_above(operator, coefficients)
                pairs = zip(found.tolist(), truth, strict=True)
                off = [float(mpmath.mpf(x) - sign * y) for x, y in pairs]
                assert min(off) >= 0
                assert max(off) <= 1e-14 * (degree + 10) ** 2.5
