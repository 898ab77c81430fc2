"""Nodes that drop out: variances summed seed by seed, privacy by plain inverses, noise as drawn."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any

import matplotlib as mpl
import networkx as nx
import numpy as np
import pytest
from scipy.optimize import brentq

import noisedesign as nd
from noisedesign.base.checks import Array, InputError
from noisedesign.design.design import Design, seed_plan_of
from noisedesign.files.design_file import save_design
from noisedesign.mechanisms.baselines import baseline
from noisedesign.noise import Secret, deal, noise
from noisedesign.pages.plot import drop_out_figure
from noisedesign.tasks.dropout import (
    _Network,
    drop_out,
    every_drop_out,
    mu_to_holders,
    ratio_to_holders,
)
from tests.support.command_line import call

mpl.use("Agg")

TARGET = nd.PrivacyTarget(epsilon=2.0, delta=1e-5, clip=0.5, steps=3)
EDGES = nd.SpaceStructure(kind="edge-local")


def solved(problem: Any) -> Design:
    found = nd.solve(problem).design
    assert found is not None
    return found


def on(graph: nx.Graph, *, weights: str = "metropolis-hastings", **kwargs: Any) -> Design:
    return solved(nd.SpaceProblem.from_graph(graph, weights=weights, **kwargs))


@pytest.fixture(scope="module")
def ring() -> Design:
    budget = np.array([1.0, 2.0, 1.0, 0.5, 1.0, 1.0])
    names = ("Ann", "Bob, jr.", "Çelik", "d", "e", "f")
    return on(nx.cycle_graph(6), structure=EDGES, budget=budget, privacy=TARGET, nodes=names)


SUBSETS = [[0], [3], [0, 1], [1, 4], [0, 2, 4], [1, 2, 3, 4], [0, 1, 2, 3, 4]]


# --- nodes that read and know their seeds ---------------------------------------------------------


@pytest.mark.parametrize("known", [0, 1])
@pytest.mark.parametrize("budget", [None, np.array([1.0, 2.0, 1.0, 0.5, 1.5])], ids=["one", "many"])
def test_mu_against_a_node_that_knows_its_seeds(known: int, budget: Array | None) -> None:
    """From the plans of the nodes: noise of all streams that it does not hold. A record is replaced
    in all 3 steps, which moves every sum by up to twice the clip."""
    design = on(
        nx.cycle_graph(5),
        structure=nd.SpaceStructure(kind="edge-local", known_seeds=known),
        privacy=TARGET,
        **({} if budget is None else {"budget": budget}),
    )
    plans = [design.node_plan(u) for u in range(5)]

    def mu(insider: int | None) -> float:
        names = sorted({s.name for p in plans for s in p.streams if insider not in s.holders})
        root = np.zeros((5, len(names)))
        for plan in plans:
            for stream in plan.streams:
                if stream.name in names:
                    root[plan.node, names.index(stream.name)] = stream.coefficient
        left = [u for u in range(5) if u != insider]
        precision = np.linalg.inv((root @ root.T)[np.ix_(left, left)])
        return math.sqrt(3 * (2 * 0.5) ** 2 * precision.diagonal().max())

    by_holder, by_reader = [mu(insider) for insider in range(5)], mu(None)
    found = mu_to_holders(design)
    assert found == pytest.approx(max(by_holder), rel=1e-9)
    ratio = ratio_to_holders(design)
    assert ratio is not None
    assert ratio[0] == pytest.approx(max(by_holder) / by_reader, rel=1e-9)
    assert by_holder[ratio[1]] == pytest.approx(max(by_holder), rel=1e-9)
    designed = design.claim.mu
    assert designed is not None
    assert (found > 1.05 * designed) == (known == 0)


def test_what_an_end_of_an_edge_knows_of_the_other() -> None:
    """R = s I + c (1, -1)(1, -1)^T has [R^-1]_uu = (s + c) / (s^2 + 2 s c) to a reader, 1 / s to
    who knows the seed: the root of their ratio, not squared. Independent noise has ratio 1."""
    design = on(nx.path_graph(2), structure=EDGES, max_variance=3.0)
    r = design.covariance
    c, s = -r[0, 1], r[0, 0] + r[0, 1]
    assert c > 0.5
    ratio = ratio_to_holders(design)
    assert ratio is not None
    assert ratio[0] == pytest.approx(math.sqrt((s + 2 * c) / (s + c)), rel=1e-9)
    assert ratio_to_holders(baseline(design.problem, "ldp")) == (1.0, 0)


def test_no_mu_without_a_target_or_local_noise(ring: Design) -> None:
    untold = on(nx.cycle_graph(4), structure=EDGES)
    assert mu_to_holders(untold) is None
    with pytest.raises(InputError, match="design: expected one that protects every message"):
        mu_to_holders(baseline(ring.problem, "cdp"))


# --- one of ten -----------------------------------------------------------------------------------


def decor_ratio(graph: nx.Graph, *, cap: float) -> float:
    """R = s I + c L with [R^-1]_ii = 1 and R_ii = cap on a graph that looks alike from every node:
    its mean has variance s / n; without a node of degree k, ((n - 1) s + k c) / (n - 1)^2."""
    n, degree = len(graph), graph.degree(0)
    values = np.linalg.eigvalsh(nx.laplacian_matrix(graph).toarray().astype(float))

    def excess(s: float) -> float:
        return float(np.mean(1 / (s + (cap - s) / degree * values))) - 1

    s = brentq(excess, 0.01, 0.99, xtol=1e-14)
    c = (cap - s) / degree
    return float(((n - 1) * s + degree * c) / (n - 1) ** 2 / (s / n))


@pytest.mark.parametrize(
    ("graph", "shown"),
    [(nx.complete_graph(10), "24.68"), (nx.circulant_graph(10, [1, 2, 5]), "24.60")],
    ids=["nine neighbours", "five neighbours"],
)
def test_one_of_ten_costs_about_25_times_the_variance_of_the_average(
    graph: nx.Graph, shown: str
) -> None:
    """Noise for the mean model, of variance 20 / tau at every node: nearly all of it cancels."""
    wanted = decor_ratio(graph, cap=20.0)
    assert f"{wanted:.2f}" == shown
    error = nd.ErrorMeasure(horizon=1, of="mean-model")
    decor, pairs = (
        on(graph, structure=structure, max_variance=20.0, error=error)
        for structure in (nd.SpaceStructure(kind="decor"), EDGES)
    )
    for found in every_drop_out(decor):
        assert found.others.average_ratio == pytest.approx(wanted, rel=1e-5)
    # The best seeds of every edge for itself: alike on the complete graph, and nearly so here.
    rel = 1e-5 if len(graph.edges) == 45 else 1e-3
    assert drop_out(pairs, [7]).others.average_ratio == pytest.approx(wanted, rel=rel)
    without = drop_out(decor, [0]).without_seeds
    assert without is not None
    assert without.average_ratio == pytest.approx(10 / 9, rel=1e-9)  # s / 9 over s / 10


# --- by brute force -------------------------------------------------------------------------------


def mean_variance(root: Array, nodes: list[int]) -> float:
    """Of the mean over nodes, seed by seed."""
    return sum(sum(root[i, k] / len(nodes) for i in nodes) ** 2 for k in range(root.shape[1]))


@pytest.mark.parametrize("gone", SUBSETS)
def test_variance_of_the_mean_seed_by_seed(ring: Design, gone: list[int]) -> None:
    root = seed_plan_of(ring).root()
    left = [i for i in range(6) if i not in gone]
    kept = root[:, [k for k in range(root.shape[1]) if not any(root[g, k] for g in gone)]]
    found, everybody = drop_out(ring, gone), mean_variance(root, list(range(6)))
    assert (found.left, found.gone) == (len(left), tuple(ring.problem.nodes[g] for g in gone))
    assert found.others.average_ratio == pytest.approx(mean_variance(root, left) / everybody)
    assert found.without_seeds is not None
    alone = mean_variance(kept, left) / everybody
    assert found.without_seeds.average_ratio == pytest.approx(alone)
    stddev = nd.calibrate(ring.problem).noise_stddev
    assert found.average_variance == pytest.approx(mean_variance(root, left) * stddev**2)


def mu_by_hand(covariance: Array, left: list[int], design: Design) -> float:
    """The mu of a step's record at the least protected node, in all steps of the run."""
    target, stddev = design.problem.privacy, nd.calibrate(design.problem).noise_stddev
    assert target is not None
    inverse = np.linalg.inv(covariance[np.ix_(left, left)])
    return float(2 * target.clip * math.sqrt(3 * inverse.diagonal().max()) / stddev)


