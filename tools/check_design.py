"""Prove what a design file claims, in integers: ``python check_design.py DESIGN.npz``

It needs numpy, ``integers.py`` beside it, which says how proofs are made of guesses, and nothing of
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
from integers import BITS, Exact, inverse, lower, require

ROOM = Fraction(1, 10**10)  # relative: what a claim, of float64, may differ by from what is proved
ALIKE = 1e-12  # relative: what entries of W, H and C^-1 may differ by from those of the problem
MOST = 20_000  # patterns that are listed: some seconds
OTHER = ("random", "observers", "coalitions", "account", "mixing_rate", "fixed_lower_bound")
OTHER += ("confidence", "uncertainty")
KINDS = ("dense", "banded", "kronecker", "full", "local", "space", "time", "space-time")
MORE = ("nonnegative", "bands")  # of structures, looked at by noise_of
ONCE = {"epochs": 1, "separation": 1, "max_participations": None, "horizon": None}
fractions = np.frompyfunc(Fraction, 1, 1)


def multipliers(arrays, size, known):
    """B, of roots B_j of the blocks, and <B B^T, X> <= sum_j budget_j max diag(B_j B_j^T)."""
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


def noise_of(said, arrays):
    """(C^T C)^-1, or its product with R; squared sensitivities; L of H; patterns and budgets."""
    entry, T, structure = said["participation"], said["horizon"], said["structure"] or {}
    space, joint = said["design"] != "time", structure.get("joint") or said["design"]
    bands, r = arrays.get("strategy_bands"), arrays.get("covariance")
    if bands is not None:
        arrays["strategy"] = sum(np.diag(x[: T - i], -i) for i, x in enumerate(bands))
        arrays["noising_matrix"] = np.tril(np.linalg.inv(arrays["strategy"]))
    c, d = arrays["strategy"], arrays["noising_matrix"]
    n, w = len(arrays["mixing"]) if space else 1, arrays.get("mixing")
    every = patterns_of(entry | {"separation": n * entry["separation"]})
    size, patterns = (n * T, every) if r is None else (T, patterns_of(entry))
    fit = c.shape == (size, size) and set().union(*every) == {*range(n * T)}
    fit = fit and joint in (("time", "full") if r is None else ("space", "kronecker"))
    told = structure.get("time") == "banded", structure.get("bands")
    fit = fit and told == (bands is not None, None if bands is None else len(bands))
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


def banded(c, factor, bands, known):
    """B, and a price of <B B^T, X> for X of few diagonals, where B B^T is below a diagonal one."""
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


def patterns_of(entry):
    """The patterns of steps, of which number j has budget number j."""
    b, k, most, T = (entry[x] for x in ("separation", "epochs", "max_participations", "horizon"))
    found, last = [tuple(range(j, k * b, b)) for j in range(b)] if k else [], [()]
    for _ in range(most or 0):
        last = [(*x, s) for x in last for s in range(x[-1] + b if x else 0, T)]
        found += last
        require(len(found) < MOST, "participation in so many patterns", 2)
    return found


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
    if of := {"single": "separation", "every-step": "epochs"}.get(given.pop("kind", "")):
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
        same(name, value, ({tau: 1.0} | arrays).get(name, "none"))
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
    content = Path(path).read_bytes()
    seal = b"noisedesign-sha256:" + hashlib.sha256(content[:-64]).hexdigest().encode()
    require(content.endswith(seal), "the seal is broken")
    with np.load(path, allow_pickle=False) as file:
        said = json.loads(file["manifest.json"])
        require(said["format"] == "noisedesign-design", "a file of another format", 2)
        arrays = {name: file[name] for name in said["arrays"]}
    for name, a in arrays.items():
        least = 0 if name.endswith(("budget", "_variance")) else -math.inf
        plain = a.dtype == "<f8" and a.flags.c_contiguous and ((least < a) & (a < math.inf)).all()
        require(plain, f"{name}: not finite numbers of float64, by rows, and above 0 for limits")
    words = (said["structure"] or {}) | {"trust": said["trust"], "design": (kind := said["design"])}
    unlike = {"space": (), "time": ("min_variance",)}.get(kind, ("max_variance", "min_variance"))
    other = [x for x in OTHER if said.get(x)] + [x for x in ("schedule", *unlike) if x in arrays]
    other += [f"{k} {x}" for k, x in words.items() if x and x not in KINDS and k not in MORE]
    plain = not (said["error"] or said["rounds"] > 1)
    other += ["error"] * ("worst" in str(said["error"]) if kind == "time" else not plain)
    require(not other, f"{', '.join(other)}: not checked by this program", 2)
    if "strategy_bands" in arrays and said["workload"] == "prefix":
        ones = np.tri(said["horizon"])
        arrays = {"gram": ones.T @ ones, "workload_factor": ones} | arrays
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
    duals, of = [multipliers(arrays, len(noise.m), known)] * 2, ""
    if "dual_shares" in arrays:
        duals[0] = banded(arrays["strategy"], factor, len(arrays["strategy_bands"]), known)
        of = " of as many diagonals"
    bounds = [lower(factor, *prices, *dual) + gain for dual in duals]
    claims = said["lower_bound"], said["unrestricted_lower_bound"] or min(bounds)
    for claim, bound in zip(claims, bounds, strict=True):
        require(0 < claim <= bound * (1 + ROOM), f"lower bound {claim}: {float(bound)} is proved")
    require(said["feasible"] is said["sensitivity"]["squared"] is True, "it says: not feasible")
    require(0 <= said["gap"] == said["objective"] / said["lower_bound"] - 1, "the gap is another")
    proved = math.sqrt(max(squares) * (1 + 2.0**-50)), high, -bounds[0], high / bounds[0] - 1
    mu, high, low, gap = (math.nextafter(float(x), math.inf) for x in proved)
    print(f"proved in integers: every budget is kept; mu <= {mu} for a change of 1")
    print(f"objective <= {high}, that of all other noise{of} >= {-low}, gap <= {gap}")
    print(f"taken from the file: {', '.join(alone) or 'nothing'}; not checked: epsilon, provenance")


if __name__ == "__main__":
    try:
        check(*sys.argv[1:])
    except Exception as error:
        words = f"it is not read, does not fit, or something is missing: {error!r}"
        require(False, words, 1 if isinstance(error, np.linalg.LinAlgError) else 2)
