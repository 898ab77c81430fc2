"""Noise of seeds that neighbours share, on sparse graphs: R = S (I - N) S on the pattern of W.

Budgets determine S (docs/methods/large-graphs.md, "Seeds of neighbours alone"). What is left is

    N_ij = exp(c_0 + c_1 log W_ij + c_2 log H_ij + c_3 log(H_ii H_jj)),  H = W^T W,

in units in which all budgets are 1. The four numbers are found from estimates; budgets and error of
what they give are then sums."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy import sparse

from noisedesign.base.checks import Array
from noisedesign.base.monitor import Monitor, Search as Watch
from noisedesign.families.pairwise.bound import (
    MARGIN,
    SAMPLED,
    chosen_steps,
    contraction,
    gram_on,
    inverse_diagonal,
    looseness,
)
from noisedesign.families.polynomial.program import SparseProgram
from noisedesign.forms import PairwiseCovariance

PROBED = 1_000_000  # entries of the vectors of signs, at least sixteen, of the search
NEAR = 1e-4  # relative error of inverses while the four numbers are searched
LARGEST = 0.97  # largest |N|_2: beyond it, bounds on the inverse would have to look far


class Search:
    """The error of N of four numbers, from vectors of signs, and its derivatives: ``first`` and
    ``second`` are the nodes of every edge on which H is not zero, ``diagonal`` and ``off`` H on
    nodes and those edges, in units in which budgets are 1. The numbers multiply ``features``, which
    are orthogonal, and fewer where some say nothing new. ``signs``, (n, probes), weigh ``share``.
    """

    def __init__(self, program: SparseProgram, *, rng: np.random.Generator) -> None:
        w, n = program.mixing, program.size
        linked = sparse.triu(w + w.T, 1).tocoo()
        first, second = linked.coords
        unit = np.sqrt(program.budget[first] * program.budget[second])
        off = gram_on(w, first, second) / unit
        used = off > 0
        self.size, self.first, self.second, self.off = n, first[used], second[used], off[used]
        self.diagonal = np.asarray(w.power(2).sum(axis=0)) / program.budget
        self.logs, ends = np.log(linked.data[used] / unit[used]), np.log(self.diagonal)
        columns = [self.logs, np.log(self.off), ends[self.first] + ends[self.second]]
        self.features = _orthogonal(columns)
        probes = max(16, PROBED // n)  # from n on, unit vectors
        self.signs = np.eye(n) if n <= probes else rng.choice([-1.0, 1.0], size=(n, probes))
        self.share = 1.0 if n <= probes else 1 / probes

    def coupling(self, numbers: Array) -> Any:
        """N."""
        return self.on_edges(np.exp(self.features @ numbers))

    def on_edges(self, values: Array) -> Any:
        """The symmetric array with these values on the edges."""
        upper = sparse.coo_array((values, (self.first, self.second)), shape=(self.size,) * 2)
        return (upper + upper.T).tocsr()

    def start(self) -> Array:
        """N proportional to W, of norm .7."""
        numbers = self.features.T @ self.logs / max(len(self.logs), 1)
        rho, _ = contraction(self.coupling(numbers))
        numbers[0] += np.log(0.7 / rho)
        return np.asarray(numbers)

    def __call__(self, numbers: Array) -> tuple[float, Array]:
        """The error, and its derivatives."""
        with np.errstate(over="ignore"):
            values = np.exp(self.features @ numbers)
        coupling = self.on_edges(values)
        rho = contraction(coupling)[0] if np.isfinite(values).all() else np.inf
        if not rho < LARGEST:
            return np.inf, np.zeros(len(numbers))
        seen = solved(coupling, self.signs, rho)
        squared = np.maximum(self.share * np.sum(self.signs * seen, axis=1), 0.1)
        scale = np.sqrt(squared)
        gram = self.on_edges(self.off * values)
        costs = self.diagonal * scale - gram @ scale
        weighted = solved(coupling, (costs / scale)[:, None] * self.signs, rho)
        slope = -2 * self.off * scale[self.first] * scale[self.second]
        for a, b in zip(weighted.T, seen.T, strict=True):
            slope += self.share * (a[self.first] * b[self.second] + a[self.second] * b[self.first])
        return float(scale @ costs), self.features.T @ (slope * values)


def solved(coupling: Any, block: Array, rho: float) -> Array:
    """(I - N)^-1 times a block, nearly, by Chebyshev's polynomials on [-rho, rho]."""
    root = np.sqrt(1 - rho**2)
    rate = (1 - root) / rho
    # 1 / (1 - rho x) = (1 + 2 sum of rate^k T_k(x)) / root.
    scaled = coupling / rho
    previous, current = block, scaled @ block
    total, factor = block + 2 * rate * current, rate
    while factor > NEAR:
        factor *= rate
        previous, current = current, 2 * (scaled @ current) - previous
        total += 2 * factor * current
    return np.asarray(total / root)


