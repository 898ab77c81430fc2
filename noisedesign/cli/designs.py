"""Problems in, designs out, and what a design is worth: solve, verify, simulate, baselines."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from noisedesign.base.checks import InputError
from noisedesign.base.file_kinds import DESIGN
from noisedesign.cli._shared import (
    EXIT_FAILED,
    EXIT_INPUT,
    EXIT_INTERRUPTED,
    NewFile,
    Output,
    Writing,
    counter,
    formulation_option,
    gap_option,
    json_option,
    limit_option,
    note,
)


@click.command(cls=Writing)
@click.argument("problems", nargs=-1, required=True, metavar="PROBLEM.toml...")
@click.option("--backend", default="native", show_default=True, help="Solver; see `backends`.")
@gap_option
@limit_option
@formulation_option
@click.option("--device", default="cpu", show_default=True, help="cpu, cuda or cuda:N (native).")
@click.option(
    "--checkpoint",
    type=NewFile(),
    metavar="STATE",
    help="Keep the state of the solve in this .npz file every minute, and go on from it (native).",
)
@click.option("-o", "--output", type=Output(), help="Design file, .npz; of several, a folder.")
@json_option
def solve(
    problems: tuple[str, ...],
    backend: str,
    gap: float | None,
    time_limit: float | None,
    formulation: str | None,
    device: str,
    checkpoint: str | None,
    output: str | None,
    as_json: bool,
) -> int:
    """Solve PROBLEM.toml and certify the answer. Several problems are solved one after the other.

    The design is written whatever its gap; the exit code is 1 where the gap asked for is not
    certified, and of several problems the largest.
    """
    from noisedesign.files.checkpoint_file import CheckpointFile
    from noisedesign.files.design_file import save_design
    from noisedesign.files.problem_file import load_problem
    from noisedesign.program.family import family_of
    from noisedesign.tasks import report
    from noisedesign.tasks.solve import INTERRUPTED, LOCAL, OPTIMAL
    from noisedesign.tasks.solve import solve as run

    loaded = [load_problem(problem) for problem in problems]
    if checkpoint is not None and len(loaded) > 1:
        raise InputError(
            "checkpoint",
            expected="none of several problems",
            got=checkpoint,
            remedy="Solve them one by one.",
        )
    paths = _design_paths([problem.problem.name for problem in loaded], output)
    watched = sys.stderr.isatty()
    records, remarks, code = [], [], 0
    for number, (source, path) in enumerate(zip(loaded, paths, strict=True), start=1):
        if len(loaded) > 1:
            note(f"{number}/{len(loaded)} {source.problem.name}")
        try:
            solution = run(
                source.problem,
                backend=backend,
                gap=gap,
                time_limit=time_limit,
                formulation=formulation,
                progress=bounds_progress if watched else None,
                isolate=True,
                device=device,
                checkpoint=None if checkpoint is None else CheckpointFile(checkpoint),
            )
            record = report.solution_record(solution)
        except InputError as error:
            if len(loaded) == 1:
                raise
            records.append(report.refused_record(source.problem, backend=backend, error=error))
            code = max(code, EXIT_INPUT)
            continue
        finally:
            if watched:
                note("")
        if path is not None and solution.design is not None:
            save_design(solution.design, path, problem_text=source.text)
            record["output"] = str(path)
        records.append(record)
        if solution.design is not None:
            remarks.append(report.insider_note(solution.design))
        if solution.status == INTERRUPTED:
            code = EXIT_INTERRUPTED
            break
        code = max(code, 0 if solution.status in (OPTIMAL, LOCAL) else EXIT_FAILED)
    if as_json:
        click.echo(report.to_json(records if len(loaded) > 1 else records[0]))
    else:
        structured = any(family_of(source.problem).name != "disjoint" for source in loaded)
        report.print_solutions(records, structured=structured)
        for remark in dict.fromkeys(remarks):
            note(remark)
    for record in records:
        if record["remedy"]:
            told = f"{record['name']}: " * (len(loaded) > 1)
            note(f"{told}{record['status']}: {record['remedy']}")
    return code


def _design_paths(names: list[str], output: str | None) -> list[Path | None]:
    """Where the designs go: the file named, or of several problems one each in the folder named.

    Raises:
        InputError: a folder for one design, a file for several; two problems of one name, or one
            whose name is no name of a file; what must not be replaced.
    """
    from noisedesign.base.atomic import check_replaceable, target_of

    if output is None:
        return [None] * len(names)
    paths = [Path(output)]
    if len(names) > 1:
        folder = Path(output)
        if folder.suffix == ".npz" or (folder.exists() and not folder.is_dir()):
            raise InputError(
                "output", expected="a folder for the designs of several problems", got=output
            )
        if strange := [name for name in names if Path(name).name != name]:
            raise InputError("name", expected="one that a file can have", got=strange[0])
        if twice := [name for name in names if names.count(name) > 1]:
            raise InputError(
                "problems",
                expected="problems with names of their own",
                got=f"two called {twice[0]}",
            )
        folder.mkdir(parents=True, exist_ok=True)
        paths = [folder / f"{name}.npz" for name in names]
    for path in paths:
        target_of(path, field="output")
        check_replaceable(path, DESIGN, field="output")
    return list(paths)


def bounds_progress(bounds: Any) -> None:
    gap = bounds.upper / bounds.lower - 1 if bounds.lower > 0 else float("inf")
    click.echo(
        f"\r{bounds.seconds:8.1f} s   bound {bounds.lower:.8g}   design {bounds.upper:.8g}   "
        f"gap {gap:.1e} ",
        err=True,
        nl=False,
    )


@click.command()
@click.argument("design", type=click.Path())
@click.option("--problem", metavar="PROBLEM", help="Problem file it is to be a design for.")
@json_option
def verify(design: str, problem: str | None, as_json: bool) -> int:
    """Recompute everything DESIGN.npz claims. The exit code is 1 if anything is not so.

    Nothing that the file names is read. What was not checked for that is said; --problem checks the
    design against a problem file that you trust.
    """
    from noisedesign.files.design_file import load_design
    from noisedesign.files.problem_file import load_problem
    from noisedesign.program.design import design_of
    from noisedesign.tasks import report
    from noisedesign.tasks.verify import verify as run

    stored, asked = load_design(design), None
    if problem is not None:
        known = design_of(stored).problem.mixing
        asked = load_problem(problem, mixing=known).problem
    outcome = run(stored, problem=asked)
    records = [asdict(check) for check in outcome.checks]
    if as_json:
        found = {"ok": outcome.ok, "not_checked": outcome.not_checked, "checks": records}
        click.echo(report.to_json(found))
    else:
        report.print_table(records, ["name", "ok", "claimed", "found", "note"], notes=["note"])
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
    """Run D-SGD with the exported noise: audit its error and privacy.

    The exit code is 1 if they are not what the design claims.
    """
    from noisedesign.files.design_file import load_design
    from noisedesign.program.design import design_of
    from noisedesign.tasks import report
    from noisedesign.tasks.simulate import simulate as run

    outcome = run(
        design_of(load_design(design)), runs=runs, seed=seed, progress=counter("simulating", "runs")
    )
    if as_json:
        click.echo(report.to_json(outcome.as_dict()))
    else:
        columns = ["quantity", "claimed", "measured", "low", "high", "confidence", "agrees"]
        report.print_table(outcome.records(), columns)
    if not outcome.agrees:
        note("the simulation disagrees with the design")
    return 0 if outcome.agrees else EXIT_FAILED


@click.command()
@click.argument("problem")
@json_option
def baselines(problem: str, as_json: bool) -> None:
    """The optimum of PROBLEM.toml beside the published mechanisms.

    All are judged by the same certificate.
    """
    from noisedesign.files.problem_file import load_problem
    from noisedesign.tasks import report
    from noisedesign.tasks.baselines import compared

    designs = compared(load_problem(problem).problem)
    records = [report.design_record(design) for design in designs]
    if as_json:
        click.echo(report.to_json(records))
    else:
        columns = ["name", "method", "objective", "relative_to_ldp", *report.AT_TARGET, "gap",
                   "feasible", "protects"]  # fmt: skip
        report.print_table(records, columns)
