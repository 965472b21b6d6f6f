"""Foreign programs as Hocket's: steps with offsets in chunks become ops in exactly the declared order.

This code is shared by MSCCL XML and custom collectives of Chakra. A connection (source, destination, channel) is first in, first
out, with room for SLOTS messages: a send completes for its dependents when its data is in a slot, and waits while all are full.
Nothing else orders ops, so the verifier finds steps that race, deadlock, or move the wrong chunk.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter

from hocket._native import Program
from hocket.errors import ProgramError

SLOTS = 8
"""Number of messages that a connection holds: NCCL's steps of a buffer."""

ELEMENTS_MAX = 1 << 40
"""Limit of elements of a rank's buffer."""

MESSAGES_MAX = 1 << 16
"""Limit of messages of a connection, since a tag is its channel and the message's number."""

REDUCES = frozenset({"rrs", "rrc", "rrcs"})
RECEIVES = frozenset({"r", "rcs"}) | REDUCES
SENDS = frozenset({"s", "rcs", "rrs", "rrcs"})
KINDS = RECEIVES | SENDS | {"cpy", "re", "nop"}
"""Operations of a step: receive (r), reduce (r), copy (c), send (s) and their combinations; copy, reduce or nothing locally."""

COLLECTIVES = {"allreduce": "all_reduce sum scale 1.0", "allgather": "all_gather"}
"""Results that a program may declare, by MSCCL's name; the verifier checks them."""


@dataclass(frozen=True)
class Place:
    """Chunks `offset..offset + count` of a rank's data, or of its scratch memory."""

    scratch: bool
    offset: int
    count: int

    def overlaps(self, other: Place) -> bool:
        """Return whether both share a chunk."""
        apart = self.offset >= other.offset + other.count or other.offset >= self.offset + self.count
        return self.scratch == other.scratch and not apart


@dataclass(frozen=True)
class Step:
    """Step of a rank. `after`: positions of earlier steps of the same rank; peers with the channel."""

    kind: str
    source: Place
    destination: Place
    after: tuple[int, ...]
    send_to: tuple[int, int] | None = None
    receive_from: tuple[int, int] | None = None
    line: int = 0
    """Line of `Foreign.files[rank]`, or the number of the node there."""


@dataclass(frozen=True)
class Foreign:
    """Foreign program: by rank its steps, those of a connection in the order of their messages, and scratch chunks."""

    name: str
    collective: str
    chunks: int
    """Number of chunks of each rank's data, which is reduced or gathered in place."""
    ranks: tuple[tuple[Step, ...], ...]
    scratch: tuple[int, ...]
    files: tuple[str, ...]
    """Source of each rank's steps."""


def program(foreign: Foreign, chunk_elements: int) -> Program:
    """Return the program with this many f32 elements per chunk, not verified: call `errors()` or `verify()` before running it.

    Raises ProgramError for an unknown collective and for steps of a rank that form a cycle.
    """
    if foreign.collective not in COLLECTIVES:
        raise ProgramError(
            f"{foreign.files[0]}: nothing says when a `{foreign.collective}` is right\nhint: there are {', '.join(COLLECTIVES)}"
        )
    if chunk_elements < 1 or foreign.chunks * chunk_elements > ELEMENTS_MAX:
        raise ProgramError(
            f"{foreign.chunks} chunks of {chunk_elements} elements: there are 1 to {ELEMENTS_MAX} in all"
        )
    world = len(foreign.ranks)
    lines = [f'program "{foreign.name}" world {world}']
    sources: dict[tuple[str, int], int] = {}
    bodies = []
    for rank, steps in enumerate(foreign.ranks):
        made = _Rank(foreign, rank, chunk_elements)
        made.add_all(steps)
        bodies += [f"rank {rank} {{", *made.text(sources), "}"]
    lines += [f"source {_quoted(file)} {line}" for file, line in sources]
    lines.append(f"ensures {COLLECTIVES[foreign.collective]} %0 over {' '.join(map(str, range(world)))}")
    return Program.parse("\n".join([*lines, *bodies]) + "\n")


@dataclass
class _Op:
    """Op under construction. `reads` and `writes` are the slices that may conflict with others."""

    text: str
    line: int
    after: set[int]
    reads: Place | None = None
    writes: Place | None = None
    sends: bool = False


@dataclass
class _Done:
    """State after a step, for its dependents: ops to wait for, and all earlier steps, as bits."""

    wait: set[int] = field(default_factory=set)
    before: int = 0


