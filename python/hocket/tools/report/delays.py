"""Section on merged and late gradients, and whether all were applied, for plans whose schedule has turns.

The coverage rate is the time in which programs of buckets ran over the time of forward and backward. Without merging, it would be
larger by the number of iterations in a launch.
"""

from __future__ import annotations

import msgspec
import numpy as np
from msgspec import Struct

from hocket.artefacts.exchange import Exchange, read_exchanges
from hocket.artefacts.plan import Begun, Bucket, Plan, Schedule, Turn
from hocket.artefacts.turn_counts import TurnCounts, read_turns
from hocket.tools.report import quantity
from hocket.tools.report.markup import NAME_CHARACTERS_MAX, Html, Row, clipped, joined, table, tag
from hocket.tools.report.material import BACKWARD, FORWARD, INSTANCE, STEP, UPDATE, Material, Records
from hocket.tools.report.section import Section

# The same limit as for the plan's buckets.
BUCKETS_MAX = 64
REFUSED_MAX = 8
EXCHANGES_MAX = 32
NAME, QUESTION = "delays", "Which gradients are merged or late, and were all applied?"


class Delays(Struct, frozen=True, kw_only=True):
    """Numbers of the section. `coverage`: now, and if every gradient were sent in its own iteration; None: unknown.
    `exchanges`: of ranks that step alone, the last ones."""

    iterations: int
    updates: int
    merge_max: int
    delay_max: int
    coverage: float | None
    coverage_before: float | None
    extra_bytes: int
    made: tuple[int, ...]
    applied: tuple[int, ...]
    saved_open: tuple[int, ...]
    exchanges: tuple[Exchange, ...] = ()

    @property
    def complete(self) -> bool:
        """True if every rank has applied all gradients that it made."""
        return self.made == self.applied


def section(material: Material) -> Section | None:
    """Return the section; None for a plan without turns."""
    plan = material.run.plan
    if plan is None or not plan.schedule.turns:
        return None
    found = delays(material, plan.schedule)
    parts = [tag("p", _words(found, plan.schedule))]
    if found.made and not found.complete:
        parts.append(tag("p", _lacking(found), class_="alarm", role="alert"))
    if found.saved_open:
        parts.append(
            tag(
                "p",
                f"The model was saved {_times(len(found.saved_open))} without gradients that were made and not applied "
                f"(of up to {max(found.saved_open)} iterations).",
                class_="note",
            )
        )
    if found.exchanges:
        parts.append(_exchanges(found.exchanges))
    parts += [_totals(found), _buckets(plan.buckets, plan.schedule)]
    if plan.evidence.checks or plan.evidence.refused:
        parts.append(_checks(plan))
    return Section(NAME, QUESTION, joined(parts), numbers=msgspec.to_builtins(found))


def delays(material: Material, schedule: Schedule) -> Delays:
    """Return the numbers: of rank 0 where all ranks do the same, else of all ranks."""
    turns = [turn for own in schedule.turns for turn in own]
    counts = [read_turns(material.directory, rank) for rank in range(material.run.world)]
    known: list[TurnCounts] = [each for each in counts if each is not None]
    first = material.ranks[0] if material.ranks else 0
    records = material.records[first]
    coverage, before = _coverage(material, records)
    return Delays(
        iterations=len(material.of_kind(first, STEP)),
        updates=len(material.of_kind(first, UPDATE)),
        merge_max=max(turn.last - turn.first + 1 for turn in turns),
        delay_max=max(turn.due.iteration - turn.last for turn in turns),
        coverage=coverage,
        coverage_before=before,
        extra_bytes=max((each.extra_bytes for each in known), default=0),
        made=tuple(each.made for each in known),
        applied=tuple(each.applied for each in known),
        saved_open=tuple(left for each in known for left in each.saved_open),
        exchanges=read_exchanges(material.directory)[-EXCHANGES_MAX:],
    )


def _coverage(material: Material, records: Records) -> tuple[float | None, float | None]:
    computed = records[np.isin(records["kind"], (FORWARD, BACKWARD))]
    computed_ns = int((computed["end_ns"] - computed["start_ns"]).sum())
    programs = {each.program for each in material.run.programs if each.bucket is not None}
    launches = records[(records["kind"] == INSTANCE) & np.isin(records["program"], list(programs))]
    steps = int((records["kind"] == STEP).sum())
    if not computed_ns or not len(launches) or not steps:
        return None, None
    coverage = busy_ns(launches) / computed_ns
    buckets = len(np.unique(launches["program"]))
    return coverage, coverage * steps * buckets / len(launches)


def busy_ns(spans: Records) -> int:
    """Return the nanoseconds in which at least one of the spans was there.

    >>> busy_ns(np.array([(0, 4), (2, 5), (7, 8)], [("start_ns", "i8"), ("end_ns", "i8")]))
    6
    """
    ordered = spans[np.argsort(spans["start_ns"], kind="stable")]
    ends = np.maximum.accumulate(ordered["end_ns"].astype(np.int64))
    begins = ordered["start_ns"].astype(np.int64)
    begins[1:] = np.maximum(begins[1:], ends[:-1])
    return int(np.maximum(ends - begins, 0).sum())


