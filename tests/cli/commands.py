"""All commands of `hocket` and of `python -m benches`, by the words that call them."""

import copy
from collections.abc import Iterator

import click

from benches.commands import benches
from hocket.cli.main import hocket

COLUMNS = 100
ROOTS: dict[str, click.Group] = {"hocket": hocket, "python -m benches": benches}


def commands() -> dict[str, click.Command]:
    """Groups and leaves; each of the ROOTS comes before its own."""
    found: dict[str, click.Command] = {}
    for name, root in ROOTS.items():
        with click.Context(root, info_name=name) as context:
            found |= _below(name, root, context)
    return found


def leaves() -> dict[str, click.Command]:
    return {name: each for name, each in commands().items() if not isinstance(each, click.Group)}


def root_of(name: str) -> str:
    return next(root for root in ROOTS if name == root or name.startswith(f"{root} "))


def help_of(name: str, command: click.Command) -> str:
    """As `--help` prints it on a terminal of 100 columns."""
    first = root_of(name)
    rest = name.removeprefix(first).strip()
    command = copy.copy(command)
    # click keeps the option that the first call has made, and a test may have called the verb without its root.
    command._help_option = None
    above = click.Context(ROOTS[first], info_name=first, **ROOTS[first].context_settings)
    context = click.Context(
        command,
        info_name=rest or first,
        parent=above if rest else None,
        terminal_width=COLUMNS,
        max_content_width=COLUMNS,
        **command.context_settings,
    )
    return command.get_help(context)


def _below(name: str, command: click.Command, context: click.Context) -> Iterator[tuple[str, click.Command]]:
    yield name, command
    if isinstance(command, click.Group):
        for word in command.list_commands(context):
            below = command.get_command(context, word)
            assert below is not None
            yield from _below(f"{name} {word}", below, context)
