"""Sweep files: the grid expanded by hand, keys that say what is the same, and errors."""

from __future__ import annotations

import hashlib
import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from noisedesign.base.checks import InputError
from noisedesign.files.toml import dumped
from noisedesign.surveys import sweep_file
from noisedesign.surveys.sweep_file import Sweep, load_sweep, parse_sweep
from tests.support import ROOT
from tests.support.command_line import RING

GRID = """
[grid]
"graph.nodes" = [5, 7]
"budget.tau" = [1.0, 2.0]
"""
BASE = {"name": "ring-5", "design": "space"}


def parse(text: str) -> Sweep:
    return parse_sweep(text, folder=".")


def keys_of(text: str) -> list[str]:
    return [row.key for row in parse(text).rows]


# --- expansion -----------------------------------------------------------------------------------


def test_two_keys_and_two_backends_by_hand() -> None:
    sweep = parse('backends = ["native", "scs"]\ngap = 1e-4\ntime_limit = 9\n' + RING + GRID)
    assert sweep.keys == ("graph.nodes", "budget.tau")
    expected = [
        (
            {"graph.nodes": nodes, "budget.tau": tau},
            backend,
            BASE | {"graph": {"kind": "ring", "nodes": nodes}, "budget": {"tau": tau}},
        )
        for nodes, tau in ((5, 1.0), (5, 2.0), (7, 1.0), (7, 2.0))
        for backend in ("native", "scs")
    ]
    found = [(row.parameters, row.backend, tomllib.loads(row.text)) for row in sweep.rows]
    assert found == expected
    assert {(row.gap, row.time_limit, row.name, row.design) for row in sweep.rows} == {
        (1e-4, 9.0, "ring-5", "space")
    }
    assert len({row.key for row in sweep.rows}) == 8


def test_keys_need_no_quotes() -> None:
    plain = GRID.replace('"', "")
    assert "graph.nodes = [5, 7]" in plain
    assert parse(RING + plain) == parse(RING + GRID)


def test_defaults_are_those_of_compare() -> None:
    (row,) = parse(RING + "[grid]\ngraph.nodes = [5]\n").rows
    assert (row.backend, row.gap, row.time_limit) == ("native", 1e-6, None)


def test_tables_are_values_and_keys_within_them_come_after() -> None:
    """Graphs of different kinds are whole tables; a key may be swept beside the table it is in."""
    grid = """[grid]
"graph.weights" = ["max-degree"]
graph = [{kind = "path", nodes = 3}, {kind = "grid", rows = 2, columns = 3}]
"""
    rows = parse(RING + grid).rows
    assert [tomllib.loads(row.text)["graph"] for row in rows] == [
        {"kind": "path", "nodes": 3, "weights": "max-degree"},
        {"kind": "grid", "rows": 2, "columns": 3, "weights": "max-degree"},
    ]
    assert [row.parameters["graph"]["kind"] for row in rows] == ["path", "grid"]
    assert "weights" not in rows[0].parameters["graph"]


def test_the_grid_may_give_what_the_base_lacks() -> None:
    text = 'name = "p"\ndesign = "time"\nworkload = {kind = "prefix"}\n[grid]\n'
    text += "participation.epochs = [1, 2]\nparticipation.separation = [4]\n"
    assert [tomllib.loads(row.text)["participation"] for row in parse(text).rows] == [
        {"epochs": 1, "separation": 4},
        {"epochs": 2, "separation": 4},
    ]


def test_a_base_of_its_own_file(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "ring.toml").write_text(RING)
    (tmp_path / "sweep.toml").write_text('problem = "inner/ring.toml"\n' + GRID)
    rows = load_sweep(tmp_path / "sweep.toml").rows
    assert {row.folder for row in rows} == {tmp_path / "inner"}
    assert [row.text for row in rows] == [row.text for row in parse(RING + GRID).rows]


def test_shipped_example_has_eight_rows() -> None:
    sweep = load_sweep(ROOT / "problems/sweeps/random-graphs.toml")
    assert len(sweep.rows) == 8
    assert {tuple(row.parameters.values()) for row in sweep.rows} == {
        (10, 0),
        (10, 1),
        (20, 0),
        (20, 1),
    }


# --- keys ----------------------------------------------------------------------------------------


def test_key_by_hand() -> None:
    (row,) = parse(RING + "[grid]\ngraph.nodes = [5]\n").rows
    assert row.text == ('design = "space"\ngraph = {kind = "ring", nodes = 5}\nname = "ring-5"\n')
    said = (
        r'[6, "design = \"space\"\ngraph = {kind = \"ring\", nodes = 5}\nname = \"ring-5\"\n", '
        r'"native", 1e-06]'
    )
    assert row.key == hashlib.sha256(said.encode()).hexdigest()[:16]


@pytest.mark.parametrize(
    "same",
    [
        'description = "words"\nsource = "a book"\ntags = ["small"]\n' + RING + GRID,
        "gap = 1e-6\n" + RING + GRID,
        "time_limit = 3\n" + RING + GRID,
        RING + "[reference]\nlower = 1.0\nupper = 2.0\nmethod = 'guess'\n" + GRID,
        "design = 'space'\nname = 'ring-5'\ngraph = {nodes = 5, kind = 'ring'}\n" + GRID,
    ],
)
def test_what_changes_no_answer_changes_no_key(same: str) -> None:
    assert keys_of(same) == keys_of(RING + GRID)


