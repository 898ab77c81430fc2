"""A design under every threat model: `noisedesign account DESIGN.npz`, against dense views."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import networkx as nx
import numpy as np
import pytest

import noisedesign as nd
from noisedesign.base.checks import InputError
from noisedesign.files.design_file import save_design
from noisedesign.mechanisms.baselines import baseline
from noisedesign.privacy import views as threats
from noisedesign.privacy.exposure import Exposure
from noisedesign.privacy.runs import FIXED_RESPONSES
from noisedesign.privacy.views import gram as routes
from noisedesign.problem.problem import PrivacyTarget, SpaceProblem
from noisedesign.system.participation import FixedEpoch, every_step, single
from noisedesign.tasks.account import table
from noisedesign.tasks.account.table import Setting, busiest_node, every_model, observer_words
from tests.support import oracles
from tests.support.command_line import PREFIX, call, write
from tests.support.path_of_three import assert_sensitive, gram, messages
from tests.support.small_designs import PATH_3, TARGET, space_design, time_design

MODELS = [
    "ldp",
    "central",
    "pndp",
    "pndp-counted",
    "secure-sum",
    "insider",
    "secldp",
    "shared-seed",
]
UNIT = ("--adjacency", "zero-out")
"""A step changes by one clip, the unit of the dense views."""

KEYS = [
    "model",
    "observer",
    "victim",
    "distance",
    "sensitivity_squared",
    "which",
    "mu",
    "epsilon",
    "responses",
    "theorem",
    "note",
]


def rows_of(path: Path, *options: object) -> dict[str, dict[str, object]]:
    outcome = call("account", path, "--json", "--responses", "fixed", *options)
    assert (outcome.code, outcome.err) == (0, ""), outcome
    rows = outcome.json()
    assert all(list(row) == [*KEYS, "delta", "adjacency"] for row in rows)
    assert len({row["model"] for row in rows}) == len(rows)
    return {row["model"]: row for row in rows}


@pytest.mark.parametrize(
    ("looks", "heard", "victim"), [("Ann", [1], 1), ("Bob, jr.", [0, 2], 0), ("Çelik", [1], 1)]
)
def test_a_space_design_under_every_model(
    looks: str, heard: list[int], victim: int, tmp_path: Path
) -> None:
    """Independent noise on the path, three steps; of two victims alike the first is named."""
    names = ("Ann", "Bob, jr.", "Çelik")
    path = save_design(space_design(), tmp_path / "d.npz")
    rows = rows_of(path, "--steps", 3, "--node", looks, *UNIT)
    assert list(rows) == MODELS
    for model in ("ldp", "insider", "secldp"):
        assert rows[model]["sensitivity_squared"] == pytest.approx(3, rel=1e-12)
    assert (rows["ldp"]["victim"], rows["ldp"]["distance"]) == ("Ann", None)
    assert looks not in str(rows["ldp"]["observer"])
    own = names.index(looks)
    sent = messages(steps=3)
    blind = sent.copy()
    blind[:, :, own::3] = 0
    views = {
        "pndp": (blind[:, heard], [own]),
        "pndp-counted": (sent[:, sorted([own, *heard])], []),
        "secure-sum": (np.einsum("v,tvc->tc", PATH_3[own], blind)[:, None], [own]),
    }
    for model, (seen, known) in views.items():
        assert_sensitive(rows[model], gram(seen, victim, known), [[0, 1, 2]])
        assert (rows[model]["victim"], rows[model]["distance"]) == (names[victim], 1)
        assert looks in str(rows[model]["observer"])
    assert (rows["shared-seed"]["mu"], rows["shared-seed"]["which"]) == ("infinite", "unbounded")
    assert looks in str(rows["shared-seed"]["observer"])
    assert rows["shared-seed"]["victim"] == names[0 if own else 1]
    assert "without unknown noise" in str(rows["shared-seed"]["note"])
    assert "dealt noise has no seeds" in str(rows["secldp"]["note"])
    # Two neighbours, the others one: the one that looks where nobody is named.
    assert "node Bob, jr.:" in str(rows_of(path, "--steps", 3)["pndp"]["observer"])


def test_correlated_noise_is_dealt(tmp_path: Path) -> None:
    """One step of DECOR on the path: an insider learns no more than a reader of all messages."""
    problem = SpaceProblem(mixing=PATH_3, name="decor")
    design = baseline(problem, "decor")
    rows = rows_of(save_design(design, tmp_path / "d.npz"), "--node", "0", "--steps", 1)
    r = np.asarray(design.covariance)
    assert abs(r[0, 1]) > 1e-3
    for model in ("ldp", "insider"):
        assert rows[model]["sensitivity_squared"] == pytest.approx(
            max(np.linalg.inv(r).diagonal()[0 if model == "ldp" else 1 :]), rel=1e-9
        )
    blind = messages(steps=1)
    blind[:, :, 0] = 0
    assert rows["pndp"]["sensitivity_squared"] == pytest.approx(
        gram(blind[:, [1]], 1, [0], r).sum(), rel=1e-9
    )


def test_a_design_at_its_target(tmp_path: Path) -> None:
    """Calibrated for a reader of all messages: exactly epsilon = 3 at delta = 1e-5."""
    space = save_design(space_design(privacy=TARGET), tmp_path / "s.npz")
    time = save_design(time_design(privacy=TARGET), tmp_path / "t.npz")
    five = PrivacyTarget(epsilon=3.0, delta=1e-5, clip=2.0, steps=5)
    longer = save_design(space_design(privacy=five), tmp_path / "l.npz")
    for path, squared in ((space, TARGET.steps), (time, 1), (longer, 5)):
        row = rows_of(path)["ldp"]
        assert row["sensitivity_squared"] == pytest.approx(squared, rel=1e-9)
        assert row["epsilon"] == pytest.approx(3, rel=1e-5)
        assert (row["delta"], row["adjacency"]) == (1e-5, "replace")
    assert "(a step changes by up to twice the clip)" in call("account", longer).err
    mu = float(rows_of(space)["ldp"]["mu"])  # type: ignore[arg-type]
    other = rows_of(space, "--delta", "1e-6", *UNIT)["ldp"]
    assert other["mu"] == pytest.approx(mu / 2, rel=1e-12)
    assert (other["delta"], other["adjacency"]) == (1e-6, "zero-out")
    assert oracles.gaussian_delta(mu / 2, float(other["epsilon"])) == pytest.approx(1e-6, rel=1e-5)  # type: ignore[arg-type]
    assert "delta = 1e-05" in call("account", space).err
    refused = call("account", space, "--steps", 3)
    assert (refused.code, refused.out) == (2, "")
    assert "steps: expected none for a design that is for (k, b) = (4, 1), got 3" in refused.err


def test_how_long_noise_is_used_is_asked_for(tmp_path: Path) -> None:
    """R drawn afresh a step: nothing in the design says for how many, and one is no default."""
    path = save_design(space_design(), tmp_path / "d.npz")
    for options in ([], ["--json"]):
        outcome = call("account", path, *options)
        assert (outcome.code, outcome.out) == (2, "")
        assert "steps: expected how many steps the noise of this spatial design" in outcome.err
    longer = FixedEpoch(epochs=3, separation=4)
    design = space_design()
    stated = replace(design, problem=replace(design.problem, participation=longer))
    row = rows_of(save_design(stated, tmp_path / "k.npz"))["ldp"]
    assert row["sensitivity_squared"] == pytest.approx(3, rel=1e-12)
    assert row["adjacency"] == "replace"
    assert row["mu"] == pytest.approx(2 * 3**0.5, rel=1e-12)


def test_a_time_design_under_every_model(tmp_path: Path) -> None:
    path = save_design(time_design(), tmp_path / "t.npz")
    rows = rows_of(path, *UNIT)
    assert list(rows) == MODELS
    for model in ("ldp", "insider", "secldp"):
        assert rows[model]["sensitivity_squared"] == pytest.approx(1, rel=1e-9)
    assert 0 < float(rows["secure-sum"]["mu"]) < float(rows["pndp"]["mu"]) <= 1 + 1e-9  # type: ignore[arg-type]
    assert "dealt" not in str(rows["secldp"]["note"])
    outcome = call("account", path)
    assert outcome.code == 0
    assert "the observer is b (most neighbours)" in outcome.err
    assert "(2, 2)" in outcome.err
    assert "the observer is c;" in call("account", path, "--node", "c").err


def test_a_design_without_a_graph(tmp_path: Path) -> None:
    assert call("solve", write(tmp_path, PREFIX), "-o", tmp_path / "p.npz").code == 0
    rows = rows_of(tmp_path / "p.npz")
    assert list(rows) == ["ldp", "central", "shared-seed"]
    assert rows["ldp"]["sensitivity_squared"] == pytest.approx(1, rel=1e-6)
    assert rows["ldp"]["victim"] == "every node"
    assert "the design has no graph" in call("account", tmp_path / "p.npz").err


def test_a_network_of_one(tmp_path: Path) -> None:
    design = baseline(SpaceProblem(mixing=np.eye(1), name="alone"), "ldp")
    path = save_design(design, tmp_path / "d.npz")
    assert list(rows_of(path, "--steps", 1)) == ["ldp", "central", "shared-seed"]
    assert "one node" in call("account", path, "--steps", 1).err


def test_a_design_under_another_name(tmp_path: Path) -> None:
    """What a file is, it says itself."""
    path = save_design(space_design(), tmp_path / "design.dat")
    assert list(rows_of(path, "--steps", 1)) == MODELS


def test_observations_too_many_for_one_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other rows keep their numbers, and that one says why it has none."""
    path = save_design(time_design(), tmp_path / "t.npz")
    before = rows_of(path)
    monkeypatch.setattr(routes, "LARGEST", 7)  # two neighbours, four steps
    rows = rows_of(path)
    assert rows["pndp"]["mu"] is None
    assert "no number: " in str(rows["pndp"]["note"])
    assert "shorter horizon" in str(rows["pndp"]["note"])
    for model in ("ldp", "secure-sum", "insider", "shared-seed"):
        assert rows[model] == before[model]


