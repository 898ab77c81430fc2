"""Prove what a design file claims, in integers: ``python check_design.py DESIGN.npz``

Floats are integers times powers of two, and so are their sums and products: nothing is rounded.
Floating point only guesses M, near the inverse of a Cholesky factor, the factor B of multipliers,
and Z, near a polar factor. Whatever these are, with F = I - M K M^T, f the largest row sum of |F|,

    f < 1  =>  K > 0,  g^T K^-1 g  <=  (1 + f^2 / (1 - f)) |M g|^2 + (M g)^T F (M g),
    <L B, Z>^2  <=  (largest row sum of |Z Z^T|)  tr(L X^-1 L^T)  tr(B^T X B),

and tr(B^T X B) is at most a price for every X within the budgets. It imports nothing of
noisedesign. Numpy reads, guesses, and multiplies short digits, of whose sums floats hold all.
Exit code 0: all is proved; 1: a claim is not; 2: not read, or of a kind that is not covered.
"""

import hashlib
import json
import math
import sys
import tomllib
from fractions import Fraction
from pathlib import Path

import numpy as np

ROOM = Fraction(1, 10**10)  # relative: what a claim, of float64, may differ by from what is proved
ALIKE = 1e-12  # relative: what entries of W, H and C^-1 may differ by from those of the problem
MOST = 20_000  # patterns that are listed: some seconds
OTHER = ("random", "observers", "coalitions", "account", "mixing_rate", "fixed_lower_bound")
OTHER += ("confidence", "uncertainty")
BOUNDS = ("unrestricted_lower_bound", "lower_bound")
KINDS = ("dense", "banded", "kronecker", "full", "local", "space", "time", "space-time")
fractions = np.frompyfunc(Fraction, 1, 1)


def require(holds, words, code=1):
    if not holds:
        print(f"{'refused' if code == 1 else 'not covered'}: {words}")
        sys.exit(code)


class Exact:
    """A matrix: integers, in an array of Python's own, times 2^e."""

    def __init__(self, m, e):
        self.m, self.e, self.unit = m, e, Fraction(2) ** e

    @classmethod
    def of(cls, a):
        """The floats of an array, exactly."""
        require(np.isfinite(a).all(), "floating point finds no numbers for a proof")
        mantissas, powers = np.frexp(a)
        e = int(powers[a != 0].min(initial=0))
        mantissas = np.ldexp(mantissas, 53).astype(np.int64).astype(object)
        return cls(mantissas << np.maximum(powers - e, 0).astype(object), e - 53)

    @classmethod
    def guess(cls, a):
        e = int(np.frexp(np.abs(a).max(initial=0))[1]) - 62
        return cls.of(np.ldexp(np.rint(np.ldexp(a, -e)), e))

    def digits(self, bits):
        """Arrays of floats up to 2^bits, of which number i counts 2^(i bits) times."""
        count = int(abs(self.m).max(initial=0)).bit_length() // bits + 1
        parts = [self.m >> bits * i for i in range(count)]
        lower = [(part & (1 << bits) - 1).astype(float) for part in parts[:-1]]
        return [*lower, parts[-1].astype(float)]

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

    def turned(self):
        return Exact(self.m.T, self.e)

    def times(self, other):
        return Exact(np.kron(self.m, other.m), self.e + other.e)

    def diagonal(self):
        return np.diag(self.m) * self.unit

    def floats(self):
        return (self.m * (1 << max(self.e, 0)) / (1 << max(-self.e, 0))).astype(float)

    def norm(self):
        return abs(self.m).sum(axis=1).max() * self.unit

    def inner(self, other):
        return (self.m * other.m).sum() * self.unit * other.unit


def inverse(k, m, what):
    """Prove a symmetric K positive definite by M, and return a bound on K^-1 from above."""
    require((k.m == k.m.T).all(), f"{what} is not symmetric")
    left = Exact(np.eye(len(k.m), dtype=int).astype(object), 0) - m @ k @ m.turned()
    f = left.norm()
    require(f < 1, f"{what} is not proved positive definite")
    left.m[np.diag_indices(len(k.m))] += math.ceil((1 + f**2 / (1 - f)) / left.unit)
    return m.turned() @ (left @ m)


