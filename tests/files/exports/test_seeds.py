"""Seeds on disk: every node can add the designed noise from the seeds its file says it holds."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest

from noisedesign.base.checks import InputError
from noisedesign.design.design import Design
from noisedesign.design.solve import solve
from noisedesign.files.exports import exporter, seeds as exporter_of_seeds
from noisedesign.forms.structure import SpaceStructure
from noisedesign.problem.problem import SpaceProblem
from noisedesign.system.graph import mixing_matrix
from noisedesign.tasks.export import export
from tests.support import oracles
from tests.support.command_line import call
from tests.support.made_designs import with_matrix
from tests.support.small_designs import TARGET, space_design, time_design

PAW = nx.Graph([("Ann", "Bob"), ("Bob", "Çelik"), ("Çelik", "Ann"), ("Çelik", "Dee, jr.")])
NAMES = tuple(PAW)
STRUCTURES = [
    SpaceStructure(kind="edge-local"),
    SpaceStructure(kind="edge-local", known_seeds=1),
    SpaceStructure(kind="hops", hops=2),
    SpaceStructure(kind="neighbourhood"),
    SpaceStructure(kind="clusters", clusters=(0, 0, 0, 1)),
    SpaceStructure(kind="decor"),
    SpaceStructure(kind="independent"),
]


def solved(structure: SpaceStructure, **kwargs: Any) -> Design:
    # The triangle mixes its own noise away, which a seed of all three could use without end.
    cap = 4.0 if structure.kind == "neighbourhood" else None
    problem = SpaceProblem(
        mixing=mixing_matrix(PAW), nodes=NAMES, structure=structure, max_variance=cap, **kwargs
    )
    design = solve(problem).design
    assert design is not None
    return design


def exported(design: Design, folder: Path) -> dict[str, Any]:
    (path,) = export(design, to="seeds", path=folder / "seeds.json", problem_text="toml")
    content = json.loads(path.read_text(encoding="utf-8"))
    assert isinstance(content, dict)
    return content


def assembled(content: dict[str, Any]) -> np.ndarray:
    """R from the file alone, by names."""
    places = {name: i for i, name in enumerate(content["nodes"])}
    total = np.zeros((len(places), len(places)))
    for seed in content["seeds"]:
        a = np.zeros(len(places))
        a[[places[name] for name in seed["members"]]] = seed["coefficients"]
        total += np.outer(a, a)
    return total


@pytest.mark.parametrize("structure", STRUCTURES, ids=str)
def test_the_seeds_of_a_file_make_the_covariance(structure: SpaceStructure, tmp_path: Path) -> None:
    design = solved(structure)
    content = exported(design, tmp_path)
    error = np.abs(assembled(content) - design.covariance).max()
    assert error <= 1e-12 * np.abs(design.covariance).max()
    plan, names = exporter_of_seeds.read_plan(tmp_path / "seeds.json")
    np.testing.assert_allclose(plan.covariance(), assembled(content), rtol=1e-15)
    assert names == tuple(content["nodes"]) == NAMES
    # Whoever reads the file alone learns that the plan's own drawing is not what to run.
    assert "noise_of is for simulation, not for deployment" in content["note"]
    for name in names:
        held = {k for k, seed in enumerate(content["seeds"]) if name in seed["members"]}
        assert set(content["held_by"][name]) == held
        assert held


def test_only_those_who_may_share_a_seed_do(tmp_path: Path) -> None:
    for structure in (SpaceStructure(kind="edge-local"), SpaceStructure(kind="decor")):
        shared = [s["members"] for s in exported(solved(structure), tmp_path)["seeds"]]
        pairs = {frozenset(members) for members in shared if len(members) > 1}
        assert pairs <= {frozenset(edge) for edge in PAW.edges}
        assert pairs
    alone = exported(solved(SpaceStructure(kind="independent")), tmp_path)["seeds"]
    assert [seed["members"] for seed in alone] == [[name] for name in NAMES]


def test_decor_by_hand(tmp_path: Path) -> None:
    """Two nodes, R = s I + c L = [[s + c, -c], [-c, s + c]]: opposite signs of one shared seed."""
    mixing = np.full((2, 2), 0.5)
    problem = SpaceProblem(
        mixing=mixing, structure=SpaceStructure(kind="decor"), max_variance=2.5, nodes=("a", "b")
    )
    design = solve(problem).design
    assert design is not None
    c = -design.covariance[0, 1]
    s = design.covariance[0, 0] - c
    content = exported(design, tmp_path)
    by_members = {tuple(seed["members"]): seed["coefficients"] for seed in content["seeds"]}
    np.testing.assert_allclose(by_members["a", "b"], [np.sqrt(c), -np.sqrt(c)], rtol=1e-12)
    np.testing.assert_allclose([*by_members["a",], *by_members["b",]], np.sqrt(s), rtol=1e-12)
    # The cap binds: s + c = 2.5 and [R^-1]_ii = (s + c) / (s (s + 2 c)) = 1.
    assert s + c == pytest.approx(2.5, rel=1e-6)
    assert s * (s + 2 * c) == pytest.approx(2.5, rel=1e-6)


def test_the_noise_of_a_run_meets_its_target(tmp_path: Path) -> None:
    """[R^-1]_ii <= 1 at the stated budgets; scaled by the file, 2 clip sqrt(steps) of it is mu."""
    content = exported(
        solved(SpaceStructure(kind="edge-local"), privacy=replace(TARGET, steps=9)), tmp_path
    )
    precision = np.diagonal(np.linalg.inv(assembled(content)))
    step = 2 * TARGET.clip
    assert np.sqrt(9 * step**2 * precision.max()) == pytest.approx(content["mu"], rel=1e-5)
    assert content["horizon"] == content["max_participations"] == 9
    assert content["problem"] == "toml"
    assert exported(solved(SpaceStructure(kind="edge-local")), tmp_path)["noise_stddev"] is None


def test_designs_without_seeds_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"structure\.space: expected edge-local.*not made of"):
        export(space_design(), to="seeds", path=tmp_path / "s.json")
    with pytest.raises(InputError, match="design: expected a space or space-time design for seeds"):
        export(time_design(), to="seeds", path=tmp_path / "s.json")
    design = solved(SpaceStructure(kind="edge-local"))
    moved = with_matrix(design, matrix=design.covariance + 1e-9 * np.eye(4))
    with pytest.raises(InputError, match="design: expected noise that its seeds make up"):
        export(moved, to="seeds", path=tmp_path / "s.json")
    with pytest.raises(InputError, match="trusted server"):
        export(replace(design, trust="central"), to="seeds", path=tmp_path / "s.json")
    with pytest.raises(InputError, match="output: expected an existing folder"):
        export(design, to="seeds", path=tmp_path / "none" / "s.json")
    assert list(tmp_path.iterdir()) == []
    assert exporter("seeds").ACCEPTS == ("space", "space-time")


@pytest.mark.parametrize(
    "text",
    [
        "no JSON",
        "[]",
        "{}",
        '{"nodes": ["a"], "seeds": [{"members": ["b"], "coefficients": [1]}]}',
        '{"nodes": ["a"], "seeds": [{"members": ["a"], "coefficients": [1, 2]}]}',
        '{"nodes": ["a"], "seeds": [{"members": ["a"], "coefficients": [Infinity]}]}',
    ],
)
def test_the_reader_refuses_other_files(text: str, tmp_path: Path) -> None:
    (tmp_path / "s.json").write_text(text)
    with pytest.raises(InputError, match="seeds file"):
        exporter_of_seeds.read_plan(tmp_path / "s.json")
    with pytest.raises(InputError, match="seeds file"):
        exporter_of_seeds.read_plan(tmp_path / "none.json")


def test_from_a_problem_file_to_seeds(tmp_path: Path) -> None:
    text = 'name = "r"\ndesign = "space"\n[graph]\nkind = "ring"\nnodes = 5\n'
    (tmp_path / "ring.toml").write_text(text + '[structure]\nspace = "edge-local"\n')
    (tmp_path / "dense.toml").write_text(text)
    for name in ("ring", "dense"):
        solving = call("solve", tmp_path / f"{name}.toml", "-o", tmp_path / f"{name}.npz", "--json")
        assert solving.code == 0
    target = tmp_path / "ring.json"
    outcome = call("export", tmp_path / "ring.npz", "--to", "seeds", "-o", target, "--json")
    assert (outcome.code, outcome.json()["files"]) == (0, [str(target)])
    found = assembled(json.loads(target.read_text()))
    # Vertex-transitive, so every node is at its budget; the objective is that of the noise.
    w = oracles.metropolis(nx.cycle_graph(5))
    np.testing.assert_allclose(np.diagonal(np.linalg.inv(found)), 1, rtol=1e-6)
    checks = call("verify", tmp_path / "ring.npz", "--json").json()["checks"]
    objective = next(check["found"] for check in checks if check["name"] == "objective")
    assert np.sum((w @ found) * w) == pytest.approx(objective, rel=1e-12)
    refused = call("export", tmp_path / "dense.npz", "--to", "seeds", "-o", tmp_path / "no.json")
    assert refused.code == 2
    assert refused.err.count("\n") == 1
    assert "structure.space" in refused.err
    assert not (tmp_path / "no.json").exists()
