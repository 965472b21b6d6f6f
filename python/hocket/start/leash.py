"""Leash that holds one rank: it starts the rank, forwards signals, and ends it with all its descendants when the launcher is gone.

It is a program of its own that uses only the standard library, run as `python -I -S leash.py` here or sent as text over ssh. Its
standard input is a line of JSON (`argv`, `environment`, `directory`, `ranks_here`, `silence_s`, `towards`, `opens_meeting`,
`goes_on`), then lines from the launcher: `signal NUMBER`, `end`, or an empty one as a sign of life. A variable without a value is
removed. End of input means that the launcher is gone. A rank with a file in `goes_on` then goes on, with its output in that file;
others end. The rank has its own process group and no input, and dies with this process; orphaned descendants are reparented to this
process, which ends them. The leash of rank 0 first finds an address and a port for torch's store, which that rank will serve, and
prints them on its standard output.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import os
import select
import signal
import socket
import struct
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
GRACE_S = 3.0
"""Seconds between SIGTERM and SIGKILL when the launcher is gone."""
CANNOT_START = 127
SIGNALLED = 128
ON_ORDER = 64
"""Offset added to 128 + N if the launcher had sent that signal while the rank ran: no signal has so large a number."""

FORWARDED_BYTES = 1 << 16

MEETING = "hocket: meeting at "
SIOCGIFADDR = 0x8915
DISCARD_PORT = 9

libc = ctypes.CDLL(None, use_errno=True)


class Rank:
    def __init__(self, order: dict[str, Any]) -> None:
        self.status: int | None = None
        self.ordered: set[int] = set()
        """Signals that the launcher has sent to the rank."""
        self.log = order["goes_on"]
        self.says: dict[int, int] = {}
        """Pipes of the rank's output, each with our own descriptor for it: the rank must survive the end of our reader."""
        parent = os.getpid()
        pipes = {own: os.pipe2(os.O_CLOEXEC) for own in (1, 2)} if self.log else {}
        self.process = os.fork()
        if self.process == 0:
            for own, (_, writes) in pipes.items():
                os.dup2(writes, own)
            _become(order, parent)
        for own, (reads, writes) in pipes.items():
            os.close(writes)
            self.says[reads] = own
        with contextlib.suppress(OSError):  # the child does the same; either may be first
            os.setpgid(self.process, self.process)

    def obey(self, number: int) -> None:
        """Send the launcher's signal. A rank that has died before did not die of it."""
        self.reap()
        if self.status is None:
            self.ordered.add(number)
            self.signal(number)

    @property
    def code(self) -> int:
        """Exit code of this process, once the rank has ended."""
        assert self.status is not None  # noqa: S101
        if self.status >= 0:
            return self.status
        return SIGNALLED - self.status + (ON_ORDER if -self.status in self.ordered else 0)

    def signal(self, number: int) -> None:
        """Send a signal to the rank and its process group."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process, number)

    def forward(self, reads: int) -> None:
        """Pass on the output that has arrived on a pipe."""
        own = self.says[reads]
        data = os.read(reads, FORWARDED_BYTES)
        if not data:
            del self.says[reads]
            return
        try:
            while data:
                data = data[os.write(own, data) :]
        except OSError:
            # Our output has no reader any more.
            _append(self.log, data)

    def reap(self) -> None:
        with contextlib.suppress(ChildProcessError):
            while True:
                process, status = os.waitpid(-1, os.WNOHANG)
                if process == 0:
                    return
                if process == self.process:
                    self.status = os.waitstatus_to_exitcode(status)


def _append(path: str, data: bytes) -> None:
    """Append to a log of this user's alone: its name can be guessed, so a link or another user's file may be there."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    with contextlib.suppress(OSError), os.fdopen(os.open(path, flags, 0o600), "ab") as log:
        if os.fstat(log.fileno()).st_uid == os.getuid():
            log.write(data)


