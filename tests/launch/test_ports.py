"""HOCKET_PORTS: everything of a job that listens does so within the range, or says that none is free."""

import json
import socket

import pytest

from hocket.errors import RendezvousError, UsageError
from hocket.job.store.server import Server
from hocket.settings import Settings
from tests.launch.processes import finish, start, write
from tests.support import warm

SECRET = b"0123456789abcdef"
LISTENS = """
import os, re, sys
from pathlib import Path

def listening():
    # Ports at which this process listens.
    own = set()
    for each in os.listdir("/proc/self/fd"):
        try:
            own |= set(re.findall(r"socket:\\[(\\d+)\\]", os.readlink(f"/proc/self/fd/{each}")))
        except FileNotFoundError:
            pass
    rows = [row.split() for name in ("tcp", "tcp6") for row in Path(f"/proc/self/net/{name}").read_text().splitlines()[1:]]
    return [int(row[1].rpartition(":")[2], 16) for row in rows if row[3] == "0A" and row[9] in own]
"""
TRAIN = (
    LISTENS
    + """
import json, torch
import hocket.torch as hk
model = torch.nn.Linear(4, 1)
model, optimizer = hk.distribute(model, torch.optim.SGD(model.parameters(), lr=0.1))
group = hk.reconfigurable_group()
model(torch.ones(1, 4)).sum().backward()
optimizer.step()
store = [int(os.environ[name].rpartition(":")[2]) for name in ("HOCKET_STORE", "HOCKET_COORDINATOR") if os.environ.get(name)]
Path(sys.argv[1], f"{hk.rank(model)}.json").write_text(json.dumps([listening(), store]))
"""
)


@pytest.fixture
def ports(worker_id):
    """A range that the kernel gives to nobody by itself; each of pytest's workers has its own."""
    worker = int(worker_id.removeprefix("gw") or 0) if worker_id != "master" else 0
    return 21_000 + 100 * worker, 21_019 + 100 * worker


@pytest.mark.parametrize("elastic", [False, True], ids=["plain", "elastic"])
def test_a_job_listens_within_the_range(elastic, ports, tmp_path):
    """A firewall that lets the range through would still cut the job off."""
    options = ["--elastic", "2:2"] if elastic else []
    script = write(tmp_path, TRAIN)
    code, _, said = finish(
        start(
            warm.hocket("run", "-n", "2", *options, script, str(tmp_path)),
            HOCKET_PORTS="{}-{}".format(*ports),
        )
    )
    assert code == 0, said
    for rank in range(2):
        listens, stores = json.loads((tmp_path / f"{rank}.json").read_text())
        assert len(listens) >= 2, listens  # the wire, and the group's store
        assert len(stores) == 1 + elastic
        for port in (*listens, *stores):
            assert ports[0] <= port <= ports[1]


def test_too_few_ports_are_named(ports, tmp_path):
    """A rank that finds no port would wait for others that cannot reach it."""
    script = write(tmp_path, TRAIN)
    code, _, said = finish(
        start(warm.hocket("run", "-n", "2", script, str(tmp_path)), HOCKET_PORTS=f"{ports[0]}-{ports[0] + 1}")
    )
    assert code != 0
    assert f"at any of the ports {ports[0]} to {ports[0] + 1} (HOCKET_PORTS)" in said


def test_a_store_takes_the_first_free_port(ports):
    """Two jobs of one host with the same range would collide."""
    with Server(["127.0.0.1"], 0, SECRET, ports=ports) as first:
        with Server(["127.0.0.1"], 0, SECRET, ports=ports) as second:
            assert ports[0] <= first.port < second.port <= ports[1]
        taken = (first.port, first.port)
        with pytest.raises(RendezvousError, match=f"{first.port}"):
            Server(["127.0.0.1"], 0, SECRET, ports=taken)
    with (
        socket.create_server(("127.0.0.1", ports[0])),
        Server(["127.0.0.1"], 0, SECRET, ports=ports) as third,
    ):
        assert third.port > ports[0]


@pytest.mark.parametrize("text", ["5", "9-1", "0-10", "a-b", "1-70000", "1-2-3", "-5", "20000:20010"])
def test_a_range_that_is_none_is_refused(text):
    """The job would listen anywhere, and nobody would know why it is not reached."""
    with pytest.raises(UsageError, match="two ports from 1 to 65535, FIRST-LAST"):
        Settings.from_environment({"HOCKET_PORTS": text})
