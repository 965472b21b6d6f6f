"""Runs a script in a process that has imported PyTorch and Hocket already: importing them anew costs each rank 4 s of a core.

`command` gives what takes the place of `python SCRIPT ARGUMENT…`: a small client whose environment, directory, output and
network (a testbed's host) the forked process takes over, and which passes signals on and ends as that process does. A client that
is killed takes its process with it. `torchrun` gives the same for `torchrun SCRIPT ARGUMENT…`, whose workers are such clients.

Two servers fork in turn by `HOCKET_RANK` or torchrun's `RANK`, so that sets of strings have another order on neighbouring ranks, as
they have in a job.
"""

import atexit
import ctypes
import functools
import gc
import importlib
import json
import os
import runpy
import selectors
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

SERVERS = 2
IMPORTED = ("torch._dynamo", "torch.distributed", "torch.nn.parallel", "hocket.torch")
"""An optimizer loads `torch._dynamo`, which takes longer than all the rest of PyTorch. That Hocket loads is the claim of other
tests, in processes of their own."""
GIVES_UP_S = 30
"""A client that says nothing for so long is stopped; the others wait meanwhile."""
CLOSED = -1
"""What a closed socket has for a descriptor."""

CLIENT = Path(__file__).with_name("client.py")
DESCRIPTORS_MAX = 16
"""Limit of a request."""


def command(
    script: Path, *arguments: str, imports: tuple[str, ...] = IMPORTED, servers: int = SERVERS
) -> list[str]:
    """Runs `script` as a program of its own, in a process that has imported `imports`."""
    return [sys.executable, "-I", "-S", str(CLIENT), _servers(imports, servers), str(script), *arguments]


def torchrun(
    options: Sequence[str],
    script: Path,
    *arguments: str,
    imports: tuple[str, ...] = IMPORTED,
    servers: int = SERVERS,
) -> list[str]:
    """Runs `script` under torchrun; `options` are torchrun's."""
    worker = command(script, *arguments, imports=imports, servers=servers)
    agent = Path(__file__).with_name("agent.py")
    return command(agent, *options, "--no-python", *worker, imports=imports, servers=servers)


def hocket(*arguments: str, imports: tuple[str, ...] = IMPORTED, servers: int = SERVERS) -> list[str]:
    """Runs the command `hocket`; processes that it starts as Python with a script or a module have imported PyTorch."""
    run = "import sys; sys.executable = sys.argv.pop(1); from hocket.cli.main import main; main()"
    return [sys.executable, "-c", run, interpreter(imports, servers), *arguments]


@functools.cache
def interpreter(imports: tuple[str, ...] = IMPORTED, servers: int = SERVERS) -> str:
    """A program that takes Python's place: a client for scripts and modules, else Python itself."""
    path = Path(_servers(imports, servers)) / "python"
    client = shlex.join(command(Path(), imports=imports, servers=servers)[:-1])
    path.write_text(
        f'#!/bin/sh\ncase "$1" in\n-m) ;;\n-*) exec {shlex.quote(sys.executable)} "$@" ;;\nesac\nexec {client} "$@"\n'
    )
    path.chmod(0o755)
    return str(path)


@functools.cache
def _servers(imports: tuple[str, ...], count: int) -> str:
    """Folder of the servers' sockets; they end with this process."""
    # Short: the path of a socket has at most 107 bytes.
    folder = tempfile.TemporaryDirectory(prefix="warm-")
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    servers = [
        subprocess.Popen(
            [sys.executable, __file__, f"{folder.name}/{at}", *imports],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            start_new_session=True,
        )
        for at in range(count)
    ]
    for server in servers:
        assert server.stdout is not None
        assert server.stdout.readline() == b"ready\n"

    def end() -> None:
        for server in servers:
            server.communicate()
        folder.cleanup()

    atexit.register(end)
    return folder.name