def _orthogonal(columns: list[Array]) -> Array:
    """Ones and the columns, orthogonal and of mean square 1, without what follows from others."""
    basis = [np.ones(len(columns[0]))]
    for column in columns:
        rest = column.copy()
        for _ in range(2):
            for known in basis:
                rest -= (known @ rest / max(len(rest), 1)) * known
        length = np.sqrt(np.mean(rest**2)) if len(rest) else 0.0
        if length > 1e-6:
            basis.append(rest / length)
    return np.stack(basis, axis=1)


def improving_numbers(search: Search) -> Iterator[Array]:
    """Yield the first numbers, and those on the way to the least error, by damped BFGS."""
    x = search.start()
    yield x
    value, slope = search(x)
    inverse = np.eye(len(x)) / max(float(np.linalg.norm(slope)), 1e-300) / 10
    flat = 1e-7  # what a step would gain, relative, at which the search ends
    for _ in range(60):
        step = -inverse @ slope
        fall = float(slope @ step)
        if -fall <= flat * value:
            break
        while True:
            new, steeper = search(x + step)
            if new <= value + 1e-4 * fall:
                break
            step, fall = step / 4, fall / 4
            if -fall <= flat * value:
                return
        change = steeper - slope
        x, value, slope = x + step, new, steeper
        yield x
        product = float(step @ change)
        if product > 0:
            turn = np.eye(len(x)) - np.outer(step, change) / product
            inverse = turn @ inverse @ turn.T + np.outer(step, step) / product


def pairwise_noise(
    program: SparseProgram, *, rng: np.random.Generator, watch: Watch | None = None
) -> tuple[PairwiseCovariance, int]:
    """Find noise, and the steps by which its budgets are met; ``watch`` ends the search when it is
    late. Of N and smaller multiples the cheapest is taken, with what bounds are too high by."""
    watch, search = watch or Watch(Monitor(gap=0.0)), Search(program, rng=rng)
    numbers = search.start()
    with watch:
        for better in improving_numbers(search):
            numbers = better
            if watch.ended(solved=False):
                break
        else:
            watch.ended(solved=True)
    n = program.size
    nodes = np.sort(rng.choice(n, size=min(n, SAMPLED), replace=False))
    best, chosen, steps = np.inf, search.coupling(numbers), 1
    for factor in (1.0, 0.97, 0.94, 0.9, 0.85):
        shrunk = numbers + np.log(factor) * np.eye(len(numbers))[0]
        coupling = search.coupling(shrunk)
        rho, _ = contraction(coupling)
        if factor == 1:
            steps = chosen_steps(coupling, rho)
        loose = looseness(inverse_diagonal(coupling, rho, steps=steps, nodes=nodes))
        cost = search(shrunk)[0] * (1 + loose)
        if cost < best:
            best, chosen = cost, coupling
    rho, _ = contraction(chosen)
    needed = inverse_diagonal(chosen, rho, steps=steps).upper * (1 + MARGIN)
    return shared_out(chosen, needed / program.budget), steps


def shared_out(coupling: Any, variance: Array) -> PairwiseCovariance:
    """R = S (I - N) S with S^2 = diag(``variance``), as seeds; N >= 0 and |N|_2 < 1. A positive z
    with N z < z splits it: of R_uu an edge (u, v) has S_u N_uv S_v times (z_v / S_v) / (z_u / S_u),
    and u itself what is left."""
    _, z = contraction(coupling)
    upper = sparse.triu(coupling, 1).tocoo()
    first, second = upper.coords
    root, ratio, half = np.sqrt(variance), np.sqrt(z[second] / z[first]), np.sqrt(upper.data)
    return PairwiseCovariance(
        own=np.sqrt(variance * (1 - coupling @ z / z)),
        pairs=np.stack([first, second], axis=1).astype(np.int64),
        shares=np.stack([root[first] * half * ratio, -root[second] * half / ratio], axis=1),
    )
