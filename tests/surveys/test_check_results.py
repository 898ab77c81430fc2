"""Results of strangers: hand-made tables with answers that are right, wrong, infeasible, missing.

On a ring of ten nodes the optimum is known without any solver: all nodes look alike, so that equal
multipliers are optimal, R is (tr |W| / 10) |W|^-1 up to its eigenvectors, and the objective is
(tr |W|)^2 / 10.
"""

from __future__ import annotations

import csv
import json
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import noisedesign as nd
from noisedesign.base.checks import Array, InputError
from noisedesign.families.family import family_of
from noisedesign.surveys import answers_file, performance
from noisedesign.surveys.check_results import (
    LEVELS,
    MISSING,
    VERIFIED,
    WRONG,
    CheckedResults,
    check_results,
    read_verdicts,
    write_verdicts,
)
from noisedesign.surveys.collection import collection
from tests.support.clusters import in_main_thread, threads as threads
from tests.support.command_line import call

RING, STAR, CAPPED = "collection/ring-10", "collection/star-10", "collection/complete-40-capped"
EDGE_LOCAL, PREFIX = "space-structures/florentine-edge-local", "collection/prefix-min-separation-18"


def ring_answer() -> tuple[Array, float]:
    """R of the ring and its objective, in closed form: W is a circulant of three thirds."""
    values = (1 + 2 * np.cos(2 * np.pi * np.arange(10) / 10)) / 3
    vectors = np.exp(2j * np.pi * np.outer(np.arange(10), np.arange(10)) / 10) / math.sqrt(10)
    size = np.abs(values)
    r = (vectors * (size.sum() / 10 / size)) @ vectors.conj().T
    return np.ascontiguousarray((r.real + r.real.T) / 2), float(size.sum() ** 2 / 10)


def table(folder: Path, rows: list[dict[str, Any]], *, name: str = "runs.csv") -> Path:
    columns = ("problem", "solver", "seconds", "answer", "objective", "lower_bound")
    with (folder / name).open("w", newline="") as file:
        writer = csv.DictWriter(file, columns, restval="")
        writer.writeheader()
        writer.writerows({"problem": RING, "solver": "s", "seconds": 1, **row} for row in rows)
    return folder / name


def answer(folder: Path, matrix: Array, name: str = "r.npy") -> str:
    np.save(folder / name, matrix)
    return name


def one(folder: Path, problem: str = RING, **row: Any) -> dict[str, Any]:
    path = table(folder, [{"problem": problem, **row}])
    (found,) = check_results(path, problems=[problem]).rows
    return found


# --- what is right --------------------------------------------------------------------------------


def test_the_optimum_in_closed_form_is_right(tmp_path: Path) -> None:
    r, optimum = ring_answer()
    found = one(tmp_path, answer=answer(tmp_path, r), objective=repr(optimum))
    assert found["status"] == VERIFIED
    assert found["objective"] == pytest.approx(optimum, rel=1e-13)
    assert found["charged"] == pytest.approx(optimum, rel=1e-12)
    assert abs(found["price"]) <= 1e-12
    assert found["accuracy"] == 1e-9
    assert found["bound"] is None


def test_independent_noise_is_right_and_far_off(tmp_path: Path) -> None:
    """R = I spends exactly the budgets, at tr(W^2) = 10 / 3."""
    found = one(tmp_path, answer=answer(tmp_path, np.eye(10)))
    assert (found["status"], found["accuracy"], found["price"]) == (VERIFIED, None, 0.0)
    assert found["objective"] == pytest.approx(10 / 3, rel=1e-14)
    excess = 10 / 3 / ring_answer()[1] - 1
    assert found["excess"] == pytest.approx(excess, rel=1e-9)
    assert found["gap"] == found["excess"]


