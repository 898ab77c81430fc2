"""Problems in, designs out, and what a design is worth: solve, verify, simulate, baselines."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import Any

import click

from noisedesign.cli._shared import (
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    NewFile,
    Writing,
    counter,
    formulation_option,
    gap_option,
    json_option,
    limit_option,
    note,
)
from noisedesign.io.file_kinds import DESIGN


@click.command(cls=Writing)
@click.argument("problem")
@click.option("--backend", default="native", show_default=True, help="Solver; see `backends`.")
@gap_option
@limit_option
@formulation_option
@click.option("--device", default="cpu", show_default=True, help="cpu, cuda or cuda:N (native).")
@click.option(
    "--checkpoint", type=NewFile(), metavar="STATE",
    help="Keep the state of the solve in this .npz file every minute, and go on from it (native).",
)  # fmt: skip
@click.option("-o", "--output", type=NewFile(DESIGN), help="Write the design to this .npz file.")
@json_option
def solve(
    problem: str, backend: str, gap: float | None, time_limit: float | None,
    formulation: str | None, device: str, checkpoint: str | None, output: str | None,
    as_json: bool,
) -> int:  # fmt: skip
    """Solve PROBLEM.toml and certify the answer."""
    from noisedesign import report
    from noisedesign.formulations import is_structured
    from noisedesign.io.checkpoint_file import CheckpointFile
    from noisedesign.io.design_file import save_design
    from noisedesign.io.problem_file import load_problem
    from noisedesign.solving import FAILED
    from noisedesign.solving import solve as run

    loaded = load_problem(problem)
    watched = sys.stderr.isatty()
    solution = run(
        loaded.problem, backend=backend, gap=gap, time_limit=time_limit, formulation=formulation,
        progress=bounds_progress if watched else None, isolate=True, device=device,
        checkpoint=None if checkpoint is None else CheckpointFile(checkpoint),
    )  # fmt: skip
    if watched:
        note("")
    record = report.solution_record(solution)
    if output is not None and solution.design is not None:
        save_design(solution.design, output, problem_text=loaded.text)
        record["output"] = str(output)
    if as_json:
        click.echo(report.to_json(record))
    else:
        columns = [
            "name",
            "backend",
            "status",
            "objective",
            "relative_to_ldp",
            "relative_to_unrestricted",
            "lower_bound",
            "gap",
            "feasible",
            "seconds",
        ]
        if not is_structured(loaded.problem):
            columns.remove("relative_to_unrestricted")
        report.print_table([record], columns)
        if "privacy" in record:
            report.print_table([record["privacy"]], list(record["privacy"]))
        if solution.design is not None:
            note(report.insider_note(solution.design))
    if solution.remedy:
        note(f"{solution.status}: {solution.remedy}")
    if solution.status == "interrupted":
        return EXIT_INTERRUPTED
    return EXIT_FAILED if solution.status == FAILED else 0


def bounds_progress(bounds: Any) -> None:
    gap = bounds.upper / bounds.lower - 1 if bounds.lower > 0 else float("inf")
    click.echo(
        f"\r{bounds.seconds:8.1f} s   bound {bounds.lower:.8g}   design {bounds.upper:.8g}   "
        f"gap {gap:.1e} ", err=True, nl=False,
    )  # fmt: skip


@click.command()
@click.argument("design", type=click.Path())
@click.option("--problem", metavar="PROBLEM", help="Problem file it is to be a design for.")
@json_option
def verify(design: str, problem: str | None, as_json: bool) -> int:
    """Recompute everything DESIGN.npz claims; exit 1 if anything is not so.

    Nothing that the file names is read. What was not checked for that is said; --problem checks the
    design against a problem file that you trust.
    """
    from noisedesign import report
    from noisedesign.io.design_file import load_design
    from noisedesign.io.problem_file import load_problem
    from noisedesign.verification import verify as run

    stored, asked = load_design(design), None
    if problem is not None:
        known = stored.design.problem.mixing
        asked = load_problem(problem, mixing=known).problem
    outcome = run(stored, problem=asked)
    records = [asdict(check) for check in outcome.checks]
    if as_json:
        found = {"ok": outcome.ok, "not_checked": outcome.not_checked, "checks": records}
        click.echo(report.to_json(found))
    else:
        report.print_table(records, ["name", "ok", "claimed", "found", "note"])
    if not outcome.ok:
        note("the design file does not hold what it claims")
    elif outcome.not_checked:
        note(f"what was checked holds; not checked: {', '.join(outcome.not_checked)}")
    return 0 if outcome.ok else EXIT_FAILED


@click.command()
@click.argument("design", type=click.Path())
@click.option("--runs", default=2000, show_default=True, help="Independent runs.")
@click.option("--seed", default=0, show_default=True)
@json_option
def simulate(design: str, runs: int, seed: int, as_json: bool) -> int:
    """Run D-SGD with the exported noise: variance and privacy audit; exit 1 if they disagree."""
    from noisedesign import report
    from noisedesign.io.design_file import load_design
    from noisedesign.validation import validate

    outcome = validate(
        load_design(design).design, runs=runs, seed=seed, progress=counter("simulating", "runs")
    )
    if as_json:
        click.echo(report.to_json(outcome.as_dict()))
    else:
        columns = ["quantity", "claimed", "measured", "low", "high", "confidence", "agrees"]
        report.print_table(report.validation_records(outcome), columns)
    if not outcome.agrees:
        note("the simulation disagrees with the design")
    return 0 if outcome.agrees else EXIT_FAILED


@click.command()
@click.argument("problem")
@json_option
def baselines(problem: str, as_json: bool) -> None:
    """The optimum of PROBLEM.toml beside the published mechanisms, judged by one certificate."""
    from noisedesign import report
    from noisedesign.baselines import compared
    from noisedesign.io.problem_file import load_problem

    designs = compared(load_problem(problem).problem)
    records = [report.design_record(design) for design in designs]
    if as_json:
        click.echo(report.to_json(records))
    else:
        report.print_table(records, ["name", "method", "objective", "relative_to_ldp", "gap",
                                     "feasible", "protects"])  # fmt: skip
