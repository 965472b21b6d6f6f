"""Groups in which other backends have some types of devices: `cpu:gloo,cuda:hocket`, `cpu:hocket,cuda:nccl`.

PyTorch takes a process group that a creator returns in place of its own, and asks no creator after that. So the group here keeps
PyTorch's own one with the other backends, makes those that were not asked, and passes on calls with tensors of their devices.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import ProcessGroup, Work, _DistributedBackendOptions
from torch.distributed import PrefixStore  # type: ignore[attr-defined]

from hocket.torch.backend.group import Group
from hocket.torch.older import GroupName
from hocket.torch.uncompiled import uncompiled_methods

CALLS = (
    "broadcast",
    "allreduce",
    "allreduce_coalesced",
    "reduce",
    "allgather",
    "allgather_coalesced",
    "all_gather_single",
    "all_gather_single_coalesced",
    "gather",
    "gather_single",
    "scatter",
    "reduce_scatter",
    "reduce_scatter_single",
    "reduce_scatter_single_coalesced",
    "alltoall",
    "all_to_all_single",
    "send",
    "recv",
    "recv_anysource",
    "_allgather_base",
    "_reduce_scatter_base",
    "alltoall_base",
    "allgather_into_tensor_coalesced",
    "reduce_scatter_tensor_coalesced",
)
"""Methods of a group whose tensors say which backend they are for."""


@uncompiled_methods
class Mixed(Group):
    """Group that has some types of devices, beside the backends that have the others."""

    def __init__(self, opts: Any, kinds: Sequence[str], *, spans_world: bool) -> None:
        """Start without members, as `Group` does. `kinds`: types of devices that this backend has."""
        super().__init__(opts, spans_world=spans_world)
        self._opts, self._own = opts, set(kinds)
        self._rest: ProcessGroup = opts.process_group

    def make(self, backends: Mapping[str, str], options: object) -> None:
        """Make the other backends that PyTorch has not made yet. `backends`: by type of device; `options`: of the caller's."""
        there = {device.type for device in self._rest._device_types}
        for kind, name in backends.items():
            if kind not in self._own and kind not in there:
                self._rest._register_backend(
                    torch.device(kind), dist.Backend.backend_type_map[name], self._made(kind, name, options)
                )
        self._kinds = [torch.device(kind) for kind in backends]

    def _made(self, kind: str, name: str, options: object) -> Any:
        plugin, opts = dist.Backend._plugins[name.upper()], self._opts
        # PyTorch gives each type of device a part of the group's store.
        store = PrefixStore(f"{kind}/", opts.store.underlying_store)
        if not plugin.extended_api:
            return plugin.creator_fn(store, opts.group_rank, opts.group_size, opts.timeout)
        own = _DistributedBackendOptions()
        for each in (
            "group_rank",
            "group_size",
            "timeout",
            "group_id",
            "global_ranks_in_group",
            "process_group",
            "split_from",
        ):
            setattr(own, each, getattr(opts, each))
        own.store = store
        return plugin.creator_fn(own, options)

    def _other(self, values: Iterable[Any]) -> ProcessGroup | None:
        """Return the group that has the first tensor among `values`, None if that is this one."""
        device = _device_of(values)
        return None if device is None or device.type in self._own else self._rest

    def _get_backend(self, device: torch.device) -> Any:
        return self if torch.device(device).type in self._own else self._rest._get_backend(device)

    def start_coalescing(self, device: torch.device) -> None:
        """Combine the following calls of the device's backend into one work."""
        if device.type in self._own:
            super().start_coalescing(device)
        else:
            self._rest._start_coalescing(device)

    def end_coalescing(self, device: torch.device) -> Work:
        """Return the work of all calls since `start_coalescing`."""
        if device.type in self._own:
            return super().end_coalescing(device)
        return self._rest._end_coalescing(device)

    def setGroupName(self, name: str) -> None:  # noqa: N802  # torch's name
        """Set the group's name, also for the other backends."""
        super().setGroupName(name)
        self._rest._set_group_name(GroupName(name))

    def setGroupDesc(self, text: str) -> None:  # noqa: N802  # torch's name
        """Set the group's description, also for the other backends."""
        super().setGroupDesc(text)
        self._rest._set_group_desc(text)

    def set_timeout(self, timeout: timedelta) -> None:
        """Set the time-out of calls that give none, also for the other backends."""
        super().set_timeout(timeout)
        self._rest.set_timeout(timeout)

    def abort(self) -> None:
        """End calls of all backends."""
        super().abort()
        self._rest.abort()

    def shutdown(self) -> None:
        """Close the group, and then its other backends."""
        super().shutdown()
        self._rest.shutdown()


def _passed_on(name: str) -> Callable[..., Work]:
    own = getattr(Group, name)

    @functools.wraps(own)
    def call(self: Mixed, *arguments: Any, **named: Any) -> Work:
        other = self._other([*arguments, *named.values()])
        if other is None:
            made: Work = own(self, *arguments, **named)
            return made
        theirs: Work = getattr(other, name)(*arguments, **named)
        return theirs

    return call


for _name in CALLS:
    setattr(Mixed, _name, _passed_on(_name))
uncompiled_methods(Mixed)


def _device_of(values: Iterable[Any]) -> torch.device | None:
    """Return the device of the first tensor in a call's arguments."""
    for each in values:
        if isinstance(each, torch.Tensor):
            return each.device
        if isinstance(each, (list, tuple)) and (found := _device_of(each)) is not None:
            return found
    return None
