"""What the tests of policies give each framework: the same gradients on the same ranks, and what PyTorch makes of them."""

import hashlib
import os

import numpy as np

from hocket.policies import READY_MADE

RANK = int(os.environ.get("HOCKET_RANK", "0"))
SHAPES = {"bias": (37,), "weight": (40, 30)}


def drawn(step):
    return {
        name: np.random.default_rng([step, RANK, at]).normal(size=shape).astype(np.float32)
        for at, (name, shape) in enumerate(SHAPES.items())
    }


def digest(arrays):
    return hashlib.sha256(b"".join(each.tobytes() for each in arrays)).hexdigest()


def by_policy_of_torch(name):
    """The same by the policy of that name: in a process without TensorFlow, whose LLVM does not bear that of PyTorch."""
    return of_torch(READY_MADE[name]())


def of_torch(policy):
    import torch

    import hocket.torch

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            for name, shape in SHAPES.items():
                self.register_parameter(name, torch.nn.Parameter(torch.zeros(shape)))

    model = Model()
    model, optimizer = hocket.torch.distribute(
        model, torch.optim.SGD(model.parameters(), lr=0.0), policy=policy
    )
    seen = []
    for step in range(5):
        optimizer.zero_grad()
        sum(
            (model.get_parameter(name) * torch.from_numpy(each)).sum() for name, each in drawn(step).items()
        ).backward()
        seen.append(digest([each.grad.numpy() for each in model.parameters()]))
    return seen
