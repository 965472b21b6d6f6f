"""Check that ranks still hold the same model while they train: each look covers a part of what is promised equal, and its digest
travels with the votes.

A look costs a pass over a part of the parameters, so looks are as frequent as SHARE of a step allows. The votes also carry the step
of the next look and its number of parts: all ranks look at the same.
"""

from __future__ import annotations

import logging
import math
import time
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple, Protocol

import msgspec

from hocket.artefacts.plan import Plan, Served, Traced
from hocket.errors import RendezvousError, ReplicaError
from hocket.job.alike import named
from hocket.job.rendezvous import Job
from hocket.policy.policy import Policy

SHARE = 0.0009
"""Share of a step's time that looks take: less than the promised thousandth, as the cost of a look is only known afterwards."""
ALLOWANCE_NS = 1_000_000
"""Time beyond that share, once: most errors show in the first steps."""
PART_BYTES, PIECES_MAX = 1 << 20, 64
"""Limits of a look, unless there is time for more: bytes and pieces of one part."""
WAIT_STEPS_MAX = 1 << 20
WORDS = 7
"""Numbers of a look among the votes, which are reduced by max."""
ODD_MAX, NAMES_MAX = 8, 3
"""Largest number of ranks that are asked for their digests, and of parameters that an error names."""

log = logging.getLogger("hocket.training")

Options = Sequence[Mapping[str, Any]]
"""Options of an optimizer, by group of parameters, that JSON can express."""


class Piece(NamedTuple):
    """Bytes `start` to `stop` of a parameter."""

    name: str
    start: int
    stop: int


class HasOptions(Protocol):
    """Model with an optimizer."""

    def options(self) -> Options:
        """Return the optimizer's current options."""


class Looked(Protocol):
    """Parameters that are looked at."""

    def held(self) -> Mapping[str, int]:
        """Return the bytes of each parameter, trained or not, that `digests` can look at, by name."""

    def digests(self, pieces: Sequence[Piece]) -> list[int]:
        """Return the CRC32C of these pieces, whose bytes are in the order of the elements."""


class HasLook(Protocol):
    """Votes that are counted."""

    @property
    def look(self) -> Sequence[float]:
        """Largest of all ranks' votes on the look."""


class Look(NamedTuple):
    """Digests and options that a rank has seen in a look."""

    step: int
    pieces: tuple[Piece, ...]
    digests: tuple[int, ...]
    options: Options
    parts: int

    @property
    def digest(self) -> int:
        """Digest of the whole look: 32 bits."""
        text = msgspec.json.encode(self.options)
        return zlib.crc32(text, zlib.crc32(b"".join(each.to_bytes(4, "little") for each in self.digests)))


class Budget:
    """Budget of time for looks: the steps until the next one, and its largest number of parts."""

    def __init__(self, now_ns: int) -> None:
        self._began_ns, self._spent_ns = now_ns, 0

    def after(self, cost_ns: int, parts: int, steps: int, now_ns: int) -> tuple[int, int]:
        """Return steps until the next look, and its parts: a look at `parts` has cost `cost_ns`, `steps` after the beginning.

        >>> budget = Budget(0)
        >>> budget.after(500_000, 1, 1, 10_000_000)  # half of the allowance: the next step has another look
        (1, 1)
        >>> budget.after(500_000, 1, 2, 20_000_000)  # then a look of 0.5 ms is due in 56 steps of 10 ms
        (54, 1)
        """
        self._spent_ns += cost_ns
        elapsed_ns = max(now_ns - self._began_ns, 1)
        gain_ns = SHARE * elapsed_ns / max(steps, 1)
        spare_ns = ALLOWANCE_NS + SHARE * elapsed_ns - self._spent_ns
        each_ns = max(cost_ns / parts, 1.0)
        if spare_ns + gain_ns >= each_ns:
            return 1, int((spare_ns + gain_ns) / each_ns)
        return min(math.ceil((each_ns - spare_ns) / gain_ns), WAIT_STEPS_MAX), 1


