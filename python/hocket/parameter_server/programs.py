"""The programs of push and pull.

A server's part holds a buffer back until the server's own loop releases it: a collective of that server alone, executed
by the library `parameter_server`, which is how a program passes a buffer to the code that runs it.

Per key and worker there is one program, launched once an iteration at both ends. In it, per server that has a piece of the key:

    worker: send gradient                     recv token, send token                     recv value
    server:      recv gradient, UPDATE, send token          recv token, LOOK UP, send value

UPDATE ends when the push is part of the parameter, LOOK UP when the value may be sent. The value lands where the gradient
was. The token carries no data; it is an element behind the piece's elements, so that UPDATE and LOOK UP, which use both, are
ordered with the token.

Only the two ends load a program, under a number that follows from worker and key.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate

import msgspec

from hocket._native import Builder, PassOptions, Program
from hocket.errors import UsageError
from hocket.parameter_server.description import Description, Key

Range = tuple[int, int, int]
"""Buffer, first element and end element."""

LIBRARY = "library:parameter_server"

NUMBERS = 1 << 19
"""Limit of a training's programs."""
FIRST_NUMBER = (1 << 32) - 2 * NUMBERS
"""First number of the programs: they have the last numbers that ranks may choose. The first training, which may have a trace, has
numbers of its own; later ones share theirs, one after the other."""


def step_number(description: Description, worker: int) -> int:
    return FIRST_NUMBER + (NUMBERS if description.training else 0) + worker


def key_number(description: Description, key: int, worker: int) -> int:
    """Number of the program of a key's pushes and pulls by a worker."""
    return step_number(description, description.workers * (1 + key) + worker)


def first_number(description: Description, key: int, worker: int) -> int:
    """Number of the program of a key's first value and a worker; above those of all keys."""
    return key_number(description, max(description.keys, default=0) + 1 + key, worker)


def check_numbers(description: Description) -> None:
    """Raise UsageError if there are too many programs."""
    needed = description.workers * (1 + 2 * (max(description.keys, default=0) + 1))
    if needed > NUMBERS:
        raise UsageError(
            f"{len(description.keys)} keys of {description.workers} workers are {needed} programs, and parameter servers can tell "
            f"{NUMBERS} apart\nhint: larger buckets"
        )


def key_program(description: Description, key: int, worker: int) -> Program:
    """Push and pull of a key by a worker, verified. The worker binds the key's elements, a server its piece and a token."""
    return _proven(_key(description, key, worker), _options(description.keys[key]))


def key_stages(description: Description, key: int, worker: int) -> dict[str, Program]:
    """Programs of a key and worker after each pass, in order, keyed by the pass's name."""
    built = _key(description, key, worker)
    return {"build": built, **built.stages(_options(description.keys[key]))}


def _key(description: Description, key: int, worker: int) -> Program:
    own = description.keys[key]
    builder = Builder(f"key.{key}.worker.{worker}", description.world)
    whole = _whole(builder, own, worker)
    for piece in own.pieces:
        mine, servers = _ends(builder, own, worker, description.workers + piece.server)
        size, token = len(piece), mine.buffer(f"token.{piece.server}", 1, "scratch")
        mine.send((whole, piece.start, piece.stop), 0)
        mine.receive((token, 0, 1), 1)
        mine.send((token, 0, 1), 2)
        mine.receive((whole, piece.start, piece.stop), 3)
        part = servers.buffer("piece", size + 1, "bound")
        servers.receive((part, 0, size), 0)
        _hand_over(builder, servers.rank, (part, 0, size + 1))
        servers.send((part, size, size + 1), 1)
        _serve_pull(servers, part, size, 2)
    _apart(builder, own, worker, whole)
    return builder.finish()


def first_program(description: Description, key: int, worker: int) -> Program:
    """A key's first value, verified: worker 0 pushes and pulls it, others pull it, and nothing is rounded. Buffers are bound as in
    `key_program`."""
    plain = msgspec.structs.replace(description.keys[key], codec="none", links=())
    built = _key(description, key, worker) if worker == 0 else _pull(description, key, worker)
    return _proven(built, _options(plain))


