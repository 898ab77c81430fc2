"""Prove what a design file claims, in integers: ``python check_design.py DESIGN.npz``

Floats are integers times powers of two, and so are their sums and products: nothing is rounded.
Floating point only guesses M, near the inverse of a Cholesky factor, a factor B of multipliers, and
Z, near a polar factor. Whatever these are, with F = I - M K M^T, f the largest row sum of |F|,

    f < 1  =>  K > 0,  K^-1  <=  M^T ((1 + f^2 / (1 - f)) I + F) M,
    <L B, Z>^2  <=  (largest row sum of |Z Z^T|)  tr(L X^-1 L^T)  tr(B^T X B),

and tr(B^T X B) is at most a price for every X within the budgets. It needs numpy, and nothing of
noisedesign. Exit code 0: all is proved; 1: a claim is not; 2: not read, or of another kind.
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
BITS = 62  # of a guess: more make proofs closer and slower
OTHER = ("random", "observers", "coalitions", "account", "mixing_rate", "fixed_lower_bound")
OTHER += ("confidence", "uncertainty")
KINDS = ("dense", "kronecker", "full", "local", "space", "time", "space-time")
ONCE = {"epochs": 1, "separation": 1, "max_participations": None, "horizon": None}
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


def multipliers(arrays, size, known):
    """B, of columns B_j about a root of the block of every pattern, each with a budget, and
    sum_j budget_j max diag(B_j B_j^T), which <B B^T, X> does not exceed."""
    patterns, blocks = [*known], arrays.get("dual_blocks", arrays.get("unrestricted_blocks"))
    if (roots := arrays.get("dual_roots")) is not None:  # of one node after the other
        blocks = np.concatenate((roots @ roots.swapaxes(2, 3)).swapaxes(0, 1))
    elif "dual_weights" in arrays:
        blocks = np.concatenate(blocks[:, None] * arrays["dual_weights"][:, None, None])
    elif blocks is None:
        lengths = arrays["pattern_lengths"].astype(int)
        steps = np.split(arrays["pattern_steps"].astype(int), np.cumsum(lengths)[:-1])
        flat = np.split(arrays["pattern_blocks"], np.cumsum(lengths**2)[:-1])
        blocks = [block.reshape(k, k) for block, k in zip(flat, lengths, strict=True)]
        patterns = [tuple(where.tolist()) for where in steps]
        require(set(patterns) <= set(known), "pattern_steps are of no pattern")
    columns = [np.zeros((size, len(where))) for where in patterns]
    for column, where, block in zip(columns, patterns, blocks, strict=True):
        values, vectors = np.linalg.eigh((block + block.T) / 2)
        column[list(where)] = vectors * np.sqrt(np.maximum(values, 0))
    b = Exact.of(np.hstack(columns), BITS)
    parts = np.split(b.m, np.cumsum([len(where) for where in patterns])[:-1], axis=1)
    price = sum((a * a).sum(axis=1).max() * known[x] for a, x in zip(parts, patterns, strict=True))
    return b, price * b.unit**2


def lower(factor, cap, floor, b, price):
    """A lower bound on <L^T L + diag(w) - diag(u), X^-1> where <B B^T, X> <= price."""
    if cap.any() or floor.any():
        h = factor.turned() @ factor - Exact.of(np.diag(floor)) - Exact.of(np.diag(-cap))
        lowered = h.floats() * (1 - 2.0**-44 * len(cap) * np.eye(len(cap)))
        factor = Exact.of(np.linalg.cholesky(lowered).T, BITS)
        left = (h - factor.turned() @ factor).m
        require((2 * np.diag(left) >= abs(left).sum(axis=1)).all(), "H - dual_floor is indefinite")
    a = factor @ b
    left, _, right = np.linalg.svd(a.floats(), full_matrices=False)
    z = Exact.of(left @ right, BITS)
    square = z @ z.turned() if len(z.m) <= len(z.m.T) else z.turned() @ z
    above = abs(square.m).sum(axis=1).max() * square.unit * price
    return ((a.m * z.m).sum() * a.unit * z.unit) ** 2 / above if above else Fraction(0)


def noise_of(said, arrays):
    """(C^T C)^-1, or its product with R; squared sensitivities; L of H; patterns and budgets."""
    entry, T, structure = said["participation"], said["horizon"], said["structure"] or {}
    space, joint = said["design"] != "time", structure.get("joint") or said["design"]
    c, d, r = arrays["strategy"], arrays["noising_matrix"], arrays.get("covariance")
    n, w = len(arrays["mixing"]) if space else 1, arrays.get("mixing")
    every = patterns_of(entry | {"separation": n * entry["separation"]})
    size, patterns = (n * T, every) if r is None else (T, patterns_of(entry))
    fit = c.shape == (size, size) and set().union(*every) == {*range(n * T)}
    fit = fit and joint in (("time", "full") if r is None else ("space", "kronecker"))
    require(fit, f"C, R, the participation or the structure do not fit {n} nodes and {T} steps")
    require(not structure.get("nonnegative") or (c >= 0).all(), "C has a negative entry")
    require(not np.triu(c, 1).any() and not np.triu(d, 1).any(), "C or C^-1 is not causal")
    near = np.abs(c @ d - np.eye(size)).max() <= ALIKE * (np.abs(c) @ np.abs(d)).max()
    require(near, "noising_matrix is not C^-1")
    x, m = Exact.of(c).turned() @ Exact.of(c), Exact.of(np.linalg.inv(c).T, BITS)
    noise = m.turned() @ inverse(x, m, "C^T C")
    squares = np.array([abs(x.m[np.ix_(steps, steps)]).sum() * x.unit for steps in patterns])
    if r is not None:
        r, m = Exact.of(r), Exact.of(np.linalg.inv(np.linalg.cholesky(r)), BITS)
        q = inverse(r, m, "R")
        squares = np.outer(squares, (m.m * q.m).sum(axis=0) * m.unit * q.unit).ravel()
        noise = Exact(np.kron(noise.m, r.m), noise.e + r.e)
    if space:
        powers = [0 * w] * T + [np.linalg.matrix_power(w, t + 1) for t in range(T)]
        factor = Exact.of(np.block([[powers[T + t - s] for s in range(T)] for t in range(T)]))
        tau = np.tile(arrays["budget"], entry["separation"])
    else:
        factor, h = Exact.of(arrays["workload_factor"]), arrays["gram"]
        off = np.abs((factor.turned() @ factor - Exact.of(h)).floats()).max()
        require(off <= T * ALIKE * np.abs(h).max(), "workload_factor is of another H")
        tau = arrays.get("pattern_budget", np.ones(len(every)))
    return noise, squares, factor, dict(zip(every, fractions(tau), strict=True))


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
    i, j = np.indices(w.shape)
    known = {"path": abs(i - j) == 1, "star": np.minimum(i, j) == 0, "complete": i != j}
    known["ring"] = np.isin(abs(i - j), (1, len(w) - 1))
    linked = known.get(graph["kind"], w != 0) & (i != j)
    alone += ["links of W"] * (graph["kind"] not in known)
    degrees, weights = linked.sum(axis=1), graph.get("weights", "metropolis-hastings")
    larger = np.maximum.outer(degrees, degrees)
    shares = {"metropolis-hastings": larger, "lazy-metropolis-hastings": 1 + 2 * larger}
    shares |= {"row-normalized": degrees[:, None], "max-degree": degrees.max()}
    if weights not in shares or {"directed", "file"} & set(graph):
        return alone.append("the weights of W") or w
    found = np.where(linked, 1 / (1 + shares[weights]), 0)
    return found + np.diag(1 - found.sum(axis=1))


def told(said, arrays):
    """Compare a file with the text of its problem; return what of the problem is not compared."""
    problem, entry = tomllib.loads(said["problem"]["text"]), said["participation"] or {}
    alone = [x for x in ("error", "mixing") if x in problem]

    def same(what, asked, found):
        alike = np.shape(asked) in ((), np.shape(found)) and np.all(asked == found)
        require(alike, f"{what} is not what the text asks for")

    given = dict(problem.get("participation", {}))
    if (kind := given.pop("kind", "")) in ("single", "every-step"):
        of = "epochs" if kind == "every-step" else "separation"
        given = {"epochs": 1, "separation": 1} | {of: given["horizon"]}
    same("error", "error" in problem, bool(said["error"]))
    same("participation", given, {key: x for key, x in entry.items() if x is not None})
    asked = {"design": problem["design"], "workload": problem.get("workload", {}).get("kind")}
    claimed = said | (said["privacy"] or {}) | {"structure": None} | (said["structure"] or {})
    for key, value in (asked | problem.get("privacy", {}) | problem.get("structure", {})).items():
        same(key, value, claimed.get(key))
    tau = "pattern_budget" if said["design"] == "time" else "budget"
    asked = {tau: problem.get("budget", {}).get("tau", 1.0)} | problem.get("limits", {})
    for name, value in asked.items():
        same(name, value, arrays.get(name, 1.0 if name == tau else "none"))
    alone += {"max_variance", "min_variance"} & set(arrays) - set(asked)
    w = arrays.get("mixing", np.ones((1, 1)))  # of prefix sums
    if "mixing" in arrays:
        same("nodes", problem["graph"].get("nodes", len(w)), len(w))
        same("mixing", True, np.abs(mixing_of(problem["graph"], w, alone) - w).max() < ALIKE)
    formed = said["workload"] != "gram" and not said["error"] and said["rounds"] == 1
    if said["design"] != "time" or not formed:
        return [*alone, *["H"] * (not formed)]
    h, T = arrays["gram"], said["horizon"]
    powers = np.array([np.linalg.matrix_power(w, t + 1).ravel() for t in range(T)])
    g = powers @ powers.T  # and H is the sum of tr(W^(t-s+1)^T W^(t-s'+1)) over t
    formed = sum(np.pad(g[t::-1, t::-1], (0, T - t - 1)) for t in range(T))
    same("gram", True, np.abs(formed - h).max() < T * ALIKE * h.max())
    return alone


def check(path):
    said, arrays = read(path)
    words = (said["structure"] or {}) | {"trust": said["trust"], "design": (kind := said["design"])}
    unlike = {"space": (), "time": ("min_variance",)}.get(kind, ("max_variance", "min_variance"))
    other = [x for x in OTHER if said.get(x)] + [x for x in ("schedule", *unlike) if x in arrays]
    other += [f"{k} {x}" for k, x in words.items() if x and x not in KINDS and k != "nonnegative"]
    plain = not (said["error"] or said["rounds"] > 1)
    other += ["error"] * ("worst" in str(said["error"]) if kind == "time" else not plain)
    require(not other, f"{', '.join(other)}: not checked by this program", 2)
    alone = told(said, arrays) if said["problem"]["text"] else ["the whole problem"]
    if kind == "space":
        said |= {"participation": ONCE, "horizon": 1}
        one = np.ones((1, 1, 1))
        arrays |= {"strategy": one[0], "noising_matrix": one[0], "dual_blocks": one}
    noise, squares, factor, known = noise_of(said, arrays)
    seen, variances, prices, gain = factor @ noise, np.diag(noise.m) * noise.unit, [], 0
    high = (seen.m * factor.m).sum() * seen.unit * factor.unit
    found = {"objective": high, "sensitivity": max(squares / [*known.values()])}
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
    bound = lower(factor, *prices, *multipliers(arrays, len(noise.m), known)) + gain
    claims = [said["lower_bound"], said["unrestricted_lower_bound"] or said["lower_bound"]]
    least = all(0 < claim <= bound * (1 + ROOM) for claim in claims)
    require(least, f"lower bound {max(claims)}: {float(bound)} is proved")
    require(said["feasible"] is said["sensitivity"]["squared"] is True, "it says: not feasible")
    require(0 <= said["gap"] == said["objective"] / said["lower_bound"] - 1, "the gap is another")
    proved = math.sqrt(max(squares) * (1 + 2.0**-50)), high, -bound, high / bound - 1
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
