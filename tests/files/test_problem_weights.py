"""Weights of problem files that are designed, or of directed graphs: from the text to the disk."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest

from noisedesign.base.checks import InputError
from noisedesign.design.design import Design
from noisedesign.design.least_noise import least_noise_mixing
from noisedesign.design.solve import solve
from noisedesign.files import problem_file
from noisedesign.files.design_file import load_design, save_design
from noisedesign.files.problem_file import parse_problem
from noisedesign.privacy import views as threats
from noisedesign.privacy.exposure import account
from noisedesign.problem.problem import Problem, SpaceProblem, SpaceTimeProblem, TimeProblem
from noisedesign.system.fastest_mixing import FastestMixing, fastest_mixing
from noisedesign.system.graph import edge_list_graph
from noisedesign.system.participation import FixedEpoch, single
from noisedesign.system.workloads import ErrorMeasure
from noisedesign.tasks.verify import Check, verify
from tests.support import dense_views, oracles, structured_oracles as slow, transcripts
from tests.support.command_line import call

SPACE = 'name = "x"\ndesign = "space"\n'
MODELS = 'name = "x"\ndesign = "time"\nworkload = {kind = "decentralized"}\n'
JOINT = 'name = "x"\ndesign = "space-time"\n'
TWO_BY_TWO = "[participation]\nepochs = 2\nseparation = 2\n"

LINKS = "# who sends to whom\na b\nb c\nc a\na c\nx a\n"
"""A directed triangle in which a also sends to c, and x whom nobody tells anything."""
ROW = np.array([[1 / 2, 0, 1 / 2], [1 / 2, 1 / 2, 0], [1 / 3, 1 / 3, 1 / 3]])
COLUMN = np.array([[1 / 3, 0, 1 / 2], [1 / 3, 1 / 2, 0], [1 / 3, 1 / 2, 1 / 2]])


def graph(kind: str, weights: str = "", **keys: Any) -> str:
    lines = ["[graph]", f'kind = "{kind}"', f'weights = "{weights}"' if weights else ""]
    lines += [
        f'{key} = "{v}"' if isinstance(v, str) else f"{key} = {str(v).lower()}"
        for key, v in keys.items()
    ]
    return "\n".join([*lines, ""])


def parse(text: str, folder: Path | str = ".") -> Problem:
    return parse_problem(text, folder=folder).problem


# The list has a node that is not strongly connected to the others.
pytestmark = pytest.mark.filterwarnings("ignore:graph.file")


@pytest.fixture
def links(tmp_path: Path) -> Path:
    (tmp_path / "links.edges").write_text(LINKS)
    return tmp_path


def directed(weights: str) -> str:
    return graph("edges", weights, file="links.edges", directed=True)


def norm_by_svd(w: np.ndarray) -> float:
    return float(np.linalg.svd(w - 1 / len(w), compute_uv=False)[0])


def problem_check(design: Design, text: str, folder: Path) -> Check:
    stored = load_design(save_design(design, folder / "d.npz", problem_text=text))
    asked = None
    if "file = " in text:  # which is read for a problem that the user names, and for no other
        assert "problem" in verify(stored).not_checked
        asked = parse_problem(text, folder=folder, mixing=stored.design.problem.mixing).problem
    outcome = verify(stored, problem=asked)
    assert [c.name for c in outcome.checks if c.ok is False] in ([], ["problem"])
    return next(check for check in outcome.checks if check.name == "problem")


# --- the fastest mixing ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "norm"),
    [
        # Boyd, Diaconis, Sun and Xiao (2006); a star's centre shares one unit among its leaves.
        (graph("path", "fastest-mixing", nodes=6), math.cos(math.pi / 6)),
        (graph("star", "fastest-mixing", nodes=5), 1 - 1 / 4),
        # Edge-transitive: (l_n - l_2) / (l_n + l_2) of the eigenvalues of the Laplacian, 4 and 1.
        (graph("ring", "fastest-mixing", nodes=6), 3 / 5),
        (graph("complete", "fastest-mixing", nodes=4), 0.0),
    ],
)
def test_the_fastest_mixing_of_a_problem_file(text: str, norm: float) -> None:
    w = parse(MODELS + TWO_BY_TWO + text).mixing
    assert w is not None
    assert norm_by_svd(w) == pytest.approx(norm, abs=1e-6)
    np.testing.assert_array_equal(w, w.T)
    np.testing.assert_allclose(w.sum(axis=0), 1, rtol=1e-14)
    assert w.min() >= 0


def test_links_of_no_use_to_the_fastest_mixing_remain_links(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Even from a solver that leaves nothing on them."""

    def exact(graph: nx.Graph) -> FastestMixing:
        found = fastest_mixing(graph)
        w = np.where(found.mixing > 1e-7, found.mixing, 0.0)
        np.fill_diagonal(w, np.diagonal(w) + 1 - w.sum(axis=1))
        assert (w > 0).sum() < (found.mixing > 0).sum()
        return replace(found, mixing=w)

    monkeypatch.setattr("noisedesign.system.fastest_mixing.fastest_mixing", exact)
    problem = parse(SPACE + graph("florentine", "fastest-mixing"))
    assert isinstance(problem, SpaceProblem)
    found = nx.from_numpy_array(problem.mixing)
    found.remove_edges_from(list(nx.selfloop_edges(found)))
    families = nx.convert_node_labels_to_integers(nx.florentine_families_graph())
    assert set(map(frozenset, found.edges)) == set(map(frozenset, families.edges))
    assert problem.mixing[problem.mixing > 0].min() < 1e-7
    plain = oracles.metropolis(nx.florentine_families_graph())
    assert norm_by_svd(problem.mixing) < norm_by_svd(plain) - 0.01


