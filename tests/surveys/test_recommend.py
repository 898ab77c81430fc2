"""The first of a recommendation against every design that one can solve by hand."""

from __future__ import annotations

import sys
from dataclasses import replace
from functools import cache
from types import SimpleNamespace
from typing import Any

import networkx as nx
import numpy as np
import pytest

import noisedesign as nd
from noisedesign.base.checks import InputError
from noisedesign.files.problem_file import parse_problem
from noisedesign.files.toml import dumped
from noisedesign.privacy.accounting import mu_of
from noisedesign.surveys.situation import ENDLESS, FASTEST, OF_ITS_OWN, TRUST, Kind, kinds_of
from tests.support.endless import endless as endless

pytestmark = pytest.mark.usefixtures("endless")
PATH = nd.build_graph("path", nodes=4)
RUN: dict[str, Any] = {"records": 12, "batch_size": 4, "epochs": 2, "epsilon": 1.5, "delta": 1e-5}
FIXED = {"random_batches": False, "weights": "metropolis-hastings"}
EDGES = nd.SpaceStructure(kind="edge-local")


@cache
def recommended(trust: str = TRUST[0]) -> Any:
    """The recommendation for the path, which several tests look at."""
    return nd.recommend(PATH, trust=trust, **RUN, **FIXED)


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
            if scheme.kind == "fixed-epoch":
                problems["modes"] = nd.SpaceTimeProblem.from_graph(graph, joint="modal", **common)
        if scheme.kind == "fixed-epoch":
            bands = nd.TimeStructure(kind="banded", bands=min(3, apart))
            problems["bands"] = nd.TimeProblem.from_graph(graph, structure=bands, **common)
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
    found = recommended(trust)
    if measure:
        how = {"curvature": measure["curvature"], "learning_rate": 1.0}
        found = nd.recommend(PATH, trust=trust, **RUN, **FIXED, **how)
    errors = by_hand(PATH, RUN, trust=trust, drawn=False, measure=measure)
    assert found.first.error <= min(errors.values()) * (1 + 1e-6)
    ranked = [one.error for one in found.candidates]
    assert ranked == sorted(ranked)
    assert {one.kind.trust for one in found.candidates} == set(range(TRUST.index(trust) + 1))
    for one in found.candidates:
        assert one.epsilon <= RUN["epsilon"]
        if one.kind.design != ENDLESS:
            assert one.design.certificate.feasible


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(40))
def test_forty_situations(seed: int) -> None:
    """Every other one under the default W, where its kinds under W of least noise are tried too."""
    rng = np.random.default_rng(seed)
    graph = nx.connected_watts_strogatz_graph(int(rng.integers(4, 9)), 3, 0.4, seed=seed)
    apart, epochs = int(rng.integers(1, 7)), int(rng.integers(1, 4))
    run = {"records": 4 * apart, "batch_size": 4, "epochs": epochs, "delta": 1e-5}
    run["epsilon"] = float(rng.uniform(0.5, 8))
    trust, drawn = TRUST[seed % 3], seed % 4 == 0
    rules = ["lazy-metropolis-hastings", "metropolis-hastings"]
    how: dict[str, Any] = {"random_batches": drawn, "time_limit": 900.0}
    how |= {"weights": rules[0]} if seed % 2 else {}
    found = nd.recommend(graph, trust=trust, **run, **how)
    weights = [rules[0]] if seed % 2 else [rules[1], "least-noise"]
    for rule in weights:
        try:
            errors = by_hand(graph, run, trust=trust, drawn=drawn, measure={}, weights=rule)
        except InputError:  # a singular W, whose noise nothing bounds
            continue
        best = min(errors, key=errors.__getitem__)
        assert found.first.error <= errors[best] * (1 + 1e-3 * drawn + 1e-5), best


def test_another_epsilon_and_batch_by_hand() -> None:
    """With batches of all records nothing is random, and the error goes with 1 / mu^2."""
    run = {"records": 4, "batch_size": 4, "epochs": 3, "epsilon": 1.0, "delta": 1e-5}
    found = nd.recommend(PATH, weights="metropolis-hastings", **run)
    (change,) = (one for one in found.changes if one.change.startswith("epsilon"))
    assert change.change == "epsilon 2 instead of 1"
    mus = [mu_of(epsilon=epsilon, delta=1e-5) for epsilon in (1.0, 2.0)]
    np.testing.assert_allclose(change.error, (mus[0] / mus[1]) ** 2, rtol=1e-6)
    solved = nd.recommend(PATH, weights="metropolis-hastings", **run | {"epsilon": 2.0})
    np.testing.assert_allclose(change.error, solved.first.error / found.first.error, rtol=1e-6)
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
    found = recommended()
    changes = {one.change: one for one in found.changes}
    for trust in TRUST[1:]:
        other = recommended(trust)
        pairs = [one for one in other.candidates if one.kind.structure.get("joint") != "full"]
        best = min(one.error for one in pairs if one.kind.structure.get("joint") != "modal")
        np.testing.assert_allclose(changes[trust].error, best / found.first.error, rtol=1e-3)


