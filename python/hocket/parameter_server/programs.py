"""The programs of push and pull.

A server's part holds a buffer back until the server's own loop releases it: a collective of that server alone, executed
by the library `parameter_server`, which is how a program passes a buffer to the code that runs it.

Per key and worker there is one program, launched once an iteration at both ends. In it, per server that has a part of the key:

    worker: send gradient                     recv token, send token                     recv value
    server:      recv gradient, UPDATE, send token          recv token, LOOK UP, send value

UPDATE ends when the push is part of the parameter, LOOK UP when the value may be sent. The token is the server's count
of the key's updates.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from hocket._native import Builder, Engine, Memory, Program
from hocket.parameter_server.description import Description

LIBRARY = "library:parameter_server"
TOKEN_BYTES = 8

UPDATE, LOOK_UP = 1, 4
"""Ops of a server in a key's program."""

FIRST_LOOK_UP = 1
"""Op of a server in the program of a first pull."""

HEADER = 1
"""Op of a server in the program of a step."""


@dataclass(frozen=True)
class Part:
    """A rank's view of a loaded program."""

    number: int
    memory: dict[str, Memory]
    program: Program


@dataclass
class Loaded:
    """All programs of a training, by purpose; on a rank without a part in one, its memory is empty.

    `first` and `buffers` are launched once.
    """

    keys: dict[tuple[int, int], Part] = field(default_factory=dict)
    """By key and worker."""
    first: dict[tuple[int, int], Part] = field(default_factory=dict)
    """By key and worker, for workers that do not initialise it."""
    steps: dict[int, Part] = field(default_factory=dict)
    """By worker."""
    buffers: Part | None = None


def load(engine: Engine, rank: int, description: Description) -> Loaded:
    """Build, verify and load them, in the same order on all ranks; a rank's own buffers are allocated.

    Keys of the first layers have the most urgent programs.
    """
    loaded = Loaded()

    def add(program: Program, label: str, priority: int, given: dict[str, Memory]) -> Part:
        program.verify()
        own = {
            name: given.get(name) or engine.allocate(elements * (8 if dtype == "f64" else 1))
            for name, dtype, elements, _, _ in program.buffers(rank)
        }
        bound = {at: (memory, 0) for at, memory in enumerate(own.values())}
        return Part(engine.load(program, bound, priority=priority, label=label), own, program)

    for worker in range(description.workers):
        loaded.steps[worker] = add(step_program(description, worker), f"step of worker {worker}", 0, {})
    for key, worker in _pairs(description):
        label = f"{description.keys[key].name}, worker {worker}"
        part = add(key_program(description, key, worker), label, key, {})
        loaded.keys[key, worker] = part
        if worker != 0:
            # It lands where later values do; a server's part is its own, so that a request differs from a push.
            given = part.memory if rank == worker else {}
            program = first_pull_program(description, key, worker)
            loaded.first[key, worker] = add(program, f"first pull of {label}", key, given)
    if description.buffers_bytes and description.workers > 1:
        loaded.buffers = add(buffers_program(description), "initial buffers", 0, {})
    return loaded


def key_program(description: Description, key: int, worker: int) -> Program:
    """Push and pull of a key by a worker."""
    own = description.keys[key]
    builder = Builder(f"key.{key}.worker.{worker}", description.world)
    pieces = description.pieces[key]
    whole = own.elements * own.element_bytes
    push = builder.buffer(worker, "push", "u8", whole, "bound")
    pull = builder.buffer(worker, "pull", "u8", whole, "bound")
    tokens = builder.buffer(worker, "tokens", "u8", TOKEN_BYTES * len(pieces), "bound")
    for at, piece in enumerate(pieces):
        start, stop = piece.start * own.element_bytes, piece.stop * own.element_bytes
        size = stop - start
        server = description.workers + piece.server
        token = (tokens, TOKEN_BYTES * at, TOKEN_BYTES * (at + 1))
        _send(builder, worker, (push, start, stop), server, 0)
        _receive(builder, worker, token, server, 1)
        _send(builder, worker, token, server, 2)
        _receive(builder, worker, (pull, start, stop), server, 3)
        # One buffer for both: the conflict orders the hand-over before what follows.
        pushed = builder.buffer(server, "push", "u8", TOKEN_BYTES + size, "bound")
        _receive(builder, server, (pushed, TOKEN_BYTES, TOKEN_BYTES + size), worker, 0)
        _hand_over(builder, server, (pushed, 0, TOKEN_BYTES + size))
        _send(builder, server, (pushed, 0, TOKEN_BYTES), worker, 1)
        _serve_pull(builder, server, size, worker, 2)
    return builder.finish()


