"""What ranks of `test_loop.py` do."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn

import hocket.torch as hk
from hocket import Policy
from hocket.errors import UsageError
from hocket.torch.in_training import distributed_of
from tests.torch.delayed_scripts import here

SAMPLES = 23
EPOCHS = 2


class Gated(Policy):
    gates = True


def started(
    optimizer: Callable[..., torch.optim.Optimizer] = torch.optim.SGD, policy: Policy | None = None
) -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.2), nn.Linear(4, 1)).double()
    return hk.distribute(model, optimizer(model.parameters(), lr=0.01), policy=policy)


def each_once() -> dict[str, list[list[list[int]]]]:
    """By kind: of each pass, the samples of each batch."""
    model, _ = started()
    seen = {}
    for kind, batch_size, options in (
        ("plain", 3, {}),
        ("one by one", 1, {}),
        ("prepared", 3, {"num_workers": 2, "persistent_workers": True}),
        ("whole batches", 3, {"drop_last": True}),
        ("in order", 3, {"shuffle": False}),
    ):
        data = hk.batches(model, range(SAMPLES), batch_size, name=kind, **options)
        seen[kind] = []
        for _ in range(EPOCHS):
            length = len(data)
            found = [batch.tolist() for batch in data]
            assert len(found) == length
            seen[kind].append(found)
    return seen


def trained(
    model: nn.Module, optimizer: torch.optim.Optimizer, saved: list[bytes] | None = None
) -> Iterator[list[int]]:
    """Each step's samples; where and how training went on, in the end as the parameters of the model."""
    hk.extra_state(model, "random", torch.get_rng_state, torch.set_rng_state)

    def save() -> None:
        if saved is not None:
            file = io.BytesIO()
            torch.save(
                {
                    "model": model.state_dict(),
                    "optimizer": hk.optimizer_state(model),
                    "hk": hk.state_dict(model),
                },
                file,
            )
            saved.append(file.getvalue())

    for epoch in hk.epochs(model, EPOCHS):
        for batch in hk.batches(model, range(SAMPLES), 3):
            optimizer.zero_grad()
            part = batch.double() / SAMPLES
            model(torch.stack([part, part**2, part**3], 1)).square().mean().backward()
            optimizer.step()
            save()
            yield [epoch, *batch.tolist()]
        for batch in hk.batches(model, range(5), 2, shuffle=False, name="held out"):
            save()
            yield [-1 - epoch, *batch.tolist()]
        save()
        yield [-1 - epoch]
    yield [hash(each) for parameter in model.parameters() for each in parameter.flatten().tolist()]


def resumed() -> list[tuple[int, list[list[int]], list[list[int]]]]:
    """Of each checkpoint, what followed it in the job that wrote it, and in one that began with it, where these differ."""
    saved: list[bytes] = []
    model, optimizer = started()
    torch.manual_seed(2 + here()[0])
    whole = list(trained(model, optimizer, saved))
    assert len(saved) == len(whole) - 1
    differ = []
    for at, file in enumerate(saved):
        state = torch.load(io.BytesIO(file), weights_only=True)
        model, optimizer = started()
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        hk.load_state_dict(model, state["hk"])
        rest = list(trained(model, optimizer))
        if rest != whole[at + 1 :]:
            differ.append((at, whole[at + 1 :], rest))
    return differ


def left_behind(directory: str) -> list[int]:
    """What is trained on until a checkpoint in the second epoch, of that epoch."""
    model, optimizer = started()
    own = []
    for epoch in hk.epochs(model, EPOCHS):
        for at, batch in enumerate(hk.batches(model, range(SAMPLES), 3)):
            model(torch.stack([batch] * 3, 1).double()).sum().backward()
            optimizer.step()
            if epoch == 1:
                own += batch.tolist()
            if epoch == at == 1:
                torch.save(hk.state_dict(model), Path(directory) / f"{here()[0]}.pt")
                return own
    raise AssertionError


def taken_up(directory: str) -> list[list[int]]:
    """What another number of ranks trains on from there: epoch and samples."""
    model, _ = started()
    state = torch.load(Path(directory) / "0.pt", weights_only=True)
    hk.load_state_dict(model, state)
    found = []
    for epoch in hk.epochs(model, EPOCHS + 1):
        data = hk.batches(model, range(SAMPLES), 2, num_workers=1)
        length, before = len(data), len(found)
        found += [[epoch, *batch.tolist()] for batch in data]
        assert len(found) - before == length
    return found


