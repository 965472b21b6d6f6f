"""The hosts file of `hocket run --hosts`: one `NAME [slots=N]` a line; `#` begins a comment."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hocket.artefacts.names import HOST
from hocket.errors import UsageError

LINE = re.compile(rf"(?P<name>{HOST.pattern})(?:\s+slots=(?P<slots>[1-9]\d{{0,4}}))?", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class Slots:
    """A host and its number of slots for ranks."""

    name: str
    slots: int = 1


def read(path: Path) -> list[Slots]:
    """The hosts of a file, in its order; UsageError names the invalid line."""
    try:
        text = path.read_text()
    except (OSError, UnicodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise UsageError(f"hosts file {path} cannot be read: {reason}") from None
    return parse(text, where=str(path))


def parse(text: str, *, where: str = "hosts") -> list[Slots]:
    """The hosts of a file's text.

    >>> parse("node1 slots=2  # the big one")
    [Slots(name='node1', slots=2)]
    """
    hosts: list[Slots] = []
    for number, line in enumerate(text.splitlines(), start=1):
        content = line.partition("#")[0].strip()
        if not content:
            continue
        parsed = LINE.fullmatch(content)
        if parsed is None:
            raise UsageError(f"{where}, line {number}: {content!r} is not of the form HOST [slots=N]")
        if any(host.name == parsed["name"] for host in hosts):
            raise UsageError(f"{where}, line {number}: `{parsed['name']}` is there twice\nhint: use slots=N")
        hosts.append(Slots(name=parsed["name"], slots=int(parsed["slots"] or 1)))
    if not hosts:
        raise UsageError(f"{where} names no host")
    return hosts


def place(hosts: Sequence[Slots], world: int | None) -> list[str]:
    """Each rank's host: slots are filled in the given order; None for `world`: all slots."""
    filled = [host.name for host in hosts for _ in range(host.slots)]
    if world is not None and world > len(filled):
        raise UsageError(f"{world} ranks, but the hosts have {len(filled)} slots")
    return filled[:world]


def place_servers(hosts: Sequence[Slots], workers: int, servers: int) -> list[str]:
    """The host of each rank that does not train: slots left free by the workers, then beside the workers, host after host.

    >>> place_servers([Slots(name="a"), Slots(name="b"), Slots(name="c")], workers=2, servers=2)
    ['c', 'a']
    """
    filled = [host.name for host in hosts for _ in range(host.slots)]
    free = filled[workers:][:servers]
    beside = list(dict.fromkeys(filled[:workers]))
    return free + [beside[at % len(beside)] for at in range(servers - len(free))]
