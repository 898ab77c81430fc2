"""Problems against chosen observers: from a file to a stored design, verified and simulated."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest

from noisedesign.base.checks import InputError
from noisedesign.design.design import Design
from noisedesign.design.solve import solve
from noisedesign.families.disjoint.program import program_of
from noisedesign.families.observers import model
from noisedesign.families.observers.bound import lower_bound, multipliers_of
from noisedesign.families.observers.family import FAMILY
from noisedesign.families.observers.observed import ObservedNoise
from noisedesign.families.observers.program import UnitProgram
from noisedesign.files.design_file import load_design, save_design
from noisedesign.files.problem_file import parse_problem
from noisedesign.forms.structure import SpaceStructure
from noisedesign.mechanisms.baselines import baseline_names
from noisedesign.privacy import views as threats
from noisedesign.privacy.accounting import delta_of
from noisedesign.privacy.exposure import account
from noisedesign.privacy.views import Observer
from noisedesign.problem.calibration import calibrate
from noisedesign.problem.problem import PrivacyTarget, SpaceProblem
from noisedesign.system.participation import every_step, single
from noisedesign.tasks.account.table import setting_of
from noisedesign.tasks.export import export
from noisedesign.tasks.report import solution_record
from noisedesign.tasks.simulate import simulate
from noisedesign.tasks.simulation.attacks import Watcher, audit_observers
from noisedesign.tasks.verify import verify
from tests.support import dense_views, oracles, structured_oracles as slow
from tests.support.command_line import call
from tests.support.made_designs import with_matrix
from tests.support.small_designs import falsify, space_design

PATH_5 = 'name = "x"\ndesign = "space"\n[graph]\nkind = "path"\nnodes = 5\n'
CAP = "[limits]\nmax_variance = 20.0\n"
NEIGHBOURS = '[observers]\nmodel = "pndp"\nresponses = "fixed"\nhorizon = 3\n'
TEXT = PATH_5 + CAP + NEIGHBOURS
W_5 = oracles.metropolis(nx.path_graph(5))


def parse(text: str, folder: Path | str = ".") -> SpaceProblem:
    problem = parse_problem(text, folder=folder).problem
    assert isinstance(problem, SpaceProblem)
    return problem


@cache
def solved(text: str = TEXT) -> Design:
    design = solve(parse(text)).design
    assert design is not None
    return design


def stored(folder: Path, text: str = TEXT) -> Path:
    return save_design(solved(text), folder / "d.npz", problem_text=text)


def stacked_error(w: np.ndarray, covariance: np.ndarray, horizon: int) -> float:
    """tr(H R) of all iterates, from the recursion written down."""
    noise = np.kron(np.eye(horizon), covariance)
    return float(sum(np.sum((x @ noise) * x) for x in slow.noise_to_state(w, horizon)))


# --- what a file says -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        ('model = "pndp"', [threats.pndp(nodes=[i]) for i in range(5)]),
        ('model = "pndp"\nnodes = [3, "0"]', [threats.pndp(nodes=[3]), threats.pndp(nodes=[0])]),
        (
            'model = "pndp"\nnodes = [[3, "0"], 1]\nown_noise = "counted"',
            [
                threats.pndp(nodes=[3, 0], own_noise="counted"),
                threats.pndp(nodes=[1], own_noise="counted"),
            ],
        ),
        (
            'model = "secure-sum"\nnodes = [2]\nown_noise = "values"',
            [threats.secure_sum(nodes=[2], own_noise="values")],
        ),
        ('model = "insider"\nnodes = [[0, 1]]', [threats.insider(nodes=[0, 1])]),
        ('model = "tap"\nnodes = [4]', [threats.tap(nodes=[4])]),
        ('model = "ldp"', [threats.ldp()]),
    ],
)
def test_observers_of_a_file(table: str, expected: list[Observer]) -> None:
    problem = parse(PATH_5 + CAP + f'[observers]\n{table}\nresponses = "fixed"\nhorizon = 2\n')
    assert list(problem.observers) == expected
    assert problem.horizon == 2
    assert problem.error is not None
    assert problem.error.of == "all-iterates"


def test_observers_go_by_their_names() -> None:
    """Rows are in the order of networkx."""
    text = (
        TEXT.replace('"path"\nnodes = 5', '"florentine"') + 'nodes = ["Medici", ["Strozzi", 0]]\n'
    )
    order = tuple(nx.florentine_families_graph())
    rows = [(order.index("Medici"),), (order.index("Strozzi"), 0)]
    assert parse(text).observers == tuple(threats.pndp(nodes=nodes) for nodes in rows)


def test_errors_go_with_the_horizon_of_the_observers() -> None:
    problem = parse(TEXT + '[error]\nof = "last-iterate"\n')
    assert problem.error is not None
    assert (problem.error.of, problem.horizon) == ("last-iterate", 3)
    last = list(slow.noise_to_state(W_5, 3))[-1].reshape(5, 3, 5)
    np.testing.assert_allclose(problem.gram, np.einsum("isu,isv->uv", last, last), rtol=1e-12)
    assert parse(TEXT + "[error]\nhorizon = 3\n").horizon == 3


@pytest.mark.parametrize(
    ("text", "field", "words"),
    [
        (PATH_5 + NEIGHBOURS, "limits.max_variance", "grow without bound"),
        (PATH_5 + CAP + "[observers]\nhorizon = 3\n", "observers.model", "nothing"),
        (PATH_5 + CAP + '[observers]\nmodel = "pndp"\n', "observers.horizon", "nothing"),
        (TEXT.replace("horizon = 3", "horizon = 0"), "observers.horizon", "integer >= 1"),
        (TEXT.replace('"pndp"', '"secldp"'), "observers.model", "one of ldp, central, pndp"),
        (TEXT + 'nodes = ["Ann"]\n', "observers.nodes", "'Ann'"),
        (TEXT + "nodes = [5]\n", "observers.nodes", "row numbers 0 to 4"),
        (TEXT + "nodes = [[0, 0]]\n", "observers.nodes", "different nodes"),
        (TEXT + "nodes = [1.5]\n", "observers.nodes.0", "a node (row number or name)"),
        (TEXT + "nodes = [[0, true]]\n", "observers.nodes.0", "a node (row number or name)"),
        (TEXT + "nodes = []\n", "observers.nodes", "one or more observers"),
        (TEXT + "nodes = [[]]\n", "observers.nodes.0", "a node"),
        (TEXT + "node = [1]\n", "observers.node", "Did you mean nodes?"),
        (TEXT.replace('"pndp"', '"ldp"\nnodes = [1]'), "observers.nodes", 'model = "ldp"'),
        (
            TEXT.replace('"pndp"', '"insider"\nown_noise = "counted"'),
            "observers.own_noise",
            "insider",
        ),
        (TEXT + '[structure]\nspace = "edge-local"\n', "structure.space", "observers"),
        (TEXT + "[mixing]\ndropout = 0.1\n", "mixing", "observers"),
        (TEXT + "[error]\nhorizon = 2\n", "error.horizon", "observers.horizon = 3"),
        (TEXT + "[privacy]\nepsilon = 1.0\ndelta = 1e-6\nsteps = 2\n", "privacy.steps", "3"),
        (TEXT.replace("20.0", "20.0\nmin_variance = 1.0"), "limits.min_variance", "observers"),
        (
            TEXT.replace('"space"', '"space-time"')
            + "[participation]\nepochs = 1\nseparation = 3\n",
            "observers",
            'belongs to design = "space"',
        ),
    ],
)
def test_errors_name_the_key(text: str, field: str, words: str) -> None:
    with pytest.raises(InputError) as caught:
        parse(text)
    assert caught.value.field == field
    assert words in str(caught.value)


def test_observers_that_are_none_are_named() -> None:
    for observers, field in (
        (("pndp",), "observers"),
        ((threats.tap(nodes=[5]),), r"observers\.nodes"),
        ((threats.secldp(known_seeds=[7]),), r"observers\.nodes"),
    ):
        with pytest.raises(InputError, match=f"^{field}: expected"):
            SpaceProblem(mixing=W_5, max_variance=2.0, observers=observers)  # type: ignore[arg-type]


# --- the design -----------------------------------------------------------------------------------


def test_every_neighbour_is_kept_within_budget() -> None:
    """By dense views: what a node receives in three steps, knowing the values of its own noise."""
    design, worst = solved(), 0.0
    root = np.linalg.cholesky(np.kron(np.eye(3), design.covariance))
    for v in range(5):
        view = dense_views.neighbour(W_5, v, horizon=3, own_noise=False)
        own = np.eye(15)[v::5]
        hidden = dense_views.View(
            np.vstack([view.signal, np.zeros((3, 15))]), np.vstack([view.noise, own]) @ root
        )
        for u in set(range(5)) - {v}:
            worst = max(worst, np.diagonal(hidden.victim(u, nodes=5, horizon=3)).max())
    assert worst <= 1 + 1e-9
    assert worst == pytest.approx(design.certificate.sensitivity_squared, rel=1e-7)
    assert design.objective == pytest.approx(stacked_error(W_5, design.covariance, 3), rel=1e-12)
    assert design.gap <= 1e-5
    assert np.diagonal(design.covariance).max() <= 20
    # Against a reader of all messages it takes more.
    everybody = solve(replace(design.problem, observers=(), max_variance=20.0)).design
    assert everybody is not None
    assert design.objective < 0.95 * everybody.lower_bound


@pytest.mark.parametrize("model", ["ldp", "pndp"])
def test_who_sees_everything_needs_the_noise_of_whisper(model: str) -> None:
    """The native solver of another program: a neighbour on a complete graph hears all messages,
    and values of its own noise change nothing (principal submatrices of R^-1)."""
    head = 'name = "x"\ndesign = "space"\n[graph]\nkind = "complete"\nnodes = 4\n'
    head += 'weights = "lazy-metropolis-hastings"\n[budget]\ntau = [1.0, 2.0, 3.0, 4.0]\n'
    text = head + CAP + f'[observers]\nmodel = "{model}"\nresponses = "fixed"\nhorizon = 2\n'
    everybody = solve(parse(head + CAP + "[error]\nhorizon = 2\n")).design
    assert everybody is not None
    assert solved(text).objective == pytest.approx(everybody.objective, rel=2e-5)
    assert solved(text).lower_bound <= everybody.objective * (1 + 1e-9)


def test_the_record_of_a_solve() -> None:
    solution = solve(parse(TEXT))
    record = solution_record(solution)
    ldp = stacked_error(W_5, np.eye(5), 3)
    assert record["relative_to_ldp"] == pytest.approx(record["objective"] / ldp, rel=1e-12)
    bound = record["lower_bound"]
    assert record["relative_to_unrestricted"] == pytest.approx(record["objective"] / bound)
    assert (record["status"], record["backend"]) == ("optimal", "native")
    assert record["gap"] <= 1e-5
    scaled = replace(solved().problem, budget=np.array([1.0, 2.0, 4.0, 5.0, 10.0]))
    variances = np.diag([1, 1 / 2, 1 / 4, 1 / 5, 1 / 10])
    found = replace(solved(), problem=scaled).ldp_objective
    assert found == pytest.approx(stacked_error(W_5, variances, 3), rel=1e-12)


@pytest.mark.parametrize("backend", ["native", pytest.param("clarabel", marks=pytest.mark.slow)])
def test_what_no_answer_is_certified_to_is_asked_again(backend: str) -> None:
    """By another call of the solver, in units of the last answer."""
    usual = solve(parse(TEXT), backend=backend)
    assert usual.backend == backend
    tightest = solve(parse(TEXT), gap=1e-12, backend=backend)
    assert tightest.status == "inaccurate"
    assert tightest.evaluations > usual.evaluations


def test_a_gap_and_a_backend_can_be_asked_for() -> None:
    roomy = parse(TEXT.replace("20.0", "200.0"))
    tight = solve(roomy, gap=4e-7)
    assert tight.certificate is not None
    assert (tight.status, tight.certificate.gap <= 4e-7) == ("optimal", True)
    for options, field in (
        ({"backend": "none"}, "backend"),
        ({"formulation": "compact"}, "formulation"),
    ):
        with pytest.raises(InputError, match=f"^{field}: expected"):
            solve(parse(TEXT), **options)  # type: ignore[arg-type]
    cramped = TEXT.replace("20.0", "0.1")
    with pytest.raises(InputError, match=r"^limits\.max_variance: expected a cap at which"):
        solve(parse(cramped))
    with pytest.raises(InputError, match=r"^observers\.horizon: expected matrix inequalities"):
        solve(parse(TEXT.replace("horizon = 3", "horizon = 60")), backend="clarabel")


def test_a_solver_that_finds_nothing_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model, "read", lambda *a: None)
    solution = solve(parse(TEXT), backend="clarabel")
    assert (solution.status, solution.design) == ("failed", None)
    assert "--backend native" in solution.remedy


# --- on disk --------------------------------------------------------------------------------------


def test_a_design_comes_back_and_is_verified(tmp_path: Path) -> None:
    loaded = load_design(stored(tmp_path))
    outcome = verify(loaded)
    assert outcome.ok, [check for check in outcome.checks if check.ok is False]
    assert all(check.ok for check in outcome.checks)
    design = loaded.design
    assert isinstance(design.problem, SpaceProblem)
    assert design.problem.observers == solved().problem.observers  # type: ignore[union-attr]
    assert design.trust == loaded.manifest["trust"] == "observers"
    assert "chosen" not in loaded.manifest["budget"]
    assert "observer sees" in loaded.manifest["budget"]
    claims = {check.name: check for check in outcome.checks}
    assert claims["lower bound"].found == pytest.approx(design.lower_bound, rel=1e-10)


def failing(path: Path) -> set[str]:
    return {check.name for check in verify(load_design(path)).checks if check.ok is False}


def test_falsified_claims_are_found(tmp_path: Path) -> None:
    def less_noise(manifest: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        arrays["covariance"] = arrays["covariance"] * 0.999

    falsify(stored(tmp_path), less_noise)
    assert {"objective", "sensitivity", "feasible"} <= failing(tmp_path / "d.npz")

    def one_observer_less(manifest: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        manifest["observers"] = manifest["observers"][:-1]
        for name in ("observer_ranks", "observer_factors", "observer_weights"):
            del arrays[name], manifest["arrays"][name]

    falsify(stored(tmp_path), one_observer_less)
    assert {"problem", "lower bound"} <= failing(tmp_path / "d.npz")

    def tighter(manifest: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        arrays["observer_factors"] = arrays["observer_factors"] * 1.1
        manifest["lower_bound"] *= 1.001

    falsify(stored(tmp_path), tighter)
    assert "lower bound" in failing(tmp_path / "d.npz")


def test_noise_against_observers_does_not_pass_for_more(tmp_path: Path) -> None:
    def trusted(manifest: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        manifest["trust"] = "local"

    falsify(stored(tmp_path), trusted)
    with pytest.raises(InputError, match=r"design file\.trust: expected observers"):
        load_design(tmp_path / "d.npz")

    def forgotten(manifest: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        manifest["observers"] = []

    falsify(stored(tmp_path), forgotten)
    with pytest.raises(InputError, match=r"design file\.trust: expected local or central"):
        load_design(tmp_path / "d.npz")

    def both(manifest: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        trusted(manifest, arrays)
        forgotten(manifest, arrays)

    falsify(stored(tmp_path), both)
    assert {"sensitivity", "feasible", "problem"} <= failing(tmp_path / "d.npz")


@pytest.mark.parametrize("name", ["observer_ranks", "observer_factors", "observer_weights"])
def test_witnesses_of_another_shape_are_refused(name: str, tmp_path: Path) -> None:
    design = solved()
    wrong = replace(design, proof=dict(design.proof) | {name: design.proof[name][:-1]})
    saved = load_design(save_design(wrong, tmp_path / "d.npz", problem_text=TEXT))
    with pytest.raises(InputError, match=r"design file\.observer_(factors|weights)"):
        verify(saved)


def test_the_stored_bound_holds_in_any_basis() -> None:
    """Another machine may whiten messages otherwise: B_a by any rotation, and G_a with it."""
    design = solved()
    assert isinstance(design.problem, SpaceProblem)
    problem = FAMILY.program(design.problem)
    program, rng = problem.normalized, np.random.default_rng(3)
    rotated = []
    for seen in program.observers:
        q = np.linalg.qr(rng.standard_normal((seen.responses.shape[1],) * 2))[0]
        rotated.append(
            ObservedNoise.of(np.einsum("mn,jnp->jmp", q, seen.responses), signals=q @ seen.signals)
        )
    elsewhere = UnitProgram(gram=program.gram, observers=tuple(rotated), cap=program.cap)
    for one in (program, elsewhere):
        witness = multipliers_of(one, design.proof)
        bound = problem.unit_error * lower_bound(one, witness)
        assert bound == pytest.approx(design.lower_bound, rel=1e-9)


def test_observers_that_know_seeds_are_not_stored(tmp_path: Path) -> None:
    problem = replace(solved().problem, observers=(threats.secldp(known_seeds=[0]),))
    with pytest.raises(InputError, match=r"^observers: expected observers who know noise by"):
        save_design(replace(solved(), problem=problem), tmp_path / "d.npz")


# --- what it is good for, and what not ------------------------------------------------------------


def test_calibration_is_for_one_participation() -> None:
    target = PrivacyTarget(epsilon=2.0, delta=1e-5, clip=0.5, adjacency="replace")
    with pytest.raises(InputError, match="^participation: expected single participation in 3 st"):
        replace(solved().problem, privacy=target)
    with pytest.raises(InputError, match="^participation: expected single participation in 3 st"):
        replace(solved().problem, participation=every_step(3))
    found = calibrate(
        replace(solved().problem, privacy=target, budget=4.0, participation=single(3))
    )
    assert found.horizon == 3
    # A change of norm 1 moves what is seen by sqrt(tau) = 2, in units of the multiplier.
    assert delta_of(mu=2.0 / found.noise_stddev, epsilon=2.0) == pytest.approx(1e-5, rel=1e-3)


def test_accounts_of_a_design_are_of_one_participation(tmp_path: Path) -> None:
    setting = setting_of(load_design(stored(tmp_path)).design)
    assert (setting.participation, setting.algorithm.horizon) == (single(3), 3)
    with pytest.raises(InputError, match=r"^steps: expected none for .* \(k, b\) = \(1, 3\)"):
        setting_of(solved(), steps=2)


def test_nobody_takes_it_for_noise_that_protects_every_message(tmp_path: Path) -> None:
    problem = solved().problem
    with pytest.raises(InputError, match="^design: .*chosen observers only"):
        export(solved(), to="whisper-dsgd", path=tmp_path / "d.npz")
    path, _ = export(solved(), to="npy", path=tmp_path / "R.npy")
    np.testing.assert_array_equal(np.load(path), solved().covariance)
    with pytest.raises(InputError, match="^problem: .*chosen observers"):
        baseline_names(problem)
    with pytest.raises(InputError, match="^observers: expected none"):
        program_of(problem)
    with pytest.raises(InputError, match=r"^structure\.space"):
        replace(
            space_design().problem,
            observers=(threats.ldp(),),
            max_variance=2.0,
            structure=SpaceStructure(kind="decor"),
        )


def test_the_simulator_agrees() -> None:
    report = simulate(solved(), runs=2000, seed=1)
    assert report.agrees
    assert report.variance.predicted == solved().objective
    weak = with_matrix(solved(), matrix=solved().covariance / 2)
    assert simulate(weak, runs=2000, seed=1).audit.exceeds
    for other in ("insider", "tap", "secure-sum"):
        nodes = "nodes = [0, [1, 2]]\n"
        text = TEXT.replace('"pndp"\n', f'"{other}"\n{nodes}')
        assert simulate(solved(text), runs=2000, seed=1).audit.agrees, other


@pytest.mark.parametrize("own_noise", ["values", "counted"])
def test_audits_see_what_the_account_says(own_noise: str) -> None:
    """Correlated noise of a run of three steps, before one end of a path."""
    rng = np.random.default_rng(5)
    root = rng.standard_normal((5, 5))
    covariance = root @ root.T / 5 + 0.2 * np.eye(5)
    for observer, readout in (
        (threats.pndp(nodes=[0], own_noise=own_noise), np.eye(5)[:2]),
        (threats.secure_sum(nodes=[0], own_noise=own_noise), W_5[:1]),
    ):
        algorithm = threats.whisper(mixing=W_5, covariance=covariance, horizon=3)
        mu = max(
            e.mu
            for e in account(
                algorithm,
                observer,
                participation=single(3),
                adjacency="zero-out",
                responses="fixed",
            )
        )
        known = (0,) if own_noise == "values" else ()
        watcher = Watcher(readout=readout, known=known, inside=(0,))
        report = audit_observers(
            mixing=W_5,
            covariance=covariance,
            watchers=[watcher],
            horizon=3,
            claimed_mu=mu,
            noise_stddev=1.0,
            runs=3000,
            seed=2,
        )
        assert report.agrees, (observer, mu, report)
        twice = audit_observers(
            mixing=W_5,
            covariance=covariance,
            watchers=[watcher],
            horizon=3,
            claimed_mu=mu / 2,
            noise_stddev=2.0,
            runs=3000,
            seed=2,
        )
        assert twice.agrees


def test_audits_refuse_what_is_seen_bare() -> None:
    watcher = Watcher(readout=np.eye(5), known=(0,))
    options: dict[str, Any] = {"mixing": W_5, "covariance": np.eye(5), "horizon": 2}
    with pytest.raises(InputError, match="^covariance: expected noise in every direction"):
        audit_observers(watchers=[watcher], claimed_mu=1.0, **options)
    deaf = Watcher(readout=np.zeros((1, 5)))
    with pytest.raises(InputError, match="^watchers: expected one that messages reach"):
        audit_observers(watchers=[deaf], claimed_mu=1.0, **options)


def test_from_the_shell(tmp_path: Path) -> None:
    (tmp_path / "p.toml").write_text(TEXT)
    path = tmp_path / "d.npz"
    solving = call("solve", tmp_path / "p.toml", "-o", path)
    assert solving.code == 0
    assert "chosen observers only" in solving.err
    assert call("solve", tmp_path / "p.toml", "--json").json()["status"] == "optimal"
    assert call("verify", path).code == 0
    assert call("simulate", path, "--runs", 1000).code == 0
    asked = ("account", path, "--json", "--node", "0", "--adjacency", "zero-out")
    table = call(*asked, "--responses", "fixed").json()
    rows = {row["model"]: row for row in table}
    assert rows["pndp"]["mu"] <= 1 + 1e-6 < rows["ldp"]["mu"]
    # Whoever does not ask is told what holds for training.
    rows = {row["model"]: row for row in call(*asked).json()}
    assert rows["pndp"]["mu"] == pytest.approx(rows["ldp"]["mu"], rel=1e-12)
    refused = call("baselines", tmp_path / "p.toml")
    assert (refused.code, refused.err.count("\n")) == (2, 1)
