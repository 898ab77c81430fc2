"""The privacy of the steps so far: mu and epsilon after t of T.

What was sent up to step t is C_t G_t + w_t, with C_t the leading block of C of t steps, as C is
lower triangular: a Gaussian mechanism of its own, whose squared sensitivity is that of C_t over
the participation cut to these steps. Its mu grows with t up to that of the whole run, of which
the steps so far are post-processing.

Where participation is random, mu is that of any order of records in these steps, and epsilon the
smaller of what follows from it and of that of the whole run. The number of steps must not depend
on the data."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import singledispatch
from typing import Any

import numpy as np

from noisedesign.base import checks as _checks
from noisedesign.base.checks import Array, InputError
from noisedesign.base.linalg import inverse_of_triangular
from noisedesign.base.nodes import Row
from noisedesign.base.shown import Shown
from noisedesign.design.design import Design, design_of
from noisedesign.design.unbounded import UnboundedDesign
from noisedesign.families.toeplitz.streaming import StreamingDesign
from noisedesign.families.unbounded.buffers import buffer_sums
from noisedesign.forms import DenseStrategy, Noise, StationaryStrategy, Strategy, strategy_of_arrays
from noisedesign.noise.filters import Buffered, Rows
from noisedesign.noise.plan import UNBOUNDED, Claim, Plan
from noisedesign.noise.source import NodeNoise, NodeSource
from noisedesign.privacy.accounting import epsilon_of
from noisedesign.privacy.sensitivity import EXACT, Sensitivity, squared_sensitivity
from noisedesign.privacy.sensitivity.toeplitz import squared_sensitivity as squared_toeplitz
from noisedesign.system.participation import Participation, Patterns, participation_of

# The ``kind`` of a mu that is that of all T steps, and of one that counts nothing of what
# randomness of participation adds.
WHOLE_RUN, ANY_ORDER = "whole-run-upper-bound", "any-order-upper-bound"
MOST_STEPS = 10**7  # of a run without an end whose epsilon so far is computed, in a second
ROUNDING = 1e-9  # relative allowance on a squared sensitivity, for the rounding of C


@dataclass(frozen=True, kw_only=True, repr=False)
class PrivacySoFar(Shown):
    """The privacy of the first steps of a run.

    Attributes:
        steps: t, how many.
        horizon: T, the number of steps.
        claim: that of the run, with ``mu`` and, at the same delta, ``epsilon`` of these steps.
        kind: "vector-exact" where mu is that of the least protected record at the budgets, else
            the upper bound on it: of the sensitivity, "whole-run-upper-bound" or, where
            participation is random, "any-order-upper-bound".
        fingerprints: of the secrets of the run, where they are known.
    """

    steps: int
    horizon: int
    claim: Claim
    kind: str
    fingerprints: tuple[str, ...] = ()

    @property
    def mu(self) -> float:
        """GDP parameter, not squared, rounded up."""
        assert self.claim.mu is not None
        return self.claim.mu

    @property
    def epsilon(self) -> float:
        """Epsilon at ``delta``, rounded up."""
        assert self.claim.epsilon is not None
        return self.claim.epsilon

    @property
    def delta(self) -> float:
        """Delta of the privacy target."""
        assert self.claim.delta is not None
        return self.claim.delta

    def _title(self) -> str:
        whole = "" if self.horizon == UNBOUNDED else f" of {self.horizon}"
        return f"Privacy after {self.steps}{whole} steps"

    def _facts(self) -> dict[str, object]:
        return {
            "mu": f"{self.mu:.6g} ({self.kind})",
            "epsilon": self.epsilon,
            "delta": self.delta,
            "adjacency": self.claim.adjacency,
        }


def privacy_after(run: Any, *, steps: int) -> PrivacySoFar:
    """mu and epsilon of the first steps of a run.

    What was sent so far is a Gaussian mechanism in its own right, with the leading block of C as
    its strategy; its mu grows up to that of the whole run.

    Args:
        run: a design with a privacy target, a solution or loaded file that has one, or the plan or
            noise of a node. A node of a full space-time design knows too little, and noise of
            integers has another C: these have the bound of the whole run.
        steps: t, from 1 to T: how many steps were sent, decided without looking at the data.

    Returns:
        ``mu``, ``epsilon`` and ``delta`` of these steps, and which number that is.

    Raises:
        InputError: no privacy target; steps outside 1 to T, or fewer than the noise of a node was
            added to already; no run.

    Examples:
        In the optimal strategy for prefix sums of two steps the first column has the norm 1, and
        1 - x^2 of its square before the second step, x = (3 - sqrt 5) / 2.

        >>> import noisedesign as nd
        >>> target = nd.PrivacyTarget(epsilon=1.0, delta=1e-6)
        >>> scheme = nd.participation.single(2)
        >>> problem = nd.TimeProblem.prefix(participation=scheme, privacy=target)
        >>> design = nd.solve(problem, gap=1e-9).design
        >>> one, both = (nd.privacy.privacy_after(design, steps=steps) for steps in (1, 2))
        >>> print(f"{(one.mu / both.mu) ** 2:.4f}, {1 - ((3 - 5**0.5) / 2) ** 2:.4f}")
        0.8541, 0.8541
        >>> print(f"{both.epsilon:.4f}")
        1.0000
    """
    steps = _checks.positive_int(steps, field="steps")
    return _after(run, steps)


@singledispatch
def _after(run: Any, steps: int) -> PrivacySoFar:
    inner = getattr(run, "design", None)
    if inner is not None:
        return _after(inner, steps)
    if hasattr(run, "node_plan"):  # an export: any node tells
        return _of_plan(run.node_plan(Row(0)), steps)
    return _of_design(design_of(run), steps)


@_after.register
def _of_design(design: Design, steps: int) -> PrivacySoFar:
    claim, scheme = design.claim, design.problem.use
    assert scheme is not None
    if _checked(steps, scheme.horizon) == scheme.horizon:
        kind = ANY_ORDER if scheme.random else design.certificate.sensitivity_kind
        return _so_far(claim, steps, scheme.horizon, kind)
    budget = None if design.axes == "time" else design.problem.budget  # of nodes
    part, whole = (_of_noise(design.noise, scheme, t, budget) for t in (steps, scheme.horizon))
    share = part.squared / whole.squared
    if not scheme.random:  # of the budgets; beside the factor in time also that of R
        share *= design.certificate.sensitivity_squared
    return _so_far(claim, steps, scheme.horizon, part.kind, share=share)


@_after.register
def _of_streaming(design: StreamingDesign, steps: int) -> PrivacySoFar:
    claim, scheme = design.claim, design.participation
    if _checked(steps, scheme.horizon) == scheme.horizon:
        return _so_far(claim, steps, scheme.horizon, design.sensitivity_kind)
    part = _of_strategy(design.strategy, scheme, steps)
    share = part.squared / design.squared_sensitivity
    return _so_far(claim, steps, scheme.horizon, part.kind, share=share)


@_after.register
def _of_unbounded(design: UnboundedDesign, steps: int) -> PrivacySoFar:
    return _of_plan(design.node_plan(Row(0)), steps)


def _of_endless(plan: Plan, steps: int) -> PrivacySoFar:
    """mu of the first coefficients of C, which is scaled to the mu of all of them together."""
    claim, by = plan.claim, plan.filter
    assert isinstance(by, Buffered)
    if steps > MOST_STEPS:
        return _so_far(claim, steps, plan.horizon, WHOLE_RUN)
    assert claim.rule is not None
    later = buffer_sums(by.buffer_scales, by.buffer_decays, steps)
    column = np.concatenate([[1.0], later]) * by.strategy_diagonal[0]
    scheme = participation_of(claim.rule, steps)
    # At unit sensitivity C is larger by the standard deviation of the noise.
    found = squared_toeplitz(column * claim.noise_stddev, scheme)
    return _so_far(claim, steps, plan.horizon, found.kind, share=found.squared)


@_after.register
def _of_plan(plan: Plan, steps: int) -> PrivacySoFar:
    claim, horizon = plan.claim, plan.horizon
    if plan.unbounded:
        return _of_endless(plan, steps)
    if _checked(steps, horizon) == horizon or plan.couplings is not None or claim.rule is None:
        return _so_far(claim, steps, horizon, WHOLE_RUN)
    strategy: Strategy | None
    if isinstance(plan.filter, Rows):
        strategy = DenseStrategy(strategy=inverse_of_triangular(plan.filter.noising_matrix.copy()))
    else:
        strategy = strategy_of_arrays(plan.filter.arrays(), horizon=horizon, field="plan")
    noise, scheme = Noise(steps=horizon, strategy=strategy), participation_of(claim.rule, horizon)
    part, whole = (_of_noise(noise, scheme, t) for t in (steps, horizon))
    return _so_far(claim, steps, horizon, part.kind, share=part.squared / whole.squared)


@_after.register
def _of_node(noise: NodeNoise, steps: int) -> PrivacySoFar:
    return _drawn(_of_plan(noise.plan, steps), noise)


@_after.register
def _of_source(noise: NodeSource, steps: int) -> PrivacySoFar:
    """Noise of integers has a C of its own, with fewer digits."""
    horizon = noise.plan.horizon
    found = _so_far(noise.claim, _checked(steps, horizon), horizon, WHOLE_RUN)
    return _drawn(found, noise)


def _drawn(found: PrivacySoFar, noise: NodeSource) -> PrivacySoFar:
    if found.steps < noise.next_step:
        expected = f"at least {noise.next_step}, whose noise was added"
        raise InputError("steps", expected=expected, got=str(found.steps))
    return replace(found, fingerprints=noise.fingerprints)


def _checked(steps: int, horizon: int) -> int:
    if steps > horizon:
        raise InputError("steps", expected=f"1 to {horizon}, the horizon", got=str(steps))
    return steps


def _so_far(
    claim: Claim, steps: int, horizon: int, kind: str, *, share: float = 1.0
) -> PrivacySoFar:
    """Privacy at ``share`` of the squared mu of the run."""
    assert claim.mu is not None
    assert claim.delta is not None
    share *= 1 + ROUNDING
    if share < 1:
        mu = math.nextafter(claim.mu * math.sqrt(share), math.inf)
        epsilon = epsilon_of(mu=mu, delta=claim.delta)
        if claim.rule is not None and claim.rule.random is not None and claim.epsilon is not None:
            kind, epsilon = ANY_ORDER, min(epsilon, claim.epsilon)
        claim = replace(claim, mu=mu, epsilon=epsilon)
    return PrivacySoFar(steps=steps, horizon=horizon, claim=claim, kind=kind)


# --- sensitivities ----------------------------------------------------------------------------


def _of_noise(
    noise: Noise, scheme: Participation, steps: int, budget: Array | None = None
) -> Sensitivity:
    """Squared sensitivity of the first steps; of a full design with each node's budget as unit."""
    if noise.strategy is None:  # drawn afresh at every step
        size = float(scheme.until(steps).largest_size)
        return Sensitivity(per_pattern=np.array([size]), kind=EXACT)
    if not noise.full:
        return _of_strategy(noise.strategy, scheme, steps)
    assert budget is not None
    n = len(budget)
    gram = _gram(noise.strategy.dense(), n * steps)
    # In time-major order the coordinates of node u are u, u + n, ...
    found = [
        squared_sensitivity(gram[u::n, u::n] / budget[u], scheme.until(steps)) for u in range(n)
    ]
    return max(found, key=lambda node: node.squared)


def _of_strategy(strategy: Strategy, scheme: Participation, steps: int) -> Sensitivity:
    if not isinstance(strategy, StationaryStrategy):
        return squared_sensitivity(_gram(strategy.dense(), steps), scheme.until(steps))
    cut = scheme.until(steps)
    if scheme.disjoint:
        # Every column is the first one moved down and cut: the pattern that starts first is worst.
        cut = Patterns(horizon=steps, steps=(tuple(range(0, steps, scheme.stride)),))
    return strategy.squared_sensitivity(cut)


def _gram(strategy: Array, size: int) -> Array:
    """C^T C of the leading block."""
    leading = strategy[:size, :size]
    return np.asarray(leading.T @ leading)
