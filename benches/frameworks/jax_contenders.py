"""Contenders of `python -m benches frameworks` under JAX: each trains its own parameters on the same batches, in turns."""

from __future__ import annotations

import functools
from collections.abc import Callable
from statistics import median
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec

import hocket.jax as hk
from benches.frameworks.gloo import RANKS, Gloo
from benches.frameworks.model import LAYERS, RATE, SAMPLES, WIDTH, weights
from benches.frameworks.turns import Contender, Step, turn
from hocket.artefacts.gradient import Gradient
from hocket.artefacts.plan import AllReduce, Plan
from hocket.planning.buckets import buckets, plan_of

BALANCING = 3
"""Rounds of changes to the size of batches."""


def parameters() -> list[jax.Array]:
    """Make parameters, the same on all ranks."""
    return [jnp.asarray(each) for each in weights()]


def loss(params: Any, x: Any) -> Any:
    for each in params:
        x = jnp.tanh(x @ each)
    return jnp.mean(x**2)


def updated(params: Any, grads: Any) -> Any:
    """Take a step of gradient descent."""
    return [each - RATE * grad for each, grad in zip(params, grads, strict=True)]


update = jax.jit(updated, donate_argnums=0)
"""Update in a separate function."""


class Ours:
    """Hocket: the three lines, with the update in the same function. A process trains one tree at a time, so a turn begins with
    `distribute`, unless this was the last to distribute. Unless `learns`, gradients are given, not computed."""

    _latest: Ours | None = None

    def __init__(self, *, learns: bool = True, **told: Any) -> None:
        """Begin. `told`: arguments of `distribute`."""
        self._told, self._learns = told, learns
        self._params: Any = parameters()
        self._step: Step | None = None

    def begin(self) -> Step:
        if Ours._latest is not self or self._step is None:
            Ours._latest = self
            self._params = hk.distribute(self._params, **self._told)
            self._step = self._training() if self._learns else self._sending()
        return self._step

    def mean(self, own: float) -> float:
        """Mean of each rank's number; all ranks call this in their turn."""
        filled = [jnp.full_like(each, own) for each in self._params]
        return float(hk.gradients(hk.mean)(filled)[0][0, 0])

    def _training(self) -> Step:
        @functools.partial(hk.gradients, donate_argnums=0)
        def trained(params: Any, batch: Any) -> Any:
            return updated(params, hk.mean(jax.grad(loss)(params, batch)))

        def step(batch: Any) -> None:
            self._params = jax.block_until_ready(trained(self._params, batch))

        return step

    def _sending(self) -> Step:
        means = hk.gradients(hk.mean)

        def step(_: Any) -> None:
            jax.block_until_ready(means(self._params))

        return step


class Psum:
    """JAX's own: `psum` of each gradient under `shard_map`. The update is a separate function, which is faster."""

    def __init__(self, rank: int, world: int) -> None:
        """Join JAX's own job, so this is made before all others."""
        self._gloo = gloo = Gloo(rank, world)
        self._params = [gloo.everywhere(each) for each in parameters()]

        def means(params: Any, batch: Any) -> Any:
            return [jax.lax.psum(each, RANKS) / gloo.world for each in jax.grad(loss)(params, batch)]

        self._gradients = gloo.mapped(means, PartitionSpec(), PartitionSpec(RANKS))

    def begin(self) -> Step:
        return self._step

    def _step(self, batch: Any) -> None:
        grads = self._gradients(self._params, self._gloo.parts(batch))
        self._params = jax.block_until_ready(update(self._params, grads))


class Alone:
    """Computation without communication: each rank applies its own gradients."""

    def __init__(self) -> None:
        self._params: Any = parameters()
        self._gradients = jax.jit(jax.grad(loss))

    def begin(self) -> Step:
        return self._step

    def _step(self, batch: Any) -> None:
        self._params = jax.block_until_ready(update(self._params, self._gradients(self._params, batch)))


def bucket_a_layer(world: int) -> Plan:
    """Plan with a bucket for each layer: the default plan would send all but one as one."""
    layers = [[Gradient(str(at), (WIDTH, WIDTH), "f32")] for at in reversed(range(LAYERS))]
    return plan_of(
        buckets(layers, AllReduce(algorithm="ring"), range(world)), world, label="a bucket a layer"
    )


class Forward:
    def __init__(self) -> None:
        """Begin; nothing is sent or trained."""
        self._params = parameters()
        self._loss = jax.jit(loss)

    def begin(self) -> Step:
        def step(batch: Any) -> None:
            jax.block_until_ready(self._loss(self._params, batch))

        return step


MAKERS: dict[str, Callable[[int, int], Contender]] = {
    "psum": Psum,
    "exact": lambda _rank, _world: Ours(promise="exact"),
    "rounded": lambda _rank, _world: Ours(promise="rounded"),
    "layers": lambda _rank, world: Ours(plan=bucket_a_layer(world)),
    "communication": lambda _rank, world: Ours(plan=bucket_a_layer(world), learns=False),
    "computation": lambda _rank, _world: Alone(),
}
"""Makers of contenders by name, for a rank in a world; in the order in which they are made."""


def balanced(random: np.random.Generator, world: int) -> int:
    """Samples of a batch with which backward takes as long as communication, the same on all ranks: found in rounds, since part of
    a step is independent of samples."""
    sending, computing, forward = Ours(plan=bucket_a_layer(world), learns=False), Alone(), Forward()
    samples, sent_s = SAMPLES, median(turn(sending, random, SAMPLES).steps_s)
    for _ in range(BALANCING):
        both_s, forward_s = (median(turn(each, random, samples).steps_s) for each in (computing, forward))
        samples = max(1, round(samples * sending.mean(sent_s / max(both_s - forward_s, both_s / 10))))
    return samples
