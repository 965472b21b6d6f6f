"""Ranks of `test_sites.py`: sites that step alone, whose ranks step together, and the same training by one process."""

from __future__ import annotations

import hashlib
import io
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import torch
from msgspec.structs import replace
from torch import nn

import hocket.torch as hk
from hocket.artefacts.local import Sites, every, localized
from hocket.errors import PeerError, UsageError
from hocket.policies import Int8, TopK
from hocket.torch.in_training import distributed_of
from hocket.training.memory import device
from tests.torch import hostile
from tests.torch.delayed_scripts import here, loss_of, network
from tests.torch.local_scripts import (
    ITERATIONS,
    Case,
    Reference,
    begun,
    cases,
    digest,
    far,
    plan_here,
    trained,
)
from tests.torch.own_first_reference import flat

SITES: dict[int, Sites] = {4: ((0, 1), (2, 3)), 5: ((0, 2, 4), (1,), (3,))}
"""By number of ranks."""


def own_digest(model: nn.Module) -> str:
    return hashlib.sha256(flat(model.parameters()).detach().cpu().numpy().tobytes()).hexdigest()


def inside(case: Case) -> Case:
    return case._replace(local=replace(case.local, inside=SITES[here()[1]]))


def against_the_reference() -> list[tuple[str, float, float, float, list[str], list[str]]]:
    """Distances of each case from the reference, of this rank's parameters, of the anchor, and of what a flush leaves; and digests
    of the anchor and of the rank's parameters at each iteration."""
    return [(repr(case), *compared(inside(case))) for case in cases()[here()[1] % 3 :: 3]]


def on_a_hostile_device() -> list[tuple[str, float, float, float, list[str], list[str]]]:
    """Train on the tests' own device."""
    hostile.loaded(here()[0])
    device.PIECE_BYTES = 64
    return [(repr(case), *compared(inside(case), hostile.NAME)) for case in cases()[::8]]


def compared(
    case: Case, where: str = "cpu", **others: Any
) -> tuple[float, float, float, list[str], list[str]]:
    rank, world = here()
    model, optimizer = begun(case, where, **others)
    expected = Reference(case, world)
    digests, owns, own = [], [], 0.0
    for iteration in range(ITERATIONS):
        trained(model, optimizer, iteration)
        expected.iterate()
        digests.append(digest(model))
        owns.append(own_digest(model))
        own = max(own, far(flat(model.parameters()), flat(expected.models[rank].parameters())))
    anchored = far(flat(model.state_dict().values()), expected.anchor)
    hk.flush(model)
    expected.flush()
    return own, anchored, far(flat(model.parameters()), expected.anchor), [*digests, digest(model)], owns


def resumed() -> list[bool]:
    """Save a training in the middle of a turn, and return whether it goes on to the same bits."""
    found = []
    for stop in (6, 9):
        case = inside(Case(hk.Local(every=4, late=2, fragments=2, rate=0.7, momentum=0.9), "adamw"))
        model, optimizer = begun(case)
        for iteration in range(stop):
            trained(model, optimizer, iteration)
        file = io.BytesIO()
        torch.save((model.state_dict(), optimizer.state_dict(), hk.state_dict(model)), file)
        for iteration in range(stop, stop + 9):
            trained(model, optimizer, iteration)
        expected = own_digest(model), digest(model)
        other, following = begun(case)
        file.seek(0)
        held, state, session = torch.load(file, weights_only=True)
        other.load_state_dict(held)
        following.load_state_dict(state)
        hk.load_state_dict(other, session)
        for iteration in range(stop, stop + 9):
            trained(other, following, iteration)
        found.append((own_digest(other), digest(other)) == expected)
    return found


class Branches(nn.Module):
    """A layer that all ranks use, one that some do, and one that none does."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(4)
        self.all, self.some, self.none = (nn.Linear(5, 3).double() for _ in range(3))

    def forward(self, x: torch.Tensor, branch: bool) -> torch.Tensor:
        return self.all(x) + self.some(x) if branch else self.all(x)


def ways_of_gradients() -> tuple[list[float], bool]:
    """Distances of gradients, in the ways that scripts treat them, from the mean of the site's; and whether a layer without any
    stays without."""
    rank, world = here()
    site = next(each for each in SITES[world] if rank in each)
    model = Branches()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, weight_decay=0.1)
    model, optimizer = hk.distribute(model, optimizer, local=hk.Local(every=3, inside=SITES[world]))
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    found, unused = [], True
    for iteration in range(9):

        def loss(iteration: int, number: int, model: nn.Module = model, part: int = 0) -> torch.Tensor:
            x = torch.randn(
                4, 5, generator=torch.Generator().manual_seed(100 * iteration + 10 * part + number)
            )
            return model(x.double(), branch=number == site[0]).square().sum()

        expected = Branches()
        expected.load_state_dict(dict(model.named_parameters()))
        optimizer.zero_grad(set_to_none=iteration % 3 != 2)
        with model.no_sync():
            scaler.scale(loss(iteration, rank, part=1)).backward()
        scaler.scale(loss(iteration, rank, part=2)).backward()
        for number in site:
            for part in (1, 2):
                (loss(iteration, number, expected, part) / len(site)).backward()
        scaler.unscale_(optimizer)
        for one, other in zip(model.parameters(), expected.parameters(), strict=True):
            if other.grad is not None:
                found.append(far(one.grad, other.grad))
        unused = unused and model.none.weight.grad is None
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
    return found, unused


def codecs() -> dict[str, tuple[str, str]]:
    """By policy, digests of the rank's parameters in the middle of a turn, and of the anchor."""
    found = {}
    for name, policy in {"top_k": TopK(), "int8": Int8()}.items():
        model = network().float()
        model, optimizer = hk.distribute(
            model,
            torch.optim.SGD(model.parameters(), lr=0.01),
            local=hk.Local(every=5, late=1, inside=SITES[here()[1]]),
            policy=policy,
        )
        for iteration in range(18):
            optimizer.zero_grad()
            draw = torch.Generator().manual_seed(10 * iteration + here()[0])
            model(torch.randn(8, 5, generator=draw)).square().sum().backward()
            optimizer.step()
        found[name] = own_digest(model), digest(model)
    return found


