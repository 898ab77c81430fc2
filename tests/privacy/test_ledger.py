"""Runs that are booked: against dp_accounting, the closed formula in 50 digits, and joint
likelihood ratios of two Gaussians."""

from __future__ import annotations

import json
import math
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import filelock
import mpmath
import numpy as np
import pytest

import noisedesign as nd
from noisedesign.base.checks import InputError
from noisedesign.design.prefix import privacy_after
from noisedesign.files.exports import read
from noisedesign.noise import Secret, noise
from noisedesign.noise.plan import Claim
from noisedesign.privacy.ledger import Ledger, dp_event, neighboring_relation
from noisedesign.problem.calibration import calibrate
from tests.support import oracles
from tests.support.small_designs import TARGET, time_design
from tests.support.trainers import random_plan

DELTA = TARGET.delta
DESIGN = time_design(privacy=TARGET)


class Run:
    """Anything that claims."""

    def __init__(self, mu: float | None, adjacency: str | None = "replace") -> None:
        self.claim = Claim(noise_stddev=1.0, mu=mu, adjacency=adjacency)


def adjacent(adjacency: str) -> nd.Design:
    return time_design(privacy=replace(TARGET, adjacency=adjacency))


# --- one run is one Gaussian ------------------------------------------------------------------


@pytest.fixture
def library() -> Any:
    return pytest.importorskip("dp_accounting", reason="dp-accounting: .[ledger] brings it")


def pld(library: Any, relation: Any) -> Any:
    from dp_accounting import pld

    return pld.PLDAccountant(relation)


@pytest.mark.parametrize("adjacency", ["replace", "zero-out", "add-remove"])
def test_accountants_say_the_epsilon_of_the_target(library: Any, adjacency: str) -> None:
    design = adjacent(adjacency)
    event, relation = dp_event(design), neighboring_relation(design)
    assert event == library.GaussianDpEvent(pytest.approx(1 / calibrate(design.problem).mu))
    found = pld(library, relation).compose(event).get_epsilon(DELTA)
    assert found == pytest.approx(TARGET.epsilon, rel=1e-5)
    from dp_accounting import rdp

    renyi = rdp.RdpAccountant(neighboring_relation=relation).compose(event).get_epsilon(DELTA)
    assert TARGET.epsilon < renyi < 1.2 * TARGET.epsilon


def test_under_replace_one_an_accountant_doubles_what_mu_has_already(library: Any) -> None:
    """Why that is not the relation of replace adjacency; it errs to the safe side."""
    relation = library.NeighboringRelation.REPLACE_ONE
    found = pld(library, relation).compose(dp_event(DESIGN)).get_epsilon(DELTA)
    mu = calibrate(DESIGN.problem).mu
    assert mu is not None
    assert found == pytest.approx(nd.privacy.epsilon_of(mu=2 * mu, delta=DELTA), rel=1e-5)
    assert neighboring_relation(DESIGN) is library.NeighboringRelation.REPLACE_SPECIAL
    add = neighboring_relation(adjacent("add-remove"))
    assert add is library.NeighboringRelation.ADD_OR_REMOVE_ONE


def test_everything_that_claims_gives_the_same_event(library: Any, tmp_path: Path) -> None:
    (path,) = nd.export(DESIGN, to="safetensors", path=tmp_path / "C.safetensors")
    source = noise(DESIGN, node=0, record=tmp_path / "records")
    runs = [DESIGN, DESIGN.node_plan(1), source, read(path), privacy_after(DESIGN, steps=4)]
    assert {dp_event(run).noise_multiplier for run in runs} == {dp_event(DESIGN).noise_multiplier}
    exported, designed = (privacy_after(run, steps=2) for run in (read(path), DESIGN))
    assert exported.mu == pytest.approx(designed.mu, rel=1e-9)
    half = dp_event(privacy_after(DESIGN, steps=2)).noise_multiplier
    assert half > dp_event(DESIGN).noise_multiplier


def test_a_multiplier_is_never_more_than_the_noise(library: Any) -> None:
    for mu in (0.1, 0.3, 1 / 3, 1e-5, 7.1):
        with mpmath.workdps(50):
            assert mpmath.mpf(dp_event(Run(mu)).noise_multiplier) <= 1 / mpmath.mpf(mu)


