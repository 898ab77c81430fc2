"""Commands on problems and designs: solve, verify, simulate, export, draw and report them."""

from __future__ import annotations

import sys
from dataclasses import asdict, replace
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import noisedesign as nd
from noisedesign.base.checks import InputError
from noisedesign.base.file_kinds import DESIGN, PAGE, PICTURE, PROGRAM
from noisedesign.cli._shared import (
    EXIT_FAILED,
    EXIT_INPUT,
    EXIT_INTERRUPTED,
    NewFile,
    Output,
    Writing,
    attributes,
    counter,
    design_argument,
    design_in,
    echo,
    folder_option,
    formulation_option,
    gap_option,
    json_option,
    note,
    output_option,
    problem_in,
    runs_option,
    say,
    show,
    show_files,
    show_path,
    transient,
)

if TYPE_CHECKING:
    from noisedesign.design.design import Design


def _loaded(path: str) -> Design:
    from noisedesign.design.design import design_of

    return design_of(design_in(path), sparse=True)


@click.command(cls=Writing)
@click.argument("problems", nargs=-1, required=True, metavar="PROBLEM.toml...")
@click.option("--backend", default="native", show_default=True, help="Solver; see `backends`.")
@gap_option
@click.option("--time-limit", type=float, metavar="S", help="Seconds a solve.")
@formulation_option
@click.option("--device", default="cpu", show_default=True, help="cpu, cuda or cuda:N (native).")
@click.option(
    "--checkpoint",
    type=NewFile(),
    metavar="STATE",
    help="Keep the state of the solve in this .npz file every minute, and go on from it (native).",
)
@output_option(Output(), "Design file, .npz; of several, a folder.")
@json_option
def solve(
    problems: tuple[str, ...], checkpoint: str | None, output: str | None, as_json: bool, **how: Any
) -> int:
    """Solve PROBLEM.toml and certify the answer. Several problems are solved one after the other.

    The design is written whatever its gap, and then proved with every rounding accounted for, up
    to 500 nodes, steps or pairs of them: what is proved is told and not stored. The exit code is 1
    where the gap asked for is not certified, and of several problems the largest."""
    from noisedesign.design.proof import proof_on_save
    from noisedesign.design.solve import INTERRUPTED, OPTIMAL, solve as run
    from noisedesign.families.family import SEARCHED, family_of
    from noisedesign.tasks import report

    loaded = [problem_in(problem) for problem in problems]
    given: list[Any] = list(loaded)
    if endless := [one for one in given if isinstance(one.problem, nd.UnboundedProblem)]:
        return _solve_endless(endless, loaded, output=output, as_json=as_json)
    several, watched = len(loaded) > 1, sys.stderr.isatty()
    if checkpoint is not None:
        if several:
            expected, remedy = "none of several problems", "Solve them one by one."
            raise InputError("checkpoint", expected=expected, got=checkpoint, remedy=remedy)
        how["checkpoint"] = nd.results.CheckpointFile(checkpoint)
    if watched:
        how["progress"] = bounds_progress
    paths = _design_paths([problem.problem.name for problem in loaded], output)
    records: list[dict[str, Any]] = []
    remarks, capped, code = [], [], 0
    for source, path in zip(loaded, paths, strict=True):
        remarks += [source.remark] if source.remark else []
        if several:
            note(f"{len(records) + 1}/{len(loaded)} {source.problem.name}")
        try:
            solution = run(source.problem, isolate=True, **how)
            record = report.solution_record(solution)
        except InputError as error:
            if not several:
                raise
            records.append(report.refused_record(source.problem, how["backend"], error))
            code = max(code, EXIT_INPUT)
            continue
        finally:
            if watched:
                note("")
        records.append(record)
        if solution.design is not None:
            remarks.append(report.insider_note(solution.design))
            capped += [report.cap_note(solution)] if solution.default_cap else []
            if path is not None:
                nd.save(solution.design, path, problem_text=source.text)
                record["output"] = str(path)
                if watched:
                    transient("written; proving it with every rounding accounted for")
                proof = proof_on_save(solution.design)
                if watched:
                    transient("")
                if proof is not None:
                    gap = proof.gap if proof.rigorous else None
                    record |= {"rigorous": proof.rigorous, "proved_gap": gap}
                    remarks.append(report.proof_note(proof))
        if solution.status == INTERRUPTED:
            code = EXIT_INTERRUPTED
            break
        code = max(code, 0 if solution.status in (OPTIMAL, *SEARCHED) else EXIT_FAILED)
    if as_json:
        show(records if several else records[0], as_json=True)
    else:
        structured = any(family_of(source.problem).structured for source in loaded)
        report.print_solutions(records, structured=structured)
        remarks.append(report.kinds_note(records))
        for sentence in capped:
            say(sentence)
        for remark in filter(None, dict.fromkeys(remarks)):
            note(remark)
    for record in records:
        if record["remedy"]:
            told = f"{record['status']}: {record['remedy']}"
            note(f"{record['name']}: {told}" if several else told)
    return code


