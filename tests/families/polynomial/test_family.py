"""Sparse families when time is over, or somebody has seen enough: what is found by then counts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import networkx as nx
import numpy as np
import pytest

from noisedesign.base.monitor import Bounds
from noisedesign.design.solve import solve
from noisedesign.families.pairwise import solver as pairs
from noisedesign.families.polynomial import solver
from noisedesign.files.design_file import load_design
from noisedesign.forms.structure import SpaceStructure
from noisedesign.problem.problem import SpaceProblem
from noisedesign.tasks.verify import verify
from tests.support import oracles
from tests.support.command_line import PRIVACY, call, write

PROBLEM = (
    """
name = "late"
design = "space"
[graph]
kind = "barabasi-albert"
nodes = 60
links = 2
seed = 0
[structure]
space = "{}"
"""
    + PRIVACY
)

W = oracles.metropolis(nx.barabasi_albert_graph(60, 2, seed=0))
KINDS = ("polynomial", "pairwise")


@pytest.mark.parametrize("kind", KINDS)
def test_a_time_limit_leaves_a_design_that_keeps_its_word(tmp_path: Path, kind: str) -> None:
    path, output = write(tmp_path, PROBLEM.format(kind)), tmp_path / "d.npz"
    late = call("solve", path, "--time-limit", "1e-9", "--gap", "1e-9", "-o", output, "--json")
    assert late.code == 1
    record = late.json()
    assert (record["status"], record["feasible"]) == ("time-limit", True)
    assert late.err.startswith("time-limit: certified gap")
    full = call("solve", path, "--gap", "1e-9", "--json").json()
    # More than nothing, less than what time brings.
    assert full["relative_to_ldp"] < record["relative_to_ldp"] < 1
    assert 0 < record["lower_bound"] < full["lower_bound"]
    assert load_design(output).design.objective == record["objective"]
    assert call("verify", output).code == 0


def test_what_is_at_work_is_told_beside_the_bounds_and_not_kept() -> None:
    problem = SpaceProblem(mixing=W, structure=SpaceStructure(kind="polynomial"))
    seen: list[Bounds] = []
    design = solve(problem, progress=seen.append).design
    assert design is not None
    told = [bounds.doing for bounds in seen if bounds.doing]
    assert told[:2] == ["searching", "first noise"]
    assert told[-2:] == ["certifying it", "certified"]
    assert len(set(told)) == len(told) > 3
    assert design.provenance.history == tuple(bounds for bounds in seen if not bounds.doing)


def test_a_gap_that_is_reached_is_no_time_limit(tmp_path: Path) -> None:
    path = write(tmp_path, PROBLEM.format("polynomial"))
    early = call("solve", path, "--time-limit", "1e-9", "--gap", "0.9", "--json")
    assert early.code == 0
    assert early.json()["status"] == "optimal"


def interrupted(original: object, after: int) -> object:
    def steps(*args: object, **kwargs: object) -> Iterator[object]:
        found = original(*args, **kwargs)  # type: ignore[operator]
        for _ in range(after):
            yield next(found)
        raise KeyboardInterrupt

    return steps


@pytest.mark.parametrize("after", [0, 1, 3])
def test_interrupted_it_returns_what_it_has(monkeypatch: pytest.MonkeyPatch, after: int) -> None:
    problem = SpaceProblem(mixing=W, structure=SpaceStructure(kind="polynomial"))
    monkeypatch.setattr(solver, "improving", interrupted(solver.improving, after))
    seen: list[Bounds] = []
    found = solve(problem, gap=1e-9, progress=seen.append)
    assert found.status == "interrupted"
    assert found.feasible
    assert found.design is not None
    assert (found.design.provenance.method == "optimal") == (after > 0)
    assert found.design.relative_to_ldp <= (1.0 + 1e-9 if after == 0 else 0.95)
    assert found.design.lower_bound > 0
    first = next(bounds for bounds in seen if not bounds.doing)
    assert first.upper == pytest.approx(np.sum(W**2))  # independent noise


def test_who_stops_it_while_it_tells_what_is_at_work_gets_what_there_is() -> None:
    problem = SpaceProblem(mixing=W, structure=SpaceStructure(kind="polynomial"))

    def press(bounds: Bounds) -> None:
        if bounds.doing.startswith("improving"):
            raise KeyboardInterrupt

    found = solve(problem, gap=1e-9, progress=press)
    assert (found.status, found.feasible) == ("interrupted", True)


@pytest.mark.parametrize("name", ["improving_numbers", "improving"])
def test_interrupted_seeds_of_neighbours(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    problem = SpaceProblem(mixing=W, structure=SpaceStructure(kind="pairwise"))
    room = pairs if name == "improving_numbers" else solver
    monkeypatch.setattr(room, name, interrupted(getattr(room, name), 1))
    found = solve(problem)
    assert found.status == "interrupted"
    assert found.feasible
    assert found.design is not None
    assert 0 < found.design.lower_bound < found.design.objective


@pytest.mark.slow
def test_a_design_judged_in_haste_is_certified_and_verified() -> None:
    """By fewer vectors: what is claimed leaves more open, and holds before more of them."""
    graph = nx.random_labeled_tree(1500, seed=3)
    structure = SpaceStructure(kind="polynomial")
    problem = SpaceProblem(mixing=oracles.metropolis(graph), structure=structure)
    hurried, patient = (solve(problem, time_limit=limit).design for limit in (1e-3, 1e3))
    assert hurried is not None
    assert patient is not None
    assert hurried.certificate.feasible
    quick, slow = hurried.certificate, patient.certificate
    assert quick.uncertainty is not None
    assert slow.uncertainty is not None
    assert 1.2 * slow.uncertainty < quick.uncertainty
    assert slow.lower_bound <= quick.objective
    assert quick.lower_bound <= slow.objective
    assert verify(hurried).ok
