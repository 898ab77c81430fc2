"""Numbers in the words of the pages are those of the command or the formula beside them.

Those of stored experiments are in ``test_numbers``. A paragraph that is tested names the test in a
comment above it, as tables do: ``<!-- numbers: {test = "..."} -->``.
"""

from __future__ import annotations

import csv
import itertools
import math
import re
from fractions import Fraction
from pathlib import Path

import networkx as nx
import numpy as np
import pytest

import noisedesign as nd
from benchmarks import conic, edge_local_large, rigorous, sparse_graphs
from noisedesign.noise.lattice import lattice_of
from noisedesign.noise.normals import RELATIVE_ERROR
from noisedesign.privacy import views
from noisedesign.privacy.runs import Responses
from noisedesign.privacy.sensitivity import squared_sensitivity
from noisedesign_lab.papers import figures
from tests.support import ROOT, numbers, pages
from tests.support.command_line import call, write
from tests.support.zip_dl_convergence import consensus_noise, theorem_4_5


def told(page: str) -> str:
    return " ".join(pages.read(page).split())


def test_words_about_the_model_of_a_run() -> None:
    """s(a) of the counterexample, and the most by which a clipped step expands."""
    s = [((1 + a) / 3) ** 2 for a in (0, 1, 100)]
    shown = [f"{x / (x + 1):.3f}".lstrip("0") for x in s]
    text = told("docs/runs.md")
    told_of = zip(shown, (0, 1, 100), strict=True)
    first, second, third = (f"{x} for $\\alpha = {a}$" for x, a in told_of)
    assert f"{first}, {second} and {third}" in text
    assert f"{first} and {third}" in told("docs/mathematics/views.md")
    assert f"up to {100 * (math.sqrt(4 / 3) - 1):.1f} % a step" in text


def test_words_about_signs() -> None:
    """Node 0 of the karate club about node 4: vectors reach more than all 512 choices of signs."""
    algorithm = views.dp_d_sgd(mixing=nd.mixing_matrix(nd.build_graph("karate")), horizon=10)
    looks, scheme = nd.observers.secure_sum(nodes=[0]), nd.participation.every_step(10)
    (vector,) = nd.account(algorithm, looks, participation=scheme, victims=[4], responses="fixed")
    ((_, seen),) = views.grams(views.view(algorithm, looks), [4])
    gram = np.asarray(seen.gram)
    signs = (np.array((1, *rest)) for rest in itertools.product((1, -1), repeat=9))
    best = max(float(sign @ gram @ sign) for sign in signs)
    assert vector.which == "vector-exact"
    assert (
        f"a squared sensitivity of {vector.sensitivity_squared:.3f}, where no signs reach more "
        f"than {best:.3f}"
    ) in told("docs/accounts.md")


def test_words_about_four_numbers() -> None:
    """By hand: one participation of two that is seen, and three whose gradients are 120 degrees
    apart. The spectral bound is above the sum of absolute values once, and once below."""
    found = []
    for m in (np.diag([1.0, 0.0]), 1.5 * np.eye(3) - 0.5):
        k = len(m)
        signs = (np.array(c) for c in itertools.product((1, -1), repeat=k))
        vectors = squared_sensitivity(m, nd.participation.every_step(k)).squared
        spectral = k * np.linalg.eigvalsh(m)[-1]
        found.append([max(c @ m @ c for c in signs), vectors, spectral, np.abs(m).sum()])
    assert found[0] == pytest.approx([1, 1, 2, 1], rel=1e-7)
    assert found[1] == pytest.approx([4, 4.5, 4.5, 6], rel=1e-7)
    assert (
        "The first is at most the second, and both others are above that; all but the spectral one "
        "agree where $M$ has no negative entry."
    ) in told("docs/accounts.md")


def test_words_about_dropout() -> None:
    """A ring of ten without caps, and failures on the Florentine families."""

    def design_of(graph: nx.Graph, **structure: int) -> nd.Design:
        edges = nd.SpaceStructure(kind="edge-local", **structure)
        design = nd.solve(nd.SpaceProblem.from_graph(graph, structure=edges)).design
        assert design is not None
        return design

    text = told("docs/guides/dropout.md")
    ring = nd.privacy.drop_out(design_of(nx.cycle_graph(10)), [0])
    assert f"it is less: {ring.others.average_ratio:.2f} times on a ring of ten" in text
    florentine = nd.build_graph("florentine")
    none, one, two = (design_of(florentine, known_seeds=f) for f in range(3))
    assert (
        f"error of edge-local noise is {none.objective:.3f} without failures, {one.objective:.3f} "
        f"with one and {two.objective:.3f} with two (independent noise: {none.ldp_objective:.3f})"
    ) in text


