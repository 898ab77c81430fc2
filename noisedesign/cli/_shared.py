"""Exit codes, options and output that commands share."""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, TextIO

import click

from noisedesign.base.checks import InputError
from noisedesign.base.settings import CLUSTER_SECONDS
from noisedesign.files.toml import lookup

EXIT_FAILED, EXIT_INPUT, EXIT_INTERRUPTED = 1, 2, 130


class Output(click.Path):
    """A file or a folder to write."""


class NewFile(Output):
    """A file to write, of a kind of :mod:`base.file_kinds` where the command knows it."""

    def __init__(self, kind: str | None = None) -> None:
        super().__init__(dir_okay=False)
        self.kind = kind


def output_option(kind: click.Path, help_text: str, **how: Any) -> Callable[..., Any]:
    """The option of what a command writes."""
    return click.option("-o", "--output", type=kind, help=help_text, **how)


class Writing(click.Command):
    """A command that writes files, and has ``--force``.

    What stands where they go is looked at before the work, not after it. A file that is read, or
    that another option writes, is never written to."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        help_text = "Replace files even if they are of another kind."
        self.params.append(click.Option(["--force"], is_flag=True, help=help_text))

    def invoke(self, ctx: click.Context) -> Any:
        from noisedesign.base.atomic import overwriting

        options = {param.name or "": param for param in self.params}
        taken = {
            os.path.realpath(lookup(name)): param.human_readable_name.rstrip(".")
            for key, param in options.items()
            if isinstance(param, click.Argument)
            for name in (ctx.params[key] if param.nargs < 0 else [ctx.params[key]])
        }
        with overwriting(ctx.params.pop("force")):
            for key, param in options.items():
                path = ctx.params.get(key)
                if isinstance(param.type, Output) and path is not None:
                    _check_output(path, field=key, kind=param.type, taken=taken)
                    taken[os.path.realpath(path)] = param.opts[-1]
            return super().invoke(ctx)


def _check_output(path: str, *, field: str, kind: Output, taken: dict[str, str]) -> None:
    from noisedesign.base.atomic import check_replaceable, target_of
    from noisedesign.base.extras import need
    from noisedesign.base.file_kinds import PAGE, PICTURE
    from noisedesign.files.picture_file import picture_format

    other = taken.get(os.path.realpath(path))
    if other is not None:
        raise InputError(field, expected="a file of its own", got=f"{path}, which is {other} too")
    if isinstance(kind, NewFile):
        target_of(path, field=field)
        if kind.kind == PICTURE:
            picture_format(path, field=field)
        if kind.kind in (PICTURE, PAGE):
            need("matplotlib", field=field)
        if kind.kind == PAGE:
            need("jinja2", field=field)
        if kind.kind is not None:
            check_replaceable(path, kind.kind, field=field)


json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON value.")
gap_option = click.option("--gap", type=float, help="Relative duality gap to certify [1e-6].")
formulation_option = click.option(
    "--formulation",
    help="Conic model: compact, covariance, paper or, of backends only, balanced (their default) "
    "and nuclear (SCS).",
)
runs_option = click.option("--runs", default=2000, show_default=True, help="Independent runs.")
retry_option = click.option("--retry", is_flag=True, help="Run rows again that were not solved.")


def where_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options of where a command works."""
    jobs = click.option(
        "--jobs", type=int, default=1, show_default=True, help="Processes of this machine."
    )
    cluster = click.option(
        "--cluster", metavar="tcp://HOST:PORT", help="A Dask scheduler, instead of --jobs."
    )
    timeout = click.option(
        "--timeout",
        type=float,
        default=CLUSTER_SECONDS,
        show_default=True,
        metavar="S",
        help="Seconds to wait for the cluster.",
    )
    return jobs(cluster(timeout(command)))


folder_option = output_option(
    click.Path(file_okay=False), "Folder to write into.", default="out", show_default=True
)
design_argument = click.argument("design", type=click.Path())


def show(value: Any, *, as_json: bool, columns: Sequence[str] = (), **table: Any) -> None:
    """One JSON value, or a table of it: a record, or a list of records."""
    from noisedesign.base.tables import print_table, to_json

    if as_json:
        click.echo(to_json(value))
        return
    records = value if isinstance(value, list) else [value]
    print_table(records, columns or list(records[0]), **table)


def echo(text: str, *, err: bool = False) -> None:
    """A text for a terminal, which nothing in it can steer."""
    from noisedesign.base.tables import visible

    click.echo(visible(text), err=err)


def show_files(paths: Iterable[object], *, as_json: bool, **told: str) -> None:
    """Print the paths of what was written, one a line, or one JSON value."""
    files = [str(path) for path in paths]
    show_path("\n".join(files), told | {"files": files}, as_json=as_json)


def show_path(path: object, record: Mapping[str, Any], *, as_json: bool) -> None:
    if as_json:
        show(record, as_json=True)
    else:
        echo(str(path))


def problem_in(path: Path | str, **how: Any) -> Any:
    """The problem of a file, or an error that no other file will do."""
    from noisedesign.files.problem_file import load_problem

    return load_problem(path, **how)


def design_in(path: Path | str) -> Any:
    """The design of a file, or an error that no other file will do."""
    from noisedesign.files.design_file import load_design

    return load_design(path)


def attributes(of: object, names: Iterable[str]) -> dict[str, Any]:
    return {name: getattr(of, name) for name in names}


def note(message: str) -> None:
    """A remark on standard error."""
    echo(_wrapped(message, sys.stderr), err=True)


def say(sentence: str) -> None:
    """A sentence among the results on standard output."""
    echo(_wrapped(sentence, sys.stdout))


def _wrapped(text: str, stream: TextIO) -> str:
    """Break the lines of a text between words at a terminal; elsewhere leave it as it is."""
    if not stream.isatty():
        return text
    width = shutil.get_terminal_size().columns
    return textwrap.fill(text, width, break_long_words=False, break_on_hyphens=False)


def counter(label: str, what: str) -> Callable[[int, int], None] | None:
    """A counter and the time left on an interactive standard error, nothing elsewhere."""
    if not sys.stderr.isatty():
        return None
    first: tuple[float, int] | None = None

    def show(done: int, total: int) -> None:
        nonlocal first
        now, end = time.monotonic(), "\n" if done >= total else ""
        started, before = first = first or (now, done)
        if before < done < total:
            left = (now - started) / (done - before) * (total - done)
            end = f", {timedelta(seconds=round(left))} left"
        transient(f"{label}: {done}/{total} {what}{end}")

    return show


def transient(line: str) -> None:
    click.echo(f"\r\x1b[K{line}", err=True, nl=False)
