"""Problem files: every key, every family, and every way to get one wrong."""

from __future__ import annotations

import os
import re
import tomllib
from pathlib import Path
from typing import get_args

import networkx as nx
import numpy as np
import pytest

from noisedesign.base.checks import InputError
from noisedesign.files import graph_tables, problem_file, tables
from noisedesign.files.problem_file import LoadedProblem, load_problem, parse_problem
from noisedesign.files.schema import Table
from noisedesign.problem.problem import PrivacyTarget, SpaceProblem, TimeProblem
from noisedesign.system.graph import mixing_matrix
from tests.support import ROOT

PROBLEMS = ROOT / "problems"
SHIPPED = sorted(
    path
    for path in PROBLEMS.rglob("*.toml")
    if path.parent.name not in ("accounts", "papers", "sweeps", "training")
)

SPACE = 'name = "x"\ndesign = "space"\n'
TIME = 'name = "x"\ndesign = "time"\n'
RING = '[graph]\nkind = "ring"\nnodes = 5\n'
PREFIX = '[workload]\nkind = "prefix"\n'
TWO_BY_TWO = "[participation]\nepochs = 2\nseparation = 2\n"
REFERENCE = '\n[reference]\nlower = 1.0\nupper = 1.5\nmethod = "by hand"\n'


def parse(text: str, folder: Path | str = ".") -> LoadedProblem:
    return parse_problem(text, folder=folder)


def space(text: str, folder: Path | str = ".") -> SpaceProblem:
    problem = parse(SPACE + text, folder).problem
    assert isinstance(problem, SpaceProblem)
    return problem


def time(text: str, folder: Path | str = ".") -> TimeProblem:
    problem = parse(TIME + text, folder).problem
    assert isinstance(problem, TimeProblem)
    return problem


# --- what a file says ----------------------------------------------------------------------------


def test_space_problem_defaults() -> None:
    problem = space(RING)
    np.testing.assert_array_equal(problem.mixing, mixing_matrix(nx.cycle_graph(5)))
    np.testing.assert_array_equal(problem.budget, np.ones(5))
    assert problem.max_variance is None
    assert problem.privacy is None
    assert (problem.name, problem.nodes) == ("x", ("0", "1", "2", "3", "4"))


def test_space_problem_with_everything() -> None:
    loaded = parse(
        SPACE
        + 'description = "d"\nsource = "s"\ntags = ["a", "b"]\n'
        + RING
        + 'weights = "max-degree"\n[budget]\ntau = [1, 2, 3, 4, 5.5]\n[limits]\nmax_variance = 3\n'
        "[privacy]\nepsilon = 1\ndelta = 1e-5\nclip = 0.5\nsteps = 10\n"
        'adjacency = "zero-out"\nconversion = "rdp"\n' + REFERENCE
    )
    problem = loaded.problem
    assert isinstance(problem, SpaceProblem)
    np.testing.assert_array_equal(problem.budget, [1, 2, 3, 4, 5.5])
    np.testing.assert_array_equal(problem.max_variance, np.full(5, 3.0))
    assert problem.privacy == PrivacyTarget(
        epsilon=1, delta=1e-5, clip=0.5, steps=10, adjacency="zero-out", conversion="rdp"
    )
    assert loaded.tags == ("a", "b")
    assert loaded.path is None
    assert loaded.reference is not None
    assert (loaded.reference.lower, loaded.reference.upper) == (1.0, 1.5)
    assert loaded.reference.method == "by hand"


def test_privacy_defaults_are_those_of_the_target() -> None:
    problem = space(RING + "[privacy]\nepsilon = 1.0\nsteps = 3\n")
    assert problem.privacy == PrivacyTarget(epsilon=1.0, steps=3)
    assert problem.privacy.adjacency == "replace"
    assert problem.privacy.delta == 1e-6


def test_an_integer_is_a_number() -> None:
    assert space(RING + "[budget]\ntau = 2\n").budget.tolist() == [2.0] * 5


