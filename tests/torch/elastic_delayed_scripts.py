"""A training with merged or late gradients, whose ranks are lost, and what a single process makes of the same updates."""

from __future__ import annotations

import copy
import os
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import torch

import hocket.torch as hk
from hocket._native import LiveTurn
from hocket.artefacts.plan import Begun, Due, Schedule, Turn
from hocket.planning.walk import rate_factor
from hocket.training.step.reducing import ReducingSession
from tests.sessions.plans import schedule_of
from tests.torch.delayed_scripts import plan_for
from tests.torch.elastic_scripts import (
    BATCH,
    MOMENTUM,
    RATE,
    WIDTH,
    Fate,
    die_inside,
    digest_of,
    elastic_of,
    keep,
    made,
)

STEPS = 14
FLUSHED = STEPS
"""The step of `Fate` in which all that is left is applied."""

BUCKETS = 2
FLAG = "flag"
"""Parameter that learns nothing."""

SCHEDULES = {
    "late": schedule_of((1,), 1, BUCKETS, "linear"),
    "merged": schedule_of((2,), 1, BUCKETS, "linear"),
    "together": schedule_of((2,), 0, BUCKETS, "linear"),
    # Each bucket has its own turns. One waits to be sent, as long as it may; the other is merged, and due at once.
    "each": Schedule(
        period=2,
        together=False,
        delay_max=1,
        rate="sqrt",
        turns=(
            (
                Turn(
                    first=0,
                    last=0,
                    sent=Begun(iteration=1, point="backward_end", place=0),
                    due=Due(iteration=1),
                ),
                Turn(first=1, last=1, sent=Begun(iteration=2, point="begin", place=0), due=Due(iteration=2)),
            ),
            (Turn(first=0, last=1, due=Due(iteration=1)),),
        ),
    ),
}

# At gates, one that leaves when the next iteration begins, and one that is ready before.
SCHEDULES["gated"] = Schedule(
    period=1,
    overlap="gates",
    together=False,
    delay_max=1,
    rate="linear",
    turns=(
        (Turn(first=0, last=0, sent=Begun(iteration=1, point="begin"), due=Due(iteration=0, at="gate")),),
        (Turn(first=0, last=0, due=Due(iteration=1, at="gate")),),
    ),
)

SCHEDULES |= {
    f"own first, {name}": msgspec.structs.replace(SCHEDULES[name], steps="own first")
    for name in ("late", "merged")
}

Update = dict[str, Any]
"""The step's `members`, and by arena, of how many iterations its gradients are that are `applied`."""


def made_double() -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    """The model and its optimizer, as all begin."""
    model, _ = made()
    model.double()
    return model, torch.optim.SGD(model.parameters(), lr=RATE, momentum=MOMENTUM)


def groups_of(model: torch.nn.Module) -> list[list[str]]:
    names = [name for name, _ in model.named_parameters()]
    return [names[2:], names[:2]]


def loss_of(model: torch.nn.Module, member: int, step: int) -> torch.Tensor:
    draw = torch.Generator().manual_seed(1000 * member + step)
    return model(torch.randn(BATCH, WIDTH, generator=draw, dtype=torch.float64)).square().mean()


def expected_updates(name: str, steps: int) -> list[dict[str, int]]:
    """By step: by arena, the iterations that a schedule applies, where nobody leaves or joins."""
    schedule = SCHEDULES[name]
    updates: list[dict[str, int]] = [{} for _ in range(steps)]
    for arena, turns in enumerate(schedule.turns):
        for turn in turns:
            for step in range(turn.due.iteration, steps, schedule.period):
                updates[step][str(arena)] = turn.last - turn.first + 1
    return updates


class Working:
    """Anchor, and working copies of ranks, which own gradients step."""

    def __init__(self, model: torch.nn.Module) -> None:
        self.anchor = model
        self._moments = self._zeros()
        self.copies: dict[int, tuple[torch.nn.Module, dict[str, torch.Tensor]]] = {}
        self._own: dict[int, dict[str, list[torch.Tensor]]] = {}
        """By rank and parameter, own gradients that are not in the anchor."""

    def made(self, rank: int, step: int) -> list[torch.Tensor]:
        """Return a rank's gradients at its own parameters."""
        if rank not in self.copies:
            self.copies[rank] = copy.deepcopy(self.anchor), copy.deepcopy(self._moments)
            self._own[rank] = {name: [] for name in self._moments}
        model = self.copies[rank][0]
        named = dict(model.named_parameters())
        found = torch.autograd.grad(loss_of(model, rank, step), [named[name] for name in self._moments])
        for name, each in zip(self._moments, found, strict=True):
            self._own[rank][name].append(each)
        return list(found)

    def ended(self, means: Mapping[str, tuple[torch.Tensor, int]]) -> None:
        """End a step in which these means of so many iterations arrive."""
        for name, (mean, count) in means.items():
            for _ in range(count):
                _descend(self.anchor, self._moments, name, mean)
        for rank, (model, moments) in self.copies.items():
            for name, own in self._own[rank].items():
                if name not in means:
                    if own:
                        _descend(model, moments, name, own[-1])
                    continue
                _, count = means[name]
                model.get_parameter(name).data.copy_(self.anchor.get_parameter(name).data)
                moments[name] = self._moments[name].clone()
                del own[:count]
                for _ in own:
                    _descend(model, moments, name, torch.stack(own).mean(0))

    def _zeros(self) -> dict[str, torch.Tensor]:
        return {name: torch.zeros_like(each) for name, each in self.anchor.named_parameters() if name != FLAG}


