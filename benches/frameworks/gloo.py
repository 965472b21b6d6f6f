"""JAX's own job beside Hocket's: its collectives on Gloo."""

from __future__ import annotations

import functools
import os
from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from benches.frameworks.address import own_address

PORT = 29_711
"""Port of JAX's coordinator: each host of an emulation has its own network."""

RANKS = "ranks"
"""Axis of the mesh."""


class Gloo:
    """This process's part of the job; a process has one, made before any array."""

    def __init__(self, rank: int, world: int) -> None:
        from jax._src import xla_bridge  # noqa: PLC0415  # only this patches it

        master, address = os.environ["MASTER_ADDR"], own_address(PORT)
        # There is no setting for the interface, and the machine's name leads to loopback in every network namespace.
        bound = functools.partial(xla_bridge._jax.make_gloo_tcp_collectives, hostname=address)
        xla_bridge._jax.make_gloo_tcp_collectives = bound
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
        jax.distributed.initialize(
            f"{master}:{PORT}", world, rank, coordinator_bind_address=f"0.0.0.0:{PORT}"
        )
        self.world = world
        self.mesh = jax.make_mesh((world,), (RANKS,))

    def everywhere(self, value: Any) -> Any:
        """Make an array that all ranks have."""
        return jax.make_array_from_process_local_data(
            NamedSharding(self.mesh, PartitionSpec()), np.asarray(value)
        )

    def parts(self, own: Any) -> Any:
        """Make an array of which each rank has a part."""
        return jax.make_array_from_process_local_data(
            NamedSharding(self.mesh, PartitionSpec(RANKS)), np.asarray(own)
        )

    def mapped(self, function: Any, *specs: PartitionSpec) -> Any:
        """Compile a function of parts, whose result all ranks have."""
        mapped = jax.shard_map(
            function, mesh=self.mesh, check_vma=False, in_specs=specs, out_specs=PartitionSpec()
        )
        return jax.jit(mapped)
