"""A training with a policy that keeps gradients back, whose ranks are lost, and what a single process makes of the same steps."""

from __future__ import annotations

import functools
import itertools
import os
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch

import hocket.torch as hk
from hocket.artefacts.gradient import Gradient
from hocket.artefacts.plan import AllReduce, Plan
from hocket.errors import PolicyError
from hocket.planning.buckets import buckets, plan_of, with_codec
from hocket.policies.power_sgd import PowerSGD
from hocket.policies.priority import Priority
from hocket.policies.top_k import TopK
from hocket.policy.control import Control
from hocket.policy.handles import Buffer
from hocket.policy.policy import Policy, Value
from hocket.training.checkpoint import states
from tests.torch.elastic_scripts import Fate, die_inside, digest, elastic_of, keep, loss_of, made, values

STEPS_MIN, STEPS_MAX = 14, 2000
FURTHER = 5
"""Steps after the epoch of policies that follows a loss."""
PAUSE_S = 0.002
SHARE, LATER_SHARE = 0.1, 0.3

Ranges = list[tuple[str, int, int]]


class Watching(TopK):
    """Notes who comes and goes, and sends more when somebody is gone."""

    timer_interval_s = 0.02
    parameters: ClassVar[dict[str, Value]] = {"share": SHARE}

    def __init__(self) -> None:
        self.seen: list[tuple[str, int, int]] = []

    def on_worker_added(self, cx: Control, worker: int) -> None:
        self.seen.append(("added", worker, cx.world))

    def on_worker_removed(self, cx: Control, worker: int) -> None:
        """Its rank, in the world that it was in."""
        self.seen.append(("removed", worker, cx.world))
        cx.propose(share=LATER_SHARE)


class Particular(Watching):
    def on_buffer_ready(self, cx: Any, buffer: Buffer) -> None:
        if cx.world == 2:
            raise PolicyError("two are too few")
        super().on_buffer_ready(cx, buffer)


def _plan(gradients: list[Gradient], world: int) -> Plan:
    """A bucket for each gradient, in f16 between all."""
    made = buckets([[each] for each in gradients], AllReduce(algorithm="ring"), range(world))
    pairs = list(itertools.permutations(range(world), 2))
    return plan_of([with_codec(each, "f16", pairs) for each in made], world, label="rounded")


POLICIES: dict[str, type[Policy]] = {
    "Watching": Watching,
    "PowerSGD": PowerSGD,
    "Particular": Particular,
    "Priority": Priority,
}


def trained(directory: Path, policy: str, victims: list[str]) -> None:
    """One rank, until the losses have led to other agreed values and some steps more."""
    rank = int(os.environ["HOCKET_RANK"])
    fate = Fate(rank, victims)
    model, optimizer = made()
    used = POLICIES[policy]() if policy in POLICIES else None
    plan = None
    if used is None:
        gradients = [Gradient(name, tuple(each.shape), "f32") for name, each in model.named_parameters()]
        plan = _plan(gradients[::-1], int(os.environ["HOCKET_WORLD"]))
    model, optimizer = hk.distribute(model, optimizer, plan=plan, policy=used)
    session, commit = elastic_of(model)
    die_inside(fate.at)
    model[2].weight.register_hook(lambda _: fate.at("backward"))
    records: list[dict[str, Any]] = []
    until = STEPS_MAX if policy == "Watching" else STEPS_MIN
    while fate.step < until:
        optimizer.zero_grad()
        loss = loss_of(model, rank, fate.step)
        fate.at("forward")
        agreed = hk.agreed(model)
        layout = [list(launch.compiled.ranges) for launch in session.launches]
        loss.backward()
        optimizer.step()
        fate.at("optimizer")
        records.append(
            {
                "members": commit.standing.counted,
                "digest": digest(model),
                "share": agreed.get("share"),
                "layout": layout,
                "common": states.held(session.buckets, session.engine, commit.job.rank).digest(),
            }
        )
        fate.step += 1
        if until == STEPS_MAX and hk.agreed(model)["epoch"] and fate.step >= STEPS_MIN:
            until = fate.step + FURTHER
        time.sleep(PAUSE_S)
    seen = used.seen if isinstance(used, Watching) else []
    keep(directory, values(model), {"records": records, "seen": seen})


def replayed(records: list[dict[str, Any]], policy: str) -> list[torch.Tensor]:
    """Parameters after these steps, made by one process with a residual for each member."""
    model, optimizer = made()
    names = [name for name, _ in model.named_parameters()]
    kept: dict[tuple[int, str], np.ndarray[Any, Any]] = {}
    for step, record in enumerate(records):
        means: dict[str, np.ndarray[Any, Any]] = defaultdict(functools.partial(np.zeros, (), np.float32))
        world = len(record["members"])
        for member in record["members"]:
            optimizer.zero_grad()
            loss_of(model, member, step).backward()
            own = {name: np.asarray(each.grad).ravel() for name, each in model.named_parameters()}
            if policy == "Particular" and world == 2:
                sent = own
            else:
                full = {name: kept.get((member, name), np.float32(0)) + own[name] for name in names}
                sent = selected(full, record["layout"], record["share"])
                kept |= {(member, name): full[name] - sent[name] for name in names}
            means = {name: means[name] + sent[name] for name in names}
        for name, each in model.named_parameters():
            mean = means[name] * np.float32(1 / world)
            each.grad = torch.from_numpy(mean.reshape(each.shape))
        optimizer.step()
    return values(model)


def selected(
    full: dict[str, np.ndarray[Any, Any]], layout: list[Ranges], share: float
) -> dict[str, np.ndarray[Any, Any]]:
    """The largest elements of each bucket, and zeros."""
    sent = {name: np.zeros_like(each) for name, each in full.items()}
    for ranges in layout:
        together = np.concatenate([full[name][start:stop] for name, start, stop in ranges])
        k = max(1, int(together.size * share))
        chosen = np.zeros_like(together)
        largest = np.argsort(-np.abs(together), kind="stable")[:k]
        chosen[largest] = together[largest]
        at = 0
        for name, start, stop in ranges:
            sent[name][start:stop] = chosen[at : at + stop - start]
            at += stop - start
    return sent


if __name__ == "__main__":
    torch.set_num_threads(1)
    trained(Path(sys.argv[1]), sys.argv[2], sys.argv[3:])
