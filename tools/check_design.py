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
from integers import BITS, Exact, guess, inverse, lower, positive, require

ROOM = Fraction(1, 10**10)  # relative: what a claim, of float64, may differ by from what is proved
ALIKE = 1e-12  # relative: what entries of W, H and C^-1 may differ by from those of the problem
MOST = 20_000  # patterns that are listed: some seconds
OTHER = ("random", "coalitions", "account", "mixing_rate", "fixed_lower_bound")
OTHER += ("confidence", "uncertainty")
SEEDS = ("edge-local", "hops", "neighbourhood", "clusters")
KINDS = ("dense", "banded", "kronecker", "full", "space", "time", "space-time", *SEEDS)
SEEDS = ("edge-local", "hops", "neighbourhood", "clusters")
MORE = ("nonnegative", "bands", "hops", "clusters")  # of structures, looked at by noise_of
PLAIN = {"of": "all-iterates", "horizon": 1, "share": 1.0, "mean": "plain"}  # an error: tr(W^T W R)
SCALES = (1.0, *(1 - 10.0**-k for k in range(10, 2, -1)))  # of multipliers that are nearly feasible
TINY = 1e-12  # relative: what a set of nodes pays for noise that W cancels
ONCE = {"epochs": 1, "separation": 1, "max_participations": None, "horizon": None}
fractions = np.frompyfunc(Fraction, 1, 1)


def multipliers(arrays, size, known):
    """B, of roots B_j of the blocks, and <B B^T, X> <= sum_j budget_j max diag(B_j B_j^T)."""
    patterns, blocks = [*known], arrays.get("dual_blocks")
    if (roots := arrays.get("dual_roots")) is not None:  # of one node after the other
        blocks = np.concatenate((roots @ roots.swapaxes(2, 3)).swapaxes(0, 1))
    elif blocks is None and "dual_weights" in arrays:  # of nodes
        blocks = arrays["dual_weights"][:, None, None]
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


def views_of(said, w):
    """Pairs of the nodes that somebody hears, and of those whose data it is to learn little of."""
    every, found = np.arange(len(w)), []
    for who in said["observers"]:
        plain = (who["model"], who["sees"]) == ("pndp", "received")
        plain = plain and {*who["holders"], *who["values"]} <= {*who["coalition"]}
        require(plain, "observers who are not nodes", 2)
        inside = np.isin(every, who["coalition"])
        heard = inside | (w[inside] != 0).any(axis=0)
        found += [(every[heard], every[heard & ~inside])] * int((heard & ~inside).any())
    return [(every, every[:0]), *found] if found else [(every, every)]


def sets_of(structure, w):
    """The sets of nodes that may share a seed, none within another; all nodes share otherwise."""
    linked = near = (w != 0) | (w.T != 0) | np.eye(len(w), dtype=bool)
    for _ in range(min(structure.get("hops") or 1, len(w)) - 1):
        near = near @ linked
    labels = np.array(structure.get("clusters") or 0)
    alike = {"neighbourhood": linked, "clusters": np.equal.outer(labels, labels)}
    alike = alike.get(structure.get("space"), np.ones((1, len(w))))
    pairs = structure.get("space") in ("edge-local", "hops")
    found = np.argwhere(near).tolist() if pairs else [np.flatnonzero(x).tolist() for x in alike]
    found = {*map(frozenset, found)}
    return sorted(sorted(x) for x in found if not any(x < y for y in found))


def of_seeds(blocks, r, sets):
    """R, the sum of blocks P_c >= 0 of the sets."""
    flat, total = Exact.of(blocks), np.zeros(r.shape, dtype=int).astype(object)
    for c, p in zip(
        sets, np.split(flat.m, np.cumsum([len(c) ** 2 for c in sets])[:-1]), strict=True
    ):
        p = p.reshape(len(c), len(c))
        positive(Exact(p + p.T, flat.e - 1), "a block of a seed")
        total[np.ix_(c, c)] += p + p.T
    total = Exact(total, flat.e - 1)
    require(np.abs(total.floats() - r).max() <= ALIKE * np.abs(r).max(), "R is not of its blocks")
    return total


