"""A training over a data set, whose ranks are lost: what its loop gets, and what a single process makes of the same steps."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import torch

import hocket.torch as hk
from hocket.torch.in_training import distributed_of
from tests.torch.elastic_scripts import RATE, WIDTH, Fate, die_inside, digest, keep, made

SAMPLES, BATCH, EPOCHS = 66, 2, 2
"""As many as are shared without a repetition, whenever the tests' victims die."""
HELD_OUT = 7
CHOSEN_FOR = 4
"""Ranks for which the learning rate was chosen."""


def loss_of(model: torch.nn.Module, samples: list[int]) -> torch.Tensor:
    rows = [torch.randn(WIDTH, generator=torch.Generator().manual_seed(each)) for each in samples]
    return model(torch.stack(rows)).square().mean()


def replayed(steps: list[list[list[list[int]]]]) -> list[torch.Tensor]:
    """Parameters after these steps, made by one process. `steps`: the samples of each batch of each member of each."""
    model, optimizer = made()
    for members in steps:
        optimizer.zero_grad()
        torch.stack(
            [torch.stack([loss_of(model, each) for each in own]).sum() for own in members]
        ).mean().backward()
        optimizer.param_groups[0]["lr"] = RATE * len(members) / CHOSEN_FOR
        optimizer.step()
    return [parameter.detach() for parameter in model.parameters()]


def trained(directory: Path, accumulated: int, workers: int, victims: list[str]) -> None:
    """One rank. It notes what it draws before it trains on it, and what it saves, so that this is known of a lost one, too."""
    rank = int(os.environ["HOCKET_RANK"])
    model, optimizer = made()
    model, optimizer = hk.distribute(model, optimizer)
    fate = Fate(rank, victims, lambda: hk.leave(model))
    die_inside(fate.at)
    model[2].weight.register_hook(lambda _: fate.at("backward"))
    told: list[Any] = []

    def tell(change: hk.Change) -> None:
        lost = [each.rank for each in change.lost]
        told.append([change.step, fate.step, change.old_world, change.new_world, lost, digest(model)])

    hk.on_change(model, tell)
    hk.scale_lr(model, "linear", world=CHOSEN_FOR)
    records, held_out = [], []
    with (
        (directory / f"{rank}.drawn").open("w", buffering=1) as drawn,
        (directory / f"{rank}.saved").open("w", buffering=1) as saved,
    ):
        for epoch in hk.epochs(model, EPOCHS):
            own: list[list[int]] = []
            data = hk.batches(model, range(SAMPLES), BATCH, num_workers=workers)
            for batch in data:
                own.append(batch.tolist())
                drawn.write(json.dumps([fate.step, epoch, own[-1]]) + "\n")
                if len(own) < accumulated and len(data) > 0:
                    with model.no_sync():
                        loss_of(model, own[-1]).backward()
                    continue
                loss = loss_of(model, own[-1])
                fate.at("forward")
                loss.backward()
                members = distributed_of(model).session.commit.standing.counted
                assert [hk.rank(model), hk.world(model)] == [members.index(rank), len(members)]
                optimizer.step()
                fate.at("optimizer")
                optimizer.zero_grad()
                place = hk.state_dict(model)["loop"]["data"]["train"]
                saved.write(json.dumps([fate.step, digest(model)]) + "\n")
                fate.at("saved")
                records.append({"members": members, "digest": digest(model), "place": place})
                own = []
                fate.step += 1
            evaluated = hk.batches(model, range(HELD_OUT), 2, name=f"held out {epoch}")
            held_out.append([each.tolist() for each in evaluated])
    learned = [parameter.detach() for parameter in model.parameters()]
    keep(directory, learned, {"steps": records, "told": told, "held out": held_out})


if __name__ == "__main__":
    torch.set_num_threads(1)
    trained(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:])
