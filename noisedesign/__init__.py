"""Design the noise of private learning: graph in, certified noise out.

Nodes of a network learn together, by gossip or with a server. Each adds Gaussian noise to what it
sends, so that nobody learns much of one record. Noise that is correlated, across nodes or over
steps, costs less accuracy at the same privacy; this package finds the best, and proves how good it
is::

    import noisedesign as nd

    graph = nd.build_graph("florentine")
    target = nd.PrivacyTarget(epsilon=1.0, delta=1e-6, steps=100)
    design = nd.solve(nd.SpaceProblem.from_graph(graph, privacy=target)).design
    print(design)

What there is, by what it is for; ``help(nd.solve)`` and the like have an example each:

- problems: SpaceProblem, TimeProblem, SpaceTimeProblem, and what they are made of: SpaceStructure,
  TimeStructure, ErrorMeasure, PrivacyTarget;
- graphs and mixing: build_graph, mixing_matrix, sparse_mixing_matrix, RandomMixing, NodeDropout,
  EdgeDropout, RandomMatchings, pairwise_gossip, maximal_matchings;
- participation: FixedEpoch, MinSeparation, Patterns, fixed_epoch, single, every_step;
- random participation: BallsInBins, RandomAllocation, CyclicPoisson, TruncatedPoisson,
  BMinSepSampling;
- designs: solve, Solution, Design, Certificate, CheckpointFile, verify, Verification, simulate,
  Simulation, baseline, baseline_names, compare, sweep, plot, report;
- privacy of a run: calibrate, Calibration, privacy_after, Ledger, dp_event, neighboring_relation;
  conversions: mu_of, epsilon_of, delta_of, renyi_of, noise_stddev_for;
- who learns what: account, Exposure, Observer, made by ldp, pndp, secldp, insider, shared_seed,
  secure_sum, tap, central; all coalitions of some nodes, made by coalitions;
- training under a mechanism: train, TrainingTask, TrainingResult, load_training;
- nodes that are gone: drop_out, every_drop_out, DropOut, mu_to_holders;
- files: load_problem, shipped_problems, load_account, load_sweep, save_design, load_design, export;
- what is wrong with an input: InputError.

:mod:`noisedesign.noise` draws the noise of a design in a training run, and
:mod:`noisedesign.adapters` in trainers; both need numpy and cryptography alone.
"""

# A public name is loaded with its module when it is first asked for (PEP 562); the import itself
# loads nothing. No module has the name of a function: loading the one would hide the other.

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # what the table below does, in words that type checkers read
    __version__: str
    from noisedesign.base.checks import InputError as InputError
    from noisedesign.files.checkpoint_file import CheckpointFile as CheckpointFile
    from noisedesign.files.design_file import load_design as load_design, save_design as save_design
    from noisedesign.files.problem_file import load_problem as load_problem
    from noisedesign.files.problem_set import shipped_problems as shipped_problems
    from noisedesign.files.sweep_file import load_sweep as load_sweep
    from noisedesign.privacy.accounting import (
        delta_of as delta_of,
        epsilon_of as epsilon_of,
        mu_of as mu_of,
        noise_stddev_for as noise_stddev_for,
        renyi_of as renyi_of,
    )
    from noisedesign.privacy.exposure import Exposure as Exposure, account as account
    from noisedesign.privacy.ledger import (
        Ledger as Ledger,
        dp_event as dp_event,
        neighboring_relation as neighboring_relation,
    )
    from noisedesign.privacy.target import PrivacyTarget as PrivacyTarget
    from noisedesign.privacy.views import (
        Observer as Observer,
        central as central,
        coalitions as coalitions,
        insider as insider,
        ldp as ldp,
        pndp as pndp,
        secldp as secldp,
        secure_sum as secure_sum,
        shared_seed as shared_seed,
        tap as tap,
    )
    from noisedesign.program.calibration import Calibration as Calibration, calibrate as calibrate
    from noisedesign.program.certificate import Certificate as Certificate
    from noisedesign.program.design import Design as Design
    from noisedesign.program.prefix import privacy_after as privacy_after
    from noisedesign.program.problem import (
        SpaceProblem as SpaceProblem,
        SpaceTimeProblem as SpaceTimeProblem,
        TimeProblem as TimeProblem,
    )
    from noisedesign.program.structure import (
        SpaceStructure as SpaceStructure,
        TimeStructure as TimeStructure,
    )
    from noisedesign.system.graph import (
        build_graph as build_graph,
        mixing_matrix as mixing_matrix,
        sparse_mixing_matrix as sparse_mixing_matrix,
    )
    from noisedesign.system.participation import (
        BallsInBins as BallsInBins,
        BMinSepSampling as BMinSepSampling,
        CyclicPoisson as CyclicPoisson,
        FixedEpoch as FixedEpoch,
        MinSeparation as MinSeparation,
        Patterns as Patterns,
        RandomAllocation as RandomAllocation,
        TruncatedPoisson as TruncatedPoisson,
        every_step as every_step,
        fixed_epoch as fixed_epoch,
        single as single,
    )
    from noisedesign.system.random_mixing import (
        EdgeDropout as EdgeDropout,
        NodeDropout as NodeDropout,
        RandomMatchings as RandomMatchings,
        RandomMixing as RandomMixing,
        maximal_matchings as maximal_matchings,
        pairwise_gossip as pairwise_gossip,
    )
    from noisedesign.system.workloads import ErrorMeasure as ErrorMeasure
    from noisedesign.tasks.account.request import load_account as load_account
    from noisedesign.tasks.baselines import baseline as baseline, baseline_names as baseline_names
    from noisedesign.tasks.compare import compare as compare
    from noisedesign.tasks.dropout import (
        DropOut as DropOut,
        drop_out as drop_out,
        every_drop_out as every_drop_out,
        mu_to_holders as mu_to_holders,
    )
    from noisedesign.tasks.export import export as export
    from noisedesign.tasks.page.write import report as report
    from noisedesign.tasks.plot import plot as plot
    from noisedesign.tasks.simulate import Simulation as Simulation, simulate as simulate
    from noisedesign.tasks.solve import Solution as Solution, solve as solve
    from noisedesign.tasks.sweep import sweep as sweep
    from noisedesign.tasks.train.request import load_training as load_training
    from noisedesign.tasks.train.table import TrainingResult as TrainingResult, train as train
    from noisedesign.tasks.train.training_task import TrainingTask as TrainingTask
    from noisedesign.tasks.verify import Verification as Verification, verify as verify

