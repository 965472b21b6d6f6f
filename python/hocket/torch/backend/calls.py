"""Calls of a group's hosts, compared when one takes long, so that ranks out of step are named, not waited for.

Ranks that call different collectives, or one with different sizes, run different programs, and wait for each other.
Nothing is exchanged while calls complete in time: a leader that has waited for a while publishes its call in the
group's part of torch's store, and reads what the others publish there.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from typing import Any

from torch.distributed import DistError

from hocket.errors import UsageError

PATIENCE_S = 1.0
"""Seconds between two comparisons, and before the first. A late rank publishes nothing, and the others wait for it."""


class Calls:
    """Calls of one leader, in order."""

    def __init__(self, store: Any, own: int, leaders: Sequence[int]) -> None:
        """Start before the first call. `own`, `leaders`: ranks."""
        self._store, self._own = store, own
        self._others = [rank for rank in leaders if rank != own]
        self._number, self._call = 0, ""
        self._compare_at_s = 0.0
        self._out_of_step = False

    def begin(self, call: str) -> None:
        """Describe the next call. UsageError: an earlier call failed."""
        if self._out_of_step:
            raise UsageError(f"{call}: the group is out of step since an earlier call failed")
        self._number += 1
        self._call = call
        self._compare_at_s = time.monotonic() + PATIENCE_S

    def compare(self) -> None:
        """Raise UsageError if another leader's call of this number differs. Cheap until a call takes long."""
        if time.monotonic() >= self._compare_at_s:
            self._compare_at_s = time.monotonic() + PATIENCE_S
            self._publish_and_compare()

    def failed(self) -> None:
        """Note that this leader did not complete its part of a call.

        Raises UsageError like `compare` if a different call is the reason: a leader that noticed it first may have left.
        """
        self._out_of_step = True
        with contextlib.suppress(DistError):  # the store may be gone with its owner
            self._publish_and_compare()

    def _publish_and_compare(self) -> None:
        self._store.set(_key(self._own), f"{self._number} {self._call}")
        for rank in self._others:
            if not self._store.check([_key(rank)]):
                continue
            number, call = self._store.get(_key(rank)).decode().split(" ", 1)
            if int(number) == self._number and call != self._call:
                self._out_of_step = True
                raise UsageError(
                    f"rank {self._own} calls {self._call}, but rank {rank} calls {call}\n"
                    "hint: all ranks of a group call the same collectives in the same order",
                    rank=rank,
                )


def _key(rank: int) -> str:
    return f"hocket/call/{rank}"