def _words(found: Delays, schedule: Schedule) -> str:
    merged = "one iteration" if found.merge_max == 1 else f"up to {found.merge_max} iterations"
    late = "not late" if not found.delay_max else f"up to {found.delay_max} late"
    if schedule.steps == "own first":
        rate = {"linear": "", "sqrt": " over the root of their number", "one": " over their number"}
        return (
            f"{found.updates} updates in {found.iterations} iterations. An update is of {merged}, {late}: a step of the anchor for "
            f"each iteration, at its learning rate{rate[schedule.rate]}. Until then, ranks go on with their own gradients."
        )
    if schedule.steps == "local":
        return (
            f"{found.updates} exchanges in {found.iterations} iterations. Ranks step alone, up to {found.merge_max} times in a "
            f"row; an outer step of an anchor that all have alike takes the mean of how far they came, {late}."
        )
    rate = {"linear": "times their number", "sqrt": "times the root of their number", "one": "as it is"}
    words = f"{found.updates} updates in {found.iterations} iterations. An update is of {merged}, {late}; its learning rate is "
    return f"{words}the script's, {rate[schedule.rate]}."


def _lacking(found: Delays) -> str:
    lacking = [
        f"rank {rank} made {made} and applied {applied}"
        for rank, (made, applied) in enumerate(zip(found.made, found.applied, strict=True))
        if made != applied
    ]
    return (
        f"Gradients were lost: of iterations, {'; '.join(lacking[:8])}. "
        "Call hk.flush(model) after the last step, or save hk.state_dict(model)."
    )


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _totals(found: Delays) -> Html:
    made, applied = (
        str(each[0]) if len(set(each)) == 1 else " / ".join(map(str, each)) or quantity.UNKNOWN
        for each in (found.made, found.applied)
    )
    rows = (
        Row(("Iterations whose gradients were made", made)),
        Row(("Iterations whose gradients were applied", applied)),
        Row(("Updates : iterations", f"{found.updates} : {found.iterations}")),
        Row(("Communication over computation", _rate(found.coverage))),
        Row(("The same, were each gradient sent in its own iteration", _rate(found.coverage_before))),
        Row(("Memory of the second slots, each rank", quantity.size(found.extra_bytes))),
    )
    return table(("", "value"), rows, caption="Counts and coverage", class_="numbers")


def _rate(value: float | None) -> str:
    return quantity.digits(value)


def _exchanges(exchanges: tuple[Exchange, ...]) -> Html:
    """Return a table of the last exchanges of ranks that step alone."""
    rows = [
        Row(
            (
                str(each.step),
                str(each.fragment),
                str(each.steps),
                *(
                    quantity.digits(value)
                    for value in (
                        each.drift,
                        each.drift_max,
                        each.moved,
                        each.agreement,
                        each.loss_first,
                        each.loss_last,
                    )
                ),
                "yes" if each.taken else "no: training diverged",
            )
        )
        for each in exchanges
    ]
    head = (
        "Step",
        "From bucket",
        "Steps alone",
        "Drift",
        "Of the farthest rank",
        "Anchor's step",
        "Agreement",
        "Loss at the turn's begin",
        "At its end",
        "Taken",
    )
    caption = "How far ranks came from the anchor in each exchange, and how alike"
    return table(head, rows, caption=caption, class_="numbers")


def _buckets(buckets: tuple[Bucket, ...], schedule: Schedule) -> Html:
    rows = []
    for index, (bucket, turns) in enumerate(zip(buckets, schedule.turns, strict=True)):
        if index == BUCKETS_MAX:
            break
        name = clipped(
            " … ".join(dict.fromkeys((bucket.variables[0], bucket.variables[-1]))), NAME_CHARACTERS_MAX
        )
        rows.append(
            Row(
                (
                    str(index),
                    tag("span", name, class_="name"),
                    f"{len(turns)} : {schedule.period}",
                    ", ".join(dict.fromkeys(str(turn.last - turn.first + 1) for turn in turns)),
                    ", ".join(dict.fromkeys(str(turn.due.iteration - turn.last) for turn in turns)),
                    ", ".join(dict.fromkeys(map(_sent, turns))),
                    ", ".join(
                        dict.fromkeys(
                            "gate" if turn.due.at == "gate" else "end of backward" for turn in turns
                        )
                    ),
                )
            )
        )
    head = ("Bucket", "Gradients", "Updates : iterations", "Merged", "Late", "Sent", "Applied at")
    return table(head, rows, caption="Turns of each bucket, over a period", class_="numbers")


def _checks(plan: Plan) -> Html:
    """Return a table of the checks of the plan's schedule, and of faster ones that the guard refused."""
    outcomes = {True: "kept", False: "exceeded", None: "unknown"}
    judged = [("this plan's", plan.evidence.checks)]
    judged += [(each.label, each.checks) for each in plan.evidence.refused[:REFUSED_MAX]]
    rows = [
        Row(
            (
                clipped(label, NAME_CHARACTERS_MAX),
                check.name,
                quantity.UNKNOWN if check.value is None else quantity.digits(check.value),
                quantity.digits(check.limit),
                outcomes[check.passed],
            )
        )
        for label, checks in judged
        for check in checks
    ]
    head = ("Schedule", "Check", "Value", "Limit", "Outcome")
    caption = "What the guard found when the plan was made"
    return table(head, rows, caption=caption, class_="numbers")


def _sent(turn: Turn) -> str:
    if not isinstance(turn.sent, Begun):
        return "when ready"
    later = turn.sent.iteration - turn.last
    point = "before forward" if turn.sent.point == "begin" else "after backward"
    return point if not later else f"{point}, {later} later"
