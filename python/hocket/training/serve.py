"""A parameter server: holds its part of the parameters, applies the optimizer to workers' pushes, answers their pulls.

`Consistency` decides which worker waits for which; here its effects are applied to memory. The loop is one thread:
updates run one after the other, in the order in which their pushes were complete.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import msgspec

from hocket import _native
from hocket.artefacts.trace import append_metrics
from hocket.errors import PeerError, UsageError
from hocket.launch.rendezvous import Job
from hocket.parameter_server import programs
from hocket.parameter_server.choice import ParameterServer
from hocket.parameter_server.consistency import Acknowledge, Answer, Consistency, Effect, Initialise, Update
from hocket.parameter_server.description import Description
from hocket.parameter_server.programs import TOKEN_BYTES
from hocket.training.process import Process

DESCRIPTION = "parameter_server/description"
"""The store's key of worker 0's description."""

STEP, LEAVE = 0.0, 1.0
"""First number of a header; the second is the iteration."""

LOOK_S = 0.2
"""Bounds how late a failure of the job is noticed while nothing arrives."""


class Shard(Protocol):
    """A server's part of a parameter, and the framework's own optimizer that updates it. Values are bytes of its dtype."""

    def set(self, values: memoryview) -> None:
        """The first values."""

    def set_options(self, options: Mapping[str, Any]) -> None:
        """Set the optimizer's options from now on: learning rates and the like."""

    def update(self, gradients: Sequence[memoryview], divisor: int) -> None:
        """One step of the optimizer with the sum of the gradients over `divisor`."""

    def copy_into(self, memory: memoryview) -> None:
        """The current values."""


MakeShard = Callable[[str, str, int, Mapping[str, Any]], Shard]
"""Makes a shard from an optimizer's name, an element type, a number of elements (zero at first) and options."""

Handler = Callable[[int, int, int, int], None]
"""An op that a program handed over: program, op, key, worker."""


@dataclass
class _Held:
    """Our part of a key.

    By worker: where its gradient lands, our count of updates as sent with the acknowledgement, and its answer's source.
    """

    shard: Shard
    group: int
    numbers: list[float]
    """Current options of the group in the optimizer."""
    updates: int = 0
    pushed: dict[int, memoryview] = field(default_factory=dict)
    tokens: dict[int, memoryview] = field(default_factory=dict)
    answers: dict[int, memoryview] = field(default_factory=dict)


