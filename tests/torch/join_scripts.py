"""A training that others join: what each rank draws and gets, and what a single process makes of the same steps.

Ranks train until a file says that they are to stop; the flag of those that have seen it travels as a gradient, so that all stop
after the same step.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar

import torch
from msgspec.structs import replace

import hocket.torch as hk
from hocket.artefacts.gradient import Gradient
from hocket.artefacts.plan import AllReduce, Owned, Owner, Plan
from hocket.job.store.store import Store
from hocket.members.contact import Contact
from hocket.members.joining import Joining
from hocket.members.membership import Membership
from hocket.members.participation import Participation
from hocket.planning.buckets import buckets
from hocket.planning.buckets import plan_of as planned
from hocket.policy.context import Context
from hocket.policy.control import Control
from hocket.policy.handles import Buffer
from hocket.policy.policy import Policy, Value
from hocket.torch.in_training import distributed_of
from hocket.training.assemble import furnish, newcomers
from hocket.training.checkpoint import states
from hocket.training.elastic import fetching, state_messages
from hocket.training.elastic.standing import Standing
from hocket.training.step.reducing import ReducingSession
from tests.torch.elastic_scripts import Fate, die_inside, digest

WIDTH, OUTPUTS, SAMPLES, BATCH, RATE, CHOSEN_FOR, STEPS_OF_A_CYCLE = 12, 3, 90, 2, 0.05, 4, 25
WIDE = 20_000
"""Of a model whose gradients, of 2.6 MB, take longer to send than a step takes to compute."""
SLOW_S = 0.02
SLOWLY_S = 1.0
LINGERS_S = 0.5
"""Time in which the coordinator hears that a rank has done a step, before that dies."""
POLICY, DYING, LATE = (
    f"a policy{end}"
    for end in ("", ", and dies as an epoch of it begins", ", and is late as an epoch of it begins")
)
HELD_OUT = 12


class Sums(Policy):
    """Keeps the sum of all means, alike on all ranks, and soon after the start, agrees with the others on something."""

    timer_interval_s = 0.05
    parameters: ClassVar[dict[str, Value]] = {"workers": 0}

    def on_worker_added(self, cx: Control, worker: int) -> None:
        del worker
        cx.propose(workers=cx.world)

    def on_buffer_ready(self, cx: Context, buffer: Buffer) -> None:
        cx.all_reduce(buffer, op="mean")
        cx.reduce(buffer, cx.state("sum", like=buffer, shared=True))


class Model(torch.nn.Module):
    """`flag` learns nothing: its gradient says whether anybody wants to stop."""

    def __init__(self, width: int = WIDTH) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(WIDTH, width), torch.nn.Tanh(), torch.nn.Linear(width, OUTPUTS)
        )
        self.flag = torch.nn.Parameter(torch.zeros(()))
        # A replay of an hour adds the same numbers in another order: their rounding must not hide what went wrong.
        self.double()

    def forward(self, samples: list[int], *, stops: bool = False) -> torch.Tensor:
        drawn = [
            torch.randn(WIDTH + OUTPUTS, generator=torch.Generator().manual_seed(each), dtype=torch.float64)
            for each in samples
        ]
        # Random targets, which it cannot learn: it would not move any more after some thousands of steps.
        inputs, targets = torch.stack(drawn).split((WIDTH, OUTPUTS), 1)
        loss: torch.Tensor = (self.layers(inputs) - targets).square().mean()
        return loss + float(stops) * (self.flag - self.flag.detach())


def made(width: int = WIDTH) -> tuple[Model, torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler]:
    """With state in the optimizer, and a schedule that is no function of the optimizer's state alone."""
    model = Model(width)
    kept = [{"params": model.layers.parameters()}, {"params": [model.flag], "lr": 0.0}]
    optimizer = torch.optim.SGD(kept, lr=RATE * WIDTH / width, momentum=0.5)
    return model, optimizer, torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(optimizer, STEPS_OF_A_CYCLE)


