"""Epsilon of the victims of one observer where the steps of a record are drawn, in secret: the
least by the observer's own rows, a reader of all messages who knows the same, and known steps.

Rows are V = L^-1 A_u with L L^T = B B^T: the columns of one victim, whitened in the order of time,
by which an adaptive run is compared step by step with one that is not, and the Gram matrix of the
means of their mixture over patterns (docs/accounts.md, "Steps drawn at random")."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

from noisedesign.base.checks import Array, InputError
from noisedesign.privacy import views as threats
from noisedesign.privacy.runs import LEMMA
from noisedesign.privacy.views import gram as routes
from noisedesign.privacy.views.mechanism import LinearMechanism
from noisedesign.privacy.views.noise import Gram, whitening
from noisedesign.system.participation import Participation

if TYPE_CHECKING:  # accounts of random participation load slowly
    from noisedesign.privacy.amplification import Amplified


class CausalRows(NamedTuple):
    """V of one victim, shape (M, T), and the number of rows up to each step, shape (T,)."""

    rows: Gram
    ends: NDArray[np.intp]


def causal_rows(
    mechanism: LinearMechanism, victims: Sequence[int]
) -> Iterator[tuple[int, CausalRows]]:
    """V of some victims in their order, without what no noise hides."""
    if not mechanism.complete:
        white = routes.white_in_time(mechanism)
        return (_by_innovations if white else _by_covariance)(mechanism, victims)
    full, ends = mechanism.full_view, np.arange(1, mechanism.horizon + 1)
    if (rows := full.rows) is not None:
        roots = np.sqrt(full.scale)
        return ((v, CausalRows(rows[full.which[v]] * float(roots[v]), ends)) for v in victims)
    # Whoever has seen the messages before knows the models: what is new is gradients and noise.
    still = replace(
        mechanism,
        transition=np.zeros_like(mechanism.transition),
        state_noise=np.zeros_like(mechanism.state_noise),
        other_phases=(),
    )
    return _by_covariance(still, victims)


def _by_innovations(
    mechanism: LinearMechanism, victims: Sequence[int]
) -> Iterator[tuple[int, CausalRows]]:
    """V' C, with V' of white noise: block t, step s is Lambda_t^(-1/2) H F_(t-1) ... F_s e_u."""
    horizon, c = mechanism.horizon, mechanism.strategy
    observed = routes.observed_nodes(mechanism)
    places = np.cumsum(observed) - 1
    steps = routes.filtered(routes.restricted(mechanism, observed)) if observed.any() else []
    ends = np.cumsum([len(step.output) for step in steps] or [0] * horizon)
    length = max(1, 2**25 // max(1, int(ends[-1]) * horizon))  # 256 MB of rows at a time
    for start in range(0, len(victims), length):
        chunk = list(victims[start : start + length])
        heard = [victim for victim in chunk if observed[victim]]
        found = iter(_responses(steps, ends, places[heard]))
        for victim in chunk:
            rows = next(found) if observed[victim] else np.zeros((int(ends[-1]), horizon))
            yield victim, CausalRows(rows if c is None else np.asarray(rows @ c), ends)


def _responses(
    steps: Sequence[routes.Filtered], ends: NDArray[np.intp], places: NDArray[np.intp]
) -> Array:
    """Rows of victims at some coordinates of the state, shape (victims, M, T)."""
    found = np.zeros((len(places), int(ends[-1]), len(steps)))
    for t, step in enumerate(steps):
        response, block = step.output, slice(int(ends[t]) - len(step.output), int(ends[t]))
        for s in range(t, -1, -1):
            found[:, block, s] = response[:, places].T
            if s:
                response = response @ steps[s - 1].closed
                if np.abs(response).max(initial=0.0) <= routes.FADED:
                    break
    return found


def _by_covariance(
    mechanism: LinearMechanism, victims: Sequence[int]
) -> Iterator[tuple[int, CausalRows]]:
    lower, signal_of = routes.factored(mechanism)
    if lower is None:
        yield from _step_by_step(mechanism, victims)
        return
    phases = mechanism.steps
    ends = np.cumsum([len(phases[t % len(phases)].output) for t in range(mechanism.horizon)])
    for victim in victims:
        rows = solve_triangular(lower, signal_of(victim), lower=True, check_finite=False)
        yield victim, CausalRows(np.asarray(rows), ends)


def _step_by_step(
    mechanism: LinearMechanism, victims: Sequence[int]
) -> Iterator[tuple[int, CausalRows]]:
    """Noise that is singular: each step is whitened given those before (Gram and Schmidt)."""
    phases, horizon = mechanism.steps, mechanism.horizon
    ends = np.cumsum([len(phases[t % len(phases)].output) for t in range(horizon)])
    noise, signal = mechanism.dense_noise(), [mechanism.dense_victim(u) for u in victims]
    seen = np.hstack(signal) if signal else np.zeros((len(noise), 0))
    basis, rows = np.zeros((0, noise.shape[1])), np.zeros((0, seen.shape[1]))
    kept = []
    for now, moved in zip(np.split(noise, ends[:-1]), np.split(seen, ends[:-1]), strict=True):
        for _ in range(2):  # once more cleans up what the first pass leaves by cancellation
            before = now @ basis.T
            now, moved = now - before @ basis, moved - before @ rows
        scaled = whitening(now, noise_scale=mechanism.noise_scale).scaled
        basis, rows = np.vstack([basis, scaled @ now]), np.vstack([rows, scaled @ moved])
        kept.append(len(scaled))
    for victim, own in zip(victims, np.split(rows, len(signal), axis=1), strict=True):
        yield victim, CausalRows(np.ascontiguousarray(own), np.cumsum(kept))


# --- mixtures over patterns -----------------------------------------------------------------------

ROUNDING = 1e-9  # excess over what is attained, over the largest entry; epsilon moves by half of it
MOST_SPECTRA = 128  # patterns whose remainders are asked for eigenvalues: seconds for 1000 steps


def bins_gram(seen: CausalRows, patterns: Sequence[Sequence[int]]) -> tuple[Array, bool]:
    """The Gram of the bins' means, (b, b), or the least bound at hand; and whether attained."""
    rows: Any = seen.rows  # dense or sparse
    chosen = np.zeros((rows.shape[1], len(patterns)))
    for place, steps in enumerate(patterns):
        chosen[list(steps), place] = 1.0
    means = np.asarray(rows @ chosen)
    attained = means.T @ means
    sums = np.asarray(abs(rows) @ chosen)
    bound = sums.T @ sums
    few = len(patterns) <= MOST_SPECTRA
    if few and isinstance(rows, np.ndarray) and not _close(bound, attained):
        bound = _by_steps(rows, seen.ends, chosen)
    return (bound + bound.T) / 2, _close(bound, attained)


