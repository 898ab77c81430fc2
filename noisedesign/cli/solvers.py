"""The solvers: which there are, and how they compare."""

from __future__ import annotations

import click

from noisedesign._checks import InputError
from noisedesign.cli._shared import (
    NewFile,
    Writing,
    formulation_option,
    gap_option,
    json_option,
    note,
)
from noisedesign.io.file_kinds import PICTURE


@click.command(cls=Writing)
@click.argument("problems", nargs=-1, required=True)
@click.option("--backend", "--backends", "backends", multiple=True, required=True,
              help="A name, or several separated by commas; may be repeated.")  # fmt: skip
@gap_option
@click.option("--time-limit", type=float, default=600.0, show_default=True, metavar="S",
              help="Seconds a solve; what unsolved problems count as.")  # fmt: skip
@formulation_option
@click.option("-o", "--output", type=NewFile(),
              help="Table, .csv or .parquet; rows it has are not run again.")  # fmt: skip
@click.option("--retry", is_flag=True, help="Run rows again that were not solved.")
@click.option(
    "--plot",
    type=NewFile(PICTURE),
    help="Picture: problems solved against time.",
)
@json_option
def compare(
    problems: tuple[str, ...], backends: tuple[str, ...], gap: float | None, time_limit: float,
    formulation: str | None, output: str | None, retry: bool, plot: str | None, as_json: bool,
) -> int:  # fmt: skip
    """Every backend on every PROBLEM.toml, each answer judged by the same certificate.

    A folder stands for all problem files in it and below; account and sweep files are passed over.
    """
    from noisedesign import report
    from noisedesign.backends import dimacs
    from noisedesign.comparison import performance, picture, run_comparison
    from noisedesign.io.problem_file import load_problem
    from noisedesign.io.problem_set import problem_files

    names = [name.strip() for value in backends for name in value.split(",") if name.strip()]
    if not names:
        raise InputError("backends", expected="names separated by commas", got=repr(backends))
    files, passed_over = problem_files(problems)
    for path in passed_over:
        note(f"{path} is no problem file: passed over")
    found = run_comparison(
        [load_problem(path) for path in files], backends=list(dict.fromkeys(names)), gap=gap,
        time_limit=time_limit, formulation=formulation, output=output, retry=retry,
        announce=note,
    )  # fmt: skip
    if found.kept:
        note(f"{found.kept} of {len(found.rows)} rows were in {output} already")
    profiles = performance.profiles(found.rows)
    summary = performance.summary(found.rows)
    if plot is not None:
        picture.draw(profiles, plot, time_limit=time_limit)
    if as_json:
        click.echo(report.to_json({
            "machine": found.machine.record(),
            "shift_seconds": performance.SHIFT_SECONDS,
            "summary": summary,
            "curves": [
                {"backend": p.backend, "problems": p.problems, "seconds": list(p.seconds)}
                for p in profiles
            ],
            "rows": list(found.rows),
        }))  # fmt: skip
        return 0
    columns = ["name", "backend", "solved", "status", "objective", "gap", "build_seconds",
               "solve_seconds"]  # fmt: skip
    conic = any(row[name] is not None for row in found.rows for name in dimacs.NAMES)
    columns += [*(dimacs.NAMES if conic else ()), "reason"]
    report.print_table(found.rows, columns)
    report.print_table(
        summary, list(summary[0]),
        title="seconds to build and solve: geometric mean shifted by "
        f"{performance.SHIFT_SECONDS:g} s, unsolved as {time_limit:g} s, and shares solved in time",
    )  # fmt: skip
    click.echo(str(found.machine))
    return 0


@click.command()
@json_option
def backends(as_json: bool) -> None:
    """Which backends are installed and licensed, and what each can take."""
    from noisedesign import report
    from noisedesign.backends import all_backends

    records = []
    for backend in all_backends():
        available = backend.availability()
        records.append({
            "name": backend.name, "installed": available.installed,
            "version": available.version, "licensed": available.licensed,
            "ready": available.ready, "takes": backend.takes(),
            "formulations": list(backend.formulations), "remedy": available.remedy,
        })  # fmt: skip
    if as_json:
        click.echo(report.to_json(records))
    else:
        report.print_table(records, ["name", "installed", "version", "licensed", "takes", "remedy"])
