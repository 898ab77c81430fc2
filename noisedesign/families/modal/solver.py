"""Noise of modes: z_t = diag(d_t) M y_t, where mode m of y is noise of a strategy C_m of its own.

The precision of such noise is X = D^-1 (sum_m X_m x s_m s_m^T) D^-1 with X_m = C_m^T C_m and
S = M^-T. For multipliers V, a block V_uj for node u and pattern j, the Lagrangian is least at

    2 sum_m tr (G_m^1/2 U_m G_m^1/2)^1/2,

with G_m = sum_j (q_j^T M e_m)^2 H_j, U_m = sum_u S_um^2 V_u, and H = sum_j H_j x q_j q_j^T the
workload. Three steps, none of which needs an array of size nT x nT:

1. V = P x diag(v) is the witness of the bound on all designs, and M goes from the eigenvectors of
   the Kronecker design of that bound to where the Lagrangian is least: Newton's method with the
   curvature of every pair of modes by itself.
2. The correlations of every V_uj go to where the Lagrangian is largest, by L-BFGS, as each node's
   X has to be nearly diagonal on patterns. Prices stay. One participation needs no such step.
3. d takes up what every budget leaves, node by node and pattern by pattern; small multipliers are
   set anew where it would have to make up for much.

M and V are not optimised in turns, as that circles around the saddle; the answer is as good as its
distance to the bound says.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import scipy.optimize

from noisedesign.base import linalg as _linalg, settings
from noisedesign.base.checks import Array
from noisedesign.base.monitor import REACHED, Monitor
from noisedesign.families.kronecker.bound import Witness, mode_traces, on_patterns
from noisedesign.families.kronecker.solver import design_kronecker, proof_of, witness_of
from noisedesign.families.kronecker.turned import proved
from noisedesign.families.modal.bound import error
from noisedesign.privacy.sensitivity.elliptope import block_bounds
from noisedesign.program.family import Answer
from noisedesign.program.noise import ModalStrategy, Noise
from noisedesign.program.space_time import SpaceTimeProgram

SMALLEST_WEIGHT = 1e-6
"""A relative weight of a node below which M would be as good as singular."""
FLOOR = 1e-14
"""Least eigenvalue, relative to the largest, of what roots are taken of."""
MAX_STEPS = 20
"""Newton steps for M: five to fifteen are usual."""
LONGEST = 0.3
"""Largest entry of a Newton step for M, relative to M."""
GAIN = 1e-5
"""Relative gain below which the steps for M end."""
LEAST_LENGTH = 0.01
"""Of a step for M that is worth trying."""
REGULAR = 0.02
"""How far from singular the curvature of a pair of modes is taken to be."""
LEAST_CORRELATED = 1e-9
"""Relative eigenvalue of a block of V at which its search starts, off the boundary of the cone."""
SMALL = 0.01
"""Share of the largest multiplier of a node below which one is small."""
MAX_BALANCES = 8
"""Times that small multipliers are set anew."""
MAX_EVALUATIONS = 60
"""Of the Lagrangian, for the correlations."""
ASKED = 20
"""Evaluations between two moments at which a design is made, where its gap might be enough."""
MEMORY = 20
"""Pairs that L-BFGS remembers."""


def solve(program: SpaceTimeProgram, *, monitor: Monitor) -> Answer:
    """A design of modes, and the Kronecker design that it starts from.

    Raises:
        InputError: noise in a null direction of W is free, and nothing bounds it.
    """
    factors = design_kronecker(program, monitor=monitor)
    witness = witness_of(program, factors, monitor)
    proof = proof_of(program, witness, monitor)
    bound = proved(program, proof)
    monitor.report(lower=bound, upper=factors.objective)

    def noises() -> Iterator[Noise]:
        nodes, steps = len(program.budget), program.workload.horizon
        pair = ModalStrategy.of_pair(factors.strategy(program), factors.space)
        forms = [pair]
        if not monitor.expired:
            with contextlib.suppress(np.linalg.LinAlgError, KeyboardInterrupt):
                forms.insert(0, designed(program, witness, monitor=monitor, bound=bound))
        for form in forms:
            yield Noise(steps=steps, nodes=nodes, strategy=form, full=True)

    return Answer(stop=factors.stop, noises=noises(), proof=proof, evaluations=len(factors.history))


def designed(
    program: SpaceTimeProgram, witness: Witness, *, monitor: Monitor, bound: float = 0.0
) -> ModalStrategy:
    """The design of modes for multipliers P x diag(v), at the budgets.

    Args:
        bound: on any noise; a design as near to it as the monitor's gap asks for is the last.

    Raises:
        numpy.linalg.LinAlgError: an X_m is not positive definite to working precision.
    """
    weights = np.maximum(witness.weights, SMALLEST_WEIGHT * witness.weights.max())
    modes = _basis(program, witness, weights, monitor)
    saddle = _Saddle.of(program, modes)
    blocks = weights[:, None, None, None] * witness.blocks
    prices = float(program.budget @ blocks[:, :, 0, 0].sum(axis=1))
    goal, forms = (1 + REACHED * monitor.gap) * bound, list[tuple[float, ModalStrategy]]()

    def settle(found: Array) -> None:
        forms.append(_settled(program, saddle, found, monitor=monitor))
        monitor.report(lower=bound, upper=min(forms, key=_error)[0])

    def enough(found: Array, trace: float) -> bool:
        if trace**2 > prices * goal:
            return False  # no noise of these modes is as good
        settle(found)
        return forms[-1][0] <= goal

    starts = [blocks]
    try:
        if program.participation.epochs > 1:
            found = saddle.correlated(blocks, monitor=monitor, enough=enough)
            # On some graphs small multipliers are better left without these correlations.
            starts = [found, np.where(_small(blocks)[:, None, None, None], blocks, found)]
        for start in starts:
            if not forms or not (monitor.expired or min(forms, key=_error)[0] <= goal):
                settle(start)
    except KeyboardInterrupt:
        if not forms:
            raise
    return min(forms, key=_error)[1]


def _error(made: tuple[float, ModalStrategy]) -> float:
    return made[0]


def _settled(
    program: SpaceTimeProgram, saddle: _Saddle, blocks: Array, *, monitor: Monitor
) -> tuple[float, ModalStrategy]:
    """The best design of V as it stands and with small multipliers set anew, a few times; its error
    first.

    Raises:
        numpy.linalg.LinAlgError: an X_m is not positive definite to working precision.
    """
    best = saddle.design(program, blocks)
    least = error(program.workload, best)
    form = best
    for _ in range(MAX_BALANCES):
        if monitor.expired:
            break
        blocks = _balanced(blocks, form)
        form = saddle.design(program, blocks)
        found = error(program.workload, form)
        if found > least * (1 - GAIN):
            break
        best, least = form, found
    lifted = _lifted(blocks, best)
    return min((least, best), (error(program.workload, lifted), lifted), key=_error)


def _lifted(blocks: Array, form: ModalStrategy) -> ModalStrategy:
    """The same where nodes of small multipliers do not use up what they have room for."""
    prices = blocks[:, :, 0, 0]
    squares = np.square(form.scales)
    level = np.sqrt(np.sum(prices * squares[:, : prices.shape[1]]) / prices.sum())
    scales = np.where(_small(blocks)[:, None], np.maximum(form.scales, level), form.scales)
    return replace(form, scales=scales)


def _balanced(blocks: Array, form: ModalStrategy) -> Array:
    """V with more for nodes of small multipliers that have to make up for much, and less for those
    that have room: what such a node uses up falls with the root of its own multiplier.

    Its noise is large, and is cancelled by that of others: to scale it by itself is dear.
    """
    prices = blocks[:, :, 0, 0]
    used = np.square(form.scales[:, : prices.shape[1]])
    used /= np.sum(prices * used) / prices.sum()
    return np.asarray(blocks * np.where(_small(blocks)[:, None], used**2, 1.0)[:, :, None, None])


def _small(blocks: Array) -> Array:
    """Whether a node's multiplier is small, shape (n,)."""
    prices = blocks[:, :, 0, 0].sum(axis=1)
    return np.asarray(prices < SMALL * prices.max())


