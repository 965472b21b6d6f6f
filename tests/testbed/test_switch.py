"""The emulated cluster with latency, jitter and loss: what programs on its hosts meet is what the file says."""

import json
import math
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from hocket.artefacts import files
from hocket.artefacts.cluster import Cluster, Host, Rack
from hocket.errors import ArtefactError, TestbedError
from hocket.tools.testbed import Testbed, switch_program
from tests.testbed.streams import RECEIVE, SEND, assert_rates

pytestmark = pytest.mark.timing

TIMEOUT_S = 30
GIGABIT = 1e9

# Datagrams carry the sender's clock, which all namespaces of a machine share. Those before the first answer, which may be lost
# or wait for ARP, do not count.
LISTEN = """
import json, socket, sys, time
here = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
here.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
here.bind(("", 7000))
here.settimeout(5.0)
print("listening", flush=True)
came = []
try:
    while True:
        data, sender = here.recvfrom(2048)
        now = time.monotonic()
        if data == b"hello":
            here.sendto(b"hello", sender)
            continue
        here.settimeout(1.0)
        number, sent, end = data.split(b" ")[:3]
        came.append((int(number), now - float(sent)))
        if int(end):
            break
except TimeoutError:
    pass
print(json.dumps(came))
"""
TELL = """
import socket, sys, time
there = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
count, gap_s = int(sys.argv[2]), float(sys.argv[3])
there.connect((sys.argv[1], 7000))
there.settimeout(0.1)
for _ in range(100):
    there.send(b"hello")
    try:
        there.recv(100)
        break
    except TimeoutError:
        pass
for number in range(count):
    there.send(b"%d %.9f %d " % (number, time.monotonic(), number == count - 1))
    time.sleep(gap_s)
"""


def pair(rate=GIGABIT, **host):
    hosts = (Host(name="a", bandwidth_bit_per_s=rate, **host), Host(name="b", bandwidth_bit_per_s=rate))
    return Cluster(hosts=hosts, seed=5)


@pytest.fixture(scope="module", autouse=True)
def _allowed():
    try:
        with Testbed(pair(latency_s=1e-3)):
            pass
    except TestbedError as error:
        if error.lacks is None:
            raise
        pytest.skip(f"no namespaces or TAP devices here: {error}")


def exchange(bed, source, target, listen, tell, *arguments):
    listener = bed.popen(target, [sys.executable, "-c", listen], stdout=subprocess.PIPE, text=True)
    assert listener.stdout.readline() == "listening\n"
    bed.popen(source, [sys.executable, "-c", tell, bed.address(target), *arguments])
    return json.loads(listener.communicate(timeout=TIMEOUT_S)[0])


def one_way(bed, source, target, count=200, gap_s=0.002):
    """(number, seconds) of each datagram that came."""
    return exchange(bed, source, target, LISTEN, TELL, str(count), str(gap_s))


def test_each_direction_has_its_own_latency():
    """Orders would be judged on another network than the one in the file: asymmetric ones as their mean."""
    racks = (Rack(name="x", uplink_latency_s=(8e-3, 2e-3)), Rack(name="y"))
    hosts = tuple(
        Host(name=name, rack=rack, bandwidth_bit_per_s=GIGABIT)
        for name, rack in (("a", "x"), ("b", "y"), ("c", "x"))
    )
    with Testbed(Cluster(hosts=hosts, racks=racks)) as bed:
        there = sorted(each for _, each in one_way(bed, "a", "b"))
        back = sorted(each for _, each in one_way(bed, "b", "a"))
        near = sorted(each for _, each in one_way(bed, "a", "c"))
    assert there[0] >= 8e-3
    assert 2e-3 <= back[0] < there[0]
    assert near[0] < back[0]


def test_a_matrix_is_emulated_as_it_is():
    """A measured cluster could not be emulated."""
    rows = ((0.0, 3e-3), (9e-3, 0.0))
    cluster = Cluster(hosts=pair().hosts, latency_s=rows)
    with Testbed(cluster) as bed:
        there = min(each for _, each in one_way(bed, "a", "b"))
        back = min(each for _, each in one_way(bed, "b", "a"))
    assert 3e-3 <= there < 9e-3 <= back