# --- any algorithm --------------------------------------------------------------------------


def test_pairwise_seeds_under_every_model() -> None:
    """DECOR on the path, T = 2, node 0 looks: it holds the seed of edge 0-1, unless not counted."""
    algorithm = threats.decor(mixing=PATH_3, horizon=2, node_variance=1.0, edge_variance=4.0)
    found = every_model(
        Setting(
            algorithm=algorithm,
            participation=every_step(2),
            adjacency="zero-out",
            responses=FIXED_RESPONSES,
        ),
        node=0,
    )
    assert {(row.delta, row.adjacency) for row in found} == {(1e-6, "zero-out")}
    rows = {row.model: row for row in found}
    assert list(rows) == MODELS
    full = np.array([[5.0, -4, 0], [-4, 9, -4], [0, -4, 5]])
    rest = np.array([[1.0, 0, 0], [0, 5, -4], [0, -4, 5]])  # without edge 0-1
    sent = messages(steps=2)
    blind = sent.copy()
    blind[:, :, 0::3] = 0
    sums = np.einsum("v,tvc->tc", PATH_3[0], blind)[:, None]
    views = {
        "ldp": (sent, [], full, 0),
        "pndp": (blind[:, [1]], [0], rest, 1),
        "pndp-counted": (sent[:, [0, 1]], [], full, 1),
        "secure-sum": (sums, [0], rest, 1),
        "insider": (blind, [0], full, 1),
        "secldp": (blind, [0], rest, 1),
    }
    for model, (seen, known, r, first) in views.items():
        grams = [gram(seen, victim, known, r) for victim in range(first, 3)]
        sums_of = [float(np.abs(m).sum()) for m in grams]  # two steps: exactly the elliptope's
        worst = next(i for i, size in enumerate(sums_of) if size > max(sums_of) * (1 - 1e-9))
        row = {"sensitivity_squared": rows[model].sensitivity_squared, "mu": rows[model].mu}
        assert_sensitive(row, grams[worst], [[0, 1]])
        assert rows[model].victim == str(worst + first)
        assert "dealt" not in rows[model].note
    # What is held in common makes the difference, or this would test nothing.
    assert rows["pndp"].mu > 1.05 * rows["pndp-counted"].mu  # type: ignore[operator]
    assert rows["secldp"].mu > 1.05 * rows["insider"].mu  # type: ignore[operator]


