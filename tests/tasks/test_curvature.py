"""Ranges of curvatures: by hand, and private estimates against what their noise must be."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import noisedesign as nd
from noisedesign.base.checks import InputError
from noisedesign.cli import commands
from noisedesign.tasks.curvature import LEAST_SHARE, SENSITIVITY

EYE = np.eye(2)
TARGET = nd.PrivacyTarget(epsilon=1.0, delta=1e-6)


def test_bounds_by_hand() -> None:
    found = nd.curvature_range(loss="logistic", feature_bound=3.0)
    np.testing.assert_allclose(found.values, [2.25 * LEAST_SHARE, 2.25], rtol=1e-14)
    assert nd.curvature_range(loss="least-squares", feature_bound=3.0).high == 9.0


def test_public_data_by_hand() -> None:
    # A^T A / 4 = diag(4, 1, 1/4): eigenvalues of the Hessian, and a median of 1.
    rows = np.array([[4.0, 0, 0], [0, 2, 0], [0, 0, 1], [0, 0, 0]])
    found = nd.curvature_range(rows, loss="least-squares", public=True)
    np.testing.assert_allclose(found.values, [1.0, 4.0], rtol=1e-14)
    logistic = nd.curvature_range(rows, loss="logistic", public=True)
    np.testing.assert_allclose(logistic.values, [0.25, 1.0], rtol=1e-14)
    assert (found.claim, found.noise) == (None, None)


@pytest.mark.parametrize("adjacency", list(SENSITIVITY))
def test_one_record_moves_what_is_released_by_no_more_than_is_said(adjacency: str) -> None:
    rng = np.random.default_rng(1)
    units = [np.zeros(3), *np.eye(3), np.ones(3) / np.sqrt(3)]
    units += [v / np.linalg.norm(v) for v in rng.normal(size=(200, 3))]
    upper = np.triu_indices(3)
    seen = [np.outer(a, a)[upper] for a in units]
    pairs = itertools.combinations(seen, 2) if adjacency == "replace" else ((0, x) for x in seen)
    largest = max(float(np.linalg.norm(a - b)) for a, b in pairs)
    assert largest <= SENSITIVITY[adjacency] * (1 + 1e-12)
    assert largest >= 0.99 * SENSITIVITY[adjacency]  # and some do


@pytest.mark.parametrize("adjacency", ["replace", "add-remove"])
def test_a_private_estimate_has_the_noise_of_its_claim(adjacency: str) -> None:
    """One feature: the estimate is the sum of clipped squares with one normal, over N."""
    rows = np.array([[0.5], [3.0]] * 500)  # 3 is clipped to 2: a mean square of (1/16 + 1) / 2
    target = nd.PrivacyTarget(epsilon=2.0, delta=1e-5, adjacency=adjacency)
    secrets = [nd.noise.Secret(bytes([k, 255] * 16)) for k in range(200)]
    found = [
        nd.curvature_range(
            rows, loss="least-squares", feature_bound=2.0, privacy=target, secret=secret
        )
        for secret in secrets
    ]
    claim = found[0].claim
    assert claim is not None
    assert nd.privacy.epsilon_of(mu=claim.mu, delta=1e-5) == pytest.approx(2.0, rel=1e-9)
    stddev = SENSITIVITY[adjacency] / claim.mu  # of a sum of squares of features over 2
    assert found[0].noise == pytest.approx(4 / 1000 * stddev, rel=1e-6)
    drawn = np.array([one.high - 8 * one.noise for one in found]) * 1000 / 4
    errors = (drawn - 500 * (1 / 16 + 1)) / stddev
    # 200 normals: a mean of 0 +- .07 and a mean square of 1 +- .1, each within four of these.
    assert abs(errors.mean()) <= 0.29
    assert abs(np.square(errors).mean() - 1) <= 0.4
    assert len({one.high for one in found}) == 200


def test_much_data_are_found_again() -> None:
    rng = np.random.default_rng(2)
    rows = rng.normal(size=(200_000, 3)) * [0.5, 0.2, 0.1]
    found = nd.curvature_range(rows, loss="least-squares", feature_bound=3.0, privacy=TARGET)
    assert 0.25 <= found.high <= 0.27
    assert 0.035 <= found.low <= 0.045
    few = nd.curvature_range(rows[:100], loss="least-squares", feature_bound=3.0, privacy=TARGET)
    assert few.low == LEAST_SHARE * few.high  # which noise hides
    assert few.high <= 9.0


def test_an_estimate_is_booked(tmp_path: Path) -> None:
    ledger = nd.privacy.Ledger(tmp_path / "ledger.json")
    rows = np.eye(2)
    found = nd.curvature_range(rows, loss="logistic", feature_bound=1.0, privacy=TARGET)
    ledger.add(found, name="curvature")
    assert ledger.epsilon(delta=1e-6) == pytest.approx(1.0, rel=1e-9)
    with pytest.raises(InputError, match="secret"):
        ledger.add(found)


@pytest.mark.parametrize(
    ("how", "field"),
    [
        ({"loss": "hinge", "feature_bound": 1.0}, "loss"),
        ({"loss": "logistic"}, "feature_bound"),
        ({"loss": "logistic", "feature_bound": -1.0}, "feature_bound"),
        ({"loss": "logistic", "features": np.eye(2)}, "features"),
        ({"loss": "logistic", "features": EYE, "public": True, "privacy": TARGET}, "features"),
        ({"loss": "logistic", "features": np.zeros((2, 2)), "public": True}, "features"),
        ({"loss": "logistic", "features": np.eye(2), "privacy": TARGET}, "feature_bound"),
        ({"loss": "logistic", "features": np.eye(2), "public": 1}, "public"),
    ],
)
def test_what_is_wrong_is_named(how: dict[str, object], field: str) -> None:
    with pytest.raises(InputError) as caught:
        nd.curvature_range(**how)  # type: ignore[arg-type]
    assert caught.value.field == field


def test_from_a_shell(tmp_path: Path) -> None:
    data, ledger = tmp_path / "data.csv", tmp_path / "ledger.json"
    data.write_text("income,age\n3,0\n0,1\n")
    ask = ["curvature", str(data), "--loss", "least-squares", "--json"]
    run = CliRunner().invoke(commands, [*ask, "--public"])
    assert json.loads(run.output)["curvature"] == [2.5, 4.5]  # diag(9, 1) / 2
    private = [*ask, "--epsilon", "1", "--feature-bound", "1", "--ledger", str(ledger)]
    assert CliRunner().invoke(commands, private).exit_code == 0
    assert nd.privacy.Ledger(ledger).epsilon(delta=1e-6) == pytest.approx(1.0, rel=1e-9)
    with pytest.raises(InputError, match="features"):
        CliRunner().invoke(commands, ask, catch_exceptions=False)
    data.write_text("3,x\n0,1\n2,y\n")
    with pytest.raises(InputError, match="data"):
        CliRunner().invoke(commands, [*ask, "--public"], catch_exceptions=False)
