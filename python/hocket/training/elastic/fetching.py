"""Taking the state of a job beside its training: what a process that joins does until it is called to meet the others.

Ranks that train connect to it and offer their state (`giving`). It asks each for parts, steps those that it has with the gradients
of each further step, and compares digests with the sources'. Once it has all of them and steps as the others do, it becomes a
member; until it meets the others it goes on like that. If something stands in the way, it gets the state when all meet, while they
wait.
"""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial

from hocket.errors import Error
from hocket.job.store import address as addresses
from hocket.job.store import interfaces
from hocket.job.store.frames import FrameError
from hocket.job.store.server import Server
from hocket.members.membership import Membership
from hocket.settings import Settings
from hocket.training.checkpoint.replicate import digest
from hocket.training.elastic.state_messages import (
    Ahead,
    Asks,
    Gives,
    Inbox,
    Meets,
    Offers,
    Received,
    Steps,
    Stops,
    Sums,
    frames_of,
)
from hocket.training.elastic.wanted import Wanted
from hocket.training.memory.state_parts import StateParts

COME_S = 10.0
"""Time within which ranks that train begin to offer their state."""
SAY_S = 10.0
WAKE_S = 0.05
"""Longest time until this process notices that a time is up, or that the job ends."""
NEAR_STEPS = 2
"""Steps' gradients that may still be on their way when this process becomes a member."""
AHEAD_BYTES_MAX = 4 << 30
"""Bytes that have come and are not applied yet, at most: a process that steps slower than the others would fill its memory."""

log = logging.getLogger("hocket.elastic")


class Arrivals:
    """Messages of sources, for the thread that takes the state, and ends of their connections: a machine behind a server."""

    def __init__(self) -> None:
        self.events: queue.SimpleQueue[tuple[int, Received | None] | None] = queue.SimpleQueue()
        """Each message with its source; an end (None); and None to wake the thread."""
        self._come_bytes = self._applied_bytes = 0  # each has one thread that writes it
        self._sources: dict[int, Inbox] = {}
        self._answers: list[tuple[int, bytes]] = []

    def receive(self, client: int, payload: bytes, now_ns: int) -> None:
        """Take a frame of a source. FrameError: sources send no such frame."""
        del now_ns
        if self.ahead_bytes > AHEAD_BYTES_MAX:
            raise FrameError(f"{self.ahead_bytes} bytes wait to be applied here")
        received = self._sources.setdefault(client, Inbox()).feed(payload)
        if received is not None:
            self._come_bytes += len(received.data)
            self.events.put((client, received))

    @property
    def ahead_bytes(self) -> int:
        """Bytes that have come and are not applied."""
        return self._come_bytes - self._applied_bytes

    def applied(self, received: Received) -> None:
        """Note that this thread is done with a message."""
        self._applied_bytes += len(received.data)

    def wake(self) -> None:
        """Wake the thread that takes the state."""
        self.events.put(None)

    def answers(self) -> Iterable[tuple[int, bytes]]:
        """Return requests to sources since the last call."""
        answers, self._answers = self._answers, []
        return answers

    def ask(self, client: int, parts: Sequence[int]) -> None:
        """Send a request; in the server's thread."""
        self._answers.extend((client, payload) for payload in frames_of(Asks(parts=tuple(parts))))

    def disconnect(self, client: int) -> None:
        """Note the end of a connection."""
        self._sources.pop(client, None)
        self.events.put((client, None))

    def expire(self, now_ns: int) -> None:
        """Nothing is due at any time."""
        del now_ns

    def deadline_ns(self) -> int | None:
        return None

    def is_over(self, world: int) -> bool:
        del world
        return not self._sources


