"""Traces that cannot be written to their end cost no training, and say so once."""

import resource

import torch

import hocket.torch as hk
from hocket.artefacts.trace import read
from hocket.settings import Settings
from tests.support import ranks

STEPS = 40
HERE = "tests.hostile.test_full_disk"


def train(steps=str(STEPS), room="0"):
    """A rank; after two steps, its files may have so many bytes, until it ends: events are written beside training, and later."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(*(torch.nn.Linear(16, 16, bias=False) for _ in range(8)))
    model, optimizer = hk.distribute(model, torch.optim.SGD(model.parameters(), lr=1e-9))
    for step in range(int(steps)):
        if step == 2 and int(room):
            resource.setrlimit(resource.RLIMIT_FSIZE, (int(room), resource.RLIM_INFINITY))
        model(torch.ones(2, 16)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        hk.log(model, step=step, note="x" * 400)
    return int(steps)


def traced(directory, **more):
    return Settings(
        timeout_s=60, start_timeout_s=60, autopilot=False, trace=str(directory), cache_bytes=0, **more
    )


def test_work_is_not_lost_to_a_full_disk(tmp_path):
    """A job that has trained to its end would fail, as its trace could not be written to the end."""
    job = ranks.run(f"{HERE}:train", 2, tmp_path, str(STEPS), "8192", settings=traced(tmp_path / "t"))
    assert job.outcome.code == 0, job.output
    assert job.returned == [STEPS, STEPS]
    for rank in range(2):
        said = [line for line in job.output.splitlines() if line.startswith(f"[{rank}] ")]
        of_events = [line for line in said if "the trace" in line and "cannot be written" in line]
        of_metrics = [line for line in said if "the script's metrics: not in the trace any more" in line]
        assert (len(of_events), len(of_metrics)) == (1, 1), job.output
    assert "Traceback" not in job.output
    # What was written before is whole.
    found = read(tmp_path / "t")
    assert len(found.metrics(0)) > 2
    assert found.rank_records(0).dropped > 0
