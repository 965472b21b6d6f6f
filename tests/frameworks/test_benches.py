"""The rows of `python -m benches frameworks`, small: that they measure what they say."""

import pytest

from benches.emulated import hosts
from benches.frameworks import overlap
from benches.frameworks.adapter import ROUNDS
from benches.frameworks.measured import GIGABIT, OWN, measured
from benches.frameworks.racks import CLUSTER
from tests.frameworks import jobs


@pytest.mark.parametrize(
    ("framework", "contenders", "options"),
    [
        (
            "jax",
            ("exact", "rounded", "layers", "computation", "communication", "psum"),
            ("--samples", "balanced"),
        ),
        ("tensorflow", ("exact", "rounded", "mirrored"), ()),
    ],
)
def test_all_contenders_take_turns_in_one_job(framework, contenders, options, emulated):
    """A row would end after minutes, for a contender that does not run beside the others."""
    cluster = hosts([GIGABIT] * 2)
    with emulated(cluster):
        pass
    found = measured(framework, cluster, contenders, "--turns", "2", *options)
    for taken_s in (found["steps_s"], found["processor_s"]):
        assert set(taken_s) == set(contenders)
        for name, turns in taken_s.items():
            assert [len(each) for each in turns] == [4, 4], name


@pytest.mark.timing
def test_racks_that_nobody_named_are_found_before_the_first_step(tmp_path):
    """The row `racks` would train at the speed of the trunk, as JAX's own collectives do."""
    found = overlap.traced(CLUSTER, "exact", 1, tmp_path).run
    racks = [host.rack for host in found.cluster.hosts]
    assert racks == [racks[0], racks[1]] * 2, found.cluster
    assert racks[0] != racks[1], found.cluster
    for bucket in found.plan.buckets:
        assert [rank % 2 for rank in bucket.order] in ([0, 0, 1, 1], [1, 1, 0, 0]), found.plan


def test_the_row_of_overlap_is_of_all_turns_that_count():
    """It would be of no turn, or of those that compile."""
    (row,) = overlap.rows()
    assert row.spread is not None
    assert 0 <= row.spread[0] <= row.value <= row.spread[1] <= 1


@pytest.mark.parametrize("framework", OWN)
def test_a_leaf_costs_what_is_left_without_its_copies(framework, tmp_path):
    """The row's two numbers would be of different things."""
    calls = {"adapter": ("benches.frameworks.adapter:per_leaf_us", framework, 4096)}
    whole_us, beside_us, buckets = jobs.by_name(calls, 1, tmp_path)["adapter"][0]
    assert buckets == 1
    assert len(whole_us) == len(beside_us) == ROUNDS
    assert all(beside < whole for whole, beside in zip(whole_us, beside_us, strict=True))
