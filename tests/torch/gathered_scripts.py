"""What ranks of `test_gathered.py` do: embeddings whose gradients travel as rows, against plain means in one process."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence

import msgspec
import torch
from torch import nn

import hocket.torch as hk
from hocket.artefacts.plan import AllReduce, Bucket, Gathered, Part, Plan, Schedule
from hocket.planning.buckets import plan_of
from tests.torch.mixed_scripts import distance

WORDS, WIDTH, BOUND = 50, 6, 8
STEPS = 6

Batch = Sequence[int]
"""Words."""


class Text(nn.Module):
    """Two embeddings, the second used only where the first is, and a layer."""

    def __init__(self, *, sparse: bool, dtype: torch.dtype = torch.float64) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.words = nn.EmbeddingBag(WORDS, WIDTH, sparse=sparse, mode="sum", dtype=dtype)
        self.other = nn.Embedding(WORDS, WIDTH, sparse=sparse, dtype=dtype)
        self.out = nn.Linear(WIDTH, 3, dtype=dtype)

    def forward(self, batch: Batch, *, swapped: bool = False) -> torch.Tensor:
        words = torch.tensor([list(batch)], dtype=torch.int64)
        calls: list[Callable[[], torch.Tensor]] = [
            lambda: self.words(words[0], torch.tensor([0])).sum(0),
            lambda: self.other(words[0]).square().sum(0),
        ]
        sums = [call() for call in (reversed(calls) if swapped else calls)]
        return self.out(torch.tanh(sums[0] + sums[1])).square().sum()


def batches(rank: int) -> list[Batch]:
    """By step: words that come twice, none, the same ones everywhere, more than the bound on one rank, and few again."""
    return [
        [rank, 7, 7, 3 * rank, 7],
        [] if rank == 1 else [1, 2],
        [4, 4, 5],
        list(range(40)) if rank == 1 else [48, 49],
        [] if rank else [9],
        [rank, 30 + rank],
    ]


def plan(model: nn.Module, world: int, *, gates: bool = False, bound: int = BOUND) -> Plan:
    """Embeddings as rows, in different orders of ranks; the layer by a ring."""
    order = tuple(range(world))
    buckets = []
    for name, each in model.named_parameters():
        rows = name in ("words.weight", "other.weight")
        route = Gathered(rows=bound, row_elements=WIDTH) if rows else AllReduce(algorithm="ring")
        buckets.append(
            Bucket(
                parts=(Part(variable=name),),
                elements=each.numel(),
                dtype="f64",
                route=route,
                order=order[::-1] if name == "words.weight" else order,
                priority=len(buckets),
            )
        )
    made = plan_of(buckets, world, label="rows")
    return msgspec.structs.replace(made, schedule=Schedule(overlap="gates")) if gates else made


def expected(
    make: Callable[[], nn.Module], optimizer_of: Callable, world: int, steps: int = STEPS
) -> nn.Module:
    """The model after these steps with the plain mean of all ranks' gradients, in one process."""
    model = make()
    optimizer = optimizer_of(model)
    for step in range(steps):
        optimizer.zero_grad()
        for rank in range(world):
            (model(batches(rank)[step]) / world).backward()
        optimizer.step()
    return model


