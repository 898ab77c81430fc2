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

import integers
import numpy as np
from integers import ALIKE, BITS, Exact, inverse, require

ROOM = Fraction(1, 10**10)  # relative: what a claim, of float64, may differ by from what is proved
MOST = 20_000  # patterns that are listed: some seconds
OTHER = ("random", "coalitions", "account", "mixing_rate", "fixed_lower_bound", "uncertainty")
OTHER += ("confidence",)
SEEDS = ("edge-local", "hops", "neighbourhood", "clusters")
KINDS = {"time": ("dense", "banded"), "space": ("dense", *SEEDS), "joint": ("kronecker", "full")}
KINDS |= {"nonnegative": (True,), "design": ("space", "time", "space-time")}
PLAIN = {"of": "all-iterates", "horizon": 1, "share": 1.0, "mean": "plain"}  # an error: tr(W^T W R)
ONCE = {"epochs": 1, "separation": 1, "max_participations": None, "horizon": None}
fractions = np.frompyfunc(Fraction, 1, 1)


def multipliers(arrays, size, known):
    """B, of roots of the multipliers of all patterns, and a price of <B B^T, X>."""
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
    return integers.roots(size, patterns, blocks, known)


def views_of(said, w):
    """Pairs of the nodes that somebody hears, and of those whose data it is to learn little of."""
    every, found = np.arange(len(w)), []
    for who in said["observers"]:
        told = {*who["holders"], *who["values"]} <= {*who["coalition"]}
        require(told and who["model"] == "pndp" and who["sees"] == "received", "such observers", 2)
        inside = np.isin(every, who["coalition"])
        heard = inside | (w[inside] != 0).any(axis=0)
        found += [(every[heard], every[heard & ~inside])] * int((heard > inside).any())
    return [(every, every[:0]), *found] if found else [(every, every)]


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
    told, seeds = structure.get("bands"), structure.get("space") in SEEDS
    fit = fit and told == (None if bands is None else len(bands))
    fit = fit and (structure.get("time") == "banded") == (bands is not None)
    fit = fit and (joint == "space" or not (seeds or said["observers"]))
    fit = fit and (not space or arrays["budget"].shape == (n,))
    require(fit, f"C, R, the participation or the structure do not fit {n} nodes and {T} steps")
    require(not structure.get("nonnegative") or (c >= 0).all(), "C has a negative entry")
    require(not np.triu(c, 1).any() and not np.triu(d, 1).any(), "C or C^-1 is not causal")
    near = np.abs(c @ d - np.eye(size)).max() <= ALIKE * (np.abs(c) @ np.abs(d)).max()
    require(near, "noising_matrix is not C^-1")
    x, m = Exact.of(c).turned() @ Exact.of(c), Exact.of(np.linalg.inv(c).T, BITS)
    noise = m.turned() @ inverse(x, m, "C^T C")
    squares = np.array([abs(x.m[np.ix_(steps, steps)]).sum() * x.unit for steps in patterns])
    if r is not None:
        r = integers.total(arrays["clique_blocks"], r, sets) if seeds else Exact.of(r)
        squares = np.outer(squares, integers.precisions(r, views)).ravel()
        noise = Exact(np.kron(noise.m, r.m), noise.e + r.e)
    if space:
        powers = [0 * w] * T + [np.linalg.matrix_power(w, t + 1) for t in range(T)]
        factor = Exact.of(np.block([[powers[T + t - s] for s in range(T)] for t in range(T)]))
        tau = np.concatenate([arrays["budget"][seen] for _, seen in views] * entry["separation"])
    else:
        factor, h = Exact.of(arrays["workload_factor"]), arrays["gram"]
        off = np.abs((factor.turned() @ factor - Exact.of(h)).floats()).max()
        require(off <= T * ALIKE * np.abs(h).max(), "workload_factor is of another H")
        tau = arrays.get("pattern_budget", np.ones(len(every)))
    return noise, squares, fractions(tau), factor, every


def parts_of(dual, arrays, square, views):
    """The nodes that everybody hears, L and b of multipliers; and prices of caps, as stored."""
    tau, n = arrays["budget"], len(square.m)
    weights, factors, w = (dual.get(f"dual_{x}") for x in ("prices", "factors", "cap"))
    if views[1:]:  # in units of 1 / tau, and of the error of such noise
        views, unit = views[1:], (np.diag(square.floats()) / tau).sum() * tau
        w, rows = w * unit, dual["observer_factors"].reshape(-1, n) * np.sqrt(unit)
        factors = np.split(rows, np.cumsum(dual["observer_ranks"][:-1].astype(int)))
        weights = dual["observer_weights"] / np.concatenate([tau[seen] for _, seen in views])
        weights = np.split(weights, np.cumsum([len(seen) for _, seen in views])[:-1])
    found = []
    for (heard, seen), v, f in zip(views, weights, factors, strict=True):
        b = np.zeros(n)
        b[seen] = np.sqrt(np.maximum(v, 0))
        found.append((heard, f * np.isin(np.arange(n), heard), b))
    return found, np.zeros(n) if w is None else np.maximum(w, 0)


