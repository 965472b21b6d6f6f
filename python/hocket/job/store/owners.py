"""Owner of the process at the other end of a connection on this host, from the kernel's table of sockets."""

from __future__ import annotations

import os
import socket
import struct
from pathlib import Path

TABLES = {socket.AF_INET: "/proc/self/net/tcp", socket.AF_INET6: "/proc/self/net/tcp6"}
LOCAL, REMOTE, USER = 1, 2, 7
"""Columns of that table."""


def is_ours(connection: socket.socket) -> bool:
    """Return whether the other end is a process of this user on this host. False if that cannot be told.

    >>> with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_connection(listener.getsockname()) as caller:
    ...     accepted, _ = listener.accept()
    ...     with accepted:
    ...         is_ours(accepted)
    True
    """
    try:
        # The other end is the one whose local address is our peer.
        ends = [
            _in_table(connection.family, each)
            for each in (connection.getpeername(), connection.getsockname())
        ]
        lines = Path(TABLES[connection.family]).read_text().splitlines()[1:]
    except (OSError, KeyError):
        return False
    rows = (line.split() for line in lines)
    return any([row[LOCAL], row[REMOTE]] == ends and row[USER] == str(os.getuid()) for row in rows)


def _in_table(family: int, where: tuple[str, int]) -> str:
    """Return an address as the table has it: words in the host's own byte order."""
    packed = socket.inet_pton(family, where[0])
    words = struct.unpack(f"={len(packed) // 4}I", packed)
    return "".join(f"{word:08X}" for word in words) + f":{where[1]:04X}"
