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
MOST = 1000  # nodes or steps

LIMITS = {
    "max_variance": (
        "cap on variances, of nodes or, of designs in time, of steps",
        "dual_cap",
        "w",
    ),
    "min_variance": ("floor on diag(R)", "dual_floor", "u"),
}
BUDGETS = {
    "space": "[R^-1]_ii <= tau_i (squared sensitivity); R and the objective are at these budgets",
    "time": "squared sensitivity <= 1; C and the objective are at unit sensitivity",
}
NOT_ASKED = ("structure", "error", "random", "coalitions", "account", "confidence", "uncertainty")
NOT_ASKED += ("unrestricted_lower_bound", "fixed_lower_bound", "mixing_rate")
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
    """Whether two values are the same JSON, where 1 is neither 1.0 nor true."""
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
    require(same(said["version"], 5), f"version {said['version']!r:.9} of the format, not 5")
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
    """A problem, as its text asks for it.

    In this order: what a manifest has to say; H, and W where it is W^T W, in balls; arrays of noise
    and problem, and those that prove a bound, by name: what they are, and their shape, numbers or
    balls; budgets and limits; coordinates in which one record may take part, of which number j is
    within budget number j.
    """

    said: dict
    h: arb_mat
    factor: arb_mat | None
    arrays: dict
    proof: dict
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
    try:
        graph = GRAPHS[table["kind"]](**keys)
    except TypeError:
        require(False, f"a graph of kind {table['kind']!r:.40} with such keys", 2)
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
    """The entry of a manifest for a participation, T, and the patterns."""
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
    """One a node or step, or the same for all."""
    values = values if isinstance(values, list) else [values] * size
    require(len(values) == size, "a list of the problem is not one a node or step")
    require(all(x > 0 for x in values), "a number of the problem is not positive")
    return [arb(float(x)) for x in values]


def problem_of(text, folder):
    """The problem of a text, by its words alone; files are those of ``folder``, or not read."""
    file = tomllib.loads(text)
    require(file["design"] in BUDGETS, f"a design in {file['design']!r:.40}", 2)
    space, entry, T, patterns, privacy = file["design"] == "space", None, None, None, None
    only(file, "name", "description", "source", "tags", "reference", "design", "privacy", "graph",
         "participation", "limits", "budget" if space else "workload")  # fmt: skip
    w, nodes = mixing_of(file["graph"], folder) if "graph" in file else (None, [])
    workload = None if space else only(file["workload"], "kind", "file")["kind"]
    require(nodes or not (space or workload == "decentralized"), "a problem without a graph")
    if "participation" in file:
        entry, T, patterns = participation_of(file["participation"])
    arrays, limits, n = {} if w is None else {"mixing": ("W", w)}, {}, len(nodes)
    if space:
        budget = numbers(only(file.get("budget", {}), "tau").get("tau", 1.0), n)
        h, patterns, proof = w.transpose() * w, [(i,) for i in range(n)], {"dual_weights": "v"}
        arrays |= {"covariance": ("R", (n, n)), "budget": ("tau", budget)}
        proof = {name: (what, (n,)) for name, what in proof.items()}
    else:
        budget = [arb(1)]
        if workload == "decentralized":
            h = all_iterates(w, T)
        elif workload == "prefix":
            h = arb_mat([[T - max(s, t) for t in range(T)] for s in range(T)])
        else:
            require(workload == "gram" and folder, f"a workload {workload!r:.40} without data", 2)
            h = balls(np.load(folder / file["workload"]["file"], allow_pickle=False))
            require(h.nrows() == h.ncols() == T and h == h.transpose(), "H has another shape")
        arrays |= {"strategy": ("C", (T, T)), "noising_matrix": ("C^-1", (T, T)), "gram": ("H", h)}
        arrays["workload_factor"] = ("L of H = L^T L", None)
        proof = {"dual_blocks": ("U", (len(patterns), entry["epochs"], entry["epochs"]))}
        if not entry["epochs"]:
            what = {"lengths": "k of every U_pi", "steps": "steps of every U_pi", "blocks": "U_pi"}
            proof = {f"pattern_{key}": (value, None) for key, value in what.items()}
    size = n if space else T
    for key, values in only(
        file.get("limits", {}), *LIMITS if space else ("max_variance",)
    ).items():
        what, price, u = LIMITS[key]
        limits[key] = numbers(values, size)
        arrays[key], proof[price] = (what, limits[key]), (u, (size,))
    if "privacy" in file:
        privacy = PRIVACY | only(file["privacy"], *PRIVACY)
        privacy |= {key: float(privacy[key]) for key in ("epsilon", "delta", "clip")}
    said = {"name": file["name"], "design": file["design"], "horizon": T, "nodes": nodes}
    said |= {"participation": entry, "workload": workload, "budget": BUDGETS[file["design"]]}
    said |= {"privacy": privacy, "adjacency": privacy and privacy["adjacency"]}
    said["matrix"] = "covariance" if space else "strategy"
    return Problem(said, h, w if space else None, arrays, proof, budget, limits, patterns)


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
    """Yield of every pattern j: j, its steps, and B with <B B^T, X> <= budget_j max diag(B B^T),
    of what is positive of U_j."""
    steps, blocks = patterns, arrays.get("dual_blocks")
    if "dual_weights" in arrays:
        blocks = arrays["dual_weights"][:, None, None]
    if "pattern_blocks" in arrays:
        lengths, steps = (arrays[f"pattern_{x}"].astype(int) for x in ("lengths", "steps"))
        whole = (lengths == arrays["pattern_lengths"]).all()
        require(whole and (steps == arrays["pattern_steps"]).all(), "steps of no number")
        steps = np.split(steps, np.cumsum(lengths)[:-1])
        flat = np.split(arrays["pattern_blocks"], np.cumsum(lengths**2)[:-1])
        blocks = [x.reshape(k, k) for x, k in zip(flat, lengths, strict=True)]
        require({tuple(s.tolist()) for s in steps} <= set(patterns), "steps of no pattern")
    for j, (block, where) in enumerate(zip(blocks, steps, strict=True)):
        values, vectors = np.linalg.eigh((block + block.T) / 2)
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
    """Squared sensitivity over its budget, variance over its cap and floor over its variance, of
    which none is above 1; and what gradients of some signs have of the first."""
    used = had = arb(0)
    for j, where in enumerate(problem.patterns):
        block = arb_mat([[x[s, t] for t in where] for s in where])
        budget, signs = problem.budget[j % len(problem.budget)], balls(np.sign(floats(block)[:1]))
        used = used.max(sum(row_sums(block), arb(0)) / budget)
        had = had.max((signs * block * signs.transpose())[0, 0] / budget)
    require(used <= 1, "a budget is not proved to be kept")
    found = {"sensitivity": used, "variance_ratio": None, "floor_ratio": None}
    for name, limits in problem.limits.items():
        above, pairs = name == "max_variance", [(r[i, i], y) for i, y in enumerate(limits)]
        require(all(v <= y if above else y <= v for v, y in pairs), f"{name} is not kept")
        key = "variance_ratio" if above else "floor_ratio"
        found[key] = largest(v / y if above else y / v for v, y in pairs)
    return found, had


