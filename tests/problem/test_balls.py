"""What is proved of random noise and random multipliers, against balls of 400 bits.

Error and sensitivities are those of the noise by their definitions, on all pairs of node and step;
a bound is what its multipliers prove, by a nuclear norm from eigenvalues of balls. Multipliers and
noise of a design are changed at random, a little and by far, before anything is proved of them.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import networkx as nx
import numpy as np
import pytest
from scipy.sparse import issparse

from noisedesign.design.design import Design
from noisedesign.design.proof import Proof, prove
from noisedesign.design.solve import solve
from noisedesign.families.family import family_of
from noisedesign.families.shared_seeds.bound import blocks_of, covariance as assembled
from noisedesign.forms import DenseStrategy
from noisedesign.forms.structure import SpaceStructure, TimeStructure
from noisedesign.privacy import views
from noisedesign.problem.problem import (
    PrivacyTarget,
    Problem,
    SpaceProblem,
    SpaceTimeProblem,
    TimeProblem,
)
from noisedesign.system.participation import BallsInBins, FixedEpoch
from noisedesign.system.workloads import ErrorMeasure
from tests.support import oracles
from tests.support.balls import (
    above,
    all_iterates,
    arb,
    arb_mat,
    cholesky,
    diagonal,
    eigenvalues,
    flint,
    in_time,
    inner,
    kron,
    mat,
    nuclear,
    of_modes,
    part,
    powers,
)
from tests.support.rigorous_truths import told_to

BITS = 400
NEAR, NEARER = 0.05, 1e-4
"""What a bound may miss of what the multipliers of a design prove: of products of matrices, and of
all others; of observers, of the error."""
SEEDS = 20
FEW = {"random": 3, "kronecker, alike": 5, "modal, alike": 5}
"""Of what takes seconds to solve."""
CHANGES = (0.0, 1e-12, 1e-6, 0.3)
"""Relative changes of all entries; with the last come units that are far apart."""

Array = np.ndarray
pytestmark = pytest.mark.slow


def most_at_once(x: Any, scheme: Any) -> Any:
    """Of patterns of at most two steps: no other signs are worse than all absolute values."""
    assert scheme.epochs <= 2
    patterns = [range(j, scheme.horizon, scheme.separation) for j in range(scheme.separation)]
    return above(sum((abs(x[s, t]) for s in p for t in p), arb(0)) for p in patterns)


# --- what noise is --------------------------------------------------------------------------------


def w_of(problem: Any) -> Any:
    w = problem.mixing
    return mat(w.toarray() if issparse(w) else w)


def of_seeds(design: Design, known: tuple[int, ...] = ()) -> Any:
    """R of the seeds that noise is drawn from, but for those that some nodes know."""
    space: Any = design.noise.space
    n = design.problem.mixing.shape[0]  # type: ignore[union-attr]
    total = arb_mat(n, n)
    if not hasattr(space, "own") and "clique_blocks" not in design.proof:
        return mat(space)
    if "clique_blocks" in design.proof:
        sets = program_of(design).sets
        for nodes, block in zip(sets, blocks_of(sets, design.proof["clique_blocks"]), strict=True):
            if not set(nodes) & set(known):
                for (a, i), (b, j) in itertools.product(enumerate(nodes), repeat=2):
                    total[i, j] += (arb(float(block[a, b])) + arb(float(block[b, a]))) / 2
    else:
        for i, x in enumerate(space.own.tolist()):
            total[i, i] += arb(x) ** 2
        for pair, shares in zip(space.pairs.tolist(), space.shares.tolist(), strict=True):
            for (i, x), (j, y) in itertools.product(zip(pair, shares, strict=True), repeat=2):
                total[i, j] += arb(x) * arb(y)
    return total


def covariance(design: Design) -> Any:
    """On nodes, steps, or pairs of both in time-major order."""
    if design.axes == "space":
        return of_seeds(design)
    if design.axes == "time":
        return in_time(design.strategy)
    form: Any = design.noise.strategy
    if not isinstance(form, DenseStrategy):
        return of_modes(form)
    return kron(in_time(design.strategy), mat(design.covariance))


def root(problem: Any) -> Any:
    """A of H = A^T A, for H of all iterates, or a factor of H of sums."""
    if problem.axes == "space-time":
        return all_iterates(w_of(problem), problem.participation.horizon)
    if problem.axes == "space":
        return w_of(problem)
    if problem.mixing is None:
        return mat(np.tri(problem.participation.horizon))
    steps = problem.participation.horizon  # what is in the last model, of the noise of step s
    columns = [power.entries() for power in powers(w_of(problem), steps)]
    return arb_mat(columns[::-1]).transpose()


def told(design: Design) -> Any:
    problem: Any = design.problem
    of = problem.mixing, design.covariance, problem.budget, problem.horizon
    return above(told_to(observer, *of) for observer in problem.observers)


def sensitivity(design: Design) -> Any:
    """Squared, over its budget: a gradient of node u at step t is a column of all messages."""
    problem: Any = design.problem
    if problem.axes == "time":
        return most_at_once(covariance(design).inv(), problem.participation)
    budget = [arb(y) for y in problem.budget.tolist()]
    if getattr(problem, "observers", ()):
        return told(design)
    if problem.axes == "space":
        found, nodes = [], range(len(budget))
        for known in itertools.combinations(nodes, problem.structure.known_seeds):
            others = [i for i in nodes if i not in known]
            x = part(of_seeds(design, known), others).inv()
            found += [x[a, a] / budget[i] for a, i in enumerate(others)]
        return above(found)
    x = covariance(design).inv()
    n, steps = len(budget), problem.participation.horizon
    own = (part(x, range(u, n * steps, n)) for u in range(n))
    found = zip(own, budget, strict=True)
    return above(most_at_once(block, problem.participation) / y for block, y in found)


# --- what multipliers prove -----------------------------------------------------------------------


def of_blocks(problem: Any, roots: Any) -> Any:
    """||A D||_*^2 over the price, D of ``roots`` B_uj on node u and pattern j of every node."""
    scheme, a = problem.participation, root(problem)
    n = 1 if problem.axes == "time" else len(problem.budget)
    budget = [arb(1)] if problem.axes == "time" else [arb(y) for y in problem.budget.tolist()]
    size = n * scheme.horizon
    d, price = arb_mat(size, size), arb(0)
    for u, j in itertools.product(range(n), range(scheme.separation)):
        block = roots(u, j)
        rows = [sum((x**2 for x in row), arb(0)) for row in block.tolist()]
        price += above(rows) * budget[u]
        steps = range(j, scheme.horizon, scheme.separation)
        for (s, at), (t, to) in itertools.product(enumerate(steps), repeat=2):
            d[at * n + u, to * n + u] = block[s, t]
    return nuclear(a * d) ** 2 / price


def weights_prove(problem: Any, weights: Array) -> Any:
    v = [arb(max(x, 0.0)) for x in weights.tolist()]
    price = sum((arb(t) * x for t, x in zip(problem.budget.tolist(), v, strict=True)), arb(0))
    return nuclear(root(problem) * diagonal([x.sqrt() for x in v])) ** 2 / price


def roots_prove(problem: Any, proof: dict[str, Array]) -> Any:
    return of_blocks(problem, lambda u, j: mat(proof["dual_roots"][u, j]))


def positive(a: Any) -> Any:
    """What is positive of a matrix of one or two rows, which has a positive eigenvalue."""
    if a.nrows() == 1 or a.det() >= 0:
        return a
    x, y, z = a[0, 0], a[1, 1], a[0, 1]
    top = (x + y + ((x - y) ** 2 + 4 * z**2).sqrt()) / 2
    v = arb_mat([[z], [top - x]])
    return v * v.transpose() * (top / inner(v, v))


def blocks_prove(problem: Any, blocks: Array) -> Any:
    """Of U_j of at most two steps, whose diagonals are raised to one number: that costs nothing."""

    def of(_: int, j: int) -> Any:
        half = positive(mat((blocks[j] + blocks[j].T) / 2))
        most = above(half[i, i] for i in range(half.nrows()))
        low = most.sqrt()
        if half.nrows() == 1:
            return diagonal([low])
        across = half[0, 1] / low
        left = most - across**2  # 0 where a block has rank one and a diagonal of one number
        return arb_mat([[low, arb(0)], [across, left.sqrt() if left > 0 else arb(0)]])

    return of_blocks(problem, of)


def seeds_prove(program: Any, w: Any, proof: dict[str, Array]) -> Any:
    """Over sets c and coalitions A: sum of ||F_A V_A^1/2||_*^2 / <tau, v_A>, over the least s with
    sum of (F_A^T F_A)_cc <= s H_cc."""
    h, n, gained = w.transpose() * w, program.size, arb(0)
    coalitions = [tuple(map(int, one)) for one in proof.get("dual_coalitions", program.coalitions)]
    used = []
    for one, factor, prices in zip(
        coalitions, proof["dual_factors"], proof["dual_prices"], strict=True
    ):
        free = [0.0 if i in one else 1.0 for i in range(n)]
        f, v = mat(factor * free), [arb(max(x, 0.0)) for x in (prices * free).tolist()]
        used.append((set(one), f.transpose() * f))
        price = sum((arb(t) * x for t, x in zip(program.budget.tolist(), v, strict=True)), arb(0))
        if not price > 0:
            continue
        gained += nuclear(f * diagonal([x.sqrt() for x in v])) ** 2 / price
    worst = arb(0)
    for nodes in program.sets:
        total = arb_mat(len(nodes), len(nodes))
        for one, square in used:
            if one.isdisjoint(nodes):
                total += part(square, nodes)
        left = cholesky(part(h, nodes)).inv()
        worst = above([worst, *eigenvalues(left * total * left.transpose())])
    return gained / worst


# --- problems -------------------------------------------------------------------------------------


def mixing(rng: np.random.Generator, nodes: int) -> Array:
    """Lazy weights of a random tree and a link more."""
    graph = nx.from_prufer_sequence(rng.integers(nodes, size=nodes - 2).tolist())
    graph.add_edge(0, nodes - 1)
    graph.remove_edges_from(list(nx.selfloop_edges(graph)))
    ordered = nx.Graph()
    ordered.add_nodes_from(range(nodes))
    ordered.add_edges_from(graph.edges)
    return (oracles.metropolis(ordered) + np.eye(nodes)) / 2


def scheme(rng: np.random.Generator) -> FixedEpoch:
    return FixedEpoch(epochs=int(rng.integers(1, 3)), separation=int(rng.integers(2, 4)))


def budgets(rng: np.random.Generator, nodes: int) -> Array:
    return 10 ** rng.uniform(-2, 2, nodes)


def in_both(rng: np.random.Generator, joint: str) -> SpaceTimeProblem:
    return SpaceTimeProblem(
        mixing=mixing(rng, 3), participation=scheme(rng), budget=budgets(rng, 3), joint=joint
    )


def alike(rng: np.random.Generator, joint: str) -> SpaceTimeProblem:
    """Of nodes that are all alike, where products of matrices lose nothing."""
    ring = (oracles.metropolis(nx.cycle_graph(4)) + np.eye(4)) / 2
    tau = float(budgets(rng, 1)[0])
    return SpaceTimeProblem(mixing=ring, participation=scheme(rng), budget=tau, joint=joint)


def in_space(rng: np.random.Generator, kind: str, **keys: Any) -> SpaceProblem:
    structure = SpaceStructure(kind=kind, **keys)
    return SpaceProblem(mixing=mixing(rng, 5), budget=budgets(rng, 5), structure=structure)


def watched(rng: np.random.Generator) -> SpaceProblem:
    """One step before nodes that know their noise, or several before such as count on it."""
    steps = int(rng.integers(1, 4))
    own = "counted" if steps > 1 else "values"
    return SpaceProblem(
        mixing=mixing(rng, 5),
        budget=budgets(rng, 5),
        max_variance=1e3,
        observers=tuple(views.pndp(nodes=[i], own_noise=own) for i in (0, 3)),
        error=ErrorMeasure(horizon=steps),
        responses="any" if steps == 1 else "fixed",
    )


def last_iterate(rng: np.random.Generator) -> TimeProblem:
    """H has the rank of W, of three nodes, and as many rows as there are steps."""
    steps = FixedEpoch(epochs=int(rng.integers(1, 3)), separation=int(rng.integers(4, 6)))
    last = ErrorMeasure(horizon=steps.horizon, of="last-iterate")
    return TimeProblem.decentralized(mixing=mixing(rng, 3), participation=steps, error=last)


PROBLEMS: dict[str, Callable[[np.random.Generator], Problem]] = {
    "kronecker": lambda rng: in_both(rng, "kronecker"),
    "modal": lambda rng: in_both(rng, "modal"),
    "kronecker, alike": lambda rng: alike(rng, "kronecker"),
    "modal, alike": lambda rng: alike(rng, "modal"),
    "shared seeds": lambda rng: in_space(rng, "edge-local"),
    "known seeds": lambda rng: in_space(rng, "edge-local", known_seeds=1),
    "pairwise": lambda rng: in_space(rng, "pairwise"),
    "against nodes": lambda rng: watched(rng),
    "random": lambda rng: TimeProblem.prefix(
        participation=BallsInBins(epochs=int(rng.integers(1, 3)), separation=2),
        privacy=PrivacyTarget(epsilon=2.0, delta=1e-4),
    ),
    "last iterate": lambda rng: last_iterate(rng),
    "nonnegative": lambda rng: TimeProblem.prefix(
        participation=scheme(rng), structure=TimeStructure(nonnegative=True)
    ),
}


# --- changes --------------------------------------------------------------------------------------


def by(rng: np.random.Generator, a: Array, change: float) -> Array:
    return a * (1 + change * rng.uniform(-1, 1, a.shape))


def apart(rng: np.random.Generator, size: int, change: float) -> Array:
    return 10 ** rng.uniform(-2, 2, size) if change == CHANGES[-1] else np.ones(size)


def turned(rng: np.random.Generator, r: Array, change: float) -> Array:
    """A matrix that stays positive definite, and symmetric to the last digit."""
    if not change:
        return r
    e = np.eye(len(r)) + change * rng.standard_normal(r.shape)
    e *= apart(rng, len(r), change)[:, None]
    found = e @ r @ e.T
    return (found + found.T) / 2


def changed(design: Design, rng: np.random.Generator, change: float) -> Design:
    """Noise of other numbers of the same kind."""
    form: Any = design.noise.strategy
    space: Any = design.noise.space
    proof = dict(design.proof)
    if isinstance(form, DenseStrategy):
        form = DenseStrategy(
            strategy=by(rng, form.strategy, change) * apart(rng, form.horizon, change)
        )
    elif form is not None:
        form = replace(
            form,
            strategies=by(rng, form.strategies, change),
            modes=by(rng, form.modes, change) * apart(rng, form.nodes, change)[:, None],
            scales=by(rng, form.scales, change),
        )
    if "clique_blocks" in proof:
        program: Any = program_of(design)
        blocks = blocks_of(program.sets, proof["clique_blocks"])
        new = [turned(rng, block, change) for block in blocks]
        proof["clique_blocks"] = np.concatenate([block.ravel() for block in new])
        space = assembled(program, new)
    elif hasattr(space, "own"):
        space = replace(space, own=by(rng, space.own, change), shares=by(rng, space.shares, change))
    elif space is not None:
        space = turned(rng, space, change)
    noise = replace(design.noise, strategy=form, space=space)
    return replace(design, noise=noise, proof=proof)


def multiplied(design: Design, rng: np.random.Generator, change: float) -> Design:
    """Other multipliers, in other units."""
    unit = float(10 ** rng.uniform(-3, 3)) if change else 1.0
    of = {
        name: a if name in KEPT else unit * by(rng, a, change) for name, a in design.proof.items()
    }
    relaxed = {name: unit * by(rng, a, change) for name, a in design.relaxed_proof.items()}
    return replace(design, proof=of, relaxed_proof=relaxed)


KEPT = ("clique_blocks", "dual_coalitions", "lanczos_steps", "dual_basis", "dual_turns")


def program_of(design: Design) -> Any:
    return family_of(design.problem).program(design.problem)


def bounded(design: Design) -> Any:
    """What the multipliers of a design prove, the most of all that they are."""
    problem: Any = design.problem
    proof, relaxed = design.proof, design.relaxed_proof
    found = []
    if "dual_roots" in proof:
        found.append(roots_prove(problem, proof))
    if "dual_factors" in proof:
        found.append(seeds_prove(program_of(design), root(problem), proof))
    if "dual_weights" in proof:
        found.append(weights_prove(problem, proof["dual_weights"]))
    if problem.axes == "time":
        k, b = problem.participation.epochs, problem.participation.separation
        found.append(blocks_prove(problem, np.tile(np.eye(k), (b, 1, 1))))
        found.append(blocks_prove(problem, (relaxed or proof)["dual_blocks"]))
    return above(found)


def judged_rightly(design: Design, proof: Proof) -> None:
    error = error_of(design)
    assert arb(proof.objective.lower) <= error
    assert arb(proof.objective.upper) >= error
    if np.isfinite(proof.sensitivity_squared):
        assert arb(proof.sensitivity_squared) >= sensitivity(design)
    if proof.variance_ratio is not None:
        problem: Any = design.problem
        variances = np.diagonal(design.covariance).tolist()
        pairs = zip(variances, problem.max_variance.tolist(), strict=True)
        assert all(arb(proof.variance_ratio) >= arb(v) / y for v, y in pairs)


def error_of(design: Design) -> Any:
    """tr(H cov(z)); H of several steps in space is what it is in float64."""
    problem: Any = design.problem
    a = root(problem)
    h = mat(problem.gram) if problem.axes == "space" and problem.horizon > 1 else a.transpose() * a
    return inner(h, covariance(design))


@pytest.mark.parametrize(
    ("name", "seed"), [(name, i) for name in PROBLEMS for i in range(FEW.get(name, SEEDS))]
)
def test_proofs_hold_in_balls(name: str, seed: int) -> None:
    rng = np.random.default_rng([seed, list(PROBLEMS).index(name)])
    solved = solve(PROBLEMS[name](rng)).design
    assert solved is not None
    proved = 0
    for change in CHANGES:
        design = multiplied(changed(solved, rng, change), rng, change)
        proof = prove(design)
        with flint.ctx.workprec(BITS):
            if np.isfinite(proof.objective.upper):
                judged_rightly(design, proof)
                proved += 1
            bound = proof.fixed_lower_bound if name == "random" else proof.lower_bound
            assert bound is not None
            if bound.lower > 0:
                # Of observers any noise is above it: what multipliers prove has no short form.
                most = error_of(solved) if name == "against nodes" else bounded(design)
                assert arb(bound.lower) <= most
                near = NEAR if name in ("kronecker", "modal") else NEARER
                assert change or arb(bound.lower) >= most * (1 - near)
                proved += 1
    assert proved > len(CHANGES)
