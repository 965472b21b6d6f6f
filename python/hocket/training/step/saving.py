"""State of a session for a checkpoint: that of its programs, and gradients that were made and are not applied."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from hocket.errors import UsageError
from hocket.training.checkpoint import states
from hocket.training.checkpoint.resume import resume
from hocket.training.checkpoint.saved import SavedDelays, SavedSession
from hocket.training.checkpoint.slots import fill, going_on, layout_of

if TYPE_CHECKING:
    from hocket.training.step.step import Step


def saved(session: Step) -> SavedSession:
    """Return the state. UsageError: a step is missing, or another plan begins."""
    delays = session.delays
    if delays is not None:
        delays.check_applied("state_dict")
    session.finish_step()
    reduced = session.commit.settle()
    held = states.held(session.buckets, session.engine, session.commit.job.rank)
    found = SavedSession.of(held, session.job)
    if delays is None:
        return found
    if session.agreement.begins:
        raise UsageError(
            "state_dict: another plan begins with one of the next iterations, and open turns go on in the same alone\n"
            "hint: hk.flush(model) first"
        )
    return replace(found, delays=delays.saved(_layout(session), reduced))


def restore(session: Step, saved: SavedSession, *, strict: bool) -> SavedDelays | None:
    """Restore the state; return where turns go on, None: nowhere. UsageError: turns are open and belong to another plan or job."""
    session.finish_step()
    resume(saved, session.buckets, session.engine, session.job, strict=strict)
    session.commit.restored()
    if session.delays is None:
        return None
    delays = going_on(saved, _layout(session), session.job, len(session.launches))
    if delays is None:
        return None
    updates = session.updates
    updates.begin(delays.schedule, anew=False)
    session.delays.restore(delays)
    updates.unmade.restore(delays.turns)
    updates.drop()
    fill(session.buckets, delays.slots)
    return delays


def _layout(session: Step) -> str:
    plan = session.source.plan(session.source.epochs.current)
    watched = session.delays is not None and session.delays.sentinel is not None
    return session.commit.layout(layout_of(plan, session.launches, session.job, watched=watched))