def _solve_endless(problems: Any, loaded: Any, *, output: str | None, as_json: bool) -> int:
    """Solve problems of runs without an end, which take none of the options of solvers."""
    if len(problems) < len(loaded):
        expected, got = "problems of runs without an end alone, or none of them", "both"
        raise InputError("problems", expected=expected, got=got)
    paths = _design_paths([one.problem.name for one in loaded], output)
    records = []
    for source, path in zip(loaded, paths, strict=True):
        design = nd.solve(source.problem)
        told = ["squared_sensitivity", "ratio", "worst", "first", "steps"]
        record = {"name": source.problem.name, "buffers": len(design.scales)}
        record |= attributes(design, told)
        if source.problem.privacy is not None:
            record |= attributes(
                design.claim, ["noise_stddev", "mu", "epsilon", "delta", "adjacency"]
            )
        if path is not None:
            nd.save(design, path, problem_text=source.text)
            record["output"] = str(path)
        records.append(record)
    show(records if len(records) > 1 else records[0], as_json=as_json)
    if not as_json:
        note(
            "ratio: standard deviation over a lower bound of what those have who know the number "
            "of steps, at most, at every step from first to steps. The privacy holds for ever."
        )
    return 0


def _design_paths(names: list[str], output: str | None) -> list[Path | None]:
    """The files of designs: the one named, or one each in the folder named."""
    from noisedesign.base.atomic import check_replaceable, target_of

    if output is None:
        return [None] * len(names)
    paths = [Path(output)]
    if len(names) > 1:
        folder = Path(output)
        if folder.suffix == ".npz" or (folder.exists() and not folder.is_dir()):
            expected = "a folder for the designs of several problems"
            raise InputError("output", expected=expected, got=output)
        if strange := [name for name in names if Path(name).name != name]:
            raise InputError("name", expected="one that a file can have", got=strange[0])
        if twice := [name for name in names if names.count(name) > 1]:
            expected = "problems with names of their own"
            raise InputError("problems", expected=expected, got=f"two called {twice[0]}")
        folder.mkdir(parents=True, exist_ok=True)
        paths = [folder / f"{name}.npz" for name in names]
    for path in paths:
        target_of(path, field="output")
        check_replaceable(path, DESIGN, field="output")
    return list(paths)


def bounds_progress(bounds: Any) -> None:
    gap = bounds.upper / bounds.lower - 1 if bounds.lower > 0 else float("inf")
    transient(
        f"{bounds.seconds:8.1f} s   bound {bounds.lower:.8g}   design {bounds.upper:.8g}   "
        f"gap {gap:.1e} {bounds.doing}"
    )


