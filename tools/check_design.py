"""Prove what a design file claims, in integers: check_design.py DESIGN.npz [PROBLEM.toml]

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
import itertools
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
SHAPES = {
    "covariance": "nn",
    "mixing": "nn",
    "budget": "n",
    "dual_weights": "n",
    "min_variance": "n",
}
SHAPES |= {"strategy": "TT", "noising_matrix": "TT", "gram": "TT", "dual_floor": "n"}
OTHER = ("random", "observers", "coalitions", "account", "mixing_rate")
LIMITS = (
    ("max_variance", "variance_ratio", "dual_cap"),
    ("min_variance", "floor_ratio", "dual_floor"),
)


def require(holds, words, code=1):
    if not holds:
        print(f"{'refused' if code == 1 else 'not covered'}: {words}")
        sys.exit(code)


class Exact:
    """A matrix: integers, in an array of Python's own, times 2^e."""

    def __init__(self, m, e=0):
        self.m, self.e, self.unit = m, e, Fraction(2) ** e

    @classmethod
    def of(cls, a):
        """The floats of an array, exactly."""
        require(np.isfinite(a).all(), "floating point finds no numbers for a proof")
        mantissas, powers = np.frexp(a)
        e = int(powers[a != 0].min(initial=0))
        mantissas = np.ldexp(mantissas, 53).astype(np.int64).astype(object)
        return cls(mantissas << np.maximum(powers - e, 0).astype(object), e - 53)

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

    @property
    def T(self):
        return Exact(self.m.T, self.e)

    def floats(self):
        return (self.m * (1 << max(self.e, 0)) / (1 << max(-self.e, 0))).astype(float)

    def norm(self):
        """The largest row sum of absolute values."""
        return abs(self.m).sum(axis=1).max() * self.unit


def inner(a, b):
    return (a.m * b.m).sum() * a.unit * b.unit


def fractions(a):
    return np.array([Fraction(x) for x in a.tolist()], object)


def guess(a):
    """The floats of an array to 62 bits of the largest, where smaller ones do not matter."""
    e = int(np.frexp(np.abs(a).max(initial=0))[1]) - 62
    return Exact.of(np.ldexp(np.rint(np.ldexp(a, -e)), e))


class Inverse:
    """Upper bounds on K^-1, of a symmetric K that is proved positive definite by M."""

    def __init__(self, k, m, what):
        require((k.m == k.m.T).all(), f"{what} is not symmetric")
        self.left = Exact(np.eye(len(k.m), dtype=int).astype(object)) - m @ k @ m.T
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
    b = guess(np.hstack(columns))
    parts = np.split(b.m, np.cumsum([len(group) for group in groups])[:-1], axis=1)
    largest = [(part * part).sum(axis=1).max() for part in parts]
    return b, sum(x * tau for x, tau in zip(largest, budgets, strict=True)) * b.unit**2


def lower(factor, b, price):
    """A lower bound on tr(L X^-1 L^T), where <B B^T, X> is at most the price."""
    require(price > 0, "the multipliers are zero")
    a = factor @ b
    left, _, right = np.linalg.svd(a.floats(), full_matrices=False)
    z = guess(left @ right)
    square = z @ z.T if len(z.m) <= len(z.m.T) else z.T @ z
    return inner(a, z) ** 2 / square.norm() / price


def limited(factor, cap, floor):
    """G with G^T G <= L^T L + diag(c)^2 - diag(u): what is left is diagonally dominant."""
    e = min(factor.e, cap.e)
    stacked = Exact(np.vstack([factor.m << factor.e - e, cap.m << cap.e - e]), e)
    if not floor.m.any():
        return stacked if cap.m.any() else factor
    h = stacked.T @ stacked - floor
    lowered = h.floats() - 2.0**-44 * len(h.m) * np.diag(np.diag(h.floats()))
    g = guess(np.linalg.cholesky(lowered))
    left = (h - g @ g.T).m
    require((2 * np.diag(left) >= abs(left).sum(axis=1)).all(), "H less dual_floor is not above 0")
    return g.T


def in_space(said, arrays):
    """Noise of covariance R: tr(H R), squared sensitivities, budgets, variances; L, B, price."""
    require(not said["error"] and said["rounds"] == 1, "an error of several steps or rounds", 2)
    r, w, tau = Exact.of(arrays["covariance"]), Exact.of(arrays["mixing"]), arrays["budget"]
    m = guess(np.linalg.inv(np.linalg.cholesky(arrays["covariance"])))
    squares, tau, blocks = Inverse(r, m, "R").along(m), fractions(tau), arrays["dual_weights"]
    b, price = multipliers(len(tau), [(i,) for i in range(len(tau))], blocks[:, None, None], tau)
    return inner(w @ r, w), squares, tau, np.diag(r.m) * r.unit, w, b, price


