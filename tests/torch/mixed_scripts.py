"""What ranks of `test_mixed_plans.py` do."""

from __future__ import annotations

import os
from collections.abc import Sequence

import msgspec
import torch
from torch import nn

import hocket.torch as hk
from hocket.artefacts.plan import AllReduce, Bucket, Part, Plan, Traced
from hocket.planning.buckets import plan_of
from hocket.policy.policy import Policy

STEPS = 3


def network() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(
        nn.Linear(7, 11), nn.Tanh(), nn.Linear(11, 5, bias=False), nn.Tanh(), nn.Linear(5, 3)
    )


def optimizer_of(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=0.01)


def batch(step: int, rank: int) -> torch.Tensor:
    return torch.randn(4, 7, generator=torch.Generator().manual_seed(100 * step + rank))


def loss_of(model: nn.Module, step: int, rank: int) -> torch.Tensor:
    return model(batch(step, rank)).square().sum()


def expected(world: int, steps: int = STEPS) -> nn.Module:
    """The model after these steps with the plain mean of all ranks' gradients, in one process."""
    model = network()
    optimizer = optimizer_of(model)
    for step in range(steps):
        optimizer.zero_grad()
        for rank in range(world):
            (loss_of(model, step, rank) / world).backward()
        optimizer.step()
    return model


def distance(model: nn.Module, other: nn.Module) -> float:
    pairs = zip(model.parameters(), other.parameters(), strict=True)
    return max(float((a.detach() - b.detach()).abs().max()) for a, b in pairs)


def trained(plan: Plan, steps: int = STEPS) -> nn.Module:
    rank = int(os.environ["HOCKET_RANK"])
    model = network()
    model, optimizer = hk.distribute(model, optimizer_of(model), plan=plan)
    for step in range(steps):
        optimizer.zero_grad()
        loss_of(model, step, rank).backward()
        optimizer.step()
    model.state_dict()  # opens gates
    return model


class Scaled(Policy):
    """A multiple of the mean, which changes while the job runs."""

    contract = "none"
    parameters = {"factor": 2.0}  # noqa: RUF012
    timer_interval_s = 0.05

    def on_buffer_ready(self, cx, buffer):  # type: ignore[no-untyped-def]
        cx.all_reduce(buffer, op="mean")
        cx.scale(buffer, float(cx.agreed("factor")))

    def on_timer(self, cx, _stats):  # type: ignore[no-untyped-def]
        if cx.rank == 0:
            cx.propose(factor=3.0)


def bucket_of(model: nn.Module, names: Sequence[str], route: object, world: int, **fields: object) -> Bucket:
    sizes = {name: each.numel() for name, each in model.named_parameters()}
    return Bucket(
        parts=tuple(Part(variable=name, stop=sizes[name]) for name in names),
        elements=sum(sizes[name] for name in names),
        dtype="f32",
        route=route,  # type: ignore[arg-type]
        order=tuple(range(world)),
        **({"priority": 0} | fields),  # type: ignore[arg-type]
    )


def mixed(model: nn.Module, world: int) -> Plan:
    ways = {
        ("0.weight", "0.bias"): Traced(policy="top_k", parameters={"share": 1.0}),
        ("2.weight",): Traced(policy="Scaled"),
        ("4.weight", "4.bias"): AllReduce(algorithm="ring"),
    }
    made = [bucket_of(model, names, route, world) for names, route in ways.items()]
    return msgspec.structs.replace(plan_of(made, world, label="mixed"), promise="lossy")


def two_policies() -> dict[str, object]:
    """Share that each parameter's gradient is of the mean, at first and once the policy has changed its mind; the agreed values. In
    which step the change shows first, and in which it is agreed, differs from run to run."""
    rank, world = int(os.environ["HOCKET_RANK"]), int(os.environ["HOCKET_WORLD"])
    model = network()
    model, _ = hk.distribute(
        model, torch.optim.SGD(model.parameters(), lr=0.0), plan=mixed(model, world), policy=Scaled()
    )

    def ratios() -> dict[str, float]:
        plain = network()
        for other in range(world):
            (loss_of(plain, 0, other) / world).backward()
        model.zero_grad()
        loss_of(model, 0, rank).backward()
        pairs = zip(model.named_parameters(), plain.parameters(), strict=True)
        return {name: float((each.grad / mean.grad).median()) for (name, each), mean in pairs}

    first = ratios()
    for _ in range(2000):
        ratios()
        if hk.agreed(model)["epoch"]:
            break
    return {"first": first, "last": ratios(), "agreed": hk.agreed(model)}
