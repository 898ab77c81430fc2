"""Account files and designs of several rounds, of schedules, of scales a node, of a server."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from noisedesign.base.checks import InputError
from noisedesign.design.solve import solve
from noisedesign.files.design_file import save_design
from noisedesign.mechanisms.algorithms import of_design
from noisedesign.mechanisms.baselines import baseline
from noisedesign.privacy import views
from noisedesign.privacy.exposure import account
from noisedesign.problem.problem import SpaceProblem, SpaceTimeProblem, TimeProblem
from noisedesign.system.graph import build_graph, mixing_matrix
from noisedesign.system.participation import FixedEpoch, single
from noisedesign.system.random_mixing import EdgeDropout
from noisedesign.tasks.account.request import parse_account
from noisedesign.tasks.account.table import every_model, setting_of
from tests.support.command_line import call, write

RING = '[graph]\nkind = "ring"\nnodes = 5\n'
OVER = '[participation]\nkind = "single"\nhorizon = 2\n'
NEAR = '[observer]\nmodel = "pndp"\nnodes = [0]\n'
W = mixing_matrix(build_graph("ring", nodes=5))


def asked(algorithm: str, *, graph: str = RING, observer: str = NEAR, folder: Path) -> Any:
    return parse_account(f"{graph}{OVER}[algorithm]\n{algorithm}{observer}", folder=folder)


KINDS = {
    "antipgd": "",
    "d-mf": "",
    "mafalda": "",
    "decor": "edge_stddev = 1.5\n",
    "whisper": "",
    "zip-dl": "",
    "muffliato": "",
}


@pytest.mark.parametrize("kind", KINDS)
def test_rounds_of_every_kind(kind: str, tmp_path: Path) -> None:
    text = f'kind = "{kind}"\n{KINDS[kind]}'
    request = asked(f"{text}rounds = 3\n", folder=tmp_path)
    assert request.algorithm.rounds == 3
    if kind != "muffliato":
        assert asked(text, folder=tmp_path).algorithm.rounds == 1
    found = {e.node: e.mu for e in request.run()}
    # Two hops away in one step: seen in the second round of it.
    assert found["2"] > 0
    with pytest.raises(InputError) as caught:
        asked(f"{text}rounds = 0\n", folder=tmp_path)
    assert caught.value.field == "algorithm.rounds"


def test_what_is_optimal_is_so_for_all_rounds(tmp_path: Path) -> None:
    """The Whisper of an account of K rounds is the design for K rounds."""
    request = asked('kind = "whisper"\nrounds = 3\n', folder=tmp_path)
    design = solve(SpaceProblem(mixing=W, rounds=3)).design
    assert design is not None
    factor = request.algorithm.noise.factor
    np.testing.assert_allclose(factor @ factor.T, design.covariance, rtol=1e-6)


def test_scales_by_list_and_by_name(tmp_path: Path) -> None:
    outside = '[observer]\nmodel = "ldp"\nadjacency = "zero-out"\n'
    listed = asked(
        'kind = "dp-d-sgd"\nnoise_multiplier = [1.0, 2.0, 4.0, 5.0, 8.0]\n',
        observer=outside,
        folder=tmp_path,
    )
    assert [e.mu for e in listed.run()] == pytest.approx([1, 1 / 2, 1 / 4, 1 / 5, 1 / 8])
    named = asked(
        'kind = "dp-d-sgd"\n[algorithm.noise_multiplier]\n'
        "4 = 8.0\n3 = 5.0\n2 = 4.0\n1 = 2.0\n0 = 1.0\n",
        observer=outside,
        folder=tmp_path,
    )
    assert [e.mu for e in named.run()] == [e.mu for e in listed.run()]
    path = write(
        tmp_path,
        f'{RING}{OVER}{outside}[algorithm]\nkind = "dp-d-sgd"\n'
        "noise_multiplier = [1.0, 2.0, 4.0, 5.0, 8.0]\n",
    )
    told = call("account", path)
    assert told.code == 0
    assert "noise multiplier 1 to 8, one a node" in told.err


@pytest.mark.parametrize(
    "value", ["[1.0]", "[1.0, 1.0, 1.0, 1.0, 0.0]", "{0 = 1.0}", "{x = 1.0}", '"2"', '["a"]', "0.0"]
)
def test_wrong_scales(value: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        asked(f'kind = "decor"\nedge_stddev = 1.0\nnoise_multiplier = {value}\n', folder=tmp_path)
    assert caught.value.field.startswith("algorithm.noise_multiplier")


@pytest.mark.parametrize("kind", ["dp-d-sgd", *sorted(set(KINDS) - {"muffliato", "whisper"})])
def test_a_schedule_of_edge_lists(kind: str, tmp_path: Path) -> None:
    (tmp_path / "odd.edges").write_text("a b\nc d\n")
    (tmp_path / "even.edges").write_text("b c\nd a\n")
    graph = '[graph]\nkind = "schedule"\nfiles = ["odd.edges", "even.edges"]\n'
    near = '[observer]\nmodel = "pndp"\nnodes = ["a"]\nresponses = "fixed"\n'
    text = f'kind = "{kind}"\n{KINDS.get(kind, "")}'
    request = asked(text, graph=graph, observer=near, folder=tmp_path)
    assert request.algorithm.schedule.shape == (2, 4, 4)
    found = {e.node: e for e in request.run()}
    assert all(e.mu > 0 for e in found.values())
    # c is heard through b and d, at the second step, of what it added at the first.
    assert found["b"].mu > found["c"].mu


def test_central_dp_beside_all_others(tmp_path: Path) -> None:
    outside = '[observer]\nmodel = "central"\nadjacency = "zero-out"\n'
    for noise, mu in (("sigma^2/n", 5**-0.5), ("sigma^2/n^2", 1.0)):
        text = f'kind = "cdp"\nserver_noise = "{noise}"\n'
        request = asked(text, observer=outside, folder=tmp_path)
        assert [e.mu for e in request.run()] == pytest.approx([mu] * 5, rel=1e-9)
        rows = {row.model: row for row in every_model(request, node=0)}
        assert rows["central"].mu == pytest.approx(mu, rel=1e-9)
        assert rows["pndp"].mu == pytest.approx(mu, rel=1e-9)
        for model in ("ldp", "insider", "secldp", "shared-seed"):
            assert rows[model].mu == np.inf
        assert "mean of the models" in rows["central"].observer
    with pytest.raises(InputError) as caught:
        asked('kind = "cdp"\n', observer=outside, folder=tmp_path)
    assert caught.value.field == "algorithm.server_noise"
    with pytest.raises(InputError, match="a server adds"):
        asked(f"{text}noise_multiplier = [1.0, 1.0, 1.0, 1.0, 1.0]\n", folder=tmp_path)


SCHEME = FixedEpoch(epochs=2, separation=2)


def test_designs_of_a_trusted_server() -> None:
    """At unit sensitivity of the average, whatever the axes: 1 before who gets it."""
    for problem in (
        SpaceProblem(mixing=W),
        TimeProblem.decentralized(mixing=W, participation=SCHEME),
        TimeProblem.prefix(participation=SCHEME),
        SpaceTimeProblem(mixing=W, participation=SCHEME),
    ):
        design = baseline(problem, "cdp")
        steps = 1 if problem.axes == "space" else None
        setting = setting_of(design, steps=steps, adjacency="zero-out")
        rows = {row.model: row for row in every_model(setting, node=0)}
        assert rows["central"].mu == pytest.approx(1.0, rel=1e-6)
        assert rows["ldp"].mu == np.inf


@pytest.mark.parametrize("how", [{"rounds": 3}, {"mixing": [W, (np.eye(5) + W) / 2]}])
def test_designs_of_rounds_and_schedules_under_every_model(
    how: dict[str, Any], tmp_path: Path
) -> None:
    problem = TimeProblem.decentralized(**({"mixing": W, "participation": SCHEME} | how))
    design = solve(problem).design
    assert design is not None
    path = save_design(design, tmp_path / "d.npz")
    told = call("account", path, "--json", "--node", "0", "--adjacency", "zero-out")
    assert told.code == 0
    rows = {row["model"]: row["mu"] for row in json.loads(told.out)}
    assert rows["ldp"] == pytest.approx(1.0, rel=1e-6)
    assert rows["central"] <= rows["pndp"] <= 1 + 1e-9
    algorithm = views.mf_d_sgd(
        mixing=how.get("mixing", W), strategy=design.strategy, rounds=how.get("rounds", 1)
    )
    found = account(algorithm, views.pndp(nodes=(0,)), participation=SCHEME, adjacency="zero-out")
    assert rows["pndp"] == pytest.approx(max(e.mu for e in found), rel=1e-9)


def test_designs_for_w_that_is_drawn_are_bounded() -> None:
    """Nobody knows which W a neighbour will see: it is counted as a reader of all messages."""
    problem = SpaceProblem(mixing=W, random=EdgeDropout(mixing=W, probability=0.2))
    design = solve(problem).design
    assert design is not None
    setting = setting_of(design, steps=2, adjacency="zero-out")
    rows = {row.model: row for row in every_model(setting, node=0)}
    for model in ("central", "pndp", "pndp-counted", "secure-sum"):
        assert rows[model].which == "all-messages-upper-bound"
        assert rows[model].mu <= rows["ldp"].mu * (1 + 1e-9)  # type: ignore[operator]
        assert "at most this" in rows[model].note
    assert rows["ldp"].which == "vector-exact"
    assert rows["pndp"].mu == pytest.approx(rows["insider"].mu, rel=1e-9)
    assert rows["shared-seed"].which == "unbounded"
    # On a W of one's own it is that one, and the account is exact again.
    fixed = of_design(design, participation=single(2), mixing=W)
    found = account(
        fixed,
        views.pndp(nodes=(0,)),
        participation=single(2),
        adjacency="zero-out",
        responses="fixed",
    )
    assert {e.which for e in found} == {"vector-exact"}
    assert max(e.mu for e in found) < rows["pndp"].mu  # type: ignore[operator]
