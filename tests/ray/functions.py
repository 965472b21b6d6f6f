"""Training functions of the tests; workers load them by name."""

import os
import signal
import tempfile
import time
from pathlib import Path

import ray
import torch

import hocket.ray as hr
import hocket.torch as hk


def where(config):
    """Without Hocket's training: the worker's place, as it sees it."""
    context = hr.get_context()
    hr.report(
        {
            "rank": context.get_world_rank(),
            "world": context.get_world_size(),
            "local_rank": context.get_local_rank(),
            "node": ray.get_runtime_context().get_node_id(),
            "process": os.getpid(),
            "config": config,
            "torch": (os.environ["RANK"], os.environ["WORLD_SIZE"], os.environ["MASTER_PORT"]),
        }
    )


def steps(count):
    """Of a small model on all ranks; gives the number of each."""
    torch.manual_seed(0)
    model = torch.nn.Linear(8, 8)
    model, optimizer = hk.distribute(model, torch.optim.SGD(model.parameters(), lr=0.01))
    for step in range(count):
        model(torch.ones(1, 8)).sum().backward()
        optimizer.step()
        yield step, model


def some_steps(config):
    *_, (_, model) = steps(config["steps"])
    hr.report({"sum": sum(float(each.detach().sum()) for each in model.parameters())})


def torch_backend():
    """By torch.distributed's own call instead."""
    torch.distributed.init_process_group("hocket")
    total = torch.ones(3)
    torch.distributed.all_reduce(total)
    hr.report({"sum": float(total.sum())})
    torch.distributed.destroy_process_group()


def killed(config):
    for step, _ in steps(1000):
        if step == 3:
            hr.report({"process": os.getpid()})
            if hr.get_context().rank == config["victim"]:
                time.sleep(0.5)
                os.kill(os.getpid(), signal.SIGKILL)


def long(config):
    """For as long as it takes to kill a node; a file says that it trains."""
    for step, _ in steps(1_000_000):
        time.sleep(0.01)
        if step == 3:
            rank = hr.get_context().rank
            here = ray.get_runtime_context().get_node_id()
            Path(config["directory"], f"{rank}.part").write_text(f"{here} {os.getpid()}")
            Path(config["directory"], f"{rank}.part").rename(Path(config["directory"], str(rank)))


def raises(config):
    """One rank raises, while the others wait for it in the next step."""
    for step, _ in steps(1000):
        if step == 3 and hr.get_context().rank == config["victim"]:
            raise ValueError("the batch has a wrong shape")


def sleeps(config):
    """Without Hocket's training: one raises, and the others never end."""
    hr.report({"process": os.getpid()})
    if hr.get_context().rank == config["victim"]:
        raise ValueError("no such file")
    time.sleep(1000)


def files_of(names):
    """Each rank's checkpoint of one file: its rank's name of these."""
    rank = hr.get_context().rank
    with tempfile.TemporaryDirectory() as directory:
        Path(directory, names[rank]).write_text(f"of {rank}")
        hr.report({}, checkpoint=hr.Checkpoint.from_directory(directory))


def reports_twice():
    hr.report({"at": 1})
    hr.report({"at": 2})


def rings(config):
    """All-reduces of torch's own, in rings of ranks, and then steps of Hocket's."""
    torch.distributed.init_process_group("gloo")
    values = torch.ones(config["elements"])
    for _ in range(config["times"]):
        torch.distributed.all_reduce(values)
    torch.distributed.destroy_process_group()
    for _ in steps(3):
        pass
    hr.report({"host": os.environ["HOCKET_HOST"], "ends_with": float(values[0])})
