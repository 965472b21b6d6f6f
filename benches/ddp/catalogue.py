"""The ways: each trains a few steps on one side, as a user would write it; the caller compares the results."""

from __future__ import annotations

import copy
import functools
import io
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn.utils import parametrizations

from benches.ddp import networks
from benches.ddp.side import Side, Trained, sgd

STEPS = 5
UNSHARED = ("buffers that forward uses, broadcast before it", "buffers that no rank shares")
"""Ways that end with different buffers on each rank, with DistributedDataParallel too."""

WAYS: dict[str, Callable[[Side], None]] = {}


def way(name: str) -> Callable[[Callable[[Side], None]], Callable[[Side], None]]:
    """Make a decorator that adds a function to the table under this name."""

    def add(function: Callable[[Side], None]) -> Callable[[Side], None]:
        WAYS[name] = function
        return function

    return add


def _plain(trained: Trained, side: Side, *shape: int, steps: int = STEPS) -> None:
    for x in side.batches(steps, *(shape or (6, 8))):
        trained.step(trained.model(x).square().mean())


for _name, _make in {
    "SGD with momentum": sgd,
    "SGD, foreach": functools.partial(torch.optim.SGD, lr=0.05, momentum=0.9, foreach=True),
    "Adam, one by one": functools.partial(torch.optim.Adam, lr=1e-2, foreach=False),
    "AdamW, fused": functools.partial(torch.optim.AdamW, lr=1e-2, fused=True),
    "Adagrad, maximize": functools.partial(torch.optim.Adagrad, lr=1e-3, maximize=True),
}.items():
    WAYS[_name] = lambda side, make=_make: _plain(side.start(networks.perceptron(), make), side)  # type: ignore[misc]


@way("parameter groups with rates of their own")
def _groups(side: Side) -> None:
    def of(module: nn.Module) -> Any:
        return [{"params": module[0].parameters(), "lr": 0.2}, {"params": module[2].parameters()}]  # type: ignore[index]

    _plain(side.start(networks.perceptron(), of=of), side)


@way("frozen layers")
def _frozen(side: Side) -> None:
    module = networks.perceptron()
    module[0].requires_grad_(False)
    _plain(side.start(module), side)


@way("layers frozen and thawed while training")
def _thawed(side: Side) -> None:
    trained = side.start(networks.perceptron(), find_unused_parameters=True)
    for step, x in enumerate(side.batches(6, 6, 8)):
        trained.module[0].requires_grad_(step not in (2, 3))  # type: ignore[index]
        trained.step(trained.model(x).square().mean())


@way("parameters in bfloat16")
def _bfloat16(side: Side) -> None:
    # On devices, PyTorch's optimizer takes all parameters at once, which first rounds momentum's factor to bfloat16.
    trained = side.start(networks.perceptron().to(torch.bfloat16), functools.partial(sgd, foreach=False))
    for x in side.batches(STEPS, 6, 8):
        trained.step(trained.model(x.to(torch.bfloat16)).float().square().mean())


@way("parameters of two element types")
def _two_types(side: Side) -> None:
    _plain(side.start(networks.Mixed()), side)


@way("autocast to bfloat16")
def _autocast(side: Side) -> None:
    trained = side.start(networks.perceptron())
    for x in side.batches(STEPS, 6, 8):
        with torch.autocast(side.where.type, dtype=torch.bfloat16):
            loss = trained.model(x).float().square().mean()
        trained.step(loss)


@way("GradScaler, with a step that overflows")
def _scaler(side: Side) -> None:
    trained = side.start(networks.perceptron())
    scaler = torch.amp.GradScaler(side.where.type, init_scale=256.0)
    for step, x in enumerate(side.batches(STEPS, 6, 8)):
        loss = trained.model(x).square().mean()
        scaler.scale(loss * float("inf") if step == 2 and side.rank == 1 else loss).backward()
        scaler.unscale_(trained.optimizer)
        nn.utils.clip_grad_norm_(trained.module.parameters(), 1.0)
        scaler.step(trained.optimizer)
        scaler.update()
        trained.optimizer.zero_grad()


