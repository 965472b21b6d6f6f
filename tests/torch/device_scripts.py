"""Scripts of ranks of `test_device_backend.py`: the backend on the hostile device, against tensors of the CPU."""

import functools
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from datetime import timedelta
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

import hocket.torch as hk
from hocket.torch.backend.staging import Block, Place, Visit
from hocket.torch.devices import Landing, Streams
from tests.torch import hostile

RANK, WORLD = int(os.environ.get("HOCKET_RANK", "0")), int(os.environ.get("HOCKET_WORLD", "1"))
ELEMENTS = (1003, 1, 1003, 70_001, 1003, 1, 1003, 0)
DTYPES = (
    torch.float32,
    torch.bfloat16,
    torch.float16,
    torch.int8,
    torch.bool,
    torch.complex64,
    torch.float8_e4m3fn,
)
MOODS = tuple(hostile.MOODS)
PLANTED_SEEDS = 1000
"""Seeds within which each order that is not kept must be noticed."""
TELL_S = 5.0
"""Time between two lines about a long run."""
Put = Callable[[torch.Tensor], torch.Tensor]
Calls = list[tuple[str, list[torch.Tensor]]]

PLANTED: dict[str, Any] = {
    "a copy down before what it copies": (Streams, "made", lambda *_: None),
    "the host reads before a copy has come": (
        Visit,
        "bring",
        lambda visit, _limit_s: visit._down or visit._begin(),
    ),
    "host memory is used again before its copy up": (Block, "is_free", True),
    "work before what it is told to wait for": (Landing, "received", lambda _: None),
    "a copy down before a call that writes there has ended": (Visit, "_awaits_others", lambda _: False),
    "a copy down before what went up": (Place, "brought", property(lambda _: None, lambda *_: None)),
    "memory of the device is free while a copy goes there": (Streams, "share", lambda *_: None),
}
"""Orders that are not kept: each is what takes the place of an attribute."""


@contextmanager
def group(store: str, backend: str = "hocket", hosts: int = 1, timeout_s: float = 60) -> Iterator[None]:
    """The default group, on `hosts` hosts of neighbouring ranks."""
    os.environ["HOCKET_HOST"] = f"h{RANK * hosts // WORLD}"
    dist.init_process_group(
        backend,
        init_method=f"file://{store}",
        rank=RANK,
        world_size=WORLD,
        timeout=timedelta(seconds=timeout_s),
    )
    try:
        yield
    finally:
        dist.destroy_process_group()


def device() -> torch.device:
    return torch.device(hostile.NAME, RANK % 4)


@functools.cache
def made(kind: str, dtype: torch.dtype, elements: int) -> torch.Tensor:
    """Numbers of this rank, other ones for each kind of call, that stay as they are."""
    draw = torch.Generator().manual_seed(hash_of(f"{kind} {dtype} {elements} {RANK}"))
    if dtype.is_complex:
        return torch.randn(elements, dtype=dtype, generator=draw)
    numbers = torch.randn(elements, generator=draw) * 3
    return (numbers > 0) if dtype == torch.bool else numbers.to(dtype)


def hash_of(text: str) -> int:
    return int.from_bytes(text.encode(), "little") % (1 << 31)


