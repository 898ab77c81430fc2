"""Gradients that answer to models: attacks that accounts for fixed ones do not allow."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import Any

import networkx as nx
import numpy as np
import pytest

from noisedesign.base.checks import InputError
from noisedesign.design.solve import solve
from noisedesign.privacy import exposure, runs, views
from noisedesign.problem.problem import SpaceProblem
from noisedesign.system.participation import every_step
from noisedesign.system.workloads import ErrorMeasure
from noisedesign.tasks.simulate import simulate
from noisedesign.tasks.simulation.answers import Answers
from noisedesign.tasks.simulation.attacks import Watcher, audit_observers
from tests.support import oracles
from tests.support.worst_responses import worst_linear

PATH = oracles.metropolis(nx.path_graph(3))
STAR = oracles.metropolis(nx.star_graph(4))
GLM = runs.Responses(kind="convex", losses="generalised-linear")


@pytest.mark.parametrize("slope", [0.0, 1.0, 100.0])
def test_path_of_three_by_hand(slope: float) -> None:
    # Node 1 sends (1 + a) W_12 (g + z) + z' of what node 2 sent: observer 0 knows all the rest.
    passed = ((1 + slope) / 3) ** 2
    report = audit_observers(
        mixing=PATH,
        covariance=np.eye(3),
        watchers=[Watcher(readout=np.eye(3)[:2], known=(0,), inside=(0, 1))],
        horizon=2,
        responses=Answers(slope=[0.0, slope, 0.0]),
        claimed_mu=math.sqrt(0.1),  # of fixed responses
        runs=20_000,
    )
    assert (report.node, report.steps) == (2, (0,))
    assert report.interval[0] < math.sqrt(passed / (passed + 1)) < report.interval[1]
    assert report.exceeds == (slope > 0)


@cache
def allowed(responses: str | runs.Responses) -> float:
    """The mu that the account allows before the hub of a star that adds up its four leaves."""
    (told,) = exposure.account(
        views.dp_d_sgd(mixing=STAR, horizon=8),
        views.secure_sum(nodes=[0]),
        participation=every_step(8),
        noise_multiplier=4.0,
        adjacency="zero-out",
        delta=1e-5,
        victims=[1],
        responses=responses,
    )
    return told.mu


def adversarial(
    algorithm: views.Algorithm,
    observer: views.Observer,
    *,
    victim: int,
    pattern: Sequence[int],
    responses: runs.Responses,
    records: int = 1,
    clip: float = math.inf,
) -> tuple[Answers, np.ndarray]:
    """The worst answers of a declared class that a search finds, and by what the gradient of the
    record differs at every step, shape (T,)."""
    mechanism = views.view(algorithm, observer)
    found = worst_linear(mechanism, observer.coalition, victim, pattern, responses)
    assert found is not None
    return Answers(slope=found.factors - 1, records=records, clip=clip), found.changes


@pytest.mark.parametrize(
    ("records", "bites"), [pytest.param(40, False, marks=pytest.mark.slow), (5, True)]
)
def test_clipped_records_reach_what_fixed_responses_forbid(records: int, bites: bool) -> None:
    answers, changes = adversarial(
        views.dp_d_sgd(mixing=STAR, horizon=8),
        views.secure_sum(nodes=[0]),
        victim=1,
        pattern=range(8),
        responses=GLM,
        records=records,
        clip=1.0,
    )
    assert (np.abs(changes) == 1).all()
    assert ((answers.slope >= -1) & (answers.slope <= 0)).all()
    fixed, convex, everything = (allowed(kind) for kind in ("fixed", GLM, "any"))
    # Squared, at noise 4: 2 and 8 by hand, and 5.896 from a program of its own.
    assert 16 * np.square([fixed, convex, everything]) == pytest.approx([2, 5.896, 8], abs=2e-3)
    report = audit_observers(
        mixing=STAR,
        covariance=np.eye(5),
        watchers=[Watcher(readout=STAR[:1], known=(0,), inside=(0,))],
        horizon=8,
        changes=[changes],
        responses=answers,
        claimed_mu=fixed,
        noise_stddev=4.0,
        runs=200_000,
        confidence=0.999,
    )
    assert report.lower_bound > fixed
    assert max(report.interval[0], report.lower_bound) < convex
    assert report.interval[1] < (convex if bites else everything)


def test_without_answers_the_same_attack_stays_at_the_fixed_account() -> None:
    report = audit_observers(
        mixing=STAR,
        covariance=np.eye(5),
        watchers=[Watcher(readout=STAR[:1], known=(0,), inside=(0,))],
        horizon=8,
        changes=np.ones((1, 8)),
        claimed_mu=math.sqrt(2) / 4,
        noise_stddev=4.0,
        runs=50_000,
    )
    assert report.agrees
    assert report.steps == tuple(range(8))


def test_clip_is_of_every_record_by_hand() -> None:
    models = np.array([[6.0, 0.4], [-6.0, 1.0]])
    clipped = Answers(slope=[[0.0, 0.0], [-1.0, -0.5]], records=2, clip=1.0)
    np.testing.assert_array_equal(clipped(1, models), [[-2.0, -0.4], [2.0, -0.5]])
    np.testing.assert_array_equal(clipped.linear(1, models), [[-6.0, -0.4], [3.0, -0.5]])
    assert not clipped(0, models).any()


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"slope": math.nan}, "slope"),
        ({"slope": 1.0, "records": 0}, "records"),
        ({"slope": 1.0, "clip": 0.0}, "clip"),
    ],
)
def test_bad_answers_name_their_field(given: dict[str, Any], field: str) -> None:
    with pytest.raises(InputError) as error:
        Answers(**given)
    assert error.value.field == field


def test_simulation_before_readers_of_all_messages_refuses_answers() -> None:
    design = solve(SpaceProblem(mixing=PATH)).design
    assert design is not None
    with pytest.raises(InputError) as error:
        simulate(design, runs=100, responses=Answers(slope=1.0))
    assert error.value.field == "responses"


def test_design_for_fixed_responses_is_exceeded_by_gradients_that_answer() -> None:
    design = solve(
        SpaceProblem(
            mixing=PATH,
            observers=(views.pndp(nodes=[0]),),
            budget=[1.0, 1.0, 0.1],
            error=ErrorMeasure(horizon=2),
            responses="fixed",
            max_variance=10.0,
        )
    ).design
    assert design is not None
    assert not simulate(design, runs=5000).audit.exceeds
    assert simulate(design, runs=5000, responses=Answers(slope=[0.0, 1.0, 0.0])).audit.exceeds
