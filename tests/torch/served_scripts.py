"""What ranks of `test_served_plans.py` do. The last rank serves: `distribute` ends it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec
import torch
from torch import nn

import hocket.torch as hk
from hocket.artefacts.plan import AllReduce, Bucket, Owned, Owner, Part, Plan, Route, Schedule, Served, Traced
from hocket.errors import UsageError
from hocket.planning.buckets import plan_of
from tests.torch import mixed_scripts
from tests.torch.mixed_scripts import Scaled, bucket_of, distance, expected, loss_of, network, optimizer_of

WORKERS = 2
SERVED = Served(servers=(WORKERS,))


def served_by_one(buckets: list[Bucket], *, gates: bool, promise: str = "exact") -> Plan:
    """A plan of two ranks that train and one that serves."""
    return msgspec.structs.replace(
        plan_of(buckets, WORKERS + 1, label="served"),
        workers=tuple(range(WORKERS)),
        schedule=Schedule(overlap="gates" if gates else "barrier"),
        promise=promise,
    )


def several_ways(model: nn.Module, *, gates: bool) -> Plan:
    """Two buckets are served, which share a variable, one goes by a ring, and one by owners."""
    ways: dict[tuple[str, ...], Route] = {
        ("2.weight",): AllReduce(algorithm="ring"),
        ("4.weight", "4.bias"): Owned(owners=(Owner(rank=0), Owner(rank=1))),
    }
    served = [
        Bucket(parts=parts, elements=elements, dtype="f32", route=SERVED, order=(0, 1), priority=priority)
        for priority, (parts, elements) in enumerate(
            (
                ((Part(variable="0.weight", stop=30),), 30),
                ((Part(variable="0.bias", stop=11), Part(variable="0.weight", start=30, stop=77)), 58),
            )
        )
    ]
    others = [bucket_of(model, names, route, WORKERS, priority=2) for names, route in ways.items()]
    return served_by_one([*served, *others], gates=gates)


def beside_others(gates: str) -> float:
    """How far the parameters are from the plain mean's."""
    plan = several_ways(network(), gates=gates == "gates")
    return distance(mixed_scripts.trained(plan=plan), expected(WORKERS))


def again_beside_others(gates: str) -> tuple[float, float]:
    """How far the parameters are from those of one process after a training on servers, another one, and a third without them, each
    with a new optimizer; and what another model learns that servers hold then."""
    model, alone = network(), network()
    for plan in (*[several_ways(model, gates=gates == "gates")] * 2, None):
        model, optimizer = hk.distribute(model, optimizer_of(model), plan=plan)
        plain = optimizer_of(alone)
        for step in range(mixed_scripts.STEPS):
            optimizer.zero_grad()
            loss_of(model, step, hk.rank(model)).backward()
            optimizer.step()
            plain.zero_grad()
            torch.stack([loss_of(alone, step, rank) for rank in range(WORKERS)]).mean().backward()
            plain.step()
    model.state_dict()  # opens gates
    other = Ones("weight")
    hk.distribute(
        other, torch.optim.SGD(other.parameters(), lr=1.0), parameter_server=hk.ParameterServer(servers=1)
    )
    other().backward()
    return distance(model, alone), float(other.state_dict()["weight"][0])


def late_servers() -> str:
    """What a script is told whose rank 2 trains, and is to serve a later model."""
    model = network()
    model, optimizer = hk.distribute(model, optimizer_of(model))
    try:
        hk.distribute(model, optimizer, parameter_server=hk.ParameterServer(servers=1))
    except UsageError as error:
        return str(error)
    return "nothing"


def at_a_scaled_rate(gates: str) -> float:
    """How far the parameters are from the plain mean's at half the rate, on servers and on workers."""
    model = network()
    model, optimizer = hk.distribute(
        model, optimizer_of(model), plan=several_ways(model, gates=gates == "gates")
    )
    hk.scale_lr(model, "linear", world=2 * WORKERS)
    for step in range(mixed_scripts.STEPS):
        optimizer.zero_grad()
        loss_of(model, step, hk.rank(model)).backward()
        optimizer.step()
    model.state_dict()  # opens gates
    alone = network()
    plain = optimizer_of(alone)
    plain.param_groups[0]["lr"] /= 2
    for step in range(mixed_scripts.STEPS):
        plain.zero_grad()
        torch.stack([loss_of(alone, step, rank) for rank in range(WORKERS)]).mean().backward()
        plain.step()
    return distance(model, alone)


def with_codec() -> tuple[float, float]:
    """All is served, and worker 0 pushes in f16: how far parameters are after a step from where the mean of what arrives leads, and
    from where the plain mean does."""
    model = network()
    names = [name for name, _ in model.named_parameters()]
    bucket = bucket_of(model, names, SERVED, WORKERS, codec="f16", codec_links=((0, WORKERS),))
    trained = mixed_scripts.trained(plan=served_by_one([bucket], gates=True, promise="rounded"), steps=1)
    rounded = network()
    optimizer = optimizer_of(rounded)
    means = [torch.zeros_like(each) for each in rounded.parameters()]
    for rank in range(WORKERS):
        rounded.zero_grad()
        loss_of(rounded, 0, rank).backward()
        for mean, each in zip(means, rounded.parameters(), strict=True):
            assert each.grad is not None
            mean.add_((each.grad.half().float() if rank == 0 else each.grad) / WORKERS)
    for mean, each in zip(means, rounded.parameters(), strict=True):
        each.grad = mean
    optimizer.step()
    return distance(trained, rounded), distance(trained, expected(WORKERS, steps=1))


class Ones(nn.Module):
    def __init__(self, *names: str) -> None:
        super().__init__()
        for name in names:
            setattr(self, name, nn.Parameter(torch.zeros(5)))

    def forward(self) -> torch.Tensor:
        return torch.stack([each.sum() for each in self.parameters()]).sum()


def ones(
    routes: Mapping[str, Route], promise: str, momentum: float, **options: object
) -> tuple[nn.Module, Callable[[], None]]:
    """A model of these parameters, each of which goes its way, and what makes a step at a rate of 1."""
    model = Ones(*routes)
    buckets = [bucket_of(model, [name], route, WORKERS) for name, route in routes.items()]
    plan = served_by_one(buckets, gates=True, promise=promise)
    model, optimizer = hk.distribute(
        model, torch.optim.SGD(model.parameters(), lr=1.0, momentum=momentum), plan=plan, **options
    )

    def step() -> None:
        optimizer.zero_grad()
        model().backward()
        optimizer.step()

    return model, step


def values(model: nn.Module) -> dict[str, list[float]]:
    return {name: each.tolist() for name, each in model.state_dict().items()}


def staleness_of_each() -> dict[str, list[float]]:
    """One bucket is synchronous, and one is not: its momentum moves with each push."""
    model, step = ones(
        {"together": SERVED, "apart": Served(servers=(WORKERS,), staleness=None)}, "delayed", momentum=0.5
    )
    for _ in range(3):
        step()
    return values(model)


def beside_a_policy() -> tuple[int, int, dict[str, list[float]]]:
    """An epoch begins when the policy has changed its mind: that epoch, the steps in it and before, and the values."""
    routes = {"served": SERVED, "scaled": Traced(policy="Scaled"), "ring": AllReduce(algorithm="ring")}
    model, step = ones(routes, "lossy", momentum=0.0, policy=Scaled())
    steps = 0
    while steps < 2000 and not hk.agreed(model)["epoch"]:
        step()
        steps += 1
    for _ in range(3):
        step()
    return int(hk.agreed(model)["epoch"]), steps + 3, values(model)
