"""One script, unchanged, under each launcher: the same parameters everywhere, and a killed rank named.

Ray's actors are no processes that a script begins: `tests/ray` compares what they train with `hocket run`.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from tests.launch.cluster import Cluster, nodes, of_kind, pods_of  # noqa: E402  # needs torch
from tests.launch.processes import clean_environment  # noqa: E402
from tests.launch.test_kubernetes import JOB, NODES  # noqa: E402
from tests.support import warm  # noqa: E402
from tests.support.slurm import Slurm, missing  # noqa: E402

pytestmark = pytest.mark.hosts

WORLD = len(NODES)
STEPS = 6
KILLED, KILLED_IN, NEVER = 1, 3, -1
PATIENCE_S = 120
SECRET = "5e" * 32

SCRIPT = f"""
import os, pathlib, signal, sys, torch, hocket.torch as hk
folder, killed_in = pathlib.Path(sys.argv[1]), int(sys.argv[2])
torch.set_num_threads(1)
torch.manual_seed(0)
plain = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.Tanh(), torch.nn.Linear(32, 4)).double()
model, optimizer = hk.distribute(plain, torch.optim.AdamW(plain.parameters(), lr=0.01))
rank = hk.rank(model)
for step in range({STEPS}):
    if (rank, step) == ({KILLED}, killed_in):
        os.kill(os.getpid(), signal.SIGKILL)
    batch = torch.randn(4, 8, generator=torch.Generator().manual_seed(100 * rank + step)).double()
    optimizer.zero_grad()
    model(batch).square().mean().backward()
    optimizer.step()
