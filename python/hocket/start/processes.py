"""Rank processes in the launcher: each behind a leash, with its output forwarded."""

from __future__ import annotations

import contextlib
import json
import os
import select
import selectors
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from hocket.errors import RendezvousError
from hocket.start import terminal
from hocket.start.output import LINE_BYTES_MAX, Channel

LEASH = Path(__file__).with_name("leash.py")
BOOTSTRAP = (
    "f=open(0,'rb',buffering=0,closefd=False);n=int(f.readline());s=b''\n"
    "while len(s)<n:\n b=f.read(n-len(s))\n if not b: raise SystemExit(1)\n s+=b\n"
    "exec(compile(s,'leash.py','exec'))"
)
MEETING = b"hocket: meeting at "
"""Start of the line in which rank 0's leash gives the address of torch's store, before the rank runs."""
SIGNALLED = 128
ON_ORDER = 64
SILENCE_S = 30.0
"""Silence of the launcher after which a remote rank ends: the connection broke unnoticed."""
SIGN_OF_LIFE_S = 5.0
LET_GO_S = 10.0
"""Time for leashes to end their ranks; more than twice leash.GRACE_S."""


@dataclass(frozen=True, kw_only=True)
class ProcessSpec:
    """Specification of one rank to start.

    Attributes:
        argv: the rank's command.
        host: its host's name in the cluster file; None: this machine's own name.
        prefix: a command that runs its arguments elsewhere: `("ip", "netns", "exec", "h1")`.
        remote: True if `prefix` leads to another machine and takes one argument, for a shell: `("ssh", "node7")`.
        environment: variables beyond those that a rank needs.
        interpreter: the Python of a remote host, which runs the leash there.
    """

    argv: Sequence[str]
    host: str | None = None
    prefix: Sequence[str] = ()
    remote: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)
    interpreter: str = sys.executable


