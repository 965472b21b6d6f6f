"""Scripts of the ranks of `test_shares.py`."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from torch import nn

import hocket.torch as hk
from hocket import Policy
from hocket.artefacts.gradient import Gradient
from hocket.artefacts.plan import Owned, Owner, Plan
from hocket.errors import UsageError
from hocket.planning.buckets import buckets, plan_of
from hocket.policies.top_k import TopK
from hocket.torch.in_training import distributed_of
from hocket.training.loop.speed import Speed
from hocket.training.step.reducing import ReducingSession
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
    rows = rows.to(next(model.parameters()).device)
    return nn.functional.mse_loss(model(rows[:, :5]), rows[:, 5:])


def compared(
    shares: Any,
    *,
    accumulated: int = 1,
    drawn: Callable[[int], None] = lambda _: None,
    stepped: Callable[[int], None] = lambda _: None,
    joins: bool = False,
    plan: Plan | None = None,
    **how: Any,
) -> dict[str, Any]:
    """Two passes by these ranks, beside one process with the whole batches: the largest difference of gradients and parameters in
    all steps, the numbers of samples of this rank, and whether each came once. `drawn`: called before each backward, with the
    number of batches so far; `stepped`: after each step."""
    (model, optimizer), alone = started(plan=plan, **how), network()
    one = torch.optim.SGD(alone.parameters(), lr=0.05, momentum=0.9)
    pairs = list(zip(model.parameters(), alone.parameters(), strict=True))
    session = distributed_of(model).session
    assert isinstance(session, ReducingSession)
    sizes: list[int] = []
    seen: list[int] = []
    noted, held = Noted(), 0
    worst = 0.0
    for _ in range(2):
        data = hk.batches(model, Numbered(), BATCH, shares=shares)
        with hk.join(model) if joins else contextlib.nullcontext():
            for at, (numbers, rows) in enumerate(data):
                last = (at + 1) % accumulated == 0 or len(data) == 0
                noted.write(len(sizes), session.job.members[session.job.rank], numbers.tolist())
                held += 1
                drawn(len(sizes))
                with contextlib.nullcontext() if last else model.no_sync():
                    loss_of(model, rows).backward()
                sizes.append(len(rows))
                if not last:
                    continue
                session.settle()
                present = [session.job.members[rank] for rank in session.commit.ranks()]
                for batch in range(len(sizes) - held, len(sizes)):
                    union = noted.of(batch, present)
                    loss_of(alone, DATA[union]).backward()
                    seen += union
                held = 0
                if not session.owners:
                    worst = max([worst, *(float((mine.grad - own.grad).abs().max()) for mine, own in pairs)])
                optimizer.step()
                one.step()
                if not how or session.owners:
                    worst = max([worst, *(float((mine - own).abs().max()) for mine, own in pairs)])
                optimizer.zero_grad()
                one.zero_grad()
                stepped(len(sizes))
    return {
        "sizes": sizes,
        "worst": worst,
        "once": sorted(seen) == sorted([*range(SAMPLES)] * 2),
        "world": session.job.world,
    }


def joined() -> dict[str, Any]:
    return compared(SHARES, joins=True)


class Noted:
    """Numbers of samples that each member has drawn, in files: a store has none of a member that is lost."""

    trainings = itertools.count()

    def __init__(self) -> None:
        self._folder = Path(sys.argv[1]) / f"drawn-{next(self.trainings)}"
        self._folder.mkdir(exist_ok=True)

    def write(self, batch: int, member: int, numbers: list[int]) -> None:
        path = self._folder / f"{batch}-{member}"
        path.with_suffix(".new").write_text(json.dumps(numbers))
        path.with_suffix(".new").rename(path)

    def of(self, batch: int, members: Iterable[int]) -> list[int]:
        """All that these members, which have made a step with it, drew for a batch."""
        found = (json.loads((self._folder / f"{batch}-{member}").read_text()) for member in members)
        return sorted(itertools.chain.from_iterable(found))


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


HOSTS = {"h0": 1, "h1": 0.5, "h2": 2}


def owned() -> Plan:
    """Plan by which each rank updates a third."""
    owners = Owned(owners=tuple(Owner(rank=rank) for rank in range(3)), update="owners")
    gradients = [Gradient(name, tuple(each.shape), "f64") for name, each in network().named_parameters()]
    return plan_of(buckets([gradients], owners, range(3)), 3, label="owners")


def leaves(*, plan: Plan | None = None) -> dict[str, Any]:
    """Each rank is on a host of its own; the fastest one leaves in the first pass."""
    rank = here()[0]
    os.environ["HOCKET_HOST"] = f"h{rank}"
    model_of: list[nn.Module] = []

    def leave(batches: int) -> None:
        if batches == 1 and rank == 2:
            hk.leave(model_of[0])

    plain = hk.distribute

    def kept(model: nn.Module, *given: Any, **how: Any) -> Any:
        model_of.append(model)
        return plain(model, *given, **how)

    hk.distribute = kept
    return compared(HOSTS, stepped=leave, plan=plan)


def is_lost(*, plan: Plan | None = None) -> dict[str, Any]:
    """The fastest rank dies when all have their second batch."""
    rank = here()[0]
    os.environ["HOCKET_HOST"] = f"h{rank}"

    def die(batches: int) -> None:
        if batches == 1 and rank == 2:
            os.kill(os.getpid(), signal.SIGKILL)

    return compared(HOSTS, drawn=die, plan=plan)


def leaves_its_parts() -> dict[str, Any]:
    return leaves(plan=owned())


def is_lost_with_its_parts() -> dict[str, Any]:
    return is_lost(plan=owned())
