"""Matrices as people have them: wrong in every way a matrix can be."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hocket.artefacts.cluster import Cluster, Host
from hocket.errors import ArtefactError, UsageError
from hocket.ordering.matrix import of_cluster, read_csv


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


def test_clusters_that_were_not_measured_or_do_not_fit() -> None:
    """Broken: a cluster written by hand would be ordered by nothing."""
    hosts = tuple(Host(name=name, bandwidth_bit_per_s=1e9) for name in "ab")
    with pytest.raises(ArtefactError, match="was not measured"):
        of_cluster(Cluster(hosts=hosts))
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
    assert not matrix.latency_s.any()
