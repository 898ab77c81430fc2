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
``simulate``, and written by ``save``, ``export`` and ``report``; ``load`` reads all files;
``recommend`` finds the noise for a graph, records and an epsilon; ``calibrate`` and ``account`` say
what a run gives away. ``nd.__all__`` has all names, and docs/reference/python.md has them by what
they are for; ``help(nd.solve)`` and the like have an example each.

Four modules have the words of problems and accounts, and one the types of answers: ``nd.graphs``,
``nd.participation``, ``nd.observers``, ``nd.privacy`` and ``nd.results``.

``nd.noise`` draws the noise of a design in a training run, and :mod:`noisedesign.adapters` in
trainers; both need numpy and cryptography alone."""

# A public name is loaded with its module when it is first asked for (PEP 562), which __init__.pyi
# names; the import itself loads nothing. No module has the name of a function: it would hide it.

import ast
import sys
import warnings
from collections.abc import Callable
from importlib import import_module
from operator import attrgetter
from pathlib import Path


def _face(module: str) -> tuple[list[str], Callable[[str], object], Callable[[], list[str]]]:
    """``__all__``, ``__getattr__`` and ``__dir__`` of a module whose .pyi says where names are."""
    here = sys.modules[module]
    stub = ast.parse(Path(str(here.__file__)).with_suffix(".pyi").read_text(encoding="utf-8"))
    of = {
        alias.asname: (str(node.module), alias.name)
        for node in stub.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.asname == alias.name
    }

    def load(name: str) -> object:
        if name not in of:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        home, own = of[name]
        value: object = getattr(import_module(home), own)
        setattr(here, name, value)
        return value

    return sorted(of), load, lambda: sorted({*vars(here), *of})


_MODULES = ("graphs", "noise", "observers", "participation", "privacy", "results")
_NAMES, _load, _ = _face(__name__)
__all__ = sorted({*_NAMES, *_MODULES})

_OLD = {  # names until 0.2, and where they are
    name: f"{module}.{name}"
    for module, names in {
        "graphs": "EdgeDropout LeastNoiseMixing NodeDropout RandomMatchings RandomMixing "
        "least_noise_mixing maximal_matchings pairwise_gossip sparse_mixing_matrix",
        "observers": "Observer central coalitions insider ldp pndp secldp secure_sum shared_seed "
        "tap",
        "participation": "BMinSepSampling BallsInBins CyclicPoisson FixedEpoch MinSeparation "
        "Patterns RandomAllocation TruncatedPoisson every_step single",
        "privacy": "Ledger delta_of dp_event drop_out epsilon_of every_drop_out mu_of "
        "mu_to_holders neighboring_relation noise_stddev_for privacy_after renyi_of",
        "results": "Calibration Certificate CheckpointFile Curvature DropOut Evaluation "
        "Exposure Recommendation Simulation Tuned Verification",
    }.items()
    for name in names.split()
}
_OLD |= dict.fromkeys(("load_account", "load_design", "load_problem", "load_sweep"), "load")
_OLD |= {"fixed_epoch": "participation.FixedEpoch.from_records"}
_OLD |= {"save_design": "save", "solve_unbounded": "solve"}


def __getattr__(name: str) -> object:
    """A public name, or a module of the package, loaded when it is first asked for."""
    value: object
    if name in _OLD:
        told = f"{__name__}.{name} is now {__name__}.{_OLD[name]}; the old name goes in 0.4"
        warnings.warn(told, DeprecationWarning, stacklevel=2)
        value = attrgetter(_OLD[name])(sys.modules[__name__])
    elif name in __all__ and name not in _MODULES:
        return _load(name)
    elif name == "__version__":
        value = import_module(f"{__name__}.base.version").version()
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
    return sorted({*globals(), *__all__})
