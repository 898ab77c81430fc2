"""Names that the package had before its modules: each works, and its warning says the new one."""

from __future__ import annotations

import subprocess
import sys
import warnings
from collections.abc import Iterator
from operator import attrgetter
from pathlib import Path

import pytest

import noisedesign as nd
from tests.support import ROOT, holds_for

WORDS = """
BMinSepSampling BallsInBins Calibration Certificate CheckpointFile Curvature CyclicPoisson Design
DropOut EdgeDropout ErrorMeasure ErrorMixture Evaluation Exposure FixedEpoch InputError
LeastNoiseMixing Ledger MinSeparation NodeDropout Observer Patterns PrivacyTarget RandomAllocation
RandomMatchings RandomMixing Recommendation Simulation Solution SpaceProblem SpaceStructure
SpaceTimeProblem TimeProblem TimeStructure TruncatedPoisson Tuned UnboundedDesign UnboundedProblem
Verification account baseline baseline_names build_graph calibrate central coalitions compare
curvature_range delta_of dp_event drop_out epsilon_of evaluate every_drop_out every_step export
fixed_epoch insider ldp least_noise_mixing load_account load_design load_problem load_sweep
maximal_matchings mixing_matrix mu_of mu_to_holders neighboring_relation noise_stddev_for
pairwise_gossip plot pndp privacy_after recommend renyi_of report save_design secldp secure_sum
shared_seed shipped_problems simulate single solve solve_unbounded sparse_mixing_matrix sweep tap
tune_learning_rate verify
"""
"""All names of the package when its names were one list."""

OLD = WORDS.split()

MODULES = ("graphs", "observers", "participation", "privacy", "results")

NOW = {
    "pndp": "observers.pndp",
    "Observer": "observers.Observer",
    "epsilon_of": "privacy.epsilon_of",
    "Ledger": "privacy.Ledger",
    "BallsInBins": "participation.BallsInBins",
    "fixed_epoch": "participation.FixedEpoch.from_records",
    "EdgeDropout": "graphs.EdgeDropout",
    "least_noise_mixing": "graphs.least_noise_mixing",
    "Verification": "results.Verification",
    "load_problem": "load",
    "load_design": "load",
    "load_account": "load",
    "load_sweep": "load",
    "save_design": "save",
    "solve_unbounded": "solve",
}
"""Some of them, and where they are."""


def told(warned: list[warnings.WarningMessage]) -> str:
    (warning,) = warned
    assert warning.category is DeprecationWarning
    assert warning.filename == __file__
    return str(warning.message)


@pytest.fixture
def anew() -> Iterator[None]:
    """As in a process where no old name was asked for yet."""
    for name in set(OLD) - set(nd.__all__):
        vars(nd).pop(name, None)
    yield
    for name in set(OLD) - set(nd.__all__):
        vars(nd).pop(name, None)


@pytest.mark.usefixtures("anew")
def test_every_old_name_works_and_says_the_new_one() -> None:
    assert len(OLD) == len(set(OLD)) == 91

    def works(name: str) -> None:
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            found = getattr(nd, name)
            if name in nd.__all__:
                assert not warned
                return
            message = told(warned)
            assert getattr(nd, name) is found
            assert len(warned) == 1  # once a name
        old, _, path = message.partition(";")[0].partition(" is now ")
        assert old == f"noisedesign.{name}"
        assert path.rpartition(".")[0] in {
            "noisedesign",
            "noisedesign.participation.FixedEpoch",
            *(
                f"noisedesign.{m}"
                for m in ["graphs", "observers", "participation", "privacy", "results"]
            ),
        }
        assert attrgetter(path.removeprefix("noisedesign."))(nd) == found
        assert path == f"noisedesign.{NOW.get(name, path.removeprefix('noisedesign.'))}"
        assert name not in dir(nd) or name in vars(nd)

    holds_for(OLD, works)


@pytest.mark.usefixtures("anew")
def test_an_import_of_an_old_name_warns_where_it_stands() -> None:
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        from noisedesign import pndp
    assert told(warned).startswith("noisedesign.pndp is now noisedesign.observers.pndp; ")
    assert pndp is nd.observers.pndp


def test_a_script_sees_the_warning(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("import noisedesign as nd\nprint(nd.mu_of(epsilon=1.0, delta=1e-5) > 0)\n")
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert done.stdout == "True\n"
    assert "script.py:2: DeprecationWarning: noisedesign.mu_of is now" in done.stderr


def test_an_old_name_is_an_error_in_tests_of_our_own(pytestconfig: pytest.Config) -> None:
    with warnings.catch_warnings():
        (ours,) = (f for f in pytestconfig.getini("filterwarnings") if "is now" in f)
        action, message, category = ours.split(":")
        assert (action, category) == ("error", "DeprecationWarning")
        warnings.filterwarnings("error", message, DeprecationWarning)
        vars(nd).pop("ldp", None)
        with pytest.raises(DeprecationWarning, match="ldp is now"):
            nd.ldp  # noqa: B018
