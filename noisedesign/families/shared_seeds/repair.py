"""Making blocks on cliques feasible, exactly and in floating point."""

from __future__ import annotations

import numpy as np

from noisedesign.base import settings
from noisedesign.base.checks import Array
from noisedesign.families.shared_seeds.state import Setting, rescaling

MARGIN = 4
"""Multiple of size * EPS * condition that R is enlarged by, so that budgets hold after rounding."""


def feasible_blocks(setting: Setting, blocks: Array) -> Array | None:
    """Blocks of the least objective found that keep unit budgets and caps; None where none do.

    Rows rescaled to use up budgets exactly, or not, where some budget is better left slack; where
    a cap is in the way, blended with independent noise. Variances and diag(R_A^-1) are convex in
    R, so a blend with noise strictly within them gets there.
    """
    layout = setting.layout
    try:
        row = rescaling(setting.precisions(blocks))
    except np.linalg.LinAlgError:
        return None
    kept = [blocks, layout.scaled(blocks, row)]
    found = [
        made for made in (_enlarged(setting, candidate) for candidate in kept) if made is not None
    ]
    return min(found, key=lambda made: float(setting.gram_blocks @ made), default=None)


def _enlarged(setting: Setting, blocks: Array) -> Array | None:
    layout, share = setting.layout, 0.0
    variance = np.full(layout.size, 2.0) if setting.cap is None else (1 + setting.cap) / 2
    inside = setting.independent(variance)
    while share <= 1:
        blend = (1 - share) * blocks + share * inside
        try:
            precisions = setting.precisions(blend)
        except np.linalg.LinAlgError:
            return None
        variance = setting.variances(blend)
        condition = max(float((np.diagonal(x) * variance).max()) for x in precisions)
        margin = MARGIN * settings.rank_tolerance(layout.size) * max(1.0, condition)
        used = max(float(np.diagonal(x).max()) for x in precisions)
        enlarged = blend * (1 + margin)
        within = setting.cap is None or (variance * (1 + 2 * margin) <= setting.cap).all()
        if used <= 1 + margin / 2 and within:
            return np.asarray(enlarged)
        share = max(2 * share, settings.EPS)
    return None
