"""What does each rank do, and when? A few steps from the middle of the run, drawn by `timeline.js`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hocket.report.breakdown import phase_legend
from hocket.report.markup import Html, clipped, data, joined, tag
from hocket.report.material import BACKWARD, FORWARD, INSTANCE, OPTIMIZER, SEND, STEP, WAIT, Material
from hocket.report.section import Section, absent

# A span is about 45 bytes of JSON: together they take 1 MB, half of the page's limit, and draw in one frame.
SPANS_MAX = 20_000
# Enough steps to see what repeats; more are further away than anyone scrolls.
STEPS_MAX = 6
# Ranks shown, chosen evenly: a screen of lanes each.
RANKS_MAX = 16
# Names in tooltips.
NAME_CHARACTERS_MAX = 60
MINUS = "\u2212"
NAME, QUESTION = "timeline", "What does each rank do, and when?"
KINDS = {FORWARD: 0, BACKWARD: 1, WAIT: 2, OPTIMIZER: 3, INSTANCE: 4, SEND: 5}


def section(material: Material, spans_max: int = SPANS_MAX) -> Section:
    """The newest steps fit `spans_max`: fewer steps are taken rather than spans left out of one."""
    windows = _windows(material)
    if not windows:
        return absent(NAME, QUESTION, "No steps were recorded in this trace.")
    ranks = _spread(material.ranks, RANKS_MAX)
    sends = True
    drawn = _drawn(material, ranks, windows, sends=sends)
    while _count(drawn) > spans_max and (sends or len(windows) > 1 or len(ranks) > 1):
        if sends:
            sends = False
        elif len(windows) > 1:
            windows = windows[: len(windows) // 2]
        else:
            ranks = ranks[: len(ranks) // 2]
        drawn = _drawn(material, ranks, windows, sends=sends)
    for lanes in drawn:
        lanes["spans"] = lanes["spans"][:spans_max]
    origin = windows[0][1]
    island = {
        "ranks": drawn,
        "steps": [[step, _us(start - origin), _us(end - origin)] for step, start, end in windows],
        "buckets": _names(material, drawn),
        "hosts": _hosts(material, drawn),
    }
    return Section(NAME, QUESTION, _body(material, windows, ranks, island), numbers=None)


def _body(
    material: Material, windows: Sequence[tuple[int, int, int]], ranks: list[int], island: dict[str, Any]
) -> Html:
    said = f"Steps {windows[0][0]} to {windows[-1][0]}, from the middle of the run, on one clock."
    if len(ranks) < len(material.ranks):
        said += f" {len(ranks)} of {len(material.ranks)} ranks are shown."
    options = [
        tag("option", "all shown", value="all"),
        *(tag("option", f"step {w[0]}", value=i) for i, w in enumerate(windows)),
    ]
    controls = tag(
        "div",
        tag("label", "Show ", tag("select", *options, id="timeline-step")),
        tag("button", MINUS, type="button", data_zoom="out", aria_label="Zoom out"),
        tag("button", "+", type="button", data_zoom="in", aria_label="Zoom in"),
        tag("button", "Fit", type="button", data_zoom="fit"),
        class_="controls",
    )
    help_text = (
        f"Drag or ← → to move, Ctrl + wheel, pinch or + {MINUS} to zoom, 0 to fit; "
        "point at a bar, or step through them with , and . to read its times."
    )
    legend = joined((phase_legend(), tag("ul", *_bucket_keys(), class_="legend")))
    canvas = tag(
        "div",
        tag(
            "canvas",
            tabindex=0,
            role="application",
            aria_label=f"Timeline of {len(ranks)} ranks. {help_text}",
        ),
        tag("div", class_="tip", hidden="hidden"),
        class_="timeline",
        id="timeline-view",
    )
    spoken = tag("p", "", class_="spoken", id="timeline-spoken", aria_live="polite")
    fallback = tag(
        "noscript", tag("p", "The timeline needs JavaScript; the medians above do not.", class_="absent")
    )
    parts = (tag("p", said), legend, controls, canvas, spoken, tag("p", help_text, class_="hint"), fallback)
    return joined((*parts, data("timeline-data", island)))


def _bucket_keys() -> list[Html]:
    bar = tag("li", tag("i", class_="key bucket"), "a bucket's all-reduce, launch to done")
    return [bar, tag("li", tag("i", class_="key send"), "one of its sends on the wire")]


def _windows(material: Material) -> list[tuple[int, int, int]]:
    """(step, start, end) of consecutive steps in the middle of the run, ns, over all ranks."""
    spans: dict[int, tuple[int, int]] = {}
    for rank in material.ranks:
        for record in material.of_kind(rank, STEP):
            step, start, end = int(record["instance"]), int(record["start_ns"]), int(record["end_ns"])
            known = spans.get(step, (start, end))
            spans[step] = (min(known[0], start), max(known[1], end))
    steps = sorted(spans)
    first = max(0, (len(steps) - STEPS_MAX) // 2)
    return [(step, *spans[step]) for step in steps[first : first + STEPS_MAX]]


def _drawn(
    material: Material, ranks: Sequence[int], windows: Sequence[tuple[int, int, int]], *, sends: bool
) -> list[dict[str, Any]]:
    start, end = windows[0][1], windows[-1][2]
    return [_rank(material, rank, start, end, sends=sends) for rank in ranks]


def _rank(material: Material, rank: int, start: int, end: int, *, sends: bool) -> dict[str, Any]:
    """One rank's spans as [lane, kind, program, peer, bytes, ready, start, end], µs; lane 0 is compute."""
    records = material.records[rank]
    kinds = [kind for kind in KINDS if sends or kind != SEND]
    inside = (records["end_ns"] > start) & (records["start_ns"] < end) & np.isin(records["kind"], kinds)
    chosen = records[inside]
    chosen = chosen[np.argsort(chosen["start_ns"], kind="stable")]
    lane_of: dict[tuple[int, int], int] = {}
    busy_until: list[int] = []
    for record in chosen[chosen["kind"] == INSTANCE]:
        begin, done = int(record["start_ns"]), int(record["end_ns"])
        lane = next((i for i, until in enumerate(busy_until) if until <= begin), len(busy_until))
        busy_until[lane : lane + 1] = [done]
        lane_of[int(record["program"]), int(record["instance"])] = lane + 1
    spans = []
    for record in chosen:
        kind = int(record["kind"])
        about = kind in (INSTANCE, SEND)
        program = int(record["program"]) if about else -1
        lane = lane_of.get((program, int(record["instance"])), 1) if about else 0
        peer = int(record["peer"]) if kind == SEND else -1
        times = (_us(int(record[name]) - start) for name in ("ready_ns", "start_ns", "end_ns"))
        spans.append([lane, KINDS[kind], program, peer, int(record["bytes"]), *times])
    return {
        "rank": rank,
        "host": clipped(material.host(rank), NAME_CHARACTERS_MAX),
        "rack": material.rack(rank),
        "lanes": 1 + len(busy_until),
        "spans": spans,
    }


def _count(drawn: list[dict[str, Any]]) -> int:
    return sum(len(lanes["spans"]) for lanes in drawn)


def _names(material: Material, drawn: list[dict[str, Any]]) -> dict[str, str]:
    """What the drawn programs are called."""
    used = {span[2] for lanes in drawn for span in lanes["spans"]}
    programs = (program for program in material.run.programs if program.program in used)
    return {str(p.program): clipped(p.label, NAME_CHARACTERS_MAX) or f"bucket {p.bucket}" for p in programs}


def _hosts(material: Material, drawn: list[dict[str, Any]]) -> dict[str, str]:
    """Host names of the drawn ranks' peers."""
    peers = sorted({span[3] for lanes in drawn for span in lanes["spans"]} - {-1})
    return {str(peer): clipped(material.host(peer), NAME_CHARACTERS_MAX) for peer in peers}


def _spread(ranks: list[int], most: int) -> list[int]:
    """At most `most` of `ranks`, evenly, the first and the last among them."""
    if len(ranks) <= most:
        return ranks
    return [ranks[(len(ranks) - 1) * i // (most - 1)] for i in range(most)]


def _us(ns: int) -> float:
    return round(ns / 1000, 1)
