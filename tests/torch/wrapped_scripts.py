"""Models and optimizers that a trainer has wrapped, given to `distribute`; prints what each is told, as JSON."""

import json
import sys
import tempfile

import torch
import torch.distributed as dist

import hocket.torch as hk
from hocket.errors import UsageError


class Accelerated(torch.optim.Optimizer):
    """As Accelerate's: an optimizer that was not made as one."""

    def __init__(self, optimizer):
        self.optimizer = optimizer

    @property
    def param_groups(self):
        return self.optimizer.param_groups


def parts():
    model = torch.nn.Linear(3, 2)
    return model, torch.optim.SGD(model.parameters(), 0.1)


def told(act):
    try:
        act()
    except UsageError as error:
        return str(error)
    return "nothing"


def compiled():
    from torch._dynamo import compiled_autograd

    model, _ = hk.distribute(*parts())
    with compiled_autograd._enable(torch.compile(backend="eager")):
        model(torch.ones(2, 3)).sum().backward()


def wrapped_later():
    model, _ = hk.distribute(*parts())
    wrapped = torch.nn.parallel.DistributedDataParallel(model)
    wrapped(torch.ones(2, 3)).sum().backward()


def while_wrapped(model, optimizer):
    wrapped = torch.nn.parallel.DistributedDataParallel(model)
    wrapped.__dict__["itself"] = wrapped  # only the collector frees it
    holder = torch.nn.Sequential(wrapped)
    return {
        "wrapper": told(lambda: hk.distribute(wrapped, optimizer)),
        "inside": told(lambda: hk.distribute(model, optimizer)),
        "holder": told(lambda: hk.distribute(holder, optimizer)),
    }


def main():
    model, optimizer = parts()
    said = {"optimizer": told(lambda: hk.distribute(model, Accelerated(optimizer)))}
    said["compiled"] = told(compiled)
    with tempfile.TemporaryDirectory() as folder:
        dist.init_process_group("hocket", init_method=f"file://{folder}/store", rank=0, world_size=1)
        said |= while_wrapped(model, optimizer)
        said["free"] = told(lambda: hk.distribute(model, optimizer))
        said["later"] = told(wrapped_later)
        dist.destroy_process_group()
    sys.stdout.write(json.dumps(said))


if __name__ == "__main__":
    main()
