"""DECOR noise: a family of one parameter, of which nothing but the bound on all noise is proved."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from noisedesign.base import settings
from noisedesign.base.checks import Array, InputError
from noisedesign.base.monitor import Monitor, Stop
from noisedesign.families.decor.program import decor_precision, graph_laplacian
from noisedesign.privacy.seeds import SeedPlan, seed_plan
from noisedesign.program.certificate import NOTHING, Certificate, ProvedBound, judge_covariance
from noisedesign.program.family import Answer, Arrays, ArraySpec, Model, one_formulation
from noisedesign.program.noise import Noise
from noisedesign.program.program import Program
from noisedesign.program.repair import covariance_of
from noisedesign.program.spatial_family import SpatialFamily
from noisedesign.program.structure import SpaceStructure
from noisedesign.system.participation import single


@dataclass(frozen=True, kw_only=True, eq=False)
class DecorProgram(Program):
    """(P) over R = s I + c Laplacian of the graph of W."""

    mixing: Array


class Decor(SpatialFamily):
    name = "decor"
    convex = False
    proof: ClassVar[Mapping[str, ArraySpec]] = {}

    def program_of_gram(
        self,
        gram: Array,
        *,
        mixing: Array,
        structure: SpaceStructure,
        budget: Array,
        cap: Array | None,
    ) -> DecorProgram:
        return DecorProgram(
            gram=gram,
            participation=single(len(gram)),
            budget=budget,
            cap=cap,
            axes="space",
            mixing=mixing,
        )

    def solve(self, program: DecorProgram, *, monitor: Monitor) -> Answer:
        """As every family.

        Raises:
            InputError: caps that no such noise within the budgets can keep.
        """
        precision = decor_precision(
            gram=program.gram, mixing=program.mixing, budget=program.budget, cap=program.cap
        )
        noise = Noise.of_covariance(covariance_of(program, precision))
        judged = self.judge(program, noise, {}, bound=0.0)
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

    def model(
        self,
        program: DecorProgram,
        *,
        formulation: str | None = None,
        scaled: bool = False,
        parts: int = 1,
    ) -> Model:
        from noisedesign.families.decor import model

        one_formulation(formulation, "covariance")
        conic = model.covariance(program).finished(formulation="covariance")
        return Model(conic=conic, read=lambda point: Answer(stop=Stop.FAILED))

    def bound(
        self,
        program: DecorProgram,
        proof: Arrays,
        *,
        noise: Noise | None = None,
        negligible: float = settings.NEGLIGIBLE,
    ) -> ProvedBound:
        return NOTHING

    def judge(
        self, program: DecorProgram, noise: Noise, proof: Arrays, *, bound: float
    ) -> Certificate:
        return judge_covariance(program, noise.covariance, bound=bound)

    def departure(self, program: DecorProgram, noise: Noise, proof: Arrays) -> float:
        """Distance from s I + c L."""
        covariance, laplacian = noise.covariance, graph_laplacian(program.mixing)
        own, shared = shares(covariance, laplacian)
        fitted = own * np.eye(len(covariance)) + shared * laplacian
        return float(np.abs(covariance - fitted).max() / np.abs(covariance).max())

    def seeds(self, program: DecorProgram, noise: Noise, proof: Arrays) -> SeedPlan | None:
        """One of every node, and one of every edge."""
        laplacian = graph_laplacian(program.mixing)
        own, shared = shares(noise.covariance, laplacian)
        shared, n = max(0.0, shared), len(laplacian)
        edges = [(int(i), int(j)) for i, j in np.argwhere(np.triu(laplacian < 0, 1))]
        pair = np.array([[shared, -shared], [-shared, shared]])
        return seed_plan(
            nodes=n,
            cliques=(*edges, *((node,) for node in range(n))),
            blocks=[pair] * len(edges) + [np.array([[own]])] * n,
        )


def shares(covariance: Array, laplacian: Array) -> tuple[float, float]:
    """s and c of R = s I + c L, read off the means of R over nodes and over edges."""
    edges = laplacian < 0
    shared = -float(covariance[edges].mean()) if edges.any() else 0.0
    return float((np.diagonal(covariance) - shared * np.diagonal(laplacian)).mean()), shared


FAMILY = Decor()