def _close(bound: Array, attained: Array) -> bool:
    most = float(attained.diagonal().max(initial=0.0))
    return bool(np.abs(bound - attained).max(initial=0.0) <= ROUNDING * most)


def _by_steps(rows: Array, ends: NDArray[np.intp], chosen: Array) -> Array:
    """The sum of |N_t| over pairs of patterns, and the multiple of I that all remainders need."""
    patterns = chosen.shape[1]
    remainder, lacking = np.zeros((patterns, patterns)), 0.0
    for t in reversed(range(len(ends))):
        now = rows[ends[t - 1] if t else 0 : ends[t], : t + 1]
        products = now.T @ now
        remainder += chosen[: t + 1].T @ np.abs(products) @ chosen[: t + 1]
        # Where nothing is negative the step adds a positive semidefinite matrix.
        if products.min(initial=0.0) < -1e-12 * products.max(initial=0.0):
            lacking = max(lacking, -float(np.linalg.eigvalsh(remainder)[0]))
    return np.asarray(remainder + lacking * np.eye(patterns))


OF_ALL_MESSAGES = "all-messages-upper-bound"  # what a reader of all messages learns
MIXED_SIGNS = "mixed-signs-upper-bound"  # products of columns are taken by absolute value
UNAMPLIFIED = "unamplified"  # that of known steps, where no bound is less
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
            if not told.epsilon < known[victim]:  # which holds where its steps are known
                told = replace(told, epsilon=known[victim], which=UNAMPLIFIED, confidence=None)
            found[victim] = told
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
        """The least that one of them proves, or the first below ``enough`` without samples."""
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
            same = (before.upper, how) == (view.upper, sampled)
            alike = same and before.array.shape == view.array.shape
            if alike and np.abs(before.array - view.array).max() <= ALIKE * before.array.max():
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
    return _View(gram, upper or ("" if exact else MIXED_SIGNS), binned=True)


def _in_rows(seen: CausalRows, participation: Participation, upper: str) -> _View:
    rows = seen.rows if isinstance(seen.rows, np.ndarray) else seen.rows.toarray()
    turned = rows * np.where(rows.sum(axis=1) < 0, -1.0, 1.0)[:, None]
    loose = "" if _nonnegative(turned) else MIXED_SIGNS
    return _View(np.abs(rows), upper or loose, binned=False)


def _nonnegative(rows: Array) -> bool:
    """Whether no entry is negative, but for rounding."""
    return bool(rows.min(initial=0.0) >= -1e-12 * np.abs(rows).max(initial=0.0))