def test_prefix_workload() -> None:
    problem = time(PREFIX + TWO_BY_TWO)
    # H_ss' = T + 1 - max(s, s').
    np.testing.assert_array_equal(
        problem.gram, [[4, 3, 2, 1], [3, 3, 2, 1], [2, 2, 2, 1], [1, 1, 1, 1]]
    )
    assert (problem.participation.epochs, problem.participation.separation) == (2, 2)
    assert (problem.workload, problem.mixing, problem.nodes) == ("prefix", None, ())


def test_decentralized_workload() -> None:
    problem = time(
        '[graph]\nkind = "star"\nnodes = 3\nweights = "row-normalized"\n'
        '[workload]\nkind = "decentralized"\n' + TWO_BY_TWO
    )
    assert problem.mixing is not None
    np.testing.assert_allclose(problem.mixing[0], np.full(3, 1 / 3))
    np.testing.assert_allclose(problem.mixing[1], [1 / 2, 1 / 2, 0])
    # The last step is mixed once: H_TT = tr(W^T W).
    assert problem.gram[-1, -1] == pytest.approx((problem.mixing**2).sum())


def test_matrix_and_gram_files(tmp_path: Path) -> None:
    mixing, gram = np.full((2, 2), 0.5), np.diag([1.0, 2.0])
    np.save(tmp_path / "w.npy", mixing)
    np.save(tmp_path / "h.npy", gram)
    problem = space('[graph]\nkind = "matrix"\nfile = "w.npy"\n', tmp_path)
    np.testing.assert_array_equal(problem.mixing, mixing)
    assert problem.nodes == ("0", "1")
    text = (
        '[workload]\nkind = "gram"\nfile = "h.npy"\n[participation]\nepochs = 1\nseparation = 2\n'
    )
    np.testing.assert_array_equal(time(text, tmp_path).gram, gram)


def test_edges_are_relative_to_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "deep"
    folder.mkdir()
    (folder / "my.edges").write_text("a b\nb c\n")
    (folder / "p.toml").write_text(SPACE + '[graph]\nkind = "edges"\nfile = "my.edges"\n')
    monkeypatch.chdir(tmp_path)
    loaded = load_problem("deep/p.toml")
    assert loaded.problem.nodes == ("a", "b", "c")
    assert loaded.path == Path("deep/p.toml")
    assert loaded.text == (folder / "p.toml").read_text()


# --- what is refused -----------------------------------------------------------------------------

LIMIT = "[limits]\nmax_variance = 3.0\n"
ER = '[graph]\nkind = "erdos-renyi"\nnodes = 5\nseed = 0\n'
PRIVACY = "[privacy]\nepsilon = 1.0\ndelta = 1e-5\n"

