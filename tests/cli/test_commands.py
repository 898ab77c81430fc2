"""Every command: what it prints where, and the exit code it leaves with."""

from __future__ import annotations

import csv
import sys
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest

import noisedesign
from noisedesign import cli
from noisedesign.conic.solvers import Availability, ConicSolver
from noisedesign.design.backends import all_backends, get_backend
from noisedesign.design.solve import solve
from noisedesign.files.design_file import load_design, save_design
from noisedesign.files.problem_file import load_problem
from noisedesign.files.problem_set import problem_files
from noisedesign.mechanisms.baselines import names_of
from noisedesign.surveys import compare as run
from tests.support import ROOT
from tests.support.command_line import (
    CAPPED,
    EPOCHS,
    PREFIX,
    PRIVACY,
    RING,
    Outcome,
    call,
    shell,
    write,
)

SOLVE = sys.modules["noisedesign.design.solve"]
"""The module; the package's attribute of that name is the function."""

OPTIMUM = sum(abs(1 + 2 * np.cos(2 * np.pi * k / 5)) / 3 for k in range(5)) ** 2 / 5
"""Ring of five: (nuclear norm of W)^2 / n. Independent noise costs 5/3."""


def saved(folder: Path, text: str = RING, name: str = "design.npz") -> Path:
    path = folder / name
    outcome = call("solve", write(folder, text), "-o", path)
    assert outcome.code == 0
    return path


def lying(folder: Path, text: str = RING) -> Path:
    """A well-formed design file whose objective is claimed to be half of what it is."""
    loaded = load_problem(write(folder, text))
    design = solve(loaded.problem).design
    assert design is not None
    claimed = replace(
        design.certificate, objective=design.objective / 2, lower_bound=design.lower_bound / 2
    )
    return save_design(
        replace(design, certificate=claimed), folder / "lying.npz", problem_text=loaded.text
    )


# --- as a shell runs it --------------------------------------------------------------------------


def test_from_a_shell(tmp_path: Path) -> None:
    """The main road, in processes of their own, from another folder than the checkout."""
    write(tmp_path, RING + PRIVACY)
    solved = shell("solve", "problem.toml", "-o", "d.npz", "--json", cwd=tmp_path)
    assert (solved.code, solved.err) == (0, "")
    assert solved.json()["objective"] == pytest.approx(OPTIMUM, rel=1e-6)
    verified = shell("verify", "d.npz", "--json", cwd=tmp_path)
    assert (verified.code, verified.json()["ok"], verified.err) == (0, True, "")
    wrong = shell("solve", "missing.toml", "--json", cwd=tmp_path)
    assert (wrong.code, wrong.out) == (2, "")
    assert wrong.err.startswith("noisedesign: error: problem: ")


def test_installed_command_is_main() -> None:
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    assert scripts == {"noisedesign": "noisedesign.__main__:main"}
    assert set(cli.commands.list_commands(click.Context(cli.commands))) == {
        "solve",
        "verify",
        "simulate",
        "deploy",
        "rehearse",
        "soak",
        "audit-run",
        "parts",
        "dropout",
        "compare",
        "check-results",
        "backends",
        "report",
        "baselines",
        "account",
        "export",
        "model",
        "prove",
        "plot",
        "problems",
        "demo",
        "sweep",
        "curvature",
        "budgets",
        "recommend",
        "evaluate",
        *cli.OF_LABORATORY,
    }


def test_every_command_takes_json() -> None:
    for name, group in cli.commands.commands.items():
        commands = group.commands.values() if isinstance(group, click.Group) else [group]
        for command in commands:
            flags = [
                option
                for parameter in command.params
                if isinstance(parameter, click.Option)
                for option in parameter.opts
            ]
            assert "--json" in flags, f"{name} {command.name}"


def test_version_and_help() -> None:
    version = call("--version")
    assert (version.code, version.out.split()[-1]) == (0, noisedesign.__version__)
    for command in cli.commands.commands:
        shown = call(command, "--help")
        assert (shown.code, shown.err) == (0, "")
        assert f"noisedesign {command}" in shown.out


