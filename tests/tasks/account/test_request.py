"""Account files: every key, and every way to get one wrong."""

from __future__ import annotations

import math
import re
import tomllib
from pathlib import Path
from typing import Any, get_args

import networkx as nx
import numpy as np
import pytest
from scipy.stats import norm

import noisedesign as nd
from noisedesign.base.checks import InputError
from noisedesign.files import account_file, tables
from noisedesign.files.design_file import save_design
from noisedesign.files.schema import Table
from noisedesign.privacy import views as threats
from noisedesign.privacy.target import PrivacyTarget
from noisedesign.privacy.views.noise import MessageNoise, NodeNoise
from noisedesign.system.graph import mixing_matrix
from noisedesign.system.participation import FixedEpoch, MinSeparation, Participation, Patterns
from noisedesign.tasks.account.request import AccountRequest, load_account, parse_account
from tests.support import ROOT
from tests.support.small_designs import PATH_3, single_epoch_design, space_design, time_design

PROBLEMS = ROOT / "problems"
SHIPPED = sorted((PROBLEMS / "accounts").glob("*.toml"))

FLORENTINE = '[graph]\nkind = "florentine"\n'
PATH = '[graph]\nkind = "path"\nnodes = 3\n'
ONCE = '[participation]\nkind = "single"\nhorizon = 4\n'
DP_D_SGD = '[algorithm]\nkind = "dp-d-sgd"\n'
LDP = '[observer]\nmodel = "ldp"\n'
PNDP = '[observer]\nmodel = "pndp"\nnodes = [0]\n'
DESIGN = '[algorithm]\nkind = "design"\nfile = "d.npz"\n'


def account(
    graph: str = PATH,
    participation: str = ONCE,
    algorithm: str = DP_D_SGD,
    observer: str = PNDP,
    top: str = "",
) -> str:
    return top + graph + participation + algorithm + observer


def parse(text: str, folder: Path | str = ".") -> AccountRequest:
    return parse_account(text, folder=folder)


# --- what a file says -----------------------------------------------------------------------


def test_what_nobody_states_is_that_of_the_design(tmp_path: Path) -> None:
    """Another delta or a shorter participation by default would print an epsilon of another run."""
    run = nd.participation.FixedEpoch(epochs=2, separation=3)
    target = nd.PrivacyTarget(epsilon=8.0, delta=1e-5, adjacency="zero-out")
    graph = nx.path_graph(3)
    problem = nd.TimeProblem.from_graph(graph, participation=run, privacy=target)
    nd.save(nd.baseline(problem, "ldp"), tmp_path / "d.npz")
    request = parse(DESIGN + LDP, tmp_path)
    assert (request.participation, request.delta, request.adjacency) == (run, 1e-5, "zero-out")
    assert max(one.epsilon for one in request.run()) == pytest.approx(8.0)
    stated = LDP + "delta = 1e-6\nadjacency = 'replace'\n"
    other = parse(DESIGN + ONCE.replace("4", "6") + stated, tmp_path)
    assert (other.participation.largest_size, other.delta, other.adjacency) == (1, 1e-6, "replace")


def test_defaults() -> None:
    request = parse(account())
    assert (request.name, request.noise_multiplier, request.delta) == ("account", 1.0, 1e-6)
    assert request.adjacency == "replace"
    assert request.victims is None
    assert request.algorithm.name == "dp-d-sgd"
    assert request.algorithm.nodes == ("0", "1", "2")
    np.testing.assert_array_equal(request.algorithm.mixing, mixing_matrix(nx.path_graph(3)))
    assert request.observer == threats.pndp(nodes=(0,))
    assert request.participation == FixedEpoch(epochs=1, separation=4)


