"""What results print: a few lines of names and numbers, the same in HTML, and never a matrix."""

from __future__ import annotations

import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest

import noisedesign as nd
from noisedesign.base.shown import LONGEST, ROWS, Listing, Shown
from noisedesign.families.toeplitz.solver import optimize_buffered
from noisedesign.mechanisms.baselines import compared
from noisedesign.privacy import views as threats
from noisedesign.surveys.compare import compare
from noisedesign.system.workloads.toeplitz import prefix_workload

LINES, WIDTH = 15, 160

GRAPH = nx.path_graph(5)
PROBLEM = nd.SpaceProblem.from_graph(
    GRAPH, name="a <b> & c", privacy=nd.PrivacyTarget(epsilon=3.0, delta=1e-6, steps=4)
)
SOLUTION = nd.solve(PROBLEM)
assert SOLUTION.design is not None
DESIGN = SOLUTION.design
ALGORITHM = threats.dp_d_sgd(mixing=PROBLEM.mixing, horizon=3)
EXPOSURES = nd.account(
    ALGORITHM,
    nd.observers.pndp(nodes=(0,)),
    participation=nd.participation.every_step(3),
    delta=1e-6,
)


class Parsed(HTMLParser):
    """The text of every cell, and whether every tag is closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.cells: list[str] = []
        self.rows: list[int] = []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.open.append(tag)
        if tag == "tr":
            self.rows.append(0)
        if tag in ("td", "th"):
            self.cells.append("")
            self.rows[-1] += 1

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open[-1] in ("td", "th"):
            self.cells[-1] += data


def results(folder: Path) -> dict[str, Any]:
    """One of every kind of result that is public."""
    stored = nd.load(nd.save(DESIGN, folder / "design.npz"))
    whisper = nd.load("whisper/florentine")
    path = nd.mixing_matrix(GRAPH)
    return {
        "solution": SOLUTION,
        "design": DESIGN,
        "time": nd.solve(nd.TimeProblem.prefix(participation=nd.participation.single(8))).design,
        "space-time": nd.solve(nd.load("space-time/ring-8-kronecker").problem).design,
        "certificate": DESIGN.certificate,
        "calibration": nd.calibrate(PROBLEM),
        "exposure": EXPOSURES[0],
        "exposures": EXPOSURES,
        "verification": nd.verify(stored),
        "check": nd.verify(stored).checks[0],
        "simulation": nd.simulate(DESIGN, runs=50),
        "stored": stored,
        "problem": PROBLEM,
        "time problem": nd.load("mafalda/ring-20-20x16-mh").problem,
        "space-time problem": nd.load("space-time/ring-8-full").problem,
        "problem file": whisper,
        "account file": nd.load("accounts/florentine-pndp"),
        "sweep file": nd.load("sweeps/random-graphs"),
        "shipped": nd.shipped_problems(),
        "comparison": compare([whisper], backends=["native"]),
        "baselines": compared(PROBLEM),
        "node dropout": nd.graphs.NodeDropout(mixing=path, probability=0.1),
        "edge dropout": nd.graphs.EdgeDropout(mixing=path, probability=0.1),
        "matchings": nd.graphs.pairwise_gossip(GRAPH),
        "objective": nd.ErrorMeasure(horizon=3),
        "algorithm": ALGORITHM,
        "mechanism": threats.view(ALGORITHM, nd.observers.ldp()),
        "streaming": optimize_buffered(
            workload=prefix_workload(horizon=32),
            participation=nd.participation.single(32),
            buffers=2,
        ),
    }


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return results(tmp_path_factory.mktemp("shown"))


def test_every_result_is_a_few_lines_and_no_matrix(shown: dict[str, Any]) -> None:
    for name, result in shown.items():
        assert isinstance(result, Shown | Listing), name
        text = repr(result)
        lines = text.splitlines()
        assert 1 <= len(lines) <= (ROWS + 2 if isinstance(result, Listing) else LINES), name
        assert max(map(len, lines)) <= WIDTH, name
        assert "array(" not in text, name
        assert "[[" not in text, name
        assert str(result) == text
        assert not any(line != line.rstrip() for line in lines), name


def test_html_says_the_same(shown: dict[str, Any]) -> None:
    for name, result in shown.items():
        parsed = Parsed(result._repr_html_())
        text = repr(result)
        for cell in filter(None, parsed.cells):
            assert cell[: LONGEST - 3] in text, name
        assert len(set(parsed.rows)) == 1, name


def test_html_is_escaped() -> None:
    text = SOLUTION._repr_html_()
    assert "<b>" not in text
    assert "a &lt;b&gt; &amp; c" in text


def test_a_solution_says_how_good_it_is() -> None:
    """Objective, bound, gap, and the ratio to independent noise, tr(W^T W) at tau = 1."""
    lines = dict(line.strip().split("  ", 1) for line in repr(SOLUTION).splitlines()[1:])
    said = {name: value.strip() for name, value in lines.items()}
    certificate = DESIGN.certificate
    objective = float(np.trace(PROBLEM.mixing @ DESIGN.covariance @ PROBLEM.mixing.T))
    assert repr(SOLUTION).startswith("Solution of 'a <b> & c'\n")
    assert said["status"] == "optimal"
    assert float(said["objective"]) == pytest.approx(objective, rel=1e-5)
    assert float(said["lower bound"]) == pytest.approx(certificate.lower_bound, rel=1e-5)
    assert float(said["gap"]) == pytest.approx(certificate.gap, rel=1e-5)
    ratio = objective / float(np.sum(PROBLEM.mixing**2))
    assert float(said["over LDP"]) == pytest.approx(ratio, rel=1e-5)
    assert float(said["seconds"]) == pytest.approx(SOLUTION.seconds, rel=1e-5)
    assert said["feasible"] == "yes"


def test_a_solution_without_a_design_says_what_to_do() -> None:
    failed = nd.Solution(
        problem=PROBLEM,
        backend="native",
        status="failed",
        design=None,
        remedy="Try another.",
        seconds=1.0,
        build_seconds=0.0,
        solve_seconds=1.0,
        evaluations=0,
    )
    text = repr(failed)
    assert "failed" in text
    assert "Try another." in text
    assert "objective" not in text


def test_an_account_is_a_list_and_a_table() -> None:
    assert isinstance(EXPOSURES, list)
    head, *rows = repr(EXPOSURES).splitlines()
    assert head.split("  ")[-1] == "rests on"
    assert [row.split()[:2] for row in rows] == [[e.node, f"{e.mu:.6g}"] for e in EXPOSURES]
    (line,) = repr(EXPOSURES[0]).splitlines()
    assert line.startswith(f"{EXPOSURES[0].node}: mu ")


def test_a_long_list_is_cut() -> None:
    many = Listing([EXPOSURES[0]] * (ROWS + 3))
    assert repr(many).endswith("\nand 3 more")
    assert len(repr(many).splitlines()) == ROWS + 2
    assert "and 3 more" in many._repr_html_()
    assert repr(Listing()) == "[]"


def test_an_error_about_a_result_is_one_line() -> None:
    with pytest.raises(nd.InputError) as error:
        nd.mixing_matrix(SOLUTION)  # type: ignore[arg-type]
    assert "Solution" in str(error.value)
    assert "\n" not in str(error.value)


def test_showing_a_result_loads_nothing() -> None:
    code = (
        "import sys, noisedesign as nd\n"
        "target = nd.PrivacyTarget(epsilon=1.0, steps=2)\n"
        "mixing = nd.mixing_matrix(nd.build_graph('ring', nodes=5))\n"
        "problem = nd.SpaceProblem(mixing=mixing, privacy=target)\n"
        "solution = nd.solve(problem)\n"
        "before = set(sys.modules)\n"
        "repr(solution), solution._repr_html_(), repr(problem), repr(nd.calibrate(problem))\n"
        "assert not {'rich', 'pydantic', 'IPython', 'matplotlib'} & set(sys.modules)\n"
        "asked = {'privacy.accounting', 'program.calibration'}\n"
        "assert set(sys.modules) - before <= {f'noisedesign.{name}' for name in asked}"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
