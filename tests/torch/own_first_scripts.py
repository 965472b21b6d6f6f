"""What ranks of `test_own_first.py` do, and a reference of one process with a working copy for each rank."""

from __future__ import annotations

import copy
import hashlib
import io
import itertools
import random
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec
import torch
from torch import nn

import hocket.torch as hk
from hocket._native import schedule_faults
from hocket.artefacts.plan import Plan, Schedule
from hocket.errors import ArtefactError, UsageError
from hocket.torch.distribute import distributed_of
from hocket.training.memory import buckets as bucket_memory
from hocket.training.memory.arenas import arranged
from hocket.training.memory.gradients import gradients_of
from tests.sessions.plans import schedule_of, turns_of
from tests.torch.delayed_scripts import (
    OPTIMIZERS,
    RATE,
    Optimizer,
    due,
    here,
    loss_of,
    merges,
    network,
    plan_for,
)

ITERATIONS = 24

KINDS: dict[str, Optimizer] = {
    **OPTIMIZERS,
    "rmsprop": lambda parameters: torch.optim.RMSprop(parameters, lr=RATE, momentum=0.5),
    "adagrad": lambda parameters: torch.optim.Adagrad(parameters, lr=RATE),
    "adafactor": lambda parameters: torch.optim.Adafactor(parameters, lr=0.01),
    "radam": lambda parameters: torch.optim.RAdam(parameters, lr=RATE),
}


class Case(NamedTuple):
    """A training that is compared with the reference. `each`: buckets have different turns."""

    lengths: tuple[int, ...]
    delay: int
    each: bool
    kind: str
    clip: float | None
    decays: bool
    micro: int

    def schedule(self) -> Schedule:
        made = schedule_of(self.lengths, self.delay, 2, self.rule)
        if self.each:
            other = turns_of(self.lengths[::-1], self.other_delay)
            made = msgspec.structs.replace(
                made,
                together=False,
                turns=(made.turns[0], other),
                delay_max=max(self.delay, self.other_delay),
            )
        return msgspec.structs.replace(made, steps="own first")

    @property
    def other_delay(self) -> int:
        return (self.delay + 1) % 2

    @property
    def rule(self) -> str:
        return "sqrt" if self.kind in ("adam", "adamw", "rmsprop", "radam", "adafactor") else "linear"


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
    """Of the first cases: how far this rank's parameters, the anchor and its state, and what a flush leaves are from the reference;
    and digests of the anchor at each iteration."""
    return [(repr(case), *compared(case)) for case in cases()[: int(count)]]


def compared(case: Case) -> tuple[float, float, float, list[str]]:
    rank, world = here()
    model = network()
    model, optimizer = hk.distribute(
        model, KINDS[case.kind](list(model.parameters())), plan=plan_of_case(model, case)
    )
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.97 if case.decays else 1.0)
    digests = []
    for iteration in range(ITERATIONS):
        trained(model, optimizer, case, iteration, rank)
        scheduler.step()
        digests.append(digest(model, optimizer))
    expected = Reference(case, world)
    for iteration in range(ITERATIONS):
        expected.iterate(iteration)
    working = far(flat(model.parameters()), flat(expected.models[rank].parameters()))
    anchored = far(flat(model.state_dict().values()), flat(expected.anchor.parameters()))
    state = far(numbers(optimizer.state_dict()["state"]), numbers(expected.optimizer.state_dict()["state"]))
    hk.flush(model)
    expected.flush()
    flushed = far(flat(model.parameters()), flat(expected.anchor.parameters()))
    digests.append(digest(model, optimizer))
    return working, max(anchored, state), flushed, digests


def trained(
    model: nn.Module, optimizer: torch.optim.Optimizer, case: Case, iteration: int, rank: int
) -> None:
    optimizer.zero_grad(set_to_none=iteration % 3 > 0)
    for micro in range(case.micro - 1):
        with model.no_sync():
            loss_of(model, 1000 * (micro + 1) + iteration, rank).backward()
    loss_of(model, iteration, rank).backward()
    if case.clip is not None:
        hk.clip_grad_norm_(model, case.clip)
    optimizer.step()


def flat(tensors: Any) -> torch.Tensor:
    return torch.cat([each.detach().flatten().clone() for each in tensors])