def test_everything() -> None:
    request = parse(
        account(
            FLORENTINE + 'weights = "max-degree"\n',
            top='name = "n"\ndescription = "d"\n',
            algorithm=DP_D_SGD + "noise_multiplier = 2\n",
            observer=PNDP + 'own_noise = "values"\ndelta = 0.5\nadjacency = "zero-out"\n'
            'victims = ["Pazzi", 2, "Medici"]\n',
        )
    )
    graph = nx.florentine_families_graph()
    names = tuple(graph)
    assert (request.name, request.noise_multiplier, request.delta) == ("n", 2.0, 0.5)
    assert request.adjacency == "zero-out"
    assert request.algorithm.nodes == names
    np.testing.assert_array_equal(
        request.algorithm.mixing, mixing_matrix(graph, weights="max-degree")
    )
    assert request.observer == threats.pndp(nodes=(0,), own_noise="values")
    # In the order of the nodes, however they were asked for.
    assert request.victims == tuple(sorted([names.index("Pazzi"), 2, names.index("Medici")]))


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        ("epochs = 3\nseparation = 2\n", FixedEpoch(epochs=3, separation=2)),
        ('kind = "fixed-epoch"\nepochs = 3\nseparation = 2\n', FixedEpoch(epochs=3, separation=2)),
        ('kind = "single"\nhorizon = 6\n', FixedEpoch(epochs=1, separation=6)),
        ('kind = "every-step"\nhorizon = 6\n', FixedEpoch(epochs=6, separation=1)),
        (
            'kind = "min-separation"\nhorizon = 6\nseparation = 2\nmax_participations = 3\n',
            MinSeparation(horizon=6, separation=2, max_participations=3),
        ),
        (
            'kind = "patterns"\nhorizon = 6\npatterns = [[0, 4], [5]]\n',
            Patterns(horizon=6, steps=((0, 4), (5,))),
        ),
    ],
)
def test_participation(table: str, expected: Participation) -> None:
    request = parse(account(participation="[participation]\n" + table))
    assert request.participation == expected
    assert request.algorithm.horizon == 6


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        ('model = "ldp"\n', threats.ldp()),
        ('model = "pndp"\nnodes = ["Medici"]\n', threats.pndp(nodes=(1,))),
        (
            'model = "pndp"\nnodes = [3, "Medici"]\nown_noise = "counted"\n',
            threats.pndp(nodes=(3, 1), own_noise="counted"),
        ),
        (
            'model = "secure-sum"\nnodes = [0]\nown_noise = "values"\n',
            threats.secure_sum(nodes=(0,), own_noise="values"),
        ),
        ('model = "insider"\nnodes = [0]\n', threats.insider(nodes=(0,))),
        ('model = "tap"\nnodes = [0, 4]\n', threats.tap(nodes=(0, 4))),
        ('model = "shared-seed"\n', threats.shared_seed()),
        ('model = "shared-seed"\nnodes = [2]\n', threats.shared_seed(nodes=(2,))),
        ('model = "secldp"\n', threats.secldp()),
        (
            'model = "secldp"\nnodes = [0]\n'
            'known_seeds = [2, [3, 4], "Medici", ["Medici", "Pazzi"], ["Pazzi", 0]]\n',
            threats.secldp(nodes=(0,), known_seeds=[2, (3, 4), 1, (1, 10), (10, 0)]),
        ),
    ],
)
def test_observers(table: str, expected: threats.Observer) -> None:
    names = tuple(nx.florentine_families_graph())
    assert (names.index("Medici"), names.index("Pazzi")) == (1, 10)
    assert parse(account(FLORENTINE, observer="[observer]\n" + table)).observer == expected


def test_a_string_is_a_name_and_an_integer_a_row(tmp_path: Path) -> None:
    (tmp_path / "g.edges").write_text("7 0\n0 -3\n")
    graph = '[graph]\nkind = "edges"\nfile = "g.edges"\n'
    named = account(graph, observer=PNDP.replace("[0]", '["0"]'))
    assert parse(named, tmp_path).algorithm.nodes == ("-3", "0", "7")
    for node, row in (("1", 1), ('"0"', 1), ('"7"', 2), ('"-3"', 0)):
        observer = PNDP.replace("[0]", f"[{node}]")
        assert parse(account(graph, observer=observer), tmp_path).observer.coalition == (row,)
    for number, said in (("7", "no row 7"), ("0", "row 0 is node -3"), ("3", "row numbers 0 to 2")):
        with pytest.raises(InputError, match=said):
            parse(account(graph, observer=PNDP.replace("[0]", f"[{number}]")), tmp_path)


def algorithm(table: str, folder: Path | str = ".", **parts: str) -> threats.Algorithm:
    return parse(account(algorithm="[algorithm]\n" + table, **parts), folder).algorithm


