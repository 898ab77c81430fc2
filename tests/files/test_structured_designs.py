"""Design files of structured and joint designs: kept whole, judged again, caught when falsified."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest

from noisedesign.base.checks import InputError
from noisedesign.design.design import Design
from noisedesign.design.solve import solve
from noisedesign.files.design_arrays import arrays_of
from noisedesign.files.design_file import load_design, save_design
from noisedesign.files.problem_file import parse_problem
from noisedesign.problem.problem import SpaceProblem, SpaceTimeProblem, TimeProblem
from noisedesign.system.random_mixing import RandomMatchings
from noisedesign.tasks.verify import Verification, verify
from tests.support import ROOT, oracles
from tests.support.command_line import call
from tests.support.small_designs import falsify, single_epoch_design, space_design

DATA = ROOT / "tests" / "data"
Edit = Callable[[dict[str, Any], dict[str, np.ndarray]], None]

PATH_4 = '[graph]\nkind = "path"\nnodes = 4\n'
W_4 = oracles.metropolis(nx.path_graph(4))
TWO_BY_THREE = "[participation]\nepochs = 2\nseparation = 3\n"
APART = (
    '[participation]\nkind = "min-separation"\nhorizon = 7\nseparation = 3\n'
    "max_participations = 2\n"
)
SPACE = 'name = "x"\ndesign = "space"\n' + PATH_4
TIME = 'name = "x"\ndesign = "time"\n[workload]\nkind = "decentralized"\n' + PATH_4 + TWO_BY_THREE
OVERLAPPING = TIME.replace(TWO_BY_THREE, APART)
JOINT = 'name = "x"\ndesign = "space-time"\n' + PATH_4 + TWO_BY_THREE
ONCE = JOINT.replace("epochs = 2\nseparation = 3", "epochs = 1\nseparation = 4")
FULL = '[structure]\njoint = "full"\n'
CAP = "[limits]\nmax_variance = 1.25\n"
ERROR = '[error]\nof = "all-iterates"\nnode_weights = [1, 2, 3, 4]\nmomentum = 0.5\n'

TEXTS = {
    "banded": TIME + '[structure]\ntime = "banded"\nbands = 2\n',
    "toeplitz": TIME + '[structure]\ntime = "toeplitz"\n',
    "banded-inverse": TIME + '[structure]\ntime = "banded-inverse"\nbands = 2\n',
    "blt": TIME + '[structure]\ntime = "blt"\nbuffers = 1\n',
    "signed-toeplitz": TIME + '[structure]\ntime = "signed-toeplitz"\n',
    "signed-blt": TIME + '[structure]\ntime = "signed-blt"\nbuffers = 2\n',
    "banded, overlapping": OVERLAPPING + '[structure]\ntime = "banded"\nbands = 3\n',
    "toeplitz, overlapping": OVERLAPPING + '[structure]\ntime = "toeplitz"\n',
    "overlapping": OVERLAPPING,
    "decor": SPACE + '[structure]\nspace = "decor"\n',
    "decor, capped": SPACE + '[structure]\nspace = "decor"\n' + CAP,
    "independent": SPACE + '[structure]\nspace = "independent"\n',
    "edge-local": SPACE + '[structure]\nspace = "edge-local"\n',
    "edge-local, known seeds": SPACE + '[structure]\nspace = "edge-local"\nknown_seeds = 1\n',
    "kronecker": JOINT,
    "kronecker, capped": JOINT + CAP,
    "kronecker, structured": JOINT + '[structure]\ntime = "banded"\nbands = 2\nspace = "decor"\n',
    "kronecker, edge failures": JOINT + "[mixing]\nedge_failure = 0.2\n",
    "kronecker, error": JOINT + ERROR,
    "full": JOINT + FULL,
    "full, budgets": JOINT + FULL + "[budget]\ntau = [1.0, 2.0, 0.5, 1.0]\n",
    "full, capped": ONCE + FULL + CAP,
    "full, matchings": JOINT + FULL + '[mixing]\nmatching = "maximal"\n',
    "error in space": SPACE + ERROR + "horizon = 3\n",
    "dropout in space": SPACE + "[mixing]\ndropout = [0.1, 0.2, 0.3, 0.0]\n",
    "matchings in time": TIME + '[mixing]\nmatching = "pairwise"\n',
    "schedule in time": TIME + "[error]\nlearning_rates = [1, 0.9, 0.8, 0.7, 0.6, 0.5]\n",
}


@cache
def solved(kind: str) -> Design:
    found = solve(parse_problem(TEXTS[kind], folder=".").problem).design
    assert found is not None
    return found


def verified(kind: str, path: Path, *, edit: Edit | None = None) -> Verification:
    save_design(solved(kind), path, problem_text=TEXTS[kind])
    if edit is not None:
        falsify(path, edit)
    return verify(load_design(path))


def failed(outcome: Verification) -> set[str]:
    return {check.name for check in outcome.checks if check.ok is False}


# --- kept whole -----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", TEXTS)
def test_every_kind_survives_its_file_and_is_verified(kind: str, tmp_path: Path) -> None:
    design = solved(kind)
    path = save_design(design, tmp_path / "d.npz", problem_text=TEXTS[kind])
    stored = load_design(path)
    again, outcome = stored.design, verify(stored)
    assert outcome.ok, outcome
    # Nothing is left unchecked: every bound, where one is claimed, is proved by the file.
    assert [check.name for check in outcome.checks if check.ok is None] == []
    names = {check.name for check in outcome.checks}
    assert ("structure" in names) == (stored.manifest["structure"] is not None)
    np.testing.assert_array_equal(again.matrix, design.matrix)
    assert again.certificate == design.certificate
    assert (again.local, again.trust) == (design.local, "local")
    assert set(again.proof) == set(design.proof)
    assert set(again.relaxed_proof) == set(design.relaxed_proof)
    for name, array in design.relaxed_proof.items():
        np.testing.assert_array_equal(again.relaxed_proof[name], array)
    for name, array in design.proof.items():
        np.testing.assert_array_equal(again.proof[name], array)
    assert (again.noise.space is None) == (design.noise.space is None)
    if design.noise.space is not None:
        np.testing.assert_array_equal(again.covariance, design.covariance)
    # The same design gives the same bytes, whoever holds it.
    second = save_design(again, tmp_path / "e.npz", problem_text=TEXTS[kind])
    assert second.read_bytes() == path.read_bytes()


@pytest.mark.parametrize("kind", TEXTS)
def test_the_problem_comes_back(kind: str, tmp_path: Path) -> None:
    problem = solved(kind).problem
    again = load_design(save_design(solved(kind), tmp_path / "d.npz")).design.problem
    assert type(again) is type(problem)
    assert again.nodes == problem.nodes
    if isinstance(problem, SpaceTimeProblem):
        assert isinstance(again, SpaceTimeProblem)
        assert (again.time, again.space, again.joint) == (
            problem.time,
            problem.space,
            problem.joint,
        )
    else:
        assert not isinstance(again, SpaceTimeProblem)
        assert again.structure == problem.structure
        np.testing.assert_array_equal(again.gram, problem.gram)
    if not isinstance(problem, SpaceProblem):
        assert not isinstance(again, SpaceProblem)
        assert again.participation == problem.participation
    assert (again.error is None) == (problem.error is None)
    assert (again.random is None) == (problem.random is None)


def test_what_is_written(tmp_path: Path) -> None:
    manifest = load_design(save_design(solved("kronecker, error"), tmp_path / "d.npz")).manifest
    assert manifest["version"] == 5
    assert manifest["structure"] == {
        "time": "dense",
        "bands": None,
        "buffers": None,
        "nonnegative": None,
        "space": "dense",
        "hops": None,
        "clusters": None,
        "known_seeds": 0,
        "joint": "kronecker",
    }
    assert manifest["error"] == {
        "horizon": 6,
        "of": "all-iterates",
        "node_weights": [1.0, 2.0, 3.0, 4.0],
        "step_weights": None,
        "learning_rates": None,
        "learning_rate": None,
        "momentum": 0.5,
        "curvature": None,
        "curvature_weights": None,
        "weight_decay": 0.0,
        "share": 1.0,
        "mean": "plain",
        "push_sum": False,
    }
    assert manifest["local"] is True
    assert manifest["unrestricted_lower_bound"] == manifest["lower_bound"]
    full = load_design(save_design(solved("full, matchings"), tmp_path / "f.npz"))
    assert full.manifest["random"]["kind"] == "matchings"
    assert full.manifest["random"]["matchings"] == [[[0, 1], [2, 3]], [[1, 2]]]
    assert full.arrays["strategy"].shape == (24, 24)
    assert "covariance" not in full.arrays
    space = load_design(save_design(solved("dropout in space"), tmp_path / "s.npz")).manifest
    assert space["random"] == {
        "kind": "dropout",
        "probability": [0.1, 0.2, 0.3, 0.0],
        "matchings": None,
    }
    assert (space["structure"], space["local"]) == (None, False)


def test_matchings_of_unequal_probability_have_no_place_in_a_file(tmp_path: Path) -> None:
    random = RandomMatchings(
        nodes=4, matchings=(((0, 1), (2, 3)), ((1, 2),)), probabilities=np.array([0.75, 0.25])
    )
    problem = SpaceProblem(mixing=W_4, random=random, max_variance=5.0)
    design = solve(problem).design
    assert design is not None
    with pytest.raises(InputError, match="^random: expected .*equally likely matchings"):
        save_design(design, tmp_path / "d.npz")


def test_version_one_is_still_read(tmp_path: Path) -> None:
    """Files of before there were structures: none of the later keys, and verified all the same."""

    def as_of_version_one(manifest: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        manifest["version"] = 1
        for key in ("structure", "error", "random", "unrestricted_lower_bound", "local"):
            del manifest[key]
        if manifest["participation"] is not None:
            for key in ("horizon", "max_participations"):
                del manifest["participation"][key]

    for design in (space_design(), single_epoch_design()):
        path = save_design(design, tmp_path / "d.npz")
        falsify(path, as_of_version_one)
        stored = load_design(path)
        assert stored.manifest["version"] == 1
        assert (stored.design.local, dict(stored.design.relaxed_proof)) == (False, {})
        assert stored.design.proof
        assert verify(stored).ok


@pytest.mark.parametrize("kind", ["banded", "banded-inverse", "blt", "kronecker"])
def test_version_two_is_still_read(kind: str, tmp_path: Path) -> None:
    """Files of before strategies were stored by their bands, coefficients or buffers."""
    stored = load_design(DATA / f"version-2-{kind}.npz")
    assert stored.manifest["version"] == 2
    assert {"strategy", "noising_matrix"} <= set(stored.arrays)
    outcome = verify(stored)
    assert outcome.ok, outcome
    # Saved again it is a file of now, as large as before: nobody knows its buffers.
    again = load_design(save_design(stored.design, tmp_path / "d.npz", problem_text="")).manifest
    assert (again["version"], again["matrix"]) == (5, "strategy")
    new = solved({"kronecker": "kronecker, structured"}.get(kind, kind))
    np.testing.assert_allclose(stored.design.matrix, new.matrix, rtol=1e-3, atol=1e-3)


def test_a_later_version_is_not(tmp_path: Path) -> None:
    path = save_design(space_design(), tmp_path / "d.npz")
    falsify(path, lambda manifest, arrays: manifest.update(version=6))
    with pytest.raises(InputError, match=r"version: expected version 5, got version 6"):
        load_design(path)


# --- falsified ------------------------------------------------------------------------------------


def claim(**values: Any) -> Edit:
    return lambda manifest, arrays: manifest.update(values)


def better(manifest: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    manifest["objective"] *= 0.99
    manifest["gap"] = manifest["objective"] / manifest["lower_bound"] - 1


def tighter(manifest: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    manifest["lower_bound"] *= 1.001
    manifest["gap"] = manifest["objective"] / manifest["lower_bound"] - 1


def scaled(name: str, factor: float) -> Edit:
    def edit(manifest: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        arrays[name] = arrays[name] * factor

    return edit


def without(*names: str) -> Edit:
    def edit(manifest: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        for name in names:
            del arrays[name], manifest["arrays"][name]

    return edit


def nested(table: str, **values: Any) -> Edit:
    return lambda manifest, arrays: manifest[table].update(values)


ANY_LIES: list[tuple[Edit, set[str]]] = [
    (better, {"objective", "gap"}),
    (tighter, {"lower bound", "gap"}),
    (claim(gap=0.0), {"manifest"}),
    (lambda manifest, arrays: manifest["sensitivity"].update(value=0.9), {"sensitivity"}),
]


@pytest.mark.parametrize("kind", TEXTS)
@pytest.mark.parametrize(("edit", "expected"), ANY_LIES)
def test_falsified_numbers_are_found(
    kind: str, edit: Edit, expected: set[str], tmp_path: Path
) -> None:
    assert expected <= failed(verified(kind, tmp_path / "d.npz", edit=edit))


STATES_THE_SCALE = {
    "strategy",
    "strategy_bands",
    "strategy_coefficients",
    "noising_coefficients",
    "strategy_diagonal",
    "covariance",
}


@pytest.mark.parametrize("kind", TEXTS)
def test_more_noise_than_needed_or_less(kind: str, tmp_path: Path) -> None:
    # Of a joint design that of C.
    name, *_ = sorted(STATES_THE_SCALE & set(arrays_of(solved(kind))), key="covariance".__eq__)
    less_noise = 0.99 if name in ("covariance", "noising_coefficients") else 1.01
    found = failed(verified(kind, tmp_path / "d.npz", edit=scaled(name, less_noise)))
    assert {"objective", "sensitivity", "feasible"} <= found


def once(manifest: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    manifest["participation"] = {"epochs": 1, "separation": 6}
    arrays["dual_roots"] = np.ones((len(arrays["dual_roots"]), 6, 1, 1))


def lent(manifest: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    """Variance of node 1 from the block of (0, 1) to that of (1, 2): R as before, of no seeds."""
    blocks = arrays["clique_blocks"].copy()
    blocks[3], blocks[4] = blocks[3] - 10, blocks[4] + 10
    arrays["clique_blocks"] = blocks


def in_full(manifest: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    """Multipliers as they were stored once, and none that prove anything."""
    del arrays["dual_shares"], manifest["arrays"]["dual_shares"]
    arrays["dual_matrix"] = np.zeros((6, 6))


def fewer_shares(manifest: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    arrays["dual_shares"] = arrays["dual_shares"][1:].copy()


LIES: list[tuple[str, str, Edit, set[str]]] = [
    # Without its multipliers a file proves no bound, and may not claim one.
    ("banded", "no bound", without("dual_shares"), {"lower bound"}),
    ("banded", "no unrestricted bound", without("unrestricted_blocks"), {"unrestricted bound"}),
    ("toeplitz", "no bound", without("unrestricted_blocks"), {"lower bound", "unrestricted bound"}),
    ("decor", "no bound", without("unrestricted_weights"), {"lower bound", "unrestricted bound"}),
    ("decor, capped", "no price of the cap", without("unrestricted_cap"), {"lower bound"}),
    ("kronecker", "no bound", without("dual_roots", "dual_turns"), {"lower bound"}),
    ("kronecker", "half a bound", without("dual_turns"), {"lower bound"}),
    ("full, capped", "no price of the cap", without("dual_cap"), {"lower bound"}),
    ("banded", "multipliers", in_full, {"lower bound"}),
    ("banded", "shares of another horizon", fewer_shares, {"lower bound"}),
    ("overlapping", "multipliers", scaled("pattern_blocks", 0.0), {"lower bound"}),
    # The bound of a restricted design is none on all designs.
    ("banded", "global", claim(local=True), {"lower bound"}),
    ("banded", "unrestricted", claim(unrestricted_lower_bound=1e6), {"unrestricted bound"}),
    ("toeplitz", "global", claim(local=False), {"lower bound"}),
    ("kronecker", "unrestricted", claim(unrestricted_lower_bound=1e6), {"unrestricted bound"}),
    # A structure it does not have.
    ("banded", "fewer bands", nested("structure", bands=1), {"structure", "problem"}),
    ("banded", "toeplitz", nested("structure", time="toeplitz", bands=None), {"structure"}),
    ("toeplitz", "banded", nested("structure", time="banded", bands=2), {"structure"}),
    (
        "toeplitz",
        "banded inverse",
        nested("structure", time="banded-inverse", bands=2),
        {"structure"},
    ),
    ("toeplitz", "buffered", nested("structure", time="blt", buffers=1), {"structure"}),
    (
        "blt",
        "banded inverse",
        nested("structure", time="banded-inverse", bands=2, buffers=None),
        {"structure"},
    ),
    ("signed-blt", "one buffer", nested("structure", buffers=1), {"structure", "problem"}),
    ("decor", "independent", nested("structure", space="independent"), {"structure", "problem"}),
    ("kronecker", "banded", nested("structure", time="banded", bands=2), {"structure", "problem"}),
    ("kronecker", "decor", nested("structure", space="decor"), {"structure", "problem"}),
    ("kronecker", "edge-local", nested("structure", space="edge-local"), {"structure"}),
    # Zeros where they belong, and not what the seeds make.
    ("edge-local", "less noise", scaled("covariance", 0.99), {"structure", "sensitivity"}),
    ("edge-local", "more noise", scaled("covariance", 1.01), {"structure", "objective"}),
    ("edge-local", "no seeds", lent, {"sensitivity", "feasible"}),
    (
        "edge-local, known seeds",
        "more noise",
        scaled("covariance", 1.01),
        {"structure", "objective", "sensitivity", "feasible"},
    ),
    # Another error, another mixing, other limits.
    ("kronecker, error", "momentum", nested("error", momentum=0.4), {"objective", "problem"}),
    (
        "kronecker, error",
        "weights",
        nested("error", node_weights=[1.0, 2.0, 3.0, 4.1]),
        {"objective", "problem"},
    ),
    (
        "kronecker, edge failures",
        "fewer failures",
        nested("random", probability=0.1),
        {"objective", "problem"},
    ),
    ("kronecker, edge failures", "no failures", claim(random=None), {"objective", "problem"}),
    ("schedule in time", "momentum", nested("error", momentum=0.1), {"workload"}),
    ("dropout in space", "all are in", nested("random", probability=0.0), {"objective", "problem"}),
    ("kronecker", "fewer epochs", once, {"problem"}),
    ("kronecker, capped", "cap", scaled("max_variance", 0.9), {"sensitivity", "feasible"}),
    ("full, capped", "cap", scaled("max_variance", 0.9), {"sensitivity", "feasible"}),
    ("full, budgets", "budgets", scaled("budget", 0.5), {"sensitivity", "feasible", "problem"}),
    ("kronecker", "budgets", scaled("budget", 0.5), {"sensitivity", "feasible", "problem"}),
    (
        "kronecker",
        "less noise in space",
        scaled("covariance", 0.99),
        {"objective", "sensitivity", "feasible"},
    ),
]


@pytest.mark.parametrize(
    ("kind", "edit", "expected"),
    [(kind, edit, expected) for kind, _, edit, expected in LIES],
    ids=[f"{kind}: {what}" for kind, what, _, _ in LIES],
)
def test_falsified_designs_are_found(
    kind: str, edit: Edit, expected: set[str], tmp_path: Path
) -> None:
    assert expected <= failed(verified(kind, tmp_path / "d.npz", edit=edit))


@pytest.mark.parametrize("kind", ["banded", "toeplitz", "decor", "independent", "edge-local"])
def test_the_optimum_without_a_structure_is_not_passed_off_as_one_with_it(
    kind: str, tmp_path: Path
) -> None:
    """A smaller objective, feasible, its number honestly stated: only the structure is missing."""
    better_one = solve(free(solved(kind).problem)).design
    assert better_one is not None
    assert better_one.objective < solved(kind).objective

    def swap(manifest: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        name = manifest["matrix"]
        if name == "covariance":
            arrays[name] = better_one.matrix.copy()
        else:
            manifest["matrix"] = "strategy"
            manifest["arrays"].pop(name)
            del arrays[name]
            arrays["strategy"] = better_one.matrix.copy()
            arrays["noising_matrix"] = better_one.noising_matrix.copy()
            arrays["gram"] = better_one.problem.gram.copy()
            for added, symbol in (("strategy", "C"), ("noising_matrix", "C^-1"), ("gram", "H")):
                manifest["arrays"][added] = {"kind": symbol, "dtype": "float64"}
        manifest["sensitivity"]["value"] = better_one.certificate.sensitivity_squared
        manifest["objective"] = better_one.objective
        manifest["gap"] = better_one.objective / manifest["lower_bound"] - 1

    path = save_design(solved(kind), tmp_path / "d.npz", problem_text=TEXTS[kind])
    if kind == "banded":  # whose bound stands by itself, as C would not prove it any more
        path.write_bytes((DATA / "version-2-banded.npz").read_bytes())
    falsify(path, swap)
    assert failed(verify(load_design(path))) == {"structure"}


def free(problem: Any) -> SpaceProblem | TimeProblem:
    """The same problem without a structure."""
    assert isinstance(problem, SpaceProblem | TimeProblem)
    return replace(problem, structure=type(problem.structure)())


def test_arrays_of_another_kind_are_refused(tmp_path: Path) -> None:
    def add(name: str, array: np.ndarray) -> Edit:
        def edit(manifest: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
            arrays[name] = array

        return edit

    for kind, name, array in [
        ("full", "covariance", np.eye(4)),
        ("banded", "covariance", np.eye(4)),
        ("toeplitz", "budget", np.ones(4)),
        ("kronecker", "min_variance", np.ones(4)),
        ("kronecker", "dual_cap", np.ones(6)),
        ("banded", "dual_weights", np.ones(6)),
        ("kronecker", "dual_weights", np.ones(3)),
        ("banded", "strategy_bands", np.ones((7, 6))),
        ("toeplitz", "strategy", np.eye(6)),
        ("banded-inverse", "noising_coefficients", -np.ones(2)),
        ("blt", "strategy_diagonal", np.zeros(1)),
        ("signed-blt", "strategy_diagonal", np.zeros(1)),
    ]:
        path = save_design(solved(kind), tmp_path / "d.npz")
        falsify(path, add(name, array))
        with pytest.raises(InputError, match=rf"^design file\.{name}"):
            load_design(path)


# --- what `solve` prints --------------------------------------------------------------------------


def test_json_of_solve(tmp_path: Path) -> None:
    for kind in ("toeplitz", "decor", "kronecker", "full", "overlapping", "error in space"):
        (tmp_path / "p.toml").write_text(TEXTS[kind])
        code, out, _ = call("solve", str(tmp_path / "p.toml"), "--json")
        record = json.loads(out)
        design = solved(kind)
        assert code == 0
        bound = design.certificate.unrestricted_lower_bound or design.lower_bound
        assert record["relative_to_unrestricted"] == pytest.approx(design.objective / bound)
        assert 0 < record["relative_to_ldp"] < 1
        assert record["status"] == ("local-optimum" if design.local else "optimal")
        assert record["feasible"] is True


LDP = {
    # tr(W W^T): rows (2, 1, 0, 0) / 3 and (1, 1, 1, 0) / 3 twice.
    "decor": 2 * 5 / 9 + 2 * 3 / 9,
    # k tr H of all iterates, two participations in six steps: 2 sum_a (7 - a) tr W^(2a).
    "toeplitz": 2
    * sum((7 - a) * np.trace(np.linalg.matrix_power(W_4, 2 * a)) for a in range(1, 7)),
}


@pytest.mark.parametrize("kind", LDP)
def test_relative_to_ldp_by_hand(kind: str, tmp_path: Path) -> None:
    (tmp_path / "p.toml").write_text(TEXTS[kind])
    record = json.loads(call("solve", str(tmp_path / "p.toml"), "--json")[1])
    assert record["relative_to_ldp"] == pytest.approx(record["objective"] / LDP[kind])


def test_the_seal_covers_the_witness(tmp_path: Path) -> None:
    content = save_design(solved("banded"), tmp_path / "d.npz").read_bytes()
    assert content[-64:].decode() == hashlib.sha256(content[:-64]).hexdigest()
    where = content.index(b"dual_shares.npy") + 300
    changed = bytearray(content)
    changed[where] ^= 1
    (tmp_path / "d.npz").write_bytes(bytes(changed))
    with pytest.raises(InputError, match="^design file"):
        load_design(tmp_path / "d.npz")


def test_the_covariance_of_a_joint_design_is_what_its_seeds_make(tmp_path: Path) -> None:
    """More noise, with zeros where they belong: only the seeds would not make it."""
    text = JOINT + '[structure]\nspace = "edge-local"\n'
    design = solve(parse_problem(text, folder=".").problem).design
    assert design is not None
    path = save_design(design, tmp_path / "d.npz", problem_text=text)
    assert verify(load_design(path)).ok
    falsify(path, scaled("clique_blocks", 1.01))
    assert failed(verify(load_design(path))) == {"structure"}


# --- size -----------------------------------------------------------------------------------------

OF_FEW_NUMBERS = {
    # Doubles a step that C, its bound and the bound on all designs take.
    'time = "banded"\nbands = 3\n': 3 + 1 + 1,
    'time = "banded-inverse"\nbands = 3\n': 1,
    'time = "toeplitz"\n': 1 + 1,
    'time = "blt"\nbuffers = 2\n': 1,
}


@pytest.mark.parametrize("structure", OF_FEW_NUMBERS)
def test_a_file_grows_with_the_horizon_and_not_with_its_square(
    structure: str, tmp_path: Path
) -> None:
    sizes = {}
    for horizon in (50, 200):
        text = (
            'name = "x"\ndesign = "time"\n[workload]\nkind = "prefix"\n[participation]\n'
            f"epochs = 1\nseparation = {horizon}\n[structure]\n{structure}"
        )
        design = solve(parse_problem(text, folder=".").problem, gap=1e-3).design
        assert design is not None
        # The history of the bounds is as long as the search was.
        design = replace(design, provenance=replace(design.provenance, history=()))
        path = save_design(design, tmp_path / "d.npz", problem_text=text)
        assert verify(load_design(path)).ok
        sizes[horizon] = path.stat().st_size
    assert sizes[200] - sizes[50] < 8 * 150 * OF_FEW_NUMBERS[structure] + 300
    assert sizes[200] < 8 * 200 * 200 / 8


def test_a_small_file_does_not_fill_memory(tmp_path: Path) -> None:
    """A horizon that the bands, coefficients or buffers of a file do not bound."""

    def long(manifest: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        manifest["horizon"] = 10_000_000
        manifest["participation"] = {"epochs": 1, "separation": 10_000_000}
        del arrays["unrestricted_blocks"], manifest["arrays"]["unrestricted_blocks"]

    path = save_design(solved("blt"), tmp_path / "d.npz")
    falsify(path, long)
    with pytest.raises(InputError, match=r"^design file\.horizon: .*fit"):
        load_design(path)
