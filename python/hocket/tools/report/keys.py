"""Section on keys: how large each is, and how long it is searched, waited for and updated, or exchanged by all ranks.

The pictures are those of SketchDLC's statistics: lengths of messages, search, synchronisation and update, key by key and of all.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from hocket.errors import ArtefactError, UsageError
from hocket.tools.analysis.analyse import Analysis
from hocket.tools.analysis.keys import KeyTimes
from hocket.tools.analysis.sizes import LayerSizes
from hocket.tools.analysis.summary import Summary
from hocket.tools.report import quantity
from hocket.tools.report.markup import NAME_CHARACTERS_MAX, Html, Row, clipped, joined, table, tag
from hocket.tools.report.material import Material
from hocket.tools.report.section import Section, absent
from hocket.tools.report.spreads import Bar, Line, Scale, bar, distribution, pictures

NAME, QUESTION = "keys", "How long does each key take?"

KEYS_SHOWN_MAX = 16
"""Limit of rows of a table: those that take longest; `--json` has all."""

KINDS = {
    "search": "Search: from the arrival of a pull at its server to the answer",
    "synchronisation": "Synchronisation: from the first push or launch of a key to the last one",
    "update": "Update: from the last push of a key to the first answer",
    "exchange": "Exchange: from the last rank's launch to the end on all ranks",
}


def section(material: Material) -> Section:
    """Return pictures of lengths and times of keys, of all and key by key."""
    try:
        found = material.analysis
    except (UsageError, ArtefactError) as error:
        return absent(NAME, QUESTION, str(error).partition("\n")[0])
    if not found.keys:
        return absent(
            NAME, QUESTION, "No launch of a key was recorded by several ranks, and no server's answers."
        )
    shown = [kind for kind in KINDS if any(getattr(each, kind) for each in found.keys)]
    parts = [pictures(*_lengths(found), _all_keys(found.keys, shown))]
    parts += [_by_key(found.keys, kind) for kind in shown]
    if found.sizes.layers:
        parts.append(_length_by_key(found.sizes.layers))
    return Section(NAME, QUESTION, joined(parts), numbers=msgspec.to_builtins(found.keys))


def _lengths(found: Analysis) -> list[Html]:
    points = [(float(each.value), each.share) for each in found.sizes.cdf_bytes]
    picture = distribution("Length of messages: share that is at most", [Line("all", points)], quantity.size)
    return [picture] if points else []


def _all_keys(keys: Sequence[KeyTimes], kinds: Sequence[str]) -> Html:
    lines = [
        Line(kind, _means([found for each in keys if (found := getattr(each, kind)) is not None]))
        for kind in kinds
    ]
    return distribution("Mean of each key: share of the keys that take at most", lines, quantity.seconds)


def _means(found: Sequence[Summary]) -> list[tuple[float, float]]:
    means_s = sorted(each.mean_us / 1e6 for each in found)
    return [(value, (at + 1) / len(means_s)) for at, value in enumerate(means_s)]


def _by_key(keys: Sequence[KeyTimes], kind: str) -> Html:
    known = [(each, found) for each in keys if (found := getattr(each, kind)) is not None]
    known.sort(key=lambda pair: -pair[1].mean_us)
    shown = known[:KEYS_SHOWN_MAX]
    scale = Scale((value for _, found in shown for value in (found.least_us, found.p99_us)), log=True)
    rows = [
        Row(
            (
                _named(each),
                bar(Bar(found.least_us, found.mean_us, found.p99_us), scale),
                *(
                    quantity.seconds(value / 1e6)
                    for value in (found.least_us, found.median_us, found.mean_us, found.p99_us)
                ),
            )
        )
        for each, found in shown
    ]
    head = ("key", "least to 99 %, mean", "least", "half", "mean", "99 %")
    return table(
        head,
        rows,
        caption=_caption(KINDS[kind], len(shown), len(known)),
        class_="candidates breakdown numbers",
    )


def _length_by_key(layers: Sequence[LayerSizes]) -> Html:
    shown = sorted(layers, key=lambda each: -each.longest_bytes)[:KEYS_SHOWN_MAX]
    scale = Scale(
        (float(size) for each in shown for size in (each.shortest_bytes, each.longest_bytes)), log=True
    )
    rows = [
        Row(
            (
                clipped(each.name, NAME_CHARACTERS_MAX),
                bar(Bar(each.shortest_bytes, each.bytes / each.messages, each.longest_bytes), scale),
                f"{each.messages:,}",
                *(quantity.size(size) for size in (each.shortest_bytes, each.longest_bytes, each.bytes)),
            )
        )
        for each in shown
    ]
    head = ("key", "shortest to longest, mean", "messages", "shortest", "longest", "all")
    return table(
        head,
        rows,
        caption=_caption("Length of messages", len(shown), len(layers)),
        class_="candidates breakdown numbers",
    )


def _named(each: KeyTimes) -> Html:
    name = clipped(each.name, NAME_CHARACTERS_MAX)
    return (
        tag("span", name) if each.node is None else tag("span", name, " ", tag("small", f"node {each.node}"))
    )


def _caption(words: str, shown: int, known: int) -> str:
    return words if shown == known else f"{words} (the {shown} longest of {known} keys)"