def noise_of(said, arrays, views, sets):
    """(C^T C)^-1, or its product with R; squared sensitivities and budgets; L of H; patterns."""
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
        blocks, precisions = arrays.get("clique_blocks"), []
        r = Exact.of(r) if structure.get("space") not in SEEDS else of_seeds(blocks, r, sets)
        for heard, seen in views:
            m = guess(k := r.at(heard, heard))
            q = inverse(k, m, "R")
            found = (m.m * q.m).sum(axis=0) * m.unit * q.unit
            precisions += [*found[np.isin(heard, seen)]]
        squares = np.outer(squares, precisions).ravel()
        noise = Exact(np.kron(noise.m, r.m), noise.e + r.e)
    if space:
        powers = [0 * w] * T + [np.linalg.matrix_power(w, t + 1) for t in range(T)]
        factor = Exact.of(np.block([[powers[T + t - s] for s in range(T)] for t in range(T)]))
        tau = np.concatenate([arrays["budget"][seen] for _, seen in views])
        tau = np.tile(tau, entry["separation"])
    else:
        factor, h = Exact.of(arrays["workload_factor"]), arrays["gram"]
        off = np.abs((factor.turned() @ factor - Exact.of(h)).floats()).max()
        require(off <= T * ALIKE * np.abs(h).max(), "workload_factor is of another H")
        tau = arrays.get("pattern_budget", np.ones(len(every)))
    require(len(squares) == len(tau), "budgets do not fit")
    return noise, squares, fractions(tau), factor, every


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


def shared(dual, arrays, factor, views, sets):
    """A lower bound on tr(H R) + <w, R> and w, where sum_o L_o^T L_o <= H + diag(w) on every set:
    (tr(L_o R L_o^T) of what is heard) (b_o^T diag(R^-1) b_o of that) >= <L_o diag(b_o), Z>^2."""
    square, tau = factor.turned() @ factor, arrays["budget"]
    h, n, w, cap = square.floats(), len(tau), 0 * tau, arrays.get("max_variance")
    if views[1:]:  # stored in units of 1 / tau, and of the error of such noise
        views, unit = views[1:], (np.diag(square.floats()) / tau).sum() * tau
        ends = np.cumsum(dual["observer_ranks"][:-1].astype(int))
        factors = np.split(dual["observer_factors"].reshape(-1, n) * np.sqrt(unit), ends)
        ends = np.cumsum([len(seen) for _, seen in views])[:-1]
        weights = np.split(dual["observer_weights"], ends)
        weights = [v / tau[seen] for v, (_, seen) in zip(weights, views, strict=True)]
        w = unit * dual["dual_cap"]
    else:
        factors, weights, w = [*dual["dual_factors"]], dual["dual_prices"], dual.get("dual_cap", w)
    w, gain, parts, rows = np.maximum(w, 0), 0, [], 0
    for (heard, seen), v, f in zip(views, weights, factors, strict=True):
        f *= np.isin(np.arange(n), heard)
        b = np.zeros(n)
        b[seen] = np.sqrt(np.maximum(v, 0))
        gain += np.linalg.svd(f * b, compute_uv=False).sum() ** 2 / max(b**2 @ tau, TINY**9)
        parts += [(range(rows, rows := rows + len(f)), heard, Exact.of(b[heard]))]
    used, size = sum(f.T @ f for f in factors), 1 if cap is None else np.sqrt(np.outer(cap, cap))

    def over(s):  # what the cap has to pay for, in its units
        left = (s * used - h - np.diag(w)) * size
        return max(0, *(np.linalg.eigvalsh(left[np.ix_(c, c)])[-1] for c in sets))

    ratios = [np.linalg.pinv((h + np.diag(w))[np.ix_(c, c)]) @ used[np.ix_(c, c)] for c in sets]
    s = (1 - 20 * TINY) / max(np.linalg.eigvals(x).real.max() for x in ratios)
    if cap is not None:
        s = max(s, *SCALES, key=lambda s: s * gain - n * over(s))
        w = w + (over(s) + 2.0**-50 * n * np.abs(h * size).max()) / cap
    factor = Exact.of(np.sqrt(s) * np.vstack(factors), BITS)
    left = square - factor.turned() @ factor - Exact.of(np.diag(-w))
    for c in sets:
        positive(left.at(c, c), "H + dual_cap - dual_factors")
    bound = 0
    for own, heard, b in parts:
        price = (b.m**2 * fractions(tau[heard])).sum() * b.unit**2
        bound += lower(Exact(factor.at(own, heard).m * b.m, factor.e + b.e), price)
    return bound, w


