"""What may be asked of a design of many nodes: it works, or says what does, and no n x n array is
made."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest

import noisedesign as nd
from noisedesign.base import settings
from noisedesign.base.checks import InputError
from noisedesign.design.design import Design
from noisedesign.families.polynomial import bound, family
from noisedesign.files import exports
from noisedesign.mechanisms import baselines
from noisedesign.noise import noise
from noisedesign.pages import plot
from noisedesign.system.graph import build_graph
from noisedesign.tasks import dropout, model
from noisedesign.tasks.simulate import simulate
from tests.support import oracles

GRAPH = nx.barabasi_albert_graph(60, 2, seed=0)
TARGET = nd.PrivacyTarget(epsilon=2.0, steps=5)


@pytest.fixture(scope="module")
def design() -> Iterator[Design]:
    """Of a graph that is too large for arrays, as machines of little patience have it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(settings, "DENSE_NODES", 59)
        patch.setattr(family, "WRITTEN_OUT", 59)
        patch.setattr(bound, "PROBED", 50 * 60)
        found = nd.solve(nd.SpaceProblem.from_graph(GRAPH, privacy=TARGET), gap=0.99).design
        assert found is not None
        assert found.problem.sparse
        yield found


WORK: dict[str, Callable[[Design, Path], Any]] = {
    "shown": lambda d, _: (repr(d), repr(d.problem), d._repr_html_()),
    "calibrate": lambda d, _: nd.calibrate(d),
    "relative": lambda d, _: (d.relative_to_ldp, d.independent_variance, d.size, d.claim),
    "report": lambda d, folder: nd.report(d, path=folder / "page.html"),
    "simulate": lambda d, _: simulate(d, runs=400).agrees,
    "compare": lambda d, _: nd.compare([d.problem], backends=["native"], gap=0.99),
    "rigorous": lambda d, _: nd.verify(d, rigorous=True).proof,
}
REFUSED: dict[str, Callable[[Design, Path], Any]] = {
    "covariance": lambda d, _: d.covariance,
    "gram": lambda d, _: d.problem.gram,
    "node plan": lambda d, _: d.node_plan(0),
    "noise of a node": lambda d, _: noise(d, node=0, record=False),
    "seeds": lambda d, folder: nd.export(d, to="seeds", path=folder / "seeds"),
    "trainer": lambda d, folder: nd.export(d, to="whisper-dsgd", path=folder / "trainer"),
    "plot": lambda d, folder: plot.plot(d, path=folder / "picture.png"),
    "baselines": lambda d, _: baselines.compared(d.problem),
    "dropout": lambda d, _: dropout.every_drop_out(d),
    "model": lambda d, _: model.conic_program(d.problem),
    "conic solver": lambda d, _: nd.solve(d.problem, backend="clarabel"),
    "in time": lambda d, _: nd.TimeProblem.decentralized(
        mixing=d.problem.mixing, participation=nd.participation.single(4)
    ),
    "both": lambda d, _: nd.SpaceTimeProblem(
        mixing=d.problem.mixing, participation=nd.participation.single(4)
    ),
    "cap": lambda d, _: nd.SpaceProblem(mixing=d.problem.mixing, max_variance=3.0),
    "rounds": lambda d, _: nd.SpaceProblem(mixing=d.problem.mixing, rounds=2),
    "another structure": lambda d, _: nd.SpaceProblem(
        mixing=d.problem.mixing, structure=nd.SpaceStructure(kind="hops", hops=2)
    ),
}


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow) if n == "compare" else n for n in WORK]
)
def test_it_works(name: str, design: Design, tmp_path: Path) -> None:
    assert WORK[name](design, tmp_path)


@pytest.mark.parametrize("name", REFUSED)
def test_it_is_refused_in_words(name: str, design: Design, tmp_path: Path) -> None:
    with pytest.raises(InputError) as error:
        REFUSED[name](design, tmp_path)
    assert "expected" in str(error.value)


def test_the_simulation_notices_another_objective_and_less_noise(design: Design) -> None:
    certificate = replace(design.certificate, objective=1.5 * design.objective, uncertainty=0.01)
    assert not simulate(replace(design, certificate=certificate), runs=400).variance.agrees
    quiet = replace(design, noise=design.noise.scaled(0.6))
    assert simulate(quiet, runs=400).audit.exceeds


@pytest.mark.parametrize("to", ["npy", "csv", "mat", "safetensors"])
def test_exports_are_read_and_drawn_from(to: str, design: Design, tmp_path: Path) -> None:
    if to == "safetensors":
        pytest.importorskip("safetensors", reason="safetensors is an extra")
    at = tmp_path / f"design.{to}"
    nd.export(design, to=to, path=at)
    scaled = design.noise.scaled(nd.calibrate(design).noise_stddev)
    expected = next(scaled.stream(dimension=2, seed=3, steps=1))
    found = exports.read(at)
    np.testing.assert_allclose(
        next(found.noise.stream(dimension=2, seed=3, steps=1)), expected, rtol=1e-12
    )


@pytest.mark.slow
def test_designs_of_few_nodes_do_all_that_others_do(tmp_path: Path) -> None:
    """By name, on a graph of which n x n arrays are made without a thought."""
    w = oracles.metropolis(nx.barabasi_albert_graph(12, 2, seed=0))
    problem = nd.SpaceProblem(
        mixing=w, structure=nd.SpaceStructure(kind="polynomial"), privacy=TARGET
    )
    design = nd.solve(problem).design
    assert design is not None
    covariance = design.covariance
    precision = np.diagonal(np.linalg.inv(covariance))
    assert precision.max() <= 1
    assert design.objective == pytest.approx(float(np.sum((w.T @ w) * covariance)), rel=1e-9)
    plan = design.node_plan(3)
    assert plan.nodes == 12
    # All nodes' coefficients in the draws that are dealt make up R, scaled to the target.
    shares = np.zeros((12, 12))
    for node in range(12):
        for stream in design.node_plan(node).streams:
            shares[node, int(stream.name.removeprefix("draw "))] = stream.coefficient
    scale = nd.calibrate(problem).noise_stddev ** 2
    np.testing.assert_allclose(shares @ shares.T, scale * covariance, rtol=1e-9, atol=1e-9)
    names = [one.provenance.method for one in baselines.compared(problem)]
    assert names == ["ldp", "cdp", "decor", "optimal"]
    assert nd.report(design, path=tmp_path / "page.html").exists()
    assert dropout.drop_out(design, ["0"]).others.sensitivity_squared <= 1 + 1e-9


@pytest.mark.slow
def test_no_array_of_all_pairs_is_made(tmp_path: Path) -> None:
    """Solved, stored, read, verified, drawn and exported, at 20,000 nodes, where the blocks of
    vectors that are kept take a seventh of such an array."""
    n = 20_000
    graph = build_graph("erdos-renyi", nodes=n, degree=5.0, seed=0)
    tracemalloc.start()
    design = nd.solve(nd.SpaceProblem.from_graph(graph, privacy=TARGET)).design
    assert design is not None
    stored = nd.load(nd.save(design, tmp_path / "large.npz"))
    assert nd.verify(stored).ok
    drawn = next(design.noise.stream(dimension=20, seed=0, steps=1))
    nd.export(stored, to="npy", path=tmp_path / "large.npy")
    nd.report(stored, path=tmp_path / "large.html")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert drawn.shape == (n, 20)
    assert peak < n**2 * 8 / 4
