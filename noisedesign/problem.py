"""What a user asks for: a spatial or a temporal noise design, and its privacy target.

Both are the one convex program of :mod:`noisedesign.formulations`,

    minimise  tr(H X^-1)  over positive definite X in a sensitivity set,

read in two ways. In space X = R^-1 is the precision of the noise of the nodes (Whisper D-SGD,
problem (10) with its inequality the right way round); in time X = C^T C is the Gram matrix of the
strategy every node uses for itself (Mafalda-SGD, Lemma 10).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from noisedesign import _checks, settings
from noisedesign._checks import Array, InputError
from noisedesign.graph import check_mixing
from noisedesign.participation import FixedEpoch
from noisedesign.workload import decentralized_gram, prefix_gram

WorkloadKind = Literal["decentralized", "prefix", "gram"]
ADJACENCIES = ("replace", "zero-out")
CONVERSIONS = ("gdp", "rdp")


@dataclass(frozen=True, kw_only=True)
class PrivacyTarget:
    """The (epsilon, delta) a run is to meet, and what one record can do to it.

    ``clip`` bounds the Euclidean norm of one record's gradient at one step. Under ``replace``
    adjacency one record becomes another and a step moves by up to 2 clip; under ``zero-out`` it
    is deleted and a step moves by up to clip. ``steps`` counts the independent rounds a spatial
    design is used for; a temporal design carries its own horizon. ``conversion`` is ``gdp``
    (exact for the Gaussian mechanism) or ``rdp`` (the rule published with Whisper D-SGD).

    Raises:
        InputError: epsilon <= 0, delta outside (0, 1), clip <= 0, steps < 1, unknown words.
    """

    epsilon: float
    delta: float
    clip: float = 1.0
    steps: int | None = None
    adjacency: str = "replace"
    conversion: str = "gdp"

    def __post_init__(self) -> None:
        _checks.real(self.epsilon, field="privacy.epsilon", low=0)
        _checks.real(self.delta, field="privacy.delta", low=0, high=1)
        _checks.real(self.clip, field="privacy.clip", low=0)
        if self.steps is not None:
            _checks.positive_int(self.steps, field="privacy.steps")
        _checks.one_of(self.adjacency, field="privacy.adjacency", allowed=ADJACENCIES)
        _checks.one_of(self.conversion, field="privacy.conversion", allowed=CONVERSIONS)

    @property
    def step_sensitivity(self) -> float:
        """Largest Euclidean change of one step's gradient (not squared): 2 clip or clip."""
        return 2 * self.clip if self.adjacency == "replace" else self.clip


def _default_nodes(count: int) -> tuple[str, ...]:
    return tuple(str(i) for i in range(count))


