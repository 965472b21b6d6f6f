"""Messages between the members of an elastic job, its operators and its coordinator. Notes and orders are bytes of the native
machines."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from hocket import typed
from hocket.job.store.frames import FrameError
from hocket.job.store.messages import KEY_BYTES_MAX, Rank

Steps = Annotated[int, Meta(ge=0)]


Name = Annotated[str, Meta(max_length=KEY_BYTES_MAX)]
"""For people."""


class Comes(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="op", tag="comes"):
    """Which member this is, and a name of the process for people. A founder says it first on its connection, and every member again
    when it has met the others of a later generation."""

    member: Rank
    who: Name
    generation: int = 0


class Back(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="op", tag="back"):
    """First on another connection of a member that has lost the coordinator: which it is, and the last meeting that it was called
    to; none if it waits for its first."""

    member: Rank
    who: Name
    host: Name
    generation: Rank | None


class Joins(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="op", tag="joins"):
    """First on the connection of a process that wants to become a member, of that number if the launcher has started it."""

    host: Name
    process: int
    version: Name
    member: Rank | None = None


class AtEdge(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="op", tag="at_edge"):
    """A member has applied its last step, and waits for the newcomers of an epoch that has begun with them."""

    epoch: int


class Gives(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="op", tag="gives"):
    """What a member that was there before has at its first forward since that generation met: for those that joined then, to whom
    the coordinator passes it on."""

    generation: int
    state: bytes


class Lacks(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="op", tag="lacks"):
    """A member that joined with that generation waits for what one of the others gives."""

    generation: int


class CannotMeet(
    Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="op", tag="cannot_meet"
):
    """A member has given up on a meeting, since these members did not come to it in time; or since some did not, which it cannot
    name."""

    generation: int
    missing: tuple[Rank, ...]


class Notes(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="op", tag="notes"):
    """What a member's machine says."""

    note: bytes


class Resumed(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="op", tag="resumed"):
    """A member trains in an epoch: what it went through, for people. `steps_before`: those that the job had made when its ranks met
    last."""

    epoch: int
    took_s: float
    again: bool
    steps_before: int


class Finished(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="op", tag="finished"):
    """A member's script has ended in order, after so many steps; it waits until all others have."""

    steps: Steps


class MustLeave(
    Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="op", tag="must_leave"
):
    """An operator wants a member to leave in order: first on a connection of its own, and then passed on to the member."""

    member: Rank


class Answer(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="op", tag="answer"):
    """Last to an operator, or to a process that may not become or stay a member: whether what it wanted has come about, and what
    there is to say of that."""

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


class Welcome(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="op", tag="welcome"):
    """To all members and to itself: a process waits to become the member of this number."""

    member: Rank
    host: Name


class Regroup(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="op", tag="regroup"):
    """These members, by their ranks, leave whatever they had with one another, and meet anew at this store. Those that were members
    before come first."""

    generation: int
    members: tuple[Rank, ...]
    store: str


class Asks(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="op", tag="asks"):
    """In both directions: whoever has not heard the other for a while wants a sign of it."""


class Hears(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="op", tag="hears"):
    """That sign."""


class Unheard(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="op", tag="unheard"):
    """To a member that can be heard again: it has to say once more where it is."""


class Ends(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="op", tag="ends"):
    """The launcher ends the job: a SIGTERM is no notice to one rank, but the end of all."""


class Over(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="op", tag="over"):
    """All members have finished."""


FromMember = (
    Comes | Back | Joins | Notes | AtEdge | Gives | Lacks | CannotMeet | Resumed | Finished | Asks | Hears
)
FromClient = FromMember | MustLeave
FromCoordinator = (
    Orders
    | OtherFinished
    | Over
    | MustLeave
    | Welcome
    | Regroup
    | Gives
    | Answer
    | Asks
    | Hears
    | Unheard
    | Ends
)

_from_client: typed.Decoder[FromClient] = typed.json_decoder(FromClient)
_from_coordinator: typed.Decoder[FromCoordinator] = typed.json_decoder(FromCoordinator)


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