# --- the modes ------------------------------------------------------------------------------------


def _grams(program: SpaceTimeProgram) -> Array:
    """H_j of every mode of the workload, shape (n, T, T)."""
    modes = program.workload.modes
    assert modes is not None
    factors = (modes.factor(j) for j in range(len(modes.basis)))
    return np.array([factor.T @ factor for factor in factors])


def _mixed(weights: Array, arrays: Array) -> Array:
    """sum_j weights_ij arrays_j, for arrays of shape (n, ...)."""
    mixed = weights @ arrays.reshape(len(arrays), -1)
    return np.asarray(mixed.reshape(len(weights), *arrays.shape[1:]))


@dataclass(frozen=True, kw_only=True, eq=False)
class _Modes:
    """The Lagrangian of P x diag(v) over M, and what its Newton step is made of.

    Attributes:
        value: sum_m sqrt(u_m) t_m, with u_m = sum_u v_u S_um^2 and t_m = tr K_mm^1/2, where
            K_mn = sum_j (q_j^T M e_m) (q_j^T M e_n) P^1/2 H_j P^1/2.
        gradient: along M (I + E), shape (n, n).
        curvature: second derivatives along one entry of E, shape (n, n).
        coupling: those along an entry and its mirror image, shape (n, n).
    """

    value: float
    gradient: Array
    curvature: Array
    coupling: Array

    @classmethod
    def of(cls, modes: Array, seen: Array, basis: Array, weights: Array) -> _Modes:
        """``seen`` are P^1/2 H_j P^1/2, ``basis`` has the q_j as columns."""
        along = basis.T @ modes
        values, vectors = np.linalg.eigh(_mixed(np.square(along).T, seen))
        values = np.maximum(values, FLOOR * values.max())
        roots = np.sqrt(values)
        trace = roots.sum(axis=1)
        inverse = (vectors / roots[:, None, :]) @ vectors.transpose(0, 2, 1)
        slopes = seen.reshape(len(seen), -1) @ inverse.reshape(len(seen), -1).T
        dual = np.linalg.inv(modes).T
        shares = dual.T @ (weights[:, None] * dual)
        root = np.sqrt(np.diagonal(shares))
        gradient = root * (along.T @ (along * slopes)) - (shares * (trace / root)).T
        curvature = root * (np.square(along).T @ slopes) + np.outer(trace / root, root**2)
        own = root * trace
        return cls(
            value=float(own.sum()),
            gradient=gradient,
            curvature=curvature,
            coupling=own[:, None] + own,
        )

    def step(self) -> Array:
        """Newton's, each entry of E with its mirror image: E has no diagonal, as scales of modes
        change nothing. A pair of modes of one X_m could be turned freely, and is not."""
        mirrored = self.curvature * self.curvature.T
        coupling = np.minimum(self.coupling, np.sqrt(mirrored * (1 - REGULAR)))
        step = coupling * self.gradient.T - self.curvature.T * self.gradient
        step /= mirrored - coupling**2
        np.fill_diagonal(step, 0.0)
        return np.clip(step, -LONGEST, LONGEST)


