"""The error of models under a mixing, as Gram matrices H in space, in time and in both.

Noise has one coordinate a step and node, in time-major order; tr(H Sigma) is the expected squared
error, a sum of the :mod:`.response` to every term of the error. A new kind of temporal workload is
a line of :data:`WORKLOADS`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, NamedTuple

import numpy as np

from noisedesign.base import checks as _checks, linalg as _linalg, settings
from noisedesign.base.checks import Array, InputError
from noisedesign.system.random_mixing import RandomMixing
from noisedesign.system.workloads.error import AnyError, ErrorMeasure, ErrorMixture, Term
from noisedesign.system.workloads.response import DrawnStates, Response

CACHED = 30_000_000  # floats of all modes, 240 MB, up to which their workloads are formed once


@dataclass(frozen=True, kw_only=True, eq=False)
class Modes:
    """H = sum_j factor(j)^T factor(j) x q_j q_j^T."""

    basis: Array  # orthonormal q_j as columns, (n, n)
    factor: Callable[[int], Array]  # (r, T) of j, r <= T; (T, T) of the plain error


class _Part(NamedTuple):
    """A weight and a response, whose state is the models, or models and velocities."""

    weight: float
    response: Response
    velocities: slice | None = None  # of the state; noise enters them
    shares: Array | None = None  # of W, in the new models: times models and velocities, (T, 2)

    @property
    def entering(self) -> slice:
        return slice(None) if self.velocities is None else self.velocities


@dataclass(frozen=True, kw_only=True, eq=False)
class Workload:
    """The error under ``mixing``: every H is in squared error per squared noise."""

    mixing: Any  # (n, n), those of a schedule (P, n, n), or a RandomMixing
    error: AnyError
    ridge: float = 0.0  # squared error that noise adds to wherever it enters, besides

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
        error: AnyError | None = None,
        random: RandomMixing | None = None,
    ) -> Workload:
        """The workload of a measure, by default of all iterates, and of W, fixed or drawn."""
        if error is not None:
            expected = "ErrorMeasure(horizon=..., of=...) or None"
            kinds = (ErrorMeasure, ErrorMixture)
            _checks.instance(error, kinds, field="error", expected=expected)
        if random is not None:
            expected = "a value of noisedesign.system.random_mixing or None"
            _checks.instance(random, RandomMixing, field="random", expected=expected)
        return cls(
            mixing=mixing if random is None else random,
            error=error or ErrorMeasure(horizon=horizon),
        )

    @property
    def nodes(self) -> int:
        mixing = self.mixing
        return int((mixing.mean if isinstance(mixing, RandomMixing) else mixing).shape[-1])

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
        (response,) = (part.response for part in self._parts[:1])
        traces = [np.trace(readout) for readout in response.readouts]
        before = response.steps @ np.broadcast_to(traces, self.horizon)
        if np.trace(self.time_gram()) <= self.nodes * settings.EPS * before:
            expected = "an error that some noise adds to"
            got = "the consensus error of a W that averages exactly, which is zero"
            remedy = "Take all iterates, or the mean model."
            raise InputError("error", expected=expected, got=got, remedy=remedy)

    def time_gram(self, node_covariance: Any = None) -> Array:
        """H of noise that is correlated across steps, the same at every node, of the covariance R
        of nodes, by default I; shape (T, T)."""
        n, given = self.nodes, None
        if node_covariance is not None:
            given = _covariance(node_covariance, field="node_covariance", size=n, each="node")

        def of(part: _Part) -> Array:
            if part.velocities is None:
                return part.response.time_gram(given)
            covariance = np.zeros((2 * n, 2 * n))
            covariance[n:, n:] = np.eye(n) if given is None else given
            return part.response.time_gram(covariance)

        ridge = self.ridge * (n if given is None else float(np.trace(given)))
        return self._sum(of, ridge)

    def space_gram(self, time_covariance: Any = None) -> Array:
        """H of noise that is correlated across nodes, of the covariance K of steps, by default I;
        shape (n, n). A step of all iterates is W^T W (Whisper D-SGD, problem (10))."""
        given, size = None, self.horizon
        if time_covariance is not None:
            given = _covariance(time_covariance, field="time_covariance", size=size, each="step")
        ridge = self.ridge * (size if given is None else float(np.trace(given)))
        return self._sum(
            lambda part: part.response.space_gram(given)[part.entering, part.entering], ridge
        )

    def gram(self) -> Array:
        """H of noise that is correlated across nodes and steps, shape (nT, nT), in O(T^2 n^3)."""
        horizon, size = self.horizon, self.horizon * self.nodes

        def of(part: _Part) -> Array:
            found = part.response.gram()
            if part.velocities is None:
                return found
            blocks = found.reshape(horizon, len(found) // horizon, horizon, -1)
            return blocks[:, part.velocities, :, part.velocities].reshape(size, size)

        return self._sum(of, self.ridge)

    def mixing_gradient(self, root: Array) -> Array:
        """d error / dW, (n, n), for a fixed W and noise S g, g white, S = ``root``, (T, n, k)."""
        found, n = np.zeros((self.nodes, self.nodes)), self.nodes
        for weight, response, _, shares in self._parts:
            if shares is None:
                found += weight * response.mixing_gradient(root).sum(axis=0)
                continue
            slopes = response.mixing_gradient(np.concatenate([np.zeros_like(root), root], axis=1))
            models = slopes[:, :n].reshape(-1, n, 2, n)
            found += weight * np.einsum("tb,tibj->ij", shares, models)
        return found

    def factor(self) -> Array | None:
        """A, shape (nT, nT), with A^T A = :meth:`gram`, for the plain error: blocks W_t ... W_s."""
        return self._parts[0].response.factor() if self._plain else None

    def rows(self) -> Array | None:
        """L, shape (r, nT), with L^T L = :meth:`gram` up to rounding and r at most nT / 2, a root
        of Q_t times W_t ... W_s for every step that counts; None where there are more rows, or W is
        drawn."""
        size, found = self.horizon * self.nodes, []
        if self.ridge:
            return None
        for weight, response, velocities, _ in self._parts:
            rows = response.rows()
            if rows is None:
                return None
            if velocities is not None:
                rows = rows.reshape(len(rows), self.horizon, -1)[:, :, velocities]
            found.append(np.sqrt(weight) * rows.reshape(-1, size))
        stacked = np.concatenate(found)
        return None if 2 * len(stacked) > size else stacked

    def _sum(self, of: Callable[[_Part], Array], ridge: float) -> Array:
        parts = self._parts
        if len(parts) == 1 and parts[0].weight == 1:
            found = of(parts[0])
        else:
            found = np.asarray(sum(part.weight * of(part) for part in parts))
        return found + ridge * np.eye(len(found)) if ridge else found

    @cached_property
    def _parts(self) -> list[_Part]:
        return [self._part(term, self.mixing, self._readouts(term)) for term in self.error.terms]

    def _readouts(self, term: Term) -> Array:
        """Q of the steps, shape (1, n, n) where it is always the same, else (T, n, n)."""
        error = term.measure
        steps = range(1 if error.time_invariant else self.horizon)
        return np.stack([error.readout(nodes=self.nodes, step=step) for step in steps])

    def _part(self, term: Term, mixing: Any, readouts: Array) -> _Part:
        error, (count, n) = term.measure, readouts.shape[:2]
        factor, rates = error.step_factor, error.rates
        kept = 1 - term.curvature * rates
        if not (term.curvature and error.momentum):
            return _Part(
                term.weight,
                Response(
                    mixing=mixing,
                    steps=error.steps,
                    readouts=readouts,
                    factor_of_steps=factor,
                    decay=kept,
                    plain=self._plain,
                ),
            )
        # Models x and velocities m answer to x' = W ((1 - eta lambda) x - eta beta (m + z / beta))
        # and m' = lambda x + beta (m + z / beta): a response of 2 n nodes to z / beta.
        beta, one, drawn = error.momentum, np.eye(n), isinstance(mixing, RandomMixing)
        means = np.asarray(one if drawn else mixing).reshape(-1, n, n)
        period = len(means) if np.ptp(rates) == 0 else self.horizon
        states = np.empty((period, 2 * n, 2 * n))
        for step, state in enumerate(states):
            w, rate = means[step % len(means)], rates[step]
            state[:n, :n], state[:n, n:] = kept[step] * w, -rate * beta * w
            state[n:, :n], state[n:, n:] = term.curvature * one, beta * one
        wide = np.zeros((count, 2 * n, 2 * n))
        wide[:, :n, :n] = readouts
        response = Response(
            mixing=DrawnStates(mixing, states) if drawn else states[0] if period == 1 else states,
            steps=error.steps,
            readouts=wide,
            factor_of_steps=np.eye(self.horizon),
            decay=np.ones(self.horizon),
            plain=False,
        )
        shares = np.stack([kept, -rates * beta], axis=1)
        return _Part(term.weight / beta**2, response, slice(n, None), shares)

    @cached_property
    def symmetric(self) -> bool:
        """Whether W is the same at every step, and symmetric."""
        return self._fixed and self._still.symmetric

    @cached_property
    def _still(self) -> Response:
        """The answer to the first term's error of models that feel no curvature."""
        term = self.error.terms[0]
        return self._part(term._replace(curvature=0.0), self.mixing, self._readouts(term)).response

    @cached_property
    def modes(self) -> Modes | None:
        """The workloads that H splits into, W symmetric and its eigenvectors those of every Q; of
        entries lambda_j^(t-s+1) for the plain error."""
        if not self.symmetric:
            return None
        if self.error.plain:
            return self._split(*self._still.spectrum)
        n = self.nodes
        # With the mean apart from all other eigenvalues rounding does not turn it.
        apart = np.full((n, n), 3 / n)
        values, vectors = np.linalg.eigh(_linalg.symmetrized(self.mixing) + apart)
        return self._split(values - 3 * np.square(vectors.sum(axis=0)) / n, vectors)

    def modes_along(self, basis: Array) -> Modes | None:
        """:attr:`modes` along other eigenvectors of W, the columns of a basis, shape (n, n); None
        where they are none. Of an eigenvalue that is several times there every processor has its
        own."""
        if not self.symmetric or (own := self.modes) is None or own.basis is basis:
            return self.modes
        seen = _linalg.symmetrized(self.mixing) @ basis
        values = np.einsum("ij,ij->j", basis, seen)
        off = max(
            np.abs(seen - basis * values).max(), np.abs(basis.T @ basis - np.eye(self.nodes)).max()
        )
        return self._split(values, basis) if off <= self._tolerance else None

    @property
    def _tolerance(self) -> float:
        """Relative size of what is rounding beside eigenvectors of W."""
        return settings.rank_tolerance(8 * self.nodes)

    def _split(self, values: Array, vectors: Array) -> Modes | None:
        """The modes of eigenvalues and eigenvectors of W; None where some Q has others."""
        values = np.array(values)
        values[np.abs(values) <= settings.rank_tolerance(self.nodes) * np.abs(values).max()] = 0.0
        if self.error.plain:
            return Modes(basis=vectors, factor=lambda j: self._powers_of(values[j]))
        terms, seen = self.error.terms, []
        for term in terms:
            turned = vectors.T @ self._readouts(term) @ vectors
            along, largest = np.diagonal(turned, axis1=1, axis2=2), np.abs(turned).max()
            apart = turned - along[:, :, None] * np.eye(self.nodes)
            if np.abs(apart).max() > self._tolerance * largest:
                return None
            seen.append(np.where(along > self._tolerance * largest, along, 0.0))

        def factor(j: int) -> Array:
            rows = [np.sqrt(self.ridge) * np.eye(self.horizon)] if self.ridge else []
            for term, along in zip(terms, seen, strict=True):
                part = self._part(term, values[j, None, None], along[:, j, None, None])
                found = part.response.every_row().reshape(-1, self.horizon, part.response.nodes)
                rows.append(np.sqrt(part.weight) * found[:, :, part.entering].sum(axis=2))
            stacked = np.concatenate(rows)
            few = len(stacked) <= self.horizon
            return stacked if few else np.asarray(np.linalg.qr(stacked, mode="r"))

        few = self.nodes * self.horizon**2 <= CACHED
        return Modes(basis=vectors, factor=cache(factor) if few else factor)

    def _powers_of(self, value: float) -> Array:
        """The factor of the plain error along an eigenvector of W."""
        steps = np.arange(self.horizon)
        lag = np.maximum(steps[:, None] - steps, -1)
        rows = np.append(value ** (steps + 1.0), 0.0)[lag]
        if not self.ridge:
            return np.asarray(rows)
        ridge = np.sqrt(self.ridge) * np.eye(self.horizon)
        return np.asarray(np.linalg.qr(np.vstack([rows, ridge]), mode="r"))

    @property
    def _plain(self) -> bool:
        fixed = not isinstance(self.mixing, RandomMixing)
        return self.error.plain and fixed and not self.ridge

    @property
    def _fixed(self) -> bool:
        return not isinstance(self.mixing, RandomMixing) and self.mixing.ndim == 2


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
        error: AnyError | None = None,
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
    mixing: Any, *, horizon: int, error: AnyError | None = None, random: RandomMixing | None = None
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
