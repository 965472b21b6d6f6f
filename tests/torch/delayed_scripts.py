"""What ranks of `test_delayed.py` do."""

from __future__ import annotations

import functools
import io
import itertools
import os
import random
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec
import torch
from torch import nn

import hocket.torch as hk
from hocket._native import schedule_faults
from hocket.artefacts.cluster import Cluster, Host
from hocket.artefacts.needs import declared, needs_of
from hocket.artefacts.plan import (
    AllReduce,
    Bucket,
    Part,
    Plan,
    Ready,
    Schedule,
    Traced,
)
from hocket.artefacts.profile import Gradient as Profiled
from hocket.artefacts.profile import Profile
from hocket.errors import ArtefactError, UsageError
from hocket.planning.buckets import buckets, plan_of
from hocket.planning.links import link_graph
from hocket.planning.schedules import papers
from hocket.planning.walk import rate_factor
from hocket.policies.top_k import TopK
from hocket.torch.framework import Torch
from hocket.training.memory.gradients import gradients_of
from hocket.training.memory.runnable import check_runs
from tests.sessions.plans import schedule_of, turns_of

ITERATIONS = 50
RATE = 0.001
WIDTHS = (5, 7, 3)

Optimizer = Callable[[Any], torch.optim.Optimizer]

OPTIMIZERS: dict[str, Optimizer] = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=RATE),
    "momentum": lambda parameters: torch.optim.SGD(parameters, lr=RATE, momentum=0.8),
    "nesterov": lambda parameters: torch.optim.SGD(parameters, lr=RATE, momentum=0.8, nesterov=True),
    "decay": lambda parameters: torch.optim.SGD(parameters, lr=RATE, momentum=0.5, weight_decay=0.1),
    "adam": lambda parameters: torch.optim.Adam(parameters, lr=RATE, weight_decay=0.1),
    "adamw": lambda parameters: torch.optim.AdamW(parameters, lr=RATE, weight_decay=0.1),
}


def network() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3)).double()


def here() -> tuple[int, int]:
    return int(os.environ["HOCKET_RANK"]), int(os.environ["HOCKET_WORLD"])


def loss_of(model: nn.Module, iteration: int, rank: int) -> torch.Tensor:
    draw = torch.Generator().manual_seed(100 * iteration + rank)
    x = torch.randn(4, 5, generator=draw, dtype=torch.float64)
    return model(x.to(next(model.parameters()).device)).square().sum()


def plan_for(
    model: nn.Module, schedule: Schedule, groups: Sequence[Sequence[str]], world: int | None = None
) -> Plan:
    """A bucket for each group of parameters, by one ring or another. `world`: None: as many ranks as are here."""
    world = here()[1] if world is None else world
    sizes = {name: each.numel() for name, each in model.named_parameters()}
    buckets = [
        Bucket(
            parts=tuple(Part(variable=name) for name in names),
            elements=sum(sizes[name] for name in names),
            dtype="f64",
            route=AllReduce(algorithm="ring" if at % 2 else "halving_doubling"),
            order=tuple(range(world)),
            priority=at,
        )
        for at, names in enumerate(groups)
    ]
    made = plan_of(buckets, world, label="delayed")
    return msgspec.structs.replace(made, schedule=schedule, promise="uncorrected")


class Case(NamedTuple):
    """A training that is compared with the reference. `each`: buckets have different turns."""

    lengths: tuple[int, ...]
    delay: int
    at: str
    each: bool
    kind: str
    clip: float | None
    decays: bool

    def schedule(self) -> Schedule:
        if not self.each:
            return schedule_of(self.lengths, self.delay, 2, self.rule, self.at)
        plain = schedule_of(self.lengths, self.delay, 1, self.rule, self.at)
        other = turns_of(self.lengths[::-1], self.other_delay, self.at)
        return msgspec.structs.replace(
            plain,
            together=False,
            turns=(*plain.turns, other),
            delay_max=max(self.delay, self.other_delay),
        )

    @property
    def other_delay(self) -> int:
        return (self.delay + 1) % 2

    @property
    def rule(self) -> str:
        return "sqrt" if self.kind.startswith("adam") else "linear"


