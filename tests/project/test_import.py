"""What an import loads, counted in modules: a time would depend on the machine."""

from __future__ import annotations

import ast
import json
import pkgutil
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import noisedesign as nd
from tests.support import ROOT, holds_for

HEAVY = {
    "clarabel",
    "cvxpy",
    "dp_accounting",
    "joblib",
    "matplotlib",
    "networkx",
    "pandas",
    "pydantic",
    "rich",
    "scipy",
    "scs",
}
"""Packages that a command loads when it needs them, never before."""

OWN = 23
"""Modules of this package that the command line may load before a command runs."""

OTHERS = 60
"""Modules beyond those of numpy and of this package: click and what it takes of Python."""

EXTENDED = 40
"""Modules besides where commands of other packages are looked for."""

REPORT = """
import atexit, json, sys
import numpy
before = set(sys.modules)
atexit.register(lambda: print(json.dumps(sorted(set(sys.modules) - before)), file=sys.stderr))
"""


def loaded(code: str, *arguments: str) -> set[str]:
    """What ``code`` loads, beyond numpy, in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", REPORT + code, *arguments],
        capture_output=True,
        text=True,
        check=True,
    )
    return set(json.loads(done.stderr.splitlines()[-1]))


def packages(modules: set[str]) -> set[str]:
    return {name.partition(".")[0] for name in modules}


def test_the_import_loads_nothing() -> None:
    assert loaded("import noisedesign") == {"noisedesign"}


SLOW = [
    pytest.param(command, marks=pytest.mark.slow)
    for command in ("compare", "account", "sweep", "export")
]


@pytest.mark.parametrize("command", ["", "solve", "train", *SLOW])
def test_help_loads_the_command_line_and_nothing_else(command: str) -> None:
    modules = loaded(
        "from noisedesign.cli import main\nmain()", *([command] if command else []), "--help"
    )
    own = {name for name in modules if name.startswith("noisedesign")}
    assert "noisedesign.cli" in own
    assert not packages(modules) & HEAVY
    assert len(own) <= OWN + 2 * (command in ("", "train"))
    assert len(modules - own) <= OTHERS + EXTENDED * (command in ("", "train"))


def test_no_solve_in_space_or_time_loads_conic_solvers_or_statistics() -> None:
    """``scipy.stats`` came with one filter, and took longer to load than anything else."""
    modules = loaded(
        "import noisedesign as nd\n"
        "W = nd.mixing_matrix(nd.build_graph('ring', nodes=5))\n"
        "assert nd.solve(nd.SpaceProblem(mixing=W)).design is not None\n"
        "time = nd.TimeProblem.decentralized(mixing=W, participation=nd.participation.single(4))\n"
        "assert nd.solve(time).design is not None"
    )
    assert not {"scipy.signal", "scipy.stats"} & modules
    assert not packages(modules) & {"cvxpy", "matplotlib", "dp_accounting", "pydantic", "rich"}


def test_a_solve_without_privacy_loads_no_account_of_random_participation() -> None:
    modules = loaded(
        "import sys\nfrom noisedesign.__main__ import main\n"
        "sys.argv = ['noisedesign', 'solve', 'whisper/florentine']\nmain()"
    )
    assert "noisedesign.design.solve" in modules
    assert not {name for name in modules if name.startswith("noisedesign.privacy.amplification")}


MODULES = ("graphs", "noise", "observers", "participation", "privacy", "results")
"""Named modules: words of problems and accounts, types of answers, and what draws noise."""

FACES = [nd, *(getattr(nd, name) for name in MODULES if name != "noise")]


def test_there_are_forty_names_at_most() -> None:
    assert len(nd.__all__) <= 40
    assert set(MODULES) < set(nd.__all__)
    named = [name for face in FACES for name in face.__all__]
    assert len(named) == len(set(named))  # no name is in two places


@pytest.mark.parametrize("face", FACES, ids=lambda face: face.__name__)
def test_public_names_are_sorted_and_read_off_what_type_checkers_read(face: ModuleType) -> None:
    """One file names them all; there a name stands beside itself, or it would not be public."""
    stub = Path(str(face.__file__)).with_suffix(".pyi").read_text(encoding="utf-8")
    stated = [node for node in ast.parse(stub).body if isinstance(node, ast.ImportFrom)]
    names = {alias.name for node in stated for alias in node.names if alias.name == alias.asname}
    modules = MODULES if face is nd else ()
    assert face.__all__ == sorted({*names, *modules})


@pytest.mark.parametrize("face", FACES, ids=lambda face: face.__name__)
def test_a_public_name_is_there_and_no_module_hides_it(face: ModuleType) -> None:
    hiding = {module.name for module in pkgutil.iter_modules(getattr(face, "__path__", []))}

    def is_there(name: str) -> None:
        value = getattr(face, name)
        assert name in dir(face)
        if face is nd and name in MODULES:
            assert value.__name__ == f"noisedesign.{name}"
            return
        assert value.__module__.startswith("noisedesign")
        assert name not in hiding

    holds_for(face.__all__, is_there)


def test_the_package_that_draws_noise_is_called() -> None:
    target = nd.PrivacyTarget(epsilon=1.0, delta=1e-6)
    once = nd.participation.single(2)
    design = nd.solve(nd.TimeProblem.prefix(participation=once, privacy=target)).design
    source = nd.noise(design, secret=nd.noise.Secret.new(), clip=1.0)
    assert isinstance(source, nd.noise.NodeNoise)
    total = np.zeros(3)
    source.add_([total], 0, records=[0])
    assert (total != 0).all()


@pytest.mark.slow
def test_type_checkers_know_the_call_and_the_modules(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import noisedesign as nd\n"
        "reveal_type(nd.noise('node-0.plan', clip=1.0))\n"
        "reveal_type(nd.solve(nd.UnboundedProblem()))\n"
        "reveal_type(nd.participation.single(3))\n"
        "nd.observers.ldp(nodes='x')\n"
        "nd.graphs.no_such_name\n"
    )
    mypy = pytest.importorskip("mypy.api")
    told, said, _ = mypy.run([str(script), "--config-file", str(ROOT / "pyproject.toml")])
    of_lines = dict(re.findall(r"script.py:(\d+): (.*)", told))
    assert len(of_lines) == 5, told + said
    assert '"noisedesign.noise.source.NodeNoise"' in of_lines["2"]
    assert '"noisedesign.design.unbounded.UnboundedDesign"' in of_lines["3"]
    assert ".scheme.FixedEpoch" in of_lines["4"]
    assert 'Unexpected keyword argument "nodes" for "ldp"' in told
    assert "no_such_name" in of_lines["6"]


@pytest.mark.slow
def test_public_names_whatever_was_loaded_before() -> None:
    """Loading a module sets an attribute of the package: it may not be one that users call.
    Adapters are left out: they need their trainers."""
    loaded(
        "import importlib, pkgutil, noisedesign as nd\n"
        "for found in pkgutil.walk_packages(nd.__path__, 'noisedesign.'):\n"
        "    if not found.name.endswith('__main__') and '.adapters.' not in found.name:\n"
        "        importlib.import_module(found.name)\n"
        f"MODULES = {MODULES}\n"
        "for name in nd.__all__:\n"
        "    assert isinstance(getattr(nd, name), type(nd)) == (name in MODULES), name"
    )


def test_a_module_is_an_attribute_without_an_import_of_its_own() -> None:
    loaded(
        "import noisedesign as nd\n"
        "assert nd.privacy.__name__ == 'noisedesign.privacy'\n"
        "from noisedesign.forms import structure\n"
        "assert structure.SpaceStructure is nd.SpaceStructure"
    )


def test_a_name_that_is_not_there() -> None:
    with pytest.raises(AttributeError, match=r"module 'noisedesign' has no attribute 'slove'"):
        nd.slove  # noqa: B018
    with pytest.raises(ImportError, match="slove"):
        from noisedesign import slove  # noqa: F401
    assert not hasattr(nd, "_slove")


def test_a_module_that_lacks_what_it_needs_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not reported as a name that the package has not."""
    (tmp_path / "lacking.py").write_text("import no_such_package", encoding="utf-8")
    monkeypatch.setattr(nd, "__path__", [*nd.__path__, str(tmp_path)])
    with pytest.raises(ModuleNotFoundError, match="no_such_package"):
        nd.lacking  # noqa: B018
