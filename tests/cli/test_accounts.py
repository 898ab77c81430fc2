"""`noisedesign account FILE.toml`: numbers against dense views, and what it refuses."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from noisedesign.files.design_file import save_design
from noisedesign.mechanisms.baselines import baseline
from noisedesign.problem.problem import SpaceProblem
from tests.support import ROOT, oracles, pages
from tests.support.command_line import EPOCHS, PREFIX, Outcome, call, write
from tests.support.path_of_three import STEPS, assert_sensitive, gram, messages
from tests.support.small_designs import PATH_3, space_design, time_design

PATH = f"""[graph]
kind = "path"
nodes = 3

[participation]
kind = "every-step"
horizon = {STEPS}

[algorithm]
kind = "dp-d-sgd"

[observer]
adjacency = "zero-out"
model = "pndp"
nodes = [0]
responses = "fixed"
"""

KEYS = [
    *("node", "distance", "sensitivity_squared", "which", "mu", "epsilon", "delta", "adjacency"),
    *("responses", "theorem"),
]


def assert_refused(outcome: Outcome, field: str, *words: str) -> None:
    assert (outcome.code, outcome.out) == (2, ""), outcome
    assert outcome.err.startswith(f"noisedesign: error: {field}"), outcome.err
    assert outcome.err.count("\n") == 1
    assert all(word in outcome.err for word in words), outcome.err


def edited(text: str, *changes: tuple[str, str]) -> str:
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return text


# --- numbers --------------------------------------------------------------------------------


def accounted(text: str, folder: Path, *options: object) -> list[dict[str, object]]:
    outcome = call("account", write(folder, text, "a.toml"), "--json", *options)
    assert (outcome.code, outcome.err) == (0, ""), outcome
    records = outcome.json()
    assert isinstance(records, list)
    return records


NEIGHBOUR, WITH_OWN = [1], [0, 1]
VIEWS: dict[str, tuple[str, list[int], list[int]]] = {
    "pndp": ("", NEIGHBOUR, [0]),
    "pndp by value": ('own_noise = "values"\n', NEIGHBOUR, [0]),
    "pndp counted": ('own_noise = "counted"\n', WITH_OWN, []),
}


@pytest.mark.parametrize("rounds", [1, 2])
@pytest.mark.parametrize(("option", "seen", "known"), list(VIEWS.values()), ids=list(VIEWS))
def test_a_neighbour(
    option: str, seen: list[int], known: list[int], rounds: int, tmp_path: Path
) -> None:
    text = PATH + option
    if rounds > 1:
        text = edited(text, ('"dp-d-sgd"', f'"muffliato"\nrounds = {rounds}'))
    records = accounted(text, tmp_path)
    assert [(r["node"], r["distance"], list(r)) for r in records] == [
        ("1", 1, [*KEYS, "note"]),
        ("2", 2, [*KEYS, "note"]),
    ]
    sent = messages(rounds)
    if known:
        # Own noise and gradients are known, so own messages are: they carry nothing else.
        sent = sent.copy()
        sent[:, :, 0::3] = 0
    for record, victim in zip(records, (1, 2), strict=True):
        assert_sensitive(record, gram(sent[:, seen], victim, known))
        assert record["which"] == "vector-exact"


def test_secure_sum_sees_one_row(tmp_path: Path) -> None:
    records = accounted(edited(PATH, ('"pndp"', '"secure-sum"')), tmp_path)
    sent = messages()
    sums = np.einsum("v,tvc->tc", PATH_3[0], sent)
    for record, victim in zip(records, (1, 2), strict=True):
        assert_sensitive(record, gram(sums[:, None], victim, [0]))


PARTICIPATIONS = {
    'kind = "single"\nhorizon = 4': [[0], [1], [2], [3]],
    "epochs = 2\nseparation = 2": [[0, 2], [1, 3]],
    'kind = "min-separation"\nhorizon = 4\nseparation = 3\nmax_participations = 2': [[0, 3], [1]],
    'kind = "patterns"\nhorizon = 4\npatterns = [[3], [2, 1]]': [[3], [1, 2]],
}


@pytest.mark.parametrize(("table", "patterns"), list(PARTICIPATIONS.items()))
def test_participation_counts(table: str, patterns: list[list[int]], tmp_path: Path) -> None:
    text = edited(PATH, (f'kind = "every-step"\nhorizon = {STEPS}', table))
    sent = messages()
    for record, victim in zip(accounted(text, tmp_path), (1, 2), strict=True):
        assert_sensitive(record, gram(sent[:, NEIGHBOUR], victim, [0]), patterns)


@pytest.mark.parametrize(
    ("adjacency", "factor"),
    [
        ("", 2),
        ('adjacency = "zero-out"\n', 1),
        ('adjacency = "add-remove"\n', 1),
        ('adjacency = "replace"\n', 2),
    ],
)
def test_scale_of_noise_and_of_a_step(adjacency: str, factor: float, tmp_path: Path) -> None:
    """An outsider of all messages: sensitivity^2 = 4 steps; mu = 2 * factor / multiplier."""
    text = edited(
        PATH,
        ('"dp-d-sgd"', '"dp-d-sgd"\nnoise_multiplier = 2.5'),
        ('"pndp"\nnodes = [0]', '"ldp"'),
        ('adjacency = "zero-out"\n', adjacency),
    )
    records = accounted(text + "delta = 1e-4\n", tmp_path)
    assert [record["node"] for record in records] == ["0", "1", "2"]
    for record in records:
        assert record["distance"] is None
        assert record["sensitivity_squared"] == pytest.approx(STEPS, rel=1e-12)
        mu, epsilon = 2 * factor / 2.5, float(record["epsilon"])  # type: ignore[arg-type]
        assert record["mu"] == pytest.approx(mu, rel=1e-12)
        assert oracles.gaussian_delta(mu, epsilon) == pytest.approx(1e-4, rel=1e-6)
        stated = adjacency.removeprefix("adjacency = ").strip('"\n') or "replace"
        assert (record["delta"], record["adjacency"]) == (1e-4, stated)


def test_secldp_without_a_seed(tmp_path: Path) -> None:
    """DECOR on the path, edge 1-2 known: R = I + 4 L of edge 0-1 alone, and node 2 by itself."""
    text = edited(
        PATH,
        ('"dp-d-sgd"', '"decor"\nedge_stddev = 2.0'),
        ('"pndp"\nnodes = [0]', '"secldp"\nknown_seeds = [[1, 2]]'),
    )
    inverse = np.linalg.inv(np.array([[5.0, -4], [-4, 5]])).diagonal()
    squared = [record["sensitivity_squared"] for record in accounted(text, tmp_path)]
    assert squared == pytest.approx([*STEPS * inverse, STEPS], rel=1e-9)


def test_known_noise_is_infinite_in_words(tmp_path: Path) -> None:
    text = edited(PATH, ('"pndp"\nnodes = [0]', '"shared-seed"\nnodes = [2]'))
    records = accounted(text, tmp_path)
    assert [record["node"] for record in records] == ["0", "1"]
    for record in records:
        assert list(record) == [*KEYS, "note"]
        for key in ("sensitivity_squared", "mu", "epsilon"):
            assert record[key] == "infinite"
        assert record["which"] == "unbounded"
        assert "without unknown noise" in str(record["note"])
    lines = call("account", tmp_path / "a.toml").out.splitlines()
    for name in ("sensitivity squared", "mu", "epsilon"):  # of both, said once
        assert [line.split()[-1] for line in lines if line.startswith(f"{name} ")] == ["infinite"]
    assert any("without unknown noise" in line for line in lines)


def test_nothing_reaches_the_observer(tmp_path: Path) -> None:
    """One step: node 2 is two hops away, and its message has not arrived."""
    records = accounted(edited(PATH, ("horizon = 4", "horizon = 1")), tmp_path)
    assert [record["mu"] for record in records] == [pytest.approx(1), 0]
    assert (records[1]["sensitivity_squared"], records[1]["epsilon"]) == (0, 0)
    note = "nothing this node sends reaches the observer"
    assert records[1]["note"] == note
    assert "note" not in records[0]
    assert note in call("account", tmp_path / "a.toml").out


def test_victims_come_in_the_order_of_the_nodes(tmp_path: Path) -> None:
    everybody = {record["node"]: record for record in accounted(PATH, tmp_path)}
    chosen = accounted(PATH + 'victims = ["2", 1]\n', tmp_path)
    assert [record["node"] for record in chosen] == ["1", "2"]
    assert all(record == everybody[record["node"]] for record in chosen)
    (one,) = accounted(PATH + 'victims = ["2"]\n', tmp_path)
    assert one == everybody["2"]


# --- what is shown ---------------------------------------------------------------------------


def test_the_table_and_what_it_means(tmp_path: Path) -> None:
    text = 'name = "three nodes"\n' + PATH + "delta = 1e-4\n"
    text = edited(text, ('"zero-out"', '"replace"'), ('-sgd"', '-sgd"\nnoise_multiplier = 3'))
    outcome = call("account", write(tmp_path, text))
    assert outcome.code == 0
    for word in (
        "three nodes",
        "sensitivity squared",
        "epsilon",
        "vector-exact",
        "0.0001",
        "replace",
    ):
        assert word in outcome.out
    assert outcome.err.count("\n") == 2
    for word in (
        "node 0: received messages, own seeds",
        "dp-d-sgd",
        "noise multiplier 3",
        "adjacency replace",
        "twice the clip",
        "delta = 0.0001",
        "(4, 1)",
    ):
        assert word in outcome.err


def test_progress_and_picture(tmp_path: Path) -> None:
    picture = tmp_path / "p.png"
    outcome = call("account", write(tmp_path, PATH), "--json", "-o", picture, watched=True)
    assert len(outcome.json()) == 2
    assert "accounting: 2/2 nodes\n" in outcome.err
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_accounts_are_found_in_the_problems_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    outcome = call("account", "accounts/florentine-pndp.toml", "--json")
    assert (outcome.code, outcome.err) == (0, "")
    records = outcome.json()
    assert len(records) == 14
    # The only neighbour of the observer takes part in every step and is seen at every step.
    assert records[0]["node"] == "Medici"
    assert records[0]["mu"] == max(record["mu"] for record in records)


@cache
def shipped(name: str) -> Outcome:
    return call("account", ROOT / "problems/accounts" / f"{name}.toml", "--json")


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, marks=[pytest.mark.slow] * (path.stem == "florentine-convex-pndp"))
        for path in sorted((ROOT / "problems/accounts").glob("*.toml"))
    ],
    ids=lambda path: path.stem,
)
def test_shipped_accounts_have_numbers(path: Path) -> None:
    outcome = shipped(path.stem)
    assert (outcome.code, outcome.err) == (0, "")
    told = pages.section(pages.read("problems/README.md"), "Account files")
    for record in outcome.json():
        assert all(f"`{key}`" in told for key in record)
        if "mu" in record:
            assert 0 < record["mu"] < 20
            declared = {"responses-upper-bound"} if record["theorem"] == 4 else set()
            assert record["which"] in {"vector-exact", "all-messages-upper-bound", *declared}
        else:  # the steps of a record are drawn
            assert 0 < record["epsilon"] < 10
            assert record["which"].split()[0] in ("convolution", "monte-carlo", "renyi")


@pytest.mark.slow
def test_convex_losses_gain_over_any_losses() -> None:
    """Of the two shipped accounts that differ in nothing else; all messages of the steps that can
    have arrived tell one clip each, and the bound is within one per cent of what is reached."""
    any_losses, convex = (
        {row["node"]: row for row in shipped(name).json()}
        for name in ("florentine-pndp", "florentine-convex-pndp")
    )
    table = pages.read("problems/README.md")
    for node, row in convex.items():
        free = any_losses[node]
        assert (row["theorem"], free["theorem"]) == (4, 2)
        assert free["sensitivity_squared"] == pytest.approx(11 - row["distance"])
        assert row["lower_bound"] <= row["sensitivity_squared"] < free["sensitivity_squared"] / 4
        assert 0 <= row["gap"] <= 0.01
    near, far = convex["Barbadori"], convex["Bischeri"]
    assert (near["distance"], far["distance"]) == (2, 4)
    assert (
        f"of a family two hops away mu is {near['mu']:.2f} in the place of "
        f"{any_losses['Barbadori']['mu']:g}, four hops away {far['mu']:.2f} in the place of "
        f"{any_losses['Bischeri']['mu']:.2f}"
    ) in table


def test_any_name_will_do(tmp_path: Path) -> None:
    expected = accounted(PATH, tmp_path)
    assert call("account", write(tmp_path, PATH, "a.txt"), "--json").json() == expected


# --- what is refused ------------------------------------------------------------------------

REFUSED: dict[str, tuple[str, str, str]] = {
    "victim looks": (PATH + "victims = [0, 1]\n", "observer.victims: ", "0, who looks"),
    "unknown node": (
        edited(PATH, ("nodes = [0]", 'nodes = ["Medici"]')),
        "observer.nodes: ",
        "0, 1, 2",
    ),
    "pattern outside": (
        edited(PATH, ('"every-step"', '"patterns"\npatterns = [[0, 4]]')),
        "participation.patterns: ",
        "steps 0 to 3",
    ),
    "noise not finite": (
        edited(PATH, ('"dp-d-sgd"', '"dp-d-sgd"\nnoise_multiplier = inf')),
        "algorithm.noise_multiplier: ",
        "inf",
    ),
    "negative noise": (
        edited(PATH, ('"dp-d-sgd"', '"dp-d-sgd"\nnoise_multiplier = -1.0')),
        "algorithm.noise_multiplier: ",
        "-1",
    ),
    "unknown model": (edited(PATH, ('"pndp"', '"pdnp"')), "observer.model: ", "Did you mean pndp?"),
    "no such seeds": (
        edited(PATH, ('"pndp"\nnodes = [0]', '"secldp"\nknown_seeds = [[0, 1]]')),
        "observer.known_seeds: ",
        "seeds that dp-d-sgd has",
    ),
    "no such edge": (
        edited(
            PATH,
            ('"dp-d-sgd"', '"decor"\nedge_stddev = 1.0'),
            ('"pndp"\nnodes = [0]', '"secldp"\nknown_seeds = [["0", "2"]]'),
        ),
        "observer.known_seeds: ",
        "seeds that decor has",
    ),
    "everybody looks": (
        edited(PATH, ("nodes = [0]", "nodes = [0, 1, 2]")),
        "observer.nodes: ",
        "all 3",
    ),
    "no graph": (edited(PATH, ('[graph]\nkind = "path"\nnodes = 3\n', "")), "graph: ", "[graph]"),
    "key of another kind": (
        edited(PATH, ('"dp-d-sgd"', '"dp-d-sgd"\nrounds = 2')),
        "algorithm.rounds: ",
        "kind",
    ),
    "a problem": (EPOCHS, "design: ", "problem files"),
}


@pytest.mark.parametrize(("text", "field", "words"), list(REFUSED.values()), ids=list(REFUSED))
@pytest.mark.parametrize("json", [(), ("--json",)])
def test_refused(text: str, field: str, words: str, json: tuple[str, ...], tmp_path: Path) -> None:
    assert_refused(call("account", write(tmp_path, text), *json), field, words)


def test_designs_that_are_refused(tmp_path: Path) -> None:
    path = save_design(time_design(), tmp_path / "d.npz")
    stored = PATH.replace('"dp-d-sgd"', '"design"\nfile = "d.npz"')
    assert call("account", write(tmp_path, stored)).code == 0
    short = write(tmp_path, edited(stored, ("horizon = 4", "horizon = 5")))
    assert_refused(call("account", short), "algorithm.file: ", "at least 5 steps", "got one of 4")
    path.write_bytes(path.read_bytes()[:-1])
    assert_refused(call("account", write(tmp_path, stored)), "algorithm.file: ", "d.npz")
    assert_refused(call("account", path), "design file: ", "d.npz")
    cdp = save_design(baseline(SpaceProblem(mixing=PATH_3), "cdp"), tmp_path / "c.npz")
    asked = call("account", cdp, "--steps", 1, "--json", "--adjacency", "zero-out")
    rows = {row["model"]: row for row in json.loads(asked.out)}
    assert {model: row["mu"] for model, row in rows.items() if row["mu"] != "infinite"} == {
        # At budget 1 the average is as noisy as a record that moves it asks for.
        model: pytest.approx(1.0, rel=1e-9)
        for model in ("central", "pndp", "pndp-counted", "secure-sum")
    }


def test_missing_files(tmp_path: Path) -> None:
    assert_refused(call("account", tmp_path / "no.toml"), "account: ", "no.toml")
    assert_refused(call("account", tmp_path / "no.npz"), "design file: ", "no.npz")
    assert_refused(call("account", tmp_path), "account: ", "Is a directory")


def test_options_of_the_other_kind_of_file(tmp_path: Path) -> None:
    path, text = save_design(space_design(), tmp_path / "d.npz"), write(tmp_path, PATH)
    for option in (["--node", "0"], ["--steps", 3], ["--delta", 0.1], ["--adjacency", "replace"]):
        outcome = call("account", text, *option)
        assert_refused(outcome, f"{option[0]} is an option for a design", "noisedesign account")
    picture = tmp_path / "p.png"
    assert_refused(
        call("account", path, "-o", picture), "--output is an option for an account file"
    )
    assert not picture.exists()


def test_options_of_designs(tmp_path: Path) -> None:
    space, time = tmp_path / "s.npz", tmp_path / "t.npz"
    save_design(space_design(), space)
    save_design(time_design(), time)
    assert call("solve", write(tmp_path, PREFIX), "-o", tmp_path / "p.npz").code == 0
    anne = call("account", space, "--steps", 1, "--node", "Anne")
    assert_refused(anne, "node: ", "Did you mean Ann?")
    assert_refused(call("account", space, "--steps", 0), "steps: ", ">= 1")
    assert_refused(call("account", space, "--steps", 1, "--delta", 0), "delta: ", "(0, 1)")
    assert_refused(call("account", time, "--steps", 3), "steps: ", "(2, 2)")
    assert_refused(call("account", tmp_path / "p.npz", "--node", "0"), "node: ", "without a graph")


def test_nodes_that_look_together_are_for_account_files(tmp_path: Path) -> None:
    """The last one alone would look, and learn less than both."""
    path = save_design(space_design(), tmp_path / "s.npz")
    both = call("account", path, "--steps", 1, "--node", "Ann", "--node", "Çelik")
    assert_refused(both, "--node: ", "Ann and Çelik", 'nodes = ["Ann", "Çelik"]', "account file")
