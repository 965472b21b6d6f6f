"""What ranks of the conformance suite do, with any framework: `case(framework's name, …)` returns what the tests compare."""

from __future__ import annotations

import os

import msgspec
import numpy as np

from hocket.artefacts.plan import Owned, Owner, Schedule
from hocket.errors import PeerError
from hocket.planning.buckets import buckets, plan_of
from hocket.policies import LocalSGD, PartialF16, Priority
from hocket.settings import Settings
from hocket.training.assemble.start import prepare, session_of
from hocket.training.memory import buckets as bucket_memory
from hocket.training.memory.gradients import gradients_of
from hocket.training.process import joined
from hocket.training.step.companion import Alone
from tests.training import network
from tests.training.adapters import ADAPTERS

RANK = int(os.environ.get("HOCKET_RANK", "0"))


class Often(LocalSGD):
    every = 2


POLICIES = {"partial_f16": PartialF16, "priority": Priority, "local_sgd": Often}


def _start(kind, policy=None, adapter=None, plan=None):
    """Rank 0's values count, so the others begin elsewhere."""
    adapter = adapter or ADAPTERS[kind](network.values(seed=RANK))
    settings = Settings.from_environment()
    process = joined(settings)
    chosen = None if policy is None else POLICIES[policy]()
    source = prepare(
        adapter.framework, plan=plan, policy=chosen, promise=None, process=process, settings=settings
    )
    session = session_of(adapter.framework, source, process=process, companion=Alone(), spans=None)
    process.also_close(session.close)
    session.start()
    return adapter, session


def _result(adapter, session):
    session.settle()
    return {name: each.ravel().tolist() for name, each in adapter.values().items()}


def _train(adapter, steps):
    for step in steps:
        adapter.backward(*network.batch(RANK, step), spare=False)
        adapter.step()
        adapter.zero_grad()


def train(kind, policy=None):
    adapter, session = _start(kind, policy)
    _train(adapter, range(network.STEPS))
    return _result(adapter, session)


def owned(kind, overlap):
    """Each layer has owners, who alone update it; the first of them changes hands in the middle."""
    adapter = ADAPTERS[kind](network.values(seed=RANK))
    gradients = gradients_of(adapter.framework.parameters())
    names = list(gradients)
    layers = [[gradients[each] for each in names[at : at + 2]] for at in range(0, len(names), 2)]
    world = int(os.environ["HOCKET_WORLD"])

    def plan(first):
        shares = Owned(
            owners=tuple(Owner(rank=rank, share=1 + rank) for rank in range(first, world)), update="owners"
        )
        made = plan_of(buckets(layers, shares, range(world)), world, label="owners")
        return msgspec.structs.replace(made, schedule=Schedule(overlap=overlap))

    adapter, session = _start(kind, adapter=adapter, plan=plan(0))
    half = network.STEPS // 2
    _train(adapter, range(half))
    session.source.make = lambda _: bucket_memory.of_plan(plan(1), gradients)
    session.source.epochs.learn(session.source.epochs.current.after({}))
    _train(adapter, range(half, network.STEPS))
    return [session.agreed()["epoch"], _result(adapter, session)]


def accumulate(kind):
    """Two backward passes a step, the first without communication."""
    adapter, session = _start(kind)
    for step in range(0, network.STEPS, 2):
        with session.no_sync():
            adapter.backward(*network.batch(RANK, step), spare=False)
        adapter.backward(*network.batch(RANK, step + 1), spare=False)
        adapter.step()
        adapter.zero_grad()
    return _result(adapter, session)


def unused(kind):
    """Nobody uses the spare layer in step 0 and 3, rank 1 alone in the others: its gradients, and what was trained."""
    adapter, session = _start(kind)
    seen = []
    for step in range(network.STEPS):
        adapter.backward(*network.batch(RANK, step), spare=network.spare(RANK, step))
        seen.append(
            {
                name: None if each is None else each.ravel().tolist()
                for name, each in adapter.gradients().items()
            }
        )
        adapter.step()
        adapter.zero_grad()
    return [seen, _result(adapter, session)]


def elsewhere(kind):
    """A script takes gradients away, so that backward makes new arrays."""
    adapter, session = _start(kind)
    for step in range(network.STEPS):
        if step % 2:
            adapter.forget_gradient("1.weight")
        adapter.backward(*network.batch(RANK, step), spare=False)
        adapter.step()
        adapter.zero_grad()
    return _result(adapter, session)


def resumed(kind):
    """Rank 0 has trained alone before, the others have not: its optimizer's state counts, too."""
    adapter = ADAPTERS[kind](network.values(seed=RANK))
    if RANK == 0:
        _train(adapter, network.BEFORE)
    adapter, session = _start(kind, adapter=adapter)
    _train(adapter, range(network.STEPS))
    return _result(adapter, session)


def differ(kind):
    """Rank 1 has another model."""
    values = network.values(seed=0)
    if RANK == 1:
        values["1.bias"] = np.zeros(3, values["1.bias"].dtype)
        values["1.weight"] = np.zeros((values["1.weight"].shape[0], 3), values["1.bias"].dtype)
    _start(kind, adapter=ADAPTERS[kind](values))


def lost(kind):
    """Rank 1 ends in the middle: what the others' backward raises."""
    adapter, _ = _start(kind)
    _train(adapter, range(2))
    if RANK == 1:
        os._exit(3)
    try:
        _train(adapter, range(2, network.STEPS))
    except PeerError as error:
        return [error.rank, error.why]
    return None
