"""What ranks of `test_drifting.py` do: steps alone on a quadratic of which each rank has one half of the directions, twice as steep
as all ranks' together."""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn

import hocket.torch as hk
from hocket.artefacts.local import every
from hocket.artefacts.plan import Schedule
from hocket.torch.in_training import distributed_of
from hocket.training.step.reducing import ReducingSession
from tests.torch.delayed_scripts import here, plan_for
from tests.torch.elastic_scripts import Fate, die_inside
from tests.torch.local_scripts import digest

SIZE, NOISE = 8, 0.01

TOO_STEEP, EASY = 1.05, 0.02
"""Rates at a curvature of 1: a rank alone has 2, and grow by 1.1 a step; together they shrink."""

LOST_ALONE, LOST_STEPS = 40, 130

CASES: dict[str, dict[str, Any]] = {
    "average": {},
    "outer": {"rate": 0.7, "momentum": 0.9},
    "late": {"late": 30},
    "fragments": {"fragments": 2},
    "mix": {"mix": 0.25},
    "weighed": {"paced": True, "weights": "logged"},
    "grows": {"grows": True},
    "all": {"late": 10, "fragments": 2, "rate": 0.5, "momentum": 0.5, "nesterov": False},
}


class Halves(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Parameter(torch.ones(SIZE, dtype=torch.float64))
        self.second = nn.Parameter(torch.ones(SIZE, dtype=torch.float64))

    def loss(self, draw: torch.Generator) -> torch.Tensor:
        rank, world = here()
        mine = (torch.arange(SIZE) % world == rank).double() * world
        off = NOISE * torch.randn(2, SIZE, generator=draw, dtype=torch.float64)
        return 0.5 * sum(
            (mine * (each - own).square()).sum()
            for each, own in zip((self.first, self.second), off, strict=True)
        )


def session_of(model: nn.Module) -> ReducingSession:
    session = distributed_of(model).session
    assert isinstance(session, ReducingSession)
    return session


def begun(name: str, steps: int, rate: float, kind: str) -> tuple[Halves, torch.optim.Optimizer]:
    model = Halves()
    optimizers = {
        "sgd": torch.optim.SGD(model.parameters(), lr=rate),
        "momentum": torch.optim.SGD(model.parameters(), lr=3 * rate, momentum=0.9),
    }
    plan = plan_for(model, Schedule(), [["second"], ["first"]])
    return hk.distribute(model, optimizers[kind], plan=plan, local=hk.Local(every=steps, **CASES[name]))


def trained(
    model: Halves, optimizer: torch.optim.Optimizer, draw: torch.Generator, steps: int, *, logs: bool
) -> Iterator[tuple[int, float]]:
    """Train; yield how many steps ranks step alone, and the largest number of the anchor's, after each step."""
    session = session_of(model)
    for _ in range(steps):
        optimizer.zero_grad()
        loss = model.loss(draw)
        loss.backward()
        hk.log(model, weight=1 + here()[0])
        optimizer.step()
        if logs:
            hk.log(model, loss=loss)
        held = max(float(each.abs().max()) for each in model.state_dict().values())
        yield every(session.updates.schedule), held


def steep(name: str, steps: str, logs: str, kind: str) -> list[Any]:
    """The step after which ranks no longer step alone, how large the anchor's numbers were at most and are in the end, and whether
    all iterations were applied."""
    alone, total = int(steps), 260
    model, optimizer = begun(name, alone, TOO_STEEP, kind)
    draw = torch.Generator().manual_seed(here()[0])
    found = list(trained(model, optimizer, draw, total, logs=logs == "logged"))
    retreated = next((at for at, (now, _) in enumerate(found, 1) if now < alone), None)
    hk.flush(model)
    ended = max(float(each.detach().abs().max()) for each in model.parameters())
    return [
        retreated,
        found[-1][0],
        max(held for _, held in found),
        ended,
        list(session_of(model).updates.counts),
    ]


def easy(name: str, steps: str, logs: str) -> list[Any]:
    """How many steps ranks step alone in the end, at a rate that every rank bears, and how large the anchor's numbers are."""
    model, optimizer = begun(name, int(steps), EASY, "sgd")
    draw = torch.Generator().manual_seed(here()[0])
    *_, last = trained(model, optimizer, draw, 400, logs=logs == "logged")
    return list(last)


def grown(name: str, steps: str, logs: str) -> list[list[int]]:
    """By how many steps alone ranks come to `steps`, and the iteration in which each number was first in force."""
    model, optimizer = begun(name, int(steps), EASY, "sgd")
    draw = torch.Generator().manual_seed(here()[0])
    found: dict[int, int] = {}
    for at, (alone, _) in enumerate(trained(model, optimizer, draw, 300, logs=logs == "logged"), 1):
        found.setdefault(alone, at)
    return [[alone, at] for alone, at in found.items()]


def resumed(logs: str) -> list[Any]:
    """Whether a training that was saved in the middle of its second turn goes on with the same bits, through the retreat."""
    model, optimizer = begun("average", 40, TOO_STEEP, "sgd")
    draw = torch.Generator().manual_seed(here()[0])
    for _ in trained(model, optimizer, draw, 50, logs=logs == "logged"):
        pass
    file = io.BytesIO()
    torch.save((model.state_dict(), hk.state_dict(model), draw.get_state()), file)
    expected = list(trained(model, optimizer, draw, 60, logs=logs == "logged"))
    values = [each.detach().clone() for each in model.parameters()]
    other, following = begun("average", 40, TOO_STEEP, "sgd")
    file.seek(0)
    held, session, drawn = torch.load(file, weights_only=True)
    other.load_state_dict(held)
    hk.load_state_dict(other, session)
    draw.set_state(drawn)
    found = list(trained(other, following, draw, 60, logs=logs == "logged"))
    same = all(torch.equal(each, own) for each, own in zip(other.parameters(), values, strict=True))
    return [found == expected, same, expected[0][0], expected[-1][0]]


def lost(directory: Path, victims: list[str]) -> None:
    """One rank of an elastic job, of which some die. It notes how many steps ranks step alone, and the anchor, after each step."""
    rank = int(os.environ["HOCKET_RANK"])
    model, optimizer = begun("average", LOST_ALONE, 2 * TOO_STEEP / here()[1], "sgd")
    fate = Fate(rank, victims)
    die_inside(fate.at)
    draw = torch.Generator().manual_seed(rank)
    found = []
    for step, each in enumerate(trained(model, optimizer, draw, LOST_STEPS, logs=False), 1):
        found.append([*each, digest(model)])
        fate.step = step
    (directory / f"{rank}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    torch.set_num_threads(1)
    lost(Path(sys.argv[1]), sys.argv[2:])