def parts_of(held: Mapping[str, int]) -> list[tuple[Piece, ...]]:
    """Return parts that cover every parameter once, in order.

    >>> [[piece.stop for piece in part] for part in parts_of({"a": 3, "b": PART_BYTES + 5, "c": 2})]
    [[3, 1048573], [1048581, 2]]
    """
    parts: list[tuple[Piece, ...]] = []
    open_part: list[Piece] = []
    room = PART_BYTES
    for name, size in held.items():
        start = 0
        while start < size:
            if room == 0 or len(open_part) == PIECES_MAX:
                parts.append(tuple(open_part))
                open_part, room = [], PART_BYTES
            stop = min(size, start + room)
            open_part.append(Piece(name, start, stop))
            room -= stop - start
            start = stop
    return [*parts, tuple(open_part)]


def may_differ(names: Iterable[str], plan: Plan, policies: Sequence[Policy]) -> list[str]:
    """Return the parameters that ranks may hold differently: those on servers, and those of policies that promise nothing or leave
    them out."""
    loose = {type(each).__name__ for each in policies if each.contract == "none"}
    alike: set[str] = set()
    for bucket in plan.buckets:
        route = bucket.route
        if not (isinstance(route, Served) or (isinstance(route, Traced) and route.policy in loose)):
            alike.update(bucket.variables)
    return [name for name in names if name not in alike]


class Replicas:
    """Looks of one model. All ranks call `vote` before they cast the votes of a step, and `counted` when those are counted."""

    def __init__(
        self,
        parameters: Looked,
        job: Job,
        *,
        but: Iterable[str] = (),
        options: Callable[[], Options] | None,
        begins: int = 1,
    ) -> None:
        """Look at all `parameters` `but` some, and at the optimizer's `options`, if given. `begins`: the step with the first look;
        `job`: its settings say how to treat differences."""
        self._parameters, self._job, self._options = parameters, job, options
        self._off = job.settings.on_drift == "off" or job.world == 1
        if not self._off:
            left_out = frozenset(but)
            held = {name: size for name, size in parameters.held().items() if name not in left_out}
            self._parts = parts_of(held)
        self.begin(begins)

    def begin(self, step: int) -> None:
        """Begin anew on all ranks: the first look is at that step."""
        self._first = self._next = step
        self._at, self._count = 0, 1
        self._look: Look | None = None
        self._budget = Budget(time.monotonic_ns())

    def vote(self, step: int, *, stale: bool = False) -> tuple[float, ...]:
        """Return this rank's vote in that step, empty if no look is due. If the step's votes are cast again, the vote is the same.
        `stale`: this rank does not step its model now, so nobody compares."""
        if self._off or step < self._next:
            return ()
        if self._look is None:
            self._look, self._vote = self._pass(step) if stale else self._take(step)
        return self._vote

    def counted(self, votes: HasLook) -> None:
        """Compare counted votes, if a look was due. ReplicaError: ranks differ, and settings do not let them go on."""
        look, self._look = self._look, None
        if look is None:
            return
        stale, wait, parts, *words = (int(each) for each in votes.look)
        self._next = look.step + wait
        self._at, self._count = (self._at + look.parts) % len(self._parts), max(1, -parts)
        if not stale and (words[0] != -words[1] or words[2] != -words[3]):
            self._differ(look)

    @property
    def _due(self) -> int:
        """Number of parts of the look that is due."""
        return min(self._count, len(self._parts))

    def _pass(self, step: int) -> tuple[Look, tuple[float, ...]]:
        return Look(step, (), (), (), self._due), (1, 1, -len(self._parts), 0, 0, 0, 0)

    def _take(self, step: int) -> tuple[Look, tuple[float, ...]]:
        began_ns = time.thread_time_ns()
        places = ((self._at + each) % len(self._parts) for each in range(self._due))
        pieces = tuple(piece for place in places for piece in self._parts[place])
        digests = tuple(self._parameters.digests(pieces))
        options = () if self._options is None else self._options()
        look = Look(step, pieces, digests, options, self._due)
        low, high = look.digest & 0xFFFF, look.digest >> 16
        cost_ns = time.thread_time_ns() - began_ns
        steps = step - self._first + 1
        wait, parts = self._budget.after(cost_ns, self._due, steps, time.monotonic_ns())
        # Small whole numbers, which f32 represents exactly.
        return look, (0, wait, -min(parts, len(self._parts)), low, -low, high, -high)

    def _differ(self, look: Look) -> None:
        """Report a difference, on all ranks after the same step."""
        error = self._found_out(look)
        if self._job.settings.on_drift == "stop":
            raise error
        self._off = True
        if self._job.rank == 0:
            log.warning("%s", error)

    def _found_out(self, look: Look) -> ReplicaError:
        """Find out which ranks have which values."""
        job = self._job
        try:
            everyone = self._gather("digests", look.digest)
            present = [rank for rank, digest in enumerate(everyone) if digest is not None]
            most = max(present, key=lambda rank: (everyone.count(everyone[rank]), -rank))
            odd = [rank for rank in present if everyone[rank] != everyone[most]]
            asked = [most, *islice(odd, ODD_MAX)]
            mine = (look.digests, look.options) if job.rank in asked else None
            seen = self._gather("parts", msgspec.to_builtins(mine))
        except RendezvousError as error:
            return ReplicaError(
                f"ranks hold other models or options of their optimizers after {look.step} steps, and which could not be "
                f"found out: {error.summary}",
                step=look.step,
            )
        shown = {rank: (seen[rank][0], seen[rank][1]) for rank in asked if seen[rank] is not None}
        same = [rank for rank in present if rank not in odd]
        return difference(look, shown, same=same, odd=odd, hosts=job.hosts)

    def _gather(self, what: str, value: Any) -> list[Any]:
        job = self._job
        return job.store.gather(
            f"replicas/{what}", job.rank, job.world, value, job.settings.timeout_s, without_lost=job.elastic
        )