def multipliers(size, groups, blocks, budgets):
    """B, of columns B_j about a root of every block, and sum_j budget_j max diag(B_j B_j^T), which
    <B B^T, X> does not exceed."""
    columns = []
    for group, block in zip(groups, blocks, strict=True):
        values, vectors = np.linalg.eigh((block + block.T) / 2)
        columns.append(np.zeros((size, len(group))))
        columns[-1][list(group)] = vectors * np.sqrt(np.maximum(values, 0))
    b = Exact.guess(np.hstack(columns))
    parts = np.split(b.m, np.cumsum([len(group) for group in groups])[:-1], axis=1)
    largest = [(part * part).sum(axis=1).max() for part in parts]
    return b, sum(x * tau for x, tau in zip(largest, budgets, strict=True)) * b.unit**2


def lower(factor, cap, floor, b, price):
    """A lower bound on tr(G X^-1 G^T), where G^T G <= L^T L + diag(w) - diag(u), what is left being
    diagonally dominant, and <B B^T, X> is at most the price."""
    if cap.any() or floor.any():
        c, u = (Exact.of(np.diag(x)) for x in (np.sqrt(cap) * (1 - 2.0**-50), floor))
        e = min(factor.e, c.e)
        factor = Exact(np.vstack([factor.m << factor.e - e, c.m << c.e - e]), e)
    if floor.any():
        h = factor.turned() @ factor - u
        lowered = h.floats() - 2.0**-44 * len(cap) * np.diag(np.diag(h.floats()))
        factor = Exact.guess(np.linalg.cholesky(lowered).T)
        left = (h - factor.turned() @ factor).m
        above = (2 * np.diag(left) >= abs(left).sum(axis=1)).all()
        require(above, "H less dual_floor is not proved positive semidefinite")
    a = factor @ b
    left, _, right = np.linalg.svd(a.floats(), full_matrices=False)
    z = Exact.guess(left @ right)
    square = z @ z.turned() if len(z.m) <= len(z.m.T) else z.turned() @ z
    return a.inner(z) ** 2 / square.norm() / price if price else Fraction(0)


def precisions(r):
    """Upper bounds on diag(R^-1)."""
    m = Exact.guess(np.linalg.inv(np.linalg.cholesky(r)))
    return inverse(Exact.of(r), m, "R").diagonal()


def in_space(said, arrays):
    """Noise of covariance R: this, squared sensitivities, budgets, a factor of H, multipliers."""
    r, w, tau, weights = (arrays[x] for x in ("covariance", "mixing", "budget", "dual_weights"))
    n = len(said["nodes"])
    fit = r.shape == w.shape == (n, n) and tau.shape == weights.shape == (n,)
    require(fit, f"shapes of R, W, tau or multipliers do not fit {n} nodes")
    found = multipliers(n, [(i,) for i in range(n)], weights[:, None, None], fractions(tau))
    return Exact.of(r), precisions(r), fractions(tau), Exact.of(w), {"lower_bound": found}


