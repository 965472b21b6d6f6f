"""What differs between two records, and how that is told."""

from __future__ import annotations

import difflib
import json
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from tests.unchanged.records import FAILED, Item

NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?(?![\w.])")
NUMBERED = ("plan", "step", "order")
"""Kinds in whose numbers a tolerance is meant; programs and words are equal or not."""
ORDERS = "order"

Key = tuple[str, str]
Record = Mapping[Key, Item]


@dataclass(frozen=True)
class Rules:
    """`tolerance`: by how much numbers of plans and predictions may differ, relatively. `orders_by_worth`: other orders are as
    good whose simulated step is no longer."""

    tolerance: float = 0.0
    orders_by_worth: bool = False

    def equal(self, one: Item, other: Item) -> bool:
        if one.sha256 == other.sha256:
            return True
        if one.kind == ORDERS and self.orders_by_worth and self._worth(one.text, other.text):
            return True
        return one.kind in NUMBERED and self.tolerance > 0 and self._near(one.text, other.text)

    def _near(self, one: str, other: str) -> bool:
        if NUMBER.sub("0", one) != NUMBER.sub("0", other):
            return False
        return all(
            math.isclose(float(left), float(right), rel_tol=self.tolerance, abs_tol=0.0)
            for left, right in zip(NUMBER.findall(one), NUMBER.findall(other), strict=True)
        )

    def _worth(self, one: str, other: str) -> bool:
        before_s, after_s = (json.loads(text)["simulated_s"] for text in (one, other))
        return bool(after_s <= before_s * (1 + self.tolerance))


@dataclass(frozen=True)
class Comparison:
    """Keys, sorted. `failed`: kinds that one side could not record, and why."""

    items: Counter[str]
    missing: list[Key]
    new: list[Key]
    different: list[Key]
    failed: list[str]

    @property
    def equal(self) -> bool:
        return not (self.missing or self.new or self.different or self.failed)

    def by_kind(self) -> dict[str, dict[str, int]]:
        listed = {"missing": self.missing, "new": self.new, "different": self.different}
        counts = {name: Counter(kind for kind, _ in keys) for name, keys in listed.items()}
        return {
            kind: {"items": self.items[kind], **{name: count[kind] for name, count in counts.items()}}
            for kind in sorted(self.items)
        }


def compared(before: Record, after: Record, rules: Rules = Rules(), kind: str | None = None) -> Comparison:
    """`kind`: of which alone."""
    failed = [
        f"{side}, {each.key}: {each.text}"
        for side, record in (("before", before), ("after", after))
        for each in record.values()
        if each.kind == FAILED and kind in (None, each.key)
    ]
    one, other = (
        {key: item for key, item in record.items() if key[0] != FAILED and kind in (None, key[0])}
        for record in (before, after)
    )
    return Comparison(
        items=Counter(each for each, _ in one.keys() | other.keys()),
        missing=sorted(one.keys() - other.keys()),
        new=sorted(other.keys() - one.keys()),
        different=sorted(key for key in one.keys() & other.keys() if not rules.equal(one[key], other[key])),
        failed=failed,
    )


def as_tree(found: Comparison) -> dict[str, Any]:
    listed = {"missing": found.missing, "new": found.new, "different": found.different}
    return {"equal": found.equal, "failed": found.failed, "kinds": found.by_kind()} | {
        name: [{"kind": kind, "key": key} for kind, key in keys] for name, keys in listed.items()
    }


def told(found: Comparison, before: Record, after: Record, *, shown: int, lines_max: int) -> Iterator[str]:
    """For people: keys, the difference of the first few of each kind, and counts."""
    yield from (f"could not be recorded {each}" for each in found.failed)
    for name, keys in (("missing", found.missing), ("new", found.new)):
        for kind in sorted({kind for kind, _ in keys}):
            own = [key for each, key in keys if each == kind]
            yield from (f"{name}: {kind} {key}" for key in own[:shown])
            if len(own) > shown:
                yield f"{name}: {len(own) - shown} more of {kind}"
    for kind in sorted({kind for kind, _ in found.different}):
        own = [key for key in found.different if key[0] == kind]
        for key in own[:shown]:
            yield f"different: {kind} {key[1]}"
            yield from _difference(before[key].text, after[key].text, lines_max)
        if len(own) > shown:
            yield f"different: {len(own) - shown} more of {kind}"
    yield f"{'kind':<12}{'items':>8}{'missing':>9}{'new':>7}{'different':>11}"
    for kind, counts in found.by_kind().items():
        yield f"{kind:<12}{counts['items']:>8}{counts['missing']:>9}{counts['new']:>7}{counts['different']:>11}"


def _difference(before: str, after: str, lines_max: int) -> Iterator[str]:
    """The first lines of a unified diff. Equal beginnings are left out first: `difflib` is slow on long programs."""
    one, other = before.splitlines(), after.splitlines()
    same = next(
        (at for at, (left, right) in enumerate(zip(one, other, strict=False)) if left != right),
        min(len(one), len(other)),
    )
    start = max(0, same - 3)
    stop = start + 20 * lines_max
    lines = difflib.unified_diff(one[start:stop], other[start:stop], "before", "after", lineterm="")
    yield from (f"  {line}" for line in islice(lines, lines_max))
    if start:
        yield f"  (lines are counted from {start + 1})"
