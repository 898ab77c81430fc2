"""Participation: at which steps one record may take part, by the patterns that a scheme names.

A new scheme is a subclass of :class:`Participation` and a line of :data:`SCHEMES`."""

from __future__ import annotations

from collections.abc import Callable

from noisedesign.base import memory
from noisedesign.noise.rules import Rule
from noisedesign.system.participation.sampled import (
    BallsInBins as BallsInBins,
    BMinSepSampling as BMinSepSampling,
    CyclicPoisson as CyclicPoisson,
    RandomAllocation as RandomAllocation,
    TruncatedPoisson as TruncatedPoisson,
)
from noisedesign.system.participation.scheme import (
    Cover as Cover,
    FixedEpoch as FixedEpoch,
    MinSeparation as MinSeparation,
    Participation as Participation,
    Patterns as Patterns,
    Steps as Steps,
    every_step as every_step,
    require_fixed_epoch as require_fixed_epoch,
    single as single,
)

SCHEMES: dict[str, type[Participation]] = {  # every scheme by its ``kind``
    scheme.kind: scheme
    for scheme in (
        FixedEpoch,
        MinSeparation,
        BallsInBins,
        RandomAllocation,
        CyclicPoisson,
        TruncatedPoisson,
        BMinSepSampling,
        Patterns,
    )
}


def participation_of(rule: Rule, horizon: int) -> Participation:
    if rule.random is not None:
        said = vars(rule.random) | {"horizon": horizon, "separation": rule.min_sep}
        said |= dict.fromkeys(("epochs", "participations"), rule.most)
        scheme = SCHEMES[rule.random.kind]
        keys = [key for key in scheme.keys() if said.get(key) is not None]  # noqa: SIM118
        return scheme.of({key: said[key] for key in keys})
    if rule.patterns is not None:
        return Patterns(horizon=horizon, steps=rule.patterns)
    if rule.residue is not None:
        return FixedEpoch(epochs=rule.most, separation=rule.residue)
    return MinSeparation(horizon=horizon, separation=rule.min_sep, max_participations=rule.most)


SHORTHANDS: dict[str, Callable[[int], FixedEpoch]] = {"single": single, "every-step": every_step}
"""Schemes of tables that give a ``horizon`` alone."""


def require_room(
    participation: Participation, *, bytes_of: Callable[[int], int] = memory.squares
) -> None:
    """Refuse a scheme whose T steps need more memory than there is, ``bytes_of(T)``."""
    keys, _ = participation.told_horizon
    longest = keys
    if isinstance(participation, FixedEpoch):
        longest = "epochs" if participation.epochs >= participation.separation else "separation"
    memory.require(
        bytes_of,
        participation.horizon,
        field=f"participation.{longest}",
        of="steps" if keys == "horizon" else f"steps, {keys}",
        remedy="Ask for fewer steps, or see noisedesign.families.toeplitz for long runs.",
    )