class Process:
    def __init__(
        self,
        rank: int,
        spec: ProcessSpec,
        *,
        out: Channel,
        err: Channel,
    ) -> None:
        """Start the leash, which waits for `order`."""
        self.rank = rank
        self.spec = spec
        self.out, self.err = out, err
        self._line = b""
        self._ordered: set[int] = set()
        self.condemned = self.left_behind = False
        """True if the launcher has sent it SIGKILL because the others of an elastic job go on without it; `left_behind`: it ran
        when they decided that."""
        leash = [sys.executable, "-I", "-S", str(LEASH)]
        text = b""
        if spec.remote:
            leash = [shlex.join([spec.interpreter, "-I", "-S", "-c", BOOTSTRAP])]
            source = LEASH.read_bytes()
            text = b"%d\n" % len(source) + source
        # What runs elsewhere writes to a connection.
        terminals = [None if spec.remote else terminal.opened(each.size) for each in (out, err)]
        try:
            self._leash = subprocess.Popen(
                [*spec.prefix, *leash],
                stdin=subprocess.PIPE,
                stdout=terminal.end_of(terminals[0]),
                stderr=terminal.end_of(terminals[1]),
                bufsize=0,
                start_new_session=True,
            )
        except OSError as error:
            command = spec.prefix[0] if spec.prefix else sys.executable
            raise RendezvousError(f"rank {rank}: `{command}` cannot be started: {error.strerror}") from None
        finally:
            for each in terminals:
                if each is not None:
                    each.begun()
        self._reads = [
            pipe if own is None else own.reads
            for own, pipe in zip(terminals, (self._leash.stdout, self._leash.stderr), strict=True)
        ]
        self._said_s = time.monotonic()
        self._say(text)

    def order(self, order: Mapping[str, object]) -> None:
        """Send the leash its order, as `leash.py` reads it; secrets travel here, never as arguments."""
        self._say(json.dumps(order).encode() + b"\n")

    def meeting(self, timeout_s: float) -> dict[str, str] | None:
        """Return MASTER_ADDR and MASTER_PORT from the leash of rank 0; None if nothing arrives within that time.

        A line that has begun is read to its end. Earlier output, from a login shell, is passed on.
        """
        reads, _ = self.streams[0]
        deadline_s = time.monotonic() + timeout_s
        while True:
            left_s = max(0.0, deadline_s - time.monotonic())
            if not select.select([reads], [], [], left_s)[0]:
                return None
            byte = terminal.read(reads.fileno(), 1)  # one byte at a time: output after the line is the rank's
            if not byte:
                time.sleep(left_s)
                return None
            self._line += byte
            if byte == b"\n" or len(self._line) >= LINE_BYTES_MAX:
                line, self._line = self._line, b""
                if line.startswith(MEETING):
                    address, port = line.removeprefix(MEETING).decode().split()
                    return {"MASTER_ADDR": address, "MASTER_PORT": port}
                self.out.feed(line)
                if left_s == 0:
                    return None

    @property
    def host(self) -> str:
        return self.spec.host or "this machine"

    @property
    def streams(self) -> list[tuple[IO[bytes], Channel]]:
        channels = zip(self._reads, (self.out, self.err), strict=True)
        return [(stream, channel) for stream, channel in channels if stream is not None]

    @property
    def code(self) -> int | None:
        """Exit code of the rank, 128 + N for signal N; None while it runs."""
        code = self._leash.poll()
        if code is None or code >= 0:
            return code if code is None or not self.obeyed else code - ON_ORDER
        return SIGNALLED - code

    @property
    def obeyed(self) -> bool:
        """True if the rank has died of a signal that this process sent: not before that, and not of another process's signal."""
        code = self._leash.poll()
        return code is not None and (code < 0 or code - ON_ORDER - SIGNALLED in self._ordered)

    def signal(self, number: int) -> None:
        """Send a signal to the rank and its children."""
        self._ordered.add(number)
        self._say(b"signal %d\n" % number)

    def condemn(self) -> None:
        """Kill the rank, because the others of an elastic job go on without it."""
        self.condemned = True
        self.signal(signal.SIGKILL)

    def sign_of_life(self) -> None:
        """Send a remote leash a sign of life, if one is due."""
        if self.spec.remote and time.monotonic() - self._said_s > SIGN_OF_LIFE_S:
            self._say(b"\n")

    def kill(self) -> None:
        """Kill the leash itself if it does not obey; the rank dies with it."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._leash.pid, signal.SIGKILL)

    def let_go(self) -> None:
        assert self._leash.stdin is not None  # noqa: S101
        self._say(b"end\n")
        with contextlib.suppress(OSError):
            self._leash.stdin.close()

    def close(self, timeout_s: float) -> None:
        """Wait this long after `let_go`, then kill the leash itself, and release its output."""
        try:
            self._leash.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
            self._leash.wait()
        for stream, _ in self.streams:
            stream.close()

    def _say(self, data: bytes) -> None:
        if self._leash.stdin is None or self._leash.stdin.closed:
            return
        self._said_s = time.monotonic()
        view = memoryview(data)
        with contextlib.suppress(OSError):  # the leash has ended; `code` gives the result
            while view:
                view = view[self._leash.stdin.write(view) or 0 :]


def end_all(processes: Sequence[Process]) -> None:
    """End all processes in any case; costs nothing for ended ones."""
    for process in processes:
        process.let_go()
    deadline_s = time.monotonic() + LET_GO_S
    for process in processes:
        process.close(max(0.0, deadline_s - time.monotonic()))


class Flow:
    """Forwarding of processes' output to their channels."""

    def __init__(self, processes: Sequence[Process]) -> None:
        self._selector = selectors.DefaultSelector()
        for process in processes:
            self.add(process)

    def add(self, process: Process) -> None:
        """Forward another process's output, too."""
        for stream, channel in process.streams:
            self._selector.register(stream, selectors.EVENT_READ, channel)

    def move(self, timeout_s: float) -> None:
        """Show new output, waiting for it at most this long."""
        if not self._selector.get_map():
            time.sleep(timeout_s)
            return
        for key, _ in self._selector.select(timeout_s):
            data = terminal.read(key.fd)
            channel: Channel = key.data
            if data:
                channel.feed(data)
            else:
                channel.end()
                self._selector.unregister(key.fileobj)

    def drain(self, timeout_s: float) -> None:
        """Show the rest, until all streams have ended or the time is up."""
        deadline_s = time.monotonic() + timeout_s
        while self._selector.get_map() and (left_s := deadline_s - time.monotonic()) > 0:
            self.move(left_s)
        for key in list(self._selector.get_map().values()):
            key.data.end()
        self._selector.close()