def test_algorithms_are_given_their_keys(tmp_path: Path) -> None:
    assert algorithm('kind = "muffliato"\nrounds = 3\n').rounds == 3
    noise = algorithm('kind = "decor"\nedge_stddev = 2.0\n').noise
    assert isinstance(noise, NodeNoise)
    np.testing.assert_allclose(noise.factor @ noise.factor.T, [[5, -4, 0], [-4, 9, -4], [0, -4, 5]])
    zip_dl = algorithm('kind = "zip-dl"\nneighbourhood = "open"\nself_message = "seen"\n').noise
    assert isinstance(zip_dl, MessageNoise)
    assert (zip_dl.closed, zip_dl.self_seen) == (False, True)
    published = algorithm('kind = "zip-dl"\n').noise
    assert isinstance(published, MessageNoise)
    assert (published.closed, published.self_seen) == (True, False)
    c = np.tril(np.arange(16.0).reshape(4, 4)) + np.eye(4)
    r = np.eye(3) + 0.5
    joint = np.eye(12) + 0.25
    for name, matrix in (("c", c), ("r", r), ("joint", joint)):
        np.save(tmp_path / f"{name}.npy", matrix)
    mf = algorithm('kind = "mf-d-sgd"\nfile = "c.npy"\nrounds = 2\n', tmp_path)
    np.testing.assert_array_equal(mf.noise.strategy, c)
    assert mf.rounds == 2
    dealt = algorithm('kind = "whisper"\nfile = "r.npy"\n', tmp_path).noise
    np.testing.assert_allclose(dealt.factor @ dealt.factor.T, r)
    # Without a file the optimum, which is not it.
    optimal = algorithm('kind = "whisper"\n').noise.factor
    assert np.abs(optimal @ optimal.T - r).max() > 0.1
    both = algorithm('kind = "space-time"\nfile = "joint.npy"\n', tmp_path).noise
    np.testing.assert_allclose(both.factor @ both.factor.T, joint)


def test_designs_bring_their_graph(tmp_path: Path) -> None:
    save_design(space_design(), tmp_path / "d.npz")
    request = parse(account("", algorithm=DESIGN), tmp_path)
    np.testing.assert_array_equal(request.algorithm.mixing, PATH_3)
    assert request.algorithm.nodes == ("Ann", "Bob, jr.", "Çelik")
    assert request.algorithm.horizon == 4
    # Another graph of as many nodes takes its place, with its names.
    other = parse(account(PATH.replace("path", "complete"), algorithm=DESIGN), tmp_path)
    np.testing.assert_allclose(other.algorithm.mixing, np.full((3, 3), 1 / 3))
    assert other.algorithm.nodes == ("0", "1", "2")
    named = parse(
        account("", algorithm=DESIGN, observer='[observer]\nmodel = "tap"\nnodes = ["Çelik"]\n'),
        tmp_path,
    )
    assert named.observer == threats.tap(nodes=(2,))


def test_designs_bring_the_noise_of_their_target(tmp_path: Path) -> None:
    """Left out, the multiplier is what the target takes, which may well be below 1."""
    target = PrivacyTarget(epsilon=50.0, delta=1e-5, clip=0.5, steps=4)
    save_design(space_design(privacy=target), tmp_path / "d.npz")
    every = '[participation]\nkind = "every-step"\nhorizon = 4\n'
    found = parse(account("", every, DESIGN, LDP + "delta = 1e-5\n"), tmp_path)
    # Four independent steps, each moved by twice the clip, all of noise of unit sensitivity.
    mu = 2 * math.sqrt(4) / found.noise_multiplier
    delta = norm.cdf(mu / 2 - 50 / mu) - math.exp(50) * norm.cdf(-mu / 2 - 50 / mu)
    assert delta == pytest.approx(1e-5, rel=1e-6)
    assert found.noise_multiplier < 1
    assert all(row.epsilon == pytest.approx(50.0, rel=1e-6) for row in found.run())
    stated = DESIGN + "noise_multiplier = 1\n"
    assert parse(account("", every, stated, LDP), tmp_path).noise_multiplier == 1
    save_design(space_design(), tmp_path / "d.npz")
    assert parse(account("", every, DESIGN, LDP), tmp_path).noise_multiplier == 1


