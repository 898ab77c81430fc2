"""DECOR noise: R = s I + c Laplacian, a private share and one pairwise seed an edge, all alike.

It is a family of one parameter, and nothing but the bound on all noise is certified of it. Source:
Allouah et al. (2024), "The Privacy Power of Correlated Noise in Decentralized Learning"."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from scipy.optimize import nnls

from noisedesign.base.checks import Array, InputError
from noisedesign.base.linalg import inverse_of_positive
from noisedesign.base.monitor import Monitor, Stop
from noisedesign.certify.certificate import NOTHING, ProvedBound
from noisedesign.certify.repair import covariance_of
from noisedesign.families.decor.program import DecorProgram
from noisedesign.families.family import (
    Answer,
    Arrays,
    ArraySpec,
    Form,
    Model,
    Modelled,
    Seeded,
    SpatialFamily,
    named_shares,
)
from noisedesign.forms import Noise
from noisedesign.forms.structure import SpaceStructure
from noisedesign.privacy.seeds import SeedPlan, edge_shares, seed_plan
from noisedesign.problem.problem import SpaceProblem
from noisedesign.system.participation import single

USED = 1e-6
"""Relative room left below which a budget counts as used up; more let nodes in that have no price.
The search for s and c ends at about the square of it."""


class Decor(SpatialFamily[DecorProgram], Modelled[DecorProgram], Seeded[DecorProgram]):
    name = "decor"
    convex = False
    formulations: ClassVar[tuple[str, ...]] = ("covariance",)
    proof: ClassVar[Mapping[str, ArraySpec]] = {}

    def program_of_gram(self, gram: Array, *, structure: SpaceStructure, **of: Any) -> DecorProgram:
        return DecorProgram(gram=gram, participation=single(len(gram)), axes="space", **of)

    def solve(self, program: DecorProgram, *, monitor: Monitor) -> Answer:
        """The best DECOR noise; caps that no such noise within the budgets can keep are refused."""
        from noisedesign.families.decor.solver import decor_precision

        precision = decor_precision(program, program.laplacian)
        noise = Noise.of_covariance(covariance_of(program, precision))
        judged = self.judge(program, noise, {}, bound=0.0)
        monitor.report(lower=0.0, upper=judged.objective)
        if program.cap is not None and not judged.feasible:
            # Of all DECOR noise within the budgets this exceeds its caps by the least factor.
            excess = np.diagonal(noise.covariance) / program.cap
            if excess.max() > 1:
                worst = int(excess.argmax())
                factor = f"{excess[worst]:.4g}"
                raise InputError(
                    "limits.max_variance",
                    expected="caps that DECOR noise within the budgets can keep",
                    got=f"{program.cap[worst]:.6g} at node {worst}, of which the best such noise "
                    f"has {factor} times as much",
                    remedy=f"Raise the caps by {factor}, or let more nodes share seeds: another "
                    "structure.space.",
                )
        return Answer(stop=Stop.SOLVED, noises=[noise], evaluations=1)

    def model(self, program: DecorProgram, form: Form) -> Model:
        from noisedesign.families.decor import model

        form.only("covariance")
        return model.scaled(program) if form.scaled else model.stated(program)

    def bound(self, program: DecorProgram, proof: Arrays, **_: Any) -> ProvedBound:
        return NOTHING

    def prices(self, problem: SpaceProblem, noise: Noise, proof: Arrays) -> dict[str, float]:
        """The multipliers that make s and c stationary, of budgets and caps that are used up."""
        program = self.program(problem)
        precision = inverse_of_positive(noise.covariance)
        used = np.flatnonzero(np.diagonal(precision) >= (1 - USED) * program.budget)
        capped = np.zeros(0, dtype=np.intp)
        if program.cap is not None:
            capped = np.flatnonzero(np.diagonal(noise.covariance) >= (1 - USED) * program.cap)
        slopes = []
        for way in (np.eye(program.size), program.laplacian):
            of_budgets = np.diagonal(precision @ way @ precision)[used]
            error = float(np.sum(program.gram * way))
            slopes.append(np.append(of_budgets, -np.diagonal(way)[capped]) / error)
        paid = np.zeros(program.size)
        found = nnls(np.array(slopes), np.ones(2))[0][: len(used)]
        paid[used] = found * program.budget[used]
        return named_shares(
            problem.nodes, paid, float(paid.sum()) / float(np.sum(program.gram * noise.covariance))
        )

    def departure(self, program: DecorProgram, noise: Noise, proof: Arrays) -> float:
        """The relative distance from s I + c L."""
        covariance, laplacian = noise.covariance, program.laplacian
        own, shared = edge_shares(covariance, laplacian)
        fitted = own * np.eye(len(covariance)) + shared * laplacian
        return float(np.abs(covariance - fitted).max() / np.abs(covariance).max())

    def seeds(self, program: DecorProgram, noise: Noise, proof: Arrays) -> SeedPlan | None:
        """A seed of every node, and one of every edge."""
        laplacian = program.laplacian
        own, shared = edge_shares(noise.covariance, laplacian)
        shared, n = max(0.0, shared), len(laplacian)
        edges = [(int(i), int(j)) for i, j in np.argwhere(np.triu(laplacian < 0, 1))]
        pair = np.array([[shared, -shared], [-shared, shared]])
        return seed_plan(
            nodes=n,
            cliques=(*edges, *((node,) for node in range(n))),
            blocks=[pair] * len(edges) + [np.array([[own]])] * n,
        )


FAMILY = Decor()
