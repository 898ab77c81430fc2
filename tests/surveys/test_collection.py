"""The public collection: what its list says of every problem, and what it does not depend on."""

from __future__ import annotations

import hashlib
import json
import os
import tomllib
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import noisedesign as nd
from noisedesign.base.checks import InputError
from noisedesign.families.family import family_at
from noisedesign.files.problem_set import problem_files
from noisedesign.forms.registry import REGISTRY
from noisedesign.surveys.collection import (
    BEST_FOUND,
    COLUMNS,
    FORMAT,
    OPTIMUM,
    Instance,
    collection,
    data_sha256,
    described,
    write_collection,
)
from tests.support import ROOT

PROBLEMS = ROOT / "problems"
LISTED = collection()
WIDEST = 1e-8
LEFT_OUT = (
    "sparse-graphs/barabasi-albert-100000",
    "mixing-weights/erdos-renyi-20-least-noise",
    "mixing-weights/erdos-renyi-8-one-way-least-noise",
    "mixing-weights/florentine-least-noise",
    "unbounded/unknown-horizon-64",
)
"""Judging takes minutes, or W is chosen with the noise, or weights of steps are found up to 1e-6;
docs/guides/collection.md says so."""

DECADES = (4, 30, 100, 300, 1000, 2001)
"""Rows of covariance."""

QUICK = 200
"""Largest size whose data are hashed by default: all of them take half a minute."""


def files() -> dict[str, Path]:
    found, _ = problem_files([PROBLEMS])
    names = {path.relative_to(PROBLEMS).with_suffix("").as_posix(): path for path in found}
    return {name: path for name, path in names.items() if name not in LEFT_OUT}


def load(name: str) -> nd.LoadedProblem:
    text = (PROBLEMS / f"{name}.toml").read_text()
    if '"ego-facebook"' in text and not os.environ.get("NOISEDESIGN_DATA"):
        pytest.skip("NOISEDESIGN_DATA names no folder with the Facebook graphs")
    return nd.load(PROBLEMS / f"{name}.toml")


def test_every_problem_is_listed_once() -> None:
    assert list(LISTED) == sorted(files())
    assert len(LISTED) == 166
    assert len({line.problem for line in LISTED.values()}) == 166
    for name, path in files().items():
        tables = tomllib.loads(path.read_text())
        line = LISTED[name]
        assert (line.problem, line.design) == (tables["name"], tables["design"])
        searched = {"best-found", "local-optimum", "sparse"} & set(tables.get("tags", ()))
        assert line.holds == (BEST_FOUND if searched else OPTIMUM)
        assert line.method


def test_all_families_and_sizes_are_there() -> None:
    families = {family_at(*kind).name for kind in REGISTRY}
    assert {line.family for line in LISTED.values()} == families
    assert {line.design for line in LISTED.values()} == {"space", "time", "space-time"}
    one_step = [line.size for name, line in LISTED.items() if name.startswith("collection/")]
    assert min(one_step) == 10
    assert max(one_step) == 2000
    for low, high in pairwise(DECADES):
        within = [line for line in LISTED.values() if low <= line.size < high]
        assert len(within) >= 10, (low, high)
        assert len({line.family for line in within}) >= 2, (low, high)
        assert any(line.holds == OPTIMUM for line in within), (low, high)
    assert len(LISTED) >= 150
    # The same data twice would count twice in every comparison.
    assert len({line.sha256 for line in LISTED.values()}) == len(LISTED)


def test_intervals_are_narrow_and_meet_those_of_the_files() -> None:
    """References outside of the folder come from routes that share no code with our solver."""
    for name, path in files().items():
        reference, line = tomllib.loads(path.read_text())["reference"], LISTED[name]
        assert 0 < line.lower <= line.upper
        assert line.lower <= reference["upper"]
        assert reference["lower"] <= line.upper
        if name.startswith("collection/"):
            assert (line.lower, line.upper) == (reference["lower"], reference["upper"])
        if line.holds == OPTIMUM:
            assert line.width <= WIDEST, name


def spectrum(name: str) -> np.ndarray:
    """Eigenvalues of W of graphs whose nodes look alike, by their formulas."""

    def ring(n: int) -> np.ndarray:
        return np.asarray(2 * np.cos(2 * np.pi * np.arange(n) / n))

    kind, _, size = name.partition("-")
    if kind == "ring":
        values = (1 + ring(int(size.removesuffix("-lazy")))) / 3
        return (1 + values) / 2 if size.endswith("lazy") else values
    if kind == "torus":
        rows, columns = (int(length) for length in size.split("x"))
        return np.asarray((1 + np.add.outer(ring(rows), ring(columns)).ravel()) / 5)
    assert kind == "hypercube"
    ones = np.array([number.bit_count() for number in range(2 ** int(size))])
    return np.asarray(1 - 2 * ones / (int(size) + 1))


CLOSED = sorted(
    path.stem
    for path in (PROBLEMS / "collection").glob("*.toml")
    if '"closed-form"' in path.read_text()
)