REFUSED = [
    # file, table and key level
    ("", "design", ["a value", "nothing"]),
    ('name = "x"\n', "design", ["nothing"]),
    ('name = "x"\ndesign = "spce"\n', "design", ["space, time", "'spce'", "Did you mean space?"]),
    ('name = "x"\ndesign = 3\n', "design", ["space, time", "3 (int)"]),
    ('design = "space"\n' + RING, "name", ["nothing"]),
    ('name = ""\ndesign = "space"\n' + RING, "name", ["non-empty"]),
    ('name = 3\ndesign = "space"\n' + RING, "name", ["a string", "3 (int)"]),
    (SPACE, "graph", ["a [graph] table", "nothing"]),
    (SPACE + "colour = 1\n" + RING, "colour", ["unknown key", "budget", "graph", "tags"]),
    (SPACE + "space = 1\n" + RING, "space", ["unknown key"]),
    (SPACE + 'tag = ["a"]\n' + RING, "tag", ["unknown key", "Did you mean tags?"]),
    (SPACE + 'tags = "a"\n' + RING, "tags", ["a list", "'a'"]),
    (SPACE + 'tags = ["a", 3]\n' + RING, "tags.1", ["a string", "3 (int)"]),
    (SPACE + "graph = 3\n", "graph", ["a table", "3 (int)"]),
    (SPACE + '[[graph]]\nkind = "ring"\n', "graph", ["a table"]),
    (SPACE + "budget = 1\n" + RING, "budget", ["a table", "1 (int)"]),
    # which tables belong to which design
    (SPACE + RING + PREFIX, "workload.kind", ["only the keys rounds in [workload]"]),
    (
        TIME + PREFIX + TWO_BY_TWO + LIMIT.replace("max", "min"),
        "limits.min_variance",
        ["no floor but in space"],
    ),
    (TIME + PREFIX + TWO_BY_TWO + "[budget]\ntau = [1]\n", "budget.tau", ["2 values", "pattern"]),
    (TIME + PREFIX, "participation", ["a [participation] table", "nothing"]),
    (TIME + TWO_BY_TWO, "workload", ["a [workload] table", "nothing"]),
    (TIME + PREFIX + RING + TWO_BY_TWO, "graph", ["no [graph] table for a prefix", "ring"]),
    (TIME + '[workload]\nkind = "gram"\nfile = "h.npy"\n' + RING + TWO_BY_TWO, "graph", ["gram"]),
    (TIME + '[workload]\nkind = "decentralized"\n' + TWO_BY_TWO, "graph", ["decentralized"]),
    # [graph]
    (SPACE + "[graph]\nnodes = 5\n", "graph.kind", ["one of", "nothing"]),
    (SPACE + '[graph]\nkind = "rign"\n', "graph.kind", ["florentine, karate", "Did you mean ring"]),
    (SPACE + '[graph]\nkind = ["ring"]\n', "graph.kind", ["one of florentine", "(list)"]),
    (SPACE + '[graph]\nkind = "ring"\n', "graph.nodes", ["nothing"]),
    (SPACE + RING.replace("nodes", "node"), "graph.node", ["nodes", "Did you mean nodes?"]),
    (
        SPACE + RING + "seed = 0\n",
        "graph.seed",
        ["only the keys directed, kind, mixing_rate, nodes, weights in [graph]"],
    ),
    (SPACE + RING + "ring = 0\n", "graph.ring", ["unknown key ring"]),
    (SPACE + RING.replace("5", "20.0"), "graph.nodes", ["an integer", "20.0 (float)"]),
    (SPACE + RING.replace("5", "true"), "graph.nodes", ["an integer", "True (bool)"]),
    (SPACE + RING.replace("5", '"5"'), "graph.nodes", ["an integer", "'5'"]),
    (SPACE + RING.replace("5", "2"), "graph.nodes", ["an integer >= 3", "2 (int)"]),
    (SPACE + ER + "p = 1.5\n", "graph.p", ["(0, 1]", "1.5"]),
    (SPACE + ER + "p = true\n", "graph.p", ["a number", "True"]),
    (SPACE + '[graph]\nkind = "ego-facebook"\nego = 3\n', "graph.ego", ["0, 107, 414", "3"]),
    (SPACE + '[graph]\nkind = "ego-facebook"\nego = false\n', "graph.ego", ["an integer"]),
    (SPACE + RING + 'weights = "max-degrees"\n', "graph.weights", ["Did you mean max-degree?"]),
    (SPACE + '[graph]\nkind = "edges"\nfile = "none"\n', "graph.file", ["none", "No such file"]),
    (SPACE + '[graph]\nkind = "edges"\nfile = ""\n', "graph.file", ["non-empty"]),
    (
        SPACE + '[graph]\nkind = "matrix"\nfile = "w.npy"\nweights = "max-degree"\n',
        "graph.weights",
        ["only the keys file, kind in [graph]"],
    ),
    # [workload] and [participation]
    (TIME + '[workload]\nkind = "prefixes"\n' + TWO_BY_TWO, "workload.kind", ["prefix, gram"]),
    (TIME + '[workload]\nkind = "gram"\n' + TWO_BY_TWO, "workload.file", ["nothing"]),
    (TIME + PREFIX + 'file = "h.npy"\n' + TWO_BY_TWO, "workload.file", ["unknown key file"]),
    (TIME + PREFIX + "[participation]\nepochs = 2\n", "participation.separation", ["nothing"]),
    (
        TIME + PREFIX + TWO_BY_TWO.replace("epochs = 2", "epochs = 0"),
        "participation.epochs",
        ["an integer >= 1", "0"],
    ),
    (
        TIME + PREFIX + TWO_BY_TWO.replace("epochs = 2", "epochs = 2.0"),
        "participation.epochs",
        ["an integer", "2.0 (float)"],
    ),
    # [budget] and [limits]
    (SPACE + RING + "[budget]\nta = 1\n", "budget.ta", ["Did you mean tau?"]),
    (SPACE + RING + "[budget]\ntau = true\n", "budget.tau", ["a number", "True"]),
    (SPACE + RING + '[budget]\ntau = [1, 1, "a", 1, 1]\n', "budget.tau.2", ["a number", "'a'"]),
    (SPACE + RING + "[budget]\ntau = 0\n", "budget.tau", ["> 0", "0"]),
    (SPACE + RING + "[budget]\ntau = -1.0\n", "budget.tau", ["> 0", "-1"]),
    (SPACE + RING + "[budget]\ntau = nan\n", "budget.tau", ["finite", "nan"]),
    (SPACE + RING + "[budget]\ntau = [1, 2]\n", "budget.tau", ["5 values", "2"]),
    (SPACE + RING + "[budget]\ntau = []\n", "budget.tau", ["non-empty"]),
    (SPACE + RING + "[limits]\n", "limits.max_variance", ["nothing"]),
    (SPACE + RING + "[limits]\nmax_variance = inf\n", "limits.max_variance", ["finite", "inf"]),
    (SPACE + RING + "[limits]\nmax_variance = 1.0\n", "limits.max_variance", ["more than 1 / tau"]),
    # [privacy] and [reference]
    (
        SPACE + RING + "[privacy]\nepsilon = 1.0\n",
        "privacy.steps",
        ["how many steps the noise is used for", "participation"],
    ),
    (SPACE + RING + "[privacy]\ndelta = 1e-5\n", "privacy.epsilon", ["nothing"]),
    (SPACE + RING + PRIVACY.replace("1.0", "0.0"), "privacy.epsilon", ["(0, inf)", "0.0"]),
    (SPACE + RING + PRIVACY.replace("1e-5", "1.0"), "privacy.delta", ["(0, 1)", "1.0"]),
    (SPACE + RING + PRIVACY + "clip = -1\n", "privacy.clip", ["(0, inf)"]),
    (SPACE + RING + PRIVACY + "steps = 2.5\n", "privacy.steps", ["an integer", "2.5"]),
    (SPACE + RING + PRIVACY + "steps = 0\n", "privacy.steps", ["an integer >= 1"]),
    (SPACE + RING + PRIVACY + 'adjacency = "add"\n', "privacy.adjacency", ["replace, zero-out"]),
    (SPACE + RING + PRIVACY + 'conversion = "zcdp"\n', "privacy.conversion", ["gdp, rdp, whisper"]),
    (TIME + PREFIX + TWO_BY_TWO + PRIVACY + "steps = 3\n", "privacy.steps", ["4", "3"]),
    (SPACE + RING + REFERENCE.replace("1.5", "0.5"), "reference.upper", ["lower = 1.0", "0.5"]),
    (SPACE + RING + REFERENCE.replace("1.0", "0.0"), "reference.lower", ["(0, inf)"]),
    (SPACE + RING + REFERENCE.replace("1.5", "inf"), "reference.upper", ["inf"]),
    (SPACE + RING + "[reference]\nlower = 1\nupper = 2\n", "reference.method", ["nothing"]),
]