@pytest.mark.parametrize(
    ("short", "level"), [(1e-10, 1e-9), (1e-7, 1e-6), (1e-4, 1e-3), (1e-2, None)]
)
def test_noise_that_spends_too_much_is_charged_what_scaling_costs(
    tmp_path: Path, short: float, level: float | None
) -> None:
    """A share ``short`` less noise than the optimum spends 1 / (1 - short) of the budgets."""
    r, optimum = ring_answer()
    found = one(tmp_path, answer=answer(tmp_path, (1 - short) * r))
    assert found["status"] == VERIFIED
    assert found["objective"] == pytest.approx((1 - short) * optimum, rel=1e-13)
    assert found["price"] == pytest.approx(short / (1 - short), abs=1e-12)
    assert found["charged"] == pytest.approx(optimum, rel=1e-11)
    assert found["accuracy"] == 1e-9
    more = one(tmp_path, answer=answer(tmp_path, (1 + short) * r, "more.npy"))
    assert (more["accuracy"], more["price"]) == (level, 0.0)


def test_accuracy_is_that_of_what_is_charged(tmp_path: Path) -> None:
    """One node spends a hundredth too much: less noise than the optimum, and once all are scaled
    for it more."""
    r, optimum = ring_answer()
    row = np.ones(len(r))
    row[0] = np.sqrt(0.99)
    found = one(tmp_path, answer=answer(tmp_path, r * row[:, None] * row))
    assert found["objective"] < optimum
    assert found["charged"] == pytest.approx(found["objective"] / 0.99, rel=1e-9)
    assert found["accuracy"] is None
    assert found["excess"] == pytest.approx(found["charged"] / optimum - 1, abs=1e-8)


@pytest.mark.parametrize("short", [0.3, 0.6, 0.9])
@pytest.mark.parametrize("least", [1.0, 1.05, 1.3])
def test_noise_that_is_scaled_back_is_charged_at_the_last_scale_that_is_feasible(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, short: float, least: float
) -> None:
    """An account that falls with the eighth power of the noise, and below ``least`` times the
    optimum's noise misses the target by a hair, as that of samples may: whatever the account does,
    noise is feasible that was feasible once, and never charged less than where it is."""
    r, optimum = ring_answer()
    family = family_of(nd.load(RING).problem)
    judge = type(family).judge

    def by_account(self: Any, program: Any, noise: Any, *rest: Any, **how: Any) -> Any:
        found = judge(self, program, noise, *rest, **how)
        scale = math.sqrt(noise.covariance[0, 0] / r[0, 0])
        excess = max(scale**-8.0, 1 + 1e-7 if scale < least else 0.0)
        return replace(found, sensitivity_squared=excess)

    monkeypatch.setattr(type(family), "judge", by_account)
    found = one(tmp_path, answer=answer(tmp_path, short**2 * r))
    assert found["status"] == VERIFIED, found["reason"]
    assert found["charged"] >= optimum * least**2 * (1 - 1e-9)
    assert found["price"] == pytest.approx(found["charged"] / found["objective"] - 1)


def test_all_kinds_of_files_say_the_same(tmp_path: Path) -> None:
    r, _ = ring_answer()
    answer(tmp_path, r)
    np.savez(tmp_path / "r.npz", covariance=r, unknown=np.ones(3))
    np.savetxt(tmp_path / "r.csv", r, fmt="%.17g", delimiter=",")
    rows = [{"answer": f"r.{kind}"} for kind in ("npy", "npz", "csv")]
    found = check_results(table(tmp_path, rows), problems=[RING])
    assert found.ok
    assert len({row["charged"] for row in found.rows}) == 1


def test_names_with_a_suffix_and_those_in_the_file_will_do(tmp_path: Path) -> None:
    name = answer(tmp_path, ring_answer()[0])
    for problem in (RING, f"{RING}.toml", "collection-ring-10"):
        (found,) = check_results(
            table(tmp_path, [{"problem": problem, "answer": name}]), problems=[RING]
        ).rows
        assert (found["problem"], found["status"]) == (RING, VERIFIED)