@pytest.mark.parametrize("gone", SUBSETS)
def test_privacy_of_those_left_by_plain_inverses(ring: Design, gone: list[int]) -> None:
    root, budget = seed_plan_of(ring).root(), ring.problem.budget  # type: ignore[union-attr]
    left = [i for i in range(6) if i not in gone]
    found, designed = drop_out(ring, gone), nd.calibrate(ring.problem).mu
    assert designed is not None
    inverse = np.linalg.inv((root @ root.T)[np.ix_(left, left)])
    assert found.others.sensitivity_squared == pytest.approx(
        (inverse.diagonal() / budget[left]).max()
    )
    assert found.others.mu == pytest.approx(mu_by_hand(root @ root.T, left, ring))
    assert found.others.mu <= designed * (1 + 1e-9)
    kept = root[:, ~root[gone].any(axis=0)]
    assert found.without_seeds is not None
    assert found.without_seeds.mu == pytest.approx(mu_by_hand(kept @ kept.T, left, ring))


@pytest.mark.parametrize("gone", [[0], [1, 4], [0, 2, 4]])
@pytest.mark.parametrize("of", ["all-iterates", "last-iterate", "mean-model", "consensus"])
@pytest.mark.parametrize("directed", [False, True])
def test_error_by_unrolled_steps(directed: bool, gone: list[int], of: str) -> None:
    """x_{t+1} = W (x_t + z_t), coefficient by coefficient of every draw, before and after. A node
    keeps what it would have taken from those gone: rows of W keep their sums, not its columns."""
    weights = np.array([1.0, 2.0, 0.5, 1.0, 3.0, 1.0])
    error = nd.ErrorMeasure(horizon=3, of=of, node_weights=weights)
    mixing = nd.mixing_matrix(nx.cycle_graph(6))
    if directed:
        mixing = mixing * np.random.default_rng(0).uniform(0.3, 1.7, (6, 6))
        mixing /= mixing.sum(axis=1, keepdims=True)
    design = solved(nd.SpaceProblem(mixing=mixing, structure=EDGES, error=error))
    root = seed_plan_of(design).root()

    def error_a_node(nodes: list[int]) -> float:
        total, draws = 0.0, root.shape[1]
        x = {i: np.zeros((3, draws)) for i in range(6)}
        for t in range(3):
            moved = {i: x[i].copy() for i in range(6)}
            for i in nodes:
                moved[i][t] += root[i]
            for i in nodes:
                x[i] = sum(mixing[i, j] * moved[j if j in nodes else i] for j in range(6))  # type: ignore[assignment]
            mean = sum(weights[i] * x[i] for i in nodes) / weights[nodes].sum()
            for i in nodes:
                if of == "last-iterate" and t < 2:
                    continue
                state = {"mean-model": mean, "consensus": x[i] - mean}.get(of, x[i])
                total += weights[i] * float(np.square(state).sum())
        return total / float(weights[nodes].sum())

    everybody = list(range(6))
    assert error_a_node(everybody) * weights.sum() == pytest.approx(design.objective)
    left = [i for i in everybody if i not in gone]
    wanted = error_a_node(left) / error_a_node(everybody)
    assert drop_out(design, gone).others.error_ratio == pytest.approx(wanted)


