"""What ranks of `test_resume.py` do."""

from __future__ import annotations

import io
import os
import signal
import warnings
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

import hocket.torch as hk
from hocket.artefacts.plan import Begun, Due, Plan, Schedule, Turn
from hocket.errors import UsageError
from hocket.policies.int8 import Int8
from hocket.policies.local_sgd import LocalSGD
from hocket.policies.power_sgd import PowerSGD
from hocket.policies.top_k import TopK
from hocket.policy.policy import Policy
from tests.sessions.plans import schedule_of
from tests.torch.delayed_scripts import here, loss_of, network, plan_for

PERIOD = 6
ITERATIONS = 24


class Often(LocalSGD):
    """Exchanges within the steps of a test, at another one after a restart."""

    every = 3


POLICIES: dict[str, Callable[[], Policy]] = {
    "top_k": TopK,
    "int8": Int8,
    "power_sgd": PowerSGD,
    "local_sgd": Often,
}


def schedule(at: str) -> Schedule:
    """Turns of each bucket's own, of which some wait before they are sent; applied `at` the end of backward or at gates."""
    late = (
        Turn(first=0, last=1, sent=Begun(iteration=2, point="backward_end"), due=Due(iteration=3, at=at)),
        Turn(first=2, last=5, due=Due(iteration=6, at=at)),
    )
    other = schedule_of((1, 3, 2), 1, 1, "sqrt", at).turns[0]
    overlap = "gates" if at == "gate" else "barrier"
    return Schedule(
        period=PERIOD, overlap=overlap, together=False, turns=(late, other), rate="sqrt", delay_max=2
    )


def planned(model: nn.Module, at: str) -> Plan:
    names = [name for name, _ in model.named_parameters()]
    return plan_for(model, schedule(at), [names[2:], names[:2]])


def started(at: str) -> tuple[nn.Module, torch.optim.Optimizer]:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    return hk.distribute(model, optimizer, plan=planned(model, at))


def bits(model: nn.Module) -> list[list[float]]:
    return [each.detach().reshape(-1).tolist() for each in model.parameters()]


def trained(directory: str, at: str, killed_in: str) -> list[list[float]]:
    """Trains from the newest checkpoint that all ranks have, and writes one after each step. In the backward of iteration
    `killed_in`, rank 1 is killed; -1: never."""
    rank, world = here()
    model, optimizer = started(at)
    first = 0
    known = [
        {int(each.name.split(".")[0]) for each in Path(directory).glob(f"*.{of}.pt")} for of in range(world)
    ]
    if whole := set.intersection(*known):
        first = max(whole)
        saved = torch.load(Path(directory) / f"{first}.{rank}.pt", weights_only=True)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        hk.load_state_dict(model, saved["hocket"])
    for iteration in range(first, ITERATIONS):
        optimizer.zero_grad()
        loss = loss_of(model, iteration, rank)
        if iteration == int(killed_in) and rank == 1:
            model[0].weight.register_hook(lambda _: os.kill(os.getpid(), signal.SIGKILL))
        loss.backward()
        optimizer.step()
        written = Path(directory) / f"{iteration + 1}.{rank}.tmp"
        torch.save(
            {
                "model": model.state_dict(),
                "optimizer": hk.optimizer_state(model),
                "hocket": hk.state_dict(model),
            },
            written,
        )
        written.rename(written.with_suffix(".pt"))
    hk.flush(model)
    return bits(model)


def uninterrupted(at: str) -> list[list[float]]:
    rank, _ = here()
    model, optimizer = started(at)
    for iteration in range(ITERATIONS):
        optimizer.zero_grad()
        loss_of(model, iteration, rank).backward()
        optimizer.step()
    hk.flush(model)
    return bits(model)


def with_policy(name: str) -> dict[str, list[list[float]]]:
    """Parameters after 9 steps: uninterrupted, resumed after 5, and resumed without the policy's state."""
    rank, _ = here()

    def begin() -> tuple[nn.Module, torch.optim.Optimizer]:
        model = network().float()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        return hk.distribute(model, optimizer, policy=POLICIES[name]())

    def steps(model: nn.Module, optimizer: torch.optim.Optimizer, of: range) -> None:
        for iteration in of:
            draw = torch.Generator().manual_seed(100 * iteration + rank)
            optimizer.zero_grad()
            model(torch.randn(4, 5, generator=draw)).square().sum().backward()
            optimizer.step()

    model, optimizer = begin()
    steps(model, optimizer, range(9))
    found = {"uninterrupted": bits(model)}
    model, optimizer = begin()
    steps(model, optimizer, range(5))
    file = io.BytesIO()
    torch.save({"model": model.state_dict(), "hocket": hk.state_dict(model)}, file)
    for label in ("resumed", "without state"):
        file.seek(0)
        saved = torch.load(file, weights_only=True)
        model, optimizer = begin()
        model.load_state_dict(saved["model"])
        if label == "resumed":
            hk.load_state_dict(model, saved["hocket"])
        steps(model, optimizer, range(5, 9))
        found[label] = bits(model)
    return found


