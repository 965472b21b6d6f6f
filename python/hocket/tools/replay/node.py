"""Node of a replay of traffic: it sends each message when its predecessors have arrived and its gap has passed.

A single thread receives messages and sleeps until the next gap has passed.
"""

from __future__ import annotations

import heapq
import json
import sys
import time
from collections import defaultdict
from pathlib import Path

from msgspec import Struct

from hocket import typed
from hocket.errors import PeerError
from hocket.job.rendezvous import join
from hocket.settings import Settings
from hocket.tools.replay.mesh import Mesh
from hocket.tools.replay.pieces import Piece, Pieces
from hocket.tools.replay.traffic import Message, Traffic, steps_s


class Sent(Struct, frozen=True, kw_only=True):
    """Traffic to send. `pieces`: of pushes that switches sum, which are the last nodes; `ports`: those of the switch, by other
    node."""

    traffic: Traffic
    pieces: tuple[Piece, ...] = ()
    ports: tuple[int, ...] = ()


def main() -> None:
    """Run a node. Rank 0 writes `steps.json` into the directory: seconds of each iteration, repetition after repetition."""
    directory, repeat = Path(sys.argv[1]), int(sys.argv[2])
    settings = Settings.from_environment()
    sent = typed.of_json((directory / "sent.json").read_bytes(), Sent)
    traffic = sent.traffic
    with join(settings) as job:
        mesh = Mesh(job, "mesh")
        pieces = Pieces(sent.pieces, job.rank, sent.ports) if sent.pieces else None
        node = Node(mesh, job.rank, traffic.messages, settings.timeout_s, pieces)
        steps: list[float] = []
        for run in range(repeat):
            job.store.barrier("replay/start", job.rank, job.world, settings.timeout_s)
            arrived = node.run()
            # Rank 0 alone needs them: they are megabytes, and would take long to everybody over slow links.
            if job.rank:
                job.store.set(f"replay/arrivals/{run}/{job.rank}", arrived)
            job.store.barrier("replay/end", job.rank, job.world, settings.timeout_s)
            if job.rank:
                continue
            times_s = [0.0] * len(traffic.messages)
            keys = [f"replay/arrivals/{run}/{rank}" for rank in range(1, job.world)]
            everyone = [arrived, *(job.store.get(key, settings.timeout_s) for key in keys)]
            for place, time_s in (each for own in everyone for each in own):
                times_s[place] = time_s
            steps += steps_s(traffic.messages, times_s, traffic.workers)
        mesh.close()
        if pieces is not None:
            pieces.close()
        if job.rank == 0:
            (directory / "steps.json").write_text(json.dumps(steps))


class Node:
    """Messages of one node, and its progress."""

    def __init__(
        self,
        mesh: Mesh,
        rank: int,
        messages: tuple[Message, ...],
        timeout_s: float,
        pieces: Pieces | None = None,
    ) -> None:
        """Send nothing yet. `timeout_s`: longest time without any message; `pieces`: to and from switches that sum."""
        self._pieces = pieces
        if pieces is not None:
            mesh.watch(pieces)
        self._mesh, self._rank, self._messages, self._timeout_s = mesh, rank, messages, timeout_s
        self._own = [at for at, message in enumerate(messages) if message.source == rank]
        self._coming = [
            at for at, message in enumerate(messages) if message.destination == rank and not message.is_moment
        ]
        self._followers: dict[int, list[int]] = defaultdict(list)
        for at in self._own:
            for before in messages[at].after:
                self._followers[before].append(at)
        self._left: dict[int, int] = {}
        self._due: list[tuple[float, int]] = []

    def run(self) -> list[tuple[int, float]]:
        """Send everything once; return the messages that arrived, and their times on this node's clock.

        PeerError when nothing happens for too long.
        """
        self._left = {at: len(self._messages[at].after) for at in self._own}
        if self._pieces is not None:
            self._pieces.begin()
        began_s = moved_s = time.perf_counter()
        self._due = [
            (began_s + self._messages[at].gap_s, at) for at in self._own if not self._messages[at].after
        ]
        heapq.heapify(self._due)
        arrived: list[tuple[int, float]] = []
        departed = 0
        while True:
            now_s = time.perf_counter()
            while self._due and self._due[0][0] <= now_s:
                self._depart(*heapq.heappop(self._due))
                departed += 1
            if departed == len(self._own) and len(arrived) == len(self._coming) and self._idle:
                return arrived
            wait_s = min(self._timeout_s, self._due[0][0] - now_s) if self._due else self._timeout_s
            came, moved = self._mesh.poll(max(0.0, wait_s))
            now_s = time.perf_counter()
            for at in came:
                arrived.append((at, now_s))
                self._follow(at, now_s)
            if moved or self._due:
                moved_s = now_s
            elif now_s - moved_s > self._timeout_s:
                raise PeerError(self._stuck({at for at, _ in arrived}))

    def _depart(self, due_s: float, at: int) -> None:
        message = self._messages[at]
        if self._pieces is not None and self._pieces.is_piece(at):
            self._pieces.send(at)
        elif not message.is_moment:
            self._mesh.send(message.destination, at, message.bytes)
        self._follow(at, due_s)

    @property
    def _idle(self) -> bool:
        return self._mesh.idle and (self._pieces is None or self._pieces.idle)

    def _follow(self, at: int, moment_s: float) -> None:
        for follower in self._followers[at]:
            self._left[follower] -= 1
            if self._left[follower] == 0:
                heapq.heappush(self._due, (moment_s + self._messages[follower].gap_s, follower))

    def _stuck(self, there: set[int]) -> str:
        missing = next((at for at in self._coming if at not in there), None)
        head = f"nothing happened for {self._timeout_s:g} s at node {self._rank}"
        if missing is None:
            return f"{head}: others do not take what it sends"
        message = self._messages[missing]
        return (
            f"{head}: it waits for a message of node {message.source}, iteration {message.iteration}\n"
            "hint: the trace's dependencies may make a circle; `hocket simulate` tells which"
        )


if __name__ == "__main__":
    main()