def test_help_fits_a_terminal_and_cuts_no_sentence() -> None:
    pages = [call("--help", columns=80), call("--help")]
    pages += [call(command, "--help", columns=80) for command in cli.commands.commands]
    for page in pages:
        for line in page.out.splitlines():
            assert len(line) <= 80, line
            assert not line.endswith("...") or line.startswith("Usage:"), line


def test_the_help_begins_with_what_people_need() -> None:
    """In the order of a first day; every other command stands below, by its name."""
    shown = call("--help", columns=80).out
    first, rest = shown.split("\nCommands:\n")[1].split("\nMore commands:\n")
    heads = [[line.split()[0] for line in part.splitlines() if line] for part in (first, rest)]
    assert heads[0] == [
        "demo",
        "recommend",
        "solve",
        "verify",
        "report",
        "account",
        "deploy",
        "export",
    ]
    assert heads[1] == sorted(heads[1])
    assert {*heads[0], *heads[1]} == set(cli.commands.list_commands(click.Context(cli.commands)))
    assert not {*heads[0]} & {*heads[1]}
    assert shown.index("Design the noise") < shown.index("  demo  ") < shown.index("  train  ")


def test_a_wrong_call_names_the_help_of_its_own_command() -> None:
    assert "(see noisedesign solve --help)" in call("solve").err
    assert "(see noisedesign --help)" in call("solv").err
    assert "(see noisedesign export --help)" in call("export", "d.npz").err


@pytest.mark.parametrize("command", ["solve", "baselines", "model"])
@pytest.mark.parametrize(
    ("name", "reads"),
    [
        ("accounts/florentine-pndp.toml", "account"),
        ("sweeps/random-graphs.toml", "sweep"),
        ("papers/gossip.toml", "reproduce"),
    ],
)
def test_a_file_of_another_kind_names_the_command_that_reads_it(
    command: str, name: str, reads: str, tmp_path: Path
) -> None:
    more = ("-o", tmp_path / "m.cbf") if command == "model" else ()
    outcome = call(command, name, *more)
    assert outcome.code == 2
    assert f"which `noisedesign {reads}` reads" in outcome.err


# --- solve ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", [RING, CAPPED, EPOCHS, PREFIX])
def test_solve_json(text: str, tmp_path: Path) -> None:
    path = write(tmp_path, text)
    outcome = call("solve", path, "--json")
    assert (outcome.code, outcome.err) == (0, "")
    record = outcome.json()
    assert {
        "name",
        "design",
        "backend",
        "status",
        "objective",
        "lower_bound",
        "gap",
        "seconds",
        "feasible",
    } <= set(record)
    problem = load_problem(path).problem
    assert (record["name"], record["design"]) == (problem.name, problem.axes)
    assert (record["backend"], record["status"], record["feasible"]) == ("native", "optimal", True)
    assert 0 < record["lower_bound"] <= record["objective"] < np.inf
    assert record["gap"] == pytest.approx(record["objective"] / record["lower_bound"] - 1)
    assert record["gap"] <= 1e-6
    assert record["seconds"] > 0
    assert 0 < record["relative_to_ldp"] < 1
    assert "output" not in record
    assert "privacy" not in record


def test_solve_gap_and_backend_options(tmp_path: Path) -> None:
    path = write(tmp_path, EPOCHS)
    tight = call("solve", path, "--gap", "1e-9", "--json").json()
    assert tight["gap"] <= 1e-9
    conic = call("solve", path, "--backend", "clarabel", "--gap", "1e-5", "--json")
    assert (conic.code, conic.err) == (0, "")
    assert conic.json()["backend"] == "clarabel"
    assert conic.json()["objective"] == pytest.approx(tight["objective"], rel=1e-5)


def test_solve_privacy(tmp_path: Path) -> None:
    """Ten independent rounds; replace-one adjacency moves a step by twice the clip."""
    record = call("solve", write(tmp_path, RING + PRIVACY), "--json").json()["privacy"]
    assert (record["epsilon"], record["delta"]) == (2.0, 1e-6)
    assert (record["steps"], record["step_sensitivity"]) == (10, 1.0)
    assert (record["adjacency"], record["conversion"]) == ("replace", "gdp")
    # mu^2 = steps * sensitivity^2 / noise_stddev^2 (whose own tests are elsewhere).
    assert record["noise_stddev"] == pytest.approx(10**0.5 / record["mu"])