@click.command()
@design_argument
@click.option("--problem", metavar="PROBLEM", help="Problem file it is to be a design for.")
@click.option(
    "--rigorous", is_flag=True, help="Prove it as well, with every rounding accounted for."
)
@click.option(
    "--verified", is_flag=True, help="Ask the checker as well that was extracted from its proof."
)
@click.option("--checker", metavar="PATH", help="That checker. [NOISEDESIGN_CHECKER, a checkout's]")
@json_option
def verify(
    design: str,
    problem: str | None,
    rigorous: bool,
    verified: bool,
    checker: str | None,
    as_json: bool,
) -> int:
    """Recompute everything DESIGN.npz claims. The exit code is 1 if anything is not so.

    Nothing that the file names is read. What was not checked for that is said; --problem checks the
    design against a problem file that you trust. With --rigorous feasibility and gap are proved: no
    eigenvalue is trusted, and what cannot be proved is an error. With --verified they are proved by
    a program extracted from a proof of its own: the guide on proofs says how to build it."""
    from noisedesign.design.design import design_of
    from noisedesign.tasks.checker import checked, checker_at

    program = checker_at(checker) if verified else None
    stored, asked = design_in(design), None
    if problem is not None:
        endless = isinstance(stored.design, nd.UnboundedDesign)
        held = stored.design if endless else design_of(stored, sparse=True)
        mixing = held.problem.mixing
        asked = problem_in(problem, mixing=mixing).problem
    outcome = nd.verify(stored, problem=asked, rigorous=rigorous)
    if program is not None and outcome.ok:
        outcome = replace(outcome, checks=(*outcome.checks, checked(stored.design, program)))
    records = [asdict(check) for check in outcome.checks]
    found: dict[str, Any] = {"ok": outcome.ok, "not_checked": outcome.not_checked}
    if program is not None:
        found["verified"] = outcome.ok
    if outcome.proof is not None:
        gap = outcome.proof.gap if outcome.rigorous and outcome.proof.bounded else None
        found |= {"rigorous": outcome.rigorous, "gap": gap}
        found |= {"why_not": outcome.proof.why_not, "left_out": outcome.proof.left_out}
    found["checks"] = records
    show(found if as_json else records, as_json=as_json, notes=["note"])
    unproved = [check.name for check in outcome.checks if check.ok is False]
    if unproved == ["rigorous"]:
        note("what the file claims holds; it is not proved with every rounding accounted for")
    elif not outcome.ok:
        note("the design file does not hold what it claims")
    elif outcome.not_checked:
        note(f"what was checked holds; not checked: {', '.join(outcome.not_checked)}")
    return 0 if outcome.ok else EXIT_FAILED


@click.command()
@design_argument
@runs_option
@click.option("--seed", default=0, show_default=True)
@json_option
def simulate(design: str, as_json: bool, **how: Any) -> int:
    """Run D-SGD with the exported noise; audit error and privacy.

    The exit code is 1 if they are not what the design claims."""
    outcome = nd.simulate(_loaded(design), progress=counter("simulating", "runs"), **how)
    show(outcome.as_dict() if as_json else outcome.records(), as_json=as_json)
    if not outcome.agrees:
        note("the simulation disagrees with the design")
    return 0 if outcome.agrees else EXIT_FAILED


@click.command(cls=Writing)
@design_argument
@click.option(
    "--gone",
    multiple=True,
    metavar="NAMES",
    help="Nodes that drop out together, commas between them. [every node alone]",
)
@output_option(NewFile(PICTURE), "Picture to write.")
@json_option
def dropout(design: str, gone: tuple[str, ...], output: str | None, as_json: bool) -> None:
    """The cost of nodes of DESIGN.npz that drop out.

    Noise that they share with the others no longer cancels: the variance of the average and the
    error a node, over those with nobody gone, and the privacy of the others. Besides, the same
    where these leave out the seeds that they hold with them."""
    from noisedesign.files.picture_file import write_figure
    from noisedesign.pages.plot import drop_out_figure
    from noisedesign.tasks import report

    stored = _loaded(design)
    if gone:
        nodes = stored.problem.nodes  # names as given where a node has them, else between commas
        parts = [[text] if text in nodes else text.split(",") for text in gone]
        names = [name if name in nodes else name.strip() for part in parts for name in part]
        found = [nd.privacy.drop_out(stored, names)]
    else:
        found = nd.privacy.every_drop_out(stored, progress=counter("leaving out", "nodes"))
    if output is not None:
        write_figure(drop_out_figure(found, title=stored.problem.name), output)
        if not as_json:
            note(f"picture: {output}")
    records = [report.finite(one.as_dict()) for one in found]
    show(records, as_json=as_json, title=stored.problem.name, keep=["gone"])
    if not as_json:
        for sentence in report.drop_out_notes(found):
            note(sentence)


@click.command()
@click.argument("problems", metavar="PROBLEM...", nargs=-1, required=True)
@json_option
def baselines(problems: tuple[str, ...], as_json: bool) -> None:
    """Optima of PROBLEM.toml beside published mechanisms.

    All are judged by the same certificate. Objectives of space, time and space-time have units of
    their own: several problems compare by error of run, that of all models of the whole run at the
    target."""
    from noisedesign.mechanisms.baselines import compared
    from noisedesign.tasks import report

    loaded: list[Any] = [problem_in(path).problem for path in problems]
    answers = [compared(problem) for problem in loaded]
    records = [report.design_record(d) for designs in answers for d in designs]
    columns = ["name", "method", "objective", "relative_to_ldp", *report.AT_TARGET]
    columns += [report.OF_RUN] if len(problems) > 1 else []
    show(records, as_json=as_json, columns=[*columns, "gap", "feasible", "protects"])
    for asked, designs in zip(loaded, answers, strict=True):
        best: Any = designs[-1].problem
        if asked.max_variance is None and best.max_variance is not None:
            times = float((best.max_variance * best.budget).min())
            note(
                f"H is singular: the largest variance of the optimum is capped at {times:g} times "
                "that of independent noise, by default; `noisedesign solve` says what that costs"
            )


