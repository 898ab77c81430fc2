"""Figures: the numbers behind them against literal accounts, and files that are whole or absent."""

from __future__ import annotations

import csv
import itertools
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import matplotlib as mpl
import networkx as nx
import numpy as np
import pytest
from matplotlib.image import imread

from noisedesign.base.checks import InputError
from noisedesign.mechanisms import algorithms as catalogue
from noisedesign.privacy import views as threats
from noisedesign.system.participation import FixedEpoch
from noisedesign_lab.commands import figure as command
from noisedesign_lab.papers import figures
from noisedesign_lab.papers.figures import algorithms_by_observer, gossip, pndp
from noisedesign_lab.papers.figures.gossip import SECURE_SUM, SINGLE_NODE, Case
from tests.support import dense_views, oracles, transcripts

mpl.use("Agg")

SIX = nx.Graph([(0, 1), (1, 2), (2, 3), (3, 0), (3, 4), (4, 5)])
"""A square with a tail: distances 1 to 3 from node 0."""


def table(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def numbers(values: Any) -> list[float]:
    return [float(value) for value in values]


def is_picture(path: Path) -> bool:
    image = imread(path)[..., :3]
    return bool(0.005 < (image.min(axis=2) < 0.9).mean() < 0.9)


# --- PNDP by distance ----------------------------------------------------------------------------


@pytest.mark.parametrize("weights", pndp.WEIGHTS)
@pytest.mark.parametrize("observer", [0, 4])
def test_pndp_rows_against_the_stacked_system(weights: str, observer: int) -> None:
    horizon, nodes = 3, list(SIX.nodes)
    w = oracles.metropolis(SIX) if "metro" in weights else oracles.row_normalized(SIX)
    rows = pndp.rows_for(SIX, name="six", weights=weights, horizon=horizon, observers=[observer])
    literal = dense_views.neighbour(w, observer, horizon=horizon)
    hops = nx.single_source_shortest_path_length(SIX, nodes[observer])
    assert {row.observer for row in rows} == {str(nodes[observer])}
    assert [row.victim for row in rows] == [str(v) for v in nodes if v != nodes[observer]]
    for row in rows:
        u = nodes.index(int(row.victim))
        assert (row.graph, row.weights, row.distance) == ("six", weights, hops[nodes[u]])
        low, high = oracles.elliptope(literal.victim(u, nodes=6, horizon=horizon))
        # Order 2: the divergence is the squared sensitivity; that of all messages is T.
        low, high = min(low, horizon), min(high, horizon)
        assert low * (1 - 1e-6) <= row.exact <= high * (1 + 1e-6) + 1e-9
        assert row.kind == "vector-exact"
        assert row.ldp == pytest.approx(horizon)
        squared, unsquared = cyffers(w, observer, u, horizon)
        assert row.cyffers_squared == pytest.approx(squared)
        assert row.cyffers_unsquared == pytest.approx(unsquared)


def cyffers(w: np.ndarray, v: int, u: int, horizon: int) -> tuple[float, float]:
    """Both readings of the published bound, term by term."""
    squared = unsquared = 0.0
    for s in range(horizon):
        power = np.linalg.matrix_power(w, s)
        for node in range(len(w)):
            if w[v, node] == 0 and node != v:
                continue
            norm = sum(power[node, x] ** 2 for x in range(len(w)))
            unsquared += (horizon - s) * power[node, u] / norm
            if node != v:
                squared += (horizon - s) * power[node, u] ** 2 / norm
    return min(horizon, squared), min(horizon, unsquared)


def row(victim: str, distance: int, exact: float, graph: str = "g") -> pndp.Row:
    return pndp.Row(
        graph,
        "metropolis-hastings",
        "o",
        victim,
        distance,
        exact,
        "vector-exact",
        2 * exact,
        3 * exact,
        10.0,
    )


@pytest.mark.parametrize(
    ("weights", "expected"),
    zip(pndp.WEIGHTS, [(1.07256, 0.35128, 3.50648), (0.94556, 0.33249, 2.37661)], strict=True),
)
def test_every_node_looks_at_every_other(weights: str, expected: tuple[float, ...]) -> None:
    """Mean, least and greatest of the Florentine families, two hops away: by an ascent over unit
    vectors of its own, on the pseudo-inverse of stacked messages."""
    rows = pndp.rows_for(nx.florentine_families_graph(), name="f", weights=weights)
    assert len(rows) == 15 * 14
    assert len({(row.observer, row.victim) for row in rows}) == 15 * 14
    two = [row.exact for row in rows if row.distance == 2]
    assert (np.mean(two), min(two), max(two)) == pytest.approx(expected, abs=1e-4)


def test_summaries_are_least_mean_and_greatest() -> None:
    rows = [
        row("a", 2, 1.0),
        row("b", 1, 8.0),
        row("c", 2, 4.0),
        row("d", 2, 1.6, graph="h"),
        row("e", 2, 1.0),
    ]
    found = pndp.summaries(rows)
    assert [(s.graph, s.distance, s.pairs) for s in found] == [
        ("g", 1, 1),
        ("g", 2, 3),
        ("h", 2, 1),
    ]
    assert numbers(found[1].exact) == [1.0, 2.0, 4.0]
    assert numbers(found[1].cyffers_squared) == [2.0, 4.0, 8.0]
    assert numbers(found[1].cyffers_unsquared) == [3.0, 6.0, 12.0]


def test_the_panel_shows_the_summaries() -> None:
    far = [row("b", 2, 0.25), row("c", 2, 1.0), row("d", 2, 0.25)]
    figure = pndp.draw([row("a", 1, 2.0), *far])
    assert "fixed responses" in figure.get_suptitle()
    (axes,) = figure.axes
    labels = [container.get_label() for container in axes.containers]
    assert len(set(labels)) == 3
    means, _, bars = axes.containers[0]
    assert "exact" in labels[0]
    assert numbers(means.get_ydata()) == [2.0, 0.5]
    assert [numbers(segment[:, 1]) for segment in bars[0].get_segments()] == [
        [2.0, 2.0],
        [0.25, 1.0],
    ]
    assert axes.get_yscale() == "log"
    assert any("LDP" in str(one.get_label()) for one in axes.lines)


@pytest.fixture
def _small_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every generated graph is a path, one data set is there and one is not."""

    def missing() -> nx.Graph:
        raise InputError("graph", expected="a graph", got="nothing", remedy="Run: pip install x")

    monkeypatch.setattr(pndp, "build_graph", lambda *a, **k: nx.path_graph(4))
    monkeypatch.setattr(pndp.datasets, "ego_facebook", lambda ego: nx.star_graph(3))
    monkeypatch.setattr(pndp.datasets, "peertube", missing)


@pytest.fixture
def _undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pictures are empty files, where a test looks at numbers only."""
    monkeypatch.setattr(figures, "write_figure", lambda _, path: path.write_bytes(b""))


@pytest.mark.usefixtures("_small_graphs", "_undrawn")
def test_a_graph_that_is_not_there_is_skipped_aloud(tmp_path: Path) -> None:
    said: list[str] = []
    paths = figures.make("pndp-by-distance", tmp_path, announce=said.append)
    skipped = [words for words in said if "skipped" in words]
    assert len(skipped) == 1
    assert "PeerTube" in skipped[0]
    assert "pip install x" in skipped[0]
    rows = table(paths[2])
    per_graph = {name: sum(r["graph"] == name for r in rows) for name in {r["graph"] for r in rows}}
    assert per_graph == {
        "Florentine families": 24,
        "Erdős–Rényi G(100, 0.2)": 24,
        "Facebook ego, 148 nodes": 24,
    }
    assert {words.split(":")[0] for words in said} == {*per_graph, "PeerTube"}


@pytest.mark.usefixtures("_small_graphs")
def test_an_interrupted_figure_keeps_the_finished_graphs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, calls = pndp.rows_for, itertools.count()

    def interrupted(*args: Any, **kwargs: Any) -> list[pndp.Row]:
        if next(calls) == 3:  # both weights of the first graph, one of the second
            raise KeyboardInterrupt
        return whole(*args, **kwargs)

    monkeypatch.setattr(pndp, "rows_for", interrupted)
    with pytest.raises(KeyboardInterrupt):
        figures.make("pndp-by-distance", tmp_path, to="png")
    picture, summary, victims = (
        tmp_path / f"pndp-by-distance{end}" for end in (".png", ".csv", "-pairs.csv")
    )
    assert sorted(tmp_path.iterdir()) == sorted([picture, summary, victims])
    assert {r["graph"] for r in table(victims)} == {"Florentine families"}
    assert len(table(victims)) == 24
    assert [r["distance"] for r in table(summary)] == ["1", "2", "3"] * 2
    assert is_picture(picture)


# --- gossip --------------------------------------------------------------------------------------


def literal_gram(w: np.ndarray, i: int, j: int, horizon: int, view: str) -> np.ndarray:
    """Gram of victim j from the stacked system of the observed node i."""
    n = len(w)
    if view == SINGLE_NODE:
        h = dense_views.system_matrix(w, [i], horizon=horizon)
        signal = h
    else:
        stacked = dense_views.messages(w, horizon=horizon).reshape(horizon, n, horizon * n)
        signal = np.einsum("v,tvk->tk", w[i], stacked)
        h = signal[:, [k for k in range(horizon * n) if k % n != i]]
    return dense_views.View(signal, h).victim(j, nodes=n, horizon=horizon)


def signs(m: np.ndarray) -> float:
    return max(
        float(np.array(c) @ m @ np.array(c)) for c in itertools.product((-1, 1), repeat=len(m))
    )


@pytest.mark.parametrize("view", [SINGLE_NODE, SECURE_SUM])
def test_gossip_rows_against_the_stacked_system(view: str) -> None:
    case = Case(name="six", graph=SIX, observer=0, victims={"neighbours": 3, "not neighbours": 4})
    # Node 4 is the fifth of SIX, in the order in which it was made.
    w, horizons = oracles.metropolis(SIX), (1, 2, 3, 4)
    assert list(SIX.nodes) == [0, 1, 2, 3, 4, 5]
    rows = list(gossip.rows_for(case, view=view, horizons=horizons))
    assert [(r.horizon, r.pair) for r in rows] == [
        (t, pair) for t in horizons for pair in ("neighbours", "not neighbours")
    ]
    seen = 0.0
    for r in rows:
        m = literal_gram(w, 0, r.victim, r.horizon, view)
        assert (r.graph, r.view, r.observer) == ("six", view, 0)
        assert r.distance == {3: 1, 4: 2}[r.victim]
        assert r.constant * r.horizon == pytest.approx(m.sum(), abs=1e-12)
        largest = float(np.linalg.eigvalsh(m)[-1])
        assert r.spectral_upper_bound == pytest.approx(largest, rel=1e-9, abs=1e-12)
        low, high = oracles.elliptope(m) if m.any() else (0.0, 0.0)
        assert low * (1 - 1e-6) - 1e-12 <= r.exact * r.horizon <= high * (1 + 1e-6) + 1e-9
        assert signs(m) <= r.exact * r.horizon * (1 + 1e-9) + 1e-12
        assert r.kind == "vector-exact"
        assert r.constant_limit == pytest.approx(1 / 6 if view == SINGLE_NODE else 1 / 5)
        seen = max(seen, r.exact)
    assert seen > 0.01


@pytest.mark.parametrize(("view", "limit"), [(SINGLE_NODE, 1 / 5), (SECURE_SUM, 1 / 4)])
def test_constant_gradients_approach_the_limit(view: str, limit: float) -> None:
    """Koskela and Kulkarni, Theorems 13 and 16, for gradients that are constant in time."""
    case = Case(name="ring", graph=nx.cycle_graph(5), observer=0, victims={"neighbours": 1})
    rows = list(gossip.rows_for(case, view=view, horizons=(25, 100, 400)))
    distances = [abs(r.constant - limit) for r in rows]
    assert distances[2] < distances[1] < distances[0]
    assert distances[2] < 0.01 * limit
    assert all(
        r.constant <= r.exact * (1 + 1e-9) <= r.spectral_upper_bound * (1 + 2e-9) for r in rows
    )


def test_gradients_that_vary_stay_above_the_limit() -> None:
    """Theorem 13 states 1/n for every sign vector. On a path of ten, from its end, a slow wave is
    seen more than twice as well, for ever: |g_j|^2 / sum_u |g_u|^2 at frequency f, g the row of
    (I - exp(-i f) W)^-1 at the observer."""
    graph = nx.path_graph(10)
    w = oracles.metropolis(graph)

    def visible(frequency: float) -> float:
        g = np.linalg.solve((np.eye(10) - np.exp(-1j * frequency) * w).T, np.eye(10)[0])
        return float(abs(g[1]) ** 2 / np.sum(abs(g) ** 2))

    assert visible(1e-6) == pytest.approx(1 / 10, rel=1e-6)
    highest = max(visible(f) for f in np.linspace(1e-3, math.pi, 3000))
    assert highest > 2.5 / 10
    case = Case(name="path", graph=graph, observer=0, victims={"neighbours": 1})
    (r,) = gossip.rows_for(case, view=SINGLE_NODE, horizons=(400,))
    assert r.exact == pytest.approx(highest, rel=0.03)
    assert r.constant < 0.6 * r.exact


def test_cases_are_those_of_the_publication() -> None:
    er, pa = gossip.cases(quick=False)
    assert (len(er.graph), len(pa.graph)) == (100, 100)
    expected = nx.gnp_random_graph(100, 0.15, seed=0)
    assert nx.is_connected(expected)
    assert {frozenset(e) for e in er.graph.edges} == {frozenset(e) for e in expected.edges}
    # Five nodes all linked, then three links with every new node.
    assert pa.graph.number_of_edges() == 10 + 3 * 95
    assert all(pa.graph.has_edge(i, j) for i, j in itertools.combinations(range(5), 2))
    for case in (er, pa):
        near, far = case.victims["neighbours"], case.victims["not neighbours"]
        assert case.graph.has_edge(case.observer, near)
        assert not case.graph.has_edge(case.observer, far)
        assert far != case.observer


def test_a_relation_that_does_not_occur_is_left_out() -> None:
    assert set(gossip.random_case("k", nx.complete_graph(4)).victims) == {"neighbours"}


def test_excess_of_the_spectral_bound() -> None:
    r = gossip.Row("g", SINGLE_NODE, "neighbours", 0, 1, 1, 4, 0.1, 0.2, "vector-exact", 0.25, 0.1)
    assert gossip.excess(r) == pytest.approx(0.25)
    assert gossip.excess(r._replace(exact=0.0, spectral_upper_bound=0.0)) == 0


# --- algorithms by observer ----------------------------------------------------------------------

W = oracles.metropolis(SIX)
TWICE = FixedEpoch(epochs=2, separation=1)
NAMES = tuple("abcdef")


def literal_error(protocol: transcripts.Protocol, *, rounds: int = 1) -> float:
    """Sum of squared noise coefficients of all models after every step, symbol by symbol."""
    run = protocol(transcripts.Traced())
    models = [run.sums[a][rounds - 1 :: rounds] for a in run.nodes]
    return sum(
        float(c) ** 2 for per_node in models for model in per_node for c in model.noise.values()
    )


def literal_twins(horizon: int) -> Iterator[tuple[str, dict[str, Any], Any, int]]:
    yield "dp-d-sgd", {}, transcripts.independent(W, horizon=horizon), 1
    yield "muffliato", {"rounds": 3}, transcripts.independent(W, horizon=horizon, rounds=3), 3
    yield "antipgd", {}, transcripts.anti_pgd(W, horizon=horizon), 1
    yield "zip-dl", {}, transcripts.zip_dl(W, horizon=horizon), 1
    r = np.diag([1.0, 2, 3, 4, 5, 6]) + 0.5
    yield "whisper", {"covariance": r}, transcripts.whisper(W, r, horizon=horizon), 1
    c = np.tril(np.arange(1.0, 1 + horizon**2).reshape(horizon, horizon))
    yield "mf-d-sgd", {"strategy": c}, transcripts.local_strategy(W, c), 1
    decor = transcripts.decor(W, node_variance=1.0, edge_variance=4.0, horizon=horizon)
    yield "decor", {"edge_stddev": 2.0}, decor, 1


@pytest.mark.parametrize("horizon", [1, 3])
def test_squared_error_of_all_models(horizon: int) -> None:
    scheme = FixedEpoch(epochs=1, separation=horizon)
    for kind, options, protocol, rounds in literal_twins(horizon):
        algorithm = catalogue.algorithm(kind, mixing=W, participation=scheme, **options)
        assert algorithms_by_observer.squared_error(algorithm) == pytest.approx(
            literal_error(protocol, rounds=rounds)
        ), kind


def test_squared_error_of_noise_over_nodes_and_steps() -> None:
    covariance = np.diag(np.arange(1.0, 13.0))
    algorithm = threats.space_time(mixing=W, covariance=covariance, horizon=2)
    first, second = covariance[:6, :6], covariance[6:, 6:]
    expected = np.trace(W @ (first + second) @ W.T) + np.trace(W @ W @ first @ (W @ W).T)
    assert algorithms_by_observer.squared_error(algorithm) == pytest.approx(expected)


def literal_observers(node: int) -> dict[str, transcripts.Observer]:
    own = {"nodes": (node,)}
    return {
        "ldp": transcripts.Observer(kind="ldp"),
        "pndp": transcripts.Observer(kind="pndp", own_noise="seeds", **own),
        "pndp-counted": transcripts.Observer(kind="pndp", own_noise="counted", **own),
        "secure-sum": transcripts.Observer(kind="secure_sum", own_noise="seeds", **own),
        "insider": transcripts.Observer(kind="insider", **own),
        "secldp": transcripts.Observer(kind="secldp", **own),
        "shared-seed": transcripts.Observer(kind="shared_seed", **own),
    }


def test_cells_against_accounts_message_by_message() -> None:
    """Two steps, one record in both: the elliptope maximum is M_11 + M_22 + 2 |M_12|."""
    twins = {kind: (options, twin) for kind, options, twin, _ in literal_twins(2)}
    kinds = ("dp-d-sgd", "muffliato", "antipgd", "zip-dl")
    rows = list(
        algorithms_by_observer.rows_for(
            mixing=W,
            nodes=NAMES,
            participation=TWICE,
            node=3,
            algorithms={kind: twins[kind][0] for kind in kinds},
        )
    )
    observers = literal_observers(3)
    assert [(r.algorithm, r.model) for r in rows] == list(itertools.product(kinds, observers))
    common = 2 * literal_error(twins["dp-d-sgd"][1])  # mu = 1 needs variance 2 at every step
    for r in rows:
        options, protocol = twins[r.algorithm]
        error = literal_error(protocol, rounds=options.get("rounds", 1))
        assert r.squared_error == pytest.approx(common)
        assert r.noise_multiplier**2 * error == pytest.approx(common)
        run = protocol(transcripts.Traced())
        looked = transcripts.look(run, observers[r.model])
        worst = 0.0
        for u in [u for u in run.nodes if r.model == "ldp" or u != 3]:
            m, exposed = looked.gram(u)
            worst = max(worst, math.inf if exposed else np.abs(m).sum())
        assert r.mu == pytest.approx(math.sqrt(worst) / r.noise_multiplier, rel=1e-6), r
    by_cell = {(r.algorithm, r.model): r for r in rows}
    assert by_cell["dp-d-sgd", "ldp"].mu == pytest.approx(1)
    assert all(math.isinf(by_cell[kind, "shared-seed"].mu) for kind in kinds)


def test_the_heat_map_writes_every_cell() -> None:
    def cell(algorithm: str, model: str, mu: float | None) -> algorithms_by_observer.Row:
        return algorithms_by_observer.Row(algorithm, model, "v", 1, mu, "w", 1.0, 1.0, "")

    rows = [
        cell("dp-d-sgd", "ldp", 1.0),
        cell("dp-d-sgd", "pndp", 0.123456),
        cell("zip-dl", "ldp", math.inf),
        cell("zip-dl", "pndp", None),
    ]
    figure = algorithms_by_observer.draw(rows, title="the setting")
    axes, colourbar = figure.axes
    assert {text.get_position(): text.get_text() for text in axes.texts} == {
        (0, 0): "1",
        (1, 0): "0.123",
        (0, 1): "infinite",
        (1, 1): "no number",
    }
    (hatched,) = axes.patches
    assert hatched.get_hatch()
    assert hatched.get_xy() == (-0.5, 0.5)
    assert figure.get_suptitle() == "the setting"
    whole = algorithms_by_observer.FIGURE.draw(rows, True)
    assert "fixed responses" in whole.get_suptitle()
    assert "μ" in colourbar.get_ylabel()
    assert [label.get_text() for label in axes.get_yticklabels()] == ["dp-d-sgd", "zip-dl"]


def test_every_trust_model_has_its_words() -> None:
    rows = algorithms_by_observer.rows_for(
        mixing=W, nodes=NAMES, participation=TWICE, node=3, algorithms={"dp-d-sgd": {}}
    )
    assert [r.model for r in rows] == list(algorithms_by_observer.MODELS)
    assert set(algorithms_by_observer.ALGORITHMS) <= set(catalogue.KINDS)


# --- all of them ----------------------------------------------------------------------------------

SLOW_FIGURES = {"pndp-by-distance", "gossip-spectral", "algorithms-by-observer"}
"""Figures that other tests draw of smaller graphs."""


@pytest.fixture
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Quick figures of gossip end after four steps."""
    monkeypatch.setattr(gossip, "QUICK_HORIZONS", (1, 4))


@pytest.mark.usefixtures("_short")
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow if name in SLOW_FIGURES else ())
        for name in figures.NAMES
    ],
)
def test_every_figure_is_complete(name: str, tmp_path: Path) -> None:
    said: list[str] = []
    paths = figures.make(
        name, tmp_path / "new" / "folder", quick=True, announce=said.append, to="png"
    )
    assert paths[0].name == f"{name}.png"
    assert paths[1].name == f"{name}.csv"
    assert sorted(paths) == sorted((tmp_path / "new" / "folder").iterdir())
    assert is_picture(paths[0])
    rows = table(paths[1])
    assert len(rows) >= 6
    assert all(None not in r.values() and None not in r for r in rows)
    assert said


@pytest.mark.usefixtures("_short", "_undrawn")
def test_quick_tables_are_what_the_functions_return(tmp_path: Path) -> None:
    _, path = figures.make("gossip-spectral", tmp_path, quick=True)
    expected = [
        r
        for case in gossip.cases(quick=True)
        for r in gossip.rows_for(case, view=SINGLE_NODE, horizons=gossip.QUICK_HORIZONS)
    ]
    rows = table(path)
    assert numbers(r["exact"] for r in rows) == [r.exact for r in expected]
    assert numbers(r["excess"] for r in rows) == [gossip.excess(r) for r in expected]


def test_an_interrupted_heat_map_keeps_the_finished_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def press(message: str) -> None:
        if message.startswith("antipgd"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        figures.make("algorithms-by-observer", tmp_path, quick=True, announce=press)
    (path,) = tmp_path.iterdir()
    assert {r["algorithm"] for r in table(path)} == {"dp-d-sgd", "muffliato"}
    assert len(table(path)) == 2 * len(algorithms_by_observer.MODELS)


@pytest.mark.usefixtures("_short", "_undrawn")
def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["gossip-spectral", "-o", str(tmp_path), "--quick"]
    command.main([*arguments, "--json"], standalone_mode=False)
    said = capsys.readouterr()
    files = [str(tmp_path / f"gossip-spectral.{end}") for end in ("svg", "csv")]
    assert json.loads(said.out) == {"figure": "gossip-spectral", "files": files}
    assert "up to 4 steps" in said.err
    command.main(["--help"], standalone_mode=False)
    assert set(figures.NAMES) <= set(capsys.readouterr().out.split())


def test_bad_requests(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"^figure: expected one of pndp-by-distance"):
        figures.make("nope", tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="a folder that can be created"):
        figures.make("gossip-spectral", tmp_path / "file" / "folder")


def test_pictures_in_other_formats(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    alone = Case(name="six", graph=SIX, observer=0, victims={"neighbours": 3})
    monkeypatch.setattr(gossip, "cases", lambda **_: iter([alone]))
    monkeypatch.setattr(gossip, "QUICK_HORIZONS", (1, 4))
    picture, _ = figures.make("gossip-spectral", tmp_path, quick=True, to="pdf")
    assert picture.name == "gossip-spectral.pdf"
    assert picture.read_bytes().startswith(b"%PDF")
    with pytest.raises(InputError, match="format: expected one of png, pdf, svg, got 'gif'"):
        figures.make("gossip-spectral", tmp_path / "new", quick=True, to="gif")
    assert not (tmp_path / "new").exists()
