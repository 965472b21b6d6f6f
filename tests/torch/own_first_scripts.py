"""Scripts of the ranks of `test_own_first.py`."""

from __future__ import annotations

import hashlib
import itertools
import random
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import torch
from torch import nn

import hocket.torch as hk
from hocket._native import schedule_faults
from hocket.artefacts.local import localized
from hocket.artefacts.plan import Plan, Schedule
from hocket.errors import ArtefactError, UsageError
from hocket.torch.in_training import distributed_of
from hocket.training.memory import buckets as bucket_memory
from hocket.training.memory import device
from hocket.training.memory.arenas import arranged
from hocket.training.memory.gradients import gradients_of
from tests.sessions.plans import schedule_of, turns_of
from tests.torch import hostile
from tests.torch.delayed_scripts import (
    RATE,
    from_a_file,
    here,
    loss_of,
    merges,
    network,
    plan_for,
)
from tests.torch.factors import InHalf, burst, new_scaler
from tests.torch.own_first_reference import KINDS, Case, Reference, flat

ITERATIONS = 24


def cases() -> list[Case]:
    """Every sequence of merged iterations of up to 5 in all, by every delay, `together` and `each`, as far as two slots do, in
    random order. Optimizers, clipping, schedulers and accumulation go through all of them."""
    found = []
    options = itertools.cycle(itertools.product([None, 0.5], [False, True], [1, 2], KINDS))
    for lengths, delay, each in itertools.product(merges(5), range(3), [False, True]):
        clip, decays, micro, kind = next(options)
        # Clipping takes the norm of all means, of which some arrive at other iterations where turns differ.
        case = Case(lengths, delay, each, kind, None if each else clip, decays, micro)
        if not schedule_faults(case.schedule(), 2):
            found.append(case)
    random.Random(6).shuffle(found)  # noqa: S311
    return found


def plan_of_case(model: nn.Module, case: Case) -> Plan:
    names = [name for name, _ in model.named_parameters()]
    return plan_for(model, case.schedule(), [names[2:], names[:2]])


def against_the_reference(count: str) -> list[tuple[str, float, float, float, list[str]]]:
    """Distances from the reference in the first cases, of this rank's parameters, of the anchor with its state, and of what a flush
    leaves; and digests of the anchor at each iteration."""
    return [(repr(case), *compared(case)) for case in cases()[: int(count)]]


def on_a_hostile_device(count: str) -> list[tuple[str, float, float, float, list[str]]]:
    """Distances with gradients on the tests' own device."""
    hostile.loaded(here()[0])
    device.PIECE_BYTES = 64
    return [(repr(case), *compared(case, hostile.NAME)) for case in cases()[: int(count)]]


def with_closures(count: str) -> list[tuple[str, float, float, float, list[str]]]:
    """Compare trainings whose backward is in a closure that the optimizer calls."""
    return [(repr(case), *compared(case, closes=True)) for case in cases()[: int(count)]]


def compared(
    case: Case, where: str = "cpu", *, closes: bool = False
) -> tuple[float, float, float, list[str]]:
    rank, world = here()
    model = case.network().to(where)
    model, optimizer = hk.distribute(
        model, KINDS[case.kind](list(model.parameters())), plan=plan_of_case(model, case)
    )
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.97 if case.decays else 1.0)
    scaler = new_scaler() if case.scaled else None
    digests = []
    for iteration in range(ITERATIONS):
        trained(model, optimizer, case, iteration, rank, scaler, closes)
        scheduler.step()
        digests.append(digest(model, optimizer))
    expected = Reference(case, world)
    for iteration in range(ITERATIONS):
        expected.iterate(iteration)
    working = far(everything(model), everything(expected.models[rank]))
    anchored = far(numbers({0: model.state_dict()}), numbers({0: expected.anchor.state_dict()}))
    state = far(numbers(optimizer.state_dict()["state"]), numbers(expected.optimizer.state_dict()["state"]))
    hk.flush(model)
    expected.flush()
    flushed = far(everything(model), everything(expected.anchor))
    digests.append(digest(model, optimizer))
    return working, max(anchored, state), flushed, digests


def everything(model: nn.Module) -> torch.Tensor:
    return flat([*model.parameters(), *(each.double() for each in model.buffers())])


def with_buffers(count: str) -> list[tuple[str, float, float, float, list[str]]]:
    """Compare trainings of a model with batch norm, and with a buffer that its forward uses."""
    having = [each._replace(buffers=True) for each in cases()]
    return [(repr(case), *compared(case)) for case in having[: int(count)]]


