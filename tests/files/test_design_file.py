"""Designs on disk: everything comes back, and nothing that was touched does."""

from __future__ import annotations

import hashlib
import io
import json
import os
import pickle
import stat
import subprocess
import sys
import zipfile
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from noisedesign.base.atomic import StorageError, write_atomically, write_bytes, write_text
from noisedesign.base.checks import InputError
from noisedesign.design.design import Design
from noisedesign.files.design_file import SEAL, load_design, save_design
from noisedesign.mechanisms.baselines import baseline
from noisedesign.problem.problem import PrivacyTarget, SpaceProblem, SpaceTimeProblem, TimeProblem
from noisedesign.system.participation import single
from noisedesign.system.workloads import ErrorMeasure
from tests.support import ROOT
from tests.support.made_designs import with_matrix
from tests.support.small_designs import (
    GRAM_4,
    PATH_3,
    TARGET,
    capped_design,
    falsify,
    seal,
    single_epoch_design,
    space_design,
    time_design,
    write_sealed,
)

DESIGNS: dict[str, Callable[[], Design]] = {
    "space": lambda: space_design(privacy=replace(TARGET, steps=10)),
    "capped": capped_design,
    "single epoch": single_epoch_design,
    "decentralized": lambda: time_design(privacy=TARGET),
    "prefix": lambda: time_design(decentralized=False),
}


@pytest.fixture(params=DESIGNS)
def design(request: pytest.FixtureRequest) -> Design:
    return DESIGNS[request.param]()


# --- round trip -----------------------------------------------------------------------------


def assert_same(found: Design, design: Design) -> None:
    np.testing.assert_array_equal(found.matrix, design.matrix)
    assert found.matrix.dtype == np.float64
    assert found.certificate == design.certificate
    assert found.provenance == design.provenance
    assert found.trust == design.trust
    assert type(found.problem) is type(design.problem)
    for name, value in vars(design.problem).items():
        if isinstance(value, np.ndarray):
            np.testing.assert_array_equal(getattr(found.problem, name), value)
        else:
            assert getattr(found.problem, name) == value, name
    assert set(found.proof) == set(design.proof)
    for name, array in design.proof.items():
        np.testing.assert_array_equal(found.proof[name], array)


def test_a_design_comes_back_as_it_was(design: Design, tmp_path: Path) -> None:
    text = 'name = "ünïcode"\r\n# line ends stay\n'
    path = save_design(design, tmp_path / "design.npz", problem_text=text)
    stored = load_design(path)
    assert_same(stored.design, design)
    assert stored.problem_text == text
    assert stored.path == path


def test_a_baseline_without_multipliers_comes_back(tmp_path: Path) -> None:
    design = replace(space_design(), proof={}, trust="central")
    assert_same(load_design(save_design(design, tmp_path / "d.npz")).design, design)


def test_the_same_design_gives_the_same_bytes(design: Design, tmp_path: Path) -> None:
    one = save_design(design, tmp_path / "one.npz", problem_text="x")
    two = save_design(design, tmp_path / "two.npz", problem_text="x")
    assert one.read_bytes() == two.read_bytes()
    again = save_design(load_design(one).design, tmp_path / "again.npz", problem_text="x")
    assert again.read_bytes() == one.read_bytes()


@settings(derandomize=True, max_examples=15, deadline=None)
@given(
    nodes=st.lists(
        st.text(st.characters(codec="utf-8"), max_size=6), min_size=1, max_size=4, unique=True
    ),
    text=st.text(st.characters(codec="utf-8"), max_size=30),
    scale=st.floats(1e-300, 1e300),
)
def test_any_names_text_and_scale_come_back(
    tmp_path_factory: pytest.TempPathFactory, nodes: list[str], text: str, scale: float
) -> None:
    n = len(nodes)
    problem = SpaceProblem(mixing=np.full((n, n), 1 / n), nodes=tuple(nodes), name=text)
    matrix = scale * (np.eye(n) + np.arange(n) / 7)
    design = with_matrix(space_design(), matrix, problem=problem, proof={})
    path = tmp_path_factory.mktemp("any") / "d.npz"
    stored = load_design(save_design(design, path, problem_text=text))
    assert_same(stored.design, design)
    assert stored.problem_text == text


