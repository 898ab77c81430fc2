"""Proofs in integers of what floating point guesses: the arithmetic of ``check_design.py``.

Floats are integers times powers of two, and so are their sums and products: nothing is rounded.
Whatever symmetric K and H, X > 0, M, L, B and Z are, with F = I - M K M^T, f its largest row sum,

    inverse  f < 1  =>  K > 0,  K^-1  <=  M^T ((1 + f^2 / (1 - f)) I + F) M
    lower    <L B, Z>^2  <=  (largest row sum of |Z Z^T|)  tr(L X^-1 L^T)  tr(B^T X B)
    banded   tr(B^T X B)  <=  sum_t v_t X_tt,  v_t the sum of |B B^T| over row t, X of few diagonals
    shared   sum_o tr(L_o R L_o^T)  <=  tr(H R),  R a sum of P_c >= 0 on sets c of nodes, where
             sum_o L_o^T L_o  <=  H on every c; and lower says more of each o, of R on some nodes.

The first: M K M^T = I - F >= (1 - f) I, and (I - F)^-1 = I + F + F^2 (I - F)^-1. The second:
<L B, Z> = <L X^-1/2, Z B^T X^1/2>, and no eigenvalue of Z Z^T is above its row sums. The third: an
entry of X > 0 is at most the mean of the two on its diagonal.
"""

import math
import sys
from fractions import Fraction

import numpy as np

ALIKE = 1e-12  # relative: what entries of W, H, C^-1 and R may differ by from those of the problem
BITS = 62  # of a guess: more make proofs closer and slower


def require(holds, words, code=1):
    if not holds:
        print(f"{'refused' if code == 1 else 'not covered'}: {words}")
        sys.exit(code)


class Exact:
    """A matrix: integers, in an array of Python's own, times 2^e."""

    def __init__(self, m, e):
        self.m, self.e, self.unit = m, e, Fraction(2) ** e

    @classmethod
    def of(cls, a, bits=0):
        """The floats of an array, exactly, or to so many bits of the largest."""
        require(np.isfinite(a).all(), "floating point finds no numbers for a proof")
        e = int(np.frexp(np.abs(a).max(initial=0))[1]) - bits
        mantissas, powers = np.frexp(np.ldexp(np.rint(np.ldexp(a, -e)), e) if bits else a)
        e = int(powers[mantissas != 0].min(initial=0))
        mantissas = np.ldexp(mantissas, 53).astype(np.int64).astype(object)
        return cls(mantissas << np.maximum(powers - e, 0).astype(object), e - 53)

    def digits(self, bits):  # floats up to 2^bits, of which number i counts 2^(i bits) times
        count = int(abs(self.m).max(initial=0)).bit_length() // bits
        parts = [self.m >> bits * i & (1 << bits) - 1 for i in range(count)]
        return [part.astype(float) for part in (*parts, self.m >> bits * count)]

    def __matmul__(self, other):
        """The product, of digits so short that all sums stay below 2^53, where floats are exact."""
        bits, found = (53 - len(other.m).bit_length()) // 2, 0
        ours, theirs = self.digits(bits), other.digits(bits)
        for i in range(len(ours) + len(theirs) - 1):
            pairs = [(ours[i - j], b) for j, b in enumerate(theirs) if 0 <= i - j < len(ours)]
            found += sum((a @ b).astype(np.int64) for a, b in pairs).astype(object) << bits * i
        return Exact(found, self.e + other.e)

    def __sub__(self, other):
        e = min(self.e, other.e)
        return Exact((self.m << self.e - e) - (other.m << other.e - e), e)

    def at(self, rows, columns):
        return Exact(self.m[np.ix_(rows, columns)], self.e)

    def turned(self):
        return Exact(self.m.T, self.e)

    def floats(self):
        return (self.m * (1 << max(self.e, 0)) / (1 << max(-self.e, 0))).astype(float)


def inverse(k, m, what):
    """Prove a symmetric K positive definite by M, and return Q with K^-1 <= M^T Q."""
    require((k.m == k.m.T).all(), f"{what} is not symmetric")
    left = Exact(np.eye(len(k.m), dtype=int).astype(object), 0) - m @ k @ m.turned()
    f = abs(left.m).sum(axis=1).max() * left.unit
    require(f < 1, f"{what} is not proved positive definite")
    left.m[np.diag_indices(len(k.m))] += math.ceil((1 + f**2 / (1 - f)) / left.unit)
    return left @ m


def guess(k):
    """Near the inverse of a Cholesky factor."""
    return Exact.of(np.linalg.inv(np.linalg.cholesky(k.floats())), BITS)


def positive(k, what):
    """Prove a symmetric K >= 0, where it is no more than its diagonal is, or K > 0."""
    if (2 * np.diag(k.m) < abs(k.m).sum(axis=1)).any():
        inverse(k, guess(k), what)


def below(h, what):
    """L with L^T L <= H, as good as equal."""
    lowered = h.floats() * (1 - 2.0**-44 * len(h.m) * np.eye(len(h.m)))
    factor = Exact.of(np.linalg.cholesky(lowered).T, BITS)
    positive(h - factor.turned() @ factor, what)
    return factor


def precisions(r, views):
    """Bounds above the diagonals of inverses of blocks of R, at the nodes of interest."""
    found = []
    for nodes, interest in views:
        m = guess(k := r.at(nodes, nodes))
        q = inverse(k, m, "R")
        found += [*((m.m * q.m).sum(axis=0) * m.unit * q.unit)[np.isin(nodes, interest)]]
    return found


