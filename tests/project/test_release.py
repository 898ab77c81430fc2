"""What is left before a release is told, each thing by itself; and metadata with an address."""

from __future__ import annotations

import ast
import importlib.util
import json
import re
import runpy
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.support import ROOT

ADDRESS = "https://forge.example/group/noisedesign"
METADATA = runpy.run_path(str(ROOT / "tools" / "metadata.py"))
STATED = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
FILES = ("CHANGELOG.md", "CITATION.cff", "pyproject.toml", "lab/pyproject.toml")
NUMBER, DATE = "7.1.2", "2031-05-06"

needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="needs git")


def tool(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    spec = importlib.util.spec_from_file_location(f"tool_{name}", ROOT / "tools" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def release(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return tool("release", monkeypatch)


@pytest.fixture
def copy(tmp_path: Path, release: ModuleType) -> Path:
    """The files that say what is released, with nothing left to do in them."""
    for name in (*FILES, release.VERSION):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    change(
        tmp_path / "CHANGELOG.md", r"\A(?s:.*?)(?=^## \[0\.2\.0\])", "## [Unreleased]\n\n- x\n\n"
    )
    change(tmp_path / "pyproject.toml", r'^repository = ""$', f'repository = "{ADDRESS}"')
    release.set_number(tmp_path, NUMBER, date=DATE)
    return tmp_path


def change(file: Path, pattern: str, text: str) -> None:
    before = file.read_text(encoding="utf-8")
    after, count = re.subn(pattern, text, before, count=1, flags=re.MULTILINE)
    assert count == 1
    assert after != before
    file.write_text(after, encoding="utf-8")


def left(rows: Any) -> set[str]:
    return {name for name, done, _ in rows if not done}


def test_a_number_is_written_where_it_stands(copy: Path, release: ModuleType) -> None:
    assert left(release.in_files(copy)) == set()
    assert f'RELEASE = "{NUMBER}"\n' in (copy / release.VERSION).read_text()
    assert (copy / "CHANGELOG.md").read_text().startswith(f"## [{NUMBER}] - {DATE}\n\n- x\n")
    assert '"noisedesign==7.1.*"' in (copy / "lab" / "pyproject.toml").read_text()
    cited = (copy / "CITATION.cff").read_text()
    assert f'\nversion: {NUMBER}\ndate-released: "{DATE}"\nrepository-code: "{ADDRESS}"\n' in cited
    release.set_number(copy, NUMBER, date=DATE)
    assert (copy / "CITATION.cff").read_text() == cited  # and it stands there once
    assert cited.count("version") == (ROOT / "CITATION.cff").read_text().count("version")


def test_work_goes_on_under_the_next_number(copy: Path, release: ModuleType) -> None:
    cited = (copy / "CITATION.cff").read_text()
    release.set_number(copy, "7.2.0.dev0", date="2032-01-01")
    assert 'RELEASE = "7.2.0.dev0"\n' in (copy / release.VERSION).read_text()
    changes = (copy / "CHANGELOG.md").read_text()
    assert changes.startswith(f"## [Unreleased]\n\n## [{NUMBER}] - {DATE}\n")
    assert (copy / "CITATION.cff").read_text() == cited
    assert left(release.in_files(copy)) == {"number", "changelog", "citation"}


@pytest.mark.parametrize(
    ("row", "file", "pattern", "text"),
    [
        (
            "number",
            "noisedesign/base/version.py",
            r'^RELEASE = ".+"$',
            f'RELEASE = "{NUMBER}.dev0"',
        ),
        ("changelog", "CHANGELOG.md", r"\A", "\n## [Unreleased]\n\n- y\n"),
        ("citation", "CITATION.cff", r"^version: .+$", "version: 7.1.1"),
        ("citation", "CITATION.cff", DATE, "2031-05-07"),
        ("laboratory", "lab/pyproject.toml", r"==7\.1\.\*", "==7.0.*"),
        ("address", "pyproject.toml", r'^repository = ".+"$', 'repository = ""'),
        ("address", "pyproject.toml", r'^repository = ".+"$', 'repository = "https://HOST"'),
    ],
)
def test_what_is_missing_is_told(
    row: str, file: str, pattern: str, text: str, copy: Path, release: ModuleType
) -> None:
    change(copy / file, pattern, text)
    assert left(release.in_files(copy)) == {row}


def test_a_release_without_its_date_is_none(copy: Path, release: ModuleType) -> None:
    change(copy / "CHANGELOG.md", rf" - {DATE}", "")
    assert left(release.in_files(copy)) == {"changelog", "citation"}


@needs_git
def test_tests_count_at_the_commit_where_they_passed(
    copy: Path, release: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    def git(*words: str) -> str:
        people = ("-c", "user.name=a", "-c", "user.email=a@localhost", "-c", "commit.gpgsign=false")
        command = ["git", *people, *words]
        return subprocess.run(command, cwd=copy, capture_output=True, text=True, check=True).stdout

    git("init", "--quiet")
    (copy / ".gitignore").write_text("build/\n")
    (copy / "page.md").write_text("To do: nothing.\n")
    git("add", ".")
    git("commit", "--quiet", "--message", "one")
    targets = {f"make {target}" for target in release.TESTS}
    assert left(release.in_repository(copy)) == targets | {"tag"}
    done, run = subprocess.run, []

    def make(command: list[str], **how: Any) -> Any:
        if command[0] != "make":
            return done(command, **how)
        run.append(" ".join(command))
        return subprocess.CompletedProcess(command, failing in run[-1:])

    monkeypatch.setattr(release.subprocess, "run", make)
    failing = "make test-slow"
    assert not release.run_tests(copy)
    assert set(run) == targets
    assert left(release.in_repository(copy)) == {failing, "tag"}
    failing, run[:] = "", []
    assert release.run_tests(copy)
    assert run == ["make test-slow"]  # what passed is not run again
    git("tag", f"v{NUMBER}")
    assert left(release.in_repository(copy)) == set()
    (copy / "page.md").write_text("FIX" + "ME: something.\n")
    assert left(release.in_repository(copy)) == {"tree", "placeholders"}
    assert not release.run_tests(copy)
    git("commit", "--quiet", "--all", "--message", "two")
    assert left(release.in_repository(copy)) == targets | {"placeholders", "tag"}
    kept = json.loads((copy / release.KEPT).read_text())
    assert set(kept) == set(release.TESTS)


def test_the_command_fails_while_something_is_left(
    release: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [("number", True, "1.0.0"), ("tag", False, "git tag")]
    monkeypatch.setattr(release, "in_files", lambda _: iter(rows))
    monkeypatch.setattr(release, "in_repository", lambda _: iter(()))
    monkeypatch.setattr(release, "of_distributions", lambda _: iter([("built", False, "")]))
    assert release.main(["--quick"]) == 1
    told = capsys.readouterr().out
    assert [line.split()[:3] for line in told.splitlines()[:2]] == [
        ["done", "number", "1.0.0"],
        ["NOT", "DONE", "tag"],
    ]
    assert "1 of 2 done." in told
    rows[1] = ("tag", True, "")
    assert release.main(["--quick"]) == 0
    assert release.main([]) == 1  # what is built counts too
    with pytest.raises(SystemExit):
        release.main(["--set", "next"])


# --- metadata -------------------------------------------------------------------------------------


def test_the_address_is_one_setting() -> None:
    links = STATED["tool"]["noisedesign"]["links"]
    without = METADATA["urls"]("", links=links)
    assert {*without} == {name for name in links if name.startswith("Paper")}
    told = METADATA["urls"](ADDRESS, links=links)
    assert told["Source"] == ADDRESS
    assert told["Issues"] == f"{ADDRESS}/issues"
    assert {*told} == {*links}
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert len(re.findall(r"^repository = ", text, re.MULTILINE)) == 1


def test_links_of_a_page_that_stands_alone_are_whole() -> None:
    page = "[a](docs/a.md#b) ![p](docs/p.svg) [w](https://w.example) [t](#top) `x](y)`"
    told = METADATA["described"](page, repository=ADDRESS, tag="v1.0.0")
    assert told.startswith(
        f"[a]({ADDRESS}/blob/v1.0.0/docs/a.md#b) ![p]({ADDRESS}/raw/v1.0.0/docs/p.svg) "
    )
    assert "[w](https://w.example) [t](#top)" in told
    assert METADATA["described"](page, repository="", tag="v1.0.0") == page
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    whole = METADATA["described"](readme, repository=ADDRESS, tag="v1.0.0")
    links = re.findall(r"\]\(([^)\s]+)", whole)
    assert len(links) > 20
    assert all(link.startswith(("https://", "#")) for link in links)
    for name in (link.partition("/v1.0.0/")[2].partition("#")[0] for link in links):
        assert (ROOT / name).exists(), name


def test_every_distribution_says_who_made_it_and_what_it_runs_on() -> None:
    for name in ("pyproject.toml", "lab/pyproject.toml", "tools/runtime/pyproject.toml"):
        project = tomllib.loads((ROOT / name).read_text(encoding="utf-8"))["project"]
        assert project["authors"] == STATED["project"]["authors"], name
        assert {"readme", "urls", "version"} <= set(project["dynamic"]), name
        assert project["requires-python"] == STATED["project"]["requires-python"], name
    kinds = {one.partition(" :: ")[0] for one in STATED["project"]["classifiers"]}
    assert kinds >= {"Development Status", "Intended Audience", "Operating System"}
    assert kinds >= {"Programming Language", "Topic", "Typing"}


def test_inner_names_of_others_have_an_upper_bound() -> None:
    """Modules that begin with "_", or are called internal, may go with any release."""
    used = set()
    for path in (ROOT / "noisedesign").rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        theirs = r"^ *(?:import|from) (?!noisedesign|__).*(?:\b_[a-z]|ternal)"
        inside = re.search(theirs, text, re.MULTILINE)
        for node in ast.walk(ast.parse(text)) if inside else ():
            names = [alias.name for alias in getattr(node, "names", ()) if hasattr(alias, "name")]
            if isinstance(node, ast.ImportFrom):
                names = [f"{node.module}.{name}" for name in names]
            elif not isinstance(node, ast.Import):
                continue
            parts = [name.split(".") for name in names]
            used |= {p[0] for p in parts if any(re.match(r"_[a-z]|(in|ex)ternals?$", x) for x in p)}
    used.discard("noisedesign")
    assert used == {"joblib", "opacus", "pfl", "torch"}
    extras = STATED["project"]["optional-dependencies"]
    bounded = {
        re.split(r"[<>=\[]", one)[0] for extra in extras.values() for one in extra if ",<" in one
    }
    assert used <= bounded


def test_every_extra_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    extras = tool("extras", monkeypatch)
    named = {*STATED["project"]["optional-dependencies"]}
    assert {*extras.IMPORTS} == named | {""}
    assert {*extras.LARGE} <= named
    begun: list[list[str]] = []
    code = 0

    def run(command: tuple[str, ...], **_: Any) -> Any:
        begun.append(list(command))
        if "wheel" in command:
            Path(command[command.index("-w") + 1], "noisedesign-1.whl").touch()
            return subprocess.CompletedProcess(command, 0, "", "")
        return subprocess.CompletedProcess(command, code, "", "a line\nthe reason\n")

    monkeypatch.setattr(extras.subprocess, "run", run)
    monkeypatch.setattr(extras, "interpreter", lambda version: sys.executable)
    monkeypatch.setattr(extras, "supported", lambda: ["3.11"])
    monkeypatch.setattr(extras.shutil, "which", lambda _: None)
    assert extras.main(["pages", "torch"]) == 0
    installs = [command for command in begun if "install" in command]
    assert [command[-1].partition("noisedesign[")[2][:6] for command in installs] == [
        "pages]",
        "torch]",
    ]
    assert ["--dry-run" in command for command in installs] == [False, True]
    assert any(command[-1] == f"import {extras.IMPORTS['pages']}" for command in begun)
    code = 1
    assert extras.main(["pages"]) == 1
    assert extras.main(["pfl"]) == 1
    monkeypatch.setattr(extras, "supported", lambda: ["3.13"])  # which pfl has no release for
    assert extras.main(["pfl"]) == 0
    assert extras.main(["nothing"]) == 2


def test_why_an_extra_failed_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    extras = tool("extras", monkeypatch)
    failed = subprocess.CompletedProcess([], 1, "", "a line\nthe reason\n")
    assert extras._last(failed) == "failed: the reason"
    assert extras._last(subprocess.CompletedProcess([], 0, "out", "")) == ""
