"""Every exported file does, in a re-enactment of its reader, what the design promises.

Each trainer's part is played as its own source plays it: JAX Privacy ``noise_addition.py``, MFDL
``mfdl_optimizer.py`` and ``workloads_generator.py``, WhisperDSGD ``diff_privacy.py``.
"""

from __future__ import annotations

import csv
import json
import math
import zipfile
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open
from scipy.io import loadmat

import noisedesign as nd
from noisedesign.base.checks import InputError
from noisedesign.certify.certificate import Certificate
from noisedesign.design.design import Design
from noisedesign.files import exports
from noisedesign.files.exports import exporter, exporter_names, jax_privacy, mfdl
from noisedesign.problem.problem import PrivacyTarget, TimeProblem
from noisedesign.system.participation import FixedEpoch
from noisedesign.tasks.export import export
from tests.support import ROOT, oracles
from tests.support.made_designs import with_matrix
from tests.support.small_designs import (
    GRAM_4,
    PATH_3,
    TARGET,
    capped_design,
    single_epoch_design,
    space_design,
    time_design,
)

FORMATS = ("npy", "csv", "mat", "safetensors")
OF_SOME = {"seeds", "decentralizepy"}
"""What takes designs of some structures, or with a privacy target, and has tests of its own."""
TRAINERS = {"jax-privacy": "time", "mfdl": "time", "whisper-dsgd": "space", "decor": "space"}
SUFFIX = {"safetensors": ".safetensors", "mfdl": ".npy", "jax-privacy": ".npz", "decor": ".json"}


def mu_of(target: PrivacyTarget) -> float:
    """mu with delta(epsilon; mu) = delta, by bisection of the Gaussian mechanism's own formula."""

    def phi(x: float) -> float:
        return math.erfc(-x / math.sqrt(2)) / 2

    low, high = 1e-6, 50.0
    for _ in range(200):
        mu = (low + high) / 2
        delta = phi(mu / 2 - target.epsilon / mu)
        delta -= math.exp(target.epsilon) * phi(-mu / 2 - target.epsilon / mu)
        low, high = (mu, high) if delta < target.delta else (low, mu)
    return low


# --- registry -------------------------------------------------------------------------------


def test_every_module_of_the_package_is_registered() -> None:
    modules = {path.stem for path in Path(exports.__file__).parent.glob("[a-z]*.py")}
    assert modules == {name.replace("-", "_") for name in exporter_names()}
    assert set(exporter_names()) == {*FORMATS, *TRAINERS, *OF_SOME}


@pytest.mark.parametrize("name", [*FORMATS, *TRAINERS])
def test_every_exporter_says_what_it_is(name: str, tmp_path: Path) -> None:
    module = exporter(name)
    accepted = {"space", "time", "space-time", "streaming"} if name in FORMATS else {TRAINERS[name]}
    assert set(module.ACCEPTS) == accepted
    assert module.DESCRIPTION
    for design in (space_design(), time_design()):
        if design.axes in module.ACCEPTS:
            path = tmp_path / f"{design.axes}{SUFFIX.get(name, '.' + name)}"
            written = export(design, to=name, path=path)
            assert written[0] == path
            assert all(file.stat().st_size for file in written)
            # Nothing but what was announced is left behind.
            assert set(tmp_path.iterdir()) >= set(written)
    assert not list(tmp_path.glob("*.tmp"))


def test_an_unknown_format_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"to: expected one of npy, .*got .*xlsx"):
        export(space_design(), to="xlsx", path=tmp_path / "d.xlsx")


@pytest.mark.parametrize("name", TRAINERS)
def test_a_design_of_the_wrong_kind_is_refused(name: str, tmp_path: Path) -> None:
    wrong = space_design() if TRAINERS[name] == "time" else time_design()
    message = rf"design: expected a {TRAINERS[name]} design for {name}, got the {wrong.axes} design"
    with pytest.raises(InputError, match=message) as caught:
        export(wrong, to=name, path=tmp_path / "d.npy")
    assert "npy, csv, mat, safetensors" in caught.value.remedy
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", TRAINERS)
def test_a_trainer_gets_no_noise_that_does_not_protect(name: str, tmp_path: Path) -> None:
    design = space_design() if TRAINERS[name] == "space" else time_design()
    central = replace(design, trust="central")
    with pytest.raises(InputError, match="trusted server"):
        export(central, to=name, path=tmp_path / "d.npy")
    weak = replace(
        design, certificate=Certificate(objective=1.0, lower_bound=0.5, sensitivity_squared=1.5)
    )
    with pytest.raises(InputError, match=r"feasible.*1\.5"):
        export(weak, to=name, path=tmp_path / "d.npy")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", [*FORMATS, *TRAINERS])