def test_errors_at_the_target_are_those_of_the_noise_that_meets_it(tmp_path: Path) -> None:
    """Of every command that prints a design: objective times noise_stddev squared; clip 0.5."""
    path = write(tmp_path, RING + PRIVACY)
    solved = call("solve", path, "--json").json()
    compared = call("compare", path, "--backend", "native", "--json").json()["rows"]
    baselines = call("baselines", path, "--json").json()
    assert len(baselines) == len(names_of("space")) + 1
    for record in (solved, *compared, *baselines):
        # Ten independent steps; a record that is replaced moves each by twice the clip.
        stddev = 2 * 0.5 * 10**0.5 / record["mu"]
        assert record["noise_stddev"] == pytest.approx(stddev)
        assert record["noise_multiplier"] == pytest.approx(stddev / 0.5)
        assert record["error_at_target"] == pytest.approx(record["objective"] * stddev**2)
        stated = {name: record[name] for name in ("epsilon", "delta", "adjacency")}
        assert stated == {"epsilon": 2.0, "delta": 1e-6, "adjacency": "replace"}
    for command in ("solve", "baselines"):
        table = call(command, path).out
        for words in (
            "mu",
            "epsilon",
            "delta",
            "adjacency",
            "noise stddev",
            "noise multiplier",
            "error at target",
        ):
            assert words in table
        without = call(command, write(tmp_path, RING, "free.toml"), "--json").json()
        record = without if command == "solve" else without[-1]
        assert record["noise_stddev"] is record["error_at_target"] is record["mu"] is None


def test_solve_takes_several_problems(tmp_path: Path) -> None:
    ring, epochs = write(tmp_path, RING, "r.toml"), write(tmp_path, EPOCHS, "e.toml")
    folder = tmp_path / "designs"
    outcome = call("solve", ring, epochs, "-o", folder, "--json")
    assert outcome.code == 0
    first, second = outcome.json()
    assert (first["name"], second["name"]) == ("ring-5", "epochs")
    assert first["objective"] == pytest.approx(OPTIMUM, rel=1e-6)
    for record in (first, second):
        path = folder / f"{record['name']}.npz"
        assert record["output"] == str(path)
        assert load_design(path).design.objective == record["objective"]
    table = call("solve", ring, epochs).out.splitlines()
    assert [line.split()[0] for line in table if line][-2:] == ["ring-5", "epochs"]
    assert isinstance(call("solve", ring, "--json").json(), dict)


def test_of_several_problems_the_worst_says_how_it_ends(tmp_path: Path) -> None:
    ring, epochs = write(tmp_path, RING, "r.toml"), write(tmp_path, EPOCHS, "e.toml")
    late = call("solve", ring, epochs, "--time-limit", "1e-9", "--gap", "1e-9", "--json")
    assert late.code == 1
    assert [record["status"] for record in late.json()] == ["optimal", "time-limit"]
    assert "epochs: time-limit: " in late.err
    refusing = RING.replace("nodes = 5", "nodes = 6") + '[limits]\nmax_variance = "none"\n'
    divergent = write(tmp_path, refusing, "d.toml")
    mixed = call("solve", divergent, ring, "--json")
    assert mixed.code == 2
    assert [record["status"] for record in mixed.json()] == ["refused", "optimal"]
    assert mixed.json()[0]["remedy"]
    alone = call("solve", divergent, "--json")
    assert (alone.code, alone.out) == (2, "")


def test_outputs_of_several_problems_are_a_folder(tmp_path: Path) -> None:
    ring, epochs = write(tmp_path, RING, "r.toml"), write(tmp_path, EPOCHS, "e.toml")
    file = write(tmp_path, "words", "file")
    for arguments, field in (
        ((ring, epochs, "-o", tmp_path / "d.npz"), "output"),
        ((ring, epochs, "-o", file), "output"),
        ((ring, ring, "-o", tmp_path), "problems"),
        ((write(tmp_path, RING.replace("ring-5", "a/b"), "s.toml"), ring, "-o", tmp_path), "name"),
        ((ring, epochs, "--checkpoint", tmp_path / "state.npz"), "checkpoint"),
    ):
        outcome = call("solve", *arguments)
        assert outcome.code == 2
        assert outcome.err.startswith(f"noisedesign: error: {field}: "), outcome.err
    assert not list(tmp_path.glob("*.npz"))


