"""The privacy that a run is to have, in the words people state it in."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, get_args

from noisedesign.base import checks as _checks
from noisedesign.base.checks import InputError
from noisedesign.noise.plan import CHANGE_OVER_CLIP

Adjacency = Literal["replace", "zero-out", "add-remove"]
ADJACENCIES: tuple[Adjacency, ...] = get_args(Adjacency)

Kind = Literal["any", "convex", "smooth", "fixed"]
KINDS: tuple[Kind, ...] = get_args(Kind)  # classes of :class:`.runs.Responses`

Losses = Literal["general", "generalised-linear"]
LOSSES: tuple[Losses, ...] = get_args(Losses)

Clipping = Literal["record", "none"]
CLIPPINGS: tuple[Clipping, ...] = get_args(Clipping)

DEFAULT_ADJACENCY: Adjacency = "replace"  # of targets and accounts: that of the largest epsilon
DEFAULT_DELTA = 1e-6  # the one default of targets and accounts

GDP, RDP, WHISPER = "gdp", "rdp", "whisper"
CONVERSIONS = (GDP, RDP, WHISPER)  # rules from (epsilon, delta) to mu, see mu_of


def check_conversion(
    conversion: Any, *, epsilon: float, delta: float, of: str = ""
) -> tuple[str, float]:
    """The name of a conversion that says something of ``epsilon``, and log(1 / delta)."""
    name = _checks.one_of(conversion, field=f"{of}conversion", allowed=CONVERSIONS)
    large = -math.log(delta)
    if name == WHISPER and not epsilon < large:
        expected = f"less than log(1 / delta) = {large:.6g}, as Proposition 1 of Whisper D-SGD"
        remedy = 'conversion = "gdp" is exact for every epsilon.'
        raise InputError(f"{of}epsilon", expected=expected, got=f"{epsilon:g}", remedy=remedy)
    return name, large


@dataclass(frozen=True, kw_only=True)
class PrivacyTarget:
    """The (epsilon, delta) a run is to meet, and what one record can do to it.

    Args:
        epsilon: in [1e-100, 1e100].
        delta: in (0, 1).
        clip: bound on the Euclidean norm of one record's gradient at one step, not squared.
        steps: how many steps a spatial design is used for, where a record takes part in each of
            them. Other designs have a participation, and so may a spatial one; it must agree.
        adjacency: what a neighbouring data set is. Under "replace" one record becomes another and
            a step moves by up to 2 clip; under "zero-out" its gradients become zero and a step
            moves by up to clip, as under "add-remove", since batches are fixed in advance.
        conversion: "gdp", "rdp" or "whisper", see :func:`noisedesign.privacy.mu_of`.

    Raises:
        InputError: epsilon or clip outside [1e-100, 1e100], delta outside (0, 1), steps < 1,
            unknown words; conversion "whisper" and epsilon >= log(1 / delta).

    Examples:
        >>> import noisedesign as nd
        >>> nd.PrivacyTarget(epsilon=1.0, delta=1e-6, clip=0.5).step_sensitivity
        1.0
    """

    epsilon: float
    delta: float = DEFAULT_DELTA
    clip: float = 1.0
    steps: int | None = None
    adjacency: str = DEFAULT_ADJACENCY
    conversion: str = GDP

    def __post_init__(self) -> None:
        _checks.scale(self.epsilon, field="privacy.epsilon")
        _checks.real(self.delta, field="privacy.delta", low=0, high=1)
        _checks.scale(self.clip, field="privacy.clip")
        if self.steps is not None:
            _checks.positive_int(self.steps, field="privacy.steps")
        _checks.one_of(self.adjacency, field="privacy.adjacency", allowed=ADJACENCIES)
        check_conversion(self.conversion, epsilon=self.epsilon, delta=self.delta, of="privacy.")

    @property
    def step_sensitivity(self) -> float:
        """Largest Euclidean change of a step, not squared, 2 clip under "replace", else clip."""
        return CHANGE_OVER_CLIP[self.adjacency] * self.clip
