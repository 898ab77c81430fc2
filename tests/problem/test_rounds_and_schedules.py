"""Designs for several gossip rounds a step and for W that changes: problem, file, run, report."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from noisedesign.base.checks import InputError
from noisedesign.design.design import fixed_mixing
from noisedesign.design.solve import solve
from noisedesign.files.design_file import load_design, save_design
from noisedesign.files.problem_file import load_problem, parse_problem
from noisedesign.forms.structure import SpaceStructure, TimeStructure
from noisedesign.mechanisms.baselines import baseline, baseline_names
from noisedesign.privacy import views
from noisedesign.privacy.target import PrivacyTarget
from noisedesign.problem.problem import SpaceProblem, SpaceTimeProblem, TimeProblem
from noisedesign.system.participation import FixedEpoch, single
from noisedesign.system.random_mixing import EdgeDropout
from noisedesign.system.workloads import ErrorMeasure
from noisedesign.tasks.deploy import deploy
from noisedesign.tasks.dropout import drop_out
from noisedesign.tasks.export import export
from noisedesign.tasks.simulate import simulate
from noisedesign.tasks.verify import verify
from tests.support.command_line import call, write

Array = np.ndarray

PATH4 = np.array([[2.0, 1, 0, 0], [1, 1, 1, 0], [0, 1, 1, 1], [0, 0, 1, 2]]) / 3
PAIRS = np.kron(np.eye(2), np.full((2, 2), 0.5))
MIDDLE = np.array([[1.0, 0, 0, 0], [0, 0.5, 0.5, 0], [0, 0.5, 0.5, 0], [0, 0, 0, 1]])
LARGER = np.full((5, 5), 0.2)
SCHEME = FixedEpoch(epochs=2, separation=2)
RUNS = 4000


def square(w: Array, k: int) -> Array:
    found = np.eye(len(w))
    for _ in range(k):
        found = w @ found
    return found


MADE = {
    "space": lambda **how: SpaceProblem(error=ErrorMeasure(horizon=3), **how),
    "one step": lambda **how: SpaceProblem(**how),
    "edge-local": lambda **how: SpaceProblem(structure=SpaceStructure(kind="edge-local"), **how),
    "time": lambda **how: TimeProblem.decentralized(participation=SCHEME, **how),
    "banded": lambda **how: TimeProblem.decentralized(
        participation=SCHEME, structure=TimeStructure(kind="banded", bands=2), **how
    ),
    "kronecker": lambda **how: SpaceTimeProblem(participation=SCHEME, **how),
    "full": lambda **how: SpaceTimeProblem(participation=SCHEME, joint="full", **how),
}


@pytest.mark.parametrize("kind", MADE)
def test_rounds_are_a_power_of_w_to_the_error_and_to_nothing_else(kind: str) -> None:
    rounds = 3
    by_rounds: Any = MADE[kind](mixing=PATH4, rounds=rounds)
    by_power: Any = MADE[kind](mixing=square(PATH4, rounds))
    if kind == "edge-local":
        # W^3 links nodes that share no seed: only H is that of W^3.
        np.testing.assert_allclose(by_rounds.gram, by_power.gram, rtol=1e-13)
        return
    a, b = solve(by_rounds).design, solve(by_power).design
    assert a is not None
    assert b is not None
    assert a.objective == pytest.approx(b.objective, rel=1e-5)
    assert a.lower_bound <= b.objective * (1 + 1e-9)
    np.testing.assert_array_equal(by_rounds.mixing, PATH4)


@pytest.mark.parametrize("how", [{"rounds": 3}, {"mixing": [PAIRS, MIDDLE, PATH4]}])
@pytest.mark.parametrize("kind", MADE)
def test_designs_are_kept_verified_and_run(kind: str, how: dict[str, Any], tmp_path: Path) -> None:
    if kind == "full" and "mixing" in how:  # W that is singular leaves noise without a price
        how = {"mixing": [(np.eye(4) + w) / 2 for w in how["mixing"]]}
    problem: Any = MADE[kind](**({"mixing": PATH4} | how))
    found = solve(problem).design
    assert found is not None
    assert found.certificate.feasible
    path = save_design(found, tmp_path / "made.npz")
    again: Any = load_design(path).design.problem
    assert again.rounds == problem.rounds
    np.testing.assert_array_equal(again.step_mixing, problem.step_mixing)
    report = verify(load_design(path))
    assert report.ok, report
    ran = simulate(found, runs=RUNS, seed=1)
    assert ran.variance.agrees
    assert ran.audit.agrees


def test_a_run_of_another_number_of_rounds_has_another_error() -> None:
    found = solve(SpaceProblem(mixing=PATH4, rounds=3)).design
    assert found is not None
    other = replace(found, problem=SpaceProblem(mixing=PATH4, rounds=2))
    assert not simulate(other, runs=RUNS, seed=1).variance.agrees


def test_random_mixing_is_drawn_in_every_round() -> None:
    random = EdgeDropout(mixing=PATH4, probability=0.3)
    found = solve(SpaceProblem(mixing=PATH4, random=random, rounds=2)).design
    assert found is not None
    assert simulate(found, runs=RUNS, seed=1).variance.agrees
    once = random.expected(np.eye(4))
    np.testing.assert_allclose(found.problem.gram, random.expected(once), rtol=1e-13)  # type: ignore[union-attr]


def test_a_schedule_in_space_by_hand() -> None:
    """Two steps of all iterates: W1, W1; then W2 W1 of the first and W2 of the second."""
    problem = SpaceProblem(mixing=[PAIRS, PATH4])
    later = PATH4 @ PAIRS
    expected = PAIRS.T @ PAIRS + later.T @ later + PATH4.T @ PATH4
    np.testing.assert_allclose(problem.gram, expected, rtol=1e-13)
    np.testing.assert_allclose(problem.mixing, (PAIRS + PATH4) / 2)
    assert problem.horizon == 2
    copied = replace(problem, budget=2.0)
    np.testing.assert_array_equal(copied.gram, problem.gram)


def test_rounds_against_observers() -> None:
    """Two rounds tell a neighbour what its neighbours' neighbours sent, as its own run has it."""
    how: dict[str, Any] = {"error": ErrorMeasure(horizon=2), "max_variance": 30.0}
    how["responses"] = "fixed"
    observers = tuple(views.pndp(nodes=(v,)) for v in range(4))
    once, twice = (SpaceProblem(mixing=PATH4, observers=observers, rounds=k, **how) for k in (1, 2))
    found = solve(twice).design
    assert found is not None
    assert found.certificate.sensitivity_squared <= 1 + 1e-9
    assert simulate(found, runs=RUNS, seed=1).audit.agrees
    # Noise that is enough for one round is not for two.
    assert solve(once).design.objective < found.objective * 5  # type: ignore[union-attr]
    alone = views.whisper(mixing=PATH4, covariance=solve(once).design.covariance, horizon=2)  # type: ignore[union-attr]
    from noisedesign.privacy.exposure import account

    seen = [
        max(
            e.sensitivity_squared
            for observer in observers
            for e in account(
                replace(alone, rounds=k), observer, participation=single(2), responses="fixed"
            )
        )
        for k in (1, 2)
    ]
    assert seen[0] <= 1 + 1e-9 < seen[1]
    with pytest.raises(InputError, match="schedule"):
        SpaceProblem(mixing=[PAIRS, PATH4], observers=observers, **how)