def test_the_file_is_what_it_is_documented_to_be(tmp_path: Path) -> None:
    design = time_design(privacy=TARGET)
    path = save_design(design, tmp_path / "d.npz", problem_text="text")
    with np.load(path, allow_pickle=False) as file:
        manifest = json.loads(file["manifest.json"])
        arrays = {name: file[name] for name in manifest["arrays"]}
    factor = arrays.pop("workload_factor")
    np.testing.assert_allclose(factor.T @ factor, arrays["gram"], atol=1e-14)
    assert set(arrays) == {"strategy", "noising_matrix", "gram", "mixing", "dual_blocks"}
    for name, array in {"workload_factor": factor, **arrays}.items():
        entry = manifest["arrays"][name]
        assert array.dtype == np.float64
        assert list(array.shape) == entry["shape"]
        assert hashlib.sha256(array.tobytes()).hexdigest() == entry["sha256"]
    np.testing.assert_allclose(arrays["strategy"].T @ arrays["strategy"], GRAM_4, atol=1e-12)
    np.testing.assert_allclose(arrays["noising_matrix"] @ arrays["strategy"], np.eye(4), atol=1e-14)
    np.testing.assert_array_equal(arrays["mixing"], PATH_3)
    kinds = {name: entry["kind"] for name, entry in manifest["arrays"].items()}
    assert kinds == {
        "strategy": "C",
        "noising_matrix": "C^-1",
        "gram": "H",
        "workload_factor": "L of H = L^T L",
        "mixing": "W",
        "dual_blocks": "U",
    }
    assert (manifest["format"], manifest["version"]) == ("noisedesign-design", 5)
    assert (manifest["design"], manifest["horizon"]) == ("time", 4)
    assert manifest["participation"] == {
        "epochs": 2,
        "separation": 2,
        "horizon": None,
        "max_participations": None,
    }
    assert manifest["sensitivity"] == {
        "value": design.certificate.sensitivity_squared,
        "which": "vector-exact",
        "squared": True,
    }
    assert manifest["adjacency"] == "replace"
    assert manifest["privacy"] == asdict(TARGET)
    assert manifest["gap"] == design.objective / design.lower_bound - 1
    assert manifest["provenance"]["history"][0]["upper"] == "inf"
    assert manifest["problem"] == {"text": "text", "sha256": hashlib.sha256(b"text").hexdigest()}
    assert manifest["library"]


def test_a_spatial_file_holds_no_horizon(tmp_path: Path) -> None:
    path = save_design(capped_design(), tmp_path / "d.npz")
    with np.load(path, allow_pickle=False) as file:
        manifest = json.loads(file["manifest.json"])
        assert set(file.files) - {"manifest.json"} == {
            "covariance",
            "mixing",
            "budget",
            "max_variance",
            "dual_weights",
            "dual_cap",
        }
        np.testing.assert_array_equal(file["dual_weights"], np.ones(3))
    assert manifest["horizon"] is None
    assert manifest["participation"] is None
    assert manifest["adjacency"] is None
    assert manifest["arrays"]["covariance"]["kind"] == "R"


# --- integrity ------------------------------------------------------------------------------


def test_the_seal_is_the_sha256_of_all_that_comes_before_its_digits(tmp_path: Path) -> None:
    content = save_design(space_design(), tmp_path / "d.npz").read_bytes()
    assert content[-64:].decode() == hashlib.sha256(content[:-64]).hexdigest()
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        assert archive.comment == SEAL + content[-64:]


