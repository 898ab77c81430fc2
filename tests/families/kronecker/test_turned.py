"""Bounds by multipliers of every node's own: below the nuclear norm they stand for, near the
optimum, proved to every digit, and nobody's word is taken for them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import mpmath
import networkx as nx
import numpy as np
import pytest

import noisedesign as nd
from noisedesign.base.enclosures import Contraction
from noisedesign.base.monitor import Monitor
from noisedesign.certify.rigorous import NotProvedError
from noisedesign.families.kronecker import bound, rigorous, solver, turned
from noisedesign.families.kronecker.bound import Witness
from noisedesign.families.kronecker.turned import Turned
from noisedesign.families.space_time import SpaceTimeProgram
from noisedesign.system.participation import single
from noisedesign.system.workloads import workload
from tests.support.oracles import metropolis
from tests.support.space_time_cases import (
    GRAPHS,
    all_iterates,
    design_full,
    patterns_of,
    stacked_workload,
)

Array = Any
BUDGETS = np.linspace(0.5, 2.0, 5)
SCHEMES = [(1, 5), (2, 3), (4, 1)]


def asked(epochs: int, separation: int, *, even: bool = False) -> SpaceTimeProgram:
    return all_iterates(GRAPHS["lollipop"], epochs, separation, 1.0 if even else BUDGETS)


def at_random(program: SpaceTimeProgram, seed: int) -> Turned:
    """Roots of any kind, and orthogonal matrices of any kind."""
    rng = np.random.default_rng(seed)
    n, k, b = len(program.budget), program.participation.epochs, program.participation.separation
    count = turned.turns_of(k * b)
    return Turned(
        roots=rng.standard_normal((n, b, k, k)),
        basis=np.linalg.qr(rng.standard_normal((k * b, k * b)))[0],
        turns=np.linalg.qr(rng.standard_normal((count, n, n)))[0],
    )


def dense_bound(program: SpaceTimeProgram, roots: Array) -> float:
    """||A diag(B_u)||_*^2 over the price, through all pairs of node and step."""
    n, k, b = len(program.budget), program.participation.epochs, program.participation.separation
    a = stacked_workload(program.workload.mixing, k * b)
    columns = patterns_of(n, k, b)  # node u of pattern j is number j n + u
    halves = [a[:, columns[j * n + u]] @ roots[u, j] for j in range(b) for u in range(n)]
    price = sum(
        program.budget[u] * max(np.sum(row**2) for row in roots[u, j])
        for j in range(b)
        for u in range(n)
    )
    return float(np.linalg.svd(np.hstack(halves), compute_uv=False).sum() ** 2 / price)


def found_by_search(program: SpaceTimeProgram) -> tuple[Witness, Turned]:
    monitor = Monitor(gap=1e-8)
    factors = solver.design_kronecker(program, monitor=monitor)
    witness = solver.witness_of(program, factors, monitor)
    return witness, solver.turning(witness, program, monitor=monitor)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_any_arrays_prove_at_most_their_nuclear_norm_which_is_at_most_the_optimum(
    scheme: tuple[int, int],
) -> None:
    program = asked(*scheme)
    optimum = design_full(program, gap=1e-9).certificate
    for seed in range(4):
        given = at_random(program, seed)
        found, dense = turned.lower_bound(program, given), dense_bound(program, given.roots)
        assert 0 < found <= dense * (1 + 1e-12)
        assert dense <= optimum.objective
        proved = rigorous.turned_bound(program, given)
        assert proved.lower <= found * (1 + 1e-9) <= proved.upper * (1 + 1e-9)
        assert proved.lower == pytest.approx(found, rel=1e-9)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_those_of_one_product_prove_what_it_proves(scheme: tuple[int, int]) -> None:
    program = asked(*scheme)
    witness, _ = found_by_search(program)
    alike = Turned.of(program, witness)
    expected = bound.lower_bound(program, witness)
    assert turned.lower_bound(program, alike) == pytest.approx(expected, rel=1e-7)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_what_a_search_finds_is_near_the_optimum_where_a_product_is_not(
    scheme: tuple[int, int],
) -> None:
    program = asked(*scheme)
    optimum = design_full(program, gap=1e-9).certificate
    witness, found = found_by_search(program)
    missing = 1 - turned.lower_bound(program, found) / optimum.lower_bound
    before = 1 - bound.lower_bound(program, witness) / optimum.lower_bound
    assert -1e-9 <= missing < 1.5e-3
    assert missing < before / 4


def test_no_round_proves_less_than_the_one_before() -> None:
    program = asked(2, 3)
    better, values = at_random(program, 5), []
    for _ in range(6):
        expected = turned.lower_bound(program, better)
        value, better = turned.improved(program, better)
        assert value == pytest.approx(expected, rel=1e-7)
        values.append(value)
    assert (np.diff(values) >= -1e-12 * values[0]).all()
    assert values[-1] > 1.2 * values[0]


def test_best_roots_for_given_polar_factors_by_hand() -> None:
    """One step of W = I, B_u a number b_u: Z = sign(b), G = I, so that the best b_u are 1 / tau_u
    and the bound is the sum of those, which is what independent noise costs."""
    workload_of_one = workload.Workload.of(np.eye(3), horizon=1)
    program = SpaceTimeProgram(
        workload=workload_of_one, participation=single(1), budget=np.array([1.0, 2.0, 4.0])
    )
    start = Turned(
        roots=np.array([5.0, 1.0, 1.0]).reshape(3, 1, 1, 1), basis=np.eye(1), turns=np.eye(3)[None]
    )
    _, better = turned.improved(program, start)
    np.testing.assert_allclose(better.roots.ravel(), [1.0, 0.5, 0.25], rtol=1e-12)
    assert turned.lower_bound(program, better) == pytest.approx(1.75, rel=1e-12)
    assert program.independent_objective == pytest.approx(1.75, rel=1e-12)


def test_arrays_that_are_not_orthogonal_are_made_so() -> None:
    program = asked(2, 2)
    good = found_by_search(program)[1]
    expected = turned.lower_bound(program, good)
    optimum = design_full(program, gap=1e-9).certificate.objective
    for larger in (
        replace(good, basis=3 * good.basis),
        replace(good, turns=3 * good.turns),
        replace(good, roots=1e150 * good.roots),
        replace(good, roots=-good.roots),
    ):
        assert turned.lower_bound(program, larger) == pytest.approx(expected, rel=1e-9)
        proved = rigorous.turned_bound(program, larger)
        assert proved.lower == pytest.approx(expected, rel=1e-9)
    rng = np.random.default_rng(0)
    for _ in range(10):
        other = Turned(
            roots=rng.standard_normal(good.roots.shape),
            basis=rng.standard_normal(good.basis.shape),
            turns=rng.standard_normal(good.turns.shape),
        )
        assert turned.lower_bound(program, other) <= optimum
        assert rigorous.turned_bound(program, other).lower <= optimum


@pytest.mark.parametrize("broken", [np.nan, np.inf, 0.0])
@pytest.mark.parametrize("name", ["roots", "basis", "turns"])
def test_what_is_no_number_proves_nothing(name: str, broken: float) -> None:
    program = asked(2, 2)
    given = replace(at_random(program, 0), **{name: broken * at_random(program, 0).roots})
    if broken == 0.0 and name != "roots":
        return  # any orthogonal matrix will do
    shape = getattr(at_random(program, 0), name).shape
    given = replace(given, **{name: np.full(shape, broken)})
    assert turned.lower_bound(program, given) == 0
    with pytest.raises(NotProvedError):
        rigorous.turned_bound(program, given)


@pytest.mark.parametrize("of", ["all-iterates", "loss"])
def test_eigenvectors_of_another_processor_leave_bounds_as_they_are(
    of: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Eigenvalues of a ring are there twice, so that its eigenvectors turn; files of before bounds
    kept theirs prove less then."""
    w = (metropolis(nx.cycle_graph(6)) + np.eye(6)) / 2
    error = None if of == "all-iterates" else nd.ErrorMeasure(horizon=4, of=of, curvature=0.3)
    epochs = nd.participation.FixedEpoch(epochs=2, separation=2)
    found = nd.solve(nd.SpaceTimeProblem(mixing=w, participation=epochs, error=error)).design
    assert found is not None
    values, vectors = np.linalg.eigh(w)
    for j in np.flatnonzero(np.diff(values) < 1e-12):
        vectors[:, [j, j + 1]] = vectors[:, [j, j + 1]] @ [[0.6, 0.8], [-0.8, 0.6]]
    monkeypatch.setattr(
        workload.Workload, "modes", property(lambda self: self._split(values, vectors))
    )
    assert nd.verify(found, rigorous=True).ok
    before = {name: array for name, array in found.proof.items() if name != turned.MODES}
    assert not nd.verify(replace(found, proof=before)).ok


