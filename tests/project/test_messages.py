"""Messages that misled: they name the key, say what is there, and what they advise works."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import networkx as nx
import numpy as np
import pytest

import noisedesign as nd
from noisedesign.base.checks import InputError, describe
from noisedesign.design import backends
from noisedesign.forms.structure import SpaceStructure
from noisedesign.noise import noise
from noisedesign.surveys import compare
from noisedesign.system.workloads import ErrorMeasure
from tests.support.command_line import call

RING = 'name = "r"\ndesign = "space"\n[graph]\nkind = "ring"\nnodes = 5\n'
PREFIX = 'name = "p"\ndesign = "time"\n[workload]\nkind = "prefix"\n'
MEAN = ErrorMeasure(horizon=1, of="mean-model")
FOUR = nx.complete_graph(4)
LAZY = "lazy-metropolis-hastings"


def refused(tmp_path: Path, text: str) -> str:
    """What the shell says of a problem that it refuses."""
    path = tmp_path / "p.toml"
    path.write_text(text)
    outcome = call("solve", path)
    assert outcome.code == 2
    return outcome.err


# --- remedies -------------------------------------------------------------------------------------


@pytest.mark.parametrize("space", ["dense", "edge-local"])
@pytest.mark.parametrize("weights", ["metropolis-hastings", LAZY])
def test_lazy_weights_are_advised_where_they_help(space: str, weights: str) -> None:
    """The mean model hides all differences under any W; all models only where W does."""
    common: dict[str, Any] = {"structure": SpaceStructure(kind=space), "max_variance": "none"}
    with pytest.raises(InputError) as caught:
        nd.solve(nd.SpaceProblem.from_graph(FOUR, weights=weights, error=MEAN, **common))
    assert "lazy" not in caught.value.remedy
    told = re.search(r"max_variance=(\S+) in Python", caught.value.remedy)
    assert told is not None
    capped = common | {"max_variance": float(told[1])}
    assert nd.solve(
        nd.SpaceProblem.from_graph(FOUR, weights=weights, error=MEAN, **capped)
    ).feasible
    if weights != LAZY:
        with pytest.raises(InputError, match="lazy-metropolis-hastings never make W singular"):
            nd.solve(nd.SpaceProblem.from_graph(FOUR, **common))
        assert nd.solve(nd.SpaceProblem.from_graph(FOUR, weights=LAZY, **common)).feasible


@pytest.mark.parametrize("joint", ["kronecker", "full"])
def test_the_mean_model_of_the_last_step_has_a_design(joint: str) -> None:
    """It was told of a cap that did not help, or after a long search."""
    last = ErrorMeasure(horizon=4, of="mean-model", step_weights=[0, 0, 0, 1])
    problem = nd.SpaceTimeProblem.from_graph(
        nx.cycle_graph(5),
        participation=nd.participation.FixedEpoch(epochs=2, separation=2),
        error=last,
        joint=joint,
    )
    found = nd.solve(problem)
    assert found.feasible
    # What a sum of all that was added to the mean costs at least: 1 / n, of four steps at once.
    assert found.design is not None
    ldp = nd.baseline(problem, "ldp").objective
    assert found.design.objective <= ldp


def test_a_gram_that_is_singular_is_told_of_a_cap_that_works() -> None:
    problem = nd.TimeProblem.from_gram(
        gram=np.ones((3, 3)), participation=nd.participation.single(3)
    )
    told = re.search(r"max_variance=(\S+) in Python", nd.solve(problem).remedy)
    assert told is not None
    capped = nd.TimeProblem.from_gram(
        gram=np.ones((3, 3)), participation=nd.participation.single(3), max_variance=float(told[1])
    )
    assert nd.solve(capped).remedy == ""


# --- what was given -------------------------------------------------------------------------------


def test_a_key_that_is_not_known_is_the_one_like_it(tmp_path: Path) -> None:
    said = refused(tmp_path, f"{RING}[privacy]\neps = 1.0\nsteps = 3\n")
    assert "privacy.eps: " in said
    assert "Did you mean epsilon?" in said


@pytest.mark.parametrize("digits", [4300, 5000, 20_000])
def test_an_integer_of_thousands_of_digits_has_a_key(tmp_path: Path, digits: int) -> None:
    number = "7" * (digits + 1)
    said = refused(tmp_path, RING.replace("nodes = 5", f"nodes = {number}"))
    assert (
        f"graph.nodes: expected a number that can be computed with, got one of {digits + 1:,}"
        in said
    )
    said = refused(tmp_path, f"{RING}[budget]\ntau = [1.0, {number}]\n")
    assert "budget.tau: " in said
    with pytest.raises(InputError, match=f"^horizon: .*an integer of about {digits + 1:,} digits"):
        nd.participation.single(7 * 10**digits)
    assert describe(10**5000) == "an integer of about 5,001 digits"


def test_a_text_that_is_no_toml_is_no_number(tmp_path: Path) -> None:
    assert "expected TOML" in refused(tmp_path, f"{RING}[budget\ntau = {'7' * 5000}\n")


def test_numbers_of_fewer_digits_are_named() -> None:
    three: Any = np.float32(3)
    for make in (
        lambda: nd.PrivacyTarget(epsilon=three),
        lambda: nd.SpaceProblem.from_graph(FOUR, budget=three),
    ):
        with pytest.raises(InputError, match="lost digits: give a Python number or a float64"):
            make()
    with pytest.raises(InputError, match=r"horizon: expected an integer >= 1, .* Write 3\."):
        nd.participation.single(three)


def test_one_array_is_put_into_a_list() -> None:
    target = nd.PrivacyTarget(epsilon=1.0)
    problem = nd.TimeProblem.prefix(participation=nd.participation.single(2), privacy=target)
    source = noise(nd.solve(problem).design, node=0, record=False)
    with pytest.raises(InputError, match=r"parameters: expected a list of arrays, .*\[array\]"):
        source.add_(np.zeros(3), 0)


def test_what_is_no_problem_and_no_target() -> None:
    anything: Any = 3
    with pytest.raises(InputError, match="^problem: expected a SpaceProblem, TimeProblem"):
        nd.graphs.least_noise_mixing(anything)
    with pytest.raises(InputError, match="^privacy: expected PrivacyTarget"):
        nd.UnboundedProblem(privacy=anything)


# --- keys of files --------------------------------------------------------------------------------


def test_w_that_is_drawn_is_the_key_of_its_table(tmp_path: Path) -> None:
    text = RING.replace("nodes = 5", 'nodes = 5\nweights = "least-noise"')
    assert "error: mixing: expected" in refused(tmp_path, f"{text}[mixing]\ndropout = 0.1\n")


def test_step_weights_that_are_another_word(tmp_path: Path) -> None:
    with pytest.raises(InputError, match='^step_weights: expected numbers, or "unknown-horizon"'):
        ErrorMeasure(horizon=2, step_weights="unknown")
    use = '[participation]\nkind = "single"\nhorizon = 4\n[error]\nof = "worst"\nstep_weights = '
    said = refused(tmp_path, f'{PREFIX}{use}"unknown"\n')
    assert 'error.step_weights: expected numbers, or "unknown-horizon"' in said


@pytest.mark.parametrize(
    ("use", "key"),
    [
        ('kind = "single"\nhorizon = 5000\n', "participation.horizon: "),
        ("epochs = 2\nseparation = 2500\n", "participation: "),
    ],
)
def test_a_horizon_that_is_too_long_to_be_unknown(tmp_path: Path, use: str, key: str) -> None:
    error = '[error]\nof = "worst"\nstep_weights = "unknown-horizon"\n'
    assert f"error: {key}expected at most 4096" in refused(
        tmp_path, f"{PREFIX}[participation]\n{use}{error}"
    )


# --- results --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def endless(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("endless") / "d.npz"
    nd.save(nd.solve(nd.UnboundedProblem(buffers=2)), path)
    return path


@pytest.mark.parametrize("command", ["simulate", "account", "dropout"])
def test_runs_without_an_end_are_named_in_words(endless: Path, command: str) -> None:
    outcome = call(command, endless)
    assert outcome.code == 2
    assert "got a design of a run without an end. Of it there are verify, deploy" in outcome.err


def test_curvatures_are_rounded_for_people() -> None:
    arguments = ("curvature", "--loss", "logistic", "--feature-bound", "1.2345678")
    assert re.search(r"curvature +\[0\.000381039, 0\.381039\]\n", call(*arguments).out)
    # Of features of norm B, logistic losses curve by at most B^2 / 4.
    largest = call(*arguments, "--json").json()["curvature"][1]
    assert largest == pytest.approx(1.2345678**2 / 4, rel=1e-12)


def test_objectives_side_by_side_are_said_to_be_of_different_errors(tmp_path: Path) -> None:
    ring, sums = tmp_path / "r.toml", tmp_path / "p.toml"
    ring.write_text(RING)
    sums.write_text(f'{PREFIX}[participation]\nkind = "single"\nhorizon = 3\n')
    told = "objectives of designs in space, in time"
    assert told in call("solve", ring, sums).err
    assert told not in call("solve", ring).err
    assert told in call("compare", ring, sums, "--backends", "native").err


def test_comparisons_are_of_all_backends_that_are_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One stands for all that there are, and one is not installed."""
    there = [one for one in backends.all_backends() if one.name == "native"]
    missing = SimpleNamespace(
        name="none", availability=lambda: SimpleNamespace(ready=False, remedy="Buy it.")
    )
    for module in (backends, compare):
        monkeypatch.setattr(module, "all_backends", lambda: [*there, missing])
    problem = nd.SpaceProblem.from_graph(nx.path_graph(2))
    rows = nd.compare([problem], gap=1e-4).rows
    assert [row["backend"] for row in rows] == ["native"]
    ring = tmp_path / "r.toml"
    ring.write_text(RING)
    outcome = call("compare", ring, "--gap", "1e-4", "--json")
    assert [row["backend"] for row in outcome.json()["rows"]] == ["native"]
    assert "none is left out: Buy it." in outcome.err