@pytest.mark.parametrize("name", CLOSED)
def test_intervals_hold_the_closed_form(name: str) -> None:
    """Nodes look alike: equal multipliers are optimal, and the optimum is (tr |W|)^2 / n."""
    values = np.abs(spectrum(name))
    optimum = values.sum() ** 2 / len(values)
    line = LISTED[f"collection/{name}"]
    assert line.size == len(values)
    assert line.lower <= optimum * (1 + 1e-12)
    assert optimum * (1 - 1e-12) <= line.upper


def test_there_are_closed_forms() -> None:
    assert len(CLOSED) == 7


# --- hashes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow) if line.size > QUICK else name
        for name, line in LISTED.items()
    ],
)
def test_the_data_are_those_that_were_hashed(name: str) -> None:
    loaded, line = load(name), LISTED[name]
    kept = {key: getattr(line, key) for key in ("lower", "upper", "holds", "method")}
    assert described(name, loaded, **kept) == line


PATH_OF_THREE = (
    'name = "x"\ndesign = "space"\ndescription = "d"\n'
    '[graph]\nkind = "edges"\nfile = "a.edges"\n[budget]\ntau = 0.5\n'
)


def write(folder: Path, text: str = PATH_OF_THREE, edges: str = "0 1\n1 2\n") -> nd.LoadedProblem:
    (folder / "a.edges").write_text(edges)
    (folder / "p.toml").write_text(text)
    return nd.load(folder / "p.toml")


def test_a_hash_by_hand(tmp_path: Path) -> None:
    digest = hashlib.sha256(b"0 1\n1 2\n").hexdigest()
    said = (
        f'{{"files":{{"a.edges":"{digest}"}},"links":[["3","0-1","1-2"]],"tables":'
        '{"budget":{"tau":0.5},"design":"space","graph":{"file":"a.edges","kind":"edges"}}}'
    )
    assert json.loads(said)["files"]
    assert data_sha256(write(tmp_path)) == hashlib.sha256(said.encode()).hexdigest()


def test_hashes_are_of_the_data_and_not_of_words(tmp_path: Path) -> None:
    first = data_sha256(write(tmp_path))
    reworded = PATH_OF_THREE.replace('"d"', '"e"').replace('"x"', '"y"') + (
        '[reference]\nlower = 1.0\nupper = 2.0\nmethod = "m"\n'
    )
    assert data_sha256(write(tmp_path, reworded)) == first
    assert data_sha256(write(tmp_path, PATH_OF_THREE.replace("0.5", "0.25"))) != first
    assert data_sha256(write(tmp_path, edges="0 1\n0 2\n")) != first


def test_links_of_one_way_and_of_every_step_are_hashed(tmp_path: Path) -> None:
    names = ("directed/ring-8-one-way", "objectives/florentine-consensus-2x6")
    found = [data_sha256(nd.load(name)) for name in names]
    assert found == [LISTED[name].sha256 for name in names]
    one_way = '[graph]\nkind = "ring"\nnodes = 4\ndirected = true\nweights = "row-stochastic"\n'
    time = 'name = "x"\ndesign = "time"\n[workload]\nkind = "decentralized"\n'
    steps = "[participation]\nepochs = 1\nseparation = 2\n"
    (tmp_path / "p.toml").write_text(time + steps + one_way)
    loaded = nd.load(tmp_path / "p.toml")
    tables = tomllib.loads(loaded.text)
    del tables["name"]
    said = {"tables": tables, "files": {}, "links": [["4", "0-3", "1-0", "2-1", "3-2"]]}
    text = json.dumps(said, sort_keys=True, separators=(",", ":"))
    assert data_sha256(loaded) == hashlib.sha256(text.encode()).hexdigest()


def test_a_problem_without_a_file_has_no_hash() -> None:
    loaded = nd.load("whisper/ring-20")
    with pytest.raises(InputError, match=r"^problem: expected one that was read from a file"):
        data_sha256(type(loaded)(problem=loaded.problem, text=loaded.text))


# --- the list itself ------------------------------------------------------------------------------


def line(**changes: object) -> Instance:
    values = {"name": "a/b", "problem": "a-b", "family": "disjoint", "design": "space", "size": 3}
    values |= {"sha256": "0" * 64, "lower": 0.1, "upper": 0.1 + 1e-17, "holds": OPTIMUM}
    return Instance(**(values | {"method": "by hand, twice"} | changes))  # type: ignore[arg-type]


def test_a_list_is_read_as_it_was_written(tmp_path: Path) -> None:
    lines = [line(name="b"), line(lower=1 / 3, upper=2 / 3, holds=BEST_FOUND)]
    path = write_collection(lines, tmp_path / "c.csv")
    assert list(collection(path).values()) == [lines[1], lines[0]]
    assert collection(write_collection(lines, path)) == collection(path)


@pytest.mark.parametrize(
    "changes", [{"lower": "no"}, {"lower": 1.0}, {"lower": -1.0}, {"holds": "all"}, {"size": "x"}]
)
def test_a_damaged_list_is_refused(tmp_path: Path, changes: dict[str, object]) -> None:
    path = write_collection([line(**changes)], tmp_path / "c.csv")
    with pytest.raises(InputError, match=r"^collection: .*line 2"):
        collection(path)
    header = ",".join((FORMAT, *COLUMNS))
    assert path.read_text().startswith(header)
    path.write_text(path.read_text().replace(header, header.replace("sha256", "md5")))
    with pytest.raises(InputError, match=r"^collection"):
        collection(path)