def _basis(program: SpaceTimeProgram, witness: Witness, weights: Array, monitor: Monitor) -> Array:
    """M, shape (n, n), where the Lagrangian of P x diag(v) is about least."""
    workload = program.workload.modes
    assert workload is not None
    basis, root = workload.basis, np.sqrt(weights)
    traces = mode_traces(program, witness.blocks)
    values, vectors = np.linalg.eigh(witness.blocks)
    halves = vectors * np.sqrt(np.maximum(values, 0.0))[:, None, :]
    half = on_patterns(halves, program.participation)
    seen = half.T @ _grams(program) @ half
    scaled = root[:, None] * basis * traces
    modes = root[:, None] * np.linalg.eigh(scaled @ scaled.T)[1]
    found, length = _Modes.of(modes, seen, basis, weights), 1.0
    for _ in range(MAX_STEPS):
        step, before, first = found.step(), found.value, length
        while length > LEAST_LENGTH:
            trial = modes + length * modes @ step
            there = _Modes.of(trial, seen, basis, weights)
            if there.value < before:
                modes, found = trial, there
                break
            length /= 4
        if length == first:  # else it was too long, and the next one would be
            length = min(1.0, 4 * length)
        if monitor.expired or found.value > before * (1 - GAIN):
            break
    return np.asarray(modes)