def in_time(said, arrays):
    """Noise of covariance (C^T C)^-1 of steps, or of these and nodes, or times R: the same."""
    entry, T, structure = said["participation"], said["horizon"], said["structure"] or {}
    w = arrays["mixing"] if said["design"] == "space-time" else np.eye(1)
    n, c, patterns = len(w), arrays.get("strategy_bands"), patterns_of(entry)
    every = patterns_of(entry | {"separation": n * entry["separation"]}) if n > 1 else patterns
    if c is None:
        c = arrays["strategy"]
    else:
        require(len(c) == structure["bands"], "strategy_bands are not those of the structure")
        c = sum(np.diag(band[: T - d], -d) for d, band in enumerate(c))
    size = T if "covariance" in arrays else n * T
    fit = c.shape == (size, size) and set().union(*every) == {*range(n * T)}
    require(fit, f"the shape of C, or the participation, does not fit {size} steps")
    d = arrays.get("noising_matrix", np.tril(np.linalg.inv(c)))
    require(not np.triu(c, 1).any() and not np.triu(d, 1).any(), "C or C^-1 is not causal")
    near = np.abs(c @ d - np.eye(size)).max() <= ALIKE * (np.abs(c) @ np.abs(d)).max()
    require(near, "noising_matrix is not C^-1")
    require(not structure.get("nonnegative") or (c >= 0).all(), "C has a negative entry")
    x, m = Exact.of(c), Exact.guess(np.linalg.inv(c).T)
    x = x.turned() @ x
    noise, where = inverse(x, m, "C^T C"), patterns if size == T else every
    squares = np.array([abs(x.m[np.ix_(steps, steps)]).sum() * x.unit for steps in where])
    if "covariance" in arrays:
        noise, of_nodes = noise.times(Exact.of(arrays["covariance"])), arrays["covariance"]
        squares = np.outer(squares, precisions(of_nodes)).ravel()
    if n > 1:
        powers = [0 * w] * T + [np.linalg.matrix_power(w, t + 1) for t in range(T)]
        factor = Exact.of(np.block([[powers[T + t - s] for s in range(T)] for t in range(T)]))
        tau = np.tile(arrays["budget"], entry["separation"])
    else:
        factor, h = Exact.of(arrays["workload_factor"]), arrays["gram"]
        off = np.abs((factor.turned() @ factor - Exact.of(h)).floats()).max()
        require(off <= T * ALIKE * np.abs(h).max(), "workload_factor is of another H")
        tau = arrays.get("pattern_budget", np.ones(len(every)))
    known = dict(zip(every, fractions(tau), strict=True))
    proofs = {x: paid(arrays, x, n * T, known) for x in BOUNDS if said[x]}
    if "strategy_bands" in arrays and "dual_roots" not in arrays:
        bands = len(arrays["strategy_bands"])
        proofs["lower_bound"] = banded(x.floats(), factor.floats(), bands, known)
    return noise, squares, fractions(tau), factor, proofs


def paid(arrays, which, size, known):
    """The multipliers of patterns, with their budgets, that a file has for a bound; their price."""
    own, patterns = "dual" if which == "lower_bound" else "unrestricted", [*known]
    names = [f"{x}_blocks" for x in (own, "dual", "unrestricted") if f"{x}_blocks" in arrays]
    if "dual_roots" in arrays:  # of one node after the other
        roots = arrays["dual_roots"]
        blocks = np.concatenate((roots @ roots.swapaxes(2, 3)).swapaxes(0, 1))
    elif names:
        weights = arrays.get("dual_weights", np.ones(1))[:, None, None]
        blocks = np.concatenate(arrays[names[0]][:, None] * weights)
    else:
        lengths = arrays["pattern_lengths"].astype(int)
        patterns = np.split(arrays["pattern_steps"].astype(int), np.cumsum(lengths)[:-1])
        flat = np.split(arrays["pattern_blocks"], np.cumsum(lengths**2)[:-1])
        blocks = [block.reshape(k, k) for block, k in zip(flat, lengths, strict=True)]
        patterns = [tuple(where.tolist()) for where in patterns]
        require(set(patterns) <= set(known), "pattern_steps are of no pattern")
    return multipliers(size, patterns, blocks, [known[where] for where in patterns])


def banded(x, factor, bands, known):
    """B, and what <B B^T, X> costs at most for an X of few diagonals: what B B^T has on these is
    below a diagonal matrix, of the sums of its absolute values."""
    require(sum(map(len, known)) == len(x), "bands beside patterns that overlap", 2)
    inside, b = np.tri(len(x), k=bands - 1) * np.tri(len(x), k=bands - 1).T, np.linalg.inv(x)
    b = b @ factor.T
    for _ in range(3):  # near the optimum, less the first order of what is off
        off = inside * (b @ b.T)
        for steps in map(list, known):
            off[steps, steps] -= np.average(off[steps, steps], weights=x[steps, steps])
        b = b - off @ np.linalg.inv(b).T / 2
    b = Exact.guess(b)
    sums = abs((b @ b.turned()).m * inside.astype(int)).sum(axis=1)
    return b, sum(sums[list(steps)].max() * tau for steps, tau in known.items()) * b.unit**2


