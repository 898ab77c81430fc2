"""Forged files of every kind of noise are refused by `verify` and by the checker of its own."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import mpmath
import numpy as np
import pytest

from noisedesign.base.checks import InputError
from noisedesign.design.solve import solve
from noisedesign.families.toeplitz.solver import optimize_buffered
from noisedesign.files.design_file import load_design, save_design
from noisedesign.files.problem_file import parse_problem
from noisedesign.mechanisms.baselines import baseline
from noisedesign.system.participation import FixedEpoch
from noisedesign.system.workloads.toeplitz import prefix_workload
from noisedesign.tasks.verify import Verification, verify
from tests.support.check_design import checked, checker
from tests.support.forgeries import Arrays, forged, opened, put, with_gap, written

AT_LEAST = 50
"""Forgeries of each kind of noise."""

PRIVACY = "[privacy]\nepsilon = 2.0\ndelta = 1e-5\n"


def in_space(keys: str, *, kind: str = "path", tau: str = "[1.0, 2.0, 0.5, 1.0]") -> str:
    return (
        f'name = "nodes"\ndesign = "space"\n[graph]\nkind = "{kind}"\nnodes = 4\n'
        f"[budget]\ntau = {tau}\n{keys}{PRIVACY}steps = 10\n"
    )


def in_time(keys: str = "", *, participation: str = "epochs = 2\nseparation = 3") -> str:
    return (
        'name = "steps"\ndesign = "time"\n[workload]\nkind = "prefix"\n'
        f"[participation]\n{participation}\n{keys}{PRIVACY}"
    )


def in_both(keys: str) -> str:
    return (
        'name = "both"\ndesign = "space-time"\n[graph]\nkind = "path"\nnodes = 3\n'
        'weights = "lazy-metropolis-hastings"\n[participation]\nepochs = 1\nseparation = 3\n'
        f"[budget]\ntau = [1.0, 2.0, 1.0]\n{keys}{PRIVACY}"
    )


LIMITS = "[limits]\nmax_variance = 1.5\nmin_variance = 0.9\n"
COVERED = {
    "in space": in_space(""),
    "within limits": in_space(LIMITS, kind="star", tau="[1.0, 2.0, 1.0, 1.0]"),
    "in time": in_time(),
    "of models": in_time()
    .replace('"prefix"', '"decentralized"\n[graph]\nkind = "ring"\nnodes = 4')
    .replace("separation = 3", "separation = 2"),
    "overlapping": in_time(
        participation='kind = "min-separation"\nhorizon = 5\nseparation = 2\nmax_participations = 2'
    ),
}
"""By the checker too."""

OTHERS = {
    "nonnegative": in_time("[structure]\nnonnegative = true\n"),
    "banded": in_time('[structure]\ntime = "banded"\nbands = 2\n'),
    "toeplitz": in_time('[structure]\ntime = "toeplitz"\n'),
    "banded inverse": in_time('[structure]\ntime = "banded-inverse"\nbands = 2\n'),
    "buffered": in_time('[structure]\ntime = "blt"\nbuffers = 1\n'),
    "shared seeds": in_space('[structure]\nspace = "edge-local"\n'),
    "known seeds": in_space('[structure]\nspace = "edge-local"\nknown_seeds = 1\n'),
    "decor": in_space('[structure]\nspace = "decor"\n'),
    "polynomial": in_space('[structure]\nspace = "polynomial"\n'),
    "pairwise": in_space('[structure]\nspace = "pairwise"\n'),
    "kronecker": in_both(""),
    "modal": in_both('[structure]\njoint = "modal"\n'),
    "full": in_both('[structure]\njoint = "full"\n'),
    "observers": in_space(
        '[limits]\nmax_variance = 5.0\n[observers]\nmodel = "pndp"\nnodes = [0, 2]\nhorizon = 1\n'
        "[participation]\nepochs = 1\nseparation = 1\n",
        kind="ring",
    ).replace("steps = 10", "steps = 1"),
    "streaming": "",
    "random": in_time(participation='kind = "balls-in-bins"\nepochs = 1\nseparation = 2'),
}
FILES = COVERED | OTHERS
NOT_PROVED = ("random",)
SLOW = (
    *("random", "banded inverse", "buffered", "known seeds"),
    *("of models", "banded", "pairwise", "decor", "modal"),
)
"""An account takes a second; what is like another kind."""

PROOFS = ("rigorous", "proved objective", "proved bound", "proved fixed bound")


@cache
def honest(name: str, folder: Path) -> bytes:
    """The file of a design, whose problem's text is in it."""
    path, text = folder / f"{name}.npz", FILES[name]
    if name == "streaming":
        scheme = FixedEpoch(epochs=2, separation=4)
        made = optimize_buffered(
            buffers=1, workload=prefix_workload(horizon=8), participation=scheme
        )
        return save_design(made, path).read_bytes()
    design = solve(parse_problem(text, folder=folder).problem).design
    assert design is not None
    return save_design(design, path, problem_text=text).read_bytes()


