"""Clients of the store that wait, and answers that are to be sent, without I/O."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field

from msgspec import Raw

from hocket.job.store.messages import WORLD_MAX, Answer, Done, Failed, Gather, Get

RANKS_NAMED_MAX = 12
"""Number of missing ranks that a message names; the rest are counted."""


@dataclass
class Round:
    """Gather under way: values and clients by rank."""

    world: int
    without_lost: bool
    values: dict[int, Raw] = field(default_factory=dict)
    clients: dict[int, int] = field(default_factory=dict)

    def missing(self, gone: Collection[int]) -> list[int]:
        spared = gone if self.without_lost else ()
        return [rank for rank in range(self.world) if rank not in self.values and rank not in spared]


class Waits:
    """Waits for a value or a gather, each with its deadline; a client has one at a time.

    Attributes:
        rounds: gathers under way by name.
    """

    def __init__(self) -> None:
        self.rounds: dict[str, Round] = {}
        self._of: dict[int, tuple[Get | Gather, int]] = {}
        self._answers: list[tuple[int, Answer]] = []

    def __contains__(self, client: int) -> bool:
        return client in self._of

    def poll(self) -> list[tuple[int, Answer]]:
        """Return answers since the last call, with their clients."""
        answers, self._answers = self._answers, []
        return answers

    def deadlines_ns(self) -> Iterator[int]:
        return (deadline_ns for _, deadline_ns in self._of.values())

    def late(self, now_ns: int) -> Iterator[tuple[int, Get | Gather]]:
        """Yield waits whose deadline has passed, and that still last."""
        for client, (request, deadline_ns) in tuple(self._of.items()):
            if client in self._of and deadline_ns <= now_ns:
                yield client, request

    def begin(self, client: int, request: Get | Gather, now_ns: int) -> None:
        self._of[client] = (request, now_ns + round(request.timeout_s * 1e9))

    def drop(self, client: int) -> None:
        """Forget a client that is gone."""
        self._of.pop(client, None)

    def answer(self, client: int, answer: Answer) -> None:
        """Answer a client that does not wait."""
        self._answers.append((client, answer))

    def end(self, client: int, answer: Answer) -> None:
        """Answer a client if it waits."""
        if self._of.pop(client, None) is not None:
            self.answer(client, answer)

    def end_gets(self, key: str, value: Raw) -> None:
        """Answer all that wait for such a value of that key."""
        for client, (request, _) in tuple(self._of.items()):
            if isinstance(request, Get) and request.key == key and is_enough(request, value):
                self.end(client, Done(value=value.copy()))

    def end_round(self, name: str, reason: Failed) -> None:
        for client in self.rounds.pop(name).clients.values():
            self.end(client, reason)

    def end_all(self, reason: Failed, *, but: Collection[str] = ()) -> None:
        """End all waits, except for the gathers of these names."""
        for name in [each for each in self.rounds if each not in but]:
            self.end_round(name, reason)
        for client, (request, _) in tuple(self._of.items()):
            if not (isinstance(request, Gather) and request.name in but):
                self.end(client, reason)


def is_enough(request: Get, value: Raw) -> bool:
    """Return whether a key's value is what a request waits for. A value that is no number is no counter, and never enough.

    >>> is_enough(Get(key="came", timeout_s=1, at_least=3), Raw(b"2"))
    False
    """
    if request.at_least is None:
        return True
    text = bytes(value)
    return text.lstrip(b"-").isdigit() and int(text) >= request.at_least


def nobody_gave(request: Get) -> Failed:
    """Return the answer to a wait for a value that does not come."""
    whom = _rank_of(request.key)
    named = "" if whom is None else f" of rank {whom}"
    message = f"nobody gave `{request.key}`{named} within {round(request.timeout_s, 1):g} s"
    return Failed(message=message, rank=whom, missing=() if whom is None else (whom,))


def did_not_come(request: Gather, missing: Sequence[int]) -> Failed:
    """Return the answer to a gather that these ranks do not come to."""
    named = ", ".join(map(str, missing[:RANKS_NAMED_MAX]))
    more = f" and {len(missing) - RANKS_NAMED_MAX} more" if len(missing) > RANKS_NAMED_MAX else ""
    message = (
        f"{'ranks' if len(missing) > 1 else 'rank'} {named}{more} of {request.world} did not come to `{request.name}` within "
        f"{round(request.timeout_s, 1):g} s\nhint: see whether they were started and what they printed"
    )
    return Failed(message=message, rank=missing[0], missing=tuple(missing))


def _rank_of(key: str) -> int | None:
    """Return the only rank that sets `key`: 3 for `plan/3`."""
    last = key.rpartition("/")[2]
    return int(last) if last.isascii() and last.isdigit() and int(last) < WORLD_MAX else None