def test_solve_output(tmp_path: Path) -> None:
    path = tmp_path / "design.npz"
    outcome = call("solve", write(tmp_path, RING), "-o", path, "--json")
    record = outcome.json()
    assert record["output"] == str(path)
    stored = load_design(path)
    assert stored.design.objective == record["objective"]
    assert stored.design.lower_bound == record["lower_bound"]
    assert stored.problem_text == RING


def test_solve_table(tmp_path: Path) -> None:
    outcome = call("solve", write(tmp_path, RING + PRIVACY))
    assert outcome.code == 0
    for word in ("ring-5", "native", "optimal", "noise multiplier", "yes"):
        assert word in outcome.out
    # Who is not protected is said, and beside the results rather than among them.
    assert "noise seed" in outcome.err
    assert "noise seed" not in outcome.out
    assert "shares no seed" in call("solve", write(tmp_path, PREFIX)).err


def test_a_time_limit_leaves_a_design_and_with_one(tmp_path: Path) -> None:
    """A gap far from what was asked for does not look like success, and what there is is kept."""
    path, output = write(tmp_path, EPOCHS), tmp_path / "d.npz"
    outcome = call("solve", path, "--time-limit", "1e-9", "--gap", "1e-9", "-o", output, "--json")
    assert outcome.code == 1
    record = outcome.json()
    assert (record["status"], record["feasible"]) == ("time-limit", True)
    assert record["gap"] > 1e-9
    assert outcome.err.startswith("time-limit: certified gap")
    assert call("verify", output).code == 0


def test_a_failed_solve_leaves_with_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from noisedesign.base.monitor import Stop
    from noisedesign.conic import process as isolated
    from noisedesign.conic.data import Outcome

    lost = Outcome(stop=Stop.FAILED, message="numerical trouble")
    monkeypatch.setattr(isolated, "solve", lambda *args, **kwargs: lost)
    output = tmp_path / "d.npz"
    outcome = call("solve", write(tmp_path, RING), "--backend", "clarabel", "-o", output, "--json")
    assert outcome.code == 1
    record = outcome.json()
    assert (record["status"], record["feasible"], record["objective"]) == ("failed", False, None)
    assert outcome.err.startswith("failed: numerical trouble")
    assert not output.exists()


def test_progress_goes_to_a_watched_standard_error(tmp_path: Path) -> None:
    outcome = call("solve", write(tmp_path, EPOCHS), "--json", watched=True)
    assert outcome.json()["status"] == "optimal"
    assert "bound" in outcome.err
    assert "gap" in outcome.err
    assert "\r" not in outcome.out


def test_problems_are_found_in_the_problems_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "problems" / "rings").mkdir(parents=True)
    write(tmp_path / "problems" / "rings", RING, "five.toml")
    monkeypatch.chdir(tmp_path)
    assert call("solve", "rings/five.toml", "--json").json()["name"] == "ring-5"
    # A path that exists means itself.
    (tmp_path / "rings").mkdir()
    write(tmp_path / "rings", CAPPED, "five.toml")
    assert call("solve", "rings/five.toml", "--json").json()["name"] == "complete-4"


# --- verify and simulate -------------------------------------------------------------------------


def test_verify(tmp_path: Path) -> None:
    path = saved(tmp_path, EPOCHS)
    outcome = call("verify", path, "--json")
    assert (outcome.code, outcome.err) == (0, "")
    record = outcome.json()
    assert record["ok"] is True
    assert {"objective", "lower bound", "gap", "feasible"} <= {c["name"] for c in record["checks"]}
    table = call("verify", path)
    assert "objective" in table.out


