"""Requests of an operator to the coordinator of a running elastic job."""

from __future__ import annotations

import time

import msgspec

from hocket.errors import RendezvousError
from hocket.job.store import frames
from hocket.job.store.sought import COORDINATOR
from hocket.job.store.store import connect
from hocket.members.member_messages import Answer, MustLeave, read_from_coordinator
from hocket.start.running import RunningJob


def leave(job: RunningJob, member: int, timeout_s: float) -> str:
    """Ask that a member leave in order, and wait until the others have gone on without it. Return the coordinator's answer.

    RendezvousError: the coordinator cannot be reached or says why the member stays, or the member has not left within `timeout_s`.
    """
    deadline_s = time.monotonic() + timeout_s
    _, channel = connect(job.coordinator, bytes.fromhex(job.secret), timeout_s, sought=COORDINATOR)
    try:
        channel.send(frames.encode(msgspec.json.encode(MustLeave(member=member))), deadline_s)
        received = frames.Frames()
        while True:
            received.feed(channel.receive(deadline_s))
            while (payload := received.poll()) is not None:
                answer = read_from_coordinator(payload)
                if isinstance(answer, Answer):
                    if answer.done:
                        return answer.text
                    raise RendezvousError(answer.text)
    except TimeoutError:
        raise RendezvousError(
            f"rank {member} has not left within {timeout_s:g} s: ranks agree on it at the end of a step\n"
            "hint: it will leave when they do; see what the job prints"
        ) from None
    except ConnectionError:
        raise RendezvousError(f"the job at {job.coordinator} ended before rank {member} had left") from None
    finally:
        channel.close()
