"""Problems: those that are shipped, and the program itself as a file for other solvers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from noisedesign.base.file_kinds import PROGRAM
from noisedesign.cli._shared import NewFile, Writing, formulation_option, json_option, note, show

if TYPE_CHECKING:
    from noisedesign.files.problem_file import LoadedProblem


@click.command(cls=Writing)
@click.argument("problem")
@click.option(
    "--format",
    "target",
    help="cbf, sdpa or mosek-task; by default what the ending of the file says: "
    ".cbf, .dat-s, or .task, .jtask and .ptf.",
)
@formulation_option
@click.option("-o", "--output", type=NewFile(PROGRAM), required=True, help="File to write.")
@json_option
def model(
    problem: str, target: str | None, formulation: str | None, output: str, as_json: bool
) -> None:
    """Write PROBLEM.toml itself, unsolved, as a conic program.

    Its optimum is the objective that `solve` reports. The designs that `solve` stores are written
    by `export`. MOSEK's task files take the mosek package, but no licence.
    """
    from noisedesign.conic.formats import format_of, write
    from noisedesign.files.problem_file import load_problem
    from noisedesign.tasks.model import conic_program

    chosen = format_of(output, name=target)
    loaded = load_problem(problem)
    program = conic_program(loaded.problem, formulation=formulation)
    path = write(program, output, to=chosen, description=_described(loaded))
    sizes = [block.size for block in program.blocks]
    if as_json:
        found = {
            "file": str(path),
            "format": chosen,
            "formulation": program.formulation,
            "variables": program.variables,
            "blocks": sizes,
            "rows": program.rows.size,
            "entries": program.entries,
        }
        show(found, as_json=True)
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


@click.command()
@click.argument("words", nargs=-1)
@json_option
def problems(words: tuple[str, ...], as_json: bool) -> None:
    """The problem, account and sweep files that are shipped.

    Commands find them by name from anywhere, unless the working directory has a file of that name.
    With WORDS, those with all of them in their name, kind of design, description or tags.
    """
    from noisedesign.files.problem_set import shipped_problems

    records = [
        {
            "name": shipped.name,
            "design": shipped.design,
            "nodes": shipped.nodes,
            "steps": shipped.steps,
            "description": shipped.description,
            "tags": list(shipped.tags),
            "path": str(shipped.path),
        }
        for shipped in shipped_problems()
        if shipped.matches(words)
    ]
    if as_json or records:
        columns = ["name", "design", "nodes", "steps", "description"]
        show(records, as_json=as_json, columns=columns)
    else:
        note(f"no shipped problem has {' and '.join(words)} in it")
