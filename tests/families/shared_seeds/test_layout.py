"""Steps of blocks, in batches."""

from __future__ import annotations

import numpy as np
import pytest

from noisedesign.families.shared_seeds.layout import Layout, longest_step


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
