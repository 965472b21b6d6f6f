"""Hosts files as other launchers write them, and names that only ssh knows."""

import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hocket.errors import UsageError
from hocket.job.store import address
from hocket.start import hosts, remote
from hocket.tools.ordering.handover import FORMATS
from hocket.tools.ordering.handover.layout import Layout


def read(text, tmp_path):
    path = tmp_path / "hosts"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return [(host.name, host.slots) for host in hosts.read(path)]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("node1:4\nnode2:2\n", [("node1", 4), ("node2", 2)]),
        ("node1\nnode2:2", [("node1", 1), ("node2", 2)]),
        ("10.0.0.7:8", [("10.0.0.7", 8)]),
        (
            "[fe80::1%eth0]:4\n[2001:db8::2]\nfe80::3",
            [("fe80::1%eth0", 4), ("2001:db8::2", 1), ("fe80::3", 1)],
        ),
        ("me@[::1]:2 # here", [("me@::1", 2)]),
        ("a slots=8 max_slots=8\nb max-slots=4 slots=2", [("a", 8), ("b", 2)]),
        ("a slots = 8\nb\tslots =2", [("a", 8), ("b", 2)]),
        ("a cpu=4\nb count=2\nc Slots=3", [("a", 4), ("b", 2), ("c", 3)]),
        ("a user=bob slots=2\nb username=eve", [("bob@a", 2), ("eve@b", 1)]),
        ("a\nb\na\nb\na\n", [("a", 3), ("b", 2)]),
        (b"\xef\xbb\xbfnode1 slots=2\r\nnode2\r\n", [("node1", 2), ("node2", 1)]),
        ("# all\r\n\r\n  a:2  # fast\r\n", [("a", 2)]),
    ],
)
def test_other_launchers_files_are_read(text, found, tmp_path):
    """`node1:4` was the name of a host, with one slot: a job of a quarter of its ranks that ssh then did not reach."""
    assert read(text, tmp_path) == found


@pytest.mark.parametrize(
    ("listed", "found"),
    [
        ("a:2,b:2", [("a", 2), ("b", 2)]),
        ("a,b", [("a", 1), ("b", 1)]),
        ("me@a:3,[fe80::1]:2", [("me@a", 3), ("fe80::1", 2)]),
        ("node7:8", [("node7", 8)]),
    ],
)
def test_hosts_need_no_file(listed, found):
    """`mpirun -H` and `horovodrun -H` take them so; a user would have to write a file for two names."""
    assert [(host.name, host.slots) for host in hosts.read(Path(listed))] == found


def test_a_file_is_read_whatever_its_name(tmp_path, monkeypatch):
    """Its name would be taken for a host's."""
    monkeypatch.chdir(tmp_path)
    Path("a:2").write_text("node1 slots=4")
    assert [(host.name, host.slots) for host in hosts.read(Path("a:2"))] == [("node1", 4)]


@pytest.mark.parametrize(
    ("listed", "said"),
    [
        ("node1", "cannot be read: No such file .*\nhint: hosts without a file are HOST:N,HOST:N"),
        ("lists/a:2,b", "cannot be read"),
        ("a:2,b:0", "host 2: 'b:0' is not of the form"),
        ("a:2,a:2", "host 2: `a` is there twice"),
    ],
)
def test_hosts_without_a_file_that_are_wrong_are_named(listed, said):
    """Ranks would start on other hosts than the user named."""
    with pytest.raises(UsageError, match=said):
        hosts.read(Path(listed))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a:4 slots=2", "line 1: 'a:4 slots=2' is not of the form"),
        ("a:0", "line 1"),
        ("a:b", "line 1"),
        ("a:4:5", "line 1"),
        ("[a]:4", "line 1"),
        ("[fe80::1:4", "line 1"),
        ("a slots", "line 1"),
        ("a slots=-1", "line 1"),
        ("a slots=2 slots=3", "line 1"),
        ("a slots=2 max_slots=1", "a has 2 slots, and at most 1"),
        ("a\na:2", "line 2: `a` is there twice, and not with a line for each slot"),
        ("a:2\na:2", "line 2: `a` is there twice"),
        ("a port=22", r"`port` of a is nothing that Hocket decides by\nhint: leave it out"),
        ("a ifname=ib0", "`ifname` of a is nothing"),
        ("a user=;reboot", "line 1"),
        ("-oProxyCommand=x:4", "line 1"),
        ("x" * 400, "line 1"),
        (b"a\x00b", "line 1"),
        ("a\n".encode("utf-16"), "cannot be read: it is not text"),
        (b"\xff\xfe\xfd", "cannot be read: it is not text"),
    ],
)
def test_what_is_no_host_is_refused(text, said, tmp_path):
    """Ranks would start elsewhere, in another number, or under another user than the file says."""
    with pytest.raises(UsageError, match=said):
        read(text, tmp_path)


