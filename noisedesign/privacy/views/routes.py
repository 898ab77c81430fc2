"""The squared sensitivity Gram of every victim, by the cheapest exact route."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from noisedesign.privacy.views import innovations, observed
from noisedesign.privacy.views.gram import VictimGram
from noisedesign.privacy.views.mechanism import LinearMechanism


def grams(mechanism: LinearMechanism, victims: Sequence[int]) -> Iterator[tuple[int, VictimGram]]:
    """A_u^T (B B^T)^+ A_u of some victims u, one after the other, in their order.

    In closed form for readers of all messages; by the innovations recursion where the noise is
    white in time, or C is Toeplitz and commutes with the mixing; else by factoring the covariance
    of the observations.
    """
    if mechanism.complete:
        return _closed_form(mechanism, victims)
    if innovations.applies(mechanism):
        return innovations.grams(mechanism, victims)
    return observed.grams(mechanism, victims)


def _closed_form(
    mechanism: LinearMechanism, victims: Sequence[int]
) -> Iterator[tuple[int, VictimGram]]:
    full = mechanism.full_view
    for victim in victims:
        gram = full.grams[full.which[victim]] * float(full.scale[victim])
        yield victim, VictimGram(gram, full.exposed[victim])
