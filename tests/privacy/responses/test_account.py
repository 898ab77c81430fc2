"""Accounts of gradients that answer to models, against closed forms and dense linear algebra."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest

import noisedesign as nd
from noisedesign.base.checks import InputError
from noisedesign.privacy import views
from noisedesign.privacy.runs import Responses
from noisedesign.privacy.views.observers import arrivals

GLM = Responses(kind="convex", losses="generalised-linear")


def weights(graph: nx.Graph) -> Any:
    return nd.mixing_matrix(nx.convert_node_labels_to_integers(graph))


def squared(algorithm: Any, observer: Any, scheme: Any, responses: Any, victim: int) -> float:
    (found,) = nd.account(
        algorithm,
        observer,
        participation=scheme,
        adjacency="zero-out",
        responses=responses,
        victims=[victim],
    )
    return found.sensitivity_squared


def test_fixed_responses_are_no_bound() -> None:
    """A path 0 - 1 - 2 before node 0: node 1 sends x_1 + a x_1 + z_1 at step 1, and of what node 2
    sent at step 0 it holds W_12. With one number of noise hidden and one added, the squared
    sensitivity is s / (s + 1), s = ((1 + a) W_12)^2, by hand."""
    w = weights(nx.path_graph(3))
    algorithm = views.dp_d_sgd(mixing=w, horizon=2)
    asked = algorithm, nd.observers.pndp(nodes=[0]), nd.participation.single(2)

    def by_hand(a: float) -> float:
        s = ((1 + a) * w[1, 2]) ** 2
        return s / (s + 1)

    assert squared(*asked, "fixed", 2) == pytest.approx(by_hand(0), rel=1e-9) == 0.1
    assert by_hand(1) == pytest.approx(0.3077, abs=1e-4)
    for a in (0.3, 1.0, 5.0):
        found = squared(*asked, Responses(kind="smooth", smoothness=a), 2)
        assert by_hand(a) <= found <= by_hand(a) * (1 + 1e-5)
    assert squared(*asked, "any", 2) == 1 > by_hand(100) > 0.99
    # Contraction costs nothing here: D = 1 is the worst of [0, 1].
    assert squared(*asked, GLM, 2) == pytest.approx(0.1, rel=1e-5)


@pytest.mark.parametrize(
    ("graph", "observer", "victim", "single", "every"),
    [
        (nx.path_graph(3), nd.observers.pndp(nodes=[0]), 2, 0.15133, 2.52025),
        (nx.star_graph(4), nd.observers.pndp(nodes=[1]), 2, 0.08114, 1.65025),
        (nx.star_graph(4), nd.observers.secure_sum(nodes=[0]), 1, 0.36067, 5.89624),
        pytest.param(
            nx.path_graph(5), nd.observers.central(), 0, 0.27870, 4.31124, marks=pytest.mark.slow
        ),
        (nx.cycle_graph(6), nd.observers.central(), 0, 0.20743, 2.88067),
    ],
)
def test_bounds_meet_those_of_a_semidefinite_program(
    graph: nx.Graph, observer: Any, victim: int, single: float, every: float
) -> None:
    """The references are the optima of a linear matrix inequality, solved by Clarabel outside of
    this library; T = 8, responses in [0, 1]."""
    algorithm = views.dp_d_sgd(mixing=weights(graph), horizon=8)
    for scheme, reference in (
        (nd.participation.single(8), single),
        (nd.participation.every_step(8), every),
    ):
        (found,) = nd.account(
            algorithm,
            observer,
            participation=scheme,
            adjacency="zero-out",
            responses=GLM,
            victims=[victim],
        )
        assert reference * (1 - 1e-4) <= found.sensitivity_squared <= reference * 1.004
        assert found.lower_bound is not None
        assert found.gap is not None
        assert found.lower_bound <= reference * (1 + 1e-4)
        assert found.gap < 0.01
        assert (found.responses, found.theorem) == (str(GLM), 4)


def algorithms() -> list[tuple[Any, Any, int]]:
    """Algorithms, observers and victims of every kind that the game has a say in."""
    ring, path = weights(nx.cycle_graph(5)), weights(nx.path_graph(4))
    uneven = views.dp_d_sgd(mixing=path, horizon=4).scaled([1.0, 0.5, 2.0, 1.5])
    r = np.array([[2.0, -0.5, 0.1, 0], [-0.5, 1, 0, 0.2], [0.1, 0, 1.5, -0.4], [0, 0.2, -0.4, 1]])
    directed = np.array([[0.6, 0.4, 0, 0], [0, 0.5, 0.5, 0], [0, 0, 0.3, 0.7], [0.2, 0, 0, 0.8]])
    band = np.eye(4) + np.diag([0.5, 0.3, 0.2], -1)
    return [
        (uneven, nd.observers.pndp(nodes=[0]), 3),
        (views.dp_d_sgd(mixing=directed, horizon=4), nd.observers.pndp(nodes=[0]), 2),
        (
            views.whisper(mixing=path, covariance=r, horizon=4),
            nd.observers.secure_sum(nodes=[0]),
            2,
        ),
        (views.whisper(mixing=path, covariance=r, horizon=4), nd.observers.central(), 2),
        (views.muffliato(mixing=ring, horizon=3, rounds=2), nd.observers.secure_sum(nodes=[0]), 2),
        (
            views.dp_d_sgd(mixing=ring, horizon=4),
            nd.observers.pndp(nodes=[0, 1], own_noise="counted"),
            3,
        ),
        (views.dp_d_sgd(mixing=ring, horizon=4), nd.observers.tap(nodes=[0]), 2),
        (views.zip_dl(mixing=ring, horizon=3), nd.observers.tap(nodes=[0]), 2),
        (views.zip_dl(mixing=ring, horizon=3), nd.observers.pndp(nodes=[0]), 2),
        (views.antipgd(mixing=ring, horizon=4), nd.observers.pndp(nodes=[0]), 2),
        (views.mf_d_sgd(mixing=path, strategy=band), nd.observers.pndp(nodes=[0]), 2),
        (
            views.dp_d_sgd(mixing=[ring, np.eye(5) / 2 + ring / 2], horizon=4),
            nd.observers.pndp(nodes=[0]),
            2,
        ),
    ]


@pytest.mark.parametrize(("algorithm", "observer", "victim"), algorithms())
def test_gradients_that_hardly_answer_are_those_of_fixed_responses(
    algorithm: Any, observer: Any, victim: int
) -> None:
    """As the smoothness goes to 0 the game has one response, and the bound on one participation is
    the exact number, which is computed by another route. On several it is above it: what the record
    itself changes may still answer to what is hidden."""
    barely = Responses(kind="smooth", smoothness=1e-7)
    horizon = algorithm.horizon
    patterns = nd.participation.Patterns(horizon=horizon, steps=[(0, 2), (1,)])
    for scheme in (nd.participation.single(horizon), patterns):
        fixed = squared(algorithm, observer, scheme, "fixed", victim)
        found = squared(algorithm, observer, scheme, barely, victim)
        assert fixed * (1 - 1e-9) <= found
        assert found <= fixed * (1 + (2e-3 if scheme != patterns else 0.2)) + 1e-9
        # And whoever answers in any way is told no less.
        more, most = (
            squared(algorithm, observer, scheme, responses, victim)
            for responses in (Responses(kind="smooth", smoothness=0.3), "any")
        )
        assert found <= more * (1 + 1e-3)
        assert more <= most * (1 + 1e-9)


def test_a_reader_of_the_wire_of_zip_dl() -> None:
    """The model of a node is an integrator, x <- x + g, that its messages tell with precision i at
    every step: of responses in [1 - r, 1 + r] the worst is 1 + r always, by hand."""
    w = weights(nx.cycle_graph(4))
    for horizon, kappa in ((3, 1.0), (3, 1.5)):
        algorithm = views.zip_dl(mixing=w, horizon=horizon)
        asked = GLM if kappa == 1 else Responses(kind="smooth", smoothness=kappa - 1)
        once = squared(
            views.zip_dl(mixing=w, horizon=1),
            nd.observers.ldp(),
            nd.participation.single(1),
            "any",
            0,
        )
        for pattern in ((0,), (1,), (0, 1, 2)):
            moved = [sum(kappa ** (t - s) for s in pattern if s <= t) for t in range(horizon)]
            by_hand = once * sum(m * m for m in moved)
            scheme = nd.participation.Patterns(horizon=horizon, steps=[pattern])
            found = squared(algorithm, nd.observers.ldp(), scheme, asked, 0)
            assert by_hand * (1 - 1e-9) <= found <= by_hand * (1 + 5e-3)
            assert math.isinf(squared(algorithm, nd.observers.ldp(), scheme, "any", 0))
        # Of the last step alone nothing is left to answer.
        last = nd.participation.Patterns(horizon=horizon, steps=[(horizon - 1,)])
        assert squared(algorithm, nd.observers.ldp(), last, "any", 0) == pytest.approx(
            once, rel=1e-9
        )


def test_what_cannot_have_arrived_does_not_count() -> None:
    w = weights(nx.path_graph(5))
    observer = nd.observers.pndp(nodes=[0])
    for horizon in (1, 2, 3, 4, 6):
        algorithm = views.dp_d_sgd(mixing=w, horizon=horizon)
        for victim in range(1, 5):
            found = squared(
                algorithm, observer, nd.participation.every_step(horizon), "any", victim
            )
            # Node d hears of node 0 at step t + d - 1, so that the last d - 1 steps are lost.
            assert found == pytest.approx(max(0, horizon - victim + 1), rel=1e-9)
    hidden = views.dp_d_sgd(mixing=w, horizon=3)
    assert squared(hidden, observer, nd.participation.single(3), "any", 4) == 0


def test_arrivals_are_where_a_change_spreads() -> None:
    """A change of one message is passed on through random weights on the same links."""
    rng = np.random.default_rng(5)
    graphs = [nx.gnp_random_graph(7, 0.25, seed=s) for s in (1, 4)]
    ws = [np.eye(7) / 2 + nx.to_numpy_array(g) / 20 for g in graphs]
    ws = [w / w.sum(axis=1, keepdims=True) for w in ws]
    horizon, rounds = 3, 2
    algorithm = views.muffliato(mixing=ws, horizon=horizon, rounds=rounds)
    for observer in (
        nd.observers.pndp(nodes=[0, 3]),
        nd.observers.secure_sum(nodes=[2]),
        nd.observers.tap(nodes=[5]),
    ):
        found = arrivals(algorithm, observer)
        for start in range(horizon):
            for victim in range(7):
                moved, seen = np.zeros(7), 0.0
                moved[victim] = 1.0
                for t in range(start, horizon):
                    links = ws[t % 2] != 0
                    for _ in range(rounds):
                        w = links * rng.uniform(0.1, 1.0, (7, 7))
                        if observer.listened:
                            seen += moved[list(observer.listened)].sum()
                        else:
                            seen += (w[list(observer.coalition)] @ moved).sum()
                        moved = w @ moved
                assert found[start, victim] == (seen > 0)


def test_whoever_knows_all_models_is_told_the_same_however_gradients_answer() -> None:
    w = weights(nx.cycle_graph(5))
    algorithm = views.dp_d_sgd(mixing=w, horizon=4)
    once = views.muffliato(mixing=w, horizon=1, rounds=3)
    server = views.cdp(mixing=w, horizon=4, server_noise="sigma^2/n")
    cases = [
        (algorithm, nd.observers.ldp()),
        (algorithm, nd.observers.insider(nodes=[0])),
        (algorithm, nd.observers.secldp(nodes=[0])),
        (once, nd.observers.pndp(nodes=[0])),
        (once, nd.observers.secure_sum(nodes=[0])),
        (server, nd.observers.central()),
        (server, nd.observers.pndp(nodes=[0])),
    ]
    for each, observer in cases:
        asked = {"participation": nd.participation.single(each.horizon), "victims": [2]}
        alike = [nd.account(each, observer, responses=r, **asked)[0] for r in ("any", "fixed", GLM)]
        assert {(e.sensitivity_squared, e.responses, e.theorem) for e in alike} == {
            (alike[0].sensitivity_squared, "any", 1)
        }


def test_steps_that_are_drawn_are_bounded_by_all_messages() -> None:
    algorithm = views.dp_d_sgd(mixing=weights(nx.path_graph(4)), horizon=4)
    scheme = nd.participation.BallsInBins(epochs=2, separation=2)
    asked = {"participation": scheme, "noise_multiplier": 2.0, "delta": 1e-5}
    (near,) = nd.account(algorithm, nd.observers.pndp(nodes=[0]), victims=[2], **asked)
    (whole,) = nd.account(algorithm, nd.observers.ldp(), victims=[2], **asked)
    (fixed,) = nd.account(
        algorithm, nd.observers.pndp(nodes=[0]), victims=[2], responses="fixed", **asked
    )
    assert near.epsilon == pytest.approx(whole.epsilon, rel=1e-6)
    assert fixed.epsilon is not None
    assert near.epsilon is not None
    assert fixed.epsilon < near.epsilon
    assert (near.theorem, whole.theorem, fixed.theorem) == (2, 5, 3)
    # A declared class changes nothing: what is drawn is accounted for before all messages alone.
    (declared,) = nd.account(
        algorithm, nd.observers.pndp(nodes=[0]), victims=[2], responses=GLM, **asked
    )
    assert (declared.mu, declared.epsilon, declared.theorem) == (near.mu, near.epsilon, 2)
    assert declared.lower_bound is None


def test_what_is_said_of_numbers() -> None:
    algorithm = views.dp_d_sgd(mixing=weights(nx.path_graph(4)), horizon=4)
    for responses, words in (("any", "at most this"), ("fixed", "as in training, are not covered")):
        (found,) = nd.account(
            algorithm,
            nd.observers.pndp(nodes=[0]),
            participation=nd.participation.single(4),
            victims=[2],
            responses=responses,
        )
        assert words in found.words
        assert found.responses == responses
        assert found.lower_bound is None
        assert found.gap is None


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"kind": "none"}, "responses"),
        ({"kind": "smooth"}, "smoothness"),
        ({"kind": "smooth", "smoothness": -1.0}, "smoothness"),
        ({"kind": "smooth", "smoothness": 1.0, "convexity": 0.1}, "convexity"),
        ({"kind": "any", "smoothness": 1.0}, "smoothness"),
        ({"kind": "fixed", "losses": "general"}, "losses"),
        ({"kind": "convex", "convexity": 2.0}, "convexity"),
        ({"kind": "convex", "smoothness": 1.5}, "smoothness"),
        ({"kind": "convex", "losses": "linear"}, "losses"),
        ({"kind": "convex", "clipping": "batch"}, "clipping"),
    ],
)
def test_wrong_declarations_name_their_field(given: dict[str, Any], field: str) -> None:
    with pytest.raises(InputError) as error:
        Responses(**given)
    assert error.value.field == field


def test_classes_of_losses_by_their_balls() -> None:
    """Clipping keeps h' of a generalised linear model monotone; else |D - 1/2| reaches the root of
    a half: of H = diag(1, 0+), clipped along v, |I - (I - v v^T) H| is 2 / sqrt 3 at worst."""
    cases = [
        (Responses(kind="convex"), 0.5, math.sqrt(0.5)),
        (GLM, 0.5, 0.5),
        (Responses(kind="convex", clipping="none", smoothness=0.4, convexity=0.1), 0.75, 0.15),
        (Responses(kind="smooth", smoothness=0.2), 1.0, 0.2),
    ]
    for found, rho, radius in cases:
        assert found.rho == pytest.approx(rho, rel=1e-12)
        assert found.radius == pytest.approx(radius, rel=1e-12)
    assert cases[0][0].radius >= math.sqrt(0.5)
    angles = np.linspace(0, np.pi, 2001)
    v = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    h = np.diag([1.0, 1e-9])
    steps = np.eye(2) - (np.eye(2) - v[:, :, None] * v[:, None, :]) @ h
    norms = np.linalg.norm(steps, ord=2, axis=(1, 2))
    away = np.linalg.norm(steps - np.eye(2) / 2, ord=2, axis=(1, 2))
    assert norms.max() == pytest.approx(2 / math.sqrt(3), rel=1e-4)
    assert away.max() <= math.sqrt(0.5) * (1 + 1e-9)


def test_budgets_before_observers_of_several_steps_say_what_they_are_for(tmp_path: Path) -> None:
    w = weights(nx.path_graph(4))
    observers = tuple(nd.observers.pndp(nodes=[node]) for node in range(4))
    from noisedesign.system.workloads import ErrorMeasure

    several: dict[str, Any] = {"observers": observers, "max_variance": 10.0}
    with pytest.raises(InputError) as error:
        nd.SpaceProblem(mixing=w, error=ErrorMeasure(horizon=2), **several)
    assert error.value.field == "responses"
    assert '"fixed"' in str(error.value)
    problem = nd.SpaceProblem(mixing=w, error=ErrorMeasure(horizon=2), responses="fixed", **several)
    design = nd.solve(problem).design
    assert design is not None
    assert design.certificate.theorem == 3
    once = nd.solve(nd.SpaceProblem(mixing=w, **several)).design
    assert once is not None
    assert once.certificate.theorem == 1
    path = tmp_path / "d.npz"
    nd.save(design, path)
    found = nd.verify(nd.load(path), rigorous=True)
    assert found.ok
    assert found.proof is not None
    assert "fixed responses" in found.proof.left_out
    (said,) = [check.note for check in found.checks if check.name == "sensitivity"]
    assert "theorem 3" in said


def test_designs_for_fixed_responses_hold_once_they_are_scaled() -> None:
    """Error times bound, of noise for fixed responses and for readers of all messages: docs/runs.md
    has both."""
    w = weights(nx.path_graph(4))
    chosen = tuple(nd.observers.pndp(nodes=[i], own_noise="counted") for i in range(4))
    words = {"max_variance": 50.0, "error": nd.ErrorMeasure(horizon=3), "observers": chosen}
    costs = []
    for told in ({**words, "responses": "fixed"}, {}):
        design = nd.solve(nd.SpaceProblem(mixing=w, **told)).design
        algorithm = views.whisper(mixing=w, covariance=design.covariance, horizon=3)
        worst = 1.0
        if told:
            worst = max(
                squared(algorithm, observer, nd.participation.single(3), GLM, victim)
                for observer in chosen[:2]  # the others see the same, as a path is symmetric
                for victim in range(4)
                if victim not in observer.coalition
            )
        costs.append(np.trace(w @ design.covariance @ w.T) * worst)
    np.testing.assert_allclose(costs, [1.33, 1.37], atol=6e-3)
