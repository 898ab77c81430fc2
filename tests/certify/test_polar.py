"""Polar factors are guessed from designs, and cost nothing but time where the guess is wrong."""

from __future__ import annotations

import numpy as np
import pytest

from noisedesign.certify import polar
from noisedesign.certify.polar import polar_factor
from noisedesign.design.design import Design
from noisedesign.design.proof import prove
from noisedesign.design.solve import solve
from noisedesign.problem.problem import Problem, SpaceProblem, SpaceTimeProblem, TimeProblem
from noisedesign.system.graph import build_graph
from noisedesign.system.participation import FixedEpoch, single

Array = np.ndarray
SIZE = 12


@pytest.mark.parametrize("rank", [3, SIZE])
def test_a_polar_factor_gives_the_nuclear_norm(rank: int) -> None:
    rng = np.random.default_rng(2)
    a = rng.standard_normal((SIZE, rank)) @ rng.standard_normal((rank, SIZE))
    found = polar_factor(a)
    truth = np.linalg.svd(a, compute_uv=False).sum()
    assert found.norm < 1 + 1e-12
    assert np.sum(a * found.matrix) == pytest.approx(truth, rel=1e-10)
    assert not polar_factor(np.full((3, 3), np.nan)).matrix[0, 0] > 0


MIXING = np.array([[0.5, 0.5, 0.0], [0.1, 0.6, 0.3], [0.25, 0.0, 0.75]])
PROBLEMS: dict[str, Problem] = {
    "in space": SpaceProblem.from_graph(build_graph("erdos-renyi", nodes=40, p=0.2, seed=1)),
    "in time": TimeProblem.prefix(participation=FixedEpoch(epochs=2, separation=20)),
    "once": TimeProblem.prefix(participation=single(40)),
    "many epochs": TimeProblem.prefix(participation=FixedEpoch(epochs=10, separation=4)),
    "in both": SpaceTimeProblem(
        mixing=MIXING,
        participation=FixedEpoch(epochs=2, separation=6),
        joint="full",
        budget=np.array([1.0, 2.0, 0.5]),
    ),
}


def designed(name: str, gap: float) -> Design:
    design = solve(PROBLEMS[name], gap=gap).design
    assert design is not None
    return design


@pytest.mark.parametrize("gap", [1e-3, 1e-6, 1e-12])
@pytest.mark.parametrize("name", PROBLEMS)
def test_no_eigenvalues_are_taken_of_designs_that_tell_them(
    name: str, gap: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    design, taken = designed(name, gap), []
    for routine in ("eigh", "svd"):
        original = getattr(np.linalg, routine)

        def watched(a: Array, *rest: object, of: object = original, **more: object) -> object:
            if min(a.shape) >= 36:
                taken.append(a.shape)
            return of(a, *rest, **more)  # type: ignore[operator]

        monkeypatch.setattr(np.linalg, routine, watched)
    proof = prove(design)
    assert proof.rigorous
    assert not taken
    assert proof.gap <= design.gap + 1e-10


def test_a_guess_that_misses_what_is_asked_is_left_after_one_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is orthogonal, only not what it should be: more steps would not mend it."""
    made: list[float] = []
    original = polar.contraction

    def watched(z: Array, *, scale: float = 1.0) -> object:
        made.append(scale)
        return original(z, scale=scale)

    monkeypatch.setattr(polar, "contraction", watched)
    rng = np.random.default_rng(3)
    a = rng.standard_normal((SIZE, SIZE))
    left, values, right = np.linalg.svd(a)
    turned = left @ np.diag([-1.0] + [1.0] * (SIZE - 1)) @ right
    found = polar.nuclear_norm(
        polar.Rounded(a, 0), guess=turned + 1e-4, enough=values.sum() * (1 - 1e-11)
    )
    assert found.lower == pytest.approx(values.sum(), rel=1e-10)
    assert len(made) <= 3
