"""The second wheel: noise of a node, with numpy and cryptography and nothing else."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
import venv
import zipfile
from hashlib import sha256
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import noisedesign as nd
from noisedesign.design.design import Design
from noisedesign.noise import Identity, Plan, Secret, noise
from noisedesign.noise.node.links import certificate
from noisedesign.tasks import deploy
from tests.support import ROOT

pytestmark = pytest.mark.slow  # as other wheels: it is built, and installed where nothing else is

FOLDER = ROOT / "tools" / "runtime"
THIRD_PARTIES = ("numpy", "cryptography", "cffi")
"""What may be there: cryptography takes cffi."""
MODULES = 30
"""Of this package, most that a node loads."""
OTHERS = 60
"""Most besides, of Python, beyond those of numpy and cryptography."""
STEPS, SIZE = 4, 1000

DRAW = f"""
import json, sys
import cryptography, numpy
from hashlib import sha256
from pathlib import Path
before = set(sys.modules)
from noisedesign_runtime.noise import Plan, Secret, noise
found = {{}}
for file in sorted(Path(sys.argv[1]).glob("*.plan")):
    plan = Plan.load(file)
    seeds = {{s.name: Secret(sha256(s.name.encode()).digest()) for s in plan.streams}}
    source = noise(
        plan, secret=Secret(bytes(range(32))) if "own" in plan.sources else None,
        seeds=seeds, record=Path(sys.argv[1], f"{{file.stem}}.sqlite3"),
    )
    found[file.stem] = [
        source.step(t, {SIZE}, dtype=kind).tobytes().hex()
        for t in range({STEPS}) for kind in ("float32", "float64")
    ]
"""

REPORT = """
import noisedesign_runtime.noise as module
for name in module.__all__:
    getattr(module, name)
after = {n: getattr(m, "__file__", None) for n, m in sys.modules.items()}
print(json.dumps({"found": found, "before": sorted(before), "after": after}))
"""


def _left_in_tools() -> list[Path]:
    """Files of the tools but bytecode, which tests at the same time may write."""
    return [path for path in sorted((ROOT / "tools").rglob("*")) if "__pycache__" not in path.parts]


def run(python: Path | str, code: str, *arguments: str, cwd: Path) -> Any:
    """What ``code`` prints, in a process that sees its own environment only."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    done = subprocess.run(
        [python, "-c", code, *arguments],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheels")
    before = _left_in_tools()
    command = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "wheel"]
    options = ["--no-deps", "--no-build-isolation", "--no-index", "-w", str(folder)]
    subprocess.run([*command, *options, str(FOLDER)], check=True, cwd=folder)
    assert _left_in_tools() == before  # a build leaves nothing behind
    (found,) = folder.iterdir()
    return found


