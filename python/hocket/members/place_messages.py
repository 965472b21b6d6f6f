"""Messages between a process that no launcher numbers and the coordinator of an elastic job: the process gets a place in the job.

They come first on a connection. Once the process has its place, the messages of members follow.
"""

from __future__ import annotations

import contextlib

import msgspec

from hocket import typed
from hocket.job.store.messages import Message, Rank, reading
from hocket.members.member_messages import Name


class Arrives(Message, frozen=True, kw_only=True):
    """First message of a process that asks for its place."""

    host: Name
    process: int
    version: Name

    def __str__(self) -> str:
        return f"process {self.process} on {self.host}"


class Waits(Message, frozen=True, kw_only=True):
    """Reason why there is no place yet, and `what` there must be. `founds`: the job has not begun."""

    why: str
    what: str
    founds: bool


class Refuses(Message, frozen=True, kw_only=True):
    """Reason why there will be no place."""

    why: str


class Place(Message, frozen=True, kw_only=True):
    """Place of a process: a founder's `rank` of `world`, and the `store` at which all founders meet; or, all None, that of one that
    joins. `settings`: variables of the job's ranks; `job`: a name that no other job with this secret has."""

    job: Name
    settings: dict[str, str]
    rank: Rank | None = None
    world: Rank | None = None
    store: Name | None = None


_from_process: typed.Decoder[Arrives] = typed.json_decoder(Arrives)
_to_process: typed.Decoder[Waits | Refuses | Place] = typed.json_decoder(Waits | Refuses | Place)


def arrives(payload: bytes) -> Arrives | None:
    """Return the message of a process that asks for its place; None: the payload is something else."""
    with contextlib.suppress(msgspec.MsgspecError, RecursionError, UnicodeError):
        return _from_process.decode(payload)
    return None


read_answer = reading(_to_process, "a frame that no coordinator sends")
