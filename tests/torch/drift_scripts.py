"""Ranks of `test_drift.py`: one of them does to its model or its optimizer what the others do not."""

from __future__ import annotations

import os
from collections.abc import Callable

import msgspec
import torch
from torch import nn

import hocket.torch as hk
from hocket.artefacts.plan import AllReduce, Owned, Owner, Plan, Route, Schedule
from hocket.errors import ReplicaError
from hocket.planning.buckets import plan_of
from tests.sessions.plans import schedule_of
from tests.torch.mixed_scripts import bucket_of

RANK, WORLD = int(os.environ.get("HOCKET_RANK", "0")), int(os.environ.get("HOCKET_WORLD", "1"))
STEPS_MAX = 20_000
"""Until then a difference must have been found, whatever looks cost on this machine."""
AT = 4
"""The step after which ranks go apart."""

Act = Callable[[nn.Module, torch.optim.Optimizer], None]


def network(width: int = 6) -> nn.Module:
    """Two layers, and a parameter that does not train."""
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(5, width), nn.Tanh(), nn.Linear(width, 3))
    model.register_parameter("scale", nn.Parameter(torch.ones(4), requires_grad=False))
    return model


def adds(name: str) -> Act:
    """A weight of one rank changes by the smallest step."""

    def act(model: nn.Module, _optimizer: torch.optim.Optimizer) -> None:
        with torch.no_grad():
            weight = dict(model.named_parameters())[name].view(-1)
            weight[-1] = torch.nextafter(weight[-1], torch.tensor(9.0))

    return act


def rates(_model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """One rank's scheduler says something else."""
    optimizer.param_groups[0]["lr"] *= 0.5


def loads(model: nn.Module, _optimizer: torch.optim.Optimizer) -> None:
    """One rank takes its weights from somewhere."""
    model.load_state_dict({name: each * 2 for name, each in model.state_dict().items()})


ACTS: dict[str, Act] = {
    "weight": adds("2.weight"),
    "frozen": adds("scale"),
    "rate": rates,
    "load": loads,
}


def plan(kind: str) -> Plan | None:
    """A bucket for each layer; None: there is none."""
    owners = Owned(owners=tuple(Owner(rank=rank) for rank in range(WORLD)), update="owners")
    route: Route = owners if kind == "owners" else AllReduce(algorithm="ring")
    model = network()
    buckets = [
        bucket_of(model, names, route, WORLD, priority=at)
        for at, names in enumerate((["2.weight", "2.bias"], ["0.weight", "0.bias"]))
    ]
    made = plan_of(buckets, WORLD, label=kind)
    match kind:
        case "owners":
            return made
        case "gates":
            return msgspec.structs.replace(made, schedule=Schedule(overlap="gates"))
        case "delayed":
            schedule = schedule_of([2, 1], 1, 2, "linear")
            return msgspec.structs.replace(made, schedule=schedule, promise="uncorrected")
    return None


def train(what: str, who: str, kind: str = "plain", steps: str = str(STEPS_MAX)) -> object:
    """Until ranks are found to be apart: which ranks and parameters, in which step, and what is said."""
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.5)
    local = hk.Local(every=2) if kind == "local" else None
    hk.distribute(model, optimizer, local=local, plan=plan(kind))
    draw = torch.Generator().manual_seed(RANK)
    try:
        for step in range(int(steps)):
            model(torch.randn(4, 5, generator=draw)).square().sum().backward()
            optimizer.step()
            optimizer.zero_grad()
            if step == AT and int(who) == RANK:
                ACTS[what](model, optimizer)
    except ReplicaError as error:
        return [list(error.ranks), list(error.parameters), str(error)]
    return None


def start(option: str, who: str) -> object:
    """An optimizer that one rank makes with another option."""
    model = network()
    options = {"lr": 0.01, "betas": (0.9, 0.99), "weight_decay": 0.1}
    if int(who) == RANK:
        options[option] = (0.8, 0.99) if option == "betas" else 0.3
    groups = [{"params": model[0].parameters()}, {"params": model[2].parameters(), "eps": 1e-7}]
    try:
        hk.distribute(model, torch.optim.AdamW(groups, **options))
    except ReplicaError as error:
        return [list(error.ranks), list(error.parameters), str(error)]
    return None


def joined(batches: str) -> object:
    """Ranks finish one after the other, and those that have finished do not step meanwhile. What all hold in the end."""
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
    hk.distribute(model, optimizer)
    draw = torch.Generator().manual_seed(RANK)
    with hk.join(model):
        for _ in range(int(batches) * (RANK + 1)):
            model(torch.randn(4, 5, generator=draw)).square().sum().backward()
            optimizer.step()
            optimizer.zero_grad()
    return [each.detach().flatten().tolist() for each in model.parameters()]
