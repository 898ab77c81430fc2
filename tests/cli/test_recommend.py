"""The command that people begin with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import noisedesign as nd
from tests.support.command_line import call
from tests.support.endless import endless as endless

pytestmark = pytest.mark.usefixtures("endless")

RUN = ("--records", "12", "--batch-size", "4", "--epochs", "2", "--epsilon", "1.5")
FIXED = (*RUN, "--fixed-batches", "--weights", "metropolis-hastings")


def edges(folder: Path) -> str:
    path = folder / "path.edges"
    path.write_text("a b\nb c\nc d\n")
    return str(path)


def test_a_file_of_edges(tmp_path: Path) -> None:
    out = tmp_path / "best.npz"
    found = call("recommend", edges(tmp_path), *FIXED, "--trust", "party", "-o", out, "--json")
    assert (found.code, found.err) == (0, "")
    value = found.json()
    first = value["candidates"][0]
    assert first["noise"] == "any covariance"
    assert first["does not hold before"].startswith("the party that deals the noise; nodes that")
    design = nd.load(out).design
    assert design.problem.nodes == ("a", "b", "c", "d")
    assert design.problem.privacy == nd.PrivacyTarget(epsilon=1.5)
    graph = nd.build_graph("path", nodes=4)
    same = nd.recommend(
        graph,
        records=12,
        batch_size=4,
        epochs=2,
        epsilon=1.5,
        trust="a trusted party deals noise",
        random_batches=False,
        weights="metropolis-hastings",
    )
    np.testing.assert_allclose(first["error"], same.records[0]["error"], rtol=1e-6)


def test_people_read_a_table_what_would_change_it_and_code(tmp_path: Path) -> None:
    found = call("recommend", edges(tmp_path), *FIXED, columns=80)
    assert found.code == 0
    assert "independent noise" in found.out
    assert "problem = nd.TimeProblem.from_graph(\n    graph,\n" in found.out
    assert "neighbours share keys" in found.err
    assert "epsilon 2.5 instead of 1.5" in found.err


def test_the_code_makes_the_graph_and_runs_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nodes are in the order of the design, and a node has the first of their names."""
    monkeypatch.chdir(tmp_path)
    Path("z.edges").write_text("d c\nc b 1\nb a\n".replace(" 1", ""))
    path = "whisper/florentine"
    for graph, first in (("z.edges", "a"), ("florentine", "Acciaiuoli"), (path, "Acciaiuoli")):
        found = call("recommend", graph, *FIXED, "-o", "a.npz", columns=80)
        code = found.out[found.out.index("import noisedesign") :]
        assert max(map(len, code.splitlines())) <= 80
        assert f"node={first!r}" in code
        known: dict[str, Any] = {}
        exec(code, known)
        stored = nd.load("a.npz").design
        assert known["design"].problem.nodes == stored.problem.nodes
        np.testing.assert_allclose(known["design"].strategy, stored.strategy, atol=1e-6)
        Path("a.npz").unlink()
    keys = call("recommend", "z.edges", *FIXED, "--trust", "neighbours").out
    assert "# docs/guides/seeds-without-a-dealer.md\nsource =" in keys


def test_the_graph_of_a_problem_file_and_a_graph_by_name() -> None:
    for name in ("whisper/florentine", "florentine"):
        found = call("recommend", name, *FIXED, "--json")
        assert found.code == 0
        assert found.json()["candidates"][0]["noise"] == "over time"