class Told(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        logging.getLogger("hocket.training").addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def sparse_adam(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SparseAdam([model.words.weight, model.other.weight], lr=0.01)


def place() -> tuple[int, int]:
    return int(os.environ["HOCKET_RANK"]), int(os.environ["HOCKET_WORLD"])


def trained(kind: str, optimizer: str, gates: str = "") -> dict[str, object]:
    """How far the parameters are from the plain mean's; by step, the rows of the first embedding's gradient."""
    rank, world = place()
    optimizer_of = {"sgd": sgd, "sparse_adam": sparse_adam}[optimizer]

    def make() -> Text:
        return Text(sparse=kind == "sparse")

    told, model = Told(), make()
    model, stepped = hk.distribute(model, optimizer_of(model), plan=plan(model, world, gates=bool(gates)))
    touched, sparse = [], []
    for step in range(STEPS):
        stepped.zero_grad()
        model(batches(rank)[step], swapped=bool(gates) and rank % 2 == 1).backward()
        if not gates:
            grad = model.words.weight.grad
            sparse.append(grad.is_sparse)
            rows = grad.coalesce().indices()[0] if grad.is_sparse else grad.any(1).nonzero()[:, 0]
            touched.append(rows.tolist())
        stepped.step()
    state = model.state_dict()  # opens gates
    logging.getLogger("hocket.training").removeHandler(told)
    return {
        "far": distance(model, expected(make, optimizer_of, world)),
        "touched": touched,
        "sparse": sparse,
        "told": told.lines,
        "bits": [each.numpy().tobytes().hex() for each in state.values()],
    }


def accumulated() -> float:
    """Two backward passes a step, of which one communicates: how far gradients are from the plain means."""
    rank, world = place()
    model = Text(sparse=True)
    model, _ = hk.distribute(model, sgd(model), plan=plan(model, world))
    plain = Text(sparse=True)
    far = 0.0
    for step in (0, 2, 4):
        model.zero_grad()
        plain.zero_grad()
        with model.no_sync():
            model(batches(rank)[step]).backward()
        model(batches(rank)[step + 1]).backward()
        for other in range(world):
            for batch in batches(other)[step : step + 2]:
                (plain(batch) / world).backward()
        for ours, theirs in zip(model.parameters(), plain.parameters(), strict=True):
            dense = [each.grad.to_dense() if each.grad.is_sparse else each.grad for each in (ours, theirs)]
            far = max(far, float((dense[0] - dense[1]).abs().max()))
    return far


class Some(nn.Module):
    """Embeddings that a step may leave out."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.words = nn.Embedding(WORDS, WIDTH, sparse=True, dtype=torch.float64)
        self.other = nn.Embedding(WORDS, WIDTH, sparse=True, dtype=torch.float64)
        self.out = nn.Linear(WIDTH, 3, dtype=torch.float64)

    def forward(self, *names: str) -> torch.Tensor:
        return sum(self.out(getattr(self, name)(torch.tensor([2, 5]))).square().sum() for name in names)


def unused() -> list[list[int] | None]:
    """The rows of both gradients where one rank uses one embedding, and nobody the other."""
    rank, world = place()
    model = Some()
    model, _ = hk.distribute(model, sgd(model), plan=plan(model, world))
    model.zero_grad()
    (model("words") if rank == 0 else model.out.weight.square().sum()).backward()
    grads = [model.words.weight.grad, model.other.weight.grad]
    return [None if grad is None else grad.coalesce().indices()[0].tolist() for grad in grads]


def tied() -> list[bool]:
    """An embedding that a layer shares has a dense gradient: whether it is one, and whether it is the mean."""
    rank, world = place()

    def make() -> nn.Module:
        torch.manual_seed(4)
        model = nn.Module()
        model.words = nn.Embedding(WORDS, WIDTH, sparse=True, dtype=torch.float64)
        model.out = nn.Linear(WIDTH, WORDS, bias=False, dtype=torch.float64)
        model.out.weight = model.words.weight
        return model

    def loss(model: nn.Module, at: int) -> torch.Tensor:
        return model.out(model.words(torch.tensor([at, at + 1]))).square().sum()

    model, plain = make(), make()
    model, _ = hk.distribute(model, sgd(model), plan=plan(model, world))
    for other in range(world):
        (loss(plain, other) / world).backward()
    seen = []
    for _ in range(2):
        model.zero_grad()
        loss(model, rank).backward()
        grad = model.words.weight.grad
        seen += [grad.is_sparse, torch.allclose(grad, plain.words.weight.grad, rtol=1e-12)]
    return seen


def joined() -> list[int] | None:
    """Ranks with unequal numbers of batches: the rows of the last gradient, divided by the ranks that have a batch."""
    rank, world = place()
    model = Text(sparse=True)
    model, optimizer = hk.distribute(model, sgd(model), plan=plan(model, world))
    last = None
    with hk.join(model, divide_by_initial_world_size=False):
        for _ in range(1 + rank):
            optimizer.zero_grad()
            model([rank, 9]).backward()
            last = model.words.weight.grad.coalesce()
            optimizer.step()
    return last.indices()[0].tolist() if last is not None else None


def profiled(kind: str) -> None:
    """Ends its process when the profile is there."""
    rank, _ = place()
    model = Text(sparse=kind == "sparse")
    model, optimizer = hk.distribute(model, sgd(model))
    for step in range(100):
        optimizer.zero_grad()
        model([rank, 9, 9, 20 + step % 2] if rank else [4, 5, 6, 7, 8]).backward()
        optimizer.step()
