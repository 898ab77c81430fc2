"""Exported noise, drawn from its file alone: exactly the design's covariance, and its privacy.

The covariance of what a file draws is built from its linear map, unit vector by unit vector, and
compared with dense linear algebra on the design's own arrays. The privacy is recomputed from the
JSON's words and the covariance by brute force over the patterns, and by mpmath.
"""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import mpmath
import networkx as nx
import numpy as np
import pytest

import noisedesign
import noisedesign.files.exports as exports
from noisedesign.base.checks import InputError
from noisedesign.design.design import Design
from noisedesign.design.solve import solve
from noisedesign.files.design_file import load_design, save_design
from noisedesign.files.exports import Exported, exporter, exporter_names, read
from noisedesign.forms.structure import SpaceStructure, TimeStructure
from noisedesign.privacy.seeds import SeedPlan
from noisedesign.privacy.target import PrivacyTarget
from noisedesign.problem.problem import SpaceProblem, SpaceTimeProblem, TimeProblem
from noisedesign.system.participation import FixedEpoch, MinSeparation, every_step
from noisedesign.tasks.export import export
from tests.support import oracles
from tests.support.command_line import call
from tests.support.small_designs import space_design, time_design

GENERIC = ("npy", "csv", "mat", "safetensors")
N, STEPS = 4, 6
W = (oracles.metropolis(nx.path_graph(N)) + np.eye(N)) / 2
SCHEME = FixedEpoch(epochs=2, separation=3)
APART = MinSeparation(horizon=STEPS, separation=2, max_participations=2)
TAU = np.array([1.0, 2.0, 0.5, 1.0])
NAMES = ("Ann", "Bob, jr.", "Çelik", "Dee")
TARGET = PrivacyTarget(epsilon=3.0, delta=1e-5, clip=0.25, adjacency="replace")
FORMS = {
    "dense": {},
    "banded": {"bands": 2},
    "banded-inverse": {"bands": 2},
    "blt": {"buffers": 2},
    "toeplitz": {},
}


def in_time(kind: str, **how: Any) -> TimeProblem:
    structure = TimeStructure(kind=kind, **FORMS[kind])
    return TimeProblem.decentralized(
        mixing=W,
        participation=how.pop("participation", SCHEME),
        structure=structure,
        nodes=NAMES,
        **how,
    )


def joint(time: str = "dense", space: str = "dense", **how: Any) -> SpaceTimeProblem:
    return SpaceTimeProblem(
        mixing=W,
        participation=SCHEME,
        budget=TAU,
        nodes=NAMES,
        time=TimeStructure(kind=time, **FORMS[time]),
        space=SpaceStructure(kind=space),
        **how,
    )


PROBLEMS: dict[str, Any] = {
    "space": SpaceProblem(mixing=W, budget=TAU, participation=SCHEME, nodes=NAMES),
    "seeds": SpaceProblem(
        mixing=W, participation=SCHEME, structure=SpaceStructure(kind="edge-local"), nodes=NAMES
    ),
    "decor": SpaceProblem(
        mixing=W, participation=SCHEME, structure=SpaceStructure(kind="decor"), nodes=NAMES
    ),
    **{f"time, {kind}": in_time(kind) for kind in FORMS},
    "time, overlapping": in_time("dense", participation=APART),
    **{f"kronecker, {kind}": joint(kind) for kind in FORMS},
    **{f"kronecker, {kind}, seeds": joint(kind, "edge-local") for kind in FORMS},
    # All its nodes are alike, whatever their budgets.
    "kronecker, decor": replace(joint("banded", "decor"), budget=1.0),
    "full": joint(joint="full"),
    "modal": joint(joint="modal"),
}
OF_SEEDS = [kind for kind in PROBLEMS if "seeds" in kind or "decor" in kind]
CASES = [(kind, to) for kind in PROBLEMS for to in GENERIC] + [(k, "seeds") for k in OF_SEEDS]


@cache
def solved(kind: str, target: PrivacyTarget | None = None) -> Design:
    found = solve(replace(PROBLEMS[kind], privacy=target)).design
    assert found is not None
    return found


