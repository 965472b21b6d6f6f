"""Two engines, and a cable between them that can be faulty, cut or tapped."""

import contextlib
import socket
import struct
import threading
import uuid

import numpy as np

from hocket import _native
from hocket.artefacts.plan import AllReduce
from hocket.planning.compile import all_reduce_program

TIMEOUT_S = 20.0
ELEMENTS = 200_000


class Cable:
    """Passes bytes between a rank and the rank at `target`.

    After so many bytes towards the target one bit is wrong (`flip_at`), both ends are
    reset (`reset_at`), or nothing passes any more, and nobody is told (`mute_at`).
    """

    def __init__(self, target, flip_at=None, reset_at=None, mute_at=None):
        host, _, port = target.rpartition(":")
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self.listener.getsockname()[1]}"
        self.flip_at, self.reset_at, self.mute_at = flip_at, reset_at, mute_at
        self.muted = threading.Event()
        self.seen = bytearray()
        self.sockets = [self.listener]
        self.thread = threading.Thread(target=self.accept, args=((host, int(port)),), daemon=True)
        self.thread.start()

    def accept(self, target):
        with contextlib.suppress(OSError):
            caller, _ = self.listener.accept()
            called = socket.create_connection(target, TIMEOUT_S)
            self.sockets += [caller, called]
            threading.Thread(target=self.carry, args=(called, caller, False), daemon=True).start()
            self.carry(caller, called, True)

    def carry(self, source, target, forth):
        with contextlib.suppress(OSError):
            carried = 0
            while data := bytearray(source.recv(1 << 16)):
                start, carried = carried, carried + len(data)
                here = [forth and at is not None and start <= at < carried for at in self.faults()]
                if here[0]:
                    data[self.flip_at - start] ^= 0x10
                if here[1]:
                    # No time to linger: what is closed is reset. The other direction must not end in order first.
                    self.muted.set()
                    for each in (source, target):
                        each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                        each.shutdown(socket.SHUT_RD)
                        each.close()
                    return
                if here[2]:
                    self.muted.set()
                self.seen += data
                if not self.muted.is_set():
                    target.sendall(data)
            if not self.muted.is_set():
                target.shutdown(socket.SHUT_WR)

    def faults(self):
        return self.flip_at, self.reset_at, self.mute_at

    def close(self):
        for each in self.sockets:
            each.close()


def exchange(flip_at=None, *, reset_at=None, mute_at=None, **options):
    """What each of two ranks got of an all-reduce over a cable: an error, or the sums; and all bytes that crossed it."""
    job = uuid.uuid4().hex
    made = [
        _native.Engine(
            rank=rank, world=2, job=job, secret=b"s", host=f"h{rank}", bind=["127.0.0.1"], **options
        )
        for rank in range(2)
    ]
    cable = Cable(made[0].addresses[0], flip_at, reset_at, mute_at)
    program = all_reduce_program(
        world=2,
        elements=ELEMENTS,
        dtype="f32",
        op="sum",
        scale=1.0,
        route=AllReduce(algorithm="ring"),
    )
    outcomes = [None, None]

    def train(rank):
        engine = made[rank]
        try:
            # Rank 1 calls rank 0, through the cable.
            engine.connect([([cable.address], "h0"), (made[1].addresses, "h1")], TIMEOUT_S)
            memory = engine.allocate(4 * ELEMENTS)
            values = np.frombuffer(memory, np.float32)
            values[:] = rank + 1
            number = engine.load(program, {0: (memory, 0)}, priority=0, label="bucket 3")
            engine.launch(number)
            engine.wait(number, TIMEOUT_S)
            outcomes[rank] = values.copy()
        except Exception as error:
            outcomes[rank] = error

    threads = [threading.Thread(target=train, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(2 * TIMEOUT_S)
    closers = [threading.Thread(target=engine.close) for engine in made]
    for thread in closers:
        thread.start()
    for thread in closers:
        thread.join(TIMEOUT_S)
    cable.close()
    return outcomes, bytes(cable.seen)
