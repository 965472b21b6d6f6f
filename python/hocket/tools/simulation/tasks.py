"""Independent calls, such as simulations: the caller chooses where they run, which changes no result.

They run one after the other here, in processes of this machine, or on a cluster (`hocket.ray.tasks`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from typing import Protocol, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


class Tasks(Protocol):
    def map(
        self,
        function: Callable[[Item], Result],
        items: Sequence[Item],
        *,
        on_done: Callable[[], object] = lambda: None,
    ) -> list[Result]:
        """Return the function of each item, in the order of the items.

        `function`, items and results can be pickled, and a call may be made twice. `on_done` is called after each call, in any
        order. An error of a call is raised.
        """


class Here:
    """Runner in this process, one call after the other.

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
        results = []
        for item in items:
            results.append(function(item))
            on_done()
        return results


class Processes:
    """Runner in as many processes as this machine has cores.

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
        with ProcessPoolExecutor() as pool:
            futures = [pool.submit(function, item) for item in items]
            for future in as_completed(futures):
                future.result()
                on_done()
            return [future.result() for future in futures]
