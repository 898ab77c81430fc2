"""The command line: problems in, designs and tables out.

Standard output carries results only, and with ``--json`` exactly one JSON value; progress and
remarks go to standard error. Exit codes: 0 done; 1 a design that does not hold (verify, simulate),
no usable answer (solve), a file that cannot be written; 2 bad input; 130 interrupted.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from noisedesign import __version__, report
from noisedesign._checks import InputError

EXIT_FAILED, EXIT_INPUT, EXIT_INTERRUPTED = 1, 2, 130
PROBLEM_FOLDER = Path("problems")


class NewFile(click.Path):
    """A file to write. That its folder is missing is found out before the work, not after it."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        folder = Path(value).resolve().parent
        if not folder.is_dir():
            raise InputError("output", expected=f"an existing folder {folder}", got="none",
                             remedy="Create the folder first.")  # fmt: skip
        return super().convert(value, param, ctx)


json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON value.")
NEW_FILE = NewFile(dir_okay=False)
gap_option = click.option("--gap", type=float, help="Relative duality gap to certify [1e-6].")
limit_option = click.option("--time-limit", type=float, metavar="S", help="Seconds a solve.")
formulation_option = click.option(
    "--formulation", help="Conic model: compact (default), covariance or paper."
)


def main() -> None:
    """Entry point: every error is one line on standard error and an exit code."""
    try:
        code = commands(standalone_mode=False)
    except InputError as error:
        _fail(str(error), EXIT_INPUT)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        sys.exit(EXIT_INPUT)
    except click.UsageError as error:
        _fail(f"{error.format_message()} (see noisedesign --help)", EXIT_INPUT)
    except click.ClickException as error:
        _fail(error.format_message(), EXIT_INPUT)
    except (KeyboardInterrupt, click.Abort):
        _fail("interrupted; what was finished has been written", EXIT_INTERRUPTED)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(EXIT_FAILED)
    except OSError as error:
        _fail(str(error), EXIT_FAILED)
    except MemoryError as error:
        _fail(f"not enough memory: {error}", EXIT_FAILED)
    sys.exit(code or 0)


def _fail(message: str, code: int) -> None:
    click.echo(f"noisedesign: error: {' '.join(message.split())}", err=True)
    sys.exit(code)


def _note(message: str) -> None:
    click.echo(message, err=True)


def _problem_path(name: str) -> Path:
    """The path given, or the same under ./problems where only that exists."""
    path = Path(name)
    fallback = PROBLEM_FOLDER / name
    return fallback if not path.exists() and fallback.exists() else path


def _runs_progress(label: str) -> Callable[[int, int], None] | None:
    """A counter on an interactive standard error, nothing elsewhere."""
    if not sys.stderr.isatty():
        return None

    def show(done: int, total: int) -> None:
        end = "\n" if done >= total else ""
        click.echo(f"\r{label}: {done}/{total} runs{end}", err=True, nl=False)

    return show


def _bounds_progress(bounds: Any) -> None:
    gap = bounds.upper / bounds.lower - 1 if bounds.lower > 0 else float("inf")
    click.echo(
        f"\r{bounds.seconds:8.1f} s   bound {bounds.lower:.8g}   design {bounds.upper:.8g}   "
        f"gap {gap:.1e} ", err=True, nl=False,
    )  # fmt: skip


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="noisedesign")
def commands() -> None:
    """Design the noise of private learning: graph in, certified noise out."""


@commands.command()
@click.argument("problem")
@click.option("--backend", default="native", show_default=True, help="Solver; see `backends`.")
@gap_option
@limit_option
@formulation_option
@click.option("-o", "--output", type=NEW_FILE, help="Write the design to this .npz file.")
@json_option
def solve(
    problem: str, backend: str, gap: float | None, time_limit: float | None,
    formulation: str | None, output: str | None, as_json: bool,
) -> int:  # fmt: skip
    """Solve PROBLEM.toml and certify the answer."""
    from noisedesign.io.design_file import save_design
    from noisedesign.io.problem_file import load_problem
    from noisedesign.solve import FAILED
    from noisedesign.solve import solve as run

    loaded = load_problem(_problem_path(problem))
    watched = sys.stderr.isatty()
    solution = run(
        loaded.problem, backend=backend, gap=gap, time_limit=time_limit, formulation=formulation,
        progress=_bounds_progress if watched else None, isolate=True,
    )  # fmt: skip
    if watched:
        _note("")
    record = report.solution_record(solution)
    if output is not None and solution.design is not None:
        save_design(solution.design, output, problem_text=loaded.text)
        record["output"] = str(output)
    if as_json:
        click.echo(report.to_json(record))
    else:
        columns = ["name", "backend", "status", "objective", "relative_to_ldp", "lower_bound",
                   "gap", "feasible", "seconds"]  # fmt: skip
        report.print_table([record], columns)
        if "privacy" in record:
            report.print_table([record["privacy"]], list(record["privacy"]))
        if solution.design is not None:
            _note(report.insider_note(solution.design))
    if solution.remedy:
        _note(f"{solution.status}: {solution.remedy}")
    if solution.status == "interrupted":
        return EXIT_INTERRUPTED
    return EXIT_FAILED if solution.status == FAILED else 0


