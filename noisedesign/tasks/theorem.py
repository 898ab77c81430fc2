"""The theorem that a design is feasible and nearly optimal, as a text that Rocq checks.

The floats of a design are whole numbers over a power of two, and so are their sums and products. Floating point
only guesses the witnesses; what is stated is computed in whole numbers, here and once more by Rocq, against the
files of ``proofs``: docs/mathematics/bound.md, theorem A, and docs/guides/proofs.md."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from noisedesign.base.checks import Array, InputError
from noisedesign.base.enclosures import Enclosure, gram
from noisedesign.certify.rigorous import NotProvedError, factor_below
from noisedesign.design.design import Design
from noisedesign.families.disjoint.family import Disjoint
from noisedesign.families.family import family_of
from noisedesign.families.overlapping.bound import multipliers_of
from noisedesign.families.overlapping.family import Overlapping

FIELD = "design"
BITS = 62  # of the whole numbers of a guess: more of them cost time, fewer some of the gap
FINE = 100  # bits of the inverse of a root of R, whose error must be far below a rounding of float64
LARGE = 24  # rows above which pieces of 63 bits are multiplied, which takes more assumptions: proofs/Fast.v
UNITS = 10**16  # the stated gap is a multiple of one over this, finer than the rounding of a float64
MOST = 2000  # patterns of participation: each is a list in the theorem
MULTIPLIERS = {"dual_weights", "dual_blocks", "pattern_blocks"}  # arrays that prove a bound
COVERED = (
    "a design over nodes, of the error of one step of one W, or one over time without a cap or random participation; "
    "without a structure, observers, a trusted server or random mixing"
)
NAMES = {
    "Space": ("Design", "check", "proved", "check_sound"),
    "Time": ("Strategy", "check_time", "proved_time", "check_time_sound"),
}
ROWS = {"Space": "nodes", "Time": "steps"}
CLAIM = 10**9  # the objective of the file is proved to one over this


class Exact(NamedTuple):
    """An array of Python's whole numbers, over ``scale``, a power of two."""

    whole: Any
    scale: int