def moved(w: np.ndarray, by: float) -> np.ndarray:
    """W with one more weight ``by`` on the link of nodes 0 and 1."""
    across = np.eye(len(w))[0] - np.eye(len(w))[1]
    return w - by * np.outer(across, across)


FASTEST_5 = SPACE + graph("ring", "fastest-mixing", nodes=5)


def test_other_digits_of_a_solver_pass_for_the_same_problem(tmp_path: Path) -> None:
    """Another machine finds another W that is as fast; the one that was designed for stays."""
    first = parse(FASTEST_5)
    assert isinstance(first, SpaceProblem)
    elsewhere = replace(first, mixing=moved(first.mixing, 1e-7))
    design = solve(elsewhere).design
    assert design is not None
    check = problem_check(design, FASTEST_5, tmp_path)
    assert (check.ok, check.found) == (True, "as its text says")


@pytest.mark.parametrize("by", [1e-3, -1e-3])
def test_a_mixing_that_is_not_the_fastest_does_not(tmp_path: Path, by: float) -> None:
    first = parse(FASTEST_5)
    assert isinstance(first, SpaceProblem)
    design = solve(replace(first, mixing=moved(first.mixing, by))).design
    assert design is not None
    check = problem_check(design, FASTEST_5, tmp_path)
    assert check.ok is False
    assert "mixing" in str(check.found)


def test_a_fast_mixing_of_another_graph_does_not(tmp_path: Path) -> None:
    complete = replace_mixing(parse(FASTEST_5), np.full((5, 5), 0.2))
    design = solve(replace(complete, max_variance=3.0)).design
    assert design is not None
    text = FASTEST_5 + "[limits]\nmax_variance = 3.0\n"
    assert problem_check(design, text, tmp_path).ok is False


def replace_mixing(problem: Problem, mixing: np.ndarray) -> SpaceProblem:
    assert isinstance(problem, SpaceProblem)
    return replace(problem, mixing=mixing)


def test_what_is_not_proved_to_be_fastest_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    found = fastest_mixing(nx.cycle_graph(5))
    weak = replace(found, lower_bound=found.lower_bound - 1e-5)
    monkeypatch.setattr("noisedesign.system.fastest_mixing.fastest_mixing", lambda graph: weak)
    with pytest.raises(InputError, match=r"graph\.weights: expected a graph whose fastest mixing"):
        parse(FASTEST_5)


def test_a_fastest_design_from_the_shell(tmp_path: Path) -> None:
    (tmp_path / "p.toml").write_text(FASTEST_5 + '[structure]\nspace = "edge-local"\n')
    assert call("solve", tmp_path / "p.toml", "-o", tmp_path / "d.npz").code == 0
    assert call("verify", tmp_path / "d.npz").code == 0


