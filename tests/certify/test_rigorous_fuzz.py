"""The fuzz of what is proved: no claim of few instances is false, and false ones are noticed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from noisedesign.base.enclosures import Interval
from noisedesign.families.disjoint.family import Disjoint
from tests.support.rigorous_fuzz import fuzz, main
from tests.support.rigorous_instances import FAMILIES

BIT = 1e-13


def wider(judged: Any, low: float, high: float) -> Any:
    ends = judged.objective.lower * low, judged.objective.upper * high
    return replace(judged, objective=Interval(*ends))


SPOILED: dict[str, Callable[[Any], Any]] = {
    "objective": lambda judged: wider(judged, 1.0, 1 - BIT),
    "objective from below": lambda judged: wider(judged, 1 + BIT, 1.0),
    "sensitivity": lambda j: replace(j, sensitivity_squared=j.sensitivity_squared * (1 - BIT)),
    "variance": lambda j: replace(j, variance_ratio=j.variance_ratio * (1 - BIT)),
    "floor": lambda j: j if j.floor_ratio is None else replace(j, floor_ratio=j.floor_ratio / 2),
    "bound": lambda found: Interval(found.lower * (1 + 1e-6), found.upper),
}


@pytest.mark.parametrize("name", SPOILED)
def test_a_false_claim_is_noticed(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One that is planted in a judge, and nothing is said of the judge as it is."""
    asked = ["--families", "capped", "--seed", "2", "--instances", "6"]
    assert main(asked) == 0
    assert "false:" not in capsys.readouterr().out
    method = "rigorous_bound" if name == "bound" else "rigorous_judge"
    truly = getattr(Disjoint, method)
    monkeypatch.setattr(Disjoint, method, lambda *a, **k: SPOILED[name](truly(*a, **k)))
    assert main(asked) == 1
    told = capsys.readouterr().out.splitlines()
    assert told[1].split()[:2] == ["capped", "6"]
    assert int(told[1].split()[4]) == len(told) - 2
    assert all(f": {name} " in line for line in told[2:])


@pytest.mark.slow
@pytest.mark.parametrize("name", FAMILIES)
def test_no_claim_of_a_few_instances_is_false(name: str) -> None:
    found = fuzz(name, seed=3, instances=12)
    assert not found.false
    assert found.claims > 0
    assert found.margin >= 0
