"""The program of strategies without negative entries.

Under random participation C is feasible if its noise meets the privacy target at the standard
deviation where a Gaussian mechanism of unit sensitivity would, so errors compare as objectives do.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from noisedesign.base import settings
from noisedesign.base.checks import Array, InputError
from noisedesign.certify.certificate import ProvedBound, proved_bound
from noisedesign.certify.program import Program, uniform_dual
from noisedesign.families.temporal import TemporalProgram
from noisedesign.forms import Strategy
from noisedesign.forms.structure import TimeStructure
from noisedesign.noise.plan import CHANGE_OVER_CLIP
from noisedesign.privacy.accounting import mu_of
from noisedesign.privacy.amplification import (
    Amplified,
    Mixture,
    amplified_epsilon,
    amplified_noise,
    bins_of,
)
from noisedesign.privacy.amplification.account import CONFIDENCE
from noisedesign.privacy.amplification.mixture import samples_for
from noisedesign.privacy.target import PrivacyTarget
from noisedesign.system.participation import require_fixed_epoch

TRIES = 6  # scales that are tried, with more and more room
SURE = 1 - (1 - CONFIDENCE) / TRIES  # of the account of each: C may be that of any of them


@dataclass(frozen=True, kw_only=True, eq=False)
class NonnegativeProgram(TemporalProgram):
    """Minimise tr(H (C^T C)^-1) over C >= 0, lower triangular, of a structure; noise is to meet
    ``target`` where participation is random.

    ``bounded``: a bound is asked for beside a design, not so of a factor of Kronecker noise.
    ``seed``: that of a judge's samples, None for a digest of C. ``known``: the bin of a record
    counts as known, which takes no samples and proves less. ``accounts``: what was found, by
    digests."""

    structure: TimeStructure
    target: PrivacyTarget | None = None
    bounded: bool = False
    seed: int | None = None
    known: bool = False
    accounts: dict[bytes, Amplified] = field(default_factory=dict)

    @cached_property
    def fixed(self) -> Program:
        """The convex program without random participation, and without a structure."""
        steps = require_fixed_epoch(self.participation.fixed)
        return Program(gram=self.gram, participation=steps, budget=np.ones(steps.separation))

    @cached_property
    def uniform_bound(self) -> ProvedBound:
        """The bound on designs for fixed participation by uniform multipliers."""
        return proved_bound(self.fixed, uniform_dual(self.fixed))

    @property
    def account_seconds(self) -> float:
        """Seconds of an account, the choice of its design and the search for its noise."""
        bins = self.participation.stride
        # 6e-7 seconds a bin and a sample, on two cores of 2023.
        return 0.0 if self.target is None else 6e-7 * bins * samples_for(bins)

    @cached_property
    def noise_multiplier(self) -> float:
        """Standard deviation of the noise of a feasible C, over the clip, at the target."""
        assert self.target is not None
        return unit_noise(self.target)

    def mixture(self, strategy: Array) -> Mixture:
        """The view of a reader of all messages of one record, at unit noise and clip."""
        found = bins_of(strategy, self.participation)
        return found.known if self.known and not found.even else found

    def account(self, strategy: Array) -> Amplified:
        """epsilon at the delta of the target, by samples that nobody has chosen."""
        digest, target = digest_of(strategy), self.target
        assert target is not None
        if digest not in self.accounts:
            found = amplified_epsilon(
                self.mixture(strategy),
                delta=target.delta,
                noise_multiplier=self.noise_multiplier,
                adjacency=target.adjacency,
                confidence=SURE,
                seed=seed_of(strategy) if self.seed is None else self.seed,
            )
            if found.confidence is not None:
                found = replace(found, confidence=CONFIDENCE)
            self.accounts[digest] = found
        return self.accounts[digest]

    def unit(self, form: Strategy) -> Strategy:
        """Scale the form to unit sensitivity, or until its account meets the target."""
        if self.target is None:
            return super().unit(form).alone()
        target = self.target
        needed, _ = amplified_noise(
            self.mixture(form.dense()),
            epsilon=target.epsilon,
            delta=target.delta,
            adjacency=target.adjacency,
            confidence=SURE,
        )
        least = settings.rank_tolerance(form.horizon)
        # With 1e-3 another sample of the same size mostly comes to the same verdict.
        for room in (least, *(1e-3 * 4**k for k in range(TRIES - 1))):
            scaled = form.scaled(needed / self.noise_multiplier * (1 + room))
            if self.account(scaled.dense()).epsilon <= target.epsilon:
                return scaled.alone()
        raise InputError(
            "privacy",
            expected="a target that the account of random participation reaches",
            got=f"epsilon {target.epsilon:g} at delta {target.delta:g}",
        )


def unit_noise(target: PrivacyTarget) -> float:
    """The noise multiplier at which a Gaussian mechanism of unit sensitivity meets a target."""
    return CHANGE_OVER_CLIP[target.adjacency] / mu_of_target(target)


def mu_of_target(target: PrivacyTarget) -> float:
    """mu of the Gaussian mechanism that meets a target."""
    return mu_of(epsilon=target.epsilon, delta=target.delta, conversion=target.conversion)


def equivalent_sensitivity(epsilon: float, target: PrivacyTarget) -> float:
    """The squared sensitivity of the Gaussian mechanism of this epsilon at a target of 1."""
    if not math.isfinite(epsilon):
        return math.inf
    if epsilon <= 0:
        return 0.0
    found = (mu_of(epsilon=epsilon, delta=target.delta) / mu_of_target(target)) ** 2
    return min(found, 1.0) if epsilon <= target.epsilon else max(found, math.nextafter(1.0, 2.0))


def digest_of(strategy: Array) -> bytes:
    """The SHA-256 of C, shape (T, T)."""
    return hashlib.sha256(np.ascontiguousarray(strategy, dtype="<f8").data).digest()


def seed_of(strategy: Array) -> int:
    """63 bits of the digest of C."""
    return int.from_bytes(digest_of(strategy)[:8], "big") >> 1
