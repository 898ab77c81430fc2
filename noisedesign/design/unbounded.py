"""Designs of runs without an end: buffers of finite sensitivity over all time, and their judge."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

import numpy as np

from noisedesign.base import checks as _checks
from noisedesign.base.checks import Array, InputError
from noisedesign.base.nodes import Node, Row, as_row
from noisedesign.base.shown import Shown
from noisedesign.families.unbounded.bound import Proved, judged, least_stddevs
from noisedesign.families.unbounded.buffers import Buffers
from noisedesign.families.unbounded.directed import Directed
from noisedesign.noise.filters import Buffered
from noisedesign.noise.plan import UNBOUNDED, Claim, Plan, Stream
from noisedesign.privacy.accounting import mu_of
from noisedesign.problem.calibration import no_target
from noisedesign.problem.unbounded import STEPS, UnboundedProblem


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class UnboundedDesign(Shown):
    """Noise of a run without an end, private for ever.

    C has the first column 1, sum_i s_i l_i^(k-1), k = 1, 2, ..., before it is scaled to the target.

    Attributes:
        problem: what it is a design for.
        scales: s, shape (m,), > 0.
        decays: l, shape (m,), in (0, 1), ascending.
        squared_sensitivity: of C over all time, rounded up.
        ratio: of the standard deviation of the error to the least of those who know the horizon, at
            most, at every step from ``first`` to ``steps``.
        worst: a step of that ratio, or the last of its interval of the grid.

    Raises:
        InputError: buffers whose sensitivity over all time is not known: scales not positive,
            decays not in (0, 1) or not ascending, or sum s / l > 1.

    Examples:
        >>> import noisedesign as nd
        >>> design = nd.solve(nd.UnboundedProblem(buffers=4))
        >>> design.ratio < 1.7
        True
    """

    problem: UnboundedProblem
    scales: Array
    decays: Array
    squared_sensitivity: float
    ratio: float
    worst: int
    trust: ClassVar[str] = "local"
    steps: ClassVar[int] = STEPS

    def __post_init__(self) -> None:
        for key in ("scales", "decays"):
            given = _checks.vector(getattr(self, key), field=key, length=len(self.scales))
            object.__setattr__(self, key, given)
        if not self.buffers.falling:
            expected = "0 < decays < 1, ascending, scales > 0 and sum of scales / decays <= 1"
            raise InputError("design file", expected=expected, got="others")

    @property
    def buffers(self) -> Buffers:
        """The strategy of unit diagonal."""
        return Buffers(scales=self.scales, decays=self.decays)

    @property
    def first(self) -> int:
        """The number of steps from which on a record can have taken part as often as it may."""
        return (self.problem.max_participations - 1) * self.problem.separation + 1

    @property
    def prices(self) -> Mapping[str, float]:
        """The price of the one squared budget, which every record has, as of
        :attr:`noisedesign.Design.prices`."""
        return {"every record": 1.0}

    @cached_property
    def found_sensitivity(self) -> float:
        """Squared sensitivity of C over all time, computed again and rounded up."""
        of = self.problem
        return self.buffers.proved_sensitivity(
            participations=of.max_participations, separation=of.separation
        )

    @cached_property
    def proved(self) -> Proved:
        """The ratio computed again, with the errors and bounds that it is of."""
        of = self.problem
        poles, weights = np.asarray(of.workload.poles), np.asarray(of.workload.weights)
        directed = Directed(of.mixing) if of.directed else None
        least = least_stddevs(
            poles,
            weights,
            participations=of.max_participations,
            separation=of.separation,
            steps=STEPS,
            directed=directed,
        )
        return judged(
            self.buffers,
            poles,
            weights,
            least=least,
            squared=self.found_sensitivity,
            steps=STEPS,
            directed=directed,
        )

    @cached_property
    def claim(self) -> Claim:
        """The protection by its noise for ever, scaled to the target.

        Raises:
            InputError: no target.
        """
        target = self.problem.privacy
        if target is None:
            raise no_target()
        mu = mu_of(epsilon=target.epsilon, delta=target.delta, conversion=target.conversion)
        return Claim(
            noise_stddev=target.step_sensitivity / mu,
            mu=mu,
            epsilon=target.epsilon,
            delta=target.delta,
            adjacency=target.adjacency,
            clip=target.clip,
            participation=self.problem.participation,
            rule=self.problem.rule,
            trust=self.trust,
        )

    @property
    def filter(self) -> Buffered:
        """The noise from white noise, at the scale of the claim."""
        diagonal = 1 / (self.claim.noise_stddev * self.found_sensitivity**0.5 * (1 + 2.0**-50))
        return Buffered(self.scales, self.decays, np.array([diagonal]))

    def node_plan(self, node: Node | None = None, *, batch_size: int | None = None) -> Plan:
        """The facts a node needs to draw its noise for ever: the same for all but the row of W.

        Args:
            node: its name, a text, or its row, zero-based, 0 by default; each has noise of its own,
                from a secret of its own.
            batch_size: what the trainer divides sums by, if any.

        Returns:
            The plan, which :func:`noisedesign.noise.noise` draws from.

        Raises:
            InputError: no privacy target, no such node, no batch size >= 1.
        """
        claim, mixing = self.claim, self.problem.mixing
        if batch_size is not None:
            claim = replace(claim, batch_size=_checks.positive_int(batch_size, field="batch_size"))
        names = self.problem.nodes
        node = as_row(Row(0) if node is None else node, names, field="node")
        weights: tuple[tuple[int, float], ...] = ()
        if mixing is not None:
            if node >= len(mixing):
                raise InputError("node", expected=f"0 to {len(mixing) - 1}", got=str(node))
            weights = tuple((int(v), float(mixing[node, v])) for v in np.flatnonzero(mixing[node]))
        said = [claim.to_json(), *(a.tolist() for a in self.filter.arrays().values())]
        return Plan(
            digest=hashlib.sha256(json.dumps(["unbounded", *said]).encode()).hexdigest(),
            node=node,
            nodes=None if mixing is None else len(mixing),
            horizon=UNBOUNDED,
            streams=(Stream(name=f"node {node}", coefficient=1.0, holders=(node,)),),
            claim=claim,
            filter=self.filter,
            weights=weights,
            name=names[node] if names else str(node),
        )

    def _title(self) -> str:
        return f"Design without a horizon of {self.problem.name!r}"

    def _facts(self) -> dict[str, object]:
        return {
            **self.problem._facts(),
            "squared sensitivity for ever": self.squared_sensitivity,
            f"std dev over the least, steps {self.first} to {STEPS}": self.ratio,
        }
