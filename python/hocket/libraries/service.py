"""The thread that runs a job's library collectives, in the order of programs and ops, which is the same on all ranks.

Libraries need the same order of calls on all ranks, while programs become ready in any order: a collective that is
ready early waits.
"""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable, Sequence

import numpy as np

from hocket import _native
from hocket.errors import Error
from hocket.job.rendezvous import Job
from hocket.libraries.call import DTYPES, Call, Elements, Library
from hocket.libraries.catalogue import open_library

LOOK_S = 0.2
"""Longest delay until the end of the job is noticed."""


class Service:
    """Runner of the collectives of each loaded program; `expect` announces the programs to be launched next."""

    def __init__(self, job: Job, engine: _native.Engine, fail: Callable[[str], None]) -> None:
        """Begin without programs. `fail` ends the job."""
        self._job, self._engine, self._fail = job, engine, fail
        self._calls: dict[int, list[tuple[int, Call, str]]] = {}
        self._libraries: dict[str, Library] = {}
        self._due: list[tuple[int, int]] = []
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def learn(self, number: int, program: _native.Program) -> None:
        """Register a loaded program, and open the libraries that it needs, on every rank."""
        own = program.ops(self._job.rank)
        buffers = program.buffers(self._job.rank)
        calls = [
            (
                at,
                Call(op["op"], tuple(op["group"]), op["reduce"], op["root"], buffers[op["slice"][0]][1]),
                op["library"],
            )
            for at, op in enumerate(own)
            if "library" in op
        ]
        # Includes libraries that only other ranks use: opening one is collective.
        names = {
            op["library"] for rank in range(program.world) for op in program.ops(rank) if "library" in op
        }
        for name in sorted(names - set(self._libraries)):
            self._libraries[name] = open_library(name, self._job)
        if calls:
            self._calls[number] = calls

    def forget(self, number: int) -> None:
        self._calls.pop(number, None)

    def expect(self, numbers: Sequence[int]) -> None:
        """Expect one launch of each of these programs: their collectives run in this order."""
        due = [(number, op) for number in numbers for op, _, _ in self._calls.get(number, ())]
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
        except Error as error:
            self._fail(f"{type(error).__name__}: {error}")
        except Exception as error:
            text = "".join(traceback.format_exception(error))
            self._fail(f"rank {self._job.rank}: a library failed: {text}")

    def _turn(self) -> tuple[int, int] | None:
        with self._lock:
            return self._due[0] if self._due else None

    def _do(self, turn: tuple[int, int], window: _native.Window, into: _native.Window | None) -> None:
        number, op = turn
        call, name = next((call, name) for at, call, name in self._calls[number] if at == op)
        if call.dtype not in DTYPES:
            raise Error(f"library `{name}`, {call}: takes {', '.join(DTYPES)}\nhint: cast before")
        self._libraries[name].run(
            call, _elements(window, call), None if into is None else _elements(into, call)
        )
        self._engine.complete_external(number, op)


def _elements(window: _native.Window, call: Call) -> Elements:
    # NumPy has no buffer of zero bytes.
    if len(window) == 0:
        return np.empty(0, DTYPES[call.dtype])
    return np.frombuffer(memoryview(window), dtype=DTYPES[call.dtype])