def dense_covariance(design: Design) -> np.ndarray:
    """Of all nT coordinates, time-major, from C and R as the design has them."""
    if design.axes == "space":
        return np.kron(np.eye(STEPS), design.covariance)
    inverse = np.linalg.inv(design.strategy)
    if design.axes == "time":
        return np.kron(inverse @ inverse.T, np.eye(N))
    if design.noise.full:
        return inverse @ inverse.T
    return np.kron(inverse @ inverse.T, design.covariance)


def drawn_covariance(content: Exported, multiply_by: float | None = None) -> np.ndarray:
    """Of what a file draws: L L^T, L column by column."""
    noise = content.scaled(multiply_by)
    draws = noise.draws(N if noise.axes == "time" else None)
    unit = np.eye(STEPS * draws).reshape(STEPS, draws, STEPS * draws)
    made = np.concatenate(list(noise.of_white(iter(unit))))
    return made @ made.T


def exported(kind: str, to: str, folder: Path, *, target: Any = None, **how: Any) -> Exported:
    """Written, moved to where nothing else is, and read."""
    folder.mkdir(exist_ok=True)
    suffix = {"seeds": ".json"}.get(to, f".{to}")
    written = export(solved(kind, target), to=to, path=folder / f"d{suffix}", **how)
    assert set(written) == set(folder.iterdir())
    moved = folder.with_name(f"{folder.name}-moved")
    folder.rename(moved)
    return read(moved / f"d{suffix}")


@pytest.mark.parametrize(("kind", "to"), CASES)
def test_what_is_read_draws_the_covariance_of_the_design(
    kind: str, to: str, tmp_path: Path
) -> None:
    content = exported(kind, to, tmp_path / "plain")
    expected = dense_covariance(solved(kind))
    close = {"rtol": 0, "atol": 1e-12 * float(np.abs(expected).max())}
    np.testing.assert_allclose(drawn_covariance(content, 1.0), expected, **close)
    assert content.metadata["nodes"] == list(NAMES)
    form = getattr(content.noise.strategy, "kind", None)
    assert form == (kind.split(", ")[1] if kind.split(", ")[-1] in FORMS else form)
    assert isinstance(content.noise.space, SeedPlan) == (to == "seeds")
    # Scaled to a target, or left to the reader to scale: the same noise.
    design = solved(kind, TARGET)
    for number, calibrated in enumerate((None, True, False)):
        content = exported(
            kind, to, tmp_path / f"scaled-{number}", target=TARGET, calibrated=calibrated
        )
        stddev = content.metadata["noise_stddev"]
        assert stddev == pytest.approx(noise_stddev(design), rel=1e-9)
        expected = dense_covariance(design) * stddev**2
        close = {"rtol": 0, "atol": 1e-12 * float(np.abs(expected).max())}
        np.testing.assert_allclose(drawn_covariance(content), expected, **close)
        assert content.metadata["calibrated"] == (calibrated is not False)
        assert content.multiply_by == (1.0 if calibrated is not False else stddev)


def noise_stddev(design: Design) -> float:
    """2 clip sqrt(participations of a budget) / mu, mu by mpmath."""
    budget = 1.0 if design.axes == "time" else float(design.problem.budget.max())
    times = 2 if design.axes == "space" else 1
    mu = float(mu_of(TARGET.epsilon, TARGET.delta))
    return 2 * TARGET.clip * float(np.sqrt(times * budget)) / mu


def delta_of(mu: Any, epsilon: Any) -> Any:
    """Of a mu-GDP mechanism (Dong, Roth and Su 2022, equation (6))."""
    return mpmath.ncdf(mu / 2 - epsilon / mu) - mpmath.exp(epsilon) * mpmath.ncdf(
        -mu / 2 - epsilon / mu
    )


def mu_of(epsilon: float, delta: float) -> Any:
    with mpmath.workdps(40):
        return mpmath.findroot(
            lambda mu: mpmath.log(delta_of(mu, epsilon)) - mpmath.log(delta), 0.5
        )


