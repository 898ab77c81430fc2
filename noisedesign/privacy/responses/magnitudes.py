"""A bound by magnitudes, for runs that are too large for multipliers.

Source: docs/runs.md, theorem 4, "By magnitudes". Every node's own noise takes up a share of what
its gradients differ by, all of it where the observer sees the node; the rest travels on. Whatever
the shares, they prove a bound: finding good ones is a quadratic program in the shifts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from noisedesign.base.checks import Array
from noisedesign.privacy.views.mechanism import LinearMechanism, Step

ROOM = 1 + 1e-6  # above sums of 1e7 numbers >= 0 of shifts that hide to 1e-14; more is a bound
EVALUATIONS = 40  # of a search for shares: more make bounds less than a percent smaller
LOOKED_AT = 64  # victims that shares are found for: more cost time, and make bounds smaller
NEGLIGIBLE = 1e-6  # squared sensitivity that no search need make smaller, as of one never heard


class _Phase(NamedTuple):
    """One step of N nodes: |F|, the energy of shifts |E^T E|, both (N, N), and who is seen."""

    through: Array
    price: Array
    seen: NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True, eq=False)
class Magnitudes:
    """Differences of the models of N nodes, of which nothing but magnitudes is kept."""

    phases: Sequence[_Phase]
    horizon: int
    growth: float

    @classmethod
    def of(
        cls, mechanism: LinearMechanism, nodes: NDArray[np.intp], *, growth: float
    ) -> Self | None:
        """The differences of ``nodes``; None where noise has a time or no shift hides a node."""
        if mechanism.strategy is not None or mechanism.joint is not None:
            return None
        phases = [_phase(step.restricted(nodes)) for step in mechanism.steps]
        known = [phase for phase in phases if phase is not None]
        if len(known) < len(phases):
            return None
        return cls(phases=known, horizon=mechanism.horizon, growth=growth)

    def bounds(self, victims: NDArray[np.intp], patterns: Sequence[Sequence[int]]) -> Array:
        """Squared sensitivities, (victims,), of any pattern, by shares found for some victims."""
        places = np.unique(np.linspace(0, len(victims) - 1, LOOKED_AT).astype(int))
        some = victims[places]
        shape = (self.horizon, len(self.phases[0].seen))
        least = np.array([self.phases[t % len(self.phases)].seen for t in range(self.horizon)])

        def loss(x: Array) -> tuple[float, Array]:
            total, slope = 0.0, np.zeros(shape)
            for pattern in patterns:
                values, by = self.evaluate(x.reshape(shape), some, pattern)
                total += float(np.log(values + NEGLIGIBLE).sum())
                slope += by
            return total, slope.ravel()

        alike = [np.maximum(share, least).ravel() for share in (0.01, 0.03, 0.1, 0.3)]
        box = [(float(low), 1.0) for low in least.ravel()]
        found: Any = minimize(
            loss,
            min(alike, key=lambda x: loss(x)[0]),
            jac=True,
            method="L-BFGS-B",
            bounds=box,
            options={"maxfun": EVALUATIONS},
        )
        shares = np.clip(found.x, least.ravel(), 1.0).reshape(shape)
        every = [self.evaluate(shares, victims, pattern)[0] for pattern in patterns]
        return np.asarray(np.max(every, axis=0) * ROOM, np.float64)

    def evaluate(
        self, shares: Array, victims: NDArray[np.intp], pattern: Sequence[int]
    ) -> tuple[Array, Array]:
        """Energy of shifts that hide ``shares``, (T, N), and the slope of the log-sum in them."""
        columns = np.arange(len(victims))
        away = np.zeros((shares.shape[1], len(victims)))
        values, passed = np.zeros(len(victims)), []
        for t in range(self.horizon):
            through, price, _ = self.phases[t % len(self.phases)]
            differs = self.growth * away
            if t in pattern:
                differs[victims, columns] += 1.0
            shift = shares[t][:, None] * differs
            values += np.einsum("ij,ij->j", shift, price @ shift)
            passed.append((differs, shift))
            away = through @ (differs - shift)
        slope, later = np.zeros(shares.shape), np.zeros_like(away)
        for t in reversed(range(self.horizon)):
            through, price, _ = self.phases[t % len(self.phases)]
            differs, shift = passed[t]
            ahead = through.T @ later
            by_shift = 2 * (price @ shift) / (values + NEGLIGIBLE) - ahead
            slope[t] = (differs * by_shift).sum(axis=1)
            later = self.growth * (shares[t][:, None] * by_shift + ahead)
        return values, slope


def _phase(step: Step) -> _Phase | None:
    """The step where shifts E hide every node, H = R E and F = Q E; else None."""
    of_draws = np.vstack([step.output_noise, step.state_noise])
    of_nodes = np.vstack([step.output, step.transition])
    hiding, _, rank, values = np.linalg.lstsq(of_draws, of_nodes, rcond=1e-12)
    size = np.abs(of_nodes).max(initial=0.0)
    left = np.abs(of_draws @ hiding - of_nodes).max(initial=0.0)
    # Sums of 1e7 terms of that size are less than ROOM leaves.
    if rank == 0 or values[rank - 1] < 1e-6 * values[0] or left > 1e-14 * size:
        return None
    seen = (step.output != 0).any(axis=0)
    return _Phase(np.abs(step.transition), np.abs(hiding.T @ hiding), seen)