@pytest.mark.parametrize(("text", "field", "words"), REFUSED)
def test_every_error_names_its_key(text: str, field: str, words: list[str], tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        parse(text, tmp_path)
    message = str(caught.value)
    assert caught.value.field == field
    assert all(word in message for word in words), message
    assert "\n" not in message
    assert "pydantic" not in message
    assert "http" not in message


@pytest.mark.parametrize(
    ("text", "got"),
    [
        ("name = \n", "line 1"),
        ('name = "x"\nname = "y"\n', "line 2"),
        ("x = " + "[" * 100_000, "recursion"),
    ],
)
def test_text_that_is_not_toml(text: str, got: str) -> None:
    with pytest.raises(InputError, match="^problem: expected TOML, got ") as caught:
        parse(text)
    assert got in caught.value.got


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"^problem: .*none\.toml: No such file"):
        load_problem(tmp_path / "none.toml")
    with pytest.raises(InputError, match=r"^problem: .*: Is a directory"):
        load_problem(tmp_path)
    (tmp_path / "latin.toml").write_bytes(b'name = "M\xe9dicis"\n')
    with pytest.raises(InputError, match=r"^problem: expected UTF-8 text, got .*byte 9 "):
        load_problem(tmp_path / "latin.toml")


@pytest.mark.parametrize("text", ["name =", SPACE, SPACE + RING + 'weights = "x"\n'])
def test_errors_in_a_file_name_the_file(tmp_path: Path, text: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with pytest.raises(InputError, match=r"\(in .*mine\.toml\)$"):
        load_problem(path)


# --- .npy files ----------------------------------------------------------------------------------

MATRIX = SPACE + '[graph]\nkind = "matrix"\nfile = "a.npy"\n'
GRAM = TIME + '[workload]\nkind = "gram"\nfile = "a.npy"\n' + TWO_BY_TWO


@pytest.mark.parametrize(
    ("array", "words"),
    [
        (np.full((2, 2), 0.5, dtype=np.float32), ["float64", "float32"]),
        (np.array([[0.5, 0.5], [0.5, None]], dtype=object), ["complete .npy file", "numpy.save"]),
        (np.array([[0.5, 0.5]]), ["square"]),
        (np.array([0.5, 0.5]), ["2 axes"]),
        (np.array([[0.5, 0.5], [0.5, 0.0]]), ["rows", "sum 0.5 in row 1"]),
        (np.array([[0.5, 0.6], [0.5, 0.5]]), ["rows", "row 0"]),
        (np.array([[1.5, -0.5], [-0.5, 1.5]]), ["nonnegative", "(0, 1)"]),
        (np.array([[0.5, np.nan], [0.5, 0.5]]), ["finite", "nan"]),
        (np.eye(2), ["2 components"]),
    ],
)
def test_mixing_files_that_are_no_mixing_matrix(
    tmp_path: Path, array: np.ndarray, words: list[str]
) -> None:
    np.save(tmp_path / "a.npy", array, allow_pickle=True)
    with pytest.raises(InputError) as caught:
        parse(MATRIX, tmp_path)
    assert caught.value.field == "graph.file"
    assert all(word in str(caught.value) for word in words), str(caught.value)


@pytest.mark.parametrize(
    ("array", "field", "words"),
    [
        (np.diag([1.0, 1.0, 1.0, -1.0]), "workload.file", ["positive semidefinite", "-1"]),
        (np.zeros((4, 4)), "workload.file", ["nonzero"]),
        (np.triu(np.ones((4, 4))), "workload.file", ["symmetric", "(0, 1)"]),
        (np.eye(4, dtype=np.float32), "workload.file", ["float64"]),
        (np.eye(5), "participation", ["epochs * separation = 5", "2 * 2 = 4"]),
    ],
)
def test_gram_files_that_are_no_gram_matrix(
    tmp_path: Path, array: np.ndarray, field: str, words: list[str]
) -> None:
    np.save(tmp_path / "a.npy", array)
    with pytest.raises(InputError) as caught:
        parse(GRAM, tmp_path)
    assert caught.value.field == field
    assert all(word in str(caught.value) for word in words), str(caught.value)


def damaged(kind: str, good: bytes) -> bytes:
    match kind:
        case "empty":
            return b""
        case "truncated header":
            return good[:20]
        case "truncated data":
            return good[:-8]
        case "text":
            return b"0.5 0.5\n0.5 0.5\n"
        case "header that is not Python":
            return good.replace(b"}", b" ")
        case "archive":
            return b"PK\x03\x04" + good
        case "forged size":
            return good.replace(b"(2, 2), }          ", b"(2000000, 200000)} ")
    raise AssertionError(kind)


@pytest.mark.parametrize(
    "kind",
    [
        "empty",
        "truncated header",
        "truncated data",
        "text",
        "header that is not Python",
        "archive",
        "forged size",
    ],
)
def test_damaged_npy_files(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "a.npy"
    np.save(path, np.full((2, 2), 0.5))
    good = path.read_bytes()
    assert isinstance(parse(MATRIX, tmp_path).problem, SpaceProblem)
    path.write_bytes(damaged(kind, good))
    assert path.read_bytes() != good
    for text, field in ((MATRIX, "graph.file"), (GRAM, "workload.file")):
        with pytest.raises(InputError, match="complete .npy file") as caught:
            parse(text, tmp_path)
        assert caught.value.field == field
        assert "a.npy" in str(caught.value)


def test_npy_files_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"^graph\.file: .*a\.npy: No such file"):
        parse(MATRIX, tmp_path)
    (tmp_path / "a.npy").mkdir()
    with pytest.raises(InputError, match=r"^workload\.file: .*a\.npy: Is a directory"):
        parse(GRAM, tmp_path)


# --- the shipped files ---------------------------------------------------------------------------

FAMILY_SIZES = {
    "unbounded": 4,
    "whisper": 10,
    "mafalda": 16,
    "prefix": 4,
    "examples": 3,
    "time-structures": 6,
    "space-structures": 12,
    "space-time": 9,
    "objectives": 20,
    "directed": 3,
    "observers": 2,
    "mixing-weights": 4,
    "random-participation": 4,
    "sparse-graphs": 4,
    "collection": 73,
}


def test_every_family_is_complete_and_names_are_unique() -> None:
    counts = {name: len(list((PROBLEMS / name).glob("*.toml"))) for name in FAMILY_SIZES}
    assert counts == FAMILY_SIZES
    assert sum(counts.values()) == len(SHIPPED)
    names = [tomllib.loads(path.read_text())["name"] for path in SHIPPED]
    assert len(set(names)) == len(names)


def family(name: str) -> list[Path]:
    return [path for path in SHIPPED if path.parent.name == name]


def load_shipped(path: Path) -> LoadedProblem:
    folder = Path(os.environ.get("NOISEDESIGN_DATA", "")) / "ego-facebook"
    if "ego-facebook" in path.read_text() and not folder.is_dir():
        pytest.skip("NOISEDESIGN_DATA names no folder with ego-facebook")
    return load_problem(path)


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, marks=[pytest.mark.slow] * path.stem.endswith("-100000"))
        for path in SHIPPED
        if path.parent.name != "collection"  # those have tests of their own
    ],
    ids=lambda path: f"{path.parent.name}/{path.stem}",
)
def test_shipped_file_loads(path: Path) -> None:
    loaded = load_shipped(path)
    folder = path.parent.name
    assert loaded.problem.name == (path.stem if folder == "prefix" else f"{folder}-{path.stem}")
    assert loaded.text == path.read_text()
    assert loaded.path == path


