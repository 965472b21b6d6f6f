"""Scripts of the ranks of `test_local.py`, and the same training by one process with PyTorch's own optimizers."""

from __future__ import annotations

import hashlib
import io
import itertools
from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from msgspec.structs import replace
from torch import nn

import hocket.torch as hk
from hocket.artefacts.local import localized
from hocket.artefacts.plan import Begun, Due, Plan, Schedule, Traced, Turn
from hocket.errors import ReplicaError, UsageError
from hocket.policies import DoubleSqueeze, Int8, TopK
from hocket.policy.context import Context
from hocket.policy.handles import Buffer
from hocket.policy.policy import Policy
from hocket.torch.in_training import distributed_of
from hocket.training.memory import device
from tests.torch import hostile
from tests.torch.delayed_scripts import here, loss_of, network, plan_for
from tests.torch.own_first_reference import KINDS, flat

ITERATIONS = 25


class Case(NamedTuple):
    """A training that is compared with the reference; `seed`: of its batches."""

    local: hk.Local
    kind: str
    seed: int = 0


def cases() -> list[Case]:
    """Every number of steps to 6 by every lateness below it; inner and outer optimizers go through all of them."""
    outer = itertools.cycle(
        [
            {"rate": 0.7, "momentum": 0.9},
            {},
            {"rate": 0.5, "momentum": 0.5, "nesterov": False},
            {"rate": 0.7, "momentum": 0.9, "mix": 0.25},
        ]
    )
    kinds = itertools.cycle(KINDS)
    return [
        Case(hk.Local(every=every, late=late, fragments=fragments, **next(outer)), next(kinds))
        for every in range(1, 7)
        for late in range(every)
        for fragments in (1, 2)[:every]
    ]


class Part:
    """Parameters of all models that are exchanged together, and their anchor. `ends`: iteration of a period after which they
    are; `seen`: by rank, the weight since they were."""

    def __init__(self, case: Case, models: Sequence[nn.Module], names: Sequence[str], ends: int) -> None:
        local = self.local = case.local
        self.own = [[model.get_parameter(name) for name in names] for model in models]
        self.anchor = [each.detach().clone().requires_grad_() for each in self.own[0]]
        self.outer = torch.optim.SGD(
            self.anchor,
            lr=local.rate,
            momentum=local.momentum,
            nesterov=local.nesterov and local.momentum > 0,
        )
        self.under_way: deque[tuple[int, list[torch.Tensor], list[float]]] = deque()
        self.seen = [0.0] * len(models)
        self.ends, self.open = ends, 0
        self.members: Sequence[int] = range(len(models))

    def stepped(self, iteration: int) -> None:
        self.open += 1
        if iteration % self.local.every == self.ends:
            self._depart(iteration + self.local.late, self.seen)
        if self.under_way and self.under_way[0][0] == iteration:
            self._arrive(self.local.mix)

    def flush(self, seen: list[float]) -> None:
        if self.open:
            self._depart(0, seen)
        while self.under_way:
            self._arrive(None)
        for own in self.own:
            nn.utils.vector_to_parameters(flat(self.anchor), own)

    def _depart(self, due: int, seen: list[float]) -> None:
        moved = [flat(self.anchor) - flat(own) for own in self.own]
        for _, before, _ in self.under_way:
            moved = [each - own for each, own in zip(moved, before, strict=True)]
        weights = [1.0] * len(moved) if self.local.weights == "ranks" else list(seen)
        self.under_way.append((due, moved, weights))
        self.open, self.seen = 0, [0.0] * len(moved)

    def _arrive(self, mix: float | None) -> None:
        _, moved, weights = self.under_way.popleft()
        before = flat(self.anchor)
        nn.utils.vector_to_parameters(
            sum(weights[each] * moved[each] for each in self.members)
            / sum(weights[each] for each in self.members),
            gradients := [torch.zeros_like(each) for each in self.anchor],
        )
        for each, gradient in zip(self.anchor, gradients, strict=True):
            each.grad = gradient
        self.outer.step()
        anchor = flat(self.anchor)
        for each, came in zip(self.own, moved, strict=True):
            own = flat(each)
            after = own + came + anchor - before if mix is None else mix * own + (1 - mix) * anchor
            nn.utils.vector_to_parameters(after, each)