# --- the mixing of least noise --------------------------------------------------------------------

LEAST_5 = SPACE + graph("path", "least-noise", nodes=5)
OVER_STEPS = {
    "in time": MODELS + TWO_BY_TWO + graph("path", "least-noise", nodes=5),
    "in space": LEAST_5 + "[error]\nhorizon = 3\n[limits]\nmax_variance = 9.0\n",
}


def designed(text: str, folder: Path) -> tuple[Design, dict[str, Check], Path]:
    design = solve(parse(text)).design
    assert design is not None
    path = save_design(design, folder / "d.npz", problem_text=text)
    outcome = verify(load_design(path))
    assert outcome.ok, outcome
    return design, {check.name: check for check in outcome.checks}, path


def test_the_bound_for_every_mixing_is_stored_and_computed_again(tmp_path: Path) -> None:
    text = LEAST_5.replace("nodes = 5", "nodes = 5\nmixing_rate = 0.9")
    text += "[budget]\ntau = [1.0, 2.0, 1.0, 1.0, 3.0]\n[limits]\nmax_variance = 4.0\n"
    design, checks, path = designed(text, tmp_path)
    found = checks["mixing bound"].found
    assert isinstance(found, float)
    assert found <= design.objective <= found * (1 + 2e-6)
    assert "<= 0.9," in checks["mixing bound"].note
    stored = load_design(path)
    proof = stored.design.problem.mixing_proof
    names = {f"mixings_{name}" for name in proof.arrays() if name != "columns"}
    assert names <= set(stored.arrays)
    assert checks["problem"].found == "as its text says"
    # Another W of the graph has a design of its own, which the same multipliers bound.
    other = replace(design.problem, mixing=oracles.metropolis(nx.path_graph(5)), mixing_proof=None)
    plain = solve(other).design
    assert plain is not None
    assert plain.objective > (1 + 1e-3) * found
    for forged in (plain, replace(plain, problem=replace(plain.problem, mixing_proof=proof))):
        outcome = verify(load_design(save_design(forged, tmp_path / "f.npz", problem_text=text)))
        wrong = [check.name for check in outcome.checks if check.ok is False]
        assert wrong == (["mixing bound"] if forged.problem.mixing_proof else ["problem"])


def test_a_mixing_of_arcs_is_proved_with_every_rounding(tmp_path: Path) -> None:
    text = SPACE + graph("erdos-renyi", "least-noise", nodes=8, p=0.3, seed=0, directed=True)
    text += "[error]\nhorizon = 1\nnode_weights = [1.0, 2.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.5]\n"
    text += "[limits]\nmax_variance = 10.0\n"
    design, checks, path = designed(text, tmp_path)
    w, proof = design.problem.mixing, design.problem.mixing_proof
    assert w is not None
    assert proof is not None
    assert not proof.symmetric
    assert checks["problem"].ok
    assert "of every W on" in checks["mixing bound"].note
    outcome = verify(load_design(path), rigorous=True)
    assert outcome.rigorous
    (check,) = (check for check in outcome.checks if check.name == "mixing bound")
    assert check.ok
    assert "proved to be within" in check.note


def test_a_bound_of_symmetric_mixings_is_none_of_another(tmp_path: Path) -> None:
    """One that is not symmetric may have less noise than that bound allows."""
    budget = np.array([1.0, 4.0, 0.5, 2.0])
    triangle = nx.Graph([(0, 1), (1, 2), (2, 0), (2, 3)])
    plain = SpaceProblem.from_graph(triangle, budget=budget, max_variance=20.0)
    own, others = (
        least_noise_mixing(plain, mixing_rate=0.8, symmetric=symmetric).problem
        for symmetric in (False, True)
    )
    assert isinstance(own, SpaceProblem)
    assert isinstance(others, SpaceProblem)
    claimed = replace(own, mixing_proof=others.mixing_proof)
    for problem, wrong in ((own, []), (claimed, ["mixing bound"])):
        design = solve(problem).design
        assert design is not None
        outcome = verify(load_design(save_design(design, tmp_path / "d.npz")))
        assert [check.name for check in outcome.checks if check.ok is False] == wrong


