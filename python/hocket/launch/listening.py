"""Where the store listens: at the addresses under which the job's ranks look for it, and at no other interface."""

from __future__ import annotations

from hocket.launch import address as addresses
from hocket.launch import interfaces


def under(name: str, *, interface: str | None, one_host: bool) -> tuple[str, ...]:
    """This host's addresses at which ranks that are told `name` look for the store; loopback, for those beside it, is the first.

    A name often means loopback on the host that it names, and an address of one interface elsewhere, which cannot be known here:
    then it is the address that HOCKET_INTERFACE gives, or the one that leads out.

    Args:
        name: a host name, or an address, which is then the only one.
        interface: HOCKET_INTERFACE.
        one_host: whether all ranks of the job are on this host.

    Raises:
        UsageError: `interface` is none of this host.
    """
    if addresses.is_literal(name):
        return (name,)
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
