"""Parameter server: it holds its part of the parameters, applies the optimizer to workers' pushes, and answers their pulls.

`Consistency` decides which worker waits for which; here its effects are applied to memory. The loop is one thread: updates run one
after the other, in the order in which their pushes were complete.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from hocket import _native
from hocket.artefacts.dtypes import ITEM_BYTES
from hocket.artefacts.trace import append_metrics
from hocket.errors import PeerError, UsageError
from hocket.job.rendezvous import Job
from hocket.job.trace_writes import TraceWrites
from hocket.parameter_server import programs
from hocket.parameter_server.consistency import Acknowledge, Answer, Consistency, Effect, Initialise, Update
from hocket.parameter_server.description import Description, Key
from hocket.parameter_server.keys import Piece
from hocket.training.process import Process
from hocket.training.servers.rest import take_part

STEP, REST, LEAVE = 0.0, 1.0, 2.0
"""Values of a header's first number; the second is the iteration."""

LOOK_S = 0.2
"""Bound on how late a failure of the job is noticed while nothing arrives."""


class Shard(Protocol):
    """Part of a parameter on a server, and the framework's own optimizer that updates it. Values are bytes of its dtype."""

    def set(self, values: memoryview) -> None:
        """Set the first values."""

    def set_options(self, options: Mapping[str, Any]) -> None:
        """Set the optimizer's options from now on: learning rates and the like."""

    def update(self, gradients: Sequence[memoryview], divisor: int) -> None:
        """Make one step of the optimizer with the sum of the gradients over `divisor`."""

    def copy_into(self, memory: memoryview) -> None:
        """Write the current values."""


MakeShard = Callable[[str, str, int, Mapping[str, Any]], Shard]
"""Maker of a shard from an optimizer's name, an element type, a number of elements (zero at first) and options."""


def description_key(training: int) -> str:
    """Return the key of worker 0's description in the store."""
    return f"parameter_server/{training}/description"


Handler = Callable[[int, int, int, int], None]
"""Handler of an op that a program handed over: program, op, key, worker."""


@dataclass
class _Segment:
    """Elements of our piece of a key, with first and end byte, whose parameters are in one group of the optimizer."""

    shard: Shard
    start: int
    stop: int
    group: int
    numbers: list[float]
    """Current options of the group in the optimizer."""


@dataclass
class _Held:
    """Our piece of a key; `memory`, by worker: buffer in which its gradient lands, and from which its answer is sent."""

    segments: list[_Segment]
    staleness: int | None
    memory: dict[int, _native.Memory]

    def of(self, worker: int, segment: _Segment) -> memoryview:
        """Return a worker's part of a segment."""
        return memoryview(self.memory[worker])[segment.start : segment.stop]


@dataclass
class _Part:
    """Loaded program, and the ops at which it waits for us."""

    number: int
    ops: list[int]


