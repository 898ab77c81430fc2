"""Problems of runs without an end, whose privacy must hold for ever."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from types import NoneType
from typing import Any, ClassVar

import numpy as np

from noisedesign.base import checks as _checks
from noisedesign.base.checks import Array, InputError
from noisedesign.base.settings import SYMMETRY_TOLERANCE
from noisedesign.base.shown import Shown
from noisedesign.noise.rules import Rule
from noisedesign.privacy.target import PrivacyTarget
from noisedesign.system.workloads.toeplitz import PoleWorkload, gossip_workload

STEPS = 10**6  # steps to which error is kept near the least and judged; privacy has no such limit
BUFFERS = 8  # where nobody says: more of them gain less than 1e-3 of the standard deviation


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class UnboundedProblem(Shown):
    """Noise over time for a run whose number of steps nobody knows.

    Minimise, over buffered strategies C of finite sensitivity over all time, the largest ratio,
    over steps up to a million, of the standard deviation of the error to the least possible had
    the horizon been known.

    Args:
        mixing: W, shape (n, n), of row sums 1; symmetric, or one whose powers converge: the error
            is that of the models of all nodes; None: that of prefix sums.
        max_participations: k, how often a record takes part at most, in all time.
        separation: b, the least number of steps from one time to the next.
        buffers: arrays of the model's size that the noise keeps between steps, at most 32.
        privacy: the target that the noise is scaled to.
        nodes: names, or nothing.
        name: of the problem, in tables and files.

    Raises:
        InputError: W of other row sums, or that is not symmetric and does not mix; numbers that are
            no integers >= 1; k participations that take more than a million steps; a privacy target
            for a number of steps.

    Examples:
        >>> import noisedesign as nd
        >>> problem = nd.UnboundedProblem(max_participations=2, separation=100)
        >>> problem.rule.most, problem.rule.min_sep
        (2, 100)
    """

    mixing: Any = None
    max_participations: int = 1
    separation: int = 1
    buffers: int = BUFFERS
    privacy: PrivacyTarget | None = None
    nodes: tuple[str, ...] = ()
    name: str = "unbounded"
    axes: ClassVar[str] = "time"

    def __post_init__(self) -> None:
        _checks.text(self.name, field="name")
        for key in ("max_participations", "separation"):
            _checks.positive_int(getattr(self, key), field=f"participation.{key}")
        span = (self.max_participations - 1) * self.separation + 1
        if span > STEPS or self.max_participations > STEPS // 10:
            expected = f"at most {STEPS // 10} times within {STEPS} steps"
            got = f"{self.max_participations} times, {self.separation} steps apart"
            raise InputError("participation.max_participations", expected=expected, got=got)
        if _checks.positive_int(self.buffers, field="structure.buffers") > 32:
            raise InputError("structure.buffers", expected="at most 32", got=f"{self.buffers}")
        expected = "PrivacyTarget(epsilon=..., delta=...) or None"
        kinds = (PrivacyTarget, NoneType)
        _checks.instance(self.privacy, kinds, field="privacy", expected=expected)
        if self.privacy is not None and self.privacy.steps is not None:
            expected, got = "nothing: the run has no end", f"{self.privacy.steps}"
            raise InputError("privacy.steps", expected=expected, got=got)
        if self.mixing is not None:
            w = _checks.matrix(self.mixing, field="mixing", square=True)
            rows = np.abs(w.sum(axis=1) - 1).max()
            if not rows <= 1e-9:
                raise InputError("mixing", expected="rows of sum 1", got=f"one off by {rows:.3g}")
            object.__setattr__(self, "mixing", w)
            if not self.directed:
                gossip_workload(w, horizon=1)
            elif not _moduli(w)[:-1].max(initial=0.0) < 1:
                expected = "a symmetric W, or one whose powers converge to a matrix of rank one"
                raise InputError("mixing", expected=expected, got="another")
            names = _checks.node_names(self.nodes, count=len(w))
            object.__setattr__(self, "nodes", names)

    @property
    def directed(self) -> bool:
        """Whether W is not symmetric."""
        w = self.mixing
        return w is not None and np.abs(w - w.T).max() > SYMMETRY_TOLERANCE * np.abs(w).max()

    @cached_property
    def workload(self) -> PoleWorkload:
        """Poles and weights of the error of a step, a coordinate and the mean over nodes; where W
        is not symmetric those that a search for buffers takes in its place."""
        if self.mixing is None:
            return PoleWorkload(poles=np.ones(1), weights=np.ones(1), horizon=1)
        if self.directed:
            poles = _moduli(self.mixing)
            poles = np.append(poles[poles > 1e-6][:-1], 1.0)
            return PoleWorkload(poles=poles, weights=poles**2 / len(self.mixing), horizon=1)
        found = gossip_workload(self.mixing, horizon=1)
        weights: Array = found.weights / len(self.mixing)
        return PoleWorkload(poles=found.poles, weights=weights, horizon=1)

    @property
    def rule(self) -> Rule:
        """The rule that a trainer holds every record to."""
        apart = self.separation if self.max_participations > 1 else 1
        return Rule(most=self.max_participations, min_sep=apart)

    @property
    def participation(self) -> str:
        """The participation, in words."""
        if self.max_participations == 1:
            return "one participation in a run without an end"
        return (
            f"at most {self.max_participations} participations, at least {self.separation} steps "
            "apart, in a run without an end"
        )

    def _facts(self) -> dict[str, object]:
        nodes = None if self.mixing is None else len(self.mixing)
        return {"nodes": nodes, "participation": self.participation, "buffers": self.buffers}


def _moduli(mixing: Array) -> Array:
    """Moduli of the eigenvalues, ascending."""
    return np.sort(np.abs(np.linalg.eigvals(mixing)))