def merges(most: int) -> list[tuple[int, ...]]:
    """Every sequence of merged iterations of up to so many in all."""
    lengths = range(1, most + 1)
    all_of = (each for size in lengths for each in itertools.product(lengths, repeat=size))
    return [each for each in all_of if sum(each) <= most]


def cases() -> list[Case]:
    """Every sequence of merged iterations of up to 6 in all, by every delay, `together` and `each`, as far as two slots do; at the
    end of backward and at gates. Optimizers, clipping and a scheduler go through all of them. In random order."""
    found = []
    options = itertools.cycle(itertools.product([None, 0.5], [False, True], OPTIMIZERS))
    for lengths, delay, each, at in itertools.product(merges(6), range(3), [False, True], ["end", "gate"]):
        clip, decays, kind = next(options)
        case = Case(lengths, delay, at, each, kind, clip, decays)
        if not schedule_faults(case.schedule(), 2):
            found.append(case)
    random.Random(6).shuffle(found)  # noqa: S311
    return found


def against_the_reference(count: str) -> list[tuple[str, float, bool]]:
    """Of the first cases: how far parameters are from the reference's in the end, and whether a second run has the same bits."""
    return [(repr(case), *compared(case)) for case in cases()[: int(count)]]


def compared(case: Case) -> tuple[float, bool]:
    """A training of one case, twice, the second time with closures, and the reference's."""
    _, world = here()
    runs = []
    for closes in (False, True):
        model = network()
        names = [name for name, _ in model.named_parameters()]
        model, optimizer = hk.distribute(
            model,
            OPTIMIZERS[case.kind](list(model.parameters())),
            plan=plan_for(model, case.schedule(), [names[2:], names[:2]]),
        )
        scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.97 if case.decays else 1.0)
        for iteration in range(ITERATIONS):
            closure = functools.partial(made, model, optimizer, iteration, case.clip)
            if closes:
                assert optimizer.step(closure) is not None
            else:
                closure()
                optimizer.step()
            scheduler.step()
        runs.append(flat(model))
        hk.flush(model)
    return float((runs[0] - reference(case, world)).abs().max()), torch.equal(*runs)


def made(
    model: nn.Module, optimizer: torch.optim.Optimizer, iteration: int, clip: float | None
) -> torch.Tensor:
    """Gradients of an iteration, and its loss."""
    optimizer.zero_grad()
    loss = loss_of(model, iteration, here()[0])
    loss.backward()
    if clip is not None:
        hk.clip_grad_norm_(model, clip)
    return loss


def flat(model: nn.Module) -> torch.Tensor:
    return nn.utils.parameters_to_vector(model.parameters()).detach().clone()


def from_a_file(model: nn.Module, **others: Any) -> Any:
    """State of a training, and other state, as a script reads it back from its checkpoint."""
    saved = io.BytesIO()
    own = {
        "model": model.state_dict(),
        "optimizer": hk.optimizer_state(model),
        "hocket": hk.state_dict(model),
    }
    torch.save({**own, **others}, saved)
    saved.seek(0)
    return torch.load(saved, weights_only=True)