class Server:
    """One server of a training, from the first push until the last worker leaves."""

    def __init__(
        self, job: Job, engine: _native.Engine, description: Description, make_shard: MakeShard
    ) -> None:
        """Load the programs; nothing is launched."""
        self._make_shard = make_shard
        self._job, self._engine, self._description = job, engine, description
        self._loaded = programs.load(engine, job.rank, description)
        index = job.rank - description.workers
        self._held = {
            key: self._hold(key, len(piece))
            for key, pieces in enumerate(description.pieces)
            for piece in pieces
            if piece.server == index
        }
        self._machine = Consistency(self._held, description.workers, description.staleness)
        self._numbers: dict[int, list[list[float]]] = {}
        """By worker, then by parameter group: the options of the iteration that it pushes."""
        self._iteration: dict[int, int] = {}
        self._ahead: dict[int, int] = {}
        """By worker: its largest lead over the slowest worker, when it was answered in its iteration."""
        self._since_s: dict[tuple[int, int], float] = {}
        """By key and worker: since when a push is not acknowledged, or a pull not answered."""
        self._requests: dict[tuple[int, int], tuple[int, int, memoryview]] = {}
        """By key and worker: program and op that wait for the answer, and its source."""
        self._handlers = self._all_handlers()

    def run(self) -> None:
        """Serve until all workers have left. PeerError: one died, or delays others for too long."""
        for worker in range(self._description.workers):
            self._engine.launch(self._loaded.steps[worker].number)
            first = self._loaded.keys if worker == 0 else self._loaded.first
            for key in self._held:
                self._engine.launch(first[key, worker].number)
        while self._machine.present:
            came = self._engine.next_external(LOOK_S)
            if came is None:
                # There are no such messages: it raises when the job has failed.
                self._engine.next_message(0.0)
                self._check_waits()
                continue
            program, op = came[0], came[1]
            handle, key, worker = self._handlers[program, op]
            handle(program, op, key, worker)

    def _all_handlers(self) -> dict[tuple[int, int], tuple[Handler, int, int]]:
        found: dict[tuple[int, int], tuple[Handler, int, int]] = {}
        for worker, part in self._loaded.steps.items():
            found[part.number, programs.HEADER] = self._on_header, -1, worker
        for (key, worker), part in self._loaded.keys.items():
            found[part.number, programs.UPDATE] = self._on_push, key, worker
            found[part.number, programs.LOOK_UP] = self._on_pull, key, worker
        for (key, worker), part in self._loaded.first.items():
            found[part.number, programs.FIRST_LOOK_UP] = self._on_first_pull, key, worker
        return found

    def _hold(self, key: int, elements: int) -> _Held:
        own = self._description.keys[key]
        group = self._description.groups[own.group]
        numbers = group.flat()
        shard = self._make_shard(self._description.optimizer, own.dtype, elements, group.options(numbers))
        held = _Held(shard, own.group, numbers)
        for worker in range(self._description.workers):
            memory = self._loaded.keys[key, worker].memory
            pushed = memoryview(memory["push"])
            held.tokens[worker] = pushed[:TOKEN_BYTES].cast("q")
            held.pushed[worker] = pushed[TOKEN_BYTES:]
            held.answers[worker] = memoryview(memory["pull"])[TOKEN_BYTES:]
        return held

    def _on_header(self, program: int, op: int, _key: int, worker: int) -> None:
        """A step begins, so that the worker's pushes may arrive; or the worker leaves."""
        header = memoryview(self._loaded.steps[worker].memory["header"]).cast("B").cast("d")
        kind, iteration, *numbers = (float(each) for each in header)
        self._engine.complete_external(program, op)
        self._note(worker)
        if kind == LEAVE:
            self._do(self._machine.handle_leave(worker))
            return
        if iteration == 0:
            self._forget_first_pulls(worker)
        self._iteration[worker] = int(iteration)
        self._numbers[worker] = self._description.by_group(numbers)
        self._launch(program)
        for key in self._held:
            self._launch(self._loaded.keys[key, worker].number)

    def _launch(self, program: int) -> None:
        """Launch again; the native threads may still be counting the last op of the previous instance."""
        self._engine.wait(program, self._job.settings.timeout_s)
        self._engine.launch(program)

    def _forget_first_pulls(self, worker: int) -> None:
        for key, other in list(self._loaded.first):
            if other == worker:
                part = self._loaded.first.pop((key, other))
                self._engine.wait(part.number, self._job.settings.timeout_s)
                self._engine.unload(part.number)

    def _on_push(self, _program: int, _op: int, key: int, worker: int) -> None:
        self._since_s[key, worker] = time.monotonic()
        self._do(self._machine.handle_push(key, worker))

    def _on_pull(self, program: int, op: int, key: int, worker: int) -> None:
        self._ask(key, worker, (program, op, self._held[key].answers[worker]))

    def _on_first_pull(self, program: int, op: int, key: int, worker: int) -> None:
        memory = self._loaded.first[key, worker].memory["pull"]
        self._ask(key, worker, (program, op, memoryview(memory)[TOKEN_BYTES:]))

    def _ask(self, key: int, worker: int, request: tuple[int, int, memoryview]) -> None:
        self._since_s[key, worker] = time.monotonic()
        self._requests[key, worker] = request
        self._do(self._machine.handle_pull(key, worker))

    def _do(self, effects: list[Effect]) -> None:
        for effect in effects:
            held = self._held[effect.key]
            if isinstance(effect, Update):
                self._set_numbers(effect.key, effect.workers)
                self._update(held, effect.workers)
                continue
            worker = effect.worker
            if isinstance(effect, Initialise):
                held.shard.set(held.pushed[worker])
                continue
            del self._since_s[effect.key, worker]
            if isinstance(effect, Acknowledge):
                held.tokens[worker][0] = held.updates
                self._engine.complete_external(self._loaded.keys[effect.key, worker].number, programs.UPDATE)
            else:
                self._answer(held, effect)

    def _set_numbers(self, key: int, workers: tuple[int, ...]) -> None:
        """The optimizer gets the learning rate, and all other numbers, of the workers whose push this is."""
        held = self._held[key]
        first = workers[0]
        numbers = self._numbers[first][held.group]
        for other in workers[1:]:
            if self._numbers[other][held.group] != numbers:
                group = self._description.groups[held.group]
                raise UsageError(
                    f"workers {first} and {other} push `{self._description.keys[key].name}` with different options of their "
                    f"optimizers: {group.options(numbers)} and {group.options(self._numbers[other][held.group])}\n"
                    "hint: a synchronous update has one learning rate: schedule it alike on all workers, or use a staleness"
                )
        if numbers != held.numbers:
            held.numbers = numbers
            held.shard.set_options(self._description.groups[held.group].options(numbers))

    def _update(self, held: _Held, workers: tuple[int, ...]) -> None:
        """If each push is an update, it counts as its share of the mean: a learning rate has one meaning in all modes."""
        divisor = len(workers) if self._description.staleness == 0 else self._description.workers
        held.shard.update([held.pushed[worker] for worker in workers], divisor)
        held.updates += 1

    def _answer(self, held: _Held, effect: Answer) -> None:
        program, op, into = self._requests.pop((effect.key, effect.worker))
        # A copy for each worker: others' pushes may change the value while it is in flight.
        held.shard.copy_into(into)
        self._ahead[effect.worker] = max(self._ahead.get(effect.worker, 0), effect.ahead)
        self._engine.complete_external(program, op)

    def _note(self, worker: int) -> None:
        """The worker's last iteration, in the trace."""
        directory = self._job.settings.trace
        if directory is not None and worker in self._iteration:
            values = {
                "worker": worker,
                "iteration": self._iteration[worker],
                "ahead": self._ahead.get(worker, 0),
            }
            append_metrics(Path(directory), self._job.rank, values)
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


def serve(process: Process, choice: ParameterServer, make_shard: MakeShard) -> None:
    """Serve until all workers have left; a failure is reported to the job with its reason."""
    job = process.job
    try:
        workers = choice.workers(job.world)
        # All ranks connect at once: workers must not wait for us here while we wait for their description.
        engine = process.engine
        description = msgspec.convert(job.store.get(DESCRIPTION, job.settings.start_timeout_s), Description)
        if (description.workers, description.servers) != (workers, choice.servers):
            raise UsageError(
                f"rank {job.rank} was started for {choice.servers} parameter servers, rank 0 asks for {description.servers}\n"
                "hint: the same --servers or HOCKET_SERVERS on every rank"
            )
        Server(job, engine, description, make_shard).run()
    except BaseException as error:
        process.abort(f"{type(error).__name__}: {error}")
        raise
    process.close()