def test_scale_and_progress() -> None:
    """A reader of all messages of 4 steps of independent noise, two clips a step: 2 sqrt(4) / 3."""
    algorithm = threats.dp_d_sgd(mixing=PATH_3, horizon=4)
    shown: list[tuple[int, int]] = []
    rows = every_model(
        Setting(algorithm=algorithm, participation=every_step(4), noise_multiplier=3.0),
        node=1,
        progress=lambda done, total: shown.append((done, total)),
    )
    assert rows[0].mu == pytest.approx(4 / 3, rel=1e-12)
    assert shown == [(i, 8) for i in range(1, 9)]


def test_another_horizon_is_an_error() -> None:
    algorithm = threats.dp_d_sgd(mixing=PATH_3, horizon=4)
    with pytest.raises(InputError, match="^participation: "):
        every_model(Setting(algorithm=algorithm, participation=single(5)), node=1)


def test_the_busiest_node() -> None:
    star = nx.to_numpy_array(nx.star_graph(4)) + np.eye(5)
    assert busiest_node(star) == 0
    assert busiest_node(star[::-1, ::-1]) == 4
    assert busiest_node(np.eye(3)) == 0
    one_way = np.array([[1.0, 0, 0], [1, 1, 0], [0, 1, 1]])  # 0 -> 1 -> 2
    assert busiest_node(one_way) == 1
    # A weight a node gives to itself is no neighbour.
    assert busiest_node(np.array([[1.0, 1, 0], [1, 0, 1], [0, 1, 1]])) == 1


