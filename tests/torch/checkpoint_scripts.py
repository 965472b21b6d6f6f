"""What ranks of `test_checkpoints.py` do."""

from __future__ import annotations

import dataclasses
import io
import warnings
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

import hocket.torch as hk
from hocket.artefacts.plan import Begun, Due, Plan, Schedule, Turn
from hocket.policies.int8 import Int8
from hocket.policies.power_sgd import PowerSGD
from hocket.policies.top_k import TopK
from hocket.policy.policy import Policy
from hocket.settings import Settings
from tests.sessions.plans import schedule_of
from tests.torch.delayed_scripts import Attempts, here, loss_of, network, plan_for

PERIOD = 6
ITERATIONS = 24


POLICIES: dict[str, Callable[[], Policy]] = {
    "top_k": TopK,
    "int8": Int8,
    "power_sgd": PowerSGD,
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


def started(at: str, *, sentinel: bool = False) -> tuple[nn.Module, torch.optim.Optimizer]:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    settings = dataclasses.replace(Settings.from_environment(), sentinel=sentinel)
    return hk.distribute(model, optimizer, plan=planned(model, at), settings=settings)


def step(model: nn.Module, optimizer: torch.optim.Optimizer, iteration: int) -> None:
    optimizer.zero_grad()
    loss_of(model, iteration, here()[0]).backward()
    optimizer.step()


def bits(model: nn.Module) -> list[list[float]]:
    return [each.detach().reshape(-1).tolist() for each in model.parameters()]


def resumed(at: str, sentinel: str, every: str = "1") -> list[int]:
    """Steps from whose checkpoint training does not go on with the bits that it has without a break, of each `every`th."""
    watched = sentinel == "watched"
    model, optimizer = started(at, sentinel=watched)
    saved = []
    for iteration in range(ITERATIONS):
        step(model, optimizer, iteration)
        file = io.BytesIO()
        parts = {
            "model": model.state_dict(),
            "optimizer": hk.optimizer_state(model),
            "hocket": hk.state_dict(model),
        }
        torch.save(parts, file)
        saved.append(file)
    hk.flush(model)
    expected = bits(model)
    wrong = []
    for first, file in [*enumerate(saved, 1)][:: int(every)]:
        file.seek(0)
        state = torch.load(file, weights_only=True)
        model, optimizer = started(at, sentinel=watched)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        hk.load_state_dict(model, state["hocket"])
        for iteration in range(first, ITERATIONS):
            step(model, optimizer, iteration)
        hk.flush(model)
        if bits(model) != expected:
            wrong.append(first)
    return wrong


def begun(policy: Policy) -> tuple[nn.Module, torch.optim.Optimizer]:
    model = network().float()
    return hk.distribute(model, torch.optim.SGD(model.parameters(), lr=0.01), policy=policy)


def steps(model: nn.Module, optimizer: torch.optim.Optimizer, of: range) -> None:
    """As `step`, of floats."""
    for iteration in of:
        draw = torch.Generator().manual_seed(100 * iteration + here()[0])
        optimizer.zero_grad()
        model(torch.randn(4, 5, generator=draw)).square().sum().backward()
        optimizer.step()


def with_policy(name: str) -> dict[str, list[list[float]]]:
    """Parameters after 9 steps: uninterrupted, resumed after 5, and resumed without the policy's state."""
    model, optimizer = begun(POLICIES[name]())
    steps(model, optimizer, range(9))
    found = {"uninterrupted": bits(model)}
    model, optimizer = begun(POLICIES[name]())
    steps(model, optimizer, range(5))
    file = io.BytesIO()
    torch.save({"model": model.state_dict(), "hocket": hk.state_dict(model)}, file)
    for label in ("resumed", "without state"):
        file.seek(0)
        saved = torch.load(file, weights_only=True)
        model, optimizer = begun(POLICIES[name]())
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
    model, optimizer = begun(TopK())
    steps(model, optimizer, range(3))
    state = hk.state_dict(model)
    torch.save(state, Path(directory) / f"{rank}.pt")
    return residuals(state)


class Apart(TopK):
    parameters = {**TopK.parameters, "fusion_bytes": 0}  # noqa: RUF012  # as policies declare them


def taken_up(directory: str, of: str) -> dict[str, list[float]]:
    """Residuals after loading, with other buckets and more ranks: ranks without a file of their own give that of rank 0."""
    rank, _ = here()
    model, _ = begun(Apart())
    file = rank if rank < int(of) else 0
    hk.load_state_dict(model, torch.load(Path(directory) / f"{file}.pt", weights_only=True))
    return residuals(hk.state_dict(model))


def refused() -> dict[str, str]:
    """What is said where state cannot be saved or loaded."""
    rank, _ = here()
    attempt = Attempts()
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
    plain, _ = begun(TopK())
    attempt("no residuals", lambda: hk.load_state_dict(plain, {**state, "delays": None}))
    return attempt


def saved_by_one(flushes: str) -> int:
    """Rank 0 alone saves the model twice while gradients are open; how often it was told."""
    rank, _ = here()
    model, optimizer = started("end")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for iteration in range(6):
            step(model, optimizer, iteration)
            if flushes == "yes":
                hk.flush(model)
            if rank == 0 and iteration in (2, 4):
                model.state_dict()
        hk.flush(model)
    return sum("was saved without the gradients of" in str(each.message) for each in caught)
