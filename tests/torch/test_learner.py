"""Delayed training in one process, as benchmarks of learning have it, against real ranks."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
import torch
from torch import nn

from benches.delays.learner import Learner, plan_of_schedules
from hocket.settings import Settings
from tests.sessions.plans import schedule_of
from tests.support import ranks
from tests.torch.oversight_scripts import CENTRE, MOMENTUM, RATE, SIZE

STEPS = 60


@pytest.mark.parametrize("safer", ["alone", "safer"])
def test_it_is_what_ranks_do(tmp_path: Path, safer: str) -> None:
    """Broken: learning curves would be of another algorithm than the one that runs, or retreat at another time."""
    settings = Settings(timeout_s=30, start_timeout_s=30)
    ended = ranks.run(
        "tests.torch.oversight_scripts:descended", 2, tmp_path, "silent", safer, str(STEPS), settings=settings
    )
    assert ended.outcome.code == 0, ended.output
    far, _, _, retreated, _ = ended.returned[0]
    model = nn.Linear(SIZE, 1, bias=False).double()
    with torch.no_grad():
        model.weight.fill_(1.0)
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE, momentum=MOMENTUM)
    plan = plan_of_schedules(schedule_of((1,), 1, 1, "linear"))
    if safer == "safer":
        plan = msgspec.structs.replace(plan, safer=(schedule_of((2,), 0, 1, "linear"),))
    learner = Learner(optimizer, [[model.weight]], plan)
    draws = [torch.Generator().manual_seed(rank) for rank in range(2)]
    distances = []
    for _ in range(STEPS):
        centres = [CENTRE + torch.randn(1, SIZE, generator=draw, dtype=torch.float64) for draw in draws]
        losses = [0.5 * (model.weight - centre).square().sum() for centre in centres]
        learner.learn(sum(losses) / 2)
        distances.append(float((model.weight.detach() - CENTRE).norm()))
    assert max(distances[-20:]) == pytest.approx(far, rel=1e-9)
    assert learner.retreated is not None
    assert learner.retreated == pytest.approx(retreated, abs=1)
