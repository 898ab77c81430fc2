"""Growth of the sensitivity of gossip averaging (Koskela and Kulkarni, section 4).

Messages m^t = W m^(t-1) + g^t + N^t. A set A of m nodes is observed, with all its messages; H_T is
the stacked system, and Delta_T(j -> A)^2 = max over signs c of ||H_T^+ H_T (c x e_j)||^2.

The functions state what the theorems claim. Tests show where the claims fail:

- Theorem 13 and 15 bound the transient part of the signal by a constant (Lemmas G.2 and H.1). It
  grows with T unless the gradients are constant in time: gradients that change sign at every step
  are seen by the node itself against little more than its own noise. With W = J / 10 and one node
  observed, its own Delta_8^2 is 7.76, where Theorem 15 claims 4.59.
- With several observed nodes (H.4) takes J x 1 1^T / n for J x I / n. Where A holds a node and all
  its neighbours, that node's Delta_T^2 is T, not m T / n.

What holds: m T / n is the mean over all victims j of the trace of their Gram matrices, and 1 / n
the slope for one observed node and gradients that are constant in time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from noisedesign.base import checks as _checks
from noisedesign.base import settings
from noisedesign.base.checks import InputError
from noisedesign.base.linalg import eigenvalues
from noisedesign.tasks.papers.bounds import _arguments

STATEMENTS = ("proof", "printed")

Statement = Literal["proof", "printed"]


def second_eigenvalue(*, mixing: Any) -> float:
    """rho = max(|lambda_2|, |lambda_n|) of a symmetric W, in [0, 1]; the spectral gap is 1 - rho.

    Raises:
        InputError: W is not symmetric and row stochastic.
    """
    w = _arguments.symmetric_mixing(mixing, source="the definition of rho")
    return float(np.abs(eigenvalues(w - 1 / len(w))).max())


def theorem_13_slope(*, mixing: Any) -> float:
    """Claimed limit of Delta_T(j -> i)^2 / T, squared, per step: 1 / n.

    Right for gradients that are constant in time, not for the maximum over signs: on a ring of 30
    with weights 1/3 a neighbour's signs ++--++-- reach 0.072, twice 1 / n.

    Raises:
        InputError: W is not symmetric, doubly stochastic and primitive.
    """
    return 1 / len(_arguments.primitive_mixing(mixing, source="Theorem 13"))


def theorem_15_squared_sensitivity(
    *, mixing: Any, observers: Sequence[int], horizon: int, statement: Statement = "proof"
) -> float:
    """Claimed bound on Delta_T(j -> A)^2, squared, for every j, in or outside A.

    - ``proof``: (m/n) T + 2 / (1 - rho)^2 sqrt(m T / n) + 2 / (1 - rho)^4, which is also equation
      (5.4) with m = 1. Not an upper bound, see the module.
    - ``printed``: T ((m/n) T + 2 / (1 - rho)^2 sqrt(m/n) T + 2 / (1 - rho)^4), for print has
      Delta^2 / T on the left. True and empty: it exceeds 2 T, and Delta^2 never exceeds T.

    Even the constants of the first form do not follow from the proof, where the factors pi^2 / 6
    and m of Lemma H.1 and the gradient of the current step would enter.

    Raises:
        InputError: W is not symmetric, doubly stochastic and primitive; bad observers or horizon.
    """
    w = _arguments.primitive_mixing(mixing, source="Theorem 15")
    share = len(_arguments.coalition(observers, field="observers", nodes=len(w))) / len(w)
    steps = _checks.positive_int(horizon, field="horizon")
    _checks.one_of(statement, field="statement", allowed=STATEMENTS)
    gap = 1 - second_eigenvalue(mixing=w)
    if statement == "printed":
        cross = 2 / gap**2 * share**0.5 * steps
        return float(steps * (share * steps + cross + 2 / gap**4))
    return float(share * steps + 2 / gap**2 * (share * steps) ** 0.5 + 2 / gap**4)


def theorem_16_slope(*, mixing: Any, observers: Sequence[int], victim: int) -> float:
    """Claimed bound on limsup Delta_T(j -> A)^2 / T, squared, per step: m / (n - m).

    For observers who know their own noise, and a victim j outside A. Not an upper bound: where A
    holds all neighbours of j and theirs, Delta_T^2 = T - 1. For one observer it is the slope for
    gradients that are constant in time.

    Raises:
        InputError: W is not symmetric, doubly stochastic and primitive; bad observers; j in A.
    """
    w = _arguments.primitive_mixing(mixing, source="Theorem 16")
    members = _arguments.coalition(observers, field="observers", nodes=len(w))
    j = _arguments.node(victim, field="victim", nodes=len(w))
    if j in members:
        raise InputError(
            "victim", expected="a node that is no observer, as Theorem 16 assumes", got=str(j)
        )
    return len(members) / (len(w) - len(members))


def spectral_upper_bound(*, gram: Any) -> float:
    """T lambda_max(M), squared: an upper bound for every sign vector (section 3.4), and rounding.

    Also one for vector gradients of norm at most 1 that take part in every step.

    Args:
        gram: M, shape (T, T), squared sensitivity Gram matrix of a victim.

    Raises:
        InputError: M is not symmetric.
    """
    m = _checks.symmetric_matrix(gram, field="gram", tolerance=settings.GRAM_NEGATIVITY)
    values = eigenvalues(m)
    rounding = settings.rank_tolerance(len(m)) * float(np.abs(values).max())
    return len(m) * (float(values[-1]) + rounding)
