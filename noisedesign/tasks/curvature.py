"""A range of curvatures of a linear model's loss, for errors that mean a loss.

The Hessian of a mean of losses l(<a, theta>) is the mean of l'' a a^T, and l'' is 1 for least
squares and at most 1/4 for logistic losses. So its eigenvalues are at most l'' B^2 for features of
norm B, and about those of l'' A^T A / N (at the start, for logistic losses)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from noisedesign.base import checks as _checks
from noisedesign.base.checks import Array, InputError
from noisedesign.base.shown import Shown
from noisedesign.noise.keys import Secret
from noisedesign.noise.normals import Normals
from noisedesign.noise.plan import Claim
from noisedesign.privacy.accounting import mu_of
from noisedesign.privacy.target import PrivacyTarget

STEEPNESS = {"least-squares": 1.0, "logistic": 0.25}  # the largest l''
SENSITIVITY = {"replace": np.sqrt(2), "zero-out": 1.0, "add-remove": 1.0}
"""Distance that one record of norm 1 moves the entries of a a^T on and above the diagonal: a vector
of norm 1 at most, and the inner product of two is ((a b)^2 + sum_i a_i^2 b_i^2) / 2 >= 0."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Curvature(Shown):
    """A range of eigenvalues of the Hessian, to be given to :class:`noisedesign.ErrorMeasure`.

    Attributes:
        low: with half of the eigenvalues below it; a thousandth of ``high`` where that is not
            known, as of bounds alone or where noise hides it.
        high: above the largest eigenvalue: certainly of bounds, of public data up to what their
            sample misses, of a private estimate but for about one in 1e4 draws of its noise.
        origin: "feature bound", "public data" or "private estimate".
        noise: standard deviation of the noise in an entry of the Hessian; None for none.
        claim: of a private estimate, for :meth:`noisedesign.privacy.Ledger.add`; else None.
        fingerprints: of the secret that its noise was drawn from.

    Examples:
        >>> import noisedesign as nd
        >>> nd.curvature_range(loss="least-squares", feature_bound=1.0).values.tolist()
        [0.001, 1.0]
    """

    low: float
    high: float
    origin: str
    noise: float | None = None
    claim: Claim | None = None
    fingerprints: tuple[str, ...] = ()

    @property
    def values(self) -> Array:
        """(low, high), as ``curvature`` takes them."""
        return np.array([self.low, self.high])


LEAST_SHARE = 1e-3  # low over high where nothing is known of small eigenvalues; smaller: slower


def curvature_range(
    features: Any = None,
    *,
    loss: str,
    feature_bound: float | None = None,
    public: bool = False,
    privacy: PrivacyTarget | None = None,
    secret: Secret | None = None,
) -> Curvature:
    """A range of curvatures from bounds, from public data, or by a private estimate.

    A private estimate adds Gaussian noise to the entries of A^T A on and above the diagonal, for
    features clipped to ``feature_bound`` (Dwork, Talwar, Thakurta and Zhang 2014, Algorithm 1). It
    spends a budget of its own: book it by :meth:`noisedesign.privacy.Ledger.add`.

    Args:
        features: A, shape (N, d), one row a record, with a column of ones for an intercept. N is
            taken as known.
        loss: "least-squares", (<a, theta> - b)^2 / 2, or "logistic".
        feature_bound: B, the largest norm (not squared) of a row.
        public: whether ``features`` are public; those that are not need a ``privacy`` target.
        privacy: epsilon, delta and adjacency of a private estimate; its clip is not used.
        secret: of the noise, for one estimate only: the difference of two with the same noise tells
            that of their data. Default: a new one.

    Returns:
        The range, and the claim of its privacy if it has one.

    Raises:
        InputError: naming the field: features that are neither public nor protected, nothing to
            find a range from, a private estimate without a bound.

    Examples:
        >>> import noisedesign as nd
        >>> nd.curvature_range(loss="logistic", feature_bound=2.0).high
        1.0
    """
    steepness = STEEPNESS[_checks.one_of(loss, field="loss", allowed=tuple(STEEPNESS))]
    bound = None if feature_bound is None else _checks.scale(feature_bound, field="feature_bound")
    public = _checks.flag(public, field="public")
    if features is None:
        if bound is None:
            expected = "a bound on the norm of features, or features"
            raise InputError("feature_bound", expected=expected, got="nothing")
        high = steepness * bound**2
        return Curvature(low=LEAST_SHARE * high, high=high, origin="feature bound")
    rows = _checks.matrix(features, field="features")
    if public == (privacy is not None):
        expected = "either public data (public=True) or a privacy target"
        got = "both" if public else "neither"
        remedy = "What is found in private data is private, too: it needs an epsilon of its own."
        raise InputError("features", expected=expected, got=got, remedy=remedy)
    if privacy is None:
        values = np.linalg.eigvalsh(rows.T @ rows / len(rows))
        return _range_of(np.asarray(steepness * values), origin="public data")
    _checks.instance(privacy, PrivacyTarget, field="privacy", expected="PrivacyTarget(...)")
    if bound is None:
        expected = "the norm that features are clipped to, for a private estimate"
        raise InputError("feature_bound", expected=expected, got="nothing")
    return _private(rows / bound, steepness * bound**2, privacy, secret or Secret.new())


def _private(rows: Array, unit: float, privacy: PrivacyTarget, secret: Secret) -> Curvature:
    """The estimate for rows that are clipped to norm 1, in units of the largest curvature."""
    count, size = rows.shape
    rows = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1.0)
    mu = mu_of(epsilon=privacy.epsilon, delta=privacy.delta, conversion=privacy.conversion)
    # A thousand roundings of unit rows and their products are far below a billionth.
    stddev = SENSITIVITY[privacy.adjacency] / mu * (1 + 1e-9)
    drawn = np.empty(size * (size + 1) // 2)
    Normals(secret.step_key("curvature", 0, digest="0" * 64)).fill(drawn)
    noise = np.zeros((size, size))
    noise[np.triu_indices(size)] = stddev * drawn
    noise += np.triu(noise, 1).T
    scale = unit / count
    values = np.asarray(scale * np.linalg.eigvalsh(rows.T @ rows + noise))
    # ||noise|| is at most 2 sqrt(d) + t deviations, but for exp(-t^2 / 4) (Bandeira, van Handel).
    spread = scale * stddev * (2 * np.sqrt(size) + 6)
    found = _range_of(values, origin="private estimate")
    high = min(unit, found.high + spread)
    claim = Claim(
        noise_stddev=stddev,
        mu=mu,
        epsilon=privacy.epsilon,
        delta=privacy.delta,
        adjacency=privacy.adjacency,
        clip=1.0,
    )
    return Curvature(
        low=found.low if found.low > spread else LEAST_SHARE * high,
        high=high,
        origin=found.origin,
        noise=float(scale * stddev),
        claim=claim,
        fingerprints=(secret.fingerprint,),
    )


def _range_of(values: Array, *, origin: str) -> Curvature:
    high = max(float(values[-1]), 0.0)
    if high == 0.0 and origin == "public data":
        raise InputError("features", expected="features that are not all zero", got="zeros")
    return Curvature(
        low=max(float(np.median(values)), LEAST_SHARE * high), high=high, origin=origin
    )
