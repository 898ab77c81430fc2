"""The first of a recommendation against every design that one can solve by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import networkx as nx
import numpy as np
import pytest

import noisedesign as nd
from noisedesign.base.checks import InputError
from noisedesign.files.problem_file import parse_problem
from noisedesign.files.toml import dumped
from noisedesign.privacy.accounting import mu_of
from noisedesign.surveys.recommend import TRUST, kinds_of

PATH = nd.build_graph("path", nodes=4)
RUN: dict[str, Any] = {"records": 12, "batch_size": 4, "epochs": 2, "epsilon": 1.5, "delta": 1e-5}
FIXED = {"random_batches": False, "weights": "metropolis-hastings"}
EDGES = nd.SpaceStructure(kind="edge-local")


def by_hand(
    graph: nx.Graph,
    run: dict[str, Any],
    *,
    trust: str,
    drawn: bool,
    measure: dict[str, Any],
    weights: str = "metropolis-hastings",
) -> dict[str, float]:
    """Errors at the target of what one would try, from the problems themselves."""
    epochs, apart = run["epochs"], -(-run["records"] // run["batch_size"])
    target = nd.PrivacyTarget(epsilon=run["epsilon"], delta=run["delta"])
    error = nd.ErrorMeasure(horizon=epochs * apart, **measure)
    found = {}
    kinds = [nd.participation.FixedEpoch] + (
        [nd.participation.BallsInBins] if drawn and apart > 1 else []
    )
    for scheme in (kind(epochs=epochs, separation=apart) for kind in kinds):
        common: dict[str, Any] = {"participation": scheme, "privacy": target, "error": error}
        common["weights"] = weights
        problems: dict[str, Any] = {"time": nd.TimeProblem.from_graph(graph, **common)}
        if trust != TRUST[0]:
            problems["edges"] = nd.SpaceProblem.from_graph(graph, structure=EDGES, **common)
            problems["edges, time"] = nd.SpaceTimeProblem.from_graph(graph, space=EDGES, **common)
        if trust == TRUST[2]:
            problems["space"] = nd.SpaceProblem.from_graph(graph, **common)
            problems["pair"] = nd.SpaceTimeProblem.from_graph(graph, **common)
            if scheme.kind == "fixed-epoch":
                problems["full"] = nd.SpaceTimeProblem.from_graph(graph, joint="full", **common)
        for name, problem in problems.items():
            design = nd.solve(problem).design
            assert design is not None
            # In space the objective is at unit budgets, and a record is in several steps.
            found[f"{name}, {scheme}"] = design.objective * nd.calibrate(problem).noise_stddev ** 2
    return found


MEASURES: tuple[dict[str, Any], ...] = (
    {},
    {"of": "loss", "curvature": [0.05, 0.4], "learning_rates": 1.0},
)


@pytest.mark.parametrize("measure", MEASURES, ids=["all iterates", "loss"])
@pytest.mark.parametrize("trust", TRUST)
def test_the_first_is_the_best_that_one_can_solve(trust: str, measure: dict[str, Any]) -> None:
    how = {} if not measure else {"curvature": measure["curvature"], "learning_rate": 1.0}
    found = nd.recommend(PATH, trust=trust, **RUN, **FIXED, **how)
    errors = by_hand(PATH, RUN, trust=trust, drawn=False, measure=measure)
    assert found.first.error <= min(errors.values()) * (1 + 1e-6)
    ranked = [one.error for one in found.candidates]
    assert ranked == sorted(ranked)
    assert {one.kind.trust for one in found.candidates} == set(range(TRUST.index(trust) + 1))
    for one in found.candidates:
        assert one.epsilon <= RUN["epsilon"]
        assert one.design.certificate.feasible


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(40))
def test_forty_situations(seed: int) -> None:
    rng = np.random.default_rng(seed)
    graph = nx.connected_watts_strogatz_graph(int(rng.integers(4, 9)), 3, 0.4, seed=seed)
    apart, epochs = int(rng.integers(1, 7)), int(rng.integers(1, 4))
    run = {"records": 4 * apart, "batch_size": 4, "epochs": epochs, "delta": 1e-5}
    run["epsilon"] = float(rng.uniform(0.5, 8))
    trust, drawn = TRUST[seed % 3], seed % 4 == 0
    how = {"weights": "lazy-metropolis-hastings", "random_batches": drawn, "time_limit": 900.0}
    found = nd.recommend(graph, trust=trust, **run, **how)
    errors = by_hand(graph, run, trust=trust, drawn=drawn, measure={}, weights=how["weights"])
    assert found.first.error <= min(errors.values()) * (1 + 1e-5)


def test_another_epsilon_and_batch_by_hand() -> None:
    """With batches of all records nothing is random, and the error goes with 1 / mu^2."""
    run = {"records": 4, "batch_size": 4, "epochs": 3, "epsilon": 1.0, "delta": 1e-5}
    found = nd.recommend(PATH, weights="metropolis-hastings", **run)
    (change,) = (one for one in found.changes if one.change.startswith("epsilon"))
    assert change.change == "epsilon 2 instead of 1"
    mus = [mu_of(epsilon=epsilon, delta=1e-5) for epsilon in (1.0, 2.0)]
    np.testing.assert_allclose(change.error, (mus[0] / mus[1]) ** 2, rtol=1e-6)
    assert not any(one.kind.drawn for one in found.candidates)
    # Two batches of one step each, or one of both: k = 1, and steps that are independent of how
    # many there were. Twice the step and half the noise of a mean: half as many steps count.
    run |= {"records": 8, "epochs": 1}
    once = nd.recommend(PATH, **run, **FIXED)
    (change,) = (one for one in once.changes if one.change.startswith("batches"))
    twice = nd.recommend(PATH, **run | {"batch_size": 8}, **FIXED)
    of_one = 4 * twice.candidates[0].error / 8**2 / 1  # steps twice as large, squared
    of_two = once.first.error / 4**2 / 2
    np.testing.assert_allclose(change.error, of_one / of_two, rtol=1e-6)


def test_more_trust_saves_what_a_second_recommendation_has() -> None:
    found = nd.recommend(PATH, **RUN, **FIXED)
    changes = {one.change: one for one in found.changes}
    for trust in TRUST[1:]:
        other = nd.recommend(PATH, trust=trust, **RUN, **FIXED)
        pairs = [one for one in other.candidates if one.kind.structure.get("joint") != "full"]
        best = min(one.error for one in pairs if one.kind.structure.get("joint") != "modal")
        np.testing.assert_allclose(changes[trust].error, best / found.first.error, rtol=1e-3)


@pytest.mark.parametrize("trust", TRUST)
@pytest.mark.parametrize("extra", [{}, {"curvature": [0.1], "learning_rate": 0.5}])
def test_code_and_tables_say_the_first(
    trust: str, extra: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = nd.recommend(PATH, trust=trust, **RUN, **FIXED, **extra)
    drawn: list[Any] = []
    known: dict[str, Any] = {"nd": nd, "graph": PATH, "seeds": {}}
    monkeypatch.setattr(nd, "noise", lambda design, **how: drawn.append((design, how)))
    exec(found.code, known)
    (design, how), expected = drawn[0], found.first.error
    assert how == {"node": 0, "clip": 1.0} | ({} if trust == TRUST[0] else {"seeds": {}})
    error = found.situation.error
    np.testing.assert_allclose(nd.evaluate(design, error=error).error, expected, rtol=1e-5)
    graph = {"kind": "path", "nodes": 4, "weights": "metropolis-hastings"}
    text = dumped(found.values["problem"] | {"graph": graph})
    other = nd.solve(parse_problem(text, folder=".").problem)
    np.testing.assert_allclose(nd.evaluate(other, error=error).error, expected, rtol=1e-5)


def test_the_least_noise_is_tried_with_another_mixing() -> None:
    found = nd.recommend(PATH, random_batches=False, **RUN)
    chosen = [one for one in found.candidates if one.kind.chosen]
    assert chosen
    plain = nd.mixing_matrix(PATH)
    for one in chosen:
        mixing = one.design.problem.mixing
        assert not np.allclose(mixing, plain)
        rate = np.linalg.norm(plain - 0.25, 2)
        assert np.linalg.norm(mixing - 0.25, 2) <= rate * (1 + 1e-9)


def test_memory_limits_what_is_kept() -> None:
    """Room for two vectors: three bands keep two, and so do two buffers."""
    found = nd.recommend(PATH, dimension=10, memory=170.0, **RUN, **FIXED)
    assert {one.vectors for one in found.candidates} == {0, 1, 2}
    assert not any(one.kind.name == "over time" for one in found.candidates)
    names = {kind.name for kind in kinds_of(0, kept=0)}
    assert names == {"independent noise"}


@pytest.mark.slow
def test_random_batches_are_said_to_be_secret() -> None:
    (kind,) = (kind for kind in kinds_of(0) if kind.independent)
    found = nd.recommend(PATH, **RUN, weights="metropolis-hastings", time_limit=60.0)
    drawn = next(one for one in found.candidates if one.kind.drawn and one.kind.independent)
    assert "secret" in drawn.kind.needs
    assert drawn.kind.holds_not == ("whoever learns which batch a record is in",)
    assert drawn.known_epsilon is not None
    assert drawn.known_epsilon > RUN["epsilon"]
    assert kind.holds_not == ()


def test_what_was_not_solved_is_listed() -> None:
    with pytest.raises(InputError, match="time_limit: expected seconds for one candidate"):
        nd.recommend(PATH, **RUN, **FIXED, time_limit=1e-9)


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"records": 0}, "records"),
        ({"batch_size": 13}, "batch_size"),
        ({"epochs": 1.5}, "epochs"),
        ({"epsilon": 0.0}, "epsilon"),
        ({"trust": "everybody"}, "trust"),
        ({"curvature": [0.1]}, "learning_rate"),
        ({"memory": 1e6}, "dimension"),
        ({"memory": -1.0, "dimension": 10}, "memory"),
        ({"time_limit": 0.0}, "time_limit"),
        ({"adjacency": "any"}, "adjacency"),
        ({"weights": "heavy"}, "weights"),
    ],
)
def test_bad_input_is_named(wrong: dict[str, Any], field: str) -> None:
    with pytest.raises(InputError, match=field):
        nd.recommend(PATH, **RUN | FIXED | wrong)


def test_a_singular_mixing_is_capped_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """A complete graph averages exactly: noise of a clique is refused without a cap."""
    graph = nx.complete_graph(3)
    found = nd.recommend(graph, trust=TRUST[1], **RUN, **FIXED)
    capped = [one for one in found.candidates if one.kind.cap is not None]
    assert capped
    assert all(one.kind.name.endswith("capped") for one in capped)
    for one in capped:
        code = found.situation.code(one.kind)
        known: dict[str, Any] = {"nd": nd, "graph": graph, "seeds": {}}
        monkeypatch.setattr(nd, "noise", lambda design, **how: None)
        exec(code, known)
        error = nd.evaluate(known["design"], error=found.situation.error).error
        np.testing.assert_allclose(error, one.error, rtol=1e-5)
        assert found.situation.tables(one.kind)["limits"] == {"max_variance": one.kind.cap}
        np.testing.assert_allclose(one.design.problem.max_variance, one.kind.cap)


def test_dealt_noise_does_not_hold_before_who_has_all_seeds() -> None:
    found = nd.recommend(PATH, trust=TRUST[2], **RUN, **FIXED)
    assert any("seeds of all noise" in one for one in found.first.kind.holds_not)


def test_random_batches_are_drawn_by_the_code_itself() -> None:
    """Whoever takes batches of their own has less privacy than what is printed."""
    kinds = [kind for kind in kinds_of(0) if not kind.independent]
    situation = nd.recommend(PATH, **RUN, **FIXED).situation
    for kind in kinds:
        assert "batches(" not in situation.code(kind)
        drawn = situation.code(replace(kind, drawn=True))
        assert "participation=nd.participation.BallsInBins.from_records(records=12, " in drawn
        assert "batches = source.batches(12)" in drawn
