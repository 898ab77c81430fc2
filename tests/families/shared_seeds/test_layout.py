"""What changes of blocks do to R and to its inverse, in batches."""

from __future__ import annotations

import numpy as np
import pytest

from noisedesign.families.shared_seeds.layout import Coordinates, Layout, Squares, longest_step


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


def test_the_longest_step_leaves_a_singular_block() -> None:
    """Of pairs and of larger sets, against the least eigenvalue there and a little further."""
    for sets in (((0, 1), (1, 2), (3,)), ((0, 1, 2), (2, 3))):
        layout, rng = Layout(sets, 4), np.random.default_rng(1)
        squares = [rng.normal(size=block.shape) for block in layout.split(np.zeros(layout.length))]
        flat = layout.join([half @ half.transpose(0, 2, 1) for half in squares])
        step = layout.symmetrized(rng.normal(size=layout.length))

        def least(length: float, flat=flat, step=step, layout=layout) -> float:
            blocks = layout.split(flat + length * step)
            return min(float(np.linalg.eigvalsh(block).min()) for block in blocks)

        longest = longest_step(layout, flat, step)
        assert least(longest) == pytest.approx(0.0, abs=1e-12)
        assert least(0.99 * longest) > 0
        assert least(1.01 * longest) < 0
