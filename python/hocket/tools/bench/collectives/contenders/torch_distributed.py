"""Gloo, NCCL and Hocket's backend through torch.distributed, called as by a training script."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch.distributed import TCPStore  # type: ignore[attr-defined]

from hocket.job.rendezvous import Job
from hocket.libraries.torch_distributed import serve_store
from hocket.tools.bench.collectives.definitions import DTYPES, ROOT, Elements

WIRES = {
    "gloo": "loopback TCP",
    "nccl": "one GPU a rank",
    "hocket": "our backend, memory that is not registered",
}


class TorchDistributed:
    """Contender by torch.distributed. The first one creates the default process group, which all of them share."""

    def __init__(self, backend: str, job: Job) -> None:
        """Create a group of all ranks, and one of this rank alone."""
        self._rank, self._world = job.rank, job.world
        timeout = timedelta(seconds=job.settings.timeout_s)
        torch.set_num_threads(1)
        if not dist.is_initialized():
            _start(job)
        self._on_gpu = backend == "nccl"
        self._device = torch.device("cuda", job.local_rank) if self._on_gpu else torch.device("cpu")
        if self._on_gpu:
            torch.cuda.set_device(self._device)
        self._group = _group(backend, range(job.world), timeout)
        alone = [_group(backend, [rank], timeout) for rank in range(job.world)]
        self._alone = alone[job.rank]
        self._nothing = torch.zeros(1, device=self._device)
        self._call: Callable[[], object] = lambda: None
        clear = ", in the clear" if job.settings.tls and backend != "hocket" else ""
        self.about = f"PyTorch {torch.__version__}, {WIRES[backend]}{clear}"

    def prepare(self, what: str, elements: int, dtype: str) -> None:
        kind = torch.from_numpy(np.zeros(0, DTYPES[dtype])).dtype
        self._source = whole = torch.zeros(elements, dtype=kind, device=self._device)
        self._result = whole
        own = whole.tensor_split(self._world)[self._rank]
        group = self._group
        match what:
            case "all_reduce":
                self._call = lambda: dist.all_reduce(whole, group=group)
            case "reduce":
                self._call = lambda: dist.reduce(whole, ROOT, group=group)
            case "broadcast":
                self._call = lambda: dist.broadcast(whole, ROOT, group=group)
            case "all_gather":
                self._call = lambda: dist.all_gather_into_tensor(whole, own, group=group)
            case "reduce_scatter":
                self._call = lambda: dist.reduce_scatter_tensor(own, whole, group=group)
            case "all_to_all":
                self._result = result = torch.zeros_like(whole)
                self._call = lambda: dist.all_to_all_single(result, whole, group=group)

    def write(self, values: Elements) -> None:
        self._source.copy_(torch.from_numpy(values))

    def read(self) -> Elements:
        values: Elements = self._result.cpu().numpy()
        return values

    def run(self, times: int) -> None:
        """Run the collective; calls for a GPU are queued, and awaited at the end."""
        self._repeat(self._call, times)

    def empty(self, times: int) -> None:
        """Run an all-reduce of one element over this rank alone."""
        self._repeat(lambda: dist.all_reduce(self._nothing, group=self._alone), times)

    def close(self) -> None:
        if dist.is_initialized():
            dist.destroy_process_group()

    def _repeat(self, call: Callable[[], object], times: int) -> None:
        for _ in range(times):
            call()
        if self._on_gpu:
            torch.cuda.synchronize()


def _group(backend: str, ranks: Sequence[int], timeout: timedelta) -> Any:
    """Create a group. All ranks of the job must call this, also for groups without them."""
    return dist.new_group(list(ranks), timeout=timeout, backend=backend)


def _start(job: Job) -> None:
    timeout = timedelta(seconds=job.settings.start_timeout_s)
    if job.rank == 0:
        store = serve_store(job.bind, timeout)
        job.store.set("bench/torch", [job.bind, store.port])
    else:
        host, port = job.store.get("bench/torch", job.settings.start_timeout_s)
        store = TCPStore(host, port, is_master=False, timeout=timeout)
    dist.init_process_group("gloo", store=store, rank=job.rank, world_size=job.world)
