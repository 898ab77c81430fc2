"""Forged files of every kind of noise are refused by `verify` and by the checker of its own."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

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
from tests.support.check_design import checked
from tests.support.forgeries import Arrays, forged, less_noise, opened, put, with_gap, written

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
    "nonnegative": in_time("[structure]\nnonnegative = true\n"),
    "banded": in_time('[structure]\ntime = "banded"\nbands = 2\n'),
    "kronecker": in_both(""),
    "full": in_both('[structure]\njoint = "full"\n'),
    "shared seeds": in_space('[structure]\nspace = "edge-local"\n'),
    "neighbourhoods": in_space(
        '[limits]\nmax_variance = 1.6\n[structure]\nspace = "neighbourhood"\n', kind="ring"
    ).replace("0.5", "0.7"),
    "observers": in_space(
        '[limits]\nmax_variance = 5.0\n[observers]\nmodel = "pndp"\nnodes = [0, 2]\nhorizon = 1\n'
        "[participation]\nepochs = 1\nseparation = 1\n",
        kind="ring",
    ).replace("steps = 10", "steps = 1"),
}
"""By the checker too."""

OTHERS = {
    "toeplitz": in_time('[structure]\ntime = "toeplitz"\n'),
    "banded inverse": in_time('[structure]\ntime = "banded-inverse"\nbands = 2\n'),
    "buffered": in_time('[structure]\ntime = "blt"\nbuffers = 1\n'),
    "known seeds": in_space('[structure]\nspace = "edge-local"\nknown_seeds = 1\n'),
    "decor": in_space('[structure]\nspace = "decor"\n'),
    "polynomial": in_space('[structure]\nspace = "polynomial"\n'),
    "pairwise": in_space('[structure]\nspace = "pairwise"\n'),
    "modal": in_both('[structure]\njoint = "modal"\n'),
    "streaming": "",
    "random": in_time(participation='kind = "balls-in-bins"\nepochs = 1\nseparation = 2'),
}
FILES = COVERED | OTHERS
UNSEEN = {
    *("sensitivity of another kind", "of another name", "at other budgets", "of another array"),
    *("of more steps", "of other nodes", "of fewer nodes", "of more rounds"),
    *("of another clip", "of other steps", "of another adjacency", "of two adjacencies"),
    *("of another conversion", "of version 99", "of version true", "of a library of numbers"),
    *("with a key more", "with budget", "with secret", "with covariance"),
    *("a manifest twice", "a key twice", "a member more", "another digest", "compressed"),
    "something after an array",
}
"""Of what the checker does not speak: names, an epsilon, arrays beside, versions, digests."""

NOT_PROVED = ("random",)
SLOW = (
    *("random", "banded inverse", "buffered", "known seeds"),
    *("of models", "neighbourhoods", "pairwise", "decor", "modal"),
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
        if said.code == 0 and forgery not in UNSEEN:
            passed.append(f"{forgery}: checker, {said}")
        if said.words.count("\n") != (3 if said.code == 0 else 1):
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
        arrays |= {x: 2 * arrays[x] for x in ("clique_blocks",) if x in arrays}
    elif "strategy_bands" in arrays:
        arrays["strategy_bands"] *= 0.5**0.5
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


def a_block_below_zero(manifest: Manifest, arrays: Arrays) -> None:
    """Of the nodes 0 and 1, for that of 1 and 2: R is the same."""
    arrays["clique_blocks"][3:5] += [-0.3, 0.3]


def seeds_of_others(manifest: Manifest, arrays: Arrays) -> None:
    """Noise of nodes 0 and 2 that no seed makes."""
    arrays["covariance"][0, 2] += 1e-9
    arrays["covariance"][2, 0] += 1e-9


def above_all_noise(manifest: Manifest, arrays: Arrays) -> None:
    """A bound of a structure, said of all noise."""
    manifest["unrestricted_lower_bound"] = manifest["lower_bound"]


def by_its_structure(manifest: Manifest, arrays: Arrays) -> None:
    """The same, with the multipliers of the structure as those of all noise."""
    above_all_noise(manifest, arrays)
    arrays.pop("unrestricted_weights")
    for name in ("factors", "prices"):
        arrays[f"unrestricted_{name}"] = arrays[f"dual_{name}"]


def hardly_a_link(manifest: Manifest, arrays: Arrays) -> None:
    """Of the nodes 0 and 2, who may share a seed or hear each other by it."""
    arrays["mixing"][[0, 2], [2, 0]] = 1e-14


def seen_in_sums(manifest: Manifest, arrays: Arrays) -> None:
    manifest["observers"][0]["sees"] = "sums"


def heard_by_one(manifest: Manifest, arrays: Arrays) -> None:
    """The other observer left out, with what is against it."""
    manifest["observers"].pop()
    for name, size in (("observer_ranks", 1), ("observer_factors", 8), ("observer_weights", 2)):
        arrays[name] = arrays[name][:size]


TOLD: list[tuple[str, Callable[[Manifest, Arrays], None], str]] = [
    ("in space", caps_that_are_free, "dual_cap is the price of no limit"),
    ("in space", half_the_gap, "lower bound 2.06"),
    ("in time", twice_the_noise, "lower bound 50.1"),
    ("in time", half_the_gap, "lower bound 33.4"),
    ("in time", a_budget_in_time, "sensitivity 99.9"),
    ("in time", steps_without_noise, "(3,3) (6,6)"),
    ("overlapping", steps_of_no_pattern, "steps are of no pattern"),
    ("within limits", above_its_caps, "variance_ratio 1.4"),
    ("within limits", below_its_floors, "floor_ratio 1.5"),
    ("within limits", floors_at_a_negative_price, "lower bound 3.38"),
    ("in time", looking_ahead, "C or C^-1 is not causal"),
    ("in space", put("gap", -1e-3), "the gap is another"),
    ("in space", put("sensitivity.squared", False), "it says: not feasible"),
    ("in space", put("sensitivity.value", 0.5), "sensitivity: 0.5 is claimed, 0.99"),
    ("in time", put("objective", 25), "objective: 25 is claimed, 25.09"),
    ("shared seeds", a_block_below_zero, "ositive definite"),
    ("shared seeds", seeds_of_others, "covariance is not the sum of clique_blocks"),
    ("shared seeds", above_all_noise, "lower bound 1.57"),
    ("shared seeds", by_its_structure, "lower bound 1.57"),
    ("shared seeds", hardly_a_link, "mixing is not what"),
    ("shared seeds", half_the_gap, "lower bound 2.09"),
    ("banded", above_all_noise, "lower bound 27.9"),
    ("banded", half_the_gap, "lower bound 37.2"),
    ("observers", less_noise, "sensitivity 1.1"),
    ("observers", half_the_gap, "lower bound 0.51"),
    ("observers", hardly_a_link, "mixing is not what"),
    ("observers", seen_in_sums, "such observers"),
    ("observers", heard_by_one, "observers is not what"),
    ("in time", lambda _, arrays: arrays.pop("strategy"), "missing: KeyError('strategy')"),
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
    assert said.code in (1, 2)
    assert words in said.words
    assert said.words.count("\n") == 1
    assert found is None or not found.ok


TEXTS: list[tuple[str, str, str, str]] = [
    ("in space", '"path"', '"ring"', "mixing is not what"),
    ("in space", "nodes = 4", "nodes = 4000", "nodes is not what"),
    ("in space", '"path"', '"path"\nweights = "row-normalized"', "mixing is not what"),
    ("in space", "tau = [1.0, ", "tau = [-1.0, ", "budget is not what"),
    ("in space", "tau = [1.0, ", "tau = [", "budget is not what"),
    ("in space", "epsilon = 2.0", "epsilon = 1.0", "epsilon is not what"),
    ("in space", '[graph]\nkind = "path"\nnodes = 4', "", "missing: KeyError('graph')"),
    ("in space", '"space"', '"space-time"', "design is not what"),
    (
        "in space",
        "[privacy]",
        "[limits]\nmax_variance = 9.0\n[privacy]",
        "max_variance is not what",
    ),
    ("within limits", "max_variance = 1.5", "max_variance = 1.4", "max_variance is not what"),
    ("in time", '"prefix"', '"gram"', "workload is not what"),
    ("in time", '"prefix"', '"decentralized"', "workload is not what"),
    ("in time", "epochs = 2", "epochs = 0", "participation is not what"),
    ("in time", "epochs = 2\nseparation = 3", 'kind = "single"\nhorizon = 6', "participation is"),
    (
        "in time",
        "epochs = 2\nseparation = 3",
        'kind = "every-step"\nhorizon = 6',
        "participation is",
    ),
    ("in time", "[privacy]", "[budget]\ntau = 2.0\n[privacy]", "pattern_budget is not what"),
    ("of models", '"ring"', '"path"', "mixing is not what"),
    ("overlapping", "horizon = 5", "horizon = 90", "participation is not what"),
    ("banded", "bands = 2", "bands = 3", "bands is not what"),
    ("banded", '[structure]\ntime = "banded"\nbands = 2\n', "", "time is not what"),
    ("shared seeds", '"edge-local"', '"neighbourhood"', "space is not what"),
    ("shared seeds", '[structure]\nspace = "edge-local"\n', "", "space is not what"),
    ("observers", "nodes = [0, 2]", "nodes = [0, 1]", "observers is not what"),
    ("observers", "nodes = [0, 2]\n", "", "observers is not what"),
    ("observers", "horizon = 1", "horizon = 2", "observers is not what"),
]


def test_the_checker_says_what_the_text_asks_for_otherwise(tmp_path: Path) -> None:
    path = tmp_path / "d.npz"
    for name, old, new, words in TEXTS:
        manifest, arrays = opened(honest(name, tmp_path))
        of_another_text(manifest, old, new)
        path.write_bytes(written(manifest, arrays))
        said = checked(path)
        assert (said.code > 0, words in said.words) == (True, True), (words, said)


def test_the_checker_knows_that_no_limit_was_asked_for(tmp_path: Path) -> None:
    manifest, arrays = opened(honest("in space", tmp_path))
    of_another_text(manifest, "[privacy]", '[limits]\nmax_variance = "none"\n[privacy]')
    (tmp_path / "d.npz").write_bytes(written(manifest, arrays))
    assert checked(tmp_path / "d.npz").code == 0


@pytest.mark.parametrize(
    ("name", "words"), [("ldp", "KeyError('pattern_lengths')"), ("cdp", "central: not checked")]
)
def test_the_checker_does_not_cover_baselines(name: str, words: str, tmp_path: Path) -> None:
    text = FILES["in space"]
    design = baseline(parse_problem(text, folder=tmp_path).problem, name)
    said = checked(save_design(design, tmp_path / "d.npz", problem_text=text))
    assert (said.code, words in said.words) == (2, True), said


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


LINKED = ("ring", "complete", "star")
"""Of which the checker knows the links."""


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
        assert ("file: nothing" in said.words) == (kind in LINKED), said.words