def test_jitter_delays_and_keeps_the_order_unless_asked_otherwise():
    """Programs would see reordering that no single path shows, or none where it was asked for."""
    for reorder in (None, True):
        cluster = Cluster(hosts=pair(jitter_s=(5e-3, 0)).hosts, reorder=reorder)
        with Testbed(cluster) as bed:
            came = one_way(bed, "a", "b", count=500)
        numbers = [number for number, _ in came]
        assert (numbers != sorted(numbers)) == bool(reorder)
        times_s = sorted(each for _, each in came)
        assert times_s[int(len(times_s) * 0.9)] - times_s[0] > 3e-3, "there is no jitter"


def test_loss_is_the_share_that_was_asked_for():
    """A loss of 5 % would be another one."""
    with Testbed(pair(loss=(0.05, 0))) as bed:
        came = one_way(bed, "a", "b", count=5000, gap_s=0.0001)
        carried = bed.carried()
    missing = 5000 - len({number for number, _ in came})
    assert abs(missing - 250) < 6 * math.sqrt(5000 * 0.05 * 0.95)
    # Others than ours, such as those of ARP, can be lost, too.
    assert missing <= carried.lost <= missing + 10


def test_links_and_trunks_keep_their_rates():
    """A slow trunk would be as fast as the hosts' own links, or a link slower than it should."""
    racks = (Rack(name="x", uplink_bit_per_s=50e6, uplink_latency_s=1e-3), Rack(name="y"))
    hosts = tuple(
        Host(name=name, rack=rack, bandwidth_bit_per_s=400e6)
        for name, rack in (("a", "x"), ("b", "y"), ("c", "x"))
    )
    with Testbed(Cluster(hosts=hosts, racks=racks)) as bed:
        before = bed.trunk_bytes()
        across, payload_bytes = exchange(bed, "a", "b", RECEIVE, SEND)
        after = bed.trunk_bytes()
        within, _ = exchange(bed, "a", "c", RECEIVE, SEND)
    assert_rates(across, within, trunk_bit_per_s=50e6, link_bit_per_s=400e6)
    crossed = after["x"][0] - before["x"][0]
    assert payload_bytes < crossed < 1.2 * payload_bytes
    assert crossed == after["y"][1] - before["y"][1]


def devices():
    return set(Path("/sys/class/net").iterdir())


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_nothing_is_left_when_the_owner_is_killed(number, started):
    """Switches, devices and namespaces would pile up on the user's machine."""
    before = devices()
    script = (
        "import sys\n"
        "from hocket.artefacts.cluster import Cluster, Host\n"
        "from hocket.tools.testbed import Testbed\n"
        "hosts = tuple(Host(name=name, bandwidth_bit_per_s=1e9, latency_s=1e-3) for name in 'ab')\n"
        "with Testbed(Cluster(hosts=hosts)) as bed:\n"
        "    print(bed.command('a')[2], bed.carried().delivered, flush=True)\n"
        "    sys.stdin.read()\n"
    )
    owner = subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with owner:
        holder = owner.stdout.readline().split()[0]
        ours = started("hocket-switch")
        assert ours
        owner.send_signal(number)
    deadline_s = time.monotonic() + TIMEOUT_S
    while Path(f"/proc/{holder}").exists() or any(Path(f"/proc/{each}").exists() for each in ours):
        assert time.monotonic() < deadline_s, "the switch or a namespace outlived its owner"
        time.sleep(0.05)
    assert devices() == before


def test_a_dead_switch_is_reported():
    """A run over a network that was gone for half of it would count as a result."""
    with pytest.raises(TestbedError, match="switch ended"), Testbed(pair(latency_s=1e-3)) as bed:
        os.kill(bed._switch._process.pid, signal.SIGKILL)
        bed._switch._process.wait(TIMEOUT_S)


