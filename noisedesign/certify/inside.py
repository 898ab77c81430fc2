"""H = W^T M W of an error over several steps, M positive definite where W is singular.

Noise enters a model through W at every step, so that H = W^T M W with M = sum_s k_s N_s,
N_s = a_s Q_s + W^T N_{s+1} W and N_{T+1} = 0; under momentum M = sum_s sum_t a_t G_ts^T Q_t G_ts,
G_ts = W G_(t-1)s + F_ts I, F_ts the share of noise of step s that enters at step t >= s. Entries of
H are rounded, and what is singular is then hardly ever positive semidefinite; W and M are known
(docs/methods/proofs.md, "Singular errors of several steps")."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from noisedesign.base.checks import Array
from noisedesign.base.enclosures import Enclosure, U, exactly, finer_product, up
from noisedesign.system.workloads import ErrorMeasure, Workload

MOST_ENTRIES = 1e7  # entries that a factor of H in time may have, which take some seconds
MOST_WORK = 3e10  # largest T^2 n^3 of an error with momentum: about ten seconds


def inside(workload: Workload) -> tuple[Array, Enclosure] | None:
    """W, shape (n, n), and M with its error; None where W changes, or M takes too long."""
    w, error = workload.fixed_mixing, workload.error
    if w is None or (error.momentum > 0 and error.horizon**2 * len(w) ** 3 > MOST_WORK):
        return None
    if not isinstance(error, ErrorMeasure) or error.terms != [(1.0, 0.0, error)]:
        return None
    total = Enclosure(np.zeros_like(w), np.zeros_like(w))
    for part in _with_momentum(w, error) if error.momentum > 0 else _without(w, error):
        total = total.plus(part)
    mid, rad = total
    found = Enclosure((mid + mid.T) / 2, np.asarray(up((rad + rad.T) / 2 + U * np.abs(mid), 4)))
    return w, found


def known_factor(workload: Workload, *, pairs: bool) -> Enclosure | None:
    """A with H = A^T A and its error, shape (r, T), or (r, T n) of ``pairs`` of step and node; None
    where W changes, or A has too many entries. Its entries are, of terms of weight k without
    momentum, (k a_t w_i)^1/2 eta_s [G_t W^(t-s+1)]_ij c_(s+1) ... c_t for t >= s, with c_t = 1 -
    eta_t lambda: column s of noise over time holds those of all terms, t, i and j, column (s, j) of
    pairs those of all terms, t and i. With it a step back from P, what x_(s+1) counts, and Q, what
    m_(s+1) does, is m_s counting eta_s P W + beta Q, and x_s P W - lambda times that."""
    w, error = workload.fixed_mixing, workload.error
    if w is None:
        return None
    horizon, n = error.horizon, len(w)
    every = [(term, int(t)) for term in error.terms for t in np.flatnonzero(term.measure.steps)]
    models = [term.measure.weighted_model(nodes=n, step=t) for term, t in every]
    if sum(model.size for _, model in models) * horizon > MOST_ENTRIES:
        return None
    rates, beta = error.rates, error.momentum
    order = (0, 2, 1) if pairs else (0, 1, 2)
    parts = []
    for (term, t), (weights, model) in zip(every, models, strict=True):
        # Means and weights are divided by their sum; a root, products and a difference round once
        # more each, and so does lambda.
        measure = term.measure
        root = np.sqrt(term.weight * measure.steps[t] * weights)[:, None]
        rounded = (
            (n + 8 + 4 * (term.curvature > 0))
            * U
            * (np.abs(model) + float(measure.of == "consensus"))
        )
        now = Enclosure(root * model, np.asarray(up(root * rounded, 4)))
        part = np.zeros((2, horizon, *model.shape))  # the numbers, and their errors
        velocity: Enclosure | None = None
        for step in range(t, -1, -1):
            now = finer_product(now, exactly(w))
            entering = now.scaled_by(float(rates[step]))
            if beta and velocity is not None:
                entering = entering.plus(velocity.scaled_by(beta))
            part[:, step] = velocity = entering
            if term.curvature and beta:
                mid, rad = entering.scaled_by(term.curvature)
                rad = np.asarray(up(rad + 2 * U * np.abs(mid), 2))  # decay added to a curvature
                now = now.minus(Enclosure(mid, rad))
            elif term.curvature:
                felt = float(rates[step] * term.curvature)
                sign, off = np.sign(1 - felt), np.asarray(up(4 * U * (1 + felt) * now.largest, 3))
                mid, rad = now.scaled_by(abs(1 - felt))
                now = Enclosure(sign * mid, np.asarray(up(rad + off, 1)))
        columns = horizon * n if pairs else horizon
        parts.append([x.transpose(order).reshape(columns, -1).T for x in part])
    mid, rad = (np.vstack(found) for found in zip(*parts, strict=True))
    return Enclosure(mid, rad)


def _without(w: Array, error: ErrorMeasure) -> Iterator[Enclosure]:
    shares = np.square(np.diagonal(error.step_factor))
    later: Enclosure | None = None
    for step in range(error.horizon - 1, -1, -1):
        now = exactly(error.steps[step] * error.readout(nodes=len(w), step=step))
        if later is not None:
            seen = finer_product(finer_product(exactly(w.T.copy()), later), exactly(w))
            now = seen.plus(now)
        yield now.scaled_by(float(shares[step]))
        later = now


def _with_momentum(w: Array, error: ErrorMeasure) -> Iterator[Enclosure]:
    factor, one = error.step_factor, np.eye(len(w))
    counted = [
        error.steps[step] * error.readout(nodes=len(w), step=step) for step in range(error.horizon)
    ]
    for first in range(error.horizon):
        entered = exactly(factor[first, first] * one)
        for step in range(first, error.horizon):
            if step > first:
                carried = finer_product(exactly(w), entered)
                entered = carried.plus(exactly(factor[step, first] * one))
            seen = finer_product(exactly(counted[step]), entered)
            yield finer_product(entered.transposed(), seen)
