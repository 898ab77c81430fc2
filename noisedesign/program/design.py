"""A finished noise design: the matrix, what is proved about it, and where it came from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from os import PathLike
from typing import Any

import numpy as np

from noisedesign.base.checks import Array, InputError, describe
from noisedesign.base.shown import Shown, words
from noisedesign.families.kronecker.workload import joint_program
from noisedesign.program.backend import Bounds
from noisedesign.program.certificate import Certificate
from noisedesign.program.noise import DenseForm, Noise, StrategyForm
from noisedesign.program.problem import Problem, SpaceProblem, SpaceTimeProblem, TimeProblem
from noisedesign.program.program import DualPoint, program_of

AGAINST_OBSERVERS = "observers"
"""The ``trust`` of noise against chosen observers."""

PROTECTS = {
    "local": "every message",
    AGAINST_OBSERVERS: "what the chosen observers see",
    "central": "the released average only",
}
"""What each ``trust`` means."""


@dataclass(frozen=True, kw_only=True, repr=False)
class Provenance(Shown):
    """How a design was made. ``versions`` maps package names to version strings."""

    method: str
    backend: str
    status: str
    build_seconds: float = 0.0
    solve_seconds: float = 0.0
    evaluations: int = 0
    versions: dict[str, str] = field(default_factory=dict)
    history: tuple[Bounds, ...] = ()


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Design(Shown):
    """A certified noise design.

    ``matrix`` is what is exported: for a spatial problem the covariance R, shape (n, n), of the
    nodes' noise at the stated budgets; for a temporal one the lower triangular strategy C, shape
    (T, T), of unit squared sensitivity. A space-time problem has both, C as ``matrix`` and R as
    ``node_covariance``, of noise with covariance (C^T C)^-1 x R; or, without the latter, C of shape
    (nT, nT) in time-major order at the stated budgets.

    ``dual`` proves the lower bound; baselines have none of their own. Where the noise has a
    structure, arrays of ``witness`` do, and ``form`` says C by the numbers its structure leaves
    (bands, coefficients, buffers): ``matrix`` is made from it. ``local`` designs are the best a
    search found, which may be a local optimum. ``trust`` is "local" where the noise protects every
    message, "observers" where it protects from the observers of the problem and nobody else,
    "central" where it only protects the average a trusted server releases.
    """

    problem: Problem
    matrix: Array
    certificate: Certificate
    provenance: Provenance
    dual: DualPoint | None = None
    trust: str = "local"
    node_covariance: Array | None = None
    witness: Mapping[str, Array] = field(default_factory=dict)
    local: bool = False
    form: StrategyForm | None = None

    @property
    def kind(self) -> str:
        """ "space", "time" or "space-time"."""
        return self.problem.design

    @property
    def covariance(self) -> Array:
        """R, shape (n, n), squared noise units. Raises InputError for a design without one."""
        if isinstance(self.problem, SpaceProblem):
            return self.matrix
        if self.node_covariance is None:
            raise InputError("design", expected="a space design", got=f"a {self.kind} design")
        return self.node_covariance

    @property
    def strategy(self) -> Array:
        """C, lower triangular, shape (T, T); (nT, nT) of a full space-time design.

        Raises InputError for a spatial design.
        """
        if not isinstance(self.problem, TimeProblem | SpaceTimeProblem):
            raise InputError("design", expected="a time design", got="a space design")
        return self.matrix

    @cached_property
    def noising_matrix(self) -> Array:
        """C^-1, lower triangular: noise of step t is row t times white noise."""
        return self.strategy_form.dense_noising()

    @cached_property
    def strategy_form(self) -> StrategyForm:
        """C by the numbers that determine it: those of ``form``, if they make ``matrix``.

        Raises InputError for a spatial design.
        """
        if self.form is not None and np.array_equal(self.form.dense(), self.strategy):
            return self.form
        return DenseForm(strategy=self.strategy)

    @cached_property
    def noise(self) -> Noise:
        """What the noise is drawn from: C and R, in the forms they are stored and exported in."""
        problem = self.problem
        if isinstance(problem, SpaceProblem):
            used = problem.use
            return Noise(
                steps=None if used is None else used.horizon,
                nodes=len(problem.mixing),
                space=self.covariance,
            )
        return Noise(
            steps=problem.participation.horizon,
            nodes=None if problem.mixing is None else len(problem.mixing),
            strategy=self.strategy_form,
            space=self.node_covariance,
            full=isinstance(problem, SpaceTimeProblem) and self.node_covariance is None,
        )

    @cached_property
    def ldp_objective(self) -> float:
        """Objective of independent noise at the same budgets, squared noise."""
        problem = self.problem
        if isinstance(problem, SpaceTimeProblem):
            return joint_program(problem).independent_objective
        if isinstance(problem, SpaceProblem) and problem.observers:
            return float(np.sum(np.diagonal(problem.gram) / problem.budget))
        if isinstance(problem, TimeProblem) and not problem.participation.disjoint:
            return float(np.trace(problem.gram)) * problem.participation.largest_size
        program = program_of(problem)
        independent = program.coordinate_budget / program.participation.epochs
        return float((program.gram.diagonal() / independent).sum())

    @property
    def relative_to_ldp(self) -> float:
        """Objective over that of independent noise at the same budgets."""
        return self.objective / self.ldp_objective

    def _title(self) -> str:
        return f"Design of {self.problem.name!r}"

    def _facts(self) -> dict[str, object]:
        shapes = {"R": self.node_covariance, "C": self.matrix}
        if isinstance(self.problem, SpaceProblem):
            shapes = {"R": self.matrix}
        sizes = [f"{name} {words(a)}" for name, a in shapes.items() if a is not None]
        return {
            "kind": f"{self.kind}: {', '.join(sizes)}",
            "method": self.provenance.method,
            "backend": self.provenance.backend,
            "objective": self.objective,
            "lower bound": self.lower_bound,
            "gap": self.gap,
            "relative to LDP": self.relative_to_ldp,
            "feasible": self.certificate.feasible,
            "protects": PROTECTS.get(self.trust),
        }

    @property
    def objective(self) -> float:
        return self.certificate.objective

    @property
    def lower_bound(self) -> float:
        return self.certificate.lower_bound

    @property
    def gap(self) -> float:
        return self.certificate.gap


def design_of(value: Any) -> Design:
    """The design that was meant: itself, or that of a solution or of a loaded file.

    Raises:
        InputError: anything else, with the call that gives one.
    """
    for found in (value, getattr(value, "design", None)):
        if isinstance(found, Design):
            return found
    remedy = ""
    if isinstance(value, (str, PathLike)):
        remedy = "Give load_design(path)."
    elif isinstance(value, Problem):
        remedy = "Give solve(problem).design."
    raise InputError(
        "design",
        expected="a design, or a solution or loaded file that has one",
        got=describe(value),
        remedy=remedy,
    )
