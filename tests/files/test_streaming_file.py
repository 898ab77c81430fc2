"""Designs for long horizons: kept, judged again and exported without an array of T x T."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest

from noisedesign.base.checks import InputError
from noisedesign.base.monitor import Monitor
from noisedesign.families.toeplitz.solver import (
    optimize_banded_inverse,
    optimize_buffered,
    optimize_toeplitz,
)
from noisedesign.families.toeplitz.streaming import StreamingDesign
from noisedesign.files.design_file import load_design, save_design
from noisedesign.files.exports import read
from noisedesign.privacy.target import PrivacyTarget
from noisedesign.system.participation import FixedEpoch, MinSeparation
from noisedesign.system.workloads.toeplitz import GramWorkload, gossip_workload, prefix_workload
from noisedesign.system.workloads.workload import prefix_gram
from noisedesign.tasks.export import export
from noisedesign.tasks.verify import verify
from tests.support import oracles
from tests.support.command_line import call
from tests.support.small_designs import falsify

LONG = 100_000
T = 24
TARGET = PrivacyTarget(epsilon=3.0, delta=1e-5, clip=0.25, adjacency="replace")
GENERIC = ("npy", "csv", "mat", "safetensors")
WORKLOADS: dict[str, Any] = {
    "prefix": lambda horizon: prefix_workload(horizon=horizon),
    "gossip": lambda horizon: gossip_workload(
        oracles.metropolis(nx.path_graph(4)), horizon=horizon
    ),
    "gram": lambda horizon: GramWorkload(matrix=prefix_gram(horizon=horizon)),
}
FAMILIES: dict[str, Callable[..., StreamingDesign]] = {
    "toeplitz": lambda **how: optimize_toeplitz(bands=6, **how),
    "banded-inverse": lambda **how: optimize_banded_inverse(bands=4, **how),
    "blt": lambda **how: optimize_buffered(buffers=2, **how),
}
SCHEMES = {
    "epochs": FixedEpoch(epochs=3, separation=8),
    "apart": MinSeparation(horizon=T, separation=8, max_participations=2),
}


def designed(family: str, workload: str = "prefix", scheme: str = "epochs") -> StreamingDesign:
    return FAMILIES[family](workload=WORKLOADS[workload](T), participation=SCHEMES[scheme])


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("workload", WORKLOADS)
@pytest.mark.parametrize("family", FAMILIES)
def test_a_design_survives_its_file_and_is_verified(
    family: str, workload: str, scheme: str, tmp_path: Path
) -> None:
    design = replace(designed(family, workload, scheme), privacy=TARGET, name="long")
    path = save_design(design, tmp_path / "d.npz")
    stored = load_design(path)
    again = stored.design
    assert isinstance(again, StreamingDesign)
    outcome = verify(stored)
    assert outcome.ok, outcome
    assert [check.name for check in outcome.checks if check.ok] == [
        "squared error",
        "sensitivity",
        "objective",
        "lower bound",
        "manifest",
    ]
    assert verify(design).ok
    np.testing.assert_array_equal(again.strategy.at(T).dense(), design.strategy.at(T).dense())
    for name in (
        "horizon",
        "squared_error",
        "squared_sensitivity",
        "sensitivity_kind",
        "stop",
        "lower_bound_of_unrestricted_optimum",
        "evaluations",
        "participation",
        "privacy",
        "name",
    ):
        assert getattr(again, name) == getattr(design, name), name
    assert save_design(again, tmp_path / "e.npz").read_bytes() == path.read_bytes()
    # Against dense linear algebra, which knows no Toeplitz matrices.
    inverse = np.linalg.inv(design.strategy.at(T).dense())
    error = np.trace(WORKLOADS[workload](T).gram() @ inverse @ inverse.T)
    assert stored.manifest["squared_error"] == pytest.approx(error, rel=1e-9)


def scaled(name: str, factor: float) -> Any:
    def edit(manifest: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        arrays[name] = arrays[name] * factor

    return edit


def claimed(**values: Any) -> Any:
    return lambda manifest, arrays: manifest.update(values)


@pytest.mark.parametrize(
    ("edit", "expected"),
    [
        (claimed(squared_error=1.0), {"squared error"}),
        (claimed(squared_sensitivity=1.0), {"sensitivity"}),
        (claimed(sensitivity_kind="vector-upper-bound"), {"sensitivity"}),
        (claimed(objective=1.0), {"objective"}),
        (claimed(lower_bound_of_unrestricted_optimum=1e9), {"lower bound"}),
        (claimed(strategy="toeplitz"), {"manifest"}),
        (scaled("buffer_decays", 0.5), {"squared error", "sensitivity", "objective"}),
        (scaled("weights", 0.5), {"squared error", "objective", "lower bound"}),
        (claimed(participation={"epochs": 4, "separation": 6}), {"sensitivity", "objective"}),
    ],
)
def test_what_is_false_is_found(edit: Any, expected: set[str], tmp_path: Path) -> None:
    path = save_design(designed("blt"), tmp_path / "d.npz")
    falsify(path, edit)
    outcome = verify(load_design(path))
    assert expected <= {check.name for check in outcome.checks if check.ok is False}
    assert call("verify", str(path)).code == 1


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (claimed(horizon=25), r"horizon: expected 24"),
        (
            claimed(horizon=10**13, participation={"epochs": 1, "separation": 10**13}),
            r"horizon: .*fit",
        ),
        (claimed(stop="never"), r"stop"),
        (claimed(version=9), r"version"),
        (claimed(more=1), r"manifest: expected more"),
        (scaled("buffer_scales", np.nan), r"buffer_scales: expected finite"),
        (scaled("strategy_diagonal", 2.0), r"strategy: expected"),
        (scaled("poles", 2.0), r"poles"),
        (lambda manifest, arrays: arrays.update(extra=np.ones(3)), r"extra"),
    ],
)
def test_files_that_are_no_streaming_design_are_refused(
    edit: Any, message: str, tmp_path: Path
) -> None:
    path = save_design(designed("blt"), tmp_path / "d.npz")
    falsify(path, edit)
    with pytest.raises(InputError, match=message):
        load_design(path)


@pytest.mark.parametrize("to", GENERIC)
@pytest.mark.parametrize("family", FAMILIES)
def test_what_is_exported_draws_its_covariance(family: str, to: str, tmp_path: Path) -> None:
    design = designed(family)
    inverse = np.linalg.inv(design.strategy.at(T).dense()) * np.sqrt(design.squared_sensitivity)
    stddev = 2 * TARGET.clip / float(oracles.gaussian_mu(TARGET.epsilon, TARGET.delta))
    for privacy, calibrated in ((None, None), (TARGET, True), (TARGET, False)):
        path = tmp_path / f"{privacy is None}-{calibrated}.{to}"
        export(replace(design, privacy=privacy), to=to, path=path, calibrated=calibrated)
        content = read(path)
        noise = content.scaled(1.0 if privacy is None else None)
        made = np.concatenate(list(noise.of_white(iter(np.eye(T)[:, None, :]))))
        factor = 1.0 if privacy is None else content.metadata["noise_stddev"]
        np.testing.assert_allclose(made, factor * inverse, atol=1e-12 * np.abs(inverse).max())
        if privacy is not None:
            assert factor == pytest.approx(stddev, rel=1e-9)
            assert (content.metadata["epsilon"], content.metadata["horizon"]) == (3.0, T)


def test_other_programs_and_tasks_say_what_it_is(tmp_path: Path) -> None:
    design = designed("blt")
    with pytest.raises(InputError, match="got the streaming design") as caught:
        export(design, to="jax-privacy", path=tmp_path / "d.npz")
    assert caught.value.remedy == "It can be exported to npy, csv, mat, safetensors."
    path = save_design(design, tmp_path / "d.npz")
    for command in (("simulate", str(path)), ("plot", str(path), "-o", str(tmp_path / "d.png"))):
        outcome = call(*command)
        assert outcome.code == 2
        assert "expected a design" in outcome.err
    outcome = call("export", str(path), "--to", "npy", "-o", str(tmp_path / "x.npy"))
    assert outcome.code == 0, outcome.err
    with pytest.raises(InputError, match=r"^privacy\.steps"):
        replace(design, privacy=replace(TARGET, steps=T + 1))


@pytest.mark.parametrize("family", FAMILIES)
def test_a_long_horizon_takes_no_square_of_it(family: str, tmp_path: Path) -> None:
    scheme = FixedEpoch(epochs=10, separation=LONG // 10)
    design = FAMILIES[family](
        workload=prefix_workload(horizon=LONG),
        participation=scheme,
        monitor=Monitor(gap=1e-6, time_limit=0.5),
    )
    tracemalloc.start()
    try:
        path = save_design(replace(design, privacy=TARGET), tmp_path / "d.npz")
        outcome = verify(load_design(path))
        assert outcome.ok, outcome
        files = export(load_design(path).design, to="npy", path=tmp_path / "x.npy")
        drawn = read(files[0]).stream(dimension=3, seed=1)
        assert next(drawn).shape == (1, 3)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # Some vectors of 100,000 doubles: 1 / 100 of a per cent of a T x T array.
    assert peak < 100 * 8 * LONG < 8 * LONG**2 / 100
    assert path.stat().st_size < 10_000
    assert sum(file.stat().st_size for file in files) < 10_000


def test_buffers_of_any_sign_survive_their_file_and_are_drawn(tmp_path: Path) -> None:
    scheme = FixedEpoch(epochs=3, separation=8)
    design = optimize_buffered(
        workload=WORKLOADS["prefix"](T), participation=scheme, buffers=3, signed=True
    )
    design = replace(design, privacy=TARGET)
    assert np.count_nonzero(design.strategy.turns) == 2
    stored = load_design(save_design(design, tmp_path / "d.npz"))
    assert verify(stored).ok
    again = stored.design.strategy
    assert type(again) is type(design.strategy)
    np.testing.assert_array_equal(again.turns, design.strategy.turns)
    # What a node draws has the variances of C^-1 at the scale of the target.
    plan = stored.design.node_plan(0)
    inverse = np.linalg.inv(design.noise.scaled(design.claim.noise_stddev).dense_strategy)
    np.testing.assert_allclose(plan.variances, np.square(inverse).sum(axis=1), rtol=1e-10)