@click.command(cls=Writing)
@click.argument("problem")
@click.option("--tighten", is_flag=True, help="Halve what costs less than --cost, cheapest first.")
@click.option("--cost", type=float, help="Relative error that --tighten may cost [0.01].")
@click.option("--split", is_flag=True, help="Split the sum of all budgets best.")
@gap_option
@output_option(NewFile(DESIGN), "Design file of --tighten or --split, .npz.")
@json_option
def budgets(
    problem: str,
    tighten: bool,
    cost: float | None,
    split: bool,
    gap: float | None,
    output: str | None,
    as_json: bool,
) -> None:
    """Tell what every node's budget costs the others.

    Prices say by what percentage the least error falls if a squared budget is raised by 1 %. Beside
    them stands by which factor the error grows if one node gets half the epsilon (half of mu
    without a target): certified from below, and from above by noise that is scaled at this node.

    With --tighten as many nodes as possible get half of it for next to nothing; with --split the
    sum of all budgets is split so that the error is least."""
    from noisedesign.design.solve import solve as run
    from noisedesign.tasks import budgets as found_by

    if (
        (tighten and split)
        or (cost is not None and not tighten)
        or (output and not tighten | split)
    ):
        wrong = "split" if tighten and split else "output" if cost is None else "cost"
        expected = (
            "--tighten alone beside it" if wrong == "cost" else "one of --tighten and --split"
        )
        raise InputError(wrong, expected=expected, got="both" if tighten and split else "another")
    asked = problem_in(problem).problem
    design = run(asked, gap=gap).design
    assert design is not None
    rows = found_by.budget_rows(design)
    records = [asdict(row) for row in rows]
    told: dict[str, Any] = {"name": asked.name, "error": design.objective}
    if tighten or split:
        if tighten:
            given = {} if cost is None else {"cost": cost}
            changed, bound = found_by.tightened(design, gap=gap, **given), design.lower_bound
        else:
            changed, bound = found_by.best_split(asked, gap=gap)
        for record, after in zip(records, found_by.budgets_of(changed), strict=True):
            record["changed"] = after / record["budget"]
        told |= {"error_changed": changed.objective, "ratio": changed.objective / design.objective}
        told |= {"bound": bound, "feasible": changed.certificate.feasible}
        if output is not None:
            nd.save(changed, output)
            told["output"] = output
    show(told | {"budgets": records} if as_json else records, as_json=as_json, title=asked.name)
    if "ratio" in told and not as_json:
        which = "of any split" if split else "of the problem as it is"
        note(
            f"error {told['error_changed']:.6g}, {told['ratio']:.6g} of what it was; certified "
            f"lower bound {which}: {told['bound']:.6g}"
        )


@click.command(cls=Writing)
@design_argument
@click.option("--to", required=True, help="npy, csv, mat, safetensors, seeds, a trainer.")
@output_option(Output(), "File or folder to write.", required=True)
@click.option(
    "--uncalibrated",
    is_flag=True,
    help="Leave arrays at unit sensitivity; the file says "
    "what noise must be multiplied by. [default: scaled to the privacy target, if any]",
)
@json_option
def export(design: str, to: str, output: str, uncalibrated: bool, as_json: bool) -> None:
    """Write DESIGN.npz in the format of another program."""
    stored, calibrated = design_in(design), False if uncalibrated else None
    paths = nd.export(
        stored.design, to=to, path=output, problem_text=stored.problem_text, calibrated=calibrated
    )
    show_files(paths, as_json=as_json, to=to)


@click.command(cls=Writing)
@design_argument
@output_option(NewFile(PICTURE), "Picture: .png, .pdf or .svg.", required=True)
@json_option
def plot(design: str, output: str, as_json: bool) -> None:
    """Picture of DESIGN.npz: its matrix, noise and two bounds."""
    from noisedesign.mechanisms.baselines import published

    held = design_in(design)
    if isinstance(held.design, nd.UnboundedDesign):
        path = nd.plot(held.design, path=output)
    else:
        stored = _loaded(design)
        path = nd.plot(stored, path=output, others=published(stored.problem, dual=stored))
    show_path(path, {"picture": str(path)}, as_json=as_json)


