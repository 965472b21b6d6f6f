"""Hocket for PyTorch: two lines in a training script; the loop stays as it is.

import hocket.torch as hk

model, optimizer = hk.distribute(model, optimizer)
"""

from hocket import extras

extras.need("torch", "hocket.torch")

from hocket.artefacts.promise import Promise  # noqa: E402  # what comes next loads torch
from hocket.parameter_server.choice import ParameterServer  # noqa: E402
from hocket.torch.ddp_hook import ddp_hook  # noqa: E402
from hocket.torch.distribute import (  # noqa: E402
    agreed,
    clip_grad_norm_,
    curvature,
    distribute,
    flush,
    join,
    load_state_dict,
    log,
    no_sync,
    optimizer_state,
    rank,
    record,
    state_dict,
    world,
)

__all__ = [
    "ParameterServer",
    "Promise",
    "agreed",
    "clip_grad_norm_",
    "curvature",
    "ddp_hook",
    "distribute",
    "flush",
    "join",
    "load_state_dict",
    "log",
    "no_sync",
    "optimizer_state",
    "rank",
    "record",
    "state_dict",
    "world",
]
