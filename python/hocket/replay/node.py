"""One node of a replay of traffic: sends each message when those that it comes after are there and its gap is over.

One thread, which hears of what has landed and sleeps until the next gap is over. Contents are arbitrary: all messages leave from
one piece of registered memory, and land in one.
"""

from __future__ import annotations

import heapq
import json
import sys
import time
from collections import defaultdict, deque
from pathlib import Path

import msgspec

from hocket import _native
from hocket.errors import PeerError
from hocket.launch.rendezvous import join
from hocket.replay.traffic import Message, Traffic, steps_s
from hocket.settings import Settings

POSTED_MAX = 4096
"""Receives that wait at once, in the order of the record: more than a node has under way, and a bound on the engine's memory."""


def main() -> None:
    """Rank 0 writes `steps.json` into the directory: seconds of each iteration, repetition after repetition."""
    directory, repeat = Path(sys.argv[1]), int(sys.argv[2])
    settings = Settings.from_environment()
    traffic = msgspec.json.decode((directory / "traffic.json").read_bytes(), type=Traffic)
    with join(settings) as job:
        engine = job.engine()
        node = Node(engine, job.rank, traffic.messages, settings.timeout_s)
        steps: list[float] = []
        for turn in range(repeat):
            job.store.barrier("replay/start", job.rank, job.world, settings.timeout_s)
            arrived = node.run(turn)
            everyone = job.store.gather("replay/arrivals", job.rank, job.world, arrived, settings.timeout_s)
            times_s = [0.0] * len(traffic.messages)
            for place, time_s in (each for own in everyone for each in own):
                times_s[place] = time_s
            steps += steps_s(traffic.messages, times_s, traffic.workers)
        engine.close()
        if job.rank == 0:
            (directory / "steps.json").write_text(json.dumps(steps))


class Node:
    """What one node has to do, and how far it is."""

    def __init__(
        self, engine: _native.Engine, rank: int, messages: tuple[Message, ...], timeout_s: float
    ) -> None:
        """Memory for the largest message each way."""
        self._engine, self._rank, self._messages, self._timeout_s = engine, rank, messages, timeout_s
        self._own = [at for at, message in enumerate(messages) if message.source == rank]
        self._coming = [
            at for at, message in enumerate(messages) if message.destination == rank and not message.is_moment
        ]
        self._followers: dict[int, list[int]] = defaultdict(list)
        for at in self._own:
            for before in messages[at].after:
                self._followers[before].append(at)
        size_bytes = max((message.bytes for message in messages), default=0)
        self._out, self._landing = (engine.allocate(max(1, size_bytes)) for _ in range(2))

    def run(self, turn: int) -> list[tuple[int, float]]:
        """Everything once; messages that came, and when, on this node's clock. PeerError when nothing happens for too long."""
        self._tag = turn * len(self._messages)
        self._left = {at: len(self._messages[at].after) for at in self._own}
        self._due: list[tuple[float, int]] = []
        self._posted: dict[int, int] = {}
        self._unposted = deque(self._coming)
        for _ in range(min(POSTED_MAX, len(self._unposted))):
            self._post()
        began_s = time.perf_counter()
        for at in self._own:
            if not self._messages[at].after:
                heapq.heappush(self._due, (began_s + self._messages[at].gap_s, at))
        arrived: list[tuple[int, float]] = []
        heard_s = began_s
        self._open = len(self._own)
        while self._open or len(arrived) < len(self._coming):
            now_s = time.perf_counter()
            while self._due and self._due[0][0] <= now_s:
                due_s, at = heapq.heappop(self._due)
                self._depart(at, due_s)
            wait_s = min(self._timeout_s, self._due[0][0] - now_s) if self._due else self._timeout_s
            heard = self._engine.next_message(max(0.0, wait_s))
            now_s = time.perf_counter()
            if heard is not None:
                heard_s = now_s
                if heard[0] not in self._posted:
                    self._open -= 1  # one of ours has left
                    continue
                at = self._posted.pop(heard[0])
                arrived.append((at, now_s))
                self._follow(at, now_s)
                if self._unposted:
                    self._post()
            elif not self._due and now_s - heard_s > self._timeout_s:
                raise PeerError(self._stuck(arrived))
        return arrived

    def _post(self) -> None:
        at = self._unposted.popleft()
        message = self._messages[at]
        number = self._engine.receive(
            message.source, self._tag + at, self._landing, message.bytes, notice=True
        )
        self._posted[number] = at

    def _depart(self, at: int, due_s: float) -> None:
        message = self._messages[at]
        if message.is_moment:
            self._open -= 1
        else:
            self._engine.send(message.destination, self._tag + at, self._out, message.bytes, notice=True)
        self._follow(at, due_s)

    def _follow(self, at: int, moment_s: float) -> None:
        for follower in self._followers[at]:
            self._left[follower] -= 1
            if self._left[follower] == 0:
                heapq.heappush(self._due, (moment_s + self._messages[follower].gap_s, follower))

    def _stuck(self, arrived: list[tuple[int, float]]) -> str:
        there = {at for at, _ in arrived}
        missing = next(at for at in (*self._coming, *self._own) if at not in there)
        message = self._messages[missing]
        return (
            f"nothing came for {self._timeout_s:g} s: node {self._rank} waits for message {missing} from node {message.source}, "
            f"iteration {message.iteration}\nhint: the trace's dependencies may make a circle; `hocket simulate` tells which"
        )


if __name__ == "__main__":
    main()
