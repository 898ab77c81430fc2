"""Prove what a design file claims, by ball arithmetic.

``python tools/check_design.py DESIGN.npz [PROBLEM.toml]``

It imports numpy, networkx (for graphs) and python-flint, and nothing of noisedesign: a mistake
there is not one here. The problem is that of PROBLEM.toml, which may name arrays beside it, or of
the text in the design file, which may not: W, H, budgets, limits and participation are formed from
that text anew. Of the file only the noise and the multipliers count; whatever else it holds, to the
last key, must be what follows from these. Floating point only guesses; every inequality is proved
of the numbers in the file, at 106 bits. Small sizes: 150 rows take seconds, 500 a minute. It covers
noise without a structure in space (the error of one step) and in time, and no epsilon. Exit code 0:
all is proved; 1: something is not; 2: no such design is covered.
"""

import hashlib
import io
import itertools
import json
import math
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import NamedTuple

import networkx as nx
import numpy as np
from flint import arb, arb_mat, ctx

ctx.prec = 106
ROOM = 1e-10  # what a claim, which was computed in float64, may differ by from what is proved
ALIKE = 1e-12  # what entries of W, H or C^-1 in a file may differ by, relative to the largest
MOST = 2000  # nodes or steps

COVARIANCE = {"covariance": "R"}
STRATEGY = {"strategy": "C", "noising_matrix": "C^-1"}
STATED = {"max_variance": "cap on diag(R)", "min_variance": "floor on diag(R)"}
STATED |= {"gram": "H", "mixing": "W", "budget": "tau"}
WEIGHTS = {"dual_weights": "v"}
PRICES = {"max_variance": {"dual_cap": "w"}, "min_variance": {"dual_floor": "u"}}
BLOCKS = {"dual_blocks": "U"}
PATTERNS = {"pattern_lengths": "k of every U_pi", "pattern_steps": "steps of every U_pi"}
PATTERNS |= {"pattern_blocks": "U_pi"}
BUDGETS = {
    "space": "[R^-1]_ii <= tau_i (squared sensitivity); R and the objective are at these budgets",
    "time": "squared sensitivity <= 1; C and the objective are at unit sensitivity",
}
NOT_ASKED = ("structure", "error", "random", "coalitions", "account", "confidence", "uncertainty")
NOT_ASKED += ("unrestricted_lower_bound", "fixed_lower_bound")
PRIVACY = {"epsilon": None, "delta": 1e-6, "clip": 1.0, "steps": None}
PRIVACY |= {"adjacency": "replace", "conversion": "gdp"}
MADE = {"method": str, "backend": str, "status": str, "build_seconds": float}
MADE |= {"solve_seconds": float, "evaluations": int, "versions": dict, "history": list}


def require(holds, words, code=1):
    """Balls compare true only where all numbers in them do, and NaN never does."""
    if not holds:
        print(f"{'refused' if code == 1 else 'not covered'}: {words}")
        sys.exit(code)


# --- balls --------------------------------------------------------------------------------------


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


# --- the file -----------------------------------------------------------------------------------


def once(pairs):
    require(len(dict(pairs)) == len(pairs), "a key of the manifest occurs twice")
    return dict(pairs)


def same(a, b):
    """Of JSON, where 1 is neither 1.0 nor true."""
    return json.dumps(a, sort_keys=True) == json.dumps(b, sort_keys=True)


def read(path):
    """The manifest of a file that is whole, and its arrays."""
    content = Path(path).read_bytes()
    seal = b"noisedesign-sha256:" + hashlib.sha256(content[:-64]).hexdigest().encode()
    require(content.endswith(seal), "the seal is broken")
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        infos = archive.infolist()
        require(sum(x.file_size for x in infos) < len(content), "members that overlap")
        require(len({x.filename for x in infos}) == len(infos), "a member occurs twice")
        members = {x.filename: archive.read(x.filename) for x in infos}
    said = json.loads(members.pop("manifest.json", b"[]"), object_pairs_hook=once)
    require(type(said) is dict, "no manifest")
    require(said.get("format") == "noisedesign-design", "a file of another format", 2)
    require(same(said["version"], 4), f"version {said['version']!r:.9} of the format, not 4")
    named = {f"{name}.npy" for name in said["arrays"]}
    require(set(members) == named, "members and the arrays of the manifest differ")
    return said, {name: array_of(members[f"{name}.npy"], name) for name in said["arrays"]}