def test_files_are_relative_to_the_account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "deep"
    folder.mkdir()
    save_design(time_design(), folder / "d.npz")
    (folder / "mine.toml").write_text(account("", algorithm=DESIGN))
    monkeypatch.chdir(tmp_path)
    request = load_account("deep/mine.toml")
    assert (request.name, request.algorithm.horizon) == ("mine", 4)


# --- what is refused ------------------------------------------------------------------------


def observer(text: str) -> str:
    return account(FLORENTINE, observer="[observer]\n" + text)


def participation(text: str) -> str:
    return account(participation="[participation]\n" + text)


def noise(text: str) -> str:
    return account(algorithm="[algorithm]\n" + text)


PATTERNS = 'kind = "patterns"\nhorizon = 4\n'

REFUSED: list[tuple[str, str, list[str]]] = [
    # file and table level
    ("", "algorithm", ["a [algorithm] table", "nothing"]),
    (account(participation=""), "participation", ["a [participation] table", "nothing"]),
    (account(top="colour = 1\n"), "colour", ["unknown key", "observer"]),
    (account(top='design = "space"\n'), "design", ["unknown key", "problem files"]),
    (account() + "[budget]\ntau = 1.0\n", "budget", ["problem files, which `noisedesign solve`"]),
    (account() + "[observers]\n", "observers", ["Did you mean observer?"]),
    (account(top="name = 3\n"), "name", ["a string", "3 (int)"]),
    (account(algorithm=""), "algorithm", ["a [algorithm] table"]),
    (account(observer=""), "observer", ["a [observer] table"]),
    (account(""), "graph", ["a [graph] table for dp-d-sgd", "nothing"]),
    (account('[graph]\nkind = "rign"\n'), "graph.kind", ["Did you mean ring?"]),
    (account(PATH + "p = 1\n"), "graph.p", ["kind, mixing_rate, nodes, weights"]),
    (
        account(participation="participation = 3\n", graph="", algorithm="", observer=""),
        "participation",
        ["a table", "3 (int)"],
    ),
    # [participation]
    (participation('kind = "epochs"\n'), "participation.kind", ["single, every-step", "fixed-epo"]),
    (participation("epochs = 2\n"), "participation.separation", ["nothing"]),
    (participation("epochs = 2\nseparation = 0\n"), "participation.separation", [">= 1", "0"]),
    (
        participation("epochs = 2\nhorizon = 4\nseparation = 2\n"),
        "participation.horizon",
        ["epochs, kind, separation"],
    ),
    (participation('kind = "single"\nhorizon = 0\n'), "participation.horizon", [">= 1", "0"]),
    (participation('kind = "single"\nhorizon = 4.0\n'), "participation.horizon", ["an integer"]),
    (
        participation('kind = "every-step"\nhorizons = 4\n'),
        "participation.horizons",
        ["Did you mean horizon?"],
    ),
    (
        participation('kind = "min-separation"\nhorizon = 4\nseparation = 2\n'),
        "participation.max_participations",
        ["nothing"],
    ),
    (
        participation(
            'kind = "min-separation"\nhorizon = 4\nseparation = 2\nmax_participations=0\n'
        ),
        "participation.max_participations",
        [">= 1"],
    ),
    (participation(PATTERNS), "participation.patterns", ["nothing"]),
    (participation(PATTERNS + "patterns = []\n"), "participation.patterns", ["at least one"]),
    (participation(PATTERNS + "patterns = [[]]\n"), "participation.patterns", ["one step"]),
    (
        participation(PATTERNS + "patterns = [[0, 4]]\n"),
        "participation.patterns",
        ["steps 0 to 3", "step 4 in pattern 0"],
    ),
    (participation(PATTERNS + "patterns = [[-1]]\n"), "participation.patterns", ["step -1"]),
    (participation(PATTERNS + "patterns = [[1, 1]]\n"), "participation.patterns", ["twice"]),
    (participation(PATTERNS + "patterns = [0, 1]\n"), "participation.patterns.0", ["a list"]),
    (
        participation(PATTERNS + "patterns = [[0.5]]\n"),
        "participation.patterns.0.0",
        ["an integer", "0.5"],
    ),
    # [algorithm]
    (noise("noise_multiplier = 1.0\n"), "algorithm.kind", ["one of", "nothing"]),
    (noise('kind = "dpdsgd"\n'), "algorithm.kind", ["mafalda, muff", "Did you mean dp-d-sgd?"]),
    (
        noise('kind = "dp-d-sgd"\nrounds = 2\n'),
        "algorithm.rounds",
        ["only the keys kind, noise_mul"],
    ),
    (noise('kind = "muffliato"\n'), "algorithm.rounds", ["a value", "nothing"]),
    (noise('kind = "muffliato"\nrounds = 0\n'), "algorithm.rounds", [">= 1"]),
    (noise('kind = "muffliato"\nround = 2\n'), "algorithm.round", ["Did you mean rounds?"]),
    (noise('kind = "decor"\nedge_stddev = -1\n'), "algorithm.edge_stddev", [">= 0", "-1"]),
    (noise('kind = "decor"\nedge_stddev = nan\n'), "algorithm.edge_stddev", ["finite", "nan"]),
    (noise('kind = "decor"\nedge_stddev = 1e200\n'), "algorithm.edge_stddev", ["finite", "inf"]),
    (
        noise('kind = "whisper"\nedge_stddev = 1\n'),
        "algorithm.edge_stddev",
        ["file, kind, noise_multiplier"],
    ),
    (noise('kind = "mf-d-sgd"\n'), "algorithm.file", ["nothing"]),
    (noise('kind = "mf-d-sgd"\nfile = "c.npy"\n'), "algorithm.file", ["c.npy", "No such file"]),
    (noise('kind = "design"\nfile = "d.npz"\n'), "algorithm.file", ["d.npz", "No such file"]),
    (
        noise('kind = "zip-dl"\nneighbourhood = "closd"\n'),
        "algorithm.neighbourhood",
        ["closed, open", "Did you mean closed?"],
    ),
    (
        noise('kind = "dp-d-sgd"\nnoise_multiplier = 0.0\n'),
        "algorithm.noise_multiplier",
        ["(0, inf)", "0.0"],
    ),
    (
        noise('kind = "dp-d-sgd"\nnoise_multiplier = -1.0\n'),
        "algorithm.noise_multiplier",
        ["(0, inf)", "-1.0"],
    ),
    (
        noise('kind = "dp-d-sgd"\nnoise_multiplier = nan\n'),
        "algorithm.noise_multiplier",
        ["(0, inf)", "nan"],
    ),
    (
        noise('kind = "dp-d-sgd"\nnoise_multiplier = inf\n'),
        "algorithm.noise_multiplier",
        ["(0, inf)", "inf"],
    ),
    (
        noise('kind = "dp-d-sgd"\nnoise_multiplier = true\n'),
        "algorithm.noise_multiplier",
        ["a number", "True"],
    ),
    (
        account(PATH.replace("path", "complete"), algorithm='[algorithm]\nkind = "whisper"\n'),
        "graph.weights",
        ["optimal noise is bounded", "algorithm.file"],
    ),
    (
        account(
            participation="[participation]\n" + PATTERNS + "patterns = [[0]]\n",
            algorithm='[algorithm]\nkind = "d-mf"\n',
        ),
        "participation.kind",
        ["fixed-epoch"],
    ),
    # [observer]
    (observer("nodes = [0]\n"), "observer.model", ["one of", "nothing"]),
    (observer('model = "pdnp"\n'), "observer.model", ["ldp, central, insider", "mean pndp?"]),
    (observer('model = "ldp"\nnodes = [0]\n'), "observer.nodes", ["only the keys adjacency"]),
    (observer('model = "ldp"\nldp = 1\n'), "observer.ldp", ["unknown key ldp"]),
    (observer('model = "pndp"\n'), "observer.nodes", ["nothing"]),
    (observer('model = "pndp"\nnodes = []\n'), "observer.nodes", ["one or more different", "none"]),
    (observer('model = "pndp"\nnodes = 0\n'), "observer.nodes", ["a list", "0 (int)"]),
    (
        observer('model = "pndp"\nnodes = [true]\n'),
        "observer.nodes.0",
        ["a row number or the name of a node", "True"],
    ),
    (observer('model = "pndp"\nnodes = [1.5]\n'), "observer.nodes.0", ["row number", "1.5"]),
    (observer('model = "pndp"\nnodes = [15]\n'), "observer.nodes", ["row numbers 0 to 14", "15"]),
    (observer('model = "pndp"\nnodes = [-1]\n'), "observer.nodes", ["0 to 14", "-1"]),
    (
        observer('model = "pndp"\nnodes = ["0"]\n'),
        "observer.nodes",
        ["the 15 nodes Acciaiuoli, Medici", "'0'"],
    ),
    (observer('model = "tap"\nnodes = ["Medicis"]\n'), "observer.nodes", ["Did you mean Medici?"]),
    (observer('model = "pndp"\nnodes = [1, "Medici"]\n'), "observer.nodes", ["different nodes"]),
    (
        observer('model = "pndp"\nnodes = [1]\nown_noise = "seed"\n'),
        "observer.own_noise",
        ["seeds, values, counted", "Did you mean seeds?"],
    ),
    (
        observer('model = "insider"\nnodes = [1]\nown_noise = "seeds"\n'),
        "observer.own_noise",
        ["adjacency, clipping, convexity, delta", "model, nodes, responses"],
    ),
    (
        observer('model = "pndp"\nnodes = [1]\nknown_seeds = [1]\n'),
        "observer.known_seeds",
        ["only the keys"],
    ),
    (
        observer('model = "secldp"\nknown_seeds = ["Medicis"]\n'),
        "observer.known_seeds",
        ["Did you mean Medici?"],
    ),
    (observer('model = "secldp"\nknown_seeds = [[1, 20]]\n'), "observer.known_seeds", ["0 to 14"]),
    (
        observer('model = "secldp"\nknown_seeds = [[1, 2, 3]]\n'),
        "observer.known_seeds.0",
        ["a node, or a list of the two nodes of an edge", "[1, 2, 3]"],
    ),
    (
        observer('model = "secldp"\nknown_seeds = [[1, true]]\n'),
        "observer.known_seeds.0",
        ["row number"],
    ),
    (
        observer('model = "secldp"\nknown_seeds = [[1, "Medici"]]\n'),
        "observer.known_seeds",
        ["pairs of different nodes"],
    ),
    (observer('model = "ldp"\ndelta = 0.0\n'), "observer.delta", ["(0, 1)"]),
    (observer('model = "ldp"\ndelta = nan\n'), "observer.delta", ["(0, 1)", "nan"]),
    (observer('model = "ldp"\nadjacency = "add"\n'), "observer.adjacency", ["replace, zero"]),
    (observer('model = "ldp"\nvictims = []\n'), "observer.victims", ["one or more", "none"]),
    (observer('model = "ldp"\nvictims = [1, "Medici"]\n'), "observer.victims", ["different nodes"]),
    (observer('model = "ldp"\nvictims = ["Medicis"]\n'), "observer.victims", ["Did you mean"]),
    (
        observer('model = "pndp"\nnodes = [1]\nvictims = [0, "Medici"]\n'),
        "observer.victims",
        ["other than the observer", "Medici, who looks"],
    ),
]


