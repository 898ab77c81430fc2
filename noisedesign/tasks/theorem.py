"""The theorem that a design is feasible and nearly optimal, as a text that Rocq checks.

The floats of a design are whole numbers over a power of two, and so are their sums and products.
Floating point only guesses the witnesses; what is stated is computed in whole numbers, here and
once more by Rocq, against the files of ``proofs``: docs/mathematics/bound.md, theorem A, and
docs/guides/proofs.md."""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from noisedesign.base.checks import Array, InputError
from noisedesign.base.enclosures import EPS, Enclosure, gram
from noisedesign.certify.rigorous import NotProvedError, factor_below
from noisedesign.design.design import Design
from noisedesign.families.disjoint.family import Disjoint
from noisedesign.families.disjoint.program import dual_of
from noisedesign.families.family import family_of
from noisedesign.families.overlapping.bound import multipliers_of
from noisedesign.families.overlapping.family import Overlapping
from noisedesign.families.shared_seeds import bound as seeds
from noisedesign.families.shared_seeds.family import ASSEMBLED, SharedSeeds
from noisedesign.families.shared_seeds.program import SeedProgram

FIELD = "design"
BITS = 62  # of the whole numbers of a guess: more of them cost time, fewer some of the gap
FINE = 100  # places of M in space, where its error counts against the budgets: far below float64
LARGE = 24  # rows above which pieces of 63 bits are multiplied, on more assumptions: proofs/Fast.v
UNITS = 10**16  # the stated gap is a multiple of one over this, finer than a rounding of float64
CLAIM = 10**9  # the objective and the bound of the file are proved to one over this
MARGINS = (1e-14, 1e-13, 1e-12, 1e-11)  # of multipliers on sets, to prove them: part of the gap
MOST = 2000  # patterns of participation: each is a list in the theorem
NUMBERS = "Written by noisedesign prove, the numbers of a design"  # read by proofs/checker

COVERED = (
    "a design over nodes, of the error of one step of one W, or one over time of fixed "
    "participation; against a reader of all messages, without a structure or, over nodes, "
    "of seeds that sets of nodes share and none of which is known"
)
SIGNS = {"cap": 1, "floor": -1}  # of a variance against its limit, and of what that costs


class Claim(NamedTuple):
    """A statement about a design: numbers by their names, and the words of the theorem."""

    design: Design
    fields: Mapping[str, Any]
    above: int  # one and the gap, in units
    rows: str
    names: tuple[str, ...]
    about: str

    @property
    def gap(self) -> float:
        """The gap that is stated, as a float."""
        return float(Fraction(self.above - UNITS, UNITS))

    @property
    def numbers(self) -> str:
        """The text of all numbers, as :func:`numbers` returns it."""
        lines = [NUMBERS, f"{self.names[0].lower()} {self.rows.split()[0]}"]
        for name, value in self.fields.items():
            rows = _lines(value)
            lines += [f"{name} {len(rows)}", *rows]
        return "\n".join([*lines, ""])


class Exact(NamedTuple):
    """An array of Python's whole numbers, over ``scale``, a power of two."""

    whole: Any
    scale: int


