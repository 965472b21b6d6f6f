"""What ranks of the conformance suite do, with any framework: `case(framework's name, …)` returns what the tests compare."""

from __future__ import annotations

import os

import numpy as np

from hocket.errors import PeerError
from hocket.settings import Settings
from hocket.training.assemble.asked import Given
from hocket.training.assemble.start import prepare, session_of
from hocket.training.process import joined
from hocket.training.step.companion import Alone
from tests.training import network
from tests.training.adapters import ADAPTERS

RANK = int(os.environ.get("HOCKET_RANK", "0"))


def _start(kind, adapter=None):
    """Rank 0's values count, so the others begin elsewhere."""
    adapter = adapter or ADAPTERS[kind](network.values(seed=RANK))
    settings = Settings.from_environment()
    process = joined(settings)
    source = prepare(adapter.framework, Given(), process=process, settings=settings)
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
