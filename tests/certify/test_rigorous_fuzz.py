"""The fuzz of what is proved: no claim of few instances is false, and false ones are noticed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from noisedesign.base.enclosures import Interval
from noisedesign.certify.rigorous import NotProvedError
from noisedesign.families.disjoint.family import Disjoint
from noisedesign.families.observers.family import Observers
from noisedesign.families.shared_seeds.family import SharedSeeds
from tests.support import rigorous_instances
from tests.support.balls import arb, flint, mat
from tests.support.known_optima import basis, basis_columns, definite
from tests.support.least_error import least_error
from tests.support.rigorous_fuzz import BITS, KINDS, fuzz, main
from tests.support.rigorous_others import OTHERS

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


def nothing(*_: Any, **__: Any) -> Any:
    raise NotProvedError("not asked")


@pytest.mark.parametrize(
    ("family", "name", "few"),
    [(SharedSeeds, "seeds", 4), (Observers, "observers", 5)],
    ids=["seeds", "observers"],
)
def test_a_bound_hardly_above_the_least_error_is_noticed(
    family: Any, name: str, few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of seeds and observers, where independent noise is no measure; truly it is just below."""
    monkeypatch.setattr(rigorous_instances, "LEAST", 1.0)
    monkeypatch.setattr(family, "rigorous_judge", nothing)
    found = fuzz(name, seed=2, instances=few)
    assert not found.false
    assert 0 <= found.margin < 1e-9
    truly = family.rigorous_bound
    monkeypatch.setattr(family, "rigorous_bound", lambda *a, **k: SPOILED["bound"](truly(*a, **k)))
    assert fuzz(name, seed=2, instances=few).false


@pytest.mark.parametrize("far", [1.0, 1e-15])
def test_the_least_error_of_two_nodes_alike(far: float) -> None:
    """H = [[a, b], [b, a]] and budgets tau: ((a + b)^1/2 + (a - b)^1/2)^2 / 2 tau, as R is of the
    eigenvectors of H by symmetry, and one number is left."""
    tau = 3e-7
    with flint.ctx.workprec(BITS):
        h, units = mat([[1.0, 1 - far], [1 - far, 1.0]]), basis(range(2), 2)
        cost = [h[0, 0], h[0, 1] * 2, h[1, 1]]
        limits = [definite(units, basis_columns(2), [tau] * 2)]
        found = least_error(cost, limits, [arb(2 / tau), arb(0), arb(2 / tau)])
        assert found is not None
        roots = (h[0, 0] + h[0, 1]).sqrt() + (h[0, 0] - h[0, 1]).sqrt()
        error = sum((a * b for a, b in zip(cost, found.x, strict=True)), arb(0))
        above = error / (roots**2 / (2 * arb(tau))) - 1
        assert 0 < above < 1e-19


@pytest.mark.parametrize("name", OTHERS)
def test_no_claim_outside_of_the_families_is_false(name: str) -> None:
    found = fuzz(name, seed=1, instances=8)
    assert not found.false
    assert found.claims > 2
    assert found.margin < 1e-12  # so that nothing much could be left out


@pytest.mark.slow
@pytest.mark.parametrize("name", KINDS)
def test_no_claim_of_a_few_instances_is_false(name: str) -> None:
    found = fuzz(name, seed=3, instances=12)
    assert not found.false
    assert found.claims > 0
    assert found.margin >= 0
