"""Probe hosts from outside: start an agent on each through the launcher, follow it, take its result."""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence
from contextlib import suppress

import msgspec

from hocket.artefacts.cluster import Cluster
from hocket.errors import PeerError
from hocket.launch import run
from hocket.launch.processes import ProcessSpec
from hocket.measure.agent import Event
from hocket.measure.network import Note, Progress

AGENT = (sys.executable, "-m", "hocket.measure.agent")
"""The command of a rank of a probe, where the same Python is installed."""


def probe_hosts(
    processes: Sequence[ProcessSpec],
    *,
    store: str | None = None,
    serve: bool = True,
    progress: Progress | None = None,
    note: Note | None = None,
) -> Cluster:
    """Measure the network between hosts; each of `processes` runs `AGENT` on one.

    Args:
        processes: as for `hocket.launch.run.launch`. Several on one host count as its slots.
        store: `HOST:PORT` where all hosts meet; default: loopback.
        serve: whether this process is there, or rank 0 (on a testbed, whose network does not lead here).
        progress: called with steps done, steps in all and what is measured.
        note: called with what a person should know beside the cluster, such as losses.

    Raises:
        PeerError: an agent failed; the message has its words.
        RendezvousError: an agent cannot be started, or `store` is taken.

    >>> [host.slots for host in probe_hosts([ProcessSpec(argv=AGENT, host="here")] * 2).hosts]
    [2]
    """
    events = _Events(progress, note)
    outcome = run.launch(processes, store=store, serve=serve, quiet_others=True, out=events, err=io.BytesIO())
    if outcome.failures:
        raise PeerError(f"the probe failed: {outcome.failures[0]}")
    if events.cluster is None:
        raise PeerError("the probe ended without a result\nhint: does the same version run on all hosts?")
    return events.cluster


class _Events(io.BytesIO):
    """Takes the lines that rank 0 prints; those that are no events, such as its interpreter's warnings, are
    left out."""

    def __init__(self, progress: Progress | None, note: Note | None) -> None:
        super().__init__()
        self.cluster: Cluster | None = None
        self._progress = progress
        self._note = note

    def write(self, lines: bytes) -> int:  # type: ignore[override]  # the launcher writes bytes
        for line in lines.splitlines():
            with suppress(msgspec.DecodeError):
                self._take(msgspec.json.decode(line, type=Event))
        return len(lines)

    def _take(self, event: Event) -> None:
        self.cluster = event.cluster or self.cluster
        if event.note and self._note is not None:
            self._note(event.note)
        if self._progress is not None:
            self._progress(event.done, event.total, event.what)