def test_what_is_sent_in_later_rounds_tells_a_reader_nothing_more() -> None:
    """All messages of K rounds, stacked: the pseudo-inverse Gram is that of one round."""
    n, horizon = 4, 2
    rng = np.random.default_rng(3)
    root = rng.standard_normal((n, n))
    for rounds in (1, 3):
        state, rows = np.zeros((n, n * horizon)), []
        for t in range(horizon):
            state = state + np.eye(n * horizon)[t * n : (t + 1) * n]
            for _ in range(rounds):
                rows.append(state)
                state = PATH4 @ state
        signal = np.vstack(rows)
        noise = signal @ np.kron(np.eye(horizon), root)
        told = np.linalg.pinv(noise, rcond=1e-10) @ signal
        expected = np.kron(np.eye(horizon), np.linalg.inv(root @ root.T))
        np.testing.assert_allclose(told.T @ told, expected, atol=1e-8)


@pytest.mark.parametrize("how", [{"rounds": 2}, {"mixing": [PAIRS, PATH4]}])
def test_baselines(how: dict[str, Any]) -> None:
    for make in (MADE["space"], MADE["time"], MADE["kronecker"]):
        problem = make(**({"mixing": PATH4} | how))
        best = solve(problem).design
        assert best is not None
        for name in baseline_names(problem):
            made = baseline(problem, name, dual=best)
            assert made.objective > 0
            if name != "cdp":
                assert made.objective >= best.lower_bound * (1 - 1e-9)


