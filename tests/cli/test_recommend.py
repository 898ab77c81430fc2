"""The command that people begin with."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import noisedesign as nd
from tests.support.command_line import call

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
    assert "problem = nd.TimeProblem.from_graph(graph," in found.out
    assert "neighbours share keys" in found.err
    assert "epsilon 2.5 instead of 1.5" in found.err


def test_the_graph_of_a_problem_file_and_a_graph_by_name() -> None:
    for name in ("whisper/florentine", "florentine"):
        found = call("recommend", name, *FIXED, "--json")
        assert found.code == 0
        assert found.json()["candidates"][0]["noise"] == "over time"


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("nowhere", *FIXED), "graph.kind"),
        (("missing.toml", *FIXED), "problem"),
        (("prefix/unit", *FIXED), "problem"),
        (("florentine", *FIXED, "--trust", "n"), "trust"),
        (("florentine", *FIXED, "--curvature", "a,b"), "curvature"),
        (("florentine", *FIXED, "--curvature", ".1,.2"), "learning_rate"),
        (("florentine", *FIXED, "--memory", "10"), "dimension"),
        (("florentine", *RUN[:-2]), "--epsilon"),
        (("florentine", *FIXED[:-1], "heavy"), "weights"),
    ],
)
def test_bad_input_is_one_line(arguments: tuple[str, ...], named: str) -> None:
    found = call("recommend", *arguments)
    assert (found.code, found.out) == (2, "")
    assert named in found.err
    assert found.err.count("\n") == 1