def close(a, b):
    """Whether an array has the entries of balls, but for roundings."""
    if a.shape != (b.nrows(), b.ncols()):
        return False
    away = largest(map(abs, (balls(a) - b).entries()))
    return away <= ALIKE * largest(map(abs, b.entries()))


def entries_of(problem, arrays):
    """The entries of the manifest for arrays, once they are those which were asked for."""
    known, entries = problem.arrays | problem.proof, {}
    for name in problem.arrays:
        require(name in arrays, f"no array {name}")
    for name, a in arrays.items():
        require(name in known, f"an array {name!r:.40} that is not asked for")
        what, form = known[name]
        if isinstance(form, tuple):
            require(a.shape == form, f"{name}: its shape")
        elif isinstance(form, list):
            require(list(map(arb, a.tolist())) == form, f"{name} is not that of the problem")
        elif form is not None:
            require(close(a, form), f"{name} is not that of the problem")
        digest = hashlib.sha256(a.data).hexdigest()
        entries[name] = {"kind": what, "shape": list(a.shape), "sha256": digest}
        entries[name]["dtype"] = "float64"
    held = all(name in arrays for name in problem.proof if name != "dual_floor")
    require(held, "a design without multipliers", 2)
    return entries


def check(path, problem_path=None):
    said, arrays = read(path)
    text = own = said["problem"]["text"]
    require(own or problem_path, "no text of a problem in the file: name its PROBLEM.toml", 2)
    others = said.get("trust") in ("central", "observers")
    require(not others, "noise of a server, or against some observers", 2)
    if problem_path:
        text = Path(problem_path).read_text(encoding="utf-8")
        require(own in ("", text), "the text in the file is another than the problem's")
    problem = problem_of(text, problem_path and Path(problem_path).parent)
    digest = hashlib.sha256(own.encode()).hexdigest()
    asked = problem.said | dict.fromkeys(NOT_ASKED) | {"observers": [], "rounds": 1, "local": False}
    asked |= {"format": "noisedesign-design", "version": 5, "trust": "local", "feasible": True}
    asked |= {"problem": {"text": own, "sha256": digest}, "arrays": entries_of(problem, arrays)}
    if "workload_factor" in arrays:
        root = balls(arrays["workload_factor"])
        same_h = root.ncols() == problem.h.nrows() and close(
            arrays["gram"], root.transpose() * root
        )
        require(same_h, "workload_factor is of another H")
    x, r = noise_of(problem, arrays)
    found, had = ratios_of(problem, x, r)
    objective, proved = inner(problem.h, r), bound(problem, arrays)
    exact = had >= found["sensitivity"] * (1 - ROOM)
    value, which = said["sensitivity"]["value"], "vector-exact" if exact else "abs-sum-upper-bound"
    asked |= {key: None for key, ratio in found.items() if ratio is None}
    asked["sensitivity"] = {"value": value, "which": which, "squared": True}
    found = {"objective": objective} | {k: ratio for k, ratio in found.items() if ratio is not None}
    claimed = said | {"sensitivity": value}
    types = {"library": str} | dict.fromkeys(("lower_bound", "gap", *found), float)
    for key in said:
        known = key in asked or key in types or key == "provenance"
        require(known, f"a key {key!r:.40} that is not asked for")
    for key, value in asked.items():
        require(key in said and same(said[key], value), f"{key} is not what was asked for")
    for key, kind in types.items():
        require(type(claimed[key]) is kind, f"{key} is no {kind.__name__}")
    for key, value in found.items():
        require(abs(arb(claimed[key]) / value - 1) < ROOM, f"the {key} is another")
    gap, low = said["gap"], said["lower_bound"]
    require(low > 0 and 0 <= gap == said["objective"] / low - 1, "the gap is another, or negative")
    require(low <= proved * (1 + ROOM), "the lower bound is not proved")
    made = said["provenance"]
    typed = set(made) == set(MADE) and all(type(made[key]) is kind for key, kind in MADE.items())
    typed = typed and all(set(x) == {"seconds", "lower", "upper"} for x in made["history"])
    require(typed, "provenance is not what was asked for")
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
