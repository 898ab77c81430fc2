"""Many problems at once: a grid of them into one table."""

from __future__ import annotations

from dataclasses import asdict

import click

from noisedesign.cli._shared import NewFile, Writing, json_option, note


@click.command(cls=Writing)
@click.argument("file")
@click.option("-o", "--output", type=NewFile(), required=True, help="Table: .csv or .parquet.")
@click.option("--jobs", type=int, default=1, show_default=True, help="Processes of this machine.")
@click.option("--cluster", metavar="tcp://HOST:PORT", help="A Dask scheduler, instead of --jobs.")
@click.option("--timeout", type=float, metavar="S", help="Seconds to wait for the cluster [5].")
@click.option("--retry", is_flag=True, help="Run rows again that were not solved.")
@json_option
def sweep(
    file: str,
    output: str,
    jobs: int,
    cluster: str | None,
    timeout: float | None,
    retry: bool,
    as_json: bool,
) -> None:
    """A grid of problems, SWEEP.toml, into one table.

    Rows that the table already has are not run again.
    """
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    from noisedesign.tasks import report
    from noisedesign.tasks.sweep import TIMEOUT_SECONDS, load_sweep
    from noisedesign.tasks.sweep import sweep as run

    plan = load_sweep(file)
    bar = Progress(
        TextColumn("sweeping"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
    )
    bar.disable = not bar.console.is_terminal
    task = bar.add_task("rows", total=len(plan.rows))
    with bar:
        summary = run(
            plan,
            output=output,
            jobs=jobs,
            cluster=cluster,
            retry=retry,
            timeout=TIMEOUT_SECONDS if timeout is None else timeout,
            progress=lambda done, _: bar.update(task, completed=done),
        )
    record = asdict(summary) | {"output": str(summary.output)}
    if as_json:
        click.echo(report.to_json(record))
    else:
        report.print_table([record], list(record))
    if summary.unsolved:
        note(f"{summary.unsolved} rows are not solved; the column reason says why")
