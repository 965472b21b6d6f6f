"""Policies that cannot be traced, or would lose, double, race or deadlock: each with the sentence that refuses it."""

import inspect

import pytest

from hocket import testing
from hocket.errors import PolicyError
from hocket.policy import libraries
from hocket.policy.kernels import Kernel
from hocket.policy.policy import Policy
from hocket.policy.topology import Topology


def right_ring(cx, b, parts=None, scale=True):
    """The ring that the wrong ones below are made from."""
    n, parts = cx.world, cx.split(b, cx.world)
    for step in range(1, n):
        cx.send(parts[(cx.rank - step) % n], (cx.rank + 1) % n)
        cx.recv_reduce(parts[(cx.rank - step - 1) % n], (cx.rank - 1) % n)
    cx.scale(parts[cx.rank], 1 / n)
    for step in range(n - 1):
        cx.send(parts[(cx.rank - step) % n], (cx.rank + 1) % n)
        cx.recv(parts[(cx.rank - step - 1) % n], (cx.rank - 1) % n)


def exchange(cx, b, into):
    cx.send(b, 1 - cx.rank)
    return cx.recv(into, 1 - cx.rank)


class KeepsBuffers:
    kept = None

    def __call__(self, cx, b):
        if self.kept is None:
            self.kept = b
        cx.add(b, self.kept)


