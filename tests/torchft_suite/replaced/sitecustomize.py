"""Puts Hocket in Gloo's place, in every process of torchft's tests: Python imports this as it starts, where PYTHONPATH has it.

A process group that a test gives to a Manager is `hocket.torch.reconfigurable_group()` itself, as docs/torch-distributed.md shows.
Elsewhere tests ask for what torchft's own class has beside a process group: there it is that class, with our group inside.
"""

from __future__ import annotations

import sys
from datetime import timedelta
from typing import Any

import torch.distributed as dist
import torchft
from torchft import process_group

from hocket.torch import reconfigurable_group

MANAGED = {
    "ddp_train_loop",
    "all_reduce_callback",
    "local_sgd_train_loop",
    "test_quorum_timeout",
    "test_join_timeout_behavior",
}
"""Functions of the tests that make a group for a Manager, and ask nothing else of it."""
PATIENCE = timedelta(seconds=60)

init_process_group = dist.init_process_group


class ProcessGroupHocket(process_group.ProcessGroupGloo):  # type: ignore[misc]  # of a package without types
    """Class of torchft, with a group of Hocket inside."""

    reduce_scatter = process_group.ProcessGroupWrapper.reduce_scatter
    reduce_scatter_tensor_coalesced = process_group.ProcessGroupWrapper.reduce_scatter_tensor_coalesced

    def __new__(cls, timeout: timedelta = PATIENCE, **given: Any) -> Any:
        if sys._getframe(1).f_code.co_name in MANAGED:
            return reconfigurable_group(timeout)
        return super().__new__(cls, timeout, **given)

    def _create_pg(self, store: Any, rank: int, world_size: int) -> Any:
        group = reconfigurable_group(self._timeout)
        store.set(f"handle/{rank}", group.get_reconfigure_handle())
        opts = process_group.ReconfigureOptions()
        opts.uuid, opts.timeout = self._uuid, self._timeout
        opts.handles = [store.get(f"handle/{each}").decode() for each in range(world_size)]
        group.reconfigure(opts).wait()
        return group


def reconfigures(*given: Any, **named: Any) -> None:
    """Make the default group: Hocket's, if its members change and it is the first argument that says which."""
    if named.get("enable_reconfigure"):
        given = (given[0].replace("gloo", "hocket"), *given[1:])
    init_process_group(*given, **named)


dist.init_process_group = reconfigures
process_group.ProcessGroupGloo = torchft.ProcessGroupGloo = ProcessGroupHocket
