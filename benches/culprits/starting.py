"""Start of a job's ranks as by a user: by `hocket run`, elastic or not, or by an agent of torchrun on each host."""

from __future__ import annotations

import os
import secrets
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from benches.culprits.cases import CULPRIT, LEAST, PATIENCE_S, START_S, WORLD
from hocket.job.live.files import SUFFIX
from hocket.settings import Settings
from hocket.tools.demo.emulation import Emulation

SETTINGS = Settings(
    timeout_s=PATIENCE_S, heartbeat_timeout_s=PATIENCE_S, start_timeout_s=START_S, autopilot=False
)
HOCKET = (sys.executable, "-c", "from hocket.cli.main import main; main()")
TORCHRUN = (sys.executable, "-m", "torch.distributed.run")
TORCHRUN_PORT = 29_400


class Started:
    """Processes of a job on hosts of an emulation, each with a log, in the order of starts."""

    def __init__(self, emulation: Emulation, kind: str, directory: Path) -> None:
        """Begin without processes. `kind`: the failure."""
        self.processes: list[subprocess.Popen[bytes]] = []
        self.logs: list[Path] = []
        self._emulation, self._directory = emulation, directory
        self._hosts = [host.name for host in emulation.cluster.hosts]
        self._rank = ("benches.culprits.rank", kind, str(CULPRIT), str(directory))
        inherited = {name: text for name, text in os.environ.items() if not name.startswith("HOCKET_")}
        self._environment = {
            **inherited,
            **emulation.environment,
            **SETTINGS.to_environment(),
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": os.pathsep.join(str(Path(each).absolute()) for each in sys.path),
        }

    def hocket(self, *, elastic: bool, patience_s: float) -> None:
        """Start `hocket run` on the first host, which reaches the others as by ssh. `patience_s`: longest wait and silence."""
        reach, slots = self._directory / "reach", self._directory / "hosts"
        commands = ((host, shlex.join(self._emulation.command(host))) for host in self._hosts)
        ways = [f'{host}) exec {command} sh -c "$2" ;;' for host, command in commands]
        reach.write_text("\n".join(["#!/bin/sh", 'case "$1" in', *ways, "esac\n"]))
        reach.chmod(0o700)
        slots.write_text("\n".join(self._hosts) + "\n")
        options = ["--hosts", str(slots), "--ssh", str(reach), "--timeout", f"{patience_s:g}"]
        options += ["--store", self._emulation.address(self._hosts[0])]
        options += ["--elastic", f"{LEAST}:{WORLD}"] if elastic else []
        # `hocket top` finds the one job of this directory.
        silence = {"HOCKET_HEARTBEAT_TIMEOUT_S": f"{patience_s:g}", "TMPDIR": str(self._directory)}
        self._start(self._hosts[0], [*HOCKET, "run", *options, "-m", *self._rank], silence)

    def top(self) -> Path:
        """Look at the job that `hocket` has started, and return the log."""
        self._start(self._hosts[0], [*HOCKET, "top", "--json"], {"TMPDIR": str(self._directory)})
        return self.logs[-1]

    def may_be_found(self) -> bool:
        """Return whether observers find the job."""
        return any(self._directory.glob(f"hocket-*/*.{SUFFIX}"))

    def torchrun(self) -> None:
        """Start torchrun's agents. Rank N's stderr is in `N.said`: agents add their own to its output."""
        first, secret = self._emulation.address(self._hosts[0]), secrets.token_hex(32)
        said = f'exec "$@" 2> {shlex.quote(str(self._directory))}/$RANK.said'
        rank = ["sh", "-c", said, "rank", sys.executable, "-m", *self._rank]
        options = [f"--nnodes={WORLD}", "--nproc-per-node=1", "--monitor-interval=0.1"]
        options += [f"--master-addr={first}", f"--master-port={TORCHRUN_PORT}"]
        for at, host in enumerate(self._hosts):
            own = [f"--node-rank={at}", f"--local-addr={self._emulation.address(host)}", "--no-python"]
            self._start(host, [*TORCHRUN, *options, *own, *rank], {"HOCKET_SECRET": secret})

    def said(self) -> str:
        """Output of all processes up to now."""
        return "\n--\n".join(log.read_text(errors="replace") for log in self.logs)

    def _start(self, host: str, argv: Sequence[str], environment: dict[str, str]) -> None:
        self.logs.append(self._directory / f"{len(self.logs)}.log")
        with self.logs[-1].open("wb") as log:
            self.processes.append(
                self._emulation.popen(
                    host, argv, env={**self._environment, **environment}, stdout=log, stderr=subprocess.STDOUT
                )
            )
