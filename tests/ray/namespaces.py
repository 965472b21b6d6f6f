"""A Ray cluster whose nodes are hosts of a testbed: network namespaces, with links of their own between them."""

import os
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

PORT = 6379
STORE_BYTES = 80 << 20
START_S = 60
RAY = Path(sys.prefix, "bin", "ray")
REPOSITORY = Path(__file__).parents[2]


class Hosts:
    """The testbed's, each a node with one CPU."""

    def __init__(self, testbed, directory):
        self._testbed, self._directory = testbed, directory
        self.names = [host.name for host in testbed.cluster.hosts]
        self._head = f"{testbed.address(self.names[0])}:{PORT}"
        self._environment = {
            **os.environ,
            "RAY_TMPDIR": directory,
            "RAY_ADDRESS": self._head,
            "PYTHONPATH": str(REPOSITORY),
            # Hosts' names do not resolve there.
            "GLOO_SOCKET_IFNAME": "eth0",
        }
        for name in self.names:
            self._start(name)

    def run(self, source, *argv, timeout_s=300):
        program = self._testbed.popen(
            self.names[0],
            [sys.executable, "-c", source, *argv],
            env=self._environment,
            cwd=REPOSITORY,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        out, err = program.communicate(timeout=timeout_s)
        assert program.returncode == 0, out + err
        return out, err

    def trunk_bytes(self):
        return sum(sent for sent, _ in self._testbed.trunk_bytes().values())

    def _start(self, name):
        """One after the other: nodes that start at once take one another's sockets."""
        of_head = ["--head", f"--port={PORT}", "--include-dashboard=false"]
        of_others = [f"--address={self._head}"]
        log = Path(self._directory, f"{name}.log")
        with log.open("w") as out:
            node = self._testbed.popen(
                name,
                [
                    str(RAY),
                    "start",
                    "--block",
                    "--disable-usage-stats",
                    "--num-cpus=1",
                    f"--object-store-memory={STORE_BYTES}",
                    f"--node-ip-address={self._testbed.address(name)}",
                    *(of_head if name == self.names[0] else of_others),
                ],
                env=self._environment,
                cwd=REPOSITORY,
                stdout=out,
                stderr=subprocess.STDOUT,
            )
        deadline_s = time.monotonic() + START_S
        while "Ray runtime started" not in log.read_text():
            assert node.poll() is None, log.read_text()
            assert time.monotonic() < deadline_s, log.read_text()
            time.sleep(0.1)


@contextmanager
def ray_on(testbed):
    """Until the end; the testbed ends its processes."""
    # Paths of Ray's sockets must be short.
    with tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp", ignore_cleanup_errors=True) as directory:
        yield Hosts(testbed, directory)
        testbed.close()
