"""Traffic of a trace whose programs are unknown: messages with dependencies and gaps.

It is plain data between the readers of traces (`of_dlc`, `of_records`) and the senders (`node`, `simulated`).
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from hocket.errors import ArtefactError

MESSAGES_MAX = 2_000_000
"""Limit of messages of one replay: each node keeps those that it sends and receives in memory."""


class Message(Struct, frozen=True, array_like=True):
    """Message that leaves `gap_s` after the last of the messages `after`.

    The gap starts at their arrival if they come to its source, at their departure if they leave it, and without any at the replay's
    start. A message from a node to itself is a moment and moves nothing. Gaps of messages of one `kind` measure the same, such as a
    server's search for a key; (): nothing else is like it.
    """

    source: int
    destination: int
    bytes: int
    after: tuple[int, ...]
    gap_s: float
    iteration: int
    kind: tuple[int, ...] = ()

    @property
    def is_moment(self) -> bool:
        """True if the message only joins the dependencies of several others."""
        return self.source == self.destination


class Traffic(Struct, frozen=True, kw_only=True):
    """Traffic of a run. `messages`: about in the order of the record; the first `workers` of `nodes` have iterations; `recorded_s`:
    by iteration."""

    nodes: tuple[str, ...]
    workers: int
    messages: tuple[Message, ...]
    recorded_s: tuple[float, ...]


def traffic(
    nodes: Sequence[str], workers: int, messages: Sequence[Message], arrivals_s: Sequence[float]
) -> Traffic:
    """Return the traffic, with iterations inferred from the recorded arrivals.

    Raises ArtefactError: there is nothing to replay, or more than MESSAGES_MAX messages.
    """
    if len(messages) > MESSAGES_MAX:
        raise ArtefactError(
            f"the trace has {len(messages):,} messages, a replay at most {MESSAGES_MAX:,}\nhint: record fewer iterations"
        )
    recorded_s = steps_s(messages, arrivals_s, workers)
    if not recorded_s:
        raise ArtefactError(
            "the trace has no two iterations of training in which messages arrive: nothing to replay and compare"
        )
    return Traffic(
        nodes=tuple(nodes), workers=workers, messages=tuple(messages), recorded_s=tuple(recorded_s)
    )


def steps_s(messages: Sequence[Message], arrivals_s: Sequence[float], workers: int) -> list[float]:
    """Return, by iteration but the first, the slowest worker's time from its last arrival of the previous one to this one's.

    Each worker's times are on its own clock.
    """
    ends: dict[int, dict[int, float]] = {}
    for message, arrived_s in zip(messages, arrivals_s, strict=True):
        if message.iteration >= 0 and message.destination < workers and not message.is_moment:
            own = ends.setdefault(message.iteration, {})
            own[message.destination] = max(own.get(message.destination, arrived_s), arrived_s)
    found = []
    for number, own in sorted(ends.items()):
        before = ends.get(number - 1, {})
        shared = [end_s - before[worker] for worker, end_s in own.items() if worker in before]
        if shared:
            found.append(max(shared))
    return found