def space_time() -> Design:
    return solved(
        nd.SpaceTimeProblem(
            mixing=nd.mixing_matrix(nx.path_graph(4)),
            participation=nd.participation.FixedEpoch(epochs=2, separation=2),
            space=EDGES,
            privacy=nd.PrivacyTarget(epsilon=2.0, delta=1e-5),
        )
    )


def in_time() -> Design:
    use = nd.participation.FixedEpoch(epochs=2, separation=2)
    return solved(
        nd.TimeProblem.decentralized(mixing=nd.mixing_matrix(nx.path_graph(4)), participation=use)
    )


@pytest.mark.parametrize("make", [space_time, in_time])
def test_with_nobody_gone_the_error_is_that_of_the_design(make: Any) -> None:
    design = make()
    network = _Network(design)
    found = network._error_of(network.covariance, np.arange(4))
    assert found == pytest.approx(design.objective / 4)


def test_nodes_of_a_design_in_time_lose_nobody_elses_noise() -> None:
    """Independent nodes: the mean is over fewer, and that is all."""
    found = drop_out(in_time(), [1, 3])
    assert found.others.average_ratio == pytest.approx(4 / 2)
    assert found.others.sensitivity_squared == pytest.approx(1.0)
    assert found.without_seeds == found.others
    assert found.others.mu is None


