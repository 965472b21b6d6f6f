"""Addresses that the store listens on: those under which the job's ranks look for it, and no other interface."""

from __future__ import annotations

from hocket.job.store import address as addresses
from hocket.job.store import interfaces


def under(name: str, *, interface: str | None, one_host: bool) -> tuple[str, ...]:
    """Return this host's addresses for ranks that know it as `name`; loopback, for ranks of the host itself, comes first.

    A name often means loopback on its own host, and one interface's address elsewhere, which this host cannot know.
    Then HOCKET_INTERFACE decides, or the default route.

    Args:
        name: a host name, or an address or several, which are then the only ones.
        interface: HOCKET_INTERFACE.
        one_host: True if all ranks of the job are on this host.

    Raises:
        UsageError: `interface` is not on this host.
    """
    if addresses.is_literal(name):
        return addresses.each_of(name)
    try:
        meant = [where[0] for _, where in addresses.resolve(name, 0)]
    except addresses.UnknownNameError:
        meant = []
    own = [address.partition("/")[0] for _, address in interfaces.here()]
    near = [each for each in meant if addresses.is_loopback(each)]
    far = [each for each in meant if each in own and not addresses.is_loopback(each)]
    if not far and not one_host:
        asked = interface if interface and interface != interfaces.ALL else None
        outward = addresses.outward(own)
        far = list(interfaces.chosen(asked)) if asked else [outward] if outward else []
    return tuple(dict.fromkeys([addresses.LOOPBACK, *near, *far]))
