"""The `torch.distributed` backend `hocket`: for programs that know nothing of Hocket.

    torch.distributed.init_process_group("hocket")

PyTorch finds the backend by the entry point `torch.distributed.backends` of the installed package; nothing is imported before,
and nothing is compiled against PyTorch. A group of ranks of one host moves bytes through shared memory in the calling
thread; point-to-point messages and traffic between hosts use the wire. Tensors of devices come down to the host and go up
again (`staging`).
"""

from __future__ import annotations

from datetime import timedelta

import torch.distributed as dist
from torch.distributed.distributed_c10d import default_pg_timeout


def register() -> None:
    """Register the name with torch.distributed, for all types of devices that PyTorch knows by now; idempotent.

    Devices that have a backend of their own keep it as their default; for the others, it is this one.
    """
    from hocket.torch.backend import creation  # noqa: PLC0415  # torch calls this when the backend is asked for

    creation.register()


def reconfigurable_group(timeout: timedelta = default_pg_timeout) -> dist.ProcessGroup:
    """Create a process group of this process alone, whose members come by `reconfigure`, beside any default group.

    torchft's Manager takes it as `pg`. `timeout`: of calls and of `reconfigure`, unless given there. The group is closed by
    `shutdown`, or when nothing refers to it.

    Raises:
        RuntimeError: this PyTorch has no `ProcessGroup.reconfigure`, which came with 2.15.
    """
    from hocket.torch.backend.creation import alone  # noqa: PLC0415  # older PyTorch lacks what it needs

    return alone(timeout)