def residuals(state: dict[str, object]) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for each in state["parameters"]:  # type: ignore[attr-defined]
        values = each["rows"].contiguous().view(torch.float32).reshape(-1).tolist()
        found.setdefault(each["parameter"], []).extend(values)
    return found


def left_behind(directory: str) -> dict[str, list[float]]:
    """Residuals of top-k after some steps with one bucket, which are also written."""
    rank, _ = here()
    model = network().float()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    model, optimizer = hk.distribute(model, optimizer, policy=TopK())
    for iteration in range(3):
        draw = torch.Generator().manual_seed(100 * iteration + rank)
        optimizer.zero_grad()
        model(torch.randn(4, 5, generator=draw)).square().sum().backward()
        optimizer.step()
    state = hk.state_dict(model)
    torch.save(state, Path(directory) / f"{rank}.pt")
    return residuals(state)


class Apart(TopK):
    parameters = {**TopK.parameters, "fusion_bytes": 0}  # noqa: RUF012  # as policies declare them


def taken_up(directory: str, of: str) -> dict[str, list[float]]:
    """Residuals after loading, with other buckets and more ranks: ranks without a file of their own give that of rank 0."""
    rank, _ = here()
    model = network().float()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    model, optimizer = hk.distribute(model, optimizer, policy=Apart())
    file = rank if rank < int(of) else 0
    hk.load_state_dict(model, torch.load(Path(directory) / f"{file}.pt", weights_only=True))
    return residuals(hk.state_dict(model))


def refused() -> dict[str, str]:
    """What is said where state cannot be saved or loaded."""
    rank, _ = here()
    said = {}

    def attempt(name: str, call: Callable[[], object]) -> None:
        try:
            call()
            said[name] = "nothing"
        except UsageError as error:
            said[name] = str(error)

    def step(model: nn.Module, optimizer: torch.optim.Optimizer, iteration: int) -> None:
        optimizer.zero_grad()
        loss_of(model, iteration, rank).backward()
        optimizer.step()

    model, optimizer = started("end")
    for iteration in range(3):
        step(model, optimizer, iteration)
    state = hk.state_dict(model)
    attempt("in training", lambda: hk.load_state_dict(model, state))
    optimizer.zero_grad()
    loss_of(model, 4, rank).backward()
    attempt("before the step", lambda: hk.state_dict(model))
    optimizer.step()
    other = hk.state_dict(model)
    fresh, _ = started("end")
    attempt("nonsense", lambda: hk.load_state_dict(fresh, {"rank": 0}))
    attempt("a newer version", lambda: hk.load_state_dict(fresh, {**state, "version": 9}))
    attempt("two moments", lambda: hk.load_state_dict(fresh, state if rank == 0 else other))
    model = network()
    names = [name for name, _ in model.named_parameters()]
    plan = plan_for(model, schedule_of((1,), 1, 2, "linear"), [names[2:], names[:2]])
    model, _ = hk.distribute(model, torch.optim.SGD(model.parameters(), lr=0.01), plan=plan)
    attempt("another schedule", lambda: hk.load_state_dict(model, state))
    plain = network().float()
    plain, _ = hk.distribute(plain, torch.optim.SGD(plain.parameters(), lr=0.01), policy=TopK())
    attempt("no residuals", lambda: hk.load_state_dict(plain, {**state, "delays": None}))
    return said


def saved_by_one(flushes: str) -> int:
    """Rank 0 alone saves the model twice while gradients are open; how often it was told."""
    rank, _ = here()
    model, optimizer = started("end")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for iteration in range(6):
            optimizer.zero_grad()
            loss_of(model, iteration, rank).backward()
            optimizer.step()
            if flushes == "yes":
                hk.flush(model)
            if rank == 0 and iteration in (2, 4):
                model.state_dict()
        hk.flush(model)
    return sum("was saved without the gradients of" in str(each.message) for each in caught)
