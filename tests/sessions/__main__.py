"""Bits of all scenarios, to compare two commits: `python -m tests.sessions record FILE`, and `… compare BEFORE AFTER`."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

from tests.sessions import jobs
from tests.sessions.scenarios import TORCH, drawn, written

DRAWN = 60


def record(file: str) -> str:
    """Write digests of all parameters after each step of each rank, by scenario."""
    with tempfile.TemporaryDirectory() as directory:
        found = jobs.trained([*written(), *TORCH, *drawn(DRAWN)], Path(directory))
    made = {each.scenario.label: {"digests": each.digests(), "members": each.members} for each in found}
    Path(file).write_text(json.dumps(made, indent=0))
    return ""


def compare(before: str, after: str) -> str:
    """Return what differs."""
    old, new = (json.loads(Path(each).read_text()) for each in (before, after))
    lines = [f"{label}: only in one of them" for label in sorted(old.keys() ^ new.keys())]
    for label in [each for each in old if each in new]:
        one, other = old[label], new[label]
        if one["members"] != other["members"]:
            lines.append(f"{label}: members changed after another step: run it again")
        elif one != other:
            ranks = [zip(*own, strict=False) for own in zip(one["digests"], other["digests"], strict=True)]
            first = min(next((at for at, (a, b) in enumerate(own) if a != b), 0) for own in ranks)
            lines.append(f"{label}: other bits from step {first} on")
    return "\n".join(lines)


wrong = {"record": record, "compare": compare}[sys.argv[1]](*sys.argv[2:])
print(wrong or "equal" if sys.argv[1] == "compare" else wrong)  # noqa: T201  # what it is run for
sys.exit(bool(wrong))
