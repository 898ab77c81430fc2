"""The solvers: which there are, and how they compare."""

from __future__ import annotations

import click

from noisedesign import report
from noisedesign._checks import InputError
from noisedesign.cli._shared import (
    NEW_FILE,
    formulation_option,
    gap_option,
    json_option,
    limit_option,
    note,
    problem_path,
)


@click.command()
@click.argument("problems", nargs=-1, required=True)
@click.option("--backends", required=True, help="Names separated by commas.")
@gap_option
@limit_option
@formulation_option
@click.option("-o", "--output", type=NEW_FILE, help="CSV file, rewritten after every row.")
@json_option
def compare(
    problems: tuple[str, ...], backends: str, gap: float | None, time_limit: float | None,
    formulation: str | None, output: str | None, as_json: bool,
) -> int:  # fmt: skip
    """Every backend on every PROBLEM.toml, each answer judged by the same certificate."""
    from noisedesign import compare as comparison
    from noisedesign.io.problem_file import load_problem

    names = [name.strip() for name in backends.split(",") if name.strip()]
    if not names:
        raise InputError("backends", expected="names separated by commas", got=repr(backends))
    loaded = [load_problem(problem_path(path)).problem for path in problems]
    rows = comparison.compare(
        loaded, backends=names, gap=gap, time_limit=time_limit, formulation=formulation,
        announce=note,
    )  # fmt: skip
    records: list[report.Record] = []
    if output is not None:
        comparison.write_csv(records, output)  # an unwritable path is found now, not at the end
    for record in rows:
        records.append(record)
        if output is not None:
            comparison.write_csv(records, output)
    if as_json:
        click.echo(report.to_json(records))
    else:
        report.print_table(records, ["name", "backend", "solved", "status", "objective", "gap",
                                     "build_seconds", "solve_seconds", "reason"])  # fmt: skip
    return 0


@click.command()
@json_option
def backends(as_json: bool) -> None:
    """Which backends are installed and licensed, and what each can take."""
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
