"""The thread beside training that keeps a plan's rank orders suitable: samples connections, starts better epochs.

All ranks meet at the store once per sample, over a separate connection; nothing in a step waits for this thread. Each
computes the same from the same samples, so they agree on orders without further messages; a new order begins like an
epoch.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Sequence

import numpy as np

from hocket import _native
from hocket.artefacts.cluster import Cluster
from hocket.artefacts.network import network
from hocket.artefacts.plan import Plan
from hocket.errors import Error, RendezvousError, UsageError
from hocket.launch.rendezvous import Job
from hocket.launch.store import Store
from hocket.planning.ordering.classes import Order
from hocket.planning.ordering.current import Sample, uniform
from hocket.planning.ordering.matrix import Numbers
from hocket.planning.ordering.monitor import Monitor
from hocket.planning.ordering.shared import SharedLinks, shared_links
from hocket.policy.epoch import Epoch, Epochs

PATIENCE_S = 3600.0
"""How long a sample waits for the slowest rank: without practical limit, since no step waits for it."""

INTERVAL_S_MAX = 86_400.0

ORDER = "order"
"""Name of the agreed value: the ranks of each class of buckets, separated by commas."""

NEIGHBOUR_S, NEIGHBOUR_S_PER_BYTE = 1e-6, 1e-10
"""Latency between ranks of a host."""

_numbers = itertools.count()
"""Number of the thread in this process: the same on all ranks, which distribute their models in one order."""


class Reorder:
    """Runs until `stop`."""

    def __init__(
        self, plan: Plan, job: Job, engine: _native.Engine, cluster: Cluster | None, *, interval_s: float
    ) -> None:
        """`cluster`: earlier measurements of the hosts, if any. Raises UsageError for an invalid interval."""
        if not 0 < interval_s < INTERVAL_S_MAX:
            raise UsageError(
                f"HOCKET_REORDER_INTERVAL_S: {interval_s:g} s between samples: it must be above 0"
            )
        self._monitor = Monitor(plan, *of_ranks(job.hosts, cluster))
        self.epochs = Epochs(Epoch(0, {ORDER: encode(self._monitor.orders)}))
        self._job, self._engine = job, engine
        self._interval_s = interval_s
        self._seen = self.epochs.current
        self._before: list[tuple[int, int]] = [(0, 0)] * job.world
        self._stopped = threading.Event()
        self._store: Store | None = None
        self._number = next(_numbers)
        self._thread = threading.Thread(target=self._run, name="hocket-reorder", daemon=True)

    def start(self) -> None:
        """Connect and begin; does nothing if no order is better than another."""
        if not self._monitor.matters:
            return
        job = self._job
        who = f"the order's watch of rank {job.rank} on {job.host}"
        self._store = Store(
            job.store.address, job.secret, rank=None, who=who, timeout_s=job.settings.start_timeout_s
        )
        self._thread.start()

    def stop(self) -> None:
        """End."""
        self._stopped.set()

    def _run(self) -> None:
        try:
            while not self._stopped.wait(self._interval_s):
                self._sample()
        except RendezvousError:
            # A rank has left the store: in order, at the end of training, or dead, which the wire reports with its
            # name.
            self._stopped.set()
        except Error as error:
            self._engine.abort(f"{type(error).__name__}: {error}")
        finally:
            if self._store is not None:
                self._store.leave()

    def _sample(self) -> None:
        """One meeting of all ranks: each contributes its statistics and whether it can start a new epoch."""
        current = self.epochs.current
        mine = {
            "samples": self._samples(),
            "settled": self.epochs.settled,
            "epoch": current.number,
        }
        job = self._job
        assert self._store is not None  # noqa: S101  # `start` made it
        everyone = self._store.gather(f"reorder/{self._number}", job.rank, job.world, mine, PATIENCE_S)
        # Ranks begin an epoch at one iteration but not at one sample: statistics in between are of two orders.
        if any(not each["settled"] or each["epoch"] != everyone[0]["epoch"] for each in everyone):
            return
        if self._seen is not current:
            self._seen = current
            self._monitor.begin(decode(str(current.agreed[ORDER])))
        samples = [
            [None if sample is None else Sample(*sample) for sample in each["samples"]] for each in everyone
        ]
        orders = self._monitor.observe(samples)
        if orders is not None:
            self.epochs.learn(current.after({ORDER: encode(orders)}))

    def _samples(self) -> list[tuple[float, int, float] | None]:
        """Statistics of each connection since the previous sample."""
        found: list[tuple[float, int, float] | None] = []
        for rank, numbers in enumerate(self._engine.connections()):
            if numbers is None:
                found.append(None)
                continue
            round_trip_us, _, _, acknowledged_bytes, busy_us, _ = numbers
            bytes_before, busy_us_before = self._before[rank]
            self._before[rank] = (acknowledged_bytes, busy_us)
            busy_s = (busy_us - busy_us_before) * 1e-6
            found.append((round_trip_us * 1e-6, acknowledged_bytes - bytes_before, busy_s))
        return found


def encode(orders: Sequence[Order]) -> str:
    """Orders as an agreed value.

    >>> encode([(0, 2, 1), (0, 1, 2)])
    '0,2,1;0,1,2'
    """
    return ";".join(",".join(map(str, order)) for order in orders)


def decode(text: str) -> tuple[Order, ...]:
    """The inverse of `encode`."""
    return tuple(tuple(int(rank) for rank in each.split(",")) for each in text.split(";") if each)


def of_ranks(hosts: tuple[str, ...], cluster: Cluster | None) -> tuple[Numbers, Numbers, SharedLinks | None]:
    """Latency and seconds per byte between ranks, by their hosts, and the links that they share; None without a
    cluster.

    Hosts that the cluster lacks are all alike, and share nothing.
    """
    latency_s, s_per_byte = uniform(len(hosts))
    place = {} if cluster is None else {host.name: at for at, host in enumerate(cluster.hosts)}
    known = None if cluster is None else network(cluster)
    for a, source in enumerate(hosts):
        for b, destination in enumerate(hosts):
            if a == b:
                continue
            if source == destination:
                latency_s[a, b], s_per_byte[a, b] = NEIGHBOUR_S, NEIGHBOUR_S_PER_BYTE
            elif known is not None and source in place and destination in place:
                pair = place[source], place[destination]
                latency_s[a, b] = max(known.latencies_s[pair], NEIGHBOUR_S)
                s_per_byte[a, b] = 8 / known.bit_per_s(*pair)
    latency_s, s_per_byte = np.maximum(latency_s, latency_s.T), np.maximum(s_per_byte, s_per_byte.T)
    if cluster is None or known is None:
        return latency_s, s_per_byte, None
    at = [place.get(host) for host in hosts]
    paths = {
        (a, b): known.paths[i, j]
        for (a, i), (b, j) in itertools.permutations(enumerate(at), 2)
        if i is not None and j is not None and i != j
    }
    racks: dict[str | None, list[int]] = {}
    for rank, i in enumerate(at):
        racks.setdefault(None if i is None else cluster.hosts[i].rack, []).append(rank)
    return latency_s, s_per_byte, shared_links(known.links, paths, len(hosts), list(racks.values()))
