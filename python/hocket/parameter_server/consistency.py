"""The servers' protocol without I/O: completion of updates by pushes, and admission of pulls. One machine per server.

Every worker repeats the same sequence for each key: push, acknowledgement, pull, answer. The machine takes pushes and
pulls as they arrive, and returns effects, in the order in which they must happen.

Each key has a staleness of its own:

- synchronous (staleness 0): an update uses the pushes of all present workers, in the order of workers, so that the
order of arrival changes nothing; then all of them are acknowledged.
- bounded (staleness K): a push is an update by itself; a pull waits while the worker is more than K pushes of the key
ahead of the slowest.
- asynchronous (staleness None): the same without waiting.

A worker that left no longer counts: others neither wait for it nor average over it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from hocket.errors import PeerError


@dataclass(frozen=True)
class Initialise:
    """The push is the parameter's first value."""

    key: int
    worker: int


@dataclass(frozen=True)
class Update:
    """Apply the optimizer once, to the mean of these workers' pushes of the key."""

    key: int
    workers: tuple[int, ...]


@dataclass(frozen=True)
class Acknowledge:
    """Acknowledge the worker's push of the key, which is now part of the parameter: the worker may pull."""

    key: int
    worker: int


@dataclass(frozen=True)
class Answer:
    """Send the worker the key's current value, `ahead` pushes ahead of the slowest worker."""

    key: int
    worker: int
    ahead: int


Effect = Initialise | Update | Acknowledge | Answer


@dataclass
class _Key:
    staleness: int | None
    initialised: bool = False
    pushed: dict[int, int] = field(default_factory=dict)
    """Number of pushes in training, by worker."""
    pending: set[int] = field(default_factory=set)
    """Workers whose push waits for others; synchronous only."""
    asking: set[int] = field(default_factory=set)
    """Workers with a waiting pull."""


class Consistency:
    """State of one server's keys."""

    def __init__(self, staleness: Mapping[int, int | None], workers: int) -> None:
        """Begin with all workers present. `staleness`: by key, as in `ParameterServer.staleness`."""
        self._keys = {
            key: _Key(own, pushed=dict.fromkeys(range(workers), 0)) for key, own in staleness.items()
        }
        self.present = set(range(workers))
        """Workers that have not left."""

    def handle_push(self, key: int, worker: int) -> list[Effect]:
        """Handle a push. PeerError if it is out of turn."""
        state = self._state(key, worker)
        if worker in state.pending or worker in state.asking:
            raise PeerError(f"worker {worker} pushes key {key} before it has what it asked for")
        if not state.initialised:
            if worker != 0:
                raise PeerError(f"worker {worker} pushes key {key}, which has no value yet")
            state.initialised = True
            return [Initialise(key, worker), Acknowledge(key, worker), *self._answers(key)]
        state.pushed[worker] += 1
        if state.staleness != 0:
            return [Update(key, (worker,)), Acknowledge(key, worker), *self._answers(key)]
        state.pending.add(worker)
        return self._complete(key)

    def handle_pull(self, key: int, worker: int) -> list[Effect]:
        """Handle a pull. PeerError if it is out of turn."""
        state = self._state(key, worker)
        if worker in state.pending or worker in state.asking:
            raise PeerError(f"worker {worker} pulls key {key} before its push is acknowledged")
        state.asking.add(worker)
        return self._answers(key)

    def handle_leave(self, worker: int) -> list[Effect]:
        """Let a worker leave that has all its answers. PeerError if one is missing."""
        self.present.discard(worker)
        effects: list[Effect] = []
        for key, state in self._keys.items():
            if worker in state.pending or worker in state.asking:
                raise PeerError(f"worker {worker} leaves while it waits for key {key}")
            del state.pushed[worker]
            effects += self._complete(key) if state.staleness == 0 else self._answers(key)
        return effects

    def waits_for(self, key: int, worker: int) -> list[int]:
        """Workers that delay this one's acknowledgement or answer; empty if none does."""
        state = self._keys[key]
        if not state.initialised:
            return [0]
        if worker in state.pending:
            return sorted(self.present - state.pending)
        if worker in state.asking and state.staleness is not None:
            most = state.pushed[worker] - state.staleness
            return [other for other in sorted(self.present) if state.pushed[other] < most]
        return []

    def _state(self, key: int, worker: int) -> _Key:
        if worker not in self.present:
            raise PeerError(f"worker {worker} speaks of key {key} after it left")
        state = self._keys.get(key)
        if state is None:
            raise PeerError(f"worker {worker} speaks of key {key}, which is on another server")
        return state

    def _complete(self, key: int) -> list[Effect]:
        """Effects of an update, if all present workers have pushed."""
        state = self._keys[key]
        if not state.pending or state.pending != self.present:
            return []
        workers = tuple(sorted(state.pending))
        state.pending.clear()
        return [Update(key, workers), *(Acknowledge(key, worker) for worker in workers)]

    def _answers(self, key: int) -> list[Effect]:
        state = self._keys[key]
        if not state.initialised:
            return []
        slowest = min((state.pushed[worker] for worker in self.present), default=0)
        ahead = {worker: state.pushed[worker] - slowest for worker in sorted(state.asking)}
        # Synchronous workers are apart only while one of them has its answer already; its value includes all pushes.
        free = [worker for worker, lead in ahead.items() if not state.staleness or lead <= state.staleness]
        state.asking.difference_update(free)
        return [Answer(key, worker, ahead[worker]) for worker in free]
