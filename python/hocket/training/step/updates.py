"""Updates of one session: which gradients of which iterations the optimizer is given, and when.

A *turn* sums the gradients of its iterations in one slot of its buckets' memory; backward itself adds them. While the turn travels,
the next one fills the other slot. At the end of each backward, or at gates, some turns are due: gradients are their means. Only the
schedule decides which, so that two runs give the same bits. Without turns in the plan, a turn is one iteration, and due at its end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from hocket._native import LiveTurn, Readiness
from hocket.artefacts.plan import Schedule
from hocket.errors import UsageError
from hocket.training.memory.buckets import Launch, LoadedBucket, launches_of
from hocket.training.memory.device import made
from hocket.training.memory.framework import Framework
from hocket.training.memory.gathered import Rows
from hocket.training.memory.turns import Unmade, has_anchor
from hocket.training.step.alone import Alone
from hocket.training.step.means import Means
from hocket.training.step.own_first import OwnFirst


class Hooks:
    """Argument of `Framework.hook`, which counts gradients for all buckets that have parts of them."""

    def __init__(self, buckets: Sequence[LoadedBucket], readiness: Readiness) -> None:
        """Map gradients to launches. `readiness` counts by launch, in the order of their numbers."""
        self._readiness = readiness
        self._views = {
            name: tuple(slot.views[at] for slot in bucket.slots)
            for bucket in buckets
            for at, name in enumerate(bucket.names)
        }
        places: dict[str, list[tuple[int, int]]] = {}
        self._names: list[list[str]] = []
        for at, launch in enumerate(launches_of(buckets)):
            self._names.append(launch.names)
            for index, name in enumerate(launch.names):
                places.setdefault(name, []).append((at, index))
        self._packed = {each.rows.gradient.name for each in launches_of(buckets) if each.rows is not None}
        self._places = [[places[name] for name in bucket.names] for bucket in buckets]
        self._others = [[self._views[name][1:] for name in bucket.names] for bucket in buckets]

    def hook(self, bucket: int, index: int, view: object) -> Callable[[Any], None]:
        """Return the callable for gradient `index` of a bucket, whose array is `view`."""
        name, _ = self.gradient(*self._places[bucket][index][0])
        # Rows are copied out of any gradient, wherever it is: nothing is the view.
        own = None if name in self._packed else view
        return self._readiness.hook(self._places[bucket][index], own, self._others[bucket][index])

    def gradient(self, launch: int, index: int) -> tuple[str, Any]:
        """Return the name of the gradient to which part `index` of a launch belongs, and its view in the slot that is open."""
        name = self._names[launch][index]
        views = self._views[name]
        return name, views[self._readiness.open(launch).slot]


class Updates:
    """Buckets in memory, and the turns of each.

    Attributes:
        buckets: memory of gradients, by arena.
        launches: programs of the buckets, by number.
        rows: gradients that travel as rows.
        arena_of: arena of each launch, by number.
        means: sums as the optimizer is given them.
        schedule: schedule in force.
        readiness: turns that are open and in flight.
        unmade: parameters without gradients, by turn.
        shown: by arena, the slot whose mean was given last.
        pending: by arena, the turn that is due at its gate, which has not opened.
        own: turns of the anchor, if ranks train ahead of one.
        local: departures of ranks that step alone between exchanges, if they do; an iteration ends with its step then.
        moves: gradients lie in buckets, and move where others begin.
        merges: turns may be of several iterations, or late.
    """

    buckets: list[LoadedBucket]
    launches: list[Launch]
    schedule: Schedule
    means: Means
    arena_of: dict[int, int]
    readiness: Readiness
    unmade: Unmade

    def __init__(
        self, framework: Framework, *, merges: bool, ranks: Callable[[], Sequence[int]] = tuple
    ) -> None:
        """Begin without buckets. `merges`: turns may be of several iterations, or late, so that a mean is applied once; `ranks`:
        those that are in the last sums, as they report."""
        self.merges, self._ranks = merges, ranks
        self.buckets, self.launches = [], []
        self.rows: list[Rows] = []
        self.shown: dict[int, int] = {}
        self.pending: dict[int, LiveTurn] = {}
        self.own: OwnFirst | None = None
        self.local: Alone | None = None
        self.moves = True
        self._foreign: set[str] = set()
        """Gradients that may lie where sums travel."""
        self._framework = framework
        self._before = 0, 0
        self._flushed = False

    @property
    def counts(self) -> tuple[int, int]:
        """Number of iterations whose gradients were made, and number of those of which all gradients were applied."""
        made, applied = self._before
        return made + self.readiness.made, applied + self.readiness.handed_out

    @property
    def settled(self) -> bool:
        """True if every gradient that was made was given to the optimizer."""
        return self.readiness.made == self.readiness.handed_out and not self.pending

    @property
    def ready(self) -> bool:
        """True if other turns may follow: the open ones were ended early, or each is of one iteration."""
        return self._flushed if self.merges else self.settled

    def place(self, placed: list[LoadedBucket], sums: Sequence[Sequence[LoadedBucket]]) -> None:
        """Use these buckets from now on, whose sums lie there."""
        self.buckets, self.launches = placed, launches_of(placed)
        self.rows = [each.rows for each in self.launches if each.rows is not None]
        self.means = Means(self._framework, sums)
        self.arena_of = {launch.number: at for at, bucket in enumerate(placed) for launch in bucket.launches}

    def begin(self, schedule: Schedule, *, anew: bool) -> None:
        """Begin the turns of a schedule. `anew`: there were others, and means that were given last lie in the first slots now.
        Ranks that trained ahead of an anchor were given none, and their gradients lie elsewhere."""
        if anew:
            self.close()
        given = anew and self.own is None
        self._anchor(schedule)
        self.schedule, self._flushed = schedule, False
        self.unmade = Unmade()
        self.shown = dict.fromkeys(range(len(self.buckets)), 0) if given else {}

    def _anchor(self, schedule: Schedule) -> None:
        """Begin or end steps of an anchor."""
        self.moves = self.own is None
        outer = schedule.outer
        if self.own is not None and (not has_anchor(schedule) or (outer is None) == (self.local is not None)):
            if self.local is None:
                self._framework.anchor.end()
            else:
                self.local.end()
            self.own = self.local = None
        if not has_anchor(schedule):
            return
        self.moves = False
        if self.own is None:
            self.own = OwnFirst()
            self._foreign = {name for bucket in self.buckets for name in bucket.names}
        self.own.begin([self._before[0]] * len(self.buckets))
        if outer is None:
            self._framework.anchor.begin()
        elif self.local is None or self.local.outer != outer:
            # Of another outer optimizer, the anchor is the same.
            self._framework.local.settle()
            if self.local is not None and self.local.weighing is not None:
                self.local.weighing.end()
            self.local = Alone(self._framework, self, outer, self._ranks)
        if self.local is not None:
            self.local.begin_turns(schedule.period)

    def close(self) -> None:
        """Add the turns until now to `counts`; others follow."""
        self._before = self.counts

    def clear(self) -> None:
        """Use no buckets."""
        self.buckets, self.launches, self.rows = [], [], []

    def count(self, readiness: Readiness, *, moves: bool) -> None:
        """Count gradients by a new `readiness`. `moves`: existing gradients move into the buckets."""
        self.readiness = readiness
        self._hooks = Hooks(self.buckets, self.readiness)
        self._framework.hook(
            self.buckets if self.local is None else [], self._hooks, moves=moves and self.moves
        )

    @property
    def filling(self) -> list[LoadedBucket]:
        """Buckets in the slots that backward adds to."""
        return [bucket.slots[turn.slot] for bucket, turn in zip(self.buckets, self._open, strict=True)]

    @property
    def given(self) -> list[LoadedBucket]:
        """Buckets that the optimizer is to read."""
        return [self.means.of[at][slot] for at, slot in self.shown.items()]

    def adopt(self, launch: int, index: int, _parameter: Any) -> None:
        """Move a gradient that lies elsewhere (after `grad = None`) into its turn's slot, or add it to the sum there."""
        name, view = self._hooks.gradient(launch, index)
        rows, sends = self.launches[launch].rows, self.readiness.enabled
        if self.own is not None and not sends:
            # What is accumulated without communication is sent with the backward that communicates.
            return
        # One accumulated without communication stays elsewhere: the script may discard it, without the sum.
        if (rows is None or not rows.sparse) and (sends or not self.readiness.open(launch).iterations):
            self._move(name, view, launch)
        if rows is not None and sends:
            if rows.packed:
                # Rows in flight lie in the same memory.
                self.twice(launch, index)
            rows.pack(self._framework)

    def twice(self, launch: int, index: int) -> None:
        """Raise UsageError: a gradient was made again after it was sent."""
        raise UsageError(
            f"backward makes the gradient of `{self._hooks.gradient(launch, index)[0]}` again after it was sent"
            f"\nhint: {self._framework.hints.made_twice}"
        )

    def complete(self) -> list[str]:
        """Adopt gradients that did not come in this backward; return the parameters without one on this rank. A gradient that was
        accumulated before counts, and so do zeros that the script has left: the optimizer steps on them. A rank that steps alone
        writes how far it came."""
        unmade: list[str] = []
        if self.local is not None:
            self.local.ends()
            return unmade
        # A gradient whose parts travel apart has each part missing.
        missing = {self.name(place): place for place in self.readiness.missing()}
        for name, (launch, index) in missing.items():
            _, view = self._hooks.gradient(launch, index)
            rows = self.launches[launch].rows
            if self._framework.gradient(name) is None:
                unmade.append(name)
            if rows is None or not rows.sparse:
                self._move(name, view, launch)
            if rows is not None:
                rows.pack(self._framework)
            self.made(launch)
        return unmade

    def made(self, launch: int) -> None:
        """Let copies from the device wait until it has made what was given it of this launch's gradients."""
        made(self._framework.device, (slot.memory for slot in self.buckets[self.arena_of[launch]].slots))

    def name(self, place: tuple[int, int]) -> str:
        """Return the gradient to which part `index` of a launch belongs."""
        return self._hooks.gradient(*place)[0]

    def times(self) -> dict[str, int]:
        """Return when each gradient of this backward came, in nanoseconds."""
        return {self.name(place): time_ns for place, time_ns in self.readiness.times()}

    def drop(self) -> None:
        """Set all gradients to None; the buckets' contents stay."""
        for bucket in self.buckets:
            for name in bucket.names:
                self._framework.drop(name)

    def ended(self, unmade: Sequence[str], *, holds: bool) -> list[LiveTurn]:
        """End a backward, and launch what is left; return the turns that are due now, at most one of each arena.
        `unmade`: parameters without a gradient on this rank; `holds`: no more turns end after this backward."""
        self._flushed = False
        self.unmade.ended(self._open)
        if self.own is not None:
            self.own.made(unmade, self._open)
        due = self.readiness.finish()
        for rows in self.rows:
            rows.packed = False
        if holds:
            self.readiness.hold()
        drained = not any(map(self.readiness.waits, range(len(self.buckets))))
        if self.readiness.held and not due and drained:
            # One update per step: the open turn waits for a backward with which nothing else is due.
            due = [turn for last in self.flush() for turn in last]
        return due

    def passed(self) -> None:
        """End an iteration of a rank that steps alone, which brings and sends nothing, and in which nobody votes."""
        self._flushed = False
        if self.own is not None:
            self.own.made([], self._open)
        self.readiness.finish()

    def flush(self) -> list[list[LiveTurn]]:
        """End all turns, and launch what was not; return those that were not applied, in the order of application, at most one of
        each arena at a time."""
        self._flushed = True
        if self.local is not None:
            self.local.flushes()
        return self.readiness.flush()

    def wait(self, turn: LiveTurn, timeout_s: float) -> None:
        """Wait for a turn's launches."""
        for launch in self.buckets[turn.arena].launches:
            self.readiness.wait(launch.number, timeout_s)

    @property
    def _open(self) -> list[LiveTurn]:
        """Open turns, by arena."""
        return [own[-1] for own in self.readiness.turns]

    def _move(self, name: str, view: Any, launch: int) -> None:
        if self.merges and self.means.is_due(name):
            raise UsageError(
                f"the gradient of `{name}` is the mean that the last step applied, or was added to it\n"
                "hint: optimizer.zero_grad() before each backward"
            )
        if self.own is not None:
            if name in self._foreign:
                self._foreign.discard(name)
                self._framework.anchor.gradients.detach(name)
            self._framework.anchor.gradients.copy(name, view, add=self.readiness.open(launch).iterations > 0)
        elif self.readiness.open(launch).iterations:
            self._framework.add(name, view)
        else:
            self._framework.adopt(name, view)
