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

FIELD = "design"
BITS = 62  # of the whole numbers of a guess: more of them cost time, fewer some of the gap
FINE = 100  # bits of the inverse of a root of R, whose error must be far below a rounding of float64
LARGE = 24  # rows above which pieces of 63 bits are multiplied, which takes more assumptions: proofs/Fast.v
UNITS = 10**16  # the stated gap is a multiple of one over this, finer than the rounding of a float64
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
        design: one over nodes, without a structure, of the error of one step; budgets may differ, and there may be
            caps and floors.

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
    expected = "a design over nodes, of the error of one step, without a structure, observers or a trusted server"
    plain = isinstance(family, Disjoint) and design.trust == "local" and problem.axes == "space"
    if not plain or problem.error is not None or problem.random is not None or problem.rounds > 1:
        raise InputError(FIELD, expected=expected, got=f"one over {problem.axes} of the family {family.name!r}")
    require("dual_weights" in design.proof, "multipliers, which prove a bound", "none, as of a baseline")
    return _in_space(design)


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
    return _text(design, fields, above)


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


def _option(value: Any) -> str:
    """Write what may be absent."""
    return "None" if value is None else f"(Some {_shown(value)})"


def _text(design: Design, fields: Mapping[str, Any], above: int) -> str:
    """Write the file of a theorem."""
    large, n = len(design.covariance) > LARGE, len(design.covariance)
    kind, scope, more = ("machine", "bigZ", "From Bignums Require Import BigZ.\n") if large else ("binary", "Z", "")
    shown = {name: (_option if name in ("cap", "floor") else _shown)(value) for name, value in fields.items()}
    rows = "\n".join(f"  (* {name} *) {value}" for name, value in shown.items())
    gap = Fraction(above - UNITS, UNITS)
    return f"""(* A theorem about noise for {n} nodes, written by noisedesign prove: docs/guides/proofs.md.

   W is the mixing matrix, R the lower triangle of the covariance, tau the squared sensitivity that each node is allowed,
   all over the scales dW, dR and dt; cap and floor are those of variances, squared noise, over dR. Proved: R is feasible,
   tr(W^T W R) is {design.objective!r} to one in {CLAIM}, and no feasible covariance has less than it over 1 + {float(gap):.3g}. *)
From Coq Require Import ZArith.
{more}From mathcomp Require Import all_ssreflect all_algebra.
From noisedesign Require Import Numbers {"Fast " if large else ""}Space.
Local Open Scope {scope}_scope.
Definition design := @Design {kind}
{rows}.
Lemma holds : @check {kind} {CLAIM} {n} design = true.
Proof. vm_cast_no_check (erefl true). Qed.
Theorem optimal (F : realFieldType) : proved F ({CLAIM} : {kind}) {n} design.
Proof. exact: check_sound holds. Qed.
Print Assumptions optimal.
"""
