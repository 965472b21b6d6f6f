"""Shares of batches: what ranks get, how fast they are, and what their gradients count by. No ranks."""

from __future__ import annotations

import math
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hocket.errors import UsageError
from hocket.job.live.progress import Progress
from hocket.planning.shares import sizes, suggested
from hocket.training.loop.speed import STEPS, WARM_UP_STEPS, Speed
from hocket.training.step.weighted import UNWEIGHTED, Weighted

SPEEDS = (1.0, 1.0, 0.5, 0.25)


@given(batch=st.integers(1, 40), shares=st.lists(st.floats(0.01, 100), min_size=1, max_size=8))
def test_the_last_rank_is_done_as_early_as_can_be(batch: int, shares: list[float]) -> None:
    """Broken: a rank would have no samples, the batch of all ranks other than it would be without shares, or a rank be left behind
    whose sample another one could have had sooner."""
    dealt = sizes(batch, shares)
    assert sum(dealt) == batch * len(shares)
    assert min(dealt) >= 1
    times = [count / share for count, share in zip(dealt, shares, strict=True)]
    last = max(range(len(times)), key=times.__getitem__)
    earliest = min((count + 1) / share for count, share in zip(dealt, shares, strict=True))
    assert dealt[last] == 1 or times[last] <= earliest * (1 + 1e-9)


def test_a_step_is_near_the_ideal() -> None:
    """Broken: shares that a profile suggests would leave a slow rank behind, or be suggested where chance makes ranks differ."""
    found = suggested([0.1, 0.1, 0.2, 0.4], [32] * 4)
    assert found is not None
    assert (found.shares, found.batches, found.even_s) == (SPEEDS, (47, 47, 23, 11), 0.4)
    assert found.shared_s <= 1.05 * 0.1 / 32 * 4 * 32 / sum(SPEEDS)
    assert "shares=[1, 1, 0.5, 0.25]), with batches of 47, 47, 23, 11 samples" in found.said()
    # Batches that were dealt by shares already.
    again = suggested([0.15, 0.15, 0.15, 0.3], [47, 47, 23, 11])
    assert again is not None
    assert again.shares[3] == pytest.approx(0.12, abs=0.005)
    unknown = suggested([0.1, 0.1, 0.2, 0.4], [None] * 4)
    assert unknown is not None
    assert unknown.batches == ()
    assert suggested([0.1, 0.1, 0.105, 0.1], [32] * 4) is suggested([0.1], [32]) is suggested([], []) is None


def test_speed_is_without_waits() -> None:
    """Broken: all ranks would seem equally slow, as the last one makes all others wait."""
    progress = Progress()
    progress.tells_waits = True
    speed = Speed(progress)
    for step in range(WARM_UP_STEPS + STEPS):
        assert not speed.known
        speed.got(3)
        speed.got(2)
        if step >= WARM_UP_STEPS:
            whole, waited, loaded = progress.total
            progress.total = whole + 1_000_000_000, waited + 750_000_000, loaded
        speed.stepped()
    assert speed.known
    assert math.isclose(speed.value, 5 / 0.25)
    speed.begin()
    assert (speed.known, speed.value) == (False, 0.0)


class Bucket:
    """Means that were scaled."""

    def __init__(self) -> None:
        self.factor = 1.0


def weighted() -> Weighted:
    def scale(bucket: Any, factor: float) -> None:
        bucket.factor *= factor

    return Weighted(scale)


def test_means_of_those_that_remain() -> None:
    """Broken: after a loss, the others' mean would not be that of their samples, with one batch in a step or several, or if a rank
    was lost between two of them."""
    batches = [{0: 6, 1: 2, 2: 4}, {0: 5, 1: 1, 2: 3}]
    gradients = [{0: 1.0, 1: 10.0, 2: 100.0}, {0: 7.0, 1: 0.5, 2: 3.0}]
    for counts, made, present in (
        (batches[:1], gradients[:1], (0, 1, 2)),
        (batches[:1], gradients[:1], (0, 2)),
        (batches, gradients, (0, 1, 2)),
        ([batches[0], {0: 5, 2: 3}], gradients, (0, 2)),
    ):
        sent = dict.fromkeys(present, 0.0)
        bucket = Bucket()
        for me in present:
            own = weighted()
            for at, (each, of_batch) in enumerate(zip(counts, made, strict=True)):
                own.batch(each, me, held=at > 0)
                sent[me] += own.factor * of_batch[me]
            assert own.vote(3, me) == own.vote(3, me) != UNWEIGHTED
        own.arrived(cast(Any, bucket), present)
        mean = bucket.factor * sum(sent.values()) / len(present)
        if set(present) == set(counts[0]) or len(counts) == 1:
            expected = sum(
                sum(each[me] * of_batch[me] for me in present) / sum(each[me] for me in present)
                for each, of_batch in zip(counts, made, strict=True)
            )
            assert math.isclose(mean, expected)
        # Of equal gradients, the mean is the same whoever is lost.
        own = weighted()
        ones = dict.fromkeys(present, 0.0)
        for me in present:
            one = weighted()
            for at, each in enumerate(counts):
                one.batch(each, me, held=at > 0)
                ones[me] += one.factor
            one.vote(1, me)
        even = Bucket()
        one.arrived(cast(Any, even), present)
        assert math.isclose(even.factor * sum(ones.values()) / len(present), len(counts))


def test_a_rank_that_counts_otherwise_is_named() -> None:
    """Broken: ranks would train on, each with another idea of the batch."""

    class Job:
        members, hosts, rank = (0, 4), ("a", "b"), 0

    own = weighted()
    own.batch({0: 3, 4: 1}, 0, held=False)
    assert own.vote(0, 0) == 1.5
    own.counted({0: 1.5, 1: 0.5000001}, cast(Any, Job), 1)
    # A lost rank has cast no vote.
    own.counted({0: 1.5}, cast(Any, Job), 1)
    with pytest.raises(
        UsageError, match=r"in step 1: rank 1 on b counts 1 times, and by rank 0's batches counts 0\.5 times"
    ):
        own.counted({0: 1.5, 1: 1.0}, cast(Any, Job), 1)
    with pytest.raises(UsageError, match="rank 1 on b has none with shares"):
        own.counted({0: 1.5, 1: UNWEIGHTED}, cast(Any, Job), 1)
    own.end()
    assert (own.vote(1, 0), own.factor) == (UNWEIGHTED, 1.0)
