"""Scenarios of training as plain data, their events iteration by iteration, and the lists that the suite runs."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence
from typing import NamedTuple

ITERATIONS = 9

PLANS = (
    "default",
    "buckets",
    "parts",
    "owners",
    "replicas",
    "rows",
    "traced",
    "rounding",
    "gated",
    "local",
    "any",
)
SCHEDULES = ("immediate", "gates", "late", "merged", "both", "apart", "drawn")
EVENTS = ("accumulation", "zeros", "idle", "uneven", "epoch", "flush", "resume", "lost", "leave")

POLICIES = ("rounding", "gated")
"""Plans that a policy makes of the whole model, and which have no other schedule than its own."""

OWN = ("default", "local", *POLICIES)
"""Plans that are not written here, bucket by bucket."""

MEMBERS = ("buckets", "parts", "replicas", "rows", "traced", "rounding", "gated")
"""Plans that elastic jobs have."""

VICTIM = LEAVER = 1
"""Rank that is lost, or leaves."""


class Scenario(NamedTuple):
    """One training. `seed`: what is drawn of plan, schedule, and the iterations in which events come; 0: the usual ones."""

    framework: str
    world: int
    plan: str
    schedule: str
    commit: str
    events: tuple[str, ...]
    seed: int = 0

    @property
    def label(self) -> str:
        """Name in records and in failures."""
        events = "+".join(self.events) or "-"
        return f"{self.framework} {self.world} {self.plan} {self.schedule} {self.commit} {events} {self.seed}"

    @property
    def turns(self) -> bool:
        """Return whether gradients may be merged or late."""
        return self.schedule not in ("immediate", "gates")


def runs(each: Scenario) -> bool:
    """Return whether Hocket has such a training: what refuses the others is tested elsewhere."""
    elastic, events = each.commit == "barrier", set(each.events)
    parts, gone = {"lost", "leave"} & events, {"lost", "leave"} <= events
    waits = each.schedule in ("gates", "drawn") or each.plan in ("gated", "any")
    refused = {
        "a schedule of a plan that is not written": each.plan in OWN and each.schedule != "immediate",
        "an epoch of one": each.plan in OWN and "epoch" in events,
        "turns of what is no mean": each.plan in ("owners", "rows", "any", "traced") and each.turns,
        "turns of half a gradient": each.plan in ("parts", "rows", "any") and each.schedule == "apart",
        "open turns in a file, while another plan comes": each.turns and {"epoch", "resume"} <= events,
        "local steps of the toy": each.plan == "local" and each.framework == "toy",
        "zeros that the oracle of steps alone lacks": each.plan == "local" and "zeros" in events,
        "a whole optimizer of owners": each.plan in ("owners", "any")
        and {"zeros", "idle", "resume"} & events,
        "zeros behind a gate of the toy": waits and "zeros" in events and each.framework == "toy",
        "members without a barrier": parts and (not elastic or each.world == 1 or gone),
        "a plan of members": elastic and each.plan not in MEMBERS,
        "a second model of a member": elastic and "resume" in events,
        "open turns of members, while another plan comes": elastic and each.turns and "epoch" in events,
    }
    return not any(refused.values())


class Iteration(NamedTuple):
    """Iteration of a script: `backwards`, all but the last without communication; `zeros` in place of no gradients after the
    step; `idle`: a step more, without a backward. `before` it, or `after` it: another event."""

    backwards: int = 1
    zeros: bool = False
    idle: bool = False
    before: str = ""
    after: str = ""


USUAL = {
    "accumulation": (2, 3, 6),
    "zeros": (1, 4, 5),
    "idle": (3, 5),
    "epoch": (3,),
    "flush": (4,),
    "resume": (6,),
    "lost": (5,),
    "leave": (3,),
}


def course(scenario: Scenario) -> list[Iteration]:
    """Iterations of a scenario; the same on all ranks."""
    draw = random.Random(scenario.seed)  # noqa: S311
    at = USUAL
    if scenario.seed:
        many = {"accumulation", "zeros", "idle", "flush"}
        at = {
            name: tuple(
                sorted(draw.sample(range(1, ITERATIONS - 1), draw.randint(1, 4) if name in many else 1))
            )
            for name in USUAL
        }
    here = {name: set(at[name]) for name in scenario.events if name in at}
    others = {"epoch": "before", "lost": "before", "flush": "after", "resume": "after", "leave": "after"}
    made = []
    for number in range(ITERATIONS):
        events = [name for name in here if number in here[name]]
        places = {
            place: next((name for name in events if others.get(name) == place), "")
            for place in ("before", "after")
        }
        made.append(
            Iteration(
                1 + ("accumulation" in events),
                "zeros" in events,
                "idle" in events,
                places["before"],
                places["after"],
            )
        )
    return made


def written() -> list[Scenario]:
    """Return scenarios in which all pairs of a world, a plan, a schedule and one or two events meet that can, and few more.

    Those with a barrier are a job each: they have all plans, schedules and events, and only those pairs that no other scenario has.
    """
    events = [(), *((name,) for name in EVENTS), *itertools.combinations(EVENTS, 2)]
    found: list[Scenario] = []
    for commit, worlds in (("none", (1, 2, 3, 4)), ("barrier", (2, 3, 4))):
        every = itertools.product(("toy",), worlds, PLANS, SCHEDULES, (commit,), events)
        found += _cover([each for each in itertools.starmap(Scenario, every) if runs(each)], found)
    return found


def _pairs(each: Scenario) -> set[tuple[object, ...]]:
    values = (each.world, each.plan, each.schedule, *each.events)
    return {*itertools.combinations(values, 2), *((each.commit, value) for value in values)}


def _cover(scenarios: Sequence[Scenario], others: Sequence[Scenario]) -> list[Scenario]:
    """Return some of these in which all pairs are that are in any, and in none of the others, by greed."""
    pairs = {each: _pairs(each) for each in scenarios}
    missing = set().union(*pairs.values()).difference(*map(_pairs, others))
    chosen = []
    while missing:
        best = max(scenarios, key=lambda each: len(pairs[each] & missing))
        chosen.append(best)
        missing -= pairs[best]
    return chosen


TORCH = tuple(
    Scenario("torch", world, plan, schedule, "none", events)
    for world, plan, schedule, events in (
        (2, "default", "immediate", ("accumulation", "uneven", "idle")),
        (3, "buckets", "gates", ("accumulation", "epoch")),
        (2, "parts", "gates", ("zeros", "uneven")),
        (2, "parts", "both", ("zeros", "flush", "uneven")),
        (3, "buckets", "apart", ("accumulation", "resume")),
        (2, "traced", "immediate", ("zeros", "epoch")),
        (2, "replicas", "late", ("zeros", "epoch")),
        (2, "owners", "gates", ("accumulation", "uneven")),
        (3, "owners", "immediate", ("epoch",)),
        (3, "rounding", "immediate", ("uneven",)),
        (3, "rows", "immediate", ("accumulation", "zeros")),
        (2, "gated", "immediate", ("accumulation", "idle")),
        (3, "local", "immediate", ("idle", "resume")),
        (2, "local", "immediate", ("accumulation", "flush", "uneven")),
    )
) + tuple(
    Scenario("torch", 3, "any", schedule, "none", ("accumulation", "epoch", "uneven"), seed)
    for seed, schedule in enumerate(("immediate", "gates") * 4, 1)
)

DEVICE = tuple(
    Scenario("hostile", world, plan, schedule, commit, events)
    for world, plan, schedule, commit, events in (
        (2, "default", "immediate", "none", ("accumulation", "uneven", "idle")),
        (3, "buckets", "gates", "none", ("accumulation", "epoch")),
        (2, "parts", "both", "none", ("zeros", "flush", "uneven")),
        (3, "buckets", "apart", "none", ("accumulation", "resume")),
        (2, "replicas", "late", "none", ("zeros", "epoch")),
        (2, "buckets", "merged", "none", ("uneven", "resume")),
        (2, "owners", "gates", "none", ("accumulation", "uneven")),
        (3, "owners", "immediate", "none", ("epoch",)),
        (3, "rounding", "immediate", "none", ("uneven",)),
        (2, "gated", "immediate", "none", ("accumulation", "idle")),
        (3, "local", "immediate", "none", ("idle", "resume")),
        (3, "rows", "immediate", "none", ("accumulation", "zeros")),
        (3, "buckets", "immediate", "barrier", ("accumulation", "lost")),
        (3, "parts", "both", "barrier", ("uneven", "leave")),
    )
)


def drawn(count: int, first: int = 1) -> Iterator[Scenario]:
    """Yield so many that can be, by seed."""
    numbers = itertools.count(first)
    while count:
        seed = next(numbers)
        draw = random.Random(seed)  # noqa: S311
        events = tuple(name for name in EVENTS if draw.random() < 0.4)
        one = Scenario(
            "toy", draw.randint(1, 4), draw.choice(PLANS), draw.choice(SCHEDULES), "none", events, seed
        )
        if runs(one):
            count -= 1
            yield one
