"""Who shares which seed, and with which coefficients: from each seed its members draw the same
standard normal w, and node i adds a_i w to its message."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from noisedesign.base import checks as _checks, settings
from noisedesign.base.checks import Array, InputError


@dataclass(frozen=True, kw_only=True, eq=False)
class SharedSeed:
    """One seed, and what its members do with its noise.

    Attributes:
        members: the nodes that hold it.
        coefficients: what each multiplies its noise by, shape (k,), not squared.

    Examples:
        >>> import numpy as np
        >>> from noisedesign.privacy.seeds import SharedSeed
        >>> SharedSeed(members=(0, 1), coefficients=np.array([1.0, -1.0])).members
        (0, 1)
    """

    members: tuple[int, ...]
    coefficients: Array


@dataclass(frozen=True, kw_only=True, eq=False)
class SeedPlan:
    """All seeds of a network.

    Attributes:
        nodes: n, how many.
        seeds: who holds each, and what they multiply it by.

    Examples:
        >>> import numpy as np
        >>> from noisedesign.privacy.seeds import SeedPlan, SharedSeed
        >>> edge = SharedSeed(members=(0, 1), coefficients=np.array([1.0, -1.0]))
        >>> plan = SeedPlan(nodes=2, seeds=(edge,))
        >>> plan.covariance().tolist(), plan.held_by(1)
        ([[1.0, -1.0], [-1.0, 1.0]], (0,))
    """

    nodes: int
    seeds: tuple[SharedSeed, ...]

    def covariance(self) -> Array:
        """The sum over seeds of a a^T, a the coefficients.

        Returns:
            R, shape (n, n), squared noise.
        """
        total = np.zeros((self.nodes, self.nodes))
        for seed in self.seeds:
            at = np.array(seed.members)
            total[at[:, None], at] += np.multiply.outer(seed.coefficients, seed.coefficients)
        return total

    def root(self) -> Array:
        """The coefficient of every node in every seed.

        Returns:
            F, shape (n, seeds), with F F^T = R.
        """
        found = np.zeros((self.nodes, len(self.seeds)))
        for k, seed in enumerate(self.seeds):
            found[list(seed.members), k] = seed.coefficients
        return found

    def scaled(self, factor: float) -> SeedPlan:
        """The same seeds with other coefficients.

        Args:
            factor: on the coefficients, not squared.

        Returns:
            A new plan.

        Raises:
            InputError: no finite number.
        """
        factor = _checks.real(factor, field="factor")
        return replace(
            self,
            seeds=tuple(
                replace(seed, coefficients=factor * seed.coefficients) for seed in self.seeds
            ),
        )

    def held_by(self, node: int) -> tuple[int, ...]:
        """The seeds that a node holds.

        Args:
            node: zero-based.

        Returns:
            Places in ``seeds``.

        Raises:
            InputError: no node.
        """
        node = _checks.positive_int(node, field="node", minimum=0)
        return tuple(k for k, seed in enumerate(self.seeds) if node in seed.members)

    def noise_of(self, node: int, *, dimension: int, secret: int, step: int = 0) -> Array:
        """The noise that one node adds at one step, from the seeds it holds and no other.

        This is for simulation: who knows ``secret`` knows all noise, and PCG64 is no cryptographic
        generator. :func:`noisedesign.noise.noise` is for deployment.

        Args:
            node: zero-based.
            dimension: d, coordinates of the model.
            secret: what every seed is derived from here.
            step: zero-based; every step draws afresh.

        Returns:
            Noise, shape (d,).

        Raises:
            InputError: no such node, dimension < 1, a negative secret or step.
        """
        _checks.positive_int(node, field="node", minimum=0)
        if node >= self.nodes:
            raise InputError("node", expected=f"0 to {self.nodes - 1}", got=str(node))
        _checks.positive_int(dimension, field="dimension")
        _checks.positive_int(secret, field="secret", minimum=0)
        _checks.positive_int(step, field="step", minimum=0)
        noise = np.zeros(dimension)
        for k in self.held_by(node):
            seed = self.seeds[k]
            drawn = np.random.default_rng([secret, k, step]).standard_normal(dimension)
            noise += seed.coefficients[seed.members.index(node)] * drawn
        return noise


def seed_plan(*, nodes: int, cliques: Sequence[Sequence[int]], blocks: Sequence[Array]) -> SeedPlan:
    """The seeds of sum_c E_c P_c E_c^T: by pairs, eigenvectors of cliques, and nodes."""
    own = np.zeros(nodes)
    seeds = []
    for clique, block in zip(cliques, blocks, strict=True):
        members = tuple(int(i) for i in clique)
        p = _checks.symmetric_matrix(block, field="blocks", tolerance=settings.SYMMETRY_TOLERANCE)
        if len(p) != len(members):
            expected = f"shape {(len(members),) * 2} for nodes {members}"
            raise InputError("blocks", expected=expected, got=f"{p.shape}")
        values, vectors = np.linalg.eigh(p)
        if values[0] < -8 * settings.rank_tolerance(len(p)) * np.abs(values).max():
            got = f"the eigenvalue {values[0]:.3g} on nodes {members}"
            raise InputError("blocks", expected="positive semidefinite blocks", got=got)
        if len(members) == 1:
            own[members[0]] += p[0, 0]
        elif len(members) == 2:
            shared = _pair(p)
            own[list(members)] += np.maximum(np.diagonal(p) - np.square(shared), 0.0)
            if shared.all():
                seeds.append(SharedSeed(members=members, coefficients=shared))
        else:
            floor = settings.rank_tolerance(len(p)) * values[-1]
            seeds += [
                SharedSeed(members=members, coefficients=np.sqrt(value) * vector)
                for value, vector in zip(values, vectors.T, strict=True)
                if value > floor
            ]
    alone = [
        SharedSeed(members=(i,), coefficients=np.array([np.sqrt(variance)]))
        for i, variance in enumerate(own)
        if variance > 0
    ]
    return SeedPlan(nodes=nodes, seeds=(*seeds, *alone))


def _pair(p: Array) -> Array:
    """(a, b) with a b = P_12, a^2 <= P_11 and b^2 <= P_22, the least share of either variance."""
    if p[0, 1] == 0:
        return np.zeros(2)
    # The same share of both variances: |P_12| / sqrt(P_11 P_22) <= 1.
    ratio = np.sqrt(p[0, 0] / p[1, 1])
    a = np.sqrt(abs(p[0, 1]) * ratio)
    return np.array([a, p[0, 1] / a])


def edge_shares(covariance: Array, laplacian: Array) -> tuple[float, float]:
    """The s and c of R = s I + c L by means over nodes and edges, squared (Allouah et al. 2024)."""
    edges = laplacian < 0
    shared = -float(covariance[edges].mean()) if edges.any() else 0.0
    return float((np.diagonal(covariance) - shared * np.diagonal(laplacian)).mean()), shared
