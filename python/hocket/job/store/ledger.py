"""State of the store, without I/O: values, counters, gathers, members, and waits with their deadlines.

`handle`, `expire` and `disconnect` take requests and the time; `poll` returns answers. A client has one request at a time. No
client waits in vain: once a rank is lost or gave up, all waits, current and later, end with the reason; but gathers `without_lost`
go on without it.
"""

from __future__ import annotations

import msgspec
from msgspec import Raw

from hocket import typed
from hocket.job.store.frames import FRAME_BYTES_MAX, FrameError
from hocket.job.store.live import Live
from hocket.job.store.messages import (
    WORLD_MAX,
    Add,
    Answer,
    Done,
    Failed,
    Gather,
    Get,
    Hello,
    Leave,
    Look,
    Ping,
    Request,
    Set,
    Tell,
    read_request,
)
from hocket.job.store.verdict import Report
from hocket.job.store.waits import Round, Waits, did_not_come, is_enough, nobody_gave

DOUBT_S = 5.0
"""Time to wait for a rank after a process with another secret has claimed to be that rank."""

ANSWER_BYTES = 64
"""Bytes that an answer adds to its value."""

NOTHING = Raw(b"null")


KEYS_MAX = 1 << 16
STORED_BYTES_MAX = 16 * FRAME_BYTES_MAX


class Values:
    """Values that clients have set."""

    def __init__(self) -> None:
        """Begin without values."""
        self._of: dict[str, Raw] = {}
        self._bytes = 0

    def get(self, key: str) -> Raw | None:
        """Return the value of a key, or None."""
        return self._of.get(key)

    def put(self, key: str, value: Raw) -> str | None:
        """Set a value; return why it cannot be kept, or None."""
        before = self._of.get(key)
        size = self._bytes - (0 if before is None else len(bytes(before))) + len(bytes(value))
        if before is None and len(self._of) >= KEYS_MAX:
            return f"the store is full: ledger.KEYS_MAX is {KEYS_MAX}"
        if size > STORED_BYTES_MAX:
            return f"the store is full: ledger.STORED_BYTES_MAX is {STORED_BYTES_MAX}"
        self._of[key] = value.copy()
        self._bytes = size
        return None