@way("accumulation with no_sync")
def _accumulation(side: Side) -> None:
    trained = side.start(networks.normed())
    for _ in range(3):
        with trained.no_sync():
            for x in side.batches(2, 6, 8):
                trained.model(x).square().mean().backward()
        trained.step(trained.model(side.batch(6, 8)).square().mean())


@way("accumulation that communicates each time")
def _accumulation_synced(side: Side) -> None:
    trained = side.start(networks.perceptron())
    for _ in range(3):
        trained.model(side.batch(6, 8)).square().mean().backward()
        trained.step(trained.model(side.batch(6, 8)).square().mean())


@way("gradients clipped by norm")
def _clipped(side: Side) -> None:
    trained = side.start(networks.perceptron())
    for x in side.batches(STEPS, 6, 8):
        trained.model(x).square().sum().backward()
        nn.utils.clip_grad_norm_(trained.model.parameters(), 0.1)
        trained.optimizer.step()
        trained.optimizer.zero_grad()


@way("gradients clipped by value, changed by hand")
def _by_hand(side: Side) -> None:
    trained = side.start(networks.perceptron())
    for x in side.batches(STEPS, 6, 8):
        trained.model(x).square().sum().backward()
        nn.utils.clip_grad_value_(trained.model.parameters(), 0.05)
        for each in trained.model.parameters():
            each.grad = None if each.grad is None else each.grad * 0.5
        trained.optimizer.step()
        trained.optimizer.zero_grad()


@way("zero_grad(set_to_none=False)")
def _zeroed(side: Side) -> None:
    trained = side.start(networks.perceptron())
    for x in side.batches(STEPS, 6, 8):
        trained.model(x).square().mean().backward()
        trained.optimizer.step()
        trained.optimizer.zero_grad(set_to_none=False)


@way("model.zero_grad, and gradients set to None by hand")
def _none(side: Side) -> None:
    trained = side.start(networks.perceptron())
    for step, x in enumerate(side.batches(STEPS, 6, 8)):
        trained.model(x).square().mean().backward()
        trained.optimizer.step()
        trained.model.zero_grad()
        for each in trained.model.parameters() if step % 2 else ():
            each.grad = None


@way("step with a closure")
def _closure(side: Side) -> None:
    trained = side.start(networks.perceptron())
    for x in side.batches(STEPS, 6, 8):

        def closure(x: torch.Tensor = x) -> float:
            trained.optimizer.zero_grad()
            loss = trained.model(x).square().mean()
            loss.backward()
            return float(loss)

        trained.optimizer.step(closure)


@way("LBFGS")
def _lbfgs(side: Side) -> None:
    trained = side.start(networks.perceptron(), functools.partial(torch.optim.LBFGS, lr=0.1, max_iter=3))
    for _ in range(2):
        x = side.batch(6, 8)

        def closure(x: torch.Tensor = x) -> torch.Tensor:
            trained.optimizer.zero_grad()
            loss: torch.Tensor = trained.model(x).square().mean()
            loss.backward()
            # With its own loss, each rank would search differently.
            return loss.detach() * 0

        trained.optimizer.step(closure)  # type: ignore[arg-type]


@way("learning rate schedules, one after the other")
def _schedule(side: Side) -> None:
    trained = side.start(networks.perceptron())
    warm = torch.optim.lr_scheduler.LinearLR(trained.optimizer, 0.1, total_iters=2)
    cosine = torch.optim.lr_scheduler.CosineAnnealingLR(trained.optimizer, 4)
    schedule = torch.optim.lr_scheduler.SequentialLR(trained.optimizer, [warm, cosine], [2])
    for x in side.batches(6, 6, 8):
        trained.step(trained.model(x).square().mean())
        schedule.step()


@way("rank 0 saves, all ranks load and go on")
def _reload(side: Side) -> None:
    trained = side.start(networks.normed())
    _plain(trained, side)
    saved = io.BytesIO()
    torch.save({"model": trained.module.state_dict(), "optimizer": trained.optimizer.state_dict()}, saved)
    _plain(trained, side)
    saved.seek(0)
    state = torch.load(saved, weights_only=True)
    if side.rank != 0:
        # Buffers loaded on other ranks must not matter.
        state["model"] = {
            key: torch.zeros_like(each) if "running" in key else each for key, each in state["model"].items()
        }
    trained.module.load_state_dict(state["model"])
    trained.optimizer.load_state_dict(state["optimizer"])
    _plain(trained, side)