class Reference:
    """Local training of one process: a model for each rank, and an anchor of each part."""

    def __init__(self, case: Case, world: int) -> None:
        self.case = case
        self.models = [network() for _ in range(world)]
        self.inner = [KINDS[case.kind](list(each.parameters())) for each in self.models]
        names = [name for name, _ in self.models[0].named_parameters()]
        every, halved = case.local.every, case.local.fragments == 2
        # As `plan_here` has them.
        self.parts = [
            Part(case, self.models, names[2:], (every // 2 if halved else every) - 1),
            Part(case, self.models, names[:2], every - 1),
        ]
        self.made = 0

    def iterate(self, members: Sequence[int] | None = None) -> None:
        """Make an iteration. `members`: ranks whose progress arrives from now on; None: as before."""
        for part in self.parts:
            part.members = members or part.members
        for rank, (model, inner) in enumerate(zip(self.models, self.inner, strict=True)):
            inner.zero_grad()
            loss_of(model, self.case.seed + self.made, rank).backward()
        for site in self.case.local.inside or ():
            for same in zip(*(self.models[rank].parameters() for rank in site), strict=True):
                mean = torch.stack([each.grad for each in same]).mean(0)
                for each in same:
                    each.grad = mean.clone()
        for inner in self.inner:
            inner.step()
        for part in self.parts:
            part.stepped(self.made)
        self.made += 1

    def flush(self) -> None:
        seen = [max(each) for each in zip(*(part.seen for part in self.parts), strict=True)]
        for part in self.parts:
            part.flush(seen)

    @property
    def anchor(self) -> torch.Tensor:
        second, first = self.parts
        return torch.cat([flat(first.anchor), flat(second.anchor)])


def plan_here(model: nn.Module) -> Plan:
    names = [name for name, _ in model.named_parameters()]
    return plan_for(model, Schedule(), [names[2:], names[:2]])


def begun(case: Case, where: str = "cpu", **others: Any) -> tuple[nn.Module, torch.optim.Optimizer]:
    model = network().to(where)
    others = others or {"plan": plan_here(model)}
    return hk.distribute(model, KINDS[case.kind](list(model.parameters())), local=case.local, **others)


def trained(model: nn.Module, optimizer: torch.optim.Optimizer, iteration: int) -> None:
    optimizer.zero_grad()
    loss_of(model, iteration, here()[0]).backward()
    optimizer.step()


def digest(model: nn.Module) -> str:
    held = b"".join(each.detach().cpu().numpy().tobytes() for each in model.state_dict().values())
    return hashlib.sha256(held).hexdigest()


def far(one: torch.Tensor, other: torch.Tensor) -> float:
    return float((one - other).abs().max())


def against_the_reference() -> list[tuple[str, float, float, float, list[str]]]:
    """Distances of each case from the reference, of this rank's parameters, of the anchor, and of what a flush leaves; and digests
    of the anchor at each iteration."""
    return [(repr(case), *compared(case)) for case in cases()]


def on_a_hostile_device() -> list[tuple[str, float, float, float, list[str]]]:
    """Distances with buckets on the tests' own device."""
    hostile.loaded(here()[0])
    device.PIECE_BYTES = 64
    return [(repr(case), *compared(case, hostile.NAME)) for case in cases()[::4]]


class ByGloo(Policy):
    """The mean, by another library."""

    def on_buffer_ready(self, cx: Context, buffer: Buffer) -> None:
        cx.all_reduce(buffer, op="mean", library="gloo")


def through_a_library() -> list[tuple[str, float, float, float, list[str]]]:
    """Distances where Gloo reduces what one bucket has moved, or both: of buckets that leave together, or in turn."""
    return [
        (f"{case!r} {count}", *compared(case, **by_gloo(count))) for case in cases()[1::3] for count in (1, 2)
    ]


def by_gloo(count: int) -> dict[str, Any]:
    """Arguments of a training in which Gloo reduces what so many buckets have moved."""
    plan = plan_here(network())
    buckets = [replace(each, route=Traced(policy="ByGloo")) for each in plan.buckets[:count]]
    plan = replace(plan, buckets=(*buckets, *plan.buckets[count:]))
    return {"plan": plan, "policy": ByGloo() if count else None}


def compared(case: Case, where: str = "cpu", **others: Any) -> tuple[float, float, float, list[str]]:
    rank, world = here()
    model, optimizer = begun(case, where, **others)
    expected = Reference(case, world)
    digests, own = [], 0.0
    for iteration in range(ITERATIONS):
        trained(model, optimizer, iteration)
        expected.iterate()
        digests.append(digest(model))
        own = max(own, far(flat(model.parameters()), flat(expected.models[rank].parameters())))
    anchored = far(flat(model.state_dict().values()), expected.anchor)
    hk.flush(model)
    expected.flush()
    flushed = far(flat(model.parameters()), expected.anchor)
    digests.append(digest(model))
    return own, anchored, flushed, digests


class Weights(nn.Module):
    """Two parameters, whose gradients are 2."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Parameter(torch.ones(1)), nn.Parameter(torch.ones(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2 * (self.first + self.second)


def as_torchft(late: str, mix: str, steps: str) -> tuple[list[list[float]], list[list[float]]]:
    """Parameters of the rank, and the anchor, before the first step and after each, in the settings of torchft's fixtures: turns
    are sent so early that they arrive after every third step, one parameter in turn with the other."""
    model = Weights()
    local = hk.Local(every=6, late=int(late), fragments=2, rate=2, mix=float(mix))
    plan = localized(plan_for(model, Schedule(), [["first"], ["second"]]), local)
    earlier = [replace(own[0], **_earlier(own[0], local.late)) for own in plan.schedule.turns]
    schedule = replace(plan.schedule, turns=tuple((each,) for each in earlier))
    buckets = tuple(replace(bucket, dtype="f32") for bucket in plan.buckets)
    model, optimizer = hk.distribute(
        model,
        torch.optim.SGD(model.parameters(), lr=1.0),
        plan=replace(plan, schedule=schedule, buckets=buckets),
    )
    own, anchors = [flat(model.parameters()).tolist()], [flat(model.parameters()).tolist()]
    for _ in range(int(steps)):
        optimizer.zero_grad()
        model(torch.ones(1)).sum().backward()
        optimizer.step()
        own.append(flat(model.parameters()).tolist())
        anchors.append(flat(model.state_dict().values()).tolist())
    return own, anchors


def _earlier(turn: Turn, by: int) -> dict[str, Any]:
    first = (turn.first - by) % 6
    last = first + 5
    return {
        "first": first,
        "last": last,
        "sent": Begun(iteration=last, point="backward_end"),
        "due": Due(iteration=last + by),
    }


def exchanges() -> list[tuple[int, int]]:
    """Iterations made and in the anchor, after each step and a flush."""
    model, optimizer = begun(Case(hk.Local(every=4, late=1), "sgd"))
    session, found = distributed_of(model).session, []
    for iteration in range(10):
        trained(model, optimizer, iteration)
        found.append(session.updates.counts)
    hk.flush(model)
    return [*found, session.updates.counts]


def resumed() -> list[bool]:
    """Whether a training that is saved in the middle of a turn goes on to the same bits, with an exchange under way and without, by
    messages and by a library."""
    found = []
    for stop, library in itertools.product((6, 9), (False, True)):
        case = Case(hk.Local(every=4, late=2, rate=0.7, momentum=0.9), "adamw")
        model, optimizer = begun(case, **by_gloo(2 if library else 0))
        for iteration in range(stop):
            trained(model, optimizer, iteration)
        file = io.BytesIO()
        torch.save((model.state_dict(), optimizer.state_dict(), hk.state_dict(model)), file)
        for iteration in range(stop, stop + 9):
            trained(model, optimizer, iteration)
        expected = flat(model.parameters()), digest(model)
        other, following = begun(case, **by_gloo(2 if library else 0))
        file.seek(0)
        held, state, session = torch.load(file, weights_only=True)
        other.load_state_dict(held)
        following.load_state_dict(state)
        hk.load_state_dict(other, session)
        for iteration in range(stop, stop + 9):
            trained(other, following, iteration)
        found.append(torch.equal(flat(other.parameters()), expected[0]) and digest(other) == expected[1])
    return found


def momentum_of_other_ranks() -> tuple[float, list[str]]:
    """Distance of a training that goes on by another plan after a flush from one that was not saved."""
    case = Case(hk.Local(every=3, momentum=0.9), "sgd")
    model, optimizer = begun(case)
    for iteration in range(6):
        trained(model, optimizer, iteration)
    hk.flush(model)
    held, session = {name: each.clone() for name, each in model.state_dict().items()}, hk.state_dict(model)
    for iteration in range(6, 12):
        trained(model, optimizer, iteration)
    expected = flat(model.state_dict().values())
    other, following = begun(case._replace(local=case.local), plan=other_plan(network()))
    other.load_state_dict(held)
    hk.load_state_dict(other, session)
    for iteration in range(6, 12):
        trained(other, following, iteration)
    return far(flat(other.state_dict().values()), expected), []


def other_plan(model: nn.Module) -> Plan:
    return plan_for(model, Schedule(), [[name for name, _ in model.named_parameters()]])


def ways() -> dict[str, tuple[float, str]]:
    """By way, the loss that local training ends at, and the anchor's digest."""
    found = {}
    made: dict[str, dict[str, Any]] = {
        "default": {"promise": "local,local=5"},
        "fragments": {
            "local": hk.Local(every=6, late=1, fragments=2, mix=0.5),
            "promise": "local,local=6,delay=1",
        },
        "top_k": {"policy": TopK()},
        "int8": {"policy": Int8()},
        "double_squeeze": {"policy": DoubleSqueeze()},
    }
    for name, others in made.items():
        model = network().float()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        options = {"local": hk.Local(every=5)} | others
        model, optimizer = hk.distribute(model, optimizer, **options)
        for iteration in range(60):
            optimizer.zero_grad()
            loss = model(torch.randn(8, 5, generator=torch.Generator().manual_seed(iteration))).square().sum()
            loss.backward()
            optimizer.step()
        hk.flush(model)
        found[name] = float(loss.detach()), digest(model)
    return found


def a_plan_file_says_it() -> float:
    """Distance of a training by a plan whose schedule is local from that by the argument."""
    case = Case(hk.Local(every=3), "momentum")
    ends = []
    for others in ({"plan": localized(plan_here(network()), case.local)}, {}):
        model = network()
        optimizer = KINDS[case.kind](list(model.parameters()))
        local = None if others else case.local
        model, optimizer = hk.distribute(
            model, optimizer, local=local, **(others or {"plan": plan_here(model)})
        )
        for iteration in range(9):
            trained(model, optimizer, iteration)
        ends.append(flat(model.parameters()))
    return far(*ends)


def uneven() -> list[tuple[int, str]]:
    """Backward passes without a step, two for one step, and a GradScaler: made iterations, and the anchor's digest."""
    model, optimizer = begun(Case(hk.Local(every=2), "sgd"))
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    for iteration in range(8):
        optimizer.zero_grad()
        with model.no_sync():
            loss_of(model, iteration, here()[0]).backward()
        loss_of(model, 100 + iteration, here()[0]).backward()
        scaler.scale(loss_of(model, 200 + iteration, here()[0])).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
    hk.flush(model)
    return [(distributed_of(model).session.updates.counts[0], digest(model))]


def refused() -> list[str]:
    """Errors of calls between two exchanges, by their first lines."""
    model, optimizer = begun(Case(hk.Local(every=3), "sgd"))
    trained(model, optimizer, 0)
    found = []
    for call in (
        lambda: model.load_state_dict(network().state_dict()),
        lambda: hk.join(model),
    ):
        try:
            call()
            found.append("accepted")
        except UsageError as error:
            found.append(error.summary)
    return found


def one_changes_the_anchor() -> str:
    """What ranks are told when the anchor of one has other values."""
    model, optimizer = begun(Case(hk.Local(every=2), "sgd"))
    try:
        for iteration in range(40):
            trained(model, optimizer, iteration)
            if here()[0] == 1 and iteration == 4:
                with torch.no_grad():
                    next(iter(distributed_of(model).framework.local.values().values())).add_(1)
    except ReplicaError as error:
        return error.summary
    return "accepted"