def grown() -> tuple[list[int], list[str]]:
    """Steps alone as the guard lets them grow, and digests of the rank's parameters after each step."""
    model, optimizer = begun(inside(Case(hk.Local(every=24, grows=True), "sgd")))
    session, steps, digests = distributed_of(model).session, [], []
    for iteration in range(100):
        optimizer.zero_grad()
        loss = loss_of(model, iteration % 5, here()[0])
        loss.backward()
        hk.log(model, loss=float(loss.detach()))
        optimizer.step()
        steps.append(every(session.updates.schedule))
        digests.append(own_digest(model))
    return steps, digests


class Clock:
    """Clock of one rank, by which its steps take their time."""

    def __init__(self, step_s: float) -> None:
        self._step_s, self._now_s = step_s, 0.0

    def step(self) -> None:
        self._now_s += self._step_s

    def __call__(self) -> float:
        return self._now_s


def paced() -> tuple[list[int], list[str]]:
    """Iterations after each step of sites of which one is four times slower, and digests of the anchor by them."""
    model, optimizer = begun(inside(Case(hk.Local(every=8, paced=True, weights="samples"), "momentum")))
    pace = distributed_of(model).session.updates.local.pace
    clock = pace._now = Clock((1.0, 1.2, 4.0, 3.0)[here()[0]])
    pace.resumes()
    made, digests = [], []
    while hk.steps(model) < 40:
        optimizer.zero_grad()
        loss_of(model, len(made), here()[0]).backward()
        clock.step()
        optimizer.step()
        made.append(hk.steps(model))
        digests.append(own_digest(model))
    return made, digests


def killed() -> None:
    """Write which rank this one is told of, when the last one dies in its backward, and in which iteration."""
    rank, world = here()
    model, optimizer = begun(inside(Case(hk.Local(every=4), "sgd")))

    def die(_: torch.Tensor) -> None:
        if rank == world - 1 and iteration == 5:
            os.kill(os.getpid(), signal.SIGKILL)

    next(model.parameters()).register_post_accumulate_grad_hook(die)
    iteration = 0
    try:
        for iteration in range(40):
            trained(model, optimizer, iteration)
    except PeerError as error:
        Path(sys.argv[1], f"{rank}.told").write_text(json.dumps([error.rank, iteration]))
        raise


def by_hosts(hosts: str, where: str) -> list[list[int]]:
    """Ranks of each site of a job on these hosts, a letter for each rank, after some steps together."""
    rank, _ = here()
    os.environ["HOCKET_HOST"] = hosts[rank]
    model = network()
    model, optimizer = hk.distribute(
        model, torch.optim.SGD(model.parameters(), lr=0.001), local=hk.Local(every=3, inside=where)
    )
    digests = []
    for iteration in range(5):
        trained(model, optimizer, iteration)
        digests.append(own_digest(model))
    sites = distributed_of(model).session.updates.local.outer.inside
    return [[list(site) for site in sites], digests]


def again() -> str:
    """Digest of a model that is distributed again, in step, after sites have stepped alone."""
    model, optimizer = begun(inside(Case(hk.Local(every=3), "sgd")))
    for iteration in range(4):
        trained(model, optimizer, iteration)
    model, optimizer = hk.distribute(model, optimizer)
    for iteration in range(4):
        trained(model, optimizer, iteration)
    return own_digest(model)


REFUSED = {
    "rack": hk.Local(every=4, inside="rack"),
    "grace": hk.Local(every=4, inside=SITES[4], grace_s=2.0),
    "weights": hk.Local(every=4, inside=SITES[4], late=1, weights="samples"),
}


def refused(name: str) -> str:
    """First line of the error of what cannot be."""
    try:
        begun(Case(REFUSED[name], "sgd"))
    except UsageError as error:
        return error.summary
    return "accepted"


def by_a_plan() -> float:
    """Distance of a training by a plan of which sites are a part from that by the argument."""
    case = inside(Case(hk.Local(every=3), "momentum"))
    ends = []
    for others in ({"plan": localized(plan_here(network()), case.local), "local": None}, {}):
        model = network()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
        model, optimizer = hk.distribute(
            model, optimizer, **({"plan": plan_here(model), "local": case.local} | others)
        )
        for iteration in range(8):
            trained(model, optimizer, iteration)
        ends.append(flat(model.parameters()))
    return far(*ends)