def test_verify_catches_a_wrong_claim(tmp_path: Path) -> None:
    outcome = call("verify", lying(tmp_path), "--json")
    assert outcome.code == 1
    record = outcome.json()
    assert record["ok"] is False
    assert "objective" in {check["name"] for check in record["checks"] if check["ok"] is False}
    assert outcome.err == "the design file does not hold what it claims\n"


@pytest.mark.parametrize("text", [RING, EPOCHS, PREFIX])
def test_simulate(text: str, tmp_path: Path) -> None:
    outcome = call("simulate", saved(tmp_path, text), "--runs", 1000, "--seed", 3, "--json")
    assert (outcome.code, outcome.err) == (0, "")
    record = outcome.json()
    assert record["agrees"] is True
    assert {"variance", "audit"} <= set(record)
    again = call("simulate", tmp_path / "design.npz", "--runs", 1000, "--seed", 3, "--json")
    assert again.json() == record
    other = call("simulate", tmp_path / "design.npz", "--runs", 1000, "--seed", 4, "--json")
    assert other.json()["variance"] != record["variance"]


@pytest.mark.parametrize("text", [RING, EPOCHS])
def test_simulate_catches_a_wrong_claim(text: str, tmp_path: Path) -> None:
    path = lying(tmp_path, text)
    outcome = call("simulate", path, "--runs", 1000, "--json")
    assert outcome.code == 1
    assert outcome.json()["agrees"] is False
    assert outcome.err == "the simulation disagrees with the design\n"
    table = call("simulate", path, "--runs", 1000)
    assert (table.code, "no" in table.out.split()) == (1, True)


# --- compare -------------------------------------------------------------------------------------


@pytest.fixture
def _once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short solves are not repeated."""
    monkeypatch.setattr(run, "RUNS", 1)


@pytest.mark.usefixtures("_once")
def test_compare(tmp_path: Path) -> None:
    ring, epochs = write(tmp_path, RING, "r.toml"), write(tmp_path, EPOCHS, "e.toml")
    output = tmp_path / "results.csv"
    outcome = call(
        "compare", ring, epochs, "--backends", "native, scs,clarabel", "-o", output, "--json"
    )
    assert outcome.code == 0
    value = outcome.json()
    assert list(value) == ["machine", "shift_seconds", "summary", "curves", "rows"]
    records = value["rows"]
    assert [(r["name"], r["backend"]) for r in records] == [
        (name, backend)
        for name in ("ring-5", "epochs")
        for backend in ("native", "scs", "clarabel")
    ]
    for record in records:
        assert record["solved"] is True
        assert record["gap"] <= 1e-6
        assert record["build_seconds"] >= 0
        assert record["solve_seconds"] > 0
    for record in records[:3]:
        assert record["objective"] == pytest.approx(OPTIMUM, rel=1e-6)
    assert records[3]["objective"] == pytest.approx(records[5]["objective"], rel=1e-6)
    assert outcome.err.splitlines()[1] == "2/6 ring-5 with scs"
    with output.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [float(row["objective"]) for row in rows] == [r["objective"] for r in records]
    assert [(r["backend"], r["problems"], r["solved"]) for r in value["summary"]] == [
        ("native", 2, 2),
        ("scs", 2, 2),
        ("clarabel", 2, 2),
    ]
    for curve in value["curves"]:
        times = [
            record["build_seconds"] + record["solve_seconds"]
            for record in records
            if record["backend"] == curve["backend"]
        ]
        assert curve["seconds"] == sorted(times)
    assert value["machine"]["threads"] == int(rows[0]["threads"])
    assert value["shift_seconds"] == 10


@pytest.mark.usefixtures("_once")
def test_compare_table(tmp_path: Path) -> None:
    picture = tmp_path / "curves.png"
    outcome = call(
        "compare",
        tmp_path,
        write(tmp_path, RING),
        "--backend",
        "native",
        "--backend",
        "clarabel",
        "--plot",
        picture,
    )
    assert outcome.code == 0
    lines = [line.split() for line in outcome.out.splitlines() if line.strip()]
    assert ["name", "ring-5"] in lines  # of every row, and so above the table
    (native,) = (line for line in lines if line[0] == "native" and len(line) == 5)
    assert float(native[1]) == pytest.approx(OPTIMUM, rel=1e-5)
    assert [line[0] for line in lines if line[0] == "err1"] == ["err1"]  # one conic row
    for words in (
        "solver seconds",
        "DIMACS errors",
        "shifted by 10 s, unsolved as 600 s",
        "problems solved in time",
    ):
        assert words in outcome.out
    assert ["solved", "1/1"] in lines
    assert outcome.out.splitlines()[-1].startswith(
        f"noisedesign {noisedesign.__version__}, Python "
    )
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.usefixtures("_once")
@pytest.mark.slow
def test_compare_with_all_that_can_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that cannot are named, with what they lack."""
    ready = {name: get_backend(name).availability() for name in ("scs", "clarabel")}
    missing = Availability(installed=False, licensed=False, remedy="pip install it")
    monkeypatch.setattr(ConicSolver, "availability", lambda self: ready.get(self.name, missing))
    outcome = call("compare", write(tmp_path, RING), "--backends", "all", "--json")
    assert [row["backend"] for row in outcome.json()["rows"]] == ["native", "scs", "clarabel"]
    for name in ("mosek", "cvxopt", "sdpa"):
        assert f"{name} is left out: pip install it" in outcome.err


