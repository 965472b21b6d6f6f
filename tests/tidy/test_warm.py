"""Servers of processes that have imported PyTorch outlive their clients, however those end."""

import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import warm

DEADLINE_S = 20
SLEEPS = "import os, time; print(os.getpid(), flush=True); time.sleep(60)"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """One that has imported nothing; its socket is `tmp_path/0`."""
    arguments = [sys.executable, warm.__file__, str(tmp_path / "0")]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        yield process


def asked(folder: Path, text: str) -> subprocess.Popen[bytes]:
    """A client that has the script `text` run."""
    script = folder / "script.py"
    script.write_text(text)
    command = [sys.executable, "-I", "-S", str(warm.CLIENT), str(folder), str(script)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, env=os.environ | {"HOCKET_RANK": "0"})


def serves(folder: Path) -> bool:
    with asked(folder, "print('here')") as client:
        return client.communicate(timeout=DEADLINE_S)[0] == b"here\n"


@pytest.mark.parametrize("said", [b"", b"\0\0", (100).to_bytes(8, "big") + b'{"argv": ['])
@pytest.mark.usefixtures("server")
def test_clients_that_end_while_they_ask_are_forgotten(tmp_path: Path, said: bytes) -> None:
    with socket.socket(socket.AF_UNIX) as client, Path(os.devnull).open() as passed:
        client.connect(str(tmp_path / "0"))
        if said:
            socket.send_fds(client, [said], [passed.fileno()])
    assert serves(tmp_path)


def test_a_client_and_its_process_may_end_at_once(tmp_path: Path, server: subprocess.Popen[bytes]) -> None:
    client = asked(tmp_path, SLEEPS)
    assert client.stdout is not None
    process = int(client.stdout.readline())
    held = os.pidfd_open(process)
    # The server finds both ends at once when it goes on, the process's first.
    server.send_signal(signal.SIGSTOP)
    signal.pidfd_send_signal(held, signal.SIGKILL)
    assert select.select([held], [], [], DEADLINE_S)[0]
    client.kill()
    client.communicate(timeout=DEADLINE_S)
    server.send_signal(signal.SIGCONT)
    os.close(held)
    assert serves(tmp_path)


def test_the_process_of_a_killed_client_ends(tmp_path: Path, server: subprocess.Popen[bytes]) -> None:
    client = asked(tmp_path, SLEEPS)
    assert client.stdout is not None
    held = os.pidfd_open(int(client.stdout.readline()))
    client.kill()
    client.communicate(timeout=DEADLINE_S)
    assert select.select([held], [], [], DEADLINE_S)[0]
    os.close(held)
    assert server.poll() is None
    assert serves(tmp_path)