@pytest.fixture(scope="module")
def node(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment with the wheel and what it depends on, and nothing else."""
    folder = tmp_path_factory.mktemp("node")
    venv.create(folder / "venv", with_pip=False, symlinks=os.name != "nt")
    scripts = folder / "venv" / ("Scripts" if os.name == "nt" else "bin")
    python = scripts / Path(sys.executable).name
    others = folder / "others"
    others.mkdir()
    for name in THIRD_PARTIES:
        files = distribution(name).files or []
        roots = {file.parts[0]: file for file in files if file.parts[0] != ".."}
        for root, file in roots.items():
            place = Path(str(file.locate())).resolve()
            origin = place.parents[len(file.parts) - 2] if len(file.parts) > 1 else place
            assert origin.name == root
            (others / root).symlink_to(origin)
    site = run(
        python,
        "import json, sysconfig; print(json.dumps(sysconfig.get_path('purelib')))",
        cwd=folder,
    )
    install = ["install", "--no-deps", "--no-index", "--target", site, str(wheel)]
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, *install], check=True, cwd=folder)
    Path(site, "others.pth").write_text(f"{others}\n")
    return python


def designs() -> dict[str, Design]:
    target = nd.PrivacyTarget(epsilon=2.0, delta=1e-5, clip=1.0, steps=STEPS)
    mixing = nd.mixing_matrix(nd.build_graph("ring", nodes=5))
    structure = nd.SpaceStructure(kind="edge-local")
    banded = nd.TimeStructure(kind="banded", bands=2)
    use = nd.participation.FixedEpoch(epochs=2, separation=STEPS // 2)
    problems = {
        "seeds": nd.SpaceProblem(mixing=mixing, structure=structure, privacy=target),
        "bands": nd.TimeProblem.prefix(participation=use, structure=banded, privacy=target),
    }
    found = {name: nd.solve(problem).design for name, problem in problems.items()}
    return {name: design for name, design in found.items() if design is not None}


RUNTIME = "noisedesign_runtime"
ROOMS = {"noise", "adapters"}


def test_the_files_are_those_of_the_package_by_another_name(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if name.startswith(f"{RUNTIME}/")]
        texts = {name.partition("/")[2]: archive.read(name).decode() for name in names}
        licences = [name for name in archive.namelist() if name.endswith("/LICENSE")]
        assert [archive.read(name) for name in licences] == [(ROOT / "LICENSE").read_bytes()]
        assert not [name for name in archive.namelist() if name.startswith("noisedesign/")]
    assert RUNTIME in texts.pop("__init__.py")
    for name, text in texts.items():
        whole = (ROOT / "noisedesign" / name).read_text(encoding="utf-8")
        assert text.replace(RUNTIME, "noisedesign") == whole
        assert not re.search(r"^\s*(from|import) noisedesign\b", text, re.MULTILINE)
    own = {p for room in ROOMS for p in (ROOT / "noisedesign" / room).rglob("*.py")}
    assert {p.relative_to(ROOT / "noisedesign").as_posix() for p in own} <= set(texts)
    assert {name.split("/")[0] for name in texts} == {"base", "py.typed"} | ROOMS
    assert not {"base/device.py", "base/tables.py"} & set(texts)


def test_it_depends_on_two_packages_as_the_whole_does(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith("/METADATA"))
        lines = archive.read(name).decode().splitlines()
    said = [line.partition(": ") for line in lines]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    facts = {key: value for key, _, value in said}
    assert (facts["Name"], facts["Version"]) == ("noisedesign-runtime", nd.__version__)
    assert facts["Requires-Python"] == project["requires-python"]
    needed = {value for key, _, value in said if key == "Requires-Dist"}
    assert needed <= set(project["dependencies"])
    assert {re.split(r"[^\w-]", one)[0] for one in needed} == {"numpy", "cryptography"}


def test_a_node_draws_the_bits_of_the_whole_package(node: Path, tmp_path: Path) -> None:
    folder = tmp_path / "plans"
    folder.mkdir()
    for name, design in designs().items():
        design.node_plan(0).save(folder / f"{name}.plan")
    there = run(node, DRAW + REPORT, str(folder), cwd=tmp_path)
    assert set(there["found"]) == {"seeds", "bands"}
    for name, found in there["found"].items():
        plan = Plan.load(folder / f"{name}.plan")
        seeds = {s.name: Secret(sha256(s.name.encode()).digest()) for s in plan.streams}
        here = noise(plan, secret=Secret(bytes(range(32))), seeds=seeds, record=False)
        kinds: tuple[Any, ...] = (np.float32, np.float64)
        drawn = [here.step(t, SIZE, dtype=kind) for t in range(STEPS) for kind in kinds]
        assert [array.tobytes().hex() for array in drawn] == found
    files = [file for file in there["after"].values() if file and str(node.parents[2]) in file]
    assert {Path(file).relative_to(node.parents[2]).parts[0] for file in files} == {
        "others",
        "venv",
    }


def test_a_run_without_an_end_goes_on_at_a_node(node: Path, tmp_path: Path) -> None:
    design = nd.UnboundedDesign(
        problem=nd.UnboundedProblem(privacy=nd.PrivacyTarget(epsilon=1.0)),
        scales=np.array([0.25, 0.125]),
        decays=np.array([0.5, 0.75]),
        squared_sensitivity=2.0,
        ratio=2.0,
        worst=1,
    )
    plan, secret = design.node_plan(0), bytes(range(32))
    plan.save(tmp_path / "run.plan")
    code = f"""
import json, sys, numpy as np
from {RUNTIME}.noise import Secret, noise
how = {{"secret": Secret(bytes(range(32))), "record": "run.sqlite3", "keep_every": 2}}
source = noise("run.plan", resume=sys.argv[1] == "again", **how)
for t in range(source.next_step, source.next_step + 5):
    sums = [np.zeros(4)]
    source.add_(sums, t, records=[str(t)])
print(json.dumps(sums[0].tobytes().hex()))
"""
    run(node, code, "anew", cwd=tmp_path)
    found = run(node, code, "again", cwd=tmp_path)
    assert found == noise(plan, secret=Secret(secret), record=False).step(9, 4).tobytes().hex()
    assert len(list((tmp_path / "run.sqlite3.states").iterdir())) == 2


def test_the_version_is_that_of_the_whole(node: Path, tmp_path: Path) -> None:
    said = f"import json, {RUNTIME}; print(json.dumps({RUNTIME}.__version__))"
    assert run(node, said, cwd=tmp_path) == nd.__version__


@pytest.mark.parametrize("gone", ["noisedesign", "noisedesign-runtime"])
def test_either_wheel_may_go(gone: str, wheel: Path, tmp_path: Path) -> None:
    """Both are installed without what they depend on; all that is imported takes NumPy at most."""
    venv.create(tmp_path / "both", with_pip=True)
    python = tmp_path / "both" / ("Scripts" if os.name == "nt" else "bin") / "python"
    pip = [str(python), "-m", "pip", "--quiet", "--disable-pip-version-check"]
    build = [sys.executable, "-m", "pip", "--quiet", "wheel", "--no-deps", "--no-build-isolation"]
    subprocess.run([*build, "--no-index", "-w", str(tmp_path), str(ROOT)], check=True, cwd=tmp_path)
    (whole,) = tmp_path.glob("noisedesign-*.whl")
    install = ["install", "--no-deps", "--no-index", str(whole), str(wheel)]
    subprocess.run([*pip, *install], check=True, cwd=tmp_path)
    subprocess.run([*pip, "uninstall", "--yes", gone], check=True, cwd=tmp_path)
    left, lost = ("noisedesign_runtime", "noisedesign")
    if gone == "noisedesign-runtime":
        left, lost = lost, left
    code = f"""
import importlib.util, json, {left}.base.version
print(json.dumps([{left}.__version__, importlib.util.find_spec("{lost}") is None]))
"""
    assert run(python, code, cwd=tmp_path) == [nd.__version__, True]


def test_nodes_without_solvers_train_a_model(
    node: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They agree on their seeds, and go through all steps."""
    rng = np.random.default_rng(8)
    features = rng.standard_normal((60, 2))
    data = tmp_path / "data.npz"
    np.savez(data, features=features, labels=(features.sum(axis=1) > 0).astype(float))
    deploy.deploy(designs()["seeds"], tmp_path / "out", batch_size=12)
    monkeypatch.chdir(tmp_path)  # where no checkout is found
    monkeypatch.delenv("PYTHONPATH", raising=False)
    monkeypatch.setattr(deploy, "NODE", [str(node), "-m", f"{RUNTIME}.noise.node"])
    found = deploy.rehearse(tmp_path / "out", data)
    assert found.losses.shape == (STEPS, 5)
    assert np.isfinite(found.losses).all()


@pytest.mark.parametrize("whole", [True, False])
def test_noise_loads_two_packages_and_few_modules(whole: bool, node: Path, tmp_path: Path) -> None:
    """Also where all others are installed."""
    folder = tmp_path / "plans"
    folder.mkdir()
    designs()["seeds"].node_plan(1).save(folder / "some.plan")
    path = f"import sys\nsys.path.insert(0, {str(ROOT)!r})\n" if whole else ""
    python = sys.executable if whole else node
    code = path + DRAW + REPORT
    code = code.replace(RUNTIME, "noisedesign") if whole else code
    loaded = run(python, code, str(folder), cwd=tmp_path)
    modules = set(loaded["after"]) - set(loaded["before"])
    package = "noisedesign" if whole else RUNTIME
    own = {name for name in modules if name.partition(".")[0] == package}
    assert {f"{package}.noise.source", f"{package}.noise.agreement"} <= own
    assert len(own) <= MODULES
    allowed = {"numpy", "cryptography", "_cffi_backend", "_openssl", package}
    standard = {name for name in modules if name.partition(".")[0] not in allowed}
    assert {name.partition(".")[0] for name in standard} <= set(sys.stdlib_module_names)
    assert len(standard) <= OTHERS


def test_a_node_without_a_toolkit_has_an_identity(node: Path, tmp_path: Path) -> None:
    command = [node, "-m", f"{RUNTIME}.noise.node", "identity", tmp_path / "ann"]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    made = subprocess.run(command, env=environment, capture_output=True, check=True)
    identity = Identity.load(tmp_path / "ann/identity")
    assert made.stdout == certificate(identity)