def bound_of(dual, arrays, factor, known, views, sets):
    """The bound that multipliers prove on the error of all noise within budgets and limits."""
    nothing, bands = np.zeros(len(factor.m.T)), dual.get("strategy_bands")
    w, u = (np.maximum(dual.get(f"dual_{x}", nothing), 0) for x in ("cap", "floor"))
    if "dual_prices" in dual or views[1:]:
        square, u = factor.turned() @ factor, nothing
        parts, w = parts_of(dual, arrays, square, views)
        tau, cap = fractions(arrays["budget"]), arrays.get("max_variance")
        bound, w = integers.shared(square, parts, tau, w, cap, sets)
    else:
        if bands is None:
            b, price = multipliers(dual, len(w), known)
        else:
            b, price = integers.banded(arrays["strategy"], factor, len(bands), known)
        if w.any() or u.any():
            h = factor.turned() @ factor - Exact.of(np.diag(u)) - Exact.of(np.diag(-w))
            factor = integers.below(h, "H - dual_floor")
        bound = integers.lower(factor @ b, price)
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
    same("error", bool({"error", "observers"} & set(problem)), bool(said["error"]))
    watched, names = problem.get("observers", {}), said["nodes"]
    found = [[who["coalition"], said["horizon"]] for who in said["observers"]]
    rows = [x if isinstance(x, list) else [x] for x in watched.get("nodes", range(len(names)))]
    rows = [[x if isinstance(x, int) else names.index(x) for x in row] for row in rows]
    asked = [[row, watched["horizon"]] for row in rows] if watched else []
    same("observers", True, asked == found)
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
        near = np.abs((formed := mixing_of(problem["graph"], w, alone)) - w) < ALIKE
        same("mixing", True, (near & ((w == 0) == (formed == 0))).all())
    formed = said["workload"] != "gram" and (watched or not said["error"]) and said["rounds"] == 1
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
    structure, kind, error = said["structure"] or {}, said["design"], said["error"]
    words = structure | {"design": kind, "bands": 0, "hops": 0, "clusters": 0}
    unlike = {"space": (), "time": ("min_variance",)}.get(kind, ("max_variance", "min_variance"))
    unlike = ("schedule", "pair_factors", *unlike)
    other = [x for x in OTHER if said.get(x)] + [x for x in unlike if x in arrays]
    other += [f"{k} {x}" for k, x in words.items() if x and x not in KINDS.get(k, ())]
    other += [said["trust"]] * (said["trust"] != ("observers" if said["observers"] else "local"))
    plain = not error or (said["observers"] and {k: x for k, x in error.items() if x} == PLAIN)
    plain = "worst" not in str(error) if kind == "time" else plain and said["rounds"] == 1
    other += ["error"] * (not plain)
    require(not other, f"{', '.join(other)}: not checked by this program", 2)
    if "strategy_bands" in arrays and said["workload"] == "prefix":
        ones = np.tri(said["horizon"])
        arrays = {"gram": ones.T @ ones, "workload_factor": ones} | arrays
    alone = told(said, arrays) if said["problem"]["text"] else ["the whole problem"]
    if kind == "space":
        said |= {"participation": ONCE, "horizon": 1}
        arrays |= {"strategy": np.eye(1), "noising_matrix": np.eye(1)}
    w = arrays.get("mixing", np.ones((1, 1)))
    views, sets = views_of(said, w), integers.sets_of(structure, w)
    noise, squares, limits, factor, every = noise_of(said, arrays, views, sets)
    known = dict(zip(every, limits, strict=not views[1:]))
    seen, variances = factor @ noise, np.diag(noise.m) * noise.unit
    high = (seen.m * factor.m).sum() * seen.unit * factor.unit
    found = {"objective": high, "sensitivity": max(squares / limits)}
    for name, key, price in (("max", "variance_ratio", "cap"), ("min", "floor_ratio", "floor")):
        paid = f"{name}_variance" in arrays or views[1:] or f"dual_{price}" not in arrays
        require(paid, f"dual_{price} is the price of no limit")
        if f"{name}_variance" in arrays:
            limit = fractions(arrays[f"{name}_variance"])
            found[key] = max(variances / limit if name == "max" else limit / variances)
        require(key in found or said[key] is None, f"{key} is claimed of no limit")
    for key, value in found.items():
        claim = said[key]["value"] if key == "sensitivity" else said[key]
        require(key == "objective" or value <= 1, f"{key} {float(value)}: above 1")
        close = abs(Fraction(claim) - value) <= ROOM * value
        require(close, f"{key}: {claim} is claimed, {float(value)} is proved")
    wider = {k.replace("unrestricted", "dual"): x for k, x in arrays.items() if k[:2] == "un"}
    own = arrays if not wider or {"dual_shares", "dual_prices"} & set(arrays) else wider
    of = " of as many diagonals" if "strategy_bands" in own else ""
    of = " of such seeds" if "dual_prices" in own else of
    bounds = [bound_of(own, arrays, factor, known, views, sets)]
    claims = [said["lower_bound"], said["unrestricted_lower_bound"]]
    if claims[1] is not None:  # of all noise
        whole = (wider, arrays, factor, known, views, [[*range(len(w))]])
        bounds.append(bound_of(*whole) if of else bounds[0])
    for claim, bound in zip(claims, bounds, strict=False):
        require(0 < claim <= bound * (1 + ROOM), f"lower bound {claim}: {float(bound)} is proved")
    require(said["feasible"] is said["sensitivity"]["squared"] is True, "it says: not feasible")
    require(0 <= said["gap"] == said["objective"] / said["lower_bound"] - 1, "the gap is another")
    before = " before these observers, in one step" if views[1:] else ""
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
