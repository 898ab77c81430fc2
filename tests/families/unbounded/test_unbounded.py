"""Noise of runs without an end, against exact algebra, dense matrices and mpmath."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import mpmath
import numpy as np
import pytest

import noisedesign as nd
from noisedesign.base import power_series as series
from noisedesign.design.unbounded import UnboundedDesign
from noisedesign.families.unbounded.bound import _folded, _sines, least_stddevs
from noisedesign.families.unbounded.buffers import Buffers
from noisedesign.families.unbounded.shares import _bound, _patterns, in_blocks
from noisedesign.families.unbounded.solver import _variances
from noisedesign.noise import Batches, Plan, Record, Secret, noise
from noisedesign.noise.plan import UNBOUNDED
from noisedesign.noise.source import plan_of
from noisedesign.privacy.sensitivity.toeplitz import squared_sensitivity
from noisedesign.system.workloads.toeplitz import gossip_workload
from tests.support.command_line import call

ONE = np.ones(1)
TWO = Buffers(scales=np.array([0.25, 0.125]), decays=np.array([0.5, 0.75]))


def column(buffers: Buffers, steps: int) -> np.ndarray:
    powers = np.power.outer(buffers.decays, np.arange(steps - 1))
    return np.concatenate([[1.0], buffers.scales @ powers])


@pytest.fixture(scope="module")
def design() -> UnboundedDesign:
    target = nd.PrivacyTarget(epsilon=1.0, delta=1e-6)
    return nd.solve(nd.UnboundedProblem(buffers=4, privacy=target, name="run"))


def test_the_one_budget_of_a_run_without_an_end_has_the_price_one(design: UnboundedDesign) -> None:
    assert design.prices == {"every record": 1.0}


def test_sensitivity_over_all_time_by_hand() -> None:
    # One buffer of scale 1/2 and decay 1/2: c = 1, 1/2, 1/4, ..., of squared norm 4/3.
    half = Buffers(scales=np.array([0.5]), decays=np.array([0.5]))
    once = half.proved_sensitivity(participations=1, separation=1)
    assert Fraction(4, 3) <= Fraction(once) <= Fraction(4, 3) * (1 + Fraction(1, 2**50))
    # Twice, b = 2 apart: 2 * 4/3 + 2 * (1/4) * 4/3.
    twice = half.proved_sensitivity(participations=2, separation=2)
    assert Fraction(10, 3) <= Fraction(twice) <= Fraction(10, 3) * (1 + Fraction(1, 2**50))
    # Its inverse is 1 - z / 2: prefix sums 1, 1/2, 1/2, ... with the zero p = 0.
    np.testing.assert_allclose(half.sums(4), [1, 0.5, 0.5, 0.5], rtol=1e-12)


@pytest.mark.parametrize(("often", "apart"), [(1, 1), (3, 1), (4, 7)])
def test_sensitivity_is_the_limit_of_long_horizons(often: int, apart: int) -> None:
    steps = 400  # 0.75^400 is nothing beside 1
    scheme = nd.participation.MinSeparation(
        horizon=steps, separation=apart, max_participations=often
    )
    long = squared_sensitivity(column(TWO, steps), scheme).squared
    found = TWO.squared_sensitivity(participations=often, separation=apart)
    proved = TWO.proved_sensitivity(participations=often, separation=apart)
    assert found == pytest.approx(proved, rel=1e-13)
    assert long * (1 - 1e-9) <= proved <= long * (1 + 1e-7)


def test_sensitivity_is_that_of_the_worst_pattern_of_few_steps() -> None:
    steps, c = 9, column(TWO, 200)
    best = 0.0
    for i in range(steps):
        for j in range(i + 2, steps):
            for k in range(j + 2, steps):
                total = np.zeros(300)
                for start in (i, j, k):
                    total[start : start + 200] += c
                best = max(best, float(total @ total))
    found = TWO.proved_sensitivity(participations=3, separation=2)
    assert best <= found <= best * (1 + 1e-7)


def test_prefix_sums_of_the_inverse_against_exact_division() -> None:
    slow = Buffers(scales=np.array([0.2, 0.05, 1e-3]), decays=np.array([0.6, 0.97, 1 - 2e-5]))
    with mpmath.workdps(50):
        c = [mpmath.mpf(1)]
        powers = [mpmath.mpf(float(s)) for s in slow.scales]
        for _ in range(299):
            c.append(mpmath.fsum(powers))
            powers = [p * mpmath.mpf(float(x)) for p, x in zip(powers, slow.decays, strict=True)]
        d = [mpmath.mpf(1)]
        for t in range(1, 300):
            d.append(-mpmath.fsum(c[i] * d[t - i] for i in range(1, t + 1)))
        sums = np.array([mpmath.fsum(d[: t + 1]) for t in range(300)])
        squares = np.array([mpmath.fsum(x * x for x in sums[: t + 1]) for t in range(300)])
        ends = np.array([1, 2, 3, 17, 299, 300])
        above = slow.proved_variances(ends)
        assert all(a >= squares[t - 1] for a, t in zip(above, ends, strict=True))
        assert all(a <= squares[t - 1] * (1 + 1e-10) for a, t in zip(above, ends, strict=True))
    np.testing.assert_allclose(slow.sums(300), sums.astype(float), rtol=1e-9)
    variances = slow.variances(ONE, ONE, steps=300)
    np.testing.assert_allclose(variances, squares.astype(float), rtol=1e-9)


def test_variances_under_gossip_against_dense_algebra() -> None:
    w = nd.mixing_matrix(nd.build_graph("path", nodes=4))
    found, steps, c = gossip_workload(w, horizon=1), 30, column(TWO, 30)
    noising = np.linalg.inv(series.dense(c))
    expected = []
    for t in range(1, steps + 1):  # the error of step t: sum over s of W^(t-s+1) z_s
        powers = [np.linalg.matrix_power(w, t - s) for s in range(t)]
        maps = np.stack([sum(powers[s] * noising[s, r] for s in range(t)) for r in range(t)])
        expected.append(np.square(maps).sum() / 4)
    variances = TWO.variances(found.poles, found.weights / 4, steps=steps)
    np.testing.assert_allclose(variances, expected, rtol=1e-10)
    ends = np.arange(1.0, steps + 1)
    closed = _variances(TWO, found.poles, found.weights / 4, ends)
    np.testing.assert_allclose(closed, expected, rtol=1e-9)


@pytest.mark.parametrize(
    ("often", "apart", "horizon"),
    [
        (1, 1, 40),
        (2, 3, 12),
        *(pytest.param(*one, marks=pytest.mark.slow) for one in [(2, 1, 20), (3, 4, 26)]),
    ],
)
def test_nobody_who_knows_the_horizon_is_below_the_bound(
    often: int, apart: int, horizon: int
) -> None:
    scheme = nd.participation.MinSeparation(
        horizon=horizon, separation=apart, max_participations=often
    )
    error = nd.ErrorMeasure(horizon=horizon, of="worst")
    problem = nd.TimeProblem.prefix(participation=scheme, error=error)
    known = nd.solve(problem, gap=1e-2).design
    assert known is not None
    best = math.sqrt(known.objective)  # a mechanism for that horizon, so no bound is above it
    least = least_stddevs(ONE, ONE, participations=often, separation=apart, steps=horizon)
    assert 0.88 * best <= least.stddevs[-1] <= best
    # Each of the bounds alone, too.
    assert in_blocks(horizon, often, apart) <= best
    if often > 1:
        assert 0.6 * best <= in_blocks(horizon, often, apart)
        assert 0.6 * best <= _folded(_sines(horizon), often, apart) <= best


@pytest.mark.parametrize(("often", "apart", "horizon"), [(2, 3, 24), (3, 2, 20), (3, 4, 48)])
def test_patterns_that_are_mirrored_are_no_more_than_patterns(
    often: int, apart: int, horizon: int
) -> None:
    """The mixture in full, as the proof has it: patterns, pieces of those that a mirror cuts, and
    the nuclear norm by a singular value decomposition."""
    t, circle = horizon, 2 * horizon + 1
    total, folded = np.zeros((t, t)), np.zeros((t, t))
    weight, spread = 0.0, apart // 3
    cut = {"left": np.zeros(often), "right": np.zeros(often)}  # by the steps in a piece
    gaps = list(itertools.product(range(apart, apart + spread + 1), repeat=often - 1))
    for gap, start in itertools.product(gaps, range(circle)):
        share = 1 / (len(gaps) * circle)
        pieces: dict[int, np.ndarray] = {}
        for s in np.cumsum([start, *gap]).tolist():
            at, turn = s % circle, s // circle
            if at != t:  # about which all is odd; it is even about -1/2
                mirrored = at > t
                piece = pieces.setdefault(2 * turn + mirrored, np.zeros(t))
                piece[2 * t - at if mirrored else at] = (-1) ** (turn + mirrored)
        whole = sum(pieces.values())
        folded += share * np.outer(whole, whole)
        for piece in pieces.values():
            used = np.flatnonzero(piece)
            assert (np.diff(used) >= apart).all()  # a pattern of its own
            total += len(pieces) * share * np.outer(piece, piece)
            if len(pieces) > 1:
                cut["left" if used[0] < t / 2 else "right"][len(used)] += 2 * share
        weight += share * (len(pieces) == 1)
    # A piece at one end makes a pattern with what it lacks at the other.
    weight += float(np.maximum(cut["left"], np.roll(cut["right"][::-1], 1)).sum())
    length = (often - 1) * (2 * apart + spread)
    assert weight == pytest.approx(1 + (length + 1) / circle, rel=1e-12)
    assert np.linalg.eigvalsh(total - folded).min() > -1e-12
    sums = np.tril(np.ones((t, t)))
    values, vectors = np.linalg.eigh(folded)
    root = (vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T
    norm = np.linalg.norm(sums @ root, "nuc") / math.sqrt(t * weight)
    found = _folded(_sines(t), often, apart)
    assert norm * (1 - 1e-6) <= found <= norm * (1 + 1e-12)


@pytest.mark.parametrize(("often", "apart", "horizon"), [(3, 3, 12), (2, 6, 18)])
def test_bound_of_blocks_is_a_norm_of_real_patterns(often: int, apart: int, horizon: int) -> None:
    """In full: any shares give no more than the norm of all steps, and the best do nearly."""
    size = max(1, apart // 6)
    assert apart % size == 0
    blocks = horizon // size
    patterns = [
        np.kron(p, np.eye(size)[o])
        for p in _patterns(blocks, often, apart // size)
        for o in range(size)
    ]
    assert all((np.diff(np.flatnonzero(p)) >= apart).all() for p in patterns)
    assert all(0 < p.sum() <= often for p in patterns)
    # An upper bound on the norm at any shares: C of the least sensitivity to these patterns.
    scheme = nd.participation.MinSeparation(
        horizon=blocks * size, separation=apart, max_participations=often
    )
    even = nd.TimeProblem.prefix(
        participation=scheme, error=nd.ErrorMeasure(horizon=blocks * size, of="worst")
    )
    best = nd.solve(even, gap=1e-2).design
    assert best is not None
    found = in_blocks(horizon, often, apart)
    assert 0.75 * math.sqrt(best.objective) <= found <= math.sqrt(best.objective)


@pytest.mark.parametrize("size", [1, 2, 7, 64])
def test_one_block_has_both_of_its_parts(size: int) -> None:
    sums = np.tril(np.ones((size, size)))
    mean = np.full((size, size), 1 / size)
    rest = (np.eye(size) - mean) @ sums @ (np.eye(size) - mean)
    parts = np.linalg.norm(mean @ sums @ mean, "nuc") + np.linalg.norm(rest, "nuc")
    assert _bound(1, size, np.ones((1, 1))) == pytest.approx(parts / size, rel=1e-9)


def test_many_participations_are_near_the_least_that_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("noisedesign.design.buffer_search.STEPS", 400)
    problem = nd.UnboundedProblem(max_participations=10, separation=3, buffers=3)
    assert nd.solve(problem).ratio < 1.5


def test_ratio_is_kept_at_every_step_to_a_million(design: UnboundedDesign) -> None:
    assert design.ratio <= 1.7
    # The ratio at steps that are no ends of the grid, from sines and the definition.
    column_of_inverse = series.reciprocal(column(design.buffers, 5000))
    variances = np.cumsum(np.square(np.cumsum(column_of_inverse)))
    for t in (1, 2, 3, 17, 300, 4999):
        angles = (2 * np.arange(1, t + 1) - 1) * np.pi / (4 * t + 2)
        least = float((1 / (2 * np.sin(angles))).sum()) / t
        assert math.sqrt(design.squared_sensitivity * variances[t - 1]) <= design.ratio * least
    assert list(design.proved.ends)[-1] == 10**6


@pytest.mark.parametrize(
    ("of_graph", "often", "most"),
    [(True, 1, 1.7), pytest.param(False, 3, 1.7, marks=pytest.mark.slow)],
)
def test_gossip_and_repeated_participation(
    of_graph: bool, often: int, most: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("noisedesign.design.buffer_search.STEPS", 2_000)
    monkeypatch.setattr("noisedesign.design.unbounded.STEPS", 2_000)
    w = nd.mixing_matrix(nd.build_graph("ring", nodes=4)) if of_graph else None
    problem = nd.UnboundedProblem(mixing=w, buffers=4, max_participations=often, separation=12)
    found = nd.solve(problem)
    assert found.first == 12 * (often - 1) + 1
    assert found.ratio <= most
    rigorous = nd.verify(found, rigorous=True)
    assert rigorous.rigorous is not of_graph
    assert rigorous.ok is not of_graph


def test_error_of_gossip_beside_the_certified_optimum_of_a_known_horizon() -> None:
    w, steps = nd.mixing_matrix(nd.build_graph("path", nodes=5)), 16
    found = nd.solve(nd.UnboundedProblem(mixing=w, buffers=3))
    scheme = nd.participation.single(steps)
    known = nd.solve(nd.TimeProblem.decentralized(mixing=w, participation=scheme)).design
    assert known is not None
    assert known.certificate.lower_bound is not None
    optimum = math.sqrt(known.certificate.lower_bound / (5 * steps))  # root mean square
    workload = found.problem.workload
    poles, weights = np.asarray(workload.poles), np.asarray(workload.weights)
    variances = found.buffers.variances(poles, weights, steps=steps)
    stddev = math.sqrt(found.squared_sensitivity * variances[-1])
    assert optimum <= stddev <= found.ratio * optimum * (1 + 1e-6)


def test_noise_is_that_of_the_strategy_and_streams_for_ever(
    design: UnboundedDesign, tmp_path: Path
) -> None:
    plan = Plan.load(design.node_plan().save(tmp_path / "node.plan"))
    assert plan.horizon == UNBOUNDED
    secret, path = Secret.new(), tmp_path / "record.sqlite3"
    source = noise(plan, secret=secret, record=path)
    steps = np.array([source.step(t, 2000) for t in range(6)])
    # C z = w: w is white noise of unit variance.
    scale = math.sqrt(design.found_sensitivity) * design.claim.noise_stddev
    drawn = series.dense(column(design.buffers, 6) / scale) @ steps
    np.testing.assert_allclose(drawn.std(axis=1), 1.0, atol=0.1)
    np.testing.assert_allclose(np.corrcoef(drawn) - np.eye(6), 0.0, atol=0.1)
    for t in range(3):
        source.add_([np.zeros(2)], t, records=[f"r{t}"])
    again = noise(plan, secret=secret, record=path, resume=True)
    assert again.next_step == 3
    assert (again.step(4, 50) == steps[4][:50]).all()
    assert Record(path).steps(secret=secret.fingerprint, node=0) == {0, 1, 2}
    with pytest.raises(nd.InputError, match="2 times, where the design is for 1"):
        again.add_([np.zeros(2)], 3, records=["r1"])
    assert again.rounding_error_bound() < 1e-3


def test_epsilon_so_far_rises_to_that_of_all_time(design: UnboundedDesign) -> None:
    whole = design.claim
    assert whole.mu is not None
    one = nd.privacy.privacy_after(design, steps=1)
    expected = whole.mu / math.sqrt(design.squared_sensitivity)  # of the first coefficient alone
    assert one.mu == pytest.approx(expected, rel=1e-7)
    part = column(design.buffers, 1000)
    share = math.sqrt(float(part @ part) / design.squared_sensitivity)
    assert nd.privacy.privacy_after(design, steps=1000).mu == pytest.approx(
        whole.mu * share, rel=1e-7
    )
    assert nd.privacy.privacy_after(design, steps=10**9).mu == whole.mu
    source = noise(design, secret=Secret.new(), record=False)
    ledger = nd.privacy.Ledger()
    ledger.add(source)
    ledger.add(nd.privacy.privacy_after(source, steps=10), resume=True)
    assert ledger.mu < whole.mu


def test_files_hold_it_and_verify_judges_it(design: UnboundedDesign, tmp_path: Path) -> None:
    stored = nd.load(nd.save(design, tmp_path / "run.npz"))
    assert (stored.design.scales == design.scales).all()
    assert nd.verify(stored, problem=design.problem).ok
    assert plan_of(stored, 0).digest == design.node_plan(0).digest
    for wrong in (replace(design, squared_sensitivity=2.0), replace(design, ratio=1.2)):
        assert not nd.verify(wrong).ok
    other = nd.UnboundedProblem(buffers=4, max_participations=2, name="run")
    assert not nd.verify(stored, problem=other).ok
    with pytest.raises(nd.InputError, match="sum of scales / decays <= 1"):
        replace(design, scales=design.scales * 10)


@pytest.mark.parametrize(
    ("change", "key"),
    [
        (("unbounded", "endless"), "workload.horizon"),
        (
            ("[privacy]", '[participation]\nkind = "single"\nseparation = 3\n[privacy]'),
            "separation",
        ),
        (("[privacy]", '[participation]\nkind = "min-separation"\n[privacy]'), "separation"),
        (("[privacy]", "[structure]\nbuffers = 33\n[privacy]"), "structure.buffers"),
        (("delta", "steps = 5\ndelta"), "privacy.steps"),
        (("prefix", "decentralized"), "graph"),
        (("[privacy]", '[graph]\nkind = "karate"\n[privacy]'), "graph"),
    ],
)
def test_bad_tables_are_refused_by_name(change: tuple[str, str], key: str, tmp_path: Path) -> None:
    text = (
        'name = "run"\ndesign = "time"\n[workload]\nkind = "prefix"\nhorizon = "unbounded"\n'
        "[privacy]\nepsilon = 1.0\ndelta = 1e-6\n"
    )
    path = tmp_path / "run.toml"
    path.write_text(text)
    assert isinstance(nd.load(path).problem, nd.UnboundedProblem)
    path.write_text(text.replace(*change, 1))
    with pytest.raises(nd.InputError) as refused:
        nd.load(path)
    assert key in refused.value.field


def test_what_takes_a_number_of_steps_refuses_it(design: UnboundedDesign) -> None:
    plan = design.node_plan()
    with pytest.raises(nd.InputError, match="without an end"):
        _ = plan.variances
    with pytest.raises(nd.InputError, match="without an end"):
        Batches(design.problem.rule, horizon=UNBOUNDED, records=10)
    with pytest.raises(nd.InputError, match="without an end has solve"):
        nd.baseline(design.problem, "ldp")  # type: ignore[arg-type]
    for option, value in {"gap": 1e-3, "backend": "scs", "device": "cuda", "start": design}.items():
        with pytest.raises(nd.InputError) as refused:
            nd.solve(design.problem, **{option: value})  # type: ignore[call-overload]
        assert refused.value.field == option
    with pytest.raises(nd.InputError, match="at most"):
        nd.UnboundedProblem(max_participations=2, separation=10**6)
    with pytest.raises(nd.InputError, match="symmetric"):
        nd.UnboundedProblem(mixing=[[0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [1.0, 0.0, 0.0]])


def test_from_a_shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("noisedesign.design.buffer_search.STEPS", 2_000)
    monkeypatch.setattr("noisedesign.design.unbounded.STEPS", 2_000)
    text = (
        'name = "run"\ndesign = "time"\n[structure]\nbuffers = 2\n'
        '[graph]\nkind = "ring"\nnodes = 3\n'
        '[workload]\nkind = "decentralized"\nhorizon = "unbounded"\n[privacy]\nepsilon = 1.0\n'
    )
    Path("run.toml").write_text(text)
    solved = call("solve", "run.toml", "-o", "run.npz", "--json")
    assert solved.code == 0
    verified = call("verify", "run.npz", "--problem", "run.toml")
    assert verified.code == 0
    assert call("deploy", "run.npz", "-o", "nodes").code == 0
    plans = [Plan.load(path) for path in sorted(Path("nodes").glob("*.plan"))]
    assert [(plan.node, plan.unbounded, len(plan.weights)) for plan in plans] == [
        (node, True, 3) for node in range(3)
    ]
    assert call("plot", "run.npz", "-o", "run.svg").code == 0
    assert Path("run.svg").stat().st_size > 1000
    for command in ("report run.npz", "simulate run.npz", "rehearse nodes --data none.npz"):
        refused = call(*command.split())
        assert refused.code == 2
        assert "Traceback" not in refused.err
    Path("other.toml").write_text(text.replace("nodes = 3", "nodes = 4"))
    assert call("verify", "run.npz", "--problem", "other.toml").code == 1


@pytest.mark.parametrize(
    ("often", "apart", "steps"), [(2, 8, 9), (2, 16, 17), (3, 4, 9), (2, 8, 16)]
)
def test_horizons_with_little_room_for_all_participations(
    often: int, apart: int, steps: int
) -> None:
    """Nobody's worst step is below the bound from the first step on that has room for all: even
    weights of patterns are at most 1 / b a step, and k / T only from k b steps on."""
    scheme = nd.participation.MinSeparation(
        horizon=steps, separation=apart, max_participations=often
    )
    worst = nd.ErrorMeasure(horizon=steps, of="worst")
    best = nd.solve(nd.TimeProblem.prefix(participation=scheme, error=worst), gap=1e-3).design
    assert best is not None
    found = least_stddevs(
        np.ones(1), np.ones(1), participations=often, separation=apart, steps=steps
    )
    assert found.stddevs[-1] <= math.sqrt(best.objective)
    assert found.stddevs[-1] >= 0.97 * math.sqrt(best.objective)