def assert_refused(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(InputError, match="^design file"):
        load_design(path)


EVERY = pytest.mark.parametrize("step", [pytest.param(1, marks=pytest.mark.slow), 7])
"""Places in a file: all of them, and every seventh where there is less time."""


@EVERY
def test_every_changed_byte_is_an_error(step: int, tmp_path: Path) -> None:
    content = save_design(single_epoch_design(), tmp_path / "d.npz").read_bytes()
    for i in range(0, len(content), step):
        changed = bytearray(content)
        changed[i] ^= 1 << (i % 8)
        assert_refused(tmp_path / "changed.npz", bytes(changed))


@EVERY
def test_every_truncation_and_addition_is_an_error(step: int, tmp_path: Path) -> None:
    content = save_design(single_epoch_design(), tmp_path / "d.npz").read_bytes()
    for length in range(len(content) - 1, -1, -step):
        assert_refused(tmp_path / "cut.npz", content[:length])
    for added in (content + b"\0", content + b"\n", b"\0" + content, content + content):
        assert_refused(tmp_path / "added.npz", added)


def test_a_missing_byte_inside_is_an_error(tmp_path: Path) -> None:
    content = save_design(single_epoch_design(), tmp_path / "d.npz").read_bytes()
    for i in range(0, len(content), 7):
        assert_refused(tmp_path / "missing.npz", content[:i] + content[i + 1 :])


def test_damage_under_a_new_seal_never_raises_anything_else(tmp_path: Path) -> None:
    content = save_design(single_epoch_design(), tmp_path / "d.npz").read_bytes()
    path, loaded = tmp_path / "damaged.npz", 0
    for i in range(0, len(content) - 64 - len(SEAL), 2):
        body = bytearray(content[:-64])
        body[i] ^= (1, 0x80, 0xFF, 0x20)[i % 4]
        path.write_bytes(seal(bytes(body)))
        try:
            load_design(path)
            loaded += 1
        except InputError:
            pass
    # Time stamps, a word of the provenance: some bytes carry no claim that could be checked.
    assert loaded < len(content) / 4


def test_a_missing_file_and_a_folder_are_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"design file: .*nowhere\.npz"):
        load_design(tmp_path / "nowhere.npz")
    with pytest.raises(InputError, match="design file"):
        load_design(tmp_path)


# --- nothing is unpickled -------------------------------------------------------------------


