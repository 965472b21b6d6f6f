"""What a training function asks and tells: its place, the checkpoint to go on from, and reports. Loads no Ray.

Outside of a trainer, such as under `hocket run`, the same function works: its place is its launcher's, reports are logged.
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
"""That wait to be fetched; a further one waits."""
FETCH_TIMEOUT_S = 300.0

log = logging.getLogger("hocket.ray")


@dataclass(frozen=True, kw_only=True)
class Context:
    """This worker's place, with the methods of Ray Train's context."""

    rank: int
    world: int
    local_rank: int | None
    local_world: int | None

    def get_world_rank(self) -> int:
        """This rank."""
        return self.rank

    def get_world_size(self) -> int:
        """How many ranks there are."""
        return self.world

    def get_local_rank(self) -> int | None:
        """Position among the ranks of this host; None: the launcher does not tell."""
        return self.local_rank

    def get_local_world_size(self) -> int | None:
        """How many ranks this host has; None: the launcher does not tell."""
        return self.local_world


class Reported(msgspec.Struct, frozen=True, kw_only=True):
    """A report on its way; `packed`: the archive of its checkpoint."""

    index: int
    metrics: Mapping[str, Any]
    packed: bytes | None


class Session:
    """Of one training function in this process. `resume`: the directory of the checkpoint to go on from."""

    def __init__(self, events: queue.Queue[Any], resume: Path | None) -> None:
        """Nothing is reported yet."""
        self._events = events
        self._count = 0
        self.resume = None if resume is None else Checkpoint(resume)

    def report(self, metrics: Mapping[str, Any], packed: bytes | None) -> None:
        """RendezvousError: nobody takes reports."""
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
    """From now on this process's function speaks with this session; None: with none."""
    global _current  # noqa: PLW0603  # a process runs one training function at a time
    _current = session


def report(metrics: Mapping[str, Any], checkpoint: Checkpoint | None = None) -> None:
    """Tell the program that called `fit`; what is given is copied before this returns.

    Args:
        metrics: values by name, of any type that can be pickled.
        checkpoint: files to keep; those of several ranks in their reports of the same number become one checkpoint.

    Raises:
        UsageError: it is not that.
        RendezvousError: nobody takes reports.
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
    """What the trainer's `resume_from_checkpoint` was, in a directory of this node until the function ends; None: nothing."""
    return None if _current is None else _current.resume


def get_context() -> Context:
    """This worker's place."""
    me = identify(os.environ)
    return Context(rank=me.rank, world=me.world, local_rank=me.local_rank, local_world=me.local_world)
