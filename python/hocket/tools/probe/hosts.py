"""Probe of hosts from outside: starts an agent on each through the launcher, follows it, and takes its result."""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

import msgspec

from hocket import typed
from hocket.artefacts.cluster import Cluster
from hocket.errors import PeerError
from hocket.start import run
from hocket.start.processes import ProcessSpec
from hocket.tools.probe.agent import Event, Order, saved_key
from hocket.tools.probe.options import ProbeOptions
from hocket.tools.probe.steps import Keep, Note, Progress, Step

AGENT = (sys.executable, "-m", "hocket.tools.probe.agent")
"""Command of a rank of a probe, if the same Python is installed."""


def probe_hosts(
    processes: Sequence[ProcessSpec],
    *,
    store: str | None = None,
    serve: bool = True,
    options: ProbeOptions | None = None,
    saved: Sequence[Step] = (),
    keep: Keep | None = None,
    progress: Progress | None = None,
    note: Note | None = None,
) -> Cluster:
    """Measure the network between hosts; each of `processes` runs `AGENT` on one.

    Args:
        processes: as for `hocket.start.run.launch`. Several on one host count as its slots.
        store: `HOST:PORT` where all hosts meet; default: loopback.
        serve: whether this process serves the store, or rank 0 does (on a testbed, whose network does not lead here).
        options: options of the probe; default: those of `ProbeOptions`.
        saved: finished steps of the same probe, which need `serve`; `keep` is called with every further one.
        progress: called with steps done, steps in all and the subject.
        note: called with remarks for people beside the cluster, such as losses.

    Raises:
        PeerError: an agent failed; the message has its output.
        RendezvousError: an agent cannot be started, or `store` is taken.

    >>> [host.slots for host in probe_hosts([ProcessSpec(argv=AGENT, host="here")] * 2).hosts]
    [2]
    """
    events = _Events(progress, note, keep)
    order = msgspec.json.encode(Order(options=options or ProbeOptions(), saved=len(saved))).decode()
    outcome = run.launch(
        [replace(each, argv=[*each.argv, order]) for each in processes],
        store=store,
        serve=serve,
        values={saved_key(step.number): msgspec.to_builtins(step) for step in saved},
        quiet_others=True,
        out=events,
        err=io.BytesIO(),
    )
    if outcome.failures:
        hint = (
            ""
            if events.any
            else "\nhint: where no agent can be started, --fping needs a shell and fping alone"
        )
        first = outcome.failures[0]
        raise first.error(f"the probe failed: {first}{hint}")
    if events.cluster is None:
        raise PeerError("the probe ended without a result\nhint: does the same version run on all hosts?")
    return events.cluster


class _Events(io.BytesIO):
    """Reader of rank 0's lines; skips lines that are no events, such as its interpreter's warnings."""

    def __init__(self, progress: Progress | None, note: Note | None, keep: Keep | None) -> None:
        super().__init__()
        self.cluster: Cluster | None = None
        self._progress = progress
        self._note = note
        self._keep = keep
        self._begun = b""
        self.any = False

    def write(self, lines: bytes) -> int:  # type: ignore[override]  # the launcher writes bytes
        for line in lines.splitlines():
            if line.startswith(b"+"):
                self._begun += line[1:]
            elif line.startswith(b"="):
                with suppress(msgspec.DecodeError):
                    self._take(typed.of_json(self._begun + line[1:], Event))
                self._begun = b""
        return len(lines)

    def _take(self, event: Event) -> None:
        self.any = True
        self.cluster = event.cluster or self.cluster
        if event.note and self._note is not None:
            self._note(event.note)
        if event.step is not None:
            if self._keep is not None:
                self._keep(event.step)
            return
        if self._progress is not None:
            self._progress(event.done, event.total, event.what)