@pytest.mark.parametrize(
    ("spoilt", "said"),
    [
        (pair(latency_s=-1e-3), "`latency_s` of host a is -0.001"),
        (pair(latency_s=math.nan), "`latency_s` of host a is nan"),
        (pair(latency_s=(0.0, 5000.0)), "seconds from 0 to 3600"),
        (pair(loss=1.5), "a share from 0 to 1"),
        (pair(jitter_s=(-1, 0)), "`jitter_s` of host a"),
        (Cluster(hosts=pair().hosts, racks=(Rack(name="r", uplink_loss=2.0),)), "`uplink_loss` of rack r"),
        (Cluster(hosts=pair().hosts, latency_s=((0.0, 1e-3),)), "not 2 rows of 2"),
        (
            Cluster(hosts=pair(latency_s=1e-3).hosts, latency_s=((0.0, 1e-3), (1e-3, 0.0))),
            "remove one of the two",
        ),
        (Cluster(hosts=pair().hosts, latency_s=((0.0, math.inf), (0.0, 0.0))), "from a to b is inf"),
    ],
)
def test_nonsense_is_refused_before_anything_is_made(spoilt, said):
    """A slip of the keyboard would be emulated."""
    with pytest.raises(ArtefactError, match=said):
        Testbed(spoilt)


def test_a_file_may_give_one_number_or_two(tmp_path):
    """What the documentation shows could not be read, or would change when it is written."""
    path = tmp_path / "cluster.toml"
    path.write_text(
        '[[hosts]]\nname = "a"\nbandwidth_bit_per_s = 1e9\nlatency_s = [1e-3, 5e-3]\nloss = 0.01\n'
        '[[racks]]\nname = "rack0"\nuplink_jitter_s = 1e-4\n'
    )
    cluster = files.read(path, Cluster)
    assert cluster.hosts[0].latency_s == (1e-3, 5e-3)
    assert cluster.racks[0].uplink_jitter_s == 1e-4
    files.write(path, cluster)
    assert files.read(path, Cluster) == cluster


def test_a_missing_program_is_reported(monkeypatch, tmp_path):
    """A user without the switch's program would see a traceback, or not learn how to get it."""
    monkeypatch.setattr(switch_program, "PROGRAM", tmp_path / "hocket-switch")
    with (
        pytest.raises(
            TestbedError, match=r"hocket-switch, which is not installed\nhint: .*`make switch`"
        ) as missing,
        Testbed(pair(latency_s=1e-3)),
    ):
        pass
    assert missing.value.lacks is None


def handed(text, *descriptors):
    """What the program says where these are handed over with a description."""
    ours, its = socket.socketpair()
    with ours, its, tempfile.TemporaryFile() as file:
        file.write(text)
        file.flush()
        socket.send_fds(ours, [b"."], [file.fileno(), *descriptors])
        ran = subprocess.run(
            [switch_program.find()], stdin=its, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )
    return ran.returncode, ran.stdout, ran.stderr


def test_wrong_orders_are_refused():
    """Nonsense in place of devices, control pipe or network would be carried on with, or wait for ever."""
    control, writing = os.pipe()
    os.close(writing)
    with tempfile.TemporaryFile() as plain, os.fdopen(control):
        no_tap = plain.fileno()
        assert handed(b"", control) == (0, "ready\n", "")
        code, _, message = handed(b"link unlimited\nway 0 0 0 0\n", control, no_tap)
        assert code == 1
        assert message.startswith("epoll: ")
        for text, said in (
            (b"", "0 ways between 1 ports"),
            (b"link fast", "line 1 of the switch's description, `link fast`"),
        ):
            code, out, message = handed(text, control, no_tap)
            assert (code, out) == (1, "")
            assert said in message
    assert "hands over no description and control pipe" in handed(b"")[2]
    ran = subprocess.run(
        [switch_program.find()],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert ran.returncode == 1
    assert "no Unix socket" in ran.stderr
