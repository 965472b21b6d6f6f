"""Runs of a policy on the reference executor, step by step: all ranks in one process, plain NumPy, deterministic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hocket import reference
from hocket._native import Program
from hocket.policy.bucketing import Bucket, Gradient
from hocket.policy.policy import Policy, Value
from hocket.policy.topology import Topology
from hocket.policy.trace import TraceContext, Traced, bucket_program, layout, stages
from hocket.reference.executor import State
from hocket.reference.ops import Array, cast
from hocket.testing.kernels import python_form

SHAPES = ((64, 32), (32,), (7, 5), (1,))


@dataclass
class Result:
    """Result of a run: `gradients[step][rank]` by name after each step, `inputs` before it, a program per bucket."""

    inputs: list[list[dict[str, Array]]] = field(default_factory=list)
    gradients: list[list[dict[str, Array]]] = field(default_factory=list)
    programs: list[Program] = field(default_factory=list)

    def mean(self, step: int = -1) -> dict[str, Array]:
        """Exact mean of a step's inputs, in f64."""
        ranks = self.inputs[step]
        stacked = {name: np.stack([each[name] for each in ranks]) for name in ranks[0]}
        return {name: np.asarray(each.mean(axis=0, dtype=np.float64)) for name, each in stacked.items()}

    def error(self, step: int = -1) -> float:
        """Largest L2 error of any rank against the exact mean, over the norm of the mean."""
        exact = _flat(self.mean(step))
        norm = max(float(np.linalg.norm(exact)), 1e-300)
        return max(float(np.linalg.norm(_flat(each) - exact)) / norm for each in self.gradients[step])


def run(
    policy: Policy,
    world: int = 8,
    *,
    shapes: Sequence[tuple[int, ...]] = SHAPES,
    steps: int = 1,
    topology: Topology | None = None,
    dtype: str = "f32",
    seed: int = 0,
    gradients: Sequence[Sequence[Mapping[str, Array]]] | None = None,
    agreed: Mapping[str, Value] | None = None,
) -> Result:
    """Trace, verify and run `policy` for `steps` steps of `world` ranks.

    Args:
        policy: the policy under test.
        world: number of ranks, each on its own host unless `topology` says otherwise.
        shapes: shapes of the gradients, named `g0`, `g1`, … in the order of forward.
        steps: number of steps; state buffers persist from step to step.
        topology: hosts, racks and links of the ranks.
        dtype: element type of the gradients: f64, f32, f16 or bf16.
        seed: seed of the gradients, which are normally distributed.
        gradients: `gradients[step][rank][name]`, instead of random ones.
        agreed: values instead of the policy's parameters.

    Raises:
        PolicyError: a policy that cannot be traced, or whose program is refused, with file and line.

    >>> run(Policy(), world=3).error() < 1e-6
    True
    """
    context = TraceContext.of(policy, topology or Topology.even(world=world), agreed)
    traced = trace(policy, context, shapes=shapes, dtype=dtype)
    generator = np.random.default_rng(seed)
    result = Result(programs=[each.program for _, each in traced])
    states: list[State] = [{} for _ in traced]
    for step in range(steps):
        inputs = [
            {
                f"g{at}": np.asarray(gradients[step][rank][f"g{at}"], np.float32)
                if gradients is not None
                else generator.standard_normal(shape).astype(np.float32)
                for at, shape in enumerate(shapes)
            }
            for rank in range(context.topology.world)
        ]
        result.inputs.append(inputs)
        result.gradients.append([dict(each) for each in inputs])
        for (bucket, each), state in zip(traced, states, strict=True):
            _run_bucket(bucket, each, inputs, result.gradients[-1], state)
    return result


def trace(
    policy: Policy, context: TraceContext, *, shapes: Sequence[tuple[int, ...]] = SHAPES, dtype: str = "f32"
) -> list[tuple[Bucket, Traced]]:
    """Trace the policy's buckets for gradients of the given shapes, each with its verified program."""
    count = len(shapes)
    gradients = [
        Gradient(f"g{at}", tuple(shape), dtype, count - 1 - at, at) for at, shape in enumerate(shapes)
    ]
    buckets = layout(policy, gradients, context).buckets
    return [
        (each, bucket_program(policy, each, context, name=f"bucket.{at}")) for at, each in enumerate(buckets)
    ]


def _run_bucket(
    bucket: Bucket,
    traced: Traced,
    inputs: list[dict[str, Array]],
    outputs: list[dict[str, Array]],
    state: State,
) -> None:
    buffers = [
        [
            cast(
                np.concatenate([rank[each.name].reshape(-1) for each in bucket.gradients]),
                "f32",
                bucket.dtype,
            )
        ]
        for rank in inputs
    ]
    for name, (start, stop) in traced.starts.items():
        for rank in range(len(inputs)):
            # Replicas start equal, from rank 0's state.
            state.setdefault((rank, name), buffers[0][0][start:stop].copy())
    kernels = {name: python_form(kernel) for name, kernel in traced.kernels.items()}
    reference.run(traced.program, buffers, state=state, kernels=kernels)
    for rank, (buffer,) in enumerate(buffers):
        start = 0
        for each in bucket.gradients:
            part = buffer[start : start + each.elements]
            outputs[rank][each.name] = cast(
                part, bucket.dtype, "f32" if bucket.dtype != "f64" else "f64"
            ).reshape(each.shape)
            start += each.elements


def _flat(arrays: Mapping[str, Any]) -> Array:
    return np.concatenate([np.asarray(arrays[name], np.float64).reshape(-1) for name in sorted(arrays)])


def stages_of(policy: Policy, topology: Topology, elements: int) -> dict[str, Program]:
    """Programs of one f32 gradient after each pass, by the pass's name."""
    bucket = Bucket((Gradient("g0", (elements,), "f32", 0, 0),), 0)
    return stages(policy, bucket, TraceContext.of(policy, topology))
