"""What jobs of all clients share: digits, a network, plans of every kind, and an end by SIGKILL."""

import os
import signal
from pathlib import Path

import msgspec
import torch
from sklearn.datasets import load_digits
from torch.utils.data import TensorDataset

import hocket.torch as hk
from hocket.artefacts import files
from hocket.artefacts.plan import AllReduce, Bucket, Due, Owned, Owner, Part, Schedule, Turn
from hocket.planning.buckets import plan_of, with_codec

WORLD = 2
UPDATES = 8
"""Updates of a whole training, which is saved after half of them."""
KILLED_AT = 3
WAYS = ("exact", "halves", "owners", "late", "gates", "alone")


def digits(count=512):
    found = load_digits()
    samples = torch.tensor(found.data[:count] / 16, dtype=torch.float32)
    return TensorDataset(samples, torch.tensor(found.target[:count]))


def network():
    torch.manual_seed(7)
    layers = torch.nn
    return layers.Sequential(
        layers.Linear(64, 48), layers.BatchNorm1d(48), layers.ReLU(), layers.Linear(48, 10)
    )


def options(way, model):
    """Arguments of `hk.distribute`. `halves` has a plan file, by a variable; the others have objects."""
    os.environ.pop("HOCKET_PLAN", None)
    os.environ["HOCKET_SENTINEL"] = "0"  # which would train in step for the first ten iterations
    if way == "exact":
        return {}
    if way == "alone":
        return {"local": hk.Local(every=3)}
    plan = plan_for(way, model)
    if way != "halves":
        return {"plan": plan}
    file = Path(f"halves-{os.getpid()}.json").resolve()
    files.write(file, plan)
    os.environ["HOCKET_PLAN"] = str(file)
    return {"promise": "rounded"}


def plan_for(way, model):
    sizes = {name: each.numel() for name, each in model.named_parameters()}
    names = [*sizes]
    buckets = []
    for at, own in enumerate((names[2:], names[:2])):
        route = AllReduce(algorithm="ring")
        if way == "owners":
            route = Owned(owners=tuple(Owner(rank=rank) for rank in range(WORLD)), update="owners")
        made = Bucket(
            parts=tuple(Part(variable=name) for name in own),
            elements=sum(sizes[name] for name in own),
            dtype="f32",
            route=route,
            order=tuple(range(WORLD)),
            priority=at,
        )
        buckets.append(with_codec(made, "f16", [(0, 1), (1, 0)]) if way == "halves" else made)
    plan = plan_of(buckets, WORLD, label=way)
    if way == "gates":
        return msgspec.structs.replace(plan, schedule=Schedule(overlap="gates"))
    if way == "late":
        turns = ((Turn(first=0, last=1, due=Due(iteration=2, at="end")),),) * 2
        schedule = Schedule(period=2, turns=turns, steps="own first", rate="one", delay_max=1)
        return msgspec.structs.replace(plan, schedule=schedule, promise="delayed")
    return plan


def dies(rank, step):
    """Rank 1 ends without a word."""
    if os.environ.get("DIES") and rank == 1 and step == KILLED_AT:
        os.kill(os.getpid(), signal.SIGKILL)


def state(model):
    return {name: each.clone() for name, each in model.state_dict().items()}
