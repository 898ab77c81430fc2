"""A finished noise design: the matrix, what is proved about it, and where it came from."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from noisedesign._checks import Array, InputError
from noisedesign.backends.base import Bounds
from noisedesign.certificate import Certificate
from noisedesign.formulations import DualPoint
from noisedesign.problem import Problem, SpaceProblem, TimeProblem


@dataclass(frozen=True, kw_only=True)
class Provenance:
    """How a design was made. ``versions`` maps package names to version strings."""

    method: str
    backend: str
    status: str
    build_seconds: float = 0.0
    solve_seconds: float = 0.0
    evaluations: int = 0
    versions: dict[str, str] = field(default_factory=dict)
    history: tuple[Bounds, ...] = ()


@dataclass(frozen=True, kw_only=True, eq=False)
class Design:
    """A certified noise design.

    ``matrix`` is what is exported: for a spatial problem the covariance R, shape (n, n), of the
    nodes' noise at the stated budgets; for a temporal one the lower triangular strategy C, shape
    (T, T), of unit squared sensitivity. ``dual`` proves the lower bound; baselines have none of
    their own. ``trust`` is "local" where the noise protects every message, "central" where it only
    protects the average a trusted server releases.
    """

    problem: Problem
    matrix: Array
    certificate: Certificate
    provenance: Provenance
    dual: DualPoint | None = None
    trust: str = "local"

    @property
    def kind(self) -> str:
        """ "space" or "time"."""
        return self.problem.design

    @property
    def covariance(self) -> Array:
        """R, shape (n, n), squared noise units. Raises InputError for a temporal design."""
        if not isinstance(self.problem, SpaceProblem):
            raise InputError("design", expected="a space design", got="a time design")
        return self.matrix

    @property
    def strategy(self) -> Array:
        """C, shape (T, T), lower triangular. Raises InputError for a spatial design."""
        if not isinstance(self.problem, TimeProblem):
            raise InputError("design", expected="a time design", got="a space design")
        return self.matrix

    @cached_property
    def noising_matrix(self) -> Array:
        """C^-1, shape (T, T), lower triangular: noise of step t is row t times white noise."""
        return np.asarray(np.tril(np.linalg.inv(self.strategy)))

    @property
    def objective(self) -> float:
        return self.certificate.objective

    @property
    def lower_bound(self) -> float:
        return self.certificate.lower_bound

    @property
    def gap(self) -> float:
        return self.certificate.gap
