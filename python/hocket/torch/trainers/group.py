"""The job of the ranks that a trainer has, those of `torch.distributed`.

Where a launcher that Hocket knows has numbered the process as the trainer does, the job is the launcher's. Other trainers start
ranks by themselves, as Lightning does: then the job is the group of all ranks.
"""

from __future__ import annotations

import os

import torch.distributed as dist

from hocket.errors import Error, UsageError
from hocket.job.environment import NO_LAUNCHER, Identity, identify
from hocket.refusals import DDP, TLS, refused
from hocket.settings import Settings
from hocket.torch.group import check_given


def group_of(trainer: str, settings: Settings) -> dist.ProcessGroup | None:
    """Return the group whose ranks are the job, for `hk.distribute`; None: a launcher has numbered this process, or it is alone.

    UsageError: the launcher's ranks are not the trainer's, or these send in the clear what may not be.
    """
    check_given(trainer, settings)
    together = dist.is_available() and dist.is_initialized()
    rank, world = (dist.get_rank(), dist.get_world_size()) if together else (0, 1)
    if world > 1 and settings.tls and dist.get_backend() != "hocket":
        what = f"{trainer} over {dist.get_backend()}, metrics and what it broadcasts,"
        raise refused(TLS, DDP, what=what, instead='torch.distributed.init_process_group("hocket")')
    me = _launched(settings)
    if me is None:
        return dist.group.WORLD if together else None
    if (me.rank, me.world) != (rank, world):
        known = f"rank {rank} of {world}" if together else "it is alone"
        raise UsageError(
            f"{me.launcher} has made this process rank {me.rank} of {me.world}, and for {trainer} {known}: its samplers and "
            f"metrics are for other ranks\nhint: {_hint(together)}"
        )
    return None


def _launched(settings: Settings) -> Identity | None:
    """Return what variables of a launcher say of this process; None: there are none."""
    try:
        me = identify({**os.environ, **settings.to_environment()}, parent=os.getppid())
    except Error:
        # Half of torchrun's variables, as Lightning sets them.
        return None
    return None if me.launcher == NO_LAUNCHER else me


def _hint(together: bool) -> str:
    if together:
        return "start all ranks with one launcher, and let the trainer have them all"
    return "it has started no process group: let it use the CPU, or the devices that it finds (Accelerator(cpu=True))"
