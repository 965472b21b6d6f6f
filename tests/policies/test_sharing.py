"""Buckets of one job share what is equal for all: their programs must be what each would be alone."""

import re

import pytest

from hocket.errors import PolicyError
from hocket.policies import READY_MADE
from hocket.policies.two_level import TwoLevelRing
from hocket.policy.bucketing import Bucket, Gradient
from hocket.policy.policy import Policy
from hocket.policy.topology import Topology
from hocket.policy.trace import Programs, TraceContext

TOPOLOGY = Topology.even(world=6, racks=2, hosts_per_rack=1)
LENGTHS = (4000, 4001, 3, 1, 70_000, 6, 4000, 2_000_000, 0)


def bucket(elements, dtype="f32"):
    return Bucket((Gradient("g", (elements,), dtype, 0, 0),), 0)


class Counted(TwoLevelRing):
    ran = 0

    def on_buffer_ready(self, cx, buffer):
        Counted.ran += 1
        super().on_buffer_ready(cx, buffer)


class ByLength(Policy):
    def __init__(self, length):
        self.length = length

    def on_buffer_ready(self, cx, buffer):
        algorithm = "ring" if self.length(buffer) > 4000 else "direct"
        cx.all_reduce(buffer, op="mean", algorithm=algorithm)


def outcome(programs, elements, dtype):
    """The program's text, or why there is none; always called from this line, which is in it."""
    try:
        return str(programs.program(bucket(elements, dtype)).program)
    except PolicyError as error:
        return str(error)


@pytest.mark.parametrize("name", READY_MADE)
def test_a_shared_program_is_the_one_that_the_bucket_would_have_alone(name):
    """A bucket would be exchanged by the program of another length."""
    policy = READY_MADE[name]()
    context = TraceContext.of(policy, TOPOLOGY)
    programs = Programs(policy, context)
    for elements in LENGTHS:
        for dtype in ("f32", "f16"):
            alone = outcome(Programs(policy, context), elements, dtype)
            assert outcome(programs, elements, dtype) == alone


def test_handlers_run_once_for_buckets_of_all_lengths():
    """Ranks of a large job would run Python for each bucket of each rank: minutes before the first step."""
    policy = Counted()
    programs = Programs(policy, TraceContext.of(policy, TOPOLOGY))
    for elements in range(4000, 4020):
        programs.program(bucket(elements))
    assert Counted.ran == TOPOLOGY.world


@pytest.mark.parametrize(
    "length",
    [
        len,
        lambda buffer: buffer.elements,
        lambda buffer: buffer.bytes // 4,
        lambda buffer: buffer[:5000].elements,
        lambda buffer: int(repr(buffer).split()[0][1:]),
    ],
    ids=["len", "elements", "bytes", "slice", "repr"],
)
def test_a_handler_that_looks_at_a_length_is_asked_again(length):
    """It would have decided for another bucket."""
    policy = ByLength(length)
    context = TraceContext.of(policy, TOPOLOGY)
    programs = Programs(policy, context)
    shared = [outcome(programs, elements, "f32") for elements in (4000, 6000)]
    assert shared == [outcome(Programs(policy, context), elements, "f32") for elements in (4000, 6000)]
    # In a ring, rank 0 sends to one rank alone.
    assert [" to 3 " in text.split("rank 1")[0] for text in shared] == [True, False]


def test_an_algorithm_that_is_left_to_us_is_chosen_for_each_size():
    """All buckets would take the algorithm of the first."""
    policy = Policy()
    context = TraceContext.of(policy, Topology.even(world=8))
    sizes = [1 << at for at in range(2, 24)]
    programs = Programs(policy, context)
    shared = [outcome(programs, elements, "f32") for elements in sizes]
    assert shared == [outcome(Programs(policy, context), elements, "f32") for elements in sizes]
    ways = {re.sub(r"[0-9]+:[0-9]+", "", text.split("rank 1")[0]) for text in shared}
    assert len(ways) > 1, "the tuning has one algorithm for all sizes: nothing is shown"
