"""Is the optimum attained? With a singular H, noise along a null direction may be free."""

from __future__ import annotations

import numpy as np

from noisedesign import repair
from noisedesign._checks import InputError
from noisedesign.backends import Answer, Stop
from noisedesign.formulations import Program


def doubtful(program: Program) -> bool:
    """Whether it takes an optimum to tell that it is attained: H is singular and nothing capped.

    Raises:
        InputError: floors besides, without caps.
    """
    if program.cap is not None or program.null_space.shape[1] == 0:
        return False
    if program.raising:
        raise InputError(
            "limits.max_variance", expected="a cap beside limits.min_variance where W is singular",
            got="nothing",
            remedy="Raising the noise of one node may let that of others grow without bound: cap "
            "diag(R), generously if you like.",
        )  # fmt: skip
    return True


def refuse_divergent(program: Program, answer: Answer) -> None:
    """Refuse a program whose infimum is not attained because noise in a null direction is free.

    Args:
        answer: that of our own solver to ``program.normalized()``, to a gap of DEFAULT_GAP or less.
            From one that was stopped before nothing is known, and nothing refused.

    Raises:
        InputError: naming the null direction and the remedy.
    """
    if answer.stop in (Stop.TIME_LIMIT, Stop.INTERRUPTED):
        return
    assert answer.gram is not None
    direction = repair.unbounded_direction(program.normalized(), answer.gram, dual=answer.dual)
    if direction is None:
        return
    top = np.argsort(-np.abs(direction))[:6]
    terms = ", ".join(f"{i}: {direction[i]:+.3f}" for i in sorted(top))
    more = ", ..." if len(direction) > len(top) else ""
    if program.exact_factor is not None:
        raise InputError(
            "mixing", expected="a matrix W whose optimal noise is bounded",
            got=f"a singular W: noise along the null direction {{{terms}{more}}} is cancelled by "
            "mixing and grows without bound",
            remedy="Set limits.max_variance to cap diag(R), or use other weights.",
        )  # fmt: skip
    raise InputError(
        "workload", expected="a Gram matrix H whose optimal noise is bounded",
        got=f"a singular H: noise along the null direction {{{terms}{more}}} costs nothing and "
        "grows without bound",
        remedy="Add a small multiple of the identity to H, which puts a price on all noise.",
    )  # fmt: skip
