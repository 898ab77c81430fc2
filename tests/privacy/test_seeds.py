"""Seeds reassemble the covariance, and every node draws its noise from its own."""

from __future__ import annotations

from pathlib import Path

import networkx as nx
import numpy as np
import pytest

from noisedesign.base.checks import InputError
from noisedesign.design.design import Design, seed_plan_of
from noisedesign.design.solve import solve
from noisedesign.families.shared_seeds.bound import blocks_of
from noisedesign.families.shared_seeds.family import FAMILY
from noisedesign.files.design_file import load_design, save_design
from noisedesign.forms.structure import SpaceStructure
from noisedesign.privacy.seeds import SeedPlan, SharedSeed, seed_plan
from noisedesign.problem.problem import SpaceProblem, SpaceTimeProblem
from noisedesign.system.graph import build_graph, mixing_matrix
from noisedesign.system.participation import FixedEpoch

RING = mixing_matrix(build_graph("ring", nodes=5))


def solved(structure: SpaceStructure) -> Design:
    design = solve(SpaceProblem(mixing=RING, structure=structure)).design
    assert design is not None
    return design


def test_a_pair_by_hand() -> None:
    """[[2, -1], [-1, 2]]: one shared seed of coefficients 1 and -1, and a unit seed for each."""
    plan = seed_plan(nodes=2, cliques=[(0, 1)], blocks=[np.array([[2.0, -1.0], [-1.0, 2.0]])])
    assert [seed.members for seed in plan.seeds] == [(0, 1), (0,), (1,)]
    np.testing.assert_allclose(plan.seeds[0].coefficients, [1, -1])
    np.testing.assert_allclose([s.coefficients[0] for s in plan.seeds[1:]], [1, 1])
    assert plan.held_by(0) == (0, 1)
    assert plan.held_by(1) == (0, 2)


@pytest.mark.parametrize("size", [1, 2, 3, 6])
@pytest.mark.parametrize("rank", [1, 6])
def test_any_blocks_are_reassembled(size: int, rank: int) -> None:
    rng = np.random.default_rng(size + 10 * rank)
    cliques = [tuple(sorted(rng.choice(7, size, replace=False))) for _ in range(5)]
    expected, blocks = np.zeros((7, 7)), []
    for clique in cliques:
        root = rng.standard_normal((size, rank)) * 10.0 ** rng.integers(-4, 4)
        blocks.append(root @ root.T)
        expected[np.ix_(clique, clique)] += blocks[-1]
    plan = seed_plan(nodes=7, cliques=cliques, blocks=blocks)
    np.testing.assert_allclose(plan.covariance(), expected, atol=1e-12 * np.abs(expected).max())
    assert all(seed.members in (*cliques, (seed.members[0],)) for seed in plan.seeds)


def test_a_singular_pair_needs_no_seed_of_one_node() -> None:
    plan = seed_plan(nodes=2, cliques=[(0, 1)], blocks=[np.array([[4.0, 2.0], [2.0, 1.0]])])
    assert [seed.members for seed in plan.seeds] == [(0, 1)]


@pytest.mark.parametrize(
    "structure",
    [
        SpaceStructure(kind="edge-local"),
        SpaceStructure(kind="neighbourhood"),
        SpaceStructure(kind="clusters", clusters=(0, 0, 1, 1, 1)),
        SpaceStructure(kind="edge-local", known_seeds=1),
    ],
)
def test_the_plan_of_a_design_makes_its_covariance(structure: SpaceStructure) -> None:
    design = solved(structure)
    plan = seed_plan_of(design)
    error = np.abs(plan.covariance() - design.covariance).max()
    assert error <= 1e-12 * np.abs(design.covariance).max()
    assert isinstance(design.problem, SpaceProblem)
    allowed = {frozenset(c) for c in FAMILY.program(design.problem).sets}
    assert all(any(set(s.members) <= c for c in allowed) for s in plan.seeds)


def test_without_the_seeds_of_one_node_the_others_are_still_protected() -> None:
    """What a coalition of one does not know, from the plan alone."""
    plan = seed_plan_of(solved(SpaceStructure(kind="edge-local", known_seeds=1)))
    for known in range(5):
        left = SeedPlan(
            nodes=5, seeds=tuple(seed for seed in plan.seeds if known not in seed.members)
        )
        rest = [i for i in range(5) if i != known]
        precision = np.linalg.inv(left.covariance()[np.ix_(rest, rest)])
        assert np.diagonal(precision).max() <= 1 + 1e-9


def test_nodes_draw_the_covariance() -> None:
    plan = seed_plan_of(solved(SpaceStructure(kind="edge-local")))
    noise = np.stack([plan.noise_of(i, dimension=200_000, secret=3) for i in range(5)])
    sampled = noise @ noise.T / noise.shape[1]
    np.testing.assert_allclose(sampled, plan.covariance(), atol=0.02)
    again = plan.noise_of(2, dimension=200_000, secret=3, step=1)
    assert abs(float(again @ noise[2])) / 200_000 < 0.02


def test_designs_without_seeds_and_nonsense_are_refused() -> None:
    with pytest.raises(InputError, match=r"structure\.space"):
        seed_plan_of(solved(SpaceStructure()))
    with pytest.raises(InputError, match="semidefinite"):
        seed_plan(nodes=2, cliques=[(0, 1)], blocks=[np.array([[1.0, 2.0], [2.0, 1.0]])])
    with pytest.raises(InputError, match="shape"):
        seed_plan(nodes=2, cliques=[(0, 1)], blocks=[np.eye(3)])
    plan = SeedPlan(nodes=1, seeds=(SharedSeed(members=(0,), coefficients=np.ones(1)),))
    with pytest.raises(InputError, match="node"):
        plan.noise_of(1, dimension=1, secret=0)


def test_blocks_of_another_size_are_refused() -> None:
    design = solved(SpaceStructure(kind="edge-local"))
    assert isinstance(design.problem, SpaceProblem)
    with pytest.raises(InputError, match="clique_blocks"):
        blocks_of(FAMILY.program(design.problem).sets, np.ones(3))


@pytest.mark.parametrize(
    "structure",
    [
        SpaceStructure(kind="edge-local"),
        SpaceStructure(kind="hops", hops=2),
        SpaceStructure(kind="neighbourhood"),
        SpaceStructure(kind="decor"),
        SpaceStructure(kind="independent"),
        SpaceStructure(kind="clusters", clusters=(0, 0, 1, 1)),
    ],
    ids=str,
)
def test_the_plan_of_a_joint_design_makes_its_covariance_in_space(
    structure: SpaceStructure, tmp_path: Path
) -> None:
    path = nx.path_graph(4)
    problem = SpaceTimeProblem(
        mixing=(mixing_matrix(path) + np.eye(4)) / 2,
        space=structure,
        participation=FixedEpoch(epochs=2, separation=3),
        budget=np.array([1.0, 2.0, 0.5, 1.0]),
    )
    design = solve(problem).design
    assert design is not None
    for held in (design, load_design(save_design(design, tmp_path / "d.npz")).design):
        plan = seed_plan_of(held)
        error = np.abs(plan.covariance() - design.covariance).max()
        assert error <= 1e-12 * np.abs(design.covariance).max()
        if structure.kind in ("edge-local", "decor"):
            pairs = {seed.members for seed in plan.seeds if len(seed.members) > 1}
            assert pairs <= set(path.edges)