def exact(a: Array, *, least: int = 1) -> Exact:
    """Return floats as whole numbers over the smallest power of two that they share, and not below ``least``."""
    ratios = [x.as_integer_ratio() for x in np.asarray(a).ravel().tolist()]
    scale = max([least, *(below for _, below in ratios)])
    whole = np.empty(len(ratios), dtype=object)
    whole[:] = [above * (scale // below) for above, below in ratios]
    return Exact(whole.reshape(np.shape(a)), scale)


def near(a: Array, *, bits: int = BITS) -> Exact:
    """Return whole numbers of at most so many bits over a power of two, about these floats."""
    return cut(exact(a), bits - int(np.frexp(np.abs(a).max())[1]))


def cut(a: Exact, places: int) -> Exact:
    """Round to so many binary places behind the point; to none where there are fewer than one."""
    scale = 1 << max(places, 0)
    if scale >= a.scale:
        return a
    by = a.scale // scale
    return Exact((2 * a.whole + by) // (2 * by), scale)


def away(k: int, a: Any) -> int:
    """Return the largest row sum of absolute values of k I - A."""
    return int(np.abs(k * np.eye(len(a), dtype=object) - a).sum(axis=1).max())


def require(holds: object, expected: str, got: str) -> None:
    """Refuse a design that is not what it says."""
    if not holds:
        raise InputError(FIELD, expected=expected, got=got)


def theorem(design: Design) -> str:
    """Write the theorem of a design in the language of Rocq, with all numbers that its proof takes.

    Args:
        design: one over nodes, of the error of one step, whose budgets may differ, with caps and floors if there are
            some; or one over time, of any fixed participation. Without a structure.

    Returns:
        The text of a file that Rocq accepts beside ``proofs``: the noise is feasible, its objective is that of the
        file to one in 10^9, and no other has less than this objective over one and a gap, which is stated.

    Raises:
        InputError: a design of another kind; one that is not feasible in whole numbers, or claims an objective or a
            bound that it does not have.

    Examples:
        >>> import noisedesign as nd
        >>> from noisedesign.tasks.theorem import theorem
        >>> ring = nd.SpaceProblem.from_graph(nd.build_graph("ring", nodes=4))
        >>> "Theorem optimal" in theorem(nd.solve(ring).design)
        True
    """
    problem, family = design.problem, family_of(design.problem)
    plain = isinstance(family, Disjoint | Overlapping) and design.trust == "local" and problem.axes in WRITERS
    plain = plain and problem.random is None and (problem.axes == "time" or (problem.error is None and problem.rounds == 1))
    plain = plain and not (problem.axes == "time" and (problem.max_variance is not None or problem.participation.random))
    if not plain:
        got = f"one over {problem.axes} of the family {family.name!r}, or with one of these"
        raise InputError(FIELD, expected=COVERED, got=got)
    require(MULTIPLIERS & set(design.proof), "multipliers, which prove a bound", "none, as of a baseline")
    return WRITERS[problem.axes](design)


def _in_space(design: Design) -> str:
    """Prove a design over nodes in whole numbers, and write its theorem."""
    problem, covariance = design.problem, design.covariance
    require((covariance == covariance.T).all(), "a symmetric covariance", "another")
    limits = {"cap": problem.max_variance, "floor": problem.min_variance}
    limits = {name: a for name, a in limits.items() if a is not None}
    r = exact(covariance, least=max([exact(a).scale for a in limits.values()], default=1))
    limit = {name: exact(a, least=r.scale).whole for name, a in limits.items()}
    tau = exact(problem.budget)
    # Feasible: (K - f) [R^-1]_ii <= sum_k M_ki^2 for any M with M R M^T about K I.
    m = _inverse_root(covariance, r)
    k = m.scale**2 * r.scale
    left = k - away(k, m.whole @ r.whole @ m.whole.T)
    require(left > 0, "a positive definite covariance", "one that is not proved to be")
    over = (m.whole**2).sum(axis=0) * (r.scale * tau.scale) > left * tau.whole
    for i in np.flatnonzero(over):
        require(False, f"[R^-1]_ii within the budget of node {problem.nodes[i]}", "more")
    for name, sign in ("cap", 1), ("floor", -1):
        kept = name not in limit or (sign * (limit[name] - np.diagonal(r.whole)) >= 0).all()
        require(kept, f"variances that keep the {name}", "one that does not")
    # Nearly optimal: theorem A.
    w, factor, paid = _factor(design, limit)
    b = near(np.sqrt(np.maximum(design.proof["dual_weights"], 0.0)))
    u, _, v = np.linalg.svd((factor * b.whole / (w.scale * b.scale)).astype(float), full_matrices=False)
    z = near(u @ v)
    s = z.scale**2
    price = (s + away(s, z.whole.T @ z.whole)) * int((b.whole**2 * tau.whole).sum())
    alpha = int((b.whole * (factor * z.whole).sum(axis=0)).sum())
    worth = sum(int((paid[name] * limit[name]).sum()) * sign for name, sign in (("cap", 1), ("floor", -1)) if name in limit)
    reached = alpha**2 * r.scale * tau.scale - price * worth
    found = int((w.whole @ r.whole * w.whole).sum())
    above = _stated(design, Fraction(found, w.scale**2 * r.scale), Fraction(found * price, max(reached, 1)))
    po, qo = float(design.objective).as_integer_ratio()
    fields = {"W": w.whole, "R": _triangle(r.whole), "tau": tau.whole}
    fields |= {name: limit.get(name) for name in ("cap", "floor")}
    fields |= {"dW": w.scale, "dR": r.scale, "dt": tau.scale, "po": po, "qo": qo, "gn": above, "gd": UNITS}
    fields |= {"M": _triangle(m.whole), "L": factor, "Z": z.whole, "b": b.whole}
    fields |= {"w": paid["cap"], "u": paid["floor"], "K": k, "s": s}
    about = """W is the mixing matrix, R the lower triangle of the covariance, tau the squared sensitivity that each node is
   allowed, over the scales dW, dR and dt; cap and floor are those of variances, squared noise, over dR. Proved: R is
   feasible, tr(W^T W R) is"""
    return _text(design, fields, above, rows=len(r.whole), module="Space", about=about)


def _in_time(design: Design) -> str:
    """Prove a design over time in whole numbers, and write its theorem."""
    problem, c = design.problem, exact(design.strategy)
    n, scheme = len(c.whole), problem.participation
    require(not np.triu(design.strategy, 1).any(), "a lower triangular strategy", "another")
    require(scheme.count() <= MOST, f"at most {MOST} patterns of participation", str(scheme.count()))
    steps = [list(map(int, pattern)) for pattern in scheme.maximal_patterns()]
    tau = exact(np.ones(len(steps)) if problem.budget is None else problem.budget)
    # Feasible: absolute entries of C^T C add up to no more than the budget.
    for a, pattern in enumerate(steps):
        columns = c.whole[:, pattern]
        used = int(np.abs(columns.T @ columns).sum()) * tau.scale
        require(used <= tau.whole[a] * c.scale**2, f"a squared sensitivity within budget on the steps {pattern}", "more")
    try:
        m = near(np.tril(np.linalg.inv(design.strategy)).T)
        lower = factor_below(Enclosure(problem.gram, np.zeros(()))).factor
    except (np.linalg.LinAlgError, NotProvedError):
        require(False, "an invertible strategy and a positive definite workload", "others")
    product = c.whole @ m.whole.T
    k = (m.scale * c.scale) ** 2
    f = away(k, product.T @ product)
    require(f < k, "an invertible strategy", "one that is not proved to be")
    # Nearly optimal: theorem A. H is over the square of the scale of L.
    least = 1 << max(BITS, -(-(exact(problem.gram).scale.bit_length() - 1) // 2))
    factor = exact(lower) if (lower == np.rint(lower)).all() else cut(exact(lower, least=least), least.bit_length() - 1)
    h = exact(problem.gram, least=factor.scale**2)
    left = h.whole - factor.whole.T @ factor.whole
    require((np.abs(left).sum(axis=1) <= 2 * np.diagonal(left)).all(), "a definite workload", "another")
    on, columns = _columns(design, steps)
    b = near(columns)
    u, _, v = np.linalg.svd(lower @ columns, full_matrices=False)
    z = near(u @ v)
    s = z.scale**2
    squares = {a: (b.whole[:, on == a] ** 2).sum(axis=1).max() for a in set(on.tolist())}
    price = (s + away(s, z.whole @ z.whole.T)) * int(sum(q * tau.whole[a] for a, q in squares.items()))
    alpha = int((factor.whole @ b.whole * z.whole).sum())
    found = int((m.whole @ h.whole * m.whole).sum()) * c.scale**2
    objective = Fraction(found, factor.scale**2 * (k - f))
    above = _stated(design, objective, Fraction(found * price, max((k - f) * alpha**2 * tau.scale, 1)))
    po, qo = float(design.objective).as_integer_ratio()
    fields = {"H": _triangle(h.whole), "C": _triangle(c.whole), "steps": steps, "tau": tau.whole}
    fields |= {"dL": factor.scale, "dC": c.scale, "dt": tau.scale, "po": po, "qo": qo, "gn": above, "gd": UNITS}
    fields |= {"M": m.whole, "L": _triangle(factor.whole), "Z": z.whole, "B": b.whole, "on": on.tolist(), "K": k, "s": s}
    about = """H is the lower triangle of A^T A, over dL^2, C that of the strategy, over dC; steps are the patterns of
   participation, from step 0, and tau their squared sensitivities, over dt. Proved: C^T C is feasible,
   tr(H (C^T C)^-1) is"""
    return _text(design, fields, above, rows=n, module="Time", about=about)


def _columns(design: Design, steps: list[list[int]]) -> tuple[Any, Array]:
    """Return B, whose B B^T are the multipliers, shape (T, p), and the pattern of every column."""
    proof = design.proof
    if "dual_blocks" in proof:
        blocks = [(np.array(pattern), block) for pattern, block in zip(steps, proof["dual_blocks"], strict=True)]
    else:
        groups = multipliers_of(proof)
        blocks = [pair for one in groups for pair in zip(one.steps, one.blocks, strict=True)]
    on, found = [], []
    for pattern, block in blocks:
        at = set(pattern.tolist())
        on += [next(a for a, whole in enumerate(steps) if at <= set(whole))] * len(pattern)
        values, vectors = np.linalg.eigh((block + block.T) / 2)
        columns = np.zeros((len(design.strategy), len(pattern)))
        columns[pattern] = vectors * np.sqrt(np.maximum(values, 0.0))
        found.append(columns)
    return np.array(on), np.hstack(found)


WRITERS = {"space": _in_space, "time": _in_time}


def _inverse_root(covariance: Array, r: Exact) -> Exact:
    """Return M, lower triangular, with M R M^T about I: a guess, and one step that squares its error."""
    try:
        m = near(np.tril(np.linalg.inv(np.linalg.cholesky(covariance))))
    except np.linalg.LinAlgError:
        require(False, "a positive definite covariance", "another")
    k = m.scale**2 * r.scale
    f = k * np.eye(len(covariance), dtype=object) - m.whole @ r.whole @ m.whole.T
    f = np.tril(f) * 2 - np.diag(np.diagonal(f))
    return cut(Exact(2 * k * m.whole + f @ m.whole, 2 * k * m.scale), FINE)


def _factor(design: Design, limit: Mapping[str, Any]) -> tuple[Exact, Any, dict[str, Any]]:
    """Return W; L over the scale of W, L^T L <= W^T W + diag(w - u); and w of the cap and u of the floor over its square."""
    mixing, proof = design.problem.mixing, design.proof
    w = exact(mixing, least=1 << BITS if limit else 1)
    none = np.zeros(len(mixing))
    duals = {name: np.maximum(proof.get(f"dual_{name}", none), 0.0) for name in ("cap", "floor")}
    paid = {name: cut(exact(a, least=w.scale**2), 2 * w.scale.bit_length() - 2).whole for name, a in duals.items()}
    if not duals["floor"].any():
        roots = cut(exact(np.sqrt(duals["cap"]), least=w.scale), w.scale.bit_length() - 1).whole
        stacked = np.vstack([w.whole, np.diag(roots)]) if roots.any() else w.whole
        return w, stacked, paid | {"cap": roots**2}
    below = np.diag(duals["cap"] - duals["floor"])
    try:
        factor = factor_below(gram(mixing).plus(Enclosure(below, np.zeros(())), 1.0)).factor
    except NotProvedError:
        require(False, "multipliers that prove a bound", "those of the floor prove none")
    whole = cut(exact(factor, least=w.scale), w.scale.bit_length() - 1).whole
    left = w.whole.T @ w.whole + np.diag(paid["cap"] - paid["floor"]) - whole.T @ whole
    require((np.abs(left).sum(axis=1) <= 2 * np.diagonal(left)).all(), "multipliers that prove a bound", "others")
    return w, whole, paid


def _stated(design: Design, objective: Fraction, above: Fraction) -> int:
    """Return one and the gap in units, rounded up, where the claims of the design are those found."""
    require(above > 0, "multipliers that prove a bound", "others")
    for name, found in ("objective", objective), ("lower_bound", objective / above):
        claimed = Fraction(getattr(design, name))
        off = abs(found - claimed) * CLAIM > claimed
        require(not off, f"the {name} that follows from the arrays, {float(found)!r}", repr(float(claimed)))
    return -(-above.numerator * UNITS // above.denominator)


def _triangle(a: Any) -> list[Any]:
    """Return the rows of a lower triangle."""
    return [row[: i + 1] for i, row in enumerate(a)]


def _shown(value: Any) -> str:
    """Write a number, a list of them or a matrix."""
    if isinstance(value, int):
        return str(value) if value >= 0 else f"({value})"
    between = "; " if isinstance(value[0], int) else ";\n  "
    return f"[:: {between.join(map(_shown, value))}]"


def _field(name: str, value: Any) -> str:
    """Write a field of the record that Rocq is given, with its name."""
    shown = "None" if value is None else _shown(value)
    if name in ("steps", "on"):
        shown += "%N"
    elif name in ("cap", "floor") and value is not None:
        shown = f"(Some {shown})"
    return f"  (* {name} *) {shown}"


def _text(
    design: Design, fields: Mapping[str, Any], above: int, *, rows: int, module: str, about: str
) -> str:
    """Write the file of a theorem."""
    large = rows > LARGE
    kind, scope, more = ("machine", "bigZ", "From Bignums Require Import BigZ.\n") if large else ("binary", "Z", "")
    whole, check, proved, sound = NAMES[module]
    said = "\n".join(_field(name, value) for name, value in fields.items())
    gap = float(Fraction(above - UNITS, UNITS))
    return f"""(* A theorem about the noise of {rows} {ROWS[module]}, written by noisedesign prove: docs/guides/proofs.md.

   {about} {design.objective!r}
   to one in {CLAIM}, and nothing that is feasible has less than this over 1 + {gap:.3g}. *)
From Coq Require Import ZArith.
{more}From mathcomp Require Import all_ssreflect all_algebra.
From noisedesign Require Import Numbers {"Fast " if large else ""}{module}.
Local Open Scope {scope}_scope.
Definition design := @{whole} {kind}
{said}.
Lemma holds : @{check} {kind} {CLAIM} {rows} design = true.
Proof. vm_cast_no_check (erefl true). Qed.
Theorem optimal (F : realFieldType) : {proved} F ({CLAIM} : {kind}) {rows} design.
Proof. exact: {sound} holds. Qed.
Print Assumptions optimal.
"""
