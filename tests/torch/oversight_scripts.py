"""What ranks of `test_oversight.py` do."""

from __future__ import annotations

import math

import msgspec
import torch
from torch import nn

import hocket.torch as hk
from hocket.torch.in_training import distributed_of
from hocket.training.step.reducing import ReducingSession
from tests.sessions.plans import schedule_of
from tests.torch.delayed_scripts import here, plan_for

SIZE, RATE, MOMENTUM = 20, 0.3, 0.9
"""Curvature 1: late by 1, the limit of the rate is 0.1; synchronously, and with updates of two iterations, it is 3.8."""

RATE_OWN_FIRST = 0.05
"""Rate that late gradients bear, too: the guard lets them pass."""

CENTRE = 0.3


def session_of(model: nn.Module) -> ReducingSession:
    session = distributed_of(model).session
    assert isinstance(session, ReducingSession)
    return session


def late(*, safer: bool, rate: float = RATE, steps: str = "one") -> tuple[nn.Module, torch.optim.Optimizer]:
    model = nn.Linear(SIZE, 1, bias=False).double()
    with torch.no_grad():
        model.weight.fill_(1.0)
    schedule = msgspec.structs.replace(schedule_of((1,), 1, 1, "linear"), steps=steps)
    plan = plan_for(model, schedule, [["weight"]])
    if safer:
        plan = msgspec.structs.replace(plan, safer=(schedule_of((2,), 0, 1, "linear"),))
    return hk.distribute(model, torch.optim.SGD(model.parameters(), lr=rate, momentum=MOMENTUM), plan=plan)


def loss_at(model: nn.Module, draw: torch.Generator) -> torch.Tensor:
    centre = CENTRE + torch.randn(1, SIZE, generator=draw, dtype=torch.float64)
    return 0.5 * (model.weight - centre).square().sum()  # type: ignore[operator]


def own_first(iterations: str) -> list[float]:
    """This rank's distance from the floor after each iteration, and that of all after a flush."""
    rank, _ = here()
    model, optimizer = late(safer=False, rate=RATE_OWN_FIRST, steps="own first")
    draw = torch.Generator().manual_seed(rank)
    far = []
    for _ in range(int(iterations)):
        optimizer.zero_grad()
        loss_at(model, draw).backward()
        optimizer.step()
        far.append(float((model.weight.detach() - CENTRE).norm()))
    hk.flush(model)
    return [*far, float((model.weight.detach() - CENTRE).norm())]


def descended(curved: str, safer: str, steps: str) -> list[object]:
    """How far from the floor the last iterations are, the merges of the schedule in force in the end, whether it is late, and
    in which iteration the first retreat was seen."""
    rank, _ = here()
    model, optimizer = late(safer=safer == "safer")
    draw = torch.Generator().manual_seed(rank)
    if curved == "curved":
        hk.curvature(model, lambda: loss_at(model, torch.Generator().manual_seed(1)))
    session = session_of(model)
    delays = session.delays
    assert delays is not None
    far, retreated = [], None
    for iteration in range(int(steps)):
        optimizer.zero_grad()
        loss = loss_at(model, draw)
        loss.backward()
        optimizer.step()
        if curved != "silent":
            hk.log(model, loss=loss)
        far.append(float((model.weight.detach() - CENTRE).norm()))
        if retreated is None and delays.retreated:
            retreated = iteration
    hk.flush(model)
    in_force = session.updates.schedule
    merged = max((turn.last - turn.first + 1 for each in in_force.turns for turn in each), default=1)
    return [max(far[-20:]), merged, in_force.delay_max, retreated, list(session.updates.counts)]


def one_ranks_loss() -> list[object]:
    """Of two ranks, one sees a loss that grows; gradients stay what they are. The iteration of the retreat, and what was logged."""
    rank, _ = here()
    model, optimizer = late(safer=False, rate=0.01)
    draw = torch.Generator().manual_seed(rank)
    session = session_of(model)
    delays = session.delays
    assert delays is not None
    retreated = None
    for iteration in range(40):
        optimizer.zero_grad()
        loss_at(model, draw).backward()
        optimizer.step()
        grown = 1.5 ** max(0, iteration - 15) if rank == 1 else 1.0
        hk.log(model, loss=torch.tensor(grown))
        if retreated is None and delays.retreated:
            retreated = iteration
    hk.flush(model)
    return [retreated, session.updates.schedule.delay_max]


def seen() -> list[float | None]:
    """Drift and noise as this session has seen them, the number of its iterations that were looked at, and rate and momentum."""
    rank, world = here()
    model, optimizer = late(safer=False, rate=1e-3)
    draw = torch.Generator().manual_seed(rank)
    for _ in range(9):
        optimizer.zero_grad()
        loss_at(model, draw).backward()
        optimizer.step()
    report = session_of(model).gauge.report(distributed_of(model).framework.learning())
    own = report.norms[0]
    # The first gradient is weight - centre of each rank, and its mean that of all.
    grads = []
    for each in range(world):
        other = torch.Generator().manual_seed(each)
        grads.append(1.0 - CENTRE - torch.randn(1, SIZE, generator=other, dtype=torch.float64))
    mean = sum(grads) / world
    expected = [
        float((a * b).sum()) for a, b in ((grads[rank], grads[rank]), (grads[rank], mean), (mean, mean))
    ]
    differ = [math.fabs(a - b) for a, b in zip((own.own, own.product, own.mean), expected, strict=True)]
    assert report.optimizer is not None
    for _ in range(9):
        optimizer.zero_grad()
        loss_at(model, draw).backward()
        optimizer.step()
    hk.flush(model)
    return [max(differ), float(len(report.norms)), report.optimizer.rate, report.optimizer.momentum]