def replayed(steps: list[list[list[int]]], width: int = WIDTH) -> list[torch.Tensor]:
    """Parameters after these steps, made by one process. `steps`: the samples of each rank in each."""
    model, optimizer, scheduler = made(width)
    for everyone in steps:
        optimizer.zero_grad()
        torch.stack([model(own) for own in everyone]).mean().backward()
        rates = [group["lr"] for group in optimizer.param_groups]
        for group in optimizer.param_groups:
            group["lr"] *= len(everyone) / CHOSEN_FOR
        optimizer.step()
        for group, rate in zip(optimizer.param_groups, rates, strict=True):
            group["lr"] = rate
        scheduler.step()
    return [parameter.detach() for parameter in model.parameters()]


dies_with: list[int] = []
"""Numbers of processes that die at once with this one."""


def die(*_: Any) -> None:
    for number in dies_with:
        os.kill(int((Path(sys.argv[1]) / f"{number}.process").read_text()), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


def of_a_pair(number: str, flaw: str) -> tuple[str, Fate]:
    """Return the flaw of the process of that number, and where in a step it dies.

    `flaw`: if two are to die, `NUMBER:STEP:EDGE with OTHER` as victims have it, or `NUMBER:FLAW with OTHER`. The process of that
    number dies there, and takes the other one along.
    """
    victim, _, where = flaw.partition(":")
    if not where:
        return flaw, Fate(0, [])
    (Path(sys.argv[1]) / f"{number}.process").write_text(str(os.getpid()))
    if where[0].isdigit():
        return "", Fate(int(number), [flaw])
    own, _, other = where.rpartition(" with ")
    dies_with.append(int(other))
    return own if number == victim else "", Fate(0, [])


def dies_before(owner: Any, name: str, *, times: int = 0) -> None:
    """The call of this name after so many is the last that this process makes."""
    called: Callable[..., Any] = getattr(owner, name)
    count = 0

    def call(*args: Any, **kwargs: Any) -> Any:
        nonlocal count
        count += 1
        if count > times:
            die()
        return called(*args, **kwargs)

    setattr(owner, name, call)


def when_an_epoch_of_policies_stands(flaw: str) -> None:
    """In the first step with which one begins, this rank dies soon after it has done the step; or it is late, and hears of the loss
    before it has."""
    agreed, done, begins = Standing._agreed, Membership.done, False

    def counted(self: Standing) -> int:
        nonlocal begins
        begins = self.step.agreement._epoch != self.step.source.epochs.current.number
        return agreed(self)

    def call(self: Membership, step: int) -> bool:
        if begins and flaw == LATE:
            while not self._contact.part._engine.lost:  # type: ignore[union-attr]
                time.sleep(SLOW_S)
            with self._changed:
                self._contact.note_losses()
            Membership.done = done  # type: ignore[method-assign]
        stands = done(self, step)
        if begins and flaw == DYING:
            time.sleep(LINGERS_S)
            die()
        return stands

    Standing._agreed = counted  # type: ignore[method-assign]
    Membership.done = call  # type: ignore[method-assign]


def dies_of_late_gradients() -> None:
    """Of those for which all would wait when they meet: sums are there before the step with them."""
    of_step = fetching._gradients

    def call(steps: state_messages.Steps, data: memoryview, ahead: Any) -> Any:
        if len(data):
            die()
        return of_step(steps, data, ahead)

    fetching._gradients = call


def no_memory(*_: Any) -> Any:
    raise MemoryError


def stop() -> None:
    """With all threads."""
    os.kill(os.getpid(), signal.SIGSTOP)


def says_slowly(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """What it died of, as on a machine with much to do."""
    time.sleep(SLOWLY_S)
    sys.__excepthook__(kind, error, trace)


def hang() -> None:
    """In this thread, while others go on."""
    threading.Event().wait()


def after_gather(name: str, happens: Callable[[], None]) -> None:
    """As soon as all ranks have come to that gathering at the store."""
    gather = Store.gather

    def call(self: Store, what: str, *args: Any, **kwargs: Any) -> Any:
        found = gather(self, what, *args, **kwargs)
        if what == name:
            happens()
        return found

    Store.gather = call  # type: ignore[method-assign]


def uses() -> dict[str, int]:
    resident_pages = int(Path("/proc/self/statm").read_text().split()[1])
    return {
        "descriptors": len(list(Path("/proc/self/fd").iterdir())),
        "threads": len(list(Path("/proc/self/task").iterdir())),
        "resident bytes": resident_pages * resource.getpagesize(),
    }


def kept_open() -> list[str]:
    """Names of files and of threads: native ones, and those of Python."""
    found = [each.name for each in threading.enumerate()]
    for each in (*Path("/proc/self/fd").iterdir(), *Path("/proc/self/task").iterdir()):
        with contextlib.suppress(OSError):  # it has ended since
            found.append(str(each.readlink()) if each.is_symlink() else (each / "comm").read_text().strip())
    return sorted(re.sub(r"[0-9]+", "", each) for each in found)


def common(model: torch.nn.Module) -> str:
    session = distributed_of(model).session
    assert isinstance(session, ReducingSession)
    return states.held(session.buckets, session.engine, session.commit.job.rank).digest()


def owners_plan(model: torch.nn.Module, world: int) -> Plan:
    """Owners update all but the flag, whose gradient the script reads."""
    flag, *layers = [Gradient(name, tuple(each.shape), "f64") for name, each in model.named_parameters()]
    owned = Owned(owners=tuple(Owner(rank=rank) for rank in range(world)), update="owners")
    ways = ((owned, layers[2:]), (owned, layers[:2]), (AllReduce(algorithm="ring"), [flag]))
    made = [buckets([own], route, range(world))[0] for route, own in ways]
    return planned([replace(each, priority=at) for at, each in enumerate(made)], world, label="owners")


def meets(model: torch.nn.Module) -> bool:
    """The thread beside training has its connection to the store: it connects some seconds after the members have changed."""
    session = distributed_of(model).session
    assert isinstance(session, ReducingSession)
    return any(each.beside._store is not None for each in session.source.duties)


def plan_of(model: torch.nn.Module) -> Plan:
    session = distributed_of(model).session
    assert isinstance(session, ReducingSession)
    return session.source.plan(session.source.epochs.current)


def break_preparation(flaw: str) -> None:
    match flaw:
        case "dies while it prepares":
            dies_before(furnish, "source_by")
        case "makes no programs while all meet":
            dies_before(newcomers, "source_by")
        case "trains by other terms when all meet":
            furnish.Terms.hold = lambda *_: False  # type: ignore[method-assign]
        case "has no memory while it prepares":
            furnish.laid = no_memory


def break_down(flaw: str, directory: Path, *, founds: bool) -> None:
    match flaw:
        case "never joins" if not founds:
            dies_before(Joining, "knock")
        case "waits for ever" if not founds:
            (directory / "waiting").touch()
            signal.pause()
        case "is stopped while all meet" if not founds:
            after_gather("standing", stop)
        case "hangs while all connect" if not founds:
            after_gather("engine", hang)
        case "dies when it is welcome":
            dies_before(Contact, "take_part")
        case "dies when it is counted on" if not founds:
            dies_before(Participation, "_enter")
        case "dies while all meet":
            dies_before(newcomers, "replicate")
        case "dies when all have met":
            dies_before(Membership, "begin", times=int(founds))
        case "dies before its first step with newcomers":
            dies_before(Membership, "resumed")
        case "gets gradients only after a step" if not founds:
            dies_of_late_gradients()
        case "raises":
            sys.excepthook = says_slowly
        case _ if flaw in (DYING, LATE):
            when_an_epoch_of_policies_stands(flaw)


def trained(directory: Path, name: str, flaw: str) -> None:
    """One rank of that `name`, to which a founder's rank is added, or the number of who takes a founder's place. `flaw`: what is
    wrong with it, or special."""
    founds = "HOCKET_RANK" in os.environ
    number = os.environ.get("HOCKET_RANK", os.environ.get("HOCKET_MEMBER"))
    fate = Fate(0, [])
    if number is not None:
        name += f"-{number}"
        flaw, fate = of_a_pair(number, flaw)
    break_down(flaw, directory, founds=founds)
    break_preparation(flaw)
    die_inside(fate.at)
    model, optimizer, scheduler = made(WIDE if flaw == "wide" else WIDTH + (flaw == "another model"))
    if flaw == "dies in its first step":
        model.flag.register_hook(die)
    plan = owners_plan(model, int(os.environ["HOCKET_WORLD"])) if founds and flaw == "owners" else None
    model, optimizer = hk.distribute(
        model, optimizer, plan=plan, policy=Sums() if flaw in (POLICY, DYING, LATE) else None
    )
    model.layers[0].weight.register_hook(lambda _: fate.at("backward"))
    hk.extra_state(model, "scheduler", scheduler.state_dict, scheduler.load_state_dict)
    hk.scale_lr(model, "linear", world=CHOSEN_FOR)
    told: list[Any] = []
    evaluated = 0
    hk.on_change(
        model,
        lambda change: told.append(
            [change.why, change.step, change.old_world, change.new_world, digest(model)]
        ),
    )
    with (directory / f"{name}.steps").open("w", buffering=1) as steps:
        for epoch in hk.epochs(model, sys.maxsize):
            for batch in hk.batches(model, range(SAMPLES), BATCH):
                # A rank may be killed when its gradient counts already, and before it could note anything else.
                draw = {
                    "draws for": distributed_of(model).session.iteration + 1,
                    "rank": hk.rank(model),
                    "drawn": batch.tolist(),
                }
                steps.write(json.dumps(draw) + "\n")
                if flaw == "raises" and (directory / "raise").exists():
                    (directory / "raise").unlink()
                    raise ValueError("the batch is not what it should be")
                if flaw == "is slow":
                    time.sleep(SLOW_S)
                if not evaluated and (directory / "evaluate").exists():
                    evaluated = sum(map(len, hk.batches(model, range(HELD_OUT), BATCH, name="held out")))
                if flaw == "waits for its first batch" and not (directory / "loaded").exists():
                    (directory / "waiting").touch()
                    while not (directory / "loaded").exists():
                        time.sleep(SLOW_S)
                fate.step = draw["draws for"]
                optimizer.zero_grad()
                loss = model(batch.tolist(), stops=(directory / "stop").exists())
                fate.at("forward")
                loss.backward()
                step = distributed_of(model).session.iteration
                stops = model.flag.grad is not None and bool(model.flag.grad > 0)
                # Before the optimizer's step, since the script of a rank that leaves ends there, and others die there.
                record = {
                    "step": step,
                    "epoch": epoch,
                    "rank": hk.rank(model),
                    "world": hk.world(model),
                    "rate": optimizer.param_groups[0]["lr"],
                    "drawn": batch.tolist(),
                    "digest before": digest(model),
                    "told": told,
                    "process": os.getpid(),
                    "uses": uses(),
                    "open": kept_open(),
                    "meets": meets(model),
                    "agreed": hk.agreed(model),
                    "plan": plan_of(model).label,
                    "common": common(model),
                }
                steps.write(json.dumps(record) + "\n")
                told.clear()
                optimizer.step()
                fate.at("optimizer")
                scheduler.step()
                if stops:
                    torch.save([each.detach() for each in model.parameters()], directory / f"{name}.pt")
                    return


if __name__ == "__main__":
    torch.set_num_threads(1)
    trained(Path(sys.argv[1]), *sys.argv[2:])
