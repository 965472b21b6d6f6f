"""Ranks that train nothing and own parts of buckets (helpers): in each step they launch their part of the buckets' programs.

Worker 0 says in a header when a step begins, when other buckets are loaded, and when training has ended, to rest or to leave. It
leaves the description of these buckets in the store. A helper needs no model and no framework: its memory is that of the programs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec
from msgspec import Struct

from hocket import _native, typed
from hocket._native import Builder, Program
from hocket.artefacts.dtypes import ITEM_BYTES
from hocket.artefacts.plan import Plan
from hocket.errors import UsageError
from hocket.job.rendezvous import Job
from hocket.planning.compile import bucket_program
from hocket.training.memory.helpers import HEADER, number
from hocket.training.process import Process
from hocket.training.servers.rest import PATIENCE_S, begin_training, end_training, take_part

STEP, LOAD, REST, LEAVE = 0.0, 1.0, 2.0, 3.0
"""Values of the header's first number; its second one is the epoch that is in force."""

HEADER_ELEMENTS = 2


class Helped(Struct, frozen=True, kw_only=True):
    """Description of an epoch for helpers: the plan; and of each bucket of which they own something, its number, and the lengths of
    the pieces of memory in which it lies."""

    plan: Plan
    lengths: tuple[tuple[int, tuple[int, ...]], ...]


def _key(training: int, epoch: int) -> str:
    """Return the key of a training's epoch in the store."""
    return f"helpers/{training}/{epoch}"


def header_program(world: int, workers: int) -> Program:
    """Return the verified program of worker 0's header to all helpers."""
    builder = Builder("header of helpers", world)
    mine = builder.buffer(0, "header", "f64", HEADER_ELEMENTS, "bound")
    for helper in range(workers, world):
        theirs = builder.buffer(helper, "header", "f64", HEADER_ELEMENTS, "bound")
        whole = (0, HEADER_ELEMENTS)
        builder.send(0, (mine, *whole), helper, 0, wire="f64", count=None, source=None)
        builder.recv(helper, (theirs, *whole), 0, 0, wire="f64", reduce=None, count=None, source=None)
    program = builder.finish()
    program.verify()
    return program


@dataclass
class _Header:
    engine: _native.Engine

    def __post_init__(self) -> None:
        memory = self.engine.allocate(HEADER_ELEMENTS * ITEM_BYTES["f64"])
        self.values = memoryview(memory).cast("B").cast("d")
        self._memory = memory

    def load(self, world: int, workers: int) -> None:
        bound = {0: (self._memory, 0)}
        program = header_program(world, workers)
        self.engine.load(program, bound, priority=0, label="header of helpers", number=HEADER)


class Helpers:
    """Helpers of a training, as workers see them. All workers make one object; worker 0's sends headers."""

    def __init__(self, process: Process) -> None:
        """Load the header's program; helpers wait for the description that `loaded` stores."""
        self._process, self._training = process, begin_training(process)
        self._job, self._store = process.job, process.job.store
        self._engine, self._left = process.engine, False
        self._header: _Header | None = None
        if process.job.rank == 0:
            self._header = _Header(process.engine)
            self._header.load(process.everyone.world, process.job.world)

    def loaded(self, plan: Plan, lengths: Mapping[int, Sequence[int]], epoch: int) -> None:
        """Describe an epoch's buckets, which are loaded on this rank. `lengths`: see `Helped`."""
        if self._header is None:
            return
        told = Helped(plan=plan, lengths=tuple((at, tuple(each)) for at, each in lengths.items()))
        self._store.set(_key(self._training, epoch), msgspec.to_builtins(told))
        if epoch:
            self._send(LOAD, epoch)

    def begin(self, epoch: int) -> None:
        self._send(STEP, epoch)

    def dismiss(self) -> None:
        """Let helpers end this training, and wait until they have."""
        if self._header is not None:
            self._send(REST, 0)
            self._engine.wait(HEADER, self._job.settings.timeout_s)
            self._engine.unload(HEADER)
        end_training(self._process)

    def leave(self) -> None:
        """Tell helpers that the job ends."""
        if self._header is not None and not self._left:
            self._left = True
            self._send(LEAVE, 0)
            self._engine.wait(HEADER, self._job.settings.timeout_s)

    def _send(self, kind: float, epoch: int) -> None:
        if self._header is None:
            return
        self._engine.wait(HEADER, self._job.settings.timeout_s)
        self._header.values[0], self._header.values[1] = kind, epoch
        self._engine.launch(HEADER)


class Helper:
    """Helper of a training, until worker 0 says that it has ended."""

    def __init__(self, job: Job, engine: _native.Engine, workers: int, training: int) -> None:
        """Load the programs of the first epoch. `training`: its number."""
        self._job, self._engine, self._training = job, engine, training
        self._header = _Header(engine)
        self._header.load(job.world, workers)
        self._programs: list[int] = []
        self._load(0, workers)

    def run(self) -> bool:
        """Help until the end; return whether the job goes on. PeerError: a rank died, or did not take part in a step."""
        while True:
            self._engine.launch(HEADER)
            self._engine.wait(HEADER, PATIENCE_S)
            kind, epoch = self._header.values[0], int(self._header.values[1])
            if kind == LEAVE:
                return False
            if kind == REST:
                for each in (HEADER, *self._programs):
                    self._engine.unload(each)
                return True
            if kind == LOAD:
                self._load(epoch, None)
                continue
            for program in self._programs:
                self._engine.launch(program)
            for program in self._programs:
                self._engine.wait(program, self._job.settings.timeout_s)

    def _load(self, epoch: int, workers: int | None) -> None:
        given = self._job.store.get(_key(self._training, epoch), self._job.settings.start_timeout_s)
        told = typed.of_builtins(given, Helped)
        if workers is not None and (told.plan.world, len(told.plan.workers)) != (self._job.world, workers):
            raise UsageError(
                f"rank {self._job.rank} was started for {self._job.world - workers} helpers, the plan of rank 0 has "
                f"{told.plan.world - len(told.plan.workers)}\nhint: the same --helpers or HOCKET_HELPERS on every rank"
            )
        before, self._programs = self._programs, []
        for bucket, lengths in told.lengths:
            own = told.plan.buckets[bucket]
            program = bucket_program(bucket, told.plan, lengths)
            kinds = [each for each in program.buffers(self._job.rank) if each[3] == "bound"]
            bound = {
                at: (self._engine.allocate(elements * ITEM_BYTES[dtype]), 0)
                for at, (_, dtype, elements, *_) in enumerate(kinds)
            }
            self._programs.append(
                self._engine.load(
                    program,
                    bound,
                    priority=own.priority,
                    label=f"bucket {bucket} of epoch {epoch}",
                    number=number(bucket, epoch),
                    cards=own.cards,
                )
            )
        for each in before:
            self._engine.unload(each)


def help_training(process: Process, workers: int) -> None:
    """Help `workers` until the job ends."""
    take_part(process, lambda training: Helper(process.everyone, process.engine, workers, training).run())