def judged(path: Path) -> Verification | None:
    """None of a file that is not read."""
    try:
        return verify(load_design(path), rigorous=True)
    except InputError:
        return None


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW)) for name in FILES]
)
def test_no_forgery_passes(name: str, tmp_path: Path) -> None:
    content, path = honest(name, tmp_path), tmp_path / "forged.npz"
    path.write_bytes(content)
    found, said = judged(path), checked(path)
    assert found is not None
    assert all(check.ok is not False for check in found.checks if check.name not in PROOFS)
    assert found.rigorous == (name not in NOT_PROVED)
    assert said.code == (0 if name in COVERED else 2), said.words
    assert said.words.startswith("proved" if name in COVERED else "not covered")
    passed, tried = [], 0
    for forgery, changed in forged(content):
        path.write_bytes(changed)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            found, said, tried = judged(path), checked(path), tried + 1
        if found is not None and not any(
            check.ok is False for check in found.checks if check.name not in PROOFS
        ):
            passed.append(f"{forgery}: verify")
        if said.code == 0 or said.words.count("\n") != 1:
            passed.append(f"{forgery}: checker, {said}")
        if name in COVERED and said.code != 1 and forgery != "of another format":
            passed.append(f"{forgery}: checker, {said}")
    assert not passed
    assert tried >= AT_LEAST


def test_what_proves_an_account_is_found_again(tmp_path: Path) -> None:
    manifest, arrays = opened(honest("random", tmp_path))
    for proof, ok in ((manifest["account"]["which"], True), ("exact", False)):
        manifest["account"]["which"] = proof
        (tmp_path / "d.npz").write_bytes(written(manifest, arrays))
        assert verify(load_design(tmp_path / "d.npz")).ok == ok


# --- forgeries that hang together -----------------------------------------------------------------

Manifest = dict[str, Any]


def of_another_text(manifest: Manifest, old: str, new: str) -> None:
    """The problem asks for something else, and the file says so."""
    text = manifest["problem"]["text"]
    assert old in text
    text = text.replace(old, new)
    manifest["problem"] = {"text": text, "sha256": hashlib.sha256(text.encode()).hexdigest()}


def twice_the_noise(manifest: Manifest, arrays: Arrays) -> None:
    """And a bound, which is not proved, that has as good as no gap."""
    if "covariance" in arrays:
        arrays["covariance"] *= 2
    else:
        arrays["strategy"] *= 0.5**0.5
        arrays["noising_matrix"] *= 2**0.5
    for key, factor in (("variance_ratio", 2), ("floor_ratio", 0.5), ("objective", 2)):
        if manifest[key] is not None:
            manifest[key] *= factor
    manifest["sensitivity"]["value"] /= 2
    manifest["lower_bound"] = manifest["objective"] * (1 - 1e-6)
    with_gap(manifest, arrays)


def caps_that_are_free(manifest: Manifest, arrays: Arrays) -> None:
    twice_the_noise(manifest, arrays)
    arrays["dual_cap"] = np.full(4, 100.0)


def floors_that_are_free(manifest: Manifest, arrays: Arrays) -> None:
    twice_the_noise(manifest, arrays)
    arrays["dual_floor"], arrays["min_variance"] = np.full(4, 1e-3), np.full(4, 1e6)


