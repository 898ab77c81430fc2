"""Solving spatial designs of a structure: which nodes may share a seed."""

from __future__ import annotations

import numpy as np

from noisedesign.base.checks import Array, InputError
from noisedesign.families.decor import program as decor
from noisedesign.families.shared_seeds import sets as cliques
from noisedesign.families.shared_seeds import solver as native_cliques
from noisedesign.families.shared_seeds.bound import CliqueProgram, CliqueWitness, judge, lower_bound
from noisedesign.families.shared_seeds.bound import covariance as covariance_of_blocks
from noisedesign.families.structured_time import StructuredAnswer
from noisedesign.privacy.seeds import SeedPlan, seed_plan
from noisedesign.program import certificate
from noisedesign.program.backend import Monitor, Stop
from noisedesign.program.design import Design
from noisedesign.program.problem import SpaceProblem, SpaceTimeProblem, TimeProblem
from noisedesign.program.program import Program
from noisedesign.program.repair import covariance_of
from noisedesign.program.structure import SpaceStructure
from noisedesign.system.participation import single


def cliques_of(structure: SpaceStructure, *, mixing: Array) -> cliques.Cliques:
    """The sets of nodes that may share a seed.

    Raises:
        InputError: a structure that is not made of such sets.
    """
    match structure.kind:
        case "edge-local":
            return cliques.edge_local(mixing)
        case "hops":
            assert structure.hops is not None
            return cliques.hops(mixing, within=structure.hops)
        case "neighbourhood":
            return cliques.neighbourhoods(mixing)
        case "clusters":
            assert structure.clusters is not None
            return cliques.clusters(structure.clusters)
        case "independent":
            return cliques.independent(len(mixing))
    raise InputError(
        "structure.space",
        expected="edge-local, hops, neighbourhood, clusters or independent",
        got=structure.kind,
    )


def clique_program(problem: SpaceProblem) -> CliqueProgram:
    """The program of a problem whose structure is made of cliques."""
    return _clique_program(
        problem.gram, problem.mixing, problem.structure, problem.budget, problem.max_variance
    )


def _clique_program(
    gram: Array, mixing: Array, structure: SpaceStructure, budget: Array, cap: Array | None
) -> CliqueProgram:
    return CliqueProgram(
        gram=gram,
        cliques=cliques_of(structure, mixing=mixing),
        budget=budget,
        cap=cap,
        known_seeds=structure.known_seeds,
    )


def solve_space_problem(problem: SpaceProblem, *, monitor: Monitor) -> StructuredAnswer:
    """As :func:`solve_space`, of a problem."""
    return solve_space(
        problem.gram,
        mixing=problem.mixing,
        structure=problem.structure,
        budget=problem.budget,
        cap=problem.max_variance,
        monitor=monitor,
    )


def solve_space(
    gram: Array,
    *,
    mixing: Array,
    structure: SpaceStructure,
    budget: Array,
    cap: Array | None,
    monitor: Monitor,
) -> StructuredAnswer:
    """The best covariance of a structure for H = ``gram``, shape (n, n).

    Raises:
        InputError: caps that no noise of the structure can keep; without a cap, noise of a clique
            that costs nothing.
    """
    if structure.kind == "decor":
        return _decor(gram, mixing, budget, cap)
    program = _clique_program(gram, mixing, structure, budget, cap)
    answer = native_cliques.solve(program, monitor=monitor)
    if answer.blocks is None:
        raise InputError(
            "limits.max_variance",
            expected="a cap that noise of the structure can keep",
            got=f"no such noise with structure.space = {structure}",
            remedy="Raise the cap, or let more nodes share seeds.",
        )
    bound = 0.0 if answer.witness is None else lower_bound(program, answer.witness)
    return StructuredAnswer(
        matrix=covariance_of_blocks(program, answer.blocks),
        certificate=judge(program, answer.blocks, bound=bound),
        stop=answer.stop,
        evaluations=answer.evaluations,
        witness=witness_arrays(answer.blocks, answer.witness),
    )


def witness_arrays(blocks: tuple[Array, ...], witness: CliqueWitness | None) -> dict[str, Array]:
    """Blocks, one after the other and row by row, and multipliers, as they are stored."""
    found = {"clique_blocks": np.concatenate([block.ravel() for block in blocks])}
    if witness is not None:
        found |= {"dual_factors": witness.factors, "dual_prices": witness.weights}
        if witness.cap is not None:
            found["dual_cap"] = witness.cap
    return found


def stored_blocks(program: CliqueProgram, flat: Array) -> tuple[Array, ...]:
    """The blocks of :func:`witness_arrays`.

    Raises:
        InputError: their number of entries is not that of the cliques.
    """
    return blocks_of(program.cliques, flat)


