"""Problems as files of conic programs: by hand, entry by entry, by what solvers make of them."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import noisedesign
from noisedesign.base.checks import InputError
from noisedesign.conic import formats
from noisedesign.conic.formats import FORMATS, write as write_file
from noisedesign.conic.program import MAX_ENTRIES, Assembly, ConicProgram, on_diagonal
from noisedesign.design.solve import solve
from noisedesign.families.banded import model as banded
from noisedesign.families.decor import model as decor
from noisedesign.families.disjoint import model as disjoint
from noisedesign.families.observers import model as observers
from noisedesign.families.overlapping import model as overlapping
from noisedesign.families.shared_seeds import model as shared_seeds
from noisedesign.forms.structure import SpaceStructure, TimeStructure
from noisedesign.privacy.views import insider, pndp
from noisedesign.problem.problem import Problem, SpaceProblem, SpaceTimeProblem, TimeProblem
from noisedesign.system.graph import mixing_matrix
from noisedesign.system.participation import FixedEpoch, MinSeparation, single
from noisedesign.system.workloads import ErrorMeasure
from noisedesign.tasks.model import conic_program
from tests.support.conic_cases import PROBLEMS, eight
from tests.support.conic_file_readers import Read, expected, read_cbf, read_mosek, read_sdpa, solved

W = eight()
RING_5 = mixing_matrix(nx.cycle_graph(5))
PATH_4 = mixing_matrix(nx.path_graph(4))

CASES: dict[str, tuple[Problem, str | None]] = {
    **{name: (problem, None) for name, problem in PROBLEMS.items()},
    "covariance": (PROBLEMS["budgets"], "covariance"),
    "paper": (PROBLEMS["budgets"], "paper"),
    "paper-capped": (PROBLEMS["capped"], "paper"),
    "floors": (SpaceProblem(mixing=W, min_variance=np.linspace(1.1, 1.6, 8)), None),
    "floors-paper": (SpaceProblem(mixing=W, min_variance=1.4, max_variance=1.6), "paper"),
    "last-iterate": (
        SpaceProblem(mixing=W, error=ErrorMeasure(horizon=3, of="last-iterate")),
        None,
    ),
    "edges": (
        SpaceProblem(
            mixing=W, budget=np.linspace(0.5, 2.0, 8), structure=SpaceStructure(kind="edge-local")
        ),
        None,
    ),
    "neighbourhoods-capped": (
        SpaceProblem(mixing=W, max_variance=1.1, structure=SpaceStructure(kind="neighbourhood")),
        None,
    ),
    "known-seeds": (
        SpaceProblem(
            mixing=RING_5,
            budget=[1.0, 2.0, 0.5, 1.0, 1.0],
            structure=SpaceStructure(kind="edge-local", known_seeds=1),
        ),
        None,
    ),
    "alone": (SpaceProblem(mixing=W, structure=SpaceStructure(kind="independent")), None),
    "decor": (SpaceProblem(mixing=RING_5, structure=SpaceStructure(kind="decor")), None),
    "decor-capped": (
        SpaceProblem(mixing=RING_5, max_variance=1.2, structure=SpaceStructure(kind="decor")),
        None,
    ),
    "decor-consensus": (  # positive correlation would be best here, and no edge gives any
        SpaceProblem(
            mixing=mixing_matrix(nx.cycle_graph(4)),
            error=ErrorMeasure(horizon=1, of="consensus"),
            structure=SpaceStructure(kind="decor"),
        ),
        None,
    ),
    "banded": (
        TimeProblem.prefix(
            participation=FixedEpoch(epochs=2, separation=4),
            structure=TimeStructure(kind="banded", bands=3),
        ),
        None,
    ),
    "banded-min-separation": (
        TimeProblem.decentralized(
            mixing=W,
            structure=TimeStructure(kind="banded", bands=3),
            participation=MinSeparation(horizon=9, separation=3, max_participations=2),
        ),
        None,
    ),
    "banded-any-number": (
        TimeProblem.prefix(
            participation=MinSeparation(horizon=9, separation=3, max_participations=9),
            structure=TimeStructure(kind="banded", bands=2),
        ),
        None,
    ),
    "min-separation": (
        TimeProblem.prefix(
            participation=MinSeparation(horizon=7, separation=2, max_participations=3)
        ),
        None,
    ),
    "space-time": (
        SpaceTimeProblem(
            mixing=PATH_4,
            participation=FixedEpoch(epochs=2, separation=2),
            joint="full",
            budget=[1.0, 2.0, 1.0, 0.5],
        ),
        None,
    ),
    "space-time-capped": (
        SpaceTimeProblem(mixing=PATH_4, participation=single(3), joint="full", max_variance=1.1),
        None,
    ),
    "observers": (
        SpaceProblem(
            mixing=PATH_4,
            error=ErrorMeasure(horizon=2),
            max_variance=6.0,
            budget=[1.0, 2.0, 1.0, 0.5],
            observers=(pndp(nodes=[0]), insider(nodes=[2])),
            responses="fixed",
        ),
        None,
    ),
    "one-observer": (
        SpaceProblem(
            mixing=PATH_4,
            error=ErrorMeasure(horizon=2),
            max_variance=6.0,
            observers=(pndp(nodes=[0]),),
            responses="fixed",
        ),
        None,
    ),
}
WIDEST = {"observers": 2e-5, "one-observer": 2e-5, "known-seeds": 2e-6, "min-separation": 2e-6}
"""What the optimum from ``solve`` is certified to, where it is not to 1e-6."""


def program_of(name: str) -> ConicProgram:
    problem, formulation = CASES[name]
    return conic_program(problem, formulation=formulation)


# --- by hand -------------------------------------------------------------------------------------

TWO = SpaceProblem(mixing=[[0.75, 0.25], [0.25, 0.75]], budget=[1.0, 2.0], name="two")
SDPA = """6
2
4 -2
1.0 0.0 1.0 0.0 0.0 0.0
0 1 1 3 -0.75
0 1 2 3 -0.25
0 1 1 4 -0.25
0 1 2 4 -0.75
0 2 1 1 -1.0
0 2 2 2 -2.0
1 1 1 1 1.0
2 1 1 2 1.0
3 1 2 2 1.0
4 1 3 3 1.0
4 2 1 1 -1.0
5 1 3 4 1.0
6 1 4 4 1.0
6 2 2 2 -1.0
"""
CBF = """VER
2

