"""Tables: which solvers there are, how they compare, and grids of problems."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

import noisedesign as nd
from noisedesign.base.checks import InputError
from noisedesign.base.file_kinds import PICTURE
from noisedesign.cli._shared import (
    EXIT_FAILED,
    NewFile,
    Writing,
    attributes,
    counter,
    formulation_option,
    gap_option,
    json_option,
    note,
    output_option,
    problem_in,
    retry_option,
    say,
    show,
    where_options,
)

if TYPE_CHECKING:
    from noisedesign.surveys.compare import Comparison

ALL = "all"


def _time_limit(help_text: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """The option of a limit that unsolved problems count as."""
    return click.option(
        "--time-limit", type=float, default=600.0, show_default=True, metavar="S", help=help_text
    )


def _refuse_cluster(_: click.Context, __: click.Parameter, address: str | None) -> None:
    if address is not None:
        expected, remedy = "nothing", "Times of several machines do not compare: run it on one."
        raise InputError("cluster", expected=expected, got=address, remedy=remedy)


@click.command(cls=Writing)
@click.argument("problems", nargs=-1, required=True)
@click.option(
    "--backend",
    "--backends",
    "backends",
    multiple=True,
    default=[ALL],
    help="Names separated by commas [all: those installed and licensed].",
)
@gap_option
@_time_limit("Seconds a solve; what unsolved problems count as.")
@formulation_option
@output_option(NewFile(), "Table, .csv or .parquet; rows it has are not run again.")
@retry_option
@click.option(
    "--plot", type=NewFile(PICTURE), help="Performance profile: share solved against time."
)
@click.option("--cluster", hidden=True, expose_value=False, callback=_refuse_cluster)
@json_option
def compare(
    problems: tuple[str, ...],
    backends: tuple[str, ...],
    plot: str | None,
    as_json: bool,
    **how: Any,
) -> int:
    """Every backend on every PROBLEM.toml, by one certificate.

    A folder stands for all problem files in it and below; account and sweep files are passed over.
    """
    from noisedesign.design.backends import all_backends, get_backend
    from noisedesign.files.picture_file import write_figure
    from noisedesign.files.problem_set import problem_files
    from noisedesign.surveys import compare as comparing

    names = [name.strip() for value in backends for name in value.split(",") if name.strip()]
    if not names:
        raise InputError("backends", expected="names separated by commas", got=repr(backends))
    if ALL in names:
        names = []
        for backend in all_backends():
            if (available := backend.availability()).ready:
                names.append(backend.name)
            else:
                note(f"{backend.name} is left out: {available.remedy}")
    for name in names:
        get_backend(name)  # a wrong name is told before any problem is read
    files, passed_over = problem_files(problems)
    for path in passed_over:
        note(f"{path} is no problem file: passed over")
    loaded = [problem_in(path) for path in files]
    found = nd.compare(loaded, backends=list(dict.fromkeys(names)), announce=note, **how)
    if found.kept:
        note(f"{found.kept} of {len(found.rows)} rows were in {how['output']} already")
    if plot is not None:
        profiles = comparing.profiles(found.rows)
        write_figure(comparing.figure_of(profiles, time_limit=how["time_limit"]), plot)
    if as_json:
        show(comparing.record(found), as_json=True)
    else:
        _print(found, how["time_limit"])
    return 0


def _print(found: Comparison, time_limit: float) -> None:
    """Rows, DIMACS errors, counts and means, and where the curves are at some times, as n/N."""
    from noisedesign.conic.data import ERRORS
    from noisedesign.surveys import compare as comparing
    from noisedesign.tasks.report import AT_TARGET, OF_RUN, kinds_note

    of_design = ["objective", "gap", "relative_to_ldp"]
    answer = ["name", "backend", "solved", "status", *of_design, *AT_TARGET]
    # Objectives in space, time and both have units of their own.
    of_run = [OF_RUN] if len({row["design"] for row in found.rows}) > 1 else []
    show(
        [row | {"solver_seconds": comparing.spent(row)} for row in found.rows],
        as_json=False,
        columns=[*answer, *of_run, "solver_seconds", "reason"],
        notes=["reason"],
        keep=[*of_design, "error_at_target", OF_RUN],
    )
    if told := kinds_note(found.rows):
        note(told)
    if conic := [row for row in found.rows if any(row[name] is not None for name in ERRORS)]:
        click.echo()
        show(conic, as_json=False, columns=["name", "backend", *ERRORS], title="DIMACS errors")
    summary = comparing.summary(found.rows)
    within = [name for name in summary[0] if name.startswith(comparing.WITHIN)]
    counted = [
        row
        | {"solved": f"{row['solved']}/{row['problems']}"}
        | {name: f"{round(row[name] * row['problems'])}/{row['problems']}" for name in within}
        for row in summary
    ]
    click.echo()
    show(
        counted,
        as_json=False,
        columns=[name for name in summary[0] if name != "problems" and name not in within],
        title="seconds to build and solve: geometric mean shifted by "
        f"{comparing.SHIFT_SECONDS:g} s, unsolved as {time_limit:g} s",
    )
    if within:
        click.echo()
        columns = ["backend", *within]
        show(counted, as_json=False, columns=columns, title="problems solved in time", keep=within)
    click.echo()
    say(str(found.machine))


@click.command()
@json_option
def backends(as_json: bool) -> None:
    """List the backends, and what they take."""
    from noisedesign.design.backends import all_backends

    of_machine = ("installed", "version", "licensed", "ready", "remedy")
    records = [
        attributes(backend, ["name", "takes"])
        | {"formulations": list(backend.formulations)}
        | attributes(backend.availability(), of_machine)
        for backend in all_backends()
    ]
    columns = ["name", "installed", "version", "licensed", "takes", "remedy"]
    show(
        records, as_json=as_json, columns=columns, notes=["remedy"], keep=["installed", "licensed"]
    )


@click.command(cls=Writing)
@click.argument("file")
@output_option(NewFile(), "Table: .csv or .parquet.", required=True)
@where_options
@retry_option
@json_option
def sweep(file: str, as_json: bool, **how: Any) -> None:
    """A grid of problems, SWEEP.toml, into one table.

    Rows that the table already has are not run again."""
    from noisedesign.surveys.sweep_file import load_sweep

    summary = nd.sweep(load_sweep(file), progress=counter("sweeping", "rows"), **how)
    told = {name: value for name, value in asdict(summary).items() if name != "remarks"}
    show(told | {"output": str(summary.output)}, as_json=as_json)
    for sentence in summary.remarks:
        note(sentence)
    if summary.unsolved:
        note(f"{summary.unsolved} rows are not solved; the column reason says why")


@click.command("check-results", cls=Writing)
@click.argument("table", metavar="RESULTS.csv")
@click.option(
    "--problems",
    multiple=True,
    metavar="PATTERN",
    help="Names that count, or patterns of such; default the whole collection.",
)
@_time_limit("Seconds a run may take.")
@click.option(
    "--penalty",
    type=float,
    default=10.0,
    show_default=True,
    help="Times the limit that a problem without an answer in time counts as.",
)
@click.option(
    "--beside", multiple=True, metavar="VERDICTS.csv", help="Earlier verdicts to compare with."
)
@click.option(
    "--seed", type=int, metavar="N", help="Of random vectors; default a new one, which is printed."
)
@output_option(NewFile(), "Verdicts: .csv.")
@where_options
@click.option("--plot", type=NewFile(PICTURE), help="Performance profiles.")
@json_option
def check_results(
    table: str, output: str | None, plot: str | None, as_json: bool, **how: Any
) -> int:
    """Judge a stranger's answers to the collection anew.

    RESULTS.csv has columns problem, solver, seconds and answer, the name of a file beside it; the
    rules are in the documentation. The exit code is 1 if an answer is wrong."""
    from noisedesign.files.picture_file import write_figure
    from noisedesign.surveys import check_results as checking, performance
    from noisedesign.surveys.compare import SHIFT_SECONDS

    found = checking.check_results(table, progress=counter("judging", "problems"), **how)
    if output is not None:
        checking.write_verdicts(found, output)
    if plot is not None:
        write_figure(performance.figure_of(found), plot)
    if as_json:
        show(performance.record(found), as_json=True)
    else:
        show(list(found.rows), as_json=False, columns=checking.COLUMNS, notes=["reason"])
        click.echo()
        title = (
            f"seconds to an accuracy: geometric mean shifted by {SHIFT_SECONDS:g} s, "
            f"{found.time_limit * found.penalty:g} s where it was not reached in time"
        )
        counted = [
            row | {"reached": f"{row['reached']}/{row['problems']}"}
            for row in performance.summary(found)
        ]
        columns = ["solver", "accuracy", "reached", "runs", "wrong", "mean_seconds"]
        show(counted, as_json=False, columns=columns, title=title, keep=["accuracy"])
    for sentence in performance.remarks(found):
        note(sentence)
    for row in found.rows:
        if row["status"] == checking.WRONG:
            note(f"{row['problem']} by {row['solver']} is wrong: {row['reason']}")
    return 0 if found.ok else EXIT_FAILED