def _pull(description: Description, key: int, worker: int) -> Program:
    own = description.keys[key]
    builder = Builder(f"first.{key}.worker.{worker}", description.world)
    whole = _whole(builder, own, worker)
    for piece in own.pieces:
        mine, servers = _ends(builder, own, worker, description.workers + piece.server)
        # The request carries no data: any element will do, as the value overwrites it.
        mine.send((whole, piece.start, piece.start + 1), 0)
        mine.receive((whole, piece.start, piece.stop), 1)
        _serve_pull(servers, servers.buffer("piece", len(piece) + 1, "bound"), len(piece), 0)
    _apart(builder, own, worker, whole)
    return builder.finish()


def step_program(description: Description, worker: int) -> Program:
    """A worker's header to all servers, verified: a step begins, or the worker leaves."""
    builder = Builder(f"step.worker.{worker}", description.world)
    elements = description.header_elements
    header = builder.buffer(worker, "header", "f64", elements, "bound")
    for at in range(description.servers):
        server = description.workers + at
        builder.send(worker, (header, 0, elements), server, 0, wire="f64", count=None, source=None)
        got = builder.buffer(server, "header", "f64", elements, "bound")
        builder.recv(server, (got, 0, elements), worker, 0, wire="f64", reduce=None, count=None, source=None)
        _hand_over(builder, server, (got, 0, elements))
    program = builder.finish()
    program.verify()
    return program


def handed_over(program: Program, rank: int) -> list[int]:
    """The ops at which a server's part waits for the server's loop, in order."""
    return [at for at, op in enumerate(program.ops(rank)) if "library" in op]


def _whole(builder: Builder, key: Key, worker: int) -> int:
    """The buffer of a key's elements; if these lie in several places, the first buffers, they are copied together."""
    if len(key.lengths) < 2:
        return builder.buffer(worker, "key", key.dtype, key.elements, "bound")
    for at, length in enumerate(key.lengths):
        builder.buffer(worker, f"key.{at}", key.dtype, length, "bound")
    whole = builder.buffer(worker, "key", key.dtype, key.elements, "scratch")
    for (at, length), start in _places(key):
        builder.copy(worker, (at, 0, length), (whole, start, start + length), casts=False, source=None)
    return whole


def _apart(builder: Builder, key: Key, worker: int, whole: int) -> None:
    if len(key.lengths) < 2:
        return
    for (at, length), start in _places(key):
        builder.copy(worker, (whole, start, start + length), (at, 0, length), casts=False, source=None)


def _places(key: Key) -> Iterator[tuple[tuple[int, int], int]]:
    """Number, length and first element in the whole of each place."""
    return zip(enumerate(key.lengths), accumulate(key.lengths, initial=0), strict=False)


def _options(key: Key) -> PassOptions:
    """Options with the key's codec on its links, and messages of whole pieces: servers need whole pieces, and frames are
    interleaved."""
    return PassOptions(
        chunk_bytes=max(1, (key.elements + 1) * key.element_bytes),
        codec=None if key.codec == "none" else key.codec,
        codec_links=key.links,
    )


def _proven(built: Program, options: PassOptions) -> Program:
    program = built.compiled(options)
    program.verify()
    return program


@dataclass(frozen=True)
class _End:
    """One of two ranks that exchange elements of a type."""

    builder: Builder
    rank: int
    peer: int
    dtype: str

    def buffer(self, name: str, elements: int, kind: str) -> int:
        return self.builder.buffer(self.rank, name, self.dtype, elements, kind)

    def send(self, what: Range, tag: int) -> None:
        self.builder.send(self.rank, what, self.peer, tag, wire=self.dtype, count=None, source=None)

    def receive(self, what: Range, tag: int) -> None:
        self.builder.recv(
            self.rank, what, self.peer, tag, wire=self.dtype, reduce=None, count=None, source=None
        )


def _ends(builder: Builder, key: Key, worker: int, server: int) -> tuple[_End, _End]:
    return _End(builder, worker, server, key.dtype), _End(builder, server, worker, key.dtype)


def _serve_pull(server: _End, part: int, size: int, tag: int) -> None:
    """Receive the request, hand it over, and send the value: messages `tag` and `tag + 1`."""
    server.receive((part, size, size + 1), tag)
    _hand_over(server.builder, server.rank, (part, 0, size + 1))
    server.send((part, 0, size), tag + 1)


def _hand_over(builder: Builder, server: int, what: Range) -> None:
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
