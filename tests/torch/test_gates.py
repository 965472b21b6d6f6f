"""Gates in one process: a bucket's gradients are NaN from the end of backward until somebody waits for it."""

import copy
import io
import os
import pickle
from functools import partial
from types import SimpleNamespace

import pytest

import torch
from hocket.errors import PeerError, UsageError
from hocket.torch import optimizers
from hocket.torch.gates import Gates, clip_grad_norm_
from torch import nn

STEPS = 5


class Wire:
    """Stands for the session: keeps true gradients aside until `wait`, and says what happened in which order."""

    def __init__(self, model, optimizer, buckets=None, zero=False):
        self.buckets = buckets or per_parameter(model)
        self.kept = {}
        self.events = []
        self.dead = set()
        self.gates = Gates(model, optimizer, self.buckets, self.wait, self.zero if zero else None)

    def wait(self, bucket):
        if bucket in self.dead:
            raise PeerError("rank 3 died")
        if bucket in self.kept:
            self.events.append(bucket)
            for parameter, gradient in zip(self.buckets[bucket], self.kept.pop(bucket), strict=True):
                parameter.grad = gradient

    def zero(self, bucket):
        for parameter in self.buckets[bucket]:
            parameter.grad = torch.zeros_like(parameter)

    def backward(self, loss):
        self.gates.backward_began()
        loss.backward()
        for index, bucket in enumerate(self.buckets):
            self.kept[index] = [each.grad for each in bucket]
            for each in bucket:
                # As in memory that is being reduced: something is there, but not the gradient.
                each.grad = torch.full_like(each, torch.nan)
        self.gates.backward_ended()


def per_parameter(model):
    """The last parameter first, as backward makes them."""
    return [[each] for each in reversed(list(model.parameters()))]


def in_pairs(model):
    ordered = list(reversed(list(model.parameters())))
    return [ordered[at : at + 2] for at in range(0, len(ordered), 2)]


def perceptron():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 2))


def inputs(step, shape=(3, 4)):
    return torch.randn(shape, generator=torch.Generator().manual_seed(step))


def values(model):
    # Around the gates, so that looking does not open them.
    return [each.detach().clone() for each in type(model).parameters(model)]


def assert_same(found, expected):
    for ours, theirs in zip(found, expected, strict=True):
        assert torch.equal(ours, theirs)


def gated(model=perceptron, kind=torch.optim.SGD, **options):
    """A model with gates, and its optimizer."""
    made = model()
    optimizer = kind(made.parameters(), lr=0.1, **options)
    return made, optimizer, Wire(made, optimizer)


def train(gated, model, optimizer, *, buckets=in_pairs, shape=(3, 4), before=None, after=None, zero=True):
    """Parameters after some steps, and what `after` returned; `before` and `after` `step()` get a Run."""
    run = Run()
    run.model = model()
    run.optimizer = optimizer(run.model)
    run.wire = Wire(run.model, run.optimizer, buckets(run.model)) if gated else None
    seen = []
    for run.step in range(STEPS):
        if zero:
            run.optimizer.zero_grad()
        run.backward(run.model(inputs(run.step, shape)).square().sum())
        if before:
            before(run)
        run.optimizer.step()
        if after:
            seen.append(after(run))
    if gated:
        run.wire.gates.open_all()
    return [*values(run.model), *(torch.as_tensor(each) for each in seen if each is not None)]


def flat(optimizer):
    """All tensors of the optimizer's state."""
    state = [each for _, each in sorted(optimizer.state_dict()["state"].items())]
    kept = [each[key] for each in state for key in sorted(each) if isinstance(each[key], torch.Tensor)]
    return torch.cat([each.flatten() for each in [torch.zeros(0), *kept]])


class Run(SimpleNamespace):
    """A loop at one of its steps; `wire` is None in the plain loop."""

    def backward(self, loss):
        if self.wire:
            self.wire.backward(loss)
        else:
            loss.backward()


def same(model=perceptron, optimizer=None, **options):
    """The loop with gates ends at the bits of the plain one."""
    optimizer = optimizer or partial(groups, kind=torch.optim.SGD, momentum=0.9)
    assert_same(*(train(gated, model, optimizer, **options) for gated in (True, False)))


