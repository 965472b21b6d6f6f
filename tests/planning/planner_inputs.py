"""The clusters and models that the planner's tests are about."""

from __future__ import annotations

from hocket.artefacts.cluster import Cluster, Host, Rack
from hocket.artefacts.profile import Gradient, Profile


def alternating(trunk_bit_per_s: float = 1e8, host_bit_per_s: float = 1e9, hosts: int = 4) -> Cluster:
    """Hosts that alternate between two racks joined by a trunk."""
    return Cluster(
        hosts=tuple(
            Host(name=f"h{i}", rack=f"rack{i % 2}", bandwidth_bit_per_s=host_bit_per_s) for i in range(hosts)
        ),
        racks=tuple(Rack(name=f"rack{i}", uplink_bit_per_s=trunk_bit_per_s) for i in range(2)),
    )


def model(gradients: int = 8, elements: int = 100_000) -> Profile:
    """A model whose gradients become ready one by one in backward, the last parameter's first."""
    return Profile(
        model="test",
        world=4,
        steps=3,
        forward_s=0.02,
        backward_s=0.04,
        optimizer_s=0.01,
        step_s=0.07,
        gradients=tuple(
            Gradient(
                name=f"p{i}",
                shape=(elements,),
                dtype="f32",
                ready_s=0.02 + 0.04 * (gradients - i) / gradients,
                needed_s=0.02 * i / gradients,
            )
            for i in range(gradients)
        ),
    )
