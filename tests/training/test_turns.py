"""Turns of random schedules, held and flushed at any iteration: every gradient is applied once, in the mean of its turn."""

import doctest
from collections import defaultdict

import msgspec
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from hocket._native import schedule_faults
from hocket.artefacts.plan import Begun, Due, Ready, Schedule, Turn
from hocket.errors import UsageError
from hocket.training.memory import turns as module
from hocket.training.memory.turns import Turns

ITERATIONS = 12


@st.composite
def turns_of_a_bucket(draw: st.DrawFn, period: int) -> tuple[Turn, ...]:
    cuts = sorted(draw(st.sets(st.integers(1, max(period - 1, 1)), max_size=period - 1)))
    turns = []
    for first, after in zip([0, *cuts], [*cuts, period], strict=True):
        last = after - 1
        due = last + draw(st.integers(0, 2))
        begun = st.builds(
            Begun,
            iteration=st.integers(last, due),
            point=st.sampled_from(["begin", "backward_end"]),
            place=st.integers(0, 1),
        )
        sent = draw(st.one_of(st.just(Ready()), begun))
        turns.append(Turn(first=first, last=last, sent=sent, due=Due(iteration=due)))
    return tuple(turns)


@st.composite
def schedules(draw: st.DrawFn, buckets: int = 2) -> Schedule:
    period = draw(st.integers(1, 4))
    turns = tuple(draw(turns_of_a_bucket(period)) for _ in range(buckets))
    schedule = Schedule(period=period, together=False, turns=turns, delay_max=2)
    assume(not schedule_faults(schedule, buckets))
    return schedule


class Memory:
    """Slots of each arena: which iterations' gradients are summed in them, and what was applied."""

    def __init__(self, schedule: Schedule, arenas: int) -> None:
        self.turns = Turns(schedule, range(arenas))
        self.slots = [defaultdict(set) for _ in range(arenas)]
        self.applied = [[] for _ in range(arenas)]
        self.iteration = 0

    def backward(self):
        for arena, turn in enumerate(self.turns.open):
            assert self.iteration not in self.slots[arena][turn.slot]
            self.slots[arena][turn.slot].add(self.iteration)
        self.iteration += 1
        due = self.turns.ended()
        assert len({turn.arena for turn in due}) == len(due), "one update of a parameter per step"
        assert all(turn.due == self.iteration - 1 for turn in due)
        self.apply(due)
        return due

    def apply(self, due):
        for turn in due:
            taken = self.slots[turn.arena].pop(turn.slot)
            assert len(taken) == turn.iterations
            self.applied[turn.arena].append(sorted(taken))

    def flush(self):
        for due in self.turns.flush():
            self.apply(due)
        assert all(not any(slots.values()) for slots in self.slots)


@settings(max_examples=500)
@given(
    schedules(), st.lists(st.sampled_from(["backward", "backward", "backward", "hold", "flush"]), max_size=24)
)
def test_every_iteration_is_applied_once_in_order(schedule, events):
    """A gradient would be lost, applied twice, or divided by another number than it was summed of."""
    memory = Memory(schedule, 2)
    for event in events:
        if event == "backward":
            memory.backward()
        elif event == "hold":
            memory.turns.hold()
        else:
            memory.flush()
        assert memory.turns.made == memory.iteration
        done = [sum(map(len, applied)) for applied in memory.applied]
        assert memory.turns.applied == min(done)
    memory.flush()
    for applied in memory.applied:
        assert [each for taken in applied for each in taken] == list(range(memory.iteration))
    assert memory.turns.applied == memory.iteration


@settings(max_examples=200)
@given(schedules())
def test_turns_are_applied_when_the_schedule_says(schedule):
    """Ranks would wait for what has not left, or apply gradients later than promised."""
    memory = Memory(schedule, 2)
    seen = [[] for _ in range(2)]
    for iteration in range(ITERATIONS):
        for turn in memory.backward():
            seen[turn.arena].append((iteration, turn.last, turn.iterations))
    for arena, turns in enumerate(schedule.turns):
        expected = [
            (turn.due.iteration + start, turn.last + start, turn.last - turn.first + 1)
            for start in range(0, ITERATIONS, schedule.period)
            for turn in sorted(turns, key=lambda each: each.first)
        ]
        assert seen[arena] == [each for each in expected if each[0] < ITERATIONS]


def test_held_turns_drain_and_what_is_open_goes_on():
    """Before another plan, two updates would be due in one step."""
    late = (Turn(first=0, last=0, due=Due(iteration=1)),)
    memory = Memory(Schedule(turns=(late,), delay_max=1), 1)
    assert [len(memory.backward()) for _ in range(3)] == [0, 1, 1]
    memory.turns.hold()
    assert not memory.turns.drained
    assert [turn.last for turn in memory.backward()] == [2]
    assert memory.turns.drained
    memory.flush()
    assert memory.applied == [[[0], [1], [2], [3]]]


def test_a_parameter_is_dropped_only_where_no_iteration_made_its_gradient():
    """The optimizer would move a parameter by nothing, or leave out a gradient that one iteration made."""
    merged = (Turn(first=0, last=1, due=Due(iteration=1)),)
    turns = Turns(Schedule(period=2, turns=(merged,)), [0])
    assert turns.ended() == []
    turns.counted(["a", "b"])
    (due,) = turns.ended()
    assert turns.counts
    turns.counted(["b", "c"])
    assert not turns.counts
    assert due.unmade == {"b"}


def test_examples():
    """The documentation would be wrong."""
    assert doctest.testmod(module).failed == 0


@settings(max_examples=300)
@given(
    schedules(),
    st.lists(st.sampled_from(["backward", "backward", "hold", "flush"]), max_size=16),
    st.booleans(),
)
def test_ranks_an_iteration_apart_launch_the_same_again(schedule, events, held):
    """After a loss, ranks would reduce turns of different iterations with one another, or wait for ever."""
    ahead, behind = (Turns(schedule, range(2)) for _ in range(2))
    for turns in (ahead, behind):
        for event in events:
            if event == "backward":
                turns.ended()
            elif event == "hold":
                turns.hold()
            else:
                turns.flush()
        turns.ended()
        if held:
            turns.hold()
    due_there = ahead.ended()
    launched_here = behind.unapplied([])
    launched_there = ahead.unapplied(due_there)
    places = behind.places(launched_here)
    assert [(slot, summed, left) for slot, summed, _, left in places] == [
        (turn.slot, turn.iterations, []) for turn in behind.open
    ]
    assert sum(reduced for _, _, reduced, _ in places) == len(launched_here)
    # What follows here is what had followed there.
    due_here = behind.ended()
    for arena in range(2):
        first = [turn for turn in launched_here if turn.arena == arena]
        both = [
            [(turn.slot, turn.iterations) for turn in own if turn.arena == arena]
            for own in (behind.unapplied(due_here), launched_there)
        ]
        assert both[0] == both[1]
        assert both[0][: len(first)] == [(turn.slot, turn.iterations) for turn in first]


@settings(max_examples=300)
@given(schedules(), st.integers(0, 9))
def test_saved_turns_that_cannot_be_are_refused(planned, iterations):
    """Broken: a checkpoint of another plan would be taken for this one's, and gradients of other iterations applied."""
    turns = Turns(planned, range(2))
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
            Turns(planned, range(2)).restore(wrong)