@pytest.mark.parametrize("name", [STAR, CAPPED, EDGE_LOCAL, PREFIX, "space-time/path-5-full-2x4"])
def test_our_own_designs_are_right(tmp_path: Path, name: str) -> None:
    """Multipliers lie in the file, and prove the bound that the design has."""
    design = nd.solve(nd.load(name).problem).design
    nd.save(design, tmp_path / "d.npz")
    found = one(
        tmp_path, name, answer="d.npz", objective=design.objective, lower_bound=design.lower_bound
    )
    assert (found["status"], found["reason"]) == (VERIFIED, "")
    assert found["accuracy"] <= 1e-6
    assert found["bound"] == pytest.approx(design.lower_bound, rel=1e-9)
    assert found["gap"] <= 1e-6


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "collection/caveman-4x5-clusters",
        "collection/grid-4x4-mafalda-edge-local",
        "collection/path-10-two-hops",
        "collection/path-10-observers",
        "collection/prefix-100-banded",
        "collection/prefix-toeplitz-256",
        "collection/ring-10-known-seed",
        "collection/star-10-kronecker-2x8",
        "collection/torus-5x5-decor",
        "random-participation/ring-8-2x4",
        "time-structures/prefix-blt-64",
        "time-structures/ring-12-banded-inverse-4x8",
    ],
)
def test_designs_of_every_family_are_right(tmp_path: Path, name: str) -> None:
    design = nd.solve(nd.load(name).problem).design
    nd.save(design, tmp_path / "d.npz")
    found = one(tmp_path, name, answer="d.npz", objective=design.objective)
    assert (found["status"], found["reason"]) == (VERIFIED, "")
    assert found["excess"] <= 1e-3


def test_what_seeds_make_up_is_enlarged_with_the_noise(tmp_path: Path) -> None:
    design = nd.solve(nd.load(EDGE_LOCAL).problem).design
    blocks = design.proof["clique_blocks"]
    np.savez(tmp_path / "d.npz", covariance=0.9 * design.covariance, clique_blocks=0.9 * blocks)
    found = one(tmp_path, EDGE_LOCAL, answer="d.npz")
    assert found["status"] == VERIFIED
    assert found["price"] == pytest.approx(1 / 0.9 - 1, rel=1e-5)
    assert found["accuracy"] <= 1e-6


# --- what is wrong --------------------------------------------------------------------------------


def indefinite(r: Array) -> Array:
    return r - 2 * np.eye(10)


def not_symmetric(r: Array) -> Array:
    return r + np.triu(np.full((10, 10), 1e-3), 1)


@pytest.mark.parametrize(
    ("spoiled", "reason"),
    [
        (indefinite, "positive semidefinite"),
        (not_symmetric, "symmetric"),
        (lambda r: r[:9, :9], r"shape \(10, 10\)"),
        (lambda r: r * np.nan, "no finite numbers"),
        (lambda r: 0 * r, "nonzero"),
        (lambda r: np.ones((10, 10)), "no scale makes it feasible"),
        (lambda r: r.astype(object), "dtype object"),
        (lambda r: r.astype(np.float32), "dtype float32"),
    ],
)
def test_matrices_that_are_no_noise_are_wrong(tmp_path: Path, spoiled: Any, reason: str) -> None:
    np.save(tmp_path / "r.npy", spoiled(ring_answer()[0]), allow_pickle=True)
    found = one(tmp_path, answer="r.npy")
    assert found["status"] == WRONG
    assert re.search(reason, found["reason"]), found["reason"]
    assert found["charged"] is None


def test_claims_that_do_not_hold_are_wrong(tmp_path: Path) -> None:
    r, optimum = ring_answer()
    name = answer(tmp_path, r)
    told = one(tmp_path, answer=name, objective=optimum * (1 - 1e-5))
    assert (told["status"], "is said to be" in told["reason"]) == (WRONG, True)
    bound = one(tmp_path, answer=name, lower_bound=optimum)
    assert (bound["status"], "without multipliers" in bound["reason"]) == (WRONG, True)
    # Equal multipliers prove the optimum, and nothing above it.
    np.savez(tmp_path / "r.npz", covariance=r, dual_weights=np.ones(10))
    fine = one(tmp_path, answer="r.npz", lower_bound=optimum * (1 - 1e-12))
    assert (fine["status"], fine["bound"]) == (VERIFIED, pytest.approx(optimum, rel=1e-11))
    more = one(tmp_path, answer="r.npz", lower_bound=optimum * (1 + 1e-8))
    assert (more["status"], "is certified" in more["reason"]) == (WRONG, True)