def test_compare_counts_what_was_found_by_a_search(tmp_path: Path) -> None:
    searched = write(tmp_path, PREFIX + '[structure]\ntime = "toeplitz"\n', "s.toml")
    arguments = ("compare", searched, write(tmp_path, RING, "r.toml"), "--backend", "native")
    (summary,) = call(*arguments, "--json").json()["summary"]
    assert (summary["solved"], summary["best_found"], summary["failed"]) == (1, 1, 0)
    lines = call(*arguments).out.splitlines()
    assert "solved               1/2" in lines
    assert "best found           1" in lines


def test_compare_passes_over_what_is_no_problem(tmp_path: Path) -> None:
    """A pattern that a shell has expanded names account and sweep files along with problems."""
    shipped = ROOT / "problems"
    account = shipped / "accounts" / "florentine-pndp.toml"
    write(tmp_path, RING, "a.toml")
    outcome = call("compare", tmp_path / "*.toml", account, "--backend", "native", "--json")
    assert [row["name"] for row in outcome.json()["rows"]] == ["ring-5"]
    assert f"{account} is no problem file: passed over" in outcome.err
    files, passed_over = problem_files([shipped])
    kinds = {path.parent.name for path in passed_over}
    assert kinds == {"accounts", "papers", "sweeps", "training", "unbounded"}
    assert len(files) + len(passed_over) == len(list(shipped.glob("**/*.toml")))
    assert problem_files([f"{shipped}/**/*.toml"]) == (files, passed_over)
    assert problem_files([*files, *files])[0] == files
    for nothing in (tmp_path / "no.*", account):
        refused = call("compare", nothing, "--backend", "native")
        assert (refused.code, refused.err.startswith("noisedesign: error: problem: ")) == (2, True)


# --- backends ------------------------------------------------------------------------------------


def test_backends() -> None:
    outcome = call("backends", "--json")
    assert (outcome.code, outcome.err) == (0, "")
    records = {record["name"]: record for record in outcome.json()}
    assert set(records) == {"native", "scs", "clarabel", "mosek", "cvxopt", "sdpa"}
    for backend in all_backends():
        record, available = records[backend.name], backend.availability()
        assert record["installed"] == available.installed
        assert record["licensed"] == available.licensed
        assert record["ready"] == available.ready
        assert record["version"] == available.version
        assert record["takes"]
        assert record["formulations"] == list(backend.formulations)
        assert bool(record["remedy"]) == (not record["ready"])
    assert records["native"]["ready"] is True


