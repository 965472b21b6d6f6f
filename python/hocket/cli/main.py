"""`hocket`: finds the verb's module, runs its command, turns errors into a message and an exit code.

Verbs are loaded on use: `hocket --help` imports none of them.
"""

from __future__ import annotations

import ast
import contextlib
import difflib
import importlib
import os
import sys
from pathlib import Path
from typing import NoReturn

import click

from hocket import __version__, extras, logs, unknown_variables
from hocket.cli.shared import streams
from hocket.errors import Error, UsageError
from hocket.settings import Settings, log_of

FAILED = 1
MISUSED = 2
INTERRUPTED = 130
LISTS_VARIABLES = "doctor"
"""Verb that reports faulty variables of the environment, which the other verbs refuse."""
HERE = Path(__file__).parent
NO_VERBS = ("__init__", "main")
NO_ARGUMENTS: tuple[type[Exception], ...] = tuple(
    filter(None, [getattr(click.exceptions, "NoArgsIsHelpError", None)])
)
"""Exception by which click asks for help, in versions that raise it."""


class Verbs(click.Group):
    """Group of verbs: each module beside this one that defines `command` is a verb; `_` in its name is `-` in the verb's."""

    def list_commands(self, _context: click.Context) -> list[str]:
        """Return the names of the modules, without loading them."""
        return sorted(each.stem.replace("_", "-") for each in HERE.glob("*.py") if each.stem not in NO_VERBS)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        """Return the command of a module; None when there is no such verb."""
        if name.replace("_", "-") not in self.list_commands(context):
            return None
        command: click.Command = importlib.import_module(f"hocket.cli.{_module(name)}").command
        return command

    def resolve_command(
        self, context: click.Context, arguments: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the verb; UsageError names verbs with similar spelling."""
        known = self.list_commands(context)
        if self.get_command(context, arguments[0]) is None and not arguments[0].startswith("-"):
            close = ", ".join(difflib.get_close_matches(arguments[0], known)) or ", ".join(known)
            context.fail(f"there is no verb `{arguments[0]}`\nhint: {close}")
        return super().resolve_command(context, arguments)

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        """List verbs; the first line of each module's docstring is its verb's summary."""
        rows = []
        for name in self.list_commands(context):
            text = ast.get_docstring(ast.parse((HERE / f"{_module(name)}.py").read_text())) or ""
            rows.append((name, text.partition(":")[2].strip().partition("\n")[0]))
        with formatter.section("Verbs"):
            formatter.write_dl(rows)


def _module(verb: str) -> str:
    return verb.replace("-", "_")


@click.group(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="hocket")
@click.pass_context
def hocket(context: click.Context) -> None:
    """Software-defined gradient communication for data-parallel deep learning.

    Example: hocket run -n 4 train.py
    """
    if context.invoked_subcommand != LISTS_VARIABLES:
        unknown_variables.refuse(os.environ, Settings.names())
        logs.apply(log_of(os.environ))


def main() -> None:
    run(hocket, "hocket")


def run(command: click.Command, name: str) -> None:
    """Run a command line: exit code 0, 1 for an error, 2 for wrong usage, 130 for Ctrl-C."""
    streams.prepare()
    try:
        try:
            _run(command, name)
        finally:
            sys.stdout.flush()
    except streams.OutputLostError as error:
        streams.drop()
        _tell(f"standard output cannot be written: {error.strerror}", FAILED)
    except BrokenPipeError:  # the reader of the output has read enough
        streams.drop()
        sys.exit(FAILED)


def _run(command: click.Command, name: str) -> None:
    try:
        command(prog_name=name, standalone_mode=False)
    except click.exceptions.Exit as ended:
        sys.exit(ended.exit_code)
    except (click.exceptions.Abort, KeyboardInterrupt):
        click.echo("interrupted", err=True)
        sys.exit(INTERRUPTED)
    except click.ClickException as error:
        if isinstance(error, NO_ARGUMENTS):
            error.show()
            sys.exit(error.exit_code)
        _tell(error.format_message(), error.exit_code, _where_help_is(error))
    except Error as error:
        _fail(error)
    except ModuleNotFoundError as error:
        name = (error.name or "").partition(".")[0]
        if name not in extras.EXTRAS:
            raise
        _fail(extras.missing(name, "this command"))
    except OSError as error:
        if error.filename is None or os.environ.get("HOCKET_DEBUG") == "1":
            raise
        _tell(f"{error.filename}: {error.strerror}", FAILED)


def _fail(error: Error) -> NoReturn:
    if os.environ.get("HOCKET_DEBUG") == "1":
        raise error
    _tell(str(error), MISUSED if isinstance(error, UsageError) else FAILED)


def _tell(message: str, code: int, hint: str = "") -> NoReturn:
    """Print `error:`, and the hint unless the message has one."""
    with contextlib.suppress(OSError):  # the exit code still reports the error
        click.echo(f"error: {message}" if "\nhint: " in message else f"error: {message}{hint}", err=True)
    sys.exit(code)


def _where_help_is(error: click.ClickException) -> str:
    context = getattr(error, "ctx", None)
    return f"\nhint: {context.command_path} --help" if context is not None else ""
