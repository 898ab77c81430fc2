"""Prove what a design file claims, in integers: ``python check_design.py DESIGN.npz``

Floats are integers times powers of two, and so are their sums and products: nothing is rounded.
Floating point only guesses M, near the inverse of a Cholesky factor, the factor B of multipliers,
and Z, near a polar factor. Whatever these are, with F = I - M K M^T, f the largest row sum of |F|,

    f < 1  =>  K > 0,  g^T K^-1 g  <=  (1 + f^2 / (1 - f)) |M g|^2 + (M g)^T F (M g),
    <L B, Z>^2  <=  (largest row sum of |Z Z^T|)  tr(L X^-1 L^T)  tr(B^T X B),

and tr(B^T X B) is at most a price for every X within the budgets. It imports nothing of
noisedesign, numpy to read and to guess, and python-flint, if it is there, to multiply.
Exit code 0: all is proved; 1: a claim is not; 2: not read, or of a kind that is not covered.
"""

import hashlib
import io
import json
import math
import sys
import tomllib
import zipfile
from fractions import Fraction
from pathlib import Path

import numpy as np

try:
    from flint import fmpz_mat
except ImportError:  # Python's own integers do
    fmpz_mat = None

ROOM = Fraction(1, 10**10)  # relative: what a claim, of float64, may differ by from what is proved
ALIKE = 1e-12  # relative: what entries of W, H and C^-1 may differ by from those of the problem
MOST = 20_000  # patterns that are listed: some seconds
NEEDED = {"space": ("covariance", "mixing", "budget", "dual_weights")}
NEEDED["time"] = ("strategy", "noising_matrix", "gram", "workload_factor")
SHAPES = dict.fromkeys(("budget", "dual_weights", "dual_floor", "min_variance"), "n")
SHAPES |= {
    "covariance": "nn",
    "mixing": "nn",
    "strategy": "TT",
    "noising_matrix": "TT",
    "gram": "TT",
}
OTHER = ("random", "observers", "coalitions", "account", "mixing_rate")


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
        """The floats of an array to 62 bits of the largest, where smaller ones do not matter."""
        e = int(np.frexp(np.abs(a).max(initial=0))[1]) - 62
        return cls.of(np.ldexp(np.rint(np.ldexp(a, -e)), e))

    def __matmul__(self, other):
        a, b, e = self.m, other.m, self.e + other.e
        if b.shape[0] == b.shape[1] and np.count_nonzero(b) == np.count_nonzero(np.diag(b)):
            return Exact(a * np.diag(b), e)
        if not fmpz_mat:
            return Exact(a @ b, e)
        product = (fmpz_mat(a.tolist()) * fmpz_mat(b.tolist())).tolist()
        return Exact(np.array([[int(x) for x in row] for row in product], object), e)

    def __sub__(self, other):
        e = min(self.e, other.e)
        return Exact((self.m << self.e - e) - (other.m << other.e - e), e)

    def turned(self):
        return Exact(self.m.T, self.e)

    def floats(self):
        return (self.m * (1 << max(self.e, 0)) / (1 << max(-self.e, 0))).astype(float)

    def norm(self):
        """The largest row sum of absolute values."""
        return abs(self.m).sum(axis=1).max() * self.unit

    def inner(self, other):
        return (self.m * other.m).sum() * self.unit * other.unit


def fractions(a):
    return np.array([Fraction(x) for x in a.tolist()], object)


class Inverse:
    """Upper bounds on K^-1, of a symmetric K that is proved positive definite by M."""

    def __init__(self, k, m, what):
        require((k.m == k.m.T).all(), f"{what} is not symmetric")
        self.left = Exact(np.eye(len(k.m), dtype=int).astype(object), 0) - m @ k @ m.turned()
        f = self.left.norm()
        require(f < 1, f"{what} is not proved positive definite")
        self.factor = 1 + f**2 / (1 - f)

    def along(self, q):
        """Bounds on g^T K^-1 g for the columns q = M g."""
        first, second = (q.m * q.m).sum(axis=0), (q.m * (self.left @ q).m).sum(axis=0)
        return q.unit**2 * (first * self.factor + second * self.left.unit)


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
    largest = np.array([(part * part).sum(axis=1).max() for part in parts], object)
    return b, (largest * budgets).sum() * b.unit**2


