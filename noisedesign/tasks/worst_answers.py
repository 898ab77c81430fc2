"""The worst gradients that answer to models, for an audit: those that a search finds."""

from __future__ import annotations

import math
from collections.abc import Sequence

from noisedesign.base.checks import Array, InputError
from noisedesign.privacy import views as threats
from noisedesign.privacy.responses import worst_linear
from noisedesign.privacy.runs import Responses
from noisedesign.tasks.simulation.answers import Answers


def adversarial(
    algorithm: threats.Algorithm,
    observer: threats.Observer,
    *,
    victim: int,
    pattern: Sequence[int],
    responses: Responses,
    records: int = 1,
    clip: float = math.inf,
) -> tuple[Answers, Array]:
    """The worst answers of a declared class that a search finds, and changes of the record.

    Args:
        algorithm, observer: as for :func:`noisedesign.account`.
        victim: whose record it is.
        pattern: the steps at which it takes part.
        responses: of a declared class, "convex" or "smooth".
        records, clip: see :class:`Answers`.

    Returns:
        The answers, and by what the gradient of the record differs at every step, shape (T,).

    Raises:
        InputError: a class that is not declared, a view that the search does not take.
    """
    if not responses.declared:
        expected = "a declared class of losses, convex or smooth"
        raise InputError("responses", expected=expected, got=str(responses))
    mechanism = threats.view(algorithm, observer)
    found = worst_linear(mechanism, observer.coalition, victim, pattern, responses)
    if found is None:
        expected = "an observer with an account of responses"
        raise InputError("observer", expected=expected, got="a view with too long a memory")
    return Answers(slope=found.factors - 1, records=records, clip=clip), found.changes
