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

# A public name is loaded with its module when it is first asked for (PEP 562), which __init__.pyi
# names; the import itself loads nothing. No module has the name of a function: it would hide it.

import ast
from importlib import import_module
from pathlib import Path

_TREE = ast.parse(Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
_FROM = [node for node in _TREE.body if isinstance(node, ast.ImportFrom)]
_MODULES = dict(sorted((alias.name, str(node.module)) for node in _FROM for alias in node.names))

__all__ = list(_MODULES)


def __getattr__(name: str) -> object:
    """A public name, or a module of the package, loaded when it is first asked for."""
    value: object
    if name in _MODULES:
        value = getattr(import_module(_MODULES[name]), name)
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
    return sorted({*globals(), *_MODULES})
