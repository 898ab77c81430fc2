"""Design the noise of private learning: graph in, certified noise out.

A public name is loaded with its module when it is first asked for (PEP 562); the import itself
loads nothing. No module has the name of a function: loading the one would hide the other.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # what the table below does, in words that type checkers read
    from noisedesign._checks import InputError as InputError
    from noisedesign.accounting import Calibration as Calibration
    from noisedesign.accounting import calibrate as calibrate
    from noisedesign.accounting import delta_of as delta_of
    from noisedesign.accounting import epsilon_of as epsilon_of
    from noisedesign.accounting import mu_of as mu_of
    from noisedesign.accounting import noise_stddev_for as noise_stddev_for
    from noisedesign.accounting import renyi_of as renyi_of
    from noisedesign.baselines import baseline as baseline
    from noisedesign.baselines import baseline_names as baseline_names
    from noisedesign.certificate import Certificate as Certificate
    from noisedesign.design import Design as Design
    from noisedesign.exports import export as export
    from noisedesign.exposure import Exposure as Exposure
    from noisedesign.exposure import account as account
    from noisedesign.graph import build_graph as build_graph
    from noisedesign.graph import mixing_matrix as mixing_matrix
    from noisedesign.io.account_file import load_account as load_account
    from noisedesign.io.checkpoint_file import CheckpointFile as CheckpointFile
    from noisedesign.io.design_file import load_design as load_design
    from noisedesign.io.design_file import save_design as save_design
    from noisedesign.io.problem_file import load_problem as load_problem
    from noisedesign.io.problem_set import shipped_problems as shipped_problems
    from noisedesign.io.sweep_file import load_sweep as load_sweep
    from noisedesign.judging import compare as compare
    from noisedesign.objectives import Objective as Objective
    from noisedesign.participation import FixedEpoch as FixedEpoch
    from noisedesign.participation import MinSeparation as MinSeparation
    from noisedesign.participation import Patterns as Patterns
    from noisedesign.participation import every_step as every_step
    from noisedesign.participation import fixed_epoch as fixed_epoch
    from noisedesign.participation import single as single
    from noisedesign.privacy_target import PrivacyTarget as PrivacyTarget
    from noisedesign.problem import SpaceProblem as SpaceProblem
    from noisedesign.problem import SpaceTimeProblem as SpaceTimeProblem
    from noisedesign.problem import TimeProblem as TimeProblem
    from noisedesign.random_mixing import EdgeDropout as EdgeDropout
    from noisedesign.random_mixing import NodeDropout as NodeDropout
    from noisedesign.random_mixing import RandomMatchings as RandomMatchings
    from noisedesign.random_mixing import RandomMixing as RandomMixing
    from noisedesign.random_mixing import maximal_matchings as maximal_matchings
    from noisedesign.random_mixing import pairwise_gossip as pairwise_gossip
    from noisedesign.solving import Solution as Solution
    from noisedesign.solving import solve as solve
    from noisedesign.structure import SpaceStructure as SpaceStructure
    from noisedesign.structure import TimeStructure as TimeStructure
    from noisedesign.sweep import run_sweep as run_sweep
    from noisedesign.threats import Observer as Observer
    from noisedesign.threats import insider as insider
    from noisedesign.threats import ldp as ldp
    from noisedesign.threats import pndp as pndp
    from noisedesign.threats import secldp as secldp
    from noisedesign.threats import secure_sum as secure_sum
    from noisedesign.threats import shared_seed as shared_seed
    from noisedesign.threats import tap as tap
    from noisedesign.validation import Validation as Validation
    from noisedesign.validation import validate as validate
    from noisedesign.verification import Verification as Verification
    from noisedesign.verification import verify as verify

__version__ = "0.1.0"

_MODULES = {
    "Calibration": "accounting",
    "Certificate": "certificate",
    "CheckpointFile": "io.checkpoint_file",
    "Design": "design",
    "EdgeDropout": "random_mixing",
    "Exposure": "exposure",
    "FixedEpoch": "participation",
    "InputError": "_checks",
    "MinSeparation": "participation",
    "NodeDropout": "random_mixing",
    "Objective": "objectives",
    "Observer": "threats",
    "Patterns": "participation",
    "PrivacyTarget": "privacy_target",
    "RandomMatchings": "random_mixing",
    "RandomMixing": "random_mixing",
    "Solution": "solving",
    "SpaceProblem": "problem",
    "SpaceStructure": "structure",
    "SpaceTimeProblem": "problem",
    "TimeProblem": "problem",
    "TimeStructure": "structure",
    "Validation": "validation",
    "Verification": "verification",
    "account": "exposure",
    "baseline": "baselines",
    "baseline_names": "baselines",
    "build_graph": "graph",
    "calibrate": "accounting",
    "compare": "judging",
    "delta_of": "accounting",
    "epsilon_of": "accounting",
    "every_step": "participation",
    "export": "exports",
    "fixed_epoch": "participation",
    "insider": "threats",
    "ldp": "threats",
    "load_account": "io.account_file",
    "load_design": "io.design_file",
    "load_problem": "io.problem_file",
    "load_sweep": "io.sweep_file",
    "maximal_matchings": "random_mixing",
    "mixing_matrix": "graph",
    "mu_of": "accounting",
    "noise_stddev_for": "accounting",
    "pairwise_gossip": "random_mixing",
    "pndp": "threats",
    "renyi_of": "accounting",
    "run_sweep": "sweep",
    "save_design": "io.design_file",
    "secldp": "threats",
    "secure_sum": "threats",
    "shared_seed": "threats",
    "shipped_problems": "io.problem_set",
    "single": "participation",
    "solve": "solving",
    "tap": "threats",
    "validate": "validation",
    "verify": "verification",
}
"""Public name -> the module of this package that has it."""

__all__ = list(_MODULES)


def __getattr__(name: str) -> object:
    """A public name, or a module of the package, loaded when it is first asked for."""
    if name in _MODULES:
        value: object = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    else:
        value = _module(name)
    globals()[name] = value
    return value


def _module(name: str) -> object:
    missing = AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name.startswith("_"):
        raise missing
    path = f"{__name__}.{name}"
    try:
        return import_module(path)
    except ModuleNotFoundError as error:
        if error.name != path:  # the module is there, and what it needs is not
            raise
        raise missing from None


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})
