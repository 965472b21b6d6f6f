"""What scripts for Accelerate also do, under torchrun, right and wrong: `accelerate_more.py OUT`."""

import contextlib
import os
import sys
from pathlib import Path
from unittest import mock

import torch
from accelerate import Accelerator
from accelerate.utils import DistributedDataParallelKwargs
from torch.utils.data import DataLoader

import hocket.torch as hk
from hocket.errors import UsageError
from tests.clients.shared import digits, network, state


def one_by_one(order):
    """A model and its optimizer, prepared in two calls; until both are, it does not train."""
    accelerator, model = hk.accelerate(Accelerator(cpu=True)), network()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    samples, labels = next(iter(DataLoader(digits(), 8)))
    said = []
    if order == "model first":
        model = accelerator.prepare(model)
        try:
            model(samples)
        except UsageError as error:
            said.append(str(error))
        optimizer = accelerator.prepare(optimizer)
    else:
        optimizer = accelerator.prepare(optimizer)
        model(samples).sum().backward()
        try:
            optimizer.step()
        except UsageError as error:
            said.append(str(error))
        optimizer.zero_grad()
        model = accelerator.prepare(model)
    accelerator.backward(torch.nn.functional.cross_entropy(model(samples), labels))
    optimizer.step()
    return {"world": hk.world(model), "said": said}


def unequal():
    """Ranks with unequal numbers of batches, which `join_uneven_inputs` lets train."""
    accelerator, model = hk.accelerate(Accelerator(cpu=True)), network()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    loader = DataLoader(digits(24), 8)  # three batches for two ranks
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    count = 0
    with accelerator.join_uneven_inputs([model], even_batches=False):
        for samples, labels in loader:
            accelerator.backward(torch.nn.functional.cross_entropy(model(samples), labels))
            optimizer.step()
            optimizer.zero_grad()
            count += 1
    return {"batches": count, "even": accelerator.even_batches, "state": state(model)}


def two_models():
    """Two models with an optimizer each, in one call."""
    accelerator = hk.accelerate(Accelerator(cpu=True))
    one, other = network(), network()
    given = (torch.optim.SGD(each.parameters(), 0.1) for each in (one, other))
    one, other, of_one, of_other = accelerator.prepare(one, other, *given)
    samples, labels = digits()[8 * accelerator.process_index : 8 * accelerator.process_index + 8]
    for model, optimizer in ((one, of_one), (other, of_other)):
        accelerator.backward(torch.nn.functional.cross_entropy(model(samples), labels))
        optimizer.step()
    return {"worlds": [hk.world(one), hk.world(other)], "states": [state(one), state(other)]}


@contextlib.contextmanager
def variable(name, value):
    os.environ[name] = value
    try:
        yield
    finally:
        del os.environ[name]


def wrapped():
    """What users did before: the script's own `hk.distribute` beside what `prepare` does."""
    accelerator, model = Accelerator(cpu=True), network()
    inside = accelerator.prepare(model)
    hk.distribute(model, torch.optim.SGD(model.parameters(), 0.1))
    inside.eval()


def prepared():
    accelerator = Accelerator(cpu=True)
    accelerator.prepare(network())
    hk.accelerate(accelerator)


def sharded():
    accelerator = Accelerator(cpu=True)
    kind = mock.Mock(value="FSDP")
    with mock.patch.object(type(accelerator), "distributed_type", kind):
        hk.accelerate(accelerator)


def with_variable(name, value):
    with variable(name, value):
        hk.accelerate(Accelerator(cpu=True))


def refused():
    """What each wrong call says."""
    hook = DistributedDataParallelKwargs(comm_hook="fp16")
    calls = {
        "wrapped": wrapped,
        "twice": lambda: hk.accelerate(hk.accelerate(Accelerator(cpu=True))),
        "no accelerator": lambda: hk.accelerate(torch.nn.Linear(1, 1)),
        "a hook": lambda: hk.accelerate(Accelerator(cpu=True, kwargs_handlers=[hook])),
        "prepared": prepared,
        "sharded": sharded,
        "elastic": lambda: with_variable("HOCKET_COORDINATOR", "127.0.0.1:1"),
        "servers": lambda: with_variable("HOCKET_SERVERS", "1"),
        "a typo": lambda: hk.accelerate(Accelerator(cpu=True), buffers="never"),
    }
    said = {}
    for name, call in calls.items():
        try:
            call()
        except UsageError as error:
            said[name] = str(error)
    return said


def main():
    out = Path(sys.argv[1])
    found = {order: one_by_one(order) for order in ("model first", "optimizer first")}
    found |= {"unequal": unequal(), "two models": two_models(), "refused": refused()}
    torch.save(found, out / f"rank-{os.environ['RANK']}.pt")
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