def changed() -> dict[str, Any]:
    """Rank 1 is lost while both have a batch in hand, and others are prepared."""
    model, _ = started()
    told: list[Any] = []

    def tell(change: hk.Change) -> None:
        lost, joined = (list(map(str, each)) for each in (change.lost, change.joined))
        told.append([change.why, lost, joined, change.old_world, change.new_world, change.step])

    hk.on_change(model, tell)
    changes = distributed_of(model).loop.changes
    got = []
    data = hk.batches(model, range(SAMPLES), 2, num_workers=2)
    for at, batch in enumerate(data):
        got.append(batch.tolist())
        if at == 2:
            before = len(data)
            changes.go_on(changes.workers[:1], at)
            if here()[0] == 1:
                break
            assert len(data) == 2 * before + 1, "what rank 1 has in hand is drawn again"
    (host,) = {each.host for each in changes.workers}
    told = [[*each[:1], len(each[1]), len(each[2]), *each[3:]] for each in told]
    return {"got": got, "told": told, "host": host}


def scaled() -> list[list[float]]:
    """Parameters after some steps with a scaled rate, and with one that the script set by hand, in turns."""
    found = []
    world = here()[1]
    for optimizer, policy, rule, factor in (
        (lambda parameters, lr: torch.optim.SGD(parameters, lr=lr, momentum=0.9), None, "linear", world / 4),
        (torch.optim.AdamW, None, "sqrt", (world / 4) ** 0.5),
        (torch.optim.AdamW, Gated(), "linear", world / 4),
    ):
        for by_hand in (False, True):
            torch.manual_seed(7)
            model, made = started(optimizer, policy)
            if not by_hand:
                hk.scale_lr(model, rule, world=4, warmup=2)
            schedule = torch.optim.lr_scheduler.LambdaLR(made, lambda step: 0.9**step)
            model.eval()
            for step in range(4):
                made.zero_grad()
                model(torch.arange(6).view(2, 3).double() / 6 + here()[0]).square().mean().backward()
                if by_hand:
                    own = 0.01 * 0.9**step
                    made.param_groups[0]["lr"] = own * (1 + (factor - 1) / 2 if step == 0 else factor)
                made.step()
                if by_hand:
                    made.param_groups[0]["lr"] = own
                schedule.step()
                assert made.param_groups[0]["lr"] == schedule.get_last_lr()[0] == 0.01 * 0.9 ** (step + 1)
            hk.flush(model)
            found.append([each for parameter in model.parameters() for each in parameter.flatten().tolist()])
    return found


def refused() -> dict[str, str]:
    """What is said to who asks for what cannot be."""
    rank = here()[0]
    model, optimizer = started()

    def nested() -> None:
        for _ in hk.epochs(model, 1):
            next(iter(hk.epochs(model, 1)))

    def twice() -> None:
        hk.extra_state(model, "mine", int, print)
        hk.extra_state(model, "mine", int, print)

    def loaded_late() -> None:
        hk.load_state_dict(model, hk.state_dict(model))

    class Stream(torch.utils.data.IterableDataset[int]):
        def __iter__(self) -> Iterator[int]:
            return iter(range(4))

    other, _ = started()
    state = hk.state_dict(other)
    place = {"seed": 0, "samples": 4, "at": 2}
    hk.batches(model, range(4), 1, name="known")
    cases: dict[str, Callable[[], object]] = {
        "other seeds": lambda: hk.batches(model, range(4), 1, name="seeds", seed=rank),
        "other data": lambda: hk.batches(model, range(4 + rank), 1, name="data"),
        "another": lambda: hk.batches(model, range(5), 1, name="known"),
        "sampler": lambda: hk.batches(model, range(4), 1, sampler=None),
        "nothing": lambda: hk.batches(model, [], 1),
        "no batch": lambda: hk.batches(model, range(4), 0),
        "a seed": lambda: hk.batches(model, range(4), 1, seed=-1),
        "a stream": lambda: hk.batches(model, Stream(), 1),
        "nested": nested,
        "twice": twice,
        "loaded late": loaded_late,
        "not of a loop": lambda: hk.load_state_dict(other, {**state, "loop": 3}),
        "no such place": lambda: hk.load_state_dict(
            other, {**state, "loop": {"data": {"train": {**place, "at": 5}}}}
        ),
        "two places": lambda: hk.load_state_dict(
            other, {**state, "loop": {"data": {"train": {**place, "at": rank}}}}
        ),
        "leaving": lambda: hk.leave(model),
        "a rule": lambda: hk.scale_lr(model, "cube"),  # type: ignore[arg-type]
    }
    said = {}
    for name, case in cases.items():
        try:
            case()
        except UsageError as error:
            said[name] = str(error)
    hk.load_state_dict(other, {**state, "loop": {"data": {"train": place}}})
    try:
        hk.batches(other, range(5), 1)
    except UsageError as error:
        said["another checkpoint"] = str(error)
    optimizer.param_groups[0]["lr"] = None
    try:
        hk.scale_lr(model, "linear")
    except UsageError as error:
        said["no rate"] = str(error)
    return said
