"""Wheel and source distribution: they build, carry what they should, and run where no checkout is.

Both are built of a copy of the files that git has or would take, so that what an earlier build or a
run has left in the checkout is in none of them.
"""

from __future__ import annotations

import os
import re
import runpy
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import venv
import zipfile
from email import message_from_string
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

from noisedesign.base.version import RELEASE
from tests.support import ROOT

STATED = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT, LINKS = STATED["project"], STATED["tool"]["noisedesign"]["links"]
METADATA = runpy.run_path(str(ROOT / "tools" / "metadata.py"))

NOT_DISTRIBUTED = {".ci", ".gitattributes", ".github", ".gitignore", ".pre-commit-config.yaml"}
"""What is about the repository itself."""


def done(*command: str | Path, cwd: Path, path: str = "") -> str:
    """What a command prints; nothing of this process reaches it by the environment."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "GIT_"))}
    environment |= {"PATH": path or os.environ["PATH"], "OPENBLAS_NUM_THREADS": "1"}
    ran = subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, f"{command}: {ran.stdout}{ran.stderr}"
    return ran.stdout


class Built(NamedTuple):
    sources: Path
    files: set[str]
    version: str
    wheel: Path
    sdist: Path


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """The source distribution, and the wheel that is built from it."""
    if shutil.which("git") is None:
        pytest.skip("needs git, which tells the files of the project from others")
    sources = tmp_path_factory.mktemp("sources")
    listed = done("git", "ls-files", "-z", "-co", "--exclude-standard", cwd=ROOT)
    files = {name for name in listed.split("\0") if name and (ROOT / name).is_file()}
    for name in files:
        (sources / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, sources / name)
    done("git", "init", "--quiet", cwd=sources)
    done("git", "add", "--all", cwd=sources)
    people = ("-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false")
    done("git", *people, "commit", "--quiet", "--message", "all", cwd=sources)
    commit = done("git", "rev-parse", "HEAD", cwd=sources)[:12]
    out = tmp_path_factory.mktemp("dist")
    done(sys.executable, "-m", "build", "--no-isolation", "--outdir", out, sources, cwd=out)
    (wheel,), (sdist,) = out.glob("*.whl"), out.glob("*.tar.gz")
    return Built(sources, files, f"{RELEASE}+g{commit}", wheel, sdist)


@pytest.fixture(scope="module")
def scripts(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The commands of a fresh environment that has the wheel, offline. The packages it needs are
    those here, by a path in which the project itself is not."""
    folder = tmp_path_factory.mktemp("installed") / "venv"
    venv.create(folder, with_pip=False, symlinks=os.name != "nt")
    found = folder / ("Scripts" if os.name == "nt" else "bin")
    python = found / Path(sys.executable).name
    code = "import sysconfig; print(sysconfig.get_path('purelib'))"
    site = Path(done(python, "-c", code, cwd=folder).strip())
    pip = (sys.executable, "-m", "pip", "--quiet", "--python", python)
    done(*pip, "install", "--no-deps", "--no-index", built.wheel, cwd=site)
    (site / "needed.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    return found


def in_wheel(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


@pytest.mark.slow
def test_the_source_distribution_has_all_files(built: Built) -> None:
    with tarfile.open(built.sdist) as archive:
        names = [member.name.partition("/")[2] for member in archive if member.isfile()]
    carried = {
        name for name in names if not re.match(r"PKG-INFO|setup\.cfg|[^/]+\.egg-info/", name)
    }
    meant = {name for name in built.files if name.partition("/")[0] not in NOT_DISTRIBUTED}
    assert carried == meant
    assert built.sdist.name == f"noisedesign-{built.version}.tar.gz"


@pytest.mark.slow
def test_the_wheel_has_the_package_its_problems_and_its_licence(built: Built) -> None:
    content = in_wheel(built.wheel)
    (info,) = {name.partition("/")[0] for name in content if ".dist-info/" in name}
    package = {n for n in built.files if n.startswith("noisedesign/")}
    problems = {n for n in built.files if n.startswith("problems/")}
    carried = {name for name in content if not name.startswith(f"{info}/")}
    assert carried == package | {f"noisedesign/{name}" for name in problems}
    for name in package:
        assert content[name] == (ROOT / name).read_bytes()
    for name in problems:
        assert content[f"noisedesign/{name}"] == (ROOT / name).read_bytes()
    assert content[f"{info}/licenses/LICENSE"] == (ROOT / "LICENSE").read_bytes()
    told = message_from_string(content[f"{info}/METADATA"].decode())
    assert (told["Name"], told["Version"]) == ("noisedesign", built.version)
    assert told["License-Expression"] == "Apache-2.0"
    said = METADATA["arguments"](ROOT / "README.md")
    assert told.get_all("Project-URL") == [", ".join(one) for one in said["project_urls"].items()]
    assert told["Author"] == "The noisedesign authors"
    assert set(told.get_all("Classifier", [])) == set(PROJECT["classifiers"])
    assert told.get_payload().splitlines()[0] == "# noisedesign"


@pytest.mark.slow
def test_the_wheel_runs_where_no_checkout_is(built: Built, scripts: Path, tmp_path: Path) -> None:
    command = scripts / "noisedesign"
    told = done(command, "--version", cwd=tmp_path)
    assert told.split() == ["noisedesign,", "version", built.version]
    where = "import noisedesign; print(noisedesign.__file__)"
    python = scripts / Path(sys.executable).name
    assert done(python, "-c", where, cwd=tmp_path).startswith(str(scripts.parent))
    done(command, "demo", "-o", "out", cwd=tmp_path)
    designs = sorted((tmp_path / "out").rglob("*.npz"))
    assert len(designs) >= 2
    for design in designs:
        done(command, "verify", design, cwd=tmp_path)
    listed = done(command, "problems", "--json", cwd=tmp_path)
    assert '"whisper/florentine"' in listed or "whisper/florentine.toml" in listed
    done(command, "solve", "whisper/florentine.toml", "-o", "f.npz", cwd=tmp_path)
    told = done(python, "-c", "import numpy as np; print(np.load('f.npz').files)", cwd=tmp_path)
    assert told
    assert built.version.encode() in (tmp_path / "f.npz").read_bytes()


@pytest.mark.slow
def test_what_was_unpacked_builds_the_wheel_of_a_node_too(built: Built, tmp_path: Path) -> None:
    with tarfile.open(built.sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    (unpacked,) = tmp_path.iterdir()
    build = (sys.executable, "-m", "build", "--no-isolation", "--wheel", "--outdir", tmp_path)
    done(*build, unpacked / "tools" / "runtime", cwd=tmp_path)
    (wheel,) = tmp_path.glob("*.whl")
    assert wheel.name == f"noisedesign_runtime-{built.version}-py3-none-any.whl"
    whole = in_wheel(built.wheel)
    node = {n: b for n, b in in_wheel(wheel).items() if n.startswith("noisedesign/")}
    assert node.items() <= whole.items()


def test_it_is_cited_as_it_was_released() -> None:
    """`cffconvert --validate` says whether the rest of the file is what it should be."""
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    released = re.findall(r"^## \[(\S+)\] - (\S+)$", changes, re.MULTILINE)[0]
    assert (cited["version"], cited["date-released"]) == released
    assert cited["license"] == PROJECT["license"]
    papers = {one["url"] for one in cited["references"]}
    assert {link for link in LINKS.values() if "{" not in link} <= papers


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "SECURITY.md"])
def test_pages_for_contributors_name_what_there_is(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    links = re.findall(r"\]\(([^)#]+)", text)
    assert all((ROOT / link).exists() for link in links if "://" not in link)
    told = re.findall(r"^\.PHONY: (.+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    targets = {name for line in told for name in line.split()}
    for line in re.findall(r"\bmake ([\w -]+?)(?=\s{2,}|`|$)", text, re.MULTILINE):
        assert set(line.split()) <= targets, line
