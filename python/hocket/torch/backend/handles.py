"""Handles by which members of a group that changes find each other, and the store at which they meet.

PyTorch gives every member the handles of all, as opaque strings (`ProcessGroup.reconfigure`). Each group keeps a store of
its own for as long as it lives; a configuration meets at the store of its first member.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence, Set
from datetime import timedelta
from typing import Any

import msgspec
from torch.distributed import DistError, PrefixStore, TCPStore  # type: ignore[attr-defined]

from hocket import typed
from hocket.errors import RendezvousError, UsageError
from hocket.job.host import Host
from hocket.job.meeting import outside
from hocket.job.store import address as addresses
from hocket.settings import Settings


class Handle(msgspec.Struct, frozen=True, kw_only=True):
    """Knowledge that members have of one of them.

    Attributes:
        hocket: identifies the group of that process.
        name, place: of its host, as in `Host`.
        address: of its host, for others; None: it knows none.
        port: of its store.
    """

    hocket: str
    name: str
    place: str
    address: str | None
    port: int


class Door:
    """This process's store, and its handle."""

    def __init__(self, settings: Settings) -> None:
        """Open the store at a port of the system's choice."""
        host = Host.here(settings.host)
        store = _served(settings.port_range)
        self._used: set[int] = set()
        self.handle = Handle(
            hocket=secrets.token_hex(8),
            name=host.name,
            place=host.place,
            address=outside(settings.interface),
            port=store.port,
        )
        self._stores = {self.handle: store}

    @property
    def text(self) -> str:
        """The handle as members exchange it."""
        return msgspec.json.encode(self.handle).decode()

    def rank_among(self, members: Sequence[Handle], uuid: int) -> int:
        """Return the position of this process. UsageError: it has none, or `uuid` was that of an earlier configuration."""
        if uuid in self._used:
            raise UsageError(
                f"reconfigure: uuid {uuid} was that of an earlier configuration\nhint: a fresh one each time"
            )
        own = [at for at, each in enumerate(members) if each.hocket == self.handle.hocket]
        if not own:
            raise UsageError(
                f"reconfigure: none of the {len(members)} handles is this process's\n"
                "hint: pass what get_reconfigure_handle() returns on each member, this one included"
            )
        self._used.add(uuid)
        return own[0]

    def store_of(self, first: Handle, uuid: int, timeout: timedelta) -> Any:
        """Return the part of the first member's store that a configuration has for itself.

        RendezvousError: that store does not answer in time.
        """
        if first not in self._stores:
            # The last one's connection is kept: PyTorch looks up names of the other end whenever it makes one.
            self._stores = {self.handle: self._stores[self.handle]}
            host = addresses.LOOPBACK if first.place == self.handle.place else first.address
            if host is None:
                raise RendezvousError(
                    f"the first member, on {first.name}, knows no address of its own that other hosts could reach\n"
                    "hint: set HOCKET_INTERFACE there to the interface or address that leads to the others",
                    rank=0,
                    host=first.name,
                )
            try:
                self._stores[first] = TCPStore(
                    host, first.port, is_master=False, timeout=timeout, wait_for_workers=False
                )
            except DistError as error:
                raise RendezvousError(
                    f"rank 0 on {first.name} does not answer at {addresses.join(host, first.port)}: {error}",
                    rank=0,
                    host=first.name,
                ) from error
        own = PrefixStore(f"hocket/{uuid}", self._stores[first])
        own.set_timeout(timeout)
        return own


def _served(ports: tuple[int, int]) -> TCPStore:
    """Return a store at the first free one of these ports, which are as in `Server`. RendezvousError: none is free."""
    for port in range(ports[0], ports[1] + 1):
        try:
            return TCPStore(addresses.LOOPBACK, port, is_master=True, wait_for_workers=False)
        except DistError as error:
            reason = error
    raise RendezvousError(f"no port from {ports[0]} to {ports[1]} (HOCKET_PORTS) is free: {reason}")


def members_of(handles: Sequence[str] | Set[str]) -> list[Handle]:
    """Return the members by rank: in the order of a list; a set has none, and they are ordered by their handles.

    UsageError: a handle is not one of this backend, or comes twice.
    """
    members = []
    for text in handles if isinstance(handles, Sequence) else sorted(handles):
        try:
            members.append(typed.of_json(text, Handle))
        except msgspec.DecodeError:
            raise UsageError(
                f"reconfigure: {text!r} is no handle of backend hocket of this version\n"
                "hint: get_reconfigure_handle() of each member's group makes them"
            ) from None
    if len({each.hocket for each in members}) < len(members):
        raise UsageError(
            f"reconfigure: of {len(members)} handles, one comes twice\nhint: one of each member, those of now alone"
        )
    return members