def patterns_of(entry):
    """The patterns of steps, of which number j has budget number j."""
    b, k, most, T = (entry[x] for x in ("separation", "epochs", "max_participations", "horizon"))
    found, last = [tuple(range(j, k * b, b)) for j in range(b)] if k else [], [()]
    for _ in range(most or 0):
        last = [(*x, s) for x in last for s in range(x[-1] + b if x else 0, T)]
        found += last
        require(len(found) < MOST, "participation in so many patterns", 2)
    return found


def read(path):
    """The manifest of a file that is whole, and its arrays."""
    content = Path(path).read_bytes()
    seal = b"noisedesign-sha256:" + hashlib.sha256(content[:-64]).hexdigest().encode()
    require(content.endswith(seal), "the seal is broken")
    with np.load(path, allow_pickle=False) as file:
        said = json.loads(file["manifest.json"])
        require(said["format"] == "noisedesign-design", "a file of another format", 2)
        arrays = {name: file[name] for name in said["arrays"]}
    for name, a in arrays.items():
        plain = a.dtype == "<f8" and a.flags.c_contiguous and np.isfinite(a).all()
        plain = plain and (not name.endswith(("budget", "_variance")) or (a > 0).all())
        require(plain, f"{name}: not finite numbers of float64, by rows, and above 0 for limits")
    return said, arrays


def mixing_of(graph, w, alone):
    """W of a graph that is told by its kind, or else of the links of the W in the file."""
    far = np.abs(np.subtract.outer(np.arange(len(w)), np.arange(len(w))))
    known = {"path": far == 1, "ring": np.isin(far, (1, len(w) - 1)), "complete": far > 0}
    known["star"] = np.minimum.outer(np.arange(len(w)), np.arange(len(w))) == 0
    linked = known.get(graph["kind"], w != 0) & (far > 0)
    alone += ["links of W"] * (graph["kind"] not in known)
    degrees = linked.sum(axis=1)
    shares = {"metropolis-hastings": np.maximum.outer(degrees, degrees)}
    shares["lazy-metropolis-hastings"] = 1 + 2 * shares["metropolis-hastings"]
    shares |= {"row-normalized": degrees[:, None], "max-degree": degrees.max()}
    weights = graph.get("weights", "metropolis-hastings")
    if weights not in shares or {"directed", "file"} & set(graph):
        return alone.append("the weights of W") or w
    found = np.where(linked, 1 / (1 + shares[weights]), 0)
    return found + np.diag(1 - found.sum(axis=1))


def told(said, arrays):
    """Compare a file with the text of its problem; return what of the problem is not compared."""
    problem, entry = tomllib.loads(said["problem"]["text"]), said["participation"] or {}
    alone = [x for x in ("error", "mixing", "observers") if x in problem]

    def same(what, asked, found):
        alike = np.shape(asked) in ((), np.shape(found)) and np.all(asked == found)
        require(alike, f"{what} is not what the text asks for")

    given = dict(problem.get("participation", {}))
    if (kind := given.pop("kind", "")) in ("single", "every-step"):
        T, one = given.pop("horizon"), kind == "single"
        given = {"epochs": 1 if one else T, "separation": T if one else 1}
    same("error", "error" in problem, bool(said["error"]))
    same("participation", given, {key: x for key, x in entry.items() if x is not None})
    asked = {"design": problem["design"], "workload": problem.get("workload", {}).get("kind")}
    given = said | (said["privacy"] or {}) | {"structure": None} | (said["structure"] or {})
    tables = problem.get("privacy", {}) | problem.get("structure", {})
    for key, value in (asked | tables).items():
        same(key, value, given.get(key))
    tau = "pattern_budget" if said["design"] == "time" else "budget"
    asked = {tau: problem.get("budget", {}).get("tau", 1.0)} | problem.get("limits", {})
    for name, value in asked.items():
        same(name, value, arrays.get(name, 1.0 if name == tau else "none"))
    alone += {"max_variance", "min_variance"} & set(arrays) - set(asked)
    w = arrays.get("mixing", np.ones((1, 1)))  # of prefix sums
    if "mixing" in arrays:
        same("nodes", problem["graph"].get("nodes", len(w)), len(w))
        same("mixing", True, np.abs(mixing_of(problem["graph"], w, alone) - w).max() < ALIKE)
    if said["design"] == "time":
        h, T = arrays["gram"], said["horizon"]
        if said["workload"] == "gram" or said["error"] or said["rounds"] > 1:
            return [*alone, "H"]
        powers = np.array([np.linalg.matrix_power(w, t + 1).ravel() for t in range(T)])
        g = powers @ powers.T  # and H is the sum of tr(W^(t-s+1)^T W^(t-s'+1)) over t
        formed = sum(np.pad(g[t::-1, t::-1], (0, T - t - 1)) for t in range(T))
        same("gram", True, np.abs(formed - h).max() < T * ALIKE * h.max())
    return alone