def with_a_scaler(count: str) -> list[tuple[str, float, float, float, list[str]]]:
    """Compare trainings with a GradScaler, whose gradients overflow now and then, in some iterations on one rank alone."""
    scaled = [each._replace(scaled=True) for each in cases()[::-1]]
    return [(repr(case), *compared(case)) for case in scaled[: int(count)]]


def trained(  # noqa: PLR0917
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    case: Case,
    iteration: int,
    rank: int,
    scaler: torch.amp.GradScaler | None = None,
    closes: bool = False,
) -> None:
    def made() -> torch.Tensor:
        optimizer.zero_grad(set_to_none=iteration % 3 > 0)
        for micro in range(case.micro - 1):
            with model.no_sync():
                backward(1000 * (micro + 1) + iteration, 1.0)
        backward(iteration, burst(iteration, rank))
        if scaler is not None and (case.clip is not None or iteration % 2):
            scaler.unscale_(optimizer)
        if case.clip is not None:
            hk.clip_grad_norm_(model, case.clip)
        return torch.ones(())

    def backward(at: int, by: float) -> None:
        loss = loss_of(model, at, rank)
        (loss if scaler is None else scaler.scale(InHalf.apply(loss, by))).backward()

    if closes:
        assert optimizer.step(made) is not None
        return
    made()
    if scaler is None:
        optimizer.step()
    else:
        scaler.step(optimizer)
        scaler.update()


def numbers(state: Any) -> torch.Tensor:
    found = [
        torch.as_tensor(value, dtype=torch.float64).flatten().cpu()
        for _, own in sorted(state.items())
        for _, value in sorted(own.items(), key=lambda pair: pair[0])
        if isinstance(value, torch.Tensor | float | int)
    ]
    return torch.cat(found) if found else torch.zeros(1)


def far(one: torch.Tensor, other: torch.Tensor) -> float:
    return float((one - other).abs().max())


def digest(model: nn.Module, optimizer: torch.optim.Optimizer) -> str:
    found = hashlib.blake2b(flat(model.state_dict().values()).numpy().tobytes())
    found.update(numbers(optimizer.state_dict()["state"]).numpy().tobytes())
    return found.hexdigest()[:16]


STEP = 2.0**-10


class Ones(nn.Module):
    """Parameters whose gradients are ones, so that each tells how many iterations were applied to it."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.zeros(3)), nn.Parameter(torch.zeros(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * (self.weight.sum() + self.bias.sum())


def applied(model: nn.Module) -> list[float]:
    """How many iterations are in the rank's parameters, and in the anchor's."""
    return [-float(each.detach()[0]) / STEP for each in (*model.parameters(), *model.state_dict().values())]


def counted(iterations: str, each: str) -> list[list[float]]:
    """How many iterations the rank's parameters and the anchor have after each step, and after a flush: the sentinel watches."""
    model = Ones()
    lengths = (2,)
    schedule = schedule_of(lengths, 1, 2, "linear")
    if each == "each":
        schedule = msgspec.structs.replace(
            schedule, together=False, turns=(schedule.turns[0], turns_of((1, 1), 1))
        )
    schedule = msgspec.structs.replace(schedule, steps="own first")
    plan = plan_for(model, schedule, [["weight"], ["bias"]])
    plan = msgspec.structs.replace(
        plan, buckets=tuple(msgspec.structs.replace(bucket, dtype="f32") for bucket in plan.buckets)
    )
    model, optimizer = hk.distribute(model, torch.optim.SGD(model.parameters(), lr=STEP), plan=plan)
    found = []
    for iteration in range(int(iterations)):
        optimizer.zero_grad(set_to_none=iteration % 2 > 0)
        model(torch.ones(1)).sum().backward()
        optimizer.step()
        if iteration % 7 == 6:
            hk.flush(model)
        found.append(applied(model))
    hk.flush(model)
    return [*found, applied(model)]


