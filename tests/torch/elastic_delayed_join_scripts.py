"""A training with merged or late gradients that others join, and what a single process makes of the same updates."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

import hocket.torch as hk
from hocket.artefacts.plan import Plan
from hocket.planning.walk import rate_factor
from tests.torch.delayed_scripts import plan_for
from tests.torch.elastic_delayed_scripts import (
    FLAG,
    SCHEDULES,
    groups_of,
    loss_of,
    noted_updates,
    replayed_own,
)
from tests.torch.elastic_delayed_scripts import made_double as made_layers
from tests.torch.elastic_scripts import MOMENTUM, RATE, digest_of, elastic_of


def made() -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    """`flag` moves as soon as anybody wants to stop, by no more than guards allow."""
    model, _ = made_layers()
    model.register_parameter(FLAG, torch.nn.Parameter(torch.zeros((), dtype=torch.float64)))
    kept = [
        {"params": [each for name, each in model.named_parameters() if name != FLAG]},
        {"params": [model.flag], "lr": 1e-3},
    ]
    return model, torch.optim.SGD(kept, lr=RATE, momentum=MOMENTUM)


def replayed(updates: Sequence[Mapping[str, Any]], name: str) -> list[torch.Tensor]:
    """Parameters after these updates, made by one process. Each has its `members`, and what is `applied` of each bucket; the last
    ones, of the flush, have no `step`."""
    model, _ = made()
    if SCHEDULES[name].steps == "own first":
        replayed_own(updates, model, updates[0]["members"])
        return learned(model)
    parameters = {each: own for each, own in model.named_parameters() if each != FLAG}
    moments = {each: torch.zeros_like(own) for each, own in parameters.items()}
    # By parameter: by member, the gradients in each iteration that is not applied, the oldest first.
    unapplied: dict[str, list[dict[int, torch.Tensor]]] = {each: [] for each in parameters}
    for update in updates:
        if update["step"] is not None:
            own = {
                member: torch.autograd.grad(loss_of(model, member, update["step"]), list(parameters.values()))
                for member in update["members"]
            }
            for at, each in enumerate(parameters):
                unapplied[each].append({member: given[at] for member, given in own.items()})
        for arena, merged in update["applied"].items():
            for each in groups_of(model)[int(arena)]:
                if each == FLAG:
                    continue
                turn, unapplied[each] = unapplied[each][:merged], unapplied[each][merged:]
                assert all(list(iteration) == update["members"] for iteration in turn), "of other members"
                of = torch.stack([given for iteration in turn for given in iteration.values()])
                moments[each] = MOMENTUM * moments[each] + of.mean(0)
                parameters[each].data -= RATE * rate_factor(SCHEDULES[name].rate, merged) * moments[each]
    assert not any(unapplied.values())
    return learned(model)


def learned(model: torch.nn.Module) -> list[torch.Tensor]:
    """Parameters without `flag`."""
    return [each.detach() for name, each in model.named_parameters() if name != FLAG]


def trained(directory: Path, name: str, schedule: str) -> None:
    """One rank of that `name`, to which a founder's rank is added."""
    model, optimizer = made()
    plan: Plan | None = None
    if "HOCKET_RANK" in os.environ:
        name += f"-{os.environ['HOCKET_RANK']}"
        plan = plan_for(model, SCHEDULES[schedule], groups_of(model))
    model, optimizer = hk.distribute(model, optimizer, plan=plan)
    session, commit = elastic_of(model)
    applied = noted_updates(session)
    with (directory / f"{name}.steps").open("w", buffering=1) as steps:

        def members() -> list[int]:
            return [commit.standing.everyone.members[each] for each in commit.standing.counted]

        def note(step: int | None, members: Sequence[int], applied: Mapping[int, int]) -> None:
            record = {
                "step": step,
                "members": members,
                "world": len(members),
                "applied": applied,
                "digest before": digest_of(model.state_dict().values()),
                "process": os.getpid(),
            }
            steps.write(json.dumps(record) + "\n")

        stops = False
        while not stops:
            optimizer.zero_grad()
            step, job = session.iteration, session.job
            loss = loss_of(model, job.members[job.rank], step)
            stop = (directory / "stop").exists()
            (loss + float(stop) * (model.flag - model.flag.detach())).backward()
            # Before the optimizer's step, since the script of a rank that leaves ends there.
            note(step, members(), applied[-1])
            optimizer.step()
            stops = bool(model.state_dict()[FLAG] < 0)
        flushed = len(applied)
        hk.flush(model)
        for own in applied[flushed:]:
            note(None, members(), own)
    torch.save(learned(model), directory / f"{name}.pt")


if __name__ == "__main__":
    torch.set_num_threads(1)
    trained(Path(sys.argv[1]), sys.argv[2], sys.argv[3])