def a_budget_in_time(manifest: Manifest, arrays: Arrays) -> None:
    """C ten times, within a budget of its own."""
    arrays["strategy"] *= 10
    arrays["noising_matrix"] /= 10
    arrays["budget"] = np.full(3, 100.0)
    for key in ("objective", "lower_bound"):
        manifest[key] /= 100


def steps_without_noise(manifest: Manifest, arrays: Arrays) -> None:
    """Noise of nothing from the fourth step on, which the problem that is told of does not have."""
    of_another_text(manifest, "epochs = 2", "epochs = 1")
    manifest["participation"]["epochs"], manifest["horizon"] = 1, 3
    h, scales = arrays["gram"], np.repeat([1.0, 1e9], 3)
    arrays["strategy"], arrays["noising_matrix"] = np.diag(scales), np.diag(1 / scales)
    arrays["dual_blocks"] = np.ones((3, 1, 1))
    manifest["objective"] = float(np.diagonal(h) @ scales**-2)
    first = np.linalg.svd(np.linalg.cholesky(h).T[:, :3], compute_uv=False)
    manifest["lower_bound"] = float(first.sum() ** 2 / 3) * (1 - 1e-12)
    manifest["sensitivity"]["value"] = 1.0
    with_gap(manifest, arrays)


def steps_of_no_pattern(manifest: Manifest, arrays: Arrays) -> None:
    """All five steps for the price of one participation."""
    twice_the_noise(manifest, arrays)
    arrays["pattern_lengths"], arrays["pattern_steps"] = np.array([5.0]), np.arange(5.0)
    arrays["pattern_blocks"] = np.eye(5).ravel()


def a_multiplier_in_two_readings(manifest: Manifest, arrays: Arrays) -> None:
    arrays["pattern_steps"] = arrays["pattern_steps"] + 0.3


def above_its_caps(manifest: Manifest, arrays: Arrays) -> None:
    of_another_text(manifest, "max_variance = 1.5", "max_variance = 1.01")
    arrays["max_variance"][:] = 1.01
    manifest["variance_ratio"] *= 1.5 / 1.01


def below_its_floors(manifest: Manifest, arrays: Arrays) -> None:
    of_another_text(manifest, "min_variance = 0.9", "min_variance = 1.4")
    arrays["min_variance"][:] = 1.4
    manifest["floor_ratio"] *= 1.4 / 0.9


def floors_at_a_negative_price(manifest: Manifest, arrays: Arrays) -> None:
    """As if no variance were above its floor."""
    twice_the_noise(manifest, arrays)
    of_another_text(manifest, "max_variance = 1.5", "max_variance = 15.0")
    arrays["max_variance"][:] = 15
    manifest["variance_ratio"] /= 10
    arrays["dual_floor"] = np.full(4, -100.0)


def looking_ahead(manifest: Manifest, arrays: Arrays) -> None:
    """A C with the same C^T C, whose noise of a step is known from that of the next ones."""
    q, _ = np.linalg.qr(np.random.default_rng(3).standard_normal((6, 6)))
    arrays["strategy"] = q @ arrays["strategy"] * (1 - 1e-15)
    arrays["noising_matrix"] = np.linalg.inv(arrays["strategy"])


def half_the_gap(manifest: Manifest, arrays: Arrays) -> None:
    """Of noise that is far from its optimum, with the bound to it."""
    twice_the_noise(manifest, arrays)
    manifest["lower_bound"] = manifest["objective"] / 1.5
    with_gap(manifest, arrays)