def exact(a: Array, *, least: int = 1) -> Exact:
    """Return floats over the smallest power of two, from ``least`` on, that makes them whole."""
    ratios = [x.as_integer_ratio() for x in np.asarray(a).ravel().tolist()]
    scale = max([least, *(below for _, below in ratios)])
    whole = np.empty(len(ratios), dtype=object)
    whole[:] = [above * (scale // below) for above, below in ratios]
    return Exact(whole.reshape(np.shape(a)), scale)


def cut(a: Exact, scale: int) -> Exact:
    """Round to this scale where it is the smaller one, and to whole numbers at least."""
    by = max(a.scale // max(scale, 1), 1)
    return Exact((2 * a.whole + by) // (2 * by), a.scale // by)


def near(a: Array) -> Exact:
    """Return whole numbers of at most so many bits over a power of two, about these floats."""
    return cut(exact(a), 1 << max(BITS - int(np.frexp(np.abs(a).max())[1]), 0))


def _pieces(a: Any, bits: int) -> list[Array]:
    """Return floats of so many bits, lowest first, of which the whole numbers are made."""
    places = range(0, int(np.abs(a).max()).bit_length() + 1, bits)
    cuts = [(a >> at) & ((1 << bits) - 1) for at in places[:-1]] + [a >> places[-1]]
    return [piece.astype(float) for piece in cuts]


def times(a: Any, b: Any) -> Any:
    """Return the product of two matrices of whole numbers: BLAS sums pieces without a rounding."""
    bits = (53 - len(b).bit_length()) // 2
    left, right = _pieces(a, bits), _pieces(b, bits)
    total = np.zeros((len(a), b.shape[1]), dtype=object)
    for place in range(len(left) + len(right) - 1):
        pairs = range(max(0, place - len(right) + 1), min(place + 1, len(left)))
        layer = np.add.reduce([(left[i] @ right[place - i]).astype(np.int64) for i in pairs])
        total += layer.astype(object) << (bits * place)
    return total


def theorem(design: Design) -> str:
    """Write the theorem of a design in the language of Rocq, with all numbers its proof takes.

    Args:
        design: one over nodes, of the error of one step, whose budgets may differ, with caps and
            floors if there are some; or one over time, of any fixed participation, with its cap.
            Without a structure, or over nodes of shared seeds, "edge-local" among them.

    Returns:
        The text of a file that Rocq accepts beside ``proofs``: the noise is feasible, its objective
        is that of the file to one in 10^9, and no other of its structure has less than this
        objective over one and a gap, which is stated.

    Raises:
        InputError: a design of another kind; one that is not feasible in whole numbers, or claims
            an objective or a bound that it does not have.

    Examples:
        >>> import noisedesign as nd
        >>> from noisedesign.tasks.theorem import theorem
        >>> ring = nd.SpaceProblem.from_graph(nd.build_graph("ring", nodes=4))
        >>> "Theorem optimal" in theorem(nd.solve(ring).design)
        True
    """
    return _text(claim_of(design))


def numbers(design: Design) -> str:
    """Write the numbers of the theorem of a design alone, as the checker of ``proofs`` reads them.

    Args:
        design: as :func:`theorem` takes it.

    Returns:
        A line that tells such files, the kind and the size, then every field: a line of its name
        and of how many lines follow, and these, with blanks between numbers, and semicolons between
        rows where a matrix is a line.

    Raises:
        InputError: as of :func:`theorem`.

    Examples:
        >>> import noisedesign as nd
        >>> from noisedesign.tasks.theorem import numbers
        >>> ring = nd.SpaceProblem.from_graph(nd.build_graph("ring", nodes=4))
        >>> numbers(nd.solve(ring).design).splitlines()[1:3]
        ['space 4', 'W 4']
    """
    return claim_of(design).numbers


def _lines(value: Any) -> list[str]:
    """Return the lines of a number, a list of them, a matrix, matrices, or what is not there."""
    if value is None:
        return []
    if isinstance(value, int):
        return [str(value)]
    rows = [value] if len(value) == 0 or isinstance(value[0], int) else value
    return [_line(row) for row in rows]


def _line(row: Any) -> str:
    """Write a row, or all rows of a matrix, with semicolons between them."""
    flat = len(row) == 0 or isinstance(row[0], int)
    return " ".join(map(str, row)) if flat else ";".join(map(_line, row))


def claim_of(design: Design) -> Claim:
    """Return what is stated of a design, or refuse it."""
    problem: Any = design.problem
    family = family_of(problem)
    shared = isinstance(family, SharedSeeds) and not problem.structure.known_seeds
    plain = (shared or isinstance(family, Disjoint | Overlapping)) and design.trust == "local"
    if problem.axes == "space":
        plain = plain and problem.error is None and problem.random is None and problem.rounds == 1
    elif problem.axes == "time":
        plain = plain and not problem.participation.random
    if not plain or problem.axes == "space-time":
        got = f"one over {problem.axes} of the family {family.name!r}, or with one of these"
        raise InputError(FIELD, expected=COVERED, got=got)
    _require(design.proof, "multipliers, which prove a bound", "a baseline")
    try:
        if shared:
            return _of_seeds(design)
        return _in_space(design) if problem.axes == "space" else _in_time(design)
    except (np.linalg.LinAlgError, NotProvedError) as error:
        expected = "positive definite matrices, and multipliers that prove a bound"
        raise InputError(FIELD, expected=expected, got=f"others: {error}") from None


def _require(holds: object, expected: str, got: str) -> None:
    """Refuse a design that is not what it says."""
    if not holds:
        raise InputError(FIELD, expected=expected, got=got)


def _away(k: int, a: Any) -> int:
    """Return the largest row sum of absolute values of k I - A."""
    return int(np.abs(k * np.eye(len(a), dtype=object) - a).sum(axis=1).max())


def _triangle(a: Any) -> list[Any]:
    """Return the rows of a lower triangle."""
    return [row[: i + 1] for i, row in enumerate(a)]


# --- over nodes ---------------------------------------------------------------------------------


def _in_space(design: Design) -> Claim:
    """Prove a design over nodes in whole numbers."""
    problem: Any = design.problem
    covariance = design.covariance
    _require((covariance == covariance.T).all(), "a symmetric covariance", "another")
    stated = {"cap": problem.max_variance, "floor": problem.min_variance}
    limits = {name: a for name, a in stated.items() if a is not None}
    r = exact(covariance, least=max([exact(a).scale for a in limits.values()], default=1))
    limit = {name: exact(a, least=r.scale).whole for name, a in limits.items()}
    tau = exact(problem.budget)
    m, k = _feasible(problem, covariance, r, tau, limit)
    # Nearly optimal: theorem A.
    w, factor, paid = _factor(design, limited=bool(limit))
    dual: Any = dual_of(design.proof)
    proved = _bound(w, factor, dual.blocks[:, 0, 0], tau)
    cost = sum(SIGNS[name] * int((paid[name] * values).sum()) for name, values in limit.items())
    above = _gap_over_nodes(design, proved, w, r, tau, cost)
    fields = {"W": w.whole, "R": _triangle(r.whole), "tau": tau.whole}
    fields |= {name: limit.get(name) for name in SIGNS}
    fields |= {"dW": w.scale, "dR": r.scale, "dt": tau.scale} | _claims(design, above)
    fields |= {"M": _triangle(m.whole), "L": factor, "Z": proved.z, "b": proved.b}
    fields |= {"w": paid["cap"], "u": paid["floor"], "K": k, "s": proved.s}
    about = """W is the mixing matrix, over dW, R the lower triangle of the covariance, over dR, tau
   the squared sensitivity that each node is allowed, over dt; cap and floor are those of
   variances, squared noise, over dR. Proved: R is feasible, tr(W^T W R) is"""
    names = ("Space", "Design", "check", "proved", "check_sound")
    return Claim(design, fields, above, f"{len(r.whole)} nodes", names, about)


def _feasible(
    problem: Any, covariance: Array, r: Exact, tau: Exact, limit: Mapping[str, Any]
) -> tuple[Exact, int]:
    """Return M and K, (K - f) [R^-1]_ii <= sum_k M_ki^2 for any M with M R M^T about K I."""
    m = _inverse_root(covariance, r)
    k = m.scale**2 * r.scale
    left = k - _away(k, times(times(m.whole, r.whole), m.whole.T))
    _require(left > 0, "a positive definite covariance", "one that is not proved to be")
    over = (m.whole**2).sum(axis=0) * (r.scale * tau.scale) > left * tau.whole
    for i in np.flatnonzero(over):
        _require(False, f"[R^-1]_ii within the budget of node {problem.nodes[i]}", "more")
    for name, values in limit.items():
        kept = (SIGNS[name] * (values - np.diagonal(r.whole)) >= 0).all()
        _require(kept, f"variances that keep the {name}", "one that does not")
    return m, k


class Proved(NamedTuple):
    """A proof of a bound over nodes: Z, Z^T Z about s I, b, <L B, Z>, and what budgets cost."""

    z: Any
    s: int
    b: Any
    alpha: int
    price: int


def _bound(w: Exact, factor: Any, multipliers: Array, tau: Exact) -> Proved:
    """Choose b and Z for L over the scale of W, and multipliers of the budgets, shape (n,)."""
    b = near(np.sqrt(np.maximum(multipliers, 0.0)))
    half = (factor * b.whole / (w.scale * b.scale)).astype(float)
    u, _, v = np.linalg.svd(half, full_matrices=False)
    z = near(u @ v)
    s = z.scale**2
    price = (s + _away(s, times(z.whole.T, z.whole))) * int((b.whole**2 * tau.whole).sum())
    return Proved(z.whole, s, b.whole, int((factor * b.whole * z.whole).sum()), price)


def _gap_over_nodes(
    design: Design, proved: Proved, w: Exact, r: Exact, tau: Exact, cost: int
) -> int:
    """Return one and the gap in units, where limits cost so much of the bound."""
    reached = proved.alpha**2 * r.scale * tau.scale - proved.price * cost
    found = int((times(w.whole, r.whole) * w.whole).sum())
    objective = Fraction(found, w.scale**2 * r.scale)
    return _stated(design, objective, found * proved.price, reached)


def _inverse_root(covariance: Array, r: Exact) -> Exact:
    """Return M, lower triangular, M R M^T about I."""
    m = near(np.tril(np.linalg.inv(np.linalg.cholesky(covariance))))
    return _refined(m, r, np.tril)


def _refined(m: Exact, r: Exact, triangle: Any) -> Exact:
    """Return M, such a triangle, M R M^T about I, from a guess: its error is squared."""
    k = m.scale**2 * r.scale
    f = k * np.eye(len(m.whole), dtype=object) - times(times(m.whole, r.whole), m.whole.T)
    f = triangle(f) * 2 - np.diag(np.diagonal(f))
    return cut(Exact(2 * k * m.whole + times(f, m.whole), 2 * k * m.scale), 1 << FINE)


def _factor(design: Design, *, limited: bool) -> tuple[Exact, Any, dict[str, Any]]:
    """Return W; L over the scale of W, L^T L <= W^T W + diag(w - u); w and u over its square."""
    problem: Any = design.problem
    mixing, none = problem.mixing, np.zeros(len(problem.mixing))
    w = exact(mixing, least=1 << BITS if limited else 1)
    dual: Any = dual_of(design.proof)
    given = {name: getattr(dual, name) for name in SIGNS}
    duals = {name: none if a is None else np.maximum(a, 0.0) for name, a in given.items()}
    square = w.scale**2
    paid = {name: cut(exact(a, least=square), square).whole for name, a in duals.items()}
    if not duals["floor"].any():
        roots = cut(exact(np.sqrt(duals["cap"]), least=w.scale), w.scale).whole
        stacked = np.vstack([w.whole, np.diag(roots)]) if roots.any() else w.whole
        return w, stacked, paid | {"cap": roots**2}
    limits = Enclosure(np.diag(duals["cap"] - duals["floor"]), np.zeros(()))
    factor = cut(exact(factor_below(gram(mixing).plus(limits, 1.0)).factor, least=w.scale), w.scale)
    whole = factor.whole
    square = times(w.whole.T, w.whole) + np.diag(paid["cap"] - paid["floor"])
    _require_dominant(square - times(whole.T, whole))
    return w, whole, paid


def _require_dominant(left: Any) -> None:
    """Refuse multipliers that leave a matrix that is not diagonally dominant."""
    holds = (np.abs(left).sum(axis=1) <= 2 * np.diagonal(left)).all()
    _require(holds, "multipliers that prove a bound", "others")


# --- of shared seeds ----------------------------------------------------------------------------


def _of_seeds(design: Design) -> Claim:
    """Prove a design of shared seeds in whole numbers."""
    problem: Any = design.problem
    family: Any = family_of(problem)
    program = family.program(problem)
    made = family.departure(program, design.noise, design.proof) <= ASSEMBLED
    [stored] = (name for name, spec in family.proof.items() if not spec.multiplier)
    made = made and stored in design.proof
    _require(made, "blocks of shared seeds that make up the covariance", "others")
    # R is the sum of the blocks, which the noise is drawn from; their halves are whole, and roots.
    flat = exact(design.proof[stored], least=1 << 2 * BITS)
    cap, tau = problem.max_variance, exact(problem.budget)
    scale = 2 * max(flat.scale, 1 if cap is None else exact(cap).scale)
    scale <<= (scale.bit_length() - 1) % 2
    blocks = [
        (a + a.T) * (scale // (2 * flat.scale)) for a in seeds.blocks_of(program.sets, flat.whole)
    ]
    roots = [_root(block, scale) for block in blocks]
    _require(all(root is not None for root in roots), "blocks that are proved positive", "others")
    r = Exact(np.zeros((program.size, program.size), dtype=int).astype(object), scale)
    for nodes, block in zip(program.sets, blocks, strict=True):
        r.whole[np.ix_(nodes, nodes)] += block
    limit = {} if cap is None else {"cap": exact(cap, least=scale).whole}
    m, k = _feasible(problem, (r.whole / scale).astype(float), r, tau, limit)
    multipliers = seeds.multipliers_of(program, design.proof)
    w = exact(problem.mixing, least=1 << BITS)
    factor, paid, left = _factor_on_sets(program, multipliers, w)
    proved = _bound(w, factor, multipliers.weights[0], tau)
    cost = int((paid * limit["cap"]).sum()) if limit else 0
    above = _gap_over_nodes(design, proved, w, r, tau, cost)
    fields = {"W": w.whole, "sets": program.sets, "P": list(map(_triangle, blocks))}
    fields |= {"tau": tau.whole, "cap": limit.get("cap")}
    fields |= {"dW": w.scale, "dR": scale, "dt": tau.scale} | _claims(design, above)
    fields |= {"M": _triangle(m.whole), "L": factor, "Z": proved.z, "b": proved.b, "w": paid}
    fields |= {"Q": roots, "D": left, "K": k, "s": proved.s}
    about = """W is the mixing matrix, over dW; sets are the nodes that may share a seed, from
   node 0 on, P the lower triangles of their blocks, over dR, whose sum is R, the covariance; tau
   the squared sensitivity that each node is allowed, over dt; cap that of variances, squared
   noise, over dR. Proved: R is feasible and of this structure, as all is that it is compared
   with, tr(W^T W R) is"""
    names = ("Seeds", "Seeds", "check_seeds", "proved_seeds", "check_seeds_sound")
    return Claim(design, fields, above, f"{program.size} nodes", names, about)


def _root(a: Any, scale: int) -> Any:
    """Return B, A - B^T B diagonally dominant, A over the scale and B over its root; or None."""
    values, vectors = np.linalg.eigh((a / scale).astype(float))
    unit, top = math.isqrt(scale), max(values[-1], 0.0)
    rounding = 8 * len(a) * (EPS * top + math.sqrt(top) / unit)
    kept = np.maximum(values - rounding, 0.0)
    root = cut(exact((vectors * np.sqrt(kept)).T, least=unit), unit).whole
    left = a - root.T @ root
    return root if (np.abs(left).sum(axis=1) <= 2 * np.diagonal(left)).all() else None


def _factor_on_sets(
    program: SeedProgram, multipliers: seeds.Multipliers, w: Exact
) -> tuple[Any, Any, list[Any]]:
    """Return L, w and what is left on every set, D^T D <= W^T W + diag(w) - L^T L."""
    prices = np.zeros(program.size)
    if program.cap is not None and multipliers.cap is not None:
        prices = np.maximum(multipliers.cap, 0.0)
    given, none = multipliers.factors, np.ones(multipliers.weights.shape)
    proves = seeds.lower_bound(program, multipliers) > 0  # finite, too
    worst: Any = proves and seeds.largest_eigenvalue(program, given, none, prices)
    _require(worst, "multipliers that prove a bound", "others")
    square = w.scale**2
    paid = cut(exact(prices, least=square), square).whole
    above = times(w.whole.T, w.whole) + np.diag(paid)
    for margin in MARGINS:
        factor = cut(exact(given[0] / np.sqrt(worst * (1 + margin)), least=w.scale), w.scale).whole
        rest = above - times(factor.T, factor)
        left = [_root(rest[np.ix_(nodes, nodes)], square) for nodes in program.sets]
        if all(root is not None for root in left):
            return factor, paid, left
    raise NotProvedError("the multipliers are not proved feasible")


# --- over time ----------------------------------------------------------------------------------


def _in_time(design: Design) -> Claim:
    """Prove a design over time in whole numbers."""
    problem: Any = design.problem
    strategy, count = design.strategy, problem.participation.count()
    _require(not np.triu(strategy, 1).any(), "a lower triangular strategy", "another")
    _require(count <= MOST, f"at most {MOST} patterns of participation", str(count))
    steps = [list(map(int, pattern)) for pattern in problem.participation.maximal_patterns()]
    limit = problem.max_variance
    tau = exact(
        np.ones(len(steps)) if problem.budget is None else problem.budget,
        least=1 if limit is None else exact(limit).scale,
    )
    cap = None if limit is None else exact(limit, least=tau.scale).whole
    # Feasible: absolute entries of C^T C on every pattern add up to no more than its budget.
    c = exact(strategy)
    for pattern, budget in zip(steps, tau.whole, strict=True):
        columns = c.whole[:, pattern]
        used = int(np.abs(columns.T @ columns).sum()) * tau.scale
        kept = used <= budget * c.scale**2
        _require(kept, f"a squared sensitivity within budget on the steps {pattern}", "more")
    m = near(np.tril(np.linalg.inv(strategy)).T)
    if cap is not None:  # which variances may reach
        m = _refined(m, Exact(times(c.whole.T, c.whole), c.scale**2), np.triu)
    identity = times(c.whole, m.whole.T)
    k = (m.scale * c.scale) ** 2
    away = _away(k, times(identity.T, identity))
    left = k - away
    _require(left > 0, "an invertible strategy", "one that is not proved to be")
    if cap is not None:
        kept = ((m.whole**2).sum(axis=0) * c.scale**2 * tau.scale <= left * cap).all()
        _require(kept, "variances that keep the cap", "one that does not")
    # Nearly optimal: theorem A. H is over the square of the scale of L.
    prices, whole = np.zeros(len(strategy)), Enclosure(problem.gram, np.zeros(()))
    if cap is not None:
        dual = dual_of(design.proof)
        prices = prices if dual is None or dual.cap is None else np.maximum(dual.cap, 0.0)
        whole = whole.plus(Enclosure(np.diag(prices), np.zeros(())))
    lower = factor_below(whole).factor
    factor, h = exact(lower), exact(problem.gram)
    if factor.scale > 1:
        scale = 1 << max(BITS, (h.scale.bit_length() + 1) // 2)
        factor = cut(exact(lower, least=scale), scale)
        h = exact(problem.gram, least=scale**2)
    paid = cut(exact(prices, least=factor.scale**2), factor.scale**2).whole
    _require_dominant(h.whole + np.diag(paid) - times(factor.whole.T, factor.whole))
    cost = 0 if cap is None else int((paid * cap).sum())
    on, guess = _columns(design, steps)
    b = near(guess)
    u, _, v = np.linalg.svd(lower @ guess, full_matrices=False)
    z = near(u @ v)
    s = z.scale**2
    most = [int((b.whole[:, on == a] ** 2).sum(axis=1).max()) for a in range(len(steps))]
    price = (s + _away(s, times(z.whole, z.whole.T))) * int((most * tau.whole).sum())
    alpha = int((times(factor.whole, b.whole) * z.whole).sum())
    # H with w alone is semidefinite: the error of M costs what w is paid, and is nearly nothing.
    found = int((times(m.whole, h.whole) * m.whole).sum()) * c.scale**2 * tau.scale
    found += 2 * away * cost
    objective = Fraction(found, factor.scale**2 * tau.scale * left)
    reached = left * (alpha**2 * tau.scale**2 - price * cost)
    above = _stated(design, objective, found * price, reached)
    fields = {"H": _triangle(h.whole), "C": _triangle(c.whole), "steps": steps, "tau": tau.whole}
    fields |= {"cap": cap, "dL": factor.scale, "dC": c.scale, "dt": tau.scale}
    fields |= _claims(design, above)
    fields |= {"M": m.whole, "L": _triangle(factor.whole), "Z": z.whole, "B": b.whole}
    fields |= {"on": on.tolist(), "w": paid, "K": k, "s": s}
    about = """H is the lower triangle of A^T A, over dL^2, C that of the strategy, over dC;
   steps are the patterns of participation, from step 0 on, tau their squared sensitivities, and
   cap that of variances, squared noise, both over dt. Proved: C^T C is feasible, and
   tr(H (C^T C)^-1) is"""
    names = ("Time", "Strategy", "check_time", "proved_time", "check_time_sound")
    return Claim(design, fields, above, f"{len(strategy)} steps", names, about)


def _columns(design: Design, steps: list[list[int]]) -> tuple[Any, Array]:
    """Return B, whose B B^T are the multipliers, (T, p), and the pattern of every column, (p,)."""
    if (dual := dual_of(design.proof)) is not None:
        blocks: list[Any] = list(zip(map(np.array, steps), dual.blocks, strict=True))
    else:
        groups = multipliers_of(design.proof)
        blocks = [pair for one in groups for pair in zip(one.steps, one.blocks, strict=True)]
    on: list[int] = []
    found = []
    for pattern, block in blocks:
        at = set(pattern.tolist())
        on += [next(a for a, whole in enumerate(steps) if at <= set(whole))] * len(at)
        values, vectors = np.linalg.eigh((block + block.T) / 2)
        columns = np.zeros((len(design.strategy), len(at)))
        columns[pattern] = vectors * np.sqrt(np.maximum(values, 0.0))
        found.append(columns)
    return np.array(on), np.hstack(found)


# --- the text -----------------------------------------------------------------------------------


def _stated(design: Design, objective: Fraction, above: int, below: int) -> int:
    """Return one and the gap in units, rounded up, where the design claims what was found."""
    _require(above > 0 and below > 0, "multipliers that prove a bound", "others")
    ratio = Fraction(above, below)
    for name, found in ("objective", objective), ("lower_bound", objective / ratio):
        claimed = Fraction(getattr(design, name))
        off = claimed - found if name == "lower_bound" else abs(found - claimed)
        expected = f"the {name} that follows from the arrays, {float(found)!r}"
        _require(off * CLAIM <= claimed, expected, repr(float(claimed)))
    return -(-ratio.numerator * UNITS // ratio.denominator)


def _claims(design: Design, above: int) -> dict[str, int]:
    """Return the objective claimed, and one and the gap that is proved, as fractions."""
    numerator, denominator = float(design.objective).as_integer_ratio()
    return {"po": numerator, "qo": denominator, "gn": above, "gd": UNITS}


def _shown(value: Any) -> str:
    """Write a number, a list of them or a matrix."""
    if isinstance(value, int):
        return str(value) if value >= 0 else f"({value})"
    between = "; " if isinstance(value[0], int) else ";\n  "
    return f"[:: {between.join(map(_shown, value))}]"


def _field(name: str, value: Any) -> str:
    """Write a field of the record that Rocq is given, with its name."""
    shown = "None" if value is None else _shown(value)
    if name in ("steps", "on", "sets"):
        shown += "%N"
    elif name in SIGNS and value is not None:
        shown = f"(Some {shown})"
    return f"  (* {name} *) {shown}"


def _text(claim: Claim) -> str:
    """Write the file of a theorem."""
    design, fields, _, rows, names, about = claim
    n = int(rows.split()[0])
    module, record, check, proved, sound = names
    large = n > LARGE
    kind, scope = ("machine", "bigZ") if large else ("binary", "Z")
    more = "From Bignums Require Import BigZ.\n" if large else ""
    said = "\n".join(_field(name, value) for name, value in fields.items())
    # The first line tells such files, which may be replaced, from others.
    return f"""(* Written by noisedesign prove, as docs/guides/proofs.md says: a theorem.

   The noise of {rows}: {about} {design.objective!r}
   to one in {CLAIM}, and nothing that is feasible has less than this over 1 + {claim.gap:.3g}. *)
From Coq Require Import ZArith.
{more}From mathcomp Require Import all_ssreflect all_algebra.
From noisedesign Require Import Numbers {"Fast " if large else ""}{module}.
Local Open Scope {scope}_scope.
Definition design := @{record} {kind}
{said}.
Lemma holds : @{check} {kind} {CLAIM} {n} design = true.
Proof. vm_cast_no_check (erefl true). Qed.
Theorem optimal (F : realFieldType) : {proved} F ({CLAIM} : {kind}) {n} design.
Proof. exact: {sound} holds. Qed.
Print Assumptions optimal.
"""