def test_words_about_sizes() -> None:
    """Arrays of float64, pairs of nodes, and the largest radius of two normals from 53 bits."""
    large, loop = told("docs/guides/large-problems.md"), told("docs/guides/noise-in-my-own-loop.md")
    assert (
        f"stacked workload, of which one array would take {8 * (148 * 320) ** 2 / 1e9:.1f} GB"
        in large
    )
    assert f"where R would take {8 * 100_000**2 / 1e9:.0f} GB" in large
    assert f"doubles; {8 * 8 * 4096**2 / 1e9:.1f} GB at 4096)" in large
    arrays = 3 + 1  # p - 1 of four bands, and what is returned
    of_bands = arrays * 4 * 1e8 + 20e6
    assert f"1e8 numbers in float32 with four bands take {of_bands / 1e9:.1f} GB" in loop
    assert f"A normal is within {RELATIVE_ERROR:g} of its radius" in loop
    radius = math.sqrt(-2 * math.log(2**-53))
    assert f"at most {radius:.4f} in size" in loop
    assert f"once in {1 / math.erfc(radius / math.sqrt(2)):.0e}".replace("e+", "e") in loop
    for page in ("docs/guides/who-sees-what.md", "docs/results.md"):
        assert f"{math.comb(500, 2):,} pairs" in told(page)


def test_words_about_links() -> None:
    """Milliseconds are bytes over the 10 Gbit/s that the page supposes, to the digits shown."""
    page = pages.read("docs/guides/large-problems.md")
    (table,) = (
        one.table
        for one in numbers.marked("large", page)
        if one.says.get("measured") == "python -m benchmarks.partitioned"
    )
    assert "links of 10 Gbit/s" in page
    sent = re.findall(r"\| ([\d.]+) MB \| ([\d.]+) \|", table)
    assert len(sent) == 4
    for megabytes, milliseconds in sent:
        assert numbers.rounds(milliseconds, float(megabytes) * 8 / 10)


def test_words_about_kronecker_designs() -> None:
    """What a Kronecker design is above other noise, as the tables of the results have it; rows in
    which noise of modes is no better tell nothing."""
    text = pages.read("docs/results.md")
    tables = [
        pages.table_with(text, "graph", title)[1:]
        for title in ("Kronecker over the optimum", "Kronecker over modes")
    ]
    parts, passes, low = (
        [float(row[k].split("%")[0]) for row in tables[place]]
        for place, k in ((0, 2), (1, 2), (0, 5))
    )
    above = [x for x in passes if x > 0]
    assert (
        f"{min(parts):.0f} to {max(parts):.0f} % above the least error in one pass, "
        f"{min(above):.0f} to {max(above):.0f} % above noise of modes in five passes"
    ) in told("docs/guides/which-design.md")
    assert (
        f"then {min(low):.2f} to {max(low):.2f} % low where the optimum was computed, and the rest "
        f"of the gap of a Kronecker design, up to {max(parts):.0f} %"
    ).replace("0.", ".") in told("docs/methods/structures.md")


def test_words_about_accounts_of_ledgers() -> None:
    """The page's own comments, which ``test_the_ledger`` compares, rounded."""
    text = told("docs/guides/ledger.md")
    every, own, seen = re.findall(r"delta=1e-6\) # ([\d.]+)", text)[1:4]
    assert f"ε = {float(every):.1f}, where 2 holds" in text
    assert f"it books {float(own):.2f}: less than is true" in text
    assert f"the same books {float(seen):.1f}: two errors" in text


def test_words_about_caps() -> None:
    """Noise against every node of one step, over independent noise, by the cap on its variance."""

    def left(kind: str, cap: float, **size: int) -> str:
        mixing = nd.mixing_matrix(nd.build_graph(kind, **size))
        observers = tuple(nd.observers.pndp(nodes=(node,)) for node in range(len(mixing)))
        problem = nd.SpaceProblem(mixing=mixing, observers=observers, max_variance=cap)
        design = nd.solve(problem, gap=2e-4).design
        assert design is not None
        assert design.gap <= 2e-4
        return f"{design.relative_to_ldp:.3f}"

    text = told("docs/results.md")
    ring = [left("ring", cap, nodes=6) for cap in (1e4, 2.0)]
    florentine = [left("florentine", cap) for cap in (1e4, 2.0)]
    assert ring[0] == f"{1 / 3:.3f}"
    assert f"needs 1/3 and the Florentine families {florentine[0]}" in text
    assert f"twice the variance of independent noise {ring[1]} and {florentine[1]}" in text