def epsilon_of(mu: float, delta: float) -> float:
    with mpmath.workdps(40):
        return float(
            mpmath.findroot(lambda e: mpmath.log(delta_of(mu, e)) - mpmath.log(delta), 3.0)
        )


def patterns(said: dict[str, Any]) -> list[tuple[int, ...]]:
    """All steps one record may take part in, listed from the words of the JSON."""
    most, apart, horizon = said["max_participations"], said["separation"], said["horizon"]
    if said["participation_kind"] == "fixed-epoch":
        assert most * apart == horizon
        return [tuple(range(j, horizon, apart)) for j in range(apart)]
    return [
        steps
        for steps in itertools.combinations(range(horizon), most)
        if all(b - a >= apart for a, b in itertools.pairwise(steps))
    ]


def mu_by_brute_force(covariance: np.ndarray, said: dict[str, Any]) -> float:
    """The largest over nodes, patterns and signs of two gradients, of the norm of their change."""
    precision = np.linalg.inv(covariance)
    change = said["clip"] * {"replace": 2, "zero-out": 1, "add-remove": 1}[said["adjacency"]]
    worst = 0.0
    for node, steps in itertools.product(range(N), patterns(said)):
        at = [N * step + node for step in steps]
        for signs in itertools.product((1, -1), repeat=len(at)):
            moved = np.zeros(len(precision))
            moved[at] = np.array(signs) * change
            worst = max(worst, float(moved @ precision @ moved))
    return float(np.sqrt(worst))


@pytest.mark.parametrize("adjacency", ["replace", "zero-out"])
@pytest.mark.parametrize("calibrated", [True, False])
@pytest.mark.parametrize(
    ("kind", "to"),
    [
        *((kind, "npy") for kind in PROBLEMS),
        *((kind, "csv") for kind in ("space", "full")),
        ("time, blt", "mat"),
        ("kronecker, dense", "safetensors"),
        ("kronecker, blt, seeds", "seeds"),
    ],
)
def test_what_is_drawn_has_the_privacy_that_is_stated(
    kind: str, to: str, calibrated: bool, adjacency: str, tmp_path: Path
) -> None:
    target = replace(TARGET, adjacency=adjacency)
    content = exported(kind, to, tmp_path / "out", target=target, calibrated=calibrated)
    said = content.metadata
    mu = mu_by_brute_force(drawn_covariance(content), said)
    # Local optima leave nothing of their budget either: all are of unit sensitivity.
    assert mu == pytest.approx(said["mu"], rel=1e-5)
    assert epsilon_of(mu, said["delta"]) == pytest.approx(said["epsilon"], rel=1e-5)
    assert (said["epsilon"], said["delta"]) == (target.epsilon, target.delta)
    assert (said["clip"], said["adjacency"]) == (target.clip, adjacency)
    assert said["noise_multiplier"] == pytest.approx(said["noise_stddev"] / target.clip)
    assert said["horizon"] == STEPS


def test_without_a_target_nobody_draws_by_accident(tmp_path: Path) -> None:
    content = exported("kronecker, dense", "npy", tmp_path / "out")
    said = content.metadata
    privacy = ("noise_stddev", "noise_multiplier", "mu", "epsilon", "delta", "clip", "adjacency")
    assert all(said[key] is None for key in (*privacy, "multiply_by"))
    assert said["calibrated"] is False
    assert "nobody is protected yet" in said["note"]
    with pytest.raises(InputError, match=r"^multiply_by: .*no privacy target"):
        content.stream(dimension=2, seed=0)
    drawn = list(content.stream(dimension=2, seed=0, multiply_by=2.0))
    assert np.shape(drawn) == (STEPS, N, 2)
    with pytest.raises(InputError, match=r"^calibrated: expected a design with a privacy target"):
        export(solved("space"), to="npy", path=tmp_path / "x.npy", calibrated=True)