def array_of(content, name):
    stream = io.BytesIO(content)
    a = np.load(stream, allow_pickle=False)
    require(a.dtype == "<f8" and a.flags.c_contiguous, f"{name}: no float64 numbers in rows")
    require(not stream.read(), f"{name}: something after its numbers")
    require(np.isfinite(a).all(), f"{name}: an entry is no number")
    return a


# --- the problem --------------------------------------------------------------------------------


class Problem(NamedTuple):
    """What its text asks for: what a manifest has to say of it, and in balls W^T W or another H, W,
    the arrays that state it by name, budgets, limits, and sets of coordinates in which one record
    may take part; a pattern whose number is j is within the budget of number j."""

    said: dict
    h: arb_mat
    factor: arb_mat | None
    stated: dict
    budget: list
    limits: dict
    patterns: list


def only(table, *keys):
    for key in table:
        require(key in keys, f"the key {key!r:.40} of the problem", 2)
    return table


def connected(generator):
    """The first connected graph of seeds that are 1000 apart."""

    def build(seed, **keys):
        graphs = (generator(seed=seed + 1000 * i, **keys) for i in range(1000))
        return next(graph for graph in graphs if nx.is_connected(graph))

    return build


GRAPHS = {
    "florentine": nx.florentine_families_graph,
    "karate": nx.karate_club_graph,
    "ring": lambda nodes: nx.cycle_graph(nodes),
    "path": lambda nodes: nx.path_graph(nodes),
    "complete": lambda nodes: nx.complete_graph(nodes),
    "star": lambda nodes: nx.star_graph(nodes - 1),
    "grid": lambda rows, columns: nx.grid_2d_graph(rows, columns),
    "torus": lambda rows, columns: nx.grid_2d_graph(rows, columns, periodic=True),
    "erdos-renyi": connected(lambda nodes, p, seed: nx.gnp_random_graph(nodes, p, seed=seed)),
}


def mixing_of(table, folder):
    """W in balls, and the names of its rows."""
    if table["kind"] == "matrix" and folder:
        w = np.load(folder / only(table, "kind", "file")["file"], allow_pickle=False)
        require(w.dtype == "<f8" and w.ndim == 2, "a schedule", 2)
        return balls(w), [str(i) for i in range(len(w))]
    keys = {key: x for key, x in table.items() if key not in ("kind", "weights")}
    covered = table["kind"] in GRAPHS and all(keys[k] <= MOST for k in set(keys) - {"seed"})
    require(covered and "directed" not in keys, f"a graph of kind {table['kind']!r:.40}", 2)
    graph = GRAPHS[table["kind"]](**keys)
    nodes, weights = list(graph), table.get("weights", "metropolis-hastings")
    most = max(degree for _, degree in graph.degree)
    require(0 < len(nodes) <= MOST, "so many nodes", 2)

    def share(i, j):
        if weights == "max-degree":
            return 1 / arb(1 + most)
        if weights == "row-normalized":
            return 1 / arb(1 + graph.degree[i])
        halved = 2 if weights == "lazy-metropolis-hastings" else 1
        require(halved == 2 or weights == "metropolis-hastings", f"weights {weights!r:.40}", 2)
        return 1 / arb(halved * (1 + max(graph.degree[i], graph.degree[j])))

    w = [[share(i, j) if graph.has_edge(i, j) else arb(0) for j in nodes] for i in nodes]
    for i, row in enumerate(w):
        row[i] = 1 - sum(row, arb(0))
    return arb_mat(w), [str(node) for node in nodes]


def all_iterates(w, steps):
    """H_ss' = sum of tr((W^(t-s+1))^T W^(t-s'+1)) over t >= max(s, s')."""
    powers = [w]
    for _ in range(steps - 1):
        powers.append(powers[-1] * w)
    flat = arb_mat([power.entries() for power in powers])
    products = flat * flat.transpose()
    h = arb_mat(steps, steps)
    for s, t in itertools.product(reversed(range(steps)), repeat=2):
        later = h[s + 1, t + 1] if max(s, t) + 1 < steps else arb(0)
        h[s, t] = products[steps - 1 - s, steps - 1 - t] + later
    return h