def bound_of(dual, arrays, factor, known, views, sets):
    """What multipliers prove of the error of all noise within budgets and limits."""
    w, u = (
        np.maximum(dual.get(f"dual_{x}", np.zeros(len(factor.m.T))), 0) for x in ("cap", "floor")
    )
    if "dual_prices" in dual or "observer_ranks" in dual:
        (bound, w), u = shared(dual, arrays, factor, views, sets), 0 * u
    else:
        if "dual_shares" in dual:
            b, price = banded(arrays["strategy"], factor, len(dual["strategy_bands"]), known)
        else:
            b, price = multipliers(dual, len(factor.m.T), known)
        if w.any() or u.any():
            h = factor.turned() @ factor - Exact.of(np.diag(u)) - Exact.of(np.diag(-w))
            lowered = h.floats() * (1 - 2.0**-44 * len(w) * np.eye(len(w)))
            factor = Exact.of(np.linalg.cholesky(lowered).T, BITS)
            positive(h - factor.turned() @ factor, "H - dual_floor")
        bound = lower(factor @ b, price)
    for prices, name in ((-w, "max"), (u, "min")):
        if prices.any():
            bound += (fractions(prices) * fractions(arrays[f"{name}_variance"])).sum()
    return bound


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
    plain = {"time": "dense", "space": "dense", "bands": None, "hops": None, "clusters": None}

    def same(what, asked, found):
        alike = np.shape(asked) in ((), np.shape(found)) and np.all(asked == found)
        require(alike, f"{what} is not what the text asks for")

    given = dict(problem.get("participation", {}))
    if of := {"single": "separation", "every-step": "epochs"}.get(given.pop("kind", "")):
        given = {"epochs": 1, "separation": 1} | {of: given["horizon"]}
    watched = problem.get("observers")
    same("error", bool({"error", "observers"} & set(problem)), bool(said["error"]))
    same("observers", watched is not None, bool(said["observers"]))
    if watched:
        nodes = watched.get("nodes", [*range(len(said["nodes"]))])
        nodes = [x if isinstance(x, list) else [x] for x in nodes]
        asked = [[said["nodes"].index(x) if isinstance(x, str) else x for x in c] for c in nodes]
        same("observers", True, asked == [x["coalition"] for x in said["observers"]])
        same("horizon", watched["horizon"], said["horizon"])
    same("participation", given, {key: x for key, x in entry.items() if x is not None})
    asked = {"design": problem["design"], "workload": problem.get("workload", {}).get("kind")}
    asked |= plain | problem.get("privacy", {}) | problem.get("structure", {})
    claimed = said | plain | (said["privacy"] or {}) | (said["structure"] or {})
    alone += ["clusters"] * isinstance(asked["clusters"], str)
    for key, value in asked.items():
        same(key, claimed[key] if key in alone else value, claimed[key])
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
    words = (said["structure"] or {}) | {"design": (kind := said["design"])}
    trust, plain = "observers" if said["observers"] else "local", not said["error"]
    words |= {"trust": said["trust"]} if said["trust"] != trust else {}
    unlike = {"space": (), "time": ("min_variance",)}.get(kind, ("max_variance", "min_variance"))
    other = [x for x in OTHER if said.get(x)] + [x for x in ("schedule", *unlike) if x in arrays]
    other += [f"{k} {x}" for k, x in words.items() if x and x not in KINDS and k not in MORE]
    if said["observers"]:
        plain = {k: x for k, x in said["error"].items() if x} == PLAIN and said["horizon"] == 1
    other += ["error"] * (
        "worst" in str(said["error"]) if kind == "time" else not plain or said["rounds"] > 1
    )
    require(not other, f"{', '.join(other)}: not checked by this program", 2)
    if "strategy_bands" in arrays and said["workload"] == "prefix":
        ones = np.tri(said["horizon"])
        arrays = {"gram": ones.T @ ones, "workload_factor": ones} | arrays
    alone = told(said, arrays) if said["problem"]["text"] else ["the whole problem"]
    if kind == "space":
        said |= {"participation": ONCE, "horizon": 1}
        one = np.ones((1, 1, 1))
        arrays |= {"strategy": one[0], "noising_matrix": one[0]}
    w = arrays.get("mixing", np.ones((1, 1)))
    views, sets = views_of(said, w), sets_of(said["structure"] or {}, w)
    noise, squares, limits, factor, every = noise_of(said, arrays, views, sets)
    known = dict(zip(every, limits, strict=not views[1:]))
    seen, variances = factor @ noise, np.diag(noise.m) * noise.unit
    high = (seen.m * factor.m).sum() * seen.unit * factor.unit
    found = {"objective": high, "sensitivity": max(squares / limits)}
    for name, key in (("max", "variance_ratio"), ("min", "floor_ratio")):
        if f"{name}_variance" in arrays:
            limit = fractions(arrays[f"{name}_variance"])
            found[key] = max(variances / limit if name == "max" else limit / variances)
        require(key in found or said[key] is None, f"{key} is claimed of no limit")
    for key, value in found.items():
        claim = said[key]["value"] if key == "sensitivity" else said[key]
        require(key == "objective" or value <= 1, f"{key} {float(value)}: above 1")
        close = abs(Fraction(claim) - value) <= ROOM * value
        require(close, f"{key}: {claim} is claimed, {float(value)} is proved")
    wider = {
        k.replace("unrestricted", "dual"): x for k, x in arrays.items() if k[:2] == "un"
    } or arrays
    own = arrays if any(k.startswith(("dual_", "observer_", "pattern_")) for k in arrays) else wider
    bounds = [bound_of(x, arrays, factor, known, views, sets) for x in (own, wider)]
    claims = said["lower_bound"], said["unrestricted_lower_bound"] or min(bounds)
    for claim, bound in zip(claims, bounds, strict=True):
        require(0 < claim <= bound * (1 + ROOM), f"lower bound {claim}: {float(bound)} is proved")
    require(said["feasible"] is said["sensitivity"]["squared"] is True, "it says: not feasible")
    require(0 <= said["gap"] == said["objective"] / said["lower_bound"] - 1, "the gap is another")
    of = {"dual_shares": " of as many diagonals", "dual_prices": " of such seeds"}
    of = "".join(words for key, words in of.items() if key in arrays)
    before = " before these observers, in one step" * bool(views[1:])
    proved = math.sqrt(max(squares) * (1 + 2.0**-50)), high, -bounds[0], high / bounds[0] - 1
    mu, high, low, gap = (math.nextafter(float(x), math.inf) for x in proved)
    print(f"proved in integers: every budget is kept{before}; mu <= {mu} for a change of 1")
    print(f"objective <= {high}, that of all other noise{of} >= {-low}, gap <= {gap}")
    print(f"taken from the file: {', '.join(alone) or 'nothing'}; not checked: epsilon, provenance")


if __name__ == "__main__":
    try:
        check(*sys.argv[1:])
    except Exception as error:
        words = f"it is not read, does not fit, or something is missing: {error!r}"
        require(False, words, 1 if isinstance(error, np.linalg.LinAlgError) else 2)
