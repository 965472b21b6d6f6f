"""Ranks that a job's output blames."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

WARNED = re.compile(r"^rank (\d+) on \S+ is late: ", re.MULTILINE)
FAILED = re.compile(r"^hocket: rank (\d+) on \S+ failed: ", re.MULTILINE)
LEFT_OUT = re.compile(r"epoch \d+ (?:without|after) (.+?)(?: has left)?: \d+ of \d+ ranks go on")
ENDED = re.compile(r"^hocket: the job has ended(?:: rank (\d+) on)?", re.MULTILINE)
RANK = re.compile(r"\brank (\d+) on\b")
OTHER_CALL = re.compile(r"\bbut rank (\d+) calls\b")
OTHER_BUFFER = re.compile(r"\bon rank (\d+) and\b")
OF_TORCH = re.compile(r"^\[rank\d+\]: ")
"""PyTorch's prefix of each line of a traceback, if there is a process group."""


def blamed(said: str) -> tuple[int, ...]:
    """Rank blamed by the launcher's last words.

    >>> blamed("[2] PeerError: rank 1 on b is lost\\nhocket: rank 1 on b failed: SIGKILL (exit code 137)")
    (1,)
    """
    found = FAILED.findall(said)
    return (int(found[-1]),) if found else ()


def warned(said: str) -> tuple[int, ...]:
    """Ranks of which the launcher has warned.

    >>> warned("[2] rank 0 on a is late: no\\nrank 1 on b is late: ranks 0, 2 wait for it")
    (1,)
    """
    return tuple(sorted({int(rank) for rank in WARNED.findall(said)}))


def looked(said: str) -> tuple[int, ...]:
    """Ranks that looks at a job blame, from the output of `hocket top --json`; nobody, if its last word on a job that has ended
    names no rank.

    >>> looked('{"blame": null}\\n{"blame": {"rank": 1, "how": "late"}}\\nhocket: the job has ended')
    ()
    >>> looked('{"blame": {"rank": 1, "how": "failed"}}\\nhocket: the job has ended: rank 1 on b failed: SIGKILL')
    (1,)
    """
    if "" in ENDED.findall(said):
        return ()
    blames = [look["blame"] for look in whole_looks(said)]
    return tuple(sorted({each["rank"] for each in blames if each is not None}))


def whole_looks(said: str) -> list[dict[str, Any]]:
    """Return the objects of `hocket top --json` that have been written to their ends."""
    return [
        json.loads(line) for line in said.splitlines(keepends=True) if line[:1] == "{" and line[-1] == "\n"
    ]


def left_out(said: str) -> tuple[int, ...]:
    """Ranks of an elastic job without which the others continued, from its launcher's output.

    >>> left_out("epoch 2 without rank 1 on b (process 7): 2 of 3 ranks go on, from step 4; decided …")
    (1,)
    """
    names = [name for found in LEFT_OUT.findall(said) for name in RANK.findall(found)]
    return tuple(sorted({int(each) for each in names}))


def last_line(lines: Sequence[str]) -> str:
    plain = (OF_TORCH.sub("", line) for line in lines)
    kept = [line for line in plain if line.strip() and not line.startswith("hint: ")]
    return kept[-1] if kept else ""


def of_rank(said: str, rank: int) -> list[str]:
    """Lines of a rank in its launcher's output."""
    prefix = f"[{rank}] "
    return [line.removeprefix(prefix) for line in said.splitlines() if line.startswith(prefix)]


def names(line: str, rank: int) -> bool:
    """Return whether the last line of another rank blames the rank, that is, names it first.

    >>> names("PeerError: rank 1 on b left, and rank 0 on a goes on", 1), names("rank 0: waits for rank 2 on c", 1)
    (True, False)
    >>> names("ValueError: bad batch", 1)
    False
    """
    found = RANK.findall(line) or OTHER_CALL.findall(line) or OTHER_BUFFER.findall(line)
    return found[:1] == [str(rank)]
