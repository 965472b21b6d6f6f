"""Restoring programs of a session from the state that another job saved."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

from hocket import _native
from hocket.errors import UsageError
from hocket.job.rendezvous import Job
from hocket.training.checkpoint import states
from hocket.training.checkpoint.saved import SavedSession
from hocket.training.memory.buckets import LoadedBucket

NAMED_MAX = 4
"""Number of items that a message names."""


def resume(
    saved: SavedSession, buckets: Sequence[LoadedBucket], engine: _native.Engine, job: Job, *, strict: bool
) -> None:
    """Restore saved state; all ranks call it. State of buckets with other elements starts anew, with a warning.

    UsageError: ranks give states of different moments; `strict`: state of parameters is missing, or nobody uses it.
    """
    held = saved.held(job.rank)
    told = [held.digest(), None if saved.delays is None else saved.delays.turns.made]
    everyone = job.store.gather("load_state_dict", job.rank, job.world, told, job.settings.timeout_s)
    other = next((rank for rank, each in enumerate(everyone) if each != everyone[0]), None)
    if other is not None:
        raise UsageError(
            f"load_state_dict: the states of ranks 0 and {other} were not saved at the same moment of the same job\n"
            "hint: give each rank its own file of one checkpoint"
        )
    anew = states.put(held, buckets, engine, job.rank)
    of_buckets = [each for each in anew if " of bucket " in each]
    of_parameters = [each for each in anew if each not in of_buckets and saved.rank == job.rank]
    unused = sorted({each.name for each in held.parameters} - _names(buckets, engine, job.rank))
    if strict and (of_parameters or unused):
        what = [*of_parameters, *(f"`{name}`, which no policy of this plan has" for name in unused)]
        more = f" and {len(what) - NAMED_MAX} more" if len(what) > NAMED_MAX else ""
        raise UsageError(
            f"load_state_dict: no state of {', '.join(what[:NAMED_MAX])}{more}\n"
            "hint: train with the policies that the state is of, or strict=False, which starts anew what is not there"
            if of_parameters
            else f"load_state_dict: nobody uses {', '.join(what[:NAMED_MAX])}{more}\n"
            "hint: train with the policies that the state is of, or strict=False, which leaves it out"
        )
    if of_buckets and job.rank == 0:
        warnings.warn(
            f"load_state_dict: {', '.join(of_buckets[:NAMED_MAX])} starts anew: it is of a bucket with other elements",
            RuntimeWarning,
            stacklevel=2,
        )


def _names(buckets: Sequence[LoadedBucket], engine: _native.Engine, rank: int) -> set[str]:
    return {each.name for each in states.held(buckets, engine, rank).parameters}