def sets_of(structure, w):
    """The sets of nodes that may share a seed, none within another; of no such structure, all."""
    linked = near = (w != 0) | (w.T != 0) | np.eye(len(w), dtype=bool)
    for _ in range(min(structure.get("hops") or 1, len(w)) - 1):
        near = near @ linked
    labels, kind = np.array(structure.get("clusters") or 0), structure.get("space")
    pairs = kind in ("edge-local", "hops")
    alike = {"neighbourhood": linked, "clusters": np.equal.outer(labels, labels)}
    alike = np.argwhere(near) if pairs else alike.get(kind, np.ones((1, len(w))))
    found = {frozenset((x if pairs else np.flatnonzero(x)).tolist()) for x in alike}
    return sorted(sorted(x) for x in found if not any(x < y for y in found))


def total(blocks, r, sets):
    """R, the sum of blocks P_c >= 0 of sets of nodes, which are stored one after the other."""
    flat, found = Exact.of(blocks / 2), np.zeros(r.shape, dtype=int).astype(object)
    ends = np.cumsum([len(c) ** 2 for c in sets])[:-1]
    for c, p in zip(sets, np.split(flat.m, ends), strict=True):
        p = p.reshape(len(c), len(c)) + p.reshape(len(c), len(c)).T
        positive(Exact(p, flat.e), "a block of clique_blocks")
        found[np.ix_(c, c)] += p
    found = Exact(found, flat.e)
    near = np.abs(found.floats() - r).max() <= ALIKE * np.abs(r).max()
    require(near, "covariance is not the sum of clique_blocks")
    return found


def roots(size, patterns, blocks, known):
    """B, of roots B_j of blocks, and <B B^T, X> <= sum_j budget_j max diag(B_j B_j^T)."""
    columns = [np.zeros((size, len(where))) for where in patterns]
    for column, where, block in zip(columns, patterns, blocks, strict=True):
        values, vectors = np.linalg.eigh((block + block.T) / 2)
        column[list(where)] = vectors * np.sqrt(np.maximum(values, 0))
    b = Exact.of(np.hstack(columns), BITS)
    parts = np.split(b.m, np.cumsum([len(where) for where in patterns])[:-1], axis=1)
    price = sum((a * a).sum(axis=1).max() * known[x] for a, x in zip(parts, patterns, strict=True))
    return b, price * b.unit**2


def lower(a, price):
    """A lower bound on tr(L X^-1 L^T) where tr(B^T X B) <= price, of A = L B."""
    left, _, right = np.linalg.svd(a.floats(), full_matrices=False)
    z = Exact.of(left @ right, BITS)
    square = z @ z.turned() if len(z.m) <= len(z.m.T) else z.turned() @ z
    above = abs(square.m).sum(axis=1).max() * square.unit * price
    return ((a.m * z.m).sum() * a.unit * z.unit) ** 2 / above if above else Fraction(0)


def banded(c, factor, bands, known):
    """B, guessed, and a price of <B B^T, X> for X of so many diagonals."""
    require(sum(map(len, known)) == len(c), "bands beside patterns that overlap", 2)
    x, far = c.T @ c, np.subtract.outer(np.arange(len(c)), np.arange(len(c)))
    inside, b = abs(far) < bands, np.linalg.solve(x, factor.floats().T)
    for _ in range(3):  # near the optimum, less the first order of what is off
        off = np.where(inside, b @ b.T, 0)
        for steps in map(list, known):
            off[steps, steps] -= np.average(off[steps, steps], weights=x[steps, steps])
        b = b - off @ np.linalg.inv(b).T / 2
    b = Exact.of(b, BITS)
    sums = abs(np.where(inside, (b @ b.turned()).m, 0)).sum(axis=1)
    return b, sum(sums[list(steps)].max() * tau for steps, tau in known.items()) * b.unit**2


def shared(square, parts, tau, w, cap, sets):
    """A lower bound on <H + diag(w), R>, and w, not below the guess where there are caps on R. Of
    parts S, L, b the last are guesses, and b_i^2 [R_SS^-1]_ii costs b_i^2 tau_i."""
    h, used, gain = square.floats(), 0, 0
    for _, f, b in parts:
        price, used = b**2 @ tau.astype(float), used + f.T @ f
        gain += np.linalg.svd(f * b, compute_uv=False).sum() ** 2 / price if price else 0
    size = 1 if cap is None else np.sqrt(np.outer(cap, cap))

    def over(s):  # what the cap has to pay for, in its units
        left = (s * used - h - np.diag(w)) * size
        return max(0, *(np.linalg.eigvalsh(left[np.ix_(c, c)])[-1] for c in sets))

    ratios = [np.linalg.pinv((h + np.diag(w))[np.ix_(c, c)]) @ used[np.ix_(c, c)] for c in sets]
    s = (1 - 2e-11) / max(np.linalg.eigvals(x).real.max() for x in ratios)
    if cap is not None:  # multipliers that are nearly feasible: some cost less than they gain
        scales = s, 1.0, *(1 - 10.0**-k for k in range(10, 2, -1))
        s = max(scales, key=lambda s: s * gain - len(w) * over(s))
        w = w + (over(s) + 2.0**-50 * len(w) * np.abs(h * size).max()) / cap
    factor, start, bound = Exact.of(np.sqrt(s) * np.vstack([f for _, f, _ in parts]), BITS), 0, 0
    left = square - factor.turned() @ factor - Exact.of(np.diag(-w))
    for c in sets:
        positive(left.at(c, c), "H + dual_cap less the factors")
    for nodes, f, b in parts:
        own, b = factor.at(range(start, start := start + len(f)), nodes), Exact.of(b[nodes])
        a = Exact(own.m * b.m, own.e + b.e)
        bound += lower(a, (b.m**2 * tau[nodes]).sum() * b.unit**2) if len(f) else 0
    return bound, w