def lower(factor, cap, floor, b, price):
    """A lower bound on tr(G X^-1 G^T), where G^T G <= L^T L + diag(w) - diag(u), what is left being
    diagonally dominant, and <B B^T, X> is at most the price."""
    require(price > 0, "the multipliers are zero")
    if cap.any() or floor.any():
        c, u = (Exact.of(np.diag(x)) for x in (np.sqrt(cap) * (1 - 2.0**-50), floor))
        e = min(factor.e, c.e)
        factor = Exact(np.vstack([factor.m << factor.e - e, c.m << c.e - e]), e)
    if floor.any():
        h = factor.turned() @ factor - u
        lowered = h.floats() - 2.0**-44 * len(cap) * np.diag(np.diag(h.floats()))
        factor = Exact.guess(np.linalg.cholesky(lowered).T)
        left = (h - factor.turned() @ factor).m
        dominant = 2 * np.diag(left) >= abs(left).sum(axis=1)
        require(dominant.all(), "H less dual_floor is not proved positive semidefinite")
    a = factor @ b
    left, _, right = np.linalg.svd(a.floats(), full_matrices=False)
    z = Exact.guess(left @ right)
    square = z @ z.turned() if len(z.m) <= len(z.m.T) else z.turned() @ z
    return a.inner(z) ** 2 / square.norm() / price


def in_space(said, arrays):
    """Noise of covariance R: tr(H R), squared sensitivities, budgets, variances; L, B, price."""
    r, w, tau = (arrays[name] for name in ("covariance", "mixing", "budget"))
    m, r, w, tau = (
        Exact.guess(np.linalg.inv(np.linalg.cholesky(r))),
        *map(Exact.of, (r, w)),
        fractions(tau),
    )
    nodes, blocks = [(i,) for i in range(len(tau))], arrays["dual_weights"][:, None, None]
    found = w, *multipliers(len(tau), nodes, blocks, tau)
    return (w @ r).inner(w), Inverse(r, m, "R").along(m), tau, np.diag(r.m) * r.unit, *found


def in_time(said, arrays):
    """Noise C^-1 z across steps: tr(H X^-1), X = C^T C, and the same."""
    c, d, h, factor = (arrays[name] for name in NEEDED["time"])
    require(not np.triu(c, 1).any() and not np.triu(d, 1).any(), "C or C^-1 is not causal")
    off = np.abs(c @ d - np.eye(len(c))).max() / (np.abs(c) @ np.abs(d)).max()
    require(off < ALIKE, "noising_matrix is not C^-1")
    factor, x, m = Exact.of(factor), Exact.of(c), Exact.guess(np.linalg.inv(c).T)
    off = np.abs((factor.turned() @ factor - Exact.of(h)).floats()).max()
    require(off <= len(h) * ALIKE * np.abs(h).max(), "workload_factor is of another H")
    x = x.turned() @ x
    inverse, patterns = Inverse(x, m, "C^T C"), patterns_of(said["participation"])
    squares = np.array([abs(x.m[np.ix_(where, where)]).sum() * x.unit for where in patterns])
    tau = fractions(arrays.get("pattern_budget", np.ones(len(patterns))))
    require(len(tau) == len(patterns), "pattern_budget: its shape")
    if "dual_blocks" in arrays:
        found = multipliers(len(c), patterns, arrays["dual_blocks"], tau)
    else:
        lengths = arrays["pattern_lengths"].astype(int)
        steps = np.split(arrays["pattern_steps"].astype(int), np.cumsum(lengths)[:-1])
        flat = np.split(arrays["pattern_blocks"], np.cumsum(lengths**2)[:-1])
        steps = [tuple(where.tolist()) for where in steps]
        require(set(steps) <= set(patterns), "pattern_steps are of no pattern")
        blocks = [block.reshape(k, k) for block, k in zip(flat, lengths, strict=True)]
        found = multipliers(len(c), steps, blocks, 1)
    objective = inverse.along(m @ factor.turned()).sum()
    return objective, squares, tau, inverse.along(m), factor, *found


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
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        infos, arrays = archive.infolist(), {}
        require(sum(x.file_size for x in infos) < len(content), "members overlap")
        members = {x.filename: archive.read(x) for x in infos}
    said = json.loads(members["manifest.json"])
    require(said["format"] == "noisedesign-design", "a file of another format", 2)
    names = ["manifest.json", *(f"{name}.npy" for name in said["arrays"])]
    require(sorted(names) == sorted(x.filename for x in infos), "members are not those told of")
    size = {"n": len(said["nodes"]), "T": said["horizon"]}
    for name, entry in said["arrays"].items():
        stream = io.BytesIO(members[f"{name}.npy"])
        a = arrays[name] = np.load(stream, allow_pickle=False)
        plain = a.dtype == "<f8" and a.flags.c_contiguous and not stream.read()
        require(plain and np.isfinite(a).all(), f"{name}: not finite float64 numbers, by rows")
        require(hashlib.sha256(a.data).hexdigest() == entry["sha256"], f"{name}: another digest")
        right = name not in SHAPES or a.shape == tuple(size[x] for x in SHAPES[name])
        require(right, f"{name}: its shape is {a.shape}")
    return said, arrays


