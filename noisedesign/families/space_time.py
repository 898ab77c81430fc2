"""The program of a space-time problem: noise correlated across nodes and across steps.

The convex program (P) once more, on nT coordinates in time-major order (step * n + node): with
H = A^T A of the whole workload, "node u takes part at steps j, j + b, ..." is (k, b n)
participation. A full design solves that program. A Kronecker design restricts the noise covariance
to S x R, costs no more than its two factors, and is certified against all designs, full ones
included."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from noisedesign.base.checks import Array, InputError
from noisedesign.certify.program import Program
from noisedesign.problem.problem import SpaceTimeProblem
from noisedesign.system.participation import FixedEpoch, single
from noisedesign.system.workloads import Workload

MAX_COORDINATES = 11_000
"""Largest nT of a full design: eight arrays of nT x nT floats then take 8 GB."""

MANY_COORDINATES = 5000
"""nT above which the bound of a Kronecker design is not improved on all pairs, as it would take
minutes."""


@dataclass(frozen=True, kw_only=True, eq=False)
class SpaceTimeProgram:
    """Minimise tr(H cov(z)) over noise z of all nodes and steps, at each node's budget.

    The participation is (k, b), k b = T, for every node; ``budget`` tau, (n,), the squared
    sensitivity allowed to a record over all its participations; ``cap`` is on the variance of every
    node at every step or, of a Kronecker design, on diag(R) at unit sensitivity in time, (n,)."""

    workload: Workload
    participation: FixedEpoch
    budget: Array
    cap: Array | None = None

    def __post_init__(self) -> None:
        horizon = self.participation.horizon
        if self.workload.horizon != horizon:
            raise InputError(
                "participation",
                expected=f"epochs * separation = {self.workload.horizon}, the horizon of the "
                "workload",
                got=f"{horizon}",
            )

    @classmethod
    def of(cls, problem: SpaceTimeProblem, **more: Any) -> Self:
        """The program of a problem, whatever its structure; ``more`` of a subclass."""
        workload = Workload.of(
            problem.step_mixing,
            horizon=problem.participation.horizon,
            error=problem.error,
            random=problem.step_random,
        )
        workload.require_noise_to_count()
        return cls(
            workload=workload,
            participation=problem.participation,
            budget=problem.budget,
            cap=problem.max_variance,
            **more,
        )

    @property
    def independent_objective(self) -> float:
        """tr(H cov(z)) of independent noise at full budget (LDP), squared noise."""
        gram = self.workload.time_gram(np.diag(1 / self.budget))
        return self.participation.epochs * float(np.trace(gram))

    def time_program(self, gram: Array) -> Program:
        """(P) of the time factor at unit sensitivity, for H_time(R) = ``gram``, shape (T, T)."""
        unit = np.ones(self.participation.separation)
        return Program(gram=gram, participation=self.participation, budget=unit)

    def space_program(self, gram: Array) -> Program:
        """(P) of the space factor, for H_space(S) = ``gram``, shape (n, n)."""
        return Program(
            gram=gram,
            participation=single(self.workload.nodes),
            budget=self.budget,
            cap=self.cap,
            axes="space",
        )

    def full_program(self) -> Program:
        """(P) on all nT coordinates; InputError above MAX_COORDINATES."""
        n, k, b = self.workload.nodes, self.participation.epochs, self.participation.separation
        if n * k * b > MAX_COORDINATES:
            expected = f"at most {MAX_COORDINATES} pairs of node and step for a full design"
            got = f"{n} * {k * b} = {n * k * b}"
            remedy = "Use a Kronecker design."
            raise InputError("problem", expected=expected, got=got, remedy=remedy)
        return Program(
            gram=self.workload.gram(),
            participation=FixedEpoch(epochs=k, separation=b * n),
            budget=np.tile(self.budget, b),
            cap=None if self.cap is None else np.tile(self.cap, k * b),
            exact_factor=self.workload.factor(),
            rows=self.workload.rows(),
            workload=self.workload,
            axes="space-time",
        )