def test_the_page_of_a_recommendation(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    arguments = ("recommend", edges(tmp_path), *FIXED, "--dimension", "1000", "--report", page)
    found = call(*arguments, columns=80)
    assert found.code == 0
    assert max(map(len, found.out.splitlines())) <= 80 + len(str(tmp_path))
    assert "needs    nothing shared" in found.out  # said once for all rows
    text = page.read_text("utf-8")
    assert "Recommended: over time" in text
    assert "bytes kept" in text
    page.write_text("of somebody else")
    again = call(*arguments)
    assert (again.code, "report" in again.err) == (2, True)


def test_words_of_trust_are_both_told(tmp_path: Path) -> None:
    found = call("recommend", edges(tmp_path), *FIXED, "--trust", "server")
    assert found.code == 2
    for word in ("nobody", "neighbours ('neighbours share keys')", "party ('a trusted party"):
        assert word in found.err
    weights = call("recommend", edges(tmp_path), *FIXED[:-1], "fastest-mixing", "--json")
    assert weights.code == 0
    assert "fastest_mixing(graph).mixing" in weights.json()["code"]


def test_designs_under_one_measure(tmp_path: Path) -> None:
    files, errors = [], []
    run: Any = {
        "participation": nd.participation.FixedEpoch(epochs=2, separation=3),
        "privacy": nd.PrivacyTarget(epsilon=1.0),
    }
    measure = nd.ErrorMeasure(horizon=6, of="loss", curvature=[0.1, 0.4], learning_rates=0.5)
    for kind in (nd.SpaceProblem, nd.TimeProblem):
        design = nd.solve(kind.from_graph(nd.build_graph("path", nodes=3), **run)).design
        files.append(nd.save(design, tmp_path / f"{design.axes}.npz"))
        errors.append(nd.evaluate(design, error=measure).error)
    keys = ("of=loss", "curvature=0.1,0.4", "learning_rates=0.5")
    given = [part for key in keys for part in ("--error", key)]
    found = call("evaluate", *files, *given, "--json").json()
    assert [row["error"] for row in found] == pytest.approx(errors)
    assert [row["design"] for row in found] == ["space", "time"]
    assert {row["epsilon"] for row in found} == {1.0}
    for wrong in ("of", "off=1", "curvature=a,b", "horizon=7"):
        refused = call("evaluate", *files, "--error", wrong)
        assert (refused.code, refused.out, refused.err.count("\n")) == (2, "", 1)
        assert "error" in refused.err


def test_baselines_of_several_problems_compare_by_the_error_of_the_run(tmp_path: Path) -> None:
    text = 'name = "{0}"\ndesign = "{0}"\ngraph = {{kind = "path", nodes = 3}}\n'
    text += 'participation = {{kind = "fixed-epoch", epochs = 2, separation = 3}}\n'
    text += "privacy = {{epsilon = 1.0, delta = 1e-6}}\n"
    more = {"space": "", "time": 'workload = {kind = "decentralized"}\n'}
    paths = []
    for kind, last in more.items():
        paths.append(tmp_path / f"{kind}.toml")
        paths[-1].write_text(text.format(kind) + last)
    rows = call("baselines", *paths, "--json").json()
    optimal = {row["name"]: row for row in rows if row["method"] == "optimal"}
    for path in paths:
        design = nd.solve(nd.load(path)).design
        assert design is not None
        expected = nd.evaluate(design).error
        assert optimal[path.stem]["error_of_run"] == pytest.approx(expected)
    ldp = [row["error_of_run"] for row in rows if row["method"] == "ldp"]
    assert ldp[0] == pytest.approx(ldp[1])  # one noise, in the words of two problems
    assert {row["error_of_run"] for row in rows if row["method"] == "cdp"} == {None}
    assert "error of run" in call("baselines", *paths).out
    assert "error of run" not in call("baselines", paths[0]).out
    table = call("compare", *paths, "--backends", "native")
    assert "error of run" in table.out


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("nowhere", *FIXED), "graph: expected one of florentine"),
        (("nowhere.edges", *FIXED), "graph: expected a readable edge list"),
        (("missing.toml", *FIXED), "problem"),
        (("prefix/unit", *FIXED), "problem"),
        (("florentine", *FIXED, "--trust", "n"), "trust"),
        (("florentine", *FIXED, "--curvature", "a,b"), "curvature"),
        (("florentine", *FIXED, "--curvature", ".1,.2"), "learning_rate"),
        (("florentine", *FIXED, "--memory", "10"), "dimension"),
        (("florentine", *RUN[:-2]), "--epsilon"),
        (("florentine", *FIXED[:-1], "heavy"), "fastest-mixing"),
    ],
)
def test_bad_input_is_one_line(arguments: tuple[str, ...], named: str) -> None:
    found = call("recommend", *arguments)
    assert (found.code, found.out) == (2, "")
    assert named in found.err
    assert found.err.count("\n") == 1
