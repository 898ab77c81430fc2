"""The error of models under a mixing, as Gram matrices H in space, in time and in both.

Noise has one coordinate a step and node, in time-major order; tr(H Sigma) is the expected squared
error. All H follow from the suffix Grams S_s = W_s^T (a_s Q_s + S_{s+1}) W_s (docs/mathematics.md,
"Workloads in closed form"). A new kind of temporal workload is a line of :data:`WORKLOADS`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from noisedesign.base import checks as _checks, linalg as _linalg, settings
from noisedesign.base.checks import Array, InputError
from noisedesign.system.random_mixing import RandomMixing
from noisedesign.system.workloads.error import ErrorMeasure

_POWER_BLOCK_FLOATS = 4_000_000  # working set for powers of a non-symmetric W: 32 MB


@dataclass(frozen=True, kw_only=True, eq=False)
class Modes:
    """H = sum_j factor(j)^T factor(j) x q_j q_j^T."""

    basis: Array  # orthonormal q_j as columns, (n, n)
    factor: Callable[[int], Array]  # (T, T), of j


@dataclass(frozen=True, kw_only=True, eq=False)
class Workload:
    """The error under ``mixing``: every H is in squared error per squared noise."""

    mixing: Any  # (n, n), those of a schedule (P, n, n), or a RandomMixing
    error: ErrorMeasure

    def __post_init__(self) -> None:
        if isinstance(self.mixing, RandomMixing):
            return
        checked = _checks.square_matrices(self.mixing, field="mixing")
        if (peak := float(np.abs(checked).max())) > _checks.LARGEST:
            expected = f"weights up to {_checks.LARGEST:g}"
            raise InputError("mixing", expected=expected, got=f"{peak:.3g}")
        object.__setattr__(self, "mixing", checked[0] if len(checked) == 1 else checked)

    @classmethod
    def of(
        cls,
        mixing: Any,
        *,
        horizon: int,
        error: ErrorMeasure | None = None,
        random: RandomMixing | None = None,
    ) -> Workload:
        """The workload of a measure, by default of all iterates, and of W, fixed or drawn."""
        if error is not None:
            expected = "ErrorMeasure(horizon=..., of=...) or None"
            _checks.instance(error, ErrorMeasure, field="error", expected=expected)
        if random is not None:
            expected = "a value of noisedesign.system.random_mixing or None"
            _checks.instance(random, RandomMixing, field="random", expected=expected)
        return cls(
            mixing=mixing if random is None else random,
            error=error or ErrorMeasure(horizon=horizon),
        )

    @property
    def nodes(self) -> int:
        return int(self._means.shape[1])

    @property
    def horizon(self) -> int:
        return self.error.horizon

    @property
    def one_mixing(self) -> Array | None:
        """W, shape (n, n), if it is the same at every step and the error is plain; else None."""
        return np.asarray(self.mixing) if self._plain and self._fixed else None

    @property
    def fixed_mixing(self) -> Array | None:
        """W, shape (n, n), where it is the same at every step, whatever the error."""
        return np.asarray(self.mixing) if self._fixed else None

    def require_noise_to_count(self) -> None:
        """Refuse H = 0 up to rounding: a W that averages exactly leaves no consensus error."""
        if self.error.of != "consensus":
            return
        before = self.error.steps @ [
            np.trace(self.error.readout(nodes=self.nodes, step=t)) for t in range(self.horizon)
        ]
        if np.trace(self.time_gram()) <= self.nodes * settings.EPS * before:
            expected = "an error that some noise adds to"
            got = "the consensus error of a W that averages exactly, which is zero"
            remedy = "Take all iterates, or the mean model."
            raise InputError("error", expected=expected, got=got, remedy=remedy)

    def time_gram(self, node_covariance: Any = None) -> Array:
        """H = F^T H' F of noise that is correlated across steps, the same at every node, (T, T)."""
        # H'_ss' = sum_t a_t tr( R (W^(t-s+1))^T Q_t W^(t-s'+1) ), O(T n^2 + T^2 n) for a fixed
        # symmetric W, O(T n^3 + T^2 n^2) for another, P times the first term for a schedule.
        n, r = self.nodes, None
        if node_covariance is not None:
            r = _covariance(node_covariance, field="node_covariance", size=n, each="node")
        if self._plain and self._fixed:
            inner = self._powers_by_eigenvalues(r) if self._symmetric else self._power_products(r)
            return _linalg.symmetrized(sums_along_diagonals(inner)[::-1, ::-1])
        covariance = np.eye(n) if r is None else r
        if self._symmetric and self.error.time_invariant:
            coupled = self._coupled_by_eigenvalues(covariance)
        else:
            coupled = self._coupled_by_suffixes(covariance)
        gram = np.empty_like(coupled)
        for lag in range(self.horizon):
            late = np.arange(lag, self.horizon)
            gram[late, late - lag] = gram[late - lag, late] = coupled[lag, late]
        factor = self.error.step_factor
        return _linalg.symmetrized(factor.T @ gram @ factor)

    def _powers_by_eigenvalues(self, covariance: Array | None) -> Array:
        """G_ab for symmetric W; with R = I it depends on a + b, through power sums: O(T^2 + nT)."""
        if covariance is not None:
            values, vectors = self._spectrum
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
        values, vectors = self._spectrum
        readout = self.error.readout(nodes=self.nodes)
        terms = (vectors.T @ readout @ vectors) * (vectors.T @ covariance @ vectors)
        squares = np.multiply.outer(values, values)
        sums = np.empty((self.horizon, self.nodes))
        suffix = np.zeros_like(terms)
        for step in range(self.horizon - 1, -1, -1):
            suffix = squares * (self.error.steps[step] * terms + suffix)
            sums[step] = suffix.sum(axis=1)
        powers = np.vander(values, self.horizon, increasing=True)
        return np.asarray((sums @ powers).T)

    def space_gram(self, time_covariance: Any = None) -> Array:
        """H of noise that is correlated across nodes, of covariance K over steps, shape (n, n)."""
        # H = sum_ss' (F K F^T)_ss' sum_t a_t (W^(t-s+1))^T Q_t W^(t-s'+1), O(T n^3); T^2 n^2 more
        # time where F K F^T is not diagonal. All iterates of a step: W^T W (Whisper D-SGD, (10)).
        horizon, given = self.horizon, None
        if time_covariance is not None:
            given = _covariance(time_covariance, field="time_covariance", size=horizon, each="step")
            if self._plain and self._fixed:
                return self._weighted_powers(sums_along_diagonals(given)[::-1, ::-1])
        factor = self.error.step_factor
        inputs = factor @ factor.T if given is None else factor @ given @ factor.T
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
        if self._symmetric:
            values, vectors = self._spectrum
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
                coupled = np.tensordot(back, later, axes=1)
                blocks[step, :, step + 1 :] = coupled
                blocks[step + 1 :, :, step] = coupled.transpose(1, 2, 0)
        factor = self.error.step_factor
        if np.array_equal(factor, np.eye(horizon)):
            return blocks.reshape(horizon * n, horizon * n)
        mixed = np.einsum("sp,suvw,vq->puqw", factor, blocks, factor, optimize=True)
        return _linalg.symmetrized(mixed.reshape(horizon * n, horizon * n))

    def factor(self) -> Array | None:
        """A, shape (nT, nT), with A^T A = :meth:`gram`, for the plain error: blocks W_t ... W_s."""
        if not self._plain:
            return None
        n, horizon, means = self.nodes, self.horizon, self._means
        result = np.zeros((horizon, n, horizon, n))
        entered = np.zeros((n, horizon, n))
        for step in range(horizon):
            entered[:, step] = np.eye(n)
            entered = np.tensordot(means[step % len(means)], entered, axes=1)
            result[step] = entered
        return result.reshape(n * horizon, n * horizon)

    def rows(self) -> Array | None:
        """L, (r, nT), L^T L = :meth:`gram`; None where r > nT / 2 or W is drawn."""
        counted = np.flatnonzero(self.error.steps)
        if self._plain or isinstance(self.mixing, RandomMixing) or not len(counted):
            return None
        horizon, n, means = self.horizon, self.nodes, self._means
        found: list[Array] = []
        for last in counted:
            readout = self.error.readout(nodes=n, step=int(last))
            passed = _linalg.gram_factor(self.error.steps[last] * readout)
            if len(passed) * len(counted) > n * horizon / 2:
                return None
            part = np.zeros((len(passed), horizon, n))
            for step in range(last, -1, -1):
                passed = passed @ means[step % len(means)]
                part[:, step] = passed
            found.append(part)
        rows = np.einsum("rsn,sp->rpn", np.concatenate(found), self.error.step_factor)
        return np.asarray(rows.reshape(len(rows), -1))

    @cached_property
    def modes(self) -> Modes | None:
        """Workloads of entries lambda_j^(t-s+1) that H splits into: plain error, symmetric W."""
        if not (self._plain and self._fixed and self._symmetric):
            return None
        values, vectors = self._spectrum
        steps = np.arange(self.horizon)
        lag = np.maximum(steps[:, None] - steps, -1)

        def factor(j: int) -> Array:
            powers = np.append(values[j] ** (steps + 1.0), 0.0)
            return np.asarray(powers[lag])

        return Modes(basis=vectors, factor=factor)

    @property
    def _plain(self) -> bool:
        return self.error.plain and not isinstance(self.mixing, RandomMixing)

    @property
    def _fixed(self) -> bool:
        return not isinstance(self.mixing, RandomMixing) and self.mixing.ndim == 2

    @property
    def _means(self) -> Array:
        """E[W_t] of every step of a period, shape (P, n, n)."""
        mixing = self.mixing
        mean = mixing.mean if isinstance(mixing, RandomMixing) else mixing
        return np.asarray(mean).reshape(-1, *np.shape(mean)[-2:])

    @cached_property
    def _symmetric(self) -> bool:
        if not self._fixed:
            return False
        asymmetry = np.abs(self.mixing - self.mixing.T).max()
        return bool(asymmetry <= settings.SYMMETRY_TOLERANCE * np.abs(self.mixing).max())

    @cached_property
    def _spectrum(self) -> tuple[Array, Array]:
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
        error, mixing = self.error, self.mixing
        means, weights = self._means, error.steps
        readout = error.readout(nodes=self.nodes)
        suffix = np.zeros_like(readout)
        for step in range(self.horizon - 1, -1, -1):
            if not error.time_invariant:
                readout = error.readout(nodes=self.nodes, step=step)
            entering = weights[step] * readout + suffix
            if isinstance(mixing, RandomMixing):
                suffix = _linalg.symmetrized(mixing.expected(entering))
            else:
                now = means[step % len(means)]
                suffix = _linalg.symmetrized(now.T @ entering @ now)
            yield step, suffix


