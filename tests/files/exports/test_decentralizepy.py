"""decentralizepy: the files that an export writes, as the trainer reads them."""

from __future__ import annotations

import configparser
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import noisedesign as nd
from noisedesign.base.checks import InputError
from noisedesign.files.exports import takers
from noisedesign.noise import Plan
from tests.support.small_designs import PATH_3, TARGET, single_epoch_design, space_design

SCHEME = nd.participation.FixedEpoch(epochs=2, separation=2)
TWICE = replace(TARGET, steps=None)
EDGE_LOCAL = nd.SpaceStructure(kind="edge-local")


def designs() -> dict[str, Any]:
    space = {"mixing": PATH_3, "privacy": TWICE, "participation": SCHEME}
    problems = {
        "space": nd.SpaceProblem(**space),
        "seeds": nd.SpaceProblem(**space, structure=EDGE_LOCAL),
        "time": nd.TimeProblem.decentralized(mixing=PATH_3, participation=SCHEME, privacy=TWICE),
        "space-time": nd.SpaceTimeProblem(**space),
    }
    return {name: nd.solve(problem).design for name, problem in problems.items()}


@pytest.mark.parametrize("kind", ["space", "seeds", "time", "space-time"])
def test_files_are_as_the_trainer_reads_them(kind: str, tmp_path: Path) -> None:
    design = designs()[kind]
    main, config, graph, *plans = nd.export(
        design, to="decentralizepy", path=tmp_path / "run.json", problem_text="words"
    )
    # Graph.read_graph_from_file: a number of processes, then edges, nothing else.
    first, *lines = graph.read_text().splitlines()
    assert (int(first), [tuple(map(int, line.split())) for line in lines]) == (3, [(0, 1), (1, 2)])
    # testing.py: sections of keys and values.
    parser = configparser.ConfigParser()
    parser.read_string(config.read_text())
    assert parser.sections() == ["TRAIN_PARAMS", "SHARING"]
    training = dict(parser["TRAIN_PARAMS"])
    assert training["full_epochs"] == training["shuffle"] == "False"
    assert training["rounds"] == "1"
    assert training["training_class"] == "NoisyTraining"
    assert parser["SHARING"]["sharing_class"] == "DesignedSharing"
    assert training["plans"] == parser["SHARING"]["plans"] == str(tmp_path / "run")
    # A file a node, each with its part alone.
    assert [path.name for path in plans] == ["run-0.plan", "run-1.plan", "run-2.plan"]
    for node, path in enumerate(plans):
        plan = Plan.load(path)
        assert plan.node == node
        assert plan.digest == design.node_plan(node).digest
        assert dict(plan.weights) == {v: w for v, w in enumerate(PATH_3[node]) if w}
        assert plan.claim.batch_size is None  # noise goes to the sum
    said = json.loads(main.read_text("utf-8"))
    assert (said["to"], said["protected_unit"]) == ("decentralizepy", "one example")
    assert said["mu"] == pytest.approx(plan.claim.mu)
    assert said["horizon"] == 4
    assert "begins its data anew" in said["note"]
    assert said["problem"] == "words"
    assert "-ps 3 -ms 1 -is 4 " in said["commands"][-1]


def test_what_it_cannot_hold_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    for design, words in (
        (space_design(), "privacy: expected a target"),
        (single_epoch_design(), "got no graph"),
        (replace(space_design(), trust="central"), "trusted server"),
    ):
        with pytest.raises(InputError, match=words):
            nd.export(design, to="decentralizepy", path=path)
    random = nd.SpaceTimeProblem(
        mixing=PATH_3,
        privacy=TWICE,
        participation=SCHEME,
        random=nd.graphs.NodeDropout(mixing=PATH_3, probability=0.1),
    )
    with pytest.raises(InputError, match="drawn at every step"):
        nd.export(nd.solve(random), to="decentralizepy", path=path)
    assert "decentralizepy" in takers(designs()["seeds"])
    assert "decentralizepy" not in takers(space_design())
    for suffix in (".ini", ".edges"):
        with pytest.raises(InputError, match=r"output: expected a name in \.json"):
            nd.export(designs()["space"], to="decentralizepy", path=tmp_path / f"run{suffix}")
    assert list(tmp_path.iterdir()) == []


def test_an_export_is_replaced_by_the_next_and_nothing_else_is(tmp_path: Path) -> None:
    made = designs()
    nd.export(made["seeds"], to="decentralizepy", path=tmp_path / "run.json")
    nd.export(made["time"], to="decentralizepy", path=tmp_path / "run.json")
    assert Plan.load(tmp_path / "run-1.plan").digest == made["time"].node_plan(1).digest
    (tmp_path / "mine.edges").write_text("3\n0 2\n")
    with pytest.raises(InputError, match="output: expected a new file"):
        nd.export(made["time"], to="decentralizepy", path=tmp_path / "mine.json")
    assert (tmp_path / "mine.edges").read_text() == "3\n0 2\n"
    np.testing.assert_array_equal(sorted(tmp_path.glob("mine*")), [tmp_path / "mine.edges"])
