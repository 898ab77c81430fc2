"""What the commands share: exit codes, options, and what goes to standard error."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

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
    "--formulation",
    help="Conic model: compact, covariance, paper or, of backends and their default, balanced.",
)


def note(message: str) -> None:
    """A remark on standard error."""
    click.echo(message, err=True)


def problem_path(name: str) -> Path:
    """The path given, or the same under ./problems where only that exists."""
    path = Path(name)
    fallback = PROBLEM_FOLDER / name
    return fallback if not path.exists() and fallback.exists() else path


def counter(label: str, what: str) -> Callable[[int, int], None] | None:
    """A counter on an interactive standard error, nothing elsewhere."""
    if not sys.stderr.isatty():
        return None

    def show(done: int, total: int) -> None:
        end = "\n" if done >= total else ""
        click.echo(f"\r{label}: {done}/{total} {what}{end}", err=True, nl=False)

    return show
