"""What ranks of `test_gradients.py` do: training scripts that treat gradients as PyTorch lets them, on DDP and on Hocket.

A way gets a `Side`, on which it trains `Parts`.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from tests.torch.gradient_side import Parts, Side, adamw, momentum, rank, world

STEPS = 4

WAYS: dict[str, Callable[[Side], None]] = {}
WITHOUT: dict[str, tuple[str, ...]] = {}


def way(*without: str) -> Callable[[Callable[[Side], None]], Callable[[Side], None]]:
    """Adds it to the table. `without`: kinds that refuse it, or in which it is another training."""

    def add(function: Callable[[Side], None]) -> Callable[[Side], None]:
        WAYS[function.__name__] = function
        WITHOUT[function.__name__] = without
        return function

    return add


@way("owners")
def two_optimizers_in_a_loop(side: Side) -> None:
    """`for each: step(), zero_grad()`: the second must still have its gradients."""
    module = Parts()
    matrices = [each for each in module.parameters() if each.dim() == 2]
    others = [each for each in module.parameters() if each.dim() != 2]
    both = momentum(matrices), adamw(others)
    model = side.start(module, *both)
    for _ in range(STEPS):
        model(side.batch()).backward()
        for each in both:
            each.step()
            each.zero_grad()
            side.missing()
        side.values()


@way("owners")
def two_optimizers_the_other_way_round(side: Side) -> None:
    """The one that Hocket knows comes last."""
    module = Parts()
    matrices = [each for each in module.parameters() if each.dim() == 2]
    others = [each for each in module.parameters() if each.dim() != 2]
    known, other = momentum(matrices), adamw(others)
    model = side.start(module, known, other)
    for step in range(STEPS):
        for each in (other, known) if step % 2 else (known, other):
            each.zero_grad(set_to_none=step < 2)
        side.missing()
        side.look()
        model(side.batch()).backward()
        for each in (other, known):
            each.step()
            each.zero_grad(set_to_none=step % 2 == 0)
            side.look()
        side.values()


@way("owners")
def two_losses_in_one_module(side: Side) -> None:
    """As a discriminator and a generator: each optimizer zeroes and steps what is its own, and gradients of the other add up."""
    module = Parts()
    own = {"second": momentum(module.second.parameters()), "spare": adamw(module.spare.parameters())}
    model = side.start(module, *own.values())
    for step in range(2 * STEPS):
        part = ("second", "spare")[step % 2]
        own[part].zero_grad(set_to_none=step % 3 > 0)
        model(side.batch(), part).backward()
        own[part].step()
        side.look()
        side.values()


def _skips(side: Side, set_to_none: bool, make: Callable[[Any], torch.optim.Optimizer]) -> None:
    module = Parts()
    optimizer = make(module.parameters())
    model = side.start(module, optimizer)
    for step in range(2 * STEPS):
        optimizer.zero_grad(set_to_none=set_to_none)
        if set_to_none:
            side.missing()
        if step not in (0, 3, 4):
            model(side.batch()).backward()
        optimizer.step()
        side.look()
        side.values()


@way()
def steps_without_a_backward(side: Side) -> None:
    """Warm-up and skipped batches: nothing moves."""
    _skips(side, True, adamw)


@way()
def steps_without_a_backward_by_momentum(side: Side) -> None:
    _skips(side, True, momentum)


@way()
def steps_without_a_backward_on_zeros(side: Side) -> None:
    """Momentum and decay move parameters, as their gradients are zeros."""
    _skips(side, False, momentum)


@way()
def unused_with_zeros(side: Side) -> None:
    """A part that nobody uses any more is stepped on zeros."""
    module = Parts()
    optimizer = momentum(module.parameters())
    model = side.start(module, optimizer)
    for step in range(2 * STEPS):
        model(side.batch(), "spare" if step in (0, 4) else "second").backward()
        side.look()
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)
        side.values()


@way()
def unused_with_none(side: Side) -> None:
    """And not at all where its gradients are None, unless another rank has used it."""
    module = Parts()
    optimizer = adamw(module.parameters())
    model = side.start(module, optimizer)
    for step in range(2 * STEPS):
        part = "spare" if step == 0 or (step == 3 and rank() == 0) else "second"
        model(side.batch(), part).backward()
        side.look()
        optimizer.step()
        optimizer.zero_grad()
        side.missing()
        side.values()


@way()
def a_loss_of_nothing_that_trains(side: Side) -> None:
    """No gradient is made, so nothing is sent, and nothing moves."""
    module = Parts()
    optimizer = adamw(module.parameters())
    model = side.start(module, optimizer)
    for step in range(STEPS):
        optimizer.zero_grad()
        if step % 2:
            # Around DDP, which waits for a gradient after each of its forwards.
            module(side.batch(), "none").backward()
        else:
            model(side.batch()).backward()
        side.look()
        optimizer.step()
        side.values()


@way()
def gradients_taken_by_hand(side: Side) -> None:
    """`grad = None` for some, the model's `zero_grad` for all, of either kind."""
    module = Parts()
    optimizer = momentum(module.parameters())
    model = side.start(module, optimizer)
    for step in range(2 * STEPS):
        if step % 4 == 1:
            for name, each in module.named_parameters():
                if "bias" in name:
                    each.grad = None
                elif each.grad is not None:
                    each.grad.zero_()
        elif step % 4 == 3:
            module.second.zero_grad(set_to_none=False)
            module.first.zero_grad()
            module.never.grad = None
            module.spare.zero_grad()
        else:
            module.zero_grad(set_to_none=step % 4 == 0)
        side.look()
        if step != 6:
            model(side.batch()).backward()
        optimizer.step()
        side.values()


