"""Groups whose members change: PyTorch's `reconfigure` on the backend `hocket`, with real processes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from hocket.artefacts.cluster import Cluster, Host
from tests.support import warm

pytestmark = pytest.mark.members

SCRIPT = Path(__file__).with_name("reconfigured_scripts.py")
KILLED = -9
LIMIT_S = 120


def seen(folder, name, count, *, prefix=lambda _index, argv: argv, codes=None, hosts=None):
    """Notes of each process of a script; they end with `codes`, or well, and are on `hosts`, or one."""
    environment = {
        "PYTHONPATH": os.pathsep.join(sys.path),
        "OMP_NUM_THREADS": "1",
        "HOCKET_SECRET": "ab" * 32,
    }
    processes = [
        subprocess.Popen(
            prefix(index, warm.command(SCRIPT, str(folder), name, str(index), str(count))),
            env={**os.environ, **environment, **({"HOCKET_HOST": hosts[index]} if hosts else {})},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for index in range(count)
    ]
    try:
        said = [process.communicate(timeout=LIMIT_S)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    assert [each.returncode for each in processes] == (codes or [0] * count), "\n".join(said)
    files = [folder / f"seen.{index}" for index in range(count)]
    return [json.loads(file.read_text()) if file.exists() else None for file in files]


def test_members_change_and_come_back(tmp_path):
    """Broken: a rank or a size stays as it was, an abort loses the group, or a sum lacks a member."""
    first, second, third = seen(tmp_path, "resized", 3)
    assert first[:3] == [[0, 3, 6.0], [1, 2, 4.0], [2, 3, 6.0]]
    assert second[:2] == [[1, 3, 6.0], [0, 3, 6.0]]
    assert third[:3] == [[2, 3, 6.0], [0, 2, 4.0], [1, 3, 6.0]]
    for rank, own in enumerate((first, second, third)):
        kind, text, *_ = own[-3]
        assert kind == "BackendUsageError"
        assert "it was aborted" in text
        assert own[-2:] == [[7], [rank, 3, 6.0]]


def test_all_kinds_of_calls_follow_the_members(tmp_path):
    """Broken: a call uses what was prepared for another size, or a message reaches a member of an older configuration."""
    own = seen(tmp_path, "all_calls", 3)
    for rank in range(3):
        assert own[rank][0] == [1.0, 3.0, [0.0, 1.0, 2.0], (rank - 1) % 3, [0.0, 1.0, 2.0], 2.0]
    for rank, each in enumerate((own[1], own[0])):
        assert each[1] == [0.5, 2.0, [0.0, 1.0], 1 - rank, [0.0, 1.0], 1.0]


@pytest.mark.parametrize("hosts", [["h"] * 3, ["a", "b", "c"]], ids=["one host", "three hosts"])
@pytest.mark.parametrize(("name", "victim"), [("loses_last", 2), ("loses_first", 0)])
def test_a_killed_member_ends_the_call_and_the_others_go_on(name, victim, hosts, tmp_path):
    """Broken: the others wait for their time-out, do not learn who it was, or cannot meet again."""
    codes = [KILLED if each == victim else 0 for each in range(3)]
    own = seen(tmp_path, name, 3, codes=codes, hosts=hosts)
    assert own.pop(victim) is None
    for at, ((kind, text, rank, why), waited_s, hooked, after) in enumerate(own):
        assert (kind, rank, why, hooked) == ("BackendPeerError", victim, "lost", True)
        assert text.count("Connection closed by peer") == 1  # as Gloo says
        assert waited_s < 30  # of a time-out of 60
        assert after == [1 - at, 2, 6.0 - (victim + 1)]


def test_a_member_that_does_not_come_is_named(tmp_path):
    """Broken: the others hang, or the group is of no use afterwards."""
    first, second, third = seen(tmp_path, "one_does_not_come", 3)
    assert second == []
    for index, (missing, without, after) in zip((0, 2), (first, third), strict=True):
        assert missing[0] == "BackendRendezvousError"
        assert "rank 1" in missing[1]
        assert without[0] == "BackendUsageError"
        assert "reconfigure() failed" in without[1]
        assert after == [1 if index == 0 else 0, 2, 4.0]


def test_a_member_that_stays_behind_reaches_nobody(tmp_path):
    """Broken: what it sends in the old configuration is added in the new one, or it waits for ever."""
    (behind,), *others = seen(tmp_path, "one_stays_behind", 3)
    assert behind[0] == "BackendPeerError"
    for rank, own in enumerate(others):
        assert own == [[rank, 2, 5.0], 5.0]


def test_a_call_under_way_fails(tmp_path):
    """Broken: it waits for ever for members that have gone on, or keeps them from it."""
    (after, failed), (other,) = seen(tmp_path, "with_a_call_under_way", 2)
    assert after == [0, 2, 3.0]
    assert other == [1, 2, 3.0]
    assert failed[0].startswith("Backend")


def test_what_cannot_be_is_refused_by_name(tmp_path):
    """Broken: a wrong call costs the members they have, or hangs."""
    texts = (
        "reconfigure() has not been called",
        "is this process's",
        "one comes twice",
        "is no handle of backend hocket",
        "does not know 'color'",
        "the members of the default group change",
        "uuid 3 was that of an earlier configuration",
    )
    for own in seen(tmp_path, "wrong", 2):
        for (kind, text, *_), expected in zip(own[:-1], texts, strict=True):
            assert kind == "BackendUsageError"
            assert expected in text
            assert "\nhint: " in text
        assert own[-1] == 3.0


def test_a_set_of_handles_has_an_order_of_its_own(tmp_path):
    """Broken: members order the handles of a set differently, and meet as somebody else."""
    own = seen(tmp_path, "without_an_order", 3)
    assert sorted(rank for ((rank, _, _),) in own) == [0, 1, 2]
    assert {(size, total) for ((_, size, total),) in own} == {(3, 6.0)}


def test_a_group_beside_the_default_one(tmp_path):
    """Broken: it needs a default group with members, or its calls are that one's."""
    first, second, third = seen(tmp_path, "beside", 3)
    assert (first, second, third) == ([3.0, 2.0], [3.0], [3.0, 2.0])


def test_a_group_that_nothing_refers_to_is_closed(tmp_path):
    """Broken: a program that makes groups and drops them, as PyTorch's own allow, runs out of addresses."""
    assert seen(tmp_path, "dropped", 2) == [[[2.0, 2.0]] * 3] * 2


def test_members_on_two_hosts(emulated, tmp_path):
    """Broken: a handle leads another host to its own loopback."""
    hosts = tuple(Host(name=each, bandwidth_bit_per_s=1e9) for each in "ab")
    with emulated(Cluster(hosts=hosts)) as bed:
        own = seen(tmp_path, "at_hosts", 2, prefix=lambda index, argv: bed.command(hosts[index].name, argv))
    for index, (before, after) in enumerate(own):
        assert before[:4] == [index, 2, 3.0, [0.0, 1.0]]
        assert after[:4] == [1 - index, 2, 3.0, [0.0, 1.0]]
        assert len(set(before[4])) == 2


@pytest.mark.parametrize("alone", [True, False])
def test_a_group_of_one(alone, tmp_path):
    """Broken: the last survivor cannot train on, or nobody can join it."""
    own = seen(tmp_path, "without_an_order", 1 if alone else 2)
    assert own[0][0][1:] == ([1, 1.0] if alone else [2, 3.0])
