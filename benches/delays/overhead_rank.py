"""One rank of row `overhead` of `python -m benches delays`: trains the same model by three schedules in turns.

`python -m benches.delays.overhead_rank --out FILE`. Rank 0 writes what `overhead` shows.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from statistics import median
from typing import NamedTuple

import msgspec
import torch
from torch import nn

import hocket.torch as hk
from hocket import _native
from hocket.artefacts.plan import Due, Schedule, Turn
from hocket.errors import Error
from hocket.planning.compile import votes_program
from hocket.planning.default import by_hosts, default_plan
from hocket.settings import Settings
from hocket.torch.framework import Torch
from hocket.torch.in_training import distributed_of
from hocket.training.memory.gradients import gradients_of
from hocket.training.process import joined
from hocket.training.step.reducing import ReducingSession

WIDTH, LAYERS = 384, 12
TURNS, STEPS, WARM_UP = 60, 8, 2
"""Turns, steps of a turn that count, and steps before these that do not."""

HOOKS, ROUNDS = 10_000, 30
BEFORE = 64
"""Hooks for warming up."""


class Taken(NamedTuple):
    """Seconds, and processor's seconds of the training thread and of all threads of the process."""

    wall_s: float
    thread_s: float
    process_s: float

    @classmethod
    def until_now(cls) -> Taken:
        return cls(time.perf_counter(), time.thread_time(), time.process_time())


class Trained(NamedTuple):
    """A model, its optimizer and its session."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    session: ReducingSession

    @classmethod
    def begun(cls, schedule: Schedule, world: int) -> Trained:
        """Begin training with the default buckets."""
        torch.manual_seed(0)
        model = nn.Sequential(*(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()) for _ in range(LAYERS)))
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
        gradients = gradients_of(Torch(model, optimizer).parameters())
        plan = default_plan(list(gradients.values())[::-1], by_hosts(["host"] * world))
        if schedule.turns:
            schedule = msgspec.structs.replace(schedule, turns=schedule.turns * len(plan.buckets))
            plan = msgspec.structs.replace(plan, schedule=schedule, promise="uncorrected")
        hk.distribute(model, optimizer, plan=plan)
        session = distributed_of(model).session
        if not isinstance(session, ReducingSession) or (session.delays is not None) != bool(schedule.turns):
            raise Error(f"{type(session).__name__} is not the session that this row is about")
        return cls(model, optimizer, session)

    def step(self, inputs: torch.Tensor) -> Taken:
        began = Taken.until_now()
        self.optimizer.zero_grad()
        self.model(inputs).square().mean().backward()
        self.optimizer.step()
        return Taken(*(after - before for before, after in zip(began, Taken.until_now(), strict=True)))

    @property
    def registered_bytes(self) -> int:
        """Bytes of the memory of its gradients."""
        slots = {
            (slot.memory.address, len(slot.memory)) for each in self.session.buckets for slot in each.slots
        }
        return sum(size for _, size in slots)


MERGED = Schedule(period=2, turns=((Turn(first=0, last=1, due=Due(iteration=2)),),), delay_max=1)
"""Turns of two iterations, on two slots."""


def schedule(delay: int) -> Schedule:
    """Schedule with every gradient alone, `delay` iterations late."""
    turn = Turn(first=0, last=0, due=Due(iteration=delay))
    return Schedule(turns=((turn,),), delay_max=delay)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    out = parser.parse_args().out
    torch.set_num_threads(1)
    world = Settings.from_environment().world or 1
    plain, trivial, late = (Trained.begun(each, world) for each in (Schedule(), schedule(0), schedule(1)))
    draw = torch.Generator().manual_seed(hk.rank(plain.model))
    ratios: list[Taken] = []
    for turn in range(TURNS):
        batches = [torch.randn(16, WIDTH, generator=draw) for _ in range(WARM_UP + STEPS)]
        took: dict[int, Taken] = {}
        # They alternate: caches filled by the first affect the second.
        for each in (plain, trivial) if turn % 2 else (trivial, plain):
            steps = [each.step(batch) for batch in batches][WARM_UP:]
            took[id(each)] = Taken(*(median(of) for of in zip(*steps, strict=True)))
        ratios.append(
            Taken(*(own / other for own, other in zip(took[id(trivial)], took[id(plain)], strict=True)))
        )
    step, thread, process = (median(of) for of in zip(*ratios, strict=True))
    found = {
        "step": step,
        "thread": thread,
        "process": process,
        "hook_us": hook_us(),
        "extra_bytes": late.registered_bytes - plain.registered_bytes,
        "gradient_bytes": sum(each.numel() * each.element_size() for each in plain.model.parameters()),
        "same": all(
            torch.equal(a, b)
            for a, b in zip(plain.model.parameters(), trivial.model.parameters(), strict=True)
        ),
    }
    hk.flush(late.model)
    if hk.rank(plain.model) == 0:
        out.write_text(json.dumps(found))


class Parameter:
    def __init__(self) -> None:
        """Begin with the gradient in its place."""
        self.grad = object()


def hook_us() -> float:
    """Microseconds of a hook by a schedule with two slots and turns of two iterations, without the loop around it."""
    process = joined(Settings.from_environment())
    engine, hosts = process.engine, process.job.hosts
    memories = [engine.allocate(4) for _ in range(2)]
    program = engine.load(
        votes_program(hosts, 1),
        {0: (memories[0], 0)},
        priority=0,
        label="hooks",
        others=[{0: (memories[1], 0)}],
    )
    parameters = [Parameter() for _ in range(HOOKS)]
    readiness = _native.Readiness(
        engine,
        [(program, HOOKS, 0)],
        lambda: None,
        lambda *_: None,
        lambda *_: None,
        lambda _: None,
        MERGED,
    )
    hooks = [readiness.hook([(0, at)], own.grad, [own.grad]) for at, own in enumerate(parameters)]
    pairs = list(zip(hooks, parameters, strict=True))

    took_us = []
    for _ in range(ROUNDS):
        began_s = time.perf_counter()
        for _hook, _parameter in pairs:
            pass
        empty_s = time.perf_counter() - began_s
        for hook, parameter in pairs[:BEFORE]:
            hook(parameter)
        began_s = time.perf_counter()
        for hook, parameter in pairs[BEFORE:]:
            hook(parameter)
        took_s = (time.perf_counter() - began_s) / (HOOKS - BEFORE)
        readiness.finish()
        _, launched, applied = readiness.progress(0)
        if launched > applied:
            readiness.wait(0, process.job.settings.timeout_s)
            readiness.applied(0)
        took_us.append(1e6 * max(took_s - empty_s / HOOKS, 0.0))
    return median(took_us)


if __name__ == "__main__":
    main()
