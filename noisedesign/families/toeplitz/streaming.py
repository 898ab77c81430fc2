"""Designs in time for any horizon: a Toeplitz strategy in few numbers, and what is known of it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

from noisedesign.base.monitor import Stop
from noisedesign.base.nodes import Node
from noisedesign.base.shown import Shown
from noisedesign.certify.certificate import Certificate
from noisedesign.forms import Noise
from noisedesign.forms.node_plan import node_plan
from noisedesign.noise.plan import Claim, Plan
from noisedesign.privacy.target import PrivacyTarget
from noisedesign.problem.calibration import Calibration, calibration, claim_of
from noisedesign.problem.problem import check_steps
from noisedesign.system.participation import Participation

if TYPE_CHECKING:
    from noisedesign.forms import StationaryStrategy
    from noisedesign.system.workloads.toeplitz import Workload


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class StreamingDesign(Shown):
    """An optimised Toeplitz strategy and what is known about it, for any horizon.

    Attributes:
        strategy: C, scaled so that its diagonal is 1.
        horizon: T, which the numbers below hold for.
        workload: what it was optimised for.
        participation: what it was optimised for.
        squared_error: total squared error tr(H C^-1 C^-T), for noise of unit variance.
        squared_sensitivity: of C under the participation scheme.
        sensitivity_kind: "vector-exact", or the upper bound it is.
        lower_bound_of_unrestricted_optimum: no causal strategy has a smaller ``objective``. Not a
            bound for the family only: there is none.
        stop: how the search ended.
        evaluations: of the objective and its gradient.
        privacy: what its noise is to be scaled to, where that is known: state it with
            ``dataclasses.replace(design, privacy=...)``, and exports are scaled.
        name: in tables and files.

    Raises:
        InputError: a privacy target for another number of steps.

    Examples:
        >>> from dataclasses import replace
        >>> import noisedesign as nd
        >>> from noisedesign.families.toeplitz.solver import optimize_buffered
        >>> from noisedesign.system.workloads.toeplitz import prefix_workload
        >>> workload = prefix_workload(horizon=50)
        >>> scheme = nd.participation.single(50)
        >>> design = optimize_buffered(workload=workload, participation=scheme, buffers=2)
        >>> design = replace(design, privacy=nd.PrivacyTarget(epsilon=1.0, delta=1e-6))
        >>> print(f"{design.claim.noise_stddev * design.claim.mu:.4f}")  # 2 clip
        2.0000
    """

    strategy: StationaryStrategy
    horizon: int
    workload: Workload
    participation: Participation
    squared_error: float
    squared_sensitivity: float
    sensitivity_kind: str
    lower_bound_of_unrestricted_optimum: float
    stop: Stop
    evaluations: int
    privacy: PrivacyTarget | None = None
    name: str = "streaming"
    nodes: ClassVar[tuple[str, ...]] = ()
    trust: ClassVar[str] = "local"
    axes: ClassVar[str] = "streaming"

    def __post_init__(self) -> None:
        check_steps(self.privacy, self.horizon)

    def _facts(self) -> dict[str, object]:
        return {
            "objective": self.objective,
            "excess at most": self.excess_upper_bound,
            **super()._facts(),
        }

    @property
    def objective(self) -> float:
        """Total squared error at unit squared sensitivity."""
        return self.squared_error * self.squared_sensitivity

    @property
    def excess_upper_bound(self) -> float:
        """Relative excess over the unrestricted optimum, at most."""
        return self.objective / self.lower_bound_of_unrestricted_optimum - 1

    @property
    def certificate(self) -> Certificate:
        """The certificate at unit sensitivity; the bound is that of the unrestricted optimum."""
        return Certificate(
            objective=self.objective,
            lower_bound=self.lower_bound_of_unrestricted_optimum,
            sensitivity_squared=1.0,
            sensitivity_kind=self.sensitivity_kind,
        )

    @property
    def calibration(self) -> Calibration:
        """The scale of its noise at the target, if there is one."""
        return calibration(self.privacy, participation=self.participation)

    @cached_property
    def claim(self) -> Claim:
        """The protection by its noise once that is scaled to the target.

        Raises:
            InputError: no target.
        """
        return claim_of(self.calibration, trust=self.trust)

    @property
    def noise(self) -> Noise:
        """The exported noise, C in the few numbers that determine it, at unit sensitivity."""
        form = self.strategy.at(self.horizon)
        return Noise(steps=self.horizon, strategy=form.scaled(math.sqrt(self.squared_sensitivity)))

    def node_plan(self, node: Node | None = None, *, batch_size: int | None = None) -> Plan:
        """The facts a node needs to draw its noise, scaled to ``privacy``: the same for all.

        Args:
            node: zero-based, 0 by default; each has noise of its own, from a secret of its own.
            batch_size: as of :meth:`noisedesign.Design.node_plan`.

        Returns:
            The plan, which :func:`noisedesign.noise.noise` draws from.

        Raises:
            InputError: no privacy target.
        """
        noise = self.noise.scaled(self.claim.noise_stddev)
        return node_plan(noise, self.claim, node=node, batch_size=batch_size)