# --- the correlations -----------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, eq=False)
class _Saddle:
    """The Lagrangian over multipliers V, shape (n, b, k, k), for given modes.

    Attributes:
        modes: M, shape (n, n).
        factors: L_m with L_m^T L_m = G_m, shape (n, T, T), their columns pattern by pattern.
        squares: S_um^2, shape (n, n).
        shape: (n, b, k, k).
    """

    modes: Array
    factors: Array
    squares: Array
    shape: tuple[int, int, int, int]

    @classmethod
    def of(cls, program: SpaceTimeProgram, modes: Array) -> _Saddle:
        workload = program.workload.modes
        assert workload is not None
        order = program.participation.patterns.ravel()
        grams = _mixed(np.square(workload.basis.T @ modes).T, _grams(program))
        values, vectors = np.linalg.eigh(grams)
        del grams
        roots = np.sqrt(np.maximum(values, FLOOR * values.max()))
        factors = (roots[:, :, None] * vectors.transpose(0, 2, 1))[:, :, order]
        b, k = program.participation.patterns.shape
        return cls(
            modes=modes,
            factors=np.ascontiguousarray(factors),
            squares=np.square(np.linalg.inv(modes)).T,
            shape=(len(modes), b, k, k),
        )

    def panel(self, mode: int, multiplier: Array) -> tuple[Array, Array]:
        """P and r, with X_m = P diag(1 / r) P^T and r the eigenvalues of (L U L^T)^1/2."""
        _, b, k, _ = self.shape
        factor = self.factors[mode]
        size = len(factor)
        by_pattern = factor.reshape(size, b, k).transpose(1, 0, 2)
        half = (by_pattern @ multiplier).transpose(1, 0, 2).reshape(size, size)
        values, vectors = np.linalg.eigh(_linalg.symmetrized(half @ factor.T))
        roots = np.sqrt(np.maximum(values, FLOOR**2 * values[-1]))
        return factor.T @ vectors, roots

    def evaluated(self, blocks: Array) -> tuple[float, Array]:
        """sum_m tr (G_m^1/2 U_m G_m^1/2)^1/2, and X of every node on patterns, of V's shape."""
        n, b, k, _ = self.shape
        multipliers = _mixed(self.squares.T, blocks)
        trace, grams = 0.0, np.empty(self.shape)
        for mode in range(n):
            spread, roots = self.panel(mode, multipliers[mode])
            panel = spread.reshape(b, k, -1)
            grams[mode] = (panel / roots) @ panel.transpose(0, 2, 1)
            trace += float(roots.sum())
        return trace, _mixed(self.squares, grams)

    def correlated(
        self,
        blocks: Array,
        *,
        monitor: Monitor,
        enough: Callable[[Array, float], bool] = lambda *_: False,
    ) -> Array:
        """V of the same diagonals, with correlations where the Lagrangian is about largest, or
        where V and half of it are enough, which is asked now and then.

        V_uj is p (F E) (F E)^T with unit rows, F F^T the correlations at the start: curvatures
        along E are alike, once each is weighted by the root of its price p.
        """
        prices = np.einsum("ujkk->uj", blocks)[..., None, None] / blocks.shape[-1]
        best, best_trace, count = blocks, 0.0, 0

        def unit(x: Array) -> tuple[Array, Array]:
            rows = roots @ (units * x.reshape(self.shape))
            lengths = np.linalg.norm(rows, axis=3, keepdims=True)
            return rows / lengths, lengths

        def negative(x: Array) -> tuple[float, Array]:
            nonlocal best, best_trace, count
            rows, lengths = unit(x)
            multipliers = prices * (rows @ rows.transpose(0, 1, 3, 2))
            trace, grams = self.evaluated(multipliers)
            if trace > best_trace:
                best, best_trace = multipliers, trace
            count += 1
            asked = count % ASKED == 0 and count < MAX_EVALUATIONS
            if monitor.expired or (asked and enough(best, best_trace)):
                raise TimeoutError  # the way out of the minimiser
            slope = (2 / trace) * prices * (grams @ rows)
            slope -= np.sum(slope * rows, axis=3, keepdims=True) * rows
            slope = units * (roots.transpose(0, 1, 3, 2) @ (slope / lengths))
            return -2 * np.log(trace), -slope.ravel()

        values, vectors = np.linalg.eigh(blocks / prices)
        lengths = np.sqrt(np.maximum(values, LEAST_CORRELATED * values[..., -1:]))
        roots = (vectors * lengths[..., None, :]) @ vectors.transpose(0, 1, 3, 2)
        units = np.sqrt(prices.mean() / prices)
        start = np.broadcast_to(np.eye(self.shape[-1]), self.shape) / units
        with contextlib.suppress(TimeoutError):
            scipy.optimize.minimize(
                negative,
                start.ravel(),
                jac=True,
                method="L-BFGS-B",
                options={
                    "maxcor": MEMORY,
                    "maxfun": MAX_EVALUATIONS,
                    "maxiter": MAX_EVALUATIONS,
                    "ftol": 0.0,
                    "gtol": 0.0,
                },
            )
        return best

    def design(self, program: SpaceTimeProgram, blocks: Array) -> ModalStrategy:
        """The design that the Lagrangian is least at, every budget used up.

        Raises:
            numpy.linalg.LinAlgError: an X_m is not positive definite to working precision.
        """
        n, b, k, _ = self.shape
        order = program.participation.patterns.ravel()
        by_step = np.argsort(order)
        multipliers = _mixed(self.squares.T, blocks)
        strategies, grams = np.empty_like(self.factors), np.empty(self.shape)
        for mode in range(n):
            spread, roots = self.panel(mode, multipliers[mode])
            gram = (spread / roots) @ spread.T
            diagonal = np.diagonal(gram) * (1 + settings.rank_tolerance(len(gram)))
            np.fill_diagonal(gram, diagonal)
            strategies[mode] = _linalg.reversed_cholesky(gram[np.ix_(by_step, by_step)])
            panel = gram.reshape(b, k, b, k)
            grams[mode] = panel[np.arange(b), :, np.arange(b)]
        used = np.empty((n, b))
        for node, of_node in enumerate(_mixed(self.squares, grams)):
            used[node] = [block_bounds(block).upper for block in of_node]
        scales = np.sqrt(used / program.budget[:, None])
        form = ModalStrategy(
            strategies=strategies, modes=self.modes, scales=np.tile(scales, (1, k))
        )
        return form.raised()
