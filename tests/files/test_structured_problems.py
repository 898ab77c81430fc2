"""Problem files of structures, errors, random mixing and space-time: every key, every refusal."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest

from noisedesign.base.checks import InputError
from noisedesign.design.solve import solve
from noisedesign.families.space_time import SpaceTimeProgram
from noisedesign.files.problem_file import parse_problem
from noisedesign.forms.structure import SpaceStructure, TimeStructure
from noisedesign.problem.problem import Problem, SpaceProblem, SpaceTimeProblem, TimeProblem
from noisedesign.system.participation import FixedEpoch, MinSeparation
from tests.support import oracles, structured_oracles as slow
from tests.support.space_time_cases import stacked_workload

PATH_4 = '[graph]\nkind = "path"\nnodes = 4\n'
STAR_4 = '[graph]\nkind = "star"\nnodes = 4\nweights = "row-normalized"\n'
SPACE = 'name = "x"\ndesign = "space"\n' + PATH_4
TWO_BY_THREE = "[participation]\nepochs = 2\nseparation = 3\n"
APART = '[participation]\nkind = "min-separation"\nhorizon = 7\nseparation = 3\n'
PREFIX = 'name = "x"\ndesign = "time"\n[workload]\nkind = "prefix"\n'
MODELS = 'name = "x"\ndesign = "time"\n[workload]\nkind = "decentralized"\n' + PATH_4
JOINT = 'name = "x"\ndesign = "space-time"\n' + PATH_4 + TWO_BY_THREE
W_4 = oracles.metropolis(nx.path_graph(4))


def parse(text: str, folder: Path | str = ".") -> Problem:
    return parse_problem(text, folder=folder).problem


def space(text: str, folder: Path | str = ".") -> SpaceProblem:
    problem = parse(SPACE + text, folder)
    assert isinstance(problem, SpaceProblem)
    return problem


def time(text: str) -> TimeProblem:
    problem = parse(text)
    assert isinstance(problem, TimeProblem)
    return problem


def joint(text: str) -> SpaceTimeProblem:
    problem = parse(JOINT + text)
    assert isinstance(problem, SpaceTimeProblem)
    return problem


# --- [participation] and [structure] ------------------------------------------------------------


def test_participation_kinds() -> None:
    assert time(PREFIX + TWO_BY_THREE).participation == FixedEpoch(epochs=2, separation=3)
    named = TWO_BY_THREE + 'kind = "fixed-epoch"\n'
    assert time(PREFIX + named).participation == FixedEpoch(epochs=2, separation=3)
    assert time(PREFIX + APART + "max_participations = 2\n").participation == MinSeparation(
        horizon=7, separation=3, max_participations=2
    )


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ("", TimeStructure()),
        ('time = "dense"\n', TimeStructure()),
        ('time = "banded"\nbands = 3\n', TimeStructure(kind="banded", bands=3)),
        ('time = "toeplitz"\n', TimeStructure(kind="toeplitz")),
        ('time = "banded-inverse"\nbands = 2\n', TimeStructure(kind="banded-inverse", bands=2)),
        ('time = "blt"\nbuffers = 4\n', TimeStructure(kind="blt", buffers=4)),
        ('time = "signed-toeplitz"\n', TimeStructure(kind="signed-toeplitz")),
        ('time = "signed-blt"\nbuffers = 4\n', TimeStructure(kind="signed-blt", buffers=4)),
    ],
)
def test_structures_in_time(keys: str, expected: TimeStructure) -> None:
    table = "[structure]\n" + keys
    assert time(PREFIX + TWO_BY_THREE + table).structure == expected
    found = joint(table)
    assert (found.time, found.space, found.joint) == (expected, SpaceStructure(), "kronecker")


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ("", SpaceStructure()),
        ('space = "decor"\n', SpaceStructure(kind="decor")),
        ('space = "independent"\n', SpaceStructure(kind="independent")),
        ('space = "edge-local"\n', SpaceStructure(kind="edge-local")),
        ('space = "hops"\nhops = 2\n', SpaceStructure(kind="hops", hops=2)),
        ('space = "neighbourhood"\n', SpaceStructure(kind="neighbourhood")),
    ],
)
def test_structures_in_space(keys: str, expected: SpaceStructure) -> None:
    table = "[structure]\n" + keys
    assert space(table).structure == expected
    assert joint(table).space == expected
    if expected.kind == "edge-local":
        seeds = SpaceStructure(kind="edge-local", known_seeds=1)
        assert space(table + "known_seeds = 1\n").structure == seeds


def test_joint_designs() -> None:
    assert joint("").joint == "kronecker"
    assert joint('[structure]\njoint = "full"\n').joint == "full"
    both = joint('[structure]\ntime = "toeplitz"\nspace = "decor"\njoint = "kronecker"\n')
    assert (both.time.kind, both.space.kind) == ("toeplitz", "decor")
    limited = joint("[budget]\ntau = [1, 2, 3, 4]\n[limits]\nmax_variance = 3\n")
    np.testing.assert_array_equal(limited.budget, [1, 2, 3, 4])
    np.testing.assert_array_equal(limited.max_variance, np.full(4, 3.0))


def test_clusters_are_lists_of_names_or_rows(tmp_path: Path) -> None:
    (tmp_path / "a.edges").write_text("Ann Bob\nBob Cid\nCid Dee\n")
    (tmp_path / "c.json").write_text(json.dumps([["Dee", "Ann"], [1], ["Cid"]]))
    text = (
        'name = "x"\ndesign = "space"\n[graph]\nkind = "edges"\nfile = "a.edges"\n'
        '[structure]\nspace = "clusters"\nclusters = "c.json"\n'
    )
    problem = parse(text, tmp_path)
    assert isinstance(problem, SpaceProblem)
    assert problem.nodes == ("Ann", "Bob", "Cid", "Dee")
    assert problem.structure.clusters == (0, 1, 2, 0)


# --- [error] and [mixing], against W written out --------------------------------------------------


def unit_runs(horizon: int, **how: Any) -> np.ndarray:
    """x after every step for every unit of noise, shape (steps, nodes, steps, nodes)."""
    maps = np.array(list(slow.noise_to_state(W_4, horizon, **how)))
    return maps.reshape(horizon, 4, horizon, 4)


def test_every_key_of_error_in_space() -> None:
    rates = np.array([1.0, 0.5, 2.0])
    runs = unit_runs(3, momentum=0.5, rates=rates)
    weight = np.multiply.outer([1.0, 2.0, 0.0], [4.0, 3.0, 2.0, 1.0])
    expected = np.einsum("ti,tisa,tisb->ab", weight, runs, runs)
    found = space(
        '[error]\nhorizon = 3\nof = "all-iterates"\nnode_weights = [4, 3, 2, 1]\n'
        "step_weights = [1, 2, 0]\nlearning_rates = [1, 0.5, 2]\nmomentum = 0.5\n"
    ).gram
    np.testing.assert_allclose(found, expected, rtol=1e-12)


@pytest.mark.parametrize("of", ["last-iterate", "mean-model", "consensus"])
def test_errors_of_a_time_design(of: str) -> None:
    runs = unit_runs(6)
    mean = np.broadcast_to(runs.mean(axis=1, keepdims=True), runs.shape)
    seen = {"last-iterate": runs[-1:], "mean-model": mean, "consensus": runs - mean}[of]
    expected = np.einsum("tisa,tira->sr", seen, seen)
    found = time(MODELS + TWO_BY_THREE + f'[error]\nof = "{of}"\n').gram
    np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-12)


OUTCOMES = {
    "dropout = 0.25": list(slow.node_dropouts(W_4, 0.25)),
    "dropout = [0.25, 0.25, 0.25, 0.25]": list(slow.node_dropouts(W_4, 0.25)),
    "edge_failure = 0.1": list(slow.edge_failures(W_4, 0.1)),
    'matching = "pairwise"': list(slow.one_pair(nx.path_graph(4))),
    # The outer edges together, or the inner one.
    'matching = "maximal"': [
        (0.5, np.array([[1, 1, 0, 0], [1, 1, 0, 0], [0, 0, 1, 1], [0, 0, 1, 1]]) / 2),
        (0.5, np.array([[2, 0, 0, 0], [0, 1, 1, 0], [0, 1, 1, 0], [0, 0, 0, 2]]) / 2),
    ],
}


@pytest.mark.parametrize("key", OUTCOMES)
def test_random_mixing_outcome_by_outcome(key: str) -> None:
    outcomes, table = OUTCOMES[key], f"[mixing]\n{key}\n"
    one_step = sum(chance * w.T @ w for chance, w in outcomes)
    np.testing.assert_allclose(space(table).gram, one_step, rtol=1e-12, atol=1e-14)
    full = slow.random_gram(outcomes, 6)
    alike = np.einsum("sara->sr", full.reshape(6, 4, 6, 4))
    np.testing.assert_allclose(time(MODELS + TWO_BY_THREE + table).gram, alike, rtol=1e-12)
    found = SpaceTimeProgram.of(joint(table)).workload
    np.testing.assert_allclose(found.gram(), full, rtol=1e-11, atol=1e-12)


def test_space_time_without_more_is_every_iterate() -> None:
    a = stacked_workload(W_4, 6)
    np.testing.assert_allclose(SpaceTimeProgram.of(joint("")).workload.gram(), a.T @ a, atol=1e-12)
    # The usual error said aloud.
    said = joint('[error]\nof = "all-iterates"\n')
    np.testing.assert_allclose(SpaceTimeProgram.of(said).workload.gram(), a.T @ a, atol=1e-12)


# --- what is refused ----------------------------------------------------------------------------

CLUSTERED = SPACE + '[structure]\nspace = "clusters"\nclusters = "c.json"\n'

REFUSED = [
    # structure: words, and the one key a word needs
    (PREFIX + TWO_BY_THREE + '[structure]\ntime = "bandit"\n', "structure.time", ["banded, toep"]),
    (PREFIX + TWO_BY_THREE + "[structure]\ntime = 3\n", "structure.time", ["a string", "3 (int)"]),
    (
        PREFIX + TWO_BY_THREE + '[structure]\ntime = "banded"\n',
        "structure.bands",
        ['a value for structure.time = "banded"', "None"],
    ),
    (
        PREFIX + TWO_BY_THREE + '[structure]\ntime = "blt"\nbands = 2\n',
        "structure.bands",
        ['nothing for structure.time = "blt"', "2"],
    ),
    (
        PREFIX + TWO_BY_THREE + "[structure]\nbuffers = 2\n",
        "structure.buffers",
        ['nothing for structure.time = "dense"'],
    ),
    (
        PREFIX + TWO_BY_THREE + '[structure]\ntime = "blt"\nbuffers = 0\n',
        "structure.buffers",
        ["an integer >= 1", "0"],
    ),
    (
        PREFIX + TWO_BY_THREE + '[structure]\ntime = "banded"\nbands = 2.0\n',
        "structure.bands",
        ["an integer", "2.0 (float)"],
    ),
    (PREFIX + TWO_BY_THREE + '[structure]\nspace = "decor"\n', "structure.space", ["unknown key"]),
    (PREFIX + TWO_BY_THREE + '[structure]\njoint = "full"\n', "structure.joint", ["unknown key"]),
    (SPACE + '[structure]\nspace = "edges"\n', "structure.space", ["edge-local", "edges"]),
    (SPACE + '[structure]\nspace = "hops"\n', "structure.hops", ["a value"]),
    (SPACE + '[structure]\nspace = "hops"\nhops = 0\n', "structure.hops", ["an integer >= 1"]),
    (SPACE + '[structure]\nspace = "decor"\nhops = 1\n', "structure.hops", ["nothing"]),
    (
        SPACE + '[structure]\nspace = "decor"\nknown_seeds = 1\n',
        "structure.known_seeds",
        ['0 for structure.space = "decor"', "1"],
    ),
    (SPACE + '[structure]\ntime = "banded"\n', "structure.time", ["unknown key"]),
    (SPACE + "structure = 3\n".replace("structure", "structures"), "graph.structures", ["unknown"]),
    # space-time
    (
        JOINT + '[structure]\njoint = "both"\n',
        "structure.joint",
        ["kronecker, modal, full", "both"],
    ),
    (
        JOINT + '[structure]\njoint = "full"\ntime = "banded"\nbands = 2\n',
        "structure.joint",
        ['"kronecker" for a structure'],
    ),
    (JOINT + '[structure]\njoint = "full"\nspace = "decor"\n', "structure.joint", ['"kronecker"']),
    (
        JOINT.replace(TWO_BY_THREE, APART + "max_participations = 2\n"),
        "participation.kind",
        ["fixed-epoch for a space-time design", "min-separation"],
    ),
    (JOINT.replace(TWO_BY_THREE, ""), "participation", ["a [participation] table"]),
    (JOINT.replace(PATH_4, ""), "graph", ["a [graph] table"]),
    (JOINT + '[workload]\nkind = "prefix"\n', "workload.kind", ["only the keys rounds"]),
    (JOINT + "[limits]\nmax_variance = 0.5\n", "limits.max_variance", ["more than 1 / tau", "0.5"]),
    (JOINT + "[budget]\ntau = [1, 2]\n", "budget.tau", ["4 values", "2"]),
    (PREFIX + TWO_BY_THREE + "[budget]\ntau = [1, 2]\n", "budget.tau", ["3 values", "pattern"]),
    # participation
    (PREFIX + APART, "participation.max_participations", ["a value", "nothing"]),
    (PREFIX + APART + "max_participations = 0\n", "participation.max_participations", [">= 1"]),
    (PREFIX + TWO_BY_THREE + 'kind = "minsep"\n', "participation.kind", ["min-separation"]),
    (PREFIX + APART + "max_participations = 2\nepochs = 2\n", "participation.epochs", ["unknown"]),
    # error
    (PREFIX + TWO_BY_THREE + "[error]\n", "error", ["no [error] table for a prefix workload"]),
    (SPACE + '[error]\nof = "all"\n', "error.of", ["last-iterate", "all"]),
    (SPACE + "[error]\nhorizon = 0\n", "error.horizon", ["an integer >= 1", "0"]),
    ("error = []\n" + SPACE, "error", ["one or more", "none"]),
    (SPACE + '[[error]]\nof = "consensus"\n', "error.0.share", ["a value", "nothing"]),
    (SPACE + "[[error]]\nshare = -1.0\n", "error.share", ["-1 at index 0"]),
    (
        SPACE + "[[error]]\nshare = 1.0\nhorizon = 3\n[[error]]\nshare = 1.0\nhorizon = 4\n",
        "error.horizon",
        ["the same", "3 and 4"],
    ),
    (
        SPACE + "[[error]]\nshare = 1.0\nmomentum = 0.1\n[[error]]\nshare = 1.0\nmomentum = 0.2\n",
        "error.momentum",
        ["the same"],
    ),
    (SPACE + '[error]\nof = "loss"\n', "error.curvature", ["curvatures of the loss", "none"]),
    (SPACE + "[error]\ncurvature = [0.1, 3.0]\n", "error.curvature", ["at most 2", "3"]),
    (SPACE + "[error]\nweight_decay = -1.0\n", "error.weight_decay", [">= 0"]),
    (SPACE + "[error]\ncurvature_weights = 2.0\n", "error.curvature_weights", ["without"]),
    (
        SPACE + "[error]\nlearning_rate = 0.5\nlearning_rates = 1.0\n",
        "error.learning_rate",
        ["beside learning_rates"],
    ),
    (SPACE + "[error]\nmomentum = 1.0\n", "error.momentum", ["[0, 1)", "1"]),
    (SPACE + "[error]\nnode_weights = [1, 2]\n", "error.node_weights", ["4 values", "2"]),
    (SPACE + "[error]\nnode_weights = [1, -2, 1, 1]\n", "error.node_weights", ["-2 at index 1"]),
    (SPACE + "[error]\nstep_weights = [1, 2]\n", "error.step_weights", ["1 values", "2"]),
    (SPACE + "[error]\nlearning_rates = 0\n", "error.learning_rates", ["positive", "zeros"]),
    (SPACE + '[error]\nof = "last-iterate"\nstep_weights = 1\n', "error.step_weights", ["nothing"]),
    (MODELS + TWO_BY_THREE + "[error]\nhorizon = 6\n", "error.horizon", ["unknown key"]),
    (JOINT + "[error]\nlearning_rates = [1, 2]\n", "error.learning_rates", ["6 values", "2"]),
    (SPACE + '[error]\nmomentum = "0.9"\n', "error.momentum", ["a number", "'0.9'"]),
    # mixing
    (PREFIX + TWO_BY_THREE + "[mixing]\ndropout = 0.1\n", "mixing", ["no [mixing] table"]),
    (SPACE + "[mixing]\n", "mixing", ["one of dropout, edge_failure, matching", "nothing"]),
    (
        SPACE + "[mixing]\ndropout = 0.1\nedge_failure = 0.1\n",
        "mixing",
        ["one of dropout, edge_failure, matching", "dropout and edge_failure"],
    ),
    (SPACE + "[mixing]\ndropout = 1.0\n", "mixing.dropout", ["[0, 1)", "1"]),
    (SPACE + "[mixing]\ndropout = -0.1\n", "mixing.dropout", ["[0, 1)", "-0.1"]),
    (SPACE + "[mixing]\ndropout = [0.1, 0.2]\n", "mixing.dropout", ["4 values", "2"]),
    (JOINT + "[mixing]\nedge_failure = 1.5\n", "mixing.edge_failure", ["[0, 1)", "1.5"]),
    (SPACE + "[mixing]\nedge_failure = [0.1]\n", "mixing.edge_failure", ["a number"]),
    (SPACE + '[mixing]\nmatching = "perfect"\n', "mixing.matching", ["pairwise, maximal"]),
    (SPACE + "[mixing]\nfailure = 0.1\n", "mixing.failure", ["unknown key", "edge_failure"]),
    (
        MODELS.replace(PATH_4, STAR_4) + TWO_BY_THREE + "[mixing]\ndropout = 0.1\n",
        "graph.weights",
        ["columns that sum to 1"],
    ),
]


@pytest.mark.parametrize(("text", "field", "words"), REFUSED)
def test_every_error_names_its_key(text: str, field: str, words: list[str]) -> None:
    with pytest.raises(InputError) as caught:
        parse(text)
    message = str(caught.value)
    assert caught.value.field == field, message
    assert all(word in message for word in words), message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, ["a readable file", "No such file"]),
        ("[[0, 1]", ["a JSON list of lists of nodes"]),
        ('{"a": [0]}', ["a JSON list of lists of nodes"]),
        ("[0, 1, 2, 3]", ["a JSON list of lists of nodes"]),
        ("[[0, 1.5]]", ["a JSON list of lists of nodes", "1.5"]),
        ("[[0, true]]", ["a JSON list of lists of nodes", "True"]),
        ("[[0, 1], [2]]", ["every node in some cluster", "none for 3"]),
        ("[[0, 1], [1, 2, 3]]", ["every node once", "1 twice"]),
        ("[[0, 1, 2, 3, 4]]", ["4"]),
        ('[["Zoe", 0, 1, 2, 3]]', ["Zoe"]),
    ],
)
def test_files_that_are_no_clusters(tmp_path: Path, content: str | None, words: list[str]) -> None:
    if content is not None:
        (tmp_path / "c.json").write_text(content)
    with pytest.raises(InputError) as caught:
        parse(CLUSTERED, tmp_path)
    assert caught.value.field == "structure.clusters"
    assert all(word in str(caught.value) for word in words), caught.value


def test_more_maximal_matchings_than_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("noisedesign.system.random_mixing.MAX_MATCHINGS", 1)
    with pytest.raises(InputError, match=r"^mixing\.matching: expected at most 1 maximal"):
        space('[mixing]\nmatching = "maximal"\n')


# --- what a file says and no solver can do --------------------------------------------------------

UNSOLVABLE = [
    (
        PREFIX + TWO_BY_THREE + '[structure]\ntime = "banded"\nbands = 4\n',
        "bands",
        ["at most the separation, 3", "4"],
    ),
    (
        PREFIX + APART + 'max_participations = 2\n[structure]\ntime = "banded"\nbands = 8\n',
        "bands",
        ["at most the horizon, 7", "8"],
    ),
    (
        PREFIX + TWO_BY_THREE + '[structure]\ntime = "banded-inverse"\nbands = 7\n',
        "bands",
        ["at most 6", "7"],
    ),
    (
        JOINT + '[structure]\njoint = "full"\n[limits]\nmax_variance = 2\n',
        "limits.max_variance",
        ["more than 2", "as many participations"],
    ),
]


@pytest.mark.parametrize(("text", "field", "words"), UNSOLVABLE)
def test_problems_that_cannot_be_solved_say_why(text: str, field: str, words: list[str]) -> None:
    problem = parse(text)
    with pytest.raises(InputError) as caught:
        solve(problem)
    assert caught.value.field == field, caught.value
    assert all(word in str(caught.value) for word in words), caught.value


@pytest.mark.parametrize(
    "text", [JOINT, PREFIX + TWO_BY_THREE + '[structure]\ntime = "toeplitz"\n']
)
def test_what_is_not_convex_is_for_the_native_backend(text: str) -> None:
    with pytest.raises(InputError, match="^backend: ") as caught:
        solve(parse(text), backend="clarabel")
    assert "convex" in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        SPACE + '[structure]\nspace = "decor"\n',
        PREFIX + APART + 'max_participations = 2\n[structure]\ntime = "banded"\nbands = 3\n',
    ],
)
def test_convex_structures_are_for_every_backend(text: str) -> None:
    pytest.importorskip("clarabel")
    native, conic = (solve(parse(text), backend=name).design for name in ("native", "clarabel"))
    assert native is not None
    assert conic is not None
    assert conic.objective == pytest.approx(native.objective, rel=1e-5)
    assert conic.certificate.feasible


def test_another_error_is_for_every_backend() -> None:
    """An objective changes H and nothing else: a conic solver finds the same optimum."""
    pytest.importorskip("clarabel")
    problem = space("[error]\nhorizon = 3\nmomentum = 0.5\n[mixing]\ndropout = 0.2\n")
    native, conic = (solve(problem, backend=name).certificate for name in ("native", "clarabel"))
    assert native is not None
    assert conic is not None
    assert max(native.lower_bound, conic.lower_bound) <= min(native.objective, conic.objective)
    assert conic.gap <= 1e-6