def blocks_of(groups: cliques.Cliques, flat: Array) -> tuple[Array, ...]:
    """The blocks P_c, shape (k, k), of groups of nodes that may share seeds, from how they are
    stored: one after the other and row by row.

    Raises:
        InputError: their number of entries is not that of the groups.
    """
    sizes = [len(clique) for clique in groups]
    ends = np.cumsum([size**2 for size in sizes])
    if flat.shape != (int(ends[-1]),):
        raise InputError(
            "design file.clique_blocks", expected=f"{ends[-1]} entries", got=f"shape {flat.shape}"
        )
    parts = np.split(flat, ends[:-1])
    return tuple(part.reshape(k, k) for part, k in zip(parts, sizes, strict=True))


def independent_blocks(problem: SpaceTimeProblem, variance: Array) -> Array:
    """The blocks of nodes that share nothing, of ``variance``, shape (n,), as they are stored."""
    left, blocks = variance.copy(), []
    for clique in seed_groups(problem):
        blocks.append(np.diag(left[list(clique)]).ravel())
        left[list(clique)] = 0.0
    return np.concatenate(blocks)


def seed_plan_of(design: Design) -> SeedPlan:
    """Who shares which seed of a design that is made of shared seeds.

    Raises:
        InputError: it is not.
    """
    problem = design.problem
    if isinstance(problem, TimeProblem):
        raise InputError("design", expected="a space or space-time design", got="a time design")
    structure = problem.structure if isinstance(problem, SpaceProblem) else problem.space
    if structure.kind == "decor":
        return _decor_seeds(problem.mixing, design.covariance)
    if "clique_blocks" not in design.witness:
        raise InputError(
            "structure.space",
            expected="edge-local, hops, neighbourhood, clusters, decor or independent",
            got="a design that is not made of shared seeds",
        )
    groups = seed_groups(problem)
    return seed_plan(
        nodes=len(problem.mixing),
        cliques=groups,
        blocks=blocks_of(groups, design.witness["clique_blocks"]),
    )


def seed_groups(problem: SpaceProblem | SpaceTimeProblem) -> cliques.Cliques:
    """The sets of nodes that may share a seed, as the blocks of a design are stored.

    Raises:
        InputError: as :func:`cliques_of`.
    """
    if isinstance(problem, SpaceProblem):
        return clique_program(problem).cliques
    return _clique_program(
        np.eye(len(problem.mixing)), problem.mixing, problem.space, problem.budget, None
    ).cliques


def _decor_seeds(mixing: Array, covariance: Array) -> SeedPlan:
    """The seeds of R = s I + c Laplacian: one of every node, and one of every edge."""
    laplacian = decor.graph_laplacian(mixing)
    edges = [clique for clique in cliques.edge_local(mixing) if len(clique) == 2]
    shared = max(0.0, -float(np.mean([covariance[edge] for edge in edges]))) if edges else 0.0
    own = float((np.diagonal(covariance) - shared * np.diagonal(laplacian)).mean())
    alone = cliques.independent(len(covariance))
    return seed_plan(
        nodes=len(covariance),
        cliques=(*edges, *alone),
        blocks=[
            *(np.array([[shared, -shared], [-shared, shared]]) for _ in edges),
            *(np.array([[own]]) for _ in alone),
        ],
    )


def stored_witness(arrays: dict[str, Array]) -> CliqueWitness | None:
    """The multipliers of :func:`witness_arrays`."""
    if "dual_factors" not in arrays:
        return None
    return CliqueWitness(
        factors=arrays["dual_factors"], weights=arrays["dual_prices"], cap=arrays.get("dual_cap")
    )


def _decor(gram: Array, mixing: Array, budget: Array, cap: Array | None) -> StructuredAnswer:
    """The best of a family of one parameter: nothing but the bound on all noise is proved."""
    program = Program(gram=gram, participation=single(len(gram)), budget=budget, cap=cap)
    precision = decor.decor_precision(gram=gram, mixing=mixing, budget=budget, cap=cap)
    covariance = covariance_of(program, precision)
    judged = certificate.judge_covariance(program, covariance, bound=0.0)
    if cap is not None and not judged.feasible:
        # Of all DECOR noise within the budgets this exceeds its caps by the least factor.
        excess = np.diagonal(covariance) / cap
        if excess.max() > 1:
            worst = int(excess.argmax())
            factor = f"{excess[worst]:.4g}"
            raise InputError(
                "limits.max_variance",
                expected="caps that DECOR noise within the budgets can keep",
                got=f"{cap[worst]:.6g} at node {worst}, of which the best such noise has {factor} "
                "times as much",
                remedy=f"Raise the caps by {factor}, or let more nodes share seeds: another "
                "structure.space.",
            )
    return StructuredAnswer(
        matrix=covariance, certificate=judged, stop=Stop.SOLVED, evaluations=1, local=True
    )
