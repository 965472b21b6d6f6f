"""What rank 0 does with what ranks report: the job's own traffic counts before anybody looks at the network."""

from collections import deque
from itertools import pairwise

import pytest

from hocket.artefacts.plan import Schedule
from hocket.artefacts.promise import EXACT
from hocket.training.autopilot.coordinator import Coordinator
from hocket.training.autopilot.knowledge import Knowledge
from hocket.training.autopilot.meeting import Report
from hocket.training.autopilot.traffic import Sample
from tests.training.autopilot.test_knowledge import HOSTS, MODEL, TIMES, racks, ring

MEGABYTE = 1 << 20
ORDER = (0, 2, 1, 3)
"""A ring of the ranks, h2, h3, h0, h1: every flow crosses the trunk."""


class Watch:
    """Stands for the stopwatch of rank 0."""

    def __init__(self):
        self.step = self.epoch_began = 0
        self.schedule = Schedule()
        self._steps = deque()

    def train(self, *steps_s):
        self.step += len(steps_s)
        self._steps += [(0, step_s) for step_s in steps_s]

    def take(self):
        taken, self._steps = list(self._steps), deque()
        return taken


def reports(order, flow_bit_per_s, *, first):
    """Of four ranks, which sent in a ring at that rate."""
    size = 4 * MEGABYTE
    sent = {a: (Sample(b, size, 8 * size / flow_bit_per_s),) for a, b in pairwise((*ORDER, ORDER[0]))}
    return [
        Report(
            epoch=0,
            settled=True,
            sent=sent[rank],
            times=TIMES if first else None,
            order=order if rank == 0 else None,
        )
        for rank in range(4)
    ]


def coordinated(weather, monkeypatch, *, steps=40):
    """What was ordered and said, and what is known of the network; `weather(step)`: a step's seconds and a flow's rate."""
    watch, said, ordered = Watch(), [], []
    now = ring()
    knowledge = Knowledge(HOSTS, MODEL, racks(), EXACT)
    monkeypatch.setattr(Knowledge, "proposal", lambda self, current, step_s, least: (current, step_s))
    coordinator = Coordinator(watch, knowledge, profiled_ranks=4, prefix="", trace=None)
    monkeypatch.setattr(Coordinator, "_say", lambda _, change: said.append(change))
    for at in range(steps):
        order = coordinator.order(None)
        ordered.append(order.what)
        if order.what == "look":
            coordinator.looked(racks())
        step_s, rate = weather(at)
        watch.train(step_s * (1 + 0.01 * (at % 3)))
        coordinator.meet(reports(order, rate, first=at == 0), now)
    return ordered, said, knowledge.cluster


def test_a_trunk_that_is_halved_is_known_by_the_jobs_own_traffic(monkeypatch):
    """A job would send probes over a link that has just become slow, and wait for them at 1 % of it."""
    ordered, said, cluster = coordinated(lambda at: (1.2, 5e7) if at < 25 else (2.4, 2.5e7), monkeypatch)
    assert "look" not in ordered
    (looked,) = (each for each in said if each.what == "looked")
    assert "trunks of 50 Mbit/s, as connections show" in looked.why
    assert looked.step <= 25 + 15
    assert [rack.uplink_bit_per_s for rack in cluster.racks] == pytest.approx([5e7, 5e7], rel=0.05)
    assert {host.bandwidth_bit_per_s for host in cluster.hosts} == {1e9}
    assert said[-1].what == "planned"


def test_where_traffic_explains_nothing_the_network_is_looked_at(monkeypatch):
    """A job whose steps take longer for reasons that its connections do not show would never find them."""
    ordered, said, cluster = coordinated(lambda at: (1.2 if at < 25 else 2.4, 5e7), monkeypatch)
    assert "look" in ordered
    assert [each.what for each in said if each.what in ("looked", "drifted")][:2] == ["drifted", "looked"]
    assert cluster == racks()