def participation_of(table):
    """What a manifest says of it, T, and the patterns."""
    kind = table.get("kind", "fixed-epoch")
    x = {key: value for key, value in table.items() if key != "kind"}
    require(all(type(y) is int and y >= 1 for y in x.values()), "participation: no counts")
    require(x.get("horizon", math.prod(x.values())) <= MOST, "so many steps", 2)
    if kind in ("single", "every-step"):
        T = only(x, "horizon")["horizon"]
        x = {"epochs": 1, "separation": T} if kind == "single" else {"epochs": T, "separation": 1}
        kind = "fixed-epoch"
    entry = dict.fromkeys(("separation", "epochs", "horizon", "max_participations")) | x
    b = x["separation"]
    if kind == "fixed-epoch":
        T = only(x, "epochs", "separation")["epochs"] * b
        listed = [tuple(range(j, T, b)) for j in range(b)]
    else:
        require(kind == "min-separation", f"participation of kind {kind!r:.40}", 2)
        T = only(x, "horizon", "separation", "max_participations")["horizon"]
        most = min(x["max_participations"], T)
        few = math.comb(min(T, MOST), min(most, T // 2)) < 1e5
        require(few, "participation in so many patterns", 2)
        sets = (c for k in range(1, most + 1) for c in itertools.combinations(range(T), k))
        listed = [c for c in sets if all(y - x >= b for x, y in itertools.pairwise(c))]
    return entry, T, listed


def numbers(values, size):
    """One a node, or the same for all."""
    values = values if isinstance(values, list) else [values] * size
    require(len(values) == size, "a list of the problem has another length than it has nodes")
    return [arb(float(value)) for value in values]


def problem_of(text, folder):
    """The problem of a text, by its words alone; files are those of ``folder``, or not read."""
    file = tomllib.loads(text)
    people = ("name", "description", "source", "tags", "reference", "design", "privacy")
    axes, privacy = file["design"], None
    require(axes in BUDGETS, f"a design in {axes!r:.40}", 2)
    own = ("budget", "limits") if axes == "space" else ("workload",)
    only(file, *people, *own, "graph", "participation")
    w, nodes = mixing_of(file["graph"], folder) if "graph" in file else (None, [])
    entry, T, listed = None, None, None
    if "participation" in file:
        entry, T, listed = participation_of(file["participation"])
    require(nodes or axes == "time", "a problem without a graph")
    stated, limits, workload = {} if w is None else {"mixing": w}, {}, None
    if axes == "space":
        budget = numbers(only(file.get("budget", {}), "tau").get("tau", 1.0), len(nodes))
        h, patterns = w.transpose() * w, [(i,) for i in range(len(nodes))]
        for key, limit in only(file.get("limits", {}), "max_variance", "min_variance").items():
            limits[key] = numbers(limit, len(nodes))
        stated |= {"budget": arb_mat([budget])} | {k: arb_mat([x]) for k, x in limits.items()}
    else:
        workload, patterns, budget = file["workload"]["kind"], listed, [arb(1)]
        only(file["workload"], "kind", "file")
        require(nodes or workload != "decentralized", "a problem without a graph")
        if workload == "decentralized":
            h = all_iterates(w, T)
        elif workload == "prefix":
            h = arb_mat([[T - max(s, t) for t in range(T)] for s in range(T)])
        else:
            require(workload == "gram" and folder, f"a workload {workload!r:.40} without data", 2)
            h = balls(np.load(folder / file["workload"]["file"], allow_pickle=False))
            require(h.nrows() == h.ncols() == T and h == h.transpose(), "H has another shape")
        stated["gram"] = h
    if "privacy" in file:
        privacy = PRIVACY | only(file["privacy"], *PRIVACY)
        privacy |= {key: float(privacy[key]) for key in ("epsilon", "delta", "clip")}
    said = {"name": file["name"], "design": axes, "horizon": T, "nodes": nodes}
    said |= {"participation": entry, "workload": workload, "budget": BUDGETS[axes]}
    said |= {"privacy": privacy, "adjacency": privacy and privacy["adjacency"]}
    return Problem(said, h, w if axes == "space" else None, stated, budget, limits, patterns)


# --- the proof ----------------------------------------------------------------------------------


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
    steps, blocks = patterns, arrays.get("dual_blocks")
    if "dual_weights" in arrays:
        blocks = arrays["dual_weights"][:, None, None]
    if "pattern_blocks" in arrays:
        lengths = arrays["pattern_lengths"].astype(int)
        steps = np.split(arrays["pattern_steps"].astype(int), np.cumsum(lengths)[:-1])
        flat = np.split(arrays["pattern_blocks"], np.cumsum(lengths**2)[:-1])
        blocks = [x.reshape(k, k) for x, k in zip(flat, lengths, strict=True)]
        require({tuple(s.tolist()) for s in steps} <= set(patterns), "steps of no pattern")
    require(len(blocks) == len(steps), "multipliers of other patterns")
    for j, (block, where) in enumerate(zip(blocks, steps, strict=True)):
        values, vectors = np.linalg.eigh((block + block.T) / 2)
        require(values[0] >= -1e-9 * max(values[-1], 0.0), "a multiplier is negative")
        yield j, where, balls(vectors * np.sqrt(np.maximum(values, 0.0)))


def bound(problem, arrays):
    """<L B, Z>^2 / |Z|^2 / price, Z about the polar factor of L B; limits are paid or gain."""
    h, factor, budget = problem.h, problem.factor, problem.budget
    size, price, columns = h.nrows(), arb(0), []
    for j, where, root in multipliers(arrays, problem.patterns):
        price += largest(x @ x for x in map(np.array, root.tolist())) * budget[j % len(budget)]
        for column in root.transpose().tolist():
            columns.append([arb(0)] * size)
            for s, x in zip(where, column, strict=True):
                columns[-1][int(s)] = x
    names = ("dual_cap", "dual_floor")
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
    for name, prices, sign in (("max_variance", cap, -1), ("min_variance", floor, 1)):
        pairs = zip(prices, problem.limits.get(name, ()), strict=name in problem.limits)
        found += sign * sum((x * y for x, y in pairs), arb(0))
    return found


def noise_of(problem, arrays):
    """X = R^-1, or C^T C, and R."""
    if problem.said["design"] == "space":
        require((arrays["covariance"] == arrays["covariance"].T).all(), "R is not symmetric")
        r = balls(arrays["covariance"])
        return inverse(r), r
    require((np.triu(arrays["strategy"], 1) == 0).all(), "C is not causal")
    c = balls(arrays["strategy"])
    d = c.inv()
    require(close(arrays["noising_matrix"], d), "C^-1 is another")
    return c.transpose() * c, d * d.transpose()


def ratios_of(problem, x, r):
    """Squared sensitivity over its budget, what gradients of some signs have of it, the largest
    variance over its cap and floor over its variance; proved to be at most 1."""
    used = had = arb(0)
    for j, where in enumerate(problem.patterns):
        block, budget = arb_mat([[x[s, t] for t in where] for s in where]), problem.budget
        signs = balls(np.sign(floats(block)[:1]))
        used = used.max(sum(row_sums(block), arb(0)) / budget[j % len(budget)])
        had = had.max((signs * block * signs.transpose())[0, 0] / budget[j % len(budget)])
    require(used <= 1, "a budget is not proved to be kept")
    ratios = dict.fromkeys(("max_variance", "min_variance"))
    for name, limits in problem.limits.items():
        pairs = [(r[i, i], limit) for i, limit in enumerate(limits)]
        above = name == "max_variance"
        ratios[name] = largest(v / y if above else y / v for v, y in pairs)
        require(all(v <= y if above else y <= v for v, y in pairs), f"{name} is not kept")
    return used, had, ratios


def close(a, b):
    """Whether an array has the entries of balls, but for roundings."""
    a = balls(np.atleast_2d(a))
    if (a.nrows(), a.ncols()) != (b.nrows(), b.ncols()):
        return False
    away = largest(map(abs, (a - b).entries()))
    return away <= ALIKE * largest(map(abs, b.entries()))


def checked_arrays(problem, arrays):
    """That they are those which were asked for, and state the problem."""
    space = problem.said["design"] == "space"
    asked = (COVARIANCE if space else STRATEGY) | {key: STATED[key] for key in problem.stated}
    size, proof = problem.h.nrows(), WEIGHTS.copy()
    for name in problem.limits:
        proof |= PRICES[name]
    shapes = dict.fromkeys(proof, (size,)) | dict.fromkeys((*COVARIANCE, *STRATEGY), (size, size))
    if not space:
        fixed = problem.said["participation"]["epochs"]
        proof = BLOCKS if fixed else PATTERNS
        shapes["dual_blocks"] = (len(problem.patterns), fixed, fixed)
    missing = next((name for name in asked if name not in arrays), None)
    require(missing is None, f"no array {missing}")
    for name, a in arrays.items():
        require(name in asked | proof, f"an array {name!r:.40} that is not asked for")
        require(a.shape == shapes.get(name, a.shape), f"{name}: its shape")
    require(all(name in arrays for name in proof if "floor" not in name), "no multipliers", 2)
    for name, entries in problem.stated.items():
        exact = "variance" in name or name == "budget"
        alike = balls(np.atleast_2d(arrays[name])) == entries if exact else True
        require(alike and close(arrays[name], entries), f"{name} is not that of the problem")
    kinds = asked | proof
    return {
        name: {
            "kind": kinds[name],
            "shape": list(a.shape),
            "dtype": "float64",
            "sha256": hashlib.sha256(a.data).hexdigest(),
        }
        for name, a in arrays.items()
    }


def check(path, problem_path=None):
    said, arrays = read(path)
    text = own = said["problem"]["text"]
    require(own or problem_path, "no text of a problem in the file: name its PROBLEM.toml", 2)
    require(
        said.get("trust") not in ("central", "observers"), "noise of a server or against some", 2
    )
    if problem_path:
        text = Path(problem_path).read_text(encoding="utf-8")
        require(own in ("", text), "the text in the file is another than the problem's")
    problem = problem_of(text, problem_path and Path(problem_path).parent)
    digest = hashlib.sha256(own.encode()).hexdigest()
    asked = problem.said | dict.fromkeys(NOT_ASKED) | {"observers": [], "rounds": 1, "local": False}
    asked |= {"format": "noisedesign-design", "version": 4, "trust": "local", "feasible": True}
    asked |= {"problem": {"text": own, "sha256": digest}, "matrix": next(iter(arrays), None)}
    asked |= {"arrays": checked_arrays(problem, arrays)}
    x, r = noise_of(problem, arrays)
    used, had, ratios = ratios_of(problem, x, r)
    objective, proved = inner(problem.h, r), bound(problem, arrays)
    which = "vector-exact" if had >= used * (1 - ROOM) else "abs-sum-upper-bound"
    claims = {"objective": objective, "lower_bound": None, "gap": None}
    claims |= {"variance_ratio": ratios["max_variance"], "floor_ratio": ratios["min_variance"]}
    for key in said:
        known = key in asked or key in claims or key in ("sensitivity", "library", "provenance")
        require(known, f"a key {key!r:.40} that is not asked for")
    for key, value in asked.items():
        require(key in said and same(said[key], value), f"{key} is not what was asked for")
    value = said["sensitivity"]["value"]
    entry = {"value": value, "which": which, "squared": True}
    require(same(said["sensitivity"], entry), "the sensitivity is of another kind")
    for key, found in (claims | {"sensitivity": used}).items():
        claim = value if key == "sensitivity" else said[key]
        absent = key.endswith("ratio") and found is None
        require(type(claim) is (type(None) if absent else float), f"{key} is no number")
        agrees = found is None or abs(arb(claim) / found - 1) < ROOM
        require(agrees, f"the {key} is another")
    gap, low = said["gap"], said["lower_bound"]
    require(0 <= gap == said["objective"] / low - 1, "the gap is another, or negative")
    require(low <= proved * (1 + ROOM), "the lower bound is not proved")
    require(objective / proved - 1 <= arb(gap) + 3 * ROOM, "the gap is not proved")
    made = said["provenance"]
    typed = set(made) == set(MADE) and all(type(made[key]) is kind for key, kind in MADE.items())
    require(typed and type(said["library"]) is str, "provenance is not what was asked for")
    left = "; not part of it: epsilon and delta" if problem.said["privacy"] else ""
    upper = float((objective / proved - 1).upper())
    print(f"proved: feasible, gap at most {upper:.2e}{left}")


def main(*arguments):
    require(1 <= len(arguments) <= 2, "give DESIGN.npz, and perhaps PROBLEM.toml", 2)
    try:
        check(*arguments)
    except Exception as error:
        require(False, f"it cannot be read, {type(error).__name__}: {error}".splitlines()[0])


if __name__ == "__main__":
    main(*sys.argv[1:])
