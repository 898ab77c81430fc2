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
OTHER = ("structure", "random", "observers", "coalitions", "account", "mixing_rate")
OTHER += ("unrestricted_lower_bound", "fixed_lower_bound", "confidence", "uncertainty")
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

    def floats(self):
        return (self.m * (1 << max(self.e, 0)) / (1 << max(-self.e, 0))).astype(float)

    def norm(self):
        return abs(self.m).sum(axis=1).max() * self.unit

    def inner(self, other):
        return (self.m * other.m).sum() * self.unit * other.unit


def inverse(k, m, what):
    """Prove a symmetric K positive definite by M, and return bounds on g^T K^-1 g for q = M g."""
    require((k.m == k.m.T).all(), f"{what} is not symmetric")
    left = Exact(np.eye(len(k.m), dtype=int).astype(object), 0) - m @ k @ m.turned()
    f = left.norm()
    require(f < 1, f"{what} is not proved positive definite")

    return lambda q: (
        q.unit**2
        * ((q.m * q.m).sum(0) * (1 + f**2 / (1 - f)) + (q.m * (left @ q).m).sum(0) * left.unit)
    )


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


def in_space(said, arrays):
    """Noise of covariance R: tr(H R), squared sensitivities, budgets, variances; L, B, price."""
    r, w, tau, weights = (arrays[x] for x in ("covariance", "mixing", "budget", "dual_weights"))
    n = len(said["nodes"])
    fit = r.shape == w.shape == (n, n) and tau.shape == weights.shape == (n,)
    require(fit, f"shapes of R, W, tau or multipliers do not fit {n} nodes")
    m, r, w = Exact.guess(np.linalg.inv(np.linalg.cholesky(r))), Exact.of(r), Exact.of(w)
    tau, blocks, nodes = fractions(tau), weights[:, None, None], [(i,) for i in range(n)]
    squares, found = inverse(r, m, "R")(m), multipliers(n, nodes, blocks, tau)
    return (w @ r).inner(w), squares, tau, np.diag(r.m) * r.unit, w, *found


def in_time(said, arrays):
    """Noise C^-1 z across steps: tr(H X^-1), X = C^T C, and the same."""
    c, d, h, T = *(arrays[x] for x in ("strategy", "noising_matrix", "gram")), said["horizon"]
    patterns = patterns_of(said["participation"])
    fit = c.shape == d.shape == h.shape == (T, T) and set().union(*patterns) == {*range(T)}
    require(fit, f"shapes of C, C^-1 or H, or the participation, do not fit {T} steps")
    require(not np.triu(c, 1).any() and not np.triu(d, 1).any(), "C or C^-1 is not causal")
    near = np.abs(c @ d - np.eye(T)).max() <= ALIKE * (np.abs(c) @ np.abs(d)).max()
    require(near, "noising_matrix is not C^-1")
    factor, x, m = Exact.of(arrays["workload_factor"]), Exact.of(c), Exact.guess(np.linalg.inv(c).T)
    x, off = x.turned() @ x, np.abs((factor.turned() @ factor - Exact.of(h)).floats()).max()
    require(off <= T * ALIKE * np.abs(h).max(), "workload_factor is of another H")
    along = inverse(x, m, "C^T C")
    squares = np.array([abs(x.m[np.ix_(where, where)]).sum() * x.unit for where in patterns])
    tau = fractions(arrays.get("pattern_budget", np.ones(len(patterns))))
    known, paying = dict(zip(patterns, tau, strict=True)), patterns
    if (blocks := arrays.get("dual_blocks")) is None:
        lengths = arrays["pattern_lengths"].astype(int)
        paying = np.split(arrays["pattern_steps"].astype(int), np.cumsum(lengths)[:-1])
        flat = np.split(arrays["pattern_blocks"], np.cumsum(lengths**2)[:-1])
        blocks = [block.reshape(k, k) for block, k in zip(flat, lengths, strict=True)]
        paying = [tuple(where.tolist()) for where in paying]
        require(set(paying) <= set(known), "pattern_steps are of no pattern")
    found = factor, *multipliers(T, paying, blocks, [known[where] for where in paying])
    return along(m @ factor.turned()).sum(), squares, tau, along(m), *found


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
    alone = [x for x in ("error", "mixing", "structure", "observers") if x in problem]

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
    for key, value in (asked | problem.get("privacy", {})).items():
        same(key, value, (said | (said["privacy"] or {})).get(key))
    tau = "budget" if said["design"] == "space" else "pattern_budget"
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
    space, error = said["design"] == "space", json.dumps(said["error"])
    other = [x for x in OTHER if said.get(x)] + ["schedule"] * ("schedule" in arrays)
    other += [x for x in (said["structure"] or {}).values() if isinstance(x, str) and x != "dense"]
    other += [x for x in (said["trust"], said["design"]) if x not in ("local", "space", "time")]
    other += ["error"] * (error != "null" or said["rounds"] > 1 if space else "worst" in error)
    require(not other, f"{', '.join(other)}: not checked by this program", 2)
    alone = told(said, arrays) if said["problem"]["text"] else ["the whole problem"]
    proved = in_space(said, arrays) if space else in_time(said, arrays)
    objective, squares, tau, variances, factor, b, price = proved
    found, prices, gain = {"objective": objective, "sensitivity": max(squares / tau)}, [], 0
    for which, name, key in (("cap", "max", "variance_ratio"), ("floor", "min", "floor_ratio")):
        prices.append(arrays.get(f"dual_{which}", np.zeros(len(variances))))
        require((prices[-1] >= 0).all(), f"dual_{which} is negative")
        if f"{name}_variance" in arrays or prices[-1].any():
            limit = fractions(arrays[f"{name}_variance"])
            found[key] = max(variances / limit if which == "cap" else limit / variances)
            gain += (limit * fractions(prices[-1])).sum() * (-1 if which == "cap" else 1)
        require(key in found or said[key] is None, f"{key} is claimed of no limit")
    bound = lower(factor, *prices, b, price) + gain
    for key, value in found.items():
        claim = said[key]["value"] if key == "sensitivity" else said[key]
        require(key == "objective" or value <= 1, f"{key} {float(value)}: above 1")
        close = abs(Fraction(claim) - value) <= ROOM * value
        require(close, f"{key}: {claim} is claimed, {float(value)} is proved")
    claim, gap = said["lower_bound"], said["objective"] / said["lower_bound"] - 1
    require(0 < claim <= bound * (1 + ROOM), f"lower bound {claim}: {float(bound)} is proved")
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