@commands.command()
@click.argument("design", type=click.Path())
@json_option
def verify(design: str, as_json: bool) -> int:
    """Recompute everything DESIGN.npz claims; exit 1 if anything is not so."""
    from noisedesign.io.design_file import load_design
    from noisedesign.verification import verify as run

    outcome = run(load_design(design))
    records = [asdict(check) for check in outcome.checks]
    if as_json:
        click.echo(report.to_json({"ok": outcome.ok, "checks": records}))
    else:
        report.print_table(records, ["name", "ok", "claimed", "found", "note"])
    if not outcome.ok:
        _note("the design file does not hold what it claims")
    return 0 if outcome.ok else EXIT_FAILED


@commands.command()
@click.argument("design", type=click.Path())
@click.option("--runs", default=2000, show_default=True, help="Independent runs.")
@click.option("--seed", default=0, show_default=True)
@json_option
def simulate(design: str, runs: int, seed: int, as_json: bool) -> int:
    """Run D-SGD with the exported noise: variance and privacy audit; exit 1 if they disagree."""
    from noisedesign.io.design_file import load_design
    from noisedesign.validation import validate

    outcome = validate(
        load_design(design).design, runs=runs, seed=seed, progress=_runs_progress("simulating")
    )
    if as_json:
        click.echo(report.to_json(outcome.as_dict()))
    else:
        columns = ["quantity", "claimed", "measured", "low", "high", "confidence", "agrees"]
        report.print_table(report.validation_records(outcome), columns)
    if not outcome.agrees:
        _note("the simulation disagrees with the design")
    return 0 if outcome.agrees else EXIT_FAILED


@commands.command()
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
    loaded = [load_problem(_problem_path(path)).problem for path in problems]
    rows = comparison.compare(
        loaded, backends=names, gap=gap, time_limit=time_limit, formulation=formulation,
        announce=_note,
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


@commands.command()
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


@commands.command()
@click.argument("problem")
@json_option
def baselines(problem: str, as_json: bool) -> None:
    """The optimum of PROBLEM.toml beside the published mechanisms, judged by one certificate."""
    from noisedesign.baselines import compared
    from noisedesign.io.problem_file import load_problem

    designs = compared(load_problem(_problem_path(problem)).problem)
    records = [report.design_record(design) for design in designs]
    if as_json:
        click.echo(report.to_json(records))
    else:
        report.print_table(records, ["name", "method", "objective", "relative_to_ldp", "gap",
                                     "feasible", "protects"])  # fmt: skip


@commands.command()
@click.argument("design", type=click.Path())
@click.option("--to", "target", required=True, help="npy, csv, mat, safetensors or a trainer.")
@click.option("-o", "--output", type=click.Path(), required=True, help="File or folder to write.")
@json_option
def export(design: str, target: str, output: str, as_json: bool) -> None:
    """Write DESIGN.npz in the format of another program."""
    from noisedesign.exports import export as run
    from noisedesign.io.design_file import load_design

    stored = load_design(design)
    paths = run(stored.design, to=target, path=output, problem_text=stored.problem_text)
    if as_json:
        click.echo(report.to_json({"to": target, "files": [str(path) for path in paths]}))
    else:
        for path in paths:
            click.echo(path)


@commands.command()
@click.argument("design", type=click.Path())
@click.option("-o", "--output", type=NEW_FILE, required=True, help="PNG file to write.")
@json_option
def plot(design: str, output: str, as_json: bool) -> None:
    """Picture of DESIGN.npz: its matrix, its noise against baselines, its two bounds."""
    from noisedesign.baselines import published
    from noisedesign.io.design_file import load_design
    from noisedesign.plot import picture

    stored = load_design(design).design
    path = picture(stored, path=output, others=published(stored.problem, dual=stored.dual))
    click.echo(report.to_json({"picture": str(path)}) if as_json else path)


@commands.command()
@click.option("-o", "--output", type=click.Path(file_okay=False), default="out", show_default=True)
@click.option("--runs", default=2000, show_default=True, help="Simulated runs of each design.")
@json_option
def demo(output: str, runs: int, as_json: bool) -> int:
    """One spatial and one temporal design, solved, verified, simulated and drawn."""
    from noisedesign.demo import COLUMNS, run

    records = run(Path(output), runs=runs, announce=_note)
    if as_json:
        click.echo(report.to_json(records))
    else:
        report.print_table(records, list(COLUMNS), title="noise at equal privacy")
    return 0 if all(record["holds"] for record in records) else EXIT_FAILED