@pytest.mark.parametrize(("excess", "victim"), [(1e-12, "0"), (1e-6, "2"), (np.inf, "2")])
def test_the_first_of_those_alike(
    excess: float, victim: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def account(*args: object, **kwargs: object) -> list[Exposure]:
        return [
            Exposure(
                node=str(i),
                distance=1,
                sensitivity_squared=mu,
                which="",
                mu=mu,
                adjacency="replace",
                responses="any",
                theorem=1,
            )
            for i, mu in enumerate([1.0, 0.5, 1.0 + excess])
        ]

    monkeypatch.setattr(table, "account", account)
    algorithm = threats.dp_d_sgd(mixing=PATH_3, horizon=4)
    rows = every_model(Setting(algorithm=algorithm, participation=every_step(4)), node=1)
    assert {row.victim for row in rows} == {victim}


@pytest.mark.parametrize(
    ("observer", "words"),
    [
        (threats.ldp(), "eavesdropper: all messages, no noise"),
        (threats.pndp(nodes=(1,)), "node B: received messages, own seeds"),
        (
            threats.pndp(nodes=(1, 0), own_noise="values"),
            "nodes B and A: received messages, values of own noise",
        ),
        (
            threats.secure_sum(nodes=(0,), own_noise="counted"),
            "node A: weighted sums of received messages, own noise counted as unknown",
        ),
        (threats.insider(nodes=(0,)), "node A: all messages, values of own noise"),
        (threats.tap(nodes=(0, 1, 2)), "eavesdropper: messages sent by A, B and C, no noise"),
        (threats.shared_seed(), "eavesdropper: all messages, all noise"),
        (threats.shared_seed(nodes=(2,)), "node C: all messages, all noise"),
        (
            threats.secldp(nodes=(0,), known_seeds=[(3, 2), 1]),
            "node A: all messages, own seeds, seed of B, seed of C and D",
        ),
        (
            threats.insider(nodes=(0, 1, 2, 3, 4, 5)),
            "nodes A, B, C, D and 2 more: all messages, values of own noise",
        ),
    ],
)
def test_who_looks_in_words(observer: threats.Observer, words: str) -> None:
    assert observer_words(observer, "ABCDEF") == words


# --- a design from Python -------------------------------------------------------------------


def test_an_account_of_a_design_is_that_of_the_command(tmp_path: Path) -> None:
    """A solution, its design and its file, before two observers, and as the row of the command."""
    stored = nd.load(save_design(time_design(), tmp_path / "t.npz"))
    rows = {
        row["model"]: row
        for row in call("account", stored.path, "--json", "--node", "a", "--victim", "b").json()
    }
    looks = {"ldp": nd.observers.ldp(), "pndp": nd.observers.pndp(nodes=["a"])}
    assert rows["ldp"]["mu"] > 0
    for model, observer in looks.items():
        for design in (stored, stored.design):
            (found,) = nd.account(design, observer, victims=["b"])
            for key in ("mu", "epsilon", "delta", "adjacency", "which", "theorem", "distance"):
                assert getattr(found, key) == rows[model][key], (model, key)


def test_an_account_of_a_design_in_space_and_of_what_is_not_its_own() -> None:
    design, outside = space_design(), nd.observers.ldp()
    (once,) = nd.account(design, outside, steps=1, victims=["Ann"])
    (four,) = nd.account(design, outside, steps=4, victims=["Ann"], delta=None)
    assert four.mu == pytest.approx(2 * once.mu, rel=1e-9)  # of a record in each of four steps
    assert (four.epsilon, four.delta, once.delta) == (None, None, 1e-6)
    (half,) = nd.account(
        design, outside, steps=1, victims=["Ann"], delta=1e-3, adjacency="add-remove"
    )
    assert half.mu == pytest.approx(once.mu / 2, rel=1e-9)
    assert half.epsilon == pytest.approx(nd.privacy.epsilon_of(mu=half.mu, delta=1e-3))
    refused: list[tuple[str, dict[str, object]]] = [
        ("steps: expected how many steps", {}),
        ("participation: expected none for a design", {"participation": every_step(3)}),
        ("noise_multiplier: expected none for a design", {"noise_multiplier": 2.0}),
        ("delta: ", {"steps": 1, "delta": 0}),
    ]
    for words, options in refused:
        with pytest.raises(InputError, match=words):
            nd.account(design, outside, **options)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="observer: expected who looks, got nothing"):
        nd.account(design)
    with pytest.raises(InputError, match="algorithm: expected one that noisedesign.privacy.views"):
        nd.account("d.npz", outside)
    algorithm = threats.dp_d_sgd(mixing=[[0.5, 0.5], [0.5, 0.5]], horizon=1)
    with pytest.raises(InputError, match="steps: expected none for an algorithm"):
        nd.account(algorithm, outside, participation=single(1), steps=1)
    with pytest.raises(InputError, match="participation: "):
        nd.account(algorithm, outside)
