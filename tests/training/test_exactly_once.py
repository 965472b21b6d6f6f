"""Random training by random schedules: every gradient is applied once, whatever is made, accumulated, flushed, or resumed.

`HOCKET_FUZZ_CASES=100000 pytest tests/training/test_exactly_once.py` draws so many; `make exactly-once` does so here and in Rust.
Gradients are integers and means are kept as sums, so that nothing is rounded.
"""

from __future__ import annotations

import functools
import itertools
import os
from collections import defaultdict

import msgspec
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from hocket._native import schedule_faults, schedule_slots
from hocket.artefacts.plan import Begun, Due, Ready, Schedule, Turn
from hocket.errors import UsageError
from hocket.training.memory.turns import Saved, Turns

CASES = int(os.environ.get("HOCKET_FUZZ_CASES", "300"))
RANKS, ARENAS = 2, 2
NAMES = [["a", "b"], ["c"]]
"""Parameters of each arena."""

ALL = {name for names in NAMES for name in names}


Ways = tuple[tuple[Due, Ready | Begun], ...]


@functools.cache
def ways_to_end(last: int, overlap: str, earlier: Turn | None) -> Ways:
    """When a turn of gradients up to iteration `last` may be due and sent, after an earlier turn of its bucket."""
    ways = []
    for iteration, at in itertools.product(
        range(last, last + 3), ("end", "gate") if overlap == "gates" else ("end",)
    ):
        if earlier is not None and iteration <= earlier.due.iteration:
            continue
        begun = [
            Begun(iteration=sent, point=point)
            for sent in range(last, iteration + 1)
            for point in ("begin", "backward_end")
            if (sent, point) != (last, "begin")
        ]
        begun += [Begun(iteration=iteration + 1, point="begin")] * (at == "gate")
        ways += [(Due(iteration=iteration, at=at), sent) for sent in (Ready(), *begun)]
    if earlier is None:
        return tuple(ways)
    return tuple(
        (due, sent) for due, sent in ways if _moment(sent, last) > _moment(earlier.sent, earlier.last)
    )


def _moment(sent: Ready | Begun, last: int) -> tuple[int, int]:
    if isinstance(sent, Ready):
        return last, 1
    return sent.iteration, 0 if sent.point == "begin" else 2


@functools.cache
def one_of(ways: Ways) -> st.SearchStrategy[tuple[Due, Ready | Begun]]:
    """The same strategy for the same ways: Hypothesis looks through each new one, which took most of the time of a case."""
    return st.sampled_from(ways)


@st.composite
def turns_of_a_bucket(draw: st.DrawFn, period: int, overlap: str) -> tuple[Turn, ...]:
    """Sound up to the end of the period; how they follow one another over it is left to `schedule_faults`."""
    turns: list[Turn] = []
    first = 0
    while first < period:
        last = draw(st.integers(first, period - 1))
        ways = ways_to_end(last, overlap, turns[-1] if turns else None)
        assume(ways)
        due, sent = draw(one_of(ways))
        turns.append(Turn(first=first, last=last, sent=sent, due=due))
        first = last + 1
    return tuple(turns)


@functools.cache
def sound_turns(period: int, overlap: str) -> st.SearchStrategy[tuple[Turn, ...]]:
    def sound(turns: tuple[Turn, ...]) -> bool:
        alone = Schedule(period=period, overlap=overlap, together=False, turns=(turns,), delay_max=2)
        return not schedule_faults(alone, 1)

    return turns_of_a_bucket(period, overlap).filter(sound)


@st.composite
def schedules(draw: st.DrawFn) -> Schedule:
    """Sound, with turns of each bucket's own."""
    period, overlap = draw(st.integers(1, 4)), draw(st.sampled_from(["barrier", "gates"]))
    by_bucket = tuple(draw(sound_turns(period, overlap)) for _ in range(ARENAS))
    schedule = Schedule(period=period, overlap=overlap, together=False, turns=by_bucket, delay_max=2)
    assert not schedule_faults(schedule, ARENAS)
    return schedule


