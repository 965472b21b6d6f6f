"""What ranks of `test_join.py` do."""

import os

import hocket.torch as hk
import torch
from hocket import Policy
from hocket.errors import UsageError
from hocket.policies import LocalSGD, TopK
from torch import nn

RANK = int(os.environ.get("HOCKET_RANK", "0"))


class Gated(Policy):
    """Backward ends without waiting; buckets of one gradient each."""

    gates = True
    parameters = {"fusion_bytes": 0}  # noqa: RUF012  # as users write it


class Restless(Policy):
    """Proposes other buckets all the time."""

    timer_interval_s = 0.02

    def on_timer(self, cx, stats):
        if cx.rank == 0:
            cx.propose(fusion_bytes=100 if cx.agreed("fusion_bytes") != 100 else 2000)


POLICIES = {"none": None, "gates": Gated, "epochs": Restless, "plain": Policy}


def _network(seed):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 2))


def _start(policy="none", network=None):
    network = network or _network(RANK)
    made = POLICIES[policy]
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9)
    return hk.distribute(network, optimizer, policy=None if made is None else made())


def _steps(model, optimizer, generator, count):
    for _ in range(count):
        optimizer.zero_grad()
        model(torch.randn(4, 6, generator=generator)).square().mean().backward()
        optimizer.step()


def _numbers(model, optimizer):
    state = [each["momentum_buffer"] for _, each in sorted(optimizer.state_dict()["state"].items())]
    return [each.detach().double().flatten().tolist() for each in [*model.state_dict().values(), *state]]


def epochs(policy):
    """Epochs of unequal lengths: parameters and the optimizer's state after each."""
    model, optimizer = _start(policy)
    generator = torch.Generator().manual_seed(20 + RANK)
    seen = []
    for count in (2 + RANK, 4 - RANK, 3):
        with hk.join(model):
            _steps(model, optimizer, generator, count * (5 if policy == "epochs" else 1))
        seen.append(_numbers(model, optimizer))
    return seen


def alone():
    """The same epochs by hand in one process: a rank without a batch counts as a gradient of zero."""
    model = _network(0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    generators = [torch.Generator().manual_seed(20 + rank) for rank in range(3)]
    for counts in ((2, 3, 4), (4, 3, 2), (3, 3, 3)):
        for step in range(max(counts)):
            optimizer.zero_grad()
            for generator, count in zip(generators, counts, strict=True):
                if step < count:
                    (model(torch.randn(4, 6, generator=generator)).square().mean() / 3).backward()
            optimizer.step()
    return _numbers(model, optimizer)


def early():
    """Rank 1 is the first without batches; then ranks train on."""
    model, optimizer = _start()
    generator = torch.Generator().manual_seed(20 + RANK)
    try:
        with hk.join(model, throw_on_early_termination=True):
            _steps(model, optimizer, generator, 4 - RANK)
    except UsageError as error:
        said = str(error)
    _steps(model, optimizer, generator, 2)
    return [said, _numbers(model, optimizer)]


def refused():
    """What cannot be joined says so, and why."""
    said = []
    for policy in (TopK(), LocalSGD()):
        network = _network(0)
        model, _ = hk.distribute(network, torch.optim.SGD(network.parameters(), lr=0.1), policy=policy)
        try:
            hk.join(model)
        except UsageError as error:
            said.append(str(error))
    return said


def pair():
    """Two models in one window, one of them without any batch on rank 0."""
    models = [_start(network=_network(seed)) for seed in (1, 2)]
    generator = torch.Generator().manual_seed(20 + RANK)
    with hk.join(*(model for model, _ in models)):
        for _ in range(3 * RANK):
            for model, optimizer in models:
                _steps(model, optimizer, generator, 1)
    return [_numbers(model, optimizer) for model, optimizer in models]


def forgotten():
    """Unequal numbers of batches without `join`."""
    model, optimizer = _start()
    _steps(model, optimizer, torch.Generator().manual_seed(RANK), 5 - 2 * RANK)
