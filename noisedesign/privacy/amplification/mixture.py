"""What a record of random participation looks like: one of b means, which one is secret.

A record falls into one of b bins, each equally likely; m_j is the mean of the observer's whitened
view under bin j. By rotation everything is in the Gram matrix of the means, b x b.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from noisedesign.base import checks as _checks, settings
from noisedesign.base.checks import Array, InputError
from noisedesign.system.participation import Participation

LEMMA = (
    'the domination lemma of Choquette-Choo et al. (2024), "Near exact privacy amplification for '
    'matrix mechanisms" (arXiv 2410.06266), which is for nonnegative strategies'
)


@dataclass(frozen=True, kw_only=True, eq=False)
class Mixture:
    """The Gram matrix of the b bins a record may fall into, all equally likely.

    It stands for the pair P = (1/b) sum_j N(m_j, I) against Q = N(0, I), which dominates what an
    observer learns of one record, with or without it.

    Args:
        gram: G_ij = <m_i, m_j> for a unit change of every step's gradient and unit noise, squared
            units, shape (b, b); nonnegative and positive semidefinite.
        upper: name of the bound where G is larger than that of the observer's own pair, else "".

    Raises:
        InputError: ``gram`` is not a finite float64 positive semidefinite matrix with entries >= 0.

    Examples:
        >>> import numpy as np
        >>> from noisedesign.privacy.amplification import Mixture
        >>> mixture = Mixture(gram=4 * np.eye(3))
        >>> mixture.bins, mixture.even, mixture.sensitivity_squared
        (3, True, 4.0)
        >>> mixture.scaled(2.0).sensitivity_squared  # twice the noise
        1.0
    """

    gram: Array
    upper: str = ""

    def __post_init__(self) -> None:
        gram = _checks.semidefinite_matrix(self.gram, field="gram")
        if gram.min() < 0:
            i, j = (int(k) for k in np.unravel_index(gram.argmin(), gram.shape))
            raise InputError(
                "gram",
                expected=f"entries >= 0, as in {LEMMA}",
                got=f"{gram[i, j]:.3g} at {(i, j)}",
                remedy="Give the Gram matrix of the absolute values of the rows: it is a bound.",
            )
        _checks.text(self.upper, field="upper")
        symmetric = np.maximum(gram, gram.T)
        symmetric.flags.writeable = False
        object.__setattr__(self, "gram", symmetric)

    @property
    def bins(self) -> int:
        """b, how many bins."""
        return len(self.gram)

    @property
    def sensitivity_squared(self) -> float:
        """Largest squared norm of a mean: the squared sensitivity without randomness."""
        return float(np.diagonal(self.gram).max())

    @property
    def common(self) -> float:
        """Largest inner product of two bins, squared units; 0 where it is rounding."""
        if self.bins == 1:
            return 0.0
        largest = float((self.gram - np.diag(np.diagonal(self.gram))).max())
        return largest if largest > 64 * settings.EPS * self.sensitivity_squared else 0.0

    @property
    def even(self) -> bool:
        """Whether G is a multiple of the identity: bins orthogonal and alike, to rounding."""
        least = float(np.diagonal(self.gram).min())
        return self.common == 0 and least >= (1 - 1e-9) * self.sensitivity_squared

    @property
    def known(self) -> Mixture:
        """The largest bin alone, as if it were known that a record falls into it: an upper bound
        that takes no samples."""
        return Mixture(gram=np.array([[self.sensitivity_squared]]), upper=self.upper)

    def scaled(self, factor: float) -> Mixture:
        """The same bins under more noise.

        Args:
            factor: on the standard deviation of the noise, not squared.

        Returns:
            A mixture whose Gram matrix is divided by factor^2.

        Raises:
            InputError: ``factor`` outside [1e-100, 1e100].
        """
        factor = _checks.scale(factor, field="noise_multiplier")
        return Mixture(gram=self.gram / factor / factor, upper=self.upper)


def bins_of(rows: Any, participation: Participation, *, upper: str = "") -> Mixture:
    """The mixture of a nonnegative strategy, or of whitened rows, under random participation.

    The mean of a bin is the sum of its columns. All gradients equal and of norm 1 are then the
    worst case, also where they are chosen adaptively (docs/mathematics.md, T2).

    Args:
        rows: C for unit noise, or the rows of an observer's whitened view, one column a step,
            shape (m, T), entries >= 0.
        participation: a random scheme with few patterns, such as balls in bins.
        upper: see :class:`Mixture`.

    Returns:
        The mixture; its Gram matrix is rounded up.

    Raises:
        InputError: negative entries, for which the lemma gives only a bound, by absolute values;
            another number of columns than steps; a participation that is not drawn at random.

    Examples:
        >>> import numpy as np
        >>> import noisedesign as nd
        >>> from noisedesign.privacy.amplification import bins_of
        >>> strategy = np.eye(4) + np.diag([0.5] * 3, -1)
        >>> print(bins_of(strategy, nd.BallsInBins(epochs=2, separation=2)).gram.round(9))
        [[2.5  1.5 ]
         [1.5  2.25]]
    """
    array = _checks.matrix(rows, field="strategy")
    if array.shape[1] != participation.horizon:
        raise InputError(
            "strategy",
            expected=f"{participation.horizon} columns, one a step of the participation",
            got=f"shape {array.shape}",
        )
    largest = float(np.abs(array).max())
    if array.min() < -settings.STOCHASTIC_TOLERANCE * largest:
        i, j = (int(k) for k in np.unravel_index(array.argmin(), array.shape))
        raise InputError(
            "strategy",
            expected=f"entries >= 0: {LEMMA}",
            got=f"{array[i, j]:.3g} at {(i, j)}",
            remedy="Design with nonnegative = true, or account for fixed participation.",
        )
    array = np.abs(array)  # of what is negative by rounding: a bound (T2)
    means = np.stack([array[:, list(pattern)].sum(axis=1) for pattern in participation.bins])
    gram = means @ means.T
    gram *= 1 + 4 * settings.EPS * (math.sqrt(array.shape[0]) + array.shape[0])
    return Mixture(gram=np.maximum(gram, gram.T), upper=upper)