class Server:
    """Forks a process for every client, and tells the client how it ended."""

    def __init__(self, path: str) -> None:
        self.ready = selectors.DefaultSelector()
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(path)
        self.listener.listen(64)
        self.ready.register(0, selectors.EVENT_READ, self.end)
        self.ready.register(self.listener, selectors.EVENT_READ, self.accept)
        self.clients: dict[int, socket.socket] = {}
        """By the descriptor of the process."""
        self.request: dict[str, Any] | None = None
        self.ended = False

    def serve(self) -> dict[str, Any] | None:
        """Until standard input ends; returns, in each forked process, what it is to do."""
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        while not self.ended and self.request is None:
            for key, _ in self.ready.select():
                key.data()
                if self.request is not None:
                    break
        self.close()
        return self.request

    def accept(self) -> None:
        client, _ = self.listener.accept()
        client.settimeout(GIVES_UP_S)
        descriptors: list[int] = []
        try:
            request = received(client, descriptors)
        except (OSError, ValueError):  # it was killed, or stopped, while it asked: nobody waits for an answer
            for each in descriptors:
                os.close(each)
            client.close()
            return
        process = os.fork()
        if process == 0:
            client.close()
            namespaces = list(zip(request["namespaces"], descriptors[2:], strict=True))
            self.request = request | {"outputs": descriptors[:2], "namespaces": namespaces}
            return
        with suppress(OSError):  # the child does it, too; whoever comes first
            os.setpgid(process, process)
        for each in descriptors:
            os.close(each)
        held = os.pidfd_open(process)
        self.clients[held] = client
        self.ready.register(held, selectors.EVENT_READ, functools.partial(self.reap, held, process))
        self.ready.register(client, selectors.EVENT_READ, functools.partial(self.abandon, client, process))
        with suppress(OSError):  # it may be gone, which its end of the connection tells
            client.sendall(b"%d\n" % process)

    def abandon(self, client: socket.socket, process: int) -> None:
        """The client is gone; its process ends, too."""
        if client.fileno() == CLOSED:  # both ended at once, and the process was reaped first
            return
        self.ready.unregister(client)
        with suppress(ProcessLookupError):
            os.killpg(process, signal.SIGKILL)

    def reap(self, held: int, process: int) -> None:
        code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
        with suppress(ProcessLookupError):  # nobody is left of its group
            os.killpg(process, signal.SIGKILL)
        client = self.clients.pop(held)
        self.ready.unregister(held)
        with suppress(KeyError):  # abandoned before
            self.ready.unregister(client)
        os.close(held)
        with suppress(OSError), client:
            client.sendall(b"%d\n" % code)

    def end(self) -> None:
        self.ended = True
        for held in self.clients:
            signal.pidfd_send_signal(held, signal.SIGKILL)

    def close(self) -> None:
        self.ready.close()
        self.listener.close()
        for held, client in self.clients.items():
            os.close(held)
            client.close()


def received(client: socket.socket, descriptors: list[int]) -> dict[str, Any]:
    """A request; fills `descriptors` with those that came with it: where output goes, and the client's namespaces.

    Raises OSError or ValueError when the client is gone before it has said all.
    """
    length, passed, _, _ = socket.recv_fds(client, 8, DESCRIPTORS_MAX)
    descriptors += passed
    text, whole = b"", int.from_bytes(length, "big")
    while len(text) < whole and (part := client.recv(whole - len(text))):
        text += part
    request: dict[str, Any] = json.loads(text)
    return request


def enter(name: str, namespace: int) -> None:
    """Goes where the client is, if that is elsewhere; `os.setns` came with Python 3.12."""
    if not os.path.sameopenfile(namespace, (own := os.open(f"/proc/self/ns/{name}", os.O_RDONLY))):
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.setns(namespace, 0) != 0:
            raise OSError(ctypes.get_errno(), f"cannot enter the client's {name} namespace")
    os.close(own)
    os.close(namespace)


def become(request: dict[str, Any]) -> None:
    """In the forked process: take the client's place, and run what it is to run."""
    with suppress(OSError):
        os.setpgid(0, 0)
    for target, each in enumerate([os.open(os.devnull, os.O_RDONLY), *request["outputs"]]):
        os.dup2(each, target)
        os.close(each)
    for name, each in request["namespaces"]:
        enter(name, each)
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["directory"])
    given = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    # The destructors of PyTorch's libraries take 0.3 s of a core in each process, as they copy its pages. Python has ended by then,
    # and functions that Hocket or a script gives to the C library come first, being younger.
    libc = ctypes.CDLL(None)
    libc.on_exit(ctypes.cast(libc._exit, ctypes.c_void_p), None)
    module = request["argv"][0] == "-m"
    sys.argv = request["argv"][1:] if module else request["argv"]
    sys.path[:0] = [request["directory"] if module else str(Path(sys.argv[0]).parent), *filter(None, given)]
    run = functools.partial(runpy.run_module, alter_sys=True) if module else runpy.run_path
    try:
        run(sys.argv[0], run_name="__main__")
        leave.code = 0
    except SystemExit as ended:
        leave.code = 0 if ended.code is None else ended.code if isinstance(ended.code, int) else 1
        raise
    except Exception:
        leave.code = 1
        raise


class Leave:
    """End of a forked process, in the place of what Python does after all functions of `atexit`: it would clear each module, and so
    copy the pages of PyTorch, which took a rank 0.2 s of a core. Functions of the C library come as ever. That Hocket bears the
    whole end of an interpreter is the claim of tests in processes of their own."""

    code: int | None = None
    """That of the process; None: it is the server, or ends by a signal."""

    def __call__(self) -> None:
        if self.code is None:
            return
        try:
            sys.stdout.flush()
            sys.stderr.flush()
        except (OSError, ValueError):  # Python says so, and has a code for it
            return
        # With the interpreter's lock: what PyTorch has made since the fork holds objects of Python, and lets go of them now.
        ctypes.PyDLL(None).exit(self.code)


leave = Leave()

if __name__ == "__main__":
    # The first is called last.
    atexit.register(leave)
    # Triton's bindings print a page of what is left at the end, which is what is frozen. Nothing here compiles for a GPU.
    sys.modules["triton"] = None  # type: ignore[assignment]
    for name in sys.argv[2:]:
        importlib.import_module(name)
    assert len(list(Path("/proc/self/task").iterdir())) == 1, "a thread would not be in forked processes"
    # A collector that goes through PyTorch copies its pages, above all at the end of a process, which took 1.2 s of a core.
    gc.freeze()
    wanted = Server(sys.argv[1]).serve()
    if wanted is not None:
        become(wanted)