OBJSENSE
MIN

VAR
6 1
F 6

PSDCON
1
4

CON
2 1
L+ 2

OBJACOORD
2
0 1.0
2 1.0

ACOORD
2
0 3 -1.0
1 5 -1.0

BCOORD
2
0 1.0
1 2.0

HCOORD
6
0 0 0 0 1.0
0 1 1 0 1.0
0 2 1 1 1.0
0 3 2 2 1.0
0 4 3 2 1.0
0 5 3 3 1.0

DCOORD
4
0 2 0 0.75
0 2 1 0.25
0 3 0 0.25
0 3 1 0.75
"""


def data_of(path: Path) -> str:
    """A text file without its comments."""
    kept = [line for line in path.read_text().split("\n") if line[:1] not in ("#", "*")]
    return "\n".join(kept)


def test_two_nodes_by_hand(tmp_path: Path) -> None:
    """Y is (1, 2; 2, 3) and X (4, 5; 5, 6) in [[Y, W], [W^T, X]], diag(X) <= (1, 2)."""
    program = conic_program(TWO)
    assert data_of(write_file(program, tmp_path / "two.dat-s")) == SDPA
    assert data_of(write_file(program, tmp_path / "two.cbf")) == CBF


def test_ring_in_closed_form(tmp_path: Path) -> None:
    """(nuclear norm of W)^2 / (n tau), W circulant with eigenvalues (1 + 2 cos) / 3."""
    eigenvalues = (1 + 2 * np.cos(2 * np.pi * np.arange(5) / 5)) / 3
    best = np.abs(eigenvalues).sum() ** 2 / (5 * 2.5)
    problem = SpaceProblem(mixing=RING_5, budget=2.5)
    for formulation in ("compact", "covariance", "paper"):
        program = conic_program(problem, formulation=formulation)
        read = read_cbf(write_file(program, tmp_path / "ring.cbf"))
        assert solved(read)[0] == pytest.approx(best, rel=1e-7)


# --- every problem, every format -----------------------------------------------------------------


def assert_same(found: Read, wanted: Read, *, rel: float = 0.0) -> None:
    assert (found.variables, found.sizes, found.row_count, found.cost) == (
        wanted.variables,
        wanted.sizes,
        wanted.row_count,
        wanted.cost,
    )
    for one, other in zip([found.rows, *found.blocks], [wanted.rows, *wanted.blocks], strict=True):
        assert one.keys() == other.keys()
        assert one == (pytest.approx(other, rel=rel, abs=0) if rel else other)


@pytest.mark.parametrize("name", CASES)
def test_files_say_what_the_program_is(name: str, tmp_path: Path) -> None:
    program = program_of(name)
    wanted = expected(program)
    assert_same(read_cbf(write_file(program, tmp_path / "model.cbf")), wanted)
    assert_same(read_sdpa(write_file(program, tmp_path / "model.dat-s")), wanted)


@pytest.mark.parametrize("ending", ["cbf", "task", "jtask", "ptf"])
@pytest.mark.parametrize("name", ["epochs", "floors-paper", "known-seeds", "observers"])
def test_mosek_reads_what_the_program_is(name: str, ending: str, tmp_path: Path) -> None:
    pytest.importorskip("mosek", reason="pip install 'noisedesign[mosek]'")
    program = program_of(name)
    read, title = read_mosek(write_file(program, tmp_path / f"model.{ending}"))
    # Multiplied and divided by the root of two: two roundings.
    assert_same(read, expected(program), rel=2**-51)
    assert ending == "cbf" or title == program.name


@pytest.mark.parametrize("name", CASES)
def test_the_optimum_is_the_objective_of_solve(name: str) -> None:
    """The solvers behind ``solve`` share no code with the programs; certificates bound both."""
    program = program_of(name)
    certificate = solve(CASES[name][0]).certificate
    assert certificate is not None
    optimum, _ = solved(expected(program))
    assert optimum == pytest.approx(certificate.objective, rel=WIDEST.get(name, 1e-6) + 5e-7)


def test_sdpa_solves_its_file(tmp_path: Path) -> None:
    sdpap = pytest.importorskip("sdpap", reason="pip install 'noisedesign[solvers]'")
    for name in ("budgets", "edges", "epochs"):
        path = write_file(program_of(name), tmp_path / f"{name}.dat-s")
        a, b, c, inner, outer = sdpap.importsdpa(str(path))
        _, _, info, *_ = sdpap.solve(a, b, c, inner, outer, {"print": "no"})
        best = solve(CASES[name][0]).certificate
        assert best is not None
        # sdpa-python turns the primal of the file round: it maximises -c^T x.
        assert abs(info["primalObj"]) == pytest.approx(best.objective, rel=1e-6)


def test_a_task_file_reaches_the_optimum(tmp_path: Path) -> None:
    pytest.importorskip("mosek", reason="pip install 'noisedesign[mosek]'")
    read, _ = read_mosek(write_file(program_of("budgets"), tmp_path / "model.task"))
    best = solve(PROBLEMS["budgets"]).certificate
    assert best is not None
    assert solved(read)[0] == pytest.approx(best.objective, rel=1e-6)


def test_variables_are_what_the_program_says() -> None:
    """R put together from its group of variables keeps the budgets and costs the optimum."""
    problem = PROBLEMS["capped"]
    assert isinstance(problem, SpaceProblem)
    program = conic_program(problem)
    (group,) = [g for g in program.groups if g.name == "R"]
    optimum, x = solved(expected(program))
    r = np.zeros((8, 8))
    r[np.triu_indices(8)] = x[group.first - 1 : group.last]
    r += np.triu(r, 1).T
    assert np.trace(problem.mixing @ r @ problem.mixing.T) == pytest.approx(optimum, rel=1e-9)
    assert np.diagonal(np.linalg.inv(r)) == pytest.approx(problem.budget, rel=1e-5)
    assert problem.max_variance is not None
    assert (np.diagonal(r) <= problem.max_variance * (1 + 1e-6)).all()


def test_entries_off_patterns_only() -> None:
    """(k, b) = (3, 4): of the 78 entries of X the 4 * 3 within patterns are no variables."""
    (group,) = [g for g in program_of("epochs").groups if g.name == "X"]
    assert group.last - group.first + 1 == 78 - 12


# --- numbers and comments ------------------------------------------------------------------------


@settings(derandomize=True, max_examples=60)
@given(
    st.lists(st.floats(allow_nan=False, allow_infinity=False).filter(bool), min_size=3, max_size=3),
    st.floats(allow_nan=False, allow_infinity=False),
)
def test_numbers_are_read_back_to_the_last_bit(
    tmp_path_factory: pytest.TempPathFactory, values: list[float], price: float
) -> None:
    assembly = Assembly()
    x = assembly.symmetric("x", 2, cost=np.diag([price, 1.0]), meaning="anything")
    places = (np.array([0, 1, 1]), np.array([0, 0, 1]))
    assembly.block(2, [(x[places], *places, np.array(values))])
    assembly.at_least_zero(2, [on_diagonal(x[0], np.array(values[:2]))])
    program = assembly.finished(name="any", formulation="any")
    folder = tmp_path_factory.mktemp("numbers")
    # Generated one after the other: without sdpa-python the first has been checked.
    readers = ((read_cbf, "x.cbf"), (read_sdpa, "x.dat-s"))
    for read in (reader(write_file(program, folder / name)) for reader, name in readers):
        assert read.blocks == [{(1, 0, 0): values[0], (2, 1, 0): values[1], (3, 1, 1): values[2]}]
        assert read.rows == {(1, 0): values[0], (2, 1): values[1]}
        assert read.cost == {v: p for v, p in ((1, price), (3, 1.0)) if p}


@pytest.mark.parametrize("ending", ["cbf", "dat-s"])
def test_comments_say_what_and_stay_comments(ending: str, tmp_path: Path) -> None:
    problem = SpaceProblem(mixing=RING_5, name="Erdős\nVER\n9")
    description = "A ring.\nVER\n99\r\x0c7 " + "x" * 2000
    path = tmp_path / f"ring.{ending}"
    write_file(conic_program(problem), path, description=description)
    mark = "#" if ending == "cbf" else "*"
    text = path.read_text(encoding="utf-8")
    head = [line for line in text.split("\n") if line.startswith(mark)]
    assert text.startswith("\n".join(head))
    assert max(map(len, head)) <= 100
    words = " ".join(line[1:].strip() for line in head)
    for said in (
        "Erdős VER 9",
        f"noisedesign {noisedesign.__version__}",
        '"compact"',
        "A ring. VER 99",
        "minimise",
        "no factor",
        "no offset",
    ):
        assert said in words
    ranges = ("0-14: Y", "15-29: X") if ending == "cbf" else ("1-15: Y", "16-30: X")
    assert all(numbers in words for numbers in ranges)
    wanted = expected(conic_program(problem))
    assert_same(read_cbf(path) if ending == "cbf" else read_sdpa(path), wanted)


def test_many_groups_are_summed_up(tmp_path: Path) -> None:
    problem = SpaceProblem(
        mixing=mixing_matrix(nx.cycle_graph(50)), structure=SpaceStructure(kind="edge-local")
    )
    path = write_file(conic_program(problem), tmp_path / "ring.cbf")
    head = [line for line in path.read_text().split("\n") if line.startswith("#")]
    assert len(head) < 52
    # 50 edges of 3 variables, and X of 1275.
    assert "and 11 more groups" in head[-2]
    assert "150-1424: X" in head[-1]


def test_an_infimum_that_may_not_be_attained_is_remarked_on() -> None:
    ring = mixing_matrix(nx.cycle_graph(6))
    (remark,) = conic_program(SpaceProblem(mixing=ring)).remarks
    assert "singular" in remark
    assert not conic_program(SpaceProblem(mixing=ring, max_variance=2.0)).remarks
    assert not conic_program(SpaceProblem(mixing=RING_5)).remarks


# --- refusals ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("problem", "formulation", "field", "words"),
    [
        (
            SpaceTimeProblem(mixing=RING_5, participation=single(3)),
            None,
            "structure.joint",
            "convex",
        ),
        (
            TimeProblem.prefix(participation=single(6), structure=TimeStructure(kind="toeplitz")),
            None,
            "structure.time",
            "convex",
        ),
        (
            TimeProblem.prefix(
                participation=single(6), structure=TimeStructure(kind="blt", buffers=1)
            ),
            None,
            "structure.time",
            "convex",
        ),
        (PROBLEMS["epochs"], "paper", "formulation", "several epochs"),
        (PROBLEMS["epochs"], "covariance", "formulation", "several epochs"),
        (CASES["banded"][0], "covariance", "formulation", '"compact"'),
        (CASES["edges"][0], "compact", "formulation", '"covariance"'),
        (PROBLEMS["florentine"], "sparse", "formulation", "one of compact"),
        (
            SpaceTimeProblem(
                mixing=RING_5,
                joint="full",
                max_variance=3.0,
                participation=FixedEpoch(epochs=2, separation=2),
            ),
            None,
            "formulation",
            "a limit on variances (cap or floor) together with several epochs",
        ),
        (
            TimeProblem.prefix(
                participation=MinSeparation(horizon=60, separation=5, max_participations=12)
            ),
            None,
            "problem",
            "patterns",
        ),
        (
            SpaceTimeProblem(
                mixing=mixing_matrix(nx.cycle_graph(50)), joint="full", participation=single(1000)
            ),
            None,
            "problem",
            "50 * 1000 = 50000",
        ),
        (
            SpaceProblem(
                mixing=mixing_matrix(nx.path_graph(40)),
                structure=SpaceStructure(kind="edge-local", known_seeds=10),
            ),
            None,
            "problem",
            "coalitions",
        ),
        (SpaceProblem(mixing=mixing_matrix(nx.path_graph(300))), "paper", "problem", "300 blocks"),
    ],
)
def test_refusals(problem: Problem, formulation: str | None, field: str, words: str) -> None:
    with pytest.raises(InputError) as error:
        conic_program(problem, formulation=formulation)
    assert error.value.field == field
    assert words in str(error.value)


@pytest.mark.parametrize("name", CASES)
def test_sizes_are_foreseen(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is refused as too large is judged by no less than what would be written."""
    foreseen: list[int] = []

    def note(entries: int, *, of: str) -> None:
        assert of
        foreseen.append(entries)

    for module in (banded, decor, disjoint, observers, overlapping, shared_seeds):
        monkeypatch.setattr(module, "require_size", note)
    program = program_of(name)
    assert len(foreseen) == 1
    # What observers see is as sparse as its numbers happen to be.
    most = 3 if "observer" in name else 2
    assert program.entries <= foreseen[0] <= most * program.entries


