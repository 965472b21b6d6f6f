"""A rank of a job whose wire to rank 0 has a faulty part: TCP finds nothing wrong with what comes out of it."""

import os

import torch

import hocket.torch as hk
from hocket import PeerError
from hocket.job.store.store import Store
from tests.hostile.cables import Cable

RANK = int(os.environ.get("HOCKET_RANK", "0"))
STEPS = 4


def train(flip_at):
    os.environ["HOCKET_HOST"] = f"h{RANK}"
    gather = Store.gather

    def through_a_cable(store, name, *given, **options):
        found = gather(store, name, *given, **options)
        if name == "engine" and RANK == 1:
            cable = Cable(found[0][0][0], int(flip_at))
            found[0][0] = [cable.address]
        return found

    Store.gather = through_a_cable
    model = torch.nn.Linear(500, 200)
    model, optimizer = hk.distribute(model, torch.optim.SGD(model.parameters(), lr=0.1))
    torch.manual_seed(RANK)
    try:
        for _ in range(STEPS):
            model(torch.randn(4, 500)).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
    except PeerError as error:
        return [error.rank, error.host, error.why]
    return None