@pytest.mark.parametrize(("text", "field", "words"), REFUSED)
def test_every_error_names_its_key(text: str, field: str, words: list[str], tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        parse(text, tmp_path)
    message = str(caught.value)
    assert caught.value.field == field, message
    assert all(word in message for word in words), message
    assert "\n" not in message
    assert "pydantic" not in message


def test_who_may_be_a_victim_of_a_tap() -> None:
    """An outsider is no node: those listened to may be victims too."""
    text = observer('model = "tap"\nnodes = [1]\nvictims = ["Medici"]\n')
    assert parse(text).victims == (1,)


def test_designs_that_do_not_fit(tmp_path: Path) -> None:
    path = tmp_path / "d.npz"
    save_design(time_design(), path)
    five = ONCE.replace("4", "5")
    with pytest.raises(InputError, match=r"^algorithm\.file: .*at least 5 steps.*got one of 4"):
        parse(account("", five, DESIGN), tmp_path)
    with pytest.raises(InputError, match=r"^algorithm\.file: .*for 15 nodes.*got one for 3"):
        parse(account(FLORENTINE, algorithm=DESIGN), tmp_path)
    save_design(single_epoch_design(), path)
    with pytest.raises(InputError, match=r"^graph: expected a graph for a design that has none"):
        parse(account("", ONCE.replace("4", "2"), DESIGN), tmp_path)


@pytest.mark.parametrize("damage", [lambda b: b"", lambda b: b[:-9], lambda b: b"x" + b[1:]])
def test_damaged_designs(damage: Any, tmp_path: Path) -> None:
    path = save_design(time_design(), tmp_path / "d.npz")
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(InputError, match=r"^algorithm\.file: .*\(in .*d\.npz\)$"):
        parse(account("", algorithm=DESIGN), tmp_path)


@pytest.mark.parametrize(
    ("matrix", "kind", "words"),
    [
        (np.eye(3), "mf-d-sgd", "at least 4 steps"),
        (np.ones((4, 4)), "mf-d-sgd", "lower triangular"),
        (np.diag([1.0, 0, 1, 1]), "mf-d-sgd", "regular"),
        (np.full((4, 4), math.nan), "mf-d-sgd", "finite"),
        (np.eye(4, dtype=np.float32), "mf-d-sgd", "float32"),
        (np.eye(4), "whisper", "(3, 3)"),
        (np.diag([1.0, -1, 1]), "whisper", "positive semidefinite"),
        (np.eye(3) + np.eye(3, k=1), "whisper", "symmetric"),
        (np.eye(11), "space-time", "(12, 12)"),
    ],
)
def test_matrices_that_are_no_noise(
    matrix: np.ndarray, kind: str, words: str, tmp_path: Path
) -> None:
    np.save(tmp_path / "m.npy", matrix)
    with pytest.raises(InputError) as caught:
        algorithm(f'kind = "{kind}"\nfile = "m.npy"\n', tmp_path)
    assert caught.value.field == "algorithm.file"
    assert words in str(caught.value)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"^account: .*none\.toml: No such file"):
        load_account(tmp_path / "none.toml")
    with pytest.raises(InputError, match=r"^account: .*: Is a directory"):
        load_account(tmp_path)
    path = tmp_path / "mine.toml"
    path.write_bytes(b'name = "M\xe9dicis"\n')
    with pytest.raises(InputError, match=r"^account: expected UTF-8 text"):
        load_account(path)
    for text in ("name =", account(""), account(observer=PNDP + "x = 1\n")):
        path.write_text(text)
        with pytest.raises(InputError, match=r"\(in .*mine\.toml\)$"):
            load_account(path)