@way()
def accumulation(side: Side) -> None:
    """Without communication, with parts that only some of the backwards use, and what was accumulated thrown away once."""
    module = Parts()
    optimizer = momentum(module.parameters())
    model = side.start(module, optimizer)
    for step in range(STEPS):
        # With DDP, what only backwards without communication have used is never reduced.
        with model.no_sync():  # type: ignore[operator]
            model(side.batch()).backward()
            if step == 1:
                optimizer.zero_grad()
            model(side.batch()).backward()
        model(side.batch()).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=step != 2)
        side.values()


@way("owners", "gates")
def accumulation_that_communicates(side: Side) -> None:
    """Gradients are not zeroed between two backwards: means add up."""
    module = Parts()
    optimizer = momentum(module.parameters())
    model = side.start(module, optimizer)
    for step in range(STEPS):
        model(side.batch()).backward()
        model(side.batch(), "spare").backward()
        side.look()
        optimizer.step()
        optimizer.zero_grad(set_to_none=step != 2)
        side.values()


@way("gates", "owners")
def a_scaler_that_skips(side: Side) -> None:
    """A step is skipped as one gradient is infinite."""
    module = Parts()
    optimizer = momentum(module.parameters())
    model = side.start(module, optimizer)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    for step in range(2 * STEPS):
        loss = model(side.batch()) * (float("inf") if step == 2 and rank() == 0 else 1.0)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        side.missing()
        side.values()


@way()
def frozen_and_thawed(side: Side) -> None:
    """A part is frozen with and without a gradient that is left, and thawed."""
    module = Parts()
    optimizer = momentum(module.parameters())
    model = side.start(module, optimizer)
    for step in range(2 * STEPS):
        module.first.requires_grad_(step not in (2, 3, 5))
        model(side.batch()).backward()
        side.look()
        optimizer.step()
        optimizer.zero_grad(set_to_none=step != 4)
        side.values()


@way()
def gradients_from_before(side: Side) -> None:
    """What a script has in `grad` before it distributes a model stays there, and counts."""
    module = Parts()
    optimizer = momentum(module.parameters())
    module(torch.full((2, 4), 1.0 + rank())).backward()
    model = side.start(module, optimizer)
    side.seen.append([each.grad is None for each in module.parameters()])
    model(side.batch()).backward()
    optimizer.step()
    optimizer.zero_grad()
    side.values()