@pytest.mark.parametrize(
    "path", sorted((PROBLEMS / "whisper").glob("*.toml")), ids=lambda p: p.stem
)
def test_whisper_files_are_what_their_names_say(path: Path) -> None:
    problem = load_shipped(path).problem
    assert isinstance(problem, SpaceProblem)
    sizes = {"florentine": 15, "karate": 34, "ring-20": 20, "ego-148": 148}
    assert len(problem.nodes) == sizes.get(path.stem.removesuffix("-floored"), 20)
    assert (problem.max_variance is not None) == path.stem.endswith("-capped")
    assert (problem.min_variance is not None) == path.stem.endswith("-floored")
    if path.stem.startswith("erdos-renyi-20-p"):
        links = int((np.triu(problem.mixing, 1) > 0).sum())
        p = int(path.stem.removeprefix("erdos-renyi-20-p")[:2]) / 10
        # Four standard deviations of the number of links among 190 pairs.
        assert abs(links - 190 * p) <= 4 * np.sqrt(190 * p * (1 - p))


@pytest.mark.parametrize(
    "path", sorted((PROBLEMS / "mafalda").glob("*.toml")), ids=lambda p: p.stem
)
def test_mafalda_files_are_what_their_names_say(path: Path) -> None:
    problem = load_shipped(path).problem
    assert isinstance(problem, TimeProblem)
    graph, shape, weights = path.stem.rsplit("-", 2)
    sizes = {"florentine": 15, "ring-20": 20, "erdos-renyi-100": 100, "ego-148": 148}
    assert len(problem.nodes) == sizes[graph]
    participation = problem.participation
    assert shape == f"{participation.epochs}x{participation.separation}"
    # On the regular ring both weightings agree.
    assert problem.mixing is not None
    symmetric = np.array_equal(problem.mixing, problem.mixing.T)
    assert symmetric == (weights == "mh" or graph == "ring-20")


