"""The scale at which the noise of a design meets the privacy target of its problem."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from noisedesign.base.checks import InputError
from noisedesign.base.shown import Shown
from noisedesign.noise.plan import Claim
from noisedesign.privacy.accounting import mu_of
from noisedesign.privacy.target import GDP, PrivacyTarget
from noisedesign.problem.problem import Problem, problem_of
from noisedesign.system.participation import Participation

if TYPE_CHECKING:  # accounts of random participation load slowly
    from noisedesign.privacy.amplification import Amplified


@dataclass(frozen=True, kw_only=True, repr=False)
class Calibration(Shown):
    """The scale at which a design's noise meets a privacy target.

    A design without a target is reported at unit noise: ``noise_stddev`` and ``noise_multiplier``
    are 1, a step changes by at most 1, and fields of the target are None.

    Attributes:
        noise_stddev: factor on the standard deviation of the design's noise, so that its square
            multiplies R; in the units of the gradients.
        noise_multiplier: noise_stddev / clip.
        step_sensitivity: largest change of one step's clipped gradient, not squared.
        participation: how long noise is used, and in which of these steps one record may take
            part; None for a spatial design where nobody said.
        mu: GDP parameter of the whole run after scaling, for the least protected node; None under
            random participation, where the run is no Gaussian mechanism.
        epsilon: of the target.
        delta: of the target.
        clip: of the target, not squared.
        adjacency: of the target.
        conversion: of the target.
        account: under random participation, what the noise of any spatial design keeps; else None.

    Examples:
        >>> import noisedesign as nd
        >>> target = nd.PrivacyTarget(epsilon=1.0, delta=1e-6, clip=0.1)
        >>> scheme = nd.participation.FixedEpoch(epochs=1, separation=4)
        >>> problem = nd.TimeProblem.prefix(participation=scheme, privacy=target)
        >>> calibration = nd.calibrate(problem)
        >>> print(f"{calibration.noise_multiplier * calibration.mu:.4f}")  # 2 clip / clip
        2.0000
        >>> calibration.horizon
        4
    """

    noise_stddev: float
    noise_multiplier: float
    step_sensitivity: float
    participation: Participation | None
    mu: float | None = None
    epsilon: float | None = None
    delta: float | None = None
    clip: float | None = None
    adjacency: str | None = None
    conversion: str | None = None
    account: Amplified | None = None

    @property
    def horizon(self) -> int | None:
        """T, the steps noise is used for."""
        return None if self.participation is None else self.participation.horizon


def calibrate(problem: Problem) -> Calibration:
    """Scale of the noise of a design of ``problem`` that meets its privacy target.

    The noise of a spatial design is drawn afresh at every step. Where a record takes part in k of
    them and a step changes by D it is mu-GDP with
    :math:`mu^2 = D^2 k max_i [R^-1]_ii / noise_stddev^2`, and max_i [R^-1]_ii is at most its
    budget. A temporal design of unit sensitivity covers its whole horizon:
    :math:`mu = D / noise_stddev`. Noise against chosen observers is mu-GDP towards each of them
    over its whole horizon, for a record that takes part once.

    Under random participation less noise meets the target, and the run is no Gaussian mechanism:
    spatial designs are scaled by an account, temporal ones are made for their target.

    Args:
        problem: a problem, or what has one, as a loaded file and a design do.

    Returns:
        The scale, and the target that it meets.

    Raises:
        InputError: no target, or one that no finite noise meets; neither a problem nor what has
            one.

    Examples:
        Full batches for 16 steps: with a budget of 1 per step and replace adjacency the noise
        multiplier is 2 sqrt(16) / mu.

        >>> import noisedesign as nd
        >>> target = nd.PrivacyTarget(epsilon=1.0, delta=1e-6, steps=16)
        >>> ring = nd.build_graph("ring", nodes=4)
        >>> problem = nd.SpaceProblem.from_graph(ring, privacy=target)
        >>> calibration = nd.calibrate(problem)
        >>> print(f"{calibration.noise_multiplier * calibration.mu:.4f}")
        8.0000
    """
    found = calibration_of(problem)
    if found.epsilon is None:
        raise no_target()
    return found


def no_target() -> InputError:
    """The error where noise is asked for and nothing says how much."""
    remedy = "State epsilon, delta and clip in [privacy]: noise is scaled to meet them."
    return InputError("privacy", expected="a target", got="none", remedy=remedy)


def claim_of(found: Calibration, *, trust: str) -> Claim:
    """State what noise scaled by a calibration protects; InputError without a privacy target."""
    scheme = found.participation
    if found.epsilon is None or scheme is None:
        raise no_target()
    return Claim(
        noise_stddev=found.noise_stddev,
        mu=found.mu,
        epsilon=found.epsilon,
        delta=found.delta,
        adjacency=found.adjacency,
        clip=found.clip,
        participation=str(scheme),
        rule=scheme.rule,
        trust=trust,
    )


def calibration_of(problem: Problem) -> Calibration:
    """Scale as :func:`calibrate` does, or to unit noise for a problem without a target."""
    problem = problem_of(problem, sparse=True)
    target, used = problem.privacy, problem.use
    if target is None or used is None or not used.random:
        return calibration(target, participation=used, sensitivity=problem.sensitivity)
    target = required_target(target)
    found = calibration(target, participation=used, sensitivity=problem.sensitivity)
    if problem.axes != "space":  # the design is made for its target
        return replace(found, mu=None)
    from noisedesign.privacy.amplification import Mixture, amplified_noise

    multiplier, account = amplified_noise(
        Mixture(gram=used.largest_size * float(problem.budget.max()) * np.eye(used.stride)),
        epsilon=target.epsilon,
        delta=target.delta,
        adjacency=target.adjacency,
    )
    return replace(
        found,
        noise_stddev=multiplier * target.clip,
        noise_multiplier=multiplier,
        mu=None,
        account=account,
    )


def required_target(target: PrivacyTarget | None) -> PrivacyTarget:
    """The target that designs under random participation need; InputError without one by GDP."""
    if target is None:
        raise InputError(
            "privacy",
            expected="a target, under random participation",
            got="none",
            remedy="State epsilon and delta in [privacy]: how much noise random batches save "
            "depends on them, and with it which design is best.",
        )
    if target.conversion != GDP:
        expected = f'"{GDP}" under random participation'
        got = f'"{target.conversion}"'
        remedy = "The other rules are for Gaussian mechanisms, which this one is not."
        raise InputError("privacy.conversion", expected=expected, got=got, remedy=remedy)
    return target


def calibration(
    target: PrivacyTarget | None, *, participation: Participation | None, sensitivity: float = 1.0
) -> Calibration:
    """Scale of noise of that sensitivity (to unit changes, not squared) that meets ``target``."""
    if target is None:
        return Calibration(
            noise_stddev=1.0,
            noise_multiplier=1.0,
            step_sensitivity=1.0,
            participation=participation,
        )
    mu = mu_of(epsilon=target.epsilon, delta=target.delta, conversion=target.conversion)
    stddev = target.step_sensitivity * sensitivity / mu
    if not math.isfinite(stddev):
        expected = "a target that some finite noise meets"
        raise InputError("privacy", expected=expected, got=f"mu = {mu:.3g}")
    return Calibration(
        noise_stddev=stddev,
        noise_multiplier=stddev / target.clip,
        step_sensitivity=target.step_sensitivity,
        participation=participation,
        mu=mu,
        epsilon=target.epsilon,
        delta=target.delta,
        clip=target.clip,
        adjacency=target.adjacency,
        conversion=target.conversion,
    )