def test_remedies_survive_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is in square brackets is no markup."""
    missing = Availability(
        installed=False, licensed=False, remedy="pip install 'noisedesign[mosek]' :key:"
    )
    monkeypatch.setattr(ConicSolver, "availability", lambda self: missing)
    outcome = call("backends")
    assert outcome.code == 0
    assert "noisedesign[mosek]" in outcome.out
    assert ":key:" in outcome.out


# --- baselines, export, plot ---------------------------------------------------------------------


@pytest.mark.parametrize(("text", "names"), [(RING, names_of("space")), (EPOCHS, names_of("time"))])
def test_baselines(text: str, names: tuple[str, ...], tmp_path: Path) -> None:
    outcome = call("baselines", write(tmp_path, text), "--json")
    assert (outcome.code, outcome.err) == (0, "")
    records = outcome.json()
    assert [record["method"] for record in records] == [*names, "optimal"]
    local = [r for r in records if r["protects"] == "every message"]
    assert len(local) == len(records) - 1
    best = records[-1]
    assert all(r["objective"] >= best["objective"] for r in local)
    assert all(r["lower_bound"] <= best["objective"] for r in local)
    assert all(r["feasible"] for r in records)
    ldp = records[0]
    assert ldp["relative_to_ldp"] == pytest.approx(1)
    if text is RING:
        assert ldp["objective"] == pytest.approx(5 / 3)
        assert best["relative_to_ldp"] == pytest.approx(OPTIMUM / (5 / 3), rel=1e-6)
    table = call("baselines", write(tmp_path, text))
    assert "the released average only" in table.out


def test_export(tmp_path: Path) -> None:
    path, target = saved(tmp_path), tmp_path / "R.npy"
    outcome = call("export", path, "--to", "npy", "-o", target, "--json")
    assert (outcome.code, outcome.err) == (0, "")
    record = outcome.json()
    assert record["to"] == "npy"
    assert str(target) in record["files"]
    exported = np.load(target, allow_pickle=False)
    np.testing.assert_array_equal(exported, load_design(path).design.covariance)
    assert call("export", path, "--to", "npy", "-o", target).out.splitlines()[0] == str(target)


def test_plot(tmp_path: Path) -> None:
    target = tmp_path / "p.png"
    outcome = call("plot", saved(tmp_path, EPOCHS), "-o", target, "--json")
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.json() == {"picture": str(target)}
    assert target.read_bytes().startswith(b"\x89PNG")


# --- ends ----------------------------------------------------------------------------------------


def raising(error: BaseException, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Outcome:
    def fail(*args: Any, **kwargs: Any) -> None:
        raise error

    monkeypatch.setattr(SOLVE, "solve", fail)
    return call("solve", write(tmp_path, RING), "--json")


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (KeyboardInterrupt(), 130, "interrupted; what was finished has been written"),
        (OSError(28, "No space left on device"), 1, "[Errno 28] No space left on device"),
        (MemoryError("Unable to allocate 9 PiB"), 1, "not enough memory: Unable to allocate 9 PiB"),
        (
            noisedesign.InputError("a", expected="one\nline", got="two"),
            2,
            "a: expected one line, got two",
        ),
    ],
)
def test_exit_codes(
    error: BaseException, code: int, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcome = raising(error, monkeypatch, tmp_path)
    assert (outcome.code, outcome.out) == (code, "")
    assert outcome.err.strip() == f"noisedesign: error: {message}"


def test_bugs_are_not_hidden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ZeroDivisionError):
        raising(ZeroDivisionError(), monkeypatch, tmp_path)


def test_an_interrupted_solve_still_reports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit 130, and yet the best certified design so far is printed and written."""

    def press(*args: Any, **kwargs: Any) -> Any:
        def stop(_: Any) -> None:
            raise KeyboardInterrupt

        return solve(*args, **{**kwargs, "progress": stop})

    monkeypatch.setattr(SOLVE, "solve", press)
    output = tmp_path / "d.npz"
    outcome = call("solve", write(tmp_path, EPOCHS), "--gap", "1e-9", "-o", output, "--json")
    assert outcome.code == 130
    assert outcome.json()["status"] == "interrupted"
    assert outcome.json()["feasible"] is True
    assert outcome.err.startswith("interrupted: certified gap")
    assert call("verify", output).code == 0


def test_mosek_listing_names_the_licence() -> None:
    if get_backend("mosek").availability().ready:
        pytest.skip("this machine has a MOSEK licence")
    (record,) = (r for r in call("backends", "--json").json() if r["name"] == "mosek")
    assert (record["licensed"], record["ready"]) == (False, False)
    assert "mosek.com/license/request" in record["remedy"]