@pytest.mark.slow
def test_words_about_random_participation() -> None:
    small, large = (
        nd.solve(nd.load(f"random-participation/{name}").problem).certificate
        for name in ("ring-8-2x4", "florentine-20x16")
    )
    assert (
        f"how much less the error is: {small.relative_to_fixed:.2f} here, and "
        f"{large.relative_to_fixed:.2f} for `random-participation/florentine-20x16`"
    ) in told("docs/guides/random-participation.md")
    least = f"{large.lower_bound / large.fixed_lower_bound:.3f}".removeprefix("0")
    found = f"{large.relative_to_fixed:.2f}".removeprefix("0")
    assert (
        f"no linear mechanism has less than {least} of the error of the optimum for fixed "
        f"participation; the best nonnegative strategy found has {found} of it"
    ) in told("docs/methods/random-participation.md")


@pytest.mark.slow
def test_words_about_gaps(tmp_path: Path) -> None:
    """What the search reaches is computed in floating point: within a tenth of what is told."""
    accounts = ROOT / "problems" / "accounts"
    muffliato = (accounts / "florentine-muffliato-secure-sum.toml").read_text(encoding="utf-8")
    declared = muffliato + 'responses = "convex"\nlosses = "generalised-linear"\n'
    both = [
        [100 * row["gap"] for row in call("account", path, "--json").json()]
        for path in (accounts / "florentine-convex-pndp.toml", write(tmp_path, declared, "m.toml"))
    ]
    text = told("docs/runs.md")
    (most,) = re.findall(r"at most ([\d.]+) % above what the search reaches", text)
    assert max(both[0]) == pytest.approx(float(most), rel=0.1)
    (most,) = re.findall(r"it is at most ([\d.]+) % above. The optimum", text)
    assert max(both[1]) == pytest.approx(float(most), rel=0.1)


@pytest.mark.slow
def test_words_about_observers_of_several_algorithms(tmp_path: Path) -> None:
    """Zip-DL's mu before a reader of the wire, over that of DP-D-SGD."""
    figures.make("algorithms-by-observer", tmp_path)
    with (tmp_path / "algorithms-by-observer.csv").open(encoding="utf-8", newline="") as file:
        mu = {(r["algorithm"], r["model"]): r["mu"] for r in csv.DictReader(file)}
    before = {
        model: float(mu["zip-dl", model]) / float(mu["dp-d-sgd", model])
        for model in ("ldp", "pndp")
    }
    assert round(before["ldp"]) == 19  # in words on the page
    assert before["pndp"] < 1
    assert "costs nineteen times the μ of DP-D-SGD" in told("docs/guides/who-sees-what.md")


def test_words_about_published_accountings() -> None:
    """Two hops away, Metropolis-Hastings weights: means of both bounds over the exact one, and the
    range over all pairs."""
    path = ROOT / "docs" / "experiments" / "pndp-by-distance.csv"
    with path.open(encoding="utf-8", newline="") as file:
        rows = [
            r
            for r in csv.DictReader(file)
            if (r["weights"], r["distance"]) == ("metropolis-hastings", "2")
        ]
    ratios = [
        sorted(
            float(r[f"{name}_mean"]) / float(r["exact_mean"])
            for name in ("cyffers_squared", "cyffers_unsquared")
        )
        for r in rows
    ]
    small, large = ([ratio[k] for ratio in ratios] for k in (0, 1))
    assert len(rows) >= 3
    text = told("docs/guides/who-sees-what.md")
    assert (
        f"{min(small):.0f} to {max(small):.0f} times below the smaller of two published "
        f"accountings, and {min(large):.0f} to {max(large):.0f} times below the other"
    ) in text
    least, mean, most = (float(rows[0][f"exact_{name}"]) for name in ("min", "mean", "max"))
    assert (
        f"it is {mean:.2f} in the mean over all pairs, and from {least:.2f} to {most:.2f}" in text
    )


