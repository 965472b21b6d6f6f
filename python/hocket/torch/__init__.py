"""Hocket for PyTorch: two lines in a training script; the loop stays as it is.

import hocket.torch as hk

model, optimizer = hk.distribute(model, optimizer)
"""

from hocket import extras

extras.need("torch", "hocket.torch")

from hocket.artefacts.local import Local  # noqa: E402  # what comes next loads torch
from hocket.artefacts.promise import Promise  # noqa: E402
from hocket.parameter_server.choice import ParameterServer  # noqa: E402
from hocket.torch.accumulated import reduce_gradients  # noqa: E402
from hocket.torch.backend import reconfigurable_group  # noqa: E402
from hocket.torch.checkpoint import load_state_dict, optimizer_state, state_dict  # noqa: E402
from hocket.torch.ddp_hook import ddp_hook  # noqa: E402
from hocket.torch.distribute import distribute  # noqa: E402
from hocket.torch.hsdp_hook import hsdp_hook  # noqa: E402
from hocket.torch.in_training import (  # noqa: E402
    agreed,
    clip_grad_norm_,
    curvature,
    flush,
    join,
    log,
    no_sync,
    rank,
    record,
    steps,
    world,
)
from hocket.torch.loop import batches, epochs, extra_state, leave, on_change, scale_lr  # noqa: E402
from hocket.torch.trainers.accelerate import accelerate  # noqa: E402
from hocket.torch.trainers.transformers import trainer  # noqa: E402
from hocket.training.loop.changes import Change  # noqa: E402

__all__ = [
    "Change",
    "Local",
    "ParameterServer",
    "Promise",
    "accelerate",
    "agreed",
    "batches",
    "clip_grad_norm_",
    "curvature",
    "ddp_hook",
    "distribute",
    "epochs",
    "extra_state",
    "flush",
    "hsdp_hook",
    "join",
    "leave",
    "load_state_dict",
    "log",
    "no_sync",
    "on_change",
    "optimizer_state",
    "rank",
    "reconfigurable_group",
    "record",
    "reduce_gradients",
    "scale_lr",
    "state_dict",
    "steps",
    "trainer",
    "world",
]
