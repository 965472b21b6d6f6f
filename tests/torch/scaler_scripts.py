"""Scripts of the ranks of `test_scalers.py`."""

from __future__ import annotations

from typing import Any

import msgspec
import torch
from torch import nn

import hocket.torch as hk
from hocket.artefacts.plan import Schedule
from hocket.errors import ReplicaError
from hocket.planning.walk import rate_factor
from hocket.torch.in_training import distributed_of
from tests.sessions.plans import schedule_of
from tests.torch import own_first_reference, own_first_scripts
from tests.torch.delayed_scripts import (
    ITERATIONS,
    OPTIMIZERS,
    RATE,
    Case,
    cases,
    due,
    flat,
    from_a_file,
    here,
    loss_of,
    network,
    plan_for,
)
from tests.torch.factors import Factors, InHalf, burst, new_scaler


def late_against_the_reference(count: str) -> list[tuple[str, float]]:
    """How far merged and uncorrected trainings are from the reference's, at the end and after a flush."""
    found = [case for case in cases() if case.at == "end"][: int(count)]
    return [(repr(case), compared(case)) for case in found]


def compared(case: Case) -> float:
    model = network()
    names = [name for name, _ in model.named_parameters()]
    plan = plan_for(model, case.schedule(), [names[2:], names[:2]])
    model, optimizer = hk.distribute(model, OPTIMIZERS[case.kind](list(model.parameters())), plan=plan)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.97 if case.decays else 1.0)
    scaler = new_scaler()
    for iteration in range(ITERATIONS):
        stepped(model, optimizer, scaler, iteration, case.clip)
        scheduler.step()
    found = flat(model)
    hk.flush(model)
    expected = reference(case, here()[1])
    return max(
        float((one - other).abs().max()) for one, other in zip((found, flat(model)), expected, strict=True)
    )


def stepped(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    scaler: torch.amp.GradScaler,
    iteration: int,
    clip: float | None = None,
) -> None:
    rank, _ = here()
    optimizer.zero_grad(set_to_none=iteration % 3 > 0)
    scaler.scale(InHalf.apply(loss_of(model, iteration, rank), burst(iteration, rank))).backward()
    if clip is not None or iteration % 2:
        scaler.unscale_(optimizer)
    if clip is not None:
        hk.clip_grad_norm_(model, clip)
    scaler.step(optimizer)
    scaler.update()