def test_noise_over_space_and_time_is_that_in_space_times_its_variance_at_a_step() -> None:
    design = space_time()
    root, left = seed_plan_of(design).root(), [0, 2, 3]
    found = drop_out(design, [1])
    ratio = mean_variance(root, left) / mean_variance(root, [0, 1, 2, 3])
    assert found.others.average_ratio == pytest.approx(ratio)
    variances = np.square(design.noising_matrix).sum(axis=1)
    stddev = nd.calibrate(design.problem).noise_stddev
    wanted = mean_variance(root, left) * variances.mean() * stddev**2
    assert found.average_variance == pytest.approx(wanted)


def test_noise_that_nodes_draw(ring: Design) -> None:
    """The means of what is drawn, by the nodes' own plans and seeds."""
    plans = [ring.node_plan(u) for u in range(6)]
    dealt = deal(plans, Secret(bytes(range(32))))
    size = 300_000
    drawn = [
        noise(plan, seeds=dealt[u], secret=Secret(bytes([u, *range(1, 32)])), record=False).step(
            1, size
        )
        for u, plan in enumerate(plans)
    ]
    found = drop_out(ring, ["Bob, jr.", "e"])
    variance = float(np.square(np.mean([drawn[u] for u in (0, 2, 3, 5)], axis=0)).mean())
    everybody = float(np.square(np.mean(drawn, axis=0)).mean())
    deviation = math.sqrt(2 / size)
    assert variance / found.average_variance == pytest.approx(1, abs=5 * deviation)
    ratio = variance / everybody
    assert ratio / found.others.average_ratio == pytest.approx(1, abs=8 * deviation)


# --- what holds for all ---------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["dense", "edge-local", "neighbourhood", "decor", "independent"])
def test_fewer_messages_never_tell_more(kind: str) -> None:
    """Along any order in which nodes drop out, what is learnt of every one left only falls."""
    rng = np.random.default_rng(5)
    graph = nx.barabasi_albert_graph(7, 2, seed=3)
    structure, budget = nd.SpaceStructure(kind=kind), rng.uniform(0.5, 2.0, 7)
    design = on(graph, weights="lazy-metropolis-hastings", structure=structure, budget=budget)
    for order in itertools.islice(itertools.permutations(range(7)), 0, 5040, 360):
        before = design.certificate.sensitivity_squared
        for count in range(1, 7):
            found = drop_out(design, order[:count])
            assert found.others.sensitivity_squared <= before * (1 + 1e-9)
            before = found.others.sensitivity_squared
            assert (found.without_seeds is None) == (kind == "dense")
            if found.without_seeds is not None:
                assert found.without_seeds.sensitivity_squared >= before * (1 - 1e-9)


@pytest.mark.parametrize("known", [1, 2])
def test_designs_for_known_seeds_keep_their_budgets_without_them(known: int) -> None:
    structure = nd.SpaceStructure(kind="edge-local", known_seeds=known)
    design = on(nx.circulant_graph(7, [1, 2]), structure=structure)
    plain = on(nx.circulant_graph(7, [1, 2]), structure=EDGES)
    for gone in itertools.combinations(range(7), known):
        kept, lost = (drop_out(found, gone).without_seeds for found in (design, plain))
        assert kept is not None
        assert lost is not None
        assert kept.sensitivity_squared <= 1 + 1e-9
        assert lost.sensitivity_squared > 1.05


def test_nothing_hides_a_node_whose_seeds_are_all_known() -> None:
    """R = L + s I with s tiny is hidden by pairs; a pair of two nodes leaves only s."""
    structure = nd.SpaceStructure(kind="clusters", clusters=(0, 0, 0, 0))
    design = on(nx.cycle_graph(4), structure=structure)
    found = drop_out(design, [2]).without_seeds
    assert found is not None
    assert found.sensitivity_squared == math.inf
    assert found.average_ratio == 0.0


# --- input, command line, picture -----------------------------------------------------------------


def test_names_and_rows_are_the_same_nodes(ring: Design) -> None:
    assert (
        drop_out(ring, ["Bob, jr.", "Ann"]) == drop_out(ring, [0, 1]) == drop_out(ring, [1, 0, 0])
    )
    assert [one.gone for one in every_drop_out(ring)] == [(name,) for name in ring.problem.nodes]
    assert "without Ann" in repr(drop_out(ring, [0]))


@pytest.mark.parametrize(
    ("gone", "words"),
    [
        ([], "some of the 6 nodes, and not all, got 0"),
        (range(6), "some of the 6 nodes, and not all, got 6"),
        (["Anne"], "one of the 6 nodes"),
        ([6], "row numbers 0 to 5"),
        ([-1], "row numbers 0 to 5"),
        ("Ann", "a list of nodes"),
        ([1.5], "the name of a node, or the number"),
        ([True], "the name of a node, or the number"),
    ],
)
def test_nodes_that_cannot_drop_out(ring: Design, gone: Any, words: str) -> None:
    with pytest.raises(InputError, match=words) as refused:
        drop_out(ring, gone)
    assert refused.value.field == "gone"


