"""Scripts of the ranks of `test_shares.py`."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

import hocket.torch as hk
from hocket import Policy
from hocket.errors import UsageError
from hocket.job.rendezvous import Job
from hocket.policies.top_k import TopK
from hocket.torch.distribute import distributed_of
from hocket.training.loop.speed import Speed
from tests.torch.delayed_scripts import here

SHARES = (1, 1, 0.5, 0.25)
SAMPLES, BATCH = 59, 5
DATA = torch.randn(SAMPLES, 6, generator=torch.Generator().manual_seed(3), dtype=torch.float64)


class Gated(Policy):
    gates = True


class Numbered(torch.utils.data.Dataset[Any]):
    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, at: int) -> Any:
        return at, DATA[at]


def network() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 1)).double()


def started(**how: Any) -> tuple[nn.Module, torch.optim.Optimizer]:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    return hk.distribute(model, optimizer, **how)


def loss_of(model: nn.Module, rows: torch.Tensor) -> torch.Tensor:
    return nn.functional.mse_loss(model(rows[:, :5]), rows[:, 5:])


def compared(
    shares: Any, *, accumulated: int = 1, leaves: Callable[[int], None] = lambda _: None, **how: Any
) -> dict[str, Any]:
    """Two passes by these ranks, beside one process with the whole batches: the largest difference of gradients and parameters in
    all steps, the numbers of samples of this rank, and whether each came once."""
    (model, optimizer), alone = started(**how), network()
    one = torch.optim.SGD(alone.parameters(), lr=0.05, momentum=0.9)
    pairs = list(zip(model.parameters(), alone.parameters(), strict=True))
    session = distributed_of(model).session
    sizes: list[int] = []
    seen: list[int] = []
    worst = 0.0
    for _ in range(2):
        data = hk.batches(model, Numbered(), BATCH, shares=shares)
        for at, (numbers, rows) in enumerate(data):
            last = (at + 1) % accumulated == 0 or len(data) == 0
            union = together(session.job, len(sizes), numbers.tolist())
            with contextlib.nullcontext() if last else model.no_sync():
                loss_of(model, rows).backward()
            loss_of(alone, DATA[union]).backward()
            sizes.append(len(rows))
            seen += union
            if not last:
                continue
            session.settle()
            worst = max([worst, *(float((mine.grad - own.grad).abs().max()) for mine, own in pairs)])
            optimizer.step()
            one.step()
            if not how:
                worst = max([worst, *(float((mine - own).abs().max()) for mine, own in pairs)])
            optimizer.zero_grad()
            one.zero_grad()
            leaves(len(sizes))
    return {
        "sizes": sizes,
        "worst": worst,
        "once": sorted(seen) == sorted([*range(SAMPLES)] * 2),
        "world": session.job.world,
    }


def together(job: Job, at: int, numbers: list[int]) -> list[int]:
    everyone = job.store.gather(f"drawn/{at}/{job.world}", job.rank, job.world, numbers, 30)
    return sorted({each for own in everyone for each in own})


def stepped() -> dict[str, Any]:
    return compared(SHARES)


def accumulated() -> dict[str, Any]:
    return compared(list(SHARES), accumulated=2)


def even() -> dict[str, Any]:
    return compared((2, 2, 2, 2))


def gated() -> dict[str, Any]:
    return compared(SHARES, policy=Gated())


def measured() -> list[int]:
    """Sizes of this rank's batches, where ranks are as fast as their shares say."""
    plain = Speed.value
    speed = 100.0 * SHARES[here()[0]]
    Speed.value = property(lambda _: speed)  # type: ignore[assignment,method-assign]
    model, optimizer = started()
    sizes = []
    for rows in hk.batches(model, range(8 * 4 * 13), 8, shares="measured", drop_last=True):
        model(rows.double().unsqueeze(1).expand(-1, 5)).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        sizes.append(len(rows))
    Speed.value = plain  # type: ignore[method-assign]
    return sizes


def refused() -> dict[str, str]:
    said = {}

    def note(kind: str, call: Callable[[], Any]) -> None:
        try:
            call()
        except UsageError as error:
            said[kind] = str(error)

    model, _ = started()
    for kind, shares in {
        "zero": [1, 1, 0, 1],
        "negative": [-1, 1, 1, 1],
        "nan": [1, float("nan"), 1, 1],
        "few": [1, 1, 1],
        "word": "fast",
        "hosts": {"nowhere": 1},
        "small": [1, 1, 1, 0.001],
    }.items():
        note(kind, lambda shares=shares: hk.batches(model, range(99), BATCH, shares=shares))

    def joined() -> None:
        with hk.join(model):
            next(iter(hk.batches(model, range(99), BATCH, shares=SHARES)))

    note("join", joined)
    for kind, how in {"merged": {"local": hk.Local(every=2)}, "policy": {"policy": TopK()}}.items():
        other = network().float()
        hk.distribute(other, torch.optim.SGD(other.parameters(), lr=0.1), **how)
        note(kind, lambda other=other: hk.batches(other, range(99), BATCH, shares=SHARES))
    return said


def apart() -> list[int]:
    """Ranks step alone, and count by their samples: they are dealt shares, and their gradients stay as they are."""
    model, optimizer = started(local=hk.Local(every=2, weights="samples"))
    sizes = []
    for rows in hk.batches(model, range(40), BATCH, shares=SHARES):
        loss = model(rows.double().unsqueeze(1).expand(-1, 5)).mean()
        loss.backward()
        sizes.append(len(rows))
        bias = next(iter(model[2].parameters())).grad
        assert bias is not None
        assert torch.allclose(model[2].bias.grad, torch.ones(1).double())
        optimizer.step()
        optimizer.zero_grad()
    hk.flush(model)
    return sizes


def unlike() -> str:
    model, _ = started()
    try:
        hk.batches(model, Numbered(), BATCH, shares=[1, 2] if here()[0] == 0 else [2, 1])
    except UsageError as error:
        return str(error)
    raise AssertionError


def skips() -> None:
    """Rank 1 accumulates its third batch."""
    model, optimizer = started()
    for at, (_, rows) in enumerate(hk.batches(model, Numbered(), 3, shares=[1, 2])):
        waits = at == 2 and here()[0] == 1
        with model.no_sync() if waits else contextlib.nullcontext():
            loss_of(model, rows).backward()
        if not waits:
            optimizer.step()
            optimizer.zero_grad()


def leaves() -> dict[str, Any]:
    """Each rank is on a host of its own; the fastest one leaves in the first pass."""
    rank = here()[0]
    os.environ["HOCKET_HOST"] = f"h{rank}"
    model_of: list[nn.Module] = []

    def leave(steps: int) -> None:
        if steps == 1 and rank == 2:
            hk.leave(model_of[0])

    plain = hk.distribute

    def kept(model: nn.Module, *given: Any, **how: Any) -> Any:
        model_of.append(model)
        return plain(model, *given, **how)

    hk.distribute = kept
    return compared({"h0": 1, "h1": 0.5, "h2": 2}, leaves=leave)
