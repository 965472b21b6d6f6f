"""A group of `torch.distributed` as a job: the ranks that hold one part of a model which is spread over several.

Pipelines and tensor parallelism spread a model over ranks that are close to each other, and repeat it elsewhere. Each rank's part
is averaged with the same parts of the other copies alone, so those are a job of their own, with ranks, plan and connections of its
own.
"""

from __future__ import annotations

import dataclasses
import os
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

from hocket.errors import RendezvousError, UsageError
from hocket.job.rendezvous import SECRET_BYTES
from hocket.refusals import ELASTIC, GIVEN, HELPERS, SERVERS, refused
from hocket.settings import Settings
from hocket.start.variables import of_torch
from hocket.training.process import Within


def within(group: Any, settings: Settings) -> tuple[Within, Settings]:
    """Return the job that a group is, and this process's settings in it; all ranks of the group call this.

    Args:
        group: a ProcessGroup, or a DeviceMesh of one dimension.
        settings: those of the script.

    Raises:
        UsageError: it is no group with this rank, or the job has members, servers or helpers.
        RendezvousError: the group's first rank does not come.
    """
    group = _group_of(group)
    ranks = tuple(dist.get_process_group_ranks(group))
    rank = dist.get_rank(group)
    check_given("a group", settings)
    environment = of_torch(rank, len(ranks), os.environ.get("MASTER_ADDR"))
    settings = dataclasses.replace(
        settings,
        rank=None,
        world=None,
        local_rank=None,
        local_world=None,
        store=None,
        store_served=False,
        # Each group has a rank 0.
        trace=None if settings.trace is None else str(Path(settings.trace) / f"group-{ranks[0]}"),
        # Beside the others: `fr_trace` reads the directories in its directory, too.
        dumps=None if settings.dumps is None else f"{settings.dumps}-group-{ranks[0]}",
    )

    def publish(text: str | None, _timeout_s: float) -> str:
        return _of_first(group, ranks, lambda: text or "")

    secret = bytes.fromhex(_of_first(group, ranks, lambda: secrets.token_hex(SECRET_BYTES)))
    name = f"ranks {', '.join(map(str, ranks))} of torch.distributed"
    return Within(name, environment, secret, publish), settings


def _group_of(group: Any) -> Any:
    """Return the group of a mesh's only dimension, or a group as it is."""
    if not dist.is_available() or not dist.is_initialized():
        raise UsageError(
            "group: torch.distributed is not initialised\nhint: torch.distributed.init_process_group(…) and the mesh come first"
        )
    if isinstance(group, DeviceMesh):
        if group.ndim != 1:
            names = group.mesh_dim_names or ()
            raise UsageError(
                f"group: the mesh has {group.ndim} dimensions{', ' * bool(names)}{', '.join(names)}\n"
                'hint: the one over which the model is repeated: group=mesh["replicate"]'
            )
        return group.get_group()
    if group is dist.GroupMember.NON_GROUP_MEMBER or not isinstance(group, dist.ProcessGroup):
        raise UsageError(
            f"group: {type(group).__name__} is no group of torch.distributed that this rank is in\n"
            "hint: each rank gives the group of the ranks that hold the same part of the model"
        )
    return group


def check_given(whose: str, settings: Settings) -> None:
    """Raise UsageError for ranks that come and go, or that do not train, where those of `whose` have their numbers from
    torch.distributed."""
    if settings.coordinator is not None:
        raise refused(ELASTIC, GIVEN, whose=whose)
    if settings.servers:
        raise refused(SERVERS, GIVEN, whose=whose)
    if settings.helpers:
        raise refused(HELPERS, GIVEN, whose=whose)


def _of_first(group: Any, ranks: tuple[int, ...], make: Callable[[], str]) -> str:
    """Return what the group's first rank makes."""
    told = [make() if dist.get_rank() == ranks[0] else None]
    try:
        dist.broadcast_object_list(told, src=ranks[0], group=group)
    except (dist.DistError, RuntimeError) as error:
        raise RendezvousError(
            f"rank {ranks[0]} of torch.distributed, the first of the group, did not come: {str(error).splitlines()[0]}\n"
            "hint: all ranks of a group call hk.distribute(…, group=…)",
            rank=ranks[0],
        ) from error
    return str(told[0])
