"""Verification accepts what is true by hand, and finds every falsified claim."""

from __future__ import annotations

import contextlib
import os
import typing
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest

from noisedesign.base import memory
from noisedesign.base.checks import InputError
from noisedesign.certify.certificate import Certificate
from noisedesign.design.design import Design
from noisedesign.design.solve import solve
from noisedesign.files import design_file as rebuild, graph_tables, problem_file
from noisedesign.files.design_file import load_design, save_design
from noisedesign.files.problem_file import parse_problem
from noisedesign.files.schema import Table
from noisedesign.mechanisms.baselines import baseline, baseline_names
from noisedesign.problem.problem import SpaceProblem, TimeProblem
from noisedesign.system.graph import mixing_matrix
from noisedesign.system.participation import FixedEpoch
from noisedesign.tasks.verify import Check, Verification, verify
from tests.support.made_designs import made, with_matrix
from tests.support.small_designs import (
    PATH_3,
    PROVENANCE,
    TARGET,
    capped_design,
    falsify,
    single_epoch_design,
    space_design,
    time_design,
)

Edit = Callable[[dict[str, Any], dict[str, np.ndarray]], None]


def verified(
    design: Design, path: Path, *, edit: Edit | None = None, text: str = ""
) -> Verification:
    save_design(design, path, problem_text=text)
    if edit is not None:
        falsify(path, edit)
    return verify(load_design(path))


def failed(outcome: Verification) -> set[str]:
    return {check.name for check in outcome.checks if check.ok is False}


def by_name(outcome: Verification) -> dict[str, Check]:
    found = {check.name: check for check in outcome.checks}
    assert len(found) == len(outcome.checks)
    return found


# --- honest designs -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "design",
    [
        space_design(privacy=replace(TARGET, steps=10)),
        capped_design(),
        single_epoch_design(),
        time_design(privacy=TARGET),
        time_design(decentralized=False),
    ],
    ids=lambda design: design.problem.name,
)
def test_designs_worked_out_by_hand_are_verified(design: Design, tmp_path: Path) -> None:
    outcome = verified(design, tmp_path / "d.npz")
    assert outcome.ok, outcome
    checks = by_name(outcome)
    assert checks["objective"].found == pytest.approx(design.objective, rel=1e-12)
    assert checks["lower bound"].found == pytest.approx(design.lower_bound, rel=1e-12)
    for name in ("objective", "sensitivity", "feasible", "lower bound", "gap", "manifest"):
        assert checks[name].ok is True
    assert checks["problem"].ok is None
    assert "no problem text" in checks["problem"].note
    assert "problem text" not in checks


def test_every_baseline_and_the_optimum_are_verified(tmp_path: Path) -> None:
    participation = FixedEpoch(epochs=2, separation=3)
    problems = (
        SpaceProblem(mixing=PATH_3, budget=np.array([1.0, 2.0, 3.0]), max_variance=9.0),
        TimeProblem.decentralized(mixing=PATH_3, participation=participation),
        TimeProblem.prefix(participation=participation),
    )
    for problem in problems:
        best = solve(problem).design
        assert best is not None
        assert best.gap < 1e-6
        for design in (best, *(baseline(problem, name) for name in baseline_names(problem))):
            outcome = verified(design, tmp_path / "d.npz")
            assert outcome.ok, (design.provenance.method, outcome)


def test_a_weaker_bound_than_proved_is_no_lie(tmp_path: Path) -> None:
    design = space_design()
    certificate = replace(design.certificate, lower_bound=0.5)
    assert verified(replace(design, certificate=certificate), tmp_path / "d.npz").ok
    certificate = replace(design.certificate, lower_bound=0.0)
    assert certificate.gap == float("inf")
    assert verified(replace(design, certificate=certificate), tmp_path / "d.npz").ok


def test_without_multipliers_the_uniform_bound_is_what_can_be_claimed(tmp_path: Path) -> None:
    # single_epoch_design's own multipliers prove (5 + 2 sqrt 2) / 3 = 2.609; uniform ones prove
    # (tr H^1/2)^2 / 2 with H = [[2, 1], [1, 1]]: (3 + 2) / 2 = 2.5.
    design = replace(single_epoch_design(), proof={})
    outcome = verified(design, tmp_path / "d.npz")
    assert failed(outcome) == {"lower bound", "gap"}
    assert by_name(outcome)["lower bound"].found == pytest.approx(2.5, rel=1e-12)
    certificate = replace(design.certificate, lower_bound=2.5)
    assert verified(replace(design, certificate=certificate), tmp_path / "d.npz").ok


