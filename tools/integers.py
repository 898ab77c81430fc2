"""Proofs in integers, of whatever floating point guesses: arithmetic for ``check_design.py``.

Floats are integers times powers of two, and so are their sums and products: nothing is rounded.
With F = I - M K M^T, f the largest row sum of |F|, and any matrices M, K = K^T, L, B, Z, X > 0,

    inverse   f < 1  =>  K > 0,  K^-1  <=  M^T ((1 + f^2 / (1 - f)) I + F) M,
    lower     <L B, Z>^2  <=  (largest row sum of |Z Z^T|)  tr(L X^-1 L^T)  tr(B^T X B).

The first: M K M^T = I - F, and I - F >= (1 - f) I, so that (I - F)^-1 = I + F + F^2 (I - F)^-1. The
second is twice Cauchy and Schwarz: <L B, Z> = <L X^-1/2, Z B^T X^1/2>, and an eigenvalue of Z Z^T
is at most a row sum. M, near an inverse Cholesky factor, and Z, near a polar factor, are guesses.
"""

import math
import sys
from fractions import Fraction

import numpy as np

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


def lower(a, price):
    """A lower bound on tr(L X^-1 L^T) where tr(B^T X B) <= price, of A = L B."""
    left, _, right = np.linalg.svd(a.floats(), full_matrices=False)
    z = Exact.of(left @ right, BITS)
    square = z @ z.turned() if len(z.m) <= len(z.m.T) else z.turned() @ z
    above = abs(square.m).sum(axis=1).max() * square.unit * price
    return ((a.m * z.m).sum() * a.unit * z.unit) ** 2 / above if above else Fraction(0)
