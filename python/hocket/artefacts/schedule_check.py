"""Checks of schedules: every gradient is applied once, in order, not too late, and a bucket's two slots suffice."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import pairwise

from hocket.artefacts.plan import Begun, Plan, Schedule, Turn
from hocket.errors import ArtefactError

SLOTS_MAX = 2
"""Number of turns of one bucket that may be open at the same time: its memory has as many copies."""

PERIOD_MAX = 1024
"""Limit of a period's iterations; the planner uses 64."""

Moment = tuple[int, int, int]
"""Iteration, point in it (its begin, the gates of its forward, backward, backward's end, its end), and the place there."""

BEGIN, GATE, BACKWARD, BACKWARD_END, END = range(5)


def findings(schedule: Schedule, buckets: int) -> Iterator[str]:
    """Yield every fault, in words, of a schedule of so many buckets."""
    period = schedule.period
    if not 1 <= period <= PERIOD_MAX:
        yield f"a period of {period} iterations: it has 1 to {PERIOD_MAX}"
        return
    if not 0 <= schedule.delay_max <= SLOTS_MAX * period:
        yield f"a delay of {schedule.delay_max} iterations: 0 to twice the period of {period} are possible"
        return
    if not schedule.turns:
        if period != 1:
            yield f"a period of {period} iterations, and no turns"
        return
    if len(schedule.turns) != buckets:
        yield f"turns of {len(schedule.turns)} buckets: there are {buckets}"
    if schedule.together and len(set(schedule.turns)) > 1:
        yield "buckets are said to go together, and have different turns"
    for index, turns in enumerate(schedule.turns):
        for found in _turns(turns, schedule):
            yield f"bucket {index}: {found}"


def check_workload(plan: Plan, *, batch: int | None, accumulation: int | None, rank: int) -> None:
    """Raise ArtefactError if the plan has merged or late gradients, and was made for other iterations than those of a rank, which
    has `batch` samples in a backward, and `accumulation` backwards in an iteration. None: unknown.

    The guard has judged batches of another size, and computation hides more or less than was planned.
    """
    different = [
        f"{planned} {what}, and rank {rank} has {own}"
        for planned, own, what in (
            (plan.batch, batch, "samples per backward"),
            (plan.accumulation, accumulation, "backwards per iteration"),
        )
        if planned is not None and own is not None and planned != own
    ]
    if plan.schedule.turns and different:
        raise ArtefactError(
            f"plan `{plan.label}`: its schedule of merged or late gradients was made for {'; '.join(different)}\n"
            "hint: `hocket profile` the script as it is now and `hocket plan` again, or use a plan without merged or late gradients"
        )


def slots_needed(turns: Sequence[Turn], period: int) -> int:
    """Return the largest number of turns of a bucket that are open at the same time.

    >>> from hocket.artefacts.plan import Due
    >>> [slots_needed([Turn(first=0, last=0, due=Due(iteration=due))], 1) for due in (0, 1)]
    [1, 2]
    """
    return max(sum(_alive(turn, iteration, period) for turn in turns) for iteration in range(period))


def divided(schedule: Schedule, buckets: Sequence[Collection[str]]) -> tuple[str, int, int] | None:
    """Return a variable with parts in two buckets whose turns differ, and these buckets; `buckets`: the variables of each.

    A gradient is applied as a whole, so all of its parts have the same turns; they may be sent one after the other.
    """
    first_of: dict[str, int] = {}
    for index, names in enumerate(buckets):
        for name in names:
            other = first_of.setdefault(name, index)
            kept, own = (
                [(turn.first, turn.last, turn.due) for turn in schedule.turns[each]]
                for each in (other, index)
            )
            if kept != own:
                return name, other, index
    return None


def _turns(turns: Sequence[Turn], schedule: Schedule) -> Iterator[str]:
    period = schedule.period
    outside = [turn for turn in turns if not 0 <= turn.first <= turn.last < period]
    for turn in outside:
        yield f"a turn of iterations {turn.first} to {turn.last} of {period}"
    if outside:
        return
    summed = [iteration for turn in turns for iteration in range(turn.first, turn.last + 1)]
    for iteration in range(period):
        count = summed.count(iteration)
        if count != 1:
            yield f"gradients of iteration {iteration} are in {count} turns"
    if sorted(summed) != list(range(period)):
        return
    late = [turn for turn in turns if not 0 <= turn.due.iteration - turn.last <= schedule.delay_max]
    for turn in late:
        delay = turn.due.iteration - turn.last
        yield f"applied {delay} iterations late: at most {schedule.delay_max} are promised"
    for turn in turns:
        if turn.due.at == "gate" and schedule.overlap != "gates":
            yield f"iterations {turn.first} to {turn.last} are applied at gates, and the schedule has none"
        if not (turn.last, BACKWARD, 0) <= _sent(turn) <= _due(turn):
            yield f"sent in iteration {_sent(turn)[0]}, before it is ready or after it is due"
    if not late:
        yield from _sequence(turns, period)


def _sequence(turns: Sequence[Turn], period: int) -> Iterator[str]:
    """Check turns as they follow one another over the end of the period."""
    ordered = sorted(turns, key=lambda turn: turn.first)
    first = ordered[0]
    for before, after in pairwise([*ordered, None]):
        sent, due = (
            (_sent(after), _due(after))
            if after
            else (_later(_sent(first), period), _later(_due(first), period))
        )
        next_first = after.first if after else first.first + period
        if before is None:
            continue
        if not (_sent(before) < sent and _due(before) < due):
            yield f"the turn of iteration {next_first} is sent or applied before the one before it"
        elif before.due.iteration == due[0] - (due[1] == GATE):
            yield f"the turn of iteration {next_first} is applied by the same step as the one before it"
    alive = slots_needed(turns, period)
    if alive > SLOTS_MAX:
        yield f"{alive} turns are open at the same time: at most {SLOTS_MAX}"


def _sent(turn: Turn) -> Moment:
    if isinstance(turn.sent, Begun):
        stage = BEGIN if turn.sent.point == "begin" else BACKWARD_END
        return turn.sent.iteration, stage, turn.sent.place
    return turn.last, BACKWARD, 0


def _due(turn: Turn) -> Moment:
    if turn.due.at == "gate":
        return turn.due.iteration + 1, GATE, 0
    return turn.due.iteration, END, 0


def _later(moment: Moment, iterations: int) -> Moment:
    return moment[0] + iterations, *moment[1:]


def _alive(turn: Turn, iteration: int, period: int) -> int:
    """Return how often a turn is open in an iteration of the period, since one of an earlier period may not be due yet."""
    return sum(
        turn.first <= iteration + earlier * period <= turn.due.iteration
        for earlier in range(turn.due.iteration // period + 1)
    )
