"""Entry into the job whose ranks a trainer has: those of `torch.distributed`, with its numbers.

Where a launcher that Hocket knows has numbered the process as the trainer does, the job is the launcher's. Other trainers start
ranks by themselves, as Lightning does: then the ranks meet through torch's store.
"""

from __future__ import annotations

import os
from datetime import timedelta

import torch.distributed as dist
from torch.distributed.distributed_c10d import _get_default_store

from hocket.errors import Error, RendezvousError, UsageError
from hocket.job.environment import NO_LAUNCHER, Identity, identify
from hocket.refusals import DDP, ELASTIC, HELPERS, SERVERS, TLS, TRAINERS, refused
from hocket.settings import Settings
from hocket.torch.backend.node import host_of, numbered
from hocket.torch.rendezvous import publish
from hocket.training.process import Process, joined

KEY = "hocket/trainers/store"


def check_settings(trainer: str, settings: Settings) -> None:
    """Raise UsageError for ranks that come and go, or that do not train: the trainer has neither."""
    if settings.coordinator is not None:
        raise refused(ELASTIC, TRAINERS, trainer=trainer)
    if settings.servers:
        raise refused(SERVERS, TRAINERS, trainer=trainer)
    if settings.helpers:
        raise refused(HELPERS, TRAINERS, trainer=trainer)


def enter(trainer: str, settings: Settings) -> Process:
    """Join the job of the trainer's ranks, which all call this; later calls find the process in it. Return its place there.

    UsageError: the ranks of `torch.distributed` are not those of the job, or send in the clear what may not be. RendezvousError:
    ranks do not meet.
    """
    check_settings(trainer, settings)
    together = dist.is_available() and dist.is_initialized()
    rank, world = (dist.get_rank(), dist.get_world_size()) if together else (0, 1)
    if together and not _is_launched(settings):
        store = _get_default_store()
        process = joined(settings, _through_group, environment=numbered(rank, world, host_of(store)))
    else:
        process = joined(settings, publish)
    job = process.everyone
    if (job.rank, job.world) != (rank, world):
        raise UsageError(
            f"this process is rank {job.rank} of {job.world} of its job, and for {trainer} {_known(rank, world, together)}: "
            f"its samplers and metrics would be for other ranks\nhint: {_hint(together)}"
        )
    if world > 1 and job.settings.tls and dist.get_backend() != "hocket":
        what = f"{trainer} over {dist.get_backend()}, metrics and what it broadcasts,"
        raise refused(TLS, DDP, what=what, instead='torch.distributed.init_process_group("hocket")')
    return process


def _is_launched(settings: Settings) -> bool:
    """Return whether variables of a launcher number this process."""
    try:
        me: Identity = identify({**os.environ, **settings.to_environment()}, parent=os.getppid())
    except Error:
        # Half of torchrun's variables, as Lightning sets them.
        return False
    return me.launcher != NO_LAUNCHER


def _known(rank: int, world: int, together: bool) -> str:
    return f"rank {rank} of {world}" if together else "it is alone"


def _hint(together: bool) -> str:
    if together:
        return "start all ranks with one launcher, and let the trainer have them all"
    return "the trainer has started no process group: let it use the CPU or devices that it finds (Accelerator(cpu=True))"


def _through_group(text: str | None, timeout_s: float) -> str:
    store = _get_default_store()
    try:
        if text is not None:
            store.set(KEY, text)
        store.wait([KEY], timedelta(seconds=timeout_s))
        return str(store.get(KEY).decode())
    except RuntimeError as error:
        raise RendezvousError(
            f"the address of the job's store did not come through that of torch.distributed within {timeout_s:g} s: "
            f"{str(error).splitlines()[0]}\nhint: see what rank 0 printed"
        ) from None
