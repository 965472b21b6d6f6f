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
"""Text for people."""


class Comes(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="op", tag="comes"):
    """Number of a member, and its process's name for people. A founder sends this first on its connection, and every member again
    when it has met the others of a later generation."""

    member: Rank
    who: Name
    generation: int = 0


class Back(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="op", tag="back"):
    """First message on a new connection of a member that has lost the coordinator: its number, and the last meeting that it was
    called to; None if it waits for its first. `state`: as in `Joins`; `job`: as in `Place`, None if a launcher has placed it."""

    member: Rank
    who: Name
    host: Name
    generation: Rank | None
    state: Name | None = None
    job: Name | None = None


class Joins(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="op", tag="joins"):
    """First message of a process that wants to become a member, with that number if the launcher has started it. `state`: address
    at which it takes the state beside training; None: it does not."""

    host: Name
    process: int
    version: Name
    member: Rank | None = None
    state: Name | None = None


class Ready(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="op", tag="ready"):
    """Notice of a process that waits to become a member: it has as much of the state as it gets beside training."""


class AtEdge(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="op", tag="at_edge"):
    """Notice that a member has applied its last step, and waits for the newcomers of an epoch that has begun with them."""

    epoch: int


class Gives(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="op", tag="gives"):
    """Data of an earlier member at its first forward since that generation met. The coordinator passes them on to members that
    joined then."""

    generation: int
    state: bytes


class Lacks(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="op", tag="lacks"):
    """Notice that a member which joined with that generation waits for data that another member gives."""

    generation: int


class CannotMeet(
    Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="op", tag="cannot_meet"
):
    """Notice that a member has given up on a meeting, since these members did not come in time; empty if it cannot name them."""

    generation: int
    missing: tuple[Rank, ...]


class Notes(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="op", tag="notes"):
    note: bytes


class Resumed(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="op", tag="resumed"):
    """Report, for people, that a member trains in an epoch, after so many steps of the job."""

    epoch: int
    took_s: float
    again: bool
    steps: Steps


class Committed(
    Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="op", tag="committed"
):
    """Report, for people, of an epoch's first member: what stands since its last step, `age_s` seconds ago.

    `steps` is the number of the job's steps. Since the members of `generation` met, `shares` is the sum over steps of the ranks in
    each, and `samples` the number of samples, 0 where nobody knows them.
    """

    generation: Steps
    steps: Steps
    shares: Steps
    samples: Steps
    age_s: Annotated[float, Meta(ge=0)]


class Finished(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="op", tag="finished"):
    """Notice that a member's script has ended in order, after so many steps; the member waits until all others' have."""

    steps: Steps


class MustLeave(
    Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="op", tag="must_leave"
):
    """Request that a member leave in order: first message of an operator, on its own connection; then passed on to the member."""

    member: Rank


class Answer(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="op", tag="answer"):
    """Last message to an operator, or to a process that may not become or stay a member: whether its request was met, and why."""

    done: bool
    text: str


class Orders(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="op", tag="orders"):
    """Order of the coordinator's machine."""

    order: bytes


class OtherFinished(
    Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="op", tag="other_finished"
):
    """Notice that another member takes part in no step from `steps` on."""

    member: Rank
    steps: Steps


class Welcome(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="op", tag="welcome"):
    """Notice to all members and to the process itself that it waits to become the member of this number. `state`: as in `Joins`."""

    member: Rank
    host: Name
    state: Name | None = None


class Regroup(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="op", tag="regroup"):
    """Order to these members, by rank, to leave whatever they had with one another and meet again at this store. Earlier members
    come first."""

    generation: int
    members: tuple[Rank, ...]
    store: str


class Asks(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="op", tag="asks"):
    """Request, in both directions, for a sign of the other end after a silence."""


class Hears(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="op", tag="hears"):
    """Sign that answers `Asks`."""


class Unheard(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="op", tag="unheard"):
    """Notice to a member that can be heard again: the member must report its state once more."""


class Ends(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="op", tag="ends"):
    """Notice that the launcher ends the job: a SIGTERM then means the end of all ranks, not a notice to one."""


class Over(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="op", tag="over"):
    """Notice that all members have finished."""


FromMember = (
    Comes
    | Back
    | Joins
    | Ready
    | Notes
    | AtEdge
    | Gives
    | Lacks
    | CannotMeet
    | Resumed
    | Committed
    | Finished
    | Asks
    | Hears
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
    """Decode a message of a member or an operator. FrameError: the payload is none."""
    try:
        return _from_client.decode(payload)
    except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
        raise FrameError(f"a frame that no member sends: {error}") from None


def read_from_coordinator(payload: bytes) -> FromCoordinator:
    """Decode a message of the coordinator. FrameError: the payload is none."""
    try:
        return _from_coordinator.decode(payload)
    except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
        raise FrameError(f"a frame that no coordinator sends: {error}") from None