def test_a_file_ends_with_its_horizon(tmp_path: Path) -> None:
    for kind in ("space", "time, blt", "kronecker, banded", "full"):
        content = exported(kind, "mat", tmp_path / kind, target=TARGET)
        nodes = N if kind.startswith("time") else None
        assert len(list(content.stream(dimension=1, seed=1, nodes=nodes))) == STEPS
        with pytest.raises(InputError, match=r"^steps: expected at most 6"):
            content.stream(dimension=1, seed=1, steps=STEPS + 1, nodes=nodes)


def test_files_are_named_for_their_arrays(tmp_path: Path) -> None:
    for kind, names in {
        "space": ["d.npy"],
        "time, dense": ["d.npy", "d-noising.npy"],
        "time, banded": ["d.npy"],
        "kronecker, dense": ["d-strategy.npy", "d-noising.npy", "d-covariance.npy"],
        "kronecker, banded": ["d-strategy_bands.npy", "d-covariance.npy"],
        "full": ["d-strategy.npy", "d-noising.npy"],
    }.items():
        folder = tmp_path / kind
        folder.mkdir()
        written = export(solved(kind), to="npy", path=folder / "d.npy")
        assert [path.name for path in written] == [*names, "d.json"]
    assert np.load(tmp_path / "time, banded" / "d.npy").shape == (2, STEPS)
    with pytest.raises(InputError, match=r"^output: expected a name that does not end in \.json"):
        export(solved("space"), to="csv", path=tmp_path / "d.json")


@pytest.mark.parametrize("to", ["npy", "csv"])
def test_arrays_that_are_not_those_of_their_json_are_refused(to: str, tmp_path: Path) -> None:
    kind = "kronecker, dense"
    export(solved(kind, TARGET), to=to, path=tmp_path / f"d.{to}")
    other = tmp_path / f"d-covariance.{to}"
    content = other.read_bytes()
    export(solved(kind), to=to, path=tmp_path / f"d.{to}")
    read(tmp_path / f"d.{to}")
    other.write_bytes(content)
    with pytest.raises(InputError, match=r"^export\.covariance: .*another in d-covariance"):
        read(tmp_path / f"d.{to}")
    other.unlink()
    with pytest.raises(InputError, match=r"^export\.covariance: expected the file"):
        read(tmp_path / f"d.{to}")


@pytest.mark.parametrize(
    "edit",
    [
        lambda said: said.update(format="other"),
        lambda said: said.update(version=2),
        lambda said: said.pop("noise"),
        lambda said: said["noise"].update(steps=0),
        lambda said: said["noise"].update(steps=STEPS + 1),
        lambda said: said.update(to="exe"),
        lambda said: said["noise"].update(nodes=3),
        lambda said: said.update(multiply_by=-1.0),
        lambda said: said.update(multiply_by="many"),
        lambda said: said.pop("arrays"),
        lambda said: said["arrays"]["strategy"].update(shape=[5, 5]),
        lambda said: said["arrays"].pop("covariance"),
        lambda said: said.update(arrays=[]),
        lambda said: said["arrays"]["strategy"].pop("file"),
    ],
)
def test_json_that_says_something_else_is_refused(edit: Any, tmp_path: Path) -> None:
    export(solved("kronecker, dense", TARGET), to="npy", path=tmp_path / "d.npy")
    said = json.loads((tmp_path / "d.json").read_text(encoding="utf-8"))
    read(tmp_path / "d.json")
    edit(said)
    (tmp_path / "d.json").write_text(json.dumps(said), encoding="utf-8")
    with pytest.raises(InputError, match="^export"):
        read(tmp_path / "d.npy")


@pytest.mark.parametrize(
    "content", [b"", b"no", b"{}", b"\x93NUMPY\x01\x00", b"PK\x03\x04", b"\x80"]
)
def test_other_files_are_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    with pytest.raises(InputError, match="^export: expected a file of `noisedesign export`"):
        read(path)
    path.write_bytes(content)
    path.with_suffix(".json").write_bytes(content)
    with pytest.raises(InputError, match="^export: expected a file of `noisedesign export`"):
        read(path)


