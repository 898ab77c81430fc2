"""The command line: problems in, designs and tables out.

Standard output carries results only, and with ``--json`` exactly one JSON value; progress and
remarks go to standard error. Exit codes: 0 done; 1 a design that does not hold (verify, simulate),
none or one short of the gap asked for (solve), nodes that did otherwise (soak, audit-run), a file
that cannot be written; 2 bad input; 130 interrupted."""

from __future__ import annotations

import sys
import warnings

import click

from noisedesign.base.checks import InputError
from noisedesign.cli import accounts, choices, deployments, designs, parts, prove, tables
from noisedesign.cli._shared import EXIT_FAILED, EXIT_INPUT, EXIT_INTERRUPTED, note

__all__ = ["EXIT_FAILED", "EXIT_INPUT", "EXIT_INTERRUPTED", "commands", "main"]


EXTENSIONS = "noisedesign.commands"  # the entry points by which other packages add commands
OF_LABORATORY = ("figure", "reproduce", "train")  # noisedesign-lab adds them
FIRST = ("demo", "recommend", "solve", "verify", "report", "account", "deploy", "export")
"""The commands that people need, in their order; the help lists the rest below."""
BLANKS = 2  # before the name of a command in the help, and after it


def _print_version(context: click.Context, _: click.Parameter, asked: bool) -> None:
    """Print the version, which is asked of git only when somebody asks for it."""
    if asked and not context.resilient_parsing:
        from noisedesign.base.version import version

        click.echo(f"noisedesign, version {version()}")
        context.exit()


class Extensible(click.Group):
    """A group whose further commands come from packages that are installed beside this one."""

    def list_commands(self, context: click.Context) -> list[str]:
        from importlib.metadata import entry_points  # late: few commands need it

        found = {*super().list_commands(context), *entry_points(group=EXTENSIONS).names}
        return [*FIRST, *sorted(found.difference(FIRST))]

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if (known := super().get_command(context, name)) is not None:
            return known
        from importlib.metadata import entry_points

        for point in entry_points(group=EXTENSIONS, name=name):
            command: click.Command = point.load()
            return command
        if name in OF_LABORATORY:
            context.fail(
                f"{name} is a command of noisedesign-lab, which is not installed: "
                "pip install ./lab in a checkout of noisedesign"
            )
        return None

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands that people need, and the rest below them."""
        names = self.list_commands(context)
        widest = max(map(len, names))
        room = formatter.width - widest - 2 * BLANKS
        for title, part in (
            ("Commands", names[: len(FIRST)]),
            ("More commands", names[len(FIRST) :]),
        ):
            told = [(name, self.get_command(context, name)) for name in part]
            rows = [(name, one.get_short_help_str(room)) for name, one in told if one]
            between = BLANKS + widest - max(map(len, part))
            with formatter.section(title):
                formatter.write_dl(rows, col_max=widest, col_spacing=between)


@click.group(
    cls=Extensible,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.option(
    "--version",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=_print_version,
    help="Show the version and exit.",
)
def commands() -> None:
    """Design the noise of private learning: graph in, certified noise out."""


for module in (accounts, choices, deployments, designs, prove, tables):
    for command in vars(module).values():
        if isinstance(command, click.Command):
            commands.add_command(command)
commands.add_command(parts.parts)  # a group, whose own commands stand below it


def main() -> None:
    """Entry point: every error is one line on standard error and an exit code."""
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _tell
            code = commands(prog_name="noisedesign", standalone_mode=False)
    except InputError as error:
        _fail(str(error), EXIT_INPUT)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        sys.exit(EXIT_INPUT)
    except click.UsageError as error:
        command = error.ctx.command_path if error.ctx else "noisedesign"
        _fail(f"{error.format_message()} (see {command} --help)", EXIT_INPUT)
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


def _tell(message: Warning | str, *_: object, **__: object) -> None:
    """A warning as a remark on standard error, without the line of code that gives it."""
    note(f"noisedesign: warning: {message}")


def _fail(message: str, code: int) -> None:
    note(f"noisedesign: error: {' '.join(message.split())}")
    sys.exit(code)
