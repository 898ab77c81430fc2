"""Prove what a design file claims, by ball arithmetic: ``python tools/check_design.py DESIGN.npz``.

It imports numpy and python-flint and nothing of noisedesign: a mistake there is not one here.
Floating point only guesses; every inequality is proved of the numbers in the file, at 106 bits.
Small sizes: 150 rows take seconds, 500 a minute. It covers noise without a structure in space
(the error of one step) and in time. Exit code 0: all is proved; 1: something is not; 2: no such
file is covered.
"""

import hashlib
import io
import itertools
import json
import math
import sys
import zipfile

import numpy as np
from flint import arb, arb_mat, ctx

ctx.prec = 106
ROOM = 1e-10  # what a claim, which was computed in float64, may differ by from what is proved


def require(holds, words, code=1):
    """Balls compare true only where all numbers in them do, and NaN never does."""
    if not holds:
        print(f"{'refused' if code == 1 else 'not covered'}: {words}")
        sys.exit(code)


def balls(a):
    return arb_mat(np.asarray(a, dtype=float).tolist())


def floats(a):
    return np.array([[float(x.mid()) for x in row] for row in a.tolist()])


def inner(a, b):
    return sum((x * y for x, y in zip(a.entries(), b.entries(), strict=True)), arb(0))


def row_sums(a):
    return [sum((abs(x) for x in row), arb(0)) for row in a.tolist()]


def largest(values):
    found = arb(0)
    for value in values:
        require(value.is_finite(), "a number is not finite")
        found = found.max(value)
    return found


def diagonal(values):
    rows = enumerate(values)
    return arb_mat([[x if i == j else arb(0) for j in range(len(values))] for i, x in rows])


def read(path):
    """The manifest and the arrays of a file that is whole."""
    with open(path, "rb") as file:
        content = file.read()
    seal = b"noisedesign-sha256:" + hashlib.sha256(content[:-64]).hexdigest().encode()
    require(content.endswith(seal), "the seal is broken")
    arrays = {}
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        said = json.loads(archive.read("manifest.json"))
        for name, entry in said["arrays"].items():
            a = np.load(io.BytesIO(archive.read(f"{name}.npy")), allow_pickle=False)
            require(a.dtype == "<f8" and list(a.shape) == entry["shape"], f"{name}: its shape")
            require(np.isfinite(a).all(), f"{name}: an entry is no number")
            digest = hashlib.sha256(np.ascontiguousarray(a).data).hexdigest()
            require(digest == entry["sha256"], f"{name}: its digest")
            arrays[name] = a
    return said, arrays


