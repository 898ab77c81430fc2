"""A design put to the simulator: does its noise vary, and protect, as it says?"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from noisedesign.base.checks import Array, InputError
from noisedesign.base.linalg import gram_factor, inverse_of_positive
from noisedesign.base.shown import Shown
from noisedesign.families.shared_seeds.family import seed_plan_of
from noisedesign.privacy.views import Observer
from noisedesign.program.design import Design, design_of
from noisedesign.program.problem import SpaceProblem, TimeProblem
from noisedesign.system.participation import FixedEpoch, MinSeparation
from noisedesign.system.workloads import Objective
from noisedesign.tasks import simulation

AUDITED_MU = 1.0
"""The audit scales noise until the claim is this mu: error rates near 0.3, where a few thousand
runs tell most."""

AUDITED_PATTERNS = 5000
"""Most patterns of a min-separation scheme that are listed for an audit: seconds."""

Progress = Callable[[int, int], None]


@dataclass(frozen=True, kw_only=True, repr=False)
class Validation(Shown):
    """Both halves of the validation of one design."""

    variance: simulation.VarianceReport
    audit: simulation.AuditReport

    def _title(self) -> str:
        return f"Validation: {'agrees' if self.agrees else 'does not agree'} with what is claimed"

    def _facts(self) -> dict[str, object]:
        return {
            f"{part}: {name}": value
            for part, found in (("variance", self.variance), ("audit", self.audit))
            for name, value in found._facts().items()
        }

    @property
    def agrees(self) -> bool:
        return self.variance.agrees and self.audit.agrees

    def as_dict(self) -> dict[str, Any]:
        return {
            "agrees": self.agrees,
            "variance": self.variance.as_dict(),
            "audit": self.audit.as_dict(),
        }


def validate(
    design: Design, *, runs: int = 2000, seed: int = 0, progress: Progress | None = None
) -> Validation:
    """Simulate the exported matrix of a design: variance of the iterates, and a privacy audit.

    Args:
        runs: independent runs of the variance, and of each world of the audit.
        seed: the same seed gives the same report.

    Raises:
        InputError: runs too few, or a design that only a trusted server can use.
    """
    design = design_of(design)
    if design.trust == "central":
        raise InputError(
            "design",
            expected="one that protects every message",
            got=f"{design.provenance.method}, which needs a trusted server",
        )
    options: dict[str, Any] = {"runs": runs, "seed": seed, "progress": progress}
    return Validation(variance=_variance(design, **options), audit=_audit(design, **options))


def _variance(design: Design, **options: Any) -> simulation.VarianceReport:
    problem = design.problem
    if isinstance(problem, SpaceProblem) and problem.plain:
        return simulation.simulate_space(
            mixing=problem.mixing,
            covariance=design.covariance,
            predicted=design.objective,
            **options,
        )
    if isinstance(problem, TimeProblem) and problem.objective is None and problem.random is None:
        factor = None
        if problem.workload == "gram":
            factor = gram_factor(problem.gram)
        return simulation.simulate_time(
            noising_matrix=design.noising_matrix,
            mixing=problem.mixing,
            workload_factor=factor,
            predicted=design.objective,
            **options,
        )
    horizon = 1 if isinstance(problem, SpaceProblem) else problem.participation.horizon
    return simulation.simulate_objective(
        mixing=problem.mixing,
        objective=problem.objective or Objective(horizon=horizon),
        noise=_noise(design),
        random=problem.random,
        predicted=design.objective,
        **options,
    )


def _noise(design: Design) -> simulation.NoiseSource:
    """Where the noise of a design is drawn from."""
    problem = design.problem
    n = 1 if problem.mixing is None else len(problem.mixing)

    def source(columns: int, sequence: np.random.SeedSequence) -> Iterator[Array]:
        drawn: dict[str, Any] = {"dimension": columns, "seed": sequence}
        if isinstance(problem, SpaceProblem):
            steps = 1 if problem.objective is None else problem.objective.horizon
            return simulation.space_noise_stream(design.covariance, steps=steps, **drawn)
        if isinstance(problem, TimeProblem):
            return simulation.time_noise_stream(design.noising_matrix, nodes=n, **drawn)
        if design.node_covariance is not None:
            return simulation.kronecker_noise_stream(
                design.noising_matrix, design.covariance, **drawn
            )
        white = simulation.space_noise_stream(
            np.eye(n), steps=problem.participation.horizon, **drawn
        )
        return simulation.block_noise(design.noising_matrix, white, nodes=n)

    return source


def _audit(design: Design, **options: Any) -> simulation.AuditReport:
    """The worst change of one record, before a reader of all messages.

    Noise against chosen observers is audited by the worst of those.
    Where seeds are taken as known, the reader is the worst coalition, and holds them.
    Of a space-time design the noise of the other nodes is given to the attacker: that of the worst
    node then has covariance (C^T C)^-1 / [R^-1]_uu, and mixing adds nothing that is not known. A
    full design is one such node with a step a coordinate.
    """
    problem = design.problem
    claim: dict[str, Any] = {"claimed_mu": AUDITED_MU, "noise_stddev": 1 / AUDITED_MU}
    if isinstance(problem, SpaceProblem) and problem.observers:
        return simulation.audit_observers(
            mixing=problem.mixing,
            covariance=design.covariance,
            budget=problem.budget,
            watchers=[_watcher(problem.mixing, observer) for observer in problem.observers],
            horizon=problem.horizon,
            **claim,
            **options,
        )
    if isinstance(problem, SpaceProblem) and problem.structure.known_seeds:
        plan, known = seed_plan_of(design), problem.structure.known_seeds
        return simulation.audit_coalition(
            mixing=problem.mixing,
            plan=plan,
            budget=problem.budget,
            coalition=simulation.worst_coalition(plan, size=known, budget=problem.budget),
            **claim,
            **options,
        )
    if isinstance(problem, SpaceProblem):
        return simulation.audit_space(
            mixing=problem.mixing,
            covariance=design.covariance,
            budget=problem.budget,
            **claim,
            **options,
        )
    if isinstance(problem, TimeProblem):
        return simulation.audit_time(
            noising_matrix=design.noising_matrix,
            mixing=problem.mixing,
            patterns=_patterns(problem.participation),
            **claim,
            **options,
        )
    k, b, n = problem.participation.epochs, problem.participation.separation, len(problem.mixing)
    noising, patterns = design.noising_matrix, problem.participation.patterns
    if design.node_covariance is None:
        root = np.sqrt(np.tile(problem.budget, k * b))
        noising = noising * root[:, None]
        patterns = FixedEpoch(epochs=k, separation=b * n).patterns
    else:
        precision = np.diagonal(inverse_of_positive(design.covariance)) / problem.budget
        noising = noising / np.sqrt(precision.max())
    return simulation.audit_time(noising_matrix=noising, patterns=patterns, **claim, **options)


def _watcher(mixing: Array, observer: Observer) -> simulation.Watcher:
    """What an observer has of every step, where noise is dealt: values, not seeds."""
    n, coalition = len(mixing), list(observer.coalition)
    match observer.sees:
        case "all":
            readout = np.eye(n)
        case "sent":
            readout = np.eye(n)[list(observer.listened)]
        case "sums":
            readout = mixing[coalition]
        case "received":
            heard = (mixing[coalition] != 0).any(axis=0)
            heard[coalition] = True
            readout = np.eye(n)[heard]
    return simulation.Watcher(
        readout=readout, known=tuple(sorted(observer.knows.silenced)), inside=observer.coalition
    )


def _patterns(participation: FixedEpoch | MinSeparation) -> NDArray[np.intp]:
    """Patterns to audit, shape (p, k): all of them, or of many the densest of every start."""
    if isinstance(participation, FixedEpoch):
        return participation.patterns
    size, b = participation.largest_size, participation.separation
    longest = (pattern for pattern in participation.maximal_patterns() if len(pattern) == size)
    listed = list(itertools.islice(longest, AUDITED_PATTERNS + 1))
    if len(listed) <= AUDITED_PATTERNS:
        return np.array(listed)
    starts = np.arange(participation.horizon - (size - 1) * b)
    return np.asarray(starts[:, None] + b * np.arange(size))
