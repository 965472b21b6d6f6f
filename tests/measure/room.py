"""Hosts of a probe as threads of one process, each with its own address of the loopback network."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

Result = TypeVar("Result")


class Room:
    """Where the threads meet: one barrier and one table."""

    def __init__(self, world: int) -> None:
        self.world = world
        self.barrier = threading.Barrier(world)
        self.table: dict[tuple[str, int], Any] = {}

    def run(self, part: Callable[[Seat], Result]) -> list[Result]:
        """One thread per rank; the first error of any."""
        with ThreadPoolExecutor(self.world) as pool:
            futures = [pool.submit(self._guarded, part, rank) for rank in range(self.world)]
            errors = [error for future in futures if (error := future.exception())]
            real = [error for error in errors if not isinstance(error, threading.BrokenBarrierError)]
            if real:
                raise real[0]
            return [future.result() for future in futures]

    def _guarded(self, part: Callable[[Seat], Result], rank: int) -> Result:
        try:
            return part(Seat(self, rank))
        except BaseException:
            self.barrier.abort()
            raise


class Seat:
    """One rank's `Ranks`."""

    def __init__(self, room: Room, rank: int) -> None:
        self.room = room
        self.rank = rank
        self.world = room.world

    def gather(self, name: str, value: Any) -> list[Any]:
        self.room.table[name, self.rank] = value
        self.room.barrier.wait(20)
        return [self.room.table[name, rank] for rank in range(self.world)]
