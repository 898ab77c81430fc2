"""Covariances made of shared seeds: a block P_c for every set of nodes that may share one."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

import numpy as np

from noisedesign.base import settings
from noisedesign.base.checks import Array, InputError
from noisedesign.base.monitor import Monitor, Stop
from noisedesign.families.shared_seeds import bound as judging
from noisedesign.families.shared_seeds import sets
from noisedesign.families.shared_seeds.bound import CliqueProgram, CliqueWitness
from noisedesign.privacy.seeds import SeedPlan, seed_plan
from noisedesign.program.certificate import NOTHING, Certificate, ProvedBound, judge_covariance
from noisedesign.program.family import (
    ANY,
    OPERATIONS_PER_CALL,
    Answer,
    Arrays,
    ArraySpec,
    Model,
    one_formulation,
)
from noisedesign.program.noise import Noise
from noisedesign.program.problem import SpaceProblem
from noisedesign.program.program import Program
from noisedesign.program.spatial_family import SpatialFamily
from noisedesign.program.structure import SpaceStructure
from noisedesign.program.temporal import largest_share
from noisedesign.system.participation import single

ASSEMBLED = 1e-12
"""Relative difference of R from the sum of its blocks that is rounding."""


class SharedSeeds(SpatialFamily):
    name = "shared seeds"
    proof: ClassVar[Mapping[str, ArraySpec]] = {
        "dual_cap": ArraySpec("w", "n"),
        "clique_blocks": ArraySpec("P", ANY, multiplier=False),
        "dual_factors": ArraySpec("F, N = F^T F", "Ann"),
        "dual_prices": ArraySpec("v", "An"),
    }

    def program_of_gram(
        self,
        gram: Array,
        *,
        mixing: Array,
        structure: SpaceStructure,
        budget: Array,
        cap: Array | None,
    ) -> CliqueProgram:
        return CliqueProgram(
            gram=gram,
            cliques=sets_of(structure, mixing=mixing),
            budget=budget,
            cap=cap,
            known_seeds=structure.known_seeds,
        )

    def solve(self, program: CliqueProgram, *, monitor: Monitor) -> Answer:
        """As every family.

        Raises:
            InputError: caps that no noise of the structure can keep.
        """
        from noisedesign.families.shared_seeds import solver

        found = solver.solve(program, monitor=monitor)
        if found.blocks is None:
            raise InputError(
                "limits.max_variance",
                expected="a cap that noise of the structure can keep",
                got="no such noise of these shared seeds",
                remedy="Raise the cap, or let more nodes share seeds.",
            )
        return Answer(
            stop=found.stop,
            noises=[Noise.of_covariance(judging.covariance(program, found.blocks))],
            proof=arrays_of(found.blocks, found.witness),
            evaluations=found.evaluations,
        )

    def model(
        self,
        program: CliqueProgram,
        *,
        formulation: str | None = None,
        scaled: bool = False,
        parts: int = 1,
    ) -> Model:
        from noisedesign.families.shared_seeds import model

        one_formulation(formulation, "covariance")
        conic = model.covariance(program).finished(formulation="covariance")
        return Model(conic=conic, read=lambda point: Answer(stop=Stop.FAILED))

    def bound(
        self,
        program: CliqueProgram,
        proof: Arrays,
        *,
        noise: Noise | None = None,
        negligible: float = settings.NEGLIGIBLE,
    ) -> ProvedBound:
        if not {"dual_factors", "dual_prices"} <= set(proof):
            return NOTHING
        witness = CliqueWitness(
            factors=proof["dual_factors"], weights=proof["dual_prices"], cap=proof.get("dual_cap")
        )
        return ProvedBound(judging.lower_bound(program, witness), 0.0)

    def judge(
        self, program: CliqueProgram, noise: Noise, proof: Arrays, *, bound: float
    ) -> Certificate:
        """By the blocks where they make up R. Nothing is known of what hides an R that its seeds do
        not make once seeds are known."""
        covariance = noise.covariance
        if "clique_blocks" not in proof:
            bound = 0.0  # nothing says that R is made of seeds at all
        else:
            blocks = blocks_of(program.cliques, proof["clique_blocks"])
            difference = float(np.abs(judging.covariance(program, blocks) - covariance).max())
            if difference <= ASSEMBLED * float(np.abs(covariance).max()):
                return judging.judge(program, blocks, bound=bound)
        found = judge_covariance(plain(program), covariance, bound=bound)
        if not program.known_seeds:
            return found
        return replace(found, sensitivity_squared=float("inf"))

    def departure(self, program: CliqueProgram, noise: Noise, proof: Arrays) -> float:
        """Also how far R is from the sum of its blocks."""
        covariance = noise.covariance
        apart = np.ones(covariance.shape, dtype=bool)
        for group in program.cliques:
            apart[np.ix_(group, group)] = False
        found = largest_share(covariance, apart)
        if "clique_blocks" not in proof:
            return found
        blocks = blocks_of(program.cliques, proof["clique_blocks"])
        left = np.abs(judging.covariance(program, blocks) - covariance).max()
        return max(found, float(left / np.abs(covariance).max()))

    def sizes(self, problem: SpaceProblem) -> dict[str, int]:
        n = len(problem.mixing)
        return {"n": n, "A": min(math.comb(n, problem.structure.known_seeds), sys.maxsize)}

    def work(self, problem: SpaceProblem) -> float:
        n, known = len(problem.mixing), problem.structure.known_seeds
        coalitions = math.comb(n, known) if known else 0
        return super().work(problem) + coalitions * (n**3 + OPERATIONS_PER_CALL)

    def seeds(self, program: CliqueProgram, noise: Noise, proof: Arrays) -> SeedPlan | None:
        if "clique_blocks" not in proof:
            return None
        blocks = blocks_of(program.cliques, proof["clique_blocks"])
        return seed_plan(nodes=program.size, cliques=program.cliques, blocks=blocks)

    def parts(self, program: CliqueProgram, variance: Array) -> dict[str, Array]:
        """What ``proof`` holds of independent noise of ``variance``, shape (n,)."""
        left, blocks = variance.copy(), []
        for group in program.cliques:
            blocks.append(np.diag(left[list(group)]).ravel())
            left[list(group)] = 0.0
        return {"clique_blocks": np.concatenate(blocks)}


def sets_of(structure: SpaceStructure, *, mixing: Array) -> sets.Cliques:
    """The sets of nodes that may share a seed.

    Raises:
        InputError: a structure that is not made of such sets.
    """
    match structure.kind:
        case "edge-local":
            return sets.edge_local(mixing)
        case "hops":
            assert structure.hops is not None
            return sets.hops(mixing, within=structure.hops)
        case "neighbourhood":
            return sets.neighbourhoods(mixing)
        case "clusters":
            assert structure.clusters is not None
            return sets.clusters(structure.clusters)
        case "independent":
            return sets.independent(len(mixing))
    raise InputError(
        "structure.space",
        expected="edge-local, hops, neighbourhood, clusters or independent",
        got=structure.kind,
    )


def plain(program: CliqueProgram) -> Program:
    """The program of noise of any structure."""
    return Program(
        gram=program.gram,
        participation=single(program.size),
        budget=program.budget,
        cap=program.cap,
        axes="space",
    )


def arrays_of(blocks: tuple[Array, ...], witness: CliqueWitness | None) -> dict[str, Array]:
    """Blocks, one after the other and row by row, and multipliers."""
    found = {"clique_blocks": np.concatenate([block.ravel() for block in blocks])}
    if witness is not None:
        found |= {"dual_factors": witness.factors, "dual_prices": witness.weights}
        if witness.cap is not None:
            found["dual_cap"] = witness.cap
    return found


def blocks_of(groups: sets.Cliques, flat: Array) -> tuple[Array, ...]:
    """The blocks P_c, shape (k, k), of groups of nodes that may share seeds, from how they are
    stored: one after the other and row by row.

    Raises:
        InputError: their number of entries is not that of the groups.
    """
    lengths = [len(group) for group in groups]
    ends = np.cumsum([length**2 for length in lengths])
    if flat.shape != (int(ends[-1]),):
        raise InputError(
            "design file.clique_blocks", expected=f"{ends[-1]} entries", got=f"shape {flat.shape}"
        )
    split = np.split(flat, ends[:-1])
    return tuple(part.reshape(k, k) for part, k in zip(split, lengths, strict=True))


FAMILY = SharedSeeds()
