"""Messages between client and store: one request, then its answer. The store never looks into values."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta, Raw, Struct

from hocket import _native, typed
from hocket.job.store.frames import FrameError

T = TypeVar("T")

WORLD_MAX = 1 << 16
KEY_BYTES_MAX = 512
REASON_MAX = 1 << 16
TIMEOUT_MAX_S = _native.TIMEOUT_MAX_S
"""Longest wait of any kind, also native ones: above any sum of settings, and far below what clocks can count."""

Key = Annotated[str, Meta(min_length=1, max_length=KEY_BYTES_MAX)]
Rank = Annotated[int, Meta(ge=0, lt=WORLD_MAX)]
World = Annotated[int, Meta(ge=1, le=WORLD_MAX)]
Timeout = Annotated[float, Meta(ge=0, le=TIMEOUT_MAX_S)]


def _op(name: str) -> str:
    """Return the `op` of a message's class: `at_edge` for `AtEdge`."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


class Message(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="op", tag=_op):
    """Message of one kind, which its `op` names."""


class Hello(Message, frozen=True, kw_only=True):
    """First request: the rank, and a name of the process for people. Rank None only observes."""

    rank: Rank | None
    who: Annotated[str, Meta(max_length=KEY_BYTES_MAX)]


class Set(Message, frozen=True, kw_only=True):
    """Request to set the value of a key, replacing the old one."""

    key: Key
    value: Raw


class Get(Message, frozen=True, kw_only=True):
    """Request to wait until a key has a value. `at_least`: it is a counter, which is to come to this."""

    key: Key
    timeout_s: Timeout
    at_least: int | None = None


class Add(Message, frozen=True, kw_only=True):
    """Request to add to a counter that starts at 0; the answer is its new value."""

    key: Key
    n: int


class Gather(Message, frozen=True, kw_only=True):
    """Request to wait until `world` ranks have given their values under a name; the answer is all values by rank.

    `without_lost`: ranks that are lost, or have left, are not waited for; their values are null.
    """

    name: Key
    rank: Rank
    world: World
    value: Raw
    timeout_s: Timeout
    without_lost: bool = False


class Ping(Message, frozen=True, kw_only=True):
    """Request for the store's monotonic clock in nanoseconds."""


class Tell(Message, frozen=True, kw_only=True):
    """Report of how a rank gets on, in place of its last one. The answer: a `live.Wanted`."""

    rank: Rank
    status: Raw


class Look(Message, frozen=True, kw_only=True):
    """Request for the last reports of all ranks, and for those that are gone. `stack_of`: rank that is to report its stack next;
    `dumps`: all ranks are to write dumps."""

    stack_of: Rank | None = None
    dumps: bool = False


class Leave(Message, frozen=True, kw_only=True):
    """Last request. A rank with a reason gives up, and every waiting rank receives the reason.

    `cause`: other rank because of which it does not go on, if any; `why`: what that rank did, as in `PeerError.why`.
    """

    reason: Annotated[str, Meta(max_length=REASON_MAX)] | None
    cause: Rank | None = None
    why: Annotated[str, Meta(max_length=32)] | None = None


class Done(Message, frozen=True, kw_only=True):
    value: Raw


class Failed(Message, frozen=True, kw_only=True):
    """Answer to a refused or failed request; `message` is for people. `rank`: at fault; `missing`: ranks that did not come in
    time."""

    message: str
    rank: Rank | None = None
    missing: tuple[Rank, ...] = ()


Request = Hello | Set | Get | Add | Gather | Ping | Tell | Look | Leave
Answer = Done | Failed


def reading(decoder: typed.Decoder[T], what: str) -> Callable[[bytes], T]:
    """Return the function that decodes messages from frames' payloads, and raises FrameError for others: `what` they are."""

    def read(payload: bytes) -> T:
        try:
            return decoder.decode(payload)
        except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
            raise FrameError(f"{what}: {error}") from None

    return read


_requests: typed.Decoder[Request] = typed.json_decoder(Request)
_answers: typed.Decoder[Answer] = typed.json_decoder(Answer)
read_request = reading(_requests, "a frame that is no request")
read_answer = reading(_answers, "a frame that is no answer")
