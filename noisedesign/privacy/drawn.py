"""Epsilon of the victims of one observer where the steps of a record are drawn, in secret: the
least by the observer's own rows, a reader of all messages who knows the same, and known steps."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from noisedesign.base.checks import Array, InputError
from noisedesign.privacy import views as threats
from noisedesign.privacy.runs import LEMMA
from noisedesign.privacy.views.causal import CausalRows, bins_gram, causal_rows
from noisedesign.system.participation import Participation

if TYPE_CHECKING:  # accounts of random participation load slowly
    from noisedesign.privacy.amplification import Amplified

OF_ALL_MESSAGES = "all-messages-upper-bound"  # what a reader of all messages learns
MIXED_SIGNS = "mixed-signs-upper-bound"  # products of columns are taken by absolute value
UNAMPLIFIED = "unamplified"  # that of known steps, where nothing less is proved
ALIKE = 1e-11  # relative difference of entries that is rounding; all are rounded up by it


@dataclass(frozen=True, kw_only=True)
class Asked:
    """The arguments of :func:`noisedesign.account` for every victim."""

    participation: Participation
    delta: float
    noise_multiplier: float
    adjacency: str


def require_nonnegative(algorithm: threats.Algorithm) -> None:
    """Refuse a strategy whose absolute values alone bound what records in drawn steps lose."""
    strategy = getattr(algorithm.noise, "strategy", None)
    if strategy is None or _nonnegative(strategy):
        return
    t, s = (int(k) for k in np.unravel_index(strategy.argmin(), strategy.shape))
    expected = f"entries >= 0 under random participation: {LEMMA}"
    got = f"{strategy[t, s]:.3g} in row {t}, column {s}"
    remedy = "Design it with structure.nonnegative = true, or account for fixed participation."
    raise InputError("strategy", expected=expected, got=got, remedy=remedy)


def amplified_victims(
    algorithm: threats.Algorithm,
    observer: threats.Observer,
    asked: Asked,
    known: Mapping[int, float],
    progress: Callable[[int], None],
    *,
    worst: bool = False,
) -> dict[int, Amplified]:
    """Accounts by victim of ``known``; with ``worst`` of those who may have the largest epsilon."""
    views = _views(algorithm, observer, list(known), asked.participation)
    accounts = _accounts(asked)
    found: dict[int, Amplified] = {}
    order = sorted(views, key=lambda victim: not all(view.even for view in views[victim]))
    if worst:
        order.sort(key=lambda victim: -known[victim])
    most = 0.0
    for done, victim in enumerate(order, start=1):
        if not worst or known[victim] > most:
            told = accounts.least(views[victim], enough=most)
            found[victim] = _at_most(told, known[victim])
            most = max(most, found[victim].epsilon) if worst else 0.0
        progress(done)
    return found


class _View(NamedTuple):
    """A bound by the Gram of a mixture, or by nonnegative rows; ``upper`` names it where loose."""

    array: Array
    upper: str
    binned: bool

    @property
    def even(self) -> bool:
        from noisedesign.privacy.amplification import Mixture

        return self.binned and Mixture(gram=self.array).even


class _Accounts:
    """Accounts of views, each asked for once."""

    def __init__(self, asked: Asked) -> None:
        self.asked = asked
        self.known: list[tuple[_View, bool, Amplified]] = []

    def least(self, views: Sequence[_View], *, enough: float) -> Amplified:
        """The least that is proved by one of them, which is settled before sampling, or what is
        below ``enough`` without samples."""
        *others, last = views
        if last.binned and (others or enough):
            last = min(views, key=lambda view: self.of(view, sampled=False).epsilon)
            sure = self.of(last, sampled=False)
            return sure if sure.epsilon <= enough else self.of(last)
        # A bound by absolute values of rows is far more than that of all messages as a rule.
        for view in others:
            if not view.upper:
                with contextlib.suppress(InputError):
                    return self.of(view)
        return self.of(last)

    def of(self, view: _View, *, sampled: bool = True) -> Amplified:
        for before, how, told in self.known:
            named = (before.upper, before.array.shape, how) == (
                view.upper,
                view.array.shape,
                sampled,
            )
            if named and np.abs(before.array - view.array).max() <= ALIKE * before.array.max():
                return told
        told = self._new(view, sampled=sampled)
        self.known.append((view, sampled, told))
        return told

    def _new(self, view: _View, *, sampled: bool) -> Amplified:
        from noisedesign.privacy.amplification import Mixture, amplified, amplified_epsilon

        asked, array = self.asked, view.array * (1 + ALIKE)
        how: dict[str, Any] = {
            "delta": asked.delta,
            "noise_multiplier": asked.noise_multiplier,
            "adjacency": asked.adjacency,
        }
        if view.binned:
            mixture = Mixture(gram=array, upper=view.upper)
            return amplified_epsilon(mixture, method="auto" if sampled else "proved", **how)
        told = amplified(asked.participation, array, **how)
        return replace(told, which=f"{told.which} of {view.upper}" if view.upper else told.which)


@lru_cache(maxsize=4)
def _accounts(asked: Asked) -> _Accounts:
    """One for all observers of a table, who see much that is alike."""
    return _Accounts(asked)


def _views(
    algorithm: threats.Algorithm,
    observer: threats.Observer,
    victims: list[int],
    participation: Participation,
) -> dict[int, list[_View]]:
    """The views that bound each account: the victim's rows and, where need be, all messages."""
    mechanism = threats.view(algorithm, observer)
    instead = OF_ALL_MESSAGES if mechanism.complete and observer.sees != "all" else ""
    make = _binned if participation.binned else _in_rows
    views: dict[int, list[_View]] = {
        victim: [make(seen, participation, instead)]
        for victim, seen in causal_rows(mechanism, victims)
    }
    if not mechanism.complete:
        whole = threats.view(algorithm, replace(observer, sees="all"))
        hidden = [not steps.any() for steps in whole.full_view.unprotected]
        loose = [
            victim
            for victim in victims
            if hidden[victim] and (views[victim][0].upper or not views[victim][0].binned)
        ]
        for victim, seen in causal_rows(whole, loose):
            views[victim].append(make(seen, participation, OF_ALL_MESSAGES))
    return views


def _binned(seen: CausalRows, participation: Participation, upper: str) -> _View:
    gram, exact = bins_gram(seen, participation.bins)
    loose = "" if exact else MIXED_SIGNS
    return _View(gram, upper or loose, binned=True)


def _in_rows(seen: CausalRows, participation: Participation, upper: str) -> _View:
    rows = seen.rows if isinstance(seen.rows, np.ndarray) else seen.rows.toarray()
    turned = rows * np.where(rows.sum(axis=1) < 0, -1.0, 1.0)[:, None]
    loose = "" if _nonnegative(turned) else MIXED_SIGNS
    return _View(np.abs(rows), upper or loose, binned=False)


def _nonnegative(rows: Array) -> bool:
    """Whether no entry is negative, but for rounding."""
    return bool(rows.min(initial=0.0) >= -1e-12 * np.abs(rows).max(initial=0.0))


def _at_most(told: Amplified, known: float) -> Amplified:
    """The smaller of what is proved and of what holds where the steps of a record are known."""
    if told.epsilon < known:
        return told
    return replace(told, epsilon=known, which=UNAMPLIFIED, confidence=None)