@pytest.mark.parametrize(
    ("name", "epochs", "separation"),
    [("128", 1, 128), ("512", 1, 512), ("20x19", 20, 19), ("8x16", 8, 16)],
)
def test_prefix_files_are_what_their_names_say(name: str, epochs: int, separation: int) -> None:
    problem = load_problem(PROBLEMS / "prefix" / f"prefix-{name}.toml").problem
    assert isinstance(problem, TimeProblem)
    assert problem.workload == "prefix"
    assert (problem.participation.epochs, problem.participation.separation) == (epochs, separation)


def test_a_reference_can_be_appended(tmp_path: Path) -> None:
    for path in SHIPPED:
        text = path.read_text()
        tables = tomllib.loads(text)
        if "reference" not in tables:
            assert tomllib.loads(text + REFERENCE).keys() == {*tables, "reference"}
    text = (PROBLEMS / "whisper" / "florentine.toml").read_text().split("[reference]")[0]
    loaded = parse(text + REFERENCE, tmp_path)
    assert loaded.reference is not None
    assert loaded.reference.upper == 1.5
    assert parse(text, tmp_path).reference is None


def test_the_readme_names_every_key() -> None:
    """The description and the schema are two lists of the same keys."""
    modules = (graph_tables, tables, problem_file)
    models = [m for module in modules for m in vars(module).values() if isinstance(m, type)]
    models += [*tables.participation_tables(), *tables.records_tables()]
    models += problem_file.workload_tables()
    models += graph_tables.graph_tables()
    fields = [m.model_fields for m in models if issubclass(m, Table)]
    keys = {key for table in fields for key in table}
    kinds = {
        kind for table in fields if "kind" in table for kind in get_args(table["kind"].annotation)
    }
    assert {"nodes", "max_variance"} <= keys
    assert {"torus", "gram"} <= kinds
    words = set(re.findall(r"[a-z_-]+", (PROBLEMS / "README.md").read_text()))
    assert keys | kinds <= words, (keys | kinds) - words
