"""A participation scheme is added by one line: everything is asked of it, and nothing is edited."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import noisedesign as nd
from noisedesign.base.checks import InputError
from noisedesign.design.solve import solve
from noisedesign.files.design_file import load_design, save_design
from noisedesign.files.problem_file import load_problem
from noisedesign.forms.structure import TimeStructure
from noisedesign.privacy.sensitivity import squared_sensitivity
from noisedesign.problem.problem import TimeProblem
from noisedesign.system.participation import SCHEMES, Participation
from noisedesign.tasks.verify import verify
from tests.support.command_line import call, write
from tests.support.small_designs import PATH_3

Array = np.ndarray


@dataclass(frozen=True, kw_only=True)
class Again(Participation):
    """A record takes part twice, ``lag`` steps apart."""

    horizon: int
    lag: int

    kind: ClassVar[str] = "again"

    def maximal_patterns(self) -> Iterator[tuple[int, ...]]:
        return ((step, step + self.lag) for step in range(self.horizon - self.lag))

    def __str__(self) -> str:
        return f"twice, {self.lag} of {self.horizon} steps apart"


SCHEME = Again(horizon=5, lag=2)
FILE = """name = "again"
design = "time"

[workload]
kind = "prefix"

[participation]
kind = "again"
horizon = 5
lag = 2

[privacy]
epsilon = 2.0
delta = 1e-6
"""


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """The line that adds a scheme."""
    monkeypatch.setitem(SCHEMES, Again.kind, Again)


def problem(**words: Any) -> TimeProblem:
    return TimeProblem.prefix(participation=SCHEME, **words)


def pairs() -> list[tuple[int, int]]:
    return [(0, 2), (1, 3), (2, 4)]


def sensitivity(gram: Array) -> float:
    """Two unit vectors add up to most where they are aligned."""
    return max(float(gram[s, s] + gram[t, t] + 2 * abs(gram[s, t])) for s, t in pairs())


def conic_optimum(gram: Array) -> float:
    """min tr(H X^-1), X at most Diag(y) on every pair, sum y = 1."""
    import cvxpy as cp

    size = len(gram)
    half = np.linalg.cholesky(gram).T
    x, y = cp.Variable((size, size), PSD=True), cp.Variable((size, size), symmetric=True)
    constraints = [cp.bmat([[y, half], [half.T, x]]) >> 0]
    for pair in pairs():
        price = cp.Variable(2)
        block = cp.bmat([[x[s, t] for t in pair] for s in pair])
        constraints += [cp.diag(price) - block >> 0, cp.sum(price) <= 1]
    return float(cp.Problem(cp.Minimize(cp.trace(y)), constraints).solve(solver=cp.CLARABEL))


# --- what follows from the patterns ---------------------------------------------------------------


def test_everything_follows_from_the_patterns() -> None:
    assert list(SCHEME.maximal_patterns()) == pairs()
    assert (SCHEME.largest_size, SCHEME.stride, SCHEME.count()) == (2, 2, 3)
    assert SCHEME.taking_part.all()
    assert SCHEME.even_size == 1
    assert SCHEME.heaviest(np.array([5.0, 1.0, 2.0, 3.0, 6.0])) == 8.0
    assert SCHEME.longest(2).tolist() == [[0, 2], [1, 3]]
    assert SCHEME.allows(np.array([[0, 2], [2, 4]]))
    assert SCHEME.allows(np.array([[3], [4]]))
    assert not SCHEME.allows(np.array([[0, 4]]))
    assert not SCHEME.allows(np.array([[2, 0]]))
    assert Again.of(SCHEME.entry()) == SCHEME


def test_steps_that_nobody_takes_part_in_are_told() -> None:
    far = Again(horizon=5, lag=3)
    np.testing.assert_array_equal(far.taking_part, [True, True, False, True, True])
    assert far.even_size == 0
    with pytest.raises(InputError, match=r"participation: .*cover every step.*step 2"):
        solve(TimeProblem.prefix(participation=far))


def test_sensitivity_is_that_of_the_worst_pattern() -> None:
    factor = np.random.default_rng(3).normal(size=(5, 5))
    gram = factor.T @ factor
    found = squared_sensitivity(gram, SCHEME)
    assert found.kind == "vector-exact"
    assert found.squared == pytest.approx(sensitivity(gram), rel=1e-8)


# --- designs --------------------------------------------------------------------------------------


def test_it_is_solved_and_verified() -> None:
    asked = problem()
    solution = solve(asked, gap=1e-8)
    assert solution.status == "optimal"
    assert solution.design is not None
    optimum = conic_optimum(asked.gram)
    assert solution.design.objective == pytest.approx(optimum, rel=1e-6)
    strategy = solution.design.strategy
    assert sensitivity(strategy.T @ strategy) <= 1
    assert solution.design.ldp_objective == pytest.approx(2 * np.trace(asked.gram), rel=1e-12)
    assert verify(solution.design).ok
    loud = replace(solution.design, noise=solution.design.noise.scaled(0.99))
    assert not verify(loud).ok


def test_conic_solvers_take_it() -> None:
    solution = solve(problem(), backend="clarabel", gap=1e-5)
    assert solution.status == "optimal"
    assert solution.design is not None
    assert solution.design.objective == pytest.approx(conic_optimum(problem().gram), rel=1e-5)


def test_it_is_designed_for_on_a_graph() -> None:
    asked = TimeProblem.decentralized(mixing=PATH_3, participation=SCHEME)
    solution = solve(asked, gap=1e-7)
    assert solution.design is not None
    assert solution.design.objective == pytest.approx(conic_optimum(asked.gram), rel=1e-5)


def test_a_structure_that_needs_more_of_it_is_refused() -> None:
    with pytest.raises(InputError, match=r"participation: .*twice, 2 of 5 steps apart"):
        solve(problem(structure=TimeStructure(kind="banded", bands=2)))


def test_the_toeplitz_family_takes_it() -> None:
    solution = solve(problem(structure=TimeStructure(kind="toeplitz")))
    assert solution.design is not None
    strategy = solution.design.strategy
    assert sensitivity(strategy.T @ strategy) <= 1
    assert solution.design.objective >= conic_optimum(problem().gram) * (1 - 1e-6)


def test_the_simulator_audits_its_patterns() -> None:
    design = solve(problem(), gap=1e-6).design
    assert design is not None
    found = nd.simulate(design, runs=300, seed=1)
    assert found.agrees


# --- files ----------------------------------------------------------------------------------------


def test_it_is_named_in_problem_files(tmp_path: Path) -> None:
    loaded = load_problem(write(tmp_path, FILE))
    assert loaded.problem.participation == SCHEME
    with pytest.raises(InputError, match=r"participation\.lag: expected an integer"):
        load_problem(write(tmp_path, FILE.replace("lag = 2", 'lag = "2"')))
    with pytest.raises(InputError, match=r"participation\.gap: .*only the keys horizon, kind, lag"):
        load_problem(write(tmp_path, FILE.replace("lag = 2", "gap = 2")))


def test_it_is_unknown_without_its_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(SCHEMES, Again.kind)
    with pytest.raises(InputError, match=r"participation\.kind: .*one of single.*fixed-epoch"):
        load_problem(write(tmp_path, FILE))


def test_it_is_stored_and_exported(tmp_path: Path) -> None:
    design = solve(load_problem(write(tmp_path, FILE)).problem, gap=1e-7).design
    assert design is not None
    stored = load_design(save_design(design, tmp_path / "design.npz"))
    assert stored.design.problem.participation == SCHEME
    np.testing.assert_array_equal(stored.design.strategy, design.strategy)
    assert verify(stored).ok
    *_, description = nd.export(stored, to="npy", path=tmp_path / "noise.npy")
    said = json.loads(Path(description).read_text())
    assert said["participation_kind"] == "again"
    assert (said["max_participations"], said["separation"], said["horizon"]) == (2, 2, 5)
    multiplier = nd.calibrate(design.problem).noise_multiplier
    assert said["noise_multiplier"] == pytest.approx(multiplier, rel=1e-12)


def test_every_command_takes_it(tmp_path: Path) -> None:
    file, design = write(tmp_path, FILE), tmp_path / "design.npz"
    assert call("solve", file, "-o", design).code == 0
    assert call("verify", design).code == 0
    assert call("model", file, "-o", tmp_path / "model.cbf").code == 0
    assert call("export", design, "--to", "csv", "-o", tmp_path / "csv").code == 0


# --- accounts -------------------------------------------------------------------------------------

ACCOUNT = """[graph]
kind = "path"
nodes = 3

