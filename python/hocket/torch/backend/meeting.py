"""Messages that members of a new group exchange through torch's store; a rank that does not come is named."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from torch.distributed import DistError

from hocket.errors import PeerError


class Meeting:
    """The group's part of the store; the store itself knows no ranks."""

    def __init__(self, store: Any, timeout_s: float) -> None:
        """`timeout_s`: longest wait for a rank."""
        self._store, self._timeout_s = store, timeout_s

    def read(self, key: str, rank: int) -> str:
        """Return the value that `rank` of the job sets; PeerError with that rank if it sets none in time."""
        try:
            self._store.wait([key], timedelta(seconds=self._timeout_s))
            return str(self._store.get(key).decode())
        except DistError as error:
            raise PeerError(
                f"a process group is made, and rank {rank} has not come to it within {self._timeout_s:g} s\n"
                "hint: all ranks of a job call new_group, in the same order",
                rank=rank,
                why="timeout",
                missing=(rank,),
            ) from error