def test_a_folder_that_is_not_there_is_named(name: str, tmp_path: Path) -> None:
    design = space_design() if TRAINERS.get(name) == "space" else time_design()
    with pytest.raises(InputError, match="output: expected an existing folder"):
        export(design, to=name, path=tmp_path / "none" / "d.npy")


# --- formats --------------------------------------------------------------------------------


def test_npy(tmp_path: Path) -> None:
    design = capped_design()
    path, sidecar = export(design, to="npy", path=tmp_path / "R.npy")
    assert sidecar == tmp_path / "R.json"
    found = np.load(path, allow_pickle=False)
    assert found.dtype == np.float64
    np.testing.assert_array_equal(found, np.eye(3) / 2)
    path, beside, _ = export(time_design(), to="npy", path=tmp_path / "C.npy")
    assert beside == tmp_path / "C-noising.npy"
    strategy, noising = np.load(path, allow_pickle=False), np.load(beside, allow_pickle=False)
    np.testing.assert_array_equal(strategy, time_design().matrix)
    np.testing.assert_allclose(noising @ strategy, np.eye(4), atol=1e-14)


def test_csv_keeps_every_digit_and_the_names(tmp_path: Path) -> None:
    matrix = np.array([[1 / 3, 1e-300, -0.1], [1e300, np.pi, 2.0], [0.1 + 0.2, 5e-324, 0.0]])
    path, _ = export(with_matrix(space_design(), matrix=matrix), to="csv", path=tmp_path / "R.csv")
    np.testing.assert_array_equal(np.loadtxt(path, delimiter=",", skiprows=1), matrix)
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file))
    assert rows[0] == ["Ann", "Bob, jr.", "Çelik"]
    np.testing.assert_array_equal(np.array(rows[1:], dtype=np.float64), matrix)
    path, beside, _ = export(time_design(), to="csv", path=tmp_path / "C.csv")
    assert beside == tmp_path / "C-noising.csv"
    np.testing.assert_array_equal(np.loadtxt(path, delimiter=","), time_design().matrix)
    product = np.loadtxt(beside, delimiter=",") @ time_design().matrix
    np.testing.assert_allclose(product, np.eye(4), atol=1e-14)


def test_csv_has_no_formulas_and_no_control_characters() -> None:
    """A spreadsheet takes what begins with one of four characters for a formula."""
    from noisedesign.files.exports.csv import _heading

    hostile = ["=1+1", "+1", "-1", "@A", "\t=1", "a\x1b[0m\u202e", "b\n=1", "Çelik"]
    safe = ["'=1+1", "'+1", "'-1", "'@A", r"\t=1", r"a\x1b[0m\u202e", r"b\n=1", "Çelik"]
    assert [_heading(name) for name in hostile] == safe


def test_mat(tmp_path: Path) -> None:
    (path,) = export(capped_design(), to="mat", path=tmp_path / "R.mat", problem_text="toml")
    found = loadmat(path)
    np.testing.assert_array_equal(found["covariance"], np.eye(3) / 2)
    np.testing.assert_array_equal(found["mixing"], PATH_3)
    np.testing.assert_array_equal(found["budget"], np.full((3, 1), 2.0))
    np.testing.assert_array_equal(found["max_variance"], np.ones((3, 1)))
    assert json.loads(found["metadata"].item())["problem"] == "toml"
    (path,) = export(space_design(), to="mat", path=tmp_path / "names.mat")
    found = loadmat(path)
    assert [name.item() for name in found["nodes"].ravel()] == ["Ann", "Bob, jr.", "Çelik"]
    assert "max_variance" not in found
    (path,) = export(time_design(), to="mat", path=tmp_path / "C.mat")
    found = loadmat(path)
    np.testing.assert_array_equal(found["strategy"], time_design().matrix)
    np.testing.assert_allclose(found["noising_matrix"] @ found["strategy"], np.eye(4), atol=1e-14)
    np.testing.assert_array_equal(found["gram"], time_design().problem.gram)
    np.testing.assert_array_equal(found["mixing"], PATH_3)
    assert json.loads(found["metadata"].item())["horizon"] == 4
    (path,) = export(single_epoch_design(), to="mat", path=tmp_path / "prefix.mat")
    assert {"mixing", "nodes"}.isdisjoint(loadmat(path))


