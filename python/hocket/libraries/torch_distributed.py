"""Gloo and NCCL through torch.distributed, beside whatever the script itself does with it: own store, own groups.

NCCL moves memory of a GPU: elements are copied there and back on a stream of the communicator's own.
"""

from __future__ import annotations

import contextlib
from datetime import timedelta
from typing import Any

import numpy as np
import torch.distributed as dist
from torch.distributed import PrefixStore, TCPStore  # type: ignore[attr-defined]

import torch
from hocket.errors import PeerError, UsageError
from hocket.launch.rendezvous import Job
from hocket.libraries.call import Call, Elements

REDUCTIONS = {"sum": dist.ReduceOp.SUM, "min": dist.ReduceOp.MIN, "max": dist.ReduceOp.MAX}


class TorchDistributed:
    """One process group per group of ranks."""

    def __init__(self, backend: str, job: Job) -> None:
        """Rank 0 serves the store that communicators are made through; every rank must come here."""
        if backend == "nccl" and not (torch.cuda.is_available() and dist.is_nccl_available()):
            raise UsageError("library `nccl` needs a GPU and a PyTorch with NCCL\nhint: use `gloo`")
        if not dist.is_available() or (backend == "gloo" and not dist.is_gloo_available()):
            raise UsageError(f"this PyTorch has no `{backend}`\nhint: install one with torch.distributed")
        self._backend, self._job = backend, job
        self._timeout = timedelta(seconds=job.settings.timeout_s)
        self._groups: dict[tuple[int, ...], Any] = {}
        self._streams: dict[tuple[int, ...], Any] = {}
        if job.rank == 0:
            # Bound to all interfaces, as torch has it; it serves this library's communicators alone.
            self._store = TCPStore(job.bind, 0, is_master=True, wait_for_workers=False)
            job.store.set(f"library/{backend}", [job.bind, self._store.port])
        else:
            host, port = job.store.get(f"library/{backend}", job.settings.start_timeout_s)
            self._store = TCPStore(host, port, is_master=False, timeout=self._timeout)

    def run(self, call: Call, elements: Elements, into: Elements | None) -> None:
        """As `Library`."""
        try:
            with self._on_device(call.group) as device:
                self._run(call, elements, into, device)
        except (RuntimeError, dist.DistError) as error:
            raise PeerError(
                f"rank {self._job.rank} on {self._job.host}: library `{self._backend}`, {call}: {error}"
            ) from None

    def close(self) -> None:
        """Let go of the groups; their threads end."""
        self._groups.clear()

    @contextlib.contextmanager
    def _on_device(self, group: tuple[int, ...]) -> Any:
        if self._backend == "gloo":
            yield torch.device("cpu")
            return
        device = torch.device("cuda", self._job.local_rank % torch.cuda.device_count())
        stream = self._streams.setdefault(group, torch.cuda.Stream(device))
        with torch.cuda.stream(stream):
            yield device
        stream.synchronize()

    def _group(self, ranks: tuple[int, ...]) -> Any:
        known = self._groups.get(ranks)
        if known is None:
            store = PrefixStore(f"{self._backend}/{ranks}", self._store)
            own = ranks.index(self._job.rank)
            if self._backend == "gloo":
                options = dist.ProcessGroupGloo._Options()  # type: ignore[attr-defined]
                options._timeout = self._timeout
                options._devices = [dist.ProcessGroupGloo.create_device(hostname=self._job.bind)]
                known = dist.ProcessGroupGloo(store, own, len(ranks), options)
            else:
                settings = dist.ProcessGroupNCCL.Options()
                settings._timeout = self._timeout
                known = dist.ProcessGroupNCCL(store, own, len(ranks), settings)
            self._groups[ranks] = known
        return known

    def _run(  # noqa: PLR0912  # a case per collective
        self, call: Call, elements: Elements, into: Elements | None, device: torch.device
    ) -> None:
        group, n = self._group(call.group), len(call.group)
        own = call.group.index(self._job.rank)
        whole = _tensor(elements, device)
        pieces = list(whole.tensor_split([len(elements) * at // n for at in range(1, n)]))
        match call.what:
            case "all_reduce" | "reduce_scatter":
                # Parts may be uneven, which reduce-scatter of these libraries is not made for.
                options = dist.AllreduceOptions()
                options.reduceOp = REDUCTIONS[call.reduce]
                group.allreduce([whole], options).wait()
            case "reduce_to":
                reduce = dist.ReduceOptions()
                reduce.reduceOp, reduce.rootRank = REDUCTIONS[call.reduce], self._root(call)
                group.reduce([whole], reduce).wait()
            case "broadcast" | "scatter":
                broadcast = dist.BroadcastOptions()
                broadcast.rootRank, broadcast.rootTensor = self._root(call), 0
                kept = [each.clone() for each in pieces]
                group.broadcast([whole], broadcast).wait()
                if call.what == "scatter" and own != self._root(call):
                    for at, each in enumerate(pieces):
                        if at != own:
                            each.copy_(kept[at])
            case "all_gather" | "gather":
                # One broadcast per part: any lengths, and each byte once.
                for at, piece in enumerate(pieces):
                    broadcast = dist.BroadcastOptions()
                    broadcast.rootRank, broadcast.rootTensor = at, 0
                    landing = (
                        piece if call.what == "all_gather" or own in (at, self._root(call)) else piece.clone()
                    )
                    if piece.numel():
                        group.broadcast([landing], broadcast).wait()
            case "all_to_all":
                if into is None:
                    raise UsageError("an all_to_all needs a destination")
                out = torch.empty_like(whole)
                group.alltoall_base(out, whole, [], [], dist.AllToAllOptions()).wait()
                into[:] = out.cpu().numpy()
            case other:
                raise UsageError(f"library `{self._backend}` has no {other}")
        if device.type != "cpu" and call.what != "all_to_all":
            elements[:] = whole.cpu().numpy()

    def _root(self, call: Call) -> int:
        return -1 if call.root is None else call.group.index(call.root)


def _tensor(elements: Elements, device: torch.device) -> torch.Tensor:
    tensor = torch.from_numpy(np.asarray(elements))
    return tensor if device.type == "cpu" else tensor.to(device)