def sums_along_diagonals(matrix: Array) -> Array:
    """P_ab + P_(a-1)(b-1) + ... of a square P."""
    result = np.array(matrix)
    for a in range(1, len(result)):
        result[a, 1:] += result[a - 1, :-1]
    return result


def _covariance(value: Any, *, field: str, size: int, each: str) -> Array:
    """A symmetric positive semidefinite matrix, one row per node or step."""
    matrix = _checks.semidefinite_matrix(value, field=field)
    if len(matrix) != size:
        expected = f"shape ({size}, {size}), one row per {each}"
        raise InputError(field, expected=expected, got=f"{matrix.shape}")
    return matrix


@dataclass(frozen=True, kw_only=True)
class WorkloadKind:
    """A kind of temporal workload, by how its H is formed."""

    form: Callable[..., Array] | None  # None where H itself is given, and stored
    definition: str  # H, in words
    of_graph: bool = False  # whether H is formed from W, an error and random mixing
    run: bool = False  # whether running models shows the error; else it is |L z|^2, H = L^T L

    def gram(
        self,
        *,
        horizon: int,
        mixing: Array | None = None,
        error: ErrorMeasure | None = None,
        random: RandomMixing | None = None,
    ) -> Array:
        assert self.form is not None
        if not self.of_graph:
            return self.form(horizon=horizon)
        return self.form(horizon=horizon, mixing=mixing, error=error, random=random)