class _Rank:
    """Builder of one rank's ops."""

    def __init__(self, foreign: Foreign, rank: int, chunk_elements: int) -> None:
        self._foreign, self._rank, self._elements = foreign, rank, chunk_elements
        self._ops: list[_Op] = []
        self._temporaries: list[int] = []
        self._sent: dict[tuple[int, int], list[int]] = defaultdict(list)
        self._received: dict[tuple[int, int], int] = defaultdict(int)
        self._tags: dict[tuple[int, bool], int] = {}

    def add_all(self, steps: tuple[Step, ...]) -> None:
        """Build the ops of all steps, each after its dependencies."""
        for position, step in enumerate(steps):
            for connection, sends in ((step.send_to, True), (step.receive_from, False)):
                if connection is not None:
                    self._tags[position, sends] = self._tag(connection, sends=sends)
        try:
            order = list(TopologicalSorter({at: step.after for at, step in enumerate(steps)}).static_order())
        except CycleError as error:
            named = ", ".join(f"{self._foreign.files[self._rank]}:{steps[at].line}" for at in error.args[1])
            raise ProgramError(f"rank {self._rank}: steps wait for one another: {named}") from None
        done: dict[int, _Done] = {}
        for at in order:
            done[at] = self._add(at, steps[at], [done[each] for each in steps[at].after])

    def _tag(self, connection: tuple[int, int], *, sends: bool) -> int:
        if sends:
            number = len(self._sent[connection])
            self._sent[connection].append(-1)
        else:
            number = self._received[connection]
            self._received[connection] += 1
        if number >= MESSAGES_MAX:
            raise ProgramError(f"rank {self._rank}: more than {MESSAGES_MAX} messages on one connection")
        return connection[1] * MESSAGES_MAX + number

    def _add(self, at: int, step: Step, before: list[_Done]) -> _Done:
        done = _Done(set().union(*(each.wait for each in before)))
        for each in before:
            done.before |= each.before
        if step.kind == "nop":
            return done
        place = step.destination
        if step.kind == "rrs":
            self._temporaries.append(step.destination.count)
            place = Place(
                scratch=True,
                offset=self._scratch_chunks() - step.destination.count,
                count=step.destination.count,
            )
        if step.kind in ("cpy", "re") or (step.kind in REDUCES and step.source != place):
            word = (
                f"reduce sum {self._slice(step.source)} into"
                if step.kind == "re"
                else f"copy {self._slice(step.source)} to"
            )
            self._push(_Op(f"{word} {self._slice(place)}", step.line, set(), step.source, place), done)
        if step.kind in RECEIVES and step.receive_from is not None:
            how = "reduce sum" if step.kind in REDUCES else "store"
            tag = self._tags[at, False]
            text = f"recv {self._slice(place)} as f32 {how} from {step.receive_from[0]} tag {tag}"
            self._push(_Op(text, step.line, set(), None, place), done)
        if step.kind in SENDS and step.send_to is not None:
            source = step.source if step.kind == "s" else place
            tag = self._tags[at, True]
            text = f"send {self._slice(source)} as f32 to {step.send_to[0]} tag {tag}"
            queue, number = self._sent[step.send_to], tag % MESSAGES_MAX
            if number >= SLOTS and queue[number - SLOTS] >= 0:
                done.wait = done.wait | {queue[number - SLOTS]}
            queue[number] = self._push(_Op(text, step.line, set(), source, None, sends=True), done)
        return done

    def _push(self, op: _Op, done: _Done) -> int:
        """Add an op and return its number; dependents wait for it, unless it is a send, which they only must not overwrite."""
        number = len(self._ops)
        op.after = set(done.wait)
        if op.writes is not None:
            # A slot would hold the data by now; here the send still reads them in place.
            op.after |= {
                earlier
                for earlier, sent in enumerate(self._ops)
                if sent.sends
                and done.before >> earlier & 1
                and sent.reads is not None
                and sent.reads.overlaps(op.writes)
            }
        self._ops.append(op)
        done.before |= 1 << number
        if not op.sends:
            done.wait = {number}
        return number

    def _scratch_chunks(self) -> int:
        return self._foreign.scratch[self._rank] + sum(self._temporaries)

    def _slice(self, place: Place) -> str:
        start = place.offset * self._elements
        return f"%{int(place.scratch)}[{start}:{start + place.count * self._elements}]"

    def text(self, sources: dict[tuple[str, int], int]) -> list[str]:
        """Return the text of buffers and ops."""
        lines = [f'  %0 = bound f32 {self._foreign.chunks * self._elements} "data"']
        if self._scratch_chunks():
            lines.append(f'  %1 = scratch f32 {self._scratch_chunks() * self._elements} "scratch"')
        for number, op in enumerate(self._ops):
            after = f" after {' '.join(map(str, sorted(op.after)))}" if op.after else ""
            source = sources.setdefault((self._foreign.files[self._rank], op.line), len(sources))
            lines.append(f"  {number}: {op.text}{after} from source {source}")
        return lines


def _quoted(text: str) -> str:
    escaped = "".join(
        c if c.isascii() and c.isprintable() and c not in '\\"' else f"\\u{{{ord(c):x}}}" for c in text
    )
    return f'"{escaped}"'
