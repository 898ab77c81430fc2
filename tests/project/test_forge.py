"""Files for a public forge: what they run is what the Makefile and people run."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support import ROOT, kernels

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
TARGETS = {name for line in re.findall(r"^\.PHONY: (.+)$", MAKEFILE, re.M) for name in line.split()}
OTHERS = {"pipx run twine check --strict dist/*"}
"""The one command that is no target of make: what it needs is in no lock."""


def read(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def jobs() -> dict[str, Any]:
    return {name: job for path in WORKFLOWS for name, job in read(path)["jobs"].items()}


def commands(job: Any) -> list[str]:
    """What the steps of a job run, once for every value of its matrix."""
    ((key, values),) = job.get("strategy", {}).get("matrix", {"": [""]}).items()
    lines = [line for step in job["steps"] for line in step.get("run", "").splitlines()]
    filled = [line.replace(f"${{{{ matrix.{key} }}}}", v) for line in lines for v in values]
    return list(dict.fromkeys(filled))


def recipe(target: str) -> list[str]:
    """The lines of a target of the Makefile."""
    found = re.search(rf"^{target}: .*\n((?:\t.+\n)+)", MAKEFILE, re.M)
    assert found is not None, target
    return [line.strip().replace("$(BIN)", ".venv/bin") for line in found[1].splitlines()]


def test_what_is_run_is_what_the_makefile_has() -> None:
    ran = {line for job in jobs().values() for line in commands(job)}
    for line in ran - OTHERS:
        tool, target, *settings = line.split()
        assert tool == "make", line
        assert target in TARGETS, line
        names = [setting.partition("=")[0] for setting in settings]
        assert all(re.search(rf"\$\({name}\)|^{name} \?= ", MAKEFILE, re.M) for name in names), line
    tested = {line.split()[1] for line in ran - OTHERS}
    wanted = {"lint", "tests", "test-kernels", "test-pythons", "docs", "dist", "test-slow"}
    assert tested >= wanted | {"test-trainers", "test-extras", "mutants"}
    assert ran >= OTHERS


def test_pythons_and_kernels_are_those_that_are_supported() -> None:
    found = jobs()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    named = [
        re.fullmatch(r"Programming Language :: Python :: (3\.\d+)", c)
        for c in project["classifiers"]
    ]
    pythons = [match[1] for match in named if match]
    assert found["tests"]["strategy"]["matrix"]["python"] == pythons
    assert found["kernels"]["strategy"]["matrix"]["kernel"] == list(kernels.KERNELS)
    for job in found.values():
        (set_up,) = (
            s for s in job["steps"] if s.get("uses", "").startswith("actions/setup-python@")
        )
        versions = str(set_up["with"]["python-version"]).split()
        assert set(versions) <= {*pythons, "${{", "matrix.python", "}}"}, versions


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_may_read_and_no_more(path: Path) -> None:
    """A change from a stranger runs with no right to write, and nothing runs for ever."""
    workflow = read(path)
    assert workflow["permissions"] == {"contents": "read"}
    assert "pull_request_target" not in workflow[True]  # YAML 1.1 reads the key "on" as true
    for job in workflow["jobs"].values():
        assert job["timeout-minutes"] <= 360
        for step in job["steps"]:
            assert re.fullmatch(r"actions/[\w-]+@v\d+", step.get("uses", "actions/none@v1"))


def test_hooks_are_the_linters_of_make() -> None:
    hooks = [h for repo in read(ROOT / ".pre-commit-config.yaml")["repos"] for h in repo["hooks"]]
    assert [hook["entry"] for hook in hooks] == recipe("lint")
    assert all(hook["language"] == "system" and not hook["pass_filenames"] for hook in hooks)
    assert "test: lint tests\n" in MAKEFILE


def test_forms_ask_what_is_needed_and_send_privacy_bugs_elsewhere() -> None:
    forms = {path.stem: read(path) for path in (ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml")}
    assert set(forms) == {"bug", "question", "config"}
    bug = forms["bug"]["body"]
    assert "privately, as SECURITY.md says" in bug[0]["attributes"]["value"]
    needed = {one["id"] for one in bug if one.get("validations", {}).get("required")}
    assert needed == {"shown", "expected", "version"}
    page = (ROOT / ".github" / "PULL_REQUEST_TEMPLATE.md").read_text(encoding="utf-8")
    links = re.findall(r"\]\(([^)]+)\)", page)
    assert links
    assert all((ROOT / ".github" / link).exists() for link in links)