def reference(case: Case, world: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Parameters of one process, and after a flush: what is due in an iteration is stepped with, unless some of it overflowed."""
    model = network()
    parameters = list(model.parameters())
    own = (case.lengths, case.delay)
    other = (case.lengths[::-1], case.other_delay) if case.each else own
    buckets = [(slice(2, None), due(*own)), (slice(2), due(*other))]
    optimizer = OPTIMIZERS[case.kind]([{"params": parameters[of]} for of, _ in buckets])
    made: list[list[tuple[torch.Tensor, ...]]] = []
    factors = Factors(world)
    applied = [0, 0]

    def step(turns: dict[int, tuple[int, int]], rate: float) -> None:
        optimizer.zero_grad()
        if turns and not factors.fit([range(*each) for each in turns.values()]):
            applied[:] = [turns[at][1] if at in turns else end for at, end in enumerate(applied)]
            return
        for at, (begin, end) in turns.items():
            of = buckets[at][0]
            turn = zip(*(each[of] for ranks in made[begin:end] for each in ranks), strict=True)
            for each, gradients in zip(parameters[of], turn, strict=True):
                each.grad = torch.stack(gradients).mean(0)
            optimizer.param_groups[at]["lr"] = rate * rate_factor(case.rule, end - begin)
            applied[at] = end
        if case.clip is not None and clips:
            nn.utils.clip_grad_norm_(parameters, case.clip)
        optimizer.step()

    clips = True
    for iteration in range(ITERATIONS):
        made.append(
            [torch.autograd.grad(loss_of(model, iteration, rank), parameters) for rank in range(world)]
        )
        factors.made(iteration)
        rate = RATE * (0.97 if case.decays else 1.0) ** iteration
        step({at: turns[iteration] for at, (_, turns) in enumerate(buckets) if iteration in turns}, rate)
        factors.update()
    found, clips = flat(model), False
    rate = RATE * (0.97 if case.decays else 1.0) ** ITERATIONS
    while min(applied) < ITERATIONS:
        left: dict[int, tuple[int, int]] = {}
        for at, (_, turns) in enumerate(buckets):
            if applied[at] < ITERATIONS:
                known = [turn for turn in turns.values() if turn[0] == applied[at] and turn[1] <= ITERATIONS]
                left[at] = known[0] if known else (applied[at], ITERATIONS)
        step(left, rate)
    return found, flat(model)


def resumed(steps: str) -> list[bool]:
    """Whether a job that goes on from a checkpoint in the middle of a turn has the bits of one that was not interrupted."""
    same = []
    for lengths, stopped in (((2,), 7), ((2,), 8), ((1,), 5), ((3, 1), 9)):
        ends = []
        for stops in (False, True):
            model, optimizer, scaler = begun(lengths, steps)
            for iteration in range(ITERATIONS // 2):
                if stops and iteration == stopped:
                    state = from_a_file(model, scaler=scaler.state_dict())
                    model, optimizer, scaler = begun(lengths, steps)
                    model.load_state_dict(state["model"])
                    optimizer.load_state_dict(state["optimizer"])
                    scaler.load_state_dict(state["scaler"])
                    hk.load_state_dict(model, state["hocket"])
                stepped(model, optimizer, scaler, iteration)
            own = flat(model).numpy().tobytes()
            hk.flush(model)
            ends.append((own, flat(model).numpy().tobytes(), scaler.get_scale()))
        same.append(ends[0] == ends[1])
    return same


def begun(
    lengths: tuple[int, ...], steps: str, *, init_scale: float | None = None
) -> tuple[nn.Module, torch.optim.Optimizer, torch.amp.GradScaler]:
    model = network()
    names = [name for name, _ in model.named_parameters()]
    schedule = msgspec.structs.replace(schedule_of(lengths, 1, 2, "linear"), steps=steps)
    model, optimizer = hk.distribute(
        model,
        torch.optim.SGD(model.parameters(), lr=RATE, momentum=0.5),
        plan=plan_for(model, schedule, [names[2:], names[:2]]),
    )
    scaler = new_scaler()
    if init_scale is not None:
        scaler = torch.amp.GradScaler("cpu", init_scale=init_scale)
    return model, optimizer, scaler


def watched(steps: str) -> dict[str, Any]:
    """What the sentinel does, and the factors after each iteration, of which many overflow."""
    model, optimizer, scaler = begun((2,), steps)
    delays = distributed_of(model).session.delays
    scales, late = [], 0
    for iteration in range(3 * ITERATIONS):
        stepped(model, optimizer, scaler, iteration)
        scales.append(scaler.get_scale())
        made, applied = distributed_of(model).session.updates.counts
        late += made > applied
    hk.flush(model)
    return {
        "retreated": delays.retreated,
        "late": late,
        "scales": scales,
        "parameters": flat(model).tolist(),
    }


def of_other_factors(steps: str) -> str:
    """What ranks are told whose scalers begin with other factors."""
    model, optimizer, scaler = begun((2,), steps, init_scale=2.0 ** (4 + here()[0]))
    try:
        for iteration in range(40):
            stepped(model, optimizer, scaler, iteration)
    except ReplicaError as error:
        return error.summary
    return "nothing"


def overflowing_alone() -> list[list[bool]]:
    """Whether parameters and the anchor are finite after each step, while one rank's gradients all overflow for a while."""
    case = own_first_reference.Case((2,), 1, each=False, kind="adamw", clip=None, decays=False, micro=1)
    model, optimizer, _ = own_first_scripts.begun(case, seed=3)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    found, rank = [], here()[0]
    for iteration in range(30):
        optimizer.zero_grad()
        loss = loss_of(model, iteration, rank)
        scaler.scale(loss * (float("inf") if rank == 1 and 5 < iteration < 12 else 1.0)).backward()
        scaler.step(optimizer)
        scaler.update()
        own = flat(model).isfinite().all()
        anchor = own_first_reference.flat(model.state_dict().values()).isfinite().all()
        found.append([bool(own), bool(anchor)])
    return found


def at_gates() -> list[tuple[list[float], float]]:
    """Parameters after steps of a scaler, of which some overflow: without gates, and with them."""
    found = []
    for overlap in ("barrier", "gates"):
        model = network()
        names = [name for name, _ in model.named_parameters()]
        plan = plan_for(model, Schedule(overlap=overlap), [names[2:], names[:2]])
        model, optimizer = hk.distribute(
            model, torch.optim.SGD(model.parameters(), lr=RATE, momentum=0.5), plan=plan
        )
        scaler = new_scaler()
        for iteration in range(ITERATIONS):
            stepped(model, optimizer, scaler, iteration)
        found.append((flat(model).tolist(), scaler.get_scale()))
    return found
