"""What takes turns in a rank of `python -m benches frameworks`: each trains parameters of its own on the same batches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec

import hocket.jax as hk
from benches.frameworks.gloo import RANKS, Gloo
from benches.frameworks.model import LAYERS, WIDTH, loss, parameters, update
from hocket.artefacts.gradient import Gradient
from hocket.artefacts.plan import AllReduce, Plan
from hocket.planning.buckets import buckets, plan_of

Step = Callable[[Any], Any]
"""Takes a batch; what it returns is there when the step has ended."""


class Contender(Protocol):
    """One of them."""

    def begin(self) -> Step:
        """Its turn begins. The first steps of a turn may take longer."""


class Ours:
    """Hocket: the three lines, and what they are told. A process trains one tree at a time, so a turn begins with `distribute`,
    unless nobody else has distributed since. Not `learns`: gradients are given, not computed."""

    _latest: Ours | None = None

    def __init__(self, *, learns: bool = True, **told: Any) -> None:
        """`told`: to `distribute`."""
        self._told, self._learns = told, learns
        self._params: Any = parameters()
        self._step: Step | None = None

    def begin(self) -> Step:
        """As `Contender`."""
        if Ours._latest is not self or self._step is None:
            Ours._latest = self
            self._params = hk.distribute(self._params, **self._told)
            self._step = self._training() if self._learns else self._sending()
        return self._step

    def mean(self, own: float) -> float:
        """Of a number of each rank, all of which call it in their turn."""
        filled = [jnp.full_like(each, own) for each in self._params]
        return float(hk.gradients(hk.mean)(filled)[0][0, 0])

    def _training(self) -> Step:
        gradients = hk.gradients(lambda params, batch: hk.mean(jax.grad(loss)(params, batch)))

        def step(batch: Any) -> Any:
            self._params = update(self._params, gradients(self._params, batch))
            return self._params

        return step

    def _sending(self) -> Step:
        means = hk.gradients(hk.mean)
        return lambda _: means(self._params)


class Psum:
    """JAX's own: `psum` of each gradient under `shard_map`."""

    def __init__(self, rank: int, world: int) -> None:
        """Joins JAX's own job, so it is made before all others."""
        self._gloo = gloo = Gloo(rank, world)
        self._params = [gloo.everywhere(each) for each in parameters()]

        def means(params: Any, batch: Any) -> Any:
            return [jax.lax.psum(each, RANKS) / gloo.world for each in jax.grad(loss)(params, batch)]

        self._gradients = gloo.mapped(means, PartitionSpec(), PartitionSpec(RANKS))

    def begin(self) -> Step:
        """As `Contender`."""
        return self._step

    def _step(self, batch: Any) -> Any:
        self._params = update(self._params, self._gradients(self._params, self._gloo.parts(batch)))
        return self._params


class Alone:
    """Computation without communication: each rank applies its own gradients."""

    def __init__(self) -> None:
        """Nothing is sent."""
        self._params: Any = parameters()
        self._gradients = jax.jit(jax.grad(loss))

    def begin(self) -> Step:
        """As `Contender`."""
        return self._step

    def _step(self, batch: Any) -> Any:
        self._params = update(self._params, self._gradients(self._params, batch))
        return self._params


def bucket_a_layer(world: int) -> Plan:
    """Layers leave one by one: the default plan would send all but one as one."""
    layers = [[Gradient(str(at), (WIDTH, WIDTH), "f32")] for at in reversed(range(LAYERS))]
    return plan_of(
        buckets(layers, AllReduce(algorithm="ring"), range(world)), world, label="a bucket a layer"
    )


MAKERS: dict[str, Callable[[int, int], Contender]] = {
    "psum": Psum,
    "exact": lambda _rank, _world: Ours(promise="exact"),
    "rounded": lambda _rank, _world: Ours(promise="rounded"),
    "layers": lambda _rank, world: Ours(plan=bucket_a_layer(world)),
    "communication": lambda _rank, world: Ours(plan=bucket_a_layer(world), learns=False),
    "computation": lambda _rank, _world: Alone(),
}
"""By name, of a rank in a world; in the order in which they are made."""
