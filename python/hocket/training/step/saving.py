"""State of a session for a checkpoint: that of its programs, and gradients that were made and are not applied."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from msgspec.structs import replace

from hocket.errors import UsageError
from hocket.training.checkpoint import states
from hocket.training.checkpoint.resume import resume
from hocket.training.checkpoint.saved import SavedDelays, SavedSession
from hocket.training.checkpoint.slots import fill, going_on, layout_of
from hocket.training.memory.device import write

if TYPE_CHECKING:
    from hocket.training.step.step import Step

log = logging.getLogger("hocket.checkpoint")


def saved(step: Step) -> SavedSession:
    """Return the state. UsageError: a step is missing, or another plan begins."""
    delays = step.delays
    if delays is not None:
        delays.check_applied("state_dict")
    step.finish_step()
    reduced = step.commit.settle()
    held = states.held(step.buckets, step.engine, step.commit.job.rank)
    found = SavedSession.of(held, step.job)
    if delays is None:
        return found
    if step.agreement.begins:
        raise UsageError(
            "state_dict: another plan begins with one of the next iterations, and open turns go on in the same alone\n"
            "hint: hk.flush(model) first"
        )
    return replace(found, delays=delays.saved(_layout(step), reduced))


def restore(step: Step, saved: SavedSession, *, strict: bool) -> SavedDelays | None:
    """Restore the state; return where turns go on, None: nowhere. UsageError: turns are open and belong to another plan or job."""
    step.finish_step()
    resume(saved, step.buckets, step.engine, step.job, strict=strict)
    step.commit.restored()
    if step.delays is None:
        return None
    delays = going_on(saved, _layout(step), step.job, len(step.launches))
    updates = step.updates
    if updates.local is not None and delays is None:
        outer = None if saved.delays is None else saved.delays.own
        if outer is not None and outer.size:
            step.framework.local.restore(outer, apart=False)
        elif updates.local.outer.momentum:
            log.warning("load_state_dict: this state has no outer momentum, which begins at zero")
    if delays is None:
        return None
    updates.begin(delays.schedule, anew=False)
    step.delays.restore(delays)
    updates.unmade.restore(delays.turns)
    if updates.own is not None:
        updates.own.begin(delays.turns.applied)
        updates.own.restore(delays.own_unmade)
        if updates.local is not None:
            step.framework.local.restore(delays.own, apart=True)
        else:
            step.framework.anchor.restore(delays.own)
    updates.drop()
    fill(step.buckets, delays.slots)
    write(step.framework.device, (slot.memory for bucket in step.buckets for slot in bucket.slots))
    return delays


def _layout(step: Step) -> str:
    plan = step.source.plan(step.source.epochs.current)
    watched = step.delays is not None and step.delays.sentinel is not None
    return step.commit.saved_as + layout_of(plan, step.launches, step.job, watched=watched)