def test_a_cap_is_not_repaired_by_more_noise(tmp_path: Path) -> None:
    found = one(tmp_path, CAPPED, answer=answer(tmp_path, 5 * np.eye(40)))
    assert (found["status"], "variance over cap 1.25" in found["reason"]) == (WRONG, True)


def test_noise_without_the_structure_is_wrong(tmp_path: Path) -> None:
    r = np.eye(15) + 1e-3
    found = one(tmp_path, EDGE_LOCAL, answer=answer(tmp_path, r))
    assert (found["status"], "departs from the structure" in found["reason"]) == (WRONG, True)
    # With the pattern of the links, but nothing that shows which seeds it is made of.
    design = nd.solve(nd.load(EDGE_LOCAL).problem).design
    found = one(tmp_path, EDGE_LOCAL, answer=answer(tmp_path, design.covariance))
    assert (found["status"], "clique_blocks is missing" in found["reason"]) == (WRONG, True)


def test_a_strategy_that_looks_ahead_is_wrong(tmp_path: Path) -> None:
    c = np.eye(18)
    c[0, 5] = 0.1
    found = one(tmp_path, PREFIX, answer=answer(tmp_path, c))
    assert found["status"] == WRONG


def test_files_that_are_not_there_or_damaged_are_wrong(tmp_path: Path) -> None:
    (tmp_path / "text.npz").write_text("no archive")
    (tmp_path / "odd.csv").write_text("1,2\n3\n")
    (tmp_path / "r.mat").write_text("")
    for name in ("none.npy", "text.npz", "odd.csv", "r.mat"):
        assert one(tmp_path, answer=name)["status"] == WRONG


def test_a_link_to_a_file_elsewhere_is_not_followed(tmp_path: Path) -> None:
    folder = tmp_path / "stranger"
    folder.mkdir()
    answer(tmp_path, ring_answer()[0])
    (folder / "r.npy").symlink_to(tmp_path / "r.npy")
    with pytest.raises(InputError, match="beside the table"):
        one(folder, answer="r.npy")


def test_an_objective_below_the_bound_is_a_contradiction(tmp_path: Path) -> None:
    """As if the collection were wrong: its bound is raised by a thousandth."""
    instance = collection()[RING]
    forged = {
        RING: type(instance)(
            **{**vars(instance), "lower": instance.lower * 1.001, "upper": instance.upper * 1.001}
        )
    }
    path = table(tmp_path, [{"answer": answer(tmp_path, ring_answer()[0])}])
    (found,) = check_results(path, manifest=forged).rows
    assert (found["status"], "below the certified bound" in found["reason"]) == (WRONG, True)


def test_other_data_than_those_hashed_are_refused(tmp_path: Path) -> None:
    instance = collection()[RING]
    forged = {RING: type(instance)(**{**vars(instance), "sha256": "0" * 64})}
    path = table(tmp_path, [{"answer": answer(tmp_path, np.eye(10))}])
    with pytest.raises(InputError, match=r"^collection: expected the data of collection/ring-10"):
        check_results(path, manifest=forged)


# --- what a judge draws ---------------------------------------------------------------------------

SPARSE = "sparse-graphs/erdos-renyi-1200"