@click.command(cls=Writing)
@design_argument
@output_option(NewFile(PAGE), "Page.", default="report.html", show_default=True)
@json_option
def report(design: str, output: str, as_json: bool) -> int:
    """One page (HTML) about DESIGN.npz, for people.

    Graph, noise, privacy under every threat model, baselines, certificate, and how to verify it.
    Everything is in the one file, which needs no network. The design is verified while it is
    written; the exit code is 1 if a claim is wrong, and the page says which. Nothing that the
    design file names is read."""
    from noisedesign.pages.write import page_of, write_page

    page = page_of(design_in(design))
    path = write_page(page, output)
    show_path(path, {"report": str(path), "ok": page.holds}, as_json=as_json)
    if not page.holds:
        note("the design file does not hold what it claims; the page says so")
    return 0 if page.holds else EXIT_FAILED


@click.command(cls=Writing)
@folder_option
@runs_option
@json_option
def demo(output: str, runs: int, as_json: bool) -> int:
    """Solve, verify, simulate and draw two designs."""
    from noisedesign.pages.demo import COLUMNS, rows_of, run, title_of, words

    records = run(Path(output), runs=runs, announce=note)
    if as_json:
        show(records, as_json=True)
    else:
        designs = [list(group) for _, group in groupby(records, key=itemgetter("design"))]
        for rows in designs:
            show(
                rows_of(rows),
                as_json=False,
                columns=COLUMNS,
                title=title_of(rows[-1]),
                keep=COLUMNS,
            )
            click.echo()
        echo("\n".join(words([rows[-1] for rows in designs])))
    return 0 if all(record["holds"] for record in records) else EXIT_FAILED


@click.command(cls=Writing)
@click.argument("problem")
@click.option(
    "--format",
    "target",
    help="cbf, sdpa or mosek-task; by default what the ending of the file says: "
    ".cbf, .dat-s, or .task, .jtask and .ptf.",
)
@formulation_option
@output_option(NewFile(PROGRAM), "File to write.", required=True)
@json_option
def model(
    problem: str, target: str | None, formulation: str | None, output: str, as_json: bool
) -> None:
    """Write PROBLEM.toml itself, unsolved, as a conic program.

    Its optimum is the objective that `solve` reports. The designs that `solve` stores are written
    by `export`. MOSEK's task files take the mosek package, but no licence."""
    from noisedesign.conic.formats import format_of, write
    from noisedesign.tasks.model import conic_program

    chosen = format_of(output, name=target)
    loaded = problem_in(problem)
    program = conic_program(loaded.problem, formulation=formulation)
    description, known = loaded.description, loaded.reference
    if known is not None:
        between = f"{known.lower!r} and {known.upper!r} ({known.method})"
        description = f"{description} Its optimum is between {between}.".strip()
    path = write(program, output, to=chosen, description=description)
    sizes = [block.size for block in program.blocks]
    found: dict[str, Any] = {"file": str(path), "format": chosen}
    found |= attributes(program, ["formulation", "variables"]) | {"blocks": sizes}
    found |= {"rows": program.rows.size, "entries": program.entries}
    show_path(path, found, as_json=as_json)
    if not as_json:
        note(
            f"{program.formulation}: {program.variables:,} variables, {len(sizes):,} blocks of up "
            f"to {max(sizes, default=0):,} rows, {program.rows.size:,} linear rows, "
            f"{program.entries:,} coefficients"
        )


@click.command()
@click.argument("words", nargs=-1)
@json_option
def problems(words: tuple[str, ...], as_json: bool) -> None:
    """Files shipped: problems, accounts, sweeps, settings.

    Commands find them by name from anywhere, unless the working directory has a file of that name.
    With WORDS, those with all of them in their name, kind of design, description or tags."""
    columns = ["name", "design", "nodes", "steps", "description"]
    records = [
        attributes(shipped, columns) | {"tags": list(shipped.tags), "path": str(shipped.path)}
        for shipped in nd.shipped_problems()
        if shipped.matches(words)
    ]
    if as_json or records:
        show(records, as_json=as_json, columns=columns)
    else:
        note(f"no shipped problem has {' and '.join(words)} in it")
