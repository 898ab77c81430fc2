"""Problems, and who solves them, that checkpoints, starts and mostly devices are not for."""

from __future__ import annotations

import networkx as nx

from noisedesign.forms.structure import SpaceStructure
from noisedesign.privacy import views as threats
from noisedesign.problem.problem import Problem, SpaceProblem, SpaceTimeProblem
from noisedesign.system.participation import single
from tests.support import oracles

FLORENTINE = oracles.metropolis(nx.florentine_families_graph())

ELSEWHERE: dict[str, tuple[Problem, str]] = {
    "cap": (SpaceProblem(mixing=FLORENTINE, max_variance=1.5), "native"),
    "floor": (SpaceProblem(mixing=FLORENTINE, min_variance=1.5), "native"),
    "structure": (
        SpaceProblem(mixing=FLORENTINE, structure=SpaceStructure(kind="edge-local")),
        "native",
    ),
    "space-time": (SpaceTimeProblem(mixing=FLORENTINE, participation=single(3)), "native"),
    "observers": (
        SpaceProblem(mixing=FLORENTINE, observers=(threats.pndp(nodes=(0,)),), max_variance=9.0),
        "native",
    ),
    "conic": (SpaceProblem(mixing=FLORENTINE), "scs"),
}