def groups(model, kind, **options):
    parameters = list(model.parameters())
    if kind is getattr(torch.optim, "Muon", None):
        parameters = [each for each in parameters if each.ndim == 2]
    return kind([{"params": parameters[::2]}, {"params": parameters[1::2], "lr": 0.003}], lr=0.01, **options)


def weights_only():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(4, 8, bias=False), nn.Tanh(), nn.Linear(8, 8, bias=False), nn.Linear(8, 2, bias=False)
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


@pytest.mark.parametrize("zero", [False, True])
def test_the_usual_loop_overlaps(zero):
    """Forward would wait for the last layer's gradients before it starts the first layer."""
    model = perceptron()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    wire = Wire(model, optimizer, zero=zero)
    for name in (0, 2, 4):
        model[name].register_forward_pre_hook(lambda *_, name=name: wire.events.append(f"layer {name}"))
    for step in range(3):
        wire.backward(model(inputs(step)).sum())
        optimizer.step()
        optimizer.zero_grad()
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


class Odd(nn.Module):
    """Parameters used by other modules than theirs, by two, by none, by the root."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.Linear(4, 4)
        self.second = nn.Linear(4, 4)
        self.third = nn.Linear(4, 4)
        self.third.weight = self.first.weight
        self.borrowed = nn.Linear(4, 4, bias=False)
        self.unused = nn.Linear(4, 4)
        self.offset = nn.Parameter(torch.ones(4))
        self.kept_view = self.second.bias.detach()
        self.recurrent = nn.LSTM(4, 4)

    def forward(self, x):
        x = self.first(x) * self.kept_view
        x = self.second(x) @ self.borrowed.weight
        x = self.third(torch.tanh(x)) + self.offset
        return self.recurrent(x[None])[0]


def encoder():
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(4, 2, dim_feedforward=8, dropout=0.0, batch_first=True)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)


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


def test_evaluation_between_steps():
    """TransformerEncoderLayer takes another way in evaluation, past its children's gates."""

    def after(run):
        run.model.eval()
        with torch.no_grad():
            output = run.model(inputs(100, (2, 3, 4)))
        run.model.train()
        return output

    same(encoder, shape=(2, 3, 4), after=after)


def test_loading_is_not_stepped_over():
    """A step that was put off would be applied to the parameters of the checkpoint."""
    model = perceptron()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    saved = copy.deepcopy(model.state_dict())
    wire = Wire(model, optimizer)
    model(inputs(0))
    wire.backward(model(inputs(0)).sum())
    optimizer.step()
    model.load_state_dict(saved)
    model(inputs(1))
    assert_same(values(model), saved.values())


def test_copies_have_no_gates():
    """A copy's forward would wait for the original's gradients, and a pickle would fail on the wire."""
    model, optimizer, wire = gated()
    for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):  # noqa: S301
        assert not twin._forward_pre_hooks
        assert not twin[0]._state_dict_pre_hooks
        assert not {"forward", "named_parameters", "__getstate__", "zero_grad"} & set(vars(twin))
    buffer = io.BytesIO()
    torch.save(model, buffer)
    twin = copy.deepcopy(model)
    wire.backward(model(inputs(0)).sum())
    optimizer.step()
    twin(inputs(0)).sum().backward()
    list(twin.parameters())
    assert not wire.events


def test_hyperparameters_are_those_of_the_call():
    """A scheduler between `step()` and the gate would change the step, tensors in place."""

    def after(run):
        for group in run.optimizer.param_groups:
            group["lr"].mul_(0.5)
            group["betas"] = (group["betas"][0] * 0.9, 0.9)

    def adam(model):
        return torch.optim.Adam(type(model).parameters(model), lr=torch.tensor(0.1), foreach=False)

    same(optimizer=adam, after=after)


def test_closures_keep_the_barrier():
    """LBFGS needs all gradients at once; a closure runs backward inside the step."""

    def steps(run):
        def closure():
            run.optimizer.zero_grad()
            loss = run.model(inputs(0)).square().sum()
            run.backward(loss)
            if run.wire:
                run.wire.gates.open_all()
            return loss

        for _ in range(2):
            run.optimizer.step(closure)
        assert not run.wire or "closure" in run.wire.gates.barrier_reason
        return values(run.model)

    plain = perceptron()
    model, optimizer, wire = gated(kind=torch.optim.LBFGS, max_iter=3)
    other = torch.optim.LBFGS(plain.parameters(), lr=0.1, max_iter=3)
    assert_same(
        steps(Run(model=model, optimizer=optimizer, wire=wire)),
        steps(Run(model=plain, optimizer=other, wire=None)),
    )


