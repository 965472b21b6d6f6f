"""Contenders by name, and their requirements of the machine. A new one is a file beside this and an entry here."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass

from hocket import extras
from hocket.errors import UsageError
from hocket.job.rendezvous import Job
from hocket.tools.bench.collectives import mpirun
from hocket.tools.bench.collectives.contenders.contender import Contender
from hocket.tools.bench.collectives.request import Request


@dataclass(frozen=True, kw_only=True)
class Entry:
    """Entry of the catalogue. `make`: called on every rank, once it has joined the job.

    `check`: called before that, with the request and the number of ranks; raises UsageError with what this machine
    lacks.
    """

    make: Callable[[Job, Request], Contender]
    check: Callable[[Request, int], None] = lambda _request, _world: None
    by_mpirun: bool = False
    """True if ranks must be started by `mpirun`."""


def _engine(job: Job, request: Request) -> Contender:
    from hocket.tools.bench.collectives.contenders.engine import Engine  # noqa: PLC0415  # a contender that is not asked for is not loaded

    return Engine(job, request)


def _tls(job: Job, request: Request) -> Contender:
    """Make the engine's contender, encrypted between hosts; with `--tcp`, each rank is a host."""
    settings = dataclasses.replace(job.settings, tls=True)
    return _engine(dataclasses.replace(job, settings=settings), request)


def _native(job: Job, request: Request) -> Contender:
    from hocket.tools.bench.collectives.contenders.native import Native  # noqa: PLC0415  # as above

    return Native(job, request)


def _torch(job: Job, _request: Request) -> Contender:
    from hocket.tools.bench.collectives.contenders.torch_distributed import TorchDistributed  # noqa: PLC0415  # as above

    return TorchDistributed("hocket", job)


def _gloo(job: Job, _request: Request) -> Contender:
    from hocket.tools.bench.collectives.contenders.torch_distributed import TorchDistributed  # noqa: PLC0415  # as above

    return TorchDistributed("gloo", job)


def _nccl(job: Job, _request: Request) -> Contender:
    from hocket.tools.bench.collectives.contenders.torch_distributed import TorchDistributed  # noqa: PLC0415  # as above

    return TorchDistributed("nccl", job)


def _mpi(job: Job, request: Request) -> Contender:
    from hocket.tools.bench.collectives.contenders.mpi import Mpi  # noqa: PLC0415  # as above

    return Mpi(job, request)


def _needs_torch(_request: Request, _world: int) -> None:
    extras.need("torch", "contender `gloo`")


def _needs_gpus(request: Request, world: int) -> None:
    _needs_torch(request, world)
    import torch  # noqa: PLC0415  # takes seconds
    import torch.distributed as dist  # noqa: PLC0415  # as above

    if not dist.is_nccl_available():
        raise UsageError("contender `nccl` is not in this PyTorch\nhint: install one for CUDA")
    here = torch.cuda.device_count()
    if here < world:
        raise UsageError(
            f"contender `nccl` needs a GPU per rank: {here} here for {world} ranks\nhint: `-n`, or `--against gloo`"
        )


def _needs_mpi(request: Request, _world: int) -> None:
    mpirun.find(request.mpirun)
    for module in ("mpi4py", "numba"):
        extras.need(module, "contender `mpi`")


CATALOGUE: dict[str, Entry] = {
    "engine": Entry(make=_engine),
    "tls": Entry(make=_tls),
    "native": Entry(make=_native),
    "torch": Entry(make=_torch, check=_needs_torch),
    "gloo": Entry(make=_gloo, check=_needs_torch),
    "nccl": Entry(make=_nccl, check=_needs_gpus),
    "mpi": Entry(make=_mpi, check=_needs_mpi, by_mpirun=True),
}


def find(name: str) -> Entry:
    """Return the entry of that name. UsageError: the name is not in the catalogue."""
    if name not in CATALOGUE:
        raise UsageError(f"there is no contender `{name}`\nhint: {', '.join(CATALOGUE)}")
    return CATALOGUE[name]
