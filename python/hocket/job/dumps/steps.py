"""Steps of a training as calls, made when a dump is: which step a rank is in tells who has not come to it.

Each step is one collective, the exchange of all its buckets. So a dump costs training nothing until it is written.
"""

from __future__ import annotations

import time

from hocket.job.dumps.calls import Call, Calls, Frame, Group, State
from hocket.job.live.progress import Progress

KEPT = 4
"""Number of complete steps in a dump: ranks are less than two steps apart."""
FIRST_RECORD = 1 << 40
"""Record of step 0. `fr_trace` leaves out records that come before the first one of some rank, and this process may have others."""
NAME, TEXT = "hocket", "gradients of hocket.distribute"


def calls_of(
    progress: Progress, ranks: tuple[int, ...], timeout_s: float, frames: tuple[Frame, ...]
) -> Calls:
    """Return the latest steps. `ranks`: those that train; `frames`: of this one's thread, innermost first."""
    if not progress.buckets:
        return Calls(groups=(), calls=())
    done = progress.begun + progress.steps
    ended = [
        _call(progress, step, "completed", timeout_s, ())
        for step in range(max(progress.begun, done - KEPT), done)
    ]
    states: dict[str, State] = {"backward": "scheduled", "waiting": "started"}
    state = states.get(progress.doing)
    now = () if state is None else (_call(progress, done, state, timeout_s, frames),)
    return Calls(groups=(Group(name=NAME, text=TEXT, ranks=ranks),), calls=(*ended, *now))


def _call(progress: Progress, step: int, state: State, timeout_s: float, frames: tuple[Frame, ...]) -> Call:
    sizes = tuple(((elements,), dtype) for elements, dtype in progress.buckets)
    now_ns = time.monotonic_ns()
    return Call(
        record=FIRST_RECORD + step,
        group=NAME,
        number=step + 1,
        what="allreduce_coalesced",
        inputs=sizes,
        outputs=sizes,
        state=state,
        created_ns=now_ns,
        started_ns=None if state == "scheduled" else now_ns,
        ended_ns=now_ns if state == "completed" else None,
        timeout_s=timeout_s,
        frames=frames,
    )
