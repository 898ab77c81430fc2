"""Polar factors are guessed from designs, and cost nothing but time where the guess is wrong."""

from __future__ import annotations

import numpy as np
import pytest

from noisedesign.program import polar
from noisedesign.program.design import Design
from noisedesign.program.polar import balanced, polar_factor
from noisedesign.program.problem import Problem, SpaceProblem, TimeProblem
from noisedesign.program.proof import prove
from noisedesign.system.graph import build_graph
from noisedesign.system.participation import FixedEpoch
from noisedesign.tasks.solve import solve

Array = np.ndarray
SIZE = 12


def scaled_apart(spread: float) -> tuple[Array, Array, Array, Array]:
    """L, B and the R(U) of U = B^2, with rows scaled by factors that differ by ``spread``."""
    rng = np.random.default_rng(0)
    factor = rng.standard_normal((SIZE, SIZE)) / 4 + np.eye(SIZE)
    roots = rng.uniform(0.5, 2.0, SIZE)
    left, _, right = np.linalg.svd(factor * roots)
    r = np.linalg.solve(factor, (left @ right) * roots)
    apart = np.exp(spread * rng.uniform(-1, 1, SIZE))
    return factor, roots, (r + r.T) / 2 * np.multiply.outer(apart, apart), left @ right


@pytest.mark.parametrize("spread", [0.0, 1e-5, 1e-3, 0.03])
def test_scaled_designs_tell_the_polar_factor_that_they_were_made_of(spread: float) -> None:
    factor, roots, r, truth = scaled_apart(spread)
    found = balanced(lambda d: factor @ (d[:, None] * r) * (d / roots) * 3.0, r * np.linalg.inv(r))
    assert found is not None
    found *= np.sqrt(SIZE) / np.linalg.norm(found)
    assert found == pytest.approx(truth, abs=1e-5)
    if spread >= 1e-3:  # that of the design as it is would not do
        plain = factor @ r / roots
        plain *= np.sqrt(SIZE) / np.linalg.norm(plain)
        assert np.abs(plain - truth).max() > 1e-4


def test_what_is_no_scaled_design_is_given_up() -> None:
    rng = np.random.default_rng(1)
    f = rng.standard_normal((SIZE, SIZE))
    r = f @ f.T + np.eye(SIZE)
    factor = rng.standard_normal((SIZE, SIZE))
    with np.errstate(all="ignore"):
        assert balanced(lambda d: factor @ (d[:, None] * r) * d, r * np.linalg.inv(r)) is None
        for spoiled in (np.nan, 0.0):
            assert balanced(lambda d: np.full((SIZE, SIZE), spoiled), np.eye(SIZE)) is None  # noqa: B023


@pytest.mark.parametrize("rank", [3, SIZE])
def test_a_polar_factor_gives_the_nuclear_norm(rank: int) -> None:
    rng = np.random.default_rng(2)
    a = rng.standard_normal((SIZE, rank)) @ rng.standard_normal((rank, SIZE))
    found = polar_factor(a)
    truth = np.linalg.svd(a, compute_uv=False).sum()
    assert found.norm < 1 + 1e-12
    assert np.sum(a * found.matrix) == pytest.approx(truth, rel=1e-10)
    assert not polar_factor(np.full((3, 3), np.nan)).matrix[0, 0] > 0


PROBLEMS: dict[str, Problem] = {
    "in space": SpaceProblem.from_graph(build_graph("erdos-renyi", nodes=40, p=0.2, seed=1)),
    "in time": TimeProblem.prefix(participation=FixedEpoch(epochs=2, separation=20)),
}


def designed(name: str, gap: float) -> Design:
    design = solve(PROBLEMS[name], gap=gap).design
    assert design is not None
    return design


@pytest.mark.parametrize(
    ("name", "gap", "most"), [("in space", 1e-6, 0), ("in space", 1e-12, 0), ("in time", 1e-12, 0)]
)
def test_no_eigenvalues_are_taken_of_designs_that_tell_them(
    name: str, gap: float, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    design, taken = designed(name, gap), []
    for routine in ("eigh", "svd"):
        original = getattr(np.linalg, routine)

        def watched(a: Array, *rest: object, of: object = original, **more: object) -> object:
            if a.shape == (40, 40):
                taken.append(a.shape)
            return of(a, *rest, **more)  # type: ignore[operator]

        monkeypatch.setattr(np.linalg, routine, watched)
    proof = prove(design)
    assert proof.rigorous
    assert len(taken) <= most
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