def test_what_claims_nothing() -> None:
    pytest.importorskip("dp_accounting", reason="dp-accounting: .[ledger] brings it")
    with pytest.raises(InputError, match="run: expected a privacy target"):
        dp_event(Run(None))
    with pytest.raises(InputError, match="privacy: expected a target"):
        dp_event(time_design())
    for other in (None, 3, "design.npz", Claim):
        with pytest.raises(InputError, match="^run: expected a design"):
            dp_event(other)
    with pytest.raises(InputError, match="ledger: expected at least one run"):
        neighboring_relation(Ledger())


def test_without_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    for ask in (dp_event, neighboring_relation):
        with pytest.raises(ModuleNotFoundError, match=r"noisedesign\[ledger\]"):
            ask(DESIGN)
    ledger = Ledger()
    ledger.add(Run(1.0), secret=Secret.new())
    assert ledger.epsilon(delta=1e-5) > 4


# --- jointly observed correlated releases -----------------------------------------------------


def joint_mu(change: np.ndarray, covariance: np.ndarray) -> float:
    """Of N(0, covariance) against N(change, covariance), in 50 digits: the log-likelihood ratio is
    Gaussian, of variance change^T covariance^-1 change."""
    inverse = oracles.exact_inverse(covariance)
    with mpmath.workdps(50):
        size = range(len(change))
        squared = mpmath.fsum(
            mpmath.mpf(float(change[s])) * inverse[s][t] * mpmath.mpf(float(change[t]))
            for s in size
            for t in size
        )
        return float(mpmath.sqrt(squared))


def test_releases_that_are_coupled_and_seen_together() -> None:
    """f_B = c f_A, independent noise of one variance: mu is that of the vector, of norm
    sqrt(1 + c^2), and each release by itself tells less."""
    for c in (0.0, 0.5, 1.0):
        change = np.array([1.0, c])
        assert joint_mu(change, np.eye(2)) == pytest.approx(math.sqrt(1 + c * c), rel=1e-14)
    joint = nd.privacy.delta_of(mu=math.sqrt(1.25), epsilon=1.0)
    assert joint == pytest.approx(oracles.gaussian_delta(math.sqrt(1.25), 1.0), rel=1e-9)
    assert joint > 1.2 * nd.privacy.delta_of(mu=1.0, epsilon=1.0)


def test_correlation_of_the_noise_counts_as_well() -> None:
    """Noise that is nearly the same at both cancels in the difference of the releases."""
    change = np.array([1.0, 0.0])
    near = np.array([[1.0, 0.99], [0.99, 1.0]])
    assert joint_mu(change, near) == pytest.approx(1 / math.sqrt(1 - 0.99**2), rel=1e-12)


def test_mu_of_a_design_is_that_of_its_joint_release() -> None:
    """Gradients of the worst pattern, all equal or in two directions: GRAM_4 is diagonal there."""
    found = calibrate(DESIGN.problem)
    noising = np.linalg.inv(DESIGN.strategy)
    covariance = found.noise_stddev**2 * noising @ noising.T
    change = np.zeros(4)
    change[[0, 2]] = found.step_sensitivity
    assert found.mu is not None
    assert joint_mu(change, covariance) == pytest.approx(found.mu, rel=1e-9)
    # The first step alone, and the sum of what every step tells alone.
    alone = found.step_sensitivity / np.sqrt(np.diagonal(covariance))
    assert alone[0] < found.mu


# --- a ledger -----------------------------------------------------------------------------------


def test_runs_compose_as_gaussians_do(library: Any) -> None:
    ledger = Ledger()
    assert (ledger.mu, ledger.epsilon(delta=1e-5), ledger.delta(epsilon=1.0)) == (0.0, 0.0, 0.0)
    for k, mu in enumerate((0.3, 0.4, 1.2)):
        ledger.add(Run(mu), secret=Secret.new(), name=f"run {k}")
    assert ledger.mu == pytest.approx(1.3, rel=1e-15)  # 9 + 16 + 144 = 169
    with mpmath.workdps(50):
        exact = mpmath.sqrt(sum(mpmath.mpf(mu) ** 2 for mu in (0.3, 0.4, 1.2)))
        assert mpmath.mpf(ledger.mu) >= exact
    found = ledger.epsilon(delta=1e-5)
    assert oracles.gaussian_delta(float(exact), found) == pytest.approx(1e-5, rel=1e-6)
    composed = pld(library, neighboring_relation(ledger)).compose(dp_event(ledger))
    assert found == pytest.approx(composed.get_epsilon(1e-5), rel=1e-5)
    assert ledger.delta(epsilon=found) == pytest.approx(1e-5, rel=1e-6)
    assert "mu 0.4" in repr(ledger)
    assert repr(ledger).startswith("Ledger of 3 runs")


