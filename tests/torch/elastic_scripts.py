"""A training whose ranks are lost, and what a single process makes of the same steps and members."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

import hocket.torch as hk
from hocket.members.membership import Membership
from hocket.torch.in_training import distributed_of
from hocket.torch.member_buffers import BuffersBeforeForward
from hocket.training.elastic.commit import Members
from hocket.training.elastic.standing import Barrier, Standing
from hocket.training.step.reducing import ReducingSession

STEPS = 12
LOST_IN = 5
"""The step in which a rank is lost."""
PAUSE_S = 0.5
LATE_S = 20.0
"""Far longer than others wait in tests of ranks that are late."""
BATCH, WIDTH, LAYERS = 4, 64, 3
MOMENTUM, RATE = 0.9, 0.05

EDGES = ("forward", "backward", "launched", "prepared", "entered", "done", "optimizer")
"""Where in its step the victim dies: before any gradient, between two, when all buckets are on their way, with all sums, in the
barrier at the step's end, behind it, and when the optimizer has stepped."""


NORMS, BEFORE = "norms", "before"
"""Arguments: the model has batch norms, with their running statistics; and these are exchanged before each forward."""


def made(*, norms: bool = False) -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    """The model and its optimizer, as all begin."""
    torch.manual_seed(0)
    layers: list[torch.nn.Module] = []
    for _ in range(LAYERS):
        layers += [torch.nn.Linear(WIDTH, WIDTH), torch.nn.Tanh()]
        if norms:
            layers.append(torch.nn.BatchNorm1d(WIDTH))
    model = torch.nn.Sequential(*layers)
    return model, torch.optim.SGD(model.parameters(), lr=RATE, momentum=MOMENTUM)


def loss_of(model: torch.nn.Module, member: int, step: int) -> torch.Tensor:
    batch = torch.randn(BATCH, WIDTH, generator=torch.Generator().manual_seed(1000 * member + step))
    return model(batch).square().mean()


def digest(model: torch.nn.Module) -> str:
    return digest_of(values(model))


def digest_of(tensors: Iterable[torch.Tensor]) -> str:
    found = hashlib.sha256()
    for each in tensors:
        found.update(each.numpy().tobytes())
    return found.hexdigest()


def values(model: torch.nn.Module) -> list[torch.Tensor]:
    return [each.detach() for each in (*model.parameters(), *model.buffers())]


def replayed(members: list[list[int]], *, norms: bool = False) -> list[torch.Tensor]:
    """Parameters and buffers after a step for each of these sets of members, made by one process: buffers are the first one's."""
    model, optimizer = made(norms=norms)
    for step, own in enumerate(members):
        optimizer.zero_grad()
        losses = [loss_of(model, own[0], step)]
        kept = [buffer.clone() for buffer in model.buffers()]
        losses += [loss_of(model, member, step) for member in own[1:]]
        for buffer, value in zip(model.buffers(), kept, strict=True):
            buffer.data.copy_(value)
        torch.stack(losses).mean().backward()
        optimizer.step()
    return values(model)


def exchanged(members: list[list[int]], sends: list[int], of: int) -> list[torch.Tensor]:
    """Return values where all begin each step's forward with the buffers of the member that `sends` names by step. Buffers are
    those of `of` after the last step."""
    model, optimizer = made(norms=True)

    def forward(member: int, step: int) -> torch.Tensor:
        for buffer, value in zip(model.buffers(), begun, strict=True):
            buffer.data.copy_(value)
        return loss_of(model, member, step)

    begun = [buffer.clone() for buffer in model.buffers()]
    for step, own in enumerate(members):
        optimizer.zero_grad()
        torch.stack([forward(member, step) for member in own]).mean().backward()
        next_one = sends[step + 1] if step + 1 < len(members) else of
        forward(next_one, step)
        begun = [buffer.clone() for buffer in model.buffers()]
        optimizer.step()
    return values(model)


def elastic_of(model: torch.nn.Module) -> tuple[ReducingSession, Members]:
    """The model's session, and its commit."""
    session = distributed_of(model).session
    assert isinstance(session, ReducingSession)
    assert isinstance(session.commit, Members)
    return session, session.commit


def keep(directory: Path, learned: object, records: object) -> None:
    """Write what this rank has learned, and its records, if the test is still there."""
    if directory.exists():
        rank = os.environ["HOCKET_RANK"]
        torch.save(learned, directory / f"{rank}.pt")
        (directory / f"{rank}.json").write_text(json.dumps(records))


def alike(directory: Path, survivors: Sequence[int]) -> Any:
    """The records of survivors, who have kept the same."""
    first, *others = (json.loads((directory / f"{rank}.json").read_text()) for rank in survivors)
    assert all(own == first for own in others)
    return first


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def die_with(rank: int) -> None:
    """Die at once with that rank, before a third one could notice either."""
    process = Path(sys.argv[1]) / f"{rank}.process"
    os.kill(int(process.read_text()), signal.SIGKILL)
    die()