def in_time(said, arrays):
    """Noise C^-1 z across steps: tr(H X^-1), X = C^T C, and the same."""
    c, d, h = (arrays[name] for name in ("strategy", "noising_matrix", "gram"))
    require(not np.triu(c, 1).any() and not np.triu(d, 1).any(), "C or C^-1 is not causal")
    off = np.abs(c @ d - np.eye(len(c))).max() / (np.abs(c) @ np.abs(d)).max()
    require(off < ALIKE, "noising_matrix is not C^-1")
    factor, x = Exact.of(arrays["workload_factor"]), Exact.of(c).T @ Exact.of(c)
    away = np.abs((factor.T @ factor - Exact.of(h)).floats()).max()
    require(away <= len(h) * ALIKE * np.abs(h).max(), "workload_factor is of another H")
    m = guess(np.linalg.inv(c).T)
    inverse, patterns = Inverse(x, m, "C^T C"), patterns_of(said["participation"])
    squares = np.array([abs(x.m[np.ix_(where, where)]).sum() * x.unit for where in patterns])
    tau = fractions(arrays.get("pattern_budget", np.ones(len(patterns))))
    paying, blocks, prices = patterns, arrays.get("dual_blocks"), tau
    if blocks is None:
        lengths = arrays["pattern_lengths"].astype(int)
        steps = np.split(arrays["pattern_steps"].astype(int), np.cumsum(lengths)[:-1])
        flat = np.split(arrays["pattern_blocks"], np.cumsum(lengths**2)[:-1])
        blocks = [block.reshape(k, k) for block, k in zip(flat, lengths, strict=True)]
        paying, prices = [tuple(where.tolist()) for where in steps], [1] * len(steps)
        require(set(paying) <= set(patterns), "pattern_steps are of no pattern")
    b, price = multipliers(len(c), paying, blocks, prices)
    return inverse.along(m @ factor.T).sum(), squares, tau, inverse.along(m), factor, b, price


def patterns_of(entry):
    """The patterns of steps, of which number j has budget number j."""
    b, k, most, T = (entry[x] for x in ("separation", "epochs", "max_participations", "horizon"))
    if k:
        return [tuple(range(j, k * b, b)) for j in range(b)]
    found, last = [], [()]
    for _ in range(most):
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
        whole = sum(x.file_size for x in infos) < len(content)
        require(whole and len({x.filename for x in infos}) == len(infos), "members occur twice")
        members = {x.filename: archive.read(x.filename) for x in infos}
    said = json.loads(members.pop("manifest.json"))
    require(said["format"] == "noisedesign-design", "a file of another format", 2)
    require(
        {f"{x}.npy" for x in said["arrays"]} == set(members), "members are not the arrays told of"
    )
    for name, entry in said["arrays"].items():
        stream = io.BytesIO(members[f"{name}.npy"])
        a = arrays[name] = np.load(stream, allow_pickle=False)
        plain = a.dtype == "<f8" and a.flags.c_contiguous and not stream.read()
        require(plain and np.isfinite(a).all(), f"{name}: not finite float64 numbers, by rows")
        require(hashlib.sha256(a.data).hexdigest() == entry["sha256"], f"{name}: another digest")
        shape = [{"n": len(said["nodes"]), "T": said["horizon"]}[x] for x in SHAPES.get(name, "")]
        require(name not in SHAPES or list(a.shape) == shape, f"{name}: shape {a.shape}")
    return said, arrays


def mixing_of(graph, w, alone):
    """W of a graph that is told by its kind, or else of the links of the W in the file."""
    n, weights = len(w), graph.get("weights", "metropolis-hastings")
    far = np.abs(np.subtract.outer(np.arange(n), np.arange(n)))
    linked = {"path": far == 1, "ring": (far == 1) | (far == n - 1), "complete": far > 0}
    if not set(graph) <= {"kind", "nodes", "weights"} or graph["kind"] not in linked:
        alone.append("the links of W")
    linked = linked.get(graph["kind"], w != 0) & (far > 0)
    degrees = linked.sum(axis=1)
    larger = np.maximum.outer(degrees, degrees)
    shares = {"metropolis-hastings": larger, "lazy-metropolis-hastings": 1 + 2 * larger}
    shares |= {"row-normalized": degrees[:, None], "max-degree": degrees.max()}
    if weights not in shares:
        return alone.append("the weights of W") or w
    found = np.where(linked, 1 / (1 + shares[weights]), 0)
    return found + np.diag(1 - found.sum(axis=1))


def workload_of(kind, w, T):
    """H of prefix sums, or of all iterates, the sum of tr(W^(t-s+1)^T W^(t-s'+1)), about."""
    powers = np.ones((T, 1)) if kind == "prefix" else np.empty((T, w.size))
    for t in range(T if kind != "prefix" else 0):
        powers[t] = np.linalg.matrix_power(w, t + 1).ravel()
    products, h = powers @ powers.T, np.zeros((T, T))
    for t in range(T):
        h[: t + 1, : t + 1] += products[t::-1, t::-1]
    return h


