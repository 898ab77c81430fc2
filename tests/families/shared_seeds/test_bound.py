"""Multipliers of some coalitions only: what is stored, read and refused."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import scipy.linalg

from noisedesign.base.checks import Array, InputError
from noisedesign.base.enclosures import Enclosure
from noisedesign.design.solve import solve
from noisedesign.families.shared_seeds.bound import (
    Multipliers,
    _above as above,
    lower_bound,
    multipliers_of,
    rigorous_bound,
)
from noisedesign.families.shared_seeds.program import SeedProgram, seed_program
from noisedesign.files.design_file import load_design, save_design
from noisedesign.forms.structure import SpaceStructure
from noisedesign.problem.problem import SpaceProblem
from noisedesign.system.graph import build_graph, mixing_matrix
from noisedesign.tasks.verify import verify

W = mixing_matrix(build_graph("path", nodes=4))
STRUCTURE = SpaceStructure(kind="edge-local", known_seeds=2)
PROGRAM = seed_program(W.T @ W, mixing=W, structure=STRUCTURE, budget=np.ones(4), cap=None)


def test_coalitions_that_are_left_out_have_no_multipliers() -> None:
    """Six coalitions, two of them with multipliers: the same as zeros for the others."""
    rng = np.random.default_rng(1)
    of, factors, weights = ((0, 1), (2, 3)), rng.normal(size=(2, 3, 4)), rng.random((2, 4))
    few = Multipliers(factors=factors, weights=weights, coalitions=of)
    places = [PROGRAM.coalitions.index(one) for one in of]
    every = Multipliers(factors=np.zeros((6, 3, 4)), weights=np.zeros((6, 4)))
    every.factors[places], every.weights[places] = factors, weights
    assert lower_bound(PROGRAM, few) > 0
    assert lower_bound(PROGRAM, few) == pytest.approx(lower_bound(PROGRAM, every), rel=1e-12)


@pytest.mark.parametrize(
    ("name", "spoil"),
    [
        ("dual_coalitions", lambda a: a[[0, 0]]),
        ("dual_coalitions", lambda a: a + np.array([0, 9])),
        ("dual_coalitions", lambda a: a[:, ::-1]),
        ("dual_coalitions", lambda a: a + 0.5),
        ("dual_coalitions", lambda a: a[:, :1]),
        ("dual_factors", lambda a: a[:1]),
        ("dual_factors", lambda a: a[:, :, :3]),
        ("dual_factors", lambda a: a[0]),
        ("dual_prices", lambda a: a[:1]),
    ],
)
def test_arrays_that_do_not_fit_are_refused(name: str, spoil: Callable[[Array], Array]) -> None:
    proof: dict[str, Array] = {
        "dual_coalitions": np.array([[0.0, 1.0], [2.0, 3.0]]),
        "dual_factors": np.ones((2, 3, 4)),
        "dual_prices": np.ones((2, 4)),
    }
    assert multipliers_of(PROGRAM, proof).coalitions == ((0, 1), (2, 3))
    with pytest.raises(InputError, match=f"design file.{name}"):
        multipliers_of(PROGRAM, proof | {name: spoil(proof[name])})


def by_hand(program: SeedProgram, multipliers: Multipliers) -> float:
    """sum_A (tr (V^1/2 N_A V^1/2)^1/2)^2 / <tau, v> over the worst of all sets c: the largest
    eigenvalue of (H_cc)^-1/2 (sum of N_A, A outside of c) (H_cc)^-1/2."""
    matrices, total = {}, 0.0
    for coalition, factor, v in zip(
        program.coalitions, multipliers.factors, multipliers.weights, strict=True
    ):
        others = [node for node in range(program.size) if node not in coalition]
        own = np.zeros((program.size, program.size))
        own[np.ix_(others, others)] = factor[:, others].T @ factor[:, others]
        matrices[coalition] = own
        root = np.sqrt(v[others])
        seen = root[:, None] * own[np.ix_(others, others)] * root
        trace = np.sqrt(np.clip(np.linalg.eigvalsh(seen), 0, None)).sum()
        total += trace**2 / float(program.budget[others] @ v[others])
    worst = 0.0
    for nodes in map(list, program.sets):
        own = sum(n[np.ix_(nodes, nodes)] for a, n in matrices.items() if not set(a) & set(nodes))
        if np.ndim(own):
            h = np.linalg.inv(np.linalg.cholesky(program.gram[np.ix_(nodes, nodes)]))
            worst = max(worst, float(np.linalg.eigvalsh(h @ own @ h.T)[-1]))
    return total / worst


@pytest.mark.parametrize("known", [1, 2])
def test_a_coalition_is_neither_paid_nor_charged_for_its_own_nodes(known: int) -> None:
    """By the definition of the bound, which knows nothing of prices and columns of a coalition's
    own nodes, nor of sets that one of them holds; and exactly the same without them."""
    structure = SpaceStructure(kind="neighbourhood", known_seeds=known)
    w = (W + np.eye(4)) / 2
    program = seed_program(w.T @ w, mixing=w, structure=structure, budget=np.ones(4), cap=None)
    rng, count = np.random.default_rng(2), len(program.coalitions)
    for _ in range(3):
        given = Multipliers(
            factors=rng.normal(size=(count, 3, 4)), weights=rng.uniform(0.5, 2.0, (count, 4))
        )
        found, proved = lower_bound(program, given), rigorous_bound(program, given)
        assert found == pytest.approx(by_hand(program, given), rel=1e-9)
        assert proved.lower == pytest.approx(found, rel=1e-9)
        clean = Multipliers(factors=given.factors.copy(), weights=given.weights.copy())
        for place, coalition in enumerate(program.coalitions):
            clean.factors[place][:, list(coalition)] = 0.0
            clean.weights[place][list(coalition)] = 0.0
        assert lower_bound(program, clean) == found


@pytest.mark.parametrize("size", [1, 2, 3])
def test_what_is_proved_of_sets_holds_at_the_ends_of_what_is_known(size: int) -> None:
    """s H less N, both known up to a radius: of one sign off the diagonal and of the other; whether
    s is enough by the eigenvalues of what is farthest."""
    rng, members = np.random.default_rng(3), np.arange(size)[None]
    found = []
    for radius in (0.0, 1e-9, 1e-3, 0.1):
        spread = np.full((size, size), radius)
        for _ in range(40):
            root = rng.standard_normal((size, size))
            h, n = root @ root.T + np.eye(size), 0.5 * root @ root.T
            h, n = (h + h.T) / 2, (n + n.T) / 2
            least = float(scipy.linalg.eigvalsh(n, h)[-1])
            scale = least * (1 + rng.choice([1e-6, 1e-2, 1.0]))
            proved = above(
                scale, Enclosure(h, spread), [Enclosure(n, spread)], np.ones((1, size)), members
            )
            for signs in itertools.product((-1, 1), repeat=size):
                end = (scale + 1) * radius * np.multiply.outer(signs, signs)
                farthest = float(np.linalg.eigvalsh(scale * h - n - end)[0])
                assert not (proved and farthest < -1e-13)
            found.append(proved)
    assert any(found)
    assert not all(found)


def test_a_file_proves_its_bound_by_few_coalitions(tmp_path: Path) -> None:
    design = solve(SpaceProblem(mixing=W, structure=STRUCTURE), gap=1e-7).design
    assert design is not None
    assert "dual_coalitions" in design.proof
    path = tmp_path / "design.npz"
    save_design(design, path)
    assert load_design(path).design.lower_bound == pytest.approx(design.lower_bound, rel=1e-12)
    found = verify(load_design(path), rigorous=True)
    assert found.ok
