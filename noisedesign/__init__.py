"""Design the noise of private learning: graph in, certified noise out.

A public name is loaded with its module when it is first asked for (PEP 562); the import itself
loads nothing. No module has the name of a function: loading the one would hide the other.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # what the table below does, in words that type checkers read
    from noisedesign.base.checks import InputError as InputError
    from noisedesign.files.checkpoint_file import CheckpointFile as CheckpointFile
    from noisedesign.files.design_file import load_design as load_design
    from noisedesign.files.design_file import save_design as save_design
    from noisedesign.files.problem_file import load_problem as load_problem
    from noisedesign.files.problem_set import shipped_problems as shipped_problems
    from noisedesign.files.sweep_file import load_sweep as load_sweep
    from noisedesign.privacy.accounting import delta_of as delta_of
    from noisedesign.privacy.accounting import epsilon_of as epsilon_of
    from noisedesign.privacy.accounting import mu_of as mu_of
    from noisedesign.privacy.accounting import noise_stddev_for as noise_stddev_for
    from noisedesign.privacy.accounting import renyi_of as renyi_of
    from noisedesign.privacy.exposure import Exposure as Exposure
    from noisedesign.privacy.exposure import account as account
    from noisedesign.privacy.target import PrivacyTarget as PrivacyTarget
    from noisedesign.privacy.views import Observer as Observer
    from noisedesign.privacy.views import insider as insider
    from noisedesign.privacy.views import ldp as ldp
    from noisedesign.privacy.views import pndp as pndp
    from noisedesign.privacy.views import secldp as secldp
    from noisedesign.privacy.views import secure_sum as secure_sum
    from noisedesign.privacy.views import shared_seed as shared_seed
    from noisedesign.privacy.views import tap as tap
    from noisedesign.program.calibration import Calibration as Calibration
    from noisedesign.program.calibration import calibrate as calibrate
    from noisedesign.program.certificate import Certificate as Certificate
    from noisedesign.program.design import Design as Design
    from noisedesign.program.problem import SpaceProblem as SpaceProblem
    from noisedesign.program.problem import SpaceTimeProblem as SpaceTimeProblem
    from noisedesign.program.problem import TimeProblem as TimeProblem
    from noisedesign.program.structure import SpaceStructure as SpaceStructure
    from noisedesign.program.structure import TimeStructure as TimeStructure
    from noisedesign.system.graph import build_graph as build_graph
    from noisedesign.system.graph import mixing_matrix as mixing_matrix
    from noisedesign.system.participation import FixedEpoch as FixedEpoch
    from noisedesign.system.participation import MinSeparation as MinSeparation
    from noisedesign.system.participation import Patterns as Patterns
    from noisedesign.system.participation import every_step as every_step
    from noisedesign.system.participation import fixed_epoch as fixed_epoch
    from noisedesign.system.participation import single as single
    from noisedesign.system.random_mixing import EdgeDropout as EdgeDropout
    from noisedesign.system.random_mixing import NodeDropout as NodeDropout
    from noisedesign.system.random_mixing import RandomMatchings as RandomMatchings
    from noisedesign.system.random_mixing import RandomMixing as RandomMixing
    from noisedesign.system.random_mixing import maximal_matchings as maximal_matchings
    from noisedesign.system.random_mixing import pairwise_gossip as pairwise_gossip
    from noisedesign.system.workloads import ErrorMeasure as ErrorMeasure
    from noisedesign.tasks.account.request import load_account as load_account
    from noisedesign.tasks.baselines import baseline as baseline
    from noisedesign.tasks.baselines import baseline_names as baseline_names
    from noisedesign.tasks.compare import compare as compare
    from noisedesign.tasks.export import export as export
    from noisedesign.tasks.plot import plot as plot
    from noisedesign.tasks.simulate import Simulation as Simulation
    from noisedesign.tasks.simulate import simulate as simulate
    from noisedesign.tasks.solve import Solution as Solution
    from noisedesign.tasks.solve import solve as solve
    from noisedesign.tasks.sweep import sweep as sweep
    from noisedesign.tasks.verify import Verification as Verification
    from noisedesign.tasks.verify import verify as verify

__version__ = "0.1.0"

_MODULES = {
    "Calibration": "program.calibration",
    "Certificate": "program.certificate",
    "CheckpointFile": "files.checkpoint_file",
    "Design": "program.design",
    "EdgeDropout": "system.random_mixing",
    "Exposure": "privacy.exposure",
    "FixedEpoch": "system.participation",
    "InputError": "base.checks",
    "MinSeparation": "system.participation",
    "NodeDropout": "system.random_mixing",
    "ErrorMeasure": "system.workloads",
    "Observer": "privacy.views",
    "Patterns": "system.participation",
    "PrivacyTarget": "privacy.target",
    "RandomMatchings": "system.random_mixing",
    "RandomMixing": "system.random_mixing",
    "Simulation": "tasks.simulate",
    "Solution": "tasks.solve",
    "SpaceProblem": "program.problem",
    "SpaceStructure": "program.structure",
    "SpaceTimeProblem": "program.problem",
    "TimeProblem": "program.problem",
    "TimeStructure": "program.structure",
    "Verification": "tasks.verify",
    "account": "privacy.exposure",
    "baseline": "tasks.baselines",
    "baseline_names": "tasks.baselines",
    "build_graph": "system.graph",
    "calibrate": "program.calibration",
    "compare": "tasks.compare",
    "delta_of": "privacy.accounting",
    "epsilon_of": "privacy.accounting",
    "every_step": "system.participation",
    "export": "tasks.export",
    "fixed_epoch": "system.participation",
    "insider": "privacy.views",
    "ldp": "privacy.views",
    "load_account": "tasks.account.request",
    "load_design": "files.design_file",
    "load_problem": "files.problem_file",
    "load_sweep": "files.sweep_file",
    "maximal_matchings": "system.random_mixing",
    "mixing_matrix": "system.graph",
    "mu_of": "privacy.accounting",
    "noise_stddev_for": "privacy.accounting",
    "pairwise_gossip": "system.random_mixing",
    "plot": "tasks.plot",
    "pndp": "privacy.views",
    "renyi_of": "privacy.accounting",
    "save_design": "files.design_file",
    "secldp": "privacy.views",
    "secure_sum": "privacy.views",
    "shared_seed": "privacy.views",
    "shipped_problems": "files.problem_set",
    "simulate": "tasks.simulate",
    "single": "system.participation",
    "solve": "tasks.solve",
    "sweep": "tasks.sweep",
    "tap": "privacy.views",
    "verify": "tasks.verify",
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
