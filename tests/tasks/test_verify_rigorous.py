"""Forged designs are refused by the proof, and by a checker that knows nothing of the library."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.optimize import brentq

from noisedesign.base.checks import InputError
from noisedesign.design.design import Design
from noisedesign.design.proof import STREAMED, prove_streaming
from noisedesign.design.solve import solve
from noisedesign.families.toeplitz.solver import optimize_buffered, optimize_toeplitz
from noisedesign.files.design_file import load_design, save_design
from noisedesign.forms.structure import TimeStructure
from noisedesign.mechanisms.baselines import baseline
from noisedesign.privacy import views
from noisedesign.privacy.sensitivity import squared_sensitivity
from noisedesign.problem.problem import Problem, SpaceProblem, SpaceTimeProblem, TimeProblem
from noisedesign.system.graph import build_graph
from noisedesign.system.participation import FixedEpoch, MinSeparation, single
from noisedesign.system.workloads import ErrorMeasure
from noisedesign.system.workloads.toeplitz import prefix_workload
from noisedesign.tasks.verify import verify
from tests.support.check_design import CHECKER, checked
from tests.support.command_line import call
from tests.support.family_cases import CASES
from tests.support.small_designs import falsify

MOST_LINES, MOST_LINES_OF_ARITHMETIC = 300, 210

Arrays = dict[str, np.ndarray]
Edit = Callable[[dict[str, Any], Arrays], None]

DIRECTED = np.array([[0.5, 0.5, 0.0], [0.1, 0.6, 0.3], [0.25, 0.0, 0.75]])
"""Row stochastic and not symmetric."""

SINGULAR = np.array([[0.5, 0.5, 0.0], [0.25, 0.5, 0.25], [0.0, 0.5, 0.5]])
"""Of the null direction (1, -1, 1)."""


def rigorous(path: Path) -> bool:
    try:
        return verify(load_design(path), rigorous=True).ok
    except InputError:
        return False


@cache
def designed(name: str) -> Design:
    problem = HONEST[name]
    design = solve(problem, gap=1e-9).design
    assert design is not None
    return design


def in_space(**kwargs: Any) -> SpaceProblem:
    return SpaceProblem(mixing=DIRECTED, **kwargs)


IN_TIME = TimeProblem.prefix(participation=FixedEpoch(epochs=3, separation=2))
HONEST: dict[str, Problem] = {
    "in space": in_space(budget=np.array([1.0, 2.0, 0.5])),
    "within limits": in_space(max_variance=1.2, min_variance=1.05),
    "in time": IN_TIME,
    "capped in time": TimeProblem.prefix(
        participation=FixedEpoch(epochs=3, separation=2), max_variance=3.3
    ),
    "any two steps": CASES["any two steps"].problem,
    "one node": SpaceProblem(mixing=np.eye(1)),
    "two bands": CASES["two bands"].problem,
    "against neighbours": CASES["against neighbours"].problem,
    "a product": CASES["a product"].problem,
    "singular, of several steps": SpaceProblem(
        mixing=SINGULAR, error=ErrorMeasure(horizon=3), budget=np.array([1.0, 3.0, 1.0])
    ),
    "over time, of the last iterate": TimeProblem.decentralized(
        mixing=SINGULAR,
        participation=FixedEpoch(epochs=2, separation=4),
        error=ErrorMeasure(horizon=8, of="last-iterate"),
    ),
    "of pairs, of the last iterate": SpaceTimeProblem(
        mixing=(DIRECTED + np.eye(len(DIRECTED))) / 2,
        participation=FixedEpoch(epochs=2, separation=2),
        joint="full",
        error=ErrorMeasure(horizon=4, of="last-iterate"),
    ),
    "before sums and a mean": in_space(
        max_variance=3.0,
        observers=(views.secure_sum(nodes=[0]), views.secure_sum(nodes=[2]), views.central()),
    ),
    "in several rounds": in_space(
        max_variance=4.0,
        observers=tuple(views.pndp(nodes=[i]) for i in range(3)),
        responses="fixed",
        rounds=2,
        error=ErrorMeasure(horizon=2),
        budget=np.array([1.0, 2.0, 0.5]),
    ),
}
GRAPH = 'name = "space"\ndesign = "space"\n[graph]\nkind = "matrix"\nfile = "data.npy"\n'
TEXTS = {
    "in space": GRAPH + "[budget]\ntau = [1.0, 2.0, 0.5]\n",
    "within limits": GRAPH + "[limits]\nmax_variance = 1.2\nmin_variance = 1.05\n",
    "in time": 'name = "time"\ndesign = "time"\n[workload]\nkind = "prefix"\n'
    "[participation]\nepochs = 3\nseparation = 2\n",
    "capped in time": 'name = "time"\ndesign = "time"\n[workload]\nkind = "prefix"\n'
    "[participation]\nepochs = 3\nseparation = 2\n[limits]\nmax_variance = 3.3\n",
    "any two steps": 'name = "time"\ndesign = "time"\n[workload]\nkind = "gram"\n'
    'file = "data.npy"\n[participation]\nkind = "min-separation"\nhorizon = 3\n'
    "separation = 1\nmax_participations = 2\n",
    "one node": GRAPH,
}
"""What the checker is told of a problem, and of its data."""


def file(name: str, folder: Path) -> Path:
    """A design with the text of its problem, whose data are told of and not there."""
    return save_design(designed(name), folder / "d.npz", problem_text=TEXTS.get(name, ""))


PROVED = tuple(TEXTS)
ALONE = tuple(HONEST)[8:]


@pytest.mark.parametrize("name", PROVED)
def test_honest_designs_are_proved_by_both(name: str, tmp_path: Path) -> None:
    path = file(name, tmp_path)
    outcome = verify(load_design(path), rigorous=True)
    assert outcome.ok
    assert outcome.rigorous
    assert outcome.proof is not None
    assert outcome.proof.gap <= outcome.proof.objective.upper / outcome.proof.lower_bound.lower
    found = checked(path)
    assert found.code == 0, found.words
    assert found.words.startswith("proved in integers: every budget is kept; mu <= ")


def bound_raised(manifest: dict[str, Any], arrays: Arrays) -> None:
    manifest["lower_bound"] *= 1 + 1e-9
    manifest["gap"] = manifest["objective"] / manifest["lower_bound"] - 1


def objective_lowered(manifest: dict[str, Any], arrays: Arrays) -> None:
    manifest["objective"] *= 1 - 1e-9
    manifest["gap"] = manifest["objective"] / manifest["lower_bound"] - 1


def entry_changed(manifest: dict[str, Any], arrays: Arrays) -> None:
    main = arrays[manifest["matrix"]]
    main[1, 1] *= 1 - 1e-9


def sign_flipped(manifest: dict[str, Any], arrays: Arrays) -> None:
    main = arrays[manifest["matrix"]]
    main[1, 0] *= -1
    if manifest["matrix"] == "covariance":
        main[0, 1] *= -1


def noise_scaled_down(manifest: dict[str, Any], arrays: Arrays) -> None:
    arrays[manifest["matrix"]] *= 1 - 1e-11 if manifest["matrix"] == "covariance" else 1 + 1e-11


def of_another_problem(manifest: dict[str, Any], arrays: Arrays) -> None:
    """Its multipliers are those of other weights: they prove something, but not this."""
    if "dual_blocks" in arrays:
        arrays["dual_blocks"] = np.tile(np.eye(3), (2, 1, 1))
    else:
        arrays["dual_weights"] = arrays["dual_weights"][::-1].copy()


def multipliers_negative(manifest: dict[str, Any], arrays: Arrays) -> None:
    name = "dual_blocks" if "dual_blocks" in arrays else "dual_weights"
    arrays[name] = -arrays[name]


def multipliers_nan(manifest: dict[str, Any], arrays: Arrays) -> None:
    name = "dual_blocks" if "dual_blocks" in arrays else "dual_weights"
    arrays[name][0] = math.nan


def gap_claimed(manifest: dict[str, Any], arrays: Arrays) -> None:
    manifest["gap"] = 0.0
    manifest["lower_bound"] = manifest["objective"]
    manifest["objective"] *= 1 + 1e-8


def budget_changed(manifest: dict[str, Any], arrays: Arrays) -> None:
    arrays["budget"][0] *= 1 - 1e-9


def matrix_transposed(manifest: dict[str, Any], arrays: Arrays) -> None:
    arrays["mixing"] = arrays["mixing"].T.copy()


def workload_changed(manifest: dict[str, Any], arrays: Arrays) -> None:
    arrays["gram"][0, 0] *= 1 + 1e-6
    arrays["workload_factor"] = np.linalg.cholesky(arrays["gram"]).T


def tilted_by_a_rounding(manifest: dict[str, Any], arrays: Arrays) -> None:
    arrays["covariance"][0, 1] *= 1 + 1e-15


def one_noise_for_all(manifest: dict[str, Any], arrays: Arrays) -> None:
    arrays["covariance"][:] = 4.0


def badly_conditioned(manifest: dict[str, Any], arrays: Arrays) -> None:
    """Differences of nodes have just the variance that their budgets need, beside 1e10."""
    size = len(arrays["covariance"])
    arrays["covariance"][:] = 1e10 + np.eye(size) / arrays["budget"].min() * (1 + 1e-9)


def denormal(manifest: dict[str, Any], arrays: Arrays) -> None:
    arrays["covariance"] *= 1e-310


def huge(manifest: dict[str, Any], arrays: Arrays) -> None:
    arrays["covariance"] *= 1e300


def minus_zero(manifest: dict[str, Any], arrays: Arrays) -> None:
    arrays["covariance"][:] = -0.0


def above_the_diagonal(manifest: dict[str, Any], arrays: Arrays) -> None:
    arrays["strategy"][0, 2] = 1e-13


def multipliers_bent(manifest: dict[str, Any], arrays: Arrays) -> None:
    for name in MULTIPLIERS & set(arrays):
        arrays[name] = arrays[name] * np.linspace(1, 1.5, arrays[name].size).reshape(
            arrays[name].shape
        )


def multipliers_turned(manifest: dict[str, Any], arrays: Arrays) -> None:
    """Negative; of roots, whose sign proves nothing, those of one node too large."""
    for name in MULTIPLIERS & set(arrays):
        if name == "dual_roots":
            arrays[name][0] *= 2
        else:
            arrays[name] = -arrays[name]


def multipliers_lost(manifest: dict[str, Any], arrays: Arrays) -> None:
    for name in MULTIPLIERS & set(arrays):
        arrays[name] = np.full_like(arrays[name], math.nan)


def mixing_changed(manifest: dict[str, Any], arrays: Arrays) -> None:
    arrays["mixing"] = arrays["mixing"] @ arrays["mixing"]


def noise_left_out(manifest: dict[str, Any], arrays: Arrays) -> None:
    """More than the room that observers are left, and less than a digit that is shown."""
    arrays[manifest["matrix"]] *= 1 - 1e-9 if "covariance" in arrays else 1 + 1e-9


def cap_raised(manifest: dict[str, Any], arrays: Arrays) -> None:
    arrays["max_variance"] *= 1 + 1e-9


def cap_of_one_step_raised(manifest: dict[str, Any], arrays: Arrays) -> None:
    arrays["max_variance"][-1] *= 2


def cap_left_out(manifest: dict[str, Any], arrays: Arrays) -> None:
    for name in ("max_variance", "dual_cap"):
        del arrays[name], manifest["arrays"][name]
    manifest["variance_ratio"] = None


def cap_kept_by_far(manifest: dict[str, Any], arrays: Arrays) -> None:
    manifest["variance_ratio"] /= 2


def cap_unpaid(manifest: dict[str, Any], arrays: Arrays) -> None:
    """Its multipliers gain something, and it costs nothing."""
    arrays["dual_cap"] *= -1


def cap_exceeded(manifest: dict[str, Any], arrays: Arrays) -> None:
    """C of less sensitivity: more noise than the cap allows, within the budget."""
    arrays["strategy"] *= 1 - 1e-6
    arrays["noising_matrix"] /= 1 - 1e-6


def objective_raised(manifest: dict[str, Any], arrays: Arrays) -> None:
    manifest["objective"] *= 1 + 1e-9
    manifest["gap"] = manifest["objective"] / manifest["lower_bound"] - 1


def said_of_nodes(manifest: dict[str, Any], arrays: Arrays) -> None:
    manifest["trust"] = "local"


def of_more_participations(manifest: dict[str, Any], arrays: Arrays) -> None:
    """Noise for records that take part in all three steps, and multipliers of such records so mixed
    with those of two that they seem to prove it the best."""
    h, scheme = arrays["gram"], FixedEpoch(epochs=3, separation=1)
    design = solve(TimeProblem.from_gram(gram=h, participation=scheme), gap=1e-9).design
    assert design is not None
    x = design.strategy.T @ design.strategy
    pairs = [[0, 1], [0, 2], [1, 2]]
    kept = max(np.abs(x[np.ix_(two, two)]).sum() for two in pairs) * (1 + 1e-14)
    arrays["strategy"] = design.strategy / math.sqrt(kept)
    arrays["noising_matrix"] = np.linalg.inv(arrays["strategy"])
    objective = float(np.trace(h @ np.linalg.inv(x))) * kept
    three, two = design.proof["dual_blocks"][0], arrays["pattern_blocks"].reshape(3, 2, 2)
    root = np.linalg.cholesky(h).T

    def bound(share: float) -> float:
        total, price = share * three, share * three.diagonal().max()
        for where, block in zip(pairs, two, strict=True):
            total[np.ix_(where, where)] += block
            price += block.diagonal().max()
        told = np.linalg.eigvalsh(root @ total @ root.T)
        return float(np.sqrt(np.maximum(told, 0)).sum() ** 2 / price)

    share = brentq(lambda a: bound(a) - objective * (1 - 1e-9), 0, 1e6)
    arrays["pattern_lengths"] = np.array([2.0, 2.0, 2.0, 3.0])
    arrays["pattern_steps"] = np.append(arrays["pattern_steps"], [0.0, 1.0, 2.0])
    arrays["pattern_blocks"] = np.append(two.ravel(), share * three.ravel())
    manifest["objective"], manifest["lower_bound"] = objective, bound(share)
    manifest["gap"] = objective / bound(share) - 1
    manifest["sensitivity"]["which"] = "abs-sum-upper-bound"


MULTIPLIERS = {"dual_blocks", "dual_roots", "dual_weights", "observer_factors", "observer_weights"}

FORGED_ALONE = (
    bound_raised,
    objective_lowered,
    entry_changed,
    sign_flipped,
    noise_left_out,
    gap_claimed,
    multipliers_bent,
    multipliers_turned,
    multipliers_lost,
    mixing_changed,
)

FORGED: list[tuple[str, Edit]] = [
    *(
        (name, edit)
        for name in ("in space", "in time")
        for edit in (
            bound_raised,
            objective_lowered,
            entry_changed,
            sign_flipped,
            noise_scaled_down,
            of_another_problem,
            multipliers_negative,
            multipliers_nan,
            gap_claimed,
        )
    ),
    *(
        ("capped in time", edit)
        for edit in (
            bound_raised,
            objective_lowered,
            entry_changed,
            noise_scaled_down,
            cap_raised,
            cap_of_one_step_raised,
            cap_left_out,
            cap_kept_by_far,
            cap_unpaid,
            cap_exceeded,
        )
    ),
    ("in space", budget_changed),
    ("in space", matrix_transposed),
    ("in time", workload_changed),
    ("in time", above_the_diagonal),
    ("any two steps", of_more_participations),
    *(
        ("in space", edit)
        for edit in (
            tilted_by_a_rounding,
            one_noise_for_all,
            badly_conditioned,
            denormal,
            huge,
            minus_zero,
        )
    ),
]


@pytest.mark.parametrize(
    ("name", "edit"), FORGED, ids=lambda value: getattr(value, "__name__", value)
)
def test_forged_designs_are_refused_by_both(name: str, edit: Edit, tmp_path: Path) -> None:
    path = file(name, tmp_path)
    falsify(path, edit)
    assert not rigorous(path)
    found = checked(path)
    assert found.code == 1, found.words
    assert found.words.startswith("refused")


@pytest.mark.parametrize("name", ALONE)
def test_other_designs_are_proved(name: str, tmp_path: Path) -> None:
    path = save_design(designed(name), tmp_path / "d.npz")
    outcome = verify(load_design(path), rigorous=True)
    assert outcome.ok, outcome
    assert outcome.rigorous


@pytest.mark.parametrize("name", ALONE)
@pytest.mark.parametrize("edit", FORGED_ALONE, ids=lambda edit: edit.__name__)
def test_forged_designs_of_other_families_are_refused(
    name: str, edit: Edit, tmp_path: Path
) -> None:
    path = save_design(designed(name), tmp_path / "d.npz")
    falsify(path, edit)
    assert not rigorous(path)


NOT_OPTIMAL = TimeProblem.prefix(participation=FixedEpoch(epochs=4, separation=10))


@pytest.mark.parametrize(
    "edit",
    [
        bound_raised,
        objective_lowered,
        entry_changed,
        sign_flipped,
        noise_scaled_down,
        multipliers_bent,
        multipliers_negative,
        multipliers_nan,
        gap_claimed,
        workload_changed,
    ],
    ids=lambda edit: edit.__name__,
)
def test_forged_designs_far_from_the_optimum_are_refused(edit: Edit, tmp_path: Path) -> None:
    design = solve(NOT_OPTIMAL, gap=1e-3).design
    assert design is not None
    assert design.gap > 1e-7
    path = save_design(design, tmp_path / "d.npz")
    assert rigorous(path)
    falsify(path, edit)
    assert not rigorous(path)


@cache
def of_a_server(axes: str) -> Design:
    problem: Any = in_space(budget=np.array([1.0, 2.0, 0.5]))
    if axes == "time":
        problem = TimeProblem.from_graph(
            build_graph("path", nodes=3), participation=FixedEpoch(epochs=2, separation=3)
        )
    return baseline(problem, "cdp")


@pytest.mark.parametrize("axes", ["space", "time"])
@pytest.mark.parametrize(
    "edit",
    [objective_lowered, entry_changed, noise_scaled_down, objective_raised, said_of_nodes],
    ids=lambda edit: edit.__name__,
)
def test_forged_noise_of_a_server_is_refused(axes: str, edit: Edit, tmp_path: Path) -> None:
    path = save_design(of_a_server(axes), tmp_path / "d.npz")
    outcome = verify(load_design(path), rigorous=True)
    assert outcome.ok, outcome
    assert outcome.rigorous
    said = call("verify", path, "--rigorous", "--json").json()
    assert (said["ok"], said["rigorous"], said["gap"]) == (True, True, None)
    assert checked(path).code == 2
    falsify(path, edit)
    assert not rigorous(path)


def test_a_file_that_was_changed_without_a_new_seal_is_refused(tmp_path: Path) -> None:
    path = save_design(designed("one node"), tmp_path / "d.npz")
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(bytes(content))
    assert not rigorous(path)
    assert "seal" in checked(path).words


def test_what_the_checker_does_not_cover_it_says(tmp_path: Path) -> None:
    structure = TimeStructure(kind="toeplitz")
    problem = TimeProblem.prefix(
        participation=FixedEpoch(epochs=1, separation=3), structure=structure
    )
    design = solve(problem).design
    assert design is not None
    found = checked(save_design(design, tmp_path / "d.npz"))
    assert found.code == 2
    assert "time toeplitz: not checked by this program" in found.words


def test_the_checker_is_run_as_a_command(tmp_path: Path) -> None:
    path = file("one node", tmp_path)
    for given, code, words in (((path,), 0, "proved"), ((), 2, "not covered: it is not read")):
        command = [sys.executable, CHECKER, *given]
        found = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        assert (found.returncode, found.stdout[: len(words)]) == (code, words), found.stderr
        assert not found.stderr


def test_the_checker_is_short_and_knows_nothing_of_the_library() -> None:
    """A program, and its arithmetic."""
    for path, most, others in (
        (CHECKER, MOST_LINES, {"numpy", "integers"}),
        (CHECKER.parent / "integers.py", MOST_LINES_OF_ARITHMETIC, {"numpy"}),
    ):
        lines = path.read_text(encoding="utf-8").splitlines()
        imported = {line.split()[1] for line in lines if line.startswith(("import", "from"))}
        assert len(lines) <= most
        assert imported - set(sys.stdlib_module_names) == others


# --- the command ----------------------------------------------------------------------------------


def problem_file(folder: Path) -> Path:
    path = folder / "problem.toml"
    path.write_text('name = "path"\ndesign = "space"\n[graph]\nkind = "path"\nnodes = 5\n')
    return path


def test_solve_proves_what_it_saves(tmp_path: Path) -> None:
    source, design = problem_file(tmp_path), tmp_path / "d.npz"
    said = call("solve", source, "-o", design)
    assert said.code == 0
    assert "Proved with every rounding accounted for" in said.err
    found = call("solve", source, "-o", design, "--json").json()
    assert found["rigorous"] is True
    assert found["proved_gap"] == pytest.approx(found["gap"], abs=1e-10)
    assert "rigorous" not in call("solve", source, "--json").json()  # nothing is saved


def test_a_proof_that_breaks_off_leaves_the_design_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> None:
        raise ValueError("no such shape")

    monkeypatch.setattr("noisedesign.certify.rigorous.judge_covariance", broken)
    source, path = problem_file(tmp_path), tmp_path / "d.npz"
    said = call("solve", source, "-o", path)
    assert said.code == 0
    assert "Not proved with every rounding accounted for: the noise: no such shape" in said.err
    assert verify(load_design(path)).ok


def test_verify_says_what_is_proved(tmp_path: Path) -> None:
    design = tmp_path / "d.npz"
    call("solve", problem_file(tmp_path), "-o", design)
    found = call("verify", design, "--rigorous", "--json").json()
    assert (found["ok"], found["rigorous"], found["why_not"]) == (True, True, "")
    assert 0 <= found["gap"] <= 1e-6
    assert [check["ok"] for check in found["checks"] if check["name"] == "rigorous"] == [True]
    plain = call("verify", design, "--json").json()
    assert "rigorous" not in plain


def test_what_is_not_covered_is_no_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("noisedesign.families.observers.rigorous.MOST_NODES", 1)
    problem = replace(HONEST["against neighbours"], observers=(views.secure_sum(nodes=[0]),))
    design = solve(problem).design
    assert design is not None
    path = save_design(design, tmp_path / "d.npz")
    assert call("verify", path).code == 0
    said = call("verify", path, "--rigorous", "--json")
    assert said.code == 1
    found = said.json()
    assert (found["ok"], found["rigorous"], found["gap"]) == (False, False, None)
    assert "covered for at most 1 nodes" in found["why_not"]


SCHEMES = [
    MinSeparation(horizon=12, separation=4, max_participations=2),
    FixedEpoch(epochs=4, separation=3),
    single(12),
]


@pytest.mark.parametrize("scheme", SCHEMES, ids=str)
@pytest.mark.parametrize("search", [optimize_toeplitz, optimize_buffered])
def test_streaming_designs_are_proved(search: Any, scheme: Any, tmp_path: Path) -> None:
    size = {"bands": 3} if search is optimize_toeplitz else {"buffers": 2}
    design = search(workload=prefix_workload(horizon=12), participation=scheme, **size)
    path = save_design(design, tmp_path / "d.npz")
    outcome = verify(load_design(path), rigorous=True)
    assert outcome.ok, outcome
    assert outcome.proof is not None
    assert outcome.proof.gap == pytest.approx(design.excess_upper_bound, rel=1e-9)
    dense = design.noise.dense_strategy
    truth = squared_sensitivity(dense.T @ dense, scheme).squared
    assert truth <= outcome.proof.sensitivity_squared * (1 + 1e-13) <= 1 + 1e-13
    for words in ("squared_error", "squared_sensitivity", "lower_bound_of_unrestricted_optimum"):
        factor = 1 + 1e-8 if words.startswith("lower") else 1 - 1e-8
        forged = replace(design, **{words: getattr(design, words) * factor})
        assert not verify(forged, rigorous=True).ok
    for room in (1e-3, 1e-6, 5e-10, 1e-12):  # below the truth, and nothing is proved
        less = prove_streaming(replace(design, squared_sensitivity=truth * (1 - room)))
        assert less.sensitivity_squared > 1
        assert not less.rigorous


def test_streaming_designs_of_many_steps_are_not_covered() -> None:
    scheme = single(STREAMED + 1)
    workload = prefix_workload(horizon=STREAMED + 1)
    design = optimize_toeplitz(bands=2, workload=workload, participation=scheme)
    outcome = verify(design, rigorous=True)
    assert not outcome.ok
    assert outcome.proof is not None
    assert "2049 steps, of which at most 2048" in outcome.proof.why_not
