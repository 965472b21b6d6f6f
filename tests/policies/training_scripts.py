"""What ranks of the policies' tests do; `test_training.py` runs these through `ranks.run`."""

import os
import random
import time

import numpy as np
import torch
from torch import nn

import hocket.torch as hk
from hocket import Policy
from hocket.policies import READY_MADE

RANK = int(os.environ.get("HOCKET_RANK", "0"))
STEPS = 50


def model(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(12, 40), nn.Tanh(), nn.Linear(40, 40), nn.Tanh(), nn.Linear(40, 3))


def numbers(network):
    return [each.double().flatten().tolist() for each in network.state_dict().values()]


def fit(policy, steps=STEPS, pause_s=0.0, optimizer=None):
    """Train and give back what `numbers` says, and the number of the last epoch."""
    network = model(RANK)
    optimizer = (optimizer or (lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9)))(network.parameters())
    network, optimizer = hk.distribute(network, optimizer, policy=policy)
    generator = torch.Generator().manual_seed(100 + RANK)
    for _ in range(steps):
        x, y = torch.randn(8, 12, generator=generator), torch.randint(0, 3, (8,), generator=generator)
        optimizer.zero_grad()
        nn.functional.cross_entropy(network(x), y).backward()
        optimizer.step()
        time.sleep(pause_s)
    return numbers(network), hk.agreed(network)["epoch"]


def ready_made(name):
    return fit(READY_MADE[name]())[0]


class Restless(Policy):
    """Proposes another fusion threshold at every tick."""

    timer_interval_s = 0.05

    def on_timer(self, cx, stats):
        if cx.rank == 0:
            cx.propose(fusion_bytes=random.choice([0, 1000, 4000, 1 << 20]))  # noqa: S311


class Remembers(Policy):
    """Each gradient is the sum of all so far: state that is lost shows at once."""

    contract = "none"

    def on_buffer_ready(self, cx, buffer):
        cx.all_reduce(buffer, op="mean", algorithm="direct")
        kept = cx.state("kept", like=buffer)
        cx.reduce(buffer, kept)
        cx.copy(kept, into=buffer)


class RemembersRestless(Remembers, Restless):
    def on_timer(self, cx, stats):
        Restless.on_timer(self, cx, stats)


def remembers(kind):
    policy = RemembersRestless() if kind == "restless" else Remembers()
    return fit(policy, pause_s=0.02, optimizer=lambda p: torch.optim.SGD(p, lr=0.001))


class RestlessGates(Restless):
    gates = True


def restless(kind):
    return fit(RestlessGates() if kind == "gates" else Restless(), pause_s=0.02)


class Raises(Policy):
    timer_interval_s = 0.1

    def on_timer(self, cx, stats):
        if cx.rank == 1:
            raise ValueError("what the handler said")


def raises():
    return fit(Raises(), steps=400, pause_s=0.02)


class Hangs(Policy):
    timer_interval_s = 0.05

    def on_timer(self, cx, stats):
        if cx.rank == 1:
            time.sleep(1000)
        cx.negotiate(1.0)


def hangs():
    return fit(Hangs(), steps=100)[1]


class Chance(Policy):
    def on_buffer_ready(self, cx, buffer):
        cx.all_reduce(buffer, op="mean", algorithm=["ring", "direct", "halving_doubling"][os.getpid() % 3])
        cx.fill(cx.alloc(1 + os.getpid()), 0)


def chance():
    return fit(Chance())


class ByGloo(Policy):
    """The mean, by every collective that a library has."""

    contract = "none"

    def on_buffer_ready(self, cx, buffer):
        size = len(buffer) // (3 * cx.world) * cx.world
        one, two, three, rest = (
            buffer[:size],
            buffer[size : 2 * size],
            buffer[2 * size : 3 * size],
            buffer[3 * size :],
        )
        cx.all_reduce(one, op="mean", library="gloo")
        cx.reduce_scatter(two, op="mean", library="gloo")
        cx.all_gather(two, library="gloo")
        there = cx.all_to_all(three, library="gloo")
        parts = cx.split(there, cx.world)
        total = cx.split(three, cx.world)[cx.rank]
        cx.copy(parts[0], into=total)
        for part in parts[1:]:
            cx.reduce(part, total)
        cx.scale(total, 1 / cx.world)
        cx.gather(three, 1, library="gloo")
        cx.broadcast(three, 1, library="gloo")
        cx.reduce_to(rest, 2, op="mean", library="gloo")
        cx.broadcast(rest, 2, library="gloo")


