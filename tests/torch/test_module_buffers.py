"""A model's buffers on all ranks: equal whenever one looks, rank 0's, and cheap."""

import pytest

from tests.support import ranks

ON_TWO = (
    *(("rank_zero", kind) for kind in ("alone", "together")),
    ("traffic",),
    ("kept_graph",),
    *(("copies", how) for how in ("before_forward", "after_step")),
    *(("caches", how) for how in ("before_forward", "after_step", "gates", "beside others")),
)


def run(calls, world, directory):
    named = {call: (f"tests.torch.buffer_scripts:{call[0]}", *call[1:]) for call in calls}
    return ranks.by_name(named, world, directory)


@pytest.fixture(scope="module")
def looks(tmp_path_factory):
    return run([("looks", "none"), ("looks", "gates")], 3, tmp_path_factory.mktemp("three"))


@pytest.fixture(scope="module")
def on_two(tmp_path_factory):
    """By script and its arguments: what two ranks returned."""
    return run(ON_TWO, 2, tmp_path_factory.mktemp("two"))


@pytest.mark.parametrize("policy", ["none", "gates"])
def test_they_are_equal_whenever_one_looks(looks, policy):
    """Ranks would evaluate different models, and a checkpoint would depend on who wrote it."""
    first, *others = looks["looks", policy]
    assert others == [first] * 2
    assert len(set(first)) > 8, "buffers did not change"


def test_rank_0_has_what_it_would_have_alone(on_two):
    """Rank 0's checkpoint would hold other statistics than DistributedDataParallel's."""
    alone, together = (on_two["rank_zero", kind] for kind in ("alone", "together"))
    assert together == [alone[0], alone[0]]
    assert alone[0] != alone[1]


def test_what_never_changes_does_not_travel(on_two):
    """Masks of attention would cross the network in each step; a buffer that changes its shape would be lost."""
    for sizes, mask in on_two["traffic",]:
        assert mask == [0, 0, 0]
        before, _, after, last = (live for live, _ in sizes)
        assert before < 1000
        assert after == last < 1000
        assert sizes[-1][1] == sizes[0][1] + 1


def test_buffers_that_differ_are_named(tmp_path):
    """Broadcasts would not fit, deep inside."""
    ended = ranks.run("tests.torch.buffer_scripts:differ", 2, tmp_path)
    assert ended.outcome.code != 0
    assert "only rank 1 has the buffer `extra`" in ended.output


def test_a_graph_can_be_kept(on_two):
    """Autograd would refuse a second backward on some ranks, whose statistics changed under it."""
    first, second = on_two["kept_graph",]
    assert first == second


@pytest.mark.parametrize("how", ["before_forward", "after_step"])
def test_copies_are_of_one_rank(on_two, how):
    """Evaluating a copy on one rank would wait for the others."""
    assert on_two["copies", how] == [True, True]


@pytest.mark.parametrize("how", ["before_forward", "after_step", "gates", "beside others"])
def test_caches_are_each_ranks_own(on_two, how):
    """A table that grows with a rank's sequences would end the job; statistics that appear in forward would not be equal."""
    first, second = on_two["caches", how]
    assert [length for _, length in first] == [8, 9, 10, 11, 12, 12]
    assert [length for _, length in second] == [3, 4, 5, 6, 7, 7]
    if how == "before_forward":
        # From the same statistics, each has added its own batch: those of rank 0 are the mean's half.
        assert first != second
        return
    assert [mean for mean, _ in first] == [mean for mean, _ in second]
    assert len({tuple(mean or ()) for mean, _ in first}) > 4


def test_what_checkpoints_have_is_equal(tmp_path):
    """Which rank's table a checkpoint has would depend on who writes it."""
    ended = ranks.run("tests.torch.buffer_scripts:kept_cache", 2, tmp_path)
    assert ended.outcome.code != 0
    assert (
        "the models' buffers differ: `table` is [4] of float32 on rank 1 and [3] of float32 on rank 0"
        in ended.output
    )