def told(said, arrays, text):
    """Compare a file with the text of its problem; return what of the problem is not compared."""
    problem, entry, w = tomllib.loads(text), said["participation"] or {}, arrays.get("mixing")
    alone = [x for x in ("error", "mixing") if x in problem]

    def same(what, asked, found, room=0):
        shapes = np.shape(asked) in ((), np.shape(found))
        close = shapes and (asked == found if room == 0 else np.abs(asked - found).max() <= room)
        require(np.all(close), f"{what} is not what the text asks for")

    given = dict(problem.get("participation", {}))
    if given.pop("kind", "") in ("single", "every-step"):
        T, few = given.pop("horizon"), problem["participation"]["kind"] == "single"
        given = {"epochs": 1 if few else T, "separation": T if few else 1}
    same("participation", given, {key: x for key, x in entry.items() if x is not None})
    same("design", problem["design"], said["design"])
    for key, asked in problem.get("privacy", {}).items():
        same(f"privacy.{key}", asked, said["privacy"][key])
    tau = "budget" if said["design"] == "space" else "pattern_budget"
    same("tau", problem.get("budget", {}).get("tau", 1.0), arrays.get(tau, 1.0))
    for name, *_ in LIMITS:
        asked = problem.get("limits", {}).get(name)
        if asked is None and name in arrays or isinstance(asked, str):
            alone.append(name)
        elif asked is not None:
            same(name, asked, arrays[name])
    if w is not None:
        same("mixing", mixing_of(problem["graph"], w, alone), w, ALIKE)
    if said["design"] == "time":
        kind, h = problem["workload"]["kind"], arrays["gram"]
        same("workload", kind, said["workload"])
        if kind == "gram" or said["error"]:
            return [*alone, "H"]
        same("gram", workload_of(kind, w, len(h)), h, len(h) * ALIKE * np.abs(h).max())
    return alone


def check(path, problem=None):
    said, arrays = read(path)
    own = said["problem"]["text"]
    text = Path(problem).read_text(encoding="utf-8") if problem else own
    require(own in ("", text), "the text in the file is not that of the problem")
    parts = [x for x in (said["structure"] or {}).values() if isinstance(x, str) and x != "dense"]
    other = [x for x in OTHER if said[x]] + (parts or ["structure"] * bool(said["structure"]))
    other += [said["trust"]] * (said["trust"] != "local") + ["schedule"] * ("schedule" in arrays)
    other += ["the worst of several errors"] * ("worst" in json.dumps(said["error"]))
    require(not other, f"{', '.join(other)}: not checked by this program", 2)
    alone = told(said, arrays, text) if text else ["the whole problem"]
    prove = in_space if said["design"] == "space" else in_time
    objective, squares, tau, variances, factor, b, price = prove(said, arrays)
    ratios, found, gain = squares / tau, {"objective": objective}, 0
    require(max(ratios) <= 1, "a budget is not proved to be kept")
    found["sensitivity"], added = max(ratios), []
    for name, key, multiplier in LIMITS:
        u = arrays.get(multiplier, np.zeros(len(variances)))
        require(
            (u >= 0).all() and len(u) == len(variances), f"{multiplier}: negative, or its shape"
        )
        added.append(Exact.of(np.diag(np.sqrt(u) if name == "max_variance" else u)))
        if name in arrays or u.any():
            limit, sign = fractions(arrays[name]), -1 if name == "max_variance" else 1
            found[key] = max(variances / limit if sign < 0 else limit / variances)
            require(found[key] <= 1, f"{name} is not proved to be kept")
            paid = np.diag(added[-1].m) ** (2 if sign < 0 else 1) * added[-1].unit ** (
                2 if sign < 0 else 1
            )
            gain += sign * (limit * paid).sum()
    bound = lower(limited(factor, *added), b, price) + gain
    claimed = said | {"sensitivity": said["sensitivity"]["value"]}
    for key, value in found.items():
        close = abs(Fraction(claimed[key]) - value) <= ROOM * value
        require(close, f"{key}: {claimed[key]:.17g} is claimed, {float(value):.17g} is proved")
    claim = Fraction(said["lower_bound"])
    require(0 < claim <= bound * (1 + ROOM), f"the lower bound: {float(bound):.17g} is proved")
    require(0 <= said["gap"] == said["objective"] / said["lower_bound"] - 1, "the gap is another")
    require(said["feasible"] is True, "the file says that it is not feasible")
    up, gap = lambda x: math.nextafter(float(x), math.inf), objective / bound - 1
    print(
        f"proved in integers: every budget is kept, mu <= {up(math.sqrt(up(max(squares)))):.10g} for a change of 1"
    )
    print(f"objective <= {up(objective)!r}, of all noise >= {-up(-bound)!r}, gap <= {up(gap):.3e}")
    print(f"taken from the file: {', '.join(alone) or 'nothing'}; not checked: epsilon, provenance")


def main(*arguments):
    require(1 <= len(arguments) <= 2, "give DESIGN.npz, and perhaps PROBLEM.toml", 2)
    try:
        check(*arguments)
    except np.linalg.LinAlgError as error:
        require(False, f"a matrix is not proved positive definite: {error}")
    except Exception as error:
        require(False, f"it cannot be read, {type(error).__name__}: {error}".splitlines()[0], 2)


if __name__ == "__main__":
    main(*sys.argv[1:])
