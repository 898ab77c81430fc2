"""The theorem of a design: what its text states is what the file has, what is false is refused, and
Rocq, where it is installed, accepts the true ones and no others."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest

import noisedesign as nd
from noisedesign.base.checks import InputError
from noisedesign.tasks.theorem import theorem
from tests.support import ROOT
from tests.support.command_line import PREFIX, RING, call, write

PATH = nd.mixing_matrix(nx.path_graph(4))
GAP = 1e-10


def over_nodes(**limits: Any) -> Any:
    problem = nd.SpaceProblem(mixing=PATH, **limits)
    return nd.solve(problem, gap=GAP).design


def over_time(scheme: Any = None, **budgets: Any) -> Any:
    scheme = scheme or nd.participation.FixedEpoch(epochs=2, separation=2)
    return nd.solve(nd.TimeProblem.prefix(participation=scheme, **budgets), gap=GAP).design


def of_seeds(kind: str, **limits: Any) -> Any:
    return over_nodes(structure=nd.SpaceStructure(kind=kind), **limits)


APART = nd.participation.MinSeparation(horizon=5, separation=2, max_participations=2)
DESIGNS: dict[str, Callable[[], Any]] = {
    "nodes": over_nodes,
    "budgets": lambda: over_nodes(budget=[1.0, 0.5, 0.75, 1.0]),
    "cap": lambda: over_nodes(max_variance=[1.5, 1.3, 1.3, 1.5]),
    "cap and floor": lambda: over_nodes(max_variance=1.7, min_variance=[1.1, 1.2, 1.4, 1.1]),
    "time": over_time,
    "budgets over time": lambda: over_time(budget=[1.0, 0.5]),
    "cap over time": lambda: over_time(max_variance=[2.5, 2.6, 2.5, 2.5]),
    "overlapping": lambda: over_time(APART),
    "edges": lambda: of_seeds("edge-local"),
    "edges, budgets and a cap": lambda: of_seeds(
        "edge-local", budget=[1.0, 0.5, 0.75, 1.0], max_variance=[1.5, 2.2, 1.6, 1.5]
    ),
    "neighbourhoods": lambda: of_seeds("neighbourhood", max_variance=2.0),
}


def fields_of(text: str) -> dict[str, Any]:
    """Numbers of a theorem by name, read without the code that wrote them."""
    found: dict[str, Any] = {}
    record = text.split("Definition design")[1].split(".\nLemma")[0]
    for name, value in re.findall(r"\(\* (\w+) \*\) (.*?)(?=\n  \(\*|\Z)", record, re.DOTALL):
        python = value.replace("[::", "[").replace(";", ",").replace("%N", "")
        found[name] = eval(python.replace("(Some ", "("), {"__builtins__": {}})
    return found


def assert_floats(whole: list[int], scale: int, floats: Any) -> None:
    assert [Fraction(x, scale) for x in whole] == [Fraction(float(x)) for x in np.ravel(floats)]


def flat(rows: list[list[int]]) -> list[int]:
    return [x for row in rows for x in row]


def lower(a: Any) -> Any:
    return a[np.tril_indices(len(a))]


@pytest.mark.parametrize("name", ["nodes", "budgets", "cap", "cap and floor"])
def test_numbers_over_nodes_are_those_of_the_design(name: str) -> None:
    design = DESIGNS[name]()
    said, problem = fields_of(theorem(design)), design.problem
    assert_floats(flat(said["W"]), said["dW"], problem.mixing)
    assert_floats(flat(said["R"]), said["dR"], lower(design.covariance))
    assert_floats(said["tau"], said["dt"], problem.budget)
    for key, limit in ("cap", problem.max_variance), ("floor", problem.min_variance):
        if limit is None:
            assert said[key] is None
        else:
            assert_floats(said[key], said["dR"], limit)
    assert_floats([said["po"]], said["qo"], [design.objective])
    assert 0 <= Fraction(said["gn"], said["gd"]) - 1 <= 2 * GAP


@pytest.mark.parametrize("name", ["time", "budgets over time", "cap over time", "overlapping"])
def test_numbers_over_time_are_those_of_the_design(name: str) -> None:
    design = DESIGNS[name]()
    said, problem = fields_of(theorem(design)), design.problem
    assert_floats(flat(said["H"]), said["dL"] ** 2, lower(problem.gram))
    assert_floats(flat(said["C"]), said["dC"], lower(design.strategy))
    patterns = [[0, 2], [1, 3]] if name != "overlapping" else [[0, 2], [0, 3], [0, 4], [1, 3]]
    patterns += [[1, 4], [2, 4]] if name == "overlapping" else []
    assert said["steps"] == patterns
    budget = [1.0] * len(patterns) if name != "budgets over time" else [1.0, 0.5]
    assert_floats(said["tau"], said["dt"], budget)
    assert (said["cap"] is None) is (problem.max_variance is None)
    if said["cap"] is not None:
        assert_floats(said["cap"], said["dt"], problem.max_variance)
        assert max(said["w"]) > said["dL"] ** 2 // 10**3
    assert_floats([said["po"]], said["qo"], [design.objective])
    assert 0 <= Fraction(said["gn"], said["gd"]) - 1 <= 2 * GAP


def test_numbers_of_shared_seeds_are_those_of_the_design() -> None:
    """The path 0 - 1 - 2 - 3 has three edges, and blocks that sum to the covariance."""
    design = DESIGNS["edges, budgets and a cap"]()
    said, problem = fields_of(theorem(design)), design.problem
    assert_floats(flat(said["W"]), said["dW"], problem.mixing)
    assert said["sets"] == [[0, 1], [1, 2], [2, 3]]
    stored = np.vectorize(Fraction)(design.proof["clique_blocks"].reshape(3, 2, 2))
    for block, (own, (shared, other)) in zip(stored, said["P"], strict=True):
        mean = (block + block.T) / 2
        whole = [Fraction(x, said["dR"]) for x in (own[0], shared, other)]
        assert whole == [mean[0, 0], mean[0, 1], mean[1, 1]]
    assert_floats(said["tau"], said["dt"], problem.budget)
    assert_floats(said["cap"], said["dR"], problem.max_variance)
    assert_floats([said["po"]], said["qo"], [design.objective])
    assert 0 <= Fraction(said["gn"], said["gd"]) - 1 <= 2 * GAP


def test_independent_noise_by_hand() -> None:
    """Two nodes that average: noise of variance 1 each, an error of 1, and none has less."""
    problem = nd.SpaceProblem(
        mixing=np.full((2, 2), 0.5),
        structure=nd.SpaceStructure(kind="independent"),
        max_variance=4.0,
    )
    said = fields_of(theorem(nd.solve(problem, gap=GAP).design))
    assert said["sets"] == [[0], [1]]
    variances = [Fraction(block[0][0], said["dR"]) for block in said["P"]]
    assert all(1 <= x <= 1 + GAP for x in variances)
    assert float(Fraction(said["po"], said["qo"])) == pytest.approx(1, abs=GAP)
    assert Fraction(said["gn"], said["gd"]) - 1 <= 2 * GAP


def changed(design: Any, **kwargs: Any) -> Any:
    """A design with other noise or another certificate."""
    return replace(design, **kwargs)


def with_covariance(design: Any, covariance: Any) -> Any:
    return changed(design, noise=replace(design.noise, space=covariance))


def test_designs_that_are_not_what_they_say_are_refused() -> None:
    design = over_nodes()
    less = with_covariance(design, design.covariance * (1 - 1e-11))
    with pytest.raises(InputError, match=r"within the budget of node 0"):
        theorem(less)
    skewed = design.covariance.copy()
    skewed[0, 1] = np.nextafter(skewed[0, 1], 9)
    with pytest.raises(InputError, match="a symmetric covariance"):
        theorem(with_covariance(design, skewed))
    indefinite = design.covariance - 2 * np.eye(4)
    with pytest.raises(InputError, match="positive definite"):
        theorem(with_covariance(design, indefinite))
    for claim in "objective", "lower_bound":
        said = getattr(design.certificate, claim) * (1 + 1e-8)
        wrong = replace(design.certificate, **{claim: said})
        with pytest.raises(InputError, match=f"the {claim} that follows"):
            theorem(changed(design, certificate=wrong))
    tight = replace(design.problem, budget=[1.0, 1.0, 1 - 1e-9, 1.0])
    with pytest.raises(InputError, match=r"within the budget of node 2"):
        theorem(changed(design, problem=tight))
    capped = DESIGNS["cap and floor"]()
    variances = np.diagonal(capped.covariance)
    for key, limit in (
        ("max_variance", variances - 1e-9),
        ("min_variance", np.minimum(variances + 1e-9, 1.7)),
    ):
        other = replace(capped.problem, **{key: limit})
        with pytest.raises(InputError, match="variances that keep the"):
            theorem(changed(capped, problem=other))


def test_seeds_that_are_not_what_they_say_are_refused() -> None:
    design = DESIGNS["edges, budgets and a cap"]()

    def proved_by(**arrays: Any) -> Any:
        return changed(design, proof={**design.proof, **arrays})

    blocks = design.proof["clique_blocks"]
    less = blocks * (1 - 1e-9)
    lower = with_covariance(proved_by(clique_blocks=less), design.covariance * (1 - 1e-9))
    with pytest.raises(InputError, match=r"within the budget of node 0"):
        theorem(lower)
    with pytest.raises(InputError, match="blocks of shared seeds that make up the covariance"):
        theorem(proved_by(clique_blocks=less))
    # What the first edge has less of node 1, the second has more: R is the same.
    moved = blocks + 2 * np.array([0, 0, 0, -1, 1, 0, 0, 0, 0, 0, 0, 0])
    with pytest.raises(InputError, match="blocks that are proved positive"):
        theorem(proved_by(clique_blocks=moved))
    tight = replace(design.problem, max_variance=np.diagonal(design.covariance) - 1e-9)
    with pytest.raises(InputError, match="variances that keep the cap"):
        theorem(changed(design, problem=tight))
    for name in "dual_factors", "dual_cap":
        with pytest.raises(InputError, match="multipliers that prove a bound"):
            theorem(proved_by(**{name: design.proof[name] * np.nan}))
    said = replace(design.certificate, lower_bound=design.lower_bound * (1 + 1e-8))
    with pytest.raises(InputError, match="the lower_bound that follows"):
        theorem(changed(design, certificate=said))


def test_strategies_that_are_not_what_they_say_are_refused() -> None:
    design = over_time()
    strategy: Any = design.noise.strategy
    louder = replace(strategy, strategy=design.strategy * (1 + 1e-9))
    with pytest.raises(InputError, match="squared sensitivity within budget"):
        theorem(changed(design, noise=replace(design.noise, strategy=louder)))
    tight = replace(design.problem, budget=[1.0, 1 - 1e-9])
    with pytest.raises(InputError, match=r"on the steps \[1, 3\]"):
        theorem(changed(design, problem=tight))
    capped = DESIGNS["cap over time"]()
    variances = np.diagonal(np.linalg.inv(capped.strategy.T @ capped.strategy))
    lower = replace(capped.problem, max_variance=variances - 1e-9)
    with pytest.raises(InputError, match="variances that keep the cap"):
        theorem(changed(capped, problem=lower))
    for prices, why in (np.nan, "prove a bound"), (0.0, "the lower_bound that follows"):
        proof = {**capped.proof, "dual_cap": np.full(4, prices)}
        with pytest.raises(InputError, match=why):
            theorem(changed(capped, proof=proof))


def test_a_cap_that_is_reached_is_kept() -> None:
    """Variances are squared norms of rows of C^-1, here as fractions, and caps a rounding off."""
    design = over_time(nd.participation.FixedEpoch(epochs=1, separation=16), max_variance=1.2)
    c = np.vectorize(Fraction)(design.strategy)
    inverse = np.vectorize(Fraction)(np.eye(16))
    for i in range(16):
        inverse[i] = (inverse[i] - c[i, :i] @ inverse[:i]) / c[i, i]
    reached = [float(x) for x in (inverse**2).sum(axis=1)]
    above = replace(design.problem, max_variance=np.nextafter(reached, 9))
    assert max(fields_of(theorem(changed(design, problem=above)))["w"]) > 0
    below = replace(design.problem, max_variance=np.nextafter(reached, 0))
    with pytest.raises(InputError, match="variances that keep the cap"):
        theorem(changed(design, problem=below))


@pytest.mark.parametrize(
    "problem",
    [
        nd.SpaceProblem(mixing=PATH, rounds=2),
        nd.SpaceProblem(mixing=PATH, structure=nd.SpaceStructure(kind="edge-local", known_seeds=1)),
        nd.SpaceProblem(mixing=PATH, structure=nd.SpaceStructure(kind="decor")),
    ],
)
def test_other_designs_are_refused_in_words(problem: Any) -> None:
    with pytest.raises(InputError, match="design: expected a design over nodes, of the error"):
        theorem(nd.solve(problem).design)


def test_command(tmp_path: Path) -> None:
    design, path = tmp_path / "ring.npz", tmp_path / "ring.v"
    assert call("solve", write(tmp_path, RING), "-o", design).code == 0
    outcome = call("prove", design, "-o", path)
    assert (outcome.code, outcome.out) == (0, f"{path}\n")
    assert path.read_text() == theorem(nd.load(design).design)
    assert call("prove", design, "-o", path, "--json").json()["file"] == str(path)
    path.write_text("Mine.")
    refused = call("prove", design, "-o", path)
    assert (refused.code, path.read_text()) == (2, "Mine.")
    capped = call("prove", write(tmp_path, PREFIX), "-o", path, "--force")
    assert capped.code == 2


def test_shipped_theorem_is_of_the_shipped_problem() -> None:
    """Its first numbers are W and the budgets of the Florentine families."""
    said = fields_of((ROOT / "proofs" / "Florentine.v").read_text())
    graph = nx.florentine_families_graph()
    assert_floats(flat(said["W"]), said["dW"], nd.mixing_matrix(graph))
    assert set(said["tau"]) == {said["dt"]}
    assert Fraction(said["gn"], said["gd"]) - 1 < Fraction(1, 10**9)


def test_every_proof_is_listed_and_assumes_nothing() -> None:
    listed = (ROOT / "proofs" / "_CoqProject").read_text().split()
    files = {path.name for path in (ROOT / "proofs").glob("*.v")}
    assert files == {name for name in listed if name.endswith(".v")}
    for name in files:
        text = (ROOT / "proofs" / name).read_text()
        words = r"^\s*(Axiom|Parameter|Conjecture)\b|\b(Admitted|admit)\b"
        assert not re.search(words, text, re.MULTILINE), name


# --- by Rocq itself -----------------------------------------------------------------------------

ROCQ = pytest.mark.skipif(shutil.which("coqc") is None, reason="coqc is not on this machine")


@pytest.fixture(scope="module")
def proofs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the proofs, checked; every theorem that is printed is without an assumption."""
    folder = tmp_path_factory.mktemp("proofs")
    shutil.copytree(ROOT / "proofs", folder, dirs_exist_ok=True)
    done = subprocess.run(["sh", folder / "build.sh"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "Axioms" not in done.stdout
    return folder


def accepts(proofs: Path, text: str) -> bool:
    """Whether Rocq takes a theorem."""
    (proofs / "tried.v").write_text(text)
    told = subprocess.run(
        ["sh", proofs / "build.sh", proofs / "tried.v"], capture_output=True, text=True, check=False
    )
    return told.returncode == 0 and "Closed under the global context" in told.stdout


def more(text: str, name: str, by: int) -> str:
    """The text with the first number of a field changed."""
    start = text.index(f"(* {name} *)")
    found = re.compile(r"-?\d+").search(text, start + len(f"(* {name} *)"))
    assert found is not None
    return text[: found.start()] + str(int(found[0]) + by) + text[found.end() :]


@ROCQ
@pytest.mark.slow
@pytest.mark.parametrize("name", DESIGNS)
def test_rocq_accepts_what_is_true_and_nothing_else(name: str, proofs: Path) -> None:
    text = theorem(DESIGNS[name]())
    assert accepts(proofs, text)
    said = fields_of(text)
    noise, less = ("P" if "P" in said else "R", -1) if "W" in said else ("C", 1)
    scale = said["dR" if "W" in said else "dC"]
    wrong = {
        "an entry of the noise": more(text, noise, less * scale // 10**6),
        "the objective": more(text, "po", said["po"] // 10**8),
        "a gap that is too small": more(text, "gn", said["gd"] - 1 - said["gn"]),
        "a budget": more(text, "tau", -(said["dt"] // 10**6) or -1),
    }
    if "sets" in said:
        wrong["a set"] = more(text, "sets", 2)
    if said.get("cap"):
        wrong["a cap"] = more(text, "cap", -(said["cap"][0] // 2))
    for what, other in wrong.items():
        assert not accepts(proofs, other), what
