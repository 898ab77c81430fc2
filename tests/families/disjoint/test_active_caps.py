"""Newton's method on the caps that hold: its parts by definition, its answers in closed form."""

from __future__ import annotations

import itertools

import networkx as nx
import numpy as np
import pytest
import scipy.optimize

from noisedesign.base import eigenvalue_pairs as pairs
from noisedesign.base.device import CPU
from noisedesign.base.monitor import Monitor
from noisedesign.certify.program import Program
from noisedesign.design.solve import solve
from noisedesign.families.disjoint import solver
from noisedesign.families.disjoint.program import program_of
from noisedesign.families.disjoint.solver import active_caps, central_path
from noisedesign.problem.problem import SpaceProblem
from tests.support import oracles

FLORENTINE = oracles.metropolis(nx.florentine_families_graph())
RING = oracles.metropolis(nx.cycle_graph(7))
SPARSE = oracles.metropolis(oracles.erdos_renyi(100, 0.08))


def program(w: np.ndarray, cap: object) -> Program:
    return program_of(SpaceProblem(mixing=w, max_variance=cap)).normalized()


def made(n: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A positive definite H, v and w; every third w vanishes."""
    rng = np.random.default_rng(seed)
    a = rng.standard_normal((n, n))
    w = np.where(np.arange(n) % 3 == 0, 0.0, rng.uniform(0.1, 1, n))
    return a @ a.T / n + np.eye(n) / 5, rng.uniform(0.5, 2, n), w


def of_multipliers(h: np.ndarray, v: np.ndarray, w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """diag(X) and diag(R) by their definitions, without a common frame."""
    root = np.sqrt(v)
    values, vectors = np.linalg.eigh(root[:, None] * (h + np.diag(w)) * root)
    x = (vectors * np.sqrt(values)) @ vectors.T / np.outer(root, root)
    return np.diagonal(x).copy(), np.diagonal(np.linalg.inv(x)).copy()


# --- its parts ------------------------------------------------------------------------------------


@pytest.mark.parametrize("accuracy", [2e-2, 1e-4])
@pytest.mark.parametrize("ratio", [1.0, 1.0001, 1.6, 5.0, 40.0, 1e3, 1e6, 1e10])
def test_kernels_of_few_functions(ratio: float, accuracy: float) -> None:
    found = pairs.shifts(ratio, accuracy=accuracy)
    r = np.geomspace(ratio**-0.5, ratio**0.5, 777)
    for power, mix in pairs.mixes(found).items():
        terms = mix @ pairs.values(r, found)
        kernel = np.multiply.outer(r, r) ** float(power) / np.add.outer(r, r)
        np.testing.assert_allclose(terms.T @ terms / kernel, 1, rtol=0, atol=1.001 * accuracy)
    # Of a matrix with displacement structure singular values fall as fast as this.
    assert len(found) <= 1.001 + np.log(4 / accuracy) * np.log(4 * ratio) / np.pi**2


def test_shifts_are_the_best_there_are() -> None:
    """Equioscillation, and one shift in closed form: the geometric mean of the ends."""
    np.testing.assert_allclose(pairs.shifts(4.0, accuracy=0.2), 1.0, rtol=1e-14)
    found = pairs.shifts(1e3, accuracy=1e-4)
    r = np.geomspace(1e3**-0.5, 1e3**0.5, 20001)
    error = np.prod(np.subtract.outer(r, found) / np.add.outer(r, found), axis=1)
    most = np.abs(error).max()
    peaks = np.abs(error)[1:-1][
        (np.abs(error)[1:-1] >= np.abs(error)[2:]) & (np.abs(error)[1:-1] >= np.abs(error)[:-2])
    ]
    assert most**2 <= 1e-4
    assert len(peaks) == len(found) - 1  # and both ends
    np.testing.assert_allclose([*peaks, abs(error[0]), abs(error[-1])], most, rtol=1e-5)


@pytest.mark.parametrize("powers", [(1, 0, -1), (0, -1), (0,), (1,)])
@pytest.mark.parametrize("n", [3, 75])
def test_sums_over_pairs_by_definition(n: int, powers: tuple[int, ...]) -> None:
    """Of one matrix and of two, in more rows than one block has."""
    rng = np.random.default_rng(n)
    left, right = rng.standard_normal((2, n, n))
    right = right[: n // 2 + 1]
    root = np.sort(rng.uniform(0.2, 30, n))
    own = pairs.sums(left, root, powers, accuracy=1e-9)
    both = pairs.sums(left, root, powers, right=right, accuracy=1e-9)
    for i, power in enumerate(powers):
        kernel = np.multiply.outer(root, root) ** float(power) / np.add.outer(root, root)
        for found, other in ((own[i], left), (both[i], right)):
            signed = left[:, None, :] * other
            expected = np.einsum("abk,kl,abl->ab", signed, kernel, signed)
            np.testing.assert_allclose(found, expected, atol=1e-7 * np.abs(expected).max())
        np.testing.assert_array_equal(own[i], own[i].T)


def test_points_are_at_the_scale_where_the_bound_is_best() -> None:
    h, v, w = made(7, 0)
    point = active_caps.evaluate(h, v, w)
    precision, variance = of_multipliers(h, point.v, w)
    np.testing.assert_allclose(point.precision, precision, rtol=1e-12)
    np.testing.assert_allclose(point.variance, variance, rtol=1e-12)
    assert point.v.sum() == pytest.approx(point.frame.root.sum(), rel=1e-13)
    np.testing.assert_allclose(point.v / v, point.v[0] / v[0])


def test_the_model_is_the_hessian_of_the_dual() -> None:
    """To the error of the kernels, as a form; the Hessian by central differences."""
    h, v, w = made(6, 1)
    w += 0.2
    point = active_caps.evaluate(h, v, w)
    v = point.v
    hessian = np.empty((12, 12))
    for j, step in enumerate(1e-5 * np.eye(12)):
        sides = [of_multipliers(h, v + s * step[:6], w + s * step[6:]) for s in (-1, 1)]
        hessian[:, j] = (
            np.concatenate([sides[0][0] - sides[1][0], sides[0][1] - sides[1][1]]) / 2e-5
        )
    node = np.array([1, 2, 5])
    parts = active_caps._curvature(point, node, accuracy=1e-2)
    found = np.block([[parts[0], parts[1]], [parts[1].T, parts[2]]])
    rows = np.r_[:6, 6 + node]
    expected = hessian[np.ix_(rows, rows)]
    np.testing.assert_allclose(expected, expected.T, atol=1e-7)
    relative = np.linalg.eigvals(np.linalg.solve(expected, found)).real
    assert np.abs(relative - 1).max() < 0.03


def test_second_orders_of_a_step() -> None:
    h, v, w = made(6, 2)
    w += 0.2
    point = active_caps.evaluate(h, v, w)
    rng = np.random.default_rng(3)
    dv, dw = 0.1 * rng.standard_normal((2, 6))
    frame = point.frame
    seen = frame.of_budgets(dv)
    g, rest = frame.second(frame.shared(frame.of_limits(dw) - seen), seen)
    second = frame.precision_along(g), frame.variance_along(rest)
    size = 1e-3
    there = [of_multipliers(h, point.v + s * dv, w + s * dw) for s in (-size, 0, size)]
    for found, low, here, high in zip(second, *there, strict=True):
        np.testing.assert_allclose(found, (low - 2 * here + high) / (2 * size**2), rtol=1e-3)


@pytest.mark.parametrize("seed", range(6))
def test_which_caps_hold(seed: int) -> None:
    """Against every set of caps: the one whose step is feasible and optimal for the model."""
    h, v, w = made(5, seed)
    point = active_caps.evaluate(h, v, w)
    model = active_caps.Model(point, np.arange(5), accuracy=1e-2)
    rng = np.random.default_rng(seed)
    slope_v, slope_w = rng.standard_normal((2, 5))
    dv, dw = model.step(slope_v, slope_w, w)
    parts = active_caps._curvature(point, np.arange(5), accuracy=1e-2)
    matrix = np.block([[parts[0], parts[1]], [parts[1].T, parts[2]]])
    slope, least = np.concatenate([slope_v, slope_w]), np.concatenate([np.full(5, -np.inf), -w])
    optimal = []
    for held in itertools.product([False, True], repeat=5):
        fixed = np.r_[np.zeros(5, dtype=bool), held]
        d = np.where(fixed, least, 0.0)
        left = slope - matrix[:, fixed] @ d[fixed]
        d[~fixed] = np.linalg.solve(matrix[np.ix_(~fixed, ~fixed)], left[~fixed])
        if (d >= least).all() and (matrix @ d >= slope - 1e-9)[fixed].all():
            optimal.append(d)
    assert len(optimal) == 1
    np.testing.assert_allclose(np.concatenate([dv, dw]), optimal[0], rtol=1e-6, atol=1e-8)
    assert (w + dw >= 0).all()


def test_the_upper_bound_is_of_noise_that_keeps_every_limit() -> None:
    h, v, w = made(8, 4)
    point = active_caps.evaluate(h, v, w)
    root = np.sqrt(point.precision)
    r = root[:, None] * (point.frame.inner @ point.frame.inner.T) * root
    cap = np.full(8, 1 + 0.6 * (np.diagonal(r).max() - 1))
    share = 0.4  # of the identity, whose variances are one: at the cap where they are largest
    lower, upper, _ = active_caps.bounds(h, cap, point)
    noise = (1 - share) * r + share * np.eye(8)
    assert np.diagonal(noise).max() == pytest.approx(cap[0], rel=1e-12)
    assert np.diagonal(np.linalg.inv(noise)).max() <= 1 + 1e-12
    assert upper == pytest.approx(float(np.sum(h * noise)), rel=1e-12)
    assert lower < upper


# --- its answers ----------------------------------------------------------------------------------


def on_a_ring(values: np.ndarray, cap: float) -> float:
    """All nodes alike: X = N^1/2 at the scale of its diagonal, N = H + w, w from the cap."""

    def variance(w: float) -> float:
        return float(np.sqrt(values + w).mean() * (1 / np.sqrt(values + w)).mean())

    w = (
        scipy.optimize.brentq(lambda w: variance(w) - cap, 0, 1e3, xtol=1e-14)
        if variance(0) > cap
        else 0
    )
    return float(np.sqrt(values + w).mean() * (values / np.sqrt(values + w)).sum())


@pytest.mark.parametrize("cap", [1.02, 1.2, 1.5, 1e3])
def test_rings(cap: float) -> None:
    found = active_caps.solve(program(RING, cap), monitor=(monitor := Monitor(gap=1e-10)))
    assert found.stop == "solved"
    optimum = on_a_ring(np.square(np.linalg.eigvalsh(RING)), cap)
    assert monitor.history[-1].lower == pytest.approx(optimum, rel=1e-9)
    assert monitor.history[-1].lower <= optimum * (1 + 1e-12)


def test_the_start_is_exact_where_all_nodes_are_alike() -> None:
    """But for the interpolation: the dual value there is the optimum to second order."""
    capped_ring = program(RING, 1.2)
    v, w = active_caps.start(capped_ring.gram, capped_ring.cap, put=CPU.put)
    point = active_caps.evaluate(capped_ring.gram, v, w)
    assert point.error(capped_ring.cap) < 0.01
    lower = active_caps.bounds(capped_ring.gram, capped_ring.cap, point)[0]
    optimum = on_a_ring(np.square(np.linalg.eigvalsh(RING)), 1.2)
    assert optimum * (1 - 1e-4) < lower <= optimum * (1 + 1e-12)


@pytest.mark.parametrize("cap", [1.05, 1.5, 4.0, np.linspace(1.1, 8, 100)])
def test_the_same_as_the_method_that_takes_over(cap: object) -> None:
    """Two methods that share no step; and few decompositions by this one."""
    here = program(SPARSE, cap)
    quick, slow = Monitor(gap=1e-9), Monitor(gap=1e-9)
    found = active_caps.solve(here, monitor=quick)
    other = central_path.solve(here, monitor=slow)
    assert found.stop == other.stop == "solved"
    assert quick.history[-1].lower == pytest.approx(slow.history[-1].lower, rel=2e-9)
    assert found.evaluations <= 8 <= other.evaluations


def test_caps_that_nobody_reaches_cost_no_more_than_one_decomposition() -> None:
    plain = solver.solve(program_of(SpaceProblem(mixing=SPARSE)), monitor=Monitor(gap=1e-9))
    found = solver.solve(program(SPARSE, 1e6), monitor=Monitor(gap=1e-9))
    assert found.evaluations <= plain.evaluations + 1
    assert found.dual is not None
    assert found.dual.cap is not None
    assert not found.dual.cap.any()


def test_what_goes_astray_is_solved_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = SpaceProblem(mixing=FLORENTINE, max_variance=1.5)
    quick = solve(problem, gap=1e-9)
    monkeypatch.setattr(active_caps, "MAX_EVALUATIONS", 3)
    slow = solve(problem, gap=1e-9)
    assert quick.status == slow.status == "optimal"
    assert slow.evaluations > quick.evaluations + 3
    assert quick.design is not None
    assert slow.design is not None
    assert slow.design.objective == pytest.approx(quick.design.objective, rel=2e-9)
