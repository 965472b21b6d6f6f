"""Independent calls on a Ray cluster: the same results as in processes of one machine. A lost node costs only its own calls.

Ray repeats those calls on other nodes. Completed calls stay completed: small results are with the caller, not on the node.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import ray
from ray.exceptions import RayError

from hocket.errors import RendezvousError
from hocket.ray.connect import connect
from hocket.ray.workers import said

RETRIES_MAX = 5
"""Limit of repetitions of a call that loses its process or node: one that always ends its process must not repeat for ever."""
TICK_S = 1.0

Item = TypeVar("Item")
Result = TypeVar("Result")


class RayTasks:
    """Runner of calls as Ray's tasks of one CPU each, on the cluster that this process is connected to (`connected`)."""

    def __init__(self, patience_s: float) -> None:
        """Use the connected cluster. `patience_s`: longest time without a CPU in the cluster."""
        self._patience_s = patience_s

    def map(
        self,
        function: Callable[[Item], Result],
        items: Sequence[Item],
        *,
        on_done: Callable[[], object] = lambda: None,
    ) -> list[Result]:
        """See `simulation.tasks.Tasks.map`. RendezvousError: the cluster keeps losing a call's process, or has no CPU."""
        call = ray.remote(_call).options(num_cpus=1, max_retries=RETRIES_MAX)
        shared = ray.put(function)
        references = [call.remote(shared, item) for item in items]
        results: dict[Any, Result] = {}
        waiting = list(references)
        had_cpu_s = time.monotonic()
        try:
            while waiting:
                ready, waiting = ray.wait(waiting, num_returns=len(waiting), timeout=TICK_S)
                for each in ready:
                    results[each] = _result(each)
                    on_done()
                if ready or ray.cluster_resources().get("CPU", 0) >= 1:
                    had_cpu_s = time.monotonic()
                elif time.monotonic() > had_cpu_s + self._patience_s:
                    raise RendezvousError(
                        f"the Ray cluster has had no CPU for {self._patience_s:g} s, and {len(waiting)} of {len(items)} "
                        "calls are not done\nhint: start nodes; HOCKET_START_TIMEOUT_S gives a growing cluster longer"
                    )
        finally:
            for each in waiting:
                ray.cancel(each, force=True)
        return [results[each] for each in references]


@contextlib.contextmanager
def connected(address: str, patience_s: float) -> Iterator[RayTasks]:
    """Connect this process to the cluster at an address, or of this machine (`auto`), until the context ends.

    UsageError: there is no cluster, or it has another version of Ray or Python.
    """
    connect(address, variable="--ray", log_to_driver=False, logging_level="WARNING")
    try:
        yield RayTasks(patience_s)
    finally:
        ray.shutdown()


def _call(function: Callable[[Item], Result], item: Item) -> tuple[Result | None, Exception | None]:
    """Return the result or the function's error, which Ray would wrap."""
    try:
        return function(item), None
    except Exception as error:
        return None, error


def _result(reference: Any) -> Any:
    try:
        result, error = ray.get(reference)
    except RayError as lost:
        raise RendezvousError(
            f"a call has lost its process or node {RETRIES_MAX + 1} times: {said(lost)}\n"
            "hint: see whether the nodes have enough memory; Hocket, in the same version, must be on every node"
        ) from lost
    if error is not None:
        raise error
    return result
