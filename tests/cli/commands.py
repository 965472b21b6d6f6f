"""All commands of `hocket`, by the words that call them."""

from collections.abc import Iterator

import click

from hocket.cli.main import hocket

COLUMNS = 100


def commands() -> dict[str, click.Command]:
    """Groups and leaves; `hocket` itself is the first."""
    with click.Context(hocket, info_name="hocket") as context:
        return dict(_below("hocket", hocket, context))


def leaves() -> dict[str, click.Command]:
    """Those that do something."""
    return {name: each for name, each in commands().items() if not isinstance(each, click.Group)}


def help_of(name: str, command: click.Command) -> str:
    """As `--help` prints it on a terminal of 100 columns."""
    first, _, rest = name.partition(" ")
    above = click.Context(hocket, info_name=first, **hocket.context_settings)
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
