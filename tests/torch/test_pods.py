"""Elastic jobs of pods: hosts with addresses of their own, whose entry points start their rank again when it has failed."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from hocket.artefacts.cluster import Cluster, Host, Rack
from hocket.errors import TestbedError
from hocket.job.store import address as addresses
from hocket.tools.testbed import Testbed
from tests.launch.processes import clean_environment
from tests.support import warm

pytest.importorskip("torch")

from tests.torch.test_coordinator import SECRET, Coordinated  # needs torch
from tests.torch.trainings import PORT, SCRIPT

pytestmark = pytest.mark.hosts

HOSTS = "abc"


class Pods(Coordinated):
    """One on each host; the coordinator is on the first."""

    def __init__(self, directory: Path, bed: Testbed) -> None:
        self._bed = bed
        address = addresses.join(bed.address(HOSTS[0]), PORT)
        super().__init__(
            directory, "--elastic", f"1:{len(HOSTS)}", founders=0, address=address, HOCKET_TLS="1"
        )
        for host in HOSTS:
            self.come(host)
        self.until(lambda: len(self.steps()) == len(HOSTS))

    def on(self, host: str, argv: Sequence[str]) -> Sequence[str]:
        return self._bed.command(host or HOSTS[0], argv)

    def come(self, host: str, flaw: str = "is slow") -> subprocess.Popen[bytes]:
        """Like a kubelet with `restartPolicy: OnFailure`."""
        rank = shlex.join(self.on(host, warm.command(SCRIPT, str(self.directory))))
        again = f'n=0; until {rank} newcomer-{host}-$n "{flaw}"; do n=$((n + 1)); sleep 0.2; done'
        environment = clean_environment(
            HOCKET_COORDINATOR=self.address,
            HOCKET_SECRET=SECRET,
            HOCKET_HOST=host,
            HOCKET_START_TIMEOUT_S="30",
            JOB_COMPLETION_INDEX=str(HOSTS.index(host)),
            PYTHONPATH=os.pathsep.join(sys.path),
        )
        with (self.directory / f"newcomer-{host}.log").open("wb") as log:
            process = subprocess.Popen(
                ["bash", "-c", again], env=environment, stdout=log, stderr=log, start_new_session=True
            )
        self.newcomers.append(process)
        return process

    def kill(self) -> None:
        for each in self.newcomers:
            if each.poll() is None:
                os.killpg(each.pid, signal.SIGKILL)
        super().kill()


@pytest.fixture
def pods(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pods]:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    hosts = tuple(Host(name=name, rack="x", bandwidth_bit_per_s=1e9) for name in HOSTS)
    try:
        with Testbed(Cluster(hosts=hosts, racks=(Rack(name="x"),))) as bed:
            made = Pods(tmp_path, bed)
            yield made
            made.kill()
    except TestbedError as error:
        pytest.skip(f"no namespaces here: {error}")


def test_two_pods_that_fail_are_started_again_and_come_back(pods: Pods) -> None:
    """Broken: whoever is started again in a pod would train alone, or meet nobody from its own address."""
    pods.lose("newcomer-b-0")
    pods.lose("newcomer-c-0")
    pods.until(lambda: len(pods.steps()) == len(HOSTS) + 2)
    pods.trains_on(len(HOSTS))
    assert pods.end() == 0, pods.said()
    assert [each.returncode for each in pods.newcomers] == [0, 0, 0]
    worlds = pods.check()
    assert (worlds[0], worlds[-1], min(worlds) < len(HOSTS)) == (len(HOSTS), len(HOSTS), True)
