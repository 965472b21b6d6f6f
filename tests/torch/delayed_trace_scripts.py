"""What ranks of `test_delayed_trace.py` do: a training whose trace becomes a report."""

from __future__ import annotations

import msgspec
import torch

import hocket.torch as hk
from hocket.artefacts.learning import Check
from hocket.artefacts.plan import Evidence, Refused
from tests.sessions.plans import schedule_of
from tests.torch.delayed_scripts import RATE, here, loss_of, network, plan_for


def traced(flushes: str, steps: str) -> None:
    """Updates of two iterations, one late."""
    rank, _ = here()
    model = network()
    names = [name for name, _ in model.named_parameters()]
    schedule = msgspec.structs.replace(schedule_of((2,), 1, 2, "linear"), steps=steps)
    plan = plan_for(model, schedule, [names[2:], names[:2]])
    kept = Check(name="stability", value=0.0312, limit=0.05, passed=True)
    failed = Check(name="progress", value=0.5, limit=0.85, passed=False)
    refused = Refused(label="merged up to 9", predicted_step_s=0.1, checks=(failed,))
    plan = msgspec.structs.replace(plan, evidence=Evidence(checks=(kept,), refused=(refused,)))
    model, optimizer = hk.distribute(model, torch.optim.SGD(model.parameters(), lr=RATE), plan=plan)
    for iteration in range(13):
        optimizer.zero_grad()
        loss_of(model, iteration, rank).backward()
        optimizer.step()
        if iteration == 4:
            model.state_dict()
    if flushes == "yes":
        hk.flush(model)
