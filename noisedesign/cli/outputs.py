"""Designs for other programs and for people: export, plot, demo."""

from __future__ import annotations

from pathlib import Path

import click

from noisedesign.base.file_kinds import PICTURE
from noisedesign.cli._shared import EXIT_FAILED, NewFile, Output, Writing, json_option, note


@click.command(cls=Writing)
@click.argument("design", type=click.Path())
@click.option("--to", "target", required=True, help="npy, csv, mat, safetensors, seeds, a trainer.")
@click.option("-o", "--output", type=Output(), required=True, help="File or folder to write.")
@click.option(
    "--uncalibrated",
    is_flag=True,
    help="Leave arrays at unit sensitivity; the file says "
    "what noise must be multiplied by. [default: scaled to the privacy target, if any]",
)
@json_option
def export(design: str, target: str, output: str, uncalibrated: bool, as_json: bool) -> None:
    """Write DESIGN.npz in the format of another program."""
    from noisedesign.files.design_file import load_design
    from noisedesign.files.exports import export as run
    from noisedesign.tasks import report

    stored = load_design(design)
    paths = run(
        stored.design,
        to=target,
        path=output,
        problem_text=stored.problem_text,
        calibrated=False if uncalibrated else None,
    )
    if as_json:
        click.echo(report.to_json({"to": target, "files": [str(path) for path in paths]}))
    else:
        for path in paths:
            click.echo(path)


@click.command(cls=Writing)
@click.argument("design", type=click.Path())
@click.option(
    "-o", "--output", type=NewFile(PICTURE), required=True, help="Picture: .png, .pdf or .svg."
)
@json_option
def plot(design: str, output: str, as_json: bool) -> None:
    """Picture of DESIGN.npz: its matrix, its noise, its two bounds."""
    from noisedesign.files.design_file import load_design
    from noisedesign.program.design import design_of
    from noisedesign.tasks import report
    from noisedesign.tasks.baselines import published
    from noisedesign.tasks.plot import picture

    stored = design_of(load_design(design))
    path = picture(stored, path=output, others=published(stored.problem, dual=stored))
    click.echo(report.to_json({"picture": str(path)}) if as_json else path)


@click.command(cls=Writing)
@click.option("-o", "--output", type=click.Path(file_okay=False), default="out", show_default=True)
@click.option("--runs", default=2000, show_default=True, help="Simulated runs of each design.")
@json_option
def demo(output: str, runs: int, as_json: bool) -> int:
    """Solve, verify, simulate and draw a design in space and in time."""
    from noisedesign.tasks import report
    from noisedesign.tasks.demo import COLUMNS, run

    records = run(Path(output), runs=runs, announce=note)
    if as_json:
        click.echo(report.to_json(records))
    else:
        for count, kind in enumerate(dict.fromkeys(record["design"] for record in records)):
            click.echo("\n" * (count > 0), nl=False)
            rows = [record for record in records if record["design"] == kind]
            report.print_table(rows, COLUMNS, title=f"{kind}: noise at equal privacy")
    return 0 if all(record["holds"] for record in records) else EXIT_FAILED
