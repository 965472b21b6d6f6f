"""Hocket for PyTorch: two lines in a training script, the loop stays as it is.

import hocket.torch as hk

model, optimizer = hk.distribute(model, optimizer)
"""

from hocket.parameter_server.choice import ParameterServer
from hocket.torch.ddp_hook import ddp_hook
from hocket.torch.distribute import (
    agreed,
    clip_grad_norm_,
    distribute,
    join,
    log,
    no_sync,
    rank,
    record,
    world,
)

__all__ = [
    "ParameterServer",
    "agreed",
    "clip_grad_norm_",
    "ddp_hook",
    "distribute",
    "join",
    "log",
    "no_sync",
    "rank",
    "record",
    "world",
]
