"""Start of a function on workers: they become the ranks of a job of their own, whose store is on rank 0's node."""

from __future__ import annotations

import dataclasses
import pickle
import secrets
import time
from collections.abc import Callable, Sequence
from typing import Any

import ray
from ray.exceptions import GetTimeoutError, RayActorError, RayError

from hocket.errors import PeerError, RendezvousError, UsageError
from hocket.ray.workers import Member, said
from hocket.settings import Settings
from hocket.start.processes import ProcessSpec
from hocket.start.variables import variables

SECRET_BYTES = 32


def begin(
    members: Sequence[Member],
    function: Callable[..., object],
    arguments: tuple[Any, ...],
    settings: Settings,
    resume: bytes | None = None,
) -> None:
    """Begin the function on all workers, and return when all have begun; a `Watch` then follows them to their end.

    Args:
        members: workers, by rank.
        function: called with the arguments, on each worker.
        settings: settings of all ranks.
        resume: archive of the checkpoint.

    Raises:
        PeerError: a worker was lost before its function began.
        RendezvousError: a node lacks what the function imports, or does not answer within `start_timeout_s`.
        UsageError: the function cannot be pickled.
    """
    try:
        shared = ray.put(function)
    except (TypeError, pickle.PicklingError) as error:
        raise UsageError(
            f"the training function cannot travel to the workers: {str(error).splitlines()[0]}\n"
            "hint: make what it needs within it: connections, locks and open files stay where they are"
        ) from error
    archive = None if resume is None else ray.put(resume)
    secret, deadline_s = secrets.token_hex(SECRET_BYTES), time.monotonic() + settings.start_timeout_s
    opened = members[0].actor.open_meeting.remote(secret, settings.interface)
    meeting = _answer(members[0], opened, deadline_s)
    of_ranks = variables(
        [ProcessSpec(argv=(), host=member.host) for member in members],
        dataclasses.replace(settings, coordinator=None),
        store=meeting.store,
        served=True,
        secret=secret,
    )
    begun = [
        member.actor.start.remote(shared, arguments, {**own, **meeting.torch}, archive)
        for member, own in zip(members, of_ranks, strict=True)
    ]
    for member, each in zip(members, begun, strict=True):
        _answer(member, each, deadline_s)


def _answer(member: Member, reference: Any, deadline_s: float) -> Any:
    try:
        return ray.get(reference, timeout=max(0.0, deadline_s - time.monotonic()))
    except RayActorError as error:
        raise PeerError(
            f"{member} was lost before its function began: {said(error)}",
            rank=member.rank,
            host=member.host,
            why="failed",
        ) from error
    except GetTimeoutError as error:
        raise RendezvousError(
            f"{member} did not begin in time: {said(error)}\nhint: HOCKET_START_TIMEOUT_S gives it longer",
            rank=member.rank,
            host=member.host,
        ) from error
    except RayError as error:
        raise RendezvousError(
            f"the training function cannot be started on the workers: {said(error)}\n"
            "hint: what it imports must be on every node; ray.init(runtime_env={'working_dir': '.'}) copies scripts there"
        ) from error