def test_one_run_is_not_rounded() -> None:
    ledger = Ledger()
    ledger.add(DESIGN, secret=Secret.new())
    assert ledger.mu == calibrate(DESIGN.problem).mu
    assert ledger.epsilon(delta=DELTA) == pytest.approx(TARGET.epsilon, rel=1e-12)


def test_a_secret_is_booked_once(tmp_path: Path) -> None:
    ledger, secret = Ledger(), Secret.new()
    ledger.add(DESIGN, secret=secret, name="first")
    for again in (secret, secret.fingerprint, [Secret.new(), secret]):
        with pytest.raises(InputError, match="got that of run first") as error:
            ledger.add(Run(0.1), secret=again)
        assert error.value.field == "secret"
    source = noise(DESIGN, node=0, secret=secret, record=tmp_path / "records")
    with pytest.raises(InputError, match="that of run first"):
        ledger.add(source)
    assert len(ledger.entries) == 1


def test_noise_of_a_node_brings_its_secrets(tmp_path: Path) -> None:
    ledger, source = Ledger(), noise(DESIGN, node=0, record=tmp_path / "records")
    entry = ledger.add(source)
    assert source.secret is not None
    assert entry.secrets == (source.secret.fingerprint,)
    with pytest.raises(InputError, match="secret: expected those of the run"):
        Ledger().add(source, secret=Secret.new())


def test_a_design_without_a_secret_is_not_booked() -> None:
    ledger = Ledger()
    for nothing in (None, [], ()):
        with pytest.raises(InputError, match="secret: expected the secret"):
            ledger.add(DESIGN, secret=nothing)
    for wrong in ("a" * 31, "G" * 32, 7, b"x" * 32):
        with pytest.raises(InputError, match="32 hexadecimal digits"):
            ledger.add(DESIGN, secret=wrong)
    assert not ledger.entries