def replanned(kind: str) -> list[list[float]]:
    """Counts as in `counted`, while plans follow one another: in time, own gradients first with other buckets, in time again; with
    steps `alone` before and after own gradients first."""
    model = Ones()

    def planned(schedule: Schedule, groups: Sequence[Sequence[str]]) -> Plan:
        plan = plan_for(model, schedule, groups)
        buckets = tuple(msgspec.structs.replace(bucket, dtype="f32") for bucket in plan.buckets)
        return msgspec.structs.replace(plan, buckets=buckets)

    in_time, late = schedule_of((1,), 0, 2, "linear"), schedule_of((2,), 1, 1, "linear")
    later = schedule_of((1, 2), 1, 2, "linear")
    plans = [
        planned(in_time, [["weight"], ["bias"]]),
        planned(msgspec.structs.replace(late, steps="own first"), [["weight", "bias"]]),
        planned(msgspec.structs.replace(later, steps="own first"), [["bias"], ["weight"]]),
        planned(in_time, [["bias"], ["weight"]]),
    ]
    if kind == "alone":
        local = hk.Local(every=4, late=1)
        plans[1], plans[3:] = localized(plans[1], local), [localized(plans[2], local), plans[3]]
    model, optimizer = hk.distribute(model, torch.optim.SGD(model.parameters(), lr=STEP), plan=plans[0])
    session = distributed_of(model).session
    gradients = gradients_of(distributed_of(model).framework.parameters())
    source = session.source
    compiled = [
        bucket_memory.of_plan(arranged(each, gradients), gradients, job=session.job) for each in plans
    ]
    source.plan = lambda epoch: arranged(plans[epoch.number], gradients)
    source.make = lambda epoch: compiled[epoch.number]
    found = []
    for iteration in range(10 * len(plans)):
        optimizer.zero_grad(set_to_none=iteration % 2 > 0)
        if iteration % 10 == 5 and iteration < 10 * (len(plans) - 1):
            source.epochs.learn(source.epochs.current.after({}))
        model(torch.ones(1)).sum().backward()
        optimizer.step()
        found.append(applied(model))
    hk.flush(model)
    return [*found, applied(model)]


def resumed(kind: str) -> list[bool]:
    """Return whether a job that goes on from a checkpoint in the middle of a turn has the bits of one that was not interrupted:
    this rank's parameters, the anchor's, and the anchor's state."""
    rank, _ = here()
    same = []
    for lengths, stopped in (((2,), 7), ((2,), 8), ((1,), 5), ((3, 1), 9)):
        case = Case(lengths, 1, each=False, kind=kind, clip=0.3, decays=True, micro=1)
        ends = []
        for stops in (False, True):
            model, optimizer, scheduler = begun(case, seed=3)
            for iteration in range(ITERATIONS):
                if stops and iteration == stopped:
                    state = from_a_file(model, scheduler=scheduler.state_dict())
                    model, optimizer, scheduler = begun(case, seed=5)
                    model.load_state_dict(state["model"])
                    optimizer.load_state_dict(state["optimizer"])
                    scheduler.load_state_dict(state["scheduler"])
                    hk.load_state_dict(model, state["hocket"])
                trained(model, optimizer, case, iteration, rank)
                scheduler.step()
            own = flat(model.parameters()).numpy().tobytes()
            ends.append((own, digest(model, optimizer)))
            hk.flush(model)
            ends[-1] += (digest(model, optimizer),)
        same.append(ends[0] == ends[1])
    return same


def begun(case: Case, seed: int) -> tuple[nn.Module, torch.optim.Optimizer, Any]:
    model = network()
    with torch.no_grad():
        for each in model.parameters():
            each.add_(seed - 3)
    model, optimizer = hk.distribute(
        model, KINDS[case.kind](list(model.parameters())), plan=plan_of_case(model, case)
    )
    return model, optimizer, torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.97)


def scaled_late(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """A GradScaler from the middle of a turn on."""
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0)
    optimizer.zero_grad()
    scaler.scale(loss_of(model, 3, here()[0])).backward()
    scaler.step(optimizer)


