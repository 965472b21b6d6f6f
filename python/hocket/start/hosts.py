"""Hosts files: a host a line, and its number of slots. `#` begins a comment. Or the hosts themselves: `a:2,b:2`.

Launchers write the number in different ways, and all of these are read:

- `NAME slots=N`, as Open MPI, DeepSpeed and Horovod write it, and Hocket itself; Open MPI's `max_slots=N` beside it only limits
    ranks beyond the slots, which Hocket never starts;
- `NAME:N`, as MPICH's Hydra, Intel MPI and `horovodrun -H` write it; an IPv6 address is in brackets there: `[fe80::1]:N`;
- a line for each slot, as in the node files of PBS and SGE.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hocket.artefacts.decoding import clipped, text_of, unreadable
from hocket.artefacts.names import CHARACTERS_MAX, HOST
from hocket.errors import UsageError
from hocket.job.store.address import is_literal

NUMBER = r"[1-9]\d{0,4}"
MACHINE = re.compile(rf"(?:\[(?P<v6>[^\]]+)\]|(?P<name>[^:\[\]]+))(?::(?P<slots>{NUMBER}))?", re.ASCII)
SPACED = re.compile(r"\s*=\s*")
"""Equals sign with the spaces that Open MPI allows around it."""

SLOTS = ("slots", "slot", "count", "cpu", "cpus")
SLOTS_MAX = ("max_slots", "slots_max", "max_cpus", "cpus_max")
USERS = ("user", "username", "user_name")


@dataclass(frozen=True, kw_only=True)
class Slots:
    name: str
    slots: int = 1


def read(path: Path) -> list[Slots]:
    """Return the hosts of a file, in its order, or those that the name of no file lists by commas.

    UsageError: the file cannot be read, or names the invalid line.

    >>> read(Path("a:2,b"))
    [Slots(name='a', slots=2), Slots(name='b', slots=1)]
    """
    listed = str(path)
    if not path.exists() and "/" not in listed and ("," in listed or ":" in listed):
        return parse(listed.replace(",", "\n"), where=f"hosts {listed}", each="host")
    try:
        text = text_of(path)
    except (OSError, ValueError) as error:
        raise UsageError(
            f"hosts file {path} cannot be read: {unreadable(error)}\nhint: hosts without a file are HOST:N,HOST:N"
        ) from None
    return parse(text, where=str(path))


def parse(text: str, *, where: str = "hosts", each: str = "line") -> list[Slots]:
    """Return the hosts of a file's text. UsageError names the invalid line, as `each` and its number.

    >>> parse("node1 slots=2  # the big one")
    [Slots(name='node1', slots=2)]
    >>> parse("a:4\\n[fe80::1]:2")
    [Slots(name='a', slots=4), Slots(name='fe80::1', slots=2)]
    """
    found: dict[str, int | None] = {}
    lines: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        content = line.partition("#")[0].strip()
        if not content:
            continue
        name, slots = _host(content, f"{where}, {each} {number}")
        if name not in found:
            found[name], lines[name] = slots, 1
            continue
        if slots is not None or found[name] is not None:
            raise UsageError(
                f"{where}, {each} {number}: `{name}` is there twice, and not with a line for each slot\n"
                "hint: one line with slots=N"
            )
        lines[name] += 1
    if not found:
        raise UsageError(f"{where} names no host")
    return [Slots(name=name, slots=slots or lines[name]) for name, slots in found.items()]


def _host(content: str, where: str) -> tuple[str, int | None]:
    """Return a line's name and number of slots; None: it has none."""
    first, *attributes = SPACED.sub("=", content).split()
    user, at, machine = first.rpartition("@")
    name, slots = _machine(machine)
    slots_max = None
    for each in attributes:
        key, equals, value = each.partition("=")
        key = key.lower().replace("-", "_")
        if equals and key not in (*SLOTS, *SLOTS_MAX, *USERS):
            raise UsageError(
                f"{where}: `{clipped(key)}` of {clipped(machine)} is nothing that Hocket decides by\n"
                "hint: leave it out; what ssh needs, such as a port, belongs to --ssh or to its configuration"
            )
        if key in USERS and not at:
            user, at = value, "@"
            continue
        count = int(value) if re.fullmatch(NUMBER, value, re.ASCII) else None
        if key in SLOTS_MAX and count is not None:
            slots_max = count
        elif key in SLOTS and count is not None and slots is None:
            slots = count
        else:
            name = ""
    whole = f"{user}{at}{name}"
    if not name or len(whole) > CHARACTERS_MAX or not HOST.fullmatch(whole):
        raise UsageError(
            f"{where}: {clipped(content)!r} is not of the form HOST [slots=N]\n"
            "hint: HOST, HOST slots=N or HOST:N; an IPv6 address before :N is in brackets"
        )
    if slots_max is not None and slots_max < (slots or 1):
        raise UsageError(f"{where}: {name} has {slots or 1} slots, and at most {slots_max}")
    return whole, slots


def _machine(text: str) -> tuple[str, int | None]:
    """Return name or address, and the number of slots behind it; an empty name: the text is neither."""
    if is_literal(text):  # an IPv6 address without brackets has no number behind it
        return text, None
    parsed = MACHINE.fullmatch(text)
    if parsed is None or (parsed["v6"] is not None and not is_literal(parsed["v6"])):
        return "", None
    return parsed["v6"] or parsed["name"], None if parsed["slots"] is None else int(parsed["slots"])


def place(hosts: Sequence[Slots], world: int | None) -> list[str]:
    """Return each rank's host: slots are filled in the given order; None for `world`: all slots."""
    filled = [host.name for host in hosts for _ in range(host.slots)]
    if world is not None and world > len(filled):
        raise UsageError(f"{world} ranks, but the hosts have {len(filled)} slots")
    return filled[:world]


def place_servers(hosts: Sequence[Slots], workers: int, servers: int) -> list[str]:
    """Return the host of each rank that does not train: free slots first, then beside the workers, host after host.

    >>> place_servers([Slots(name="a"), Slots(name="b"), Slots(name="c")], workers=2, servers=2)
    ['c', 'a']
    """
    filled = [host.name for host in hosts for _ in range(host.slots)]
    free = filled[workers:][:servers]
    beside = list(dict.fromkeys(filled[:workers]))
    return free + [beside[at % len(beside)] for at in range(servers - len(free))]