class Global(torch.optim.SGD):
    """Scales by the norm of all gradients."""

    @torch.no_grad()
    def step(self, closure=None):
        torch.nn.utils.clip_grad_norm_(self.param_groups[0]["params"], 0.1)
        return super().step()


@pytest.mark.parametrize("hint", [None, True])
def test_unknown_optimizers_keep_the_barrier(hint):
    """An update from all gradients would be one from those of a bucket."""

    def optimizer(model):
        made = Global(model.parameters(), lr=0.1)
        made.needs_all_gradients = hint
        return made

    def after(run):
        if run.wire:
            assert "Global" in run.wire.gates.barrier_reason
            assert not run.wire.gates.closed

    same(optimizer=optimizer, after=after)


def test_what_is_not_in_the_optimizer_keeps_the_barrier():
    """A second optimizer would step with gradients that are still being reduced."""
    model = perceptron()
    wire = Wire(model, torch.optim.SGD(model[0].parameters(), lr=0.1))
    other = torch.optim.SGD(model[4].parameters(), lr=0.1)
    wire.backward(model(inputs(0)).sum())
    other.step()
    assert all(each.isfinite().all() for each in values(model))
    assert "`4.bias`" in wire.gates.barrier_reason


def test_step_hooks_run_once_and_see_gradients():
    """A hook that clips would clip gradients that are still being reduced, or once per bucket."""
    model, optimizer, wire = gated()
    seen = []
    handle = optimizer.register_step_pre_hook(lambda *_: seen.append(model[0].weight.grad.isfinite().all()))
    optimizer.register_step_post_hook(mark := lambda *_: seen.append("after"))
    wire.backward(model(inputs(0)).sum())
    optimizer.step()
    assert seen == [True, "after"]
    assert "step hook" in wire.gates.barrier_reason
    handle.remove()
    mark.reads_nothing = True
    wire.backward(model(inputs(0)).sum())
    optimizer.step()
    assert seen == [True, "after", "after"]
    assert wire.gates.barrier_reason is None
    wire.gates.open_all()
    assert seen == [True, "after", "after"]


@pytest.mark.parametrize("ours", [True, False])
def test_clipping(ours):
    """The norm would be that of gradients which are still being reduced."""

    def before(run):
        parameters = run.model.parameters()
        if ours and run.wire:
            clip_grad_norm_(run.wire.gates, parameters, 0.5)
        else:
            nn.utils.clip_grad_norm_(parameters, 0.5)

    same(before=before)


def test_a_lost_peer_is_named_with_the_layer():
    """Nobody could tell where training stopped."""
    model, optimizer, wire = gated()
    wire.backward(model(inputs(0)).sum())
    optimizer.step()
    model(inputs(0))
    wire.backward(model(inputs(0)).sum())
    optimizer.step()
    wire.dead = {3}
    with pytest.raises(PeerError, match=r"gate of 2\.weight: rank 3 died"):
        model(inputs(0))
    assert wire.gates.closed == {0, 1, 3}
    with pytest.raises(PeerError, match=r"gate of 2\.weight"):
        model.state_dict()
    wire.dead = set()
    model(inputs(0))
    assert not wire.gates.closed


def test_an_exception_in_forward_loses_no_step():
    """Layers behind the exception would miss their update."""

    def after(run):
        handle = run.model[2].register_forward_pre_hook(lambda *_: 1 // 0)
        with pytest.raises(ZeroDivisionError):
            run.model(inputs(0))
        handle.remove()

    same(after=after)


def test_two_backwards_without_a_forward_are_refused():
    """The second would add to gradients that are being reduced."""
    model = perceptron()
    wire = Wire(model, torch.optim.SGD(model.parameters(), lr=0.1))
    first, second = (model(inputs(step)).sum() for step in range(2))
    wire.backward(first)
    with pytest.raises(UsageError, match=r"gate of 4\.bias"):
        wire.backward(second)


def test_new_buckets():
    """Gates would wait for buckets that are no more."""

    def after(run):
        if run.wire and run.step == 2:
            run.wire.gates.rebucket(in_pairs(run.model))
            run.wire.buckets = in_pairs(run.model)
        assert not run.wire or len(run.wire.gates.closed) == {2: 0, 3: 3, 4: 3}.get(run.step, 6)

    same(buckets=per_parameter, after=after)


class Branching(nn.Module):
    """Takes other ways than the first forward shows: one layer of two, or the second before the first."""

    def __init__(self, first):
        super().__init__()
        torch.manual_seed(0)
        self.ways = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)])
        self.ways[1].weight = self.ways[0].weight
        self.calls = 0
        self.order = [first, [1], [0], [1, 0], [0]]

    def forward(self, x):
        self.calls += 1
        for way in self.order[self.calls - 1]:
            x = self.ways[way](x)
        return x


