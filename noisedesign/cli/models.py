"""Problems for people who develop solvers: the program itself as a file."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from noisedesign.cli._shared import (
    NewFile,
    Writing,
    formulation_option,
    json_option,
    note,
    problem_path,
)
from noisedesign.io.file_kinds import PROGRAM

if TYPE_CHECKING:
    from noisedesign.io.problem_file import LoadedProblem


@click.command(cls=Writing)
@click.argument("problem")
@click.option(
    "--format", "target",
    help="cbf, sdpa or mosek-task; by default what the ending of the file says: "
    ".cbf, .dat-s, or .task, .jtask and .ptf.",
)  # fmt: skip
@formulation_option
@click.option("-o", "--output", type=NewFile(PROGRAM), required=True, help="File to write.")
@json_option
def model(
    problem: str, target: str | None, formulation: str | None, output: str, as_json: bool
) -> None:
    """Write PROBLEM.toml itself as a conic program for any solver, without solving it.

    Its optimum is the objective that `solve` reports. The designs that `solve` stores are written
    by `export`. MOSEK's task files take the mosek package, but no licence.
    """
    from noisedesign import report
    from noisedesign.conic_files import conic_program, format_of, write
    from noisedesign.io.problem_file import load_problem

    chosen = format_of(output, name=target)
    loaded = load_problem(problem_path(problem))
    program = conic_program(loaded.problem, formulation=formulation)
    path = write(program, output, to=chosen, description=_described(loaded))
    sizes = [block.size for block in program.blocks]
    if as_json:
        click.echo(report.to_json({
            "file": str(path), "format": chosen, "formulation": program.formulation,
            "variables": program.variables, "blocks": sizes, "rows": program.rows.size,
            "entries": program.entries,
        }))  # fmt: skip
        return
    click.echo(path)
    note(
        f"{program.formulation}: {program.variables:,} variables, {len(sizes):,} blocks of up to "
        f"{max(sizes, default=0):,} rows, {program.rows.size:,} linear rows, "
        f"{program.entries:,} coefficients"
    )


def _described(loaded: LoadedProblem) -> str:
    """The description of a problem file, and where it says that the optimum is."""
    known = loaded.reference
    if known is None:
        return loaded.description
    return (
        f"{loaded.description} Its optimum is between {known.lower!r} and {known.upper!r} "
        f"({known.method})."
    ).strip()
