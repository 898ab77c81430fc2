"""Banded products and solves against dense linear algebra."""

from __future__ import annotations

import numpy as np
import pytest

from noisedesign.base.banded_matrices import BandedSolver, banded_product
from noisedesign.families.banded.bound import gram_band
from tests.support.banded_cases import by_columns, random_band


@pytest.mark.parametrize(("horizon", "bands"), [(1, 1), (6, 1), (6, 6), (33, 4), (100, 40)])
def test_banded_products_and_solves_by_dense_algebra(horizon: int, bands: int) -> None:
    c = random_band(horizon, bands, seed=1)
    b = np.random.default_rng(2).standard_normal((horizon, 5))
    solver = BandedSolver(by_columns(c, bands))
    assert solver.solve(b) == pytest.approx(np.linalg.solve(c, b), rel=1e-9, abs=1e-11)
    assert solver.solve_transposed(b) == pytest.approx(np.linalg.solve(c.T, b), rel=1e-9, abs=1e-11)
    assert banded_product(c, bands - 1, b) == pytest.approx(c @ b, rel=1e-11, abs=1e-13)
    assert gram_band(c, bands) == pytest.approx(by_columns(c @ c.T, bands), rel=1e-12, abs=1e-14)