def test_the_limit_is_what_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    entries = conic_program(PROBLEMS["prefix"]).entries
    module = importlib.import_module("noisedesign.conic.program")
    assert MAX_ENTRIES == 10_000_000
    monkeypatch.setattr(module, "MAX_ENTRIES", 2 * entries)
    conic_program(PROBLEMS["prefix"])
    monkeypatch.setattr(module, "MAX_ENTRIES", entries - 1)
    with pytest.raises(InputError, match=f"at most {entries - 1:,}"):
        conic_program(PROBLEMS["prefix"])


@pytest.mark.parametrize(
    ("path", "to", "field"),
    [
        ("model.xml", None, "format"),
        ("model", None, "format"),
        ("model.cbf", "mps", "format"),
        ("model.cbf", "mosek-task", "output"),
        ("missing/model.cbf", None, "output"),
        (".", "cbf", "output"),
    ],
)
def test_paths_and_formats(path: str, to: str | None, field: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as error:
        write_file(conic_program(TWO), tmp_path / path, to=to)
    assert error.value.field == field
    assert not list(tmp_path.iterdir())


def test_a_format_goes_before_an_ending(tmp_path: Path) -> None:
    assert data_of(write_file(conic_program(TWO), tmp_path / "two.txt", to="sdpa")) == SDPA
    assert data_of(write_file(conic_program(TWO), tmp_path / "TWO.CBF")) == CBF


def test_without_mosek(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(importlib.sys.modules, "mosek", None)  # type: ignore[attr-defined]
    with pytest.raises(InputError, match=r"pip install 'noisedesign\[mosek\]'"):
        write_file(conic_program(TWO), tmp_path / "two.task")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["cbf", "sdpa"])
def test_whole_or_not_at_all(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / f"two{FORMATS[name].suffixes[0]}"
    path.write_text("old")

    def interrupted(*_: object) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(formats, "lines", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_file(conic_program(TWO), path)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]
