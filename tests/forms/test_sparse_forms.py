"""Covariances that are polynomials of W, against dense eigenvectors."""

from __future__ import annotations

from typing import Any

import networkx as nx
import numpy as np
import pytest
from numpy.polynomial import Chebyshev
from scipy import sparse

from noisedesign.base import settings
from noisedesign.base.checks import Array, InputError
from noisedesign.forms import (
    Noise,
    PairwiseCovariance,
    PolynomialCovariance,
    noise_of_arrays,
    sparse_covariance_of_arrays,
)
from tests.support import oracles

W = oracles.row_normalized(nx.barabasi_albert_graph(40, 2, seed=0))
RNG = np.random.default_rng(5)
WEIGHTS, SCALE = RNG.uniform(0.5, 1.0, 40), RNG.uniform(1.0, 3.0, 40)
B = np.sqrt(WEIGHTS)[:, None] * (W.T @ W) * np.sqrt(WEIGHTS)
BOUND = 1.01 * float(np.linalg.eigvalsh(B).max())


def example(noise: Any = (1.5, -0.4, 0.2, 0.05, -0.02)) -> PolynomialCovariance:
    return PolynomialCovariance(
        mixing=sparse.csr_array(W),
        weights=WEIGHTS,
        bound=BOUND,
        precision=np.array([1.0, 0.5]),
        noise=np.array(noise),
        scale=SCALE,
    )


def root_of(space: PolynomialCovariance) -> Array:
    """D^(1/2) r(B), by eigenvectors of B."""
    values, vectors = np.linalg.eigh(B)
    r = Chebyshev(space.noise, domain=[0, BOUND])(values)
    return np.asarray(np.sqrt(space.scale)[:, None] * ((vectors * r) @ vectors.T))


@pytest.mark.parametrize("noise", [(2.0,), (2.0, 0.5), (1.5, -0.4, 0.2, 0.05, -0.02)])
def test_products_are_those_of_the_polynomial(noise: Any) -> None:
    space = example(noise)
    expected, found = root_of(space), space.root()
    block = RNG.standard_normal((40, 150))
    np.testing.assert_allclose(found @ block, expected @ block, atol=1e-12)
    np.testing.assert_allclose(found.T @ block, expected.T @ block, atol=1e-12)
    np.testing.assert_allclose(found @ block[:, 0], expected @ block[:, 0], atol=1e-12)
    np.testing.assert_allclose(space.covariance(), expected @ expected.T, atol=1e-12)


def test_scaled_noise_is_so_many_times_the_noise() -> None:
    block = RNG.standard_normal((40, 3))
    three, one = (space.root() @ block for space in (example().scaled(3.0), example()))
    np.testing.assert_allclose(three, 3 * one, rtol=1e-12)


def test_noise_is_drawn_a_step_at_a_time_with_its_covariance() -> None:
    noise = Noise(steps=None, nodes=40, space=example())
    drawn = np.concatenate(list(noise.stream(dimension=3000, seed=1, steps=2)), axis=1)
    assert drawn.shape == (40, 6000)
    found, expected = drawn @ drawn.T / 6000, noise.covariance
    spread = np.sqrt((np.outer(np.diag(expected), np.diag(expected)) + expected**2) / 6000)
    assert (np.abs(found - expected) < 6 * spread).all()
    again = next(noise.stream(dimension=3000, seed=1, steps=1))
    np.testing.assert_array_equal(again, drawn[:, :3000])


