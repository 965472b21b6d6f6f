"""Publication of an address through torchrun's own store: MASTER_PORT is that store's, and every rank knows it."""

from __future__ import annotations

import logging
import os
from datetime import timedelta

import torch
from torch.distributed import DistError, TCPStore  # type: ignore[attr-defined]

from hocket.errors import RendezvousError

KEY = "hocket/store"

log = logging.getLogger("hocket.job")


def warn_if_apart(world: int) -> None:
    """Warn if a framework has started ranks of `torch.distributed` that are no ranks of this job, whose size is `world`."""
    if world > 1 or not torch.distributed.is_available() or not torch.distributed.is_initialized():
        return
    if (ranks := torch.distributed.get_world_size()) > 1:
        log.warning(
            "hocket: this process is rank %d of %d for torch.distributed, but alone in Hocket's job, which averages nothing\n"
            "hint: start ranks with `hocket run -n %d SCRIPT` or torchrun; where a trainer has its own ranks and DDP, hk.trainer, "
            "hk.accelerate or Lightning's strategy `hocket` in place of `hk.distribute` (docs/trainers.md)",
            torch.distributed.get_rank(),
            ranks,
            ranks,
        )


def publish(text: str | None, timeout_s: float) -> str:
    """Publish the address of the job's store from rank 0; all ranks receive it.

    Args:
        text: the address on rank 0, None elsewhere.
        timeout_s: longest wait for torchrun's store and for rank 0.

    Raises:
        RendezvousError: torchrun's store cannot be reached, or rank 0 did not publish in time.
    """
    host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    restart = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    key = f"{KEY}/{os.environ.get('TORCHELASTIC_RUN_ID', '')}/{restart}"
    try:
        store = TCPStore(
            host, port, is_master=False, timeout=timedelta(seconds=timeout_s), wait_for_workers=False
        )
        if text is not None:
            store.set(key, text)
        return str(store.get(key).decode())
    except (DistError, RuntimeError) as error:
        raise RendezvousError(
            f"the address of the job's store did not come through torchrun's store at {host}:{port} "
            f"within {timeout_s:g} s: {str(error).splitlines()[0]}\nhint: see what rank 0 printed"
        ) from None
