"""Timeline of a rank that trains by a schedule, for the flow engine: it computes, starts launches, and waits for those due."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from hocket import _native
from hocket._native import BUCKET_S
from hocket.artefacts.plan import Begun, Due, Schedule, Turn
from hocket.errors import UsageError

PERIODS = 6
"""Least number of periods that are run: the first ones fill the links."""


class Computation(NamedTuple):
    """Iteration without communication, seconds after its forward began. By bucket: when forward needs it, when it is ready."""

    needed_s: Sequence[float]
    ready_s: Sequence[float]
    backward_end_s: float
    step_s: float


class Launch(NamedTuple):
    """Turn of a bucket, in the period `number` counted from the first one; `before`: launches of that bucket so far."""

    number: int
    bucket: int
    turn: Turn
    before: int


def refuse_turns(schedule: Schedule, what: str) -> None:
    """Raise UsageError for a schedule of several iterations, where `what` is of one."""
    if schedule.turns:
        raise UsageError(
            f"{what} one iteration, and the plan's gradients travel in turns of several\n"
            "hint: the flow engine runs them: --fidelity flow"
        )


def outlasts(schedule: Schedule) -> bool:
    """Return whether launches may outlast their iteration: until a later one, or until the gates of the next forward.

    >>> outlasts(Schedule()), outlasts(Schedule(overlap="gates"))
    (False, True)
    """
    return bool(schedule.turns) or schedule.overlap == "gates"


def iterations(schedule: Schedule, steps: int) -> int:
    """Return the number of iterations to run, so that a schedule reaches the pace that it keeps."""
    return max(steps, PERIODS * schedule.period) if outlasts(schedule) else steps


def steady_s(ends_s: Sequence[Sequence[float]], schedule: Schedule) -> float:
    """Return mean seconds of an iteration, from the ends of iterations by rank; where launches outlast theirs, over the second
    half.

    >>> steady_s([[1.0], [2.0]], Schedule())
    1.0
    """
    last = [max(ends) for ends in ends_s]
    if not outlasts(schedule):
        return last[-1] / len(last)
    half = len(last) // 2 // schedule.period * schedule.period
    return (last[-1] - last[half - 1]) / (len(last) - half)


def job(
    schedule: Schedule,
    priorities: Sequence[int],
    places: Sequence[int],
    computation: Computation,
    *,
    count: int,
    pace: Sequence[float],
    world: int,
) -> _native.SimulatedJob:
    """Return `count` iterations of buckets with these priorities and programs; `pace`: of ranks' computation, one for all or by
    rank.

    Launches are in the order of turns, then of buckets. A launch that is due earlier goes first, and then by priority.
    """
    launched = launches(schedule, len(places), count)
    started = [
        (places[launch.bucket], _due(launch, schedule) * len(places) + priorities[launch.bucket])
        for launch in launched
    ]
    acts = _acts(schedule, launched, computation, count)
    timelines = [
        [(name, number * each if name == "compute" else number) for name, number in acts] for each in pace
    ]
    return _native.SimulatedJob.timelines(world, started, timelines)


def launches(schedule: Schedule, buckets: int, count: int) -> list[Launch]:
    """Return all launches that start in `count` iterations, as a job of `job` numbers them."""
    each = schedule.turns or (_own(schedule),) * buckets
    made = [
        Launch(number, bucket, turn, number * len(turns) + at)
        for bucket, turns in enumerate(each)
        for number in range(-(-count // schedule.period))
        for at, turn in enumerate(turns)
        if _sent(turn) + number * schedule.period < count
    ]
    return sorted(made, key=lambda launch: (launch.before, launch.bucket))


def _own(schedule: Schedule) -> tuple[Turn, ...]:
    """Return the turns of a schedule without turns: every gradient in its own iteration."""
    return (Turn(first=0, last=0, due=Due(iteration=0, at="gate" if schedule.overlap == "gates" else "end")),)


def _sent(turn: Turn) -> int:
    return turn.sent.iteration if isinstance(turn.sent, Begun) else turn.last


def _due(launch: Launch, schedule: Schedule) -> int:
    return launch.turn.due.iteration + launch.number * schedule.period


def _acts(
    schedule: Schedule, launched: Sequence[Launch], computation: Computation, count: int
) -> list[tuple[str, float]]:
    # By iteration: (seconds, order at equal times, place, act, launch).
    points: list[list[tuple[float, int, int, str, int]]] = [[] for _ in range(count)]
    ready_s = [each + BUCKET_S for each in computation.ready_s]
    end_s = max([computation.backward_end_s, *ready_s])
    for number, (period, bucket, turn, _) in enumerate(launched):
        begun = period * schedule.period
        if not isinstance(turn.sent, Begun):
            start = (ready_s[bucket], 2, bucket)
        elif turn.sent.point == "begin":
            start = (0.0, 0, turn.sent.place)
        else:
            start = (end_s, 3, turn.sent.place)
        points[_sent(turn) + begun].append((*start, "launch", number))
        gate = turn.due.at == "gate"
        applied = turn.due.iteration + begun + gate
        if applied < count:
            at_s = computation.needed_s[bucket] if gate else end_s
            points[applied].append((at_s, 1 if gate else 4, bucket, "wait", number))
    acts: list[tuple[str, float]] = []
    for each in points:
        now_s = 0.0
        for at_s, _, _, act, number in sorted(each):
            acts += [("compute", at_s - now_s), (act, number)]
            now_s = at_s
        acts += [("compute", max(0.0, end_s - now_s)), ("compute", _tail_s(computation)), ("end", 0)]
    return acts


def _tail_s(computation: Computation) -> float:
    return max(0.0, computation.step_s - computation.backward_end_s)