def test_designs_whose_nodes_cannot_drop_out(ring: Design) -> None:
    prefix = solved(nd.TimeProblem.prefix(participation=nd.participation.single(3)))
    full = solved(
        nd.SpaceTimeProblem(
            mixing=nd.mixing_matrix(nx.path_graph(3)),
            participation=nd.participation.FixedEpoch(epochs=1, separation=2),
            joint="full",
        )
    )
    central = baseline(ring.problem, "cdp")
    for design, words in (
        (prefix, "one of several nodes"),
        (full, "in space, in time, or their product, got full"),
        (central, "protects every message, got trust 'central'"),
    ):
        for ask in (every_drop_out, lambda found: drop_out(found, [0])):
            with pytest.raises(InputError, match=words):
                ask(design)


def test_an_error_under_random_mixing_has_no_ratio() -> None:
    mixing = nd.mixing_matrix(nx.cycle_graph(5))
    random = nd.graphs.NodeDropout(mixing=mixing, probability=0.1)
    found = drop_out(solved(nd.SpaceProblem(mixing=mixing, random=random)), [0])
    assert found.others.error_ratio is None
    assert found.others.average_ratio > 1


def test_the_command(ring: Design, tmp_path: Path) -> None:
    path, picture = tmp_path / "ring.npz", tmp_path / "ring.png"
    save_design(ring, path)
    together = call("dropout", str(path), "--gone", "Ann,d", "--gone", "Bob, jr.", "--json")
    (record,) = together.json()
    wanted = drop_out(ring, [0, 1, 3]).as_dict()
    assert record.pop("gone") == wanted.pop("gone") == "Ann, Bob, jr., d"
    assert record == pytest.approx(wanted, rel=1e-9)
    assert together.err == ""

    alone = call("dropout", str(path), "-o", str(picture))
    assert alone.code == 0
    assert picture.read_bytes().startswith(b"\x89PNG")
    for name in ring.problem.nodes:
        assert name in alone.out
    assert "average ratio" in alone.out
    assert "Those left are protected as designed" in alone.err
    assert "they are protected less" in alone.err
    assert call("dropout", str(path), "--gone", "Ana").code == 2
    assert "Did you mean Ann?" in call("dropout", str(path), "--gone", "Ana").err


def test_what_nothing_hides_is_no_number_in_json(tmp_path: Path) -> None:
    structure = nd.SpaceStructure(kind="clusters", clusters=(0, 0, 0, 0))
    path = tmp_path / "clusters.npz"
    save_design(on(nx.cycle_graph(4), structure=structure), path)
    (record,) = call("dropout", str(path), "--gone", "2", "--json").json()
    assert record["sensitivity_squared_without_seeds"] == "infinite"
    assert "nothing hides some of them" in call("dropout", str(path), "--gone", "2").err


def test_dealt_noise_has_no_seeds_to_leave_out(tmp_path: Path) -> None:
    path = tmp_path / "dense.npz"
    save_design(on(nx.cycle_graph(4)), path)
    shown = call("dropout", str(path))
    assert "The noise is dealt, so there are no seeds to leave out." in shown.err
    assert "without seeds" not in shown.out


def test_the_picture_has_every_node_the_costliest_on_top(ring: Design, tmp_path: Path) -> None:
    found = every_drop_out(ring)
    (axes,) = drop_out_figure(found, title="ring").axes
    ordered = sorted(found, key=lambda one: one.others.average_ratio)
    widths = [bar.get_width() for bar in axes.patches]  # type: ignore[attr-defined]
    assert widths == pytest.approx([one.others.average_ratio for one in ordered])
    labels = [label.get_text() for label in axes.get_yticklabels()]
    assert dict(zip(labels, widths, strict=True)) == pytest.approx(
        {one.gone[0]: one.others.average_ratio for one in found}
    )
    (points,) = [line for line in axes.lines if "leave out" in str(line.get_label())]
    values = [one.without_seeds.average_ratio for one in ordered if one.without_seeds]
    assert sorted(np.asarray(points.get_xdata())) == pytest.approx(sorted(values))
    with pytest.raises(InputError, match="at least one drop-out"):
        drop_out_figure([])