# --- a trusted server -----------------------------------------------------------------------


def central_space() -> Design:
    """One noise of variance 1 / n^2 for all: tr(W R W^T) = sum over rows (sum W_ij)^2 / 9 = 1/3."""
    certificate = Certificate(
        objective=1 / 3, lower_bound=25 / 27, sensitivity_squared=float("inf")
    )
    problem = SpaceProblem(mixing=PATH_3)
    return made(
        problem=problem,
        matrix=np.full((3, 3), 1 / 9),
        certificate=certificate,
        provenance=PROVENANCE,
        trust="central",
    )


def central_time() -> Design:
    """Prefix sums of one stream at three nodes, T = 2, C = I: 3 (2 + 1) / 3^2 = 1."""
    participation = FixedEpoch(epochs=1, separation=2)
    problem = TimeProblem.decentralized(mixing=PATH_3, participation=participation)
    certificate = Certificate(objective=1.0, lower_bound=0.0, sensitivity_squared=1.0)
    return made(
        problem=problem,
        matrix=np.eye(2),
        certificate=certificate,
        provenance=PROVENANCE,
        trust="central",
    )


@pytest.mark.parametrize("make", [central_space, central_time])
def test_a_central_design_claims_its_objective_only(
    make: Callable[[], Design], tmp_path: Path
) -> None:
    design = make()
    outcome = verified(design, tmp_path / "d.npz")
    assert outcome.ok, outcome
    checks = by_name(outcome)
    assert checks["objective"].ok is True
    for name in ("sensitivity", "feasible", "lower bound", "gap"):
        assert checks[name].ok is None
        assert "trusted server" in checks[name].note
    certificate = replace(design.certificate, objective=design.objective * (1 + 1e-6))
    lying = verified(replace(design, certificate=certificate), tmp_path / "d.npz")
    assert failed(lying) == {"objective"}


def test_a_central_design_is_no_local_one(tmp_path: Path) -> None:
    outcome = verified(replace(central_space(), trust="local"), tmp_path / "d.npz")
    assert "feasible" in failed(outcome)


# --- falsified files ------------------------------------------------------------------------