def patterns_of(said, size):
    """Sets of coordinates in which one record may take part, in the order of the multipliers."""
    if said["design"] == "space":
        return [(i,) for i in range(size)]
    scheme = said["participation"]
    k, b = scheme.get("epochs"), scheme.get("separation")
    if k and scheme.get("kind", "fixed-epoch") == "fixed-epoch":
        return [tuple(range(j, k * b, b)) for j in range(b)]
    most = scheme.get("max_participations") or size
    few = math.comb(size, min(most, size // 2)) < 1e5
    require(scheme.get("kind", "min-separation") == "min-separation" and few, "participation", 2)
    sets = (c for k in range(1, most + 1) for c in itertools.combinations(range(size), k))
    return [c for c in sets if all(y - x >= b for x, y in itertools.pairwise(c))]


def below(h):
    """G with G^T G <= H, as what is left is diagonally dominant."""
    middle = floats(h)
    for power in range(-51, -20):
        try:
            g = np.linalg.cholesky(middle * (1 - 2.0**power * np.eye(len(middle)))).T
        except np.linalg.LinAlgError:
            continue
        left = h - balls(g.T) * balls(g)
        if all(left[i, i] >= 0 and 2 * left[i, i] >= x for i, x in enumerate(row_sums(left))):
            return balls(g)
    return require(False, "a matrix is not proved positive definite")


def inverse(r):
    """R^-1, of a symmetric R that is positive definite: |I - M R M^T| < 1."""
    try:
        m = balls(np.linalg.inv(np.linalg.cholesky(floats(r))))
    except np.linalg.LinAlgError:
        require(False, "R is not positive definite")
    away = row_sums(m * r * m.transpose() - diagonal([arb(1)] * r.nrows()))
    require(largest(away) < 1, "R is not proved positive definite")
    return r.inv()


def multipliers(arrays, patterns):
    """For every pattern j: j, its steps, and B with <B B^T, X> <= budget_j max diag(B B^T)."""
    blocks, steps = arrays.get("dual_blocks"), patterns
    if "dual_weights" in arrays:
        blocks = arrays["dual_weights"][:, None, None]
    if "pattern_blocks" in arrays:
        lengths = arrays["pattern_lengths"].astype(int)
        steps = np.split(arrays["pattern_steps"].astype(int), np.cumsum(lengths)[:-1])
        flat = np.split(arrays["pattern_blocks"], np.cumsum(lengths**2)[:-1])
        blocks = [x.reshape(k, k) for x, k in zip(flat, lengths, strict=True)]
        require({tuple(s.tolist()) for s in steps} <= set(patterns), "steps of no pattern")
    require(blocks is not None and len(blocks) == len(steps), "no multipliers", 2)
    for j, (block, where) in enumerate(zip(blocks, steps, strict=True)):
        values, vectors = np.linalg.eigh((block + block.T) / 2)
        require(values[0] >= -1e-9 * max(values[-1], 0.0), "a multiplier is negative")
        yield j, where, balls(vectors * np.sqrt(np.maximum(values, 0.0)))


def bound(h, factor, arrays, patterns, budget):
    """<L B, Z>^2 / |Z|^2 / price, Z about the polar factor of L B; limits are paid or gain."""
    size, price, columns = h.nrows(), arb(0), []
    for j, where, root in multipliers(arrays, patterns):
        price += largest(x @ x for x in map(np.array, root.tolist())) * budget[j % len(budget)]
        for column in root.transpose().tolist():
            columns.append([arb(0)] * size)
            for s, x in zip(where, column, strict=True):
                columns[-1][int(s)] = x
    names = {"dual_cap": "max_variance", "dual_floor": "min_variance"}
    cap, floor = (list(map(arb, arrays.get(name, np.zeros(size)).tolist())) for name in names)
    require(all(x >= 0 for x in cap + floor), "a multiplier is negative")
    if factor is None or any(x > 0 for x in floor):
        factor = below(h + diagonal(cap) - diagonal(floor))
    else:
        factor = arb_mat(factor.tolist() + diagonal([x.sqrt() for x in cap]).tolist())
    half = factor * arb_mat(columns).transpose()
    left, _, right = np.linalg.svd(floats(half), full_matrices=False)
    z = balls(left @ right)
    square = z.transpose() * z if z.nrows() >= z.ncols() else z * z.transpose()
    found = inner(half, z) ** 2 / largest(row_sums(square)) / price
    for prices, name, sign in zip((cap, floor), names.values(), (-1, 1), strict=True):
        limits = arrays.get(name, np.zeros(size)).tolist()
        found += sign * sum((x * arb(y) for x, y in zip(prices, limits, strict=True)), arb(0))
    return found


def check(path):
    said, arrays = read(path)
    other = ("structure", "random", "error", "observers")
    plain = said["design"] in ("space", "time") and said.get("rounds", 1) == 1
    plain = plain and not any(said.get(key) for key in other) and "schedule" not in arrays
    require(plain and said["trust"] == "local", "noise or an error of such a kind", 2)
    if said["design"] == "space":
        factor, r = balls(arrays["mixing"]), balls(arrays["covariance"])
        require((arrays["covariance"] == arrays["covariance"].T).all(), "R is not symmetric")
        h, x = factor.transpose() * factor, inverse(r)
    else:
        require("gram" in arrays and "strategy" in arrays, "H or C is not in the file", 2)
        factor, h, c = None, balls(arrays["gram"]), balls(arrays["strategy"])
        require((np.triu(arrays["strategy"], 1) == 0).all(), "C is not causal")
        x, r = c.transpose() * c, c.inv() * c.inv().transpose()
    patterns = patterns_of(said, h.nrows())
    budget = list(map(arb, arrays.get("budget", np.ones(1)).tolist()))
    for j, where in enumerate(patterns):
        used = sum((abs(x[s, t]) for s in where for t in where), arb(0))
        require(used <= budget[j % len(budget)], "a budget is exceeded")
    for name, sign in (("max_variance", 1), ("min_variance", -1)):
        limits = enumerate(arrays.get(name, np.zeros(0)).tolist())
        require(all(sign * r[i, i] <= sign * arb(y) for i, y in limits), f"{name} is not kept")
    objective, proved = inner(h, r), bound(h, factor, arrays, patterns, budget)
    gap, claims = objective / proved - 1, {k: arb(said[k]) for k in ("objective", "lower_bound")}
    require(abs(claims["objective"] / objective - 1) < ROOM, "the objective is another")
    require(claims["lower_bound"] <= proved * (1 + ROOM), "the lower bound is not proved")
    require(gap <= arb(said["gap"]) + 3 * ROOM, "the gap is not proved")
    require(said["feasible"] and said["sensitivity"]["value"] <= 1, "it claims to be infeasible")
    print(f"proved: feasible, gap at most {float(gap.upper()):.2e}")


if __name__ == "__main__":
    check(sys.argv[1])
