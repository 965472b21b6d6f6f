"""What survivors themselves say where no launcher of Hocket is: the rank at fault, and its exit code, as data."""

import os
import signal
import socket
import sys

import pytest

from tests.launch.culprits import BLAMED, SCRIPT, WORLD, blamed, patience_s
from tests.launch.processes import finish, start
from tests.support import warm

pytestmark = pytest.mark.members

SETTINGS = {
    "HOCKET_START_TIMEOUT_S": "60",
    "HOCKET_HEARTBEAT_TIMEOUT_S": "2",
    "HOCKET_AUTOPILOT": "0",
    "OMP_NUM_THREADS": "1",
    "PYTHONPATH": os.pathsep.join(sys.path),
}
APART = ("forward", "caught", "os._exit(5)", "native", "early end")
JOBS = [
    *((kind, 1, "abc") for kind in APART),
    *((kind, 2, "abc") for kind in ("loop", "caught", "sys.exit(3)")),
    # It serves the store.
    *((kind, 0, "abc") for kind in ("sys.exit(3)", "SIGKILL", "loop")),
    *((kind, 1, "aaa") for kind in ("caught", "SIGKILL", "loop")),
    *((kind, 2, "aab") for kind in ("sys.exit(3)", "loop")),
]


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


@pytest.mark.parametrize(("kind", "culprit", "hosts"), JOBS)
def test_each_survivor_names_the_culprit(kind, culprit, hosts, tmp_path):
    """Each would name the neighbour that ended because of it, or that waits for it, too."""
    port = free_port()
    ranks = [
        start(
            warm.command(SCRIPT, kind, str(culprit), str(tmp_path)),
            HOCKET_RANK=str(rank),
            HOCKET_WORLD=str(WORLD),
            HOCKET_STORE=f"127.0.0.1:{port}",
            HOCKET_HOST=host,
            HOCKET_SECRET="ab" * 32,
            HOCKET_TIMEOUT_S=str(patience_s(kind)),
            **SETTINGS,
        )
        for rank, host in enumerate(hosts)
    ]
    try:
        said = {rank: finish(ranks[rank], 120) for rank in range(WORLD) if rank != culprit}
    finally:
        for each in ranks:
            if each.poll() is None:
                os.killpg(each.pid, signal.SIGKILL)
            each.communicate()
    for rank, (code, _, err) in said.items():
        assert code == 1, (rank, err)
        assert blamed(tmp_path, rank) == (culprit, *BLAMED.get(kind, ("gave_up", None))), (rank, err)
        lines = [line for line in err.splitlines() if line.strip() and not line.startswith("hint: ")]
        assert f"rank {culprit} on {hosts[culprit]}" in lines[-1], (rank, err)


@pytest.mark.parametrize("kind", ["caught", "sys.exit(3)", "loop"])
def test_survivors_under_torchrun_name_the_culprit(kind, tmp_path):
    """torchrun itself names whichever process it saw end first."""
    options = ["--standalone", f"--nproc-per-node={WORLD}", "--monitor-interval=2"]
    argv = warm.torchrun(options, SCRIPT, kind, "1", str(tmp_path))
    code, _, err = finish(start(argv, HOCKET_TIMEOUT_S=str(patience_s(kind)), **SETTINGS), 120)
    assert code != 0, err
    for rank in (0, 2):
        assert blamed(tmp_path, rank) == (1, *BLAMED.get(kind, ("gave_up", None))), err