def test_who_mixes_once_by_one_w_says_so(tmp_path: Path) -> None:
    target = PrivacyTarget(epsilon=2.0, delta=1e-5, clip=1.0)
    for how, words in (({"rounds": 2}, "2 gossip rounds"), ({"mixing": [PAIRS, PATH4]}, "2 W")):
        problem = MADE["time"](**({"mixing": PATH4, "privacy": target} | how))
        found = solve(problem).design
        assert found is not None
        plan = found.node_plan(1)
        assert bool(plan.weights) == ("rounds" in how)
        assert plan.rounds == found.problem.rounds
        assert type(plan).load(plan.save(tmp_path / f"{words}.plan")).rounds == plan.rounds
        if "rounds" in how:
            files = deploy(found, tmp_path / "nodes")
            assert [file.plan.rounds for file in files] == [2] * 4
        else:
            with pytest.raises(InputError, match=words):
                deploy(found, tmp_path / "nodes")
        with pytest.raises(InputError, match=words):
            fixed_mixing(found)
        assert drop_out(found, gone=["0"]).left == 3


# --- files ----------------------------------------------------------------------------------------

RING = '[graph]\nkind = "ring"\nnodes = 5\n'
OVER = "[participation]\nepochs = 2\nseparation = 2\n"
FILES = {
    "space": f'name = "x"\ndesign = "space"\n{RING}[workload]\nrounds = 4\n',
    "time": f'name = "x"\ndesign = "time"\n{RING}{OVER}[workload]\nkind = "decentralized"\n'
    "rounds = 4\n",
    "space-time": f'name = "x"\ndesign = "space-time"\n{RING}{OVER}[workload]\nrounds = 4\n',
}


@pytest.mark.parametrize("kind", FILES)
def test_rounds_of_a_file(kind: str, tmp_path: Path) -> None:
    problem: Any = parse_problem(FILES[kind], folder=tmp_path).problem
    assert problem.rounds == 4
    path = write(tmp_path, FILES[kind])
    made = tmp_path / "made.npz"
    assert call("solve", path, "-o", made).code == 0
    assert call("verify", made, "--problem", path).code == 0
    write(tmp_path, FILES[kind].replace("rounds = 4", "rounds = 3"))
    again = call("verify", made, "--problem", path)
    assert again.code != 0
    assert "gossip rounds" in again.out + again.err


@pytest.mark.parametrize("kind", FILES)
@pytest.mark.parametrize("value", ["0", "-2", "1.5", '"two"', "100000"])
def test_wrong_rounds_name_their_key(kind: str, value: str, tmp_path: Path) -> None:
    text = FILES[kind].replace("rounds = 4", f"rounds = {value}")
    with pytest.raises(InputError) as caught:
        parse_problem(text, folder=tmp_path)
    assert caught.value.field == "workload.rounds"


def test_rounds_are_of_models(tmp_path: Path) -> None:
    text = f'name = "x"\ndesign = "time"\n{OVER}[workload]\nkind = "prefix"\nrounds = 2\n'
    with pytest.raises(InputError) as caught:
        parse_problem(text, folder=tmp_path)
    assert caught.value.field == "workload.rounds"
    with pytest.raises(InputError) as caught:
        TimeProblem.prefix(participation=SCHEME, rounds=2)
    assert caught.value.field == "workload.rounds"