def reference(case: Case, world: int) -> torch.Tensor:
    """Parameters of one process: PyTorch's step with the mean over each due turn's iterations and ranks, of parameters as they were
    then, at a rate for its size. Nothing due: no gradients, so that momentum, decay and moments rest."""
    model = network()
    parameters = list(model.parameters())
    own = (case.lengths, case.delay)
    other = (case.lengths[::-1], case.other_delay) if case.each else own
    buckets = [(slice(2, None), due(*own)), (slice(2), due(*other))]
    optimizer = OPTIMIZERS[case.kind]([{"params": parameters[of]} for of, _ in buckets])
    made: list[tuple[torch.Tensor, ...]] = []
    for iteration in range(ITERATIONS):
        made += [torch.autograd.grad(loss_of(model, iteration, rank), parameters) for rank in range(world)]
        optimizer.zero_grad()
        for options, (of, turns) in zip(optimizer.param_groups, buckets, strict=True):
            if iteration in turns:
                begin, end = turns[iteration]
                turn = zip(*(each[of] for each in made[begin * world : end * world]), strict=True)
                for each, gradients in zip(parameters[of], turn, strict=True):
                    each.grad = torch.stack(gradients).mean(0)
                rate = RATE * (0.97 if case.decays else 1.0) ** iteration
                options["lr"] = rate * rate_factor(case.rule, end - begin)
        if case.clip is not None:
            nn.utils.clip_grad_norm_(parameters, case.clip)
        optimizer.step()
    return flat(model)


def due(lengths: tuple[int, ...], delay: int) -> dict[int, tuple[int, int]]:
    """By the iteration at whose end it is applied: from which iteration to which a turn is."""
    ends = itertools.takewhile(lambda end: end <= ITERATIONS, itertools.accumulate(itertools.cycle(lengths)))
    return {end - 1 + delay: (begin, end) for begin, end in itertools.pairwise([0, *ends])}


def in_parts(steps: str) -> tuple[list[int], float, float]:
    """Sizes of buckets in DeFT's plan of a layer that fits none of its windows; how far parameters are in the end from those with
    the same turns of the layer as a whole, and how far they have moved."""
    plan, whole = of_a_long_layer(steps)
    trained = []
    for each in (plan, whole):
        torch.manual_seed(3)
        model = nn.Linear(400, 400).double()
        first = flat(model)
        model, optimizer = hk.distribute(
            model, torch.optim.SGD(model.parameters(), lr=RATE, momentum=0.5), plan=each
        )
        for iteration in range(12):
            optimizer.zero_grad()
            draw = torch.Generator().manual_seed(100 * iteration + here()[0])
            model(torch.randn(4, 400, generator=draw, dtype=torch.float64)).square().sum().backward()
            optimizer.step()
        hk.flush(model)
        trained.append(flat(model))
    sizes = [bucket.elements for bucket in plan.buckets]
    return sizes, float((trained[0] - trained[1]).abs().max()), float((trained[0] - first).abs().max())


def of_a_long_layer(steps: str) -> tuple[Plan, Plan]:
    """DeFT's plan of one layer and two hosts, and the same turns of the layer as a whole."""
    world = here()[1]
    gradients = tuple(
        Profiled(name=name, shape=shape, dtype="f64", ready_s=ready_s, needed_s=needed_s)
        for name, shape, ready_s, needed_s in (
            ("weight", (400, 400), 0.03, 0.0),
            ("bias", (400,), 0.011, 0.001),
        )
    )
    profile = Profile(
        model="layer",
        world=world,
        steps=1,
        forward_s=0.01,
        backward_s=0.02,
        optimizer_s=0.0,
        step_s=0.03,
        gradients=gradients,
    )
    hosts = tuple(Host(name=f"h{at}", bandwidth_bit_per_s=4e8) for at in range(world))
    groups = buckets([[each] for each in gradients], AllReduce(algorithm="ring"), range(world))
    plain = plan_of(groups, world, label="long layer")
    graph = link_graph(Cluster(hosts=hosts), world)
    plan = papers(plain, graph, profile, rate="linear", apart=False)
    assert plan is not None
    schedule = msgspec.structs.replace(plan.schedule, steps=steps)
    turns = tuple(msgspec.structs.replace(turn, sent=Ready()) for turn in schedule.turns[0])
    made = (
        msgspec.structs.replace(plan, schedule=schedule),
        msgspec.structs.replace(plain, schedule=msgspec.structs.replace(schedule, turns=(turns,) * 2)),
    )
    cut, whole = (msgspec.structs.replace(each, promise=declared(needs_of(each))) for each in made)
    return cut, whole