class Ledger:
    def __init__(self, wary_s: float = 0.0) -> None:
        """Start without members. `wary_s`: time after ranks first met during which a rank that exists twice ends the job: it may be
        another job's, where the secret is public."""
        self._wary_ns = round(wary_s * 1e9)
        self._now_ns = self._met_ns = 0
        self._values = Values()
        self._waits = Waits()
        self._rounds = self._waits.rounds
        self._completed: dict[str, int] = {}
        self._members: dict[int, Hello] = {}
        self._seen: set[int] = set()
        self._left: dict[int, Failed] = {}
        self._lost: dict[int, Failed] = {}
        self.reports: dict[int, Report] = {}
        """Reports of ranks as they left, in that order, for the launcher."""
        self._refusal: Failed | None = None
        self._doubts: dict[int, tuple[int, str]] = {}
        """Deadline and message for each rank that a process with another secret has claimed to be."""
        self.live = Live()
        """Reports of ranks about how they get on, for observers."""

    def handle(self, client: int, request: Request, now_ns: int) -> None:
        """Handle a client's request; FrameError if the client may not make it now."""
        self._now_ns = now_ns
        if client in self._waits:
            raise FrameError("a request while another one waits for its answer")
        if not isinstance(request, Hello) and client not in self._members:
            raise FrameError("a request before hello")
        match request:
            case Hello():
                self._hello(client, request)
            case Set():
                self._set(client, request)
            case Get():
                self._get(client, request, now_ns)
            case Add():
                self._add(client, request)
            case Gather():
                self._gather(client, request, now_ns)
            case Ping():
                self._waits.answer(client, Done(value=Raw(b"%d" % now_ns)))
            case Tell():
                self._waits.answer(client, self.live.tell(request, now_ns))
            case Look():
                self._waits.answer(client, self.live.look(client, request, self._left, self._lost, now_ns))
            case Leave():
                self._leave(client, request)

    def receive(self, client: int, payload: bytes, now_ns: int) -> None:
        """Handle a client's request from a frame; FrameError if it is invalid, or not allowed now."""
        self.handle(client, read_request(payload), now_ns)

    def answers(self) -> list[tuple[int, bytes]]:
        """Answers to send since the last call, as frames carry them."""
        return [(client, msgspec.json.encode(answer)) for client, answer in self.poll()]

    def poll(self) -> list[tuple[int, Answer]]:
        """Answers to send since the last call: (client, answer)."""
        return self._waits.poll()

    def expire(self, now_ns: int) -> None:
        """End the waits whose deadline has passed."""
        for client, request in self._waits.late(now_ns):
            if isinstance(request, Get):
                self._waits.end(client, nobody_gave(request))
            else:
                missing = self._missing(self._rounds[request.name])
                self._waits.end_round(request.name, did_not_come(request, missing))
        for rank, (deadline_ns, reason) in list(self._doubts.items()):
            if deadline_ns <= now_ns:
                del self._doubts[rank]
                self.refuse_absent(rank, reason)

    def deadline_ns(self) -> int | None:
        """Time at which `expire` is due next, or None."""
        doubts_ns = (deadline_ns for deadline_ns, _ in self._doubts.values())
        return min((*self._waits.deadlines_ns(), *doubts_ns), default=None)

    def disconnect(self, client: int) -> None:
        """Handle the end of a client's connection; without an earlier `Leave`, its rank is lost."""
        self._waits.drop(client)
        self.live.forget(client)
        member = self._members.pop(client, None)
        if member is not None and member.rank is not None:
            self.refuse(
                member.rank, f"{member.who} ended or lost its connection to the store\nhint: see its output"
            )

    def refuse_absent(self, rank: int, reason: str) -> None:
        """Handle the launcher's report that a rank's process has ended. If the rank never said hello, no other rank would know."""
        if rank not in self._seen:
            self.refuse(rank, reason)

    def doubt(self, rank: int, reason: str, now_ns: int) -> None:
        """Record that a process claims to be that rank without the job's secret. The job's own rank may still come."""
        if rank not in self._seen and rank < WORLD_MAX:
            message = (
                f"rank {rank} has not come, but from {reason}\n"
                "hint: give all ranks of a job one HOCKET_SECRET, and each job its own address (HOCKET_STORE)"
            )
            self._doubts.setdefault(rank, (now_ns + round(DOUBT_S * 1e9), message))

    def refuse(self, rank: int, reason: str, *, cause: int | None = None) -> None:
        """Exclude a rank from the job, whatever its connection sends. `cause`: the rank that keeps it from going on."""
        self._lost[rank] = Failed(message=reason, rank=_first(cause, rank))
        going_on = {name for name, each in self._rounds.items() if each.without_lost}
        self._waits.end_all(self._lost[rank], but=going_on)
        self._go_on_without_lost()

    def is_over(self, world: int) -> bool:
        """Return whether no rank is connected, and enough have been to know how the job ended. Observers keep no job alive."""
        return len(self._seen) >= world and all(each.rank is None for each in self._members.values())

    def _hello(self, client: int, request: Hello) -> None:
        if client in self._members:
            raise FrameError("a second hello")
        twin = next((each.who for each in self._members.values() if each.rank == request.rank), None)
        if request.rank is not None and twin is not None:
            refusal = Failed(
                message=f"two processes are rank {request.rank}: {twin}, and {request.who}\nhint: each needs its own",
                rank=request.rank,
            )
            # A latecomer does not disturb a job in progress.
            if not self._completed or self._now_ns < self._met_ns + self._wary_ns:
                self._refusal = refusal
                self._waits.end_all(refusal)
            self._waits.answer(client, refusal)
            return
        self._members[client] = request
        if request.rank is not None:
            self._seen.add(request.rank)
            self._left.pop(request.rank, None)
            self._lost.pop(request.rank, None)
        self._waits.answer(client, Done(value=NOTHING))

    def _set(self, client: int, request: Set) -> None:
        refusal = self._values.put(request.key, request.value)
        if refusal:
            self._waits.answer(client, Failed(message=refusal))
            return
        self._waits.answer(client, Done(value=NOTHING))
        self._waits.end_gets(request.key, request.value)

    def _get(self, client: int, request: Get, now_ns: int) -> None:
        value = self._values.get(request.key)
        if value is not None and is_enough(request, value):
            self._waits.answer(client, Done(value=value))
        else:
            self._wait(client, request, now_ns)

    def _add(self, client: int, request: Add) -> None:
        try:
            total = typed.of_json(self._values.get(request.key) or Raw(b"0"), int) + request.n
        except msgspec.MsgspecError:
            self._waits.answer(client, Failed(message=f"`{request.key}` is no counter"))
            return
        value = Raw(b"%d" % total)
        refusal = self._values.put(request.key, value)
        self._waits.answer(client, Failed(message=refusal) if refusal else Done(value=value))
        if not refusal:
            self._waits.end_gets(request.key, value)

    def _gather(self, client: int, request: Gather, now_ns: int) -> None:
        # An observer is a rank's second connection: it acts for the rank that it names.
        if self._members[client].rank not in (None, request.rank) or request.rank >= request.world:
            raise FrameError(f"{self._who(client)} speaks for rank {request.rank} of {request.world}")
        world_before = self._completed.get(request.name)
        if world_before is not None and world_before != request.world:
            message = (
                f"{self._who(client)} was started with world size {request.world}, others with {world_before}"
            )
            self._waits.answer(client, Failed(message=message, rank=request.rank))
            return
        open_round = self._rounds.setdefault(request.name, Round(request.world, request.without_lost))
        if open_round.world != request.world:
            other = self._who(open_round.clients[min(open_round.clients)])
            differs = Failed(
                message=f"{self._who(client)} was started with world size {request.world}, "
                f"{other} with {open_round.world}\nhint: start all ranks with the same world size",
                rank=request.rank,
            )
            self._waits.answer(client, differs)
            self._waits.end_round(request.name, differs)
            return
        open_round.values[request.rank] = request.value.copy()
        open_round.clients[request.rank] = client
        if not self._missing(open_round):
            self._complete(request.name, open_round, client)
        else:
            self._wait(client, request, now_ns)

    def _missing(self, of: Round) -> list[int]:
        return of.missing(self._lost.keys() | self._left.keys())

    def _complete(self, name: str, done: Round, last: int | None) -> None:
        del self._rounds[name]
        self._met_ns = self._met_ns or self._now_ns
        if name in self._completed or len(self._completed) < KEYS_MAX:
            self._completed[name] = done.world
        values = (bytes(done.values.get(rank, NOTHING)) for rank in range(done.world))
        value = Raw(b"[" + b",".join(values) + b"]")
        answer: Answer = Done(value=value)
        if len(bytes(value)) > FRAME_BYTES_MAX - ANSWER_BYTES:
            answer = Failed(
                message=f"gather `{name}` is too large: frames.FRAME_BYTES_MAX is {FRAME_BYTES_MAX}"
            )
        for client in done.clients.values():
            if client == last:
                self._waits.answer(client, answer)
            else:
                self._waits.end(client, answer)

    def _leave(self, client: int, request: Leave) -> None:
        member = self._members.pop(client)
        self._waits.answer(client, Done(value=NOTHING))
        if member.rank is None:
            return
        report = Report(reason=request.reason, cause=request.cause, why=request.why)
        self.reports.setdefault(member.rank, report)
        if request.reason is not None:
            self.refuse(member.rank, f"{member.who} gave up: {request.reason}", cause=request.cause)
            return
        because = "" if request.cause is None else f" because of rank {request.cause}"
        self._left[member.rank] = Failed(
            message=f"{member.who} has left the job{because}", rank=_first(request.cause, member.rank)
        )
        for name, each in list(self._rounds.items()):
            if member.rank in self._missing(each):
                self._waits.end_round(name, self._left[member.rank])
        self._go_on_without_lost()

    def _wait(self, client: int, request: Get | Gather, now_ns: int) -> None:
        reason = self._refusal
        if not (isinstance(request, Gather) and self._rounds[request.name].without_lost):
            reason = reason or next(iter(self._lost.values()), None)
        if reason is None and isinstance(request, Gather):
            missing = self._missing(self._rounds[request.name])
            reason = next((self._left[rank] for rank in missing if rank in self._left), None)
        self._waits.begin(client, request, now_ns)
        if reason is None:
            return
        if isinstance(request, Gather):
            self._waits.end_round(request.name, reason)
        else:
            self._waits.end(client, reason)

    def _go_on_without_lost(self) -> None:
        for name, each in list(self._rounds.items()):
            if not self._missing(each):
                self._complete(name, each, None)

    def _who(self, client: int) -> str:
        return self._members[client].who


def _first(cause: int | None, rank: int) -> int:
    """Return the rank at fault: the one that keeps `rank` from going on, if there is one, else `rank`."""
    return rank if cause is None else cause