def test_vectors_that_are_no_eigenvectors_prove_nothing() -> None:
    w = (metropolis(nx.path_graph(4)) + np.eye(4)) / 2
    found = nd.solve(
        nd.SpaceTimeProblem(
            mixing=w, participation=nd.participation.FixedEpoch(epochs=2, separation=2)
        )
    ).design
    assert found is not None
    program = SpaceTimeProgram.of(found.problem)
    assert turned.proved(program, found.proof) == pytest.approx(found.lower_bound)
    basis = found.proof[turned.MODES]
    for other in (basis[:, [1, 0, 2, 3]] + 1e-6, basis * 1.001, np.eye(4)):
        assert turned.proved(program, found.proof | {turned.MODES: other}) == 0.0


def test_a_workload_without_modes_is_not_bounded_by_them() -> None:
    program = all_iterates(GRAPHS["directed"], 2, 2)
    given = at_random(program, 0)
    assert not turned.fits(program)
    assert turned.lower_bound(program, given) == 0
    with pytest.raises(NotProvedError, match="modes"):
        rigorous.turned_bound(program, given)


@pytest.mark.parametrize("spoil", ["turned", "scaled", "reversed", "factors"])
def test_a_proof_trusts_no_modes(spoil: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is said of eigenvectors and eigenvalues, no more is proved than the truth."""
    program = asked(2, 2)
    good = found_by_search(program)[1]
    truth = dense_bound(program, good.roots)
    modes = program.workload.modes
    wrong = np.linalg.qr(np.random.default_rng(3).standard_normal((5, 5)))[0]
    spoiled = {
        "turned": replace(modes, basis=wrong),
        "scaled": replace(modes, basis=0.9 * modes.basis),
        "reversed": replace(modes, basis=modes.basis[::-1]),
        "factors": replace(modes, factor=lambda m: 1.1 * modes.factor(m)),
    }[spoil]
    monkeypatch.setitem(program.workload.__dict__, "modes", spoiled)
    assert program.workload.modes is spoiled
    assert rigorous.turned_bound(program, good).lower <= truth


def test_norms_of_what_is_nearly_orthogonal_are_divided_by(monkeypatch: pytest.MonkeyPatch) -> None:
    """Q, E and all S larger by 1e-8 raise < A diag(B), Z >, and no bound."""
    program, times = asked(2, 2), 1 + 1e-8
    good = found_by_search(program)[1]
    before, nearest = rigorous.turned_bound(program, good), rigorous._orthogonal
    for at in range(2 + len(good.turns)):
        asks = itertools.count()

        def larger(a: Array, at: int = at, asks: Iterator[int] = asks) -> Contraction:
            found = nearest(a)
            by = times if at == next(asks) else 1.0
            return Contraction(by * found.matrix, by * found.norm)

        monkeypatch.setattr(rigorous, "_orthogonal", larger)
        after = rigorous.turned_bound(program, good)
        assert after.lower <= before.lower * (1 + 1e-10)
        assert next(asks) == 2 + len(good.turns)


def test_proofs_are_below_the_nuclear_norm_of_fifty_digits() -> None:
    """Where all nodes are alike the two are equal, and no rounding may make a proof the larger."""
    w = (np.eye(2) + np.ones((2, 2))) / 3
    program = all_iterates(w, 2, 1)
    good = found_by_search(program)[1]
    n = len(w)
    with mpmath.workdps(50):
        exact = mpmath.matrix(w.tolist())
        second = exact * exact
        half = mpmath.zeros(2 * n)
        for u in range(n):
            for c in range(2):
                first, later = (mpmath.mpf(good.roots[u, 0, s, c]) for s in range(2))
                for v in range(n):
                    half[v, 2 * u + c] = exact[v, u] * first
                    half[n + v, 2 * u + c] = second[v, u] * first + exact[v, u] * later
        price = sum(
            max(sum(mpmath.mpf(x) ** 2 for x in row) for row in root[0].tolist())
            for root in good.roots
        )
        truth = sum(mpmath.svd_r(half, compute_uv=False)) ** 2 / price
        proved = rigorous.turned_bound(program, good)
        assert proved.lower <= truth
        assert truth - proved.lower <= 1e-9 * truth


@pytest.mark.parametrize("joint", ["kronecker", "modal"])
def test_designs_are_bounded_by_them_and_keep_them(joint: str, tmp_path: Any) -> None:
    problem = nd.SpaceTimeProblem(
        mixing=GRAPHS["lollipop"],
        participation=nd.participation.FixedEpoch(epochs=2, separation=2),
        joint=joint,
        budget=BUDGETS,
    )
    design = nd.solve(problem).design
    assert design is not None
    assert set(design.proof) == {*turned.SPECS, turned.MODES}
    stored = nd.load(nd.save(design, tmp_path / "d.npz"))
    outcome = nd.verify(stored, rigorous=True)
    assert outcome.ok
    assert outcome.rigorous
    assert outcome.proof is not None
    assert outcome.proof.gap == pytest.approx(design.gap, abs=1e-9)
    # Without time nobody waits for them.
    program = asked(2, 2)
    late = Monitor(gap=1e-6, time_limit=0.0)
    witness = Witness.uniform(program)
    assert set(solver.proof_of(program, witness, late)) == {"dual_blocks", "dual_weights"}
