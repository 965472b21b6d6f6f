"""`Abilities`: answers of a group that PyTorch asks for its name and for this backend's abilities.

The group is a process group rather than a `Backend` inside one: works made in Python then reach Python unchanged, with their
error, completion and source. Through a `Backend`, PyTorch returns a holder without these. The group therefore also answers
queries for backends. PyTorch's own answers look for a backend inside, and fail with a message about that.
"""

from __future__ import annotations

from typing import Any, NoReturn

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import ProcessGroup

from hocket.errors import UsageError
from hocket.torch.backend.errors import as_torch
from hocket.torch.older import accelerator


class Abilities(ProcessGroup):
    """Name and abilities of a group, without its collectives."""

    supports_splitting = False
    supports_coalescing = False
    """False: `batch_isend_irecv` then makes a work for each message."""
    supports_shrinking = False
    supports_window = False
    supports_completion_hooks = False
    _supports_time_estimate = False

    def __init__(self, opts: Any) -> None:
        """Take the name, rank and size. `opts`: argument that torch gives to `create`."""
        super().__init__(opts.group_rank, opts.group_size)
        self._name, self._text = str(opts.group_id), ""
        found = accelerator()
        self._kinds = [
            torch.device("cpu"),
            *([] if found is None else [torch.device(found.type)]),
        ]

    def getBackendName(self) -> str:  # noqa: N802  # torch's name
        """Return `hocket`."""
        return "hocket"

    def _get_backend(self, _device: torch.device) -> Any:
        """Return this group, which is its own backend: PyTorch queries backends for abilities."""
        return self

    def get_backend(self, device: torch.device) -> Any:
        """Return the backend of a device: this group."""
        return self._get_backend(device)

    @property
    def _device_types(self) -> list[torch.device]:
        # Empty before torch knows the group: otherwise torch's flight recorder would look for a backend in C++.
        return self._kinds if self in dist.distributed_c10d._world.pg_map else []

    # torch keeps names in backends, which this group does not have.
    def setGroupName(self, name: str) -> None:  # noqa: N802  # torch's name
        """Set the group's name; torch calls this once, when the group is made."""
        self._name = name

    def getGroupName(self) -> str:  # noqa: N802  # torch's name
        """Return the group's name."""
        return self._name

    def setGroupDesc(self, text: str) -> None:  # noqa: N802  # torch's name
        """Set the group's description, which its creator gives."""
        self._text = text

    def getGroupDesc(self) -> str:  # noqa: N802  # torch's name
        """Return the group's description."""
        return self._text

    def supports_tensor_alloc(self, _device: torch.device) -> bool:
        """Return False: PyTorch allocates memory for collectives as for any tensor."""
        return False

    def shrink(self, *_arguments: object) -> NoReturn:
        """Refuse."""
        raise as_torch(
            UsageError(
                "backend hocket makes no smaller group of one\n"
                'hint: init_process_group("hocket", enable_reconfigure=True), and reconfigure() among those that stay'
            )
        )

    def new_window(self, *_arguments: object) -> NoReturn:
        """Refuse."""
        raise as_torch(UsageError("backend hocket has no windows of one-sided access\nhint: send and recv"))

    def _register_on_completion_hook(self, *_arguments: object) -> NoReturn:
        raise as_torch(
            UsageError(
                "backend hocket calls no hooks of a group on completion\nhint: work.get_future().then(…)"
            )
        )
