"""A probe between addresses of this machine's loopback network: real sockets, no testbed."""

from __future__ import annotations

import socket
import threading

import pytest
from room import Room, Seat

from hocket.artefacts.cluster import Cluster
from hocket.errors import PeerError, UsageError
from hocket.measure import transfer
from hocket.measure.datagrams import TOKEN_BYTES
from hocket.measure.network import probe
from hocket.measure.steps import Durations
from hocket.measure.transfer import Peer, Station
from hocket.planners import search

BRIEF = Durations(pings_s=0.01, window_s=0.01, transfer_s=0.05, crowded_s=0.05)
"""Loopback needs no long transfers; what is tested is who talks to whom."""


@pytest.fixture(autouse=True)
def _brief(monkeypatch: pytest.MonkeyPatch) -> None:
    """A silent peer is noticed soon."""
    monkeypatch.setattr(transfer, "SILENCE_S", 1.0)


def take_part(seat: Seat) -> Cluster:
    return probe(
        seat,
        name=f"host{seat.rank}",
        address=f"127.0.0.{seat.rank + 1}",
        slots=seat.rank + 1,
        durations=BRIEF,
    )


@pytest.mark.parametrize("hosts", [2, 3])
def test_all_hosts_get_the_same_complete_cluster(hosts: int) -> None:
    """Broken: ranks would plan for different networks, or for one with holes."""
    clusters = Room(hosts).run(take_part)
    assert all(cluster == clusters[0] for cluster in clusters)
    cluster = clusters[0]
    assert [host.name for host in cluster.hosts] == [f"host{i}" for i in range(hosts)]
    assert [host.slots for host in cluster.hosts] == [i + 1 for i in range(hosts)]
    for i in range(hosts):
        for j in range(hosts):
            assert cluster.bandwidth_bit_per_s[i][j] > 1e6
            assert (cluster.latency_s[i][j] > 0) == (i != j)
    assert search.plan(cluster, None, hosts).world == hosts


def test_one_host_has_its_memory_to_measure() -> None:
    """Broken: a job on one machine could not be planned."""
    (cluster,) = Room(1).run(take_part)
    assert cluster.bandwidth_bit_per_s[0][0] == cluster.hosts[0].bandwidth_bit_per_s > 1e8
    assert search.plan(cluster, None, 1).buckets


def test_hosts_of_one_name_are_refused() -> None:
    """Broken: a cluster file would confuse two machines."""
    with pytest.raises(UsageError, match="two hosts are named twin"):
        Room(2).run(lambda seat: probe(seat, name="twin", address=f"127.0.0.{seat.rank + 1}"))


def test_a_host_that_cannot_be_reached_is_named() -> None:
    """Broken: a firewall between two hosts would look like a hang."""
    with socket.create_server(("127.0.0.9", 0)) as closed:
        port = closed.getsockname()[1]
    station = Station("127.0.0.1", bytes(TOKEN_BYTES))
    station.meet([Peer("here", "127.0.0.1", station.port), Peer("gone", "127.0.0.9", port)], 0)
    with pytest.raises(PeerError, match=r"host here cannot reach host gone at 127.0.0.9"):
        station.open({1: 1}, {}, 0)
    with pytest.raises(PeerError, match=r"no connection from gone came to host here"):
        station.open({}, {1: 1}, 0)
    station.close()


def test_a_stranger_on_the_port_is_ignored() -> None:
    """Broken: anything that scans ports would end a probe or be measured as a host."""
    a, b = (Station(f"127.0.0.{i + 1}", bytes(TOKEN_BYTES)) for i in range(2))
    peers = [Peer("a", "127.0.0.1", a.port), Peer("b", "127.0.0.2", b.port)]
    a.meet(peers, 0)
    b.meet(peers, 1)
    with socket.create_connection(("127.0.0.2", b.port)) as garbage:
        garbage.sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.2\r\nAccept: */*\r\n\r\n")
        caller = threading.Thread(target=ping, args=(a,))
        caller.start()
        with b.open({}, {0: 1}, 0) as links:
            links.round_trips(0.01)
        caller.join()
    a.close()
    b.close()


def ping(station: Station) -> None:
    with station.open({1: 1}, {}, 0) as links:
        links.round_trips(0.01)


def test_a_peer_that_stops_in_the_middle_is_named() -> None:
    """Broken: a host that dies during a probe would leave the others without a reason."""
    a, b = (Station(f"127.0.0.{i + 1}", bytes(TOKEN_BYTES)) for i in range(2))
    peers = [Peer("a", "127.0.0.1", a.port), Peer("b", "127.0.0.2", b.port)]
    a.meet(peers, 0)
    b.meet(peers, 1)
    sender = threading.Thread(target=lambda: a.open({1: 1}, {}, 0).close())
    sender.start()
    with b.open({}, {0: 1}, 0) as links, pytest.raises(PeerError, match="with host a failed"):
        links.receive_bit_per_s(0.05, window_s=None)
    sender.join()
    a.close()
    b.close()
