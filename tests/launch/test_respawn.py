"""`hocket run --elastic MIN:MAX,respawn=N`, with real jobs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.launch.processes import RUN, finish, start, write
from tests.support import warm

pytestmark = pytest.mark.members

SSH = '#!/bin/sh\nhost=$1\nshift\necho "$host" >> "{log}"\nexec env REACHED_AS="$host" sh -c "$*"\n'
SCRIPT = """
import os, signal, sys, time, torch, hocket.torch as hk
torch.set_num_threads(1)
model = torch.nn.Linear(4, 4)
model, optimizer = hk.distribute(model, torch.optim.SGD(model.parameters(), lr=0.1))
founds, alone = "RANK" in os.environ, False
for step in range(6000):
    optimizer.zero_grad()
    model(torch.ones(2, 4)).sum().backward()
    world = hk.world(model)
    if world == 2 and step == 5 and os.environ.get("HOCKET_RANK") == sys.argv[1]:
        for process in map(int, [*sys.argv[3:], os.getpid()]):
            os.kill(process or os.getppid(), getattr(signal, sys.argv[2]))
    optimizer.step()
    time.sleep(0.01)
    # The same step on all ranks.
    if world == 2 and (alone or not founds):
        break
    alone = alone or world == 1
print("trained to the end on", world, "via", os.environ.get("REACHED_AS"))
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where jobs of this test are found, and no others."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


def test_a_lost_rank_is_replaced_where_it_ran(place: Path) -> None:
    """Broken: a job on other machines would get its lost ranks back on the launcher's own, or not at all; and a reader of rank 0's
    output would see nothing more of the job."""
    log = place / "reached"
    ssh = Path(write(place, SSH.format(log=log), "ssh"))
    ssh.chmod(0o755)
    hosts = write(place, "nodeA\nnodeB\n", "hosts")
    job = start(
        warm.hocket(
            *("run", "--hosts", hosts, "--ssh", str(ssh), "--store", "127.0.0.1", "--quiet-others"),
            *("--elastic", "1:2,respawn=2", write(place, SCRIPT), "0", "SIGKILL"),
        ),
        TMPDIR=str(place),
        OMP_NUM_THREADS="1",
    )
    code, out, errors = finish(job, 90)
    assert code == 0, errors
    *founders, replacement = log.read_text().splitlines()
    assert (sorted(founders), replacement) == (["nodeA", "nodeB"], "nodeA")
    assert "rank 0 on nodeA is replaced in 1 s by rank 2: process 1 of respawn=2" in errors
    assert out.splitlines() == ["trained to the end on 2 via nodeA"]


def test_a_rank_that_nobody_can_end_is_replaced_as_well(place: Path) -> None:
    """Broken: a host that is cut off, or hangs as a whole, would keep its place until a connection of hours ends, and the launcher
    would wait for it when all others have ended."""
    job = start(
        # The rank stops what holds it, and itself.
        [*RUN, "--elastic", "1:2,respawn=1", write(place, SCRIPT), "1", "SIGSTOP", "0"],
        TMPDIR=str(place),
        OMP_NUM_THREADS="1",
        HOCKET_HEARTBEAT_TIMEOUT_S="2",
    )
    code, out, errors = finish(job, 90)
    assert code == 0, errors
    assert "rank 1 on this machine is replaced in 1 s by rank 2" in errors
    assert out.count("trained to the end on 2") == 2