class Fetching:
    """State that comes beside training, from when this process asks to join until it meets the others.

    Attributes:
        address: where sources find this process.
        steps: number of the job's steps in the state, once it is whole and all sources meet this process; else None.
    """

    def __init__(self, settings: Settings, secret: bytes, parts: StateParts, host: str) -> None:
        """Listen for sources. `host`: this machine's address for them."""
        self._parts, self._settings = parts, settings
        self._arrivals = Arrivals()
        self._server = Server([host], 0, secret, self._arrivals, ports=settings.port_range)
        self.address = addresses.join(host, self._server.port)
        self._wanted: Wanted | None = None
        self._own = parts.parts()
        self._near: dict[int, bool] = {}
        """By source: True if little is still on its way."""
        self._ahead: dict[int, dict[int, memoryview]] = {}
        """By source and part, sums of the step under way."""
        self._met: dict[int, int] = {}
        """By source: number of steps after which it meets this process."""
        self._why: str | None = None
        """Why the state does not come beside training."""
        self._began_s = self._heard_s = time.monotonic()

    def until_called(self, membership: Membership, who: str, timeout_s: float) -> None:
        """Take the state, become a member when it is here, and go on until the others meet this process, which they do within
        `timeout_s` from then on. `who`: this process, for people.

        RendezvousError: the job ends, or does not take this process.
        """
        said_s, ready_s = time.monotonic(), None
        membership.joining.called = self._arrivals.wake
        while not membership.joining.is_called(who) and (
            ready_s is None or time.monotonic() < ready_s + timeout_s
        ):
            self._hear()
            now_s = time.monotonic()
            if self._wanted is None and self._why is None and now_s > self._began_s + COME_S:
                self._why = f"no rank has offered it within {COME_S:g} s"
            elif self._why is None and ready_s is None and now_s > self._heard_s + timeout_s:
                self._why = f"the others have made no step for {timeout_s:g} s"
            if ready_s is None and (self._is_ready or self._why is not None):
                ready_s = now_s
                self._tell()
                membership.joining.ready()
            if ready_s is None and self._wanted is not None and now_s > said_s + SAY_S:
                said_s = now_s
                here, whole = self._wanted.here_bytes, self._wanted.all_bytes
                log.warning("has %d of %d MiB of the state, while the others train", here >> 20, whole >> 20)
        self._wait_for_the_last()

    @property
    def steps(self) -> int | None:
        """Number of the job's steps in the state; None: the state is not whole."""
        wanted = self._wanted
        if self._why is not None or wanted is None or not wanted.proved:
            return None
        steps = {self._met.get(each) for each in wanted.followed}
        return steps.pop() if len(steps) == 1 else None

    def close(self) -> None:
        """Stop listening; idempotent."""
        self._server.close()

    @property
    def _is_ready(self) -> bool:
        wanted = self._wanted
        if wanted is None or not wanted.proved or self._arrivals.ahead_bytes:
            return False
        return all(self._near.get(each, True) for each in wanted.followed)

    def _tell(self) -> None:
        if self._why is not None:
            log.warning("the state does not come beside training, but when all ranks meet: %s", self._why)
        elif self._wanted is not None and self._is_ready:
            took_s = time.monotonic() - self._began_s
            mib = self._wanted.all_bytes / (1 << 20)
            log.warning(
                "has the state of the job: %.1f MiB, in %.1f s, while the others trained", mib, took_s
            )

    def _wait_for_the_last(self) -> None:
        """Apply what sources have sent before they meet this process."""
        wanted = self._wanted
        deadline_s = time.monotonic() + self._settings.silence_max_s(elastic=True)
        while wanted is not None and self._why is None and wanted.complete and time.monotonic() < deadline_s:
            if all(each in self._met for each in wanted.followed):
                return
            self._hear()

    def _hear(self) -> None:
        with contextlib.suppress(queue.Empty):
            come = self._arrivals.events.get(timeout=WAKE_S)
            while True:
                if come is not None:
                    self._handle(*come)
                come = self._arrivals.events.get_nowait()

    def _handle(self, client: int, event: Received | None) -> None:
        if event is None:
            self._ahead.pop(client, None)
            if self._wanted is not None and client not in self._met:
                self._ask(self._wanted.lost(client))
            return
        self._heard_s = time.monotonic()
        if self._why is None:
            try:
                self._take(client, event)
            except (Error, RuntimeError, ValueError, TypeError, KeyError) as error:
                # A framework raises errors of these kinds where an optimizer's state is not what it takes for one.
                self._why = str(error)
        self._arrivals.applied(event)

    def _take(self, client: int, received: Received) -> None:
        match received.message:
            case Offers() as offers:
                self._offered(client, offers)
            case Stops(why=why):
                self._why = why
            case _ if self._wanted is None:
                raise FrameError("a source sends parts before it offers them")
            case Gives() as gives:
                self._parts.take(gives.part, gives.described, received.data)
                self._ask(self._wanted.given(client, gives.part))
            case Ahead(parts=parts, sizes=sizes):
                if any(part >= len(self._own) for part in parts):
                    raise FrameError(f"sums of parts {parts}, of {len(self._own)}")
                self._ahead.setdefault(client, {}).update(_pieces(parts, sizes, received.data))
            case Steps() as steps:
                self._near[client] = steps.behind <= NEAR_STEPS * sum(steps.sizes)
                self._parts.step(steps.rates, _gradients(steps, received.data, self._ahead.pop(client, {})))
                self._wanted.stepped(client)
            case Sums(digests=digests):
                for part, theirs in digests.items():
                    if digest(self._parts.alike(part)) != theirs:
                        raise FrameError(
                            "steps of this optimizer do not give the same bits here as in the job, or the script changes "
                            "parameters outside of it"
                        )
                    self._wanted.prove(part)
            case Meets(steps=steps):
                self._met[client] = steps

    def _offered(self, client: int, offers: Offers) -> None:
        trained = sum(each.trained for each in self._own)
        if (len(offers.sizes), offers.trained) != (len(self._own), trained):
            raise FrameError(
                f"the job's model has {len(offers.sizes)} parts, of which {offers.trained} are trained, this one's "
                f"{len(self._own)} and {trained}"
            )
        if self._wanted is None:
            self._wanted = Wanted(offers.sizes, offers.trained)
            self._parts.follow(offers.outer)
        self._ask(self._wanted.come(client))

    def _ask(self, asks: Sequence[tuple[int, Sequence[int]]]) -> None:
        for client, parts in asks:
            self._server.call(partial(self._arrivals.ask, client, parts))