def test_rounds_of_push_sum(tmp_path: Path) -> None:
    text = (
        'name = "x"\ndesign = "time"\n[graph]\nkind = "ring"\nnodes = 5\ndirected = true\n'
        f'weights = "column-stochastic"\n{OVER}[workload]\nkind = "decentralized"\nrounds = 2\n'
    )
    problem: Any = parse_problem(text, folder=tmp_path).problem
    w, y = problem.mixing, np.ones(5)
    for t in range(4):
        y = w @ (w @ y)
        np.testing.assert_allclose(problem.error.push_sum_weights[t], y, rtol=1e-13)
    found = solve(problem).design
    assert found is not None
    again: Any = load_design(save_design(found, tmp_path / "made.npz")).design.problem
    np.testing.assert_allclose(again.gram, problem.gram, rtol=1e-13)


def schedule_file(folder: Path, **texts: str) -> str:
    for name, text in texts.items():
        (folder / f"{name}.edges").write_text(text)
    listed = ", ".join(f'"{name}.edges"' for name in texts)
    return f'name = "x"\ndesign = "space"\n[graph]\nkind = "schedule"\nfiles = [{listed}]\n'


def test_a_schedule_of_edge_lists(tmp_path: Path) -> None:
    text = schedule_file(tmp_path, odd="a b\nc d\n", even="b c\n")
    problem: Any = load_problem(write(tmp_path, text)).problem
    assert problem.nodes == ("a", "b", "c", "d")
    np.testing.assert_allclose(problem.schedule, [PAIRS, MIDDLE], atol=1e-15)
    assert call("solve", tmp_path / "problem.toml", "-o", tmp_path / "made.npz").code == 0
    assert call("verify", tmp_path / "made.npz", "--problem", tmp_path / "problem.toml").code == 0


