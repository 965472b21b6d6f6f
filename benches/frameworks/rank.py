"""One rank of `python -m benches frameworks`: trains two models in JAX in turns, one by `hk.mean`, one by `psum` on Gloo.

`python -m benches.frameworks.rank --out FILE`. Rank 0 writes seconds per step of both.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import socket
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

import hocket.jax as hk

WIDTH, LAYERS, BATCH = 768, 8, 32
TURNS, STEPS, WARM_UP = 8, 4, 1
"""Of each turn, so many steps do not count."""
PORT = 29_711
"""Of JAX's coordinator: each host of an emulation has a network of its own."""

Step = Callable[[Any, Any], Any]


def main() -> None:
    """Train."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    out = parser.parse_args().out
    rank, world = int(os.environ["HOCKET_RANK"]), int(os.environ["HOCKET_WORLD"])
    _join_gloo(rank, world)
    made = [jnp.asarray(each) for each in _parameters()]
    contenders: dict[str, tuple[Any, Step]] = {"hocket": _hocket(made), "psum": _psum(made, world)}
    steps_s: dict[str, list[float]] = {name: [] for name in contenders}
    trained = {name: params for name, (params, _) in contenders.items()}
    random = np.random.default_rng(rank)
    for turn in range(TURNS):
        for name in sorted(contenders, reverse=bool(turn % 2)):
            for at in range(WARM_UP + STEPS):
                batch = random.normal(size=(BATCH, WIDTH)).astype(np.float32)
                began_s = time.perf_counter()
                trained[name] = jax.block_until_ready(contenders[name][1](trained[name], batch))
                if at >= WARM_UP:
                    steps_s[name].append(time.perf_counter() - began_s)
    if rank == 0:
        out.write_text(json.dumps({name: median(each) for name, each in steps_s.items()}))


def _join_gloo(rank: int, world: int) -> None:
    """JAX's own job beside Hocket's."""
    from jax._src import xla_bridge  # noqa: PLC0415  # only this patches it

    master = os.environ["MASTER_ADDR"]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((master, PORT))
        address = probe.getsockname()[0]
    # There is no setting for the interface, and the machine's name leads to loopback in every network namespace.
    bound = functools.partial(xla_bridge._jax.make_gloo_tcp_collectives, hostname=address)
    xla_bridge._jax.make_gloo_tcp_collectives = bound
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(f"{master}:{PORT}", world, rank, coordinator_bind_address=f"0.0.0.0:{PORT}")


def _parameters() -> list[np.ndarray[Any, Any]]:
    random = np.random.default_rng(0)
    return [(random.normal(size=(WIDTH, WIDTH)) / WIDTH**0.5).astype(np.float32) for _ in range(LAYERS)]


def _loss(params: Any, x: Any) -> Any:
    for each in params:
        x = jnp.tanh(x @ each)
    return jnp.mean(x**2)


@functools.partial(jax.jit, donate_argnums=0)
def _update(params: Any, grads: Any) -> Any:
    return [each - 0.01 * grad for each, grad in zip(params, grads, strict=True)]


def _hocket(made: list[Any]) -> tuple[Any, Step]:
    params = hk.distribute(made)
    gradients = hk.gradients(lambda params, batch: hk.mean(jax.grad(_loss)(params, batch)))
    return params, lambda params, batch: _update(params, gradients(params, batch))


def _psum(made: list[Any], world: int) -> tuple[Any, Step]:
    mesh = jax.make_mesh((world,), ("ranks",))
    all_of, part = NamedSharding(mesh, PartitionSpec()), NamedSharding(mesh, PartitionSpec("ranks"))
    params = [jax.make_array_from_process_local_data(all_of, np.asarray(each)) for each in made]

    def means(params: Any, batch: Any) -> Any:
        return [jax.lax.psum(each, "ranks") / world for each in jax.grad(_loss)(params, batch)]

    specs = {"in_specs": (PartitionSpec(), PartitionSpec("ranks")), "out_specs": PartitionSpec()}
    gradients = jax.jit(jax.shard_map(means, mesh=mesh, check_vma=False, **specs))

    def step(params: Any, batch: Any) -> Any:
        return _update(params, gradients(params, jax.make_array_from_process_local_data(part, batch)))

    return params, step


if __name__ == "__main__":
    main()
