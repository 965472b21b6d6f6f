"""Messages between the members of an elastic job, its operators and its coordinator. Notes and orders are bytes of the native
machines."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from hocket import typed
from hocket.job.store.messages import KEY_BYTES_MAX, Message, Rank, reading

Steps = Annotated[int, Meta(ge=0)]


Name = Annotated[str, Meta(max_length=KEY_BYTES_MAX)]
"""Text for people."""


class Comes(Message, frozen=True, kw_only=True):
    """Number of a member, and its process's name for people. A founder sends this first on its connection, and every member again
    when it has met the others of a later generation."""

    member: Rank
    who: Name
    generation: int = 0


class Back(Message, frozen=True, kw_only=True):
    """First message on a new connection of a member that has lost the coordinator: its number, and the last meeting that it was
    called to; None if it waits for its first. `state`: as in `Joins`; `job`: as in `Place`, None if a launcher has placed it."""

    member: Rank
    who: Name
    host: Name
    generation: Rank | None
    state: Name | None = None
    job: Name | None = None


class Joins(Message, frozen=True, kw_only=True):
    """First message of a process that wants to become a member, with that number if the launcher has started it. `state`: address
    at which it takes the state beside training; None: it does not."""

    host: Name
    process: int
    version: Name
    member: Rank | None = None
    state: Name | None = None


class Ready(Message, frozen=True, kw_only=True):
    """Notice of a process that waits to become a member: it has as much of the state as it gets beside training."""


class AtEdge(Message, frozen=True, kw_only=True):
    """Notice that a member has applied its last step, and waits for the newcomers of an epoch that has begun with them."""

    epoch: int


class Gives(Message, frozen=True, kw_only=True):
    """Data of an earlier member at its first forward since that generation met. The coordinator passes them on to members that
    joined then."""

    generation: int
    state: bytes


class Lacks(Message, frozen=True, kw_only=True):
    """Notice that a member which joined with that generation waits for data that another member gives."""

    generation: int


class Prepared(Message, frozen=True, kw_only=True):
    """Notice that a member has prepared all that it can to meet others at that store; if not `done`, it could not."""

    store: str
    done: bool


class CannotMeet(Message, frozen=True, kw_only=True):
    """Notice that a member has given up on a meeting, since these members did not come in time; empty if it cannot name them."""

    generation: int
    missing: tuple[Rank, ...]


class Notes(Message, frozen=True, kw_only=True):
    note: bytes


class Resumed(Message, frozen=True, kw_only=True):
    """Report, for people, that a member trains in an epoch, after so many steps of the job."""

    epoch: int
    took_s: float
    again: bool
    steps: Steps


class Committed(Message, frozen=True, kw_only=True):
    """Report, for people, of an epoch's first member: what stands since its last step, `age_s` seconds ago.

    `steps` is the number of the job's steps. Since the members of `generation` met, `shares` is the sum over steps of the ranks in
    each, and `samples` the number of samples, 0 where nobody knows them.
    """

    generation: Steps
    steps: Steps
    shares: Steps
    samples: Steps
    age_s: Annotated[float, Meta(ge=0)]


class Finished(Message, frozen=True, kw_only=True):
    """Notice that a member's script has ended in order, after so many steps; the member waits until all others' have."""

    steps: Steps


class MustLeave(Message, frozen=True, kw_only=True):
    """Request that a member leave in order: first message of an operator, on its own connection; then passed on to the member."""

    member: Rank


class Answer(Message, frozen=True, kw_only=True):
    """Last message to an operator, or to a process that may not become or stay a member: whether its request was met, and why."""

    done: bool
    text: str


class Orders(Message, frozen=True, kw_only=True):
    """Order of the coordinator's machine."""

    order: bytes


class OtherFinished(Message, frozen=True, kw_only=True):
    """Notice that another member takes part in no step from `steps` on."""

    member: Rank
    steps: Steps


class Welcome(Message, frozen=True, kw_only=True):
    """Notice to all members and to the process itself that it waits to become the member of this number. `state`: as in `Joins`."""

    member: Rank
    host: Name
    state: Name | None = None


class Prepares(Message, frozen=True, kw_only=True):
    """Order to these members, by rank, to prepare beside training what they will need to meet at this store, as that generation.
    None: they forget what they have prepared."""

    members: tuple[Rank, ...] = ()
    store: str | None = None
    generation: int = 0


class Regroup(Message, frozen=True, kw_only=True):
    """Order to these members, by rank, to leave whatever they had with one another and meet again at this store. Earlier members
    come first. `prepared`: all go on with what they have prepared there."""

    generation: int
    members: tuple[Rank, ...]
    store: str
    prepared: bool = False


class Asks(Message, frozen=True, kw_only=True):
    """Request, in both directions, for a sign of the other end after a silence."""


class Hears(Message, frozen=True, kw_only=True):
    """Sign that answers `Asks`."""


class Unheard(Message, frozen=True, kw_only=True):
    """Notice to a member that can be heard again: the member must report its state once more."""


class Ends(Message, frozen=True, kw_only=True):
    """Notice that the launcher ends the job: a SIGTERM then means the end of all ranks, not a notice to one."""


class Over(Message, frozen=True, kw_only=True):
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
    | Prepared
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
    | Prepares
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


read_from_client = reading(_from_client, "a frame that no member sends")
read_from_coordinator = reading(_from_coordinator, "a frame that no coordinator sends")
