"""What changes of blocks do to R and to its inverse, in batches."""

from __future__ import annotations

import numpy as np
import pytest

from noisedesign.families.shared_seeds.layout import Coordinates, Layout, Squares


@pytest.mark.parametrize("few", [True, False])
def test_squares_are_what_the_inverse_loses(few: bool) -> None:
    sets = ((0, 1), (0, 2, 3), (1, 2), (3,), (2, 3, 4))
    layout, rng, on = Layout(sets, 5), np.random.default_rng(0), np.array([0, 2, 4])
    x = rng.normal(size=(5, 5))
    x = x @ x.T
    squares = Squares(layout, Coordinates(layout), x, on, few=few)
    flat = layout.symmetrized(rng.normal(size=layout.length))
    change = np.zeros((5, 5))
    for nodes, block in zip(sets, layout.listed(flat), strict=True):
        change[np.ix_(nodes, nodes)] += block
    np.testing.assert_allclose(squares.of(flat), np.diagonal(x @ change @ x)[on], rtol=1e-12)
    values = rng.normal(size=3)
    pull = x[:, on] @ np.diag(values) @ x[on]
    for nodes, block in zip(sets, layout.listed(squares.spread(values)), strict=True):
        np.testing.assert_allclose(block, pull[np.ix_(nodes, nodes)], rtol=1e-11, atol=1e-12)