@pytest.mark.parametrize("weights", ["doubly-stochastic", "least-noise"])
def test_doubly_stochastic_models_have_the_plain_mean(weights: str) -> None:
    links = graph("erdos-renyi", weights, nodes=5, p=0.5, seed=0, directed=True)
    problem = parse(MODELS + TWO_BY_TWO + links + '[error]\nof = "consensus"\n')
    assert isinstance(problem, TimeProblem)
    w = problem.mixing
    assert w is not None
    np.testing.assert_allclose([w.sum(axis=0), w.sum(axis=1)], 1, atol=1e-12)
    models, plain = maps(w, 4, push_sum=False), means(w, 4, push_sum=True)
    off = sum((m - mean).T @ (m - mean) for m, mean in zip(models, plain, strict=True))
    np.testing.assert_allclose(problem.gram, of_time(off, 5), atol=1e-12)


def test_multipliers_that_prove_nothing_are_told(tmp_path: Path) -> None:
    design, _, _ = designed(LEAST_5, tmp_path)
    problem = design.problem
    assert isinstance(problem, SpaceProblem)
    assert problem.mixing_proof is not None
    for broken in (
        replace(problem.mixing_proof, polar=-problem.mixing_proof.polar),
        replace(problem.mixing_proof, norm=0.5),  # which W does not keep
    ):
        forged = replace(design, problem=replace(problem, mixing_proof=broken))
        outcome = verify(load_design(save_design(forged, tmp_path / "f.npz")))
        assert [check.name for check in outcome.checks if check.ok is False] == ["mixing bound"]


@pytest.mark.parametrize("text", OVER_STEPS.values(), ids=OVER_STEPS)
def test_a_mixing_for_several_steps_claims_no_bound(text: str, tmp_path: Path) -> None:
    design, checks, _ = designed(text, tmp_path)
    assert "mixing bound" not in checks
    assert checks["problem"].found == "as its text says"
    plain = solve(parse(text.replace("least-noise", "metropolis-hastings"))).design
    assert plain is not None
    assert design.objective < 0.99 * plain.objective


def test_who_judges_looks_for_no_mixing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = LEAST_5 + "[limits]\nmax_variance = 9.0\n"
    design = solve(parse(text)).design
    assert design is not None
    monkeypatch.setattr(problem_file, "import_module", lambda name: pytest.fail(name))
    assert problem_check(design, text, tmp_path).ok is True


# --- directed graphs: W ---------------------------------------------------------------------------


@pytest.mark.parametrize(("weights", "expected"), [("row", ROW), ("column", COLUMN)])
def test_directed_edges(links: Path, weights: str, expected: np.ndarray) -> None:
    for head in (MODELS, JOINT):
        problem = parse(head + TWO_BY_TWO + directed(f"{weights}-stochastic"), links)
        assert problem.nodes == ("a", "b", "c")
        assert problem.mixing is not None
        np.testing.assert_allclose(problem.mixing, expected, rtol=1e-15)


def test_generated_digraphs() -> None:
    text = MODELS + TWO_BY_TWO + graph("ring", "row-stochastic", nodes=4, directed=True)
    ring = parse(text).mixing
    np.testing.assert_array_equal(ring, (np.eye(4) + np.roll(np.eye(4), 1, axis=0)) / 2)
    keys: dict[str, Any] = {"nodes": 8, "p": 0.3, "seed": 3, "directed": True}
    random = parse(MODELS + TWO_BY_TWO + graph("erdos-renyi", "column-stochastic", **keys)).mixing
    seeds = (nx.gnp_random_graph(8, 0.3, seed=3 + 1000 * k, directed=True) for k in range(100))
    first = next(g for g in seeds if nx.is_strongly_connected(g))
    assert random is not None
    sends = {(j, i) for i, j in zip(*np.nonzero(random), strict=True) if i != j}
    assert sends == set(first.edges)


def test_an_undirected_graph_stays_one(links: Path) -> None:
    w = parse(SPACE + graph("edges", file="links.edges", directed=False), links).mixing
    assert w is not None
    assert len(w) == 4
    np.testing.assert_array_equal(w, w.T)


