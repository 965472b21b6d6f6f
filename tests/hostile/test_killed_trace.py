"""A rank that is killed leaves what it recorded."""

import signal
from pathlib import Path

import pytest

from hocket.artefacts import trace
from hocket.artefacts.trace import Kind
from hocket.settings import Settings
from hocket.start.processes import ProcessSpec
from hocket.start.run import launch
from tests.support import warm

STEPS = 8

TRAINING = f"""
import os, signal, time
import torch, hocket.torch as hk
model = torch.nn.Linear(64, 64)
model, optimizer = hk.distribute(model, torch.optim.SGD(model.parameters(), lr=0.01))
for step in range({STEPS}):
    optimizer.zero_grad()
    model(torch.rand(4, 64)).sum().backward()
    optimizer.step()
time.sleep(1)
if hk.rank(model) == 1:
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_rank_leaves_all_but_its_last_second(tmp_path: Path):
    """The trace of a crash, which is when one needs it, would lack what led to it."""
    pytest.importorskip("torch")
    script = tmp_path / "train.py"
    script.write_text(TRAINING)
    settings = Settings(timeout_s=30, start_timeout_s=60, trace=str(tmp_path / "out"))
    outcome = launch([ProcessSpec(argv=warm.command(script))] * 2, settings=settings)
    assert 128 + signal.SIGKILL in [failure.code for failure in outcome.failures]
    found = trace.read(tmp_path / "out")
    for rank in range(2):
        own = found.rank_records(rank)
        assert (own.missing, own.truncated, own.dropped) == (False, False, 0)
        steps = own.records[own.records["kind"] == Kind.STEP]
        assert steps["instance"].tolist() == list(range(STEPS))
        launched = own.records[own.records["kind"] == Kind.INSTANCE]
        assert set(launched["instance"]) >= set(range(STEPS))