class Caller:
    """Collectives and messages, one after the other and nobody looking in between. `put`: where tensors are."""

    def __init__(self, put: Put, dtype: torch.dtype, elements: int) -> None:
        self.put, self.dtype, self.elements = put, dtype, elements
        self.done: Calls = []

    def new(self, kind: str, many: int = 1) -> torch.Tensor:
        return self.put(made(kind, self.dtype, many * self.elements))

    def blank(self, many: int = 1) -> torch.Tensor:
        return self.put(torch.zeros(many * self.elements, dtype=self.dtype))

    def blanks(self) -> list[torch.Tensor]:
        return [self.blank() for _ in range(WORLD)]

    def note(self, name: str, *tensors: torch.Tensor) -> None:
        """Keep what calls gave, by work that follows, as a script's would."""
        self.done.append(
            (
                f"{name} of {self.elements} {self.dtype}",
                [each.clone(memory_format=torch.contiguous_format) for each in tensors],
            )
        )

    def now_and_later(self) -> None:
        for asynchronous in (False, True):
            one = self.new("all_reduce")
            work = dist.all_reduce(one, async_op=asynchronous)
            if work is not None:
                work.wait()
            self.note(f"all_reduce {asynchronous}", one)
            whole, before = self.blank(WORLD), self.new("before", WORLD)
            whole.copy_(before)
            read = whole.clone()
            work = dist.all_gather_into_tensor(whole, one, async_op=asynchronous)
            if work is not None:
                work.get_future().wait()
            self.note(f"all_gather_into_tensor {asynchronous}", whole, read)

    def untold(self) -> None:
        # A chain of which only the end is awaited.
        one, parts = self.new("chain"), self.blanks()
        dist.all_reduce(one, async_op=True)
        dist.broadcast(one, WORLD - 1, async_op=True)
        dist.all_gather(parts, one, async_op=True).wait()
        self.note("a chain", *parts)
        # A temporary tensor that nobody keeps or waits for, and one that takes its memory, looked at in the end. The group has the
        # first until its next call.
        work = dist.all_reduce(self.new("dropped"), async_op=True)
        work._complete.wait()
        del work
        dist.barrier(async_op=True).wait()
        self.next = torch.zeros_like(one)
        with dist._coalescing_manager(device=one.device, async_ops=True) as several:
            one, two = self.new("one"), self.new("two")
            dist.all_reduce(one)
            dist.all_reduce(two)
        several.wait()
        self.note("coalesced", one, two)

    def sums(self) -> None:
        both, whole = self.blank(), self.new("scattered", WORLD)
        dist.reduce_scatter_tensor(both, whole)
        self.note("reduce_scatter_tensor", both)
        dist.reduce_scatter(both, [self.new(f"piece {at}") for at in range(WORLD)], op=dist.ReduceOp.AVG)
        self.note("reduce_scatter", both)
        strided = self.new("strided", 2).view(self.elements, 2)[:, 1]
        dist.all_reduce(strided)
        self.note("strided", strided)
        one = self.new("factor")
        dist.all_reduce(one, op=dist._make_nccl_premul_sum(self.put(torch.tensor(0.5))))
        self.note("premul_sum", one)

    def moves(self) -> None:
        one = self.new("reduce")
        dist.reduce(one, 0)
        self.note("reduce", one)
        one, two = self.new("broadcast"), self.new("another")
        dist.broadcast(one, 1)
        dist.broadcast(two, 1)
        self.note("broadcasts", one, two)
        parts, both = self.blanks(), self.blank()
        dist.gather(self.new("gather"), parts if RANK == 1 else None, dst=1)
        self.note("gather", *parts)
        dist.scatter(both, [self.new(f"scatter {at}") for at in range(WORLD)] if RANK == 0 else None, src=0)
        self.note("scatter", both)
        into = self.blank(WORLD)
        dist.all_to_all_single(into, self.new("exchanged", WORLD))
        self.note("all_to_all_single", into)
        dist.all_to_all(parts, [self.new(f"exchanged {at}") for at in range(WORLD)])
        self.note("all_to_all", *parts)

    def messages(self) -> None:
        # The second is of the CPU, and comes after the first.
        there, back = (RANK + 1) % WORLD, (RANK - 1) % WORLD
        sent = [
            dist.isend(each, there) for each in (self.new("sent"), made("host", self.dtype, self.elements))
        ]
        first, second = self.blank(), torch.zeros(self.elements, dtype=self.dtype)
        for work in [dist.irecv(first, back), dist.irecv(second, back), *sent]:
            work.wait()
        self.note("messages", first, second)
        self.note("the next tensor", self.next)


def called(put: Put, dtype: torch.dtype, elements: int) -> Calls:
    caller = Caller(put, dtype, elements)
    caller.now_and_later()
    caller.untold()
    if dtype == torch.float32:
        caller.sums()
    caller.moves()
    caller.messages()
    return caller.done


@functools.cache
def expected(dtype: torch.dtype, elements: int) -> Calls:
    """Return what calls give on the CPU, whatever the device's mood: made once, on all ranks at the same time."""
    return called(torch.clone, dtype, elements)


def differing(where: torch.device, dtype: torch.dtype, elements: int) -> list[str]:
    """Calls that give other bits on the device."""
    wanted = expected(dtype, elements)
    # All of it late.
    found = called(lambda each: each.to(where, non_blocking=True).clone(), dtype, elements)
    torch.accelerator.synchronize(where)
    return [
        name
        for (name, right), (_, got) in zip(wanted, found, strict=True)
        if any(not same(one, two.cpu()) for one, two in zip(right, got, strict=True))
    ]


@functools.cache
def other_stream() -> torch.Stream:
    """Return the one beside the default stream. The memory of each stream's tensors is used again on that stream alone."""
    return torch.Stream(device=device())


def compared(
    at: int, mood: str, dtype: torch.dtype, elements: int, *, side: bool = False, streams: bool = True
) -> list[str]:
    """Calls that give other bits on the device, given by its default stream or another one. `at`: the seed, of all ranks."""
    hostile.loaded(10 * at + RANK, mood, streams=streams)
    where = device()
    with other_stream() if side else nullcontext():
        return [f"{mood} {at}: {name}" for name in differing(where, dtype, elements)]


