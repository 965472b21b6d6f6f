"""Worker: one rank in a Ray actor, which runs the training function on a thread and hands out events.

A worker finds its job by the variables of `hocket run`, so the function calls Hocket as any script does. It knows no other workers.
"""

from __future__ import annotations

import contextlib
import os
import queue
import tempfile
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import ray

from hocket.errors import Error, PeerError, RendezvousError
from hocket.job.host import Host
from hocket.job.store import address as addresses
from hocket.job.store import listening
from hocket.job.store.server import Server
from hocket.ray.checkpoint import unpack
from hocket.ray.session import REPORTS_MAX, Reported, Session, enter
from hocket.settings import Settings
from hocket.start import leash
from hocket.training import process


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Place of a worker: its machine as in `Host`, and Ray's node with its address."""

    host: str
    identity: str
    node: str
    address: str
    process: int


class Meeting(msgspec.Struct, frozen=True, kw_only=True):
    """Meeting point of ranks: the job's store, and variables of the place where torch would open its own store."""

    store: str
    torch: dict[str, str]


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """End of the function. After an error: its `summary` and `trace`, and whether it is a `consequence` of the failure of another
    rank, which it may name as `accused`."""

    summary: str | None = None
    trace: str = ""
    consequence: bool = False
    accused: int | None = None


Event = Reported | Ended


class Worker:
    """Worker in an actor."""

    def __init__(self) -> None:
        """Start with no function."""
        self._events: queue.Queue[Event] = queue.Queue(REPORTS_MAX)
        self._handed: list[Event] = []
        self._seen = 0
        self._open = contextlib.ExitStack()

    def place(self) -> Place:
        """Return where this worker runs."""
        host = Host.here(Settings.from_environment().host)
        return Place(
            host=host.name,
            identity=host.identity,
            node=ray.get_runtime_context().get_node_id(),
            address=ray.util.get_node_ip_address(),
            process=os.getpid(),
        )

    def open_meeting(self, secret: str, interface: str | None) -> Meeting:
        """Serve the job's store, on rank 0, at this node's address, until the actor ends or opens another one."""
        self._open.close()
        address = ray.util.get_node_ip_address()
        listeners = listening.under(address, interface=interface, one_host=False)
        server = self._open.enter_context(Server(listeners, 0, bytes.fromhex(secret)))
        reserved = self._open.enter_context(leash.reserve(address))
        port = str(reserved.getsockname()[1])
        return Meeting(
            store=addresses.join(address, server.port), torch={"MASTER_ADDR": address, "MASTER_PORT": port}
        )

    def start(
        self,
        function: Callable[..., object],
        arguments: tuple[Any, ...],
        variables: Mapping[str, str],
        resume: bytes | None,
    ) -> None:
        """Begin to run the function, with these variables of a rank."""

        def run() -> None:
            with tempfile.TemporaryDirectory() as directory:
                if resume is not None:
                    unpack(resume, Path(directory))
                enter(Session(self._events, None if resume is None else Path(directory)))
                function(*arguments)

        self._handed, self._seen = [], 0
        threading.Thread(
            target=lambda: self._events.put(_ended(run, variables)), name="hocket-train", daemon=True
        ).start()

    def next(self, seen: int, timeout_s: float) -> list[Event]:
        """Return the events since the start, without the first `seen`; wait so long for one. Events that have not been seen
        are handed out again: an answer may be lost on its way."""
        self._handed, self._seen = self._handed[seen - self._seen :], seen
        if not self._handed:
            with contextlib.suppress(queue.Empty):
                self._handed.append(self._events.get(timeout=timeout_s))
        while not self._events.empty():
            self._handed.append(self._events.get())
        return self._handed


def _ended(run: Callable[[], None], variables: Mapping[str, str]) -> Ended:
    """Run the function as this rank; the process then leaves the job, in order or with the error."""
    try:
        with _environment(variables):
            try:
                run()
            except SystemExit as stop:
                # `distribute` ends ranks that serve or help with SystemExit.
                if stop.code not in (None, 0):
                    raise RendezvousError(f"the function called sys.exit({stop.code!r})") from stop
            process.leave()
    except BaseException as error:
        summary = f"{type(error).__name__}: {error.summary if isinstance(error, Error) else error}"
        with contextlib.suppress(Exception):  # errors here follow from the first one
            process.leave(summary)
        return Ended(
            summary=summary,
            trace="".join(traceback.format_exception(error)),
            consequence=isinstance(error, PeerError | RendezvousError),
            accused=getattr(error, "rank", None),
        )
    finally:
        enter(None)
    return Ended()


@contextlib.contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set these variables of the process until the context ends, so that another function finds its own."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