def test_words_about_proofs() -> None:
    """Products of 2 n^3 operations, by the counts of LAPACK's routines, and what is proved."""
    cholesky = inverse = of_triangles = Fraction(1, 3)
    solve = half = Fraction(1)  # a triangle with a full matrix; half of a full product
    text = told("docs/methods/proofs.md")

    def units(operations: Fraction) -> str:
        return f"{float(operations / 2):.2f}".removeprefix("0").rstrip("0")

    assert f"its Gram matrix (together {units(cholesky + inverse + half)} of a product)" in text
    assert (
        f"an inverse of a triangle ({units(inverse)}), $C D$ and $L D$ of triangles "
        f"({units(of_triangles)} each), $C^\\top C$ ({units(of_triangles)}), "
        f"$L^{{-\\top}} (X B)$ ({units(solve)})"
    ) in text
    (told_of,) = re.findall(r"size 500 .* it proves ([\d.e-]+) in space and ([\d.e-]+) over", text)
    for problem, most in zip((rigorous.in_space(500), rigorous.in_time(500)), told_of, strict=True):
        design = nd.solve(problem, gap=rigorous.TIGHT).design
        assert design is not None
        proof, decompositions = rigorous.counted(design)
        assert proof.rigorous
        assert decompositions == 0
        assert proof.gap == pytest.approx(float(most), rel=0.5)


def test_words_about_seeds_of_pairs() -> None:
    """Four numbers for all covariances, above the best of all blocks."""
    asked = ("pairwise", "edge-local")
    for graph in (
        nd.build_graph("erdos-renyi", nodes=40, degree=6.0, seed=0),
        nd.build_graph("barabasi-albert", nodes=40, links=3, seed=1),
    ):
        designs = [
            nd.solve(nd.SpaceProblem.from_graph(graph, structure=nd.SpaceStructure(kind=kind)))
            for kind in asked
        ]
        four, best = (one.certificate.objective for one in designs)
        assert best <= four * (1 + 1e-6)
        for page, words in (
            ("docs/methods/large-graphs.md", r"they are within ([\d.]+) % of it on random graphs"),
            ("docs/guides/large-problems.md", r"\(([\d.]+) % at most where it is"),
        ):
            (most,) = re.findall(words, told(page))
            assert four <= best * (1 + float(most) / 100)


@pytest.mark.slow
def test_words_about_conic_formulations() -> None:
    karate = nd.load("whisper/karate").problem
    balanced, compact = (
        conic.measured("scs", karate, conic.VARIANTS["scs"][name], 60.0)
        for name in ("balanced (default)", "compact")
    )
    text = told("docs/guides/compare-backends.md")
    assert balanced["certified"]
    assert f"takes {balanced['iterations']} iterations for the karate club in `balanced`" in text
    assert "and more than a hundred times as many in `compact`" in text
    assert compact["iterations"] > 100 * balanced["iterations"]


def test_words_about_integers() -> None:
    """What rounding of C, of sigma and of messages, of variance 1/12, adds to the error."""
    target = nd.PrivacyTarget(epsilon=8.0, delta=1e-5, clip=1.0)
    scheme = nd.participation.FixedEpoch(epochs=3, separation=4)
    design = nd.solve(nd.TimeProblem.prefix(participation=scheme, privacy=target)).design
    assert design is not None
    plan, summed = design.node_plan(0), np.tril(np.ones((12, 12)))
    (columns,) = plan.filter.noising_columns(12)
    designed = float(np.square(summed @ columns).sum())
    more = []
    for steps in (6, 10, 20):
        grid = 2.0 ** (math.floor(math.log2(plan.claim.noise_stddev)) - steps)
        found = lattice_of(plan, grid=grid)
        c = sum(np.diag(band[: 12 - i].astype(float), -i) for i, band in enumerate(found.strategy))
        response = summed @ np.linalg.inv(c)
        added = np.square(response * np.diagonal(c)).sum() / 12
        variance = float(found.own_variance) * np.square(response).sum() + added
        more.append(variance * found.grid**2 / designed - 1)
    (most,) = re.findall(
        r"error of prefix sums is within ([\d.]+) % of the design's from 2\^6 to 2\^20",
        told("docs/guides/noise-in-integers.md"),
    )
    assert max(map(abs, more)) == pytest.approx(float(most) / 100, rel=0.5)
    assert max(map(abs, more)) <= float(most) / 100


def test_words_about_zip_dl_on_a_ring() -> None:
    """Messages x + Z of covariance [[2, -1], [-1, 2]] / 3 are what an eavesdropper has of a node:
    1^T K^-1 1 = 6. The models are 2/9 apart, and Lemma 4.7 has 36 * 4 / 6 = 24."""
    ring = nd.mixing_matrix(nx.cycle_graph(6))
    apart = Fraction(consensus_noise(mixing=ring, horizon=1)).limit_denominator(100)
    ((_, seen),) = views.grams(
        views.view(views.zip_dl(mixing=ring, horizon=1), nd.observers.ldp()), [0]
    )
    scale = theorem_4_5(
        mixing=ring,
        zeta=1.0,
        smoothness=1.0,
        strong_convexity=1.0,
        sampling_variance=1.0,
        heterogeneity_squared=1.0,
        start_distance_squared=1.0,
        dimension=1,
        statement="proof",
    )
    p = scale.consensus
    lemma = 2 * scale.noise / ((16 - 4 * p) / (3 * p))
    assert (
        f"one round makes it {apart}, where Lemma 4.7 says {lemma:.0f}; an eavesdropper's exact "
        f"joint squared sensitivity of one step is {np.asarray(seen.gram).item():.0f}"
    ) in told("docs/accounts.md")


