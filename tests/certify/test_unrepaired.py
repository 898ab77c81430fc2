"""X(U) is found again from what it was repaired to, by nothing but blocks of X U X = H."""

from __future__ import annotations

import numpy as np
import pytest

from noisedesign.certify.unrepaired import Unrepaired, couplings, unrepaired

Array = np.ndarray


def patterns_of(b: int, k: int) -> tuple[Array, Array]:
    """Which entries of a matrix are those of the blocks; coordinate s b + j is step s of j."""
    patterns = np.arange(k * b).reshape(k, b).T
    return patterns[:, :, None], patterns[:, None, :]


class Case:
    """X, some U, and H = X U X, of which X is then X(U); what X is repaired to."""

    def __init__(self, b: int, k: int, spread: float, scale: float = 1.0) -> None:
        rng = np.random.default_rng(b + k)
        m, self.at = b * k, patterns_of(b, k)
        roots = rng.standard_normal((b, k, k)) / 4 + np.eye(k)
        self.roots = roots * rng.uniform(0.5, 2.0, (b, 1, 1))
        self.u = self.roots @ self.roots.transpose(0, 2, 1)
        x = rng.standard_normal((m, m)) / (3 * m)
        x += x.T
        x[self.at] = rng.uniform(0.5, 1.5, (b, k, 1)) * np.eye(k)
        added = spread * rng.standard_normal((b, k, k)) * (1 - np.eye(k))
        self.added = added + added.transpose(0, 2, 1)
        x[self.at] += self.added
        self.h = (x @ self.whole(self.u) @ x)[self.at]
        self.scales = np.exp(spread * rng.uniform(-1, 1, b)) / scale
        rows = np.tile(self.scales, k)
        self.x = x.copy()
        self.x[self.at] -= self.added
        self.x /= np.multiply.outer(rows, rows)

    def whole(self, blocks: Array) -> Array:
        found = np.zeros((len(blocks) * blocks.shape[1],) * 2)
        found[self.at] = blocks
        return found

    def found(self) -> Unrepaired | None:
        n = couplings(self.x @ self.whole(self.roots), len(self.u))
        with np.errstate(all="ignore"):
            return unrepaired(n, self.x[self.at], self.u, self.h)


@pytest.mark.parametrize(("b", "k"), [(7, 1), (5, 2), (4, 3), (2, 9), (1, 4)])
def test_couplings_are_those_of_their_definition(b: int, k: int) -> None:
    case = Case(b, k, 0.01)
    found = couplings(case.x @ case.whole(case.roots), b)
    for j in range(b):
        for other in range(b):
            cut = case.x[j::b][:, other::b]
            expected = cut @ case.u[other] @ cut.T
            assert found[:, :, j, other] == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("spread", [0.0, 1e-6, 1e-3, 5e-3])
@pytest.mark.parametrize("scale", [1.0, 1e-5])
@pytest.mark.parametrize(("b", "k"), [(7, 1), (6, 2), (5, 3), (2, 9), (1, 4)])
def test_what_was_dropped_and_scaled_is_found(b: int, k: int, scale: float, spread: float) -> None:
    case = Case(b, k, spread, scale)
    found = case.found()
    assert found is not None
    assert np.sqrt(found.squares) == pytest.approx(case.scales, rel=1e-9)
    assert found.added == pytest.approx(case.added, abs=1e-9)


def test_what_was_repaired_in_another_way_is_given_up() -> None:
    case = Case(6, 2, 0.0)
    assert case.found() is not None
    noise = np.random.default_rng(3).standard_normal(case.x.shape)
    case.x = case.x + 2 * noise @ noise.T
    assert case.found() is None
    for spoiled in (np.nan, 0.0):
        case.x = np.full_like(case.x, spoiled)
        assert case.found() is None