def main() -> None:
    """Wait until the rank has ended; exit with its code, or 128 + the signal that killed it, 64 more if the launcher sent that."""
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1)
    wake_out, wake_in = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    signal.set_wakeup_fd(wake_in, warn_on_full_buffer=False)
    told_to_end = []
    signal.signal(signal.SIGCHLD, lambda *_: None)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: told_to_end.append(True))
    with open(0, "rb", buffering=0, closefd=False) as launcher:
        order = json.loads(launcher.readline() or b"null")
    if order is None:
        return
    reserved = _open_meeting(order) if order["opens_meeting"] else None
    _name_interface(order["environment"])
    rank = Rank(order)
    _hold(rank, wake_out, float(order["silence_s"]), told_to_end)
    _end_descendants(rank)
    while rank.says:
        # All its writers have ended.
        for reads in list(rank.says):
            rank.forward(reads)
    if reserved is not None:
        reserved.close()
    os._exit(rank.code)


def _open_meeting(order: dict[str, Any]) -> socket.socket:
    """Print where torch's store will be: our address on the way to the job's store, and a port reserved for it."""
    address = _own_address(order["towards"])
    if address is None:
        name = os.uname().nodename
        os.write(2, f"hocket: {name} knows no way to the job's store at {order['towards']}\n".encode())
        os._exit(CANNOT_START)
    reserved = reserve(address)
    port = str(reserved.getsockname()[1])
    order["environment"].update({"MASTER_ADDR": address, "MASTER_PORT": port})
    os.write(1, f"{MEETING}{address} {port}\n".encode())
    return reserved


def reserve(address: str) -> socket.socket:
    """Return a socket on a free port for torch's store.

    The socket is bound and never listens: the system gives the port to no other process, while torch, which asks to reuse it, may
    listen there.
    """
    reserved = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
    reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    reserved.bind((address, 0))
    return reserved


def _name_interface(environment: dict[str, str | None]) -> None:
    """Name the interface towards rank 0 for Gloo, which by default uses the host name's: loopback, or a foreign one."""
    first = environment.get("MASTER_ADDR")
    address = None if first is None else _own_address(first)
    if (
        address is None
        or address.startswith("127.")
        or address == "::1"
        or "GLOO_SOCKET_IFNAME" in os.environ
    ):
        return
    for name in _interfaces(address):
        environment.setdefault("GLOO_SOCKET_IFNAME", name)


def _own_address(towards: str) -> str | None:
    """Return this host's address on the route to `towards`; None without a route. Sends nothing."""
    try:
        found = [
            each
            for part in towards.split(",")
            for each in socket.getaddrinfo(part, DISCARD_PORT, type=socket.SOCK_DGRAM)
        ]
    except OSError:
        return None
    for family, _, _, _, where in found:
        with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect(where)
            return str(probe.getsockname()[0])
    return None


def _interfaces(address: str) -> list[str]:
    if ":" in address:
        packed = socket.inet_pton(socket.AF_INET6, address).hex()
        rows = [line.split() for line in Path("/proc/net/if_inet6").read_text().splitlines()]
        return [row[-1] for row in rows if row[0] == packed]
    found = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        for _, name in socket.if_nameindex():
            with contextlib.suppress(OSError):  # it has no IPv4 address
                answer = fcntl.ioctl(asking, SIOCGIFADDR, struct.pack("256s", name.encode()))
                if socket.inet_ntoa(answer[20:24]) == address:
                    found.append(name)
    return found


