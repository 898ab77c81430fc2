"""A search for noise of modes, z_t = diag(d_t) M y_t, mode m of y noise of its own strategy C_m.

With S = M^-T, multipliers V of a block V_uj for node u and pattern j and the workload
H = sum_j H_j x q_j q_j^T, the Lagrangian is least at 2 sum_m tr (G_m^1/2 U_m G_m^1/2)^1/2, G_m =
sum_j (q_j^T M e_m)^2 H_j, U_m = sum_u S_um^2 V_u (docs/methods/structures.md, "Modes")."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import scipy.optimize

from noisedesign.base import linalg as _linalg, settings
from noisedesign.base.checks import Array, InputError
from noisedesign.base.monitor import REACHED, Monitor
from noisedesign.families.family import Answer, Arrays
from noisedesign.families.kronecker.bound import Witness, mode_traces, root_on_patterns
from noisedesign.families.kronecker.solver import Factors, design_kronecker, proof_of, witness_of
from noisedesign.families.kronecker.turned import proved
from noisedesign.families.modal.bound import error
from noisedesign.families.space_time import SpaceTimeProgram
from noisedesign.forms import ModalStrategy, Noise
from noisedesign.privacy.sensitivity.elliptope import block_bounds
from noisedesign.system.workloads import Workload

FLOOR = 1e-14  # least eigenvalue, relative to the largest, that roots are taken of
GAIN = 1e-5  # relative, below which steps for M, or designs with small multipliers set anew, end
# Evaluations of the Lagrangian for the correlations, and those between two moments at which a
# design is made, where its gap might be enough.
MAX_EVALUATIONS, ASKED = 60, 20
# Errors added where some noise costs nothing, in shares of the mean diagonal entry of H: the larger
# ones bound noise that no error does, the smaller ones are nearly free.
RIDGES = (1e-2, 1e-3, 1e-4, 1e-5, 1e-7)
MOST_ANEW, PATIENCE = 60, 3  # designs with all multipliers set anew, and of these without a gain


def solve(program: SpaceTimeProgram, *, monitor: Monitor) -> Answer:
    """A design of modes for each of a few errors, the program's and a little more where some noise
    may cost nothing of it, and the Kronecker design that the first one starts from."""
    plain = program.workload.one_mixing is not None
    try:
        found = _starts(program, (0.0,) if plain else _ridges(program.workload), monitor)
    except InputError:  # no product is bounded where a singular W cancels some noise
        if not plain:
            raise
        found = _starts(program, _ridges(program.workload), monitor)
    bounds = [proved(program, proof) for *_, proof in found]
    bound, pairs = max(bounds), [factors for _, factors, *_ in found]
    monitor.report(lower=bound, upper=min(pair.objective for pair in pairs))

    def noises() -> Iterator[Noise]:
        forms: list[ModalStrategy] = []
        for lifted, _, witness, _ in found:
            if not monitor.expired:
                with contextlib.suppress(np.linalg.LinAlgError, KeyboardInterrupt):
                    judged = program.workload
                    forms.append(designed(lifted, witness, judged, monitor=monitor, bound=bound))
        for pair in pairs:
            forms.append(ModalStrategy.of_pair(pair.strategy(program), pair.space))
        for form in forms:
            yield Noise(steps=form.steps, nodes=form.nodes, strategy=form, full=True)

    return Answer(
        stop=pairs[-1].stop,
        noises=noises(),
        proof=found[bounds.index(bound)][3],
        evaluations=sum(len(pair.history) for pair in pairs),
    )


def _starts(
    program: SpaceTimeProgram, ridges: Sequence[float], monitor: Monitor
) -> list[tuple[SpaceTimeProgram, Factors, Witness, Arrays]]:
    """A program for every error to add, with its Kronecker design, multipliers and proof."""
    found: list[tuple[SpaceTimeProgram, Factors, Witness, Arrays]] = []
    for ridge in ridges:
        if found and monitor.expired:
            break
        lifted = replace(program, workload=replace(program.workload, ridge=ridge))
        lifted = lifted if ridge else program
        factors = design_kronecker(lifted, monitor=monitor)
        witness = witness_of(lifted, factors, monitor)
        found.append((lifted, factors, witness, proof_of(lifted, witness, monitor)))
    return found


def _ridges(workload: Workload) -> Sequence[float]:
    """The errors to add, per squared noise."""
    mean = float(np.trace(workload.time_gram())) / (workload.nodes * workload.horizon)
    return [ridge * mean for ridge in RIDGES]


def designed(
    program: SpaceTimeProgram,
    witness: Witness,
    judged: Workload,
    *,
    monitor: Monitor,
    bound: float = 0.0,
) -> ModalStrategy:
    """The design of modes for P x diag(v), at the budgets, by its error under ``judged``; ``bound``
    holds for any noise."""
    # Below a millionth M would be as good as singular.
    weights = np.maximum(witness.weights, 1e-6 * witness.weights.max())
    modes = _basis(program, witness, weights, monitor)
    saddle = _Saddle(program, modes)
    blocks = weights[:, None, None, None] * witness.blocks
    prices = float(program.budget @ blocks[:, :, 0, 0].sum(axis=1))
    goal, forms = (1 + REACHED * monitor.gap) * bound, dict[float, ModalStrategy]()

    def settle(found: Array) -> float:
        made, form = _settled(program, saddle, found, judged, monitor=monitor)
        forms[made] = form
        monitor.report(lower=bound, upper=min(forms))
        return made

    def enough(found: Array, trace: float) -> bool:
        # Where the first does not hold, no noise of these modes is as good.
        return trace**2 <= prices * goal and settle(found) <= goal

    starts = [blocks]
    try:
        if program.participation.epochs > 1:
            found = saddle.correlated(blocks, monitor=monitor, enough=enough)
            # On some graphs small multipliers are better left without these correlations.
            starts = [found, np.where(_small(blocks)[:, None, None, None], blocks, found)]
        for start in starts:
            if not forms or not (monitor.expired or min(forms) <= goal):
                settle(start)
    except KeyboardInterrupt:
        if not forms:
            raise
    return forms[min(forms)]


def _settled(
    program: SpaceTimeProgram, saddle: _Saddle, blocks: Array, judged: Workload, *, monitor: Monitor
) -> tuple[float, ModalStrategy]:
    """The best design of V as it stands and with multipliers set anew, small ones alone for the
    plain error; its error first."""
    form = best = saddle.design(program, blocks)
    least, all_of_them, idle = error(judged, best), bool(program.workload.ridge), 0
    for _ in range(MOST_ANEW if all_of_them else 8):
        if monitor.expired:
            break
        blocks = _balanced(blocks, form, all_of_them=all_of_them)
        form = saddle.design(program, blocks)
        found = error(judged, form)
        idle = idle + 1 if found > least * (1 - GAIN) else 0
        if found < least and (all_of_them or not idle):
            best, least = form, found
        if idle > (PATIENCE if all_of_them else 0):
            break
    lifted = _lifted(blocks, best)
    found = error(judged, lifted)
    return (found, lifted) if found < least else (least, best)


def _lifted(blocks: Array, form: ModalStrategy) -> ModalStrategy:
    """The same form, but nodes of small multipliers do not use up what they have room for."""
    prices = blocks[:, :, 0, 0]
    squares = np.square(form.scales)
    level = np.sqrt(np.sum(prices * squares[:, : prices.shape[1]]) / prices.sum())
    scales = np.where(_small(blocks)[:, None], np.maximum(form.scales, level), form.scales)
    return replace(form, scales=scales)


def _balanced(blocks: Array, form: ModalStrategy, *, all_of_them: bool = False) -> Array:
    """V with more for nodes of small multipliers, or for all, that make up for much, less for
    others."""
    prices = blocks[:, :, 0, 0]
    used = np.square(form.scales[:, : prices.shape[1]])
    used /= np.sum(prices * used) / prices.sum()
    if all_of_them:
        return np.asarray(blocks * used[:, :, None, None])
    return np.asarray(blocks * np.where(_small(blocks)[:, None], used**2, 1.0)[:, :, None, None])


def _small(blocks: Array) -> Array:
    """Say which nodes have small multipliers, shape (n,)."""
    prices = blocks[:, :, 0, 0].sum(axis=1)
    return np.asarray(prices < 0.01 * prices.max())


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


class _Modes:
    """The Lagrangian of P x diag(v) over M: ``value`` is sum_m sqrt(u_m) t_m, u_m = sum_u v_u
    S_um^2, t_m = tr K_mm^1/2, K_mn = sum_j (q_j^T M e_m) (q_j^T M e_n) P^1/2 H_j P^1/2. Along
    M (I + E), ``gradient`` and second derivatives along one entry of E (``curvature``), and along
    an entry and its mirror image (``coupling``), have shape (n, n)."""

    def __init__(self, modes: Array, seen: Array, basis: Array, weights: Array) -> None:
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
        own = root * trace
        self.value, self.coupling = float(own.sum()), own[:, None] + own
        self.gradient = root * (along.T @ (along * slopes)) - (shares * (trace / root)).T
        self.curvature = root * (np.square(along).T @ slopes) + np.outer(trace / root, root**2)

    def step(self) -> Array:
        """The Newton step, each entry of E with its mirror image; E has no diagonal."""
        mirrored = self.curvature * self.curvature.T
        # No pair of modes is taken to be nearer to singular than this.
        coupling = np.minimum(self.coupling, np.sqrt(mirrored * 0.98))
        step = coupling * self.gradient.T - self.curvature.T * self.gradient
        step /= mirrored - coupling**2
        np.fill_diagonal(step, 0.0)
        return np.asarray(np.clip(step, -0.3, 0.3))


def _basis(program: SpaceTimeProgram, witness: Witness, weights: Array, monitor: Monitor) -> Array:
    """M, shape (n, n), where the Lagrangian of P x diag(v) is about least."""
    workload = program.workload.modes
    assert workload is not None
    basis, root = workload.basis, np.sqrt(weights)
    traces = mode_traces(program, witness.blocks)
    half = root_on_patterns(witness.blocks, program.participation)
    seen = half.T @ _grams(program) @ half
    scaled = root[:, None] * basis * traces
    modes = root[:, None] * np.linalg.eigh(scaled @ scaled.T)[1]
    found, length = _Modes(modes, seen, basis, weights), 1.0
    for _ in range(20):  # five to fifteen are usual
        step, before, first = found.step(), found.value, length
        while length > 0.01:
            trial = modes + length * modes @ step
            there = _Modes(trial, seen, basis, weights)
            if there.value < before:
                modes, found = trial, there
                break
            length /= 4
        if length == first:  # else it was too long, and the next one would be
            length = min(1.0, 4 * length)
        if monitor.expired or found.value > before * (1 - GAIN):
            break
    return np.asarray(modes)


class _Saddle:
    """The Lagrangian over multipliers V for given ``modes`` M: L_m = ``factors`` with L_m^T L_m =
    G_m, shape (n, T, T), columns pattern by pattern; S_um^2 = ``squares``; V's ``shape`` (n, b, k,
    k)."""

    def __init__(self, program: SpaceTimeProgram, modes: Array) -> None:
        workload = program.workload.modes
        assert workload is not None
        order = program.participation.patterns.ravel()
        grams = _mixed(np.square(workload.basis.T @ modes).T, _grams(program))
        values, vectors = np.linalg.eigh(grams)
        del grams
        roots = np.sqrt(np.maximum(values, FLOOR * values.max()))
        factors = (roots[:, :, None] * vectors.transpose(0, 2, 1))[:, :, order]
        self.modes, self.factors = modes, np.ascontiguousarray(factors)
        self.squares = np.square(np.linalg.inv(modes)).T
        b, k = program.participation.patterns.shape
        self.shape = (len(modes), b, k, k)

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
        """V of the same diagonals with correlations where the Lagrangian is about largest, or where
        V and half of it are ``enough``, which is asked now and then. V_uj is p (F E) (F E)^T with
        unit rows, F F^T the correlations at the start: curvatures along E are alike, once each is
        weighted by the root of its price p."""
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
        lengths = np.sqrt(np.maximum(values, 1e-9 * values[..., -1:]))  # off the boundary
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
                    "maxcor": 20,
                    "maxfun": MAX_EVALUATIONS,
                    "maxiter": MAX_EVALUATIONS,
                    "ftol": 0.0,
                    "gtol": 0.0,
                },
            )
        return best

    def design(self, program: SpaceTimeProgram, blocks: Array) -> ModalStrategy:
        """The design that the Lagrangian is least at, every budget used up."""
        n, b, k, _ = self.shape
        by_step = np.argsort(program.participation.patterns.ravel())
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
        of_nodes = _mixed(self.squares, grams)
        used = np.array([[block_bounds(block).upper for block in one] for one in of_nodes])
        scales = np.tile(np.sqrt(used / program.budget[:, None]), (1, k))
        return ModalStrategy(strategies=strategies, modes=self.modes, scales=scales).raised()
