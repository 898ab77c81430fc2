"""The commands of graphs in parts, which no process holds as a whole."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import click

from noisedesign.cli._shared import (
    EXIT_FAILED,
    Output,
    json_option,
    note,
    output_option,
    problem_in,
    say,
    show,
    show_path,
)

cluster_option = click.option(
    "--cluster",
    metavar="ADDRESS",
    help="Of a Dask scheduler with a worker a part [parts are threads of this process].",
)
silence_option = click.option(
    "--silence",
    type=float,
    default=600.0,
    show_default=True,
    metavar="S",
    help="Seconds a part waits for another before the call ends.",
)


@click.group()
def parts() -> None:
    """Graphs beyond one machine: store one in parts, solve, verify."""


@parts.command()
@click.argument("problem")
@click.argument("folder", type=click.Path(file_okay=False))
@click.option("--parts", type=int, default=2, show_default=True, help="How many, one a worker.")
@click.option(
    "--cut", default="given", show_default=True, help="Order of the nodes: given, rcm or metis."
)
@json_option
def store(problem: str, folder: str, as_json: bool, **how: Any) -> None:
    """Write a graph into FOLDER, a Parquet file of edges a part.

    Any program may write such a folder: the guide beyond-one-machine says what it holds."""
    from noisedesign.distributed import tasks

    stored = tasks.store(problem_in(problem), folder, **how)
    told = {"folder": folder, "nodes": stored.nodes, "parts": stored.parts}
    show_path(folder, told, as_json=as_json)


@parts.command("solve")
@click.argument("folder", type=click.Path(file_okay=False))
@output_option(
    Output(file_okay=False), "Folder of the design, and of its checkpoint.", required=True
)
@cluster_option
@click.option("--gap", type=float, help="Relative duality gap to reach [0.05].")
@silence_option
@json_option
def solve_parts(folder: str, output: str, as_json: bool, **how: Any) -> int:
    """Design the noise of the graph in FOLDER, a part a worker.

    The same command goes on where one ended early, by a lost worker or Ctrl-C."""
    from noisedesign.distributed import design as designs, tasks

    made = tasks.solve(folder, output, tell=None if as_json else note, **how)
    reached = made.status == designs.STATISTICAL
    record = {field.name: getattr(made, field.name) for field in fields(made)}
    record |= {"path": str(made.path), "gap": made.gap}
    if as_json:
        show(record, as_json=True)
    else:
        columns = ["objective", "lower_bound", "gap", "relative_to_ldp", "sensitivity_squared"]
        promised = made.epsilon is not None
        show(record, as_json=False, columns=[*columns, *(["noise_stddev"] if promised else [])])
        told = "objective" if reached else "the gap is above the one asked for; objective"
        say(f"{made.status}: {told} and bound hold with confidence {made.confidence!r}.")
        if promised:
            say(f"At noise_stddev the run is ({made.epsilon:g}, {made.delta:g})-DP.")
        else:
            say("The graph states no privacy target: the noise is for its budgets, of no epsilon.")
    return 0 if reached else EXIT_FAILED


@parts.command("verify")
@click.argument("design", type=click.Path(file_okay=False))
@click.argument("folder", type=click.Path(file_okay=False))
@cluster_option
@silence_option
@json_option
def verify_parts(design: str, folder: str, as_json: bool, **how: Any) -> int:
    """Check what DESIGN claims of the graph in FOLDER.

    Each part computes it again from its own files."""
    from noisedesign.distributed import tasks

    found = tasks.verify(design, folder, tell=None if as_json else note, **how)
    if as_json:
        show({"ok": found.ok, "checks": found.checks, "found": found.found}, as_json=True)
    else:
        show({"ok": found.ok, **found.checks}, as_json=False)
    return 0 if found.ok else EXIT_FAILED