def cores(system: Path = Path("/")) -> int:
    """Return the number of cores that this process can keep busy: those that it may run on, or as many as its control groups give
    it the time of, as they do in a container with a limit."""
    count = len(os.sched_getaffinity(0))
    for quota, period in group_limits(
        "cpu", ("cpu.max",), ("cpu.cfs_quota_us", "cpu.cfs_period_us"), system=system
    ):
        if quota > 0:
            count = min(count, max(1, quota // period))
    return count


def group_limits(
    controller: str, files: Sequence[str], files_of_1: Sequence[str], *, system: Path = Path("/")
) -> Iterator[list[int]]:
    """Yield the limits of this process's control group and of those above it, where they have some: numbers in these files, by the
    names that they have in version 2 and in version 1."""
    with contextlib.suppress(OSError):
        for line in (system / "proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers and controller not in controllers.split(","):
                continue
            mounted = system / "sys/fs/cgroup" / (controller if controllers else "")
            group = mounted / path.lstrip("/")
            # In a container, the path may be one of the host's, and what is mounted the group itself.
            for folder in (group, *group.parents):
                if not folder.is_relative_to(mounted):
                    break
                with contextlib.suppress(OSError, ValueError):  # "max"
                    texts = [(folder / each).read_text() for each in (files_of_1 if controllers else files)]
                    yield [int(number) for text in texts for number in text.split()]


def _become(order: dict[str, Any], parent: int) -> None:
    try:
        os.setpgid(0, 0)
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(SIGNALLED + signal.SIGKILL)
        for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE):
            signal.signal(number, signal.SIG_DFL)
        changed = {**os.environ, **order["environment"]}
        environment = {name: value for name, value in changed.items() if value is not None}
        environment.setdefault("OMP_NUM_THREADS", str(max(1, cores() // order["ranks_here"])))
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.chdir(order["directory"])
        os.execvpe(order["argv"][0], order["argv"], environment)  # noqa: S606
    except OSError as error:
        where = order["directory"] if error.filename == order["directory"] else order["argv"][0]
        os.write(2, f"hocket: {where} cannot be used on {os.uname().nodename}: {error.strerror}\n".encode())
    finally:
        os._exit(CANNOT_START)


def _hold(rank: Rank, wake: int, silence_s: float, told_to_end: list[bool]) -> None:
    """Forward signals until the rank has ended; end it when the launcher is gone or silent."""
    heard_s, held, kill_at_s = time.monotonic(), b"", None
    inputs = [0, wake]
    while True:
        rank.reap()
        if rank.status is not None:
            return
        silent = silence_s > 0 and time.monotonic() - heard_s > silence_s
        alone = (silent or 0 not in inputs) and not rank.log
        if kill_at_s is None and (told_to_end or alone):
            rank.signal(signal.SIGTERM)
            kill_at_s = time.monotonic() + GRACE_S
        if kill_at_s is not None and time.monotonic() >= kill_at_s:
            rank.signal(signal.SIGKILL)
        ready, _, _ = select.select([*inputs, *rank.says], [], [], 1.0)
        if wake in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(wake, 1024)
        for reads in ready:
            if reads in rank.says:
                rank.forward(reads)
        if 0 in ready:
            data = os.read(0, 1024)
            if not data:
                inputs.remove(0)
            heard_s = time.monotonic()
            *lines, held = (held + data).split(b"\n")
            for line in lines:
                if line.startswith(b"signal "):
                    rank.obey(int(line.split()[1]))
                elif line == b"end":
                    told_to_end.append(True)


def _end_descendants(rank: Rank) -> None:
    """Kill the rank's remains: its group, then all its descendants as they are reparented to this process."""
    rank.signal(signal.SIGKILL)
    deadline_s = time.monotonic() + GRACE_S
    while (orphans := _children()) and time.monotonic() < deadline_s:
        for each in orphans:
            with contextlib.suppress(ProcessLookupError):
                os.kill(each, signal.SIGKILL)
        rank.reap()
        time.sleep(0.005)


def _children() -> list[int]:
    """Return processes whose parent this is, from `/proc/PID/stat`: `pid (name) state parent …`."""
    mine = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                after_name = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()
                if int(after_name[1]) == os.getpid():
                    mine.append(int(entry.name))
    return mine


if __name__ == "__main__":
    main()
