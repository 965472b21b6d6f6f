"""Gates alone: who opens them, who must not, and what they leave behind."""

import copy
import io
import os
import pickle
from functools import partial

import pytest
import torch
from torch import nn

from hocket.errors import PeerError, UsageError
from hocket.torch import optimizers
from hocket.torch.gates import clip_grad_norm_
from tests.torch.gated import (
    Odd,
    Run,
    Wire,
    assert_same,
    encoder,
    gated,
    in_pairs,
    inputs,
    per_parameter,
    perceptron,
    same,
    values,
    weights_only,
)


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
    with pytest.raises(PeerError, match=r"gate of 2\.weight: rank 3 died") as raised:
        model(inputs(0))
    assert (raised.value.rank, raised.value.why) == (3, "lost")
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
    same(partial(Branching, first), buckets=per_parameter)


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
    assert wire.gates._placement.uses[id(model[0].weight)] == {model[0]}


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
