"""A training whose ranks step alone between exchanges, that others join and leave; and what a single process makes of it."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

import hocket.torch as hk
from hocket.artefacts.local import every
from hocket.artefacts.plan import Schedule
from tests.torch.delayed_scripts import plan_for
from tests.torch.elastic_delayed_join_scripts import learned, made
from tests.torch.elastic_delayed_scripts import FLAG, groups_of, loss_of
from tests.torch.elastic_scripts import digest_of, elastic_of

LOCALS = {
    "average": hk.Local(every=3),
    "outer": hk.Local(every=4, rate=0.7, momentum=0.9),
    "late": hk.Local(every=4, late=2, fragments=2, rate=0.5, momentum=0.5, nesterov=False),
    "mix": hk.Local(every=3, mix=0.25),
    "retreats": hk.Local(every=8, late=2, rate=0.5, momentum=0.5),
}
REPLAYED = ("average", "outer")
"""Kinds whose turns all end together, so that nobody ends one early for newcomers."""


def replayed(
    steps: Sequence[Sequence[int]],
    exchanges: Mapping[int, Sequence[int]],
    came: Mapping[int, dict[str, Any]],
    name: str,
) -> list[torch.Tensor]:
    """Parameters after steps of these members, which exchange after some of the steps. `came`: by newcomer, the state with which
    its optimizer begins."""
    local, (anchor, _) = LOCALS[name], made()
    outer = torch.optim.SGD(
        anchor.parameters(),
        lr=local.rate,
        momentum=local.momentum,
        nesterov=local.nesterov and local.momentum > 0,
    )
    own: dict[int, tuple[torch.nn.Module, torch.optim.Optimizer]] = {}
    for step, members in enumerate(steps):
        for member in members:
            if member not in own:
                own[member] = made()
                own[member][0].load_state_dict(anchor.state_dict())
                if member in came:
                    own[member][1].load_state_dict(came[member])
        for gone in own.keys() - set(members):
            del own[gone]
        for member, (model, optimizer) in own.items():
            optimizer.zero_grad()
            loss_of(model, member, step).backward()
            optimizer.step()
        if step in exchanges:
            theirs = [[*own[member][0].parameters()] for member in exchanges[step]]
            for at, each in enumerate(anchor.parameters()):
                each.grad = torch.stack([each.detach() - mine[at].detach() for mine in theirs]).mean(0)
            outer.step()
            for model, _ in own.values():
                model.load_state_dict(anchor.state_dict())
    return learned(anchor)


def trained(directory: Path, name: str, kind: str) -> None:
    """One rank, which trains until there is a file `stop`."""
    model, optimizer = made()
    local = LOCALS[kind]
    plan = None
    if "HOCKET_RANK" in os.environ:
        name += f"-{os.environ['HOCKET_RANK']}"
        plan = plan_for(model, Schedule(), groups_of(model))
    model, optimizer = hk.distribute(model, optimizer, plan=plan, local=local)
    session, commit = elastic_of(model)
    ended = commit.step_ended
    if plan is None:
        torch.save(
            (session.job.members[session.job.rank], optimizer.state_dict()), directory / f"{name}.came"
        )
    with (directory / f"{name}.steps").open("w", buffering=1) as notes:

        def note(**record: Any) -> None:
            notes.write(json.dumps(record) + "\n")

        def exchanged() -> None:
            ended()
            members = [commit.standing.everyone.members[each] for each in commit.standing.counted]
            held = digest_of(each for key, each in model.state_dict().items() if key != FLAG)
            alone = every(session.updates.schedule)
            note(exchange=session.iteration - 1, members=members, digest=held, alone=alone)

        commit.step_ended = exchanged  # type: ignore[method-assign]
        stops = False
        while not stops:
            optimizer.zero_grad()
            step, job = session.iteration, session.job
            member = job.members[job.rank]
            loss = loss_of(model, member, step)
            stop = (directory / "stop").exists()
            (loss + float(stop) * (model.flag - model.flag.detach())).backward()
            note(step=step, member=member, world=job.world, process=os.getpid())
            optimizer.step()
            if kind == "retreats":
                # As of a training that diverges in its second turn.
                hk.log(model, loss=2.0 ** max(0, step - 8))
            stops = bool(model.state_dict()[FLAG] < 0)
        commit.step_ended = ended  # type: ignore[method-assign]
        hk.flush(model)
    torch.save(learned(model), directory / f"{name}.pt")


if __name__ == "__main__":
    torch.set_num_threads(1)
    trained(Path(sys.argv[1]), sys.argv[2], sys.argv[3])
