"""Schedules against a session that runs them: what the checker passes loses nothing, what it refuses would."""

import random
from itertools import pairwise

import msgspec
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from hocket import typed
from hocket._native import SCHEDULE_PERIOD_MAX, SCHEDULE_SLOTS_MAX, schedule_faults
from hocket.artefacts.plan import Begun, Due, Ready, Schedule, Turn
from hocket.artefacts.schedule_check import check_workload
from hocket.errors import ArtefactError
from hocket.planning.buckets import plan_of

PERIODS = 5


class Session:
    """One bucket's turns, run for some periods: events at the points of every iteration, and two slots."""

    def __init__(self, schedule: Schedule) -> None:
        self.turns, self.period = schedule.turns[0], schedule.period
        self.wrong, self.applied, self.sent = [], [], []
        # What each launch has in its slot.
        self.slots: dict[tuple[int, int], set[int]] = {}
        self.events: dict[tuple[int, str], list[tuple[int, bool, tuple[int, int]]]] = {}
        for launch in ((number, index) for number in range(PERIODS) for index in range(len(self.turns))):
            self.plan(launch)

    def plan(self, launch):
        number, index = launch
        turn, begun = self.turns[index], number * self.period
        if isinstance(turn.sent, Begun):
            key, place = (turn.sent.iteration + begun, turn.sent.point), turn.sent.place
        else:
            key, place = (turn.last + begun, "backward"), 0
        self.events.setdefault(key, []).append((place, False, launch))
        gate = turn.due.at == "gate"
        due = (turn.due.iteration + begun + gate, "gates" if gate else "end")
        self.events.setdefault(due, []).append((0, True, launch))

    def run(self) -> list[str]:
        for iteration in range((PERIODS - 1) * self.period):
            for point in ("begin", "gates", "backward", "backward_end", "end"):
                if point == "backward":
                    self.fill(iteration)
                events = sorted(self.events.get((iteration, point), []))
                if len({event[:2] for event in events}) < len(events):
                    self.wrong.append("two turns are sent or applied at the same place")
                for _, applies, launch in events:
                    (self.apply if applies else self.send)(launch)
        if self.applied != sorted(set(self.applied)):
            self.wrong.append("turns are applied out of order, or twice")
        return self.wrong

    def fill(self, iteration):
        for index, turn in enumerate(self.turns):
            if turn.first <= iteration % self.period <= turn.last:
                launch = (iteration // self.period, index)
                self.slots.setdefault(launch, set()).add(iteration)
                if launch in self.sent:
                    self.wrong.append(f"{launch} is added to after it was sent")
        if len(self.slots) > SCHEDULE_SLOTS_MAX:
            self.wrong.append(f"{len(self.slots)} slots in iteration {iteration}")

    def send(self, launch):
        turn = self.turns[launch[1]]
        if len(self.slots.get(launch, ())) != turn.last - turn.first + 1:
            self.wrong.append(f"{launch} is sent before it is ready")
        if self.sent and launch < self.sent[-1]:
            self.wrong.append(f"{launch} is sent after {self.sent[-1]}")
        self.sent.append(launch)

    def apply(self, launch):
        if launch not in self.sent:
            self.wrong.append(f"{launch} is applied before it was sent")
        self.applied.append(launch)
        self.slots.pop(launch, None)


def drawn(seed: int) -> Schedule:
    """Turns that tile a period, with any points to send and apply them: many are sound, more are not."""
    chance = random.Random(seed)  # noqa: S311  # no secret
    period = chance.randint(1, 5)
    cuts = [0, *sorted(chance.sample(range(1, period), chance.randint(0, period - 1))), period]
    turns = []
    for first, end in pairwise(cuts):
        last = end - 1
        begun = Begun(
            iteration=last + chance.randint(0, 2),
            point=chance.choice(["begin", "backward_end"]),
            place=chance.randint(0, 1),
        )
        due = Due(iteration=last + chance.randint(0, 3), at=chance.choice(["end", "gate"]))
        turns.append(Turn(first=first, last=last, sent=chance.choice([Ready(), begun]), due=due))
    return Schedule(period=period, turns=(tuple(turns),), overlap="gates", delay_max=chance.randint(0, 3))


@pytest.mark.parametrize("seeds", [range(at, at + 1000) for at in range(0, 10_000, 1000)], ids=str)
def test_what_passes_runs_and_loses_nothing(seeds):
    """A session would add to memory that is under way, apply a turn twice or never, or need a third slot."""
    sound = [check_by_running(drawn(seed)) for seed in seeds]
    assert 20 < sum(sound) < 980, "nothing would be learned of the checker's other answer"


def check_by_running(schedule: Schedule) -> bool:
    """Whether the checker passes it, which running it must confirm."""
    within = all(0 <= turn.due.iteration - turn.last <= schedule.delay_max for turn in schedule.turns[0])
    found = schedule_faults(schedule, 1)
    wrong = Session(schedule).run()
    if not found:
        assert wrong == [], schedule
        assert within, schedule
    elif within and schedule.delay_max <= 2 * schedule.period:
        # Slots are counted to the end of an iteration, though its gates come first; so a few that would run are refused. Nor does
        # this session know of the optimizer's step, which applies what is due at the end and at the gates after it.
        said = ("turns are open", "by the same step")
        assert wrong or all(any(each in one for each in said) for one in found), (schedule, found)
    return not found


@settings(max_examples=300)
@given(st.integers(0, 2**32 - 1).map(drawn), st.data())
def test_a_lost_or_doubled_iteration_is_named(schedule, data):
    """A gradient would be applied never, or twice."""
    assume(schedule.delay_max <= SCHEDULE_SLOTS_MAX * schedule.period)
    turns = list(schedule.turns[0])
    at = data.draw(st.integers(0, len(turns) - 1))
    if data.draw(st.booleans()):
        lost = turns.pop(at)
    else:
        lost = turns[at]
        turns.append(lost)
    broken = msgspec.structs.replace(schedule, turns=(tuple(turns),))
    assert any(f"gradients of iteration {lost.first} are in" in found for found in schedule_faults(broken, 1))


def test_gates_that_the_schedule_does_not_have():
    """A turn would wait at a gate that nothing opens."""
    gate = Schedule(turns=((Turn(first=0, last=0, due=Due(iteration=0, at="gate")),),))
    assert any("at gates" in found for found in schedule_faults(gate, 1))
    assert schedule_faults(msgspec.structs.replace(gate, overlap="gates"), 1) == []


@pytest.mark.parametrize("period", [10**12, SCHEDULE_PERIOD_MAX + 1, 0])
def test_endless_periods_are_refused_at_once(period):
    """A damaged file would keep a rank busy for ever."""
    turn = Turn(first=0, last=10**12, due=Due(iteration=10**12))
    assert any("period" in found for found in schedule_faults(Schedule(period=period, turns=((turn,),)), 1))
    long = Schedule(period=2, turns=((turn,),), delay_max=10**12)
    assert any("delay" in found for found in schedule_faults(long, 1))
    late = Schedule(period=1, turns=((Turn(first=0, last=0, due=Due(iteration=10**12)),),), delay_max=2)
    assert any("iterations late" in found for found in schedule_faults(late, 1))
    with pytest.raises(msgspec.ValidationError, match=r"\$.period"):
        typed.of_builtins({"period": -1}, Schedule)


def test_a_schedule_for_another_workload_is_refused():
    """Merged batches would be of other sizes than those the guard judged."""
    late = Schedule(turns=((Turn(first=0, last=0, due=Due(iteration=1)),),), delay_max=1)
    plan = msgspec.structs.replace(plan_of([], 4, label="late"), schedule=late, batch=32, accumulation=1)
    check_workload(plan, batch=32, accumulation=1, rank=0)
    # Nobody could look.
    check_workload(plan, batch=None, accumulation=None, rank=0)
    check_workload(msgspec.structs.replace(plan, batch=None), batch=8, accumulation=1, rank=0)
    check_workload(msgspec.structs.replace(plan, schedule=Schedule()), batch=8, accumulation=2, rank=0)
    for batch, accumulation, expected in (
        (16, 1, "plan `late`: .* 32 samples per backward, and rank 2 has 16"),
        (32, 2, "1 backwards per iteration, and rank 2 has 2"),
    ):
        with pytest.raises(ArtefactError, match=expected) as refused:
            check_workload(plan, batch=batch, accumulation=accumulation, rank=2)
        assert "hint: `hocket profile`" in str(refused.value)


def test_one_step_applies_one_turn_of_a_bucket():
    """Two means of one gradient would have to be applied by one step of the optimizer: one of them would wait for ever."""
    first = Turn(first=0, last=0, due=Due(iteration=1))
    second = Turn(first=1, last=1, due=Due(iteration=1, at="gate"))
    both = Schedule(period=2, overlap="gates", turns=((first, second),), delay_max=1)
    assert any("by the same step" in found for found in schedule_faults(both, 1))
