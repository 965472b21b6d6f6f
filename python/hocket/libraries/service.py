"""The thread that runs a job's library collectives, in the order of programs and ops, which is the same on all ranks.

Libraries need the same order of calls on all ranks, while programs become ready in any order: a collective that is
ready early waits.
"""

from __future__ import annotations

import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from hocket import _native
from hocket.errors import Error, PeerError, UsageError
from hocket.job.rendezvous import Job
from hocket.libraries.call import DTYPES, Call, Elements, JobEnded, Lent, Library
from hocket.libraries.catalogue import open_library
from hocket.policy.libraries import ON_DEVICE


class Due(NamedTuple):
    """One rank's part of a call: its op, and how many calls of all ranks come one after the other until this one has been."""

    op: int
    call: Call
    library: str
    depth: int


LOOK_S = 0.2
"""Longest delay until the end of the job is noticed."""
TOLD_S = 1.0
"""Time within which links tell of a rank that is gone, whose connections a library has seen close."""


class Service:
    """Runner of the collectives of each loaded program; `expect` announces the programs to be launched next."""

    def __init__(
        self,
        job: Job,
        engine: _native.Engine,
        fail: Callable[[str], None],
        lend: Callable[[_native.Window], Lent],
    ) -> None:
        """Begin without programs. `fail` ends the job. `lend`: returns the device's memory whose twin some of the host's is."""
        self._job, self._engine, self._fail, self._lend = job, engine, fail, lend
        self._calls: dict[int, list[Due]] = {}
        self._libraries: dict[str, Library] = {}
        self._due: list[tuple[int, int]] = []
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def learn(self, number: int, program: _native.Program) -> None:
        """Register a program as it is loaded, and open the libraries that it needs, on every rank.

        UsageError: a library of the device is to work on memory of the host, while gradients are on a device.
        """
        calls = calls_of(program)
        # Includes libraries that only other ranks use: opening one is collective.
        names = {each.library for own in calls for each in own}
        for name in sorted(names - set(self._libraries)):
            self._libraries[name] = open_library(name, self._job, lambda: self._engine.blamed is not None)
        if calls[self._job.rank]:
            self._calls[number] = calls[self._job.rank]

    def forget(self, number: int) -> None:
        self._calls.pop(number, None)

    def expect(self, numbers: Sequence[int]) -> None:
        """Expect one launch of each of these programs.

        Their collectives run in this order, but the first ones of all programs before the second ones: what a program does
        in between, such as sending, does not keep the next from beginning.
        """
        all_due = [
            (each.depth, number, each.op) for number in numbers for each in self._calls.get(number, ())
        ]
        # Stable, so that programs of equal depth keep their order.
        due = [(number, op) for _, number, op in sorted(all_due, key=lambda each: each[0])]
        if not due:
            return
        with self._lock:
            self._due += due
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="hocket-libraries", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """End the thread, then the libraries."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join(2 * LOOK_S)
        for library in self._libraries.values():
            library.close()

    def _run(self) -> None:
        ready: dict[tuple[int, int], tuple[_native.Window, _native.Window | None]] = {}
        try:
            while not self._stopped.is_set():
                came = self._engine.next_external(LOOK_S)
                if came is not None:
                    ready[came[0], came[1]] = came[2], came[3]
                while (turn := self._turn()) in ready:
                    windows = ready.pop(turn)
                    self._do(turn, *windows)
                    with self._lock:
                        self._due.pop(0)
            return
        except JobEnded:
            pass
        except Error as error:
            if not self._is_told(error):
                self._fail(f"{type(error).__name__}: {error}")
        except Exception as error:
            text = "".join(traceback.format_exception(error))
            self._fail(f"rank {self._job.rank}: a library failed: {text}")
        # Others may never come to what is under way on the device, which the script may go on to use.
        for library in self._libraries.values():
            library.close()

    def _is_told(self, error: Error) -> bool:
        """Return whether all know already why the job ends: a library sees a connection close, and not whose it was."""
        until_s = time.monotonic() + (TOLD_S if isinstance(error, PeerError) and error.rank is None else 0.0)
        while self._engine.blamed is None and time.monotonic() < until_s:
            time.sleep(TOLD_S / 100)
        return self._engine.blamed is not None

    def _turn(self) -> tuple[int, int] | None:
        with self._lock:
            return self._due[0] if self._due else None

    def _do(self, turn: tuple[int, int], window: _native.Window, into: _native.Window | None) -> None:
        number, op = turn
        due = next(each for each in self._calls[number] if each.op == op)
        call = due.call
        if call.dtype not in DTYPES:
            raise Error(f"library `{due.library}`, {call}: takes {', '.join(DTYPES)}\nhint: cast before")
        self._libraries[due.library].run(
            call, self._memory(window, call), None if into is None else self._memory(into, call)
        )
        self._engine.complete_external(number, op)

    def _memory(self, window: _native.Window, call: Call) -> Elements | Lent:
        return self._lend(window) if call.on_device and len(window) else _elements(window, call)


def calls_of(program: _native.Program) -> list[list[Due]]:
    """Return the calls of libraries in a program, by rank, in the order of its ops."""
    found: list[list[Due]] = [[] for _ in range(program.world)]
    for rank, own in enumerate(found):
        buffers = program.buffers(rank)
        staged = any(space == "device" for *_, space in buffers)
        for at, op in enumerate(program.ops(rank)):
            if "library" not in op:
                continue
            _, dtype, _, _, space = buffers[op["slice"][0]]
            call = Call(op["op"], tuple(op["group"]), op["reduce"], op["root"], dtype, space == "device")
            if staged and op["library"] == ON_DEVICE and not call.on_device:
                raise UsageError(
                    f"library `{ON_DEVICE}`, {call}: works on gradients themselves, and was given what the policy made of them, "
                    "which is in the host's memory\nhint: leave this one to `gloo` or the native wire"
                )
            own.append(Due(at, call, op["library"], 0))
    return _deepened(found)


def _deepened(calls: list[list[Due]]) -> list[list[Due]]:
    """Return the calls with their depths: one more than those of all calls that their ranks have before them."""
    found: list[list[Due]] = [[] for _ in calls]
    while left := [own[len(known)] for own, known in zip(calls, found, strict=True) if len(known) < len(own)]:
        begun = Counter(each.call.group for each in left)
        # One that all its ranks come to next: the verifier has shown that there is one.
        group = next(group for group, many in begun.items() if many == len(group))
        depth = 1 + max((found[rank][-1].depth for rank in group if found[rank]), default=0)
        for rank in group:
            found[rank].append(calls[rank][len(found[rank])]._replace(depth=depth))
    return found


def _elements(window: _native.Window, call: Call) -> Elements:
    # NumPy has no buffer of zero bytes.
    if len(window) == 0:
        return np.empty(0, DTYPES[call.dtype])
    return np.frombuffer(memoryview(window), dtype=DTYPES[call.dtype])