def _descend(
    model: torch.nn.Module, moments: dict[str, torch.Tensor], name: str, gradient: torch.Tensor
) -> None:
    moments[name] = MOMENTUM * moments[name] + gradient
    model.get_parameter(name).data -= RATE * moments[name]


def replayed_own(
    updates: Sequence[Update], model: torch.nn.Module, ranks: Sequence[int]
) -> list[torch.Tensor]:
    """Parameters after these updates where own gradients go first. An update has its `members`, and `applied` of each bucket;
    one of a flush has no `step`. `ranks`: those that train from the beginning."""
    working = Working(model)
    unapplied: dict[str, list[dict[int, torch.Tensor]]] = {}
    for update in updates:
        if update["step"] is not None:
            made = {
                rank: working.made(rank, update["step"])
                for rank in sorted(
                    {*(ranks if update["step"] == 0 else ()), *working.copies, *update["members"]}
                )
            }
            for at, name in enumerate(working.copies[update["members"][0]][1]):
                unapplied.setdefault(name, []).append({rank: each[at] for rank, each in made.items()})
        means = {}
        for arena, merged in update["applied"].items():
            for name in groups_of(model)[int(arena)]:
                if name in unapplied:
                    turn, unapplied[name] = unapplied[name][:merged], unapplied[name][merged:]
                    of = torch.stack([each[rank] for each in turn for rank in update["members"]])
                    means[name] = of.mean(0), merged
        working.ended(means)
    assert not any(unapplied.values())
    return [each.detach() for each in model.parameters()]


def replayed(updates: Sequence[Update], name: str, world: int) -> list[torch.Tensor]:
    """Parameters after these updates of the first so many ranks, made by one process. Updates after the last step are a flush's."""
    model, _ = made_double()
    if SCHEDULES[name].steps == "own first":
        numbered = [
            {**each, "step": at if at < STEPS else None, "members": list(each["members"])}
            for at, each in enumerate(updates)
        ]
        return replayed_own(numbered, model, range(world))
    parameters = dict(model.named_parameters())
    moments = {each: torch.zeros_like(parameter) for each, parameter in parameters.items()}
    # By parameter: the gradients of all ranks in each iteration that is not applied, the oldest first.
    unapplied: dict[str, list[list[torch.Tensor]]] = {each: [] for each in parameters}
    for step, update in enumerate(updates):
        if step < STEPS:
            made = [
                torch.autograd.grad(loss_of(model, rank, step), list(parameters.values()))
                for rank in range(world)
            ]
            for each, own in zip(parameters, zip(*made, strict=True), strict=True):
                unapplied[each].append(list(own))
        for arena, merged in update["applied"].items():
            factor = rate_factor(SCHEDULES[name].rate, merged)
            for each in groups_of(model)[int(arena)]:
                turn, unapplied[each] = unapplied[each][:merged], unapplied[each][merged:]
                of = torch.stack([iteration[rank] for iteration in turn for rank in update["members"]])
                moments[each] = MOMENTUM * moments[each] + of.mean(0)
                parameters[each].data -= RATE * factor * moments[each]
    assert not any(unapplied.values())
    return [each.detach() for each in model.parameters()]


def noted_updates(session: ReducingSession) -> list[dict[int, int]]:
    """Of each update from now on, the iterations by arena."""
    applied: list[dict[int, int]] = []
    show = session.give

    def noted(due: Sequence[LiveTurn], later: Sequence[LiveTurn] = ()) -> None:
        applied.append({turn.arena: turn.iterations for turn in due})
        show(due, later)

    session.give = noted  # type: ignore[method-assign]
    return applied


def trained(directory: Path, name: str, victims: list[str], *, saves_at: int | None = None) -> None:
    """One rank. It notes what each step, and each update of the flush at the end, applies.

    `saves_at`: it saves what it has after so many steps and ends, or goes on from what it has saved.
    """
    rank = int(os.environ["HOCKET_RANK"])
    model, optimizer = made_double()
    plan = plan_for(model, SCHEDULES[name], groups_of(model))
    model, optimizer = hk.distribute(model, optimizer, plan=plan)
    session, commit = elastic_of(model)
    fate = Fate(rank, victims)
    die_inside(fate.at)
    model[2].weight.register_hook(lambda _: fate.at("backward"))
    applied = noted_updates(session)
    records: list[Update] = []

    def note() -> None:
        held = digest_of(model.state_dict().values())
        records.append({"members": commit.standing.counted, "applied": applied[-1], "digest": held})

    def train() -> None:
        fate.train(optimizer, partial(loss_of, model, rank, fate.step))
        note()
        fate.step += 1

    saved = directory / f"{rank}.saved"
    if saves_at is not None and not saved.exists():
        while fate.step < saves_at:
            train()
        state = {
            "model": model.state_dict(),
            "optimizer": optimizer.state_dict(),
            "hocket": hk.state_dict(model),
        }
        torch.save({**state, "records": records}, saved)
        return
    if saves_at is not None:
        state = torch.load(saved, weights_only=True)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        hk.load_state_dict(model, state["hocket"])
        fate.step, records = saves_at, state["records"]
    while fate.step < STEPS:
        train()
    flushed = len(applied)
    hk.flush(model)
    for each in applied[flushed:]:
        applied.append(each)
        note()
    assert session.updates.counts == (STEPS, STEPS)
    keep(directory, [each.detach() for each in model.parameters()], records)


if __name__ == "__main__":
    torch.set_num_threads(1)
    saves = [int(each) for each in sys.argv[3:] if each.isdecimal()]
    fates = [each for each in sys.argv[3:] if not each.isdecimal()]
    trained(Path(sys.argv[1]), sys.argv[2], fates, saves_at=saves[0] if saves else None)
