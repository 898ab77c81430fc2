"""A design put to the simulator: does its noise vary, and protect, as it says?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.linalg import LinearOperator, cg

from noisedesign.base.checks import InputError
from noisedesign.base.linalg import gram_factor, inverse_of_positive
from noisedesign.base.shown import Shown
from noisedesign.design.design import Design, design_of, seed_plan_of
from noisedesign.families.family import Remarked, family_of
from noisedesign.forms import SparseCovariance
from noisedesign.privacy.amplification import Mixture, amplified_delta, bins_of
from noisedesign.privacy.views import Observer
from noisedesign.problem.calibration import calibration_of
from noisedesign.problem.problem import Problem, SpaceProblem
from noisedesign.system.workloads import WORKLOADS, ErrorMeasure, ErrorMixture
from noisedesign.tasks.simulation import attacks
from noisedesign.tasks.simulation.answers import Answers
from noisedesign.tasks.simulation.audit import AuditReport, RandomAudit, audit_random_bins
from noisedesign.tasks.simulation.variance import VarianceReport, simulate_variance

AUDITED_MU = 1.0  # mu of the scaled noise that is audited: near it a few thousand runs tell most
Progress = Callable[[int, int], None]


@dataclass(frozen=True, kw_only=True, repr=False)
class Simulation(Shown):
    """Both halves of the simulation of one design.

    Attributes:
        variance: of the iterates: predicted, estimated, and its confidence interval.
        audit: of privacy: mu as claimed, measured, and its confidence interval; under random
            participation the advantage of an attacker in the place of mu.
        quantity: what is predicted: a squared error, summed or the largest of some, or in units of
            the loss where that is what the design is for.

    Examples:
        >>> import noisedesign as nd
        >>> scheme = nd.participation.single(2)
        >>> design = nd.solve(nd.TimeProblem.prefix(participation=scheme)).design
        >>> simulation = nd.simulate(design, runs=1000)
        >>> low, high = simulation.variance.interval
        >>> low < 2.618 < high  # the golden ratio squared, see TimeProblem
        True
        >>> [row["quantity"] for row in simulation.records()]
        ['total squared error', 'mu of an eavesdropper']
    """

    variance: VarianceReport
    audit: AuditReport | RandomAudit
    quantity: str = "total squared error"

    def _title(self) -> str:
        return f"Simulation: {'agrees' if self.agrees else 'does not agree'} with what is claimed"

    def _facts(self) -> dict[str, object]:
        return {
            f"{part}: {name}": value
            for part, found in (("variance", self.variance), ("audit", self.audit))
            for name, value in found._facts().items()
        }

    @property
    def agrees(self) -> bool:
        """Whether both measurements agree with what is claimed."""
        return self.variance.agrees and self.audit.agrees

    def as_dict(self) -> dict[str, Any]:
        """Both halves as JSON values.

        Returns:
            ``agrees``, ``variance`` and ``audit``.
        """
        halves = {"variance": self.variance.as_dict(), "audit": self.audit.as_dict()}
        return {"agrees": self.agrees, **halves}

    def records(self) -> list[dict[str, Any]]:
        """The two halves, a row each.

        Returns:
            What was claimed and measured, with the confidence interval.
        """
        variance, audit = self.variance, self.audit
        told = (
            (variance, self.quantity, variance.predicted, variance.estimate),
            (audit, f"{audit.of} of an eavesdropper", audit.claimed, audit.measured),
        )
        keys = ("quantity", "claimed", "measured", "low", "high", "confidence", "agrees")
        return [
            dict(zip(keys, (*said, *half.interval, half.confidence, half.agrees), strict=True))
            for half, *said in told
        ]


def simulate(
    design: Design,
    *,
    runs: int = 2000,
    seed: int = 0,
    responses: Answers | None = None,
    progress: Progress | None = None,
) -> Simulation:
    """Simulate the exported matrix of a design: variance of the iterates, and a privacy audit.

    Args:
        design: a design, or a solution or loaded file that has one.
        runs: independent runs of the variance, and of each world of the audit.
        seed: the same seed gives the same report.
        responses: how the gradients of all other records answer to models in the audit, of designs
            against observers who see a part of a run (``noisedesign.tasks.simulation.answers``);
            None for fixed ones, which such designs are made for.
        progress: called with runs done and in total.

    Returns:
        What was measured, beside what is claimed.

    Raises:
        InputError: runs too few, a design that only a trusted server can use, or responses before
            readers of all messages, who see every model and subtract what is known to follow.

    Examples:
        >>> import noisedesign as nd
        >>> design = nd.solve(nd.SpaceProblem.from_graph(nd.build_graph("ring", nodes=4))).design
        >>> nd.simulate(design, runs=1000).agrees
        True
    """
    design = design_of(design, sparse=True)
    if design.trust == "central":
        got = f"{design.provenance.method}, which needs a trusted server"
        raise InputError("design", expected="one that protects every message", got=got)
    if responses is not None and not getattr(design.problem, "observers", ()):
        expected = "nothing: readers of all messages know how gradients answer to what they see"
        raise InputError("responses", expected=expected, got="gradients that answer")
    how: dict[str, Any] = {"runs": runs, "seed": seed, "progress": progress}
    used = design.problem.use
    at_random = design.problem.privacy is not None and used is not None and used.random
    audit = _random_audit(design, how) if at_random else _audit(design, how, responses)
    found = _variance(design, how)
    return Simulation(variance=found, audit=audit, quantity=_quantity(design.problem))


def _quantity(problem: Problem) -> str:
    if problem.worst:
        return "largest squared error"
    if isinstance(problem.error, ErrorMixture):
        return "total of the errors"
    of_loss = problem.error is not None and problem.error.of.startswith("loss")
    return "loss" if of_loss else "total squared error"


def _variance(design: Design, how: dict[str, Any]) -> VarianceReport:
    problem = design.problem
    noise, error = design.noise, problem.error
    mixing = problem.mixing if problem.schedule is None else problem.schedule
    how = how | {"mixing": mixing, "random": problem.random, "rounds": problem.rounds}
    if error is None:
        error = ErrorMeasure(
            horizon=1 if problem.axes == "space" else problem.participation.horizon
        )
    if problem.worst:
        program = family_of(problem).program(problem)
        error = program.targets[int(program.errors(noise).argmax())]
    if problem.axes == "time" and not WORKLOADS[problem.workload].run:
        how |= {"workload_factor": gram_factor(problem.gram), "mixing": None}
        how |= {"random": None, "rounds": 1}
    return simulate_variance(
        noise=lambda columns, sequence: noise.stream(
            dimension=columns, seed=sequence, steps=error.horizon
        ),
        predicted=design.objective,
        uncertainty=design.certificate.uncertainty or 0.0,
        error=error,
        **how,
    )


def _audit(design: Design, how: dict[str, Any], responses: Answers | None = None) -> AuditReport:
    """Audit the worst change of one record, before those whom the design is made against."""
    # Where noise is in space and time, the others' is known: (C^T C)^-1 / [R^-1]_uu is left, and
    # mixing adds nothing. A full design is one such node with a step a coordinate.
    problem = design.problem
    noise = design.noise
    how = how | {"claimed_mu": AUDITED_MU, "noise_stddev": 1 / AUDITED_MU}
    if problem.axes == "space":
        how |= {"mixing": problem.step_mixing, "budget": problem.budget}
        if isinstance(noise.space, SparseCovariance):
            return _sparse_audit(noise.space, **how | {"mixing": csr_array(problem.mixing)})
        if problem.observers:
            family = family_of(problem)
            assert isinstance(family, Remarked)
            chosen = family.foremost(problem, noise)
            how["watchers"] = [_watcher(problem, observer) for observer in chosen]
            how |= {"horizon": problem.horizon, "responses": responses}
            if problem.pair_factors is not None:
                how["budget"] = problem.budget * problem.pair_factors
            return attacks.audit_observers(covariance=design.covariance, **how)
        if known := problem.structure.known_seeds:
            plan = seed_plan_of(design)
            worst = attacks.worst_coalition(plan, size=known, budget=problem.budget)
            return attacks.audit_coalition(plan=plan, coalition=worst, **how)
        return attacks.audit_space(covariance=design.covariance, **how)
    noising, patterns = design.noising_matrix, problem.participation.longest(5000)
    if problem.axes == "time":
        how["mixing"] = None if problem.mixing is None else problem.step_mixing
        noising = noising * problem.sensitivity
    elif noise.full:
        n = len(problem.mixing)
        noising = noising * np.sqrt(np.tile(problem.budget, len(noising) // n))[:, None]
        patterns = (n * patterns[:, None] + np.arange(n)[:, None]).reshape(-1, patterns.shape[1])
    else:
        precision = np.diagonal(inverse_of_positive(design.covariance)) / problem.budget
        noising = noising / np.sqrt(precision.max())
    return attacks.audit_time(noising_matrix=noising, patterns=patterns, **how)


def _sparse_audit(covariance: SparseCovariance, *, mixing: Any, **how: Any) -> AuditReport:
    """Audit the node that most others hear: all are about as near their budgets."""
    n, root = covariance.nodes, covariance.root()
    node = int(np.bincount(mixing.indices, minlength=n).argmax())
    whole = LinearOperator((n, n), matvec=lambda x: root @ (root.T @ x), dtype=np.float64)
    row, left = cg(whole, np.eye(1, n, node)[0], rtol=1e-10, maxiter=2000)
    if left:
        expected, got = "noise of a covariance that has an inverse", "one that is hardly regular"
        raise InputError("design", expected=expected, got=got)
    return attacks.audit_node(mixing=mixing, root=root, node=node, row=row, **how)


def _random_audit(design: Design, how: dict[str, Any]) -> RandomAudit:
    """Audit a record of the least protected node that takes part at random, at the target."""
    # An update of v at s weighs (C^T C)_st [R^-1]_vu in the ratio of a change of u at t.
    problem, found = design.problem, calibration_of(design.problem)
    scheme: Any = problem.use
    nodes = 1 if problem.mixing is None else int(problem.mixing.shape[-1])
    strategy, precision = np.eye(scheme.horizon), np.eye(nodes)
    if design.noise.strategy is not None:
        strategy = design.noise.dense_strategy
    if design.noise.space is not None:
        precision = inverse_of_positive(design.covariance)
    node = int(np.diagonal(precision).argmax())
    at_once = np.stack([strategy[:, steps].sum(axis=1) for steps in scheme.patterns])
    mixture = Mixture(gram=precision[node, node] * bins_of(strategy, scheme).gram)
    multiplier = found.noise_multiplier
    # An attacker's advantage is delta(0): this is as near as an account goes.
    claimed = amplified_delta(
        mixture, epsilon=1e-9, noise_multiplier=multiplier, adjacency="zero-out"
    )
    return audit_random_bins(
        mixing=None if problem.mixing is None else problem.step_mixing,
        weights=(at_once @ strategy)[:, :, None] * precision[node],
        bins=scheme.patterns,
        node=node,
        draw=lambda columns, sequence: design.noise.stream(
            dimension=columns, seed=sequence, steps=scheme.horizon, nodes=nodes
        ),
        claimed=claimed,
        noise_multiplier=multiplier,
        **how,
    )


def _watcher(problem: SpaceProblem, observer: Observer) -> attacks.Watcher:
    """The view of an observer of every step, where noise is dealt: values, not seeds."""
    mixing, coalition = problem.mixing, list(observer.coalition)
    everybody = np.eye(len(mixing))
    rounds = [np.linalg.matrix_power(mixing, power) for power in range(problem.rounds)]
    match observer.sees:
        case "all":
            readout = everybody
        case "sent":
            readout = everybody[list(observer.listened)]
        case "sums":
            readout = mixing[coalition]
        case "received":
            heard = (mixing[coalition] != 0).any(axis=0)
            heard[coalition] = True
            readout = everybody[heard]
        case "mean":
            readout, rounds = (mixing @ rounds[-1]).mean(axis=0, keepdims=True), [everybody]
    readout = np.vstack([readout @ power for power in rounds])
    return attacks.Watcher(
        readout=readout, known=tuple(sorted(observer.knows.revealed)), inside=observer.coalition
    )
