"""Joint designs in space and time: noise correlated across nodes and across steps.

The convex program (P) once more, on nT coordinates in time-major order (step * n + node): with
H = A^T A of the whole workload, "node u takes part at steps j, j + b, ..." is (k, b n)
participation. A full design solves that program, and its strategy, lower triangular, is causal.
A Kronecker design restricts the noise covariance to S x R, costs no more than its two factors,
and is certified against all designs, full ones included.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from noisedesign.base import checks as _checks
from noisedesign.base.checks import Array, InputError
from noisedesign.base.monitor import Stop
from noisedesign.families.kronecker import bound as space_time_certificate
from noisedesign.families.kronecker.bound import Witness
from noisedesign.program import certificate
from noisedesign.program.program import Program
from noisedesign.system.graph import check_mixing
from noisedesign.system.participation import FixedEpoch, single
from noisedesign.system.workloads.workload import Workload

MAX_COORDINATES = 4096
"""Largest nT of a full design: its dozen arrays of nT x nT floats then take 1.6 GB."""


@dataclass(frozen=True, kw_only=True, eq=False)
class JointProgram:
    """Minimise tr(H cov(z)) over noise z of all nodes and steps, at each node's budget.

    Args:
        workload: what H is, for n nodes and T steps.
        participation: (k, b) with k b = T, the same for every node.
        budget: tau, scalar or shape (n,): squared sensitivity allowed to each node's record over
            all its participations, with unit-norm vector gradients.

    Raises:
        InputError: the horizons of workload and participation differ; budget <= 0.
    """

    workload: Workload
    participation: FixedEpoch
    budget: Any = 1.0

    def __post_init__(self) -> None:
        horizon = self.participation.horizon
        if self.workload.horizon != horizon:
            raise InputError(
                "participation",
                expected=f"epochs * separation = {self.workload.horizon}, the "
                "horizon of the workload",
                got=f"{horizon}",
            )
        budget = _checks.positive_vector(self.budget, field="budget", length=self.workload.nodes)
        object.__setattr__(self, "budget", budget)

    @classmethod
    def all_iterates(
        cls, *, mixing: Any, participation: FixedEpoch, budget: Any = 1.0
    ) -> JointProgram:
        """All iterates of all nodes under mixing W, shape (n, n), row stochastic."""
        checked = check_mixing(mixing, stochastic="row")
        workload = Workload.of(checked, horizon=participation.horizon)
        return cls(workload=workload, participation=participation, budget=budget)

    @property
    def independent_objective(self) -> float:
        """tr(H cov(z)) of independent noise at full budget (LDP), squared noise."""
        gram = self.workload.time_gram(np.diag(1 / self.budget))
        return self.participation.epochs * float(np.trace(gram))

    def time_program(self, gram: Array) -> Program:
        """(P) of the time factor at unit sensitivity, for H_time(R) = ``gram``, shape (T, T)."""
        unit = np.ones(self.participation.separation)
        return Program(gram=gram, participation=self.participation, budget=unit)

    def space_program(self, gram: Array, *, cap: Array | None = None) -> Program:
        """(P) of the space factor, for H_space(S) = ``gram``, shape (n, n)."""
        nodes = single(self.workload.nodes)
        return Program(gram=gram, participation=nodes, budget=self.budget, cap=cap, axes="space")

    def full_program(self, *, cap: Array | None = None) -> Program:
        """(P) on all nT coordinates; ``cap`` on the noise variance of every node, shape (n,).

        Raises:
            InputError: nT exceeds MAX_COORDINATES.
        """
        n, k, b = self.workload.nodes, self.participation.epochs, self.participation.separation
        if n * k * b > MAX_COORDINATES:
            raise InputError(
                "problem",
                expected=f"at most {MAX_COORDINATES} pairs of node and step for a full design",
                got=f"{n} * {k * b} = {n * k * b}",
                remedy="Use a Kronecker design.",
            )
        return Program(
            gram=self.workload.gram(),
            participation=FixedEpoch(epochs=k, separation=b * n),
            budget=np.tile(self.budget, b),
            cap=None if cap is None else np.tile(cap, k * b),
            exact_factor=self.workload.factor(),
            axes="space-time",
        )

    def lower_bound(self, witness: Witness) -> float:
        """Bound on all designs, squared noise: by modes or, without them, on all coordinates.

        0 where there are no modes and too many coordinates.
        """
        workload = self.workload
        if workload.modes is not None:
            return space_time_certificate.lower_bound(
                workload, participation=self.participation, budget=self.budget, witness=witness
            )
        if workload.nodes * workload.horizon > MAX_COORDINATES:
            return 0.0
        dual = space_time_certificate.full_dual(witness)
        return certificate.lower_bound(self.full_program(), dual)


@dataclass(frozen=True, kw_only=True, eq=False)
class KroneckerDesign:
    """Where the search for both factors ended.

    ``strategy`` is C, shape (T, T), lower triangular, of unit squared sensitivity; ``covariance``
    is R, shape (n, n), at the budgets; ``witness`` proves a bound on every design, so that the gap
    to it is what leaving the Kronecker structure could gain at most. ``history`` holds the
    objectives of the alternation, squared noise.
    """

    strategy: Array
    covariance: Array
    witness: Witness
    stop: Stop
    history: tuple[float, ...]