def difference(
    look: Look,
    shown: Mapping[int, tuple[Sequence[int], Options]],
    *,
    same: Sequence[int],
    odd: Sequence[int],
    hosts: Sequence[str],
) -> ReplicaError:
    """Return the error for ranks that differ. `shown`: results of some ranks, one of the `same` ranks first."""
    (first, options), *others = shown.values()
    names: dict[str, None] = {}
    said: list[str] = []
    for rank, (digests, own) in zip(list(shown)[1:], others, strict=True):
        pairs = zip(look.pieces, first, digests, strict=True)
        names.update((piece.name, None) for piece, one, other in pairs if one != other)
        changed = differing_options(options, own)
        if changed:
            listed = ", and ".join(changed[:NAMES_MAX])
            said.append(f"on {named([rank], hosts)}, {listed} as on {named(same, hosts)}")
    if names:
        listed = ", ".join(f"`{name}`" for name in islice(names, NAMES_MAX))
        more = f" and {len(names) - NAMES_MAX} more" if len(names) > NAMES_MAX else ""
        has = "has" if len(odd) == 1 else "have"
        said.insert(0, f"{named(odd, hosts)} {has} other values of {listed}{more} than {named(same, hosts)}")
    return ReplicaError(
        f"replicas differ after {look.step} steps: {'; '.join(said)}\n"
        "hint: look for what one rank alone does to its model or its optimizer, such as a load, a step or a learning rate of its "
        "own; HOCKET_ON_DRIFT=warn trains on",
        ranks=odd,
        parameters=tuple(names),
        step=look.step,
    )


def differing_options(one: Options, other: Options) -> list[str]:
    """Return the differences of the second, for people.

    >>> differing_options([{"lr": 0.1, "eps": 0}], [{"lr": 0.2, "eps": 0}])
    ['`lr` of group 0 is 0.2, not 0.1']
    """
    if len(one) != len(other):
        return [f"the optimizer has {len(other)} groups of parameters, not {len(one)}"]
    return [
        f"`{name}` of group {at} is {theirs.get(name)}, not {ours.get(name)}"
        for at, (ours, theirs) in enumerate(zip(one, other, strict=True))
        for name in {**ours, **theirs}
        if ours.get(name) != theirs.get(name)
    ]


def agree_on_options(framework: HasOptions, job: Job) -> None:
    """Compare the optimizers of all ranks as they begin. ReplicaError: they differ, and settings do not let them go on."""
    if job.settings.on_drift == "off":
        return
    mine = msgspec.to_builtins(framework.options())
    everyone = job.store.gather("optimizer/options", job.rank, job.world, mine, job.settings.start_timeout_s)
    odd = [rank for rank, each in enumerate(everyone) if each != everyone[0]]
    if not odd:
        return
    changed = differing_options(everyone[0], everyone[odd[0]])
    error = ReplicaError(
        f"the optimizers of rank 0 and {named(odd, job.hosts)} differ: {', and '.join(changed[:NAMES_MAX])}\n"
        "hint: give it the same options on all ranks; HOCKET_ON_DRIFT=warn trains on",
        ranks=odd,
    )
    if job.settings.on_drift == "stop":
        raise error
    if job.rank == 0:
        log.warning("%s", error)
