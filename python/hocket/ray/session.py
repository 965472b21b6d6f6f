"""Interface of a training function: its place, the checkpoint to go on from, and reports. Loads no Ray.

Outside of a trainer, such as under `hocket run`, the function works as well: its place is its launcher's, and reports are logged.
"""

from __future__ import annotations

import logging
import os
import queue
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from hocket.errors import RendezvousError, UsageError
from hocket.job.environment import identify
from hocket.ray.checkpoint import Checkpoint

REPORTS_MAX = 64
"""Number of reports that wait to be fetched; a further one waits to be queued."""
FETCH_TIMEOUT_S = 300.0

log = logging.getLogger("hocket.ray")


@dataclass(frozen=True, kw_only=True)
class Context:
    """Place of this worker, with the methods of Ray Train's context."""

    rank: int
    world: int
    local_rank: int | None
    local_world: int | None

    def get_world_rank(self) -> int:
        """Return this rank."""
        return self.rank

    def get_world_size(self) -> int:
        """Return the number of ranks."""
        return self.world

    def get_local_rank(self) -> int | None:
        """Return the position among the ranks of this host; None: the launcher does not tell."""
        return self.local_rank

    def get_local_world_size(self) -> int | None:
        """Return the number of ranks on this host; None: the launcher does not tell."""
        return self.local_world


class Reported(msgspec.Struct, frozen=True, kw_only=True):
    """Report on its way; `packed`: the archive of its checkpoint."""

    index: int
    metrics: Mapping[str, Any]
    packed: bytes | None


class Session:
    """Session of one training function in this process. `resume`: the directory of the checkpoint to go on from."""

    def __init__(self, events: queue.Queue[Any], resume: Path | None) -> None:
        """Start with nothing reported."""
        self._events = events
        self._count = 0
        self.resume = None if resume is None else Checkpoint(resume)

    def report(self, metrics: Mapping[str, Any], packed: bytes | None) -> None:
        """Queue a report. RendezvousError: no process fetches reports."""
        reported = Reported(index=self._count, metrics=dict(metrics), packed=packed)
        try:
            self._events.put(reported, timeout=FETCH_TIMEOUT_S)
        except queue.Full:
            raise RendezvousError(
                f"{REPORTS_MAX} reports were not fetched within {FETCH_TIMEOUT_S:g} s\n"
                "hint: see whether the program that called `fit` still runs"
            ) from None
        self._count += 1


_current: Session | None = None


def enter(session: Session | None) -> None:
    """Connect this process's function with this session from now on; None: with none."""
    global _current  # noqa: PLW0603  # a process runs one training function at a time
    _current = session


def report(metrics: Mapping[str, Any], checkpoint: Checkpoint | None = None) -> None:
    """Report to the program that called `fit`; values and files are copied before this returns.

    Args:
        metrics: values by name, of any type that can be pickled.
        checkpoint: files to keep; files that several ranks give in their reports of the same number become one checkpoint.

    Raises:
        UsageError: an argument has another type.
        RendezvousError: no process fetches reports.
    """
    if not isinstance(metrics, Mapping):
        raise UsageError(f"report({metrics!r})\nhint: metrics are values by name, such as {{'loss': 0.5}}")
    if checkpoint is not None and not isinstance(checkpoint, Checkpoint):
        raise UsageError(
            f"report(…, checkpoint={checkpoint!r})\nhint: Checkpoint.from_directory(PATH) of hocket.ray is one"
        )
    if _current is None:
        log.info("report: %s", metrics)
        return
    _current.report(metrics, None if checkpoint is None else checkpoint.packed())


def get_checkpoint() -> Checkpoint | None:
    """Return the trainer's `resume_from_checkpoint`, in a directory of this node until the function ends; None: there is none."""
    return None if _current is None else _current.resume


def get_context() -> Context:
    """Return this worker's place."""
    me = identify(os.environ)
    return Context(rank=me.rank, world=me.world, local_rank=me.local_rank, local_world=me.local_world)
