"""Gloo and NCCL through torch.distributed, apart from the script's own use of it: own store, own groups.

NCCL moves GPU memory: elements are copied there and back on a stream that belongs to the communicator.
"""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.distributed as dist
from torch.distributed import PrefixStore, TCPStore  # type: ignore[attr-defined]

from hocket.errors import PeerError, UsageError
from hocket.job.rendezvous import Job
from hocket.job.store import address as addresses
from hocket.libraries.call import Call, Elements, place
from hocket.libraries.presence import Presence

REDUCTIONS = {"sum": dist.ReduceOp.SUM, "min": dist.ReduceOp.MIN, "max": dist.ReduceOp.MAX}
LOCAL_REDUCTIONS: dict[str, Callable[..., torch.Tensor]] = {
    "sum": torch.sum,
    "min": torch.amin,
    "max": torch.amax,
}
POLL_S = 50e-6
"""Interval between polls of a stream: CUDA has no wait with a deadline."""
BACKLOG = 1024
WAIT_S_MIN = 1e-3
"""Least time-out: torch takes zero milliseconds for none."""

Finish = Callable[[], None]
"""Work that is left when the collective is complete."""


class Communicator(NamedTuple):
    """A process group of torch, and the stream of its copies and collectives (NCCL)."""

    group: Any
    stream: torch.cuda.Stream | None


def serve_store(host: str, timeout: timedelta) -> TCPStore:
    """Make a torch store that listens only at that address: by default, torch listens on all interfaces."""
    with socket.socket(addresses.family(host), socket.SOCK_STREAM) as listener:
        listener.bind((host, 0))
        listener.listen(BACKLOG)
        return TCPStore(
            host,
            listener.getsockname()[1],
            is_master=True,
            timeout=timeout,
            wait_for_workers=False,
            master_listen_fd=listener.detach(),
        )


class TorchDistributed:
    """One process group per group of ranks."""

    def __init__(self, backend: str, job: Job) -> None:
        """Connect to rank 0's store, through which communicators are created; every rank must call this."""
        self._place = place(job, backend)
        if backend == "nccl" and not (torch.cuda.is_available() and dist.is_nccl_available()):
            raise UsageError(f"{self._place} needs a GPU and a PyTorch with NCCL\nhint: use `gloo`")
        if not dist.is_available() or (backend == "gloo" and not dist.is_gloo_available()):
            raise UsageError(
                f"{self._place} is not in this PyTorch\nhint: install one with torch.distributed"
            )
        self._backend, self._job = backend, job
        self._presence = Presence(job, backend)
        # `Presence` gives up a little earlier, since it knows names; NCCL's watchdog even ends the process.
        self._timeout = timedelta(seconds=job.settings.timeout_s)
        self._communicators: dict[tuple[int, ...], Communicator] = {}
        try:
            self._store = self._meet()
        except (RuntimeError, OSError) as error:
            raise PeerError(f"{self._place}: its store at rank 0 cannot be reached: {error}") from None

    def run(self, call: Call, elements: Elements, into: Elements | None) -> None:
        """See `Library.run`."""
        if call.what == "all_to_all" and into is None:
            raise UsageError(f"{self._place}, {call}: needs a destination")
        communicator = self._communicator(call)
        stream = communicator.stream
        on_stream = contextlib.nullcontext() if stream is None else torch.cuda.stream(stream)
        with on_stream:
            whole = _tensor(elements, call.dtype, stream)
            target = whole if into is None else _tensor(into, call.dtype, stream)
            try:
                works, finish = self._start(communicator.group, call, whole, target)
            except dist.DistError as error:  # NCCL connects at a group's first collective
                raise PeerError(f"{self._place}, {call}: {error}") from None
            except (RuntimeError, ValueError, TypeError) as error:
                raise UsageError(
                    f"{self._place}, {call}: is refused: {error}\nhint: another library, dtype or reduction, or the native wire"
                ) from None
            try:
                self._presence.wait(call, lambda within_s: _complete(works, stream, within_s))
            except RuntimeError as error:
                raise PeerError(f"{self._place}, {call}: {error}") from None
            finish()
            if stream is not None:
                _bytes(elements)[:] = whole.view(torch.uint8).cpu().numpy()
                if into is not None:
                    _bytes(into)[:] = target.view(torch.uint8).cpu().numpy()

    def close(self) -> None:
        """Release the groups; their threads end."""
        self._communicators.clear()

    def _meet(self) -> Any:
        job, key = self._job, f"library/{self._backend}"
        if job.rank != 0:
            host, port = job.store.get(key, job.settings.start_timeout_s)
            return TCPStore(host, port, is_master=False, timeout=self._timeout)
        store = serve_store(job.bind, self._timeout)
        job.store.set(key, [job.bind, store.port])
        return store

    def _communicator(self, call: Call) -> Communicator:
        known = self._communicators.get(call.group)
        if known is None:
            self._presence.meet(call)
            try:
                known = self._make(call.group)
            except RuntimeError as error:
                raise PeerError(f"{self._place}, {call}: no communicator: {error}") from None
            self._communicators[call.group] = known
        return known

    def _make(self, ranks: tuple[int, ...]) -> Communicator:
        store = PrefixStore(f"{self._backend}/{ranks}", self._store)
        own = ranks.index(self._job.rank)
        if self._backend == "gloo":
            options = dist.ProcessGroupGloo._Options()  # type: ignore[attr-defined]
            options._timeout = self._timeout
            options._devices = [dist.ProcessGroupGloo.create_device(hostname=self._job.bind)]
            return Communicator(dist.ProcessGroupGloo(store, own, len(ranks), options), None)
        device = torch.device("cuda", self._job.local_rank % torch.cuda.device_count())
        settings = dist.ProcessGroupNCCL.Options()
        settings._timeout = self._timeout
        group = dist.ProcessGroupNCCL(store, own, len(ranks), settings)
        return Communicator(group, torch.cuda.Stream(device))

    def _start(  # noqa: PLR0911  # a case per collective
        self, group: Any, call: Call, whole: torch.Tensor, target: torch.Tensor
    ) -> tuple[list[Any], Finish]:
        own = call.group.index(self._job.rank)
        root = -1 if call.root is None else call.group.index(call.root)
        pieces = _pieces(whole, len(call.group))
        longest = max(map(len, pieces))
        if not longest and call.what != "barrier":
            return [], _nothing
        match call.what:
            case "all_reduce":
                options = dist.AllreduceOptions()
                options.reduceOp = REDUCTIONS[call.reduce]
                return [group.allreduce([whole], options)], _nothing
            case "reduce_scatter":
                return self._reduce_scatter(group, call, pieces)
            case "reduce_to":
                reduce = dist.ReduceOptions()
                reduce.reduceOp, reduce.rootRank = REDUCTIONS[call.reduce], root
                return [group.reduce([whole], reduce)], _nothing
            case "broadcast":
                return [_broadcast(group, whole, root)], _nothing
            case "scatter":
                scatter = dist.ScatterOptions()
                scatter.rootRank = root
                part = whole.new_empty(longest)
                brought = [[_padded(piece, longest) for piece in pieces]] if own == root else []
                return [group.scatter([part], brought, scatter)], _copying([pieces[own]], [part])
            case "all_gather":
                # One broadcast per part allows any lengths, sends each byte once, and needs no memory beside the
                # buffer.
                return [
                    _broadcast(group, each, at) for at, each in enumerate(pieces) if each.numel()
                ], _nothing
            case "gather":
                gather = dist.GatherOptions()
                gather.rootRank = root
                parts = [[whole.new_empty(longest) for _ in pieces]] if own == root else []
                work = group.gather(parts, [_padded(pieces[own], longest)], gather)
                return [work], _copying(pieces, parts[0]) if parts else _nothing
            case "all_to_all":
                return [group.alltoall_base(target, whole, [], [], dist.AllToAllOptions())], _nothing
            case "barrier":
                barrier = dist.BarrierOptions()
                if whole.is_cuda:
                    barrier.device_ids = [whole.device.index]  # otherwise NCCL guesses one
                return [group.barrier(barrier)], _nothing
        raise UsageError(f"{self._place}, {call}: there is no such collective")

    def _reduce_scatter(self, group: Any, call: Call, pieces: list[torch.Tensor]) -> tuple[list[Any], Finish]:
        own = call.group.index(self._job.rank)
        longest = max(map(len, pieces))
        if self._backend == "nccl":
            options = dist.ReduceScatterOptions()
            options.reduceOp = REDUCTIONS[call.reduce]
            part = pieces[own].new_empty(longest)
            even = torch.cat([_padded(piece, longest) for piece in pieces])
            return [group._reduce_scatter_base(part, even, options)], _copying([pieces[own]], [part])
        # torch's reduce-scatter for Gloo is an all-reduce inside, of twice the bytes: an all-to-all brings everyone's
        # part instead.
        length = len(pieces[own])
        every = pieces[own].new_empty(length * len(pieces))
        splits = [length] * len(pieces), [len(piece) for piece in pieces]
        work = group.alltoall_base(every, torch.cat(pieces), *splits, dist.AllToAllOptions())

        def finish() -> None:
            by_rank = every.view(len(pieces), length)
            pieces[own].copy_(LOCAL_REDUCTIONS[call.reduce](by_rank, dim=0))

        return [work], finish


