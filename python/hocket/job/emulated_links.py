"""Description of an emulated network for the ranks of one machine: links, and the route between any two hosts.

Emulation is for machines whose kernel cannot shape traffic. The rates apply only to Hocket's own sockets.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from hocket import typed
from hocket.artefacts.decoding import MALFORMED, why
from hocket.errors import ArtefactError

BYTES_PER_LINK = 16
"""Size of a link's entry: the time when the link is free again (nanoseconds), and bytes sent over it; both little-endian."""


class EmulatedLinks(Struct, frozen=True, kw_only=True):
    """Links of an emulated network. `routes[a][b]`: links, by index, on the route from host `a` to host `b`.

    `table` is memory shared by the ranks.
    """

    table: str
    links_bit_per_s: tuple[float, ...]
    routes: dict[str, dict[str, tuple[int, ...]]]


def write(
    directory: Path, links_bit_per_s: Sequence[float], routes: dict[str, dict[str, tuple[int, ...]]]
) -> Path:
    """Create the shared table and the file that names it, in `directory`."""
    table = directory / "links"
    table.write_bytes(bytes(BYTES_PER_LINK * len(links_bit_per_s)))
    path = directory / "links.json"
    found = EmulatedLinks(table=str(table), links_bit_per_s=tuple(links_bit_per_s), routes=routes)
    path.write_bytes(msgspec.json.encode(found))
    return path


def bytes_so_far(directory: Path) -> tuple[int, ...]:
    """Bytes that ranks have sent over each link."""
    table = (directory / "links").read_bytes()
    return tuple(
        int.from_bytes(table[at + 8 : at + BYTES_PER_LINK], "little")
        for at in range(0, len(table), BYTES_PER_LINK)
    )


def read(path: Path, host: str, hosts: Sequence[str]) -> tuple[str, tuple[float, ...], list[list[int]]]:
    """Arguments of the engine for a rank on `host`: table, rates, and the route to each rank; `hosts` by rank."""
    try:
        found = typed.of_json(path.read_bytes(), EmulatedLinks)
    except OSError as error:
        raise ArtefactError(f"the emulated network {path} cannot be read: {error.strerror}") from None
    except MALFORMED as error:
        raise ArtefactError(f"the emulated network {path} is damaged: {why(error)}") from None
    if host not in found.routes or any(other not in found.routes[host] for other in hosts):
        raise ArtefactError(
            f"the emulated network {path} knows no way from {host} to each of {', '.join(hosts)}"
        )
    return found.table, found.links_bit_per_s, [list(found.routes[host][other]) for other in hosts]