def test_words_about_independent_noise_in_the_tutorial() -> None:
    """The table above the sentence is printed by the page itself."""
    text = told("docs/tutorial.md")
    (printed,) = re.findall(r"```text ldp ([\d.]+) cdp", text)
    assert f"Independent noise (`ldp`) leaves {printed} times the error" in text


@pytest.mark.slow
def test_words_about_the_records_own_part() -> None:
    """On a directed graph whose gradients hardly answer, before node 0: the bound holds for
    responses of the record as well, the exact number does not."""
    directed = [[0.6, 0.4, 0, 0], [0, 0.5, 0.5, 0], [0, 0, 0.3, 0.7], [0.2, 0, 0, 0.8]]
    barely = Responses(kind="smooth", smoothness=1e-7)
    bound, exact = (
        nd.account(
            views.dp_d_sgd(mixing=np.array(directed), horizon=4),
            nd.observers.pndp(nodes=[0]),
            participation=nd.participation.Patterns(horizon=4, steps=((0, 2),)),
            adjacency="zero-out",
            responses=responses,
            victims=[2],
        )[0].sensitivity_squared
        for responses in (barely, "fixed")
    )
    (most,) = re.findall(r"it stays up to (\d+) % below the bound", told("docs/runs.md"))
    assert 100 * (1 - exact / bound) == pytest.approx(float(most), abs=0.5)


def cells(test: str, page: str) -> list[list[str]]:
    """The cells of the table that a test compares, without its head."""
    (table,) = (
        one.table for one in numbers.marked(page, pages.read(page)) if one.says.get("test") == test
    )
    return [[c.strip() for c in line.strip("|\n").split("|")] for line in table.splitlines()[2:]]


LARGE = "docs/guides/large-problems.md"
GRAPHS_OF_PAGE = {
    "Barabasi-Albert, 3 links": "barabasi-albert",
    "Erdos-Renyi, degree 8": "erdos-renyi",
    "geometric, degree 8": "random-geometric",
}


@pytest.mark.parametrize(
    ("column", "nodes"), [pytest.param(k, 10 ** (k + 2), marks=pytest.mark.slow) for k in (1, 2, 3)]
)
def test_words_about_sparse_graphs(column: int, nodes: int) -> None:
    """Gaps of the page, whose estimates by random vectors move its last digit by one."""
    for kind, *gaps in cells("test_words_about_sparse_graphs", LARGE):
        found = sparse_graphs.row(GRAPHS_OF_PAGE[kind], nodes, 1)
        assert abs(100 * found["gap"] - float(gaps[column - 1].rstrip(" %"))) < 0.15, kind


@pytest.mark.parametrize(
    "nodes",
    [
        pytest.param(1_000, marks=pytest.mark.slow),
        pytest.param(10_000, marks=pytest.mark.slow),
        pytest.param(100_000, marks=pytest.mark.slow),
    ],
)
def test_words_about_large_edge_local_designs(nodes: int, tmp_path: Path) -> None:
    rows = cells("test_words_about_large_edge_local_designs", LARGE)
    of_size = [row for row in rows if row[1] == f"{nodes:,}"]
    assert len(of_size) == 2
    for kind, _, above, share, budget in of_size:
        found = edge_local_large.solved(
            GRAPHS_OF_PAGE[kind], nodes, "pairwise", tmp_path / "design.npz"
        )
        assert abs(100 * found["gap"] - float(above.rstrip(" %"))) < 0.15
        assert abs(found["relative_to_ldp"] - float(share)) < 0.0015
        assert abs(found["over_budget"] - float(budget)) < 2e-6
        assert found["over_budget"] <= 1


def test_words_about_memory() -> None:
    """Arrays of doubles by their sizes."""
    text = told(LARGE)
    assert f"in doubles; {8 * 8 * 4096**2 / 1e9:.1f} GB at 4096" in text
    assert f"one array would take {8 * (148 * 320) ** 2 / 1e9:.1f} GB" in text
    assert f"where R would take {8 * 1e5**2 / 1e9:.0f} GB" in text