GRADIENT = st.one_of(st.none(), st.integers(-9, 9))
BACKWARD = st.fixed_dictionaries({name: GRADIENT for names in NAMES for name in names})
EVENTS = st.one_of(
    # A backward of each rank; before some, one without communication.
    st.tuples(st.just("backward"), st.lists(BACKWARD, min_size=RANKS, max_size=2 * RANKS)),
    st.tuples(st.just("backward"), st.lists(BACKWARD, min_size=RANKS, max_size=RANKS)),
    st.tuples(st.sampled_from(["flush", "resume", "resume", "plan"]), st.just([])),
)


class Launcher:
    """Turns of each arena that have left. Positions are those of one rank, the same on all."""

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        self.slots = schedule_slots(schedule, ARENAS)
        self.ended, self.left = [0] * ARENAS, [0] * ARENAS
        self.held = False

    def begin(self, phase: int) -> None:
        self._launch_at(phase, "begin")

    def backward(self, phase: int) -> None:
        for arena, turns in enumerate(self.schedule.turns):
            for turn in turns:
                if turn.last == phase and not self.held:
                    self.ended[arena] += 1
                    self.left[arena] += isinstance(turn.sent, Ready)
        self._launch_at(phase, "backward_end")

    def _launch_at(self, phase: int, point: str) -> None:
        for arena, turns in enumerate(self.schedule.turns):
            for turn in turns:
                begun = isinstance(turn.sent, Begun) and turn.sent.point == point
                if begun and turn.sent.iteration % self.schedule.period == phase:
                    self.left[arena] = min(self.left[arena] + 1, self.ended[arena])


class Training:
    """Ranks with slots of integers, by one schedule and then another."""

    def __init__(self, planned: list[Schedule]) -> None:
        self.planned = planned
        self.now = 0
        self.made: dict[str, int] = defaultdict(int)
        self.applied: dict[str, int] = defaultdict(int)
        # By iteration: parameters whose gradient some rank made.
        self.made_in: list[set[str]] = []
        self.iterations = 0
        self.counted = 0
        self.ends = False
        self._begin()

    def _begin(self) -> None:
        self.turns = [Turns(self.planned[self.now], range(ARENAS)) for _ in range(RANKS)]
        self.launcher = Launcher(self.planned[self.now])
        # By rank, arena and slot: sums by parameter.
        self.slots = [[defaultdict(lambda: defaultdict(int)) for _ in range(ARENAS)] for _ in range(RANKS)]
        self.at_gates: list[list] = []
        self.taken = [0] * ARENAS

    def backward(self, drawn: list[dict[str, int | None]]) -> None:
        """Of each rank; those before the last ones are without communication."""
        self._open_gates()
        made: list[set[str]] = [set() for _ in range(RANKS)]
        for at, gradients in enumerate(drawn):
            rank = at % RANKS
            for arena, names in enumerate(NAMES):
                slot = self.slots[rank][arena][self.turns[rank].open[arena].slot]
                for name in names:
                    if gradients[name] is not None:
                        made[rank].add(name)
                        slot[name] += gradients[name]
                        self.made[name] += gradients[name]
        phase = self.turns[0].phase
        if self.turns[0].counts:
            self._count()
        self.made_in.append(set().union(*made))
        self.unmade = [ALL - own for own in made]
        due = [turns.ended() for turns in self.turns]
        self.launcher.backward(phase)
        self.iterations += 1
        now = [[turn for turn in own if turn.at == "end"] for own in due]
        self.at_gates = [[turn for turn in own if turn.at == "gate"] for own in due]
        if any(turn.due == turn.last for turn in now[0]):
            self._count()
        for waiting in self.turns[0]._waiting:
            assert all(turn.due >= self.turns[0].made for turn in waiting), "it was due, and is still there"
        self.apply(now)
        self._drain(any(due))
        self.launcher.begin(self.turns[0].phase)

    def _count(self) -> None:
        never = set.intersection(*self.unmade)
        for turns in self.turns:
            turns.counted(never)

    def _open_gates(self) -> None:
        if self.at_gates and any(turn.due == turn.last for turn in self.at_gates[0]) and self.turns[0].counts:
            self._count()
        self.apply(self.at_gates)
        self.at_gates = []

    def apply(self, due: list[list]) -> None:
        """By rank, what is due: the same turns everywhere, which have all left."""
        for together in zip(*due, strict=True):
            arena, iterations = together[0].arena, together[0].iterations
            assert (
                len({(turn.arena, turn.slot, turn.iterations, turn.last, turn.unmade) for turn in together})
                == 1
            )
            self.taken[arena] += 1
            assert self.taken[arena] <= self.launcher.left[arena], "it has not left when it is due"
            assert iterations > 0
            whole: dict[str, int] = defaultdict(int)
            for rank, turn in enumerate(together):
                for name, value in self.slots[rank][arena].pop(turn.slot, {}).items():
                    whole[name] += value
            last = self.counted + together[0].last
            made = set().union(*self.made_in[last + 1 - iterations : last + 1])
            assert (together[0].unmade or frozenset()) & set(NAMES[arena]) == set(NAMES[arena]) - made
            for name in NAMES[arena]:
                self.applied[name] += whole[name]

    def flush(self) -> None:
        """As a session: gates open, votes are counted, and what is left is applied round by round."""
        self._open_gates()
        if self.turns[0].counts:
            self._count()
        rounds = [turns.flush() for turns in self.turns]
        for arena in range(ARENAS):
            self.launcher.ended[arena] = self.launcher.left[arena] = self.taken[arena] + sum(
                turn.arena == arena for due in rounds[0] for turn in due
            )
        self.launcher.held = False
        for due in zip(*rounds, strict=True):
            self.apply(list(due))
        assert not any(any(slots.values()) for own in self.slots for slots in own)
        if self.ends:
            self._begin_anew()

    def plan(self) -> None:
        """Another schedule follows, once turns are drained."""
        self.ends = True

    def _drain(self, due: bool) -> None:
        if not self.ends:
            return
        for turns in self.turns:
            turns.hold()
        self.launcher.held = True
        if due or not self.turns[0].drained:
            return
        self.flush()

    def _begin_anew(self) -> None:
        self.ends = False
        self.counted += self.turns[0].made
        assert self.turns[0].made == self.turns[0].applied
        self.now = 1 - self.now
        self._begin()

    def resume(self) -> None:
        """Other processes go on from what each rank wrote."""
        self._open_gates()
        if self.turns[0].counts:
            self._count()
        restored = []
        for turns in self.turns:
            written = msgspec.json.decode(msgspec.json.encode(turns.saved()), type=Saved)
            restored.append(Turns(self.planned[self.now], range(ARENAS)))
            restored[-1].restore(written)
            assert restored[-1].saved() == turns.saved()
        self.turns = restored