def claim(**values: Any) -> Edit:
    def edit(manifest: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        manifest.update(values)

    return edit


def change(name: str, by: Callable[[np.ndarray], np.ndarray]) -> Edit:
    def edit(manifest: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        arrays[name] = by(arrays[name])
        if name == "gram":  # whose factor would be another's
            del arrays["workload_factor"], manifest["arrays"]["workload_factor"]

    return edit


def entry(array: np.ndarray, where: tuple[int, ...], value: float) -> np.ndarray:
    array[where] = value
    return array


def lower_objective(manifest: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    manifest["objective"] *= 1 - 1e-8
    manifest["gap"] = manifest["objective"] / manifest["lower_bound"] - 1


def higher_bound(manifest: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    manifest["lower_bound"] *= 1 + 1e-8
    manifest["gap"] = manifest["objective"] / manifest["lower_bound"] - 1


SPACE_LIES: list[tuple[str, Edit, set[str]]] = [
    (
        "R scaled",
        change("covariance", lambda a: a * 0.99),
        {"objective", "sensitivity", "feasible"},
    ),
    ("R asymmetric", change("covariance", lambda a: entry(a, (0, 2), 1e-9)), {"covariance"}),
    ("R indefinite", change("covariance", lambda a: entry(a, (0, 0), -1)), {"covariance"}),
    ("R enormous", change("covariance", lambda a: a * 1e300), {"objective"}),
    ("R overflowing", change("covariance", lambda a: 1e308 * np.ones((3, 3))), {"objective"}),
    ("objective", lower_objective, {"objective"}),
    ("bound", higher_bound, {"lower bound", "gap"}),
    ("gap alone", claim(gap=1e-7), {"manifest"}),
    ("infeasible", claim(feasible=False), {"manifest"}),
    ("adjacency", claim(adjacency="zero-out"), {"manifest"}),
    ("kind", claim(matrix="precision"), {"manifest"}),
    ("tighter budget", change("budget", lambda a: a / 2), {"feasible"}),
    ("another W", change("mixing", lambda a: np.full((3, 3), 1 / 3)), {"objective"}),
    ("no multipliers", change("dual_weights", lambda a: a * 0), {"lower bound"}),
    ("negative multipliers", change("dual_weights", lambda a: -a), {"lower bound"}),
    ("other multipliers", change("dual_weights", lambda a: a * [1, 1, 9]), {"lower bound"}),
    (
        "sensitivity",
        claim(sensitivity={"value": 0.9, "which": "vector-exact", "squared": True}),
        {"sensitivity"},
    ),
    (
        "which",
        claim(sensitivity={"value": 1.0, "which": "scalar", "squared": True}),
        {"sensitivity"},
    ),
    ("cap", claim(variance_ratio=0.5), {"sensitivity"}),
    ("NaN", claim(objective="nan"), {"objective"}),
    ("a bound of random participation", claim(fixed_lower_bound=1.0), {"fixed bound"}),
    ("an estimate of nothing", claim(uncertainty=0.01), {"confidence"}),
]


@pytest.mark.parametrize(
    ("edit", "expected"), [lie[1:] for lie in SPACE_LIES], ids=[lie[0] for lie in SPACE_LIES]
)
def test_falsified_spatial_designs_are_found(
    tmp_path: Path, edit: Edit, expected: set[str]
) -> None:
    outcome = verified(space_design(), tmp_path / "d.npz", edit=edit)
    assert not outcome.ok
    assert expected <= failed(outcome)


def test_a_constraint_that_is_barely_broken_is_found(tmp_path: Path) -> None:
    """Less noise by 4e-10, in all that the file says: rounding of R = I is no excuse for that."""
    less = 1 - 4e-10
    claimed = replace(
        space_design().certificate, objective=13 / 9 * less, sensitivity_squared=1 / less
    )
    design = with_matrix(space_design(), matrix=np.eye(3) * less, certificate=claimed)
    outcome = verified(design, tmp_path / "d.npz")
    assert failed(outcome) == {"feasible"}


def test_no_condition_number_excuses_a_wrong_sensitivity(tmp_path: Path) -> None:
    """R = diag(1, 1, 1e12): rounding of its inverse might be 5e-3, and the claim is off by 1e-4."""
    r = np.diag([1.0, 1.0, 1e12])
    objective = float(np.trace(PATH_3.T @ PATH_3 @ r))
    honest = Certificate(objective=objective, lower_bound=25 / 27, sensitivity_squared=1.0)
    design = with_matrix(space_design(), matrix=r, certificate=honest)
    assert verified(design, tmp_path / "honest.npz").ok
    lying = replace(design, certificate=replace(honest, sensitivity_squared=1 - 1e-4))
    outcome = verified(lying, tmp_path / "lying.npz")
    assert "sensitivity" in failed(outcome)


def test_a_broken_cap_is_found(tmp_path: Path) -> None:
    edit = change("max_variance", lambda a: a * 0.75)
    outcome = verified(capped_design(), tmp_path / "d.npz", edit=edit)
    assert "sensitivity" in failed(outcome)
    assert "feasible" not in failed(outcome)

    def break_it(manifest: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        arrays["covariance"] *= 3
        manifest["variance_ratio"] = 1.5

    outcome = verified(capped_design(), tmp_path / "d.npz", edit=break_it)
    assert "feasible" in failed(outcome)
    assert by_name(outcome)["feasible"].found == pytest.approx(1.5)


def of_prefix_sums(manifest: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    manifest["workload"], manifest["nodes"] = "prefix", []
    del manifest["arrays"]["mixing"], arrays["mixing"]


TIME_LIES: list[tuple[str, Edit, set[str]]] = [
    (
        "C scaled",
        change("strategy", lambda a: a * 1.01),
        {"objective", "sensitivity", "feasible", "inverse"},
    ),
    ("C not causal", change("strategy", lambda a: entry(a, (0, 3), 1e-12)), {"causal"}),
    ("C^-1 not causal", change("noising_matrix", lambda a: entry(a, (0, 1), 1e-12)), {"causal"}),
    ("C^-1 not C^-1", change("noising_matrix", lambda a: a * (1 + 1e-9)), {"inverse"}),
    ("C singular", change("strategy", lambda a: entry(a, (1, 1), 0.0)), {"objective", "inverse"}),
    ("H scaled", change("gram", lambda a: a * 0.5), {"workload", "objective"}),
    ("H slightly off", change("gram", lambda a: a + 1e-10 * np.eye(4)), {"workload"}),
    ("H another kind", of_prefix_sums, {"workload"}),
    ("another W", change("mixing", lambda a: np.full((3, 3), 1 / 3)), {"workload"}),
    ("objective", lower_objective, {"objective"}),
    ("bound", higher_bound, {"lower bound", "gap"}),
    (
        "fewer epochs",
        claim(horizon=4, participation={"epochs": 1, "separation": 4}),
        {"sensitivity"},
    ),
    ("multipliers", change("dual_blocks", lambda a: a * 0), {"lower bound"}),
]


@pytest.mark.parametrize(
    ("edit", "expected"), [lie[1:] for lie in TIME_LIES], ids=[lie[0] for lie in TIME_LIES]
)
def test_falsified_temporal_designs_are_found(
    tmp_path: Path, edit: Edit, expected: set[str]
) -> None:
    path = save_design(time_design(), tmp_path / "d.npz")

    def with_blocks(manifest: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        edit(manifest, arrays)
        if manifest["participation"]["epochs"] == 1:
            arrays["dual_blocks"] = np.ones((4, 1, 1))

    falsify(path, with_blocks)
    outcome = verify(load_design(path))
    assert not outcome.ok
    assert expected <= failed(outcome)


def test_a_gram_matrix_that_is_none_is_found(tmp_path: Path) -> None:
    problem = TimeProblem.from_gram(
        gram=np.diag([2.0, 1.0]), participation=FixedEpoch(epochs=1, separation=2)
    )
    design = replace(single_epoch_design(), problem=problem, proof={})
    certificate = replace(design.certificate, lower_bound=0.0)
    design = replace(design, certificate=certificate)
    path = tmp_path / "d.npz"
    assert verified(design, path).ok
    edit = change("gram", lambda a: entry(a, (1, 1), -1.0))
    assert "workload" in failed(verified(design, path, edit=edit))


# --- problem text ---------------------------------------------------------------------------

SPACE_TEXT = """
name = "path-3"
design = "space"
[graph]
kind = "path"
nodes = 3
[budget]
tau = 1.0
"""

IN_ONE_STEP = SPACE_TEXT + "[participation]\nepochs = 1\nseparation = 16\n"

TIME_TEXT = """
name = "four"
design = "time"
[graph]
kind = "path"
nodes = 3
[workload]
kind = "decentralized"
[participation]
epochs = 2
separation = 2
"""


def from_text(text: str, design: Design, folder: Path) -> Design:
    return replace(design, problem=parse_problem(text, folder=folder).problem)


@pytest.mark.parametrize(
    ("text", "make"), [(SPACE_TEXT, space_design), (TIME_TEXT, time_design)], ids=["space", "time"]
)
def test_the_problem_text_is_rebuilt_and_compared(
    text: str, make: Callable[[], Design], tmp_path: Path
) -> None:
    path = tmp_path / "d.npz"
    design = from_text(text, make(), tmp_path)
    outcome = verified(design, path, text=text)
    assert outcome.ok, outcome
    assert by_name(outcome)["problem"].ok is True
    # The same claims beside the text of another problem.
    other = text.replace("nodes = 3", "nodes = 4")
    assert failed(verified(design, path, text=other)) == {"problem"}
    assert failed(verified(design, path, text="no problem")) == {"problem"}


@pytest.mark.parametrize(
    ("text", "make", "old", "new", "different"),
    [
        (SPACE_TEXT, space_design, "tau = 1.0", "tau = 1.0000000001", "budget"),
        (SPACE_TEXT, space_design, 'kind = "path"', 'kind = "ring"', "mixing"),
        (SPACE_TEXT, space_design, "path-3", "other", "name"),
        (
            SPACE_TEXT,
            space_design,
            "[budget]",
            "[limits]\nmax_variance = 9.0\n[budget]",
            "max_variance",
        ),
        (
            SPACE_TEXT,
            space_design,
            "[budget]",
            "[privacy]\nepsilon = 1.0\nsteps = 3\n[budget]",
            "privacy",
        ),
        # It decides on nothing in R, and on all of the noise: k = 20 for k = 1.
        (IN_ONE_STEP, space_design, "epochs = 1", "epochs = 20", "participation"),
        (
            IN_ONE_STEP,
            space_design,
            "[participation]\nepochs = 1\nseparation = 16\n",
            "",
            "participation",
        ),
        (TIME_TEXT, time_design, "separation = 2", "separation = 3", "participation"),
        (TIME_TEXT, time_design, 'kind = "path"', 'kind = "ring"', "mixing"),
        (
            TIME_TEXT,
            time_design,
            'kind = "path"\nnodes = 3',
            'kind = "path"\nnodes = 3\nweights = "row-normalized"',
            "mixing",
        ),
    ],
)
def test_another_problem_is_told_apart(
    text: str, make: Callable[[], Design], old: str, new: str, different: str, tmp_path: Path
) -> None:
    assert old in text
    design = from_text(text, make(), tmp_path)
    outcome = verified(design, tmp_path / "d.npz", text=text.replace(old, new))
    assert failed(outcome) == {"problem"}
    assert different in str(by_name(outcome)["problem"].found)


def test_a_text_of_the_other_kind_is_told_apart(tmp_path: Path) -> None:
    design = from_text(SPACE_TEXT, space_design(), tmp_path)
    assert failed(verified(design, tmp_path / "d.npz", text=TIME_TEXT)) == {"problem"}


OUTSIDE = {
    "matrix": ('kind = "matrix"\nfile = "{path}"', "graph.file"),
    "edges": ('kind = "edges"\nfile = "{path}"', "graph.file"),
    "data set": ('kind = "ego-facebook"\nego = 414', "graph.ego"),
    "network": ('kind = "peertube"', "graph.kind"),
}


@pytest.mark.parametrize(("graph", "key"), list(OUTSIDE.values()), ids=list(OUTSIDE))
@pytest.mark.parametrize("target", ["W.npy", "/etc/passwd", "/dev/zero", "pipe"])
def test_nothing_that_a_text_names_is_read(
    graph: str, key: str, target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file beside it, one of the system, an endless one, one that never answers; a download."""
    monkeypatch.delenv("NOISEDESIGN_DATA", raising=False)
    monkeypatch.setattr("noisedesign.system.datasets.DataFile.read", None)
    monkeypatch.setattr("noisedesign.files.graph_tables.peertube", None)
    os.mkfifo(tmp_path / "pipe")
    np.save(tmp_path / "W.npy", PATH_3)
    text = SPACE_TEXT.replace('kind = "path"\nnodes = 3', graph.format(path=tmp_path / target))
    outcome = verified(space_design(), tmp_path / "d.npz", text=text)
    assert outcome.ok
    assert outcome.not_checked == ("problem",)
    assert f"not checked: {key}: expected nothing outside" in by_name(outcome)["problem"].note
    assert "root:" not in str(outcome)


def test_every_key_that_names_data_is_known() -> None:
    """What text and lists of a problem file are said to be, by the schema itself."""
    tables = {
        table
        for file in typing.get_args(problem_file.AnyProblemFile)
        for field in file.model_fields.values()
        for table in tables_in(field.annotation)
    }
    paths = {
        key
        for table in (*tables, *graph_tables.graph_tables(), *problem_file.workload_tables())
        for key in table.model_fields
        if key in ("file", "files", "clusters", "ego", "path", "folder", "url", "source")
    }
    assert paths == set(rebuild.OUTSIDE)
    gram = TIME_TEXT.replace('kind = "decentralized"', 'kind = "gram"\nfile = "/etc/passwd"')
    gram = gram.replace('[graph]\nkind = "path"\nnodes = 3\n', "")
    seeds = SPACE_TEXT + '[structure]\nspace = "clusters"\nclusters = "/etc/passwd"\n'
    for text, key, design in (
        (gram, "workload.file", time_design()),
        (seeds, "structure.clusters", space_design()),
    ):
        with pytest.raises(rebuild.NotRebuiltError) as error:
            rebuild.differences_from_text(text, stored=design.problem, tolerance=1e-12)
        assert error.value.field == key


def tables_in(annotation: Any) -> set[Any]:
    if isinstance(annotation, type) and issubclass(annotation, Table):
        return {annotation}
    return {table for inner in typing.get_args(annotation) for table in tables_in(inner)}


@pytest.mark.parametrize(
    ("make", "text", "old", "new", "different"),
    [
        (space_design, SPACE_TEXT, "nodes = 3", "nodes = 1000000000", "nodes"),
        (
            space_design,
            SPACE_TEXT,
            'kind = "path"\nnodes = 3',
            'kind = "hypercube"\ndimension = 62',
            "nodes",
        ),
        (
            space_design,
            SPACE_TEXT,
            'kind = "path"\nnodes = 3',
            'kind = "grid"\nrows = 100000\ncolumns = 100000',
            "nodes",
        ),
        (space_design, SPACE_TEXT, "[budget]", "[error]\nhorizon = 1000000000\n[budget]", "error"),
        (
            space_design,
            SPACE_TEXT,
            "[budget]",
            '[observers]\nmodel = "pndp"\nhorizon = 1000000000\n[budget]',
            "error",
        ),
        (
            space_design,
            SPACE_TEXT,
            "[budget]",
            '[mixing]\nmatching = "maximal"\n[budget]',
            "mixing randomness",
        ),
        (time_design, TIME_TEXT, "epochs = 2", "epochs = 2000000000", "participation"),
        (time_design, TIME_TEXT, 'kind = "decentralized"', 'kind = "prefix"', "workload"),
    ],
)
def test_a_text_builds_nothing_larger_than_the_arrays(
    make: Callable[[], Design],
    text: str,
    old: str,
    new: str,
    different: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert old in text
    for file in typing.get_args(problem_file.AnyProblemFile):
        monkeypatch.setattr(file, "problem", None)
    outcome = verified(make(), tmp_path / "d.npz", text=text.replace(old, new))
    assert failed(outcome) == {"problem"}
    assert by_name(outcome)["problem"].found == f"different {different}"


def test_the_fastest_mixing_of_many_nodes_is_not_searched_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rebuild, "MOST_CHOSEN", 2)
    text = SPACE_TEXT.replace("nodes = 3", 'nodes = 3\nweights = "fastest-mixing"')
    outcome = verified(space_design(), tmp_path / "d.npz", text=text)
    assert outcome.not_checked == ("problem",)
    assert "at most 2 nodes" in by_name(outcome)["problem"].note


def test_a_problem_from_a_source_that_is_trusted(tmp_path: Path) -> None:
    """It is compared in place of the text, whatever that says."""
    np.save(tmp_path / "W.npy", PATH_3)
    text = SPACE_TEXT.replace('kind = "path"\nnodes = 3', 'kind = "matrix"\nfile = "W.npy"')
    asked = parse_problem(text, folder=tmp_path).problem
    path = save_design(from_text(text, space_design(), tmp_path), tmp_path / "d.npz")
    for stored_text in ("", text, "nonsense"):
        save_design(load_design(path).design, path, problem_text=stored_text)
        outcome = verify(load_design(path), problem=asked)
        assert outcome.ok
        assert outcome.not_checked == ()
        assert by_name(outcome)["problem"].found == "the given one"
    for other in (SPACE_TEXT.replace("tau = 1.0", "tau = 2.0"), TIME_TEXT):
        problem = parse_problem(other, folder=tmp_path).problem
        assert failed(verify(load_design(path), problem=problem)) == {"problem"}


PRIVATE = "[privacy]\nepsilon = 1.0\ndelta = 1e-5\nsteps = 10\n"


def test_a_privacy_target_is_verified_by_the_problem_alone(tmp_path: Path) -> None:
    text, path = SPACE_TEXT + PRIVATE, tmp_path / "d.npz"
    design = from_text(text, space_design(), tmp_path)
    alone = verified(design, path)
    assert alone.ok
    assert alone.not_checked == ("problem", "privacy target")
    assert "only the manifest says so" in by_name(alone)["privacy target"].note
    with_text = verified(design, path, text=text)
    assert (with_text.ok, with_text.not_checked) == (True, ())
    assert "epsilon 1 at delta 1e-05, replace, clip 1" in str(
        by_name(with_text)["privacy target"].claimed
    )

    def weaker(manifest: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        manifest["privacy"]["epsilon"] = 0.1

    assert failed(verified(design, path, text=text, edit=weaker)) == {"problem", "privacy target"}
    # Something else is wrong: the target may be right, but nobody has compared it.
    other = verified(design, path, text=text.replace("nodes = 3", "nodes = 4"))
    assert failed(other) == {"problem"}
    assert other.not_checked == ("privacy target",)
    asked = parse_problem(text, folder=tmp_path).problem
    save_design(design, path)
    assert verify(load_design(path), problem=asked).not_checked == ()
    loaded = parse_problem(text, folder=tmp_path)
    assert verify(load_design(path), problem=loaded).ok
    with pytest.raises(InputError, match=r"^problem: expected a SpaceProblem"):
        verify(load_design(path), problem=1)  # type: ignore[arg-type]


def stating(**entries: Any) -> Edit:
    def edit(manifest: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        manifest.update(entries)

    return edit


def errors_over(horizon: int) -> dict[str, Any]:
    return {"error": {"horizon": horizon, "of": "all-iterates"}}


def knowing(seeds: int) -> dict[str, Any]:
    return {"structure": {"space": "edge-local", "known_seeds": seeds}}


@pytest.mark.parametrize("horizon", [10**9, 10**30])
def test_steps_without_end_are_refused_when_a_file_is_read(horizon: int, tmp_path: Path) -> None:
    for design in (space_design(), time_design()):
        path = save_design(design, tmp_path / "d.npz")
        falsify(path, stating(**errors_over(horizon)))
        with pytest.raises(InputError, match=r"design file\.(manifest|error\.horizon)"):
            load_design(path)


@pytest.mark.parametrize("seeds", [-1, 10**9, 10**30])
def test_no_number_of_known_seeds_is_a_traceback(seeds: int, tmp_path: Path) -> None:
    path = save_design(space_design(), tmp_path / "d.npz")
    falsify(path, stating(**knowing(seeds)))
    with contextlib.suppress(InputError):
        assert not verify(load_design(path)).ok


def test_work_out_of_proportion_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three nodes and a million steps; forty nodes of which any twenty pool their seeds."""
    monkeypatch.setattr(memory, "physical", lambda: 2**60)  # all of it fits: time is what it takes
    path = save_design(space_design(), tmp_path / "d.npz")
    falsify(path, stating(**errors_over(1_000_000)))
    with pytest.raises(InputError, match=r"design file: expected a problem of at most"):
        verify(load_design(path))
    ring = SpaceProblem(mixing=mixing_matrix(nx.cycle_graph(40)), max_variance=50.0)
    design = solve(ring).design
    assert design is not None
    save_design(design, path)
    falsify(path, stating(**knowing(20)))
    with pytest.raises(InputError, match=r"design file: expected a problem of at most"):
        verify(load_design(path))


def test_a_changed_text_does_not_match_its_sha256(tmp_path: Path) -> None:
    design = from_text(SPACE_TEXT, space_design(), tmp_path)

    def edit(manifest: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        manifest["problem"]["text"] += "# the same problem\n"

    outcome = verified(design, tmp_path / "d.npz", text=SPACE_TEXT, edit=edit)
    assert failed(outcome) == {"problem text"}


def test_any_finite_numbers_give_a_verdict(tmp_path: Path) -> None:
    """Overflow, underflow, singular matrices: a verdict or one clear error, never another."""
    rng = np.random.default_rng(7)
    path = tmp_path / "d.npz"
    for _ in range(60):
        make = (space_design, time_design, capped_design)[rng.integers(3)]

        def edit(manifest: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
            name = sorted(arrays)[rng.integers(len(arrays))]
            size = 10.0 ** rng.integers(-320, 308)
            arrays[name] = arrays[name] * 0 + size * rng.integers(-1, 2, arrays[name].shape)

        save_design(make(), path)
        falsify(path, edit)
        try:
            outcome = verify(load_design(path))
        except InputError:
            continue
        assert isinstance(outcome.ok, bool)


@pytest.mark.parametrize("wrong", [False, np.False_])
def test_a_claim_is_wrong_by_its_truth(wrong: Any) -> None:
    """What numpy numbers are found not to be is as wrong as any other."""
    checks = (Check(name="objective", ok=True), Check(name="lower bound", ok=wrong))
    assert not Verification(checks=checks).ok
    assert Verification(checks=checks[:1]).ok
