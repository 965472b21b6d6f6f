"""The emulated cluster with real namespaces and real sockets; what it leaves behind is nothing."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hocket.artefacts.cluster import Cluster, Host, Rack
from hocket.errors import TestbedError, UsageError
from hocket.tools.testbed import Testbed, example_cluster
from tests.testbed.streams import RECEIVE, SEND, assert_rates

pytestmark = pytest.mark.timing

TIMEOUT_S = 20
HOCKET = str(Path(sys.executable).with_name("hocket"))


def small(trunk_bit_per_s=50e6):
    hosts = [
        Host(name=name, rack=rack, bandwidth_bit_per_s=400e6)
        for name, rack in (("a", "x"), ("b", "y"), ("c", "x"))
    ]
    racks = (
        Rack(name="x", uplink_bit_per_s=trunk_bit_per_s),
        Rack(name="y", uplink_bit_per_s=trunk_bit_per_s),
    )
    return Cluster(hosts=tuple(hosts), racks=racks)


@pytest.fixture(scope="module", autouse=True)
def _allowed():
    try:
        with Testbed(small()):
            pass
    except TestbedError as error:
        pytest.skip(f"no namespaces here: {error}")


@pytest.fixture
def holders(started):
    """Counts those of this test: a user's, or another run's, come and go meanwhile."""
    return lambda: len(started("sleep infinity"))


def stream(bed, source, target):
    """Bit/s and bytes of the payload."""
    receiver = bed.popen(target, [sys.executable, "-c", RECEIVE], stdout=subprocess.PIPE, text=True)
    assert receiver.stdout.readline() == "listening\n"
    bed.popen(source, [sys.executable, "-c", SEND, bed.address(target)])
    return json.loads(receiver.communicate(timeout=TIMEOUT_S)[0])


def test_links_have_their_rates_and_the_trunk_counts():
    """A comparison on the testbed would be of another network than the one that was asked for."""
    with Testbed(small()) as bed:
        before = bed.trunk_bytes()
        across, payload_bytes = stream(bed, "a", "b")
        after = bed.trunk_bytes()
        within, _ = stream(bed, "a", "c")
        crossed = after["x"][0] - before["x"][0]
        bed.set_trunk("x", 10e6)
        narrowed, _ = stream(bed, "a", "b")
        with pytest.raises(UsageError, match="the trunk of `z` cannot be changed"):
            bed.set_trunk("z", 10e6)
    assert_rates(across, within, trunk_bit_per_s=50e6, link_bit_per_s=400e6)
    assert 5e6 < narrowed < 1.02 * 10e6
    # Payload, headers, and little else.
    assert payload_bytes < crossed < 1.2 * payload_bytes
    assert abs(crossed - (after["y"][1] - before["y"][1])) < 0.2 * crossed


def test_cables_are_cut_and_mended():
    """What is shown of jobs whose hosts are lost would be shown of jobs that lost nothing."""

    listen = "import socket, time; s = socket.create_server(('', 5555)); print('ready', flush=True); time.sleep(1000)"
    call = "import socket, sys; socket.create_connection((sys.argv[1], 5555), 1)"

    def reaches(source, target):
        argv = bed.command(source, [sys.executable, "-c", call, bed.address(target)])
        return subprocess.run(argv, check=False, stderr=subprocess.DEVNULL, timeout=TIMEOUT_S).returncode == 0

    with Testbed(small()) as bed:
        for host in "bc":
            with bed.popen(
                host, [sys.executable, "-c", listen], stdout=subprocess.PIPE, text=True
            ).stdout as said:
                assert said.readline() == "ready\n"
        assert [reaches("a", "c"), reaches("a", "b")] == [True, True]
        bed.cut(hosts=["c"])
        assert [reaches("a", "c"), reaches("a", "b")] == [False, True]
        bed.mend(hosts=["c"])
        bed.cut(racks=["y"])
        assert [reaches("a", "c"), reaches("a", "b")] == [True, False]
        bed.mend(racks=["y"])
        assert reaches("a", "b")
        with pytest.raises(UsageError, match="no rack `z`"):
            bed.cut(racks=["z"])


def test_nothing_is_left_when_the_owner_is_killed(holders):
    """Namespaces and processes would pile up on the user's machine."""
    script = (
        "import subprocess, sys\n"
        "from hocket.tools.testbed import Testbed, example_cluster\n"
        "with Testbed(example_cluster('two-racks')) as bed:\n"
        "    print(bed.command('node0')[2], flush=True)\n"
        "    sys.stdin.read()\n"
    )
    owner = subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with owner:
        holder = owner.stdout.readline().strip()
        assert Path(f"/proc/{holder}").exists()
        owner.kill()
    deadline_s = time.monotonic() + TIMEOUT_S
    while Path(f"/proc/{holder}").exists() or holders():
        assert time.monotonic() < deadline_s, "the holder of a namespace outlived its owner"
        time.sleep(0.05)


def test_an_error_inside_takes_it_down(holders):
    """Ctrl-C in the middle of a run would leave a cluster behind."""
    with pytest.raises(KeyboardInterrupt), Testbed(small()) as bed:
        child = bed.popen("a", ["sleep", "1000"])
        raise KeyboardInterrupt
    assert child.poll() is not None
    assert holders() == 0


def test_unknown_hosts_and_clusters_are_named():
    """A typing mistake would end in a traceback."""
    with Testbed(small()) as bed, pytest.raises(UsageError, match="no host `z`"):
        bed.address("z")
    with pytest.raises(UsageError, match="there are two-racks"):
        example_cluster("three-racks")


def hocket(*arguments, **options):
    return subprocess.run(
        [HOCKET, "testbed", *arguments],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
        **options,
    )


def test_up_show_down(tmp_path):
    """A testbed that is kept between commands could not be found or removed."""
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    assert hocket("show", env=environment).returncode == 1
    assert hocket("up", "two-racks", env=environment).returncode == 0
    shown = json.loads(hocket("show", "--json", env=environment).stdout)
    assert [host["name"] for host in shown["hosts"]] == ["node0", "node1", "node2", "node3"]
    ping = [*shown["hosts"][0]["command"], "cat", "/proc/net/dev"]
    assert "eth0" in subprocess.run(ping, capture_output=True, text=True, check=True).stdout
    again = hocket("up", "two-racks", env=environment)
    assert again.returncode == 1
    assert "up already" in again.stderr
    assert hocket("down", env=environment).returncode == 0
    assert hocket("down", env=environment).stdout == "no testbed was up\n"


def test_run_returns_the_commands_code_and_removes_all(holders):
    """Scripts could not tell whether their program failed."""
    ran = hocket("run", "--each", "two-racks", "--", "sh", "-c", "echo at $HOCKET_HOST; exit 7")
    assert ran.returncode == 7
    assert sorted(ran.stdout.split("\n"))[1:] == [f"[node{i}] at node{i}" for i in range(4)]
    assert holders() == 0
    running = subprocess.Popen([HOCKET, "testbed", "run", "two-racks", "--", "sleep", "100"])
    time.sleep(1.5)
    running.send_signal(signal.SIGTERM)
    assert running.wait(TIMEOUT_S) == 128 + signal.SIGTERM
    assert holders() == 0
