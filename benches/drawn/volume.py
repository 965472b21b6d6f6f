"""Least traffic of hosts and racks in each step, for any plan: an independent check of the planner's bound."""

from __future__ import annotations

from benches.drawn.clusters import Case
from hocket.artefacts.cluster import Directions, both
from hocket.artefacts.dtypes import ITEM_BYTES
from hocket.artefacts.network import GOODPUT

BITS = 8


def slower(given: Directions) -> float:
    """The rate of a link, whose directions are equal in drawn clusters."""
    out, into = both(given)
    assert out == into  # noqa: S101  # the bound of the other direction would be another
    return out


def least_s(case: Case) -> float:
    """Least seconds of a step. Each host that trains sends its gradients and receives their sum, and so does each rack; and 2 (n -
    1) times the gradients pass between n hosts that train, or n racks, over the links of all."""
    hosts = case.cluster.hosts
    workers = hosts[: len(hosts) - case.helpers]
    cards = max(1, min(len(host.cards_bit_per_s) for host in hosts))
    rate = {
        host.name: sum(map(slower, host.cards_bit_per_s[:cards])) or slower(host.bandwidth_bit_per_s)
        for host in hosts
    }
    size = BITS * sum(each.elements * ITEM_BYTES[each.dtype] for each in case.profile.gradients)
    bits_s = [size / rate[host.name] for host in workers]
    bits_s.append(2 * (len(workers) - 1) * size / sum(rate.values()))
    training = {host.rack for host in workers}
    used = {host.rack for host in hosts}
    trunks = {rack.name: rack.uplink_bit_per_s for rack in case.cluster.racks if rack.name in used}
    if len(training) > 1 and all(trunks.get(name) for name in used):
        known = {name: slower(each) for name, each in trunks.items() if each}
        bits_s += [size / known[name] for name in training]
        bits_s.append(2 * (len(training) - 1) * size / sum(known.values()))
    first_s = min(each.ready_s for each in case.profile.gradients)
    end_s = case.profile.forward_s + case.profile.backward_s
    return case.profile.step_s + max(0.0, first_s + max(bits_s) / GOODPUT - end_s)
