"""Which steps are measured, and of how many coordinates; no test asks how long they take."""

from __future__ import annotations

from typing import Any

import pytest

import noisedesign as nd
from noisedesign.tasks.step_seconds import COORDINATES, FEWEST, coordinates_of, step_seconds

PATH = nd.build_graph("path", nodes=3)
TARGET = nd.PrivacyTarget(epsilon=1.0)


def design_in_time(steps: int, **structure: Any) -> Any:
    given = {"structure": nd.TimeStructure(**structure)} if structure else {}
    scheme = nd.participation.single(steps)
    return nd.solve(nd.TimeProblem.prefix(participation=scheme, privacy=TARGET, **given)).design


class Spy:
    """A source that says which steps it was asked for."""

    def __init__(self, source: Any, asked: list[tuple[int, int]]) -> None:
        self.source, self.asked = source, asked

    def step(self, t: int, size: int) -> Any:
        self.asked.append((t, size))
        return self.source.step(t, size)


@pytest.mark.parametrize(
    ("structure", "steps", "measured"),
    [
        ({}, 40, [37, 38, 39]),  # each takes draws of all steps before
        ({"kind": "banded", "bands": 2}, 40, [17, 18, 19]),  # each follows from the one before
        ({}, 2, [0, 1]),
        ({}, 1, [0]),
    ],
)
def test_steps_at_the_end(
    structure: Any, steps: int, measured: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    from noisedesign.tasks import step_seconds as module

    asked: list[tuple[int, int]] = []
    real = module.noise
    monkeypatch.setattr(module, "noise", lambda *a, **how: Spy(real(*a, **how), asked))
    assert step_seconds(design_in_time(steps, **structure), coordinates=5) > 0
    assert asked[1:] == [(t, 5) for t in measured]


def test_noise_that_is_shared_or_dealt_is_drawn() -> None:
    for structure in (nd.SpaceStructure(), nd.SpaceStructure(kind="edge-local")):
        problem = nd.SpaceProblem.from_graph(
            PATH, structure=structure, participation=nd.participation.single(2), privacy=TARGET
        )
        assert step_seconds(nd.solve(problem).design, coordinates=3) > 0


def test_few_coordinates_where_a_step_takes_many_draws() -> None:
    fresh = nd.baseline(
        nd.TimeProblem.prefix(participation=nd.participation.single(9), privacy=TARGET), "ldp"
    )
    assert coordinates_of([fresh]) == COORDINATES
    assert coordinates_of([fresh], dimension=7) == 7
    many = design_in_time(40)
    monkey = nd.solve(
        nd.SpaceTimeProblem.from_graph(
            PATH, joint="full", participation=nd.participation.single(4), privacy=TARGET
        )
    ).design
    assert FEWEST <= coordinates_of([fresh, many, monkey]) <= COORDINATES
