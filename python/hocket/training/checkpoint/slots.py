"""Contents of the slots of buckets with turns: read for a checkpoint, and written again when training resumes."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from hocket import _native
from hocket.artefacts.plan import Plan
from hocket.errors import UsageError
from hocket.job.rendezvous import Job
from hocket.training.checkpoint.saved import SavedDelays, SavedSession
from hocket.training.memory.buckets import Launch, LoadedBucket
from hocket.training.memory.turns import SavedTurns

Bytes = np.ndarray[Any, Any]


def layout_of(plan: Plan, launches: Sequence[Launch], job: Job, *, watched: bool) -> str:
    """Return a digest of the layout of open turns: schedules, buckets, ranks, and if a sentinel may change the schedule."""
    ranges = [launch.compiled.ranges for launch in launches]
    held = msgspec.json.encode((plan.schedule, plan.safer, ranges, job.world, watched))
    return hashlib.blake2b(held, digest_size=16).hexdigest()


def going_on(saved: SavedSession, layout: str, job: Job, launches: int) -> SavedDelays | None:
    """Return turns with which a rank of this job goes on, under its `layout`; None: there are none. UsageError: turns are open and
    of another plan or job, or damaged."""
    delays = saved.delays
    if delays is None:
        return None
    if delays.layout != layout or saved.rank != job.rank:
        if delays.open:
            raise UsageError(
                f"load_state_dict: gradients of {delays.open} iterations are made and not applied, by rank {saved.rank} of "
                f"{saved.world}, with another plan or for another job than this rank {job.rank} of {job.world}\n"
                "hint: go on with the same plan and ranks, or call hk.flush(model) before hk.state_dict(model)"
            )
        return None
    if wrong := _native.schedule_faults(delays.schedule, launches):
        raise UsageError(f"load_state_dict: the schedule in this state is damaged: {wrong[0]}")
    return delays


def slots_of(
    buckets: Sequence[LoadedBucket], turns: SavedTurns, shown: Mapping[int, int]
) -> dict[str, tuple[Bytes | None, ...]]:
    """Return by gradient its bytes in each slot that has part of a turn. `shown`: by arena, the slot that was applied and not
    zeroed yet."""
    found: dict[str, tuple[Bytes | None, ...]] = {}
    for at, (bucket, own) in enumerate(zip(buckets, turns.turns, strict=True)):
        used = {turn.slot for turn in own[:-1]}
        opened = own[-1].slot
        # Gradients accumulated without communication belong to no iteration yet.
        if shown.get(at) != opened:
            used.add(opened)
        for name, span in _spans(bucket).items():
            found[name] = tuple(
                _bytes(slot, span) if number in used else None for number, slot in enumerate(bucket.slots)
            )
    return found


def fill(buckets: Sequence[LoadedBucket], slots: Mapping[str, Sequence[Bytes | None]]) -> None:
    """Fill the slots with saved bytes, and with zeros elsewhere. UsageError: the bytes belong to other gradients."""
    for bucket in buckets:
        for name, span in _spans(bucket).items():
            saved = slots.get(name, ())
            if len(saved) != len(bucket.slots):
                raise UsageError(
                    f"load_state_dict: {len(saved)} slots of gradient `{name}`, not {len(bucket.slots)}"
                )
            for slot, own in zip(bucket.slots, saved, strict=True):
                into = _bytes(slot, span)
                if own is not None and own.shape != into.shape:
                    raise UsageError(
                        f"load_state_dict: {own.size} bytes of the gradient of `{name}`, which has {into.size}"
                    )
                into[:] = 0 if own is None else own


def _spans(bucket: LoadedBucket) -> dict[str, tuple[int, int]]:
    """Return each gradient's span of bytes in the bucket's memory."""
    spans, start = {}, 0
    for each in bucket.gradients:
        spans[each.name] = start, start + each.bytes
        start += each.bytes
    return spans


def _bytes(slot: LoadedBucket, span: tuple[int, int]) -> Bytes:
    return np.frombuffer(memoryview(slot.memory), np.uint8)[span[0] : span[1]]
