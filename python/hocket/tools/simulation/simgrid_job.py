"""Job in SimGrid, in a process of its own: it reads a description as JSON, and writes the end of each launch.

It imports nothing from Hocket, so that any Python with SimGrid can run it. It implements the ranks' behaviour once more, on
purpose: links and their sharing are SimGrid's (CM02 without its corrections for TCP, which is max-min fairness), and the order of
ops is this file's, so that agreement with the flow engine validates both. Each rank is an actor that does its engine's work, most
urgent first; a route carries one message at a time, like a connection.
"""

from __future__ import annotations

import heapq
import json
import sys
from collections.abc import Callable
from typing import Any

OPTIONS = (
    "network/model:CM02",
    "network/TCP-gamma:0",
    "network/crosstraffic:0",
    "network/weight-S:0",
)


class Job:
    """Ops of all ranks: their dependencies and progress.

    An op is a dict: `rank`, `kind` (compute, send, recv), `cost_s`, `after`; of messages `peer` (the other op), `route`, `bytes`.
    """

    def __init__(self, request: dict[str, Any], simgrid: Any) -> None:
        """Build the ops. `request`: world, links, routes, programs and launches; `simgrid`: the module."""
        self.simgrid = simgrid
        self.world = simgrid.Engine(
            ["job", "--log=root.thresh:critical", *(f"--cfg={each}" for each in OPTIONS)]
        )
        self.request = request
        self.routes = request["routes"]
        self.ops: list[dict[str, Any]] = []
        self.launches: list[dict[str, Any]] = []
        for launch in request["launches"]:
            first = len(self.ops)
            for op in request["programs"][launch["program"]]:
                after = [first + each for each in op["after"]]
                peer = op.get("peer")
                self.ops.append(
                    {
                        **op,
                        "after": after,
                        "peer": None if peer is None else first + peer,
                        "launch": len(self.launches),
                    }
                )
            self.launches.append(
                {
                    "left": len(self.ops) - first,
                    "end_s": 0.0,
                    "priority": launch["priority"],
                    "after_s": launch["after_s"],
                }
            )
        self.followers: list[list[int]] = [[] for _ in self.ops]
        # The start of the rank's launch is one of an op's dependencies.
        self.waits = [1 + len(op["after"]) for op in self.ops]
        for at, op in enumerate(self.ops):
            for before in op["after"]:
                self.followers[before].append(at)
            if op["kind"] == "send":
                self.waits[at] += 1  # the receiver's announcement
        self.tasks: list[list[tuple[int, int, int]]] = [[] for _ in range(request["world"])]
        self.count = 0
        self.left = [0] * request["world"]
        for op in self.ops:
            self.left[op["rank"]] += 1
        self.queues: list[list[tuple[int, int, int]]] = [[] for _ in self.routes]
        self.awake = [simgrid.Semaphore(0) for _ in range(request["world"])]
        self.waiting = [simgrid.Semaphore(0) for _ in self.routes]
        self.posted = [0] * len(self.routes)
        for op in self.ops:
            if op["kind"] == "send":
                self.posted[op["route"]] += 1

    def met(self, at: int) -> None:
        """Note that one dependency of an op is met."""
        self.waits[at] -= 1
        if self.waits[at] > 0:
            return
        op = self.ops[at]
        if op["kind"] == "recv":
            latency_s = self.routes[op["route"]]["latency_s"]
            self.later(op["rank"], latency_s, self.met, op["peer"])
        else:
            self.occupy(at)

    def later(self, rank: int, delay_s: float, call: Callable[[int], None], at: int) -> None:
        """Run `call(at)` after a delay; at once without one."""
        if delay_s <= 0:
            call(at)
            return

        def wait() -> None:
            self.simgrid.this_actor.sleep_for(delay_s)
            call(at)

        self.simgrid.Actor.create("later", self.hosts[rank], wait)

    def occupy(self, at: int) -> None:
        """Queue an op for its rank's engine."""
        op = self.ops[at]
        self.count += 1
        heapq.heappush(self.tasks[op["rank"]], (self.launches[op["launch"]]["priority"], self.count, at))
        self.awake[op["rank"]].release()

    def engine(self, rank: int) -> None:
        """Run a rank's engine thread, until all of its ops have run."""
        for _ in range(self.left[rank]):
            self.awake[rank].acquire()
            _, _, at = heapq.heappop(self.tasks[rank])
            op = self.ops[at]
            if op["cost_s"] > 0:
                self.simgrid.this_actor.sleep_for(op["cost_s"])
            if op["kind"] == "send":
                self.count += 1
                heapq.heappush(
                    self.queues[op["route"]], (self.launches[op["launch"]]["priority"], self.count, at)
                )
                self.waiting[op["route"]].release()
            else:
                self.end(at)

    def carry(self, route: int) -> None:
        """Run a connection: one message at a time, the most urgent first; the next leaves after this one's last byte."""
        way = self.routes[route]
        source, destination = self.ends[route]
        for _ in range(self.posted[route]):
            self.waiting[route].acquire()
            _, _, at = heapq.heappop(self.queues[route])
            op = self.ops[at]
            if op["bytes"] > 0:
                self.simgrid.Comm.sendto(source, destination, op["bytes"])
            self.end(at)
            self.later(op["rank"], way["latency_s"], self.occupy, op["peer"])

    def end(self, at: int) -> None:
        launch = self.launches[self.ops[at]["launch"]]
        launch["left"] -= 1
        launch["end_s"] = self.simgrid.Engine.clock
        for follower in self.followers[at]:
            self.met(follower)

    def start(self, rank: int, number: int) -> None:
        """Launch on a rank: the last dependency of its ops besides each other."""
        delay_s = self.launches[number]["after_s"][rank]
        if delay_s > 0:
            self.simgrid.this_actor.sleep_until(delay_s)
        for at, op in enumerate(self.ops):
            if op["launch"] == number and op["rank"] == rank:
                self.met(at)

    def run(self) -> list[float | None]:
        """Return, by launch, the end of its last op; None for one that did not end."""
        simgrid = self.simgrid
        zone = simgrid.NetZone.create_full_zone("zone")
        links = [
            zone.create_link(f"link{at}", rate).set_latency(0)
            for at, rate in enumerate(self.request["links_bytes_per_s"])
        ]
        self.hosts = [zone.create_host(f"rank{rank}", 1e9) for rank in range(self.request["world"])]
        self.ends: list[tuple[Any, Any]] = []
        for at, route in enumerate(self.routes):
            # A host for each end of each route: SimGrid's routes belong to pairs of hosts, ours to pairs of ranks.
            ends = tuple(zone.create_host(f"{side}{at}", 1e9) for side in ("from", "to"))
            path = [simgrid.LinkInRoute(links[each]) for each in route["links"]]
            zone.add_route(ends[0].netpoint, ends[1].netpoint, None, None, path, False)
            self.ends.append(ends)
        zone.seal()
        for rank, host in enumerate(self.hosts):
            simgrid.Actor.create(f"engine{rank}", host, self.engine, rank)
            for number in range(len(self.launches)):
                simgrid.Actor.create(f"start{rank}", host, self.start, rank, number)
        for route in range(len(self.routes)):
            simgrid.Actor.create(f"route{route}", self.ends[route][0], self.carry, route)
        self.world.run()
        return [None if launch["left"] else launch["end_s"] for launch in self.launches]


def main() -> None:
    """Run the job on standard input, and write to standard output."""
    import simgrid  # noqa: PLC0415  # loads where it is installed

    json.dump(Job(json.load(sys.stdin), simgrid).run(), sys.stdout)


if __name__ == "__main__":
    main()
