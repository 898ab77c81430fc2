"""Derivatives of what multipliers certify, proofs against fifty digits, and shifts that are run on
gradients that answer."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import mpmath
import networkx as nx
import numpy as np
import pytest

import noisedesign as nd
from noisedesign.base.enclosures import Enclosure
from noisedesign.privacy import views
from noisedesign.privacy.responses import _different, proof
from noisedesign.privacy.responses.game import Game, Stage, _active, game_of
from noisedesign.privacy.responses.multipliers import Recursion, minimized
from noisedesign.privacy.responses.proof import bound_above, enclosed_stages
from noisedesign.privacy.responses.worst import Worst, _Linear
from noisedesign.privacy.views.mechanism import Step


def first(recursion: Recursion, share: float) -> Any:
    """Logarithms of feasible multipliers."""
    found = recursion.start(share)
    assert found is not None
    return found


def setting(
    graph: nx.Graph, observer: Any, pattern: tuple[int, ...], *, victim: int, horizon: int = 5
) -> tuple[Any, Game, Any, Recursion]:
    w = nd.mixing_matrix(nx.convert_node_labels_to_integers(graph))
    algorithm = views.dp_d_sgd(mixing=w, horizon=horizon)
    game = game_of(views.view(algorithm, observer), observer.coalition)
    assert game is not None
    enclosed = enclosed_stages(game)
    assert enclosed is not None
    recursion = Recursion(
        game=game,
        stages=game.stages(enclosed),
        victim=game.place(victim),
        pattern=pattern,
        rho=0.5,
        radius=0.5,
    )
    return w, game, enclosed, recursion


CASES = [
    (nx.path_graph(4), nd.observers.pndp(nodes=[0]), (0,), 2),
    (nx.star_graph(3), nd.observers.secure_sum(nodes=[0]), (0, 2, 4), 1),
    (nx.cycle_graph(5), nd.observers.central(), (1, 3), 2),
]


@pytest.mark.parametrize(("graph", "observer", "pattern", "victim"), CASES)
def test_derivatives_are_those_of_differences(
    graph: nx.Graph, observer: Any, pattern: tuple[int, ...], victim: int
) -> None:
    _, game, _, recursion = setting(graph, observer, pattern, victim=victim)
    rng = np.random.default_rng(1)
    x = first(recursion, 0.02) + 0.3 * rng.standard_normal(len(first(recursion, 0.02)))
    found, step = recursion.evaluate(x, 1e-2), 1e-6
    assert found is not None
    for i in range(len(x)):
        there = step * np.eye(len(x))[i]
        up, down = recursion.evaluate(x + there, 1e-2), recursion.evaluate(x - there, 1e-2)
        assert up is not None
        assert down is not None
        assert (up.value - down.value) / (2 * step) == pytest.approx(found.slope[i], abs=1e-5)

    search = Worst(
        game=game,
        stages=recursion.stages,
        victim=recursion.victim,
        pattern=pattern,
        low=0.0,
        high=1.0,
    )
    shape = (2, 2, game.horizon, len(game.nodes))
    responses, gradients = rng.uniform(0, 1, shape), rng.uniform(-1, 1, (2, game.horizon))
    value, by = search.value(_Linear(responses, gradients))
    for index in [(0, 1, 2, 1), (1, 1, 3, 0), (0, 0, 1, 2)]:
        moved = responses.copy()
        moved[index] += step
        change = search.value(_Linear(moved, gradients))[0] - value
        assert change / step == pytest.approx(by.responses[index], abs=1e-5)
    turned = gradients.copy()
    turned[1, pattern[-1]] += step
    change = search.value(_Linear(responses, turned))[0] - value
    assert change / step == pytest.approx(by.gradients[1, pattern[-1]], abs=1e-4)


def by_mpmath(recursion: Recursion, w: Any, observer: Any, found: Any) -> Any:
    """The recursion as it is in the documents, from W and the rows that are seen."""
    n, nodes = len(w), recursion.game.nodes.tolist()
    inside, names = list(observer.coalition), [int(i) for i in recursion.game.nodes]
    identity = np.eye(n)
    seen = {
        "received": identity[[i for i in range(n) if w[0, i] != 0 and i not in inside]],
        "sums": np.where(np.isin(np.arange(n), inside), 0.0, w[inside]) if inside else w,
        "mean": w.mean(axis=0, keepdims=True),
    }[observer.sees]
    # Noise of those who look is known, so that it is no noise.
    noise = identity[:, names]
    h = mpmath.matrix(seen[:, names].tolist())
    r, q = mpmath.matrix((seen @ noise).tolist()), mpmath.matrix((w @ noise)[names].tolist())
    f, eye = mpmath.matrix(w[np.ix_(names, names)].tolist()), mpmath.eye(len(nodes))
    inverse = (r * r.T) ** -1
    through = f - q * r.T * inverse * h
    free = q * (mpmath.eye(r.cols) - r.T * inverse * r) * q.T
    p = h.T * inverse * h
    information = p.copy()
    half = mpmath.mpf(1) / 2
    for t in range(recursion.game.horizon - 1, recursion.pattern[0], -1):
        s = mpmath.diag([mpmath.mpf(float(v)) for v in found.nodes[t]])
        bar = s.copy()
        bar[recursion.victim, recursion.victim] += mpmath.mpf(float(found.record[t]))
        ahead = half**2 * p * (eye - bar * p) ** -1
        for i in range(len(nodes)):
            if s[i, i]:
                ahead[i, i] += half**2 / s[i, i]
        p = information + through.T * ahead * (eye + free * ahead) ** -1 * through
    prices = sum(1 / mpmath.mpf(float(found.record[t])) for t in recursion.pattern[1:])
    return p[recursion.victim, recursion.victim] + prices


@pytest.mark.parametrize(("graph", "observer", "pattern", "victim"), CASES)
def test_proofs_are_above_the_recursion_in_fifty_digits(
    graph: nx.Graph, observer: Any, pattern: tuple[int, ...], victim: int
) -> None:
    """Also where multipliers are so uneven that floats lose most digits."""
    w, _, enclosed, recursion = setting(graph, observer, pattern, victim=victim)
    rng = np.random.default_rng(3)
    x = minimized(recursion, first(recursion, 0.5), weight=1e-2, most=60)
    with mpmath.workdps(50):
        for spread in (0.0, 3.0, 8.0):
            low = x
            if spread:
                drawn = rng.uniform(0, spread, len(x))
                low = first(recursion, 1e-3) - drawn[0] + 0.1 * drawn
            assert recursion.evaluate(low, 0.0) is not None
            found = recursion.multipliers(low)
            reference = by_mpmath(recursion, w, observer, found)
            proved = bound_above(recursion, found, enclosed)
            assert proved >= reference
            assert proved <= reference * (1 + 1e-6)


@pytest.mark.parametrize("which", range(3), ids=["seen", "through", "ways"])
@pytest.mark.parametrize(("graph", "observer", "pattern", "victim"), CASES)
def test_proofs_hold_at_the_ends_of_wide_enclosures(
    graph: nx.Graph, observer: Any, pattern: tuple[int, ...], victim: int, which: int
) -> None:
    """Of one matrix of a step at a time, the others being known exactly."""
    _, game, enclosed, recursion = setting(graph, observer, pattern, victim=victim)
    x = minimized(recursion, first(recursion, 0.5), weight=1.0, most=30)
    found, rng = recursion.multipliers(x), np.random.default_rng(4)
    mids, rad = [each.mid for each in enclosed[0]], 1e-4
    wide = tuple(
        Enclosure(mid, np.full(mid.shape, rad * (k == which))) for k, mid in enumerate(mids)
    )
    proved = bound_above(recursion, found, [wide] * game.horizon)  # type: ignore[list-item]
    reached = []
    for _ in range(8):
        signs = rng.choice([-1.0, 1.0], mids[which].shape)
        for by in (signs, -signs):
            seen, through, ways = (
                mid + (rad * by if k == which else 0) for k, mid in enumerate(mids)
            )
            stage = Stage((seen + seen.T) / 2, through, ways @ ways.T)
            links = replace(recursion, stages=[stage] * game.horizon)._links(found)
            assert links is not None
            prices = (1 / found.record[list(pattern[1:])]).sum()
            reached.append(links[0][recursion.victim, recursion.victim] + prices)
    exact = bound_above(recursion, found, enclosed)
    assert exact < max(reached) <= proved < exact * 1.1


@pytest.mark.parametrize("pattern", [(0,), (0, 2, 3)])
@pytest.mark.parametrize("bands", [(2.0, 1.8), (0.5, -0.4, 0.25), (1.0, 1.0, 1.0, 1.0)])
def test_noise_that_remembers_is_not_answered(
    bands: tuple[float, ...], pattern: tuple[int, ...]
) -> None:
    """Responses carry on models alone: between what random ones reach, run as a linear map and
    projected, and what the recursion of the search says."""
    horizon, w = 5, nd.mixing_matrix(nx.path_graph(3))
    strategy = sum(np.diag(np.full(horizon - k, x), -k) for k, x in enumerate(bands))
    observer, rng = nd.observers.pndp(nodes=[0]), np.random.default_rng(6)
    algorithm = views.mf_d_sgd(mixing=w, strategy=strategy)
    game = game_of(views.view(algorithm, observer), observer.coalition)
    assert game is not None
    enclosed = enclosed_stages(game)
    assert enclosed is not None
    given: dict[str, Any] = {"stages": game.stages(enclosed), "victim": game.place(2)}
    recursion = Recursion(game=game, **given, pattern=pattern, rho=0.5, radius=0.5)
    x = minimized(recursion, first(recursion, 0.5), weight=1e-2, most=100)
    found = recursion.evaluate(x, 0.0)
    assert found is not None
    proved = bound_above(recursion, recursion.multipliers(x), enclosed)
    assert found.bound * (1 - 1e-9) <= proved <= found.bound * (1 + 1e-6)
    noising, best = np.linalg.inv(strategy), 0.0
    for trial in range(60):
        factors = rng.uniform(0, 1, (horizon, 3)) if trial else np.ones((horizon, 3))
        signs = rng.choice([-1.0, 1.0], len(pattern)) if trial else np.ones(len(pattern))
        # What noise z, shape (T, 3), and the record make of what node 0 receives, W_00 being known.
        sent = np.zeros((horizon, 3, 3 * horizon + 1))
        state = np.zeros((3, 3 * horizon + 1))
        for t in range(horizon):
            state = factors[t][:, None] * state
            state[:, :-1] += np.kron(noising[t], np.eye(3))
            if t in pattern:
                state[2, -1] += signs[pattern.index(t)]
            sent[t] = state
            state = w @ state
        seen = sent[:, 1].reshape(horizon, -1)
        # Node 0 knows its noise, and so what of it came back.
        hidden = [k for k in range(3 * horizon) if k % 3]
        response = np.linalg.lstsq(seen[:, hidden], seen[:, -1], rcond=None)[0]
        best = max(best, float(response @ response))
    assert 0.3 * proved < best <= proved


@pytest.mark.parametrize("sign", [-1, 1])
@pytest.mark.parametrize(("graph", "observer", "pattern", "victim"), CASES)
def test_inverses_that_are_off_by_what_they_say_are_paid_for(
    graph: nx.Graph,
    observer: Any,
    pattern: tuple[int, ...],
    victim: int,
    sign: int,
    monkeypatch: Any,
) -> None:
    """A thousandth, said and made: of the inverse in every step, and of that of what is seen."""
    _, game, enclosed, recursion = setting(graph, observer, pattern, victim=victim)
    x = minimized(recursion, first(recursion, 0.5), weight=1e-2, most=30)
    found = recursion.multipliers(x)
    exact, inverse = bound_above(recursion, found, enclosed), proof.definite_inverse

    def off(a: Enclosure) -> tuple[np.ndarray, float] | None:
        right = inverse(a)
        return None if right is None else (right[0] + sign * 1e-3 * np.eye(len(a.mid)), 1.01e-3)

    monkeypatch.setattr(proof, "definite_inverse", off)
    assert exact * (1 - 1e-9) <= bound_above(recursion, found, enclosed) <= exact * 1.1
    seen = enclosed_stages(game)
    assert seen is not None
    assert exact * (1 - 1e-9) <= bound_above(recursion, found, seen) <= exact * 1.3


def test_models_matter_where_a_later_observation_has_some_of_them() -> None:
    """By products of the maps on the way, nonnegative so that nothing cancels; steps take turns."""
    rng = np.random.default_rng(5)
    for trial in range(40):
        n, horizon = 4, 6
        phases = [
            Step(
                transition=(rng.random((n, n)) < 0.3).astype(float),
                output=(rng.random((1, n)) < 0.2).astype(float),
                state_noise=np.eye(n),
                output_noise=np.ones((1, n)),
            )
            for _ in range(1 + trial % 3)
        ]
        found = _active(phases, horizon)
        for t in range(horizon):
            reaches, carried = np.zeros(n, dtype=bool), np.eye(n)
            for s in range(t, horizon):
                step = phases[s % len(phases)]
                reaches |= (step.output @ carried > 0).any(axis=0)
                carried = step.transition @ carried
            assert (found[t] == reaches).all()


@pytest.mark.parametrize("still", [False, True])
def test_every_pattern_is_covered_by_one_that_is_looked_at(still: bool) -> None:
    """By one with its steps or, where all are alike, with its steps moved, that starts no later."""
    rng = np.random.default_rng(8)
    made = [((0, 2), (1, 3, 5)), ((1, 3), (2, 4)), ((0, 1), (0, 1, 4))]
    for _ in range(60):
        drawn = (np.flatnonzero(rng.random(6) < 0.4).tolist() for _ in range(5))
        made.append(tuple({tuple(steps) for steps in drawn if steps}))
    for steps in made:
        scheme: Any = SimpleNamespace(maximal_patterns=lambda steps=steps: iter(steps))
        arrives = np.arange(6) < (6 if steps in made[:3] else 5)
        kept = _different(still, scheme, arrives)
        for one in steps:
            own = [t for t in one if arrives[t]]
            by = [own[0]] if still and own else [0]
            assert not own or any(
                {t - by[0] + (q[0] if still else 0) for t in own} <= set(q)
                and (not still or q[0] <= own[0])
                for q in kept
            )


def test_multipliers_that_are_not_feasible_prove_nothing() -> None:
    graph, observer, pattern, victim = CASES[1]
    _, _, enclosed, recursion = setting(graph, observer, pattern, victim=victim)
    found = recursion.multipliers(first(recursion, 0.5) + math.log(50))
    assert recursion.evaluate(first(recursion, 0.5) + math.log(50), 0.0) is None
    assert bound_above(recursion, found, enclosed) == np.inf


def test_shifts_keep_the_view_and_their_energy_within_the_bound() -> None:
    """Two worlds are run: gradients are those of convex losses of one parameter that are no
    quadratics, a record pulls as hard as it may, and shifts follow the policy K = I - P."""
    horizon, victim, look = 5, 2, 0
    for graph, observer in (
        (nx.path_graph(4), nd.observers.pndp(nodes=[look])),
        (nx.star_graph(3), nd.observers.secure_sum(nodes=[look])),
    ):
        pattern = tuple(range(horizon))
        w, game, enclosed, recursion = setting(graph, observer, pattern, victim=victim)
        x = minimized(recursion, first(recursion, 0.5), weight=1e-3, most=200)
        bound = bound_above(recursion, recursion.multipliers(x), enclosed)
        links = recursion._links(recursion.multipliers(x))
        assert links is not None
        _, chain, _ = links
        n = len(w)
        rows = w[[look]] if observer.sees == "sums" else np.eye(n)[w[look] != 0]
        hidden = [i for i in range(n) if i != look]
        _, s, vt = np.linalg.svd(rows[:, hidden])
        kernel = np.zeros((n, len(hidden) - int((s > 1e-12).sum())))
        kernel[hidden] = vt[int((s > 1e-12).sum()) :].T
        rng, largest = np.random.default_rng(7), 0.0
        for _ in range(60):
            centres, sharp = rng.normal(size=n), rng.uniform(0.2, 1.0, n)
            without, with_ = np.zeros(n), np.zeros(n)
            energy, seen = 0.0, 0.0
            for t in range(horizon):
                z = rng.normal(size=n)
                step = lambda m, c=centres, k=sharp: m - np.tanh(k * (m - c)) / np.maximum(k, 1)  # noqa: E731
                d = step(without) - step(with_)
                d[victim] += np.sign(d[victim]) if d[victim] else 1.0
                # The cheapest shift r - d with rows r = 0, by the cost to go of the recursion.
                costs = np.zeros((n, n))
                if t + 1 < horizon:
                    link = next(link for link in chain if link.step == t + 1)
                    ahead = recursion._carried(link.full)
                    found = recursion.multipliers(x).nodes[t + 1]
                    for place, value in enumerate(found):
                        ahead[place, place] += recursion.radius**2 / value if value else 0.0
                    there = np.zeros((n, n))
                    there[np.ix_(game.nodes, game.nodes)] = ahead
                    costs = w.T @ there @ w
                inner = np.eye(kernel.shape[1]) + kernel.T @ costs @ kernel
                r = kernel @ np.linalg.solve(inner, kernel.T @ d)
                shift = r - d
                energy += float(shift @ shift)
                ours, theirs = step(with_) + z, step(without) + z + shift
                theirs[victim] += d[victim] - (step(without) - step(with_))[victim]
                seen = max(seen, float(np.abs(rows @ (theirs - ours)).max()))
                with_, without = w @ ours, w @ theirs
            assert seen < 1e-9
            largest = max(largest, energy)
        assert 0 < largest <= bound