TOLD: list[tuple[str, Callable[[Manifest, Arrays], None], str]] = [
    ("in space", caps_that_are_free, "an array 'dual_cap' that is not asked for"),
    ("in space", floors_that_are_free, "an array 'dual_floor' that is not asked for"),
    ("in space", half_the_gap, "the lower bound is not proved"),
    ("in time", twice_the_noise, "the lower bound is not proved"),
    ("in time", half_the_gap, "the lower bound is not proved"),
    ("in time", a_budget_in_time, "an array 'budget' that is not asked for"),
    ("in time", steps_without_noise, "its shape"),
    ("overlapping", steps_of_no_pattern, "steps of no pattern"),
    ("overlapping", a_multiplier_in_two_readings, "steps of no number"),
    ("within limits", above_its_caps, "max_variance is not kept"),
    ("within limits", below_its_floors, "min_variance is not kept"),
    ("within limits", floors_at_a_negative_price, "a multiplier is negative"),
    ("in time", looking_ahead, "C is not causal"),
    ("in space", put("version", 99), "version 99 of the format, not 5"),
    ("in space", put("gap", -1e-3), "the gap is another, or negative"),
    ("in space", put("sensitivity.squared", False), "sensitivity is not what was asked for"),
    ("in space", put("sensitivity.value", 0.5), "the sensitivity is another"),
    ("in time", put("nodes", ["a"]), "nodes is not what was asked for"),
    ("in time", put("objective", 25), "objective is no float"),
    ("in time", put("provenance.status", 3), "provenance is not what was asked for"),
]


@pytest.mark.parametrize(("name", "edit", "words"), TOLD)
def test_the_checker_says_what_is_wrong(
    name: str, edit: Callable[[Manifest, Arrays], None], words: str, tmp_path: Path
) -> None:
    manifest, arrays = opened(honest(name, tmp_path))
    edit(manifest, arrays)
    path = tmp_path / "forged.npz"
    path.write_bytes(written(manifest, arrays))
    found, said = judged(path), checked(path)
    assert (said.code, said.words.startswith("refused: ")) == (1, True)
    assert words in said.words
    assert said.words.count("\n") == 1
    assert found is None or not found.ok


DIRECTED = '"ring"\nnodes = 4\ndirected = true'
TEXTS: list[tuple[str, str, str, int, str]] = [
    ("in space", '"path"', '"hypercube"', 2, "a graph of kind 'hypercube'"),
    ("in space", '"path"', '"grid"', 2, "a graph of kind 'grid' with such keys"),
    ("in space", "nodes = 4", "nodes = 4000", 2, "a graph of kind 'path'"),
    ("in space", '"path"\nnodes = 4', DIRECTED, 2, "a graph of kind 'ring'"),
    ("in space", '"path"', '"path"\nweights = "fastest-mixing"', 2, "weights 'fastest-mixing'"),
    ("in space", '"path"', '"path"\nweights = "least-noise"', 2, "weights 'least-noise'"),
    ("in space", '"path"\nnodes = 4', '"grid"\nrows = 90\ncolumns = 90', 2, "so many nodes"),
    ("in space", "[budget]", '[structure]\nspace = "decor"\n[budget]', 2, "the key 'structure'"),
    ("in space", "tau = [1.0, ", "tau = [-1.0, ", 1, "a number of the problem is not positive"),
    ("in space", "tau = [1.0, ", "tau = [", 1, "is not one a node or step"),
    ("in space", '[graph]\nkind = "path"\nnodes = 4', "", 1, "a problem without a graph"),
    ("in space", '"space"', '"space-time"', 2, "a design in 'space-time'"),
    ("in time", '"prefix"', '"gram"', 2, "a workload 'gram' without data"),
    ("in time", '"prefix"', '"decentralized"', 1, "a problem without a graph"),
    ("in time", "epochs = 2", "epochs = 0", 1, "participation: no counts"),
    ("in time", "separation = 3", "separation = 3000", 2, "so many steps"),
    ("in time", "epochs = 2", 'kind = "balls-in-bins"\nepochs = 2', 2, "of kind 'balls-in-bins'"),
    ("in time", "epochs = 2\nseparation = 3", 'kind = "single"\nhorizon = 6', 1, "its shape"),
    ("overlapping", "horizon = 5", "horizon = 90", 2, "participation in so many patterns"),
]


def test_the_checker_says_which_problems_it_does_not_cover(tmp_path: Path) -> None:
    path = tmp_path / "d.npz"
    for name, old, new, code, words in TEXTS:
        manifest, arrays = opened(honest(name, tmp_path))
        if name == "overlapping":
            of_another_text(manifest, "max_participations = 2", "max_participations = 9")
        of_another_text(manifest, old, new)
        path.write_bytes(written(manifest, arrays))
        said = checked(path)
        assert (said.code, words in said.words) == (code, True), (words, said)


