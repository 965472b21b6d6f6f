"""Choice of the timeline's spans: a few steps from the middle of the run, or the latest while it runs, cut until they fit a page.

The choice is reduced in this order: the sends within buckets, then steps, then ranks; never single spans, so everything drawn is
complete. Arrays are counted first, and only what is drawn becomes Python objects.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hocket.tools.report.markup import NAME_CHARACTERS_MAX, clipped
from hocket.tools.report.material import (
    BACKWARD,
    FORWARD,
    INSTANCE,
    OPTIMIZER,
    SEND,
    STEP,
    UPDATE,
    WAIT,
    Material,
    Records,
)

# A span is about 45 bytes of JSON: together they take 1 MB, half of the page's limit, and draw in one frame.
SPANS_MAX = 20_000
# Enough steps to see what repeats.
STEPS_MAX = 6
# Ranks shown, chosen evenly: a screen of lanes each.
RANKS_MAX = 16
# Of more ranks than the first number, the second are drawn until the reader asks for all.
RANKS_UNFOLDED_MAX, RANKS_FOLDED = 6, 4
KINDS = {FORWARD: 0, BACKWARD: 1, WAIT: 2, OPTIMIZER: 3, INSTANCE: 4, SEND: 5, UPDATE: 6}
ON_LINK = 7
"""Kind of a send, where each link has a lane of its own."""


@dataclass(frozen=True)
class Choice:
    """Chosen spans: `steps` are (step, start, end) in ns on the common clock."""

    steps: tuple[tuple[int, int, int], ...]
    ranks: tuple[int, ...]
    sends: bool


def choose(material: Material, spans_max: int) -> Choice | None:
    """Return the largest choice of at most `spans_max` spans; None without steps, or if a single step has more."""
    steps = _chosen_steps(material)
    if not steps:
        return None
    choice = Choice(steps, _spread(material.ranks), sends=True)
    while sum(len(_inside(material, rank, choice)) for rank in choice.ranks) > spans_max:
        if choice.sends:
            choice = replace(choice, sends=False)
        elif len(choice.steps) > 1:
            choice = replace(choice, steps=choice.steps[: len(choice.steps) // 2])
        elif len(choice.ranks) > 1:
            choice = replace(choice, ranks=choice.ranks[: len(choice.ranks) // 2])
        else:
            return None
    return choice


def island(material: Material, choice: Choice, late: int | None = None) -> dict[str, Any]:
    """Return the data for `timeline.js`; times in µs since the first step shown. `late`: the rank that the others wait for."""
    ranks = [_lanes(material, rank, choice) for rank in choice.ranks]
    programs = {span[2] for lanes in ranks for span in lanes["spans"]}
    peers = {span[3] for lanes in ranks for span in lanes["spans"]} - {-1}
    origin = choice.steps[0][1]
    return {
        "ranks": ranks,
        "steps": [[step, _us(start - origin), _us(end - origin)] for step, start, end in choice.steps],
        "buckets": {
            str(p.program): clipped(p.label, NAME_CHARACTERS_MAX) or f"bucket {p.bucket}"
            for p in material.run.programs
            if p.program in programs
        },
        "hosts": {str(peer): material.host(peer) for peer in sorted(peers)},
        "generations": generations_of(material),
        "folded": list(folded(choice, late)),
    }


def folded(choice: Choice, late: int | None) -> tuple[int, ...]:
    """Return the ranks that are drawn before the reader asks for all: a screen of them, with the one that the others wait for."""
    if len(choice.ranks) <= RANKS_UNFOLDED_MAX:
        return choice.ranks
    first = choice.ranks[:RANKS_FOLDED]
    return (*first[:-1], late) if late in choice.ranks and late not in first else first


def generations_of(material: Material) -> bool:
    """Return whether launches are of generations of gradients, several of which travel at the same time."""
    plan = material.run.plan
    return plan is not None and bool(plan.schedule.turns)


def _chosen_steps(material: Material) -> tuple[tuple[int, int, int], ...]:
    """Return consecutive steps in the middle of the run, or the latest of one that still runs, each from its first rank's start to
    its last rank's end."""
    found: dict[int, tuple[int, int]] = {}
    for rank in material.ranks:
        marks = material.of_kind(rank, STEP)
        columns = (marks[name].tolist() for name in ("instance", "start_ns", "end_ns"))
        for step, start, end in zip(*columns, strict=True):
            known = found.get(step, (start, end))
            found[step] = (min(known[0], start), max(known[1], end))
    steps = sorted(found)
    first = max(0, len(steps) - STEPS_MAX) if material.runs else max(0, (len(steps) - STEPS_MAX) // 2)
    return tuple((step, *found[step]) for step in steps[first : first + STEPS_MAX])


def _inside(material: Material, rank: int, choice: Choice) -> Records:
    """Return the rank's records that are drawn, by start."""
    records = material.records[rank]
    kinds = [kind for kind in KINDS if choice.sends or kind != SEND]
    inside = (records["end_ns"] > choice.steps[0][1]) & (records["start_ns"] < choice.steps[-1][2])
    chosen = records[inside & np.isin(records["kind"], kinds)]
    ordered: Records = chosen[np.argsort(chosen["start_ns"], kind="stable")]
    return ordered


def _lanes(material: Material, rank: int, choice: Choice) -> dict[str, Any]:
    """Return one rank's spans as [lane, kind, program, peer, bytes, ready, start, end, generation]; lane 0 is compute. Where
    several generations travel at the same time, each link has a lane, below those of buckets."""
    records = _inside(material, rank, choice)
    lane_of, count = _bucket_lanes(records[records["kind"] == INSTANCE])
    links: dict[int, int] = {}
    if generations_of(material):
        peers = np.unique(records["peer"][records["kind"] == SEND]).tolist()
        links = {peer: 1 + max(1, count) + at for at, peer in enumerate(peers)}
    origin = choice.steps[0][1]
    spans = []
    names = ("kind", "program", "instance", "peer", "bytes", "ready_ns", "start_ns", "end_ns")
    for kind, program, instance, peer, size, *times in zip(
        *(records[n].tolist() for n in names), strict=True
    ):
        at = [_us(time - origin) for time in times]
        if kind == SEND and peer in links:
            spans.append([links[peer], ON_LINK, program, peer, size, *at, instance])
        elif kind in (INSTANCE, SEND):
            lane = lane_of.get((program, instance), 1)
            spans.append([lane, KINDS[kind], program, peer if kind == SEND else -1, size, *at, instance])
        else:
            spans.append([0, KINDS[kind], -1, -1, 0, *at, -1])
    rack = material.rack(rank)
    return {
        "rank": rank,
        "host": material.host(rank),
        "rack": None if rack is None else clipped(rack, NAME_CHARACTERS_MAX),
        "lanes": 1 + max(1, count) + len(links),
        "spans": spans,
    }


def _bucket_lanes(instances: Records) -> tuple[dict[tuple[int, int], int], int]:
    """Return (program, instance) → lane from 1, the first that is free at its start; and the number of lanes."""
    lane_of: dict[tuple[int, int], int] = {}
    free_at: list[int] = []
    columns = (instances[name].tolist() for name in ("program", "instance", "start_ns", "end_ns"))
    for program, instance, start, end in zip(*columns, strict=True):
        lane = next((index for index, free in enumerate(free_at) if free <= start), len(free_at))
        free_at[lane : lane + 1] = [end]
        lane_of[program, instance] = lane + 1
    return lane_of, len(free_at)


def _spread(ranks: list[int]) -> tuple[int, ...]:
    """Return at most RANKS_MAX of `ranks`, evenly, the first and the last among them."""
    if len(ranks) <= RANKS_MAX:
        return tuple(ranks)
    return tuple(ranks[(len(ranks) - 1) * i // (RANKS_MAX - 1)] for i in range(RANKS_MAX))


def _us(ns: int) -> float:
    return round(ns / 1000, 1)
