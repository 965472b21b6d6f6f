"""A probe between addresses of this machine's loopback network: real sockets, no testbed."""

from __future__ import annotations

import socket
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from hocket.artefacts.cluster import Cluster
from hocket.errors import PeerError, UsageError
from hocket.planning import search
from hocket.tools.probe import transfer
from hocket.tools.probe.datagrams import TOKEN_BYTES, Trips
from hocket.tools.probe.network import probe
from hocket.tools.probe.options import ProbeOptions
from hocket.tools.probe.steps import Durations
from hocket.tools.probe.transfer import Peer, Station
from tests.measure.room import Room, Seat

pytestmark = pytest.mark.hosts

BRIEF = Durations(window_s=0.01, transfer_s=0.05, crowded_s=0.05)
"""Loopback needs no long transfers; what is tested is who talks to whom."""

OPTIONS = ProbeOptions(pair_s=0.01)


@pytest.fixture(autouse=True)
def _brief(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfer, "SILENCE_S", 1.0)


def take_part(seat: Seat) -> Cluster:
    return probe(
        seat,
        name=f"host{seat.rank}",
        address=f"127.0.0.{seat.rank + 1}",
        slots=seat.rank + 1,
        options=OPTIONS,
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
            assert (0 < cluster.latency_precision[i][j] <= 1) == (i != j)
    assert search.plan(cluster, None, hosts).world == hosts


def test_what_is_not_known_well_enough_is_said_and_more_time_mends_it() -> None:
    """Broken: a latency from a handful of round trips would be promised to 2 %, and nothing could be done about it."""
    said: list[list[str]] = [[], []]

    def part(seat: Seat, pair_s: float, notes: list[str]) -> Cluster:
        return probe(
            seat,
            name=f"host{seat.rank}",
            address=f"127.0.0.{seat.rank + 1}",
            options=ProbeOptions(pair_s=pair_s),
            durations=BRIEF,
            note=notes.append if seat.rank == 0 else None,
        )

    hasty = Room(2).run(lambda seat: part(seat, 1e-6, said[0]))[0]
    # Too few round trips for any interval.
    assert hasty.latency_precision == ((0.0, 1.0), (1.0, 0.0))
    (note,) = [each for each in said[0] if "is not known" in each]
    assert (
        "the latency of 2 of 2 measurements is not known to 2%: host0 to host1 unknown; host1 to host0 unknown"
        in note
    )
    assert "hint: --pair-budget" in note
    longer = Room(2).run(lambda seat: part(seat, 0.3, said[1]))[0]
    assert max(map(max, longer.latency_precision)) < 1


def test_both_ends_of_a_pair_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    """Broken: the latency of a way would be written into the file as that of the way back, which nobody measured."""
    asks = transfer.Links.round_trips

    def slower_from_1(links: transfer.Links, duration_s: float) -> dict[int, Trips]:
        found = asks(links, duration_s)
        return {other: Trips(2e-3 if other == 0 else 1e-3, 64, 0, 0, 0.01) for other in found}

    monkeypatch.setattr(transfer.Links, "round_trips", slower_from_1)
    notes: list[str] = []
    clusters = Room(2).run(
        lambda seat: probe(
            seat,
            name=f"host{seat.rank}",
            address=f"127.0.0.{seat.rank + 1}",
            options=OPTIONS,
            durations=BRIEF,
            note=notes.append if seat.rank == 0 else None,
        )
    )
    assert clusters[0].latency_s == ((0.0, 5e-4), (1e-3, 0.0))
    assert clusters[0].latency_precision == ((0.0, 0.01), (0.01, 0.0))
    assert "round trips differ by the end that asks, for 1 pairs: host0 and host1 1000 and 2000 µs" in notes


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
    with pytest.raises(PeerError, match="cannot reach") as unreachable:
        station.open({1: 1}, {}, 0)
    assert (unreachable.value.rank, unreachable.value.host) == (1, "gone")
    with pytest.raises(PeerError, match="no connection from gone came to host here") as absent:
        station.open({}, {1: 1}, 0)
    assert (absent.value.host, absent.value.missing) == ("gone", (1,))
    station.close()


def test_a_stranger_on_the_port_is_ignored() -> None:
    """Broken: anything that scans ports would end a probe or be measured as a host."""
    a, b = (Station(f"127.0.0.{i + 1}", bytes(TOKEN_BYTES)) for i in range(2))
    peers = [Peer("a", "127.0.0.1", a.port), Peer("b", "127.0.0.2", b.port)]
    a.meet(peers, 0)
    b.meet(peers, 1)
    with socket.create_connection(("127.0.0.2", b.port)) as garbage, ThreadPoolExecutor(1) as pool:
        garbage.sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.2\r\nAccept: */*\r\n\r\n")
        stranger = garbage.getsockname()
        caller = pool.submit(ping, a)
        with b.open({}, {0: 1}, 0) as links:
            assert links.into.keys() == {0}
            assert links.into[0].getpeername() != stranger
            links.round_trips(0.01)
        assert caller.result()[1].sent > 0
    a.close()
    b.close()


def ping(station: Station) -> dict[int, Trips]:
    with station.open({1: 1}, {}, 0) as links:
        return links.round_trips(0.01)


def test_a_peer_that_stops_in_the_middle_is_named() -> None:
    """Broken: a host that dies during a probe would leave the others without a reason."""
    a, b = (Station(f"127.0.0.{i + 1}", bytes(TOKEN_BYTES)) for i in range(2))
    peers = [Peer("a", "127.0.0.1", a.port), Peer("b", "127.0.0.2", b.port)]
    a.meet(peers, 0)
    b.meet(peers, 1)
    sender = threading.Thread(target=lambda: a.open({1: 1}, {}, 0).close())
    sender.start()
    with b.open({}, {0: 1}, 0) as links, pytest.raises(PeerError) as silent:
        links.receive_bit_per_s(0.05, window_s=None)
    assert (silent.value.rank, silent.value.host) == (0, "a")
    sender.join()
    a.close()
    b.close()
