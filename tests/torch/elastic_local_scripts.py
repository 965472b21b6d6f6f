"""A training whose ranks step alone between exchanges, and are lost; and what a single process makes of the same exchanges."""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

import hocket.torch as hk
from hocket.policies import Int8, TopK
from tests.torch.delayed_scripts import loss_of, network
from tests.torch.elastic_scripts import Fate, die_inside, elastic_of, keep
from tests.torch.local_scripts import Case, Reference, begun, digest
from tests.torch.own_first_reference import flat

STEPS = 14
FLUSHED = STEPS
"""The step of `Fate` in which all that is left is exchanged."""

SAMPLES, BATCH = 66, 2

LEARNS, SAVED_AFTER = 30, 16
WAYS: dict[str, dict[str, Any]] = {
    "default": {"promise": "local,local=5", "local": hk.Local(every=5)},
    "top_k": {"policy": TopK(), "local": hk.Local(every=5)},
    "int8, late": {"policy": Int8(), "local": hk.Local(every=5, late=2)},
}

CASES = {
    "average": Case(hk.Local(every=3), "momentum"),
    "outer": Case(hk.Local(every=4, rate=0.7, momentum=0.9), "adamw"),
    "late": Case(hk.Local(every=4, late=2, rate=0.5, momentum=0.5, nesterov=False), "sgd"),
    "fragments": Case(hk.Local(every=4, late=1, fragments=2, rate=0.7, momentum=0.9), "momentum"),
    "mix": Case(hk.Local(every=4, fragments=2, mix=0.25), "adamw"),
}


def replayed(records: Sequence[dict[str, Any]], name: str, world: int) -> Reference:
    """Training by one process in which these members exchange; the last record is of a flush."""
    reference = Reference(CASES[name], world)
    for each in records[:-1]:
        reference.iterate(each["members"])
    for part in reference.parts:
        part.members = records[-1]["members"]
    return reference


def trained(directory: Path, name: str, victims: list[str]) -> None:
    """One rank. It notes the members of each exchange, and the anchor."""
    rank = int(os.environ["HOCKET_RANK"])
    model, optimizer = begun(CASES[name])
    _, commit = elastic_of(model)
    fate = Fate(rank, victims)
    die_inside(fate.at)
    next(iter(model.parameters())).register_hook(lambda _: fate.at("backward"))
    records = []

    def note() -> None:
        records.append({"members": commit.standing.counted, "digest": digest(model)})

    for step in range(STEPS):
        fate.step = step
        fate.train(optimizer, partial(loss_of, model, step, rank))
        note()
    own = flat(model.parameters()).detach().clone()
    fate.step = FLUSHED
    hk.flush(model)
    note()
    keep(directory, [own, flat(model.parameters()).detach()], records)


def learned(directory: Path, name: str, victims: list[str]) -> None:
    """One rank, with the plan or the policy of this name. It notes the anchor, and the loss."""
    rank = int(os.environ["HOCKET_RANK"])
    model = network().float()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    model, optimizer = hk.distribute(model, optimizer, **WAYS[name])
    fate = Fate(rank, victims)
    die_inside(fate.at)
    records = []
    for step in range(LEARNS):
        fate.step = step
        optimizer.zero_grad()
        loss = model(torch.randn(8, 5, generator=torch.Generator().manual_seed(step))).square().sum()
        fate.at("forward")
        loss.backward()
        optimizer.step()
        records.append({"loss": float(loss.detach()), "digest": digest(model)})
        if step == SAVED_AFTER:
            torch.save(hk.state_dict(model), io.BytesIO())
    hk.flush(model)
    records.append({"loss": 0.0, "digest": digest(model)})
    (directory / f"{rank}.json").write_text(json.dumps(records))


def drew(directory: Path, victims: list[str]) -> None:
    """One rank, which notes by step what it draws of a data set."""
    rank = int(os.environ["HOCKET_RANK"])
    model, optimizer = begun(CASES["average"])
    fate = Fate(rank, victims)
    with (directory / f"{rank}.drawn").open("w", buffering=1) as drawn:
        for _ in hk.epochs(model, 1):
            for batch in hk.batches(model, range(SAMPLES), BATCH):
                drawn.write(json.dumps([fate.step, batch.tolist()]) + "\n")
                optimizer.zero_grad()
                loss = loss_of(model, int(batch[0]), rank)
                fate.at("forward")
                loss.backward()
                optimizer.step()
                fate.step += 1


if __name__ == "__main__":
    torch.set_num_threads(1)
    if sys.argv[2] == "draws":
        drew(Path(sys.argv[1]), sys.argv[3:])
    elif sys.argv[2] in WAYS:
        learned(Path(sys.argv[1]), sys.argv[2], sys.argv[3:])
    else:
        trained(Path(sys.argv[1]), sys.argv[2], sys.argv[3:])