def test_the_largest_strong_component_is_kept() -> None:
    text = "1 2\n2 1\n2 3\n3 4\n4 5\n5 3\n5 5\n3 4\n5 6\n"
    found = edge_list_graph(text, source="here", directed=True)
    assert (list(found.nodes), set(found.edges)) == ([3, 4, 5], {(3, 4), (4, 5), (5, 3)})
    equal = edge_list_graph("3 4\n4 3\n2 1\n1 2\n", source="here", directed=True)
    assert list(equal.nodes) == [1, 2]
    with pytest.raises(InputError, match=r"graph\.file: expected nodes that reach each other"):
        edge_list_graph("1 2\n2 3\n", source="here", directed=True)


# --- directed graphs: the models ------------------------------------------------------------------


def maps(w: np.ndarray, horizon: int, *, push_sum: bool) -> list[np.ndarray]:
    """Every model after every step as a linear map of all noise, (n, nT)."""
    found, y = [], np.ones(len(w))
    for state in slow.noise_to_state(w, horizon):
        y = w @ y
        found.append(state / y[:, None] if push_sum else state)
    return found


def means(w: np.ndarray, horizon: int, *, push_sum: bool) -> list[np.ndarray]:
    """What the models agree on, after every step, as a linear map of all noise, (nT,)."""
    values, vectors = np.linalg.eig(w.T)
    pi = np.real(vectors[:, np.argmax(np.real(values))])
    weights = np.full(len(w), 1 / len(w)) if push_sum else pi / pi.sum()
    return [weights @ state for state in slow.noise_to_state(w, horizon)]


def stacked_gram(w: np.ndarray, horizon: int, of: str, *, push_sum: bool) -> np.ndarray:
    """H over all nodes and steps, (nT, nT)."""
    models = maps(w, horizon, push_sum=push_sum)
    middle = means(w, horizon, push_sum=push_sum)
    if of == "mean-model":
        return sum((len(w) * np.outer(m, m) for m in middle), np.zeros((len(w) * horizon,) * 2))
    if of == "consensus":
        models = [x - m for x, m in zip(models, middle, strict=True)]
    return np.asarray(sum(x.T @ x for x in models))


def of_time(gram: np.ndarray, n: int) -> np.ndarray:
    horizon = len(gram) // n
    return np.asarray(np.einsum("sutu->st", gram.reshape(horizon, n, horizon, n)))


@pytest.mark.parametrize("of", ["all-iterates", "mean-model", "consensus"])
@pytest.mark.parametrize(("weights", "w"), [("row", ROW), ("column", COLUMN)])
def test_the_error_is_that_of_the_models(links: Path, weights: str, w: np.ndarray, of: str) -> None:
    text = MODELS + TWO_BY_TWO + directed(f"{weights}-stochastic") + f'[error]\nof = "{of}"\n'
    problem = parse(text, links)
    assert isinstance(problem, TimeProblem)
    every = stacked_gram(w, 4, of, push_sum=weights == "column")
    np.testing.assert_allclose(problem.gram, of_time(every, 3), rtol=1e-12)
    if of == "all-iterates":
        without = parse(text.split("[error]")[0], links)
        assert isinstance(without, TimeProblem)
        np.testing.assert_allclose(without.gram, problem.gram, rtol=1e-12)
    design = solve(problem).design
    assert design is not None
    assert problem_check(design, text, links).ok
    noise = np.kron(np.linalg.inv(design.strategy.T @ design.strategy), np.eye(3))
    assert np.sum(every * noise) == pytest.approx(design.objective, rel=1e-9)


@pytest.mark.parametrize(("weights", "w"), [("row", ROW), ("column", COLUMN)])
def test_space_time_designs_of_directed_graphs(links: Path, weights: str, w: np.ndarray) -> None:
    """A full one has any covariance: its error is that of the stacked workload."""
    text = JOINT + TWO_BY_TWO + directed(f"{weights}-stochastic") + '[structure]\njoint = "full"\n'
    problem = parse(text, links)
    assert isinstance(problem, SpaceTimeProblem)
    design = solve(problem).design
    assert design is not None
    noise = np.linalg.inv(design.strategy.T @ design.strategy)
    every = stacked_gram(w, 4, "all-iterates", push_sum=weights == "column")
    assert np.sum(every * noise) == pytest.approx(design.objective, rel=1e-9)
    assert design.gap <= 1e-6
    assert problem_check(design, text, links).ok


