"""Ranks that step alone, one of which comes too late to some exchanges, and the same training by one process.

The late rank waits in its step until the others have passed the exchange, so nothing here depends on how fast a machine is.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch

import hocket.torch as hk
from hocket.torch.in_training import distributed_of
from tests.torch.delayed_scripts import here, network
from tests.torch.local_scripts import Case, Reference, begun, digest
from tests.torch.own_first_reference import flat
from tests.torch.paced_scripts import loss, samples_of

EVERY, PERIODS = 4, 5
SLOW, DEADLINE_S = 1, 60.0


class Late(NamedTuple):
    """A training. `waits`: by steps that all ranks had made when the slow rank begins one, the steps that rank 0 makes before the
    slow one may end it; `normed`: the model has buffers."""

    local: hk.Local
    waits: dict[int, int]
    normed: bool = False


CASES = {
    # In the middle of a turn, and in its first step, of which nothing has ended when it leaves.
    "ranks": Late(hk.Local(every=EVERY, grace_s=0.1, quorum=2, rate=0.7, momentum=0.9), {5: 8, 12: 16}),
    "samples": Late(hk.Local(every=EVERY, grace_s=0.1, weights="samples"), {6: 8, 8: 12}),
    "buffers": Late(hk.Local(every=EVERY, grace_s=0.1, quorum=2), {5: 8}, normed=True),
    "paced": Late(hk.Local(every=EVERY, grace_s=0.1, quorum=2, paced=True, late=1), {5: 9}),
    "fragments": Late(hk.Local(every=EVERY, late=1, fragments=2, grace_s=0.1, quorum=2), {5: 7}),
}


class Step(NamedTuple):
    """A step of a rank: iterations of the schedule after it, the anchor then, and whether the last exchange left without the
    rank."""

    after: int
    digest: str
    late: bool


def trained(directory: str, name: str) -> tuple[list[Step], list[float], list[float]]:
    """Steps of this rank; its parameters at the end, and those after a flush."""
    local, waits, normed = CASES[name]
    rank, found = here()[0], []
    if normed:
        normal = torch.nn.Sequential(torch.nn.BatchNorm1d(5), *network()).double()
        model, optimizer = hk.distribute(normal, torch.optim.SGD(normal.parameters(), lr=1e-3), local=local)
    else:
        model, optimizer = begun(Case(local, "momentum"))
    alone = distributed_of(model).session.updates.local
    waits, begun_steps = dict(waits), [0.0]
    if alone.pace is not None:
        # All are equally fast, so that each makes a step in each iteration.
        alone.pace._now = lambda: begun_steps[0]
        alone.pace.resumes()
    passed = {after: Path(directory) / f"{name}.{after}" for after in waits.values()}
    while (before := hk.steps(model)) < EVERY * PERIODS:
        optimizer.zero_grad()
        begun_steps[0] += 1
        if normed:
            model(torch.full((4, 5), float(rank), dtype=torch.float64).normal_()).square().sum().backward()
        else:
            loss(model, len(found), rank).backward()
        if rank == SLOW and waits and before >= min(waits):
            # Where an exchange has left without it, it does not begin a step in each iteration.
            _wait(passed[waits.pop(min(waits))])
        optimizer.step()
        after = hk.steps(model)
        for each, file in passed.items() if rank == 0 else ():
            if after >= each:
                file.touch()
        found.append(Step(after, digest(model), alone.late))
    own = flat(model.parameters()).tolist()
    hk.flush(model)
    return found, own, flat(model.parameters()).tolist()


def _wait(file: Path) -> None:
    ends_s = time.monotonic() + DEADLINE_S
    while not file.exists():
        if time.monotonic() > ends_s:
            raise TimeoutError(f"the others wait for this rank, and do not come to {file.name}")
        time.sleep(0.005)


def replayed(local: hk.Local, of_rank: Sequence[Sequence[Step]]) -> Reference:
    """Training by one process of ranks that wait for exchanges: steps that ended too late are of the next one."""
    weighed = local.weights == "samples"
    reference = Reference(
        Case(hk.Local(every=EVERY, rate=local.rate, momentum=local.momentum, weights="samples"), "momentum"),
        3,
    )
    made = [0] * len(of_rank)

    def step(rank: int) -> None:
        reference.inner[rank].zero_grad()
        loss(reference.models[rank], made[rank], rank).backward()
        reference.inner[rank].step()
        for part in reference.parts:
            seen = part.seen[rank]
            part.seen[rank] = seen + samples_of(made[rank], rank) if weighed else 1.0
        made[rank] += 1

    for end in range(EVERY, EVERY * PERIODS + 1, EVERY):
        late = []
        for rank, steps in enumerate(of_rank):
            while made[rank] < len(steps) and steps[made[rank]].after <= end:
                if steps[made[rank]].late and steps[made[rank]].after == end:
                    late.append(rank)
                    break
                step(rank)
        for part in reference.parts:
            part._depart(end, part.seen)
        for rank in late:
            step(rank)
        for part in reference.parts:
            part._arrive(None)
    return reference