def _gradients(
    steps: Steps, data: memoryview, ahead: Mapping[int, memoryview]
) -> list[tuple[int, memoryview]]:
    """Return a step's gradients: those in `data`, and of the sums that have come `ahead` those of which the step is."""
    sizes = dict(zip(steps.parts, steps.sizes, strict=False))
    if any(len(ahead.get(part, b"")) != sizes.get(part) for part in steps.here):
        raise FrameError("a step is of other sums than have come")
    left = [part for part in steps.parts if part not in steps.here]
    came = dict(_pieces(left, [sizes[part] for part in left], data))
    return [(part, ahead[part] if part in steps.here else came[part]) for part in steps.parts]


def _pieces(parts: Sequence[int], sizes: Sequence[int], data: memoryview) -> Iterator[tuple[int, memoryview]]:
    if len(parts) != len(sizes) or sum(sizes) != len(data):
        raise FrameError("gradients have another size than the source says")
    start = 0
    for part, size in zip(parts, sizes, strict=True):
        yield part, data[start : start + size]
        start += size


def come(
    parts: StateParts, settings: Settings, secret: bytes, membership: Membership, host: str
) -> int | None:
    """Join a job that trains: take its state beside training, and return when its ranks meet this process. Return the number of the
    job's steps in the state; None: this process gets it when all meet.

    RendezvousError: the coordinator refuses, the job ends, or its ranks do not come to the end of a step in time.
    """
    fetching = Fetching(settings, secret, parts, _here(settings))
    try:
        membership.joining.knock(host, settings.member, fetching.address)
        fetching.until_called(membership, f"process {os.getpid()} on {host}", settings.timeout_s)
        return fetching.steps
    finally:
        fetching.close()


def _here(settings: Settings) -> str:
    """Return this machine's address for the job's other ranks: as `settings` say, else on its way to the coordinator."""
    if settings.interface and settings.interface != interfaces.ALL:
        return interfaces.chosen(settings.interface)[0]
    assert settings.coordinator is not None  # noqa: S101  # the job is elastic
    host, _ = addresses.split(settings.coordinator)
    return addresses.towards(host) or addresses.LOOPBACK