def trivial(kind: str) -> bool:
    """Whether schedules that say what plain plans do have their bits."""
    rank, _ = here()
    results = []
    for schedule in (
        Schedule(),
        schedule_of((1,), 0, 2, "linear"),
        Schedule(overlap="gates"),
        schedule_of((1,), 0, 2, "linear", "gate"),
    ):
        model = network()
        names = [name for name, _ in model.named_parameters()]
        plan = plan_for(model, schedule, [names[2:], names[:2]])
        model, optimizer = hk.distribute(model, OPTIMIZERS[kind](list(model.parameters())), plan=plan)
        for iteration in range(ITERATIONS):
            optimizer.zero_grad()
            loss_of(model, iteration, rank).backward()
            optimizer.step()
        results.append([each.detach().clone() for each in model.parameters()])
    return all(torch.equal(first, other) for first, *others in zip(*results, strict=True) for other in others)


def late_plan(model: nn.Module, world: int | None = None) -> Plan:
    names = [name for name, _ in model.named_parameters()]
    return plan_for(model, schedule_of((1,), 1, 2, "linear"), [names[2:], names[:2]], world)


def late() -> tuple[nn.Module, torch.optim.Optimizer]:
    model = network()
    return hk.distribute(model, torch.optim.SGD(model.parameters(), lr=0.01), plan=late_plan(model))


class Attempts(dict[str, str]):
    """Errors of calls, by name."""

    def __call__(self, name: str, call: Callable[[], object]) -> None:
        try:
            call()
            self[name] = "nothing"
        except (ArtefactError, UsageError) as error:
            self[name] = str(error)


def refused() -> dict[str, str]:
    rank, _ = here()
    attempt = Attempts()

    def one(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        optimizer.zero_grad()
        loss_of(model, 0, rank).backward()

    model, optimizer = late()
    one(model, optimizer)
    optimizer.step()
    one(model, optimizer)
    attempt("no step", lambda: one(model, optimizer))
    model, optimizer = late()
    for _ in range(2):
        one(model, optimizer)
        optimizer.step()
    attempt("no zero_grad", lambda: loss_of(model, 0, rank).backward())
    model, optimizer = late()
    one(model, optimizer)
    optimizer.step()
    one(model, optimizer)
    attempt("flush before the step", lambda: hk.flush(model))
    optimizer.step()
    scaler = torch.amp.GradScaler("cpu")
    optimizer.zero_grad()
    scaler.scale(loss_of(model, 0, rank)).backward()
    attempt("scaler", lambda: scaler.step(optimizer))
    optimizer.step()
    attempt("join", lambda: hk.join(model))
    return attempt | refused_at_the_start()


def refused_at_the_start() -> dict[str, str]:
    """The same of optimizers, policies and wrappers that late gradients do not go with."""
    rank, _ = here()
    attempt = Attempts()
    model = network()
    names = [name for name, _ in model.named_parameters()]
    plan = late_plan(model)
    model, optimizer = hk.distribute(model, torch.optim.LBFGS(model.parameters()), plan=plan)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = loss_of(model, 0, rank)
        loss.backward()
        return loss

    attempt("LBFGS", lambda: optimizer.step(closure))
    routed = plan_for(model, schedule_of((1,), 1, 1, "linear"), [names])
    policed = msgspec.structs.replace(routed.buckets[0], route=Traced(policy="top_k"))
    routed = msgspec.structs.replace(routed, buckets=(policed,))
    attempt("a policy", lambda: check_runs(routed, gradients_of(Torch(model, optimizer).parameters())))
    os.environ["HOCKET_PROMISE"] = "delayed"
    attempt("DDP's hook", lambda: hk.ddp_hook(TopK()))
    return attempt


def not_flushed() -> None:
    """A loop that ends with gradients on their way."""
    rank, _ = here()
    model, optimizer = late()
    for iteration in range(3):
        optimizer.zero_grad()
        loss_of(model, iteration, rank).backward()
        optimizer.step()