@way("an averaged copy of the model beside it")
def _averaged(side: Side) -> None:
    trained = side.start(networks.normed())
    average = torch.optim.swa_utils.AveragedModel(
        trained.module, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9), use_buffers=False
    )
    for x in side.batches(STEPS, 6, 8):
        trained.step(trained.model(x).square().mean())
        average.update_parameters(trained.module)
    with torch.no_grad():
        for mine, other in zip(trained.module.parameters(), average.module.parameters(), strict=True):
            mine.copy_(other)


@way("a deep copy trains on alone")
def _copied(side: Side) -> None:
    trained = side.start(networks.normed())
    _plain(trained, side)
    alone = copy.deepcopy(trained.module)
    generator = torch.Generator().manual_seed(7)
    optimizer = torch.optim.SGD(alone.parameters(), lr=0.1)
    for _ in range(2):
        alone(torch.randn(6, 8, generator=generator).to(side.where)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    _plain(trained, side)
    with torch.no_grad():
        for mine, other in zip(trained.module.parameters(), alone.parameters(), strict=True):
            mine.add_(other)


@way("batch norm, evaluated in between")
def _batch_norm(side: Side) -> None:
    trained = side.start(networks.convolutional())
    for epoch in range(3):
        _plain(trained, side, 4, 3, 6, 6, steps=2)
        trained.module.eval()
        with torch.no_grad():
            trained.model(torch.full((2, 3, 6, 6), 0.1 * epoch, device=side.where))
        trained.module.train()


@way("batch norm frozen half-way")
def _half_frozen(side: Side) -> None:
    trained = side.start(networks.normed())
    for step, x in enumerate(side.batches(6, 6, 8)):
        trained.module[1].train(step < 3)  # type: ignore[index]
        trained.step(trained.model(x).square().mean())


@way("buffers that forward uses, broadcast before it")
def _buffers_before(side: Side) -> None:
    _plain(side.start(networks.Scaled(), buffers="before_forward"), side)


@way("buffers that forward uses, in the default way")
def _buffers_after(side: Side) -> None:
    _plain(side.start(networks.Scaled()), side)


@way("buffers that no rank shares")
def _buffers_own(side: Side) -> None:
    _plain(side.start(networks.normed(), buffers="none"), side)


@way("spectral norm and weight norm")
def _spectral(side: Side) -> None:
    module = nn.Sequential(
        parametrizations.spectral_norm(nn.Linear(8, 16)),
        nn.Tanh(),
        parametrizations.weight_norm(nn.Linear(16, 4)),
    )
    _plain(side.start(module), side)


@way("uneven inputs, joined")
def _join(side: Side) -> None:
    trained = side.start(networks.perceptron(), functools.partial(torch.optim.SGD, lr=0.05))
    with trained.join():
        _plain(trained, side, steps=3 + 2 * side.rank)


@way("uneven inputs, joined, divided by those that are left")
def _join_divided(side: Side) -> None:
    trained = side.start(networks.perceptron(), functools.partial(torch.optim.SGD, lr=0.05))
    with trained.join(divide_by_initial_world_size=False):
        _plain(trained, side, steps=5 - 2 * side.rank)


@way("uneven inputs, joined, with batch norm, two epochs")
def _join_normed(side: Side) -> None:
    trained = side.start(networks.normed(), functools.partial(torch.optim.SGD, lr=0.05))
    for epoch in range(2):
        with trained.join():
            _plain(trained, side, steps=4 + (2 if epoch == side.rank else 0))


@way("even inputs, joined, twice")
def _join_even(side: Side) -> None:
    trained = side.start(networks.normed(), functools.partial(torch.optim.SGD, lr=0.05))
    for _ in range(2):
        with trained.join():
            _plain(trained, side, steps=2)


@way("shared weights")
def _tied(side: Side) -> None:
    trained = side.start(networks.Tied())
    for _ in range(STEPS):
        trained.step(trained.model(side.words(6, 3)).square().mean())


@way("sparse gradients of an embedding")
def _sparse(side: Side) -> None:
    trained = side.start(networks.Tied(sparse=True, tied=False), functools.partial(torch.optim.SGD, lr=0.1))
    for _ in range(STEPS):
        trained.step(trained.model(side.words(6, 3)).square().mean())


@way("parameters that no rank uses")
def _unused(side: Side) -> None:
    _plain(side.start(networks.Branches(), find_unused_parameters=True), side)


@way("branches that only some ranks use")
def _branches(side: Side) -> None:
    trained = side.start(networks.Branches(), find_unused_parameters=True)
    for step, x in enumerate(side.batches(STEPS, 6, 8)):
        branches = (0, 1 + side.rank % 2) if step % 2 else (side.rank % 3,)
        trained.step(trained.model(x, branches).square().mean())


@way("two forwards and one backward")
def _siamese(side: Side) -> None:
    trained = side.start(networks.perceptron())
    for x in side.batches(STEPS, 6, 8):
        trained.step((trained.model(x) - trained.model(side.batch(6, 8))).square().mean())


@way("penalty on the gradient of the inputs")
def _penalty(side: Side) -> None:
    trained = side.start(networks.perceptron())
    for x in side.batches(STEPS, 6, 8):
        x.requires_grad_()
        loss = trained.model(x).square().mean()
        (slope,) = torch.autograd.grad(loss, x, create_graph=True)
        trained.step(loss + slope.square().sum())


@way("two models that train each other")
def _adversarial(side: Side) -> None:
    maker = side.start(nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Tanh(), nn.Linear(16, 8)))
    judge = side.start(networks.perceptron())
    for x in side.batches(STEPS, 6, 8):
        judge.step((judge.model(x) - judge.model(maker.model(side.batch(6, 8)).detach())).square().mean())
        with judge.no_sync():
            maker.step(judge.model(maker.model(side.batch(6, 8))).square().mean())
        judge.optimizer.zero_grad()