def test_names_of_nodes_keep_the_order_of_the_rows(tmp_path: Path) -> None:
    design = space_design()
    names = ("Zoë", "Ann", "Mia")
    design = replace(design, problem=replace(design.problem, nodes=names))
    (path,) = export(design, to="mat", path=tmp_path / "names.mat")
    assert tuple(name.item() for name in loadmat(path)["nodes"].ravel()) == names


def test_safetensors(tmp_path: Path) -> None:
    design = time_design(privacy=TARGET)
    (path,) = export(design, to="safetensors", path=tmp_path / "C.safetensors")
    with safe_open(path, framework="numpy") as file:
        metadata = file.metadata()
        found = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    assert all(array.dtype == np.float64 for array in found.values())
    # C is divided, C^-1 multiplied by the noise that the target asks for.
    stddev = 2 * TARGET.clip / mu_of(TARGET)
    np.testing.assert_allclose(found["strategy"] * stddev, design.matrix, rtol=1e-6)
    np.testing.assert_array_equal(found["gram"], design.problem.gram)
    np.testing.assert_allclose(found["noising_matrix"] @ found["strategy"], np.eye(4), atol=1e-14)
    assert (metadata["kind"], metadata["matrix"]) == ("C", "strategy")
    assert (metadata["name"], metadata["horizon"]) == ("four", "4")
    assert float(metadata["objective"]) == design.objective
    assert json.loads(metadata["metadata"])["privacy"] == asdict(TARGET)
    (path,) = export(space_design(), to="safetensors", path=tmp_path / "R.safetensors")
    with safe_open(path, framework="numpy") as file:
        assert file.metadata()["kind"] == "R"
        np.testing.assert_array_equal(file.get_tensor("covariance"), np.eye(3))
        np.testing.assert_array_equal(file.get_tensor("mixing"), PATH_3)


def test_an_infinite_gap_is_written_as_a_word(tmp_path: Path) -> None:
    design = space_design()
    design = replace(design, certificate=replace(design.certificate, lower_bound=0.0))
    (path,) = export(design, to="mat", path=tmp_path / "R.mat")
    assert json.loads(loadmat(path)["metadata"].item())["gap"] == "inf"


# --- JAX Privacy ----------------------------------------------------------------------------


def privatizer_noise(noising_matrix: np.ndarray, stddev: float, white: np.ndarray) -> np.ndarray:
    """What the dense privatizer adds at each step: (row of noising_matrix * stddev) of z_i."""
    return np.array(
        [sum(c * z for c, z in zip(row * stddev, white, strict=True)) for row in noising_matrix]
    )


@pytest.mark.parametrize("adjacency", ["replace", "zero-out"])
def test_jax_privacy_adds_the_designed_noise(tmp_path: Path, adjacency: str) -> None:
    target = replace(TARGET, adjacency=adjacency)
    (path,) = export(time_design(privacy=target), to="jax-privacy", path=tmp_path / "C.npz")
    noising_matrix, stddev = jax_privacy.read(path, steps=4)
    noise = privatizer_noise(noising_matrix, stddev, np.eye(4))
    covariance = noise @ noise.T
    # Of unit sensitivity, scaled to what one record does to one step of the sum of gradients.
    step = TARGET.clip * (2 if adjacency == "replace" else 1)
    wanted = (step / mu_of(target)) ** 2 * np.linalg.inv(GRAM_4)
    np.testing.assert_allclose(covariance, wanted, rtol=1e-6, atol=1e-12)
    # And so the run is mu-GDP: a record in steps 0 and 2 moves the sums by `step` each time.
    move = np.zeros(4)
    move[[0, 2]] = step
    assert math.sqrt(move @ np.linalg.solve(covariance, move)) == pytest.approx(
        mu_of(target), rel=1e-6
    )