_NAMES = {
    "base.checks": "InputError",
    "files.checkpoint_file": "CheckpointFile",
    "files.design_file": "load_design save_design",
    "files.problem_file": "load_problem",
    "files.problem_set": "shipped_problems",
    "files.sweep_file": "load_sweep",
    "privacy.accounting": "delta_of epsilon_of mu_of noise_stddev_for renyi_of",
    "privacy.exposure": "Exposure account",
    "privacy.ledger": "Ledger dp_event neighboring_relation",
    "privacy.target": "PrivacyTarget",
    "privacy.views": "Observer central coalitions insider ldp pndp secldp secure_sum shared_seed "
    "tap",
    "program.calibration": "Calibration calibrate",
    "program.certificate": "Certificate",
    "program.design": "Design",
    "program.prefix": "privacy_after",
    "program.problem": "SpaceProblem SpaceTimeProblem TimeProblem",
    "program.structure": "SpaceStructure TimeStructure",
    "system.graph": "build_graph mixing_matrix sparse_mixing_matrix",
    "system.participation": "BallsInBins BMinSepSampling CyclicPoisson FixedEpoch MinSeparation "
    "Patterns RandomAllocation TruncatedPoisson every_step fixed_epoch single",
    "system.random_mixing": "EdgeDropout NodeDropout RandomMatchings RandomMixing "
    "maximal_matchings pairwise_gossip",
    "system.workloads": "ErrorMeasure",
    "tasks.account.request": "load_account",
    "tasks.baselines": "baseline baseline_names",
    "tasks.compare": "compare",
    "tasks.dropout": "DropOut drop_out every_drop_out mu_to_holders",
    "tasks.export": "export",
    "tasks.page.write": "report",
    "tasks.plot": "plot",
    "tasks.simulate": "Simulation simulate",
    "tasks.solve": "Solution solve",
    "tasks.sweep": "sweep",
    "tasks.train.request": "load_training",
    "tasks.train.table": "TrainingResult train",
    "tasks.train.training_task": "TrainingTask",
    "tasks.verify": "Verification verify",
}
"""Module of this package -> the public names that it has."""

_MODULES = dict(sorted((name, home) for home, names in _NAMES.items() for name in names.split()))

__all__ = list(_MODULES)


def __getattr__(name: str) -> object:
    """A public name, or a module of the package, loaded when it is first asked for."""
    value: object
    if name in _MODULES:
        value = getattr(_home(name), name)
    elif name == "__version__":
        value = import_module(f"{__name__}.base.version").version()
    else:
        value = _module(name)
    globals()[name] = value
    return value


def _home(name: str) -> ModuleType:
    """The module of a public name; ``noisedesign-runtime`` has few of them."""
    path = f"{__name__}.{_MODULES[name]}"
    try:
        return import_module(path)
    except ModuleNotFoundError as error:
        if not f"{path}.".startswith(f"{error.name}."):  # it is there, and what it needs is not
            raise
        told = (
            f"{__name__}.{name} is in the package noisedesign, of which only noisedesign-runtime "
            "is installed here: pip install noisedesign"
        )
        raise ModuleNotFoundError(told, name=error.name) from None


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
