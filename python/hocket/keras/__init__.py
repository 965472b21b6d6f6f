"""Hocket for Keras 3: one line after `compile`, on the backends TensorFlow, JAX and PyTorch.

import hocket.keras as hk

model.compile(optimizer, loss)
hk.distribute(model)
model.fit(inputs, targets, callbacks=[hk.Metrics()])    # each rank its own
"""

from hocket import extras

extras.need("keras", "hocket.keras")

from hocket.artefacts.promise import Promise  # noqa: E402  # what comes next loads keras
from hocket.keras.distribute import (  # noqa: E402
    agreed,
    distribute,
    load_state_dict,
    log,
    rank,
    record,
    state_dict,
    world,
)
from hocket.keras.metrics import Metrics  # noqa: E402

__all__ = [
    "Metrics",
    "Promise",
    "agreed",
    "distribute",
    "load_state_dict",
    "log",
    "rank",
    "record",
    "state_dict",
    "world",
]
