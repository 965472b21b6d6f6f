"""Ranks that step alone at speeds of their own, and the same training by one process.

Clocks are the ranks' own: each step takes as long as its rank's speed says, and nobody sleeps.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import torch

import hocket.torch as hk
from hocket.errors import UsageError
from hocket.torch.in_training import distributed_of
from tests.torch.delayed_scripts import here
from tests.torch.elastic_scripts import Fate, die_inside
from tests.torch.local_scripts import Case, Reference, begun, digest
from tests.torch.own_first_reference import flat

PERIODS = 5

LOCALS = {
    "waits": hk.Local(every=6, paced=True, weights="samples"),
    "late, outer": hk.Local(every=6, late=2, paced=True, weights="samples", rate=0.7, momentum=0.9),
    "fragments": hk.Local(every=6, late=1, fragments=2, paced=True, weights="logged"),
    "mix": hk.Local(every=4, fragments=2, mix=0.25, paced=True, weights="logged"),
    "all alike": hk.Local(every=5, late=1, paced=True),
    "quorum": hk.Local(every=4, weights="samples", grace_s=1.0),
    "no pace": hk.Local(every=4, late=2, weights="samples", rate=0.7, momentum=0.9),
}

SLOWER = (1.0, 4.0, 1000.0)
"""Times of a step, by rank: one never catches up."""


LATE, LATE_S = "late", 60.0
"""Word in the place of a victim: rank 1 comes so late to an exchange."""


class Step(NamedTuple):
    """A step of a rank: iterations of the schedule before and after it, the anchor after it, and members of its exchange."""

    before: int
    after: int
    digest: str
    members: list[int]


def samples_of(step: int, rank: int) -> int:
    return Random(1000 * rank + step).randint(1, 5)  # noqa: S311  # the same again


def loss(model: torch.nn.Module, step: int, rank: int) -> torch.Tensor:
    draw = torch.Generator().manual_seed(1000 * step + rank)
    x = torch.randn(samples_of(step, rank), 5, generator=draw, dtype=torch.float64)
    return model(x).square().sum()


class Clock:
    """Clock of one rank, by its own speed."""

    def __init__(self, slower: float, seed: int) -> None:
        self._random, self._slower, self._now_s = Random(seed), slower, 0.0  # noqa: S311  # the same again

    def step(self) -> None:
        self._now_s += self._slower * self._random.uniform(0.8, 1.25)

    def __call__(self) -> float:
        return self._now_s


def trained(
    local: hk.Local, fate: Fate | None = None, note: Any = None, *, late: bool = False
) -> tuple[list[Step], list[float], list[float]]:
    """Steps of this rank; its parameters at the end, and those after a flush."""
    rank = here()[0]
    model, optimizer = begun(Case(local, "momentum"))
    session = distributed_of(model).session
    clock, found = Clock(SLOWER[rank], rank), []
    if session.updates.local.pace is not None:
        session.updates.local.pace._now = clock
        session.updates.local.pace.resumes()
    while (before := hk.steps(model)) < PERIODS * local.every:
        if fate is not None:
            fate.step = before
        optimizer.zero_grad()
        loss(model, len(found), rank).backward()
        clock.step()
        if fate is not None:
            fate.at("forward")
            if late and rank == 1 and before == 9:
                time.sleep(LATE_S)
        hk.log(model, weight=10 * samples_of(len(found), rank))
        optimizer.step()
        members = list(session.commit.ranks())
        found.append(Step(before, hk.steps(model), digest(model), members))
        if note is not None:
            note(found[-1])
    own = flat(model.parameters()).tolist()
    hk.flush(model)
    return found, own, flat(model.parameters()).tolist()


def all_cases() -> dict[str, tuple[list[Step], list[float], list[float]]]:
    return {name: trained(local) for name, local in LOCALS.items() if local.grace_s is None}


def replayed(local: hk.Local, of_rank: Sequence[Sequence[Step]]) -> Reference:
    """Training by one process, in which ranks make their steps in these iterations, and exchange among those members."""
    reference = Reference(Case(local, "momentum"), len(of_rank))
    made = [0] * len(of_rank)
    members = {iteration: each.members for each in of_rank[0] for iteration in range(each.before, each.after)}
    for iteration in range(of_rank[0][-1].after):
        for rank, steps in enumerate(of_rank):
            while made[rank] < len(steps) and steps[made[rank]].before == iteration:
                reference.inner[rank].zero_grad()
                loss(reference.models[rank], made[rank], rank).backward()
                reference.inner[rank].step()
                for part in reference.parts:
                    part.seen[rank] += samples_of(made[rank], rank)
                made[rank] += 1
        for part in reference.parts:
            part.members = members[iteration]
            part.stepped(iteration)
    return reference


def refused() -> list[str]:
    """Errors of amounts that cannot be."""
    found = []
    model, optimizer = begun(Case(LOCALS["fragments"], "sgd"))
    for weight in (-1.0, float("nan")):
        try:
            hk.log(model, weight=weight)
            found.append("accepted")
        except UsageError as error:
            found.append(error.summary)
    loss(model, 0, here()[0]).backward()
    optimizer.step()
    try:
        hk.flush(model)
    except UsageError as error:
        found.append(error.summary)
    return found


def elastic(directory: Path, name: str, victims: list[str]) -> None:
    """One rank of an elastic job, which writes its steps as they are made."""
    rank = int(os.environ["HOCKET_RANK"])
    fate = Fate(rank, [each for each in victims if each != LATE])
    die_inside(fate.at)
    late = LATE in victims
    with (directory / f"{rank}.steps").open("w", buffering=1) as file:
        _, own, after = trained(
            LOCALS[name], fate, lambda step: file.write(json.dumps(step) + "\n"), late=late
        )
    (directory / f"{rank}.json").write_text(json.dumps([own, after]))


if __name__ == "__main__":
    torch.set_num_threads(1)
    elastic(Path(sys.argv[1]), sys.argv[2], sys.argv[3:])