class Trap:
    """Leaves a folder behind if it is ever unpickled."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.folder),)


def trapped(folder: Path) -> np.ndarray:
    array = np.empty((3, 3), dtype=object)
    array[:] = Trap(folder)
    return array


def test_a_pickle_is_refused_and_not_run(tmp_path: Path) -> None:
    trap, path = tmp_path / "trap", tmp_path / "d.npz"
    for protocol in (0, 5):
        assert_refused(path, pickle.dumps(Trap(trap), protocol=protocol))
    with pytest.raises(InputError, match="Python pickle.*nothing in it was executed"):
        load_design(path)
    assert not trap.exists()


def test_an_archive_of_object_arrays_is_refused_and_not_run(tmp_path: Path) -> None:
    trap, path = tmp_path / "trap", tmp_path / "d.npz"
    np.savez(path, covariance=trapped(trap))
    with pytest.raises(InputError, match="without its seal"):
        load_design(path)
    save_design(space_design(), path, overwrite=True)

    def edit(manifest: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        arrays["covariance"] = trapped(trap)

    falsify(path, edit)
    with pytest.raises(InputError, match=r"covariance: .*float64.*object.*never read"):
        load_design(path)
    assert not trap.exists()


# --- a well sealed file that states nonsense ------------------------------------------------


def setting(**values: Any) -> Callable[..., None]:
    def edit(manifest: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        manifest.update(values)

    return edit


def replacing(name: str, change: Callable[[np.ndarray], Any]) -> Callable[..., None]:
    def edit(manifest: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        arrays[name] = change(arrays[name])

    return edit


def dropping(name: str) -> Callable[..., None]:
    def edit(manifest: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        del arrays[name], manifest["arrays"][name]

    return edit


def with_nan(array: np.ndarray) -> np.ndarray:
    array.flat[1] = np.nan
    return array


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (setting(format="other"), "format: expected noisedesign-design"),
        (setting(version=6, library="9.1"), r"version: .*version 6\. .*noisedesign 9\.1"),
        (setting(version="1"), "version"),
        (setting(surprise=1), "surprise"),
        (setting(objective="12"), "objective"),
        (setting(design="both"), "design"),
        (setting(horizon=5), "horizon: expected 4"),
        (setting(participation=None), "participation"),
        (setting(participation={"epochs": 0, "separation": 4}), "epochs"),
        (setting(workload="other"), "workload"),
        (setting(nodes=["a", "b"]), "mixing: expected shape"),
        (setting(nodes=["a", "b", "a"]), "nodes"),
        (replacing("strategy", lambda a: a.astype(np.float32)), "strategy: .*float32"),
        (replacing("strategy", lambda a: a.astype(np.int64)), "strategy: .*int64"),
        (replacing("strategy", lambda a: a.astype(">f8")), "strategy: .*>f8"),
        (replacing("strategy", np.asfortranarray), "strategy: .*Fortran"),
        (replacing("strategy", with_nan), "strategy: expected finite"),
        (replacing("strategy", lambda a: a[:3]), "strategy: expected shape"),
        (replacing("gram", lambda a: a[:3, :3].copy()), "gram: expected shape"),
        (replacing("gram", np.triu), "gram"),
        (replacing("mixing", lambda a: -a), "mixing"),
        (replacing("dual_blocks", lambda a: a.reshape(4, 2)), "dual_blocks: expected shape"),
        (replacing("workload_factor", lambda a: a * (1 + 1e-9)), "factor: expected L"),
        (replacing("workload_factor", lambda a: -a[::-1] * 1e300), "factor: expected L"),
        (replacing("workload_factor", lambda a: np.vstack([a, a])), "factor: expected shape"),
        (replacing("workload_factor", lambda a: a[:, :3].copy()), "factor: expected shape"),
        (replacing("workload_factor", np.ravel), "factor: expected shape"),
        (replacing("gram", lambda a: a * (1 + 1e-9)), "factor: expected L"),
        (dropping("gram"), "gram: expected the array H"),
        (dropping("noising_matrix"), "noising_matrix"),
    ],
)
def test_nonsense_is_refused_by_name(
    tmp_path: Path, edit: Callable[..., None], message: str
) -> None:
    path = save_design(time_design(), tmp_path / "d.npz")
    falsify(path, edit)
    with pytest.raises(InputError, match=message) as caught:
        load_design(path)
    assert str(path) in str(caught.value)


def test_the_factor_of_prefix_sums_is_of_ones(tmp_path: Path) -> None:
    path = save_design(time_design(decentralized=False), tmp_path / "d.npz")
    np.testing.assert_array_equal(load_design(path).arrays["workload_factor"], np.tri(4))


def test_a_singular_workload_has_a_factor_of_its_rank(tmp_path: Path) -> None:
    """H = 1 1^T, of rank one, whose factor is a row of ones or of minus ones."""
    problem = TimeProblem.from_gram(gram=np.ones((2, 2)), participation=single(2))
    design = replace(single_epoch_design(), problem=problem, proof={})
    factor = load_design(save_design(design, tmp_path / "d.npz")).arrays["workload_factor"]
    np.testing.assert_allclose(factor * np.sign(factor[0, 0]), [[1.0, 1.0]], atol=1e-15)


def test_files_without_a_factor_are_read(tmp_path: Path) -> None:
    path = save_design(time_design(), tmp_path / "d.npz")
    falsify(path, dropping("workload_factor"))
    assert_same(load_design(path).design, time_design())


def test_an_array_must_match_its_own_sha256(tmp_path: Path) -> None:
    path = save_design(time_design(), tmp_path / "d.npz")
    falsify(path, replacing("strategy", lambda a: a * 2), honest_arrays=False)
    with pytest.raises(InputError, match="strategy: expected the array its sha256"):
        load_design(path)


def test_an_array_must_have_the_shape_that_is_stated(tmp_path: Path) -> None:
    """The same numbers in the same order, so that the sha256 is right."""
    path = save_design(space_design(), tmp_path / "d.npz")
    falsify(path, replacing("covariance", lambda a: a.reshape(1, 9)), honest_arrays=False)
    with pytest.raises(
        InputError, match=r"covariance: expected shape \(3, 3\), got shape \(1, 9\)"
    ):
        load_design(path)


def test_a_manifest_must_state_the_shape_of_the_array(tmp_path: Path) -> None:
    def misstate(manifest: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        manifest["arrays"]["covariance"]["shape"] = [1, 9]

    path = save_design(space_design(), tmp_path / "d.npz")
    falsify(path, misstate, honest_arrays=False)
    with pytest.raises(
        InputError, match=r"covariance: expected shape \(1, 9\), got shape \(3, 3\)"
    ):
        load_design(path)


def test_members_must_be_those_of_the_manifest(tmp_path: Path) -> None:
    path = save_design(space_design(), tmp_path / "d.npz")
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
        comment = archive.comment
    write_sealed(path, members | {"more.npy": members["budget.npy"]}, comment=comment)
    with pytest.raises(InputError, match=r"more\.npy"):
        load_design(path)
    write_sealed(path, {"budget.npy": members["budget.npy"]}, comment=comment)
    with pytest.raises(InputError, match="manifest"):
        load_design(path)


def test_a_header_that_claims_a_huge_array_is_refused(tmp_path: Path) -> None:
    path = save_design(space_design(), tmp_path / "d.npz")
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
        comment = archive.comment
    huge = members["covariance.npy"].replace(b"(3, 3), }       ", b"(3, 33333333), }")
    assert huge != members["covariance.npy"]
    write_sealed(path, members | {"covariance.npy": huge}, comment=comment)
    with pytest.raises(InputError, match="covariance: expected the data of shape"):
        load_design(path)


def test_an_unknown_trust_is_refused_when_saving(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"design\.trust"):
        save_design(replace(space_design(), trust="none"), tmp_path / "d.npz")
    assert list(tmp_path.iterdir()) == []


# --- writing whole or not at all ------------------------------------------------------------


@pytest.mark.parametrize("failure", [KeyboardInterrupt, ValueError, MemoryError])
def test_a_failed_write_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, failure: type[BaseException]
) -> None:
    path = tmp_path / "d.bin"
    path.write_bytes(b"old")

    def write(file: Any) -> None:
        file.write(b"half of the n")
        raise failure

    with pytest.raises(failure):
        write_atomically(path, write)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_refusing_system_is_one_clear_error(tmp_path: Path) -> None:
    def write(file: Any) -> None:
        raise OSError(28, "No space left on device")

    path = tmp_path / "d.bin"
    with pytest.raises(StorageError, match=r"could not write .*d\.bin: No space left.*nothing was"):
        write_atomically(path, write)
    assert list(tmp_path.iterdir()) == []


FULL_DISK = """
import resource
from tests.support.small_designs import space_design, time_design
from noisedesign.base.atomic import StorageError
from noisedesign.files.design_file import save_design
resource.setrlimit(resource.RLIMIT_FSIZE, (1500, 1500))
try:
    save_design(time_design(), {path!r})
