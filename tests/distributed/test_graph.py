"""Graphs in parts: what is stored, and every way in which a folder may be wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
from scipy import sparse

import noisedesign as nd
from noisedesign.base.checks import InputError
from noisedesign.distributed import graph as graphs, tasks
from noisedesign.distributed.graph import folder_at, read_part
from noisedesign.distributed.world import World
from tests.support.parts import in_parts, write_folder


def read(path: Path) -> list[tuple[Any, ...]]:
    """W, budgets, names and the problem, as each part has them."""
    folder = folder_at(path)

    def find(world: World) -> tuple[Any, ...]:
        part = read_part(folder, world)
        w = part.rows.times(np.eye(folder.nodes)[world.first : world.end])
        return w, part.budget, part.names, part.problem

    return in_parts(folder.ends, find)


PATH = [[(0, 1), (1, 0), (1, 2)], [(2, 1), (2, 3), (3, 2)]]  # 0 - 1 - 2 - 3


def test_a_folder_of_edges_has_metropolis_weights(tmp_path: Path) -> None:
    found = read(write_folder(tmp_path, PATH, [0, 2, 4]))
    w = nd.mixing_matrix(nx.path_graph(4))
    assert np.concatenate([one[0] for one in found]) == pytest.approx(w, abs=1e-15)
    assert (found[1][1] == 1).all()  # budgets
    assert found[1][2].tolist() == [2, 3]
    assert found[0][3] == found[1][3]


def test_weights_may_be_given(tmp_path: Path) -> None:
    edges = [[(0, 1, 0.25)], [(1, 0, 0.25), (1, 2, 0.5)], [(2, 1, 0.5)]]
    found = read(write_folder(tmp_path, edges, [0, 1, 2, 3], weights="given"))
    w = [[0.75, 0.25, 0], [0.25, 0.25, 0.5], [0, 0.5, 0.5]]
    assert np.concatenate([one[0] for one in found]) == pytest.approx(np.array(w), abs=1e-15)


@pytest.mark.parametrize("cut", ["given", "rcm"])
@pytest.mark.parametrize("count", [1, 2, 5, 12])
def test_what_is_stored_is_read_again(tmp_path: Path, cut: Any, count: int) -> None:
    w = nd.mixing_matrix(nx.cycle_graph(12), weights="max-degree")
    budget = np.linspace(0.5, 1.0, 12)
    folder = tasks.store(nd.SpaceProblem(mixing=w, budget=budget), tmp_path, parts=count, cut=cut)
    found = read(tmp_path)
    names = np.concatenate([one[2] for one in found])
    assert sorted(names) == list(range(12))
    assert np.concatenate([one[0] for one in found]) == pytest.approx(w[np.ix_(names, names)])
    assert (np.concatenate([one[1] for one in found]) == budget[names]).all()
    assert folder.parts == count
    assert np.diff(folder.ends).min() >= 1
    if cut == "given":
        assert names.tolist() == list(range(12))


def test_parts_have_as_many_edges_each() -> None:
    star = nx.star_graph(50)
    w = sparse.csr_array(nd.mixing_matrix(star))
    ends = np.bincount(tasks._labels(w, 3, "given"))
    assert ends.sum() == 51
    assert ends.min() >= 1
    assert ends[0] < ends[1]  # the hub's part has fewer nodes


def test_parts_of_a_former_graph_are_removed(tmp_path: Path) -> None:
    problem = nd.SpaceProblem(mixing=nd.mixing_matrix(nx.cycle_graph(8)))
    tasks.store(problem, tmp_path, parts=4)
    tasks.store(problem, tmp_path, parts=2)
    assert len(list(tmp_path.glob("edges-*.parquet"))) == 2
    assert len(read(tmp_path)) == 2


WRONG: dict[str, tuple[Any, dict[str, Any], str]] = {
    "source of another part": ([[(0, 1), (2, 1)], PATH[1]], {}, "sources of this part, 0 to 1"),
    "no such node": ([[(0, 1), (1, 0), (1, 9)], PATH[1]], {}, "nodes from 0 to 3"),
    "self-loop": ([[*PATH[0], (1, 1)], PATH[1]], {}, "edges between two nodes"),
    "twice": ([[*PATH[0], (0, 1)], PATH[1]], {}, "every edge once"),
    "one end alone": ([PATH[0], [*PATH[1], (3, 0)]], {}, "the edge 3 - 0 of weight 1"),
    "one end alone, inside": ([[(0, 1), (1, 2)], PATH[1]], {}, "the edge 0 - 1 of weight 1"),
    "no edge": ([[(1, 2)], PATH[1]], {}, "none of node 0"),
    "not connected": ([[(0, 1), (1, 0)], [(2, 3), (3, 2)]], {}, "node 2 cannot reach node 0"),
    "other weights": (
        [[(0, 1, 0.5)], [(1, 0, 0.25)]],
        {"ends": [0, 1, 2], "weights": "given"},
        "of the same weight",
    ),
    "weights above 1": (
        [[(0, 1, 1.5)], [(1, 0, 1.5)]],
        {"ends": [0, 1, 2], "weights": "given"},
        "at most 1",
    ),
    "weight of 0": (
        [[(0, 1, 0.0)], [(1, 0, 0.0)]],
        {"ends": [0, 1, 2], "weights": "given"},
        "positive weights",
    ),
    "no column of weights": (PATH, {"weights": "given"}, "columns source, target, weight"),
    "digest": (
        PATH,
        {"sha256": {"edges-00001.parquet": "0" * 64}},
        "the file that parts.json names",
    ),
    "no part": (PATH[:1], {}, "a file that can be read"),
}


@pytest.mark.parametrize("case", WRONG.values(), ids=WRONG.keys())
def test_what_is_wrong_is_refused_by_name(
    tmp_path: Path, case: tuple[Any, dict[str, Any], str]
) -> None:
    edges, more, expected = case
    write_folder(tmp_path, edges, **{"ends": [0, 2, 4]} | more)
    with pytest.raises(InputError, match=expected):
        read(tmp_path)


@pytest.mark.parametrize(
    "stated",
    [
        "nothing",
        "[]",
        '{"format": "noisedesign-parts", "version": 2, "ends": [0, 1]}',
        '{"format": "noisedesign-parts", "version": 1}',
        '{"format": "noisedesign-parts", "version": 1, "ends": [0, 3, 3]}',
        '{"format": "noisedesign-parts", "version": 1, "ends": [1, 3]}',
        '{"format": "noisedesign-parts", "version": 1, "ends": [0, 3], "weight": "given"}',
        '{"format": "noisedesign-parts", "version": 1, "ends": [0, 3], "weights": "lazy"}',
        '{"format": "noisedesign-parts", "version": 1, "ends": [0, 3], "privacy": {"mu": 1}}',
        '{"format": "noisedesign-parts", "version": 1, "ends": [0, 3], "sha256": 3}',
        '{"format": "noisedesign-parts", "version": 1, "ends": [0, 9007199254740993]}',
    ],
)
def test_a_wrong_manifest_is_refused(tmp_path: Path, stated: str) -> None:
    (tmp_path / graphs.MANIFEST).write_text(stated)
    with pytest.raises(InputError, match="parts"):
        folder_at(tmp_path)


@pytest.mark.parametrize(
    ("second", "expected"),
    [
        ({"name": [0, 1], "budget": [1.0, 1.0]}, "[01] 2 times"),  # counted anew by a part
        ({"name": [7, 7], "budget": [1.0, 1.0]}, "the name 7 2 times"),
        ({"name": [1, 5], "budget": [1.0, 1.0]}, "the name 1 2 times"),  # those of part 0 are 0, 1
        ({"name": [2, 3], "budget": [1.0, 1e-200]}, "values between 1e-50 and 1e"),
        ({"name": [2, 3], "budget": [1.0, 0.0]}, "values > 0"),
    ],
)
def test_names_and_budgets_of_nodes_are_checked(
    tmp_path: Path, second: dict[str, Any], expected: str
) -> None:
    write_folder(tmp_path, PATH, [0, 2, 4])
    graphs.write_table(
        tmp_path / "nodes-00001.parquet", {name: np.array(x) for name, x in second.items()}
    )
    with pytest.raises(InputError, match=expected):
        read(tmp_path)


def test_weights_that_nothing_asks_for_are_refused(tmp_path: Path) -> None:
    """They are not left out in silence."""
    edges = [[(0, 1, 0.25)], [(1, 0, 0.25)]]
    write_folder(tmp_path, edges, [0, 1, 2])
    with pytest.raises(InputError, match='"weights": "given"'):
        read(tmp_path)
    write_folder(tmp_path, edges, [0, 1, 2], weights="given")
    assert len(read(tmp_path)) == 2


def test_a_long_path_is_connected(tmp_path: Path) -> None:
    """Every second node in the other part: no part has an inner edge."""
    path = nx.path_graph(9)
    order = [*range(0, 9, 2), *range(1, 9, 2)]
    number = {node: k for k, node in enumerate(order)}
    edges: list[list[tuple[int, ...]]] = [[], []]
    for u, v in path.edges:
        for a, b in ((number[u], number[v]), (number[v], number[u])):
            edges[a >= 5].append((a, b))
    found = read(write_folder(tmp_path, edges, [0, 5, 9]))
    w = nd.mixing_matrix(path)[np.ix_(order, order)]
    assert np.concatenate([one[0] for one in found]) == pytest.approx(w, abs=1e-15)


def of(**more: Any) -> nd.SpaceProblem:
    return nd.SpaceProblem(mixing=nd.mixing_matrix(nx.cycle_graph(6)), **more)


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("max_variance", lambda: of(max_variance=2.0)),
        ("min_variance", lambda: of(min_variance=0.5)),
        ("participation", lambda: of(participation=nd.participation.single(4))),
        ("structure", lambda: of(structure=nd.SpaceStructure(kind="edge-local"))),
        ("rounds", lambda: of(rounds=2)),
        ("error", lambda: of(error=nd.ErrorMeasure(horizon=2))),
        # Other errors of one step.
        ("error", lambda: of(error=nd.ErrorMeasure(horizon=1, of="consensus"))),
        ("error", lambda: of(error=nd.ErrorMeasure(horizon=1, node_weights=np.arange(1.0, 7.0)))),
        ("mixing", lambda: nd.SpaceProblem(mixing=[[0.5, 0.5], [0.25, 0.75]])),
        ("problem", lambda: nd.TimeProblem.prefix(participation=nd.participation.single(4))),
    ],
)
def test_what_parts_do_not_have_is_refused_by_name(tmp_path: Path, name: str, problem: Any) -> None:
    with pytest.raises(InputError, match=f"^{name}"):
        tasks.store(problem(), tmp_path)


def test_more_parts_than_nodes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="parts"):
        tasks.store(of(), tmp_path, parts=7)


def test_a_folder_of_other_files_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(InputError, match="other files"):
        tasks.store(of(), tmp_path)


def test_metis_is_asked_for_by_name(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    try:
        import pymetis  # noqa: F401
    except ImportError:
        with pytest.raises(InputError, match="pymetis"):
            tasks.store(of(), tmp_path, cut="metis")