@given(st.text("ab:[]=@#0 14.-sltomax_\r\n\ufeff", max_size=40))
def test_no_hosts_file_crashes(text):
    """A typing error would end in a traceback, or in an option of ssh."""
    try:
        found = hosts.parse(text)
    except UsageError as error:
        assert str(error).startswith("hosts")  # noqa: PT017
        return
    assert all(host.name and not host.name.startswith("-") and host.slots > 0 for host in found)


names = st.from_regex(r"[a-z][a-z0-9-]{0,8}(\.[a-z]{1,4})?", fullmatch=True)
machines = names | st.sampled_from(["10.0.0.7", "fe80::1%eth0", "2001:db8::7"])


@given(st.dictionaries(machines, st.integers(1, 64), min_size=1, max_size=6))
def test_files_for_other_launchers_are_read_as_they_are_written(slots):
    """An order that `hocket order` writes for MPICH or Open MPI could not be given to `hocket run`."""
    layout = Layout(tuple(slots.items()))
    for form in ("hosts", "mpich", "openmpi-hostfile"):
        assert [(host.name, host.slots) for host in hosts.parse(FORMATS[form](layout))] == [*slots.items()]


@pytest.fixture
def ssh(tmp_path):
    """The command, with a configuration of its own."""
    if shutil.which("ssh") is None:
        pytest.skip("no ssh here")
    config = tmp_path / "config"
    config.write_text("Host gpu1\n  HostName 192.0.2.7\n  User bob\nHost me\n  HostName 127.0.0.1\n")
    return f"ssh -F {config}"


def test_names_that_only_ssh_knows(ssh, monkeypatch):
    """Hosts of ~/.ssh/config could not be used without --store, since the resolver does not know them."""
    asked = []

    def towards(host):
        asked.append(host)
        return {"192.0.2.7": "10.1.1.1", "127.0.0.1": "127.0.0.1", "six": "fd00::1"}.get(host)

    monkeypatch.setattr(address, "towards", towards)
    assert remote.store_for(["gpu1"], None, ssh) == "10.1.1.1:0"
    assert remote.store_for(["eve@gpu1"], None, ssh) == "10.1.1.1:0"
    assert asked == ["192.0.2.7", "192.0.2.7"]
    assert remote.store_for(["me", "gpu1"], None, ssh) == "10.1.1.1:0", "the others do not reach a loopback"
    assert remote.store_for(["me"], None, ssh) == "127.0.0.1:0"
    both = remote.store_for(["six", "gpu1", "me"], None, ssh)
    assert both == "[fd00::1,10.1.1.1]:0", "hosts of one family do not reach an address of the other"
    with pytest.raises(UsageError, match="that `nowhere` could reach\nhint: give it with --store"):
        remote.store_for(["nowhere"], None, ssh)


def test_other_commands_are_not_asked_as_ssh(tmp_path):
    """`--ssh 'kubectl exec'` would be called with an option that only ssh has."""
    called = tmp_path / "called"
    command = tmp_path / "reach"
    command.write_text(f"#!/bin/sh\ntouch {called}\n")
    command.chmod(0o755)
    assert remote.machine_of("me@node1", str(command)) == "node1"
    assert not called.exists()
    assert remote.machine_of("node1", "") == "node1"