def test_a_kronecker_consensus_design_comes_back(links: Path) -> None:
    text = JOINT + TWO_BY_TWO + directed("row-stochastic") + '[error]\nof = "consensus"\n'
    problem = parse(text, links)
    design = solve(problem).design
    assert design is not None
    assert problem_check(design, text, links).ok
    loaded = load_design(links / "d.npz").design.problem.error
    assert loaded is not None
    pi = means(ROW, 1, push_sum=False)[0] @ np.linalg.inv(ROW)
    np.testing.assert_allclose(loaded.average, pi, rtol=1e-12)
    plain = text.replace('of = "consensus"', 'of = "all-iterates"')
    assert problem_check(design, plain, links).ok is False


def test_means_and_weights_of_another_mixing_are_not_stored(tmp_path: Path) -> None:
    participation = FixedEpoch(epochs=2, separation=2)
    for objective, field in (
        (ErrorMeasure(horizon=4, of="consensus", average=np.array([0.2, 0.3, 0.5])), "average"),
        (ErrorMeasure(horizon=4, push_sum_weights=np.array([1.0, 2.0, 3.0])), "push_sum_weights"),
    ):
        problem = TimeProblem.decentralized(
            mixing=COLUMN if field == "push_sum_weights" else ROW,
            participation=participation,
            error=objective,
        )
        design = solve(problem).design
        assert design is not None
        with pytest.raises(InputError, match=rf"error\.{field}"):
            save_design(design, tmp_path / "d.npz")


def test_an_account_of_push_sum(links: Path) -> None:
    """Messages are the states, whatever they are divided by; node 0 hears from node 2 only."""
    problem = parse(MODELS + TWO_BY_TWO + directed("column-stochastic"), links)
    found = account(
        threats.dp_d_sgd(mixing=problem.mixing, horizon=3),
        threats.pndp(nodes=[0]),
        participation=single(3),
        responses="fixed",
    )
    view = dense_views.neighbour(COLUMN, 0, horizon=3)
    for exposure, u in zip(found, (1, 2), strict=True):
        worst = np.diagonal(view.victim(u, nodes=3, horizon=3)).max()
        assert exposure.sensitivity_squared == pytest.approx(worst, rel=1e-9)


# --- refusals -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "field", "words"),
    [
        (SPACE + graph("karate", "fastest"), "graph.weights", "fastest-mixing"),
        (SPACE + graph("karate", "row-stochastic"), "graph.weights", "row-normalized"),
        (LEAST_5 + "[mixing]\nedge_failure = 0.1\n", "mixing", "W can be chosen for"),
        (
            LEAST_5.replace("least-noise", "max-degree") + "mixing_rate = 0.9\n",
            "graph.mixing_rate",
            "least-noise",
        ),
        (LEAST_5 + "mixing_rate = 1.5\n", "graph.mixing_rate", r"in (0, 1)"),
        (LEAST_5 + "mixing_rate = 0.5\n", "graph.mixing_rate", "at least that of the fastest"),
        (MODELS + TWO_BY_TWO + directed("max-degree"), "graph.weights", "directed = true"),
        (SPACE + graph("karate", directed=True), "graph.directed", "unknown key directed"),
        (SPACE + graph("ring", "row-stochastic", nodes=4), "graph.weights", "directed = false"),
        (MODELS + TWO_BY_TWO + directed("fastest-mixing"), "graph.weights", "directed = true"),
        (MODELS + TWO_BY_TWO + directed(""), "graph.weights", "got nothing"),
        (SPACE + graph("path", nodes=2, directed=True), "graph.directed", "unknown key"),
        (
            SPACE + graph("ring", nodes=4, directed=True).replace("true", '"yes"'),
            "graph.directed",
            "yes",
        ),
        (
            MODELS + TWO_BY_TWO + graph("ring", "row-stochastic", nodes=2, directed=True),
            "graph.nodes",
            "integer >= 3",
        ),
        (
            MODELS + TWO_BY_TWO + directed("row-stochastic") + "[mixing]\nedge_failure = 0.1\n",
            "mixing",
            "directed",
        ),
        (
            MODELS
            + TWO_BY_TWO
            + directed("column-stochastic")
            + '[mixing]\nmatching = "maximal"\n',
            "mixing",
            "directed",
        ),
    ],
)
def test_errors_name_the_key(text: str, field: str, words: str, links: Path) -> None:
    with pytest.raises(InputError) as caught:
        parse(text, links)
    assert caught.value.field == field
    assert words in str(caught.value)