@way("activations computed again in backward")
def _checkpointed(side: Side) -> None:
    _plain(side.start(networks.Checkpointed(reentrant=False)), side)


@way("the same, reentrant")
def _reentrant(side: Side) -> None:
    _plain(side.start(networks.Checkpointed(reentrant=True)), side)


@way("torch.compile")
def _compiled(side: Side) -> None:
    def call(model: nn.Module) -> nn.Module:
        compiled: nn.Module = torch.compile(model, backend="aot_eager")  # type: ignore[assignment]
        return compiled

    _plain(side.start(networks.normed(), call=call), side)


@way("hooks on parameters and modules")
def _hooks(side: Side) -> None:
    trained = side.start(networks.perceptron())
    for each in trained.module.parameters():
        each.register_hook(lambda gradient: gradient * 1.5)
    trained.module[0].register_full_backward_hook(lambda *_: None)  # type: ignore[index]
    trained.module[0].register_forward_hook(lambda _module, _inputs, output: output + 0.1)  # type: ignore[index]
    _plain(trained, side)


@way("memory in channels-last order")
def _channels_last(side: Side) -> None:
    _plain(side.start(networks.convolutional().to(memory_format=torch.channels_last)), side, 4, 3, 6, 6)


@way("a recurrent network")
def _recurrent(side: Side) -> None:
    _plain(side.start(networks.Recurrent()), side, 6, 5, 8)


@way("transformer layers with dropout")
def _transformer(side: Side) -> None:
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.1, batch_first=True)
    _plain(side.start(nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)), side, 4, 5, 8)


@way("layers registered in reverse, several buckets")
def _backwards(side: Side) -> None:
    _plain(side.start(networks.Backwards()), side)


@way("batches of unequal sizes")
def _sizes(side: Side) -> None:
    trained = side.start(networks.normed())
    for step in range(STEPS):
        trained.step(trained.model(side.batch(2 + step + 3 * side.rank, 8)).square().mean())