@pytest.mark.parametrize("trust", TRUST)
@pytest.mark.parametrize(
    "extra", [{}, pytest.param({"curvature": [0.1], "learning_rate": 0.5}, marks=pytest.mark.slow)]
)
def test_code_and_tables_say_the_first(
    trust: str, extra: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = (
        nd.recommend(PATH, trust=trust, **RUN, **FIXED, **extra) if extra else recommended(trust)
    )
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


def test_noise_without_a_horizon_is_ranked_by_the_run_that_is_stated() -> None:
    found = nd.recommend(PATH, **RUN, **FIXED)
    (one,) = (one for one in found.candidates if one.kind.design == ENDLESS)
    assert (one.vectors, one.gap, one.epsilon, one.known_epsilon) == (2, None, 1.5, None)
    problem = one.design.problem
    assert (problem.max_participations, problem.separation) == (2, 3)
    measure = nd.ErrorMeasure(horizon=6)
    np.testing.assert_allclose(one.error, nd.evaluate(one.design, error=measure).error)
    known: dict[str, Any] = {"nd": nd, "graph": PATH}
    exec(found.situation.code(one.kind).partition("design =")[0], known)
    assert (known["problem"].rule.most, known["problem"].rule.min_sep) == (2, 3)
    np.testing.assert_array_equal(known["problem"].mixing, problem.mixing)
    graph = {"kind": "path", "nodes": 4}
    text = dumped(found.situation.tables(one.kind) | {"graph": graph})
    told = parse_problem(text, folder=".").problem
    assert isinstance(told, nd.UnboundedProblem)
    for key in ("max_participations", "separation", "buffers", "privacy"):
        assert getattr(told, key) == getattr(found.situation.endless_problem(one.kind), key)
    # It is designed for the models after every step, under steps that are all alike.
    last = nd.recommend(PATH, curvature=[0.1], learning_rate=0.5, **RUN, **FIXED)
    assert "that of all models after every step" in last.skipped["without a horizon"]
    assert not any(one.kind.design == ENDLESS for one in last.candidates)


def test_mixing_is_chosen_for_the_error_of_the_kind_itself() -> None:
    found = nd.recommend(PATH, random_batches=False, **RUN)
    first = found.first
    assert first.kind.chosen == OF_ITS_OWN
    plain = replace(first.kind, chosen="", weights=None)
    chosen = nd.graphs.least_noise_mixing(found.situation.problem(plain))
    np.testing.assert_array_equal(first.kind.weights, chosen.mixing)
    of_one_step = nd.mixing_matrix(PATH, weights="least-noise")
    other = replace(first.kind, weights=of_one_step)
    problem: Any = found.situation.problem(other)
    error = nd.evaluate(nd.solve(problem), error=found.situation.error).error
    assert first.error < error * (1 - 1e-4)
    known: dict[str, Any] = {"nd": nd, "graph": PATH, "seeds": {}, "noise": lambda *_, **__: None}
    exec(found.code, known)
    error = nd.evaluate(known["design"], error=found.situation.error).error
    np.testing.assert_allclose(error, first.error, rtol=1e-6)
    np.testing.assert_array_equal(found.values["mixing of it"], chosen.mixing)


def test_mixing_under_random_batches_is_that_of_noise_across_nodes() -> None:
    """Steps hardly correlate then; and W is not chosen under batches that are drawn."""
    situation = nd.recommend(PATH, **RUN, **FIXED).situation
    (both,) = (kind for kind in kinds_of(2) if kind.name == "between nodes and over time")
    kind = replace(both, drawn=True)
    assert (kind.plain.design, kind.plain.drawn) == ("space", False)
    assert both.plain.design == "space-time"
    mixing = nd.graphs.least_noise_mixing(situation.problem(kind.plain)).mixing
    code = situation.code(replace(kind, chosen=OF_ITS_OWN, weights=mixing))
    known: dict[str, Any] = {"nd": nd, "graph": PATH}
    exec(code.partition("design =")[0], known)
    np.testing.assert_array_equal(known["problem"].mixing, mixing)
    assert known["problem"].participation == situation.problem(kind).participation


def test_mixing_of_one_step_is_taken_where_it_is_better(monkeypatch: pytest.MonkeyPatch) -> None:
    """A W of its own that is not better is none to take."""
    slow = nd.mixing_matrix(PATH, weights="lazy-metropolis-hastings")

    def worse(problem: Any, *, time_limit: float | None = None) -> Any:
        found = nd.graphs.least_noise_mixing(problem) if time_limit is None else None
        return found or SimpleNamespace(status="local", mixing=slow)

    monkeypatch.setattr("noisedesign.surveys.chosen_mixing.least_noise_mixing", worse)
    found = nd.recommend(PATH, random_batches=False, **RUN)
    (chosen,) = {one.kind.chosen for one in found.candidates} - {""}
    assert chosen == "one step"


def test_twice_the_batch_may_be_all_records() -> None:
    situation = nd.recommend(PATH, **RUN | {"records": 8}, **FIXED).situation
    (kind,) = (kind for kind in kinds_of(0) if kind.independent)
    drawn = replace(kind, name="independent noise, random batches", drawn=True)
    module = sys.modules["noisedesign.surveys.recommend"]
    best = module.solved(situation, drawn, seconds=60.0)  # type: ignore[attr-defined]
    search = module._Search(60.0, None)  # type: ignore[attr-defined]
    changes = [*module._changes(search, situation, best, 2, None)]  # type: ignore[attr-defined]
    assert not search.unanswered
    assert changes[1].by == "independent noise"


def test_mixing_that_takes_longer_than_there_is_is_that_of_one_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def late(problem: Any, *, time_limit: float | None = None) -> Any:
        assert time_limit is None or time_limit > 0
        kind = nd.SpaceProblem if time_limit is None else nd.TimeProblem
        if time_limit is not None and isinstance(problem, kind):
            raise InputError("time_limit", expected="seconds enough", got="too few")
        return nd.graphs.least_noise_mixing(problem)

    monkeypatch.setattr("noisedesign.surveys.chosen_mixing.least_noise_mixing", late)
    found = nd.recommend(PATH, random_batches=False, **RUN)
    chosen = [one for one in found.candidates if one.kind.chosen]
    assert chosen
    for one in chosen:
        expected = nd.mixing_matrix(PATH, weights="least-noise")
        np.testing.assert_allclose(one.kind.weights, expected, atol=1e-6)
        assert "weights='least-noise'" in found.situation.code(one.kind)


@pytest.mark.parametrize("weights", ["lazy-metropolis-hastings", FASTEST, None])
def test_code_has_the_mixing_that_was_said(weights: str | None) -> None:
    """None: W itself is given, and named graph in the code."""
    w = nd.mixing_matrix(PATH, weights="max-degree")
    graph = w if weights is None else PATH
    found = nd.recommend(graph, **RUN, weights=weights, random_batches=False, time_limit=1e4)
    for one in found.candidates:
        known: dict[str, Any] = {"nd": nd, "graph": graph, "noise": lambda *_, **__: None}
        exec(found.situation.code(one.kind).partition("design =")[0], known)
        np.testing.assert_array_equal(known["problem"].mixing, one.design.problem.mixing)
    if weights is None:
        np.testing.assert_array_equal(found.design.problem.mixing, w)


def test_bytes_and_seconds_of_a_step() -> None:
    found = nd.recommend(PATH, dimension=7, **RUN, **FIXED)
    for record in found.records:
        assert record["bytes kept"] == 8 * 7 * record["vectors kept"]
        assert record["seconds a step"] > 0
    assert found.coordinates == 7
    assert any("for 7 coordinates" in sentence for sentence in found.sentences)
    unknown = nd.recommend(PATH, **RUN, **FIXED).records
    assert all(record["bytes kept"] is None for record in unknown)


class Clock:
    """Time that passes as it is told to, and solves that take some of it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, seconds: float) -> None:
        module = sys.modules["noisedesign.surveys.recommend"]
        self.now, self.seconds = 0.0, seconds
        self.began: list[float] = []
        self.kinds: list[Kind] = []
        self.stops_at: int | None = None
        self.real = module.solved  # type: ignore[attr-defined]
        monkeypatch.setattr(module.time, "perf_counter", lambda: self.now)  # type: ignore[attr-defined]
        monkeypatch.setattr(module, "solved", self.solved)

    def solved(self, situation: Any, kind: Kind, *, seconds: float) -> Any:
        assert seconds > 0
        self.began.append(self.now)
        self.kinds.append(kind)
        if len(self.began) == self.stops_at:
            raise KeyboardInterrupt
        found = self.real(situation, kind, seconds=1e3)
        self.now += self.seconds
        return found


def test_nothing_begins_after_the_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch, seconds=3.0)
    found = nd.recommend(PATH, trust=TRUST[2], time_limit=11.0, **RUN, **FIXED)
    # Candidates at 0, 3 and 6, of 6.6 seconds for them; what would change it at 9.
    assert clock.began == [0.0, 3.0, 6.0, 9.0]
    assert len(found.candidates) == 3
    assert found.sentences[0].startswith("Incomplete: 6 of 9 kinds were not solved in 11 s; a")
    assert found.values["incomplete"] in repr(found).splitlines()[0]
    assert not found.unanswered
    late = {name for name, why in found.skipped.items() if why.endswith("left of 11 seconds")}
    assert late >= {kind.name for kind in [*kinds_of(2)][3:] if kind.design != ENDLESS}
    assert all(record["seconds a step"] == 0 for record in found.records)  # by this clock


def test_ctrl_c_ends_with_what_was_solved(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch, seconds=0.0)
    clock.stops_at = 4
    found = nd.recommend(PATH, trust=TRUST[2], **RUN, **FIXED)
    assert len(clock.began) == 4
    assert len(found.candidates) == 3
    assert found.skipped["over time"] == "interrupted"
    assert not found.changes
    assert found.incomplete.endswith("as it was interrupted")
    again = Clock(monkeypatch, seconds=0.0)
    again.stops_at = 1
    with pytest.raises(KeyboardInterrupt):
        nd.recommend(PATH, **RUN, **FIXED)


@pytest.mark.parametrize("trust", TRUST)
def test_quick_kinds_begin_and_none_takes_all_the_time(
    trust: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each stops early: at most a quarter of what is left, or its share, and the rest is tried."""
    clock, given = Clock(monkeypatch, seconds=0.0), []
    module = sys.modules["noisedesign.surveys.recommend"]

    def solved(situation: Any, kind: Kind, *, seconds: float) -> Any:
        independent = next(one for one in kinds_of(0) if one.independent)
        found = clock.solved(situation, independent, seconds=seconds)
        given.append((kind, seconds, 60.0 - clock.now))
        clock.now += seconds
        return replace(found, kind=kind, status="time-limit")

    monkeypatch.setattr(module, "solved", solved)
    found = nd.recommend(PATH, trust=trust, time_limit=100.0, **RUN, weights="max-degree")
    kinds = [kind for kind, _, left in given if left > 0]
    quick = [kind.independent or kind.design == "space" for kind in kinds]
    assert quick == sorted(quick, reverse=True)
    assert kinds[0] == next(kind for kind in kinds_of(0))
    assert kinds[-1].design == ENDLESS
    shares = [seconds / left for _, seconds, left in given if left > 0]
    assert max(shares[:-3]) == pytest.approx(0.25)
    assert "stopped early in 100 s" in found.incomplete
    assert not found.skipped


def test_a_change_that_stopped_early_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    module = sys.modules["noisedesign.surveys.recommend"]
    real = module.solved  # type: ignore[attr-defined]

    def solved(situation: Any, kind: Kind, *, seconds: float) -> Any:
        found = real(situation, kind, seconds=1e3)
        stopped = situation.batch_size == 8
        return replace(found, status="time-limit") if stopped else found

    monkeypatch.setattr(module, "solved", solved)
    found = nd.recommend(PATH, **RUN, **FIXED)
    assert list(found.unanswered) == ["batches of 8, and steps twice as large"]
    assert not any("batches" in one.change for one in found.changes)
    assert not found.incomplete


@pytest.mark.parametrize("graph", ["towns.edges", "florentine", 3, None, nd.SpaceProblem])
def test_what_is_no_graph_is_named(graph: Any) -> None:
    with pytest.raises(InputError, match="graph: expected a networkx graph, or W") as told:
        nd.recommend(graph, **RUN)
    assert "nx.read_weighted_edgelist" in told.value.remedy


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
        assert f"max_variance={one.kind.cap!r}" in code
        known: dict[str, Any] = {"nd": nd, "graph": graph, "seeds": {}}
        monkeypatch.setattr(nd, "noise", lambda design, **how: None)
        exec(code, known)
        error = nd.evaluate(known["design"], error=found.situation.error).error
        np.testing.assert_allclose(error, one.error, rtol=1e-5)
        assert found.situation.tables(one.kind)["limits"] == {"max_variance": one.kind.cap}
        np.testing.assert_allclose(one.design.problem.max_variance, one.kind.cap)


def test_dealt_noise_does_not_hold_before_who_has_all_seeds() -> None:
    found = recommended(TRUST[2])
    assert any("seeds of all noise" in one for one in found.first.kind.holds_not)


def test_random_batches_are_drawn_by_the_code_itself() -> None:
    """Whoever takes batches of their own has less privacy than what is printed."""
    kinds = [kind for kind in kinds_of(0) if not kind.independent]
    situation = recommended().situation
    for kind in kinds:
        assert "batches(" not in situation.code(kind)
        drawn = situation.code(replace(kind, drawn=True))
        assert "drawn = nd.participation.BallsInBins.from_records(\n    records=12," in drawn
        assert kind.design == ENDLESS or "participation=drawn" in drawn
        assert "batches = source.batches(12)" in drawn