@settings(max_examples=CASES, suppress_health_check=[HealthCheck.filter_too_much])
@given(st.lists(schedules(), min_size=2, max_size=2), st.lists(EVENTS, max_size=16))
def test_every_gradient_is_applied_once(planned, events):
    """Broken: a gradient would be lost, applied twice or before it was sent, or a checkpoint would change what follows."""
    training = Training(planned)
    for what, drawn in events:
        if what == "backward":
            training.backward(drawn)
        else:
            getattr(training, what)()
    training.flush()
    assert {name: training.applied[name] for name in ALL} == {name: training.made[name] for name in ALL}
    assert training.turns[0].made == training.turns[0].applied
    assert training.counted + training.turns[0].made == training.iterations


@settings(max_examples=min(CASES, 1000))
@given(schedules(), st.integers(0, 9))
def test_saved_turns_that_cannot_be_are_refused(planned, iterations):
    """Broken: a checkpoint of another plan would be taken for this one's, and gradients of other iterations applied."""
    turns = Turns(planned, range(ARENAS))
    for _ in range(iterations):
        turns.ended()
        turns.counted(())
    saved = turns.saved()
    for wrong in (
        msgspec.structs.replace(saved, made=saved.made + 1),
        msgspec.structs.replace(saved, turns=saved.turns[:1]),
        msgspec.structs.replace(saved, applied=(*saved.applied, 0)),
        msgspec.structs.replace(saved, turns=((), *saved.turns[1:])),
    ):
        with pytest.raises(UsageError, match="saved turns"):
            Turns(planned, range(ARENAS)).restore(wrong)
