"""Problems with privacy targets, small enough to train on."""

from noisedesign.forms.structure import SpaceStructure, TimeStructure
from noisedesign.problem.problem import PrivacyTarget, SpaceProblem, TimeProblem
from noisedesign.system.graph import build_graph, mixing_matrix
from noisedesign.system.participation import FixedEpoch


def ring(nodes: int = 3, *, epochs: int = 2, separation: int = 3, bands: int = 2) -> TimeProblem:
    """Banded noise over epochs * separation steps on a ring."""
    return TimeProblem.decentralized(
        mixing=mixing_matrix(build_graph("ring", nodes=nodes)),
        participation=FixedEpoch(epochs=epochs, separation=separation),
        structure=TimeStructure(kind="banded", bands=bands),
        privacy=PrivacyTarget(epsilon=6.0, delta=1e-5, clip=0.5),
        name="ring",
    )


def path_of_seeds(nodes: int = 3, *, steps: int = 4, epsilon: float = 6.0) -> SpaceProblem:
    """Edge-local noise on a path, every record in every step."""
    return SpaceProblem(
        mixing=mixing_matrix(build_graph("path", nodes=nodes), weights="lazy-metropolis-hastings"),
        structure=SpaceStructure(kind="edge-local"),
        privacy=PrivacyTarget(epsilon=epsilon, delta=1e-5, clip=0.5, steps=steps),
        name="path",
    )