@pytest.mark.parametrize(
    ("name", "words"), [("ldp", "a design without multipliers"), ("cdp", "noise of a server")]
)
def test_the_checker_does_not_cover_baselines(name: str, words: str, tmp_path: Path) -> None:
    text = FILES["in space"]
    design = baseline(parse_problem(text, folder=tmp_path).problem, name)
    said = checked(save_design(design, tmp_path / "d.npz", problem_text=text))
    assert (said.code, words in said.words) == (2, True), said


def test_the_problem_that_is_named_is_the_one_in_the_file(tmp_path: Path) -> None:
    path, problem = tmp_path / "d.npz", tmp_path / "problem.toml"
    path.write_bytes(honest("in time", tmp_path))
    problem.write_text(FILES["in time"])
    assert checked(path, problem).code == 0
    problem.write_text(FILES["in time"] + "\n")
    said = checked(path, problem)
    assert (said.code, "text in the file is another" in said.words) == (1, True)


GRAPHS = {
    "florentine": "",
    "karate": 'weights = "max-degree"',
    "ring": 'nodes = 5\nweights = "row-normalized"',
    "complete": "nodes = 4",
    "star": 'nodes = 5\nweights = "lazy-metropolis-hastings"',
    "grid": "rows = 2\ncolumns = 3",
    "torus": "rows = 3\ncolumns = 4",
    "erdos-renyi": "nodes = 9\np = 0.3\nseed = 2",
}


@pytest.mark.parametrize("kind", GRAPHS)
def test_the_checker_forms_the_same_problem_of_every_graph_that_it_knows(
    kind: str, tmp_path: Path
) -> None:
    """One step between nodes; of a time design H is formed of all powers of W."""
    graph = f'[graph]\nkind = "{kind}"\n{GRAPHS[kind]}\n'
    for text in (
        f'name = "g"\ndesign = "space"\n{graph}[limits]\nmax_variance = 9.0\n',
        f'name = "g"\ndesign = "time"\n{graph}[workload]\nkind = "decentralized"\n'
        "[participation]\nepochs = 2\nseparation = 2\n",
    ):
        design = solve(parse_problem(text, folder=tmp_path).problem).design
        assert design is not None
        path = save_design(design, tmp_path / "d.npz", problem_text=text, overwrite=True)
        said = checked(path)
        assert said.code == 0, said.words


# --- the steps of its proof -----------------------------------------------------------------------


def test_a_matrix_that_only_rounding_makes_positive_definite_has_no_inverse() -> None:
    """Cholesky's algorithm in float64 takes some matrices with a negative eigenvalue."""
    rng, tried = np.random.default_rng(1), 0
    for _ in range(400):
        g = rng.standard_normal((4, 3))
        r = g @ g.T
        r = (r + r.T) / 2
        with mpmath.workdps(50):
            if mpmath.det(mpmath.matrix(r.tolist())) >= 0:
                continue
        try:
            np.linalg.cholesky(r)
        except np.linalg.LinAlgError:
            continue
        tried += 1
        with pytest.raises(SystemExit):
            checker().inverse(checker().balls(r))
    assert tried > 5


def test_a_factor_is_below_its_matrix_to_fifty_digits() -> None:
    rng = np.random.default_rng(2)
    for size in (3, 8, 30):
        for scale in (1.0, 1e-3):
            # Of positive numbers, whose sums round up more than a diagonal is lowered by.
            g = rng.random((size, size)) * np.geomspace(1, scale, size)
            h = g.T @ g
            h = (h + h.T) / 2
            factor = checker().floats(checker().below(checker().balls(h)))
            with mpmath.workdps(50):
                f = mpmath.matrix(factor.tolist())
                left = mpmath.matrix(h.tolist()) - f.T * f
                assert min(mpmath.eigsy(left, eigvals_only=True)) >= 0
                assert max(map(abs, left)) < 1e-10 * np.abs(h).max()