# --- the shipped files ----------------------------------------------------------------------


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_shipped_accounts_load(path: Path) -> None:
    request = load_account(path)
    assert request.name == f"accounts-{path.stem}"
    assert tomllib.loads(path.read_text())["description"]


def test_the_readme_names_every_account_and_every_key() -> None:
    text = (PROBLEMS / "README.md").read_text()
    assert len(SHIPPED) >= 5
    section = text[text.index("\n## Account files") :]
    assert all(f"`{path.name}`" in section for path in SHIPPED)
    models = [model for model in vars(account_file).values() if isinstance(model, type)]
    made = (account_file.algorithm_tables, account_file.observer_tables)
    kinds = [table for of in (*made, tables.participation_tables) for table in of()]
    fields = [
        model.model_fields
        for model in (*models, *kinds)
        if issubclass(model, Table) and model is not Table
    ]
    keys = {key for table in fields for key in table}
    assert {"known_seeds", "self_message", "max_participations"} <= keys
    words = {
        word
        for table in fields
        for key in ("kind", "model", "own_noise", "adjacency")
        if key in table
        for word in get_args(table[key].annotation)
    }
    assert {"zip-dl", "secure-sum", "counted", "every-step"} <= words
    assert keys | words <= set(re.findall(r"[a-z_-]+", section)), keys | words


@pytest.mark.parametrize("key", ["kind", "modle"])
def test_an_observer_without_a_model_is_told_all_of_them(key: str) -> None:
    with pytest.raises(InputError) as told:
        parse(account(observer=f'[observer]\n{key} = "pndp"\nnodes = [0]\n'))
    assert told.value.field == "observer.model"
    listed = "one of ldp, central, insider, tap, pndp, secure-sum, secldp, shared-seed, got nothing"
    assert listed in str(told.value)
    assert ("You wrote kind: did you mean model?" in str(told.value)) == (key == "kind")


def test_a_table_without_its_kind_is_told_all_of_them() -> None:
    with pytest.raises(InputError, match="algorithm.kind: expected one of dp-d-sgd, .*, design"):
        parse(account(algorithm="[algorithm]\nnoise_multiplier = 1.0\n"))
