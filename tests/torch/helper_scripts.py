"""What ranks do in `test_helpers.py`: three that train and two that own parts of buckets."""

import torch
from torch import nn

import hocket.torch as hk
from hocket.artefacts.plan import AllReduce, Bucket, Owned, Owner, Part, Plan
from hocket.errors import UsageError

WORKERS, HELPERS, STEPS = 3, 2, 8
WIDTH = 24


def network():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, 1)
    )


def plan(update="replicas", *, first="replicas"):
    """Of each kind a bucket: among workers alone; owned by helpers alone; by both, with a part of a variable that another has.
    `first`, `update`: who updates the first one, by owners that train, and the second one, by those that do not."""
    everyone = tuple(range(WORKERS + HELPERS))
    shares = tuple(Owner(rank=rank, share=1 if rank < WORKERS else 3) for rank in everyone)
    idle = Owned(owners=tuple(Owner(rank=rank) for rank in everyone[WORKERS:]), update=update)
    among_workers = AllReduce(algorithm="ring")
    if first == "owners":
        owners = tuple(Owner(rank=rank, share=1 + rank) for rank in everyone[:WORKERS])
        among_workers = Owned(owners=owners, update="owners")
    routes = [
        (["4.weight", "4.bias"], among_workers, everyone[:WORKERS], [(None, None)] * 2),
        (["2.weight", "2.bias"], idle, everyone, [(0, 100), (0, None)]),
        (
            ["2.weight", "0.weight", "0.bias"],
            Owned(owners=shares),
            everyone,
            [(100, None), (0, None), (0, None)],
        ),
    ]
    sizes = {name: each.numel() for name, each in network().named_parameters()}
    buckets = []
    for priority, (names, route, order, ranges) in enumerate(routes):
        parts = tuple(
            Part(variable=name, start=start or 0, stop=sizes[name] if stop is None else stop)
            for name, (start, stop) in zip(names, ranges, strict=True)
        )
        buckets.append(
            Bucket(
                parts=parts,
                elements=sum(part.stop - part.start for part in parts),
                dtype="f32",
                route=route,
                order=order,
                priority=priority,
            )
        )
    return Plan(
        world=len(everyone),
        workers=everyone[:WORKERS],
        buckets=tuple(buckets),
        promise="exact",
        label="with helpers",
        reason="",
    )


def batch(step, rank):
    drawn = torch.Generator().manual_seed(100 * step + rank)
    return torch.randn(5, WIDTH, generator=drawn)


def train(first="replicas"):
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    try:
        hk.distribute(model, optimizer, plan=plan(first=first))
    except SystemExit as ended:
        return {"helped": ended.code}
    rank = hk.rank(model)
    for step in range(STEPS):
        for part in range(2):
            inputs = batch(step, rank)[part * 3 : part * 3 + 3]
            if part == 0:
                optimizer.zero_grad()
                with model.no_sync():
                    model(inputs).square().mean().backward()
            else:
                model(inputs).square().mean().backward()
        optimizer.step()
    # The second bucket is on helpers alone: without them, nobody would have its means.
    return {
        "parameters": [each.detach().flatten().tolist() for each in model.parameters()],
        "world": hk.world(model),
    }


def alone():
    """The same in one process: the mean of all workers' gradients in each step."""
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for step in range(STEPS):
        optimizer.zero_grad()
        for rank in range(WORKERS):
            for part in range(2):
                inputs = batch(step, rank)[part * 3 : part * 3 + 3]
                (model(inputs).square().mean() / WORKERS).backward()
        optimizer.step()
    return [each.detach().flatten().tolist() for each in model.parameters()]


def again(last):
    """A training after the other with one optimizer, with helpers and, if it is `last`, without; ranks that helped rest then."""
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    refused = ""
    for options in ({"plan": plan()}, {"plan": plan()}, {} if last == "without" else {"plan": plan()}):
        try:
            hk.distribute(model, optimizer, **options)
        except SystemExit as ended:
            return {"helped": ended.code}
        for step in range(STEPS):
            optimizer.zero_grad()
            model(batch(step, hk.rank(model))).square().mean().backward()
            optimizer.step()
    try:
        hk.distribute(model, optimizer, parameter_server=hk.ParameterServer(servers=HELPERS))
    except UsageError as error:
        refused = str(error)
    return {
        "parameters": [each.detach().flatten().tolist() for each in model.parameters()],
        "refused": refused,
    }


def again_alone():
    """The same in one process."""
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for step in [*range(STEPS)] * 3:
        optimizer.zero_grad()
        for rank in range(WORKERS):
            (model(batch(step, rank)).square().mean() / WORKERS).backward()
        optimizer.step()
    return [each.detach().flatten().tolist() for each in model.parameters()]


def die(helpers):
    """Rank 1 dies in its third step, in which helpers help or rest."""
    import os

    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    hk.distribute(model, optimizer, plan=plan())
    if helpers == "rest":
        hk.distribute(model, optimizer)
    for step in range(STEPS):
        if step == 2 and hk.rank(model) == 1:
            os._exit(3)
        optimizer.zero_grad()
        model(batch(step, 0)).square().mean().backward()
        optimizer.step()
