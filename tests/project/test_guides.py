"""What the pages of docs/ claim in tables and examples, against the program."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import numpy as np
import pytest

from noisedesign import cli
from noisedesign.files.problem_file import load_problem, parse_problem
from noisedesign.mechanisms import baselines
from noisedesign.system import datasets
from tests.support import ROOT, pages
from tests.support.pages import read, table_with

GAP = 1e-6


def test_every_extra_quoted_exists() -> None:
    project = tomllib.loads(read("pyproject.toml"))["project"]
    extras = set(re.findall(r"\.\[(\w+)\]", read("docs/guides/install.md")))
    assert extras == set(project["optional-dependencies"]) - {"test"}


def test_problem_file_shown_is_one(tmp_path: Path) -> None:
    (block,) = pages.blocks(read("docs/guides/python.md"), "toml")
    problem = parse_problem(block.text, folder=tmp_path).problem
    shipped = load_problem(ROOT / "problems/examples/time-with-privacy.toml").problem
    np.testing.assert_array_equal(problem.gram, shipped.gram)
    assert problem.privacy == shipped.privacy


RESULTS = [
    ("Space", "whisper/florentine.toml", 2),
    ("Space", "whisper/ego-148.toml", 3),
    ("Time", "mafalda/florentine-20x16-mh.toml", 2),
    ("Time", "mafalda/ego-148-20x16-mh.toml", 3),
]


@pytest.mark.parametrize(("section", "file", "column"), RESULTS)
def test_results_are_those_of_baselines(section: str, file: str, column: int) -> None:
    if "ego-148" in file and datasets.local_ego_facebook(414) is None:
        pytest.skip("the Facebook ego network is not on this machine (NOISEDESIGN_DATA)")
    text = pages.section(read("docs/results.md"), section)
    rows = table_with(text, "mechanism", "method")
    designs = baselines.compared(load_problem(ROOT / "problems" / file).problem)
    base = designs[0].ldp_objective
    found = {design.provenance.method: design for design in designs}
    shown = {row[1]: row[column] for row in rows[1:] if row[1]}
    assert set(shown) == set(found)
    for method, value in shown.items():
        assert_digits(value, found[method].objective / base)
    if "ego-148" in file:  # below pictures of it
        left = found["optimal"].objective / base
        captions = f"The optimum leaves {left:.3f}\n", f"\n{left:.2f} of"
        assert any(caption in text for caption in captions)
    words = {row[0]: row[column] for row in rows[1:] if not row[1]}
    best = found["optimal"]
    assert_digits(words["objective of the optimum"], best.objective)
    assert float(words["certified gap of the optimum"].removeprefix("at most ")) == GAP
    assert best.gap <= GAP


def assert_digits(shown: str, value: float) -> None:
    """``shown`` is ``value`` rounded to the digits it is printed with."""
    decimals = len(shown.partition(".")[2])
    assert abs(float(shown) - value) <= 0.5001 * 10.0**-decimals, (shown, value)


def test_backends_table_is_complete() -> None:
    from noisedesign.design.backends import all_backends

    rows = table_with(read("docs/guides/compare-backends.md"), "name", "comes with")
    named = {name for row in rows[1:] for name in re.findall(r"\w+", row[0])}
    assert named == {backend.name for backend in all_backends()}


def test_export_formats_are_complete() -> None:
    from noisedesign.files.exports import exporter_names

    quoted = set(re.findall(r"`([a-z-]+)`|--to ([a-z-]+)", read("docs/guides/export.md")))
    assert {a or b for a, b in quoted} >= set(exporter_names())


def test_exit_codes_are_those_of_the_program() -> None:
    rows = table_with(read("docs/guides/shell.md"), "exit code")
    codes = [cli.EXIT_FAILED, cli.EXIT_INPUT, cli.EXIT_INTERRUPTED]
    assert [row[0] for row in rows[1:]] == ["0", *map(str, codes)]


def test_architecture_names_every_module_in_the_order_of_the_imports() -> None:
    rows = [row[0] for row in table_with(read("docs/architecture.md"), "room", "modules")[1:]]
    package = ROOT / "noisedesign"
    modules = {path.stem for path in package.glob("*.py")} | {
        path.parent.name for path in package.glob("*/__init__.py")
    }
    project = tomllib.loads(read("pyproject.toml"))
    contract = project["tool"]["importlinter"]["contracts"][0]
    (picture,) = pages.blocks(read("docs/architecture.md"), "text")
    drawn = [" | ".join(line.split()) for line in picture.text.splitlines()]
    assert drawn == [layer for layer in contract["layers"] if not layer.startswith("__")]
    floors = [re.findall(r"\w+", layer) for layer in reversed(contract["layers"])]
    order = []
    for floor in floors:
        for name in floor:
            if name.startswith("__"):
                continue
            at = [i for i, row in enumerate(rows) if re.search(rf"`{name}/?`", row)]
            assert len(at) == 1, f"{name} is named in {len(at)} rooms"
            order.append(at[0])
            modules.discard(name)
    assert order == sorted(order)
    assert all(name.startswith("__") for name in modules), modules


def names_of_tests() -> set[str]:
    files = [*(ROOT / "tests").rglob("test_*.py"), *(ROOT / "lab" / "tests").rglob("test_*.py")]
    return {name for file in files for name in re.findall(r"^def (test_\w+)", read(file), re.M)}