WRONG = {
    # What cannot be traced.
    "branch on values": (lambda cx, b: cx.scale(b, 2) if b else None, "branches on a buffer"),
    "compare values": (lambda cx, b: cx.scale(b, 2) if b > 0 else None, "compares a buffer"),
    "compare with a number": (lambda cx, b: b == 0, "compares a buffer"),
    "read an element": (lambda cx, b: b[0], "reads an element"),
    "step of a slice": (lambda cx, b: cx.scale(b[::2], 2), "slices with a step"),
    "iterate": (lambda cx, b: list(b), "iterates over a buffer"),
    "to float": (lambda cx, b: float(b), "takes a number out of a buffer"),
    "to int": (lambda cx, b: int(b), "takes a number out of a buffer"),
    "to complex": (lambda cx, b: complex(b), "takes a number out of a buffer"),
    "as an index": (lambda cx, b: [1, 2][b], "takes a number out of a buffer"),
    "round": (lambda cx, b: round(b), "does arithmetic on a buffer"),
    "reflected operators": (lambda cx, b: 10 // b, "does arithmetic on a buffer"),
    "bits": (lambda cx, b: ~b, "does arithmetic on a buffer"),
    "numpy": (lambda cx, b: __import__("numpy").asarray(b), "calls NumPy on a buffer"),
    "operator": (lambda cx, b: b + b, "does arithmetic on a buffer"),
    "assign": (lambda cx, b: b.__setitem__(slice(0, 1), 0), "assigns to a buffer"),
    "a handler that raises": (lambda cx, b: {}["missing"], "KeyError: 'missing'"),
    "record while traced": (lambda cx, b: cx.record("x", 1), "records `x` while it is traced"),
    "propose while traced": (lambda cx, b: cx.propose(fusion_bytes=1), "proposes an epoch while one begins"),
    "enqueue a bucket": (lambda cx, b: cx.enqueue(b), "only `on_tensor_ready` enqueues"),
    "kept from another rank": (KeepsBuffers(), "of another rank or another trace"),
    "unknown agreed value": (lambda cx, b: cx.agreed("nope"), "no value `nope` is agreed"),
    "negotiate on one rank alone": (
        lambda cx, b: cx.negotiate(1.0) if cx.rank else None,
        "rank 0 does not negotiate here",
    ),
    "negotiate differently": (
        lambda cx, b: cx.negotiate(1.0, how="min" if cx.rank else "max"),
        "negotiate in different ways",
    ),
    "negotiate no number": (lambda cx, b: cx.negotiate("a"), "negotiates 'a'"),
    "negotiate without an end": (
        lambda cx, b: [cx.negotiate(1.0) for _ in range(1000)],
        "negotiates more than 100 times",
    ),
    # Ops that make no sense.
    "a number for a buffer": (lambda cx, b: cx.add(b, 3), "expects a buffer, got int"),
    "lengths": (lambda cx, b: cx.add(b, cx.alloc(3)), "do not go together"),
    "unknown type": (lambda cx, b: cx.alloc(3, "f8"), "there is no element type `f8`"),
    "unknown reduction": (lambda cx, b: cx.all_reduce(b, op="xor"), "there is no reduction `xor`"),
    "unknown algorithm": (lambda cx, b: cx.all_reduce(b, algorithm="star"), "there is no algorithm `star`"),
    "unknown library": (
        lambda cx, b: cx.all_reduce(b, op="mean", library="oneccl"),
        "there is no library `oneccl`\nhint: gloo, nccl, mpi",
    ),
    "nccl without a GPU": (
        lambda cx, b: cx.all_reduce(b, op="mean", library="nccl"),
        "library `nccl` needs a GPU, and this machine has none",
    ),
    "an algorithm for a library": (
        lambda cx, b: cx.all_reduce(b, op="mean", library="gloo", algorithm="ring"),
        "library `gloo` chooses its algorithms itself, it cannot be told `ring`",
    ),
    "unknown kernel": (lambda cx, b: cx.apply("fft.f32", [b], [b]), "there is no built-in kernel `fft.f32`"),
    "types of a kernel": (
        lambda cx, b: cx.apply("sub.f64", [b, b], [cx.alloc(len(b))]),
        "kernel `sub.f64` is (f64, f64)",
    ),
    "a kernel onto its input": (lambda cx, b: cx.apply("clamp.f32", [b], [b], 0, 1), "shares elements"),
    "scale integers": (lambda cx, b: cx.scale(cx.alloc(3, "i32"), 2), "i32 is no float"),
    "integers on the wire": (lambda cx, b: cx.send(b, 1 - cx.rank, wire="i8"), "f32 does not cross as i8"),
    "a count that is none": (
        lambda cx, b: cx.send(b, 1 - cx.rank, count=cx.alloc(2, "i64")),
        "a count is one element of i64",
    ),
    "to itself": (lambda cx, b: cx.send(b, cx.rank), "exchanges nothing with rank"),
    "to nobody": (lambda cx, b: cx.send(b, 7), "exchanges nothing with rank 7"),
    "a group without the caller": (
        lambda cx, b: cx.all_reduce(b, group=[0]),
        "a group lists ranks below 2",
    ),
    "a root outside": (lambda cx, b: cx.broadcast(b, 1, group=[cx.rank]), "is not in the group"),
    "state of two lengths": (
        lambda cx, b: (cx.state("s", elements=3), cx.state("s", elements=4)),
        "state `s` is 3 f32, asked for as 4 f32",
    ),
    "sizes of two_level": (
        lambda cx, b: cx.all_reduce(b, "mean", algorithm="two_level", sizes=[1, 2]),
        "groups of [1, 2] for 2 ranks",
    ),
    # Programs that are refused.
    "nothing at all": (lambda cx, b: None, "lacks the contribution of rank 1"),
    "a sum for a mean": (lambda cx, b: cx.all_reduce(b, op="sum"), "is scaled by 1, not by 0.5"),
    "the largest for a mean": (lambda cx, b: cx.all_reduce(b, op="max"), "is not reduced by Sum"),
    "twice": (
        lambda cx, b: (cx.all_reduce(b, op="mean"), cx.all_reduce(b, op="mean")),
        "more than once",
    ),
    "half of it": (
        lambda cx, b: cx.all_reduce(b[: len(b) // 2], op="mean"),
        "lacks the contribution of rank 1",
    ),
    "one rank alone calls": (
        lambda cx, b: cx.all_reduce(b, op="mean") if cx.rank == 0 else None,
        "is not called by rank 1, which is in its group",
    ),
    "different collectives": (
        lambda cx, b: cx.all_reduce(b, op="mean", algorithm="ring" if cx.rank else "direct"),
        "is another collective than rank 0 calls with it",
    ),
    "a send that nobody takes": (
        lambda cx, b: (cx.all_reduce(b, op="mean"), cx.send(b, 1) if cx.rank == 0 else None),
        "rank 1 never receives tag 0 from it",
    ),
    "a receive that nobody sends": (
        lambda cx, b: cx.recv(b, 1 - cx.rank) if cx.rank == 0 else None,
        "rank 1 never sends tag 0 to it",
    ),
    "lengths of a message": (
        lambda cx, b: cx.send(b[:3], 1) if cx.rank == 0 else cx.recv(b[:2], 0),
        "takes 2 f32; rank 0 sends 3 f32",
    ),
    "types of a message": (
        lambda cx, b: cx.send(b, 1, wire="f16") if cx.rank == 0 else cx.recv(b, 0),
        "f32; rank 0 sends",
    ),
    "in place both ways": (lambda cx, b: exchange(cx, b, b), "waits for itself"),
    "both wait first": (
        lambda cx, b: (cx.recv_reduce(b, 1 - cx.rank), cx.send(b, 1 - cx.rank)),
        "waits for itself",
    ),
    "unwritten": (lambda cx, b: cx.copy(cx.alloc(len(b)), b), "which nothing has written"),
    "rounded on one rank": (
        lambda cx, b: (cx.all_reduce(b, op="mean"), cx.round(b, "f16") if cx.rank else None),
        "replicas differ",
    ),
    "a count that may differ": (
        lambda cx, b: (variable(cx, b), None),
        "have counts that may differ",
    ),
    "a kernel that mixes": (
        lambda cx, b: cx.copy(mixed(cx, cx.all_reduce(b, op="mean")), b),
        "holds a mixture of reductions",
    ),
}

MIX = Kernel("sub.f32", ("f32", "f32"), ("f32",), elementwise=True)


def mixed(cx, b):
    out = cx.alloc(len(b))
    cx.apply(MIX, [b, cx.fill(cx.alloc(len(b)), 1)], [out])
    return out


def variable(cx, b):
    cx.all_reduce(b, op="mean")
    values, indices, count = cx.alloc(4), cx.alloc(4, "i32"), cx.alloc(1, "i64")
    mine = cx.mul(b, cx.state("own", like=b))
    cx.apply("top_k.f32", [mine], [values, indices, count])
    if cx.rank == 0:
        cx.send(values, 1, count=count)
    else:
        cx.recv(cx.alloc(4), 0, count=count)


def policy_of(handler):
    class Wrong(Policy):
        def on_buffer_ready(self, cx, buffer):
            handler(cx, buffer)

    return Wrong()


@pytest.mark.parametrize("name", WRONG)
def test_refused(name, monkeypatch):
    """A user would find out in training, or never."""
    monkeypatch.setattr(libraries, "has_gpu", lambda: False)
    handler, said = WRONG[name]
    with pytest.raises(PolicyError) as refusal:
        testing.run(policy_of(handler), world=2)
    assert said in str(refusal.value)
    # Where: this file, or for a whole program the handler.
    assert ".py:" in str(refusal.value)


def test_nccl_with_a_gpu(monkeypatch):
    """The refusal would be for everybody."""
    monkeypatch.setattr(libraries, "has_gpu", lambda: True)
    policy = policy_of(lambda cx, b: cx.all_reduce(b, op="mean", library="nccl"))
    assert testing.run(policy, world=2).error() < 1e-6


def test_there_are_enough():
    """The corpus shrank."""
    assert len(WRONG) >= 50


def test_the_ring_behind_them_is_right():
    """The refusals would prove nothing."""
    assert testing.run(policy_of(right_ring), world=5).error() < 1e-6


def test_a_refusal_shows_the_lines_at_fault():
    """The user would have to guess which of the ops it is."""

    def handler(cx, b):
        cx.send(b, 1 - cx.rank)
        cx.recv(b, 1 - cx.rank)

    first = inspect.getsourcelines(handler)[1]
    with pytest.raises(PolicyError) as refusal:
        testing.run(policy_of(handler), world=2)
    findings = refusal.value.findings
    shown = "\n".join(finding.text for finding in findings)
    assert f"{__file__}:{first + 1}" in shown
    assert f"{__file__}:{first + 2}" in shown
    assert {finding.rank for finding in findings} <= {0, 1, None}
    assert shown in str(refusal.value)
    assert "record non_finite" not in shown, "more than what is at fault"


def test_ranks_that_enqueue_differently_are_refused():
    """Buckets would differ between ranks, and training would hang."""

    class Wrong(Policy):
        def on_tensor_ready(self, cx, grad):
            cx.enqueue(grad, priority=cx.rank)

    with pytest.raises(PolicyError, match="rank 0 and rank 1 enqueue `g3` differently"):
        testing.run(Wrong(), world=2)


def test_a_gradient_enqueued_twice_is_refused():
    """It would be summed twice."""

    class Wrong(Policy):
        def on_tensor_ready(self, cx, grad):
            cx.enqueue(grad)
            cx.enqueue(grad)

    with pytest.raises(PolicyError, match="enqueues `g3` 2 times"):
        testing.run(Wrong(), world=2)


def test_a_part_of_a_gradient_is_no_entry():
    """A user of the paper's partitions would look for a bucket that is none of his."""

    class Wrong(Policy):
        def on_tensor_ready(self, cx, grad):
            for part in cx.split(grad, 2):
                cx.enqueue(part)

    with pytest.raises(PolicyError, match=r"py:\d+: enqueues a part of a gradient(.|\n)*chunk_bytes"):
        testing.run(Wrong(), world=2)


def test_a_world_in_which_a_policy_is_wrong_is_named():
    """Odd worlds are where rings by hand go wrong."""

    class Pairs(Policy):
        def on_buffer_ready(self, cx, buffer):
            partner = cx.rank ^ 1
            cx.all_reduce(buffer, op="mean", group=sorted([cx.rank, partner]))

    assert testing.run(Pairs(), world=2).error() < 1e-6
    with pytest.raises(PolicyError, match="lacks the contribution of rank 2, 3"):
        testing.run(Pairs(), world=4)
    with pytest.raises(PolicyError, match=r"calls a collective over \[2, 3\]"):
        testing.run(Pairs(), world=3)


def test_shared_state_that_is_not_is_refused():
    """A warm start would drift apart between ranks."""

    class Wrong(Policy):
        contract = "none"

        def on_buffer_ready(self, cx, buffer):
            cx.copy(buffer, into=cx.state("q", like=buffer, shared=True))

    with pytest.raises(PolicyError, match="shared state `q` is not the same on rank 0 and rank 1"):
        testing.run(Wrong(), topology=Topology.even(world=2))