def drawn(at: int) -> list[str]:
    """Calls that give other bits with one seed. Each 56 in turn have each type in all sizes, each 840 all of these in all moods and
    from both streams: the cycles have no common factor."""
    mood, dtype = MOODS[at % len(MOODS)], DTYPES[at % len(DTYPES)]
    return compared(at, mood, dtype, ELEMENTS[at % len(ELEMENTS)], side=at % 5 < 2)


def same(one: torch.Tensor, two: torch.Tensor) -> bool:
    return torch.equal(one.view(torch.uint8), two.view(torch.uint8))


def calls(store: str, hosts: str, seeds: str) -> list[str]:
    """All calls that give other bits, by so many seeds."""
    many, wrong = int(seeds), []
    with group(store, hosts=int(hosts)):
        began_s = told_s = time.monotonic()
        for at in range(many):
            found = drawn(at)
            wrong += found
            now_s = time.monotonic()
            if found or (RANK == 0 and now_s - told_s > TELL_S):
                told_s, spent_s = now_s, now_s - began_s
                say(
                    f"{at + 1} of {many} seeds on {WORLD} ranks of {hosts} hosts in {spent_s:.0f} s, "
                    f"{spent_s * (many / (at + 1) - 1):.0f} s left; wrong on rank {RANK}: {wrong or 'none'}"
                )
    return wrong


def say(line: str) -> None:
    print(line, flush=True)  # noqa: T201  # for whoever waits


def planted(store: str, name: str) -> list[str]:
    """Calls that go wrong when an order is not kept, with the first seed by which a rank has such calls."""
    kind, attribute, instead = PLANTED[name]
    with group(store, timeout_s=10), mock.patch.object(kind, attribute, instead, create=True):
        for at in range(PLANTED_SEEDS):
            found = drawn(at)
            # By memory of the host, whose orders are kept.
            anywhere = torch.tensor(len(found))
            dist.all_reduce(anywhere)
            if anywhere > 0:
                return found
    return []


def streamless(store: str) -> list[str]:
    """Calls that go wrong on a device without streams."""
    with group(store):
        return [
            name
            for at, dtype in enumerate(DTYPES)
            for name in compared(at, "any", dtype, 1003, streams=False)
        ]


def beside(store: str, backend: str) -> list[Any]:
    """Which backend has the CPU and the device in a group, and what each adds up."""
    hostile.loaded(RANK)
    found: list[Any] = []
    with group(store, backend):
        within = dist.new_group([0, 1])
        for each in (dist.group.WORLD, within):
            for where in (torch.device("cpu"), device()):
                one = torch.full((5,), RANK + 1.0, device=where)
                dist.all_reduce(one, group=each)
                if RANK:
                    dist.send(one * 2, 0, group=each)
                else:
                    dist.recv(one, 1, group=each)
                found.append([each._get_backend(where).name(), one.tolist()])
        dist.barrier()
        gathered: list[Any] = [None, None]
        dist.all_gather_object(gathered, {"rank": RANK})
        found.append(gathered)
    return found


def chosen(store: str) -> list[Any]:
    """What PyTorch chooses for the device by itself, and a mesh of it."""
    hostile.loaded(RANK)
    hk.backend.register()
    torch.accelerator.set_device_index(device())
    dist.init_process_group(init_method=f"file://{store}", rank=RANK, world_size=WORLD, device_id=device())
    mesh = init_device_mesh(hostile.NAME, (WORLD,))
    split = distribute_tensor(torch.arange(8.0, device=device()), mesh, [Shard(0)])
    found = [dist.get_backend(), (split * 2).full_tensor().tolist()]
    dist.destroy_process_group()
    return found


class Never:
    """Event after a copy that does not come."""

    def __init__(self, *_: object) -> None:
        pass

    def query(self) -> bool:
        return False

    def synchronize(self) -> None:
        pass


def refused(store: str) -> list[str]:
    """Texts of errors."""
    hostile.loaded(RANK)
    texts = []
    with group(store, timeout_s=2):
        for tensors in (
            [torch.zeros(3, device=device()), torch.zeros(3)],
            [torch.zeros(3, device="hostile:1"), torch.zeros(3, device="hostile:2")],
            [torch.zeros(3, device="meta"), torch.zeros(3, device="meta")],
        ):
            try:
                dist.all_gather_into_tensor(torch.cat([tensors[0]] * WORLD), tensors[1])
            except RuntimeError as error:
                texts.append(f"{type(error).__name__}: {error}")
        with mock.patch.object(Streams, "down", Never):
            try:
                dist.all_reduce(torch.zeros(3, device=device()))
            except RuntimeError as error:
                texts.append(f"{type(error).__name__}: {error}")
    return texts
