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

A SpaceProblem, TimeProblem or SpaceTimeProblem is solved by ``solve``, checked by ``verify`` and
``simulate``, and written by ``save_design``, ``export`` and ``report``; ``calibrate`` and
``account`` say what a run gives away. ``nd.__all__`` has all names, and docs/reference/python.md
has them by what they are for; ``help(nd.solve)`` and the like have an example each.

:mod:`noisedesign.noise` draws the noise of a design in a training run, and
:mod:`noisedesign.adapters` in trainers; both need numpy and cryptography alone."""

# A public name is loaded with its module when it is first asked for (PEP 562); the import itself
# loads nothing. No module has the name of a function: loading the one would hide the other.

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the table below, in words that type checkers read
    __version__: str
    from noisedesign.base.checks import InputError as InputError
    from noisedesign.certify.certificate import Certificate as Certificate
    from noisedesign.design.design import Design as Design
    from noisedesign.design.prefix import privacy_after as privacy_after
    from noisedesign.design.solve import Solution as Solution, solve as solve
    from noisedesign.files.checkpoint_file import CheckpointFile as CheckpointFile
    from noisedesign.files.design_file import load_design as load_design, save_design as save_design
    from noisedesign.files.problem_file import load_problem as load_problem
    from noisedesign.files.problem_set import shipped_problems as shipped_problems
    from noisedesign.forms.structure import (
        SpaceStructure as SpaceStructure,
        TimeStructure as TimeStructure,
    )
    from noisedesign.mechanisms.baselines import (
        baseline as baseline,
        baseline_names as baseline_names,
    )
    from noisedesign.pages.plot import plot as plot
    from noisedesign.pages.write import report as report
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
    from noisedesign.problem.calibration import Calibration as Calibration, calibrate as calibrate
    from noisedesign.problem.problem import (
        SpaceProblem as SpaceProblem,
        SpaceTimeProblem as SpaceTimeProblem,
        TimeProblem as TimeProblem,
    )
    from noisedesign.surveys.compare import compare as compare
    from noisedesign.surveys.sweep import sweep as sweep
    from noisedesign.surveys.sweep_file import load_sweep as load_sweep
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
    from noisedesign.tasks.dropout import (
        DropOut as DropOut,
        drop_out as drop_out,
        every_drop_out as every_drop_out,
        mu_to_holders as mu_to_holders,
    )
    from noisedesign.tasks.export import export as export
    from noisedesign.tasks.simulate import Simulation as Simulation, simulate as simulate
    from noisedesign.tasks.verify import Verification as Verification, verify as verify

_NAMES = {
    "base.checks": "InputError",
    "files.checkpoint_file": "CheckpointFile",
    "files.design_file": "load_design save_design",
    "files.problem_file": "load_problem",
    "files.problem_set": "shipped_problems",
    "surveys.sweep_file": "load_sweep",
    "privacy.accounting": "delta_of epsilon_of mu_of noise_stddev_for renyi_of",
    "privacy.exposure": "Exposure account",
    "privacy.ledger": "Ledger dp_event neighboring_relation",
    "privacy.target": "PrivacyTarget",
    "privacy.views": "Observer central coalitions insider ldp pndp secldp secure_sum shared_seed "
    "tap",
    "problem.calibration": "Calibration calibrate",
    "certify.certificate": "Certificate",
    "design.design": "Design",
    "design.prefix": "privacy_after",
    "problem.problem": "SpaceProblem SpaceTimeProblem TimeProblem",
    "forms.structure": "SpaceStructure TimeStructure",
    "system.graph": "build_graph mixing_matrix sparse_mixing_matrix",
    "system.participation": "BallsInBins BMinSepSampling CyclicPoisson FixedEpoch MinSeparation "
    "Patterns RandomAllocation TruncatedPoisson every_step fixed_epoch single",
    "system.random_mixing": "EdgeDropout NodeDropout RandomMatchings RandomMixing "
    "maximal_matchings pairwise_gossip",
    "system.workloads": "ErrorMeasure",
    "tasks.account.request": "load_account",
    "mechanisms.baselines": "baseline baseline_names",
    "surveys.compare": "compare",
    "tasks.dropout": "DropOut drop_out every_drop_out mu_to_holders",
    "tasks.export": "export",
    "pages.write": "report",
    "pages.plot": "plot",
    "tasks.simulate": "Simulation simulate",
    "design.solve": "Solution solve",
    "surveys.sweep": "sweep",
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
