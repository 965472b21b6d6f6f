"""Handle of the testbed's switch: it starts the process, queries its counters, and ends it."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import IO

import msgspec

from hocket.errors import TestbedError
from hocket.tools.testbed import switch_program
from hocket.tools.testbed.switched import CLONE_DEVICE, NO_DEVICE, Order

START_TIMEOUT_S = 15.0
STOP_TIMEOUT_S = 5.0
ANSWER_TIMEOUT_S = 5.0


@dataclass(frozen=True)
class Carried:
    """Frames carried so far: a batch of segments counts as one. `link_bytes`: by link, in the order of `Order.links`.

    `overflowed`: dropped by full queues; `unknown`: sent to addresses of no host; `refused`: by the host's own device.
    """

    delivered: int
    lost: int
    overflowed: int
    unknown: int
    refused: int
    link_bytes: tuple[int, ...]


class Switch:
    """Running switch process. It dies with this one, however this one ends."""

    def __init__(self, order: Order, enter: Sequence[str]) -> None:
        """Start the switch. `enter`: the command in front that gives it the privileges for the hosts' namespaces.

        TestbedError has the reason of a failure.
        """
        switch_program.find()
        argv = [
            *enter,
            "setpriv",
            "--pdeathsig",
            "KILL",
            sys.executable,
            "-m",
            "hocket.tools.testbed.switch",
        ]
        self._process = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,
        )
        try:
            self._tell(msgspec.json.encode(order) + b"\n")
            reply = self._answer(START_TIMEOUT_S)
            if reply != "ready":
                raise TestbedError(f"the testbed's switch says `{reply}`")
        except BaseException:
            self.close()
            raise

    def carried(self) -> Carried:
        self._tell(b"?")
        delivered, lost, overflowed, unknown, refused, *link_bytes = map(
            int, self._answer(ANSWER_TIMEOUT_S).split()
        )
        return Carried(delivered, lost, overflowed, unknown, refused, tuple(link_bytes))

    def check(self) -> None:
        """Raise TestbedError if the switch has ended: it has carried nothing since."""
        if self._process.poll() is not None:
            raise self._ended()

    def close(self) -> None:
        """End the process; idempotent."""
        self._process.kill()
        self._process.communicate(timeout=STOP_TIMEOUT_S)

    def _tell(self, data: bytes) -> None:
        try:
            while data:
                data = data[_stream(self._process.stdin).write(data) :]
        except OSError:
            raise self._ended() from None

    def _answer(self, timeout_s: float) -> str:
        line, stream = b"", _stream(self._process.stdout).fileno()
        while not line.endswith(b"\n"):
            if not select.select([stream], [], [], timeout_s)[0]:
                raise TestbedError(f"the testbed's switch did not answer within {timeout_s:g} s")
            more = os.read(stream, 65_536)
            if not more:
                raise self._ended()
            line += more
        return line.decode().rstrip("\n")

    def _ended(self) -> TestbedError:
        """Return the error with the switch's own message."""
        status = self._process.wait(STOP_TIMEOUT_S)
        words = _stream(self._process.stderr).read().decode(errors="replace").strip()
        if status == NO_DEVICE:
            return TestbedError(words, lacks=CLONE_DEVICE)
        return TestbedError(f"the testbed's switch ended: {words}")


def _stream(stream: IO[bytes] | None) -> IO[bytes]:
    assert stream is not None  # noqa: S101  # all three are pipes
    return stream
