"""Valid names of hosts, which come from foreign files and go into shells, host files and command lines.

A name that a shell, a launcher's host file or an option parser could read as anything else is refused, never quoted:
each launcher has its own quoting, and some have none.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from hocket.errors import ArtefactError

HOST = re.compile(r"(?:[A-Za-z0-9_][A-Za-z0-9_.-]*@)?[A-Za-z0-9_:][A-Za-z0-9_.:%-]*")
"""Names, IPv4 and IPv6 addresses, the latter with their zone; optionally after a user, as in ssh."""

CHARACTERS_MAX = 320
"""Length limit: the longest name in DNS has 253 characters, and there may be a user."""

SHOWN_MAX = 60


def check_hosts(names: Iterable[str], where: str) -> None:
    """Raise ArtefactError with the first invalid name of a host; `where`: the source of the names.

    >>> check_hosts(["rack1-b", "10.0.0.7", "fe80::1%eth0", "me@node3.example.org"], "cluster.toml")
    >>> check_hosts(["a;reboot"], "cluster.toml")
    Traceback (most recent call last):
    hocket.errors.ArtefactError: cluster.toml: 'a;reboot' is not the name of a host
    hint: letters, digits and . - _ : make a name, and a user may stand before it, as in user@host
    """
    for name in names:
        if len(name) > CHARACTERS_MAX or not HOST.fullmatch(name):
            # Shown as a literal: a terminal would interpret control characters.
            raise ArtefactError(
                f"{where}: {name[:SHOWN_MAX]!r} is not the name of a host\n"
                "hint: letters, digits and . - _ : make a name, and a user may stand before it, as in user@host"
            )
