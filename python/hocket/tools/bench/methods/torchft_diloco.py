"""DiLoCo of torchft on Gloo, as its documentation has it: each rank is a replica of its own job, and rank 0 serves the lighthouse.

Nothing of it is loaded before a run asks for it: torchft is in an environment of its own.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from datetime import timedelta
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import nn

from hocket.artefacts.local import Local


class Replica(NamedTuple):
    """A replica that trains. `saves` gives the parameters after the last exchange, which a job saves."""

    saves: Callable[[], dict[str, Any]]
    leave: Callable[[], None]


def joined(
    model: nn.Module, optimizer: torch.optim.Optimizer, local: Local, *, host: str, timeout_s: float
) -> Replica:
    """Let a model train by DiLoCo among the ranks of the default group. `host`: address of rank 0 for all."""
    # Its servers write a line for each heartbeat's quorum.
    os.environ.setdefault("RUST_LOG", "error")
    from torchft import Manager, ProcessGroupGloo  # noqa: PLC0415  # see above
    from torchft.coordination import LighthouseServer  # noqa: PLC0415  # as above
    from torchft.local_sgd import DiLoCo  # noqa: PLC0415  # as above

    rank, world = dist.get_rank(), dist.get_world_size()
    lighthouse = None
    told: list[Any] = [None]
    if rank == 0:
        lighthouse = LighthouseServer(bind="0.0.0.0:0", min_replicas=world)  # other hosts call it
        told = [f"http://{host}:{lighthouse.address().rpartition(':')[2]}"]
    dist.broadcast_object_list(told)
    own = address_towards(host)
    store = dist.TCPStore(own, 0, is_master=True, wait_for_workers=False)  # type: ignore[attr-defined]
    timeout = timedelta(seconds=timeout_s)
    manager = Manager(
        pg=ProcessGroupGloo(timeout=timeout),
        load_state_dict=None,
        state_dict=None,
        min_replica_size=world,
        use_async_quorum=False,
        timeout=timeout,
        quorum_timeout=timeout,
        rank=0,
        world_size=1,
        store_addr=own,
        store_port=store.port,
        lighthouse_addr=told[0],
        replica_id=f"replica{rank}",
        hostname=own,
        # All ranks begin with the same bits.
        init_sync=False,
    )
    outer = torch.optim.SGD(
        model.parameters(), lr=local.rate, momentum=local.momentum, nesterov=local.momentum > 0
    )
    diloco = DiLoCo(
        manager, [model], optimizer, outer, local.every, pin_memory=False, fragment_sync_delay=local.late
    )
    diloco.__enter__()

    def saves() -> dict[str, Any]:
        return {**model.state_dict(), **diloco._fragments[0].original_parameters}

    def leave() -> None:
        diloco.__exit__(None, None, None)
        # Nobody's last exchange may find another replica gone.
        dist.barrier()
        manager.shutdown(wait=False)
        if lighthouse is not None:
            lighthouse.shutdown()

    return Replica(saves, leave)


def address_towards(host: str) -> str:
    """Return this machine's address from which it calls that host. Nothing is sent.

    >>> address_towards("127.0.0.1")
    '127.0.0.1'
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as caller:
        caller.connect((host, 9))
        return str(caller.getsockname()[0])
