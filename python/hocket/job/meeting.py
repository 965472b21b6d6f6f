"""Meeting place of a job: rank 0 serves the store unless the launcher does, and every rank learns its address.

A host's name for itself is never sent to another host, where it may mean loopback or another machine.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import msgspec

from hocket import typed
from hocket.errors import RendezvousError
from hocket.job.environment import Identity
from hocket.job.host import Host
from hocket.job.store import address as addresses
from hocket.job.store import interfaces, listening
from hocket.job.store.ledger import Ledger
from hocket.job.store.server import Server
from hocket.job.store.store import Store
from hocket.settings import Settings

TWIN_S = 10.0
"""Time within which a listener at the job's address must answer whether it is another job's rank 0."""

Publish = Callable[[str | None, float], str]
"""Function `publish(text, timeout_s)`: rank 0 passes a text, and all ranks get it through the launcher's own store."""


class _Place(msgspec.Struct, frozen=True, kw_only=True):
    """Store of rank 0.

    `place`: of its host, as in `Host`. `here`: its address for ranks of that place. `address`: its address for others; None: rank 0
    is on the machine of the launcher's own store, of which each rank knows an address.
    """

    place: str
    here: str
    address: str | None
    port: int


def meet(me: Identity, host: Host, settings: Settings, publish: Publish | None) -> tuple[Server | None, str]:
    """Return the store's address, and its server if this rank must serve it.

    Raises:
        RendezvousError: the store's address is taken, or cannot be learnt.
    """
    where = me.meeting.address
    if where is None:
        return _meet_by_publishing(me, host, settings, publish)
    if me.rank != 0 or me.meeting.served:
        return None, where
    name, port = addresses.split(where)
    hosts = listening.under(name, interface=settings.interface, one_host=me.local_world == me.world)
    try:
        ledger = Ledger(0.0 if me.private else settings.start_timeout_s)
        server = Server(hosts, port, me.secret, ledger, ports=settings.port_range)
    except RendezvousError:
        _tell_the_twin(where, me, host)
        raise
    return server, addresses.join(hosts[0], server.port)


def _tell_the_twin(where: str, me: Identity, host: Host) -> None:
    """Tell both jobs if one that knows the same secret meets at that address, as two without given secrets may, before ranks of one
    train with those of the other. RendezvousError: there are two such jobs."""
    own = f"rank {me.rank} on {host.name} (process {os.getpid()})"
    claims: list[Store] = []
    try:
        # If the store takes the first claim, its own process has not come yet: the second is in its name, and ends both jobs.
        for who in (own, "the one that serves the store"):
            claims.append(Store(where, me.secret, rank=me.rank, who=who, timeout_s=TWIN_S))
    except RendezvousError as error:
        if error.rank == me.rank:
            raise error.reworded(
                f"two jobs meet at {where}: {error.summary}\n"
                "hint: give each job an address of its own (HOCKET_STORE), or a secret of its own (docs/secrets.md)"
            ) from None
    finally:
        for store in claims:
            store.leave("its rank 0 cannot serve the store: two jobs meet at one address")


def _meet_by_publishing(
    me: Identity, host: Host, settings: Settings, publish: Publish | None
) -> tuple[Server | None, str]:
    if publish is None:
        raise RendezvousError(
            f"{me.launcher} keeps MASTER_PORT for its own store, and the caller gave no way to use that\n"
            "hint: join through hocket.torch, or set HOCKET_STORE to a free ADDRESS:PORT of rank 0's machine"
        )
    if me.rank != 0:
        return None, _address(_read(publish(None, settings.start_timeout_s)), me, host)
    hosts, address = _listening(me, settings)
    server = Server(hosts, 0, me.secret, ports=settings.port_range)
    told = _Place(place=host.place, here=hosts[0], address=address, port=server.port)
    try:
        publish(msgspec.json.encode(told).decode(), settings.start_timeout_s)
    except BaseException:
        server.close()
        raise
    return server, addresses.join(told.here, told.port)


def _read(text: str) -> _Place:
    try:
        return typed.of_json(text, _Place)
    except msgspec.DecodeError:
        raise RendezvousError(
            f"rank 0 said where its store is in words of another version: {text!r}\n"
            "hint: install the same version of Hocket everywhere"
        ) from None


def _address(told: _Place, me: Identity, host: Host) -> str:
    if told.place == host.place:
        return addresses.join(told.here, told.port)
    # `master` is this rank's address of the launcher's store; rank 0 is on the same machine if it gave no address.
    name = told.address or me.master
    if name is None:
        raise RendezvousError(
            "rank 0 is on another host and knows no address of its own\n"
            "hint: set HOCKET_INTERFACE there to the interface or address that leads to the others"
        )
    return addresses.join(name, told.port)


def _listening(me: Identity, settings: Settings) -> tuple[tuple[str, ...], str | None]:
    """Return addresses to listen at, and rank 0's address for other hosts; None: the address of the launcher's own store."""
    asked, one_host = settings.interface, me.local_world == me.world
    if asked and asked != interfaces.ALL:
        address = interfaces.chosen(asked)[0]
        return (address,), address
    seen = None if one_host else _seen_from_others(me.master)
    if seen is not None:
        return (addresses.LOOPBACK, seen), seen
    return listening.under(me.master or addresses.LOOPBACK, interface=asked, one_host=one_host), None


def outside(interface: str | None) -> str | None:
    """Return this host's address for others: that of `interface`, as in `Settings`, or that on its route outward.

    None: it has no such route.
    """
    if interface and interface != interfaces.ALL:
        return interfaces.chosen(interface)[0]
    return _seen_from_others(None)


def _seen_from_others(master: str | None) -> str | None:
    """Return this host's address on the route to the launcher's store; None: that store is local, or there is no route."""
    if master is None:
        return addresses.outward([address.partition("/")[0] for _, address in interfaces.here()])
    own = addresses.towards(master)
    return None if own is None or addresses.is_loopback(own) else own
