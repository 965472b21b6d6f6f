"""A training one of whose ranks does not come any more: it hangs, is late, or ends before the others. Replacements may join."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import torch

import hocket.torch as hk
from hocket.torch.in_training import distributed_of
from tests.torch.elastic_loop_scripts import loss_of
from tests.torch.elastic_scripts import WAYS, Fate, die_inside, digest, made

SAMPLES, BATCH, EPOCHS, HELD_OUT = 36, 2, 2, 7
ABSENT_IN = 3
"""The step in which it does not come."""
EDGES = (
    *("start", "batch", "forward", "backward", "launched", "prepared", "entered", "done", "optimizer"),
    "saved",
)
"""Where: before its first step, with a batch, and as in `elastic_scripts`; last, with a checkpoint that all have made."""


class Ends(Exception):  # noqa: N818  # a way out of a loop
    """The script ends in order, before the others' do."""


def end() -> None:
    raise Ends


WAYS["breaks"] = end


def trained(directory: Path, victims: list[str]) -> None:
    """One rank. `victims`: as of `Fate`; whoever takes a founder's place has no such fate."""
    founds = "HOCKET_RANK" in os.environ
    name = os.environ["HOCKET_RANK" if founds else "HOCKET_MEMBER"]
    model, optimizer = made()
    model, optimizer = hk.distribute(model, optimizer)
    fate = Fate(int(name) if founds else -1, victims)
    try:
        steps = _epochs(model, optimizer, fate)
    except Ends:
        return
    note = {"world": hk.world(model), "steps": steps, "digest": digest(model)}
    (directory / f"{name}.json").write_text(json.dumps(note))


def _epochs(model: torch.nn.Module, optimizer: Any, fate: Fate) -> int:
    die_inside(fate.at)
    model[2].weight.register_hook(lambda _: fate.at("backward"))
    fate.at("start")
    evaluates = "HOCKET_RANK" in os.environ
    for _ in hk.epochs(model, EPOCHS):
        for batch in hk.batches(model, range(SAMPLES), BATCH):
            fate.step = distributed_of(model).session.iteration
            fate.at("batch")
            if evaluates and fate.step == ABSENT_IN:
                # All founders first ask for it here, and agree on it at the store.
                assert sum(map(len, hk.batches(model, range(HELD_OUT), BATCH, name="held out")))
            optimizer.zero_grad()
            loss = loss_of(model, batch.tolist())
            fate.at("forward")
            loss.backward()
            optimizer.step()
            fate.at("optimizer")
            if fate.step in (ABSENT_IN, ABSENT_IN + 1):
                hk.state_dict(model)
                fate.at("saved")
    return distributed_of(model).session.iteration


if __name__ == "__main__":
    torch.set_num_threads(1)
    trained(Path(sys.argv[1]), sys.argv[2:])