except StorageError as error:
    assert isinstance(error, OSError)
    print(error)
"""


def test_a_full_disk_leaves_the_old_design(tmp_path: Path) -> None:
    pytest.importorskip("resource", reason="file size limits are a POSIX feature")
    path = save_design(space_design(), tmp_path / "d.npz")
    old = path.read_bytes()
    code = FULL_DISK.format(path=str(path))
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    (line,) = done.stdout.splitlines()
    assert line.startswith(f"could not write {path}: ")
    assert line.endswith("the existing file is untouched")
    assert path.read_bytes() == old
    assert list(tmp_path.iterdir()) == [path]


def test_where_nothing_can_be_written_the_output_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="output: expected an existing folder"):
        save_design(space_design(), tmp_path / "none" / "d.npz")
    with pytest.raises(InputError, match="output: expected a file path, got a folder"):
        save_design(space_design(), tmp_path)
    with pytest.raises(InputError, match="output: expected a regular file"):
        write_bytes(os.devnull, b"")


def test_a_link_is_followed_and_the_mode_is_the_users(tmp_path: Path) -> None:
    target, link = tmp_path / "target.txt", tmp_path / "link.txt"
    link.symlink_to(target)
    mask = os.umask(0o027)
    try:
        write_text(link, "ö\r\n")
    finally:
        os.umask(mask)
    assert link.is_symlink()
    assert target.read_bytes() == b"\xc3\xb6\r\n"
    assert stat.S_IMODE(target.stat().st_mode) == 0o640


def test_problems_of_both_kinds_carry_their_privacy(tmp_path: Path) -> None:
    target = PrivacyTarget(epsilon=1, delta=1e-6, adjacency="zero-out", conversion="rdp", steps=4)
    for design in (space_design(privacy=target), time_design(privacy=target)):
        found = load_design(save_design(design, tmp_path / "d.npz")).design.problem
        assert isinstance(found, (SpaceProblem, TimeProblem))
        assert found.privacy == target


def test_errors_count_over_the_horizon_and_no_other(tmp_path: Path) -> None:
    mixing, error = np.eye(2) / 2 + 0.25, ErrorMeasure(horizon=3, of="last-iterate")
    problem = SpaceTimeProblem(mixing=mixing, participation=single(3), error=error)
    path = save_design(baseline(problem, "ldp"), tmp_path / "d.npz")
    assert load_design(path).design.problem.error.horizon == 3
    for wrong in (2, 4):
        falsify(path, lambda manifest, _, to=wrong: manifest["error"].update(horizon=to))
        with pytest.raises(InputError, match=rf"error\.horizon: expected 3, the .* got {wrong}"):
            load_design(path)
