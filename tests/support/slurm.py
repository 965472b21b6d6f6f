"""A cluster of real SLURM on this machine: one controller, nodes that differ in name and port, and a munge of its own."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

PROGRAMS = ("munged", "slurmctld", "slurmd", "srun", "sbatch", "scontrol", "squeue")
NEEDED_S = 30.0
PATH = f"{os.environ['PATH']}:/usr/sbin"

CONFIGURATION = """\
ClusterName=tests
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=batch_sched_delay=1,sched_interval=2,bf_interval=2
ReturnToService=2
KillWait=5
SlurmdTimeout=5
MpiDefault=none
NodeName={names} NodeHostname={host} NodeAddr=127.0.0.1 Port=[{first_port}-{last_port}] CPUs=1
PartitionName=all Nodes=ALL Default=YES State=UP
"""


def missing() -> str | None:
    """Why there can be none here."""
    if os.getuid() != 0:
        return "only root can run SLURM's daemons"
    absent = [each for each in PROGRAMS if shutil.which(each, path=PATH) is None]
    return f"no {', '.join(absent)} here: the packages slurmctld, slurmd, munge" if absent else None


class Slurm:
    """Close it: its daemons end, with all jobs."""

    def __init__(self, folder: Path, nodes: Sequence[str]) -> None:
        """`nodes`: their names, which jobs take for names of hosts."""
        self.folder = folder
        first_port = _free_ports(len(nodes) + 1)
        host = socket.gethostname()
        for each in ("munge", "state"):
            (folder / each).mkdir(parents=True, mode=0o755)
        key = folder / "munge" / "key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o400)
        file = folder / "slurm.conf"
        file.write_text(
            CONFIGURATION.format(
                host=host,
                port=first_port,
                folder=folder,
                names=",".join(nodes),
                first_port=first_port + 1,
                last_port=first_port + len(nodes),
            )
        )
        self.environment = {"SLURM_CONF": str(file), "PATH": PATH}
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}
        places = {
            "socket": "socket",
            "key-file": "key",
            "pid-file": "pid",
            "log-file": "log",
            "seed-file": "seed",
        }
        munge = [f"--{option}={folder}/munge/{name}" for option, name in places.items()]
        self._start("munged", "munged", "--foreground", "--force", *munge)
        self._until((folder / "munge" / "socket").exists)
        self._start("slurmctld", "slurmctld", "-D", "-i")
        for node in nodes:
            self._start(node, "slurmd", "-D", "-N", node)
        self._until(lambda: self.told("sinfo", "-h", "-t", "idle", "-o", "%D").strip() == str(len(nodes)))

    def told(self, *command: str, environment: Mapping[str, str] = os.environ) -> str:
        """Output of one of SLURM's commands, in that environment; empty if it fails."""
        everything = {**environment, **self.environment}
        return subprocess.run(command, env=everything, capture_output=True, text=True, check=False).stdout

    def requeue(self, job: str) -> None:
        """End a job, and have it begin again at once; SLURM would leave two minutes for nodes to become free."""
        self.told("scontrol", "requeue", job)
        self._until(lambda: self.told("squeue", "-h", "-r", "-j", job, "-o", "%T").strip() == "PENDING")
        self.told("scontrol", "update", f"JobId={job}", "StartTime=now")

    def lose(self, node: str) -> None:
        """A node is gone, with all that ran there."""
        daemon = self._daemons.pop(node)
        daemon.kill()
        daemon.wait()
        for each in _with(f"SLURMD_NODENAME={node}"):
            with suppress(ProcessLookupError):
                os.kill(each, signal.SIGKILL)

    def close(self) -> None:
        self.told("scancel", "--full", "-s", "KILL", "-u", "root")
        for each in self._daemons.values():
            each.kill()
            each.wait()
        for process in _with(f"SLURM_CONF={self.folder}"):
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)

    def _start(self, name: str, *command: str) -> None:
        with (self.folder / f"{name}.out").open("wb") as out:
            self._daemons[name] = subprocess.Popen(
                command, env={**os.environ, **self.environment}, stdout=out, stderr=out
            )

    def _until(self, holds: Callable[[], bool]) -> None:
        deadline_s = time.monotonic() + NEEDED_S
        while not holds():
            if time.monotonic() > deadline_s:
                logs = [each.read_text(errors="replace")[-2000:] for each in self.folder.glob("*.out")]
                raise TimeoutError("\n--\n".join(logs))
            time.sleep(0.1)


def _with(text: str) -> list[int]:
    """Processes that have this in their environment."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with suppress(OSError):
                if text.encode() in (entry / "environ").read_bytes():
                    found.append(int(entry.name))
    return found


def _free_ports(count: int) -> int:
    """The first of so many in a row that are free now."""
    for first in range(21_000, 32_000, count):
        with suppress(OSError):
            for port in range(first, first + count):
                with socket.socket() as free:
                    free.bind(("127.0.0.1", port))
            return first
    raise OSError("no ports are free")