def prefix_gram(*, horizon: int) -> Array:
    """Gram matrix of the prefix-sum workload: H_ss' = T + 1 - max(s, s'), steps counted from 1.

    A is lower triangular with ones (Mafalda-SGD, equation (2)).

    Args:
        horizon: T, the number of steps.

    Returns:
        H, shape (T, T), in squared error per squared noise.

    Raises:
        InputError: horizon < 1.

    Examples:
        >>> from noisedesign.system.workloads import prefix_gram
        >>> prefix_gram(horizon=3).tolist()
        [[3.0, 2.0, 1.0], [2.0, 2.0, 1.0], [1.0, 1.0, 1.0]]
    """
    steps = np.arange(_checks.positive_int(horizon, field="horizon"))
    return (horizon - np.maximum.outer(steps, steps)).astype(np.float64)


def decentralized_gram(
    mixing: Any,
    *,
    horizon: int,
    error: ErrorMeasure | None = None,
    random: RandomMixing | None = None,
) -> Array:
    """Gram matrix of all iterates of all nodes under gossip (Mafalda-SGD, Lemma 10, equation (10)).

    With theta_{t+1} = W (theta_t + z_t) and every node drawing z from the same temporal
    covariance, the summed squared error of all iterates is tr(H cov(z)) for::

        H_ss' = sum_{t >= max(s, s')} tr( (W^(t-s+1))^T W^(t-s'+1) ).

    Args:
        mixing: W, shape (n, n), symmetric or not, or those of a schedule, shape (P, n, n).
        horizon: T, the number of steps.
        error: which error counts, by default that of all iterates.
        random: the distribution that W is drawn from at every step, if it is.

    Returns:
        H, shape (T, T), symmetric positive semidefinite, in squared error per squared noise.

    Raises:
        InputError: W is not a finite square float64 matrix, or horizon < 1.

    Examples:
        >>> import numpy as np
        >>> from noisedesign.system.workloads import decentralized_gram
        >>> decentralized_gram(np.full((2, 2), 0.5), horizon=2).tolist()  # W^t = W
        [[2.0, 1.0], [1.0, 1.0]]
    """
    workload = Workload.of(mixing, horizon=horizon, error=error, random=random)
    workload.require_noise_to_count()
    return workload.time_gram()


WORKLOADS: dict[str, WorkloadKind] = {  # every kind by its name in files
    "decentralized": WorkloadKind(
        form=decentralized_gram, definition="closed form from W", of_graph=True, run=True
    ),
    "prefix": WorkloadKind(form=prefix_gram, definition="prefix sums", run=True),
    "gram": WorkloadKind(form=None, definition="no negative eigenvalue"),
}
