"""Delayed training in one process, as benchmarks of learning have it, against real ranks."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
import torch
from torch import nn

from benches.delays.alone import Apart
from benches.delays.learner import Learner, plan_of_schedules
from benches.delays.working import Copy
from hocket.artefacts.plan import Schedule
from hocket.settings import Settings
from tests.sessions.plans import schedule_of
from tests.support import drawn, ranks
from tests.torch import local_scripts
from tests.torch.delayed_scripts import loss_of, network
from tests.torch.oversight_scripts import CENTRE, MOMENTUM, RATE, RATE_OWN_FIRST, SIZE, loss_at
from tests.torch.own_first_scripts import ITERATIONS, KINDS, Reference, cases, far, flat

pytestmark = pytest.mark.late

STEPS = 60
CASES = drawn.cases(10)
"""Of each reference."""


@pytest.mark.parametrize("safer", ["alone", "safer"])
def test_it_is_what_ranks_do(tmp_path: Path, safer: str) -> None:
    """Broken: learning curves would be of another algorithm than the one that runs, or retreat at another time."""
    settings = Settings(timeout_s=30, start_timeout_s=30)
    ended = ranks.run(
        "tests.torch.oversight_scripts:descended", 2, tmp_path, "silent", safer, str(STEPS), settings=settings
    )
    assert ended.outcome.code == 0, ended.output
    far, _, _, retreated, _ = ended.returned[0]
    copy = started(RATE)
    model = copy.model
    plan = plan_of_schedules(schedule_of((1,), 1, 1, "linear"))
    if safer == "safer":
        plan = msgspec.structs.replace(plan, safer=(schedule_of((2,), 0, 1, "linear"),))
    learner = Learner([copy], plan)
    draws = [torch.Generator().manual_seed(rank) for rank in range(2)]
    distances = []
    for _ in range(STEPS):
        learner.learn(sum(loss_at(model, draw) for draw in draws) / 2)
        distances.append(distance(model))
    assert max(distances[-20:]) == pytest.approx(far, rel=1e-9)
    assert learner.retreated is not None
    assert learner.retreated == pytest.approx(retreated, abs=1)


def test_own_first_is_what_ranks_do(tmp_path: Path) -> None:
    """Broken: learning with own gradients first would be another in benchmarks, after the synchronous window or before it."""
    settings = Settings(timeout_s=30, start_timeout_s=30)
    ended = ranks.run("tests.torch.oversight_scripts:own_first", 2, tmp_path, str(STEPS), settings=settings)
    assert ended.outcome.code == 0, ended.output
    copies = [started(RATE_OWN_FIRST) for _ in range(2)]
    schedule = msgspec.structs.replace(schedule_of((1,), 1, 1, "linear"), steps="own first")
    learner = Learner(copies, plan_of_schedules(schedule))
    draws = [torch.Generator().manual_seed(rank) for rank in range(2)]
    found = []
    for _ in range(STEPS):
        learner.learn(*(loss_at(copy.model, draw) for copy, draw in zip(copies, draws, strict=True)))
        found.append([distance(copy.model) for copy in copies])
    learner.flush()
    found.append([distance(copy.model) for copy in copies])
    assert found[0][0] == found[0][1]
    assert found[-2][0] != found[-2][1]
    for rank, own in enumerate(zip(*found, strict=True)):
        assert list(own) == pytest.approx(ended.returned[rank], rel=1e-9)


def test_own_first_is_what_the_reference_does() -> None:
    """Broken: some schedule or optimizer would learn otherwise in benchmarks, which the session's own tests do not see."""
    for case in cases()[:CASES]:
        plain = case._replace(clip=None, decays=False, micro=1)
        expected = Reference(plain, 2)
        copies = []
        for model in (network(), network()):
            parameters = list(model.parameters())
            copies.append(Copy(model, KINDS[plain.kind](parameters), [parameters[2:], parameters[:2]]))
        learner = Learner(copies, plan_of_schedules(plain.schedule()), Settings(sentinel=False))
        for iteration in range(ITERATIONS):
            expected.iterate(iteration)
            learner.learn(*(loss_of(copy.model, iteration, rank) for rank, copy in enumerate(copies)))
        anchor = network()
        learner.load_into(anchor)
        assert far(flat(anchor.parameters()), flat(expected.anchor.parameters())) < 1e-9, plain
        for copy, model in zip(copies, expected.models, strict=True):
            assert far(flat(copy.model.parameters()), flat(model.parameters())) < 1e-9, plain


def test_steps_alone_are_what_the_reference_does() -> None:
    """Broken: learning with steps alone would be another in benchmarks than in jobs."""
    for case in local_scripts.cases()[:: -(-len(local_scripts.cases()) // CASES)]:
        expected, copies = local_scripts.Reference(case, 2), []
        for model in (network(), network()):
            parameters = list(model.parameters())
            copies.append(Copy(model, KINDS[case.kind](parameters), [parameters[2:], parameters[:2]]))
        learner = Apart(copies, case.local.schedule(2))
        for iteration in range(local_scripts.ITERATIONS):
            expected.iterate()
            learner.learn(*(loss_of(copy.model, iteration, rank) for rank, copy in enumerate(copies)))
        anchor = network()
        learner.load_into(anchor)
        assert far(flat(anchor.parameters()), expected.anchor) < 1e-9, case
        for copy, model in zip(copies, expected.models, strict=True):
            assert far(flat(copy.model.parameters()), flat(model.parameters())) < 1e-9, case


def test_ranks_buffers_are_those_of_the_first() -> None:
    """Broken: a model with batch norm would be judged with statistics that no job has."""
    copies = []
    for _ in range(2):
        torch.manual_seed(1)
        model = nn.Sequential(nn.BatchNorm1d(SIZE), nn.Linear(SIZE, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=RATE_OWN_FIRST)
        copies.append(Copy(model, optimizer, [list(model.parameters())]))
    learner = Learner(copies, plan_of_schedules(Schedule()))
    alone = nn.BatchNorm1d(SIZE)
    for at in range(3):
        drawn = [
            torch.randn(4, SIZE, generator=torch.Generator().manual_seed(2 * at + rank)) for rank in range(2)
        ]
        learner.learn(*(copy.model(each).mean() for copy, each in zip(copies, drawn, strict=True)))
        alone(drawn[0])
    for copy in copies:
        assert torch.equal(copy.model[0].running_mean, alone.running_mean)


def started(rate: float) -> Copy:
    model = nn.Linear(SIZE, 1, bias=False).double()
    with torch.no_grad():
        model.weight.fill_(1.0)
    optimizer = torch.optim.SGD(model.parameters(), lr=rate, momentum=MOMENTUM)
    return Copy(model, optimizer, [[model.weight]])


def distance(model: nn.Module) -> float:
    return float((model.weight.detach() - CENTRE).norm())
