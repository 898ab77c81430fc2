"""Sizes that do not fit are refused before anything is built, with what would fit."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import psutil
import pytest

import noisedesign as nd
from noisedesign.base import memory
from noisedesign.base.checks import InputError
from noisedesign.families.disjoint import model as conic_model
from noisedesign.families.disjoint.model import model_size
from noisedesign.families.disjoint.program import program_of
from noisedesign.privacy import views as threats
from noisedesign.system.directed import build_digraph
from noisedesign.system.graph import NODE_BYTES
from noisedesign.system.workloads import ErrorMeasure
from tests.support.conic_cases import bytes_for, too_large

GIB = 2**30


def small_machine(monkeypatch: pytest.MonkeyPatch, bytes_: int) -> None:
    monkeypatch.setattr(memory, "physical", lambda: bytes_)


def barabasi(nodes: int, **options: Any) -> nd.SpaceProblem:
    graph = nx.barabasi_albert_graph(nodes, 2, seed=0)
    return nd.SpaceProblem(mixing=nd.mixing_matrix(graph), **options)


def prefix(epochs: int, separation: int) -> nd.TimeProblem:
    scheme = nd.participation.FixedEpoch(epochs=epochs, separation=separation)
    return nd.TimeProblem.prefix(participation=scheme)


# --- the machine -----------------------------------------------------------------------------


def test_memory_is_that_of_the_machine() -> None:
    assert 2**27 < memory.physical() <= psutil.virtual_memory().total


@pytest.mark.skipif(os.name != "posix", reason="limits of processes are set so on POSIX only")
def test_a_limit_of_the_process_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    import resource

    monkeypatch.setattr(resource, "getrlimit", lambda _: (GIB, resource.RLIM_INFINITY))
    assert memory.physical() == GIB


def test_a_container_counts(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    path = tmp_path / "memory.max"
    monkeypatch.setattr(memory, "CGROUP_FILES", (tmp_path / "none", path))
    before = memory.physical()
    path.write_text("max\n")
    assert memory.physical() == before
    path.write_text(f"{2**28}\n")
    assert memory.physical() == 2**28


def test_a_system_that_does_not_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_machine", "_container", "_process"):
        monkeypatch.setattr(memory, name, lambda: None)
    assert memory.physical() == memory.UNKNOWN


def test_what_would_fit_is_the_largest(monkeypatch: pytest.MonkeyPatch) -> None:
    small_machine(monkeypatch, 64 * 1000**2)
    memory.require(memory.squares, 1000, field="nodes", of="nodes")
    with pytest.raises(InputError) as error:
        memory.require(memory.squares, 1001, field="nodes", of="nodes")
    assert error.value.field == "nodes"
    assert error.value.expected.startswith("at most 1000 nodes, which fit the 61 MiB")
    with pytest.raises(InputError, match="nodes: expected at most 1000 nodes, .*, got 9007199254"):
        memory.require(memory.squares, 2**53, field="nodes", of="nodes")


@pytest.mark.parametrize(
    ("count", "words"),
    [
        (17, "17 bytes"),
        (1536, "1.5 KiB"),
        (1000 * 2**20, "1000 MiB"),
        (23.5 * GIB, "23.5 GiB"),
        (2**70, "1,048,576 PiB"),
    ],
)
def test_words(count: float, words: str) -> None:
    assert memory.words(count) == words


# --- conic models ----------------------------------------------------------------------------

MODELS: dict[str, Callable[[], nd.SpaceProblem | nd.TimeProblem]] = {
    "space": lambda: barabasi(9),
    "cap": lambda: barabasi(8, max_variance=4.0),
    "one epoch": lambda: prefix(1, 7),
    "epochs": lambda: prefix(3, 4),
    "singular": lambda: nd.SpaceProblem(
        mixing=nd.mixing_matrix(nx.path_graph(3)), error=ErrorMeasure(horizon=1, of="consensus")
    ),
}


HOLDING = [
    (name, formulation)
    for name in MODELS
    for formulation in conic_model.FORMULATIONS
    if name != "epochs" or formulation in ("balanced", "compact")
]


@pytest.mark.parametrize(("name", "formulation"), HOLDING)
@pytest.mark.parametrize("parts", [1, 2, 3])
def test_the_size_of_a_model_is_told_before_it_is_built(
    name: str, formulation: str, parts: int
) -> None:
    program = program_of(MODELS[name]()).normalized()
    told = model_size(
        program.size,
        epochs=program.participation.epochs,
        limited=program.limited,
        parts=parts,
        rank=int(np.linalg.matrix_rank(program.factor)),
        formulation=formulation,
    )
    conic = conic_model.build(program, formulation=formulation, parts=parts).conic
    assert told.variables == conic.variables
    assert sorted(told.blocks) == sorted(block.size for block in conic.blocks)


@pytest.mark.parametrize("backend", ["scs", "clarabel", "mosek", "cvxopt", "sdpa"])
def test_a_model_that_does_not_fit_is_refused(
    backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = barabasi(20)
    needed = bytes_for(backend, problem)
    monkeypatch.setattr(conic_model, "build", lambda *_, **__: pytest.fail("the model was built"))
    small_machine(monkeypatch, needed - 1)
    with pytest.raises(
        InputError, match=r"takes at least .* where this machine has .* 19 fit"
    ) as e:
        nd.solve(problem, backend=backend)
    assert e.value.field == "backend"
    small_machine(monkeypatch, needed)
    assert too_large(backend, problem) is None


def test_a_hopeless_size_takes_no_decomposition(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = barabasi(20)
    small_machine(monkeypatch, 1000)
    monkeypatch.setattr(np.linalg, "matrix_rank", lambda *_: pytest.fail("the rank was computed"))
    assert "takes at least" in str(too_large("clarabel", problem))


# --- graphs and horizons ---------------------------------------------------------------------

GRAPHS: dict[str, tuple[str, dict[str, Any], str]] = {
    "complete": ("complete", {"nodes": 200_000}, "graph.nodes"),
    "path": ("path", {"nodes": 10**9}, "graph.nodes"),
    "path beyond doubles": ("path", {"nodes": 10**23}, "graph.nodes"),
    "star of 2^63": ("star", {"nodes": 2**63}, "graph.nodes"),
    "ring": ("ring", {"nodes": 2**53}, "graph.nodes"),
    "hypercube 30": ("hypercube", {"dimension": 30}, "graph.dimension"),
    "hypercube 40": ("hypercube", {"dimension": 40}, "graph.dimension"),
    "hypercube beyond": ("hypercube", {"dimension": 2**53}, "graph.dimension"),
    "grid": ("grid", {"rows": 10**5, "columns": 10**5}, "graph.rows"),
    "torus": ("torus", {"rows": 3, "columns": 10**9}, "graph.columns"),
    "erdos-renyi": ("erdos-renyi", {"nodes": 50_000, "p": 0.5, "seed": 0}, "graph.nodes"),
    "random-regular": ("random-regular", {"nodes": 10**9, "degree": 4, "seed": 0}, "graph.nodes"),
    "barabasi-albert": ("barabasi-albert", {"nodes": 10**9, "links": 2, "seed": 0}, "graph.nodes"),
    "small-world": (
        "small-world",
        {"nodes": 10**13, "neighbours": 2, "p": 0.1, "seed": 0},
        "graph.nodes",
    ),
    "barbell": ("barbell", {"clique": 10**6, "bridge": 2}, "graph.clique"),
    "caveman": ("caveman", {"cliques": 3, "members": 10**6}, "graph.members"),
}


@pytest.mark.parametrize(("kind", "params", "field"), list(GRAPHS.values()), ids=list(GRAPHS))
def test_a_graph_that_does_not_fit_is_not_built(
    kind: str, params: dict[str, Any], field: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_machine(monkeypatch, 64 * GIB)
    for generator in (
        "complete_graph",
        "path_graph",
        "star_graph",
        "cycle_graph",
        "grid_2d_graph",
        "hypercube_graph",
        "gnp_random_graph",
        "random_regular_graph",
        "barabasi_albert_graph",
        "watts_strogatz_graph",
        "barbell_graph",
        "connected_caveman_graph",
    ):
        monkeypatch.setattr(nx, generator, lambda *_, **__: pytest.fail("the graph was built"))
    with pytest.raises(InputError) as error:
        nd.build_graph(kind, **params)
    assert error.value.field == field
    assert error.value.expected.startswith(("at most ", "an integer <= "))


def test_a_directed_graph_too(monkeypatch: pytest.MonkeyPatch) -> None:
    small_machine(monkeypatch, 64 * GIB)
    for kind, params in (("ring", {}), ("erdos-renyi", {"p": 0.1, "seed": 0})):
        with pytest.raises(InputError, match=r"^graph.nodes: expected at most \d+ nodes"):
            build_digraph(kind, nodes=10**8, **params)
    with pytest.raises(InputError, match=r"^graph.seed: expected a value"):
        build_digraph("erdos-renyi", nodes=5, p=0.5)


def test_the_largest_graph_that_fits_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    small_machine(monkeypatch, 30 * NODE_BYTES)
    assert len(nd.build_graph("path", nodes=30)) == 30
    with pytest.raises(InputError, match=r"^graph.nodes: expected at most 30 nodes"):
        nd.build_graph("path", nodes=31)
    # So many links count: the nodes would fit.
    with pytest.raises(InputError, match=r"^graph.nodes: expected at most \d\d nodes"):
        nd.build_graph("complete", nodes=30)


def test_a_file_of_a_graph_whose_w_does_not_fit_says_what_does(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Before the graph is built, which would fit."""
    small_machine(monkeypatch, memory.squares(30))
    monkeypatch.setattr(nx, "cycle_graph", lambda *_, **__: pytest.fail("the graph was built"))
    path = tmp_path / "ring.toml"
    path.write_text('name = "ring"\ndesign = "space"\n[graph]\nkind = "ring"\nnodes = 31\n')
    with pytest.raises(InputError, match=r"^graph.nodes: expected at most 30 nodes") as error:
        nd.load(path)
    assert "polynomial" in error.value.remedy