def test_arrays_are_all_that_there_is() -> None:
    arrays = example().arrays()
    assert all(array.dtype == np.float64 for array in arrays.values())
    noise = noise_of_arrays(arrays, steps=None, nodes=40, full=False, field="export")
    np.testing.assert_array_equal(noise.covariance, example().covariance())


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("precision_coefficients", np.ones((2, 2))),
        ("noise_coefficients", np.ones(0)),
        ("spectral_bound", np.zeros(1)),
        ("node_weights", np.ones(39)),
        ("node_scales", -SCALE),
        ("mixing_indices", np.full(1, 40.0)),
        ("mixing_indptr", np.zeros(41)),
        ("mixing_indptr", np.arange(41.0)[::-1].copy()),
    ],
)
def test_arrays_that_cannot_be_are_refused(name: str, value: Array) -> None:
    arrays = example().arrays()
    if name == "mixing_indices":
        value = np.concatenate([value, arrays[name][1:]])
    with pytest.raises(InputError) as error:
        sparse_covariance_of_arrays(arrays | {name: value}, nodes=40, field="design file")
    assert error.value.field.startswith("design file.")


def test_places_that_are_no_integers_are_refused() -> None:
    arrays = example().arrays()
    with pytest.raises(InputError, match="no integers"):
        sparse_covariance_of_arrays(
            arrays | {"mixing_indices": arrays["mixing_indices"] + 0.5}, nodes=40, field="file"
        )
    del arrays["mixing_data"]
    with pytest.raises(InputError, match="mixing_data"):
        sparse_covariance_of_arrays(arrays, nodes=40, field="file")


def test_a_covariance_of_many_nodes_is_never_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "DENSE_NODES", 39)
    with pytest.raises(InputError, match="at most 39 nodes"):
        _ = Noise(steps=None, nodes=40, space=example()).covariance


# --- seeds of pairs -------------------------------------------------------------------------------

PAIRS = PairwiseCovariance(
    own=np.array([1.0, 0.5, 2.0]),
    pairs=np.array([[0, 1], [2, 1]]),
    shares=np.array([[1.0, -2.0], [0.5, -1.0]]),
)
"""Node 0 and 1 share a seed, and 2 and 1: F by hand below."""

FACTOR = np.array([[1, 0, 0, 1, 0], [0, 0.5, 0, -2, -1], [0, 0, 2, 0, 0.5]])


def test_seeds_of_pairs_make_up_their_covariance_and_root() -> None:
    np.testing.assert_allclose(PAIRS.root() @ np.eye(5), FACTOR, atol=0)
    np.testing.assert_allclose(PAIRS.root().T @ np.eye(3), FACTOR.T, atol=0)
    np.testing.assert_allclose(PAIRS.covariance(), FACTOR @ FACTOR.T, atol=1e-15)
    np.testing.assert_allclose(PAIRS.scaled(3.0).covariance(), 9 * PAIRS.covariance(), rtol=1e-15)
    assert sorted(PAIRS.held_by(1)) == [(0, 0, -2.0), (1, 2, -1.0)]
    assert PAIRS.held_by(2) == [(1, 1, 0.5)]


def test_seeds_of_pairs_go_to_arrays_and_back() -> None:
    found = sparse_covariance_of_arrays(PAIRS.arrays(), nodes=3, field="design")
    assert isinstance(found, PairwiseCovariance)
    assert np.array_equal(found.covariance(), PAIRS.covariance())


@pytest.mark.parametrize(
    ("name", "array"),
    [
        ("own_shares", np.ones(4)),
        ("own_shares", np.array([1.0, -1.0, 1.0])),
        ("seed_nodes", np.array([[0.0, 1.0], [1.0, 1.0]])),
        ("seed_nodes", np.array([[0.0, 1.0], [1.0, 3.0]])),
        ("seed_nodes", np.array([[0.0, 1.0], [1.0, 0.5]])),
        ("seed_nodes", np.array([[0.0, 1.0], [1.0, -1.0]])),
        ("seed_nodes", np.array([0.0, 1.0])),
        ("seed_shares", np.ones((3, 2))),
    ],
)
def test_arrays_that_are_no_seeds_of_pairs_are_refused(name: str, array: Array) -> None:
    with pytest.raises(InputError) as raised:
        sparse_covariance_of_arrays(PAIRS.arrays() | {name: array}, nodes=3, field="design")
    assert raised.value.field == f"design.{name}"