def test_a_jax_privacy_file_without_target_is_of_unit_sensitivity(tmp_path: Path) -> None:
    (path,) = export(time_design(), to="jax-privacy", path=tmp_path / "C.npz")
    with np.load(path, allow_pickle=False) as file:
        dtypes = {name: file[name].dtype.name for name in file.files if name != "metadata"}
        assert dtypes == {
            "noising_matrix": "float64",
            "stddev": "float64",
            "horizon": "int64",
            "calibrated": "bool",
        }
        assert (float(file["stddev"]), int(file["horizon"])) == (1.0, 4)
        assert not file["calibrated"]
        assert file["stddev"].shape == ()
        metadata = json.loads(str(file["metadata"]))
        np.testing.assert_allclose(file["noising_matrix"], np.linalg.inv(time_design().matrix))
    assert metadata["privacy"] is None
    assert metadata["horizon"] == 4
    # A spatial covariance without a target says as much.
    (path,) = export(space_design(), to="whisper-dsgd", path=tmp_path / "R.npz")
    with np.load(path, allow_pickle=False) as file:
        spatial = json.loads(str(file["metadata"]))
    for found in (metadata, spatial):
        assert (found["calibrated"], found["multiply_by"]) == (False, None)
        assert found["noise_stddev"] is found["epsilon"] is None
        assert "nobody is protected yet" in found["note"]


def test_noise_of_no_target_is_multiplied_as_its_note_says(tmp_path: Path) -> None:
    """By 2 clip / mu, the root of the largest budget, and of the participations where R is drawn
    afresh: what a target does by itself."""
    target = replace(TARGET, steps=None)
    problems = (
        nd.SpaceProblem(
            mixing=PATH_3, budget=[1.0, 4.0, 2.0], participation=nd.participation.every_step(4)
        ),
        nd.SpaceTimeProblem(
            mixing=PATH_3, budget=[1.0, 4.0, 2.0], participation=nd.participation.single(3)
        ),
    )
    for problem, afresh in zip(problems, (4, 1), strict=True):
        design = nd.solve(problem).design
        assert design is not None
        (path, *_) = export(design, to="mat", path=tmp_path / "d.mat", overwrite=True)
        note = exports.read(path).metadata["note"]
        for words in ("twice the clip for replace", "the root of the largest", "drawn afresh"):
            assert words in note
        factor = 2 * target.clip / mu_of(target) * math.sqrt(4.0 * afresh)
        wanted = nd.calibrate(replace(problem, privacy=target)).noise_stddev
        assert factor == pytest.approx(wanted, rel=1e-6)
        with pytest.raises(InputError, match="multiply_by: expected the factor"):
            exports.read(path).stream(dimension=1, seed=0)


def test_the_reader_refuses_to_run_past_the_horizon(tmp_path: Path) -> None:
    (path,) = export(time_design(), to="jax-privacy", path=tmp_path / "C.npz")
    for steps in (1, 3, 4):
        assert jax_privacy.read(path, steps=steps)[0].shape == (4, 4)
    with pytest.raises(InputError, match=r"steps: expected at most 4.*got 5.*repeat"):
        jax_privacy.read(path, steps=5)
    with pytest.raises(InputError, match="steps: expected an integer"):
        jax_privacy.read(path, steps=0)


