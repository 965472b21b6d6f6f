"""A training with gradients that travel as rows, whose ranks are lost, leave and come, and what one process makes of its steps."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

import hocket.torch as hk
from hocket.artefacts.gradient import Gradient
from hocket.artefacts.plan import Plan
from hocket.planning.buckets import plan_of
from hocket.planning.default import by_hosts, default_plan
from hocket.planning.rows import rows_bucket
from tests.torch.elastic_scripts import Fate, die_inside, digest_of, elastic_of, keep, values

STEPS = 12
WORDS, WIDTH, RATE = 60, 8, 0.05
FEW, MANY, MANY_EVERY = 6, 90, 3
"""Numbers of words in batches. Many are more rows than a rank of three may send, and fewer than one of two may."""
SILENT_EVERY = 4
"""In one step of so many, a rank reads no words, each in another one."""
KINDS = ("sparse", "dense")
FLAG = "flag"


class Text(torch.nn.Module):
    """Two tables, one of which is behind the other, and a layer."""

    def __init__(self, *, sparse: bool) -> None:
        super().__init__()
        self.words = torch.nn.EmbeddingBag(WORDS, WIDTH, sparse=sparse, mode="mean", dtype=torch.float64)
        self.other = torch.nn.Embedding(WORDS, WIDTH, sparse=sparse, dtype=torch.float64)
        self.layer = torch.nn.Linear(WIDTH, WIDTH, dtype=torch.float64)
        self.flag = torch.nn.Parameter(torch.zeros((), dtype=torch.float64))

    def forward(self, batch: torch.Tensor | None) -> torch.Tensor:
        if batch is None:
            return self.layer(torch.ones(1, WIDTH, dtype=torch.float64))
        return self.layer(self.words(batch) + self.other(batch[:, 0]))


def made(kind: str) -> tuple[Text, torch.optim.Optimizer]:
    """The model and its optimizer, as all begin. Rows of a mean are stepped as rows, without momentum."""
    torch.manual_seed(0)
    model = Text(sparse=kind == "sparse")
    return model, torch.optim.SGD(model.parameters(), lr=RATE)


def plan_for(model: Text, kind: str, world: int) -> Plan:
    """A plan with rows of both tables, of dense gradients, too."""
    own = [
        Gradient(
            name, tuple(each.shape), "f64", sparse=kind == "sparse" and each.dim() > 1 and name[0] != "l"
        )
        for name, each in model.named_parameters()
    ]
    tables = [each for each in own if each.name in ("words.weight", "other.weight")]
    rest = default_plan(
        [each for each in own if each not in tables], by_hosts([str(at) for at in range(world)])
    )
    rows = [
        rows_bucket(each, range(world), at, algorithm=("ring", "direct")[at])
        for at, each in enumerate(tables)
    ]
    return plan_of([*rows, *rest.buckets], world, label="rows")


def loss_of(model: Text, member: int, step: int) -> torch.Tensor:
    draw = torch.Generator().manual_seed(1000 * member + step)
    if (member + step) % SILENT_EVERY == 0:
        return model(None).square().mean()
    many = step % MANY_EVERY == 0 and member == 0
    batch = torch.randint(WORDS, (MANY if many else FEW, 2), generator=draw)
    return model(batch).square().mean()


def replayed(members: Sequence[Sequence[int]]) -> list[torch.Tensor]:
    """Parameters after a step for each of these sets of members, made by one process, all of whose gradients are dense."""
    model, optimizer = made("dense")
    for step, own in enumerate(members):
        optimizer.zero_grad()
        torch.stack([loss_of(model, member, step) for member in own]).mean().backward()
        optimizer.step()
    return learned(model)


def learned(model: Text) -> list[torch.Tensor]:
    """Parameters without the flag."""
    return [each.detach() for name, each in model.named_parameters() if name != FLAG]


def trained(directory: Path, kind: str, planned: str, victims: list[str]) -> None:
    """One rank of so many steps. `planned`: `default`, or a plan that is `given`."""
    rank = int(os.environ["HOCKET_RANK"])
    fate = Fate(rank, victims)
    model, optimizer = made(kind)
    plan = plan_for(model, kind, int(os.environ["HOCKET_WORLD"])) if planned == "given" else None
    model, optimizer = hk.distribute(model, optimizer, plan=plan)
    session, commit = elastic_of(model)
    assert [each.rows is not None for each in session.launches].count(True) == 2
    die_inside(fate.at)
    model.layer.weight.register_hook(lambda _: fate.at("backward"))
    records: list[dict[str, Any]] = []
    for step in range(STEPS):
        fate.step = step
        fate.train(optimizer, partial(loss_of, model, rank, step))
        sparse = [
            each is not None and each.is_sparse for each in (model.words.weight.grad, model.other.weight.grad)
        ]
        dense = [
            each.gradient.name
            for each in session.updates.rows
            if session.agreement.votes.dense(each.gradient.name)
        ]
        records.append(
            {
                "members": commit.standing.counted,
                "digest": digest_of(values(model)),
                "sparse": sparse,
                "dense": dense,
            }
        )
    keep(directory, learned(model), records)


def joined(directory: Path, name: str, kind: str) -> None:
    """One rank of that `name`, to which a founder's rank is added, until a file says that all are to stop."""
    if "HOCKET_RANK" in os.environ:
        name += f"-{os.environ['HOCKET_RANK']}"
    model, optimizer = made(kind)
    model, optimizer = hk.distribute(model, optimizer)
    session, commit = elastic_of(model)
    with (directory / f"{name}.steps").open("w", buffering=1) as steps:
        while float(model.flag) >= 0:
            optimizer.zero_grad()
            step, job = session.iteration, session.job
            before = digest_of(values(model))
            stop = float((directory / "stop").exists())
            (
                loss_of(model, job.members[job.rank], step) + stop * (model.flag - model.flag.detach())
            ).backward()
            # Before the optimizer's step, since the script of a rank that leaves ends there.
            members = [commit.standing.everyone.members[each] for each in commit.standing.counted]
            note = {
                "step": step,
                "members": members,
                "world": len(members),
                "digest before": before,
                "process": os.getpid(),
            }
            steps.write(json.dumps(note) + "\n")
            optimizer.step()
    torch.save(learned(model), directory / f"{name}.pt")


if __name__ == "__main__":
    torch.set_num_threads(1)
    if sys.argv[3] in KINDS:
        joined(Path(sys.argv[1]), sys.argv[2], sys.argv[3])
    else:
        trained(Path(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4:])