def check(path):
    said, arrays = read(path)
    if said["workload"] == "prefix":
        ones = np.tril(np.ones((said["horizon"],) * 2))
        arrays = {"gram": ones.T @ ones, "workload_factor": ones} | arrays
    space, error = said["design"] == "space", json.dumps(said["error"])
    other = [x for x in OTHER if said.get(x)] + ["schedule"] * ("schedule" in arrays)
    words = [*(said["structure"] or {}).values(), said["trust"], said["design"]]
    other += [x for x in words if isinstance(x, str) and x not in KINDS]
    other += ["limits"] * (said["design"] == "space-time" and "max_variance" in arrays)
    plain = error == "null" and said["rounds"] == 1
    other += ["error"] * ("worst" in error if said["design"] == "time" else not plain)
    require(not other, f"{', '.join(other)}: not checked by this program", 2)
    alone = told(said, arrays) if said["problem"]["text"] else ["the whole problem"]
    noise, squares, tau, factor, proofs = (in_space if space else in_time)(said, arrays)
    variances, objective = noise.diagonal(), (factor @ noise).inner(factor)
    found, prices, gain = {"objective": objective, "sensitivity": max(squares / tau)}, [], 0
    for which, name, key in (("cap", "max", "variance_ratio"), ("floor", "min", "floor_ratio")):
        prices.append(arrays.get(f"dual_{which}", np.zeros(len(variances))))
        require((prices[-1] >= 0).all(), f"dual_{which} is negative")
        if f"{name}_variance" in arrays or prices[-1].any():
            limit = fractions(arrays[f"{name}_variance"])
            found[key] = max(variances / limit if which == "cap" else limit / variances)
            gain += (limit * fractions(prices[-1])).sum() * (-1 if which == "cap" else 1)
        require(key in found or said[key] is None, f"{key} is claimed of no limit")
    for key, value in found.items():
        claim = said[key]["value"] if key == "sensitivity" else said[key]
        require(key == "objective" or value <= 1, f"{key} {float(value)}: above 1")
        close = abs(Fraction(claim) - value) <= ROOM * value
        require(close, f"{key}: {claim} is claimed, {float(value)} is proved")
    for key, found in proofs.items():
        claim, bound = said[key], lower(factor, *prices, *found) + gain
        words = key.replace("_", " ")
        require(0 < claim <= bound * (1 + ROOM), f"{words} {claim}: {float(bound)} is proved")
    gap = said["objective"] / said["lower_bound"] - 1
    feasible = said["feasible"] is said["sensitivity"]["squared"] is True
    require(feasible and 0 <= said["gap"] == gap, "the gap is another, or not feasible")
    proved = math.sqrt(max(squares) * (1 + 2.0**-50)), objective, -bound, objective / bound - 1
    mu, high, low, gap = (math.nextafter(float(x), math.inf) for x in proved)
    print(f"proved in integers: every budget is kept; mu <= {mu} for a change of 1")
    print(f"objective <= {high}, that of all other noise >= {-low}, gap <= {gap}")
    print(f"taken from the file: {', '.join(alone) or 'nothing'}; not checked: epsilon, provenance")


if __name__ == "__main__":
    try:
        check(*sys.argv[1:])
    except Exception as error:
        words = f"it is not read, does not fit, or something is missing: {error!r}"
        require(False, words, 1 if isinstance(error, np.linalg.LinAlgError) else 2)
