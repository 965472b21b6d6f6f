"""Training with gates ends at the bits of training without, and waits for no more than it must."""

import copy
import pickle

import pytest
import torch
from torch import nn

from hocket.torch import optimizers
from tests.torch.gated import (
    STEPS,
    Odd,
    Wire,
    encoder,
    flat,
    gated,
    groups,
    in_pairs,
    inputs,
    per_parameter,
    perceptron,
    same,
    values,
    weights_only,
)

OPTIMIZERS = [
    *((name, {}) for name in sorted(optimizers.PER_PARAMETER) if hasattr(torch.optim, name)),
    ("SGD", {"momentum": 0.9, "nesterov": True, "weight_decay": 0.01}),
    ("SGD", {"momentum": 0.9, "foreach": True}),
    ("SGD", {"momentum": 0.9, "fused": True}),
    ("RMSprop", {"momentum": 0.9, "centered": True}),
    ("Adam", {"amsgrad": True, "weight_decay": 0.1}),
    ("Adam", {"foreach": True}),
    ("AdamW", {"foreach": False}),
    ("AdamW", {"fused": True}),
    ("Adagrad", {"fused": True}),
    ("NAdam", {"foreach": True, "decoupled_weight_decay": True}),
]


@pytest.mark.parametrize(("name", "options"), OPTIMIZERS, ids=str)
@pytest.mark.parametrize("scheduler", ["before", "after"])
def test_every_optimizer_ends_at_the_same_bits(name, options, scheduler):
    """Training with gates would be another training."""

    def optimizer(model):
        made = groups(model, getattr(torch.optim, name), **options)
        if scheduler == "before":
            made.schedule = torch.optim.lr_scheduler.ExponentialLR(made, 0.5)
        return made

    def before(run):
        if not hasattr(run.optimizer, "schedule"):
            run.optimizer.schedule = torch.optim.lr_scheduler.ExponentialLR(run.optimizer, 0.5)

    def after(run):
        run.optimizer.schedule.step()
        if run.wire:
            assert run.wire.gates.barrier_reason is None
            assert run.wire.gates.closed
        if run.step == STEPS - 1:
            return flat(run.optimizer)
        return None

    same(weights_only if name == "Muon" else perceptron, optimizer, before=before, after=after)


@pytest.mark.parametrize("set_to_none", [False, True])
def test_the_usual_loop_overlaps(set_to_none):
    """Forward would wait for the last layer's gradients before it starts the first layer."""
    model = perceptron()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    wire = Wire(model, optimizer)
    for name in (0, 2, 4):
        model[name].register_forward_pre_hook(lambda *_, name=name: wire.events.append(f"layer {name}"))
    for step in range(3):
        wire.backward(model(inputs(step)).sum())
        optimizer.step()
        optimizer.zero_grad(set_to_none)
        wire.events.clear()
    model(inputs(0))
    assert wire.events == [4, 5, "layer 0", 2, 3, "layer 2", 0, 1, "layer 4"]


@pytest.mark.parametrize("set_to_none", [True, False])
@pytest.mark.parametrize("whose", ["optimizer", "model"])
def test_gradients_are_zeroed_after_their_step(set_to_none, whose):
    """A zero_grad that was put off would lose gradients under way, or add those of two steps."""

    def after(run):
        getattr(run, whose).zero_grad(set_to_none)
        assert not run.wire or run.wire.gates.closed

    same(after=after, zero=False)


def test_zero_grad_without_a_step_waits():
    """The reduction would write gradients of a skipped step into the next."""
    model, optimizer, wire = gated()
    wire.backward(model(inputs(0)).sum())
    optimizer.zero_grad()
    assert len(wire.events) == 6
    assert all(each.grad is None for each in model.parameters())


def test_accumulation():
    """Backward passes without communication would be refused, or stepped with."""

    def after(run):
        run.optimizer.zero_grad()
        loss = run.model(inputs(100 + run.step)).square().sum()
        if run.wire:
            run.wire.gates.backward_began()
        loss.backward()

    same(after=after, zero=False)


def attention():
    class SelfAttention(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.inner = nn.MultiheadAttention(4, 2)

        def forward(self, x):
            return self.inner(x, x, x)[0]

    return SelfAttention()


def parametrised():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.utils.parametrizations.weight_norm(nn.Linear(4, 4)), nn.utils.spectral_norm(nn.Linear(4, 4))
    )


MODELS = [(Odd, (3, 4)), (encoder, (2, 3, 4)), (attention, (3, 2, 4)), (parametrised, (3, 4))]


@pytest.mark.parametrize(("model", "shape"), MODELS)
@pytest.mark.parametrize("buckets", [per_parameter, in_pairs])
def test_whoever_uses_a_parameter_waits_for_it(model, shape, buckets):
    """A layer would compute with the parameters of the step before."""
    same(model, buckets=buckets, shape=shape)


def test_gates_open_where_parameters_are_used_not_where_they_live():
    """The gate of a borrowed, tied or unused parameter would open too late."""
    model = Odd()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    wire = Wire(model, optimizer, [[each] for each in model.parameters()])
    names = [name for name, _ in model.named_parameters()]
    for name, module in model.named_children():
        module.register_forward_pre_hook(lambda *_, name=name: wire.events.append(name))
    for step in range(2):
        optimizer.zero_grad()
        wire.backward(model(inputs(step)).sum())
        optimizer.step()
        wire.events.clear()
    model(inputs(0))
    order = [each if isinstance(each, str) else names[each] for each in wire.events]
    at = order.index
    early = ["borrowed.weight", "second.bias", "unused.weight", "offset", "first.weight", "first.bias"]
    assert max(map(at, early)) < at("first") < at("second.weight") < at("second") < at("third.bias")
    assert at("third") < at("recurrent.weight_ih_l0") < at("recurrent")


READERS = {
    "state_dict": lambda run: list(run.model.state_dict().values()),
    "state_dict of a layer": lambda run: list(run.model[4].state_dict().values()),
    "parameters": lambda run: list(run.model.parameters()),
    "deepcopy": lambda run: values(copy.deepcopy(run.model)),
    "deepcopy of a layer": lambda run: values(copy.deepcopy(run.model[4])),
    "pickle": lambda run: values(pickle.loads(pickle.dumps(run.model))),  # noqa: S301
    "forward without gradients": lambda run: [torch.no_grad()(run.model)(inputs(9))],
    "forward in inference mode": lambda run: [torch.inference_mode()(run.model)(inputs(9)).clone()],
    "forward of a layer": lambda run: [run.model[4](inputs(9, (3, 8)))],
    "optimizer": lambda run: [flat(run.optimizer)],
    "deepcopy of the optimizer": lambda run: copy.deepcopy(run.optimizer).param_groups[0]["params"],
}


@pytest.mark.parametrize("reader", READERS)
def test_readers_see_applied_values(reader):
    """A checkpoint, a copy or an evaluation would be of a mixture of two steps."""

    def after(run):
        run.optimizer.zero_grad()
        if run.step % 2:
            return None
        return torch.cat([each.detach().flatten().clone() for each in READERS[reader](run)])

    same(after=after)
