"""The answer of models to noise: H of one error, of one curvature, in space, in time and in both.

All H follow from the suffix Grams S_s = W_s^T (a_s Q_s + c_(s+1)^2 S_(s+1)) W_s, with c_t what the
curvature leaves of a model at step t (docs/methods/workloads.md)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from noisedesign.base import linalg as _linalg, settings
from noisedesign.base.checks import Array
from noisedesign.system.random_mixing import RandomMixing

_POWER_BLOCK_FLOATS = 4_000_000  # working set for powers of a non-symmetric W: 32 MB


@dataclass(frozen=True, eq=False)
class DrawnStates:
    """Models and velocities y' = diag(W, I) K_t y of a W that is drawn, by its distribution and the
    K of the steps of a period, (P, 2n, 2n)."""

    drawn: RandomMixing
    states: Array

    @property
    def mean(self) -> Array:
        """The expected states, shape (P, 2n, 2n)."""
        mixed, n = np.array(self.states), len(self.drawn.mean)
        mixed[:, :n] = self.drawn.mean @ mixed[:, :n]
        return mixed

    def expected(self, gram: Array, *, step: int) -> Array:
        """E[K^T diag(W, I)^T G diag(W, I) K] of a step, shape (2n, 2n)."""
        seen, n = np.array(gram), len(self.drawn.mean)
        seen[:n, :n] = self.drawn.expected(_linalg.symmetrized(gram[:n, :n]))
        seen[:n, n:] = self.drawn.mean.T @ gram[:n, n:]
        seen[n:, :n] = seen[:n, n:].T
        state = self.states[step % len(self.states)]
        return np.asarray(state.T @ seen @ state)


@dataclass(frozen=True, kw_only=True, eq=False)
class Response:
    """x_(t+1) = W_t (c_t x_t + u_t), u = F z, and the error sum_t a_t x_(t+1)^T Q_t x_(t+1)."""

    mixing: Any  # (n, n), those of a schedule (P, n, n), a RandomMixing or DrawnStates
    steps: Array  # a, (T,)
    readouts: Array  # Q, (1, n, n) where it is the same at every step, else (T, n, n)
    factor_of_steps: Array  # F, (T, T), lower triangular
    decay: Array  # c, (T,)
    plain: bool  # whether every iterate of every node counts alike, and c = 1, F = I

    @property
    def nodes(self) -> int:
        """n."""
        return int(self.readouts.shape[-1])

    @property
    def horizon(self) -> int:
        """T."""
        return len(self.steps)

    def time_gram(self, r: Array | None) -> Array:
        """H = F^T H' F of noise that is correlated across steps, the same at every node, (T, T)."""
        # H'_ss' = sum_t a_t tr( R (W^(t-s+1))^T Q_t W^(t-s'+1) ), O(T n^2 + T^2 n) for a fixed
        # symmetric W, O(T n^3 + T^2 n^2) for another, P times the first term for a schedule.
        if self.plain and self._fixed:
            inner = self._powers_by_eigenvalues(r) if self.symmetric else self._power_products(r)
            return _linalg.symmetrized(sums_along_diagonals(inner)[::-1, ::-1])
        covariance = np.eye(self.nodes) if r is None else r
        if self.symmetric and len(self.readouts) == 1:
            coupled = self._coupled_by_eigenvalues(covariance)
        else:
            coupled = self._coupled_by_suffixes(covariance)
        gram = np.empty_like(coupled)
        for lag in range(self.horizon):
            late = np.arange(lag, self.horizon)
            gram[late, late - lag] = gram[late - lag, late] = coupled[lag, late]
        gram *= self._kept
        factor = self.factor_of_steps
        return _linalg.symmetrized(factor.T @ gram @ factor)

    def _powers_by_eigenvalues(self, covariance: Array | None) -> Array:
        """G_ab for symmetric W; with R = I it depends on a + b, through power sums: O(T^2 + nT)."""
        if covariance is not None:
            values, vectors = self.spectrum
            seen = np.einsum("ij,ik,kj->j", vectors, covariance, vectors, optimize=True)
            exponents = values ** np.arange(1.0, self.horizon + 1)[:, None]
            return np.asarray((exponents * seen) @ exponents.T)
        values = _linalg.eigenvalues(self.mixing)
        sums, power = np.empty(2 * self.horizon + 1), np.ones_like(values)
        for q in range(len(sums)):
            sums[q] = power.sum()
            power = power * values
        exponents = np.arange(1, self.horizon + 1)
        return np.asarray(sums[np.add.outer(exponents, exponents)])

    def _power_products(self, covariance: Array | None) -> Array:
        """G_ab for any W, a few columns of the powers at a time."""
        n, horizon = self.nodes, self.horizon
        width = max(1, min(n, _POWER_BLOCK_FLOATS // (n * horizon)))
        inner = np.zeros((horizon, horizon))
        for start in range(0, n, width):
            columns = np.eye(n)[:, start : start + width]
            right = self._powers(columns).reshape(horizon, -1)
            left = right
            if covariance is not None:
                left = self._powers(covariance[:, start : start + width]).reshape(horizon, -1)
            inner += left @ right.T
        return inner

    def _coupled_by_suffixes(self, covariance: Array) -> Array:
        """c_ls = tr( R (W_{s-1} ... W_{s-l})^T S_s ), by which H' couples step s to step s - l."""
        horizon, size, means = self.horizon, covariance.size, self._means
        suffixes = np.empty((horizon, size))
        for step, suffix in self._suffix_grams():
            suffixes[step] = suffix.ravel()
        coupled, powers = np.zeros((horizon, horizon)), np.empty((horizon, size))
        for phase in range(min(len(means), horizon)):
            power = covariance
            for lag in range(horizon - phase):
                powers[lag] = power.ravel()
                power = means[(phase + lag) % len(means)] @ power
            if len(means) == 1:
                return np.asarray(powers @ suffixes.T)
            for lag in range(horizon - phase):
                steps = np.arange(phase + lag, horizon, len(means))
                coupled[lag, steps] = suffixes[steps] @ powers[lag]
        return coupled

    def _coupled_by_eigenvalues(self, covariance: Array) -> Array:
        """The same for symmetric W = V diag(lambda) V^T, where S_s has a recursion by entries."""
        values, vectors = self.spectrum
        readout = self.readouts[0]
        terms = (vectors.T @ readout @ vectors) * (vectors.T @ covariance @ vectors)
        squares = np.multiply.outer(values, values)
        sums = np.empty((self.horizon, self.nodes))
        suffix = np.zeros_like(terms)
        for step in range(self.horizon - 1, -1, -1):
            suffix = squares * (self.steps[step] * terms + self._passed(step) * suffix)
            sums[step] = suffix.sum(axis=1)
        powers = np.vander(values, self.horizon, increasing=True)
        return np.asarray((sums @ powers).T)

    def space_gram(self, given: Array | None) -> Array:
        """H of noise that is correlated across nodes, of covariance K over steps, shape (n, n)."""
        # H = sum_ss' (F K F^T)_ss' sum_t a_t (W^(t-s+1))^T Q_t W^(t-s'+1), O(T n^3); T^2 n^2 more
        # time where F K F^T is not diagonal. All iterates of a step: W^T W (Whisper D-SGD, (10)).
        horizon = self.horizon
        if given is not None and self.plain and self._fixed:
            return self._weighted_powers(sums_along_diagonals(given)[::-1, ::-1])
        factor = self.factor_of_steps
        inputs = factor @ factor.T if given is None else factor @ given @ factor.T
        inputs = inputs * self._kept
        rows, columns = np.nonzero(inputs)
        reach = int(np.abs(rows - columns).max(initial=0))
        means, phases = self._means, min(len(self._means), horizon)
        # By the phase of the earlier of two steps: what follows it is then the same.
        by_lag = np.zeros((phases, reach + 1, self.nodes, self.nodes))
        for step, suffix in self._suffix_grams():
            before = np.arange(step, max(step - reach, 0) - 1, -1)
            lags = np.arange(len(before))
            by_lag[before % phases, lags] += inputs[before, step, None, None] * suffix
        found = np.zeros_like(by_lag[0, 0])
        for phase, of_lag in enumerate(by_lag):
            later = np.zeros_like(found)
            for lag in range(reach, 0, -1):
                later = means[(phase + lag - 1) % len(means)].T @ (of_lag[lag] + later)
            found += of_lag[0] + later + later.T
        return _linalg.symmetrized(found)

    def _weighted_powers(self, weights: Array) -> Array:
        """sum_ab K_ab (W^a)^T W^b for K = ``weights``, shape (T, T)."""
        if self.symmetric:
            values, vectors = self.spectrum
            exponents = values ** np.arange(1.0, self.horizon + 1)[:, None]
            sums = (exponents * (weights @ exponents)).sum(axis=0)
            return _linalg.symmetrized((vectors * sums) @ vectors.T)
        powers = self._powers(np.eye(self.nodes))
        weighted = np.tensordot(weights, powers, axes=1)
        return _linalg.symmetrized(np.tensordot(powers, weighted, axes=((0, 1), (0, 1))))

    def gram(self) -> Array:
        """H of noise that is correlated across nodes and steps, shape (nT, nT), in O(T^2 n^3)."""
        horizon, n, means = self.horizon, self.nodes, self._means
        blocks = np.empty((horizon, n, horizon, n))
        for step, suffix in self._suffix_grams():
            # A step is coupled to later ones through the step that follows it.
            back = means[step % len(means)].T
            later = blocks[step + 1, :, step + 1 :] if step + 1 < horizon else blocks[:0]
            blocks[step, :, step] = suffix
            if later.size:
                coupled = self.decay[step + 1] * np.tensordot(back, later, axes=1)
                blocks[step, :, step + 1 :] = coupled
                blocks[step + 1 :, :, step] = coupled.transpose(1, 2, 0)
        factor = self.factor_of_steps
        if np.array_equal(factor, np.eye(horizon)):
            return blocks.reshape(horizon * n, horizon * n)
        mixed = np.einsum("sp,suvw,vq->puqw", factor, blocks, factor, optimize=True)
        return _linalg.symmetrized(mixed.reshape(horizon * n, horizon * n))

    def factor(self) -> Array | None:
        """A, shape (nT, nT), with A^T A = :meth:`gram`, for the plain error: blocks W_t ... W_s."""
        if not self.plain:
            return None
        size = self.nodes * self.horizon
        return np.concatenate([answer.copy() for answer in self._answers()]).reshape(size, size)

    def every_row(self) -> Array:
        """L, (r, nT), with L^T L = :meth:`gram`, of every step that counts, W being fixed."""
        found = [np.zeros((0, self.horizon * self.nodes))]
        for step, answer in enumerate(self._answers()):
            readout = self.steps[step] * self.readouts[step % len(self.readouts)]
            if readout.any():
                found.append(_linalg.gram_factor(readout) @ answer)
        rows = np.concatenate(found)
        stacked = rows.reshape(len(rows), self.horizon, self.nodes)
        mixed = np.einsum("rsn,sp->rpn", stacked, self.factor_of_steps)
        return np.asarray(mixed.reshape(rows.shape))

    def _answers(self) -> Iterator[Array]:
        """The answer of the models of every step to u, shape (n, nT)."""
        n, horizon, means = self.nodes, self.horizon, self._means
        entered = np.zeros((n, horizon * n))
        for step in range(horizon):
            entered *= self.decay[step]
            entered[:, step * n : (step + 1) * n] = np.eye(n)
            entered = means[step % len(means)] @ entered
            yield entered

    def rows(self) -> Array | None:
        """L, (r, nT), L^T L = :meth:`gram`; None where r > nT / 2 or W is drawn."""
        counted = np.flatnonzero(self.steps)
        if self.plain or self._drawn or not len(counted):
            return None
        horizon, n, means = self.horizon, self.nodes, self._means
        found: list[Array] = []
        for last in counted:
            readout = self.readouts[last % len(self.readouts)]
            passed = _linalg.gram_factor(self.steps[last] * readout)
            if len(passed) * len(counted) > n * horizon / 2:
                return None
            part = np.zeros((len(passed), horizon, n))
            for step in range(last, -1, -1):
                passed = passed @ means[step % len(means)]
                part[:, step] = passed
                passed = self.decay[step] * passed
            found.append(part)
        rows = np.einsum("rsn,sp->rpn", np.concatenate(found), self.factor_of_steps)
        return np.asarray(rows.reshape(len(rows), -1))

    def mixing_gradient(self, root: Array) -> Array:
        """d error / d W_t for noise S g, g white, at S = ``root`` of shape (T, n, k): (T, n, n)."""
        entered = np.tensordot(self.factor_of_steps, root, axes=1)
        before, after = np.empty_like(entered), np.empty_like(entered)
        state = np.zeros_like(entered[0])
        for step in range(self.horizon):
            before[step] = self.decay[step] * state + entered[step]
            state = after[step] = self._means[step % len(self._means)] @ before[step]
        found, later = np.empty((self.horizon, self.nodes, self.nodes)), np.zeros_like(state)
        for step in range(self.horizon - 1, -1, -1):
            readout = self.readouts[step % len(self.readouts)]
            later = later + 2 * self.steps[step] * (readout @ after[step])
            found[step] = later @ before[step].T
            later = self.decay[step] * (self._means[step % len(self._means)].T @ later)
        return found

    @property
    def _drawn(self) -> bool:
        return isinstance(self.mixing, (RandomMixing, DrawnStates))

    @property
    def _fixed(self) -> bool:
        return not self._drawn and self.mixing.ndim == 2

    @property
    def _means(self) -> Array:
        """E[W_t] of every step of a period, shape (P, n, n)."""
        mean = self.mixing.mean if self._drawn else self.mixing
        return np.asarray(mean).reshape(-1, *np.shape(mean)[-2:])

    @cached_property
    def symmetric(self) -> bool:
        if not self._fixed:
            return False
        asymmetry = np.abs(self.mixing - self.mixing.T).max()
        return bool(asymmetry <= settings.SYMMETRY_TOLERANCE * np.abs(self.mixing).max())

    @cached_property
    def spectrum(self) -> tuple[Array, Array]:
        """Eigenvalues and eigenvectors of a symmetric W."""
        values, vectors = np.linalg.eigh(_linalg.symmetrized(self.mixing))
        # What rounding leaves of a zero eigenvalue would be a direction with a price.
        values[np.abs(values) <= settings.rank_tolerance(self.nodes) * np.abs(values).max()] = 0.0
        return values, vectors

    def _powers(self, start: Array) -> Array:
        """W F, W^2 F, ..., W^T F, shape (T, *F.shape), for F = start."""
        powers = np.empty((self.horizon, *start.shape))
        for a in range(self.horizon):
            start = self.mixing @ start
            powers[a] = start
        return powers

    def _suffix_grams(self) -> Iterator[tuple[int, Array]]:
        """Zero-based steps and S_s, the last step first."""
        mixing, means = self.mixing, self._means
        suffix = np.zeros_like(self.readouts[0])
        for step in range(self.horizon - 1, -1, -1):
            readout = self.readouts[step % len(self.readouts)]
            entering = self.steps[step] * readout + self._passed(step) * suffix
            if isinstance(mixing, RandomMixing):
                suffix = _linalg.symmetrized(mixing.expected(entering))
            elif isinstance(mixing, DrawnStates):
                suffix = _linalg.symmetrized(mixing.expected(entering, step=step))
            else:
                now = means[step % len(means)]
                suffix = _linalg.symmetrized(now.T @ entering @ now)
            yield step, suffix

    def _passed(self, step: int) -> float:
        """The share, squared, of what leaves a step that enters the next."""
        return float(self.decay[step + 1] ** 2) if step + 1 < self.horizon else 0.0

    @cached_property
    def _kept(self) -> Array:
        """Shares that curvature leaves at t of what entered at s <= t, and mirrored, (T, T)."""
        kept = np.eye(self.horizon)
        for step in range(1, self.horizon):
            kept[step, :step] = self.decay[step] * kept[step - 1, :step]
        return kept + np.tril(kept, -1).T


def sums_along_diagonals(matrix: Array) -> Array:
    """P_ab + P_(a-1)(b-1) + ... of a square P."""
    result = np.array(matrix)
    for a in range(1, len(result)):
        result[a, 1:] += result[a - 1, :-1]
    return result