class Server:
    """Server of a training, from the first push until the last worker leaves."""

    def __init__(
        self, job: Job, engine: _native.Engine, description: Description, make_shard: MakeShard
    ) -> None:
        """Load the programs without launching any."""
        self._make_shard = make_shard
        self._job, self._engine, self._description = job, engine, description
        index = job.rank - description.workers
        self._held = {
            at: self._hold(key, piece)
            for at, key in description.keys.items()
            for piece in key.pieces
            if piece.server == index
        }
        self._steps: dict[int, _Part] = {}
        self._headers: dict[int, memoryview[float]] = {}
        self._keys: dict[tuple[int, int], _Part] = {}
        self._first: dict[tuple[int, int], _Part] = {}
        """Programs of first values, by key and worker."""
        for worker in range(description.workers):
            self._load(worker)
        self._machine = Consistency(
            {key: held.staleness for key, held in self._held.items()}, description.workers
        )
        self._numbers: dict[int, list[list[float]]] = {}
        """Options of the iteration that a worker pushes, by worker, then by parameter group."""
        self._iteration: dict[int, int] = {}
        self._ahead: dict[int, int] = {}
        """Largest lead of each worker over the slowest one, when it was answered in its iteration."""
        self._goes_on = False
        """True if a worker has left this training, and not the job."""
        self._writes = TraceWrites("iterations of workers")
        self._since_s: dict[tuple[int, int], float] = {}
        """Time since which a push is not acknowledged, or a pull not answered, by key and worker."""
        self._pushes: dict[tuple[int, int], tuple[int, int]] = {}
        """Program and op that wait for the acknowledgement, by key and worker."""
        self._requests: dict[tuple[int, int], tuple[int, int]] = {}
        """Program and op that wait for the answer, by key and worker."""
        self._handlers = self._all_handlers()

    def run(self) -> bool:
        """Serve until all workers have left; return whether the job goes on. PeerError: a worker died, or delays others for too
        long."""
        for worker in range(self._description.workers):
            self._engine.launch(self._steps[worker].number)
            for key in self._held:
                self._engine.launch(self._first[key, worker].number)
        while self._machine.present:
            came = self._engine.next_external(LOOK_S)
            if came is None:
                # There are no such messages: the call raises when the job has failed.
                self._engine.next_message(0.0)
                self._check_waits()
                continue
            program, op = came[0], came[1]
            handle, key, worker = self._handlers[program, op]
            handle(program, op, key, worker)
        for part in (*self._steps.values(), *self._keys.values(), *self._first.values()):
            self._unload(part.number)
        return self._goes_on

    def _all_handlers(self) -> dict[tuple[int, int], tuple[Handler, int, int]]:
        found: dict[tuple[int, int], tuple[Handler, int, int]] = {}
        for worker, part in self._steps.items():
            found[part.number, part.ops[0]] = self._on_header, -1, worker
        for (key, worker), part in (*self._keys.items(), *self._first.items()):
            *pushed, pulled = part.ops
            found |= {(part.number, op): (self._on_push, key, worker) for op in pushed}
            found[part.number, pulled] = self._on_pull, key, worker
        return found

    def _hold(self, key: Key, piece: Piece) -> _Held:
        segments, item = [], key.element_bytes
        for start, stop, number in key.segments_of(piece):
            group = self._description.groups[number]
            numbers = group.flat()
            shard = self._make_shard(
                self._description.optimizer, key.dtype, stop - start, group.options(numbers)
            )
            segments.append(_Segment(shard, start * item, stop * item, number, numbers))
        memory = {
            worker: self._engine.allocate((len(piece) + 1) * item)
            for worker in range(self._description.workers)
        }
        return _Held(segments, key.staleness, memory)

    def _load(self, worker: int) -> None:
        """Load all programs that we run with a worker."""
        description = self._description
        header = self._engine.allocate(description.header_elements * ITEM_BYTES["f64"])
        self._headers[worker] = memoryview(header).cast("B").cast("d")
        step = programs.step_program(description, worker)
        number = programs.step_number(description, worker)
        self._engine.load(step, {0: (header, 0)}, priority=0, label=f"step of worker {worker}", number=number)
        self._steps[worker] = _Part(number, programs.handed_over(step, self._job.rank))
        for key, held in self._held.items():
            own, memory = description.keys[key], held.memory[worker]
            label = f"{own.name}, worker {worker}"
            program = programs.key_program(description, key, worker)
            number = programs.key_number(description, key, worker)
            self._keys[key, worker] = self._part(program, number, memory, own, label)
            program = programs.first_program(description, key, worker)
            number = programs.first_number(description, key, worker)
            self._first[key, worker] = self._part(program, number, memory, own, f"first value of {label}")

    def _part(
        self, program: _native.Program, number: int, memory: _native.Memory, key: Key, label: str
    ) -> _Part:
        bound = {0: (memory, 0)}
        self._engine.load(program, bound, priority=key.priority, label=label, number=number, cards=key.cards)
        return _Part(number, programs.handed_over(program, self._job.rank))

    def _on_header(self, program: int, op: int, _key: int, worker: int) -> None:
        """Begin a step, so that the worker's pushes may arrive; or let the worker leave."""
        kind, iteration, *numbers = (float(each) for each in self._headers[worker])
        self._engine.complete_external(program, op)
        self._note(worker)
        if kind != STEP:
            self._goes_on |= kind == REST
            self._do(self._machine.handle_leave(worker))
            return
        if iteration == 0:
            self._forget_first(worker)
        self._iteration[worker] = int(iteration)
        self._numbers[worker] = self._description.by_group(numbers)
        self._launch(program)
        for key in self._held:
            self._launch(self._keys[key, worker].number)

    def _launch(self, program: int) -> None:
        """Launch again; the native threads may still be counting the last op of the previous instance."""
        self._engine.wait(program, self._job.settings.timeout_s)
        self._engine.launch(program)

    def _forget_first(self, worker: int) -> None:
        for key, other in list(self._first):
            if other == worker:
                self._unload(self._first.pop((key, other)).number)

    def _unload(self, program: int) -> None:
        self._engine.wait(program, self._job.settings.timeout_s)
        self._engine.unload(program)

    def _on_push(self, program: int, op: int, key: int, worker: int) -> None:
        self._since_s[key, worker] = time.monotonic()
        self._pushes[key, worker] = program, op
        self._do(self._machine.handle_push(key, worker))

    def _on_pull(self, program: int, op: int, key: int, worker: int) -> None:
        self._since_s[key, worker] = time.monotonic()
        self._requests[key, worker] = program, op
        self._do(self._machine.handle_pull(key, worker))

    def _do(self, effects: list[Effect]) -> None:
        for effect in effects:
            held = self._held[effect.key]
            if isinstance(effect, Update):
                self._update(effect.key, held, effect.workers)
                continue
            worker = effect.worker
            if isinstance(effect, Initialise):
                for segment in held.segments:
                    segment.shard.set(held.of(worker, segment))
                continue
            del self._since_s[effect.key, worker]
            if isinstance(effect, Acknowledge):
                self._engine.complete_external(*self._pushes.pop((effect.key, worker)))
            else:
                self._answer(held, effect)

    def _update(self, key: int, held: _Held, workers: tuple[int, ...]) -> None:
        """Update a key. A push that is an update counts as its share of the mean: a learning rate has one meaning in all modes."""
        divisor = len(workers) if held.staleness == 0 else self._description.workers
        for segment in held.segments:
            self._set_numbers(key, segment, workers)
            segment.shard.update([held.of(worker, segment) for worker in workers], divisor)

    def _set_numbers(self, key: int, segment: _Segment, workers: tuple[int, ...]) -> None:
        """Give the optimizer the learning rate, and all other numbers, of the workers that made this push."""
        first, group = workers[0], self._description.groups[segment.group]
        numbers = self._numbers[first][segment.group]
        for other in workers[1:]:
            theirs = self._numbers[other][segment.group]
            if theirs != numbers:
                raise UsageError(
                    f"workers {first} and {other} push `{self._description.keys[key].name}` with different options of their "
                    f"optimizers: {group.options(numbers)} and {group.options(theirs)}\n"
                    "hint: a synchronous update has one learning rate: schedule it alike on all workers, or use a staleness"
                )
        if numbers != segment.numbers:
            segment.numbers = numbers
            segment.shard.set_options(group.options(numbers))

    def _answer(self, held: _Held, effect: Answer) -> None:
        program, op = self._requests.pop((effect.key, effect.worker))
        # A copy for each worker: others' pushes may change the value while it is in flight.
        for segment in held.segments:
            segment.shard.copy_into(held.of(effect.worker, segment))
        self._ahead[effect.worker] = max(self._ahead.get(effect.worker, 0), effect.ahead)
        self._engine.complete_external(program, op)

    def _note(self, worker: int) -> None:
        """Write the worker's last iteration into the trace, which is of the first training."""
        directory = None if self._description.training else self._job.settings.trace
        if directory is not None and worker in self._iteration:
            values = {
                "worker": worker,
                "iteration": self._iteration[worker],
                "ahead": self._ahead.get(worker, 0),
            }
            self._writes(functools.partial(append_metrics, Path(directory), self._job.rank, values))
        self._ahead[worker] = 0

    def _check_waits(self) -> None:
        if not self._since_s:
            return
        (key, worker), since_s = min(self._since_s.items(), key=lambda each: each[1])
        waited_s = time.monotonic() - since_s
        if waited_s < self._job.settings.timeout_s:
            return
        others = self._machine.waits_for(key, worker)
        named = ", ".join(f"rank {each} on {self._job.hosts[each]}" for each in others)
        raise PeerError(
            f"worker {worker} waits for `{self._description.keys[key].name}` since {waited_s:.0f} s: {named} did not push\n"
            "hint: they are stopped, or slower than HOCKET_TIMEOUT_S allows",
            rank=others[0] if others else None,
            host=self._job.hosts[others[0]] if others else None,
            why="timeout",
            missing=others,
        )


def serve(process: Process, workers: int, make_shard: MakeShard) -> None:
    """Serve `workers` until all have left the job."""
    take_part(process, functools.partial(_serve, process, workers, make_shard))


def _serve(process: Process, workers: int, make_shard: MakeShard, training: int) -> bool:
    """Serve one training; return whether the job goes on."""
    job = process.everyone
    description = Description.of_text(job.store.get(description_key(training), job.settings.start_timeout_s))
    if (description.workers, description.world) != (workers, job.world):
        raise UsageError(
            f"rank {job.rank} was started for {job.world - workers} parameter servers, rank 0 asks for {description.servers}\n"
            "hint: the same --servers or HOCKET_SERVERS on every rank"
        )
    return Server(job, process.engine, description, make_shard).run()