def loop() -> None:
    """For ever, in Python: other threads run."""
    while True:
        pass


def hold() -> None:
    """For ever, in C, without letting go of the interpreter: no other thread of Python runs."""
    # A read goes on after a signal, by which others ask for the stack.
    nothing, _writer = os.pipe()
    ctypes.PyDLL(None).read(nothing, ctypes.create_string_buffer(1), 1)


WAYS: dict[str, Callable[[], object]] = {
    "": die,
    "with 0": partial(die_with, 0),
    "with 1": partial(die_with, 1),
    "with 2": partial(die_with, 2),
    "stopped": lambda: os.kill(os.getpid(), signal.SIGSTOP),
    "terminated": lambda: os.kill(os.getpid(), signal.SIGTERM),
    "pauses": lambda: time.sleep(PAUSE_S),
    "loops": loop,
    "holds": hold,
    "is late": lambda: time.sleep(LATE_S),
    "exits": lambda: sys.exit(0),
    "exits with 3": lambda: sys.exit(3),
    "ends at once": lambda: os._exit(0),
}
"""What happens to a rank at an edge, by how victims say it after that."""


LEAVING_S = 0.05
"""How much longer a step takes a rank that has asked to leave."""


class Fate:
    """Where a rank dies. `victims`: `RANK:STEP:EDGE` each, and a blank and one of `WAYS`, or `leaves`."""

    def __init__(self, rank: int, victims: list[str], leave: Callable[[], None] | None = None) -> None:
        """Of this one. `leave`: how it leaves in order, if it can."""
        self._leave, self._leaving = leave, False
        self.step = 0
        """In which it is."""
        self._mine = {
            int(step): edge for own, step, edge in (each.split(":") for each in victims) if int(own) == rank
        }

    def at(self, edge: str) -> None:
        if self._leaving and edge == "forward":
            # Steps are left when the coordinator has agreed.
            time.sleep(LEAVING_S)
        mine = self._mine.get(self.step, "")
        where, _, way = mine.partition(" ")
        if where == edge:
            self._leaving = self._leaving or way == "leaves"
            happens = self._leave if way == "leaves" else WAYS[way]
            if happens is not None:
                happens()
        later = mine.split(" ms after ")
        if later[1:] == [edge]:
            threading.Timer(float(later[0]) * 1e-3, die).start()

    def train(self, optimizer: Any, loss: Callable[[], torch.Tensor]) -> None:
        """One step, in which it may happen."""
        optimizer.zero_grad()
        made = loss()
        self.at("forward")
        made.backward()
        optimizer.step()
        self.at("optimizer")


def trained(directory: Path, victims: list[str]) -> None:
    """One rank. `victims`: as of `Fate`, or `NORMS`, or `BEFORE`."""
    rank = int(os.environ["HOCKET_RANK"])
    before = BEFORE in victims
    fate = Fate(rank, [each for each in victims if each not in (NORMS, BEFORE)])
    model, optimizer = made(norms=NORMS in victims or before)
    began = []
    model, optimizer = hk.distribute(model, optimizer, buffers="before_forward" if before else None)
    model[0].register_forward_pre_hook(lambda *_: began.append(digest_of(model.buffers())))
    die_inside(fate.at)
    model[2].weight.register_hook(lambda _: fate.at("backward"))
    records = []
    for step in range(STEPS):
        fate.step = step
        fate.train(optimizer, partial(loss_of, model, rank, step))
        counted = distributed_of(model).session.commit.standing.counted
        parameters = digest_of(each.detach() for each in model.parameters())
        same = [began[-1], parameters] if before else [digest(model)]
        records.append({"members": counted, "digest": same})
    assert hk.world(model) == len(records[-1]["members"])
    keep(directory, values(model), records)


def die_inside(at: Callable[[str], None]) -> None:
    """Calls `at` at the edges within the session."""

    def around(owner: type, name: str, before: str | None, after: str | None) -> None:
        inner = getattr(owner, name)

        @functools.wraps(inner)
        def outer(*arguments: Any, **named: Any) -> Any:
            if before is not None:
                at(before)
            found = inner(*arguments, **named)
            if after is not None:
                at(after)
            return found

        setattr(owner, name, outer)

    around(BuffersBeforeForward, "_launch", None, "exchange")
    around(Standing, "_reduce", "launched", None)
    around(Membership, "prepared", "prepared", None)
    around(Barrier, "enter", None, "entered")
    around(Membership, "done", None, "done")


if __name__ == "__main__":
    torch.set_num_threads(1)
    trained(Path(sys.argv[1]), sys.argv[2:])