def _nothing() -> None:
    """Do nothing: the results are in place."""


def _copying(to: Sequence[torch.Tensor], parts: Sequence[torch.Tensor]) -> Finish:
    """Make a function that copies parts without their padding."""

    def finish() -> None:
        for piece, part in zip(to, parts, strict=True):
            piece.copy_(part[: len(piece)])

    return finish


def _padded(piece: torch.Tensor, longest: int) -> torch.Tensor:
    """Pad a piece to the longest one's length: these collectives require equal lengths."""
    if len(piece) == longest:
        return piece
    padded = piece.new_zeros(longest)
    padded[: len(piece)] = piece
    return padded


def _complete(works: list[Any], stream: torch.cuda.Stream | None, within_s: float) -> bool:
    deadline_s = time.monotonic() + within_s
    for work in works:
        if stream is not None:
            work.wait()  # makes the stream wait, not this thread
            continue
        try:
            work.wait(timedelta(seconds=max(deadline_s - time.monotonic(), WAIT_S_MIN)))
        except RuntimeError:
            if not work.is_completed():
                return False
            work.wait()  # raises the collective's error, unless it was only late
    while stream is not None and not stream.query():
        if time.monotonic() > deadline_s:
            return False
        time.sleep(POLL_S)
    return True


def _broadcast(group: Any, tensor: torch.Tensor, root: int) -> Any:
    options = dist.BroadcastOptions()
    options.rootRank, options.rootTensor = root, 0
    return group.broadcast([tensor], options)


def _pieces(whole: torch.Tensor, n: int) -> list[torch.Tensor]:
    return list(whole.tensor_split([len(whole) * at // n for at in range(1, n)]))


def _tensor(elements: Elements, dtype: str, stream: torch.cuda.Stream | None) -> torch.Tensor:
    tensor = torch.from_numpy(np.asarray(elements))
    if dtype == "bf16":
        tensor = tensor.view(torch.bfloat16)
    return tensor if stream is None else tensor.to(stream.device)


def _bytes(elements: Elements) -> Elements:
    return elements.view(np.uint8)
