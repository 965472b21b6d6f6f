"""Messages between the members of an elastic job, its operators and its coordinator. Notes and orders are bytes of the native
machines."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from hocket.launch.frames import FrameError
from hocket.launch.messages import KEY_BYTES_MAX, Rank

Steps = Annotated[int, Meta(ge=0)]


class Comes(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="op", tag="comes"):
    """First on a connection: which member this is, by its rank at the start, and a name of the process for people."""

    member: Rank
    who: Annotated[str, Meta(max_length=KEY_BYTES_MAX)]


class Notes(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="op", tag="notes"):
    """What a member's machine says."""

    note: bytes


class Resumed(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="op", tag="resumed"):
    """A member trains in an epoch: what it went through, for people."""

    epoch: int
    took_s: float
    again: bool


class Finished(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="op", tag="finished"):
    """A member's script has ended in order, after so many steps; it waits until all others have."""

    steps: Steps


class MustLeave(
    Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="op", tag="must_leave"
):
    """An operator wants a member to leave in order: first on a connection of its own, and then passed on to the member."""

    member: Rank


class Answer(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="op", tag="answer"):
    """Last to an operator: whether what it wanted has come about, and what there is to say of that."""

    done: bool
    text: str


class Orders(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="op", tag="orders"):
    """What the coordinator's machine says."""

    order: bytes


class OtherFinished(
    Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="op", tag="other_finished"
):
    """Another member takes part in no step from this one on."""

    member: Rank
    steps: Steps


class Over(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="op", tag="over"):
    """All members have finished."""


FromMember = Comes | Notes | Resumed | Finished
FromClient = FromMember | MustLeave
FromCoordinator = Orders | OtherFinished | Over | MustLeave | Answer

_from_client: msgspec.json.Decoder[FromClient] = msgspec.json.Decoder(FromClient)
_from_coordinator: msgspec.json.Decoder[FromCoordinator] = msgspec.json.Decoder(FromCoordinator)


def read_from_client(payload: bytes) -> FromClient:
    """Decode what a member or an operator says; FrameError describes what is none."""
    try:
        return _from_client.decode(payload)
    except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
        raise FrameError(f"a frame that no member sends: {error}") from None


def read_from_coordinator(payload: bytes) -> FromCoordinator:
    """Decode what the coordinator says; FrameError describes what is none."""
    try:
        return _from_coordinator.decode(payload)
    except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
        raise FrameError(f"a frame that no coordinator sends: {error}") from None
