"""Gloo, NCCL and whatever else a device has, through torch.distributed, apart from the script's own use: own store and groups.

Those of devices work on a stream that belongs to the communicator. What is on the device stays there; elements of the host are
copied to the GPU for NCCL, and back.
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
from torch._C._distributed_c10d import AllgatherOptions, _DistributedBackendOptions
from torch.distributed import PrefixStore, TCPStore  # type: ignore[attr-defined]

from hocket.errors import PeerError, UsageError
from hocket.job.rendezvous import Job
from hocket.job.store import address as addresses
from hocket.libraries.call import DTYPES, Call, Elements, JobEnded, Lent, place
from hocket.libraries.presence import Presence
from hocket.policy.libraries import ON_DEVICE

REDUCTIONS = {"sum": dist.ReduceOp.SUM, "min": dist.ReduceOp.MIN, "max": dist.ReduceOp.MAX}
LOCAL_REDUCTIONS: dict[str, Callable[..., torch.Tensor]] = {
    "sum": torch.sum,
    "min": torch.amin,
    "max": torch.amax,
}
POLL_S = 50e-6
"""Interval between polls of an event: CUDA has no wait with a deadline."""
BACKLOG = 1024
WAIT_S_MIN = 1e-3
"""Least time-out: torch takes zero milliseconds for none."""

Finish = Callable[[], None]
"""Work that is left when the collective is complete."""


class Communicator(NamedTuple):
    """A process group of torch, and the stream of its copies and collectives on a device that has some."""

    group: Any
    device: torch.device | None = None
    stream: Any = None

    def current(self) -> contextlib.AbstractContextManager[object]:
        """Let the calling thread give its work to the stream."""
        if self.stream is None:
            return contextlib.nullcontext()
        found: contextlib.AbstractContextManager[object] = torch.get_device_module(self.device).stream(
            self.stream
        )
        return found


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

    def __init__(self, backend: str, job: Job, ended: Callable[[], bool] = lambda: False) -> None:
        """Connect to rank 0's store, through which communicators are created; every rank must call this. `ended`: returns whether
        the job has."""
        self._place = place(job, backend)
        if backend == "nccl" and not (torch.cuda.is_available() and dist.is_nccl_available()):
            raise UsageError(f"{self._place} needs a GPU and a PyTorch with NCCL\nhint: use `gloo`")
        if not dist.is_available() or (backend == "gloo" and not dist.is_gloo_available()):
            raise UsageError(
                f"{self._place} is not in this PyTorch\nhint: install one with torch.distributed"
            )
        self._backend, self._job, self._ended = backend, job, ended
        self._presence = Presence(job, backend)
        # `Presence` gives up a little earlier, since it knows names; NCCL's watchdog even ends the process.
        self._timeout = timedelta(seconds=job.settings.timeout_s)
        self._communicators: dict[tuple[tuple[int, ...], torch.device | None], Communicator] = {}
        try:
            self._store = self._meet()
        except (RuntimeError, OSError) as error:
            raise PeerError(f"{self._place}: its store at rank 0 cannot be reached: {error}") from None

    def run(self, call: Call, elements: Elements | Lent, into: Elements | Lent | None) -> None:
        """See `Library.run`."""
        if call.what == "all_to_all" and into is None:
            raise UsageError(f"{self._place}, {call}: needs a destination")
        communicator = self._communicator(call, None if isinstance(elements, np.ndarray) else elements.device)
        with communicator.current():
            whole = _tensor(elements, call.dtype, communicator.device)
            target = whole if into is None else _tensor(into, call.dtype, communicator.device)
            try:
                works, finish = self._start(communicator, call, whole, target)
            except dist.DistError as error:  # NCCL connects at a group's first collective
                raise PeerError(f"{self._place}, {call}: {error}") from None
            except (RuntimeError, ValueError, TypeError) as error:
                raise UsageError(
                    f"{self._place}, {call}: is refused: {error}\nhint: another library, dtype or reduction, or the native wire"
                ) from None
            try:
                self._wait(call, communicator, works, finish)
            except RuntimeError as error:
                raise PeerError(f"{self._place}, {call}: {error}") from None
            if communicator.device is not None and isinstance(elements, np.ndarray):
                _bytes(elements)[:] = whole.view(torch.uint8).cpu().numpy()
                if isinstance(into, np.ndarray):
                    _bytes(into)[:] = target.view(torch.uint8).cpu().numpy()

    def close(self) -> None:
        """Release the groups; their threads end."""
        for each in list(self._communicators.values()):
            # Work that others never come to would keep the device from all other work.
            if each.device is not None and hasattr(each.group, "abort"):
                with contextlib.suppress(RuntimeError):
                    each.group.abort()
        self._communicators.clear()

    def _wait(self, call: Call, communicator: Communicator, works: list[Any], finish: Finish) -> None:
        if communicator.stream is None:
            self._presence.wait(call, lambda within_s: _complete(works, within_s))
            finish()
            return
        for work in works:
            work.wait()  # makes the stream wait, not this thread
        finish()
        ended = torch.get_device_module(communicator.device).Event()
        ended.record(communicator.stream)
        self._presence.wait(call, lambda within_s: self._came(ended, within_s))

    def _came(self, event: Any, within_s: float) -> bool:
        """Wait for an event of a device."""
        deadline_s = time.monotonic() + within_s
        while not event.query():
            if self._ended():
                raise JobEnded
            if time.monotonic() > deadline_s:
                return False
            time.sleep(POLL_S)
        return True

    def _meet(self) -> Any:
        job, key = self._job, f"library/{self._backend}"
        if job.rank != 0:
            host, port = job.store.get(key, job.settings.start_timeout_s)
            return TCPStore(host, port, is_master=False, timeout=self._timeout)
        store = serve_store(job.bind, self._timeout)
        job.store.set(key, [job.bind, store.port])
        return store

    def _communicator(self, call: Call, device: torch.device | None) -> Communicator:
        known = self._communicators.get((call.group, device))
        if known is None:
            self._presence.meet(call)
            try:
                known = self._make(call.group, device)
            except RuntimeError as error:
                raise PeerError(f"{self._place}, {call}: no communicator: {error}") from None
            self._communicators[call.group, device] = known
        return known

    def _make(self, ranks: tuple[int, ...], device: torch.device | None) -> Communicator:
        """Make a communicator for memory of a device; None: of the host."""
        backend = self._name(device)
        store = PrefixStore(f"{backend}/{ranks}", self._store)
        own = ranks.index(self._job.rank)
        if backend == "gloo":
            options = dist.ProcessGroupGloo._Options()  # type: ignore[attr-defined]
            options._timeout = self._timeout
            options._devices = [dist.ProcessGroupGloo.create_device(hostname=self._job.bind)]
            return Communicator(dist.ProcessGroupGloo(store, own, len(ranks), options))
        if backend == "nccl":
            device = device or torch.device("cuda", self._job.local_rank % torch.cuda.device_count())
            settings = dist.ProcessGroupNCCL.Options()
            settings._timeout = self._timeout
            group: Any = dist.ProcessGroupNCCL(store, own, len(ranks), settings)
        else:
            group = _plugged(backend, store, own, ranks, self._timeout)
        module: Any = torch.get_device_module(device)
        return Communicator(
            group, device, module.Stream(device=device) if hasattr(module, "Stream") else None
        )

    def _name(self, device: torch.device | None) -> str:
        """Return the name of the backend for a device's memory. UsageError: PyTorch has none but Hocket's own."""
        if self._backend != ON_DEVICE:
            return self._backend
        if device is None:
            return "gloo"
        name = dist.Backend.default_device_backend_map.get(device.type)
        if name is None or name == "hocket" or (name != "nccl" and name.upper() not in dist.Backend._plugins):
            raise UsageError(
                f"{self._place}: PyTorch has no library for tensors on {device}\n"
                "hint: load the one of the device's maker, which torch.distributed.Backend.register_backend registers, or leave "
                "the collective to `gloo` or the native wire"
            )
        return name

    def _start(  # noqa: PLR0911  # a case per collective
        self, communicator: Communicator, call: Call, whole: torch.Tensor, target: torch.Tensor
    ) -> tuple[list[Any], Finish]:
        group = communicator.group
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
                return self._reduce_scatter(communicator, call, whole, pieces)
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
                if communicator.device is not None and len(whole) == longest * len(pieces):
                    return [group._allgather_base(whole, pieces[own].clone(), AllgatherOptions())], _nothing
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
                if communicator.device is not None:
                    barrier.device_ids = [whole.device.index]  # otherwise NCCL guesses one
                return [group.barrier(barrier)], _nothing
        raise UsageError(f"{self._place}, {call}: there is no such collective")

    def _reduce_scatter(
        self, communicator: Communicator, call: Call, whole: torch.Tensor, pieces: list[torch.Tensor]
    ) -> tuple[list[Any], Finish]:
        group, own = communicator.group, call.group.index(self._job.rank)
        longest = max(map(len, pieces))
        if communicator.device is not None:
            options = dist.ReduceScatterOptions()
            options.reduceOp = REDUCTIONS[call.reduce]
            part = pieces[own].new_empty(longest)
            is_even = len(whole) == longest * len(pieces)
            even = whole if is_even else torch.cat([_padded(piece, longest) for piece in pieces])
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


def _complete(works: list[Any], within_s: float) -> bool:
    deadline_s = time.monotonic() + within_s
    for work in works:
        try:
            work.wait(timedelta(seconds=max(deadline_s - time.monotonic(), WAIT_S_MIN)))
        except RuntimeError:
            if not work.is_completed():
                return False
            work.wait()  # raises the collective's error, unless it was only late
    return True


def _plugged(name: str, store: Any, own: int, ranks: tuple[int, ...], timeout: timedelta) -> Any:
    """Make a group by a backend that a device's maker has registered with PyTorch."""
    plugin = dist.Backend._plugins[name.upper()]
    if not plugin.extended_api:
        return plugin.creator_fn(store, own, len(ranks), timeout)
    options = _DistributedBackendOptions()
    options.store, options.group_rank, options.group_size = store, own, len(ranks)
    options.timeout, options.global_ranks_in_group = timeout, list(ranks)
    options.group_id = f"hocket {ranks}"  # type: ignore[assignment]  # older versions do not have its NewType
    return plugin.creator_fn(options, None)


def _broadcast(group: Any, tensor: torch.Tensor, root: int) -> Any:
    options = dist.BroadcastOptions()
    options.rootRank, options.rootTensor = root, 0
    return group.broadcast([tensor], options)


def _pieces(whole: torch.Tensor, n: int) -> list[torch.Tensor]:
    return list(whole.tensor_split([len(whole) * at // n for at in range(1, n)]))


def _tensor(elements: Elements | Lent, dtype: str, device: torch.device | None) -> torch.Tensor:
    if not isinstance(elements, np.ndarray):
        taken: torch.Tensor = elements.take().view(_kind(dtype))
        return taken
    tensor = torch.from_numpy(elements).view(_kind(dtype))
    return tensor if device is None else tensor.to(device)


def _kind(dtype: str) -> torch.dtype:
    return torch.bfloat16 if dtype == "bf16" else torch.from_numpy(np.empty(0, DTYPES[dtype])).dtype


def _bytes(elements: Elements) -> Elements:
    return elements.view(np.uint8)