def by_gloo():
    return fit(ByGloo())[0]


def ends_with_a_step():
    """No look at the model after the last step: ranks leave with gates closed."""
    network = model(RANK)
    network, optimizer = hk.distribute(
        network, torch.optim.SGD(network.parameters(), lr=0.1), policy=READY_MADE["priority"]()
    )
    for _ in range(5):
        optimizer.zero_grad()
        network(torch.randn(8, 12)).sum().backward()
        optimizer.step()
        time.sleep(0.1 * RANK)


def plain():
    return fit(Policy())[0]


class Shared(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 6)
        self.head = nn.Linear(6, 1)

    def forward(self, x):
        from torch.utils.checkpoint import checkpoint

        once = checkpoint(self.layer, x, use_reentrant=True)
        return self.head(checkpoint(self.layer, once.tanh(), use_reentrant=True)).sum()


def reentrant():
    network = Shared()
    network, _ = hk.distribute(network, torch.optim.SGD(network.parameters(), lr=0.1))
    network(torch.randn(4, 6, requires_grad=True)).backward()


def converted():
    network, _ = hk.distribute(network := model(), torch.optim.SGD(network.parameters(), lr=0.1))
    network.double()
    network(torch.randn(4, 12, dtype=torch.float64)).sum().backward()


def sparse():
    torch.manual_seed(0)
    network = nn.Embedding(20, 3, sparse=True)
    optimizer = torch.optim.SGD(network.parameters(), lr=1.0)
    network, optimizer = hk.distribute(network, optimizer, policy=READY_MADE["empty"]())
    optimizer.zero_grad()
    for each in network.parameters():
        each.grad = None
    network(torch.tensor([RANK, 5])).sum().backward()
    return network.weight.grad.sum(1).tolist()


def statistics():
    seen = {}

    class Looks(Policy):
        timer_interval_s = 0.05

        def on_timer(self, cx, stats):
            cx.record("tick", 1.0)
            for name in ("step_time", "wait_time", "bytes", "gradient_norm", "mine"):
                seen[name] = stats.get(name)
            seen["of rank 1"] = stats.get("mine", rank=1)

        def on_worker_added(self, cx, worker):
            seen.setdefault("workers", []).append(worker)

    network = model(RANK)
    network, optimizer = hk.distribute(network, torch.optim.SGD(network.parameters(), lr=0.1), policy=Looks())
    for _ in range(60):
        optimizer.zero_grad()
        network(torch.randn(8, 12)).sum().backward()
        optimizer.step()
        hk.record(network, mine=10.0 + RANK)
        time.sleep(0.01)
    return {
        key: value if isinstance(value, list) else float(np.float64(value)) for key, value in seen.items()
    }


class RoundsEach(Policy):
    """Rounds each gradient before it is summed."""

    contract = "same"

    def on_tensor_ready(self, cx, grad):
        cx.cast(cx.cast(grad, "f16"), "f32", into=grad)
        cx.enqueue(grad)

    def on_buffer_ready(self, cx, buffer):
        cx.all_reduce(buffer, op="mean")


class Slow(torch.autograd.Function):
    """Takes its time in backward."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        time.sleep(0.1)
        return gradient


def early(steps="4"):
    """Return the gradients of the last step, and those of this rank alone."""
    torch.manual_seed(0)
    first, last = nn.Linear(12, 40), nn.Linear(40, 3)
    network = nn.Sequential(first, last)
    network, optimizer = hk.distribute(
        network, torch.optim.SGD(network.parameters(), lr=0.0), policy=RoundsEach()
    )
    inputs = torch.full((8, 12), 0.1 * (RANK + 1))
    for _ in range(int(steps)):
        optimizer.zero_grad()
        last(Slow.apply(first(inputs))).square().sum().backward()
        found = [each.grad.flatten().tolist() for each in (*first.parameters(), *last.parameters())]
        optimizer.step()
    own = torch.autograd.grad(last(first(inputs)).square().sum(), [*first.parameters(), *last.parameters()])
    return found, [each.flatten().tolist() for each in own]