def numbers(state: Any) -> torch.Tensor:
    found = [
        torch.as_tensor(value, dtype=torch.float64).flatten()
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


class Reference:
    """Training of one process: an anchor and a working copy for each rank, each with PyTorch's own optimizer."""

    def __init__(self, case: Case, world: int) -> None:
        self.case, self.world = case, world
        self.anchor = network()
        self.optimizer = self._optimizer(self.anchor)
        self.models = [network() for _ in range(world)]
        self.optimizers = [self._optimizer(each) for each in self.models]
        self.own: list[list[list[torch.Tensor]]] = []
        """By iteration and rank, gradients."""
        self.norms: list[list[float]] = []
        own = (case.lengths, case.delay)
        other = (case.lengths[::-1], case.other_delay) if case.each else own
        self.buckets = [(slice(2, None), due(*own)), (slice(2), due(*other))]
        self.applied = [0, 0]
        self.growth = [1.0] * world

    def iterate(self, iteration: int) -> None:
        case = self.case
        made = []
        for rank, model in enumerate(self.models):
            model.zero_grad()
            for at in [*(1000 * (micro + 1) + iteration for micro in range(case.micro - 1)), iteration]:
                loss_of(model, at, rank).backward()
            made.append([each.grad.clone() for each in model.parameters()])
        self.own.append(made)
        self.norms.append([float(flat(each).norm()) for each in made])
        arrived = set()
        for at, (_, turns) in enumerate(self.buckets):
            if iteration in turns and turns[iteration][1] <= len(self.own):
                self._arrive(at, *turns[iteration])
                arrived.add(at)
        for rank in range(self.world):
            for at in (0, 1):
                if at not in arrived:
                    self._own_step(rank, at, iteration, self.own[iteration][rank])
                    continue
                for begin, end in self._lacking(at):
                    mean = [
                        torch.stack(each).mean(0)
                        for each in zip(*(self.own[each][rank] for each in range(begin, end)), strict=True)
                    ]
                    for each in range(begin, end):
                        self._own_step(rank, at, each, mean)

    def flush(self) -> None:
        for at in (0, 1):
            for begin, end in list(self._lacking(at)):
                self._arrive(at, begin, end)

    def _lacking(self, at: int) -> Sequence[tuple[int, int]]:
        """Turns of a bucket that the anchor lacks."""
        lengths = self.case.lengths[::-1] if at == 1 and self.case.each else self.case.lengths
        found, begin = [], 0
        for length in itertools.cycle(lengths):
            if begin >= len(self.own):
                return found
            if begin >= self.applied[at]:
                found.append((begin, min(begin + length, len(self.own))))
            begin += length
        return found

    def _arrive(self, at: int, begin: int, end: int) -> None:
        """The anchor takes a turn; working copies begin anew from it."""
        count = end - begin
        gradients = [each for iteration in range(begin, end) for each in self.own[iteration]]
        mean = [torch.stack(each).mean(0) for each in zip(*gradients, strict=True)]
        if self.case.clip is not None:
            for rank in range(self.world):
                own = [
                    torch.stack(each).mean(0)
                    for each in zip(*(self.own[each][rank] for each in range(begin, end)), strict=True)
                ]
                self.growth[rank] = float(flat(mean).norm() / flat(own).norm())
        factor = {"linear": 1.0, "sqrt": count**0.5 / count}[self.case.rule]
        for iteration in range(begin, end):
            clip = 1.0
            if self.case.clip is not None:
                clip = min(1.0, self.case.clip / (float(flat(mean).norm()) + 1e-6))
            self._step(self.anchor, self.optimizer, at, iteration, [each * clip for each in mean], factor)
        self.applied[at] = end
        of = self.buckets[at][0]
        for model, optimizer in zip(self.models, self.optimizers, strict=True):
            for own, anchored in zip(
                list(model.parameters())[of], list(self.anchor.parameters())[of], strict=True
            ):
                own.data.copy_(anchored.data)
                optimizer.state[own] = copy.deepcopy(self.optimizer.state[anchored])

    def _own_step(self, rank: int, at: int, iteration: int, gradients: Sequence[torch.Tensor]) -> None:
        factor = 1.0
        if self.case.clip is not None:
            factor = min(1.0, self.case.clip / (self.norms[iteration][rank] * self.growth[rank] + 1e-6))
        self._step(
            self.models[rank],
            self.optimizers[rank],
            at,
            iteration,
            [each * factor for each in gradients],
            1.0,
        )

    def _step(self, model, optimizer, at, iteration, gradients, factor) -> None:  # noqa: PLR0917
        of = self.buckets[at][0]
        for each in model.parameters():
            each.grad = None
        for each, gradient in zip(list(model.parameters())[of], gradients[of], strict=True):
            each.grad = gradient.clone()
        base = KINDS[self.case.kind](list(network().parameters())).param_groups[0]["lr"]
        for group in optimizer.param_groups:
            group["lr"] = base * (0.97 if self.case.decays else 1.0) ** iteration * factor
        optimizer.step()

    def _optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        return KINDS[self.case.kind](list(model.parameters()))


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


def replanned() -> list[list[float]]:
    """As `counted`, while plans follow one another: in time, own gradients first with other buckets, and in time again."""
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
    for iteration in range(40):
        optimizer.zero_grad(set_to_none=iteration % 2 > 0)
        if iteration % 10 == 5 and iteration < 30:
            source.epochs.learn(source.epochs.current.after({}))
        model(torch.ones(1)).sum().backward()
        optimizer.step()
        found.append(applied(model))
    hk.flush(model)
    return [*found, applied(model)]


def resumed(kind: str) -> list[bool]:
    """Whether a job that goes on from a checkpoint in the middle of a turn has the bits of one that was not interrupted: this
    rank's parameters, the anchor's, and the anchor's state."""
    rank, _ = here()
    same = []
    for lengths, stopped in (((2,), 7), ((2,), 8), ((1,), 5), ((3, 1), 9)):
        case = Case(lengths, 1, each=False, kind=kind, clip=0.3, decays=True, micro=1)
        ends = []
        for stops in (False, True):
            model, optimizer, scheduler = begun(case, seed=3)
            for iteration in range(ITERATIONS):
                if stops and iteration == stopped:
                    saved = io.BytesIO()
                    torch.save(
                        {
                            "model": model.state_dict(),
                            "optimizer": hk.optimizer_state(model),
                            "hocket": hk.state_dict(model),
                            "scheduler": scheduler.state_dict(),
                        },
                        saved,
                    )
                    saved.seek(0)
                    state = torch.load(saved, weights_only=True)
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


def refused() -> dict[str, str]:
    """What is said of what cannot be done while own gradients go first."""
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