torch.save([each.detach() for each in plain.parameters()], folder / f"{{rank}}.pt")
"""

Start = Callable[[Sequence[str]], str]
"""Starts the script with these arguments, on all ranks; returns what the launcher and the ranks have said."""


def said(argv: Sequence[str], folder: Path, environment: Mapping[str, str] | None = None) -> str:
    given = clean_environment(
        TMPDIR=str(folder), OMP_NUM_THREADS="1", PYTHONPATH=os.pathsep.join(sys.path), **(environment or {})
    )
    with subprocess.Popen(
        argv,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=given,
        cwd=folder,
        start_new_session=True,
    ) as process:
        try:
            return process.communicate(timeout=PATIENCE_S)[0]
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


@contextmanager
def hocket_run(script: Path) -> Iterator[Start]:
    yield lambda words: said(warm.hocket("run", "-n", str(WORLD), str(script), *words), script.parent)


@contextmanager
def torchrun(script: Path) -> Iterator[Start]:
    options = (f"--nproc-per-node={WORLD}", "--standalone")
    yield lambda words: said(warm.torchrun(options, script, *words), script.parent)


@contextmanager
def mpirun(script: Path) -> Iterator[Start]:
    program = shutil.which("mpirun", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if program is None:
        pytest.skip("no mpirun here")
    start = [program, "-n", str(WORLD), "--allow-run-as-root", "--oversubscribe"]
    yield lambda words: said([*start, *warm.command(script, *words)], script.parent)


@contextmanager
def srun(script: Path) -> Iterator[Start]:
    if (absent := missing()) is not None:
        pytest.skip(absent)
    # Names of SLURM's nodes are names of hosts.
    slurm = Slurm(script.parent / "slurm", (socket.gethostname(),))
    try:
        start = ["srun", "-N1", f"-n{WORLD}", "--overcommit"]
        yield lambda words: said(
            [*start, *warm.command(script, *words)],
            script.parent,
            {**slurm.environment, "HOCKET_SECRET": SECRET},
        )
    finally:
        slurm.close()


@contextmanager
def over_ssh(script: Path) -> Iterator[Start]:
    """Two hosts, which are one ssh server of the test's own, for whom root's home is elsewhere."""
    path = f"{os.environ['PATH']}:/usr/sbin"
    programs = ("dropbear", "dropbearkey", "ssh", "ssh-keygen", "unshare")
    if absent := [each for each in programs if shutil.which(each, path=path) is None]:
        pytest.skip(f"no {', '.join(absent)} here: the packages dropbear-bin and openssh-client")
    folder = script.parent
    keys = folder / "home" / ".ssh"
    keys.mkdir(parents=True, mode=0o700)
    for command in (
        ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / "key")],
        ["dropbearkey", "-t", "ed25519", "-f", str(folder / "host_key")],
    ):
        subprocess.run(command, check=True, capture_output=True)
    shutil.copy(folder / "key.pub", keys / "authorized_keys")
    users = folder / "passwd"
    users.write_text(f"root:x:0:0::{keys.parent}:/bin/sh\n")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    config = folder / "ssh_config"
    config.write_text(
        f"Host a b\n HostName 127.0.0.1\n Port {port}\n User root\n IdentityFile {folder}/key\n"
        f" StrictHostKeyChecking accept-new\n UserKnownHostsFile {folder}/known\n LogLevel ERROR\n"
    )
    serve = ["dropbear", "-F", "-E", "-m", "-s", "-r", str(folder / "host_key"), "-p", f"127.0.0.1:{port}"]
    sees = 'mount --bind "$0" /etc/passwd && exec "$@"'
    with (folder / "ssh.log").open("wb") as log:
        server = subprocess.Popen(
            ["unshare", "--mount", "sh", "-c", sees, str(users), *serve],
            env={**os.environ, "PATH": path},
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        deadline_s = time.monotonic() + PATIENCE_S
        while b"background" not in (folder / "ssh.log").read_bytes():
            if server.poll() is not None:
                pytest.skip(f"no ssh server here: {(folder / 'ssh.log').read_text()}")
            assert time.monotonic() < deadline_s
            time.sleep(0.05)
        options = ("--hosts", "a:2,b:2", "--ssh", f"ssh -F {config}")
        yield lambda words: said(warm.hocket("run", *options, str(script), *words), folder)
    finally:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()


@contextmanager
def pods(script: Path) -> Iterator[Start]:
    """Pods of an Indexed Job of Kubernetes, each on a host of the testbed."""
    (job,) = of_kind(JOB, "Job")
    with nodes(NODES) as bed:

        def start(words: Sequence[str]) -> str:
            cluster = Cluster(bed, JOB, pods_of(job, NODES), script.parent)
            ranks = [cluster.start(pod, script, *words) for pod in cluster.pods]
            try:
                for each in ranks:
                    each.wait(PATIENCE_S)
            finally:
                for each in ranks:
                    if each.poll() is None:
                        os.killpg(each.pid, signal.SIGKILL)
                        each.wait()
            return cluster.log()

        yield start


LAUNCHERS = (hocket_run, torchrun, mpirun, srun, over_ssh, pods)


@pytest.fixture(scope="module")
def expected() -> list[torch.Tensor]:
    """Parameters that one process makes of the batches of all ranks, without Hocket."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.Tanh(), torch.nn.Linear(32, 4)).double()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    for step in range(STEPS):
        optimizer.zero_grad()
        for rank in range(WORLD):
            batch = torch.randn(4, 8, generator=torch.Generator().manual_seed(100 * rank + step)).double()
            (model(batch).square().mean() / WORLD).backward()
        optimizer.step()
    return [each.detach() for each in model.parameters()]


@pytest.mark.parametrize("launcher", LAUNCHERS, ids=lambda each: each.__name__)
def test_one_script_under_each_launcher(
    launcher: Callable[[Path], AbstractContextManager[Start]], expected: list[torch.Tensor], tmp_path: Path
) -> None:
    """Broken: a script that trains here would train other models there, or a killed rank would be nobody's."""
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    with launcher(script) as start:
        told = start([str(tmp_path), str(NEVER)])
        found = {each.name: torch.load(each) for each in tmp_path.glob("*.pt")}
        assert sorted(found) == [f"{rank}.pt" for rank in range(WORLD)], told
        for own in found.values():
            assert all(map(torch.equal, own, found["0.pt"]))
            torch.testing.assert_close(own, expected, rtol=1e-9, atol=1e-9)
        assert not re.search(rf"rank {KILLED}\b", told), told
        told = start([str(tmp_path), str(KILLED_IN)])
        assert re.search(rf"rank {KILLED}\b", told), told
