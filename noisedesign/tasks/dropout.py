"""Nodes drop out: what noise that the others share with them costs, and whether it still protects.

Noise of shared seeds cancels in sums over all who hold them. With the nodes G gone, noise of the
others, L, has the covariance R_LL, where nothing cancels what L shares with G. Costs are for nodes
that are gone from the first step on; privacy is for nodes that go at any step.

- The mean of all nodes' noise has variance 1^T R 1 / n^2, that of the others 1^T R_LL 1 / |L|^2.
- A reader of the messages of L learns no more than of all: [R_LL]^-1, a Schur complement of R^-1,
  has no larger diagonal. Noise correlated across steps too has covariance K x R, of which every
  block is scaled alike. What nodes sent before they went was accounted for, too.
- The others can leave out the seeds they hold with G, so that noise cancels again. Then, or where
  the nodes gone give their seeds away, the covariance is that of the seeds that nobody of G holds:
  it hides less than was designed for, unless the design is for known seeds (SecLDP)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from noisedesign.base import checks as _checks
from noisedesign.base.checks import Array, InputError
from noisedesign.base.linalg import inner, inverse_of_positive
from noisedesign.base.nodes import Node, row_of
from noisedesign.base.shown import Listing, Shown
from noisedesign.design.design import Design, design_of
from noisedesign.problem.calibration import calibration_of
from noisedesign.system.gossip import of_every_step
from noisedesign.system.workloads import ErrorMeasure, Workload
from noisedesign.system.workloads.error import AnyError, among

Nodes = NDArray[np.intp]


@dataclass(frozen=True, kw_only=True, repr=False)
class Others(Shown):
    """Noise of the nodes that are left.

    Attributes:
        average_ratio: variance of its mean over theirs, over that of all nodes with nobody gone.
        error_ratio: the design's error a node, over that with nobody gone; a node that is gone
            keeps its model, and its neighbours put its weight on themselves. None where the error
            is none of models, or mixing is random.
        sensitivity_squared: largest [R_LL^-1]_ii over the budget of i; at most 1 protects as
            designed, infinite where nothing hides somebody.
        mu: of a whole run, for the least protected of them; where participation is random, that of
            any order of records. None without a privacy target.
    """

    average_ratio: float
    error_ratio: float | None
    sensitivity_squared: float
    mu: float | None


@dataclass(frozen=True, kw_only=True, repr=False)
class DropOut(Shown):
    """The noise and privacy that are left when some nodes drop out.

    Attributes:
        gone: their names.
        left: how many nodes there are besides.
        average_variance: squared, of the mean of the noise of those left at one step, averaged over
            steps; in squared units of the gradients with a privacy target, else at the budgets.
        others: those left go on as they were.
        without_seeds: they leave out the seeds that they hold with a node that is gone; what
            protects them is the same where these seeds become known. None where noise is not made
            of shared seeds.

    Examples:
        >>> import noisedesign as nd
        >>> problem = nd.SpaceProblem.from_graph(nd.build_graph("ring", nodes=4))
        >>> found = nd.privacy.drop_out(nd.baseline(problem, "ldp"), gone=[1])
        >>> found.gone, found.left, f"{found.others.sensitivity_squared:.4f}"
        (('1',), 3, '1.0000')
    """

    gone: tuple[str, ...]
    left: int
    average_variance: float
    others: Others
    without_seeds: Others | None

    def _title(self) -> str:
        return f"without {', '.join(self.gone)}"

    def _facts(self) -> dict[str, object]:
        return {name: value for name, value in self.as_dict().items() if name != "gone"}

    def as_dict(self) -> dict[str, Any]:
        """One flat record.

        Returns:
            Values by name; those of ``without_seeds`` under names that end in it.
        """
        record: dict[str, Any] = {"gone": ", ".join(self.gone), "left": self.left}
        record |= {"average_variance": self.average_variance} | vars(self.others)
        found = {} if self.without_seeds is None else vars(self.without_seeds)
        return record | {f"{name}_without_seeds": found.get(name) for name in vars(self.others)}


def drop_out(design: Design, gone: Sequence[Node]) -> DropOut:
    """Compute what it costs that these nodes drop out, and what then protects the others.

    Args:
        design: a design of a graph, or a solution or loaded file that has one.
        gone: rows of W or names, at least one, and not all.

    Returns:
        Variances, errors and mu, with and without the seeds of those that are gone.

    Raises:
        InputError: no such nodes; nobody left; a design without a graph, that does not protect
            every message within its budgets, or of full space-time noise.

    Examples:
        Independent unit noise: the mean over three nodes has variance 1/3, over four 1/4.

        >>> import noisedesign as nd
        >>> problem = nd.SpaceProblem.from_graph(nd.build_graph("ring", nodes=4))
        >>> found = nd.privacy.drop_out(nd.baseline(problem, "ldp"), gone=[0])
        >>> print(f"{found.average_variance:.4f}, {found.others.average_ratio:.4f}")
        0.3333, 1.3333
    """
    design = _checked(design)
    listed = _checks.listed(gone, field="gone", expected="a list of nodes")
    names = design.problem.nodes
    rows = sorted({row_of(node, names, field="gone") for node in listed})
    if not 0 < len(rows) < len(names):
        expected = f"some of the {len(names)} nodes, and not all"
        raise InputError("gone", expected=expected, got=f"{len(rows)}")
    return _Network(design).without(rows)


def every_drop_out(
    design: Design, *, progress: Callable[[int, int], None] | None = None
) -> Listing[DropOut]:
    """:func:`drop_out` of every node alone.

    Args:
        design: as there.
        progress: called with nodes done and in total.

    Returns:
        What each leaves behind, in the order of the rows of W.

    Raises:
        InputError: as there; a single node.

    Examples:
        >>> import noisedesign as nd
        >>> problem = nd.SpaceProblem.from_graph(nd.build_graph("star", nodes=4))
        >>> found = nd.privacy.every_drop_out(nd.baseline(problem, "ldp"))
        >>> [(one.gone, f"{one.average_variance:.4f}") for one in found[:2]]
        [(('0',), '0.3333'), (('1',), '0.3333')]
    """
    design = _checked(design)
    network, n = _Network(design), len(design.problem.nodes)
    if n == 1:
        raise InputError("design", expected="at least two nodes", got="one")
    found: Listing[DropOut] = Listing()
    for node in range(n):
        found.append(network.without([node]))
        if progress is not None:
            progress(node + 1, n)
    return found


def mu_to_holders(design: Design) -> float | None:
    """GDP parameter of a whole run against any one node that knows the seeds it holds.

    It reads all messages; mu is that of the least protected of the others, and where participation
    is random that of any order of records.

    Args:
        design: a design of a graph, or a solution or loaded file that has one.

    Returns:
        mu, not squared; infinite where nothing hides somebody; None without a privacy target, or
        where noise is not made of shared seeds.

    Raises:
        InputError: as :func:`drop_out`.

    Examples:
        Pairwise seeds cost privacy towards those that hold them; independent noise does not.

        >>> import noisedesign as nd
        >>> target = nd.PrivacyTarget(epsilon=1.0, delta=1e-6, steps=1)
        >>> ring = nd.build_graph("ring", nodes=4)
        >>> for kind in ("independent", "edge-local"):
        ...     structure = nd.SpaceStructure(kind=kind)
        ...     problem = nd.SpaceProblem.from_graph(ring, structure=structure, privacy=target)
        ...     design = nd.solve(problem).design
        ...     print(kind, nd.privacy.mu_to_holders(design) > 1.01 * nd.calibrate(problem).mu)
        independent False
        edge-local True
    """
    network = _Network(_checked(design))
    found = network.to_holders()
    return None if network.mu is None or not found else network.mu_of(max(found))


def ratio_to_holders(design: Design) -> tuple[float, int] | None:
    """mu (not squared) before holders of seeds over that before a reader, worst, and its row."""
    network = _Network(_checked(design))
    found = network.to_holders()
    if not found:
        return None
    readers = _precision(network.covariance, network.everybody).max()
    worst = int(np.argmax(found))
    return math.sqrt(found[worst] / readers), worst


def _checked(design: Design) -> Design:
    design = design_of(design)
    if design.trust != "local":
        got = f"trust {design.trust!r}"
        raise InputError("design", expected="one that protects every message", got=got)
    if not design.certificate.feasible:
        raise InputError("design", expected="one that keeps its budgets", got="one that does not")
    if design.problem.mixing is None:
        raise InputError("design", expected="one of several nodes", got="one without a graph")
    if design.noise.full:
        expected = "noise in space, in time, or their product"
        raise InputError("design", expected=expected, got="full space-time noise")
    return design


class _Network:
    """A design whose nodes may drop out."""

    def __init__(self, design: Design) -> None:
        problem = design.problem
        assert problem.mixing is not None
        self.names, self.mixing, self.rounds = problem.nodes, problem.mixing, problem.rounds
        n, noise = len(self.names), design.noise
        self.everybody = np.arange(n)
        self.covariance = np.eye(n) if noise.space is None else design.covariance
        self.budget: Array = np.ones(n) if problem.axes == "time" else problem.budget
        # A root of R with a column a seed; None where noise is not made of seeds.
        plan = None if noise.space is None else design._seeds
        self.root = None if plan is None else plan.root()
        variances = np.diagonal(self.covariance)
        if not np.any(self.covariance - np.diag(variances)):
            self.root = np.diag(np.sqrt(variances))
        self.time_covariance: Array | None = None
        step_variance = 1.0
        if noise.strategy is not None:
            self.time_covariance = over_time = design.noising_matrix @ design.noising_matrix.T
            step_variance = float(np.diagonal(over_time).mean())
        self.scale = calibration_of(problem).noise_stddev ** 2 * step_variance
        self.mu = design.fixed_mu
        # The error that the problem measures, where a smaller network has the like of it.
        self.error: AnyError | None = None
        steps = 1 if design.axes == "space" or problem.use is None else problem.use.horizon
        error: AnyError = problem.error or ErrorMeasure(horizon=steps)
        if problem.always_alike and error.push_sum_weights is None and not error.worst:
            self.error = error

    @cached_property
    def error_before(self) -> float | None:
        return self._error_of(self.covariance, self.everybody)

    def without(self, gone: list[int]) -> DropOut:
        left = np.setdiff1d(self.everybody, gone)
        known = None if self.root is None else self._hidden_from(gone)
        return DropOut(
            gone=tuple(self.names[node] for node in gone),
            left=len(left),
            average_variance=self.scale * _average(self.covariance, left),
            others=self._judged(self.covariance, left),
            without_seeds=None if known is None else self._judged(known, left),
        )

    def _hidden_from(self, holders: list[int]) -> Array:
        """Covariance of the seeds that none of these hold."""
        assert self.root is not None
        kept = self.root[:, ~self.root[holders].any(axis=0)]
        return np.asarray(kept @ kept.T)

    def to_holders(self) -> list[float]:
        """Largest precision of another node's noise, to each holder of seeds; or empty."""
        if self.root is None or len(self.names) == 1:
            return []
        rows = range(len(self.names))
        hidden = ((self._hidden_from([u]), np.delete(self.everybody, u)) for u in rows)
        return [float(_precision(covariance, left).max()) for covariance, left in hidden]

    def mu_of(self, precision: float) -> float:
        assert self.mu is not None
        return self.mu * math.sqrt(precision / float(self.budget.max()))

    def _judged(self, covariance: Array, left: Nodes) -> Others:
        precision = _precision(covariance, left)
        before, found, ratio = self.error_before, self._error_of(covariance, left), None
        if before is not None and found is not None:
            ratio = found / before if before > 0 else math.inf
        return Others(
            average_ratio=_average(covariance, left) / _average(self.covariance, self.everybody),
            error_ratio=ratio,
            sensitivity_squared=float((precision / self.budget[left]).max()),
            mu=None if self.mu is None else self.mu_of(float(precision.max())),
        )

    def _error_of(self, covariance: Array, left: Nodes) -> float | None:
        if self.error is None:
            return None
        there = np.zeros(len(self.names))
        there[left] = 1.0
        measure = among(self.error, there)
        if measure is None:
            return None
        mixing = self.mixing * there * there[:, None]
        mixing += np.diag(self.mixing.sum(axis=1) - mixing.sum(axis=1))
        power = of_every_step(mixing, rounds=self.rounds)
        workload = Workload.of(power, horizon=measure.horizon, error=measure)
        gram = workload.space_gram(self.time_covariance)
        seen = covariance * there * there[:, None]
        return inner(gram, seen)


def _precision(covariance: Array, left: Nodes) -> Array:
    """Diagonal of the inverse of the block of those left; infinite where it has none."""
    try:
        return np.diagonal(inverse_of_positive(covariance[np.ix_(left, left)]))
    except np.linalg.LinAlgError:
        return np.full(len(left), math.inf)


def _average(covariance: Array, nodes: Nodes) -> float:
    return float(covariance[np.ix_(nodes, nodes)].sum()) / len(nodes) ** 2
