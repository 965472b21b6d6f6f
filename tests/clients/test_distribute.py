"""`hk.distribute` under trainers, beyond a plain training: saved and resumed, with plans of every kind, by hand, and when it goes
wrong."""

import re

import pytest
import torch

from tests.clients.jobs import command, ended, learned
from tests.clients.shared import WAYS, WORLD

CLIENTS = ("lightning", "trainer", "accelerate")
AS_DDP = 1e-5
ROUNDED = 1e-3
RESUMES_BY_THE_BIT = {"trainer": set(WAYS), "accelerate": {*WAYS} - {"alone"}, "lightning": set()}
"""Ways of which a whole and a resumed training have the same bits. Accelerate saves rank 0's optimizer alone, and where ranks step
alone, each has its own; the Trainer's here has no state. Lightning does not go on at the batch where it was."""


@pytest.fixture(scope="module", params=CLIENTS)
def found(request, tmp_path_factory):
    """A client, and what its jobs have learned by DDP and by `hk.distribute`."""
    client, folder = request.param, tmp_path_factory.mktemp(request.param)
    commands = {
        by: command(client, f"{client}_edges.py", WORLD, by, folder / by) for by in ("ddp", "distribute")
    }
    return client, learned(commands, WORLD, folder)


def assert_close(ours, theirs, tolerance, names=None):
    assert ours.keys() == theirs.keys()
    for name in names or ours:
        torch.testing.assert_close(
            ours[name], theirs[name], rtol=0, atol=tolerance, msg=lambda said, n=name: f"{n}: {said}"
        )


def learnt(state):
    return [name for name in state if "running" not in name]


def test_trains_and_goes_on_as_with_ddp(found):
    """Broken: with autocast, accumulation, clipping, by hand, or from a checkpoint, another model would be trained."""
    _, results = found
    for rank, (ours, theirs) in enumerate(zip(results["distribute"], results["ddp"], strict=True)):
        for scenario, expected in theirs.items():
            for training, state in expected.items():
                if isinstance(state, dict):
                    # After a forward of DDP, other ranks have statistics of their own.
                    names = state if rank == 0 else learnt(state)
                    assert_close(ours[scenario][training], state, AS_DDP, names)
                else:
                    assert ours[scenario][training] == pytest.approx(state, rel=0, abs=AS_DDP)


@pytest.mark.parametrize("way", WAYS)
def test_plans_and_promises_hold(found, way):
    """Broken: a plan would have no effect, owners' parts be clipped by other norms, or late gradients be lost at a checkpoint or at
    the end."""
    client, results = found
    one, other = (rank[way] for rank in results["distribute"])
    exact = results["distribute"][0]["exact"]
    names = learnt(exact["whole"])
    for training in ("whole", "resumed"):
        # Where ranks step alone, the statistics of batches are sent with the next exchange.
        assert_close(one[training], other[training], 0.0, names if way == "alone" else None)
        distance = max((one[training][name] - exact[training][name]).abs().max() for name in names)
        if way in ("owners", "gates"):
            assert distance < AS_DDP
        elif way == "halves":
            assert 0 < distance < ROUNDED
        elif way != "exact":
            assert 0 < distance < 1
    if way in RESUMES_BY_THE_BIT[client]:
        assert_close(one["whole"], one["resumed"], 0.0, names)


@pytest.mark.parametrize("client", CLIENTS)
def test_a_killed_rank_is_named(client, tmp_path):
    """Broken: the other ranks would wait, or say that a connection was closed."""
    commands = {"job": command(client, f"{client}_edges.py", WORLD, "distribute", tmp_path / "job")}
    code, output = ended(commands, tmp_path, DIES="1")["job"]
    assert code != 0
    # torchrun may end the others before they can say so, and names the rank itself.
    unsaid = "]: Traceback" not in output and re.search(r"^ *rank +: 1 \(", output, re.MULTILINE)
    assert "PeerError: rank 1 on " in output or unsaid, output
