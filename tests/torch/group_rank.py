"""A rank of `test_group`: a pipeline of two stages, of which there are several copies; `python group_rank.py WHAT OUT`."""

import json
import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe

import hocket.torch as hk
from hocket.errors import Error

STEPS, MICRO, SAMPLES = 4, 4, 8
SCHEDULES = {"gpipe": ScheduleGPipe, "1f1b": Schedule1F1B}


def stages():
    torch.manual_seed(0)
    return [nn.Sequential(nn.Linear(8, 16), nn.ReLU()), nn.Linear(16, 4)]


def optimizer_of(parameters):
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)


def data(copies):
    torch.manual_seed(7)
    return torch.randn(STEPS, copies, SAMPLES, 8), torch.randn(STEPS, copies, SAMPLES, 4)


def piped(kind, once):
    """The largest difference from one process that trains the whole model on all copies' data."""
    world = dist.get_world_size()
    mesh = init_device_mesh("cpu", (world // 2, 2), mesh_dim_names=("replicate", "stage"))
    at, copy, copies = mesh["stage"].get_local_rank(), mesh["replicate"].get_local_rank(), world // 2
    model = stages()[at]
    model, optimizer = hk.distribute(model, optimizer_of(model.parameters()), group=mesh["replicate"])
    stage = PipelineStage(model, at, 2, torch.device("cpu"), group=mesh["stage"].get_group())
    schedule = SCHEDULES[kind](stage, n_microbatches=MICRO, loss_fn=nn.functional.mse_loss)
    inputs, targets = data(copies)

    def step(number):
        if at == 0:
            schedule.step(inputs[number, copy])
        else:
            schedule.step(target=targets[number, copy], losses=[])

    for number in range(STEPS):
        optimizer.zero_grad()
        if once:
            with model.no_sync():
                step(number)
            hk.reduce_gradients(model)
        else:
            step(number)
        optimizer.step()
    whole = stages()
    reference = nn.Sequential(*whole)
    theirs = optimizer_of(reference.parameters())
    for number in range(STEPS):
        theirs.zero_grad()
        nn.functional.mse_loss(
            reference(inputs[number].flatten(0, 1)), targets[number].flatten(0, 1)
        ).backward()
        theirs.step()
    pairs = zip(model.parameters(), whole[at].parameters(), strict=True)
    return {
        "rank": hk.rank(model),
        "world": hk.world(model),
        "difference": max((mine - other).abs().max().item() for mine, other in pairs),
    }


def said(call):
    try:
        call()
    except Error as error:
        return f"{type(error).__name__}: {error}"
    return "nothing"


def refused():
    """What is said to wrong groups."""
    world = dist.get_world_size()
    mesh = init_device_mesh("cpu", (world // 2, 2), mesh_dim_names=("replicate", "stage"))
    model = nn.Linear(2, 2)
    optimizer = optimizer_of(model.parameters())
    found = {
        "mesh": said(lambda: hk.distribute(model, optimizer, group=mesh)),
        "no group": said(lambda: hk.distribute(model, optimizer, group=[0, 1])),
        "not in": said(lambda: hk.distribute(model, optimizer, group=dist.GroupMember.NON_GROUP_MEMBER)),
    }
    hk.distribute(model, optimizer, group=mesh["replicate"])
    found["other group"] = said(lambda: hk.distribute(model, optimizer, group=mesh["stage"]))
    found["no gradients"] = said(lambda: hk.reduce_gradients(model))
    found["all ranks"] = said(lambda: hk.distribute(model, optimizer))
    return found


def spread():
    """What is said of tensor parallelism."""
    from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module

    mesh = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("tensor",))
    model = nn.Sequential(nn.Linear(8, 16))
    parallelize_module(model, mesh, {"0": ColwiseParallel()})
    return {"spread": said(lambda: hk.distribute(model, optimizer_of(model.parameters())))}


def main(what, out):
    dist.init_process_group(os.environ.get("BACKEND", "gloo"))
    kind, _, once = what.partition("+")
    made = {"refused": refused, "spread": spread}.get(kind, lambda: piped(kind, bool(once)))()
    (Path(out) / f"{dist.get_rank()}.json").write_text(json.dumps(made))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
