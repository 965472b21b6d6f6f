"""Messages between a process that no launcher numbers and the coordinator of an elastic job: the process gets a place in the job.

They come first on a connection. Once the process has its place, the messages of members follow.
"""

from __future__ import annotations

import contextlib

import msgspec
from msgspec import Struct

from hocket import typed
from hocket.job.store.frames import FrameError
from hocket.job.store.messages import Rank
from hocket.members.member_messages import Name


class Arrives(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="op", tag="arrives"):
    """First message of a process that asks for its place."""

    host: Name
    process: int
    version: Name

    def __str__(self) -> str:
        return f"process {self.process} on {self.host}"


class Waits(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="op", tag="waits"):
    """Reason why there is no place yet, and `what` there must be. `founds`: the job has not begun."""

    why: str
    what: str
    founds: bool


class Refuses(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="op", tag="refuses"):
    """Reason why there will be no place."""

    why: str


class Place(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="op", tag="place"):
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


def read_answer(payload: bytes) -> Waits | Refuses | Place:
    """Decode an answer to that. FrameError: the payload is none."""
    try:
        return _to_process.decode(payload)
    except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
        raise FrameError(f"a frame that no coordinator sends: {error}") from None
