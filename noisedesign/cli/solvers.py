"""The solvers: which there are, and how they compare."""

from __future__ import annotations

from typing import Any

import click

from noisedesign.base.checks import InputError
from noisedesign.base.file_kinds import PICTURE
from noisedesign.cli._shared import (
    NewFile,
    Writing,
    formulation_option,
    gap_option,
    json_option,
    note,
    say,
)

ALL = "all"
"""In the place of the names of backends."""


@click.command(cls=Writing)
@click.argument("problems", nargs=-1, required=True)
@click.option(
    "--backend",
    "--backends",
    "backends",
    multiple=True,
    required=True,
    help="Names separated by commas, or all: those installed and licensed.",
)
@gap_option
@click.option(
    "--time-limit",
    type=float,
    default=600.0,
    show_default=True,
    metavar="S",
    help="Seconds a solve; what unsolved problems count as.",
)
@formulation_option
@click.option(
    "-o", "--output", type=NewFile(), help="Table, .csv or .parquet; rows it has are not run again."
)
@click.option("--retry", is_flag=True, help="Run rows again that were not solved.")
@click.option("--plot", type=NewFile(PICTURE), help="Picture: problems solved against time.")
@json_option
def compare(
    problems: tuple[str, ...],
    backends: tuple[str, ...],
    gap: float | None,
    time_limit: float,
    formulation: str | None,
    output: str | None,
    retry: bool,
    plot: str | None,
    as_json: bool,
) -> int:
    """Every backend on every PROBLEM.toml, judged by one certificate.

    A folder stands for all problem files in it and below; account and sweep files are passed over.
    """
    from noisedesign.conic import dimacs
    from noisedesign.files.problem_file import load_problem
    from noisedesign.files.problem_set import problem_files
    from noisedesign.program.backends import get_backend
    from noisedesign.tasks import report
    from noisedesign.tasks.compare import compare as run
    from noisedesign.tasks.compare import performance, picture

    names = [name.strip() for value in backends for name in value.split(",") if name.strip()]
    if not names:
        raise InputError("backends", expected="names separated by commas", got=repr(backends))
    if ALL in names:
        names = _ready()
    for name in names:
        get_backend(name)  # a wrong name is told before any problem is read
    files, passed_over = problem_files(problems)
    for path in passed_over:
        note(f"{path} is no problem file: passed over")
    found = run(
        [load_problem(path) for path in files],
        backends=list(dict.fromkeys(names)),
        gap=gap,
        time_limit=time_limit,
        formulation=formulation,
        output=output,
        retry=retry,
        announce=note,
    )
    if found.kept:
        note(f"{found.kept} of {len(found.rows)} rows were in {output} already")
    profiles = performance.profiles(found.rows)
    summary = performance.summary(found.rows)
    if plot is not None:
        picture.draw(profiles, plot, time_limit=time_limit)
    if as_json:
        click.echo(
            report.to_json(
                {
                    "machine": found.machine.record(),
                    "shift_seconds": performance.SHIFT_SECONDS,
                    "summary": summary,
                    "curves": [
                        {"backend": p.backend, "problems": p.problems, "seconds": list(p.seconds)}
                        for p in profiles
                    ],
                    "rows": list(found.rows),
                }
            )
        )
        return 0
    rows = [row | {"solver_seconds": performance.spent(row)} for row in found.rows]
    report.print_table(
        rows,
        [
            "name",
            "backend",
            "solved",
            "status",
            "objective",
            "gap",
            "relative_to_ldp",
            *report.AT_TARGET,
            "solver_seconds",
            "reason",
        ],
        notes=["reason"],
        keep=["objective", "gap", "relative_to_ldp", "error_at_target"],
    )
    if conic := [row for row in found.rows if any(row[name] is not None for name in dimacs.NAMES)]:
        click.echo()
        report.print_table(conic, ["name", "backend", *dimacs.NAMES], title="DIMACS errors")
    click.echo()
    _print_summary(summary, time_limit)
    click.echo()
    say(str(found.machine))
    return 0


def _print_summary(summary: list[dict[str, Any]], time_limit: float) -> None:
    """Counts and means, then where the curves are at some times; all counts as n/N."""
    from noisedesign.tasks import report
    from noisedesign.tasks.compare import performance

    within = [name for name in summary[0] if name.startswith(performance.WITHIN)]
    counted = [
        row
        | {"solved": f"{row['solved']}/{row['problems']}"}
        | {name: f"{round(row[name] * row['problems'])}/{row['problems']}" for name in within}
        for row in summary
    ]
    report.print_table(
        counted,
        [name for name in summary[0] if name != "problems" and name not in within],
        title="seconds to build and solve: geometric mean shifted by "
        f"{performance.SHIFT_SECONDS:g} s, unsolved as {time_limit:g} s",
    )
    if within:
        click.echo()
        report.print_table(
            counted, ["backend", *within], title="problems solved in time", keep=within
        )


def _ready() -> list[str]:
    """Names of the backends that can run here; the others are named, and what they lack."""
    from noisedesign.program.backends import all_backends

    names = []
    for backend in all_backends():
        available = backend.availability()
        if available.ready:
            names.append(backend.name)
        else:
            note(f"{backend.name} is left out: {available.remedy}")
    return names


@click.command()
@json_option
def backends(as_json: bool) -> None:
    """Which backends are installed and licensed, and what they take."""
    from noisedesign.program.backends import all_backends
    from noisedesign.tasks import report

    records = []
    for backend in all_backends():
        available = backend.availability()
        records.append(
            {
                "name": backend.name,
                "installed": available.installed,
                "version": available.version,
                "licensed": available.licensed,
                "ready": available.ready,
                "takes": backend.takes(),
                "formulations": list(backend.formulations),
                "remedy": available.remedy,
            }
        )
    if as_json:
        click.echo(report.to_json(records))
    else:
        columns = ["name", "installed", "version", "licensed", "takes", "remedy"]
        report.print_table(records, columns, notes=["remedy"], keep=["installed", "licensed"])