@pytest.mark.parametrize(
    ("texts", "field"),
    [
        ({}, "graph.files"),
        ({"a": "1 2\n", "b": "3 4\n"}, "graph.files"),  # nobody ever links the two pairs
        ({"a": "1 2\n", "b": "# nothing\n"}, "graph.files"),
        ({"a": "1 2 3\n"}, "graph.files"),
    ],
)
def test_wrong_edge_lists(texts: dict[str, str], field: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        load_problem(write(tmp_path, schedule_file(tmp_path, **texts)))
    assert caught.value.field == field


def test_a_schedule_of_matrices(tmp_path: Path) -> None:
    np.save(tmp_path / "w.npy", np.stack([PAIRS, PATH4]))
    text = 'name = "x"\ndesign = "space"\n[graph]\nkind = "matrix"\nfile = "w.npy"\n'
    problem: Any = load_problem(write(tmp_path, text)).problem
    np.testing.assert_array_equal(problem.schedule, [PAIRS, PATH4])
    with pytest.raises(InputError) as caught:
        load_problem(write(tmp_path, text + "[mixing]\nedge_failure = 0.1\n"))
    assert caught.value.field == "mixing"
    np.save(tmp_path / "w.npy", np.stack([PAIRS, 2 * PATH4]))
    with pytest.raises(InputError, match="number 1 of a schedule") as caught:
        load_problem(write(tmp_path, text))
    assert caught.value.field == "graph.file"


def test_a_period_is_not_how_long_noise_is_used() -> None:
    target = PrivacyTarget(epsilon=2.0, delta=1e-5)
    with pytest.raises(InputError) as caught:
        SpaceProblem(mixing=[PAIRS, PATH4], privacy=target)
    assert caught.value.field == "privacy.steps"
    assert caught.value.expected == "how many steps the noise is used for"
    ten = SpaceProblem(mixing=[PAIRS, PATH4], privacy=replace(target, steps=10))
    assert ten.use is not None
    assert ten.use.horizon == 10
    with pytest.raises(InputError, match="at least the 2 steps"):
        SpaceProblem(mixing=[PAIRS, PATH4], privacy=replace(target, steps=1))


@pytest.mark.parametrize(
    ("how", "field"),
    [
        ({"random": EdgeDropout(mixing=PATH4, probability=0.1)}, "random"),
        ({"schedule": np.stack([PAIRS, MIDDLE])}, "schedule"),
        ({"schedule": np.stack([np.eye(3), np.eye(3)])}, "mixing"),
        ({"schedule": np.stack([LARGER, np.eye(5)])}, "schedule"),
        ({"schedule": "every other day"}, "mixing"),
        ({"rounds": 0}, "workload.rounds"),
    ],
)
def test_what_does_not_go_with_a_schedule(how: dict[str, Any], field: str) -> None:
    with pytest.raises(InputError) as caught:
        SpaceProblem(**({"mixing": [PAIRS, PATH4]} | how))
    assert caught.value.field == field


def test_changed_rounds_are_found_out(tmp_path: Path) -> None:
    """The objective of a file is that of its rounds."""
    found: Any = solve(SpaceProblem(mixing=PATH4, rounds=3)).design
    forged = replace(found, problem=SpaceProblem(mixing=PATH4, rounds=4))
    assert not verify(load_design(save_design(forged, tmp_path / "forged.npz"))).ok


def test_the_account_of_a_design_counts_its_rounds() -> None:
    from noisedesign.mechanisms import algorithms

    found = solve(SpaceProblem(mixing=PATH4, rounds=3)).design
    assert found is not None
    assert algorithms.of_design(found, participation=single(2)).rounds == 3


@pytest.mark.parametrize("rounds", [1, 3])
def test_a_design_against_who_gets_the_mean_is_central_dp(rounds: int, tmp_path: Path) -> None:
    """tr(W R W^T) >= n var(mean) = 1 / n, which equal noise at all nodes attains."""
    how: dict[str, Any] = {"mixing": PATH4, "rounds": rounds}
    problem = SpaceProblem(observers=(views.central(),), max_variance=5.0, **how)
    found = solve(problem, gap=1e-7).design
    assert found is not None
    assert found.objective == pytest.approx(1 / 4, rel=1e-6)
    np.testing.assert_allclose(found.covariance, np.full((4, 4), 1 / 16), atol=1e-3)
    cdp = baseline(SpaceProblem(**how), "cdp")
    assert cdp.objective == pytest.approx(1 / 4, rel=1e-12)
    assert simulate(found, runs=RUNS, seed=1).audit.agrees
    assert verify(load_design(save_design(found, tmp_path / "made.npz"))).ok


def test_an_export_says_how_models_mix(tmp_path: Path) -> None:
    for how, facts in (
        ({"rounds": 2}, {"gossip_rounds": 2}),
        ({"mixing": [PAIRS, PATH4]}, {"steps_of_schedule": 2}),
        ({}, {}),
    ):
        found = solve(MADE["time"](**({"mixing": PATH4} | how))).design
        assert found is not None
        *_, sidecar = export(found, to="npy", path=tmp_path / f"{list(facts)}.npy")
        said = json.loads(sidecar.read_text("utf-8"))
        known = ("gossip_rounds", "steps_of_schedule")
        assert {key: said[key] for key in known if key in said} == facts


def test_an_error_that_the_first_multipliers_prove_nothing_of() -> None:
    """Consensus after three rounds: at the start of the search the multipliers may vanish."""
    w = np.array(
        [
            [0.7960605343803033, 0.20393946561969672, 0.0],
            [0.0, 0.6536591419250115, 0.34634085807498854],
            [0.23683922775540212, 0.40878133714558684, 0.3543794350990111],
        ]
    )
    rates = np.array([0.37226064, 0.93962898])
    error = ErrorMeasure(
        horizon=2, of="consensus", learning_rates=rates, momentum=0.4031218584501945
    )
    problem = SpaceProblem(
        mixing=w, rounds=3, error=error, structure=SpaceStructure(kind="edge-local")
    )
    found = solve(problem)
    assert found.status == "optimal"
    assert found.design is not None
    assert found.design.gap <= 1e-6