def test_the_reader_refuses_other_files(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    with pytest.raises(InputError, match="jax-privacy file"):
        jax_privacy.read(path, steps=1)
    for write in (
        lambda: path.write_bytes(b"PK nothing"),
        lambda: np.savez(path, noising_matrix=np.eye(2)),
        lambda: np.savez(path, noising_matrix=np.eye(2), stddev=1.0, horizon=3),
        lambda: np.savez(path, noising_matrix=np.eye(2), stddev=np.nan, horizon=2),
        lambda: np.savez(path, noising_matrix=np.eye(2, dtype=np.float32), stddev=1.0, horizon=2),
        lambda: np.savez(path, noising_matrix=np.array([[None]]), stddev=1.0, horizon=1),
        lambda: path.write_bytes(b"\x80\x05N."),
    ):
        write()
        with pytest.raises(InputError, match="jax-privacy file"):
            jax_privacy.read(path, steps=1)


# --- MFDL -----------------------------------------------------------------------------------


def mfdl_noise(C: np.ndarray, *, interval: int, clip: float, multiplier: float) -> np.ndarray:
    """Covariance of what MFDLSGD adds to the sum of clipped gradients (times its batch size)."""
    X = C.T @ C
    sensitivities = []
    for t in range(interval):
        idx = np.arange(t, len(C), interval)
        sensitivities.append(np.sqrt(np.sum(np.abs(X[np.ix_(idx, idx)]))))
    std = clip * np.max(sensitivities) * multiplier
    inverse = np.linalg.pinv(C)
    inverse[np.abs(inverse) < 1e-15] = 0
    return std**2 * inverse @ inverse.T


@pytest.mark.parametrize(("adjacency", "factor"), [("replace", 2), ("zero-out", 1)])
def test_mfdl_adds_the_designed_noise(tmp_path: Path, adjacency: str, factor: int) -> None:
    target = replace(TARGET, adjacency=adjacency)
    design = time_design(privacy=target)
    path, sidecar = export(design, to="mfdl", path=tmp_path / "C.npy")
    assert sidecar == tmp_path / "C.json"
    strategy, how = np.load(path, allow_pickle=False), json.loads(sidecar.read_text("utf-8"))
    assert strategy.dtype == np.float64
    np.testing.assert_array_equal(np.triu(strategy, 1), 0)
    mu = mu_of(target)
    assert how["noise_multiplier"] == pytest.approx(factor / mu, rel=1e-6)
    assert how["mu_argument"] == pytest.approx(mu / factor, rel=1e-6)
    covariance = mfdl_noise(
        strategy,
        interval=how["participation_interval"],
        clip=how["l2_norm_clip"],
        multiplier=how["noise_multiplier"],
    )
    wanted = (factor * TARGET.clip / mu) ** 2 * np.linalg.inv(GRAM_4)
    np.testing.assert_allclose(covariance, wanted, rtol=1e-6, atol=1e-12)
    assert (how["horizon"], how["max_participations"], how["separation"]) == (4, 2, 2)
    assert how["adjacency"] == adjacency


def test_mfdl_never_adds_less_where_its_sensitivity_is_larger(tmp_path: Path) -> None:
    """X = I - a (1 1^T - I) on one pattern of three: unit gradients 120 degrees apart move it most.

    Their squared sensitivity is 3 + 3a; the trainer's sum of absolute entries is 3 + 6a.
    """
    participation = FixedEpoch(epochs=3, separation=1)
    target = replace(TARGET, steps=3)
    problem = TimeProblem.prefix(participation=participation, privacy=target)
    a = 0.25
    gram = ((1 + a) * np.eye(3) - a) / (3 + 3 * a)
    strategy = np.linalg.cholesky(gram[::-1, ::-1])[::-1, ::-1].T
    certificate = Certificate(
        objective=1.0,
        lower_bound=0.5,
        sensitivity_squared=1.0,
        sensitivity_kind="vector-upper-bound",
    )
    design = with_matrix(
        time_design(), strategy, problem=problem, certificate=certificate, proof={}
    )
    path, sidecar = export(design, to="mfdl", path=tmp_path / "C.npy")
    how = json.loads(sidecar.read_text("utf-8"))
    covariance = mfdl_noise(np.load(path), interval=1, clip=0.5, multiplier=how["noise_multiplier"])
    enough = (2 * TARGET.clip / mu_of(TARGET)) ** 2 * np.linalg.inv(gram)
    np.testing.assert_allclose(covariance, enough * (3 + 6 * a) / (3 + 3 * a), rtol=1e-6)
    assert how["trainer_sensitivity"] ** 2 == pytest.approx((3 + 6 * a) / (3 + 3 * a))


def test_mfdl_without_target_leaves_the_multiplier_open(tmp_path: Path) -> None:
    _, sidecar = export(time_design(), to="mfdl", path=tmp_path / "C.npy")
    how = json.loads(sidecar.read_text("utf-8"))
    assert how["noise_multiplier"] is None
    assert "2 / mu under replace" in how["noise_multiplier_note"]


FLORENTINE = '[graph]\nkind = "florentine"\n'


@pytest.mark.parametrize(
    ("text", "name", "known"),
    [
        (FLORENTINE, "florentine", True),
        ('[graph]\nkind = "ring"\nnodes = 3\n', "cycle", True),
        ('[graph]\nkind = "path"\nnodes = 3\n', "chain", True),
        ('[graph]\nkind = "grid"\nrows = 2\ncolumns = 2\n', "grid", True),
        ('[graph]\nkind = "grid"\nrows = 1\ncolumns = 3\n', "a-b-c", False),
        ('[graph]\nkind = "ego-facebook"\nego = 414\n', "ego", True),
        ('[graph]\nkind = "ego-facebook"\nego = 0\n', "a-b-c", False),
        # The trainer draws its own with another p and other seeds.
        ('[graph]\nkind = "erdos-renyi"\nnodes = 3\np = 0.5\nseed = 1\n', "a-b-c", False),
        ("", "a-b-c", False),
        ("not TOML", "a-b-c", False),
    ],
)
def test_mfdl_cache_layout(tmp_path: Path, text: str, name: str, known: bool) -> None:
    """As MF_OPTIMAL_DL looks it up: post_average=True, no seed."""
    root = tmp_path / "cache"
    design = time_design(name="../a b/c")
    path, sidecar, _ = export(design, to="mfdl", path=root, problem_text=text)
    graph_name, nb_nodes, nb_steps, nb_epochs = name, 3, 4, 2
    cache_dir = f"correlations_matrixes/{graph_name}/nodes{nb_nodes}/steps{nb_steps}/"
    assert path == root / cache_dir / f"epochs{nb_epochs}" / "OptimalDL_PostAVG.npy"
    np.testing.assert_array_equal(np.load(path, allow_pickle=False), design.matrix)
    how = json.loads(sidecar.read_text("utf-8"))
    assert (how["graph_name"], how["graph_known_to_trainer"]) == (name, known)
    assert len([file for file in root.rglob("*") if file.is_file()]) == 3


def test_mfdl_finds_the_strategy_of_d_mf_as_well(tmp_path: Path) -> None:
    """As MF_OPTIMAL_local looks it up: the optimum of prefix sums, of sensitivity 1."""
    *_, path = export(time_design(), to="mfdl", path=tmp_path)
    assert path == tmp_path / "centralized/steps4/epochs2/optimal_local.npy"
    strategy, participation = np.load(path, allow_pickle=False), FixedEpoch(epochs=2, separation=2)
    np.testing.assert_array_equal(np.triu(strategy, 1), 0)
    assert mfdl.trainer_sensitivity(strategy, participation) == pytest.approx(1, abs=1e-12)
    sums = np.tri(4)
    interval = oracles.fixed_epoch_interval(sums.T @ sums, 2, 2, width=1e-6)
    error = float(np.square(sums @ np.linalg.inv(strategy)).sum())
    assert interval.lower * (1 - 1e-9) <= error <= interval.upper * (1 + 2e-6)


def test_mfdl_prefix_designs_go_where_its_own_are(tmp_path: Path) -> None:
    path, _ = export(time_design(decentralized=False), to="mfdl", path=tmp_path)
    assert path == tmp_path / "centralized" / "steps4" / "epochs2" / "optimal_local.npy"


def test_mfdl_says_what_it_takes_to_run_it_and_what_not_to_ask(tmp_path: Path) -> None:
    _, sidecar = export(time_design(), to="mfdl", path=tmp_path / "C.npy")
    note = json.loads(sidecar.read_text("utf-8"))["run_note"]
    page = (ROOT / "docs/guides/other-trainers.md").read_text("utf-8")
    for words in ("Python 3.12", "numpy below 2", "--nb_resets", "--dataloader_seed"):
        assert words in note
        assert words in page


def test_mfdl_has_no_place_for_other_workloads(tmp_path: Path) -> None:
    problem = TimeProblem.from_gram(
        gram=np.eye(4), participation=FixedEpoch(epochs=2, separation=2)
    )
    design = replace(time_design(), problem=problem)
    with pytest.raises(InputError, match=r"output: expected a path that ends in \.npy"):
        export(design, to="mfdl", path=tmp_path)
    assert list(tmp_path.iterdir()) == []
    export(design, to="mfdl", path=tmp_path / "C.npy")
    with pytest.raises(InputError, match="output: expected a folder"):
        export(time_design(), to="mfdl", path=tmp_path / "C.json")


def test_mfdl_says_which_mixing_the_design_was_made_for(tmp_path: Path) -> None:
    adjacency = np.array([[1, 1, 0], [1, 1, 1], [0, 1, 1]])
    for mixing, words in (
        (adjacency / adjacency.sum(axis=1, keepdims=True), "for the same W"),
        (PATH_3, "for another W"),
    ):
        problem = TimeProblem.decentralized(
            mixing=mixing, participation=FixedEpoch(epochs=2, separation=2)
        )
        design: Design = replace(time_design(), problem=problem)
        _, sidecar = export(design, to="mfdl", path=tmp_path / "C.npy")
        assert words in json.loads(sidecar.read_text("utf-8"))["mixing_note"]


# --- WhisperDSGD ----------------------------------------------------------------------------


@pytest.mark.parametrize("steps", [1, 10])
def test_whisper_draws_the_designed_noise(tmp_path: Path, steps: int) -> None:
    target = replace(TARGET, steps=steps)
    covariance = np.array([[1.2, -0.3, 0.1], [-0.3, 1.5, -0.2], [0.1, -0.2, 1.1]])
    covariance *= np.diagonal(np.linalg.inv(covariance)).max()
    design = with_matrix(space_design(privacy=target), matrix=covariance)
    (path,) = export(design, to="whisper-dsgd", path=tmp_path / "R.npz")
    with np.load(path, allow_pickle=False) as file:
        noise_params, weight_matrix = file["covariance_matrix"], file["weight_matrix"]
        metadata = json.loads(str(file["metadata"]))
    assert noise_params.dtype == weight_matrix.dtype == np.float64
    np.testing.assert_array_equal(weight_matrix, PATH_3)
    assert metadata["nodes"] == ["Ann", "Bob, jr.", "Çelik"]
    assert metadata["protected_unit"] == "one example"
    assert (metadata["horizon"], metadata["clip"], metadata["adjacency"]) == (steps, 0.5, "replace")
    # One example in each of T rounds moves a node's batch sum by 2 clip: mu^2 = 4 c^2 T [R^-1]_ii.
    worst = np.diagonal(np.linalg.inv(noise_params)).max()
    assert math.sqrt(4 * 0.5**2 * steps * worst) == pytest.approx(mu_of(target), rel=1e-6)
    np.testing.assert_allclose(noise_params / covariance, noise_params[0, 0] / covariance[0, 0])
    draws = 200_000
    noise = np.random.default_rng(3).multivariate_normal(
        mean=np.zeros(3), cov=noise_params, size=(draws,)
    )
    spread = np.sqrt(
        (noise_params**2 + np.outer(np.diagonal(noise_params), np.diagonal(noise_params))) / draws
    )
    assert (np.abs(noise.T @ noise / draws - noise_params) < 5 * spread).all()


def test_whisper_says_whose_row_is_whose(tmp_path: Path) -> None:
    (path,) = export(space_design(), to="whisper-dsgd", path=tmp_path / "R.npz")
    with np.load(path, allow_pickle=False) as file:
        metadata = json.loads(str(file["metadata"]))
    assert metadata["nodes"] == list(space_design().problem.nodes)
    page = (ROOT / "docs/guides/other-trainers.md").read_text("utf-8")
    for text in (metadata["note"], page):
        assert "os.listdir" in text


def test_whisper_takes_designs_for_every_step_only(tmp_path: Path) -> None:
    """The trainer shuffles before every round and takes the first batch: an example may be in all
    of them, which is more than the twice that the design pays for."""
    twice = nd.participation.FixedEpoch(epochs=2, separation=2)
    design = space_design(privacy=replace(TARGET, steps=None), participation=twice)
    with pytest.raises(InputError, match=r"participation: expected every step.*\(2, 2\)"):
        export(design, to="whisper-dsgd", path=tmp_path / "R.npz")
    assert list(tmp_path.iterdir()) == []


def test_whisper_without_target_gets_the_covariance_at_its_budget(tmp_path: Path) -> None:
    (path,) = export(capped_design(), to="whisper-dsgd", path=tmp_path / "R.npz")
    with np.load(path, allow_pickle=False) as file:
        np.testing.assert_array_equal(file["covariance_matrix"], np.eye(3) / 2)
        assert json.loads(str(file["metadata"]))["privacy"] is None


def test_archives_for_trainers_are_the_same_every_time(tmp_path: Path) -> None:
    for name, design in (("jax-privacy", time_design()), ("whisper-dsgd", space_design())):
        one, two = (export(design, to=name, path=tmp_path / f"{name}-{i}.npz")[0] for i in range(2))
        assert one.read_bytes() == two.read_bytes()
        assert zipfile.is_zipfile(one)
