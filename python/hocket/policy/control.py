"""Context of Python handlers (`on_timer`, `on_worker_added`, `on_worker_removed`): statistics, agreement, proposals.

These handlers run beside training, on their own thread; no step waits for them.
"""

from __future__ import annotations

import statistics
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Protocol

from hocket.policy.declared import is_value
from hocket.policy.observed import agree, window_mean
from hocket.policy.policy import Value
from hocket.policy.topology import Topology

KEPT = 1000
"""Number of values kept per statistic."""

PUBLISHED = 50
"""Number of these values that other ranks can read."""


class Statistics:
    """The latest `KEPT` values of each statistic, by name.

    Built in: `step_time`, `wait_time` (seconds), `bytes` (sent in a step), `throughput.N` (bit/s to rank N),
    `gradient_norm`.
    """

    def __init__(self) -> None:
        """Begin without values."""
        self._lock = threading.Lock()
        self._values: dict[str, deque[float]] = {}
        self._counts: dict[str, int] = {}
        self._others: Sequence[Mapping[str, Sequence[float]]] = ()

    def record(self, name: str, value: float) -> None:
        """Add a value."""
        with self._lock:
            self._values.setdefault(name, deque(maxlen=KEPT)).append(float(value))
            self._counts[name] = self._counts.get(name, 0) + 1

    def get(self, name: str, window: int = 10, rank: int | None = None) -> float:
        """Mean of the last `window` values of this rank, or of another rank's last published ones; 0 without values."""
        if rank is not None and rank < len(self._others):
            return window_mean(self._others[rank].get(name, ()), window)
        return window_mean(self.values(name), window)

    def median(self, name: str, window: int = 10) -> float:
        """Median of this rank's last `window` values; 0 when there are none."""
        values = self.values(name)[-window:]
        return statistics.median(values) if values else 0.0

    def count(self, name: str) -> int:
        """Number of values since the epoch began, including those no longer kept."""
        with self._lock:
            return self._counts.get(name, 0)

    def values(self, name: str) -> list[float]:
        """This rank's values, oldest first."""
        with self._lock:
            return list(self._values.get(name, ()))

    def published(self) -> dict[str, list[float]]:
        """Values that other ranks may read."""
        with self._lock:
            return {name: list(values)[-PUBLISHED:] for name, values in self._values.items()}

    def take_others(self, others: Sequence[Mapping[str, Sequence[float]]]) -> None:
        """Store the values that ranks published, by rank."""
        self._others = others

    def forget(self) -> None:
        """Start a new epoch: earlier values no longer apply."""
        with self._lock:
            self._values.clear()
            self._counts.clear()


class Exchange(Protocol):
    """Communication of ranks beside training."""

    def gather(self, key: str, value: float) -> list[float]:
        """Gather every rank's value of a key, by rank; blocks until all ranks have called this."""

    def propose(self, changes: Mapping[str, Value]) -> None:
        """Send changes to the coordinator."""


class Control:
    """One rank's view in a Python handler."""

    def __init__(
        self,
        rank: int,
        topology: Topology,
        *,
        agreed: Mapping[str, Value],
        statistics: Statistics,
        exchange: Exchange,
        turn: str,
    ) -> None:
        """`turn` identifies this call of the handler on all ranks."""
        self.rank = rank
        self.topology = topology
        self.statistics = statistics
        self._agreed = agreed
        self._exchange = exchange
        self._turn = turn
        self._negotiations = 0

    @property
    def world(self) -> int:
        """Number of ranks."""
        return self.topology.world

    def agreed(self, name: str) -> Value:
        """Value on which all ranks agree in this epoch; KeyError lists the known names."""
        if name not in self._agreed:
            raise KeyError(f"no value `{name}` is agreed; there are {', '.join(sorted(self._agreed))}")
        return self._agreed[name]

    def get(self, name: str, window: int = 10, rank: int | None = None) -> float:
        """Mean of a statistic's last values; see `Statistics.get`."""
        return self.statistics.get(name, window, rank)

    def record(self, name: str, value: float) -> None:
        """Add a value of a statistic of this rank."""
        self.statistics.record(name, value)

    def negotiate(self, value: float, how: str = "mode") -> float:
        """Reduce a value of each rank to one for all: `mode`, `min`, `max` or `leader` (rank 0's).

        Blocks until all ranks have made the same call.
        """
        self._negotiations += 1
        return agree(self._exchange.gather(f"{self._turn}/{self._negotiations}", float(value)), how)

    def propose(self, **changes: Value) -> None:
        """Change agreed values on all ranks at one iteration, as a new epoch; policies are then traced again."""
        unknown = next((name for name in changes if name not in self._agreed), None)
        if unknown is not None:
            raise KeyError(f"`{unknown}` is no agreed value; declare it in the policy's `parameters`")
        wrong = next((name for name, value in changes.items() if not is_value(value)), None)
        if wrong is not None:
            raise TypeError(
                f"`{wrong}` cannot become {changes[wrong]!r}: ranks agree on an int, a finite float, a str or a bool"
            )
        self._exchange.propose(changes)