[algorithm]
kind = "dp-d-sgd"

[participation]
kind = "again"
horizon = 5
lag = 2

[observer]
model = "ldp"
delta = 1e-6
"""


def test_it_is_accounted_for(tmp_path: Path) -> None:
    algorithm = nd.load(write(tmp_path, ACCOUNT)).algorithm
    found = nd.account(algorithm, nd.observers.ldp(), participation=SCHEME)
    assert [one.sensitivity_squared for one in found] == pytest.approx([2.0] * 3, rel=1e-12)
    listed = nd.participation.Patterns(horizon=5, steps=tuple(pairs()))
    observer = nd.observers.pndp(nodes=[0])
    ours, theirs = (
        nd.account(algorithm, observer, participation=scheme) for scheme in (SCHEME, listed)
    )
    for one, other in itertools.zip_longest(ours, theirs):
        assert one.sensitivity_squared == pytest.approx(other.sensitivity_squared, rel=1e-12)


@dataclass(frozen=True, kw_only=True)
class OneOfThree(Participation):
    """A record takes part once in every three steps: 3^(T/3) patterns."""

    horizon: int

    kind: ClassVar[str] = "one-of-three"

    def maximal_patterns(self) -> Iterator[tuple[int, ...]]:
        blocks = [range(start, start + 3) for start in range(0, self.horizon, 3)]
        return itertools.product(*blocks)

    def __str__(self) -> str:
        return f"once in every three of {self.horizon} steps"


def test_a_scheme_of_patterns_without_number_is_refused_before_they_are_listed() -> None:
    """One of 3^20 patterns, which nobody lists, says so at once; nine are solved."""
    few = TimeProblem.prefix(participation=OneOfThree(horizon=6))
    assert solve(few).status == "optimal"
    many = OneOfThree(horizon=60)
    message = "participation: expected at most 1000000 patterns.*got once in every three of 60"
    for ask in (lambda: solve(TimeProblem.prefix(participation=many)), lambda: many.largest_size):
        with pytest.raises(InputError, match=message):
            ask()