def mixing_of(graph, w, alone):
    """W of a graph that is told by its kind, or else of the links of the W in the file."""
    far = np.abs(np.subtract.outer(np.arange(len(w)), np.arange(len(w))))
    known = {"path": far == 1, "ring": np.isin(far, (1, len(w) - 1)), "complete": far > 0}
    if not set(graph) <= {"kind", "nodes", "weights"} or graph["kind"] not in known:
        alone.append("the links of W")
    linked = known.get(graph["kind"], w != 0) & (far > 0)
    degrees = linked.sum(axis=1)
    larger = np.maximum.outer(degrees, degrees)
    shares = {"metropolis-hastings": larger, "lazy-metropolis-hastings": 1 + 2 * larger}
    shares |= {"row-normalized": degrees[:, None], "max-degree": degrees.max()}
    if (weights := graph.get("weights", "metropolis-hastings")) not in shares:
        return alone.append("the weights of W") or w
    found = np.where(linked, 1 / (1 + shares[weights]), 0)
    return found + np.diag(1 - found.sum(axis=1))


def told(said, arrays):
    """Compare a file with the text of its problem; return what of the problem is not compared."""
    problem, entry = tomllib.loads(said["problem"]["text"]), said["participation"] or {}
    alone, w = [x for x in ("error", "mixing") if x in problem], arrays.get("mixing")

    def same(what, asked, found, room=0):
        alike = np.shape(asked) in ((), np.shape(found))
        close = alike and (asked == found if room == 0 else np.abs(asked - found) <= room)
        require(np.all(close), f"{what} is not what the text asks for")

    given = dict(problem.get("participation", {}))
    if (kind := given.pop("kind", "")) in ("single", "every-step"):
        T, one = given.pop("horizon"), kind == "single"
        given = {"epochs": 1 if one else T, "separation": T if one else 1}
    same("participation", given, {key: x for key, x in entry.items() if x is not None})
    for key, value in ({"design": problem["design"]} | problem.get("privacy", {})).items():
        same(key, value, (said | (said["privacy"] or {})).get(key))
    tau = "budget" if said["design"] == "space" else "pattern_budget"
    asked = {tau: problem.get("budget", {}).get("tau", 1.0)} | problem.get("limits", {})
    for name, value in asked.items():
        same(name, value, arrays.get(name, 1.0 if name == tau else math.inf))
    alone += {"max_variance", "min_variance"} & set(arrays) - set(asked)
    if w is not None:
        same("mixing", mixing_of(problem["graph"], w, alone), w, ALIKE)
    if said["design"] == "time":
        kind, h, T = problem["workload"]["kind"], arrays["gram"], said["horizon"]
        same("workload", kind, said["workload"])
        if kind == "gram" or said["error"]:
            return [*alone, "H"]
        one, formed = np.ones((1, 1)) if kind == "prefix" else w, np.zeros((T, T))
        powers = np.array([np.linalg.matrix_power(one, t + 1).ravel() for t in range(T)])
        for t in range(T):  # sum of tr(W^(t-s+1)^T W^(t-s'+1)), about; of prefix sums W is 1
            formed[: t + 1, : t + 1] += (powers @ powers.T)[t::-1, t::-1]
        same("gram", formed, h, T * ALIKE * h.max())
    return alone