def test_a_run_that_ended_early(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.json")
    source = noise(DESIGN, node=0, record=tmp_path / "records")
    ledger.add(Run(0.5), secret=Secret.new())
    ledger.add(source, name="early")
    shorter = privacy_after(source, steps=2)
    with pytest.raises(InputError, match="resume=True"):
        ledger.add(shorter)
    ledger.add(shorter, name="early", resume=True)
    assert [entry.mu for entry in ledger.entries] == [0.5, shorter.mu]
    assert ledger.mu == pytest.approx(math.hypot(0.5, shorter.mu), rel=1e-15)
    with pytest.raises(InputError, match="secret: expected the secrets of a run in this ledger"):
        ledger.add(Run(1.0), secret=Secret.new(), resume=True)
    with pytest.raises(InputError, match="got others"):
        ledger.add(Run(1.0), secret=[*source.fingerprints, Secret.new()], resume=True)


def test_adjacencies_do_not_mix() -> None:
    ledger = Ledger()
    ledger.add(adjacent("zero-out"), secret=Secret.new())
    with pytest.raises(InputError, match="run: expected adjacency 'zero-out'"):
        ledger.add(DESIGN, secret=Secret.new())
    assert ledger.adjacency == "zero-out"


# --- on disk --------------------------------------------------------------------------------------


def test_a_ledger_on_disk_goes_on(tmp_path: Path) -> None:
    path, secret = tmp_path / "ledger.json", Secret.new()
    first, second = Ledger(path), Ledger(path)
    first.add(DESIGN, secret=secret, name="Çelik")
    # The other process has not seen it, and still refuses.
    with pytest.raises(InputError, match="that of run Çelik"):
        second.add(DESIGN, secret=secret)
    second.add(Run(0.1), secret=Secret.new())
    again = Ledger(path)
    assert again.entries == second.entries
    assert again.mu == second.mu
    assert first.mu < second.mu
    first.add(Run(0.2), secret=Secret.new())
    assert len(first.entries) == 3
    assert secret.value.hex() not in path.read_text()


def test_one_process_books_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("noisedesign.privacy.ledger.PATIENCE", 0.05)
    path = tmp_path / "ledger.json"
    ledger = Ledger(path)
    with (
        filelock.FileLock(tmp_path / ".ledger.json.lock"),
        pytest.raises(InputError, match="ledger: expected a ledger that is free"),
    ):
        ledger.add(DESIGN, secret=Secret.new())
    assert not path.exists()
    ledger.add(DESIGN, secret=Secret.new())


def test_nothing_is_booked_where_it_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from noisedesign.base import atomic

    ledger = Ledger(tmp_path / "ledger.json")
    ledger.add(Run(0.1), secret=Secret.new())
    before = (tmp_path / "ledger.json").read_bytes()

    def full(*_: Any) -> Path:
        raise atomic.StorageError(tmp_path, OSError(28, "No space left on device"))

    monkeypatch.setattr(atomic, "write_text", full)
    with pytest.raises(atomic.StorageError):
        ledger.add(Run(0.2), secret=Secret.new())
    assert len(ledger.entries) == 1
    assert (tmp_path / "ledger.json").read_bytes() == before


def test_no_other_file_is_taken_for_a_ledger_or_replaced(tmp_path: Path) -> None:
    path = tmp_path / "notes.json"
    for content in ("[1]", "{}", "", '{"format": "noisedesign-ledger"}', "\0", "[" * 100_000):
        path.write_text(content)
        with pytest.raises(InputError, match="ledger: expected a whole ledger"):
            Ledger(path)
        assert path.read_text() == content
    with pytest.raises(InputError, match="ledger"):
        Ledger(tmp_path)
    with pytest.raises(InputError, match="ledger"):
        Ledger(3)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"version": 2}, r"ledger\.version: expected 1"),
        ({"format": "another"}, "another kind"),
        ({"adjacency": "swap"}, "adjacency"),
        ({"runs": [{"name": "a", "mu": -1.0, "secrets": ["0" * 32]}]}, "ledger"),
        ({"runs": [{"name": "a", "mu": "NaN", "secrets": ["0" * 32]}]}, "ledger"),
        ({"runs": [{"name": "a", "mu": 1.0, "secrets": []}]}, "without secrets"),
        ({"runs": [{"name": "a", "mu": 1.0, "secrets": ["0"]}]}, "secret"),
        ({"runs": [{"mu": 1.0, "secrets": ["0" * 32]}]}, "name"),
    ],
)
def test_damage(tmp_path: Path, change: dict[str, Any], match: str) -> None:
    path = tmp_path / "ledger.json"
    Ledger(path).add(DESIGN, secret=Secret.new())
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(InputError, match=match):
        Ledger(path)


def test_a_ledger_that_is_gone_is_not_begun_anew(tmp_path: Path) -> None:
    path = tmp_path / "ledger.json"
    ledger = Ledger(path)
    ledger.add(DESIGN, secret=Secret.new())
    path.unlink()
    with pytest.raises(InputError, match="none any more"):
        ledger.add(Run(0.1), secret=Secret.new())


# --- random participation -------------------------------------------------------------------------


def test_runs_under_random_participation_compose_by_mu_of_any_order() -> None:
    """What chance adds to one epsilon is no Gaussian's: two runs cost what two of any order do."""
    plan = random_plan(nd.participation.BallsInBins(epochs=2, separation=6))
    amplified = replace(plan, claim=replace(plan.claim, epsilon=0.5))
    ledger = Ledger()
    for _ in range(2):
        ledger.add(amplified, secret=Secret.new())
    assert plan.claim.mu is not None
    assert ledger.mu == pytest.approx(plan.claim.mu * 2**0.5, rel=1e-12)
    assert ledger.epsilon(delta=1e-5) > 2 * 0.5


def test_batches_of_a_run_are_not_used_again() -> None:
    ledger, own = Ledger(), Secret.new()
    plan = random_plan(nd.participation.BallsInBins(epochs=2, separation=6))
    ledger.add(noise(plan, secret=own, record=False))
    with pytest.raises(InputError, match="two with the same batches, where these are drawn"):
        ledger.add(noise(plan, secret=own, record=False))