def test_damaged_files_of_one_file_formats_are_refused(tmp_path: Path) -> None:
    for to in ("mat", "safetensors"):
        (path,) = export(solved("kronecker, dense"), to=to, path=tmp_path / f"d.{to}")
        content = path.read_bytes()
        path.write_bytes(content[: len(content) // 2])
        with pytest.raises(InputError, match="^export"):
            read(path)


def test_noise_that_is_not_feasible_claims_nothing(tmp_path: Path) -> None:
    design = space_design()
    weak = replace(design, certificate=replace(design.certificate, sensitivity_squared=1.5))
    for to in GENERIC:
        with pytest.raises(InputError, match=r"^design: expected a feasible design"):
            export(weak, to=to, path=tmp_path / "d")
    assert list(tmp_path.iterdir()) == []


def test_every_kind_of_design_can_be_exported(tmp_path: Path) -> None:
    for kind in ("kronecker, dense", "full"):
        for to in ("jax-privacy", "mfdl", "whisper-dsgd"):
            with pytest.raises(InputError, match="^design: expected a") as caught:
                export(solved(kind), to=to, path=tmp_path / "d.npz")
            remedy = "It can be exported to npy, csv, mat, safetensors."
            assert caught.value.remedy == remedy
    with pytest.raises(InputError) as caught:
        export(solved("kronecker, decor"), to="mfdl", path=tmp_path / "d.npz")
    assert caught.value.remedy == "It can be exported to npy, csv, mat, safetensors, seeds."
    kinds = {kind for name in exporter_names() for kind in exporter(name).ACCEPTS}
    for kind in kinds:
        assert [name for name in exporter_names() if kind in exporter(name).ACCEPTS]
    with pytest.raises(InputError, match=r"^structure\.space: .*not made of shared seeds"):
        export(solved("kronecker, dense"), to="seeds", path=tmp_path / "s.json")
    with pytest.raises(InputError, match=r"^calibrated: expected calibrated noise for mfdl"):
        export(time_design(), to="mfdl", path=tmp_path / "C.npy", calibrated=False)


def test_json_is_read_whatever_its_name(tmp_path: Path) -> None:
    for to in ("seeds", "npy"):
        written = export(solved("kronecker, decor"), to=to, path=tmp_path / f"d.{to}")
        renamed = tmp_path / f"other.{to}-said"
        written[-1].rename(renamed)
        assert read(renamed).noise.axes == "space-time"


def test_the_command_line(tmp_path: Path) -> None:
    design = save_design(solved("kronecker, dense", TARGET), tmp_path / "d.npz")
    for flag, calibrated in ((), True), (("--uncalibrated",), False):
        out = tmp_path / f"out-{calibrated}"
        out.mkdir()
        found = call(
            "export", str(design), "--to", "npy", "-o", str(out / "x.npy"), *flag, "--json"
        )
        assert found.code == 0, found.err
        assert len(found.json()["files"]) == 4
        assert read(out / "x.npy").metadata["calibrated"] is calibrated
    assert load_design(design).design.axes == "space-time"
    assert set(exports.__all__) >= {"read", "Exported"}
    assert noisedesign.export is export


@pytest.mark.parametrize(("kind", "to"), CASES)
def test_an_export_is_replaced_by_the_next(kind: str, to: str, tmp_path: Path) -> None:
    suffix = {"seeds": ".json"}.get(to, f".{to}")
    for target in (None, TARGET):
        export(solved(kind, target), to=to, path=tmp_path / f"d{suffix}")
    assert read(tmp_path / f"d{suffix}").multiply_by == 1.0


@pytest.mark.parametrize("to", GENERIC)
@pytest.mark.parametrize("kind", [kind for kind in FORMS if kind != "dense"])
def test_what_is_exported_of_a_structure_grows_with_its_bands(
    kind: str, to: str, tmp_path: Path
) -> None:
    """C alone, dense, would take eight bytes for each of 160 x 160 numbers, and more as text."""
    problem = TimeProblem.prefix(
        participation=FixedEpoch(epochs=1, separation=160),
        structure=TimeStructure(kind=kind, **FORMS[kind]),
    )
    design = solve(problem, gap=1e-3).design
    assert design is not None
    files = export(design, to=to, path=tmp_path / f"d.{to}")
    numbers = {"banded": 2 * 160, "toeplitz": 160, "banded-inverse": 2, "blt": 5}[kind]
    metadata = 6000  # twice in safetensors, key by key and whole
    assert sum(file.stat().st_size for file in files) < 25 * numbers + metadata < 8 * 160**2


def test_every_trainer_is_told_the_privacy(tmp_path: Path) -> None:
    keys = {
        "noise_stddev",
        "noise_multiplier",
        "mu",
        "epsilon",
        "delta",
        "adjacency",
        "clip",
        "horizon",
        "participation",
    }
    (path,) = export(solved("time, dense", TARGET), to="jax-privacy", path=tmp_path / "C.npz")
    with np.load(path, allow_pickle=False) as file:
        assert all(json.loads(str(file["metadata"]))[key] is not None for key in keys)
    every = replace(PROBLEMS["space"], privacy=TARGET, participation=every_step(STEPS))
    (path,) = export(solve(every).design, to="whisper-dsgd", path=tmp_path / "R.npz")
    with np.load(path, allow_pickle=False) as file:
        assert all(json.loads(str(file["metadata"]))[key] is not None for key in keys)
    written = export(solved("time, dense", TARGET), to="mfdl", path=tmp_path / "C.npy")
    (sidecar,) = [path for path in written if path.suffix == ".json"]
    said = json.loads(sidecar.read_text(encoding="utf-8"))
    assert all(said[key] is not None for key in keys)
    path, _ = export(solved("decor", TARGET), to="decor", path=tmp_path / "decor.json")
    said = json.loads(path.read_text(encoding="utf-8"))
    assert all(said[key] is not None for key in keys)


@pytest.mark.parametrize(("first", "second"), [("npy", "csv"), ("csv", "npy"), ("npy", "seeds")])
def test_two_exports_do_not_share_a_description(first: str, second: str, tmp_path: Path) -> None:
    """What the JSON says of one must not be read of the other: it may be scaled otherwise."""
    design = solved("seeds") if second == "seeds" else space_design()
    export(design, to=first, path=tmp_path / f"d.{first}")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    other = tmp_path / ("d.json" if second == "seeds" else f"d.{second}")
    with pytest.raises(InputError, match=rf"^output: .*describes an export to {first}"):
        export(design, to=second, path=other)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    export(design, to=first, path=tmp_path / f"d.{first}")  # its own is replaced
    export(design, to=second, path=other, overwrite=True)
    assert read(other).noise.axes == "space"
    with pytest.raises(InputError, match=r"^export: .*one of the files that d\.json describes"):
        read(tmp_path / f"d.{first}")


def test_names_that_differ_after_a_dot_do_not_share_a_description(tmp_path: Path) -> None:
    """d.1 and d.2 have one stem: the second JSON would take the place of the first."""
    export(space_design(), to="npy", path=tmp_path / "d.1")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    for other in (space_design(), time_design()):
        with pytest.raises(InputError, match=r"^output: .*describes d\.1, got d\.2"):
            export(other, to="npy", path=tmp_path / "d.2")
        assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    export(space_design(), to="npy", path=tmp_path / "d.1")  # the same again
    export(space_design(), to="npy", path=tmp_path / "d.2", overwrite=True)
    np.testing.assert_array_equal(
        read(tmp_path / "d.2").noise.covariance, space_design().covariance
    )


@pytest.mark.parametrize("to", ["npy", "csv"])
def test_an_array_of_somebody_else_is_not_replaced(to: str, tmp_path: Path) -> None:
    """Of the same format, and no export: a W, say, that a problem file names."""
    np.save(tmp_path / "d-noising.npy", W)
    np.savetxt(tmp_path / "d-noising.csv", W, delimiter=",")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(InputError, match=r"^output: .*d-noising\.\w+, which d\.json does not name"):
        export(time_design(), to=to, path=tmp_path / f"d.{to}")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    export(time_design(), to=to, path=tmp_path / f"d.{to}", overwrite=True)
    export(time_design(), to=to, path=tmp_path / f"d.{to}")  # an export by now