def clipped_scaled(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Gradients that are clipped before they are unscaled."""
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0)
    hk.flush(model)
    optimizer.zero_grad()
    scaler.scale(loss_of(model, 3, here()[0])).backward()
    hk.clip_grad_norm_(model, 0.1)
    scaler.step(optimizer)


def refused() -> dict[str, str]:
    """Errors for what cannot be done while own gradients go first."""
    rank, _ = here()
    case = Case((2,), 1, each=False, kind="momentum", clip=None, decays=False, micro=1)
    said = {}

    def attempt(
        name: str, call: Callable[[nn.Module, torch.optim.Optimizer], object], before: int = 3
    ) -> None:
        model, optimizer, _ = begun(case, seed=3)
        for iteration in range(before):
            trained(model, optimizer, case, iteration, rank)
        try:
            call(model, optimizer)
        except (UsageError, ArtefactError) as error:
            said[name] = str(error)
        else:
            said[name] = "nothing"

    def backward(model: nn.Module) -> None:
        loss_of(model, 3, rank).backward()

    def clips(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        optimizer.zero_grad()
        backward(model)
        nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()

    def unzeroed(model: nn.Module, _: torch.optim.Optimizer) -> None:
        backward(model)

    def twice(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        optimizer.step()

    def edits(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        with torch.no_grad():
            next(model.parameters()).add_(1)
        optimizer.zero_grad()
        backward(model)
        optimizer.step()

    def edits_flushed(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        hk.flush(model)
        edits(model, optimizer)
        hk.flush(model)

    def loads(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        optimizer.load_state_dict(optimizer.state_dict())

    def gated(model: nn.Module, _: torch.optim.Optimizer) -> None:
        gates = msgspec.structs.replace(schedule_of((2,), 1, 2, "linear", "gate"), steps="own first")
        names = [name for name, _ in model.named_parameters()]
        hk.distribute(
            model,
            torch.optim.SGD(model.parameters(), lr=0.1),
            plan=plan_for(model, gates, [names[2:], names[:2]]),
        )

    for name, call in (
        ("scales in the middle", scaled_late),
        ("clips what is scaled", clipped_scaled),
        ("clips itself", clips),
        ("no zero_grad", unzeroed),
        ("step twice", twice),
        ("edits parameters", edits),
        ("edits after a flush", edits_flushed),
        ("loads state", loads),
        ("gates", gated),
    ):
        attempt(name, call)
    return said


def scaled(steps: str) -> bool:
    """Whether scaled rates have the bits of rates that the script sets by hand, which it takes back after the step."""
    rank, _ = here()
    ends = []
    for by_hand in (False, True):
        model = network()
        names = [name for name, _ in model.named_parameters()]
        schedule = msgspec.structs.replace(schedule_of((2,), 1, 2, "linear"), steps=steps)
        model, optimizer = hk.distribute(
            model,
            torch.optim.SGD(model.parameters(), lr=RATE, momentum=0.5),
            plan=plan_for(model, schedule, [names[2:], names[:2]]),
        )
        if not by_hand:
            hk.scale_lr(model, "linear", world=8, warmup=4)
        for iteration in range(ITERATIONS):
            optimizer.zero_grad()
            loss_of(model, iteration, rank).backward()
            if by_hand:
                optimizer.param_groups[0]["lr"] = RATE * (1 + (2 / 8 - 1) * min(iteration + 1, 4) / 4)
            optimizer.step()
            optimizer.param_groups[0]["lr"] = RATE
        ends.append(flat(model.state_dict().values()))
        optimizer.param_groups[0]["lr"] = RATE * (2 / 8 if by_hand else 1)
        hk.flush(model)
        ends.append(flat(model.parameters()))
    return torch.allclose(ends[0], ends[2], rtol=1e-12) and torch.allclose(ends[1], ends[3], rtol=1e-12)


def retreated(lengths: str, begins: str, zeros: str) -> list[Any]:
    """How many iterations are applied after each step, while one rank logs a loss that grows from an iteration on; whether all
    ranks have retreated. `zeros`: 0, gradients are zeros before even iterations, and none before odd ones; 1: the reverse."""
    rank, _ = here()
    model = Ones()
    turns = tuple(map(int, lengths.split(",")))
    schedule = msgspec.structs.replace(schedule_of(turns, 1, 2, "linear"), steps="own first")
    plan = plan_for(model, schedule, [["weight"], ["bias"]])
    buckets = tuple(msgspec.structs.replace(bucket, dtype="f32") for bucket in plan.buckets)
    model, optimizer = hk.distribute(
        model,
        torch.optim.SGD(model.parameters(), lr=STEP),
        plan=msgspec.structs.replace(plan, buckets=buckets),
    )
    session = distributed_of(model).session
    found = []
    for iteration in range(40):
        optimizer.zero_grad(set_to_none=iteration % 2 != int(zeros))
        model(torch.ones(1)).sum().backward()
        optimizer.step()
        hk.log(model, loss=1.5 ** max(0, iteration - int(begins)) if rank == 1 else 1.0)
        found.append(applied(model))
    hk.flush(model)
    return [[*found, applied(model)], session.delays.retreated, session.updates.schedule.delay_max]
