"""Matrices as people have them: wrong in every way a matrix can be."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hocket.artefacts.cluster import Cluster, Host, Rack
from hocket.artefacts.network import GOODPUT, LATENCY_S
from hocket.errors import ArtefactError, UsageError
from hocket.planning.ordering.cluster import of_cluster
from hocket.planning.ordering.matrix import read_csv
from hocket.planning.ordering.solve import Request, solve
from hocket.tools.ordering.inferred import with_trunks


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


NAMED = ",a,b,c\na,0,1,2\nb,1,0,3\nc,2,3,0\n"


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        (NAMED, ("a", "b", "c")),
        ("a,b,c\n0,1,2\n1,0,3\n2,3,0\n", ("a", "b", "c")),
        ("0,1,2\n1,0,3\n2,3,0\n", ("host0", "host1", "host2")),
        ("\ufeff0, 1, 2\n\n1, nan, 3\n2, 3, -\n", ("host0", "host1", "host2")),
    ],
)
def test_forms_of_csv(tmp_path: Path, text: str, hosts: tuple[str, ...]) -> None:
    """Broken: a matrix from a spreadsheet or from another tool would not be read, or read in another order."""
    matrix = read_csv(write(tmp_path / "m.csv", text), unit="ms")
    assert matrix.hosts == hosts
    assert matrix.latency_s == pytest.approx(np.array([[0, 1, 2], [1, 0, 3], [2, 3, 0]]) * 1e-3)
    assert matrix.notes == ()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no rows"),
        ("0,1\n1\n", "row 2 has 1 numbers, but there are 2 rows"),
        ("0,1,2\n1,0,2\n", "row 1 has 3 numbers, but there are 2 rows"),
        (",a,b\na,0,x\nb,1,0\n", "row 1, column 2: `x` is not a number"),
        (",a,b\na,0,1\nc,1,0\n", "row 2 is named `c`, column 2 `b`"),
        ("0,x,2\n1,0,3\n2,3,0\n", "row 1, column 2: `x` is not a number"),
        (",a,a\na,0,1\na,1,0\n", "host `a` is there twice, rows 1 and 2"),
        (NAMED.replace("b,1,0,3", "b,1,0,0"), r"row 2, column 3 \(b to c\) is 0: it must be above 0"),
        (NAMED.replace("b,1,0,3", "b,-1,0,3"), r"row 2, column 1 \(b to a\) is -1: it must be above 0"),
        (NAMED.replace("b,1,0,3", "b,nan,0,3"), r"row 2, column 1 \(b to a\) is missing"),
        (NAMED.replace("b,1,0,3", "b,,0,3"), r"row 2, column 1 \(b to a\) is missing"),
        (",a,b,c\na,0,inf,2\nb,inf,0,inf\nc,2,inf,0\n", "nobody reaches b\nhint: with --skip-unreachable"),
    ],
)
def test_wrong_csv_is_refused_with_its_place(tmp_path: Path, text: str, said: str) -> None:
    """Broken: a wrong measurement would decide the order without a word."""
    with pytest.raises(ArtefactError, match=said):
        read_csv(write(tmp_path / "m.csv", text))


def test_one_host_is_nothing_to_order(tmp_path: Path) -> None:
    """Broken: a job of one host would end in a traceback."""
    with pytest.raises(UsageError, match="1 host: there is nothing to order"):
        read_csv(write(tmp_path / "m.csv", "0\n"))


def test_unreachable_hosts_are_left_out_on_request(tmp_path: Path) -> None:
    """Broken: one dead host of a thousand would keep the others from being ordered."""
    path = write(tmp_path / "m.csv", ",a,b,c\na,0,-,2\nb,-,0,-\nc,2,-,0\n")
    matrix = read_csv(path, skip_unreachable=True)
    assert (matrix.hosts, matrix.left_out) == (("a", "c"), ("b",))
    assert "nobody reaches them: b" in matrix.notes[0]


def test_both_ways_become_the_slower_one_and_it_is_said(tmp_path: Path) -> None:
    """Broken: a collective would be promised the faster direction."""
    rates = write(tmp_path / "rates.csv", NAMED.replace("a,0,1,2", "a,0,1,4"))
    matrix = read_csv(write(tmp_path / "m.csv", NAMED.replace("a,0,1,2", "a,0,1,4")), bandwidth=rates)
    assert matrix.latency_s[0, 2] == matrix.latency_s[2, 0] == 4
    assert matrix.s_per_byte is not None
    assert matrix.s_per_byte[0, 2] == matrix.s_per_byte[2, 0] == 8 / 2
    assert "1 pair differs by direction, most a and c" in matrix.notes[0]


def test_a_matrix_of_other_hosts_is_refused(tmp_path: Path) -> None:
    """Broken: the order of one cluster would be given to another."""
    path = write(tmp_path / "m.csv", NAMED)
    with pytest.raises(UsageError, match="3 rows, but the host list has 2 hosts"):
        read_csv(path, hosts=["a", "b"])
    with pytest.raises(UsageError, match="row 2 is host `b`, but the host list has `x` there"):
        read_csv(path, hosts=["a", "x", "c"])
    other = write(tmp_path / "rates.csv", NAMED.replace("c", "d"))
    with pytest.raises(UsageError, match="its hosts are not those of"):
        read_csv(path, bandwidth=other)


def test_files_that_are_not_there_or_no_text(tmp_path: Path) -> None:
    """Broken: a typing error would end in a traceback."""
    with pytest.raises(ArtefactError, match="cannot be read"):
        read_csv(tmp_path / "missing.csv")
    (tmp_path / "binary.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ArtefactError, match="it is not text"):
        read_csv(tmp_path / "binary.csv")


def test_a_cluster_written_by_hand_has_its_links() -> None:
    """Broken: a file that plans and testbeds take would be refused, or all of its pairs would be alike."""
    hosts = tuple(
        Host(name=name, rack=rack, bandwidth_bit_per_s=rate)
        for name, rack, rate in (("a", "x", 1e9), ("b", "y", 5e8), ("c", "x", 1e9))
    )
    racks = (Rack(name="x", uplink_bit_per_s=2e8), Rack(name="y"))
    matrix = of_cluster(Cluster(hosts=hosts, racks=racks))
    assert matrix.s_per_byte is not None
    assert matrix.s_per_byte[0] == pytest.approx([0, 8 / (2e8 * GOODPUT), 8 / (1e9 * GOODPUT)])
    assert matrix.latency_s[0, 1] == LATENCY_S
    assert "latencies are not in the file" in matrix.notes[0]
    assert matrix.network is not None
    assert matrix.groups == ((0, 2), (1,))
    rates = [matrix.network.links[link].bit_per_s for link in matrix.network.path(0, 1)[0]]
    assert rates == pytest.approx([each * GOODPUT for each in (1e9, 2e8, 5e8)])


def test_further_cards_are_beside_a_trunk() -> None:
    """Broken: pairs of hosts with two cards would be as slow between racks as if they had one."""
    hosts = tuple(
        Host(name=name, rack=name, bandwidth_bit_per_s=3e8, cards_bit_per_s=(2e8, 1e8)) for name in "abc"
    )
    racks = tuple(Rack(name=name, uplink_bit_per_s=5e7) for name in "abc")
    matrix = of_cluster(Cluster(hosts=hosts, racks=racks))
    assert matrix.s_per_byte is not None
    assert matrix.s_per_byte[0, 1] == pytest.approx(8 / (1.5e8 * GOODPUT))
    assert matrix.network is not None
    rates = [(link.bit_per_s, link.beside_bit_per_s) for link in matrix.network.links]
    assert (5e7 * GOODPUT, 1e8 * GOODPUT) in map(pytest.approx, rates)


def test_trunks_show_in_rates(tmp_path: Path) -> None:
    """Broken: matrices without a cluster would be ordered as if racks had no trunks, and nobody would be told."""
    rates = "\n".join(
        ",".join("0" if a == b else "900" if a % 2 == b % 2 else "100" for b in range(6)) for a in range(6)
    )
    ones = "\n".join(",".join("1" for _ in range(6)) for _ in range(6))
    latency, bandwidth = write(tmp_path / "l.csv", ones), write(tmp_path / "b.csv", rates)
    matrix = with_trunks(read_csv(latency, bandwidth=bandwidth, unit="ms"))
    assert matrix.groups == ((0, 2, 4), (1, 3, 5))
    assert "host0 host2 host4 and host1 host3 host5 are racks" in matrix.notes[0]
    found = solve(matrix, Request(algorithm="ring", size_bytes=1e6))
    assert len({host % 2 for host in found.order[:3]}) == 1
    # Three flows out of each rack, or one.
    assert found.given_s == pytest.approx(3 * found.cost_s)
    assert found.proven
    even = write(tmp_path / "e.csv", ones)
    unseen = solve(with_trunks(read_csv(latency, bandwidth=even)), Request(size_bytes=1e6))
    assert any("several pairs share do not count" in note for note in unseen.notes)


def test_clusters_that_do_not_fit() -> None:
    """Broken: a matrix of other hosts would be ordered by."""
    hosts = tuple(Host(name=name, bandwidth_bit_per_s=1e9) for name in "ab")
    with pytest.raises(ArtefactError, match="`latency_s` is not 2 rows of 2"):
        of_cluster(Cluster(hosts=hosts, latency_s=((0.0, 1.0),)))


def test_hosts_of_a_cluster_that_nobody_reaches_are_left_out_on_request() -> None:
    """Broken: the hint would name an option that does nothing."""
    nan = float("nan")
    hosts = tuple(Host(name=name, slots=at + 1, bandwidth_bit_per_s=1e9) for at, name in enumerate("abc"))
    cluster = Cluster(hosts=hosts, latency_s=((0.0, nan, 1e-4), (nan, 0.0, nan), (1e-4, nan, 0.0)))
    with pytest.raises(ArtefactError, match="nobody reaches b"):
        of_cluster(cluster)
    matrix = of_cluster(cluster, skip_unreachable=True)
    assert (matrix.hosts, matrix.slots, matrix.left_out) == (("a", "c"), (1, 3), ("b",))


def test_a_cluster_keeps_its_slots_and_bandwidth() -> None:
    """Broken: hosts of several ranks would be started with one, and bytes would not count."""
    hosts = tuple(
        Host(name=name, slots=slots, bandwidth_bit_per_s=1e9) for name, slots in (("a", 2), ("b", 3))
    )
    matrix = of_cluster(Cluster(hosts=hosts, bandwidth_bit_per_s=((5e10, 8e8), (1.6e9, 5e10))))
    assert matrix.slots == (2, 3)
    assert matrix.s_per_byte is not None
    assert matrix.s_per_byte[0, 1] == pytest.approx(1e-8)
    assert matrix.latency_s[0, 1] == LATENCY_S
