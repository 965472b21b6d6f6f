"""What an operator asks of the coordinator of an elastic job that runs."""

from __future__ import annotations

import time

import msgspec

from hocket.errors import RendezvousError
from hocket.job.store import frames
from hocket.job.store.store import connect
from hocket.members.member_messages import Answer, MustLeave, read_from_coordinator
from hocket.start.running import RunningJob


def leave(job: RunningJob, member: int, timeout_s: float) -> str:
    """A member is to leave in order; waits until the others have gone on without it. What there is to say of that.

    Raises RendezvousError: the coordinator cannot be reached or says why the member stays, or it has not left within `timeout_s`.
    """
    deadline_s = time.monotonic() + timeout_s
    _, channel = connect(job.coordinator, bytes.fromhex(job.secret), timeout_s)
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