def check(path):
    said, arrays = read(path)
    space, error = said["design"] == "space", json.dumps(said["error"])
    parts = [x for x in (said["structure"] or {}).values() if isinstance(x, str) and x != "dense"]
    other = [x for x in OTHER if said[x]] + (parts or ["structure"] * bool(said["structure"]))
    other += [x for x in (said["trust"],) if x != "local"] + [x for x in arrays if x == "schedule"]
    several = error != "null" or said["rounds"] > 1 if space else "worst" in error
    other += ["errors of several steps, rounds or cases"] * several
    require(not other, f"{', '.join(other)}: not checked by this program", 2)
    missing = [name for name in NEEDED[said["design"]] if name not in arrays]
    require(not missing, f"no array {', '.join(missing)}")
    alone = told(said, arrays) if said["problem"]["text"] else ["the whole problem"]
    prove = in_space if space else in_time
    objective, squares, tau, variances, factor, b, price = prove(said, arrays)
    found, prices, gain = {"objective": objective, "sensitivity": max(squares / tau)}, [], 0
    for which, name, key in (("cap", "max", "variance_ratio"), ("floor", "min", "floor_ratio")):
        prices.append(arrays.get(f"dual_{which}", np.zeros(len(variances))))
        require((prices[-1] >= 0).all(), f"dual_{which} is negative")
        if f"{name}_variance" in arrays or prices[-1].any():
            limit = fractions(arrays[f"{name}_variance"])
            found[key] = max(variances / limit if which == "cap" else limit / variances)
            gain += (limit * fractions(prices[-1])).sum() * (-1 if which == "cap" else 1)
    bound = lower(factor, *prices, b, price) + gain
    for key, value in found.items():
        claim = said[key]["value"] if key == "sensitivity" else said[key]
        require(key == "objective" or value <= 1, f"{key} {float(value)}: above 1")
        close = abs(Fraction(claim) - value) <= ROOM * value
        require(close, f"{key}: {claim} is claimed, {float(value)} is proved")
    claim, gap = said["lower_bound"], said["objective"] / said["lower_bound"] - 1
    require(0 < claim <= bound * (1 + ROOM), f"lower bound {claim}: {float(bound)} is proved")
    require(said["feasible"] is True and 0 <= said["gap"] == gap, "the gap is another")
    up = [math.nextafter(float(x), math.inf) for x in (max(squares), objective, -bound)]
    gap, mu = objective / bound - 1, math.nextafter(math.sqrt(up[0]), math.inf)
    print(f"proved in integers: every budget is kept; mu <= {mu} for a change of 1")
    print(
        f"objective <= {up[1]}, all other noise >= {-up[2]}, gap <= {float(gap) * (1 + 1e-9):.3e}"
    )
    print(f"taken from the file: {', '.join(alone) or 'nothing'}; not checked: epsilon, provenance")


if __name__ == "__main__":
    try:
        check(*sys.argv[1:])
    except np.linalg.LinAlgError as error:
        require(False, f"a matrix is not proved positive definite: {error}")
    except Exception as error:
        require(False, f"it cannot be read, {type(error).__name__}: {error}".splitlines()[0], 2)
