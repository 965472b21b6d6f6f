"""Groups as `torch.distributed` asks for them: alone, beside each other, or with other backends for some devices."""

from __future__ import annotations

import contextlib
import functools
import itertools
import sys
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any
from weakref import WeakKeyDictionary

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import _DistributedBackendOptions
from torch.distributed import distributed_c10d
from torch.distributed.algorithms.join import Join

from hocket.errors import UsageError
from hocket.torch.backend.configured import errors_as_torch, open_groups
from hocket.torch.backend.group import Group
from hocket.torch.backend.mixed import Mixed
from hocket.torch.backend.node import Node, host_of
from hocket.torch.older import GroupName, reconfigures

NAME = "hocket"
KNOWN = ("cpu", "cuda", "xpu", "mps", "mtia", "hpu")
"""Types of devices whose copies PyTorch itself makes. One more has the name that its extension gives it."""
UNNAMED = "privateuseone"

_numbers = itertools.count()
_joining: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()
"""Last work by which a model told others that it goes on (`keep_joining`)."""
_MAKER = distributed_c10d._new_process_group_helper.__code__
"""Code object of the function in which PyTorch makes groups."""


def register() -> None:
    """Register the name with torch.distributed, for all types of devices that PyTorch knows by now."""
    named = torch._C._get_privateuse1_backend_name()
    devices = [*KNOWN, *([] if named == UNNAMED else [named])]
    # Older PyTorch, such as 2.4, takes a name once.
    with contextlib.suppress(AssertionError):
        dist.Backend.register_backend(NAME, create, extended_api=True, devices=devices)


def keep_joining() -> None:
    """Keep the work by which a model under `Join` tells that it goes on: DDP's reducer asks it for its future in the backward, and
    has then only what C++ knows of a work of Python's, which answers nothing."""
    plain = Join.notify_join_context

    @functools.wraps(plain)
    def kept(joinable: Any) -> Any:
        work = _joining[joinable] = plain(joinable)
        return work

    Join.notify_join_context = staticmethod(kept)  # type: ignore[method-assign]


keep_joining()


def create(opts: Any, backend_options: object) -> Group:
    """Create a group as `torch.distributed.Backend.register_backend` requires; every member of the group must call this.

    With `enable_reconfigure`, the group has no members yet, and nobody is waited for.
    """
    register()
    ranks: Sequence[int] = list(opts.global_ranks_in_group)
    backends = _backends_of_call()
    mixed = len(set(backends.values())) > 1
    with errors_as_torch():
        if mixed and reconfigures(opts):
            raise UsageError(
                "a group whose members change has one backend for all devices\n"
                'hint: init_process_group("hocket", enable_reconfigure=True) takes tensors of devices, too'
            )
        kinds = [kind for kind, name in backends.items() if _is_ours(name)]
        group = Mixed(opts, kinds, spans_world=not ranks) if mixed else Group(opts, spans_world=not ranks)
        if not reconfigures(opts):
            node, ranks = _job_of(opts, ranks)
            opts.store.set_timeout(opts.timeout)
            group.join(node, ranks, opts.store)
    if isinstance(group, Mixed):
        group.make(backends, backend_options)
    open_groups.add(group)
    return group


def alone(timeout: timedelta) -> Group:
    """Create a group that no other one knows, for `reconfigurable_group`."""
    opts = _DistributedBackendOptions()
    opts.group_rank, opts.group_size, opts.global_ranks_in_group = 0, 1, [0]
    opts.timeout, opts.enable_reconfigure = timeout, True
    opts.group_id = GroupName(f"hocket-reconfigurable-{next(_numbers)}")
    return create(opts, None)


def _backends_of_call() -> Mapping[str, str]:
    """Return the backend by type of device in the group that PyTorch is making, which it tells no creator; empty: it makes none."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code is not _MAKER:
        frame = frame.f_back
    config = frame.f_locals.get("backend_config")
    return {} if config is None else config.get_device_backend_map()


def _is_ours(name: str) -> bool:
    return dist.Backend._plugins[name.upper()].creator_fn is create


def _job_of(opts: Any, ranks: Sequence[int]) -> tuple[Node, Sequence[int]]:
    """Return this process in the job of a group with these ranks of the default group, and their numbers in that job."""
    world = next((group for group in open_groups if group.spans_world), None)
    if not ranks or world is None:
        # The default group, or a group beside a default group of another backend, has its own wire.
        node = Node(opts.store, opts.group_rank, opts.group_size, opts.timeout, master=host_of(opts.store))
        return node, range(opts.group_size)
    if world.supports_reconfigure:
        raise UsageError(
            "the members of the default group change, and no group with some of them would follow\n"
            "hint: hocket.torch.reconfigurable_group() makes another whose members change"
        )
    return world.node, ranks
