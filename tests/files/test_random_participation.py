"""Tables of random participation in problem, account, sweep and training files, and in designs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import noisedesign as nd
from noisedesign import participation
from noisedesign.base.checks import InputError
from noisedesign.files.account_file import account_tables
from noisedesign.files.design_file import load_design, save_design
from noisedesign.files.manifest import participation_entry, participation_of as from_entry
from noisedesign.files.problem_file import load_problem
from noisedesign.mechanisms.baselines import baseline
from noisedesign.noise import Rule
from noisedesign.surveys.sweep_file import parse_sweep
from noisedesign.system.participation import SCHEMES, Participation
from noisedesign_lab.tasks.training_file import training_tables
from tests.support.command_line import call, write
from tests.support.small_designs import falsify

SCHEMES_OF_FILES: dict[str, Participation] = {
    'kind = "balls-in-bins"\nepochs = 2\nseparation = 3': participation.BallsInBins(
        epochs=2, separation=3
    ),
    'kind = "random-allocation"\nhorizon = 6\nparticipations = 2': participation.RandomAllocation(
        horizon=6, participations=2
    ),
    'kind = "cyclic-poisson"\nepochs = 2\nseparation = 3\nrate = 0.25': participation.CyclicPoisson(
        epochs=2, separation=3, rate=0.25
    ),
    'kind = "truncated-poisson"\nepochs = 2\nseparation = 3\nrate = 0.25\n'
    "batch_size_limit = 4\ngroup_size = 9": participation.TruncatedPoisson(
        epochs=2, separation=3, rate=0.25, batch_size_limit=4, group_size=9
    ),
    'kind = "b-min-sep"\nhorizon = 6\nseparation = 3\nrate = 1': participation.BMinSepSampling(
        horizon=6, separation=3, rate=1.0
    ),
    'kind = "b-min-sep"\nhorizon = 6\nseparation = 3\nrate = 0.5\nwarm_start = false': (
        participation.BMinSepSampling(horizon=6, separation=3, rate=0.5, warm_start=False)
    ),
}
EACH = pytest.mark.parametrize(("table", "scheme"), SCHEMES_OF_FILES.items(), ids=lambda _: "")

PROBLEM = """name = "a"
design = "time"
[workload]
kind = "prefix"
[participation]
{table}
"""
ACCOUNT = """[graph]
kind = "ring"
nodes = 4
[algorithm]
kind = "dp-d-sgd"
[observer]
model = "ldp"
delta = 1e-6
[participation]
{table}
"""
TRAINING = """mechanisms = ["none", "ldp"]
[graph]
kind = "ring"
nodes = 4
[participation]
{table}
[data]
kind = "gaussian"
records = 60
features = 2
[loss]
kind = "quadratic"
[training]
clip = 0.5
[privacy]
epsilons = [1.0]
"""


def test_every_random_kind_is_here() -> None:
    random = {kind for kind, scheme in SCHEMES.items() if scheme.random}
    assert {scheme.kind for scheme in SCHEMES_OF_FILES.values()} == random


@EACH
def test_account_files_have_every_kind(table: str, scheme: Participation) -> None:
    found = account_tables(ACCOUNT.format(table=table))
    assert found.participation.scheme() == scheme


@EACH
def test_training_files_have_every_kind(table: str, scheme: Participation) -> None:
    tables, _ = training_tables(TRAINING.format(table=table))
    assert tables.participation.scheme() == scheme


@EACH
def test_problem_files_have_what_noise_is_designed_for(
    table: str, scheme: Participation, tmp_path: Path
) -> None:
    file = write(tmp_path, PROBLEM.format(table=table))
    if scheme.for_designs:
        assert load_problem(file).problem.participation == scheme
        return
    with pytest.raises(InputError) as caught:
        load_problem(file)
    assert caught.value.field == "participation.kind"
    assert '"balls-in-bins"' in caught.value.remedy
    with pytest.raises(InputError, match="participation: .*balls-in-bins"):
        nd.TimeProblem.prefix(participation=scheme)
    ended = call("solve", file)
    assert ended.code == 2
    assert "participation.kind" in ended.err
    assert "Traceback" not in ended.err


def test_sweeps_vary_their_keys() -> None:
    base = PROBLEM.format(table='kind = "balls-in-bins"\nepochs = 2\nseparation = 3')
    grid = '[grid]\n"participation.separation" = [2, 4]\n'
    rows = parse_sweep(base + grid, folder=".").rows
    assert [row.parameters["participation.separation"] for row in rows] == [2, 4]
    grid = '[grid]\n"participation.kind" = ["fixed-epoch", "balls-in-bins"]\n'
    assert len(parse_sweep(base + grid, folder=".").rows) == 2
    grid = '[grid]\n"participation.kind" = ["balls-in-bins", "cyclic-poisson"]\n'
    with pytest.raises(InputError, match=r"grid\.participation\.kind: .*balls-in-bins"):
        parse_sweep(base + grid, folder=".")


@EACH
def test_designs_and_plans_store_them(table: str, scheme: Participation) -> None:
    entry = participation_entry(scheme)
    assert entry is not None
    assert entry["kind"] == scheme.kind
    assert from_entry(entry, horizon=scheme.horizon) == scheme
    assert Rule.of_json(json.loads(json.dumps(scheme.rule.to_json()))) == scheme.rule
    without = {key: value for key, value in entry.items() if key != "kind"}
    if scheme.binned:  # what no longer says that it is random is not
        assert from_entry(without, horizon=scheme.horizon) == scheme.fixed


def test_noise_for_drawn_steps_is_no_noise_for_chosen_ones(tmp_path: Path) -> None:
    """Its scale is for the account in its file, which no participation that is chosen has."""
    target = nd.PrivacyTarget(epsilon=2.0, delta=1e-5, clip=1.0)
    scheme = participation.BallsInBins(epochs=2, separation=2)
    problem = nd.TimeProblem.prefix(participation=scheme, privacy=target)
    path = save_design(baseline(problem, "ldp"), tmp_path / "d.npz")
    assert load_design(path).design.problem.use == scheme
    fixed = participation_entry(scheme.fixed)
    falsify(path, lambda manifest, _: manifest.update(participation=fixed))
    with pytest.raises(InputError, match="participation: expected the random one that its account"):
        load_design(path)


@pytest.mark.parametrize(
    ("table", "field", "words"),
    [
        ('kind = "balls-in-bins"\nepochs = 2\nseparation = 1', "separation", "every-step"),
        ('kind = "balls-in-bins"\nepochs = 2\nseparation = 2.5', "separation", "integer"),
        ('kind = "balls-in-bins"\nepochs = 2', "separation", "a value"),
        ('kind = "balls-in-bins"\nepochs = 2\nseparation = 2\nrate = 0.5', "rate", "only the keys"),
        ('kind = "balls-and-bins"\nepochs = 2', "kind", "Did you mean balls-in-bins"),
        ('kind = "cyclic-poisson"\nepochs = 2\nseparation = 2\nrate = 1.5', "rate", r"\(0, 1\]"),
        ('kind = "cyclic-poisson"\nepochs = 2\nseparation = 2\nrate = 1', "rate", "fixed-epoch"),
        ('kind = "random-allocation"\nhorizon = 2\nparticipations = 2', "participations", "chance"),
        (
            'kind = "b-min-sep"\nhorizon = 2\nseparation = 2\nrate = 0.5\nwarm_start = 1',
            "warm_start",
            "bool",
        ),
    ],
)
def test_mistakes_are_told_by_the_key_at_fault(table: str, field: str, words: str) -> None:
    def refused(act: Any, text: str) -> None:
        with pytest.raises(InputError, match=words) as caught:
            act(text.format(table=table))
        assert caught.value.field == f"participation.{field}"

    refused(lambda text: account_tables(text).participation.scheme(), ACCOUNT)
    refused(lambda text: training_tables(text)[0].participation.scheme(), TRAINING)
