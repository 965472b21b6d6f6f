"""A model's buffers on all ranks: equal whenever one looks, rank 0's, and cheap."""

import pytest

from tests.support import ranks


def run(script, tmp_path, *arguments, world=2):
    ended = ranks.run(f"tests.torch.buffer_scripts:{script}", world, tmp_path, *arguments)
    assert ended.outcome.code == 0, ended.output
    return ended.returned


@pytest.mark.parametrize("policy", ["none", "gates"])
def test_they_are_equal_whenever_one_looks(tmp_path, policy):
    """Ranks would evaluate different models, and a checkpoint would depend on who wrote it."""
    first, *others = run("looks", tmp_path, policy, world=3)
    assert others == [first] * 2
    assert len(set(first)) > 8, "buffers did not change"


def test_rank_0_has_what_it_would_have_alone(tmp_path):
    """Rank 0's checkpoint would hold other statistics than DistributedDataParallel's."""
    for kind in ("alone", "together"):
        (tmp_path / kind).mkdir()
    alone = run("rank_zero", tmp_path / "alone", "alone")
    together = run("rank_zero", tmp_path / "together", "together")
    assert together == [alone[0], alone[0]]
    assert alone[0] != alone[1]


def test_what_never_changes_does_not_travel(tmp_path):
    """Masks of attention would cross the network in each step; a buffer that changes its shape would be lost."""
    for sizes, mask in run("traffic", tmp_path):
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


def test_a_graph_can_be_kept(tmp_path):
    """Autograd would refuse a second backward on some ranks, whose statistics changed under it."""
    first, second = run("kept_graph", tmp_path)
    assert first == second


@pytest.mark.parametrize("how", ["before_forward", "after_step"])
def test_copies_are_of_one_rank(tmp_path, how):
    """Evaluating a copy on one rank would wait for the others."""
    assert run("copies", tmp_path, how) == [True, True]