def _check_nodes(nodes: tuple[str, ...], count: int) -> None:
    if len(nodes) != count or len(set(nodes)) != count:
        raise InputError(
            "nodes", expected=f"{count} distinct names", got=f"{len(set(nodes))} in {len(nodes)}"
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class SpaceProblem:
    """Noise correlated across nodes, independent across steps (Whisper D-SGD).

    Minimise tr(W R W^T) over covariances R subject to [R^-1]_ii <= budget_i for every node i and,
    optionally, R_ii <= max_variance_i.

    Args:
        mixing: W, shape (n, n): nonnegative, doubly stochastic, of a connected graph.
        budget: tau, scalar or shape (n,): squared sensitivity allowed to a unit change at each
            node, in inverse squared noise units.
        max_variance: cap on diag(R), scalar or shape (n,), or None.
        nodes: names in the order of the rows of W.

    Raises:
        InputError: see :func:`noisedesign.graph.check_mixing`; budget <= 0; a cap at or below
            1 / budget, which no noise can meet because [R^-1]_ii R_ii >= 1.
    """

    mixing: Array
    budget: Any = 1.0
    max_variance: Any = None
    name: str = "space"
    nodes: tuple[str, ...] = ()
    privacy: PrivacyTarget | None = None

    design: Literal["space"] = field(default="space", init=False)

    def __post_init__(self) -> None:
        mixing = check_mixing(self.mixing, doubly_stochastic=True)
        n = len(mixing)
        object.__setattr__(self, "mixing", mixing)
        budget = _checks.positive_vector(self.budget, field="budget.tau", length=n)
        object.__setattr__(self, "budget", budget)
        if self.max_variance is not None:
            cap = _checks.positive_vector(self.max_variance, field="limits.max_variance", length=n)
            object.__setattr__(self, "max_variance", cap)
            worst = int((cap * budget).argmin())
            if cap[worst] * budget[worst] <= 1:
                raise InputError(
                    "limits.max_variance",
                    expected=f"more than 1 / tau = {1 / budget[worst]:.6g} (node {worst}), since "
                    "[R^-1]_ii R_ii >= 1 for every covariance",
                    got=f"{cap[worst]:.6g}",
                )
        object.__setattr__(self, "nodes", tuple(self.nodes) or _default_nodes(n))
        _check_nodes(self.nodes, n)

    @property
    def gram(self) -> Array:
        """H = W^T W, shape (n, n)."""
        return np.asarray(self.mixing.T @ self.mixing)


@dataclass(frozen=True, kw_only=True, eq=False)
class TimeProblem:
    """Noise correlated across steps, each node using the same strategy for itself (Mafalda-SGD).

    Minimise tr(H (C^T C)^-1) over lower triangular strategies C of unit (squared) sensitivity
    under ``participation``.

    Use :meth:`decentralized`, :meth:`prefix` or :meth:`from_gram`; they form H.

    Raises:
        InputError: gram not square, not symmetric, not positive semidefinite, or of another size
            than the horizon epochs * separation.
    """

    gram: Array
    participation: FixedEpoch
    workload: WorkloadKind = "gram"
    mixing: Array | None = None
    name: str = "time"
    nodes: tuple[str, ...] = ()
    privacy: PrivacyTarget | None = None

    design: Literal["time"] = field(default="time", init=False)

    def __post_init__(self) -> None:
        gram = _checks.symmetric_matrix(
            self.gram, field="workload.gram", tolerance=settings.SYMMETRY_TOLERANCE
        )
        horizon = self.participation.horizon
        if len(gram) != horizon:
            raise InputError(
                "participation",
                expected=f"epochs * separation = {len(gram)}, the size of the workload",
                got=f"{self.participation.epochs} * {self.participation.separation} = {horizon}",
            )
        object.__setattr__(self, "gram", gram)
        if self.privacy is not None and self.privacy.steps not in (None, horizon):
            raise InputError(
                "privacy.steps",
                expected=f"{horizon}, the horizon of the design, or nothing",
                got=str(self.privacy.steps),
            )
        if self.mixing is not None:
            object.__setattr__(self, "nodes", tuple(self.nodes) or _default_nodes(len(self.mixing)))
            _check_nodes(self.nodes, len(self.mixing))

    @classmethod
    def decentralized(cls, *, mixing: Any, participation: FixedEpoch, **kwargs: Any) -> TimeProblem:
        """All iterates of all nodes under mixing W, shape (n, n), row stochastic."""
        checked = check_mixing(mixing, doubly_stochastic=False)
        gram = decentralized_gram(checked, horizon=participation.horizon)
        return cls(
            gram=gram,
            participation=participation,
            workload="decentralized",
            mixing=checked,
            **kwargs,
        )

    @classmethod
    def prefix(cls, *, participation: FixedEpoch, **kwargs: Any) -> TimeProblem:
        """Prefix sums: one model, every iterate, no graph."""
        gram = prefix_gram(horizon=participation.horizon)
        return cls(gram=gram, participation=participation, workload="prefix", **kwargs)

    @classmethod
    def from_gram(cls, *, gram: Any, participation: FixedEpoch, **kwargs: Any) -> TimeProblem:
        """Any error workload A through H = A^T A, shape (T, T), symmetric positive semidefinite."""
        checked = _checks.symmetric_matrix(
            gram, field="workload.gram", tolerance=settings.SYMMETRY_TOLERANCE
        )
        values = np.linalg.eigvalsh(checked)
        if values[0] < -settings.GRAM_NEGATIVITY * max(values[-1], 0.0) or values[-1] <= 0:
            raise InputError(
                "workload.gram", expected="a nonzero positive semidefinite matrix",
                got=f"eigenvalues from {values[0]:.3g} to {values[-1]:.3g}",
            )  # fmt: skip
        return cls(gram=checked, participation=participation, workload="gram", **kwargs)


Problem = SpaceProblem | TimeProblem