@way("owners")
def lbfgs(side: Side) -> None:
    module = Parts()
    optimizer = torch.optim.LBFGS(module.parameters(), lr=0.1, max_iter=3)
    model = side.start(module, optimizer)
    for _ in range(2):
        batch = side.batch()

        def closure(batch: torch.Tensor = batch) -> torch.Tensor:
            optimizer.zero_grad()
            loss: torch.Tensor = model(batch)
            loss.backward()
            # Each rank's own loss would make each search in its own way.
            return loss.detach() * 0

        optimizer.step(closure)
        side.values()


def _clip(parameter: torch.Tensor) -> None:
    assert parameter.grad is not None
    parameter.grad.clamp_(-0.02, 0.02)


def _scale(parameter: torch.Tensor) -> None:
    assert parameter.grad is not None
    parameter.grad = parameter.grad * (2.0 + rank())


def _hooked(side: Side, change: Callable[[torch.Tensor], None], *, before: bool) -> None:
    module = Parts()
    optimizer = momentum(module.parameters())

    def hook() -> list[Any]:
        return [each.register_post_accumulate_grad_hook(change) for each in module.parameters()]

    handles = hook() if before else []
    model = side.start(module, optimizer)
    for step in range(2 * STEPS):
        if not before and step % 2:
            handles = hook()
        model(side.batch(), "spare" if step == 2 and rank() == 0 else "second").backward()
        side.look()
        optimizer.step()
        optimizer.zero_grad(set_to_none=step % 3 > 0)
        side.values()
        if not before:
            for each in handles:
                each.remove()


@way()
def hooks_that_clip_before(side: Side) -> None:
    _hooked(side, _clip, before=True)


@way()
def hooks_that_clip_after(side: Side) -> None:
    """The same where the script registers them after the model is distributed, and anew in every other step."""
    _hooked(side, _clip, before=False)


@way()
def hooks_that_replace_before(side: Side) -> None:
    _hooked(side, _scale, before=True)


@way()
def hooks_that_replace_after(side: Side) -> None:
    _hooked(side, _scale, before=False)


@way()
def hooks_of_some(side: Side) -> None:
    """One parameter's gradient is complete later than it was, the others come in the middle of backward."""
    module = Parts()
    optimizer = momentum(module.parameters())
    model = side.start(module, optimizer)
    for step in range(STEPS):
        if step == 1:
            module.second.weight.register_post_accumulate_grad_hook(_scale)
        if step == 2:
            module.first.bias.register_post_accumulate_grad_hook(_clip)
        with model.no_sync() if step == 1 else contextlib.nullcontext():  # type: ignore[operator]
            model(side.batch()).backward()
        if step == 1:
            model(side.batch()).backward()
        side.look()
        optimizer.step()
        optimizer.zero_grad()
        side.values()


@way("owners", "gates")
def gradients_changed_after_backward(side: Side) -> None:
    """By each rank in the same way: in place, replaced, taken away."""
    module = Parts()
    optimizer = momentum(module.parameters())
    model = side.start(module, optimizer)
    for _ in range(STEPS):
        model(side.batch()).backward()
        nn.utils.clip_grad_norm_(module.parameters(), 0.1)
        assert module.second.bias.grad is not None
        assert module.second.weight.grad is not None
        module.second.bias.grad = module.second.bias.grad.sign()
        module.second.weight.grad.add_(0.01)
        module.first.bias.grad = None
        optimizer.step()
        optimizer.zero_grad()
        side.values()


@way("owners")
def gradients_that_have_a_graph(side: Side) -> None:
    """`create_graph`, as for a penalty on gradients, which DDP does not survive."""
    module = Parts()
    optimizer = momentum(module.parameters())
    model = side.start(module, optimizer)
    for _ in range(STEPS):
        model(side.batch()).backward(create_graph=side.kind != "ddp")
        optimizer.step()
        optimizer.zero_grad()
        side.values()


def trained(kind: str, name: str) -> list[Any]:
    side = Side(kind)
    if kind == "ddp" and not dist.is_initialized():
        address = f"tcp://127.0.0.1:{os.environ['GLOO_PORT']}"
        dist.init_process_group("gloo", init_method=address, rank=rank(), world_size=world())
    WAYS[name](side)
    return side.seen
