"""[participation] from the records of a run, in problem, account, sweep and training files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import noisedesign as nd
from noisedesign.base.checks import InputError
from noisedesign.files.account_file import account_tables
from noisedesign.files.problem_file import parse_problem
from noisedesign.surveys.sweep_file import parse_sweep
from noisedesign.system.participation import Participation
from noisedesign_lab.tasks.training_file import training_tables
from tests.support.command_line import call, write

RUN = "records = 1000\nbatch_size = 300\nepochs = 5\n"
KINDS: dict[str, Participation] = {  # by hand: 4 steps an epoch, 20 in all
    "": nd.participation.FixedEpoch(epochs=5, separation=4),
    'kind = "fixed-epoch"\n': nd.participation.FixedEpoch(epochs=5, separation=4),
    'kind = "min-separation"\n': nd.participation.MinSeparation(
        horizon=20, separation=4, max_participations=5
    ),
    'kind = "balls-in-bins"\n': nd.participation.BallsInBins(epochs=5, separation=4),
    'kind = "random-allocation"\n': nd.participation.RandomAllocation(horizon=20, participations=5),
    'kind = "cyclic-poisson"\nseparation = 2\n': nd.participation.CyclicPoisson(
        epochs=10, separation=2, rate=0.6
    ),
    'kind = "truncated-poisson"\nbatch_size_limit = 400\n': nd.participation.TruncatedPoisson(
        epochs=20, separation=1, rate=0.3, batch_size_limit=400, group_size=1000
    ),
    'kind = "b-min-sep"\nseparation = 2\n': nd.participation.BMinSepSampling(
        horizon=20, separation=2, rate=300 / 700
    ),
}
PROBLEM = 'name = "p"\ndesign = "time"\n[workload]\nkind = "prefix"\n[participation]\n'
ACCOUNT = (
    '[graph]\nkind = "ring"\nnodes = 4\n[algorithm]\nkind = "dp-d-sgd"\n'
    '[observer]\nmodel = "ldp"\n[participation]\n'
)
TRAINING = (
    'mechanisms = ["none"]\n[graph]\nkind = "ring"\nnodes = 4\n[data]\nkind = "gaussian"\n'
    'records = 60\nfeatures = 2\n[loss]\nkind = "quadratic"\n[training]\nclip = 0.5\n'
    "[privacy]\nepsilons = [1.0]\n[participation]\n"
)


@pytest.mark.parametrize("kind", KINDS)
def test_every_scheme_that_has_a_meaning(kind: str) -> None:
    assert account_tables(ACCOUNT + kind + RUN).participation.scheme() == KINDS[kind]


@pytest.mark.parametrize(
    "kind",
    [
        # The search for a strategy takes seconds.
        pytest.param(kind, marks=[pytest.mark.slow] * ("balls" in kind))
        for kind in list(KINDS)[:4]
    ],
)
def test_problems(kind: str, tmp_path: Path) -> None:
    loaded = parse_problem(PROBLEM + kind + RUN, folder=tmp_path)
    assert loaded.problem.participation == KINDS[kind]
    small = RUN.replace("1000", "10").replace("300", "3").replace("5", "2")
    file = write(tmp_path, PROBLEM + kind + small + "[privacy]\nepsilon = 1.0\n")
    assert call("solve", file, "-o", tmp_path / "p.npz").code == 0
    assert call("verify", tmp_path / "p.npz", "--problem", file).code == 0
    stored = nd.load(tmp_path / "p.npz")
    entry = stored.manifest["participation"]
    assert entry.items() >= {"separation": 4}.items()
    assert not {"records", "batch_size"} & entry.keys()  # files that are written say the numbers


def test_sweeps_and_training() -> None:
    grid = '[grid]\n"participation.batch_size" = [300, 100]\n'
    rows = parse_sweep(PROBLEM + RUN + grid, folder=".").rows
    horizons = [parse_problem(row.text, folder=".").problem.participation for row in rows]
    assert [scheme.horizon for scheme in horizons if scheme] == [20, 50]
    tables, _ = training_tables(TRAINING + RUN)
    assert tables.participation.scheme() == KINDS[""]


@pytest.mark.parametrize(
    ("text", "field", "said"),
    [
        (RUN + "separation = 4\n", "separation", "either separation, or records and batch_size"),
        ("records = 1000\nepochs = 5\nseparation = 4\n", "separation", "separation, records"),
        (
            'kind = "min-separation"\nhorizon = 20\n' + RUN,
            "horizon",
            "either horizon, or records and batch_size",
        ),
        ('kind = "cyclic-poisson"\nrate = 0.5\n' + RUN, "rate", "either rate, or records"),
        ("records = 1000\nbatch_size = 300\n", "epochs", "got nothing"),
        ("records = 1000\nepochs = 3\n", "batch_size", "got nothing"),
        ("batch_size = 10\nepochs = 3\n", "records", "got nothing"),
        (RUN + "rounds = 2\n", "rounds", "unknown key"),
        (RUN.replace("300", "3e2"), "batch_size", "an integer"),
        (RUN.replace("300", "1001"), "batch_size", "at most records = 1000"),
        (RUN.replace("300", "0"), "batch_size", ">= 1"),
        ('kind = "single"\nhorizon = 3\nrecords = 5\n', "records", "unknown key"),
        ('kind = "patterns"\nhorizon = 3\npatterns = [[0]]\nrecords = 5\n', "records", "unknown"),
        ('kind = "cyclic-poisson"\nseparation = 3\n' + RUN, "separation", "the 20 steps"),
        ('kind = "balls-in-binz"\n' + RUN, "kind", "balls-in-bins"),
    ],
)
def test_what_is_no_run(text: str, field: str, said: str) -> None:
    def schemes(full: str) -> Any:
        return account_tables(full).participation.scheme()

    with pytest.raises(InputError) as refused:
        schemes(ACCOUNT + text)
    assert refused.value.field == f"participation.{field}"
    assert said in str(refused.value)