@pytest.mark.parametrize("of", ["all-iterates", "mean-model", "consensus"])
@pytest.mark.parametrize(("weights", "w"), [("row", ROW), ("column", COLUMN)])
@pytest.mark.parametrize("horizon", [1, 3])
def test_space_designs_of_directed_graphs(
    links: Path, weights: str, w: np.ndarray, of: str, horizon: int
) -> None:
    """H is that of noise drawn afresh at every step and carried along by W, written out."""
    error = f'[error]\nof = "{of}"\nhorizon = {horizon}\n'
    text = SPACE + "limits = {max_variance = 50.0}\n" + directed(f"{weights}-stochastic") + error
    problem = parse(text, links)
    assert isinstance(problem, SpaceProblem)
    every = stacked_gram(w, horizon, of, push_sum=weights == "column")
    by_step = every.reshape(horizon, 3, horizon, 3)
    np.testing.assert_allclose(problem.gram, np.einsum("titj->ij", by_step), atol=1e-12)
    if (of, horizon) == ("all-iterates", 1):
        without = parse(text.split("[error]")[0], links)
        np.testing.assert_allclose(without.gram, problem.gram, atol=1e-12)
        if weights == "row":
            np.testing.assert_allclose(problem.gram, w.T @ w, atol=1e-12)
    design = solve(problem).design
    assert design is not None
    assert design.gap <= 1e-6
    noise = np.kron(np.eye(horizon), design.covariance)
    assert np.sum(every * noise) == pytest.approx(design.objective, rel=1e-9)
    assert problem_check(design, text, links).ok


@pytest.mark.parametrize("w", [ROW, (np.eye(3) + ROW) / 2], ids=["row", "lazy"])
def test_row_stochastic_noise_is_optimal_and_protects_every_message(w: np.ndarray) -> None:
    design = solve(SpaceProblem(mixing=w, max_variance=20.0)).design
    assert design is not None
    found = oracles.capped_interval(w.T @ w, cap=20.0)
    assert found.lower * (1 - 1e-6) <= design.objective <= found.upper * (1 + 2e-6)
    # Term by term: who reads all messages subtracts what was mixed, whatever W is.
    r = design.covariance
    run = transcripts.whisper(w, r, horizon=3)(transcripts.Traced())
    for u in range(3):
        gram, exposed = transcripts.eliminated(run, transcripts.Observer(kind="ldp"), u, zero=1e-12)
        assert exposed == ()
        np.testing.assert_allclose(gram, np.linalg.inv(r)[u, u] * np.eye(3), atol=1e-9)
    assert np.diagonal(np.linalg.inv(r)).max() <= 1 + 1e-12


def test_a_balanced_digraph_serves_a_space_design() -> None:
    """A directed ring is doubly stochastic, and the nuclear norm is |(1 + z) / 2| over 5 roots."""
    text = SPACE + graph("ring", "row-stochastic", nodes=5, directed=True)
    design = solve(parse(text)).design
    assert design is not None
    nuclear = sum(abs(math.cos(math.pi * k / 5)) for k in range(5))
    assert design.objective == pytest.approx(nuclear**2 / 5, rel=1e-6)


def test_push_sum_needs_columns_and_others_rows() -> None:
    participation = FixedEpoch(epochs=1, separation=2)
    with pytest.raises(InputError, match="rows that sum to 1"):
        TimeProblem.decentralized(mixing=COLUMN, participation=participation)
    y = ErrorMeasure(horizon=2, push_sum_weights=np.ones(3))
    with pytest.raises(InputError, match="columns that sum to 1"):
        SpaceTimeProblem(mixing=ROW, participation=participation, error=y)
