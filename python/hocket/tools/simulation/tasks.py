"""Independent calls, such as simulations: where they run is somebody else's choice, and changes no result.

One after the other here, in processes of this machine, or on a cluster (`hocket.ray.tasks`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from typing import Protocol, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


class Tasks(Protocol):
    """Runs calls."""

    def map(
        self,
        function: Callable[[Item], Result],
        items: Sequence[Item],
        *,
        on_done: Callable[[], object] = lambda: None,
    ) -> list[Result]:
        """The function of each item, in the order of the items.

        `function`, items and results can be pickled, and a call made twice is as good as one. `on_done` is called after each, in
        any order. An error of a call is raised.
        """


class Here:
    """In this process, one after the other.

    >>> Here().map(abs, [-1, 2])
    [1, 2]
    """

    def map(
        self,
        function: Callable[[Item], Result],
        items: Sequence[Item],
        *,
        on_done: Callable[[], object] = lambda: None,
    ) -> list[Result]:
        """As `Tasks.map`."""
        results = []
        for item in items:
            results.append(function(item))
            on_done()
        return results


class Processes:
    """In as many processes as this machine has cores.

    >>> Processes().map(abs, [-1, 2])
    [1, 2]
    """

    def map(
        self,
        function: Callable[[Item], Result],
        items: Sequence[Item],
        *,
        on_done: Callable[[], object] = lambda: None,
    ) -> list[Result]:
        """As `Tasks.map`."""
        with ProcessPoolExecutor() as pool:
            futures = [pool.submit(function, item) for item in items]
            for future in as_completed(futures):
                future.result()
                on_done()
            return [future.result() for future in futures]