def test_a_graph_of_networkx_that_does_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = nx.path_graph(31)
    small_machine(monkeypatch, memory.squares(30))
    with pytest.raises(InputError, match=r"^graph: expected at most 30 nodes"):
        nd.mixing_matrix(graph)


LONG: dict[str, tuple[Callable[[], object], str]] = {
    "epochs": (lambda: prefix(10**30, 1), "participation.epochs"),
    "prefix": (lambda: prefix(10**9, 10), "participation.epochs"),
    "separation": (lambda: prefix(10, 10**9), "participation.separation"),
    "min separation": (
        lambda: nd.TimeProblem.prefix(
            participation=nd.participation.MinSeparation(
                horizon=10**8, separation=5, max_participations=3
            )
        ),
        "participation.horizon",
    ),
    "on a graph": (
        lambda: nd.TimeProblem.from_graph(
            nx.path_graph(3), participation=nd.participation.FixedEpoch(epochs=10**8, separation=1)
        ),
        "participation.epochs",
    ),
    "space-time": (
        lambda: nd.SpaceTimeProblem.from_graph(
            nx.path_graph(3), participation=nd.participation.FixedEpoch(epochs=1, separation=10**8)
        ),
        "participation.separation",
    ),
}


ACCOUNTS = {
    "single": ('kind = "single"\nhorizon = 1000000000', "horizon"),
    "every step": ('kind = "every-step"\nhorizon = 1000000000', "horizon"),
    "beyond doubles": (f'kind = "single"\nhorizon = {10**30}', "horizon"),
    "epochs": ("epochs = 1000000000\nseparation = 1", "epochs"),
    "separation": ("epochs = 1\nseparation = 1000000000", "separation"),
}
ALGORITHMS = [
    'kind = "dp-d-sgd"',
    'kind = "muffliato"\nrounds = 2',
    'kind = "antipgd"',
    'kind = "zip-dl"',
    'kind = "d-mf"',
    'kind = "mafalda"',
]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize(("scheme", "key"), list(ACCOUNTS.values()), ids=list(ACCOUNTS))
def test_an_account_over_too_many_steps(
    scheme: str, key: str, algorithm: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_machine(monkeypatch, 64 * GIB)
    path = tmp_path / "account.toml"
    for observer in ('model = "ldp"', 'model = "pndp"\nnodes = [0]'):
        path.write_text(
            f'[graph]\nkind = "path"\nnodes = 3\n[participation]\n{scheme}\n'
            f"[algorithm]\n{algorithm}\n[observer]\n{observer}\n"
        )
        with pytest.raises(InputError) as error:
            nd.load(path)
        assert error.value.field == f"participation.{key}"


@pytest.mark.parametrize("table", ["error", "observers"])
def test_an_error_over_too_many_steps(
    table: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_machine(monkeypatch, 64 * GIB)
    path = tmp_path / "problem.toml"
    model = 'model = "pndp"\n' if table == "observers" else ""
    path.write_text(
        'name = "p"\ndesign = "space"\n[graph]\nkind = "path"\nnodes = 3\n'
        f"[limits]\nmax_variance = 5.0\n[{table}]\n{model}horizon = 1000000000\n"
    )
    with pytest.raises(InputError) as error:
        nd.load(path)
    assert error.value.field == f"{table}.horizon"


def test_an_account_in_python_too(monkeypatch: pytest.MonkeyPatch) -> None:
    mixing = nd.mixing_matrix(nx.path_graph(3))
    small_machine(monkeypatch, 64 * GIB)
    for algorithm in (
        threats.dp_d_sgd(mixing=mixing, horizon=10**9),
        threats.zip_dl(mixing=mixing, horizon=10**9),
    ):
        with pytest.raises(InputError, match=r"^participation\.separation: expected at most"):
            nd.account(algorithm, nd.observers.ldp(), participation=nd.participation.single(10**9))
    with pytest.raises(InputError, match=r"^horizon: expected at most"):
        threats.antipgd(mixing=mixing, horizon=10**9)


def test_a_strategy_has_no_use_for_more_buffers_than_steps() -> None:
    scheme, many = nd.participation.single(6), nd.TimeStructure(kind="blt", buffers=1000)
    with pytest.raises(InputError, match=r"^structure.buffers: expected at most 6, the number"):
        nd.TimeProblem.prefix(participation=scheme, structure=many)
    banded = nd.TimeStructure(kind="banded", bands=2**40)
    problem = nd.TimeProblem.prefix(participation=scheme, structure=banded)
    with pytest.raises(InputError, match=r"^bands: expected at most"):
        nd.solve(problem)


@pytest.mark.parametrize(("make", "field"), list(LONG.values()), ids=list(LONG))
def test_a_horizon_that_does_not_fit(
    make: Callable[[], object], field: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_machine(monkeypatch, 64 * GIB)
    with pytest.raises(InputError) as error:
        make()
    assert error.value.field == field
