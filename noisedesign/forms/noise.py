"""z_t = sum_s (C^-1)_ts F w_s, w_s white: noise of n nodes, over steps, from C and a root F of R.

Its covariance is (C^T C)^-1 x R. Without C, steps are independent; without R, nodes are, at unit
variance. A ``full`` design is a C of nT coordinates in time-major order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from typing import Any

import numpy as np

from noisedesign.base import checks as _checks, memory
from noisedesign.base.checks import Array, InputError
from noisedesign.forms.sparse_forms import SparseCovariance, sparse_covariance_of_arrays
from noisedesign.forms.strategies import DenseStrategy, Strategy, strategy_of_arrays
from noisedesign.forms.streams import (
    Seed,
    covariance_root,
    seed_sequence,
    space_noise,
    time_noise_stream,
)
from noisedesign.privacy.seeds import SeedPlan


@dataclass(frozen=True, kw_only=True, eq=False)
class Noise:
    """Noise by the arrays it is drawn from: a strategy C and a covariance R (squared noise) or its
    parts.

    ``steps`` is T, after which nothing may be drawn, or None where no horizon is known; ``nodes``
    is n, or None where all nodes use C alike. ``full``: C is that of all pairs of step and node,
    (nT, nT)."""

    steps: int | None
    nodes: int | None = None
    strategy: Strategy | None = None
    space: Array | SeedPlan | SparseCovariance | None = None
    full: bool = False

    @classmethod
    def of_covariance(cls, covariance: Array) -> Noise:
        """Noise that is independent across steps, R = ``covariance``, for as long as it is used."""
        return cls(steps=None, nodes=len(covariance), space=covariance)

    @classmethod
    def of_strategy(cls, strategy: Strategy, *, covariance: Array | None = None) -> Noise:
        """Noise that every node draws with C, of nodes with covariance R where it is given."""
        nodes = None if covariance is None else len(covariance)
        return cls(steps=strategy.horizon, nodes=nodes, strategy=strategy, space=covariance)

    @property
    def covariance(self) -> Array:
        """R, shape (n, n), squared noise; InputError for noise without one, or too many nodes."""
        if isinstance(self.space, SeedPlan | SparseCovariance):
            return self.space.covariance()
        if self.space is None:
            expected, got = "noise with a covariance R", "noise in time without one"
            raise InputError("noise", expected=expected, got=got)
        return self.space

    @cached_property
    def dense_strategy(self) -> Array:
        """C, shape (T, T), or (nT, nT) of all pairs; InputError for noise without one."""
        if self.strategy is None:
            expected, got = "noise with a strategy C", "noise in space"
            raise InputError("noise", expected=expected, got=got)
        return self.strategy.dense()

    @property
    def axes(self) -> str:
        """ "space", "time" or "space-time"."""
        if self.strategy is None:
            return "space"
        return "space-time" if self.full or self.space is not None else "time"

    def arrays(self) -> dict[str, Array]:
        """The float64 arrays that determine it, by name."""
        found = {} if self.strategy is None else self.strategy.arrays()
        if isinstance(self.space, SparseCovariance):
            return found | self.space.arrays()
        if isinstance(self.space, SeedPlan):
            return found | {"covariance": self.space.covariance()}
        return found if self.space is None else found | {"covariance": self.space}

    def scaled(self, factor: float) -> Noise:
        """``factor`` times the noise (not squared), in R or its seeds, else in C."""
        if isinstance(self.space, SeedPlan | SparseCovariance):
            return replace(self, space=self.space.scaled(factor))
        if self.space is not None:
            return replace(self, space=factor**2 * self.space)
        assert self.strategy is not None
        return replace(self, strategy=self.strategy.scaled(factor))

    # --- drawing --------------------------------------------------------------------------------

    @cached_property
    def _root(self) -> Any:
        """F, shape (n, draws), as an array or by its products; None without one."""
        if isinstance(self.space, SeedPlan | SparseCovariance):
            return self.space.root()
        return None if self.space is None else covariance_root(self.space)

    def draws(self, nodes: int | None = None) -> int:
        """Count the standard normals of a step and coordinate, of ``nodes`` or its own n."""
        if self._root is not None:
            return int(self._root.shape[1])
        if nodes is None:
            return 1 if self.nodes is None else self.nodes
        if self.nodes not in (None, nodes):
            raise InputError("nodes", expected=f"{self.nodes}, or nothing", got=str(nodes))
        return _checks.positive_int(nodes, field="nodes")

    def of_white(self, white: Iterable[Array]) -> Iterator[Array]:
        """Map white noise, one array (:meth:`draws`, d) a step, to noise, arrays (n, d)."""
        if self.full:
            assert self.strategy is not None
            assert self.nodes is not None
            return self.strategy.of_nodes(white, nodes=self.nodes)
        noise = iter(white) if self.strategy is None else self.strategy.noise_of(white)
        return self._across_nodes(islice(noise, self.steps))

    def _across_nodes(self, noise: Iterator[Array]) -> Iterator[Array]:
        """F times every step, where there is one."""
        root = self._root
        return noise if root is None else (root @ step for step in noise)

    def stream(
        self, *, dimension: int, seed: Seed, steps: int | None = None, nodes: int | None = None
    ) -> Iterator[Array]:
        """Draw noise for simulation one step after another, arrays of shape (n, d), by a generator
        (Philox) that is not cryptographic; :func:`noisedesign.noise.noise` draws what one node
        deploys. InputError for more steps than the horizon, none where none is known, or too little
        memory."""
        steps = self._steps(steps)
        width = self.draws(nodes)
        dimension = _checks.positive_int(dimension, field="dimension")
        # What is drawn and what becomes of it; nodes may be no more than a number in a file.
        memory.require(lambda n: 16 * n, width, field="nodes", of="nodes")
        of = f"coordinates of {width} nodes"
        memory.require(lambda d: 16 * width * d, dimension, field="dimension", of=of)
        if isinstance(self.strategy, DenseStrategy) and not self.full:
            # Draws that do not fit a bounded working set are drawn again.
            noising = self.strategy.dense_noising()
            drawn = time_noise_stream(noising, nodes=width, dimension=dimension, seed=seed)
            return islice(self._across_nodes(drawn), steps)
        root, size = seed_sequence(seed), width * dimension
        flat = space_noise(np.eye(1), dimension=size, steps=steps, root_seed=root)
        return islice(self.of_white(draw.reshape(width, dimension) for draw in flat), steps)

    def _steps(self, steps: int | None) -> int:
        if steps is None:
            if self.steps is None:
                expected = "how many steps the noise is used for"
                remedy = "Its privacy is that of so many steps."
                raise InputError("steps", expected=expected, got="nothing", remedy=remedy)
            return self.steps
        steps = _checks.positive_int(steps, field="steps")
        if self.steps is not None and steps > self.steps:
            expected = f"at most {self.steps}, the horizon of the noise"
            remedy = "No further step was ever accounted for: design for more steps."
            raise InputError("steps", expected=expected, got=str(steps), remedy=remedy)
        return steps


def noise_of_arrays(
    arrays: Mapping[str, Array], *, steps: int | None, nodes: int | None, full: bool, field: str
) -> Noise:
    """Make the noise of arrays named as in :meth:`Noise.arrays`, ignoring others."""
    strategy = None
    if steps is not None:
        horizon = steps * nodes if full and nodes is not None else steps
        strategy = strategy_of_arrays(arrays, horizon=horizon, field=field)
    space: Array | SparseCovariance | None = arrays.get("covariance")
    if isinstance(space, np.ndarray):
        if nodes is None or space.shape != (nodes, nodes):
            expected = f"shape {(nodes, nodes)}"
            raise InputError(f"{field}.covariance", expected=expected, got=f"shape {space.shape}")
        covariance_root(space)
    elif nodes is not None:
        space = sparse_covariance_of_arrays(arrays, nodes=nodes, field=field)
    if strategy is None and space is None:
        raise InputError(field, expected="a strategy or a covariance", got=", ".join(arrays))
    return Noise(steps=steps, nodes=nodes, strategy=strategy, space=space, full=full)