class Borrower(nn.Module):
    """Uses a child's parameters by itself where the child is in evaluation mode, as a layer's fast path does."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.inner = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))

    def forward(self, x):
        return self.inner(x) if self.training else x @ self.inner[0].weight @ self.inner[1].weight


@pytest.mark.parametrize("first", [[0], [1], [0, 1], [1, 0]])
def test_branches_that_were_not_taken(first):
    """A layer that the first forward left out would miss steps, or one that this forward leaves out."""
    same(partial(Branching, first))


def test_a_part_in_the_other_mode():
    """A frozen part may take another way past the gates of its children."""

    def after(run):
        run.model[0].train(run.step % 2 == 0)

    same(lambda: nn.Sequential(Borrower(), nn.Linear(4, 4)), after=after)


def test_autocast_does_not_reach_the_step():
    """Adafactor and Muon multiply matrices: in bfloat16 their updates would be others."""

    def after(run):
        with torch.autocast("cpu", torch.bfloat16):
            run.model(inputs(0))

    same(weights_only, lambda model: torch.optim.Adafactor(model.parameters()), after=after)


def test_the_forward_is_observed_once():
    """Every forward would pay for it."""
    model = perceptron()
    wire = Wire(model, torch.optim.SGD(model.parameters(), lr=0.1))
    assert "forward" in vars(model)
    with torch.no_grad():
        model(inputs(0))
    assert "forward" in vars(model)
    model(inputs(0))
    assert "forward" not in vars(model)
    assert not nn.modules.module._global_forward_pre_hooks
    assert not nn.modules.module._global_forward_hooks
    assert wire.gates._uses[id(model[0].weight)] == {model[0]}


def test_removal_leaves_nothing():
    """A model could not be distributed again."""
    model = perceptron()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    bare = [set(vars(each)) for each in (*model.modules(), optimizer)]
    wire = Wire(model, optimizer)
    wire.backward(model(inputs(0)).sum())
    optimizer.step()
    wire.gates.remove()
    assert len(wire.events) == 6
    assert [set(vars(each)) - {"_opt_called"} for each in (*model.modules(), optimizer)] == bare
    for module in model.modules():
        hooks = [each for name, each in vars(module).items() if "_hooks" in name]
        assert not any(hooks)
    assert not optimizer._optimizer_state_dict_pre_hooks


def test_steps_without_a_backward_before_them():
    """A second step, or one before all backwards, would be lost or done twice."""

    same(before=lambda run: run.optimizer.step(), after=lambda run: run.optimizer.step())


def test_gradients_that_no_rank_made_are_not_stepped():
    """Weight decay and momentum would move a parameter that the plain loop leaves alone."""
    model = Odd()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, weight_decay=0.1)
    wire = Wire(model, optimizer)
    before = model.unused.weight.detach().clone()
    wire.backward(model(inputs(0)).sum())
    optimizer.step()
    model(inputs(0))
    assert torch.equal(model.unused.weight, before)


def test_every_optimizer_of_torch_has_a_place():
    """A new optimizer of torch would keep the barrier unnoticed; add it to PER_PARAMETER if it belongs there."""
    known = optimizers.PER_PARAMETER | {"LBFGS", "SparseAdam", "Optimizer"}
    assert {name for name, each in vars(torch.optim).items() if isinstance(each, type)} <= known


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_forked_child_sees_applied_values():
    """A data loader's worker would wait for gradients that only its parent gets."""
    model, optimizer, wire = gated()
    model(inputs(0))
    wire.backward(model(inputs(0)).sum())
    optimizer.step()
    assert wire.gates.closed
    child = os.fork()
    if child == 0:
        os._exit(0 if not wire.gates.closed and all(each.isfinite().all() for each in values(model)) else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert len(wire.events) == 6
