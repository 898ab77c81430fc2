"""Cheaper searches and accounts for all tests of this folder."""

from __future__ import annotations

from typing import Any

import pytest

from noisedesign.families.amplified import family, program, solver
from noisedesign.privacy.amplification import Mixture

ACCOUNTS: dict[Any, Any] = {}
RELIEFS: dict[Any, float] = {}


@pytest.fixture(autouse=True)
def cheap(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw fewer samples for a search, but in slow tests of it; the same account and the same gain
    of randomness are found once."""
    if not ("test_solver" in request.node.nodeid and request.node.get_closest_marker("slow")):
        monkeypatch.setattr(solver, "SAMPLES", 2**13)
        monkeypatch.setattr(solver, "LAST_SAMPLES", 2**14)
    compute, ease = program.amplified_epsilon, family.relief

    def once(mixture: Mixture, **how: Any) -> Any:
        key = mixture.gram.tobytes(), mixture.upper, *sorted(how.items())
        if key not in ACCOUNTS:
            ACCOUNTS[key] = compute(mixture, **how)
        return ACCOUNTS[key]

    monkeypatch.setattr(program, "amplified_epsilon", once)

    def once_eased(prices: Any, **how: Any) -> float:
        key = prices.tobytes(), repr(sorted(how.items()))
        if key not in RELIEFS:
            RELIEFS[key] = ease(prices, **how)
        return RELIEFS[key]

    monkeypatch.setattr(family, "relief", once_eased)
