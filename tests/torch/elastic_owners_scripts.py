"""A training in f64 whose owners update, and whose ranks are lost and leave; and what a single process makes of the same steps."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import msgspec
import torch

import hocket.torch as hk
from hocket.artefacts.gradient import Gradient
from hocket.artefacts.plan import AllReduce, Owned, Owner, Plan
from hocket.planning.buckets import buckets, plan_of
from hocket.torch.in_training import distributed_of
from hocket.training.elastic.parts import Programs
from tests.torch.elastic_scripts import BATCH, STEPS, WIDTH, Fate, die_inside, digest_of, keep, made

OPTIMIZERS: dict[str, Any] = {
    "momentum": lambda groups: torch.optim.SGD(groups, lr=0.05, momentum=0.9, weight_decay=0.01),
    "AdamW": lambda groups: torch.optim.AdamW(groups, lr=0.01, weight_decay=0.1),
}
CLIPPED, SAVED, SKIPPED, UNEVEN, LATE = "clipped", "saved", "skipped", "uneven", "late"
"""Arguments: gradients are clipped; the optimizer's state is gathered after each step; a step is not applied; the first rank owns
more, and the last one nothing; the optimizer steps after another forward."""
CLIP = 0.05
SKIPPED_STEP = 6


def begun(kind: str) -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    model = made()[0].double()
    return model, OPTIMIZERS[kind](model.parameters())


def loss_of(model: torch.nn.Module, member: int, step: int) -> torch.Tensor:
    made_by = torch.Generator().manual_seed(1000 * member + step)
    return model(torch.randn(BATCH, WIDTH, generator=made_by, dtype=torch.float64)).square().mean()


def plan(model: torch.nn.Module, world: int, *, uneven: bool) -> Plan:
    """Two buckets with owners, whose boundaries lie anywhere in parameters, and an all-reduced one."""
    shares = [1] * world if not uneven else [2, *[1] * (world - 2), 0]
    owned = Owned(
        owners=tuple(Owner(rank=rank, share=share) for rank, share in enumerate(shares) if share),
        update="owners",
    )
    gradients = [Gradient(name, tuple(each.shape), "f64") for name, each in model.named_parameters()]
    ways = ((owned, gradients[4:]), (AllReduce(algorithm="ring"), gradients[3:4]), (owned, gradients[:3]))
    made = [
        msgspec.structs.replace(buckets([own], route, range(world), chunk_bytes=1024)[0], priority=at)
        for at, (route, own) in enumerate(ways)
    ]
    return plan_of(made, world, label="owners")


def state_of(state: dict[str, Any]) -> list[torch.Tensor]:
    return [
        value
        for _, own in sorted(state["state"].items())
        for _, value in sorted(own.items())
        if isinstance(value, torch.Tensor)
    ]


def replayed(
    members: list[list[int]], kind: str, options: list[str]
) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Parameters, and the optimizer's state, after a step of each of these sets of members, made by one process."""
    model, optimizer = begun(kind)
    for step, own in enumerate(members):
        optimizer.zero_grad()
        torch.stack([loss_of(model, member, step) for member in own]).mean().backward()
        if CLIPPED in options:
            torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        if SKIPPED not in options or step != SKIPPED_STEP:
            optimizer.step()
    return [each.detach() for each in model.parameters()], state_of(optimizer.state_dict())


def trained(directory: Path, kind: str, arguments: list[str]) -> None:
    """One rank. `arguments`: options, and victims as of `Fate`."""
    rank, world = int(os.environ["HOCKET_RANK"]), int(os.environ["HOCKET_WORLD"])
    (directory / f"{rank}.process").write_text(str(os.getpid()))
    options = {CLIPPED, SAVED, SKIPPED, UNEVEN, LATE} & set(arguments)
    model, optimizer = begun(kind)
    uneven = UNEVEN in options
    model, optimizer = hk.distribute(model, optimizer, plan=plan(model, world, uneven=uneven))
    fate = Fate(rank, [each for each in arguments if each not in options], lambda: hk.leave(model))
    die_inside(fate.at)
    model[2].weight.register_hook(lambda _: fate.at("backward"))
    owners = distributed_of(model).session.owners
    at_values(owners, fate)
    records = []
    for step in range(STEPS):
        fate.step = step
        optimizer.zero_grad()
        loss = loss_of(model, rank, step)
        fate.at("forward")
        loss.backward()
        if CLIPPED in options:
            fate.at("clips")
            hk.clip_grad_norm_(model, CLIP)
        if LATE in options:
            loss_of(model, rank, step)
        fate.at("reduced")
        if SKIPPED not in options or step != SKIPPED_STEP:
            optimizer.step()
        fate.at("optimizer")
        saved = digest_of(state_of(hk.optimizer_state(model))) if SAVED in options else ""
        members = distributed_of(model).session.commit.standing.counted
        values = digest_of(each.detach() for each in model.parameters())
        records.append({"members": members, "digest": [values, saved]})
    learned = [each.detach() for each in model.parameters()]
    keep(directory, [learned, state_of(hk.optimizer_state(model))], records)


def at_values(owners: Any, fate: Fate) -> None:
    """Calls `fate` where values travel, where all wait behind them, and where parts find new owners."""
    for name, before, after in (
        ("give_means", "means", None),
        ("_exchange_values", "values", "sent"),
        ("settle", "settles", "settled"),
    ):
        inner = getattr(owners, name)

        def outer(
            *arguments: Any, inner: Any = inner, before: str = before, after: str | None = after
        ) -> Any:
            fate.at(before)
            found = inner(*arguments)
            if after is not None:
                fate.at(after)
            return found

        setattr(owners, name, outer)
    moved = Programs.moved

    def moving(*arguments: Any) -> Any:
        fate.at("moves")
        return moved(*arguments)

    Programs.moved = moving  # type: ignore[method-assign]


if __name__ == "__main__":
    torch.set_num_threads(1)
    trained(Path(sys.argv[1]), sys.argv[2], sys.argv[3:])
