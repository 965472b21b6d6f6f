"""A rank of another job at the door of ours, in real processes: a port that is used again, or a stale list of hosts."""

import subprocess
import sys
import threading
import uuid
from pathlib import Path

import pytest

RANK = Path(__file__).with_name("rank_process.py")
TIMEOUT_S = 60.0
HOSTS = ["a", "b"]


@pytest.fixture
def start():
    """Starts rank `rank` of a job and gives the process and its address; none is left."""
    made = []

    def start(rank, job, secret, steps):
        argv = [sys.executable, str(RANK), str(rank), job, secret, ",".join(HOSTS), str(steps)]
        pipe = subprocess.PIPE
        process = subprocess.Popen(argv, stdin=pipe, stdout=pipe, stderr=pipe, text=True)
        made.append(process)
        return process, process.stdout.readline().strip()

    yield start
    for process in made:
        process.kill()
        process.communicate()


def tell(process, addresses):
    process.stdin.write(" ".join(addresses) + "\n")
    process.stdin.flush()


@pytest.mark.parametrize("when", ["while ours waits for its own", "while ours trains"])
def test_a_second_job_is_refused_and_ours_goes_on(start, when):
    """Two jobs would exchange gradients, or the second would take the place of a rank of the first."""
    ours, theirs = uuid.uuid4().hex, uuid.uuid4().hex
    (zero, zero_at), (one, one_at) = (start(rank, ours, "our secret", 300) for rank in (0, 1))
    # Same ranks, same hosts, another job: its rank 1 is sent to our rank 0.
    stray, stray_at = start(1, theirs, "their secret", 1)
    if when == "while ours trains":
        for process in (zero, one):
            tell(process, [zero_at, one_at])
        assert any(line == "step 5\n" for line in zero.stdout)
    else:
        tell(zero, [zero_at, one_at])
    tell(stray, [zero_at, stray_at])
    _, err = stray.communicate(timeout=TIMEOUT_S)
    assert stray.returncode == 1
    assert "RendezvousError: rank 1: not connected" in err, err
    assert f"rank 0 on a ({zero_at}): " in err, err
    assert "secret" in err, err
    if when != "while ours trains":
        tell(one, [zero_at, one_at])
    said = [None, None]

    def listen(rank, process):
        said[rank] = process.communicate(timeout=TIMEOUT_S)

    listeners = [threading.Thread(target=listen, args=each) for each in enumerate((zero, one))]
    for listener in listeners:
        listener.start()
    for listener in listeners:
        listener.join(TIMEOUT_S)
    assert all(out.endswith("done\n") for out, _ in said), said
    assert "rank 0 turned away a connection from 127.0.0.1" in said[0][1]