@pytest.mark.parametrize(
    "other",
    [
        "gap = 1e-5\n" + RING + GRID,
        "backends = ['scs']\n" + RING + GRID,
        RING.replace("ring-5", "ring") + GRID,
        RING + "weights = 'max-degree'\n" + GRID,
    ],
)
def test_what_changes_an_answer_changes_every_key(other: str) -> None:
    assert not set(keys_of(other)) & set(keys_of(RING + GRID))


def test_another_version_has_other_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    before = keys_of(RING + GRID)
    monkeypatch.setitem(sweep_file.RESULTS_FORMAT, "sweep", 7)
    assert not set(keys_of(RING + GRID)) & set(before)


# --- TOML that is written ------------------------------------------------------------------------

SCALARS = (
    st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False)
    | st.text(st.characters(exclude_categories=("Cs",)), max_size=8)
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text("ab .\"'\x7fé", max_size=3), inner)
    ),
    max_leaves=8,
)


@settings(derandomize=True, max_examples=100, deadline=None)
@given(st.dictionaries(st.text("ab-_1. \n", max_size=4), VALUES, max_size=4))
def test_text_says_what_the_tables_say(tables: dict[str, Any]) -> None:
    text = dumped(tables)
    # As JSON, which tells 1, 1.0 and true apart.
    assert json.dumps(tomllib.loads(text), sort_keys=True) == json.dumps(tables, sort_keys=True)
    assert dumped(dict(reversed(tables.items()))) == text


def test_dates_have_no_place() -> None:
    with pytest.raises(TypeError):
        dumped({"day": tomllib.loads("day = 2026-01-01")["day"]})


# --- wrong files ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "field", "said"),
    [
        (RING, "grid", "got nothing"),
        (RING + "[grid]\n", "grid", "got none"),
        ("grid = 3\n" + RING, "grid", "a [grid] table"),
        (RING + "[grid]\ngraph.nodes = []\n", "grid.graph.nodes", "non-empty list"),
        (RING + "[grid]\ngraph.nodes = 5\n", "grid.graph.nodes", "non-empty list"),
        (RING + "[grid]\ngraph.nodes = [5, 6, 5]\n", "grid.graph.nodes", "5 twice"),
        (RING + "[grid]\ngraph.nodez = [5]\n", "grid.graph.nodez", "Did you mean nodes?"),
        (RING + "[grid]\nbudgets.tau = [5]\n", "budgets", "unknown key budgets"),
        (RING + "[grid]\ngraph.nodes = [5, 6.0]\n", "grid.graph.nodes", "an integer"),
        (RING + "[grid]\ngraph = [{kind = 'ring', p = 1}]\n", "grid.graph.p", "unknown key p"),
        (RING + "[grid]\nname.first = ['a']\n", "grid.name.first", "no table"),
        (RING + "[grid]\nworkload.kind = ['prefix']\n", "grid.workload.kind", "unknown key kind"),
        (RING + "[grid]\nparticipation.epochs = [2]\n", "participation.separation", "got nothing"),
        (RING + "[grid]\nbackends = [['scs']]\n", "backends", "unknown key"),
        ("backends = []\n" + RING + GRID, "backends", "non-empty list"),
        ("backends = 'scs'\n" + RING + GRID, "backends", "non-empty list"),
        ("backends = ['gurobi']\n" + RING + GRID, "backends", "one of native"),
        ("backends = ['scs', 'scs']\n" + RING + GRID, "backends", "scs twice"),
        ("backends = [1]\n" + RING + GRID, "backends", "names"),
        ("backend = ['scs']\n" + RING + GRID, "backend", "Did you mean backends?"),
        ("gap = 0\n" + RING + GRID, "gap", "(0, 1)"),
        ("time_limit = 0\n" + RING + GRID, "time_limit", "(0, inf)"),
        ("problem = 'none.toml'\n" + GRID, "problem", "none.toml"),
        ("problem = 3\n" + GRID, "problem", "name of a problem file"),
        ("problem = 'ring.toml'\n" + RING + GRID, "name", "only the keys problem, grid"),
        ("name =", "sweep", "TOML"),
    ],
)
def test_errors_name_the_key(text: str, field: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "sweep.toml"
    path.write_text(text)
    with pytest.raises(InputError) as error:
        load_sweep(path)
    assert error.value.field.endswith(field)
    assert said in str(error.value)
    assert str(path) in str(error.value)


def test_a_grid_without_end_is_refused_before_it_is_expanded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seeds = str(list(range(400)))
    grid = f"[grid]\ngraph.seed = {seeds}\ngraph.nodes = {seeds}\n"
    monkeypatch.setattr(sweep_file, "points", None)
    with pytest.raises(
        InputError, match=f"at most {sweep_file.MOST_PROBLEMS} problems, got 160000"
    ):
        parse(RING + grid)