@pytest.fixture
def estimated(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """More than enough noise on a sparse graph, whose error is estimated as on larger ones."""
    from noisedesign.families.polynomial import bound

    monkeypatch.setattr(bound, "PROBED", 0)
    problem = nd.load(SPARSE).problem
    family = family_of(problem)
    space = family.independent(family.program(problem)).space
    space = replace(space, noise=np.array([1.3, 0.1, 0.05, 0.02]))
    np.savez(tmp_path / "r.npz", **{name: space.arrays()[name] for name in space.names})
    np.save(tmp_path / "r.npy", space.covariance())
    return table(tmp_path, [{"problem": SPARSE, "answer": "r.npz"}])


def test_nobody_knows_the_vectors_of_a_judge(estimated: Path, tmp_path: Path) -> None:
    """Two judgements differ by less than what vectors leave open; one that is repeated does not."""
    first, second = (check_results(estimated, problems=[SPARSE]) for _ in range(2))
    assert first.seed != second.seed
    (a,), (b,) = first.rows, second.rows
    assert (a["status"], a["confidence"], a["seed"]) == (VERIFIED, 1 - 1e-6, first.seed)
    assert a["objective"] != b["objective"]
    w = nd.load(SPARSE).problem.mixing
    exact = float(np.sum((w @ np.load(tmp_path / "r.npy")) * w.toarray()))
    for row in (a, b):
        assert exact <= row["objective"] <= 1.05 * exact
    (again,) = check_results(estimated, problems=[SPARSE], seed=first.seed).rows
    assert again == a


def test_confidence_and_seed_are_printed_and_kept(estimated: Path, tmp_path: Path) -> None:
    out = tmp_path / "v.csv"
    outcome = call("check-results", estimated, "--problems", SPARSE, "--seed", "17", "-o", out)
    assert outcome.code == 0, outcome.err
    assert "with confidence 0.999999 each; --seed draws the same again: 17" in outcome.err
    (row,) = read_verdicts(out)
    assert (row["confidence"], row["seed"]) == (1 - 1e-6, 17)
    assert call("check-results", estimated, "--seed", "x").code == 2


def test_every_family_that_draws_draws_by_the_seed_of_its_judge() -> None:
    programs = []
    for name in (SPARSE, f"{SPARSE}-pairwise", "random-participation/ring-8-2x4"):
        problem = nd.load(name).problem
        family = family_of(problem)
        programs.append(family.afresh(family.program(problem), seed=5))
    problem = nd.load("random-participation/ring-6-kronecker-2x4").problem
    family = family_of(problem)
    programs.append(family.afresh(family.program(problem), seed=5).of_time)
    assert [program.seed for program in programs] == [5] * 4


def test_samples_of_an_account_are_those_of_the_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    """And of a digest of C where there is none, which nobody has chosen either."""
    from noisedesign.families.amplified import program as amplified

    asked: list[int] = []

    def account(*_: Any, seed: int, **__: Any) -> Any:
        asked.append(seed)
        raise InputError("delta", expected="nothing", got="nothing")

    monkeypatch.setattr(amplified, "amplified_epsilon", account)
    problem = nd.load("random-participation/ring-8-2x4").problem
    family = family_of(problem)
    program = family.program(problem)
    for one in (program, family.afresh(program, seed=5)):
        for c in (np.tri(8), 2 * np.tri(8)):
            with pytest.raises(InputError):
                one.account(c)
    assert asked[0] != asked[1]
    assert asked[2:] == [5, 5]


@pytest.mark.slow
@pytest.mark.parametrize(("times", "seed"), [(1.05, 0), (1.05, 1), (1.05, 2), (3.0, 0)])
def test_noise_of_too_much_sensitivity_pays_for_it_under_random_participation(
    tmp_path: Path, times: float, seed: int
) -> None:
    """A strategy so many times larger makes noise of 1 / times^2 of the error, and is scaled back,
    not further than its account asks for: that falls faster than a square."""
    name = "random-participation/ring-8-2x4"
    design = nd.solve(nd.load(name).problem).design
    np.savez(tmp_path / "c.npz", strategy=times * design.strategy)
    path = table(tmp_path, [{"problem": name, "answer": "c.npz"}])
    (found,) = check_results(path, problems=[name], seed=seed).rows
    assert (found["status"], found["confidence"]) == (VERIFIED, 1 - 1e-6)
    assert found["price"] == pytest.approx(times**2 - 1, rel=0.1)
    assert found["charged"] == pytest.approx(design.objective, rel=1e-2)


# --- failures, and means of times -----------------------------------------------------------------


def results(*rows: tuple[str, str, float, float | None], problems: int = 3) -> CheckedResults:
    """Of (solver, problem, seconds, excess)."""
    return CheckedResults(
        rows=tuple(
            {
                "solver": solver,
                "problem": problem,
                "seconds": seconds,
                "excess": excess,
                "status": MISSING if excess is None else VERIFIED,
                "clock": "cpu",
                "confidence": None,
            }
            for solver, problem, seconds, excess in rows
        ),
        problems=tuple("pqrst"[:problems]),
        time_limit=20.0,
        penalty=2.0,
    )


def test_runs_are_matched_by_what_they_reached() -> None:
    found = results(
        ("a", "p", 1.0, 5e-4), ("a", "p", 3.0, 1e-10), ("a", "q", 25.0, 0.0), ("b", "p", 2.0, 1e-7)
    )
    assert performance.times(found, accuracy=1e-3) == {"a": {"p": 1.0}, "b": {"p": 2.0}}
    assert performance.times(found, accuracy=1e-6) == {"a": {"p": 3.0}, "b": {"p": 2.0}}
    assert performance.times(found, accuracy=1e-9) == {"a": {"p": 3.0}, "b": {}}


def test_failures_are_charged_the_limit_times_the_penalty() -> None:
    """Means shifted by 10: (11 * 50 * 50)^(1/3) - 10, and all three at 40 s."""
    found = results(("a", "p", 1.0, 5e-4), ("a", "q", 20.5, 0.0), ("b", "r", 1.0, None))
    records = {(r["solver"], r["accuracy"]): r for r in performance.summary(found)}
    assert len(records) == 2 * len(LEVELS)
    first = records["a", 1e-3]
    assert (first["reached"], first["problems"], first["runs"]) == (1, 3, 2)
    assert first["mean_seconds"] == pytest.approx((11 * 50 * 50) ** (1 / 3) - 10, rel=1e-12)
    assert records["b", 1e-3]["mean_seconds"] == pytest.approx(40.0, rel=1e-12)


def test_profiles_are_ratios_to_the_fastest() -> None:
    found = results(("a", "p", 1.0, 0.0), ("b", "p", 4.0, 0.0), ("b", "q", 2.0, 0.0))
    a, b = performance.profiles(found, accuracy=1e-9)
    assert (a.times, b.times) == ((1.0,), (1.0, 4.0))
    assert [p.share(within=1) for p in (a, b)] == [1 / 3, 1 / 3]
    assert [p.share(within=4) for p in (a, b)] == [1 / 3, 2 / 3]


def test_the_picture_steps_where_the_ratios_are() -> None:
    found = results(("a", "p", 1.0, 0.0), ("b", "p", 4.0, 1e-7), ("b", "q", 2.0, 1e-7))
    first, _, last = performance.figure_of(found).axes
    a, b = (np.asarray(line.get_xydata()) for line in first.lines)
    np.testing.assert_allclose(a[:2], [[1, 0], [1, 1 / 3]])
    np.testing.assert_allclose(b[:3], [[1, 0], [1, 1 / 3], [4, 2 / 3]])
    assert [line.get_ydata()[-1] for line in last.lines] == [pytest.approx(1 / 3), 0]


# --- where they are judged ------------------------------------------------------------------------


def five_runs(folder: Path) -> Path:
    """Runs on two problems by turns: right, infeasible, not there, damaged, without an answer."""
    r, _ = ring_answer()
    (folder / "bad.npz").write_text("no archive")
    answers = [answer(folder, r), answer(folder, np.eye(10), "i.npy"), "gone.npy", "bad.npz", ""]
    problems = (RING, STAR, RING, STAR, RING)
    rows = zip(problems, answers, strict=True)
    return table(folder, [{"problem": one, "answer": name} for one, name in rows])


def test_a_cluster_judges_the_same_and_reads_no_file(
    tmp_path: Path, threads: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, told = five_runs(tmp_path), list[tuple[int, int]]()
    how: Any = {"problems": [RING, STAR], "seed": 7}
    here = check_results(path, **how)
    monkeypatch.setattr(
        answers_file, "read_regular", in_main_thread(answers_file.read_regular, b"")
    )
    there = check_results(path, cluster=threads, progress=lambda *seen: told.append(seen), **how)
    assert there.rows == here.rows
    assert [row["status"] for row in here.rows] == [VERIFIED, VERIFIED, WRONG, WRONG, MISSING]
    assert told == [(0, 2), (1, 2), (2, 2)]


@pytest.mark.slow
def test_two_processes_judge_the_same(tmp_path: Path) -> None:
    how: Any = {"problems": [RING, STAR], "seed": 7}
    path = five_runs(tmp_path)
    assert check_results(path, jobs=2, **how).rows == check_results(path, **how).rows


# --- the command ----------------------------------------------------------------------------------


def test_the_command(tmp_path: Path) -> None:
    r, _ = ring_answer()
    rows = [
        {"answer": answer(tmp_path, r), "seconds": 0.5},
        {"solver": "t", "answer": answer(tmp_path, 1.1 * r, "t.npy"), "seconds": 2},
        {"solver": "t", "problem": STAR, "seconds": "", "answer": ""},
    ]
    path, out, plot = table(tmp_path, rows), tmp_path / "verdicts.csv", tmp_path / "profile.svg"
    chosen = ("--problems", RING, "--problems", STAR)
    outcome = call("check-results", path, *chosen, "-o", out, "--plot", plot, "--json")
    assert outcome.code == 0, outcome.err
    value = outcome.json()
    assert (value["ok"], value["problems"]) == (True, 2)
    assert [row["status"] for row in value["rows"]] == [VERIFIED, VERIFIED, MISSING]
    reached = {(s["solver"], s["accuracy"]): s["reached"] for s in value["summary"]}
    assert reached == {("s", a): 1 for a in LEVELS} | {("t", a): 0 for a in LEVELS}
    with out.open(newline="") as file:
        stored = list(csv.DictReader(file))
    assert [float(row["charged"] or 0) for row in stored] == [
        row["charged"] or 0 for row in value["rows"]
    ]
    assert "<svg" in plot.read_text()
    again = call("check-results", path, *chosen, "-o", out)  # its own table is replaced
    assert again.code == 0
    assert "1/2" in again.out
    bad = table(tmp_path, [{"answer": answer(tmp_path, -r, "bad.npy")}], name="bad.csv")
    outcome = call("check-results", bad, *chosen)
    assert outcome.code == 1
    assert f"{RING} by s is wrong: " in outcome.err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "expected a column problem"),
        ("problem,solver,seconds\n", "expected a column answer"),
        ("problem,solver,seconds,answer,answer\n", "two of that name"),
        ("problem,solver,seconds,answer\n", "none"),
        ("problem,solver,seconds,answer\nx\n", "line 2: 1"),
        (f"problem,solver,seconds,answer\n{RING},s,fast,\n", "line 2: seconds = 'fast'"),
        (f"problem,solver,seconds,answer\n{RING},s,-1,\n", "a finite number >= 0"),
        (f"problem,solver,seconds,answer\n{RING},s,inf,\n", "a finite number >= 0"),
        (f"problem,solver,seconds,answer\n{RING},s,,r.npy\n", "every run that has an answer"),
        (f"problem,solver,seconds,answer\n{RING},,1,\n", "a name of 1 to 200 letters"),
        (f"problem,solver,seconds,answer,clock\n{RING},s,1,,moon\n", "one of cpu, wall"),
        (f"problem,solver,seconds,answer,objective\n{RING},s,1,,nan\n", "a finite number"),
        (f"problem,solver,seconds,answer\n{RING},s,1,/etc/r.npy\n", "beside the table"),
        (f"problem,solver,seconds,answer\n{RING},s,1,../r.npy\n", "beside the table"),
        ("problem,solver,seconds,answer\nno/such,s,1,\n", "a problem of the collection"),
    ],
)
def test_bad_tables_are_one_error(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "runs.csv"
    path.write_text(text)
    outcome = call("check-results", path)
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.startswith("noisedesign: error: results: ")
    assert said in outcome.err


def test_bad_options_are_errors_that_name_them(tmp_path: Path) -> None:
    path = table(tmp_path, [{}])
    for field, how in {
        "penalty": {"penalty": 0.5},
        "time_limit": {"time_limit": 0},
        "problems": {"problems": ["no/such*"]},
        "seed": {"seed": -1},
        "jobs": {"jobs": 2, "cluster": "tcp://127.0.0.1:1"},
    }.items():
        with pytest.raises(InputError) as error:
            check_results(path, **how)  # type: ignore[arg-type]
        assert error.value.field == field
    with pytest.raises(InputError, match=r"^results: .*No such file"):
        check_results(tmp_path / "none.csv")


def test_tables_that_are_too_large_are_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = table(tmp_path, [{}, {}])
    monkeypatch.setattr(answers_file, "MOST_RUNS", 1)
    with pytest.raises(InputError, match="1 to 1 runs"):
        check_results(path)
    monkeypatch.setattr(answers_file, "MOST_BYTES", 20)
    with pytest.raises(InputError, match="at most 20 bytes"):
        check_results(path)
    monkeypatch.setattr(answers_file, "MOST_BYTES_OF_ANSWER", 100)
    name = answer(tmp_path, np.eye(10))
    monkeypatch.setattr(answers_file, "MOST_BYTES", 10**6)
    found = one(tmp_path, answer=name)
    assert (found["status"], "at most 100 bytes" in found["reason"]) == (WRONG, True)


def test_earlier_verdicts_stand_beside_the_new_ones(tmp_path: Path) -> None:
    r, _ = ring_answer()
    rows = [{"answer": answer(tmp_path, r)}, {"problem": STAR, "answer": "", "seconds": ""}]
    earlier = check_results(table(tmp_path, rows), problems=[RING, STAR])
    verdicts = write_verdicts(earlier, tmp_path / "v.csv")
    new = table(tmp_path, [{"solver": "t", "answer": "", "seconds": 2}], name="new.csv")
    both = check_results(new, problems=[RING, STAR], beside=[verdicts])
    assert [(row["solver"], row["status"]) for row in both.rows] == [
        ("s", VERIFIED),
        ("s", MISSING),
        ("t", MISSING),
    ]
    assert both.rows[0] == earlier.rows[0]
    assert performance.times(both, accuracy=1e-9) == {"s": {RING: 1.0}, "t": {}}
    only = check_results(new, problems=[RING], beside=[verdicts])
    assert len(only.rows) == 2
    for text in (
        "",
        "a,b\n1,2\n",
        verdicts.read_text().replace(f"{VERIFIED},1e-09,", "verified,,x"),
    ):
        (tmp_path / "bad.csv").write_text(text or "verdict_format\n3\n")
        with pytest.raises(InputError, match=r"^beside: expected verdicts of version 3"):
            check_results(new, beside=[tmp_path / "bad.csv"])


def test_times_of_two_clocks_are_told(tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    path.write_text(
        f"problem,solver,clock,seconds,answer\n{RING},s,cpu,1,\n{RING},t,,1,\n{RING},u, wall ,1,\n"
    )
    found = check_results(path, problems=[RING])
    assert [row["clock"] for row in found.rows] == ["cpu", "wall", "wall"]
    verdicts = write_verdicts(found, tmp_path / "v.csv")
    assert read_verdicts(verdicts) == list(found.rows)
    outcome = call("check-results", path, "--problems", RING)
    assert "seconds of two clocks, cpu and wall: they do not compare" in outcome.err
    assert performance.remarks(check_results(table(tmp_path, [{}]), problems=[RING])) == []


def test_reasons_are_those_of_the_table(tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    path.write_text(
        "problem,solver,seconds,answer,reason\n"
        f'{RING},s,1,,"no memory\x1b[31m,\nat all"\n{RING},t,1,,{"x" * 999}\n{RING},u,1,,\n'
    )
    reasons = [row["reason"] for row in check_results(path, problems=[RING]).rows]
    assert reasons == ["no memory [31m, at all", "x" * 400, "no answer"]


def test_verdicts_do_not_replace_other_files(tmp_path: Path) -> None:
    path = table(tmp_path, [{}])
    found = check_results(path, problems=[RING])
    with pytest.raises(InputError):
        write_verdicts(found, path)
    written = write_verdicts(found, tmp_path / "v.csv")
    assert json.dumps(written.read_text()).count("missing") == 1
