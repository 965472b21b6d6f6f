"""Which backward communicates, and what is refused since the CPU has none."""

import pytest

from tests.support import ranks

HOWS = ("both", "only backward", "attribute", "attribute only backward", "only backward always")
ON_TWO = (
    *(("accumulated", kind, how) for kind in ("ddp", "hocket") for how in HOWS),
    ("accumulated", "hocket", "only forward always"),
    ("parts",),
    ("compiled",),
    ("frozen_at_an_epoch",),
)


@pytest.fixture(scope="module")
def on_two(tmp_path_factory):
    """By script and its arguments: what two ranks returned."""
    named = {call: (f"tests.torch.sync_scripts:{call[0]}", *call[1:]) for call in ON_TWO}
    return ranks.by_name(named, 2, tmp_path_factory.mktemp("two"))


@pytest.mark.parametrize("how", HOWS)
def test_accumulation_is_ddps(on_two, how):
    """A script that sets DDP's attribute, or has only its backward in `no_sync`, would step with other gradients on each rank."""
    ours, theirs = on_two["accumulated", "hocket", how], on_two["accumulated", "ddp", how]
    assert ours[0][0] == ours[1][0]
    for own, wanted in zip(ours[0][0], theirs[0][0], strict=True):
        assert own == pytest.approx(wanted, abs=1e-6)
    communicated = [one == two for one, two in zip(ours[0][1], ours[1][1], strict=True)]
    assert communicated == [one == two for one, two in zip(theirs[0][1], theirs[1][1], strict=True)]


def test_a_backward_outside_communicates(on_two):
    """Ranks would step apart where only the forward is in `no_sync`, as they do with DDP."""
    first, second = on_two["accumulated", "hocket", "only forward always"]
    assert first == second


def test_forwards_of_parts(on_two):
    """A script that calls parts of its model would communicate within `no_sync`, or not after it."""
    first, second = on_two["parts",]
    assert [one == two for one, two in zip(first, second, strict=True)] == [False, True, False]


def test_whole_graphs_stay_whole(on_two):
    """`torch.compile(…, fullgraph=True)` would be refused after `distribute`."""
    first, second = on_two["compiled",]
    assert first == second


def test_a_layer_may_be_frozen_when_buckets_change(on_two):
    """Training would end with the second step of a job whose script freezes a layer early."""
    first, second = on_two["frozen_at_an_epoch",]
    assert first == second
    assert first[0] == 1, "no epoch has begun"


@pytest.mark.parametrize("when", ["before", "after"])
def test_sync_batch_norm_is_refused(tmp_path, when):
    """Each rank would normalise with its own batch, and nobody would say so."""
    ended = ranks.run("tests.torch.sync_scripts:batch_norm", 2, tmp_path, when)
    assert ended.outcome.code != 0
    assert "`1` is a SyncBatchNorm: PyTorch has none for the CPU" in ended.output