def first_pull_program(description: Description, key: int, worker: int) -> Program:
    """A pull of a key by a worker that has not pushed it."""
    own = description.keys[key]
    builder = Builder(f"first.{key}.worker.{worker}", description.world)
    pieces = description.pieces[key]
    pull = builder.buffer(worker, "pull", "u8", own.elements * own.element_bytes, "bound")
    tokens = builder.buffer(worker, "tokens", "u8", TOKEN_BYTES * len(pieces), "bound")
    for at, piece in enumerate(pieces):
        start, stop = piece.start * own.element_bytes, piece.stop * own.element_bytes
        server = description.workers + piece.server
        _send(builder, worker, (tokens, TOKEN_BYTES * at, TOKEN_BYTES * (at + 1)), server, 0)
        _receive(builder, worker, (pull, start, stop), server, 1)
        _serve_pull(builder, server, stop - start, worker, 0)
    return builder.finish()


def step_program(description: Description, worker: int) -> Program:
    """A worker's header to all servers: a step begins, or the worker leaves."""
    builder = Builder(f"step.worker.{worker}", description.world)
    elements = description.header_elements
    header = builder.buffer(worker, "header", "f64", elements, "bound")
    for at in range(description.servers):
        server = description.workers + at
        builder.send(worker, (header, 0, elements), server, 0, wire="f64", count=None, source=None)
        got = builder.buffer(server, "header", "f64", elements, "bound")
        builder.recv(server, (got, 0, elements), worker, 0, wire="f64", reduce=None, count=None, source=None)
        _hand_over(builder, server, (got, 0, elements))
    return builder.finish()


def buffers_program(description: Description) -> Program:
    """Worker 0's bytes to all other workers."""
    builder = Builder("buffers", description.world)
    size = description.buffers_bytes
    source = builder.buffer(0, "buffers", "u8", size, "bound")
    for worker in range(1, description.workers):
        _send(builder, 0, (source, 0, size), worker, 0)
        _receive(builder, worker, (builder.buffer(worker, "buffers", "u8", size, "bound"), 0, size), 0, 0)
    return builder.finish()


def _pairs(description: Description) -> Iterator[tuple[int, int]]:
    return ((key, worker) for key in range(len(description.keys)) for worker in range(description.workers))


def _serve_pull(builder: Builder, server: int, size: int, worker: int, tag: int) -> None:
    """The request arrives, is handed over, and the value is sent: messages `tag` and `tag + 1`."""
    pull = builder.buffer(server, "pull", "u8", TOKEN_BYTES + size, "bound")
    _receive(builder, server, (pull, 0, TOKEN_BYTES), worker, tag)
    _hand_over(builder, server, (pull, 0, TOKEN_BYTES + size))
    _send(builder, server, (pull, TOKEN_BYTES, TOKEN_BYTES + size), worker, tag + 1)


def _hand_over(builder: Builder, server: int, what: tuple[int, int, int]) -> None:
    builder.collective(
        server,
        "broadcast",
        what,
        members=[server],
        op="sum",
        scale=1.0,
        algorithm=LIBRARY,
        numbers=[],
        root=server,
        dst=None,
        source=None,
    )


def _send(builder: Builder, rank: int, what: tuple[int, int, int], peer: int, tag: int) -> None:
    builder.send(rank, what, peer, tag, wire="u8", count=None, source=None)


def _receive(builder: Builder, rank: int, what: tuple[int, int, int], peer: int, tag: int) -> None:
    builder.recv(rank, what, peer, tag, wire="u8", reduce=None, count=None, source=None)
