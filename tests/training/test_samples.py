"""Each sample once in a pass over the data, whoever is lost or joins; ranks compute their draws alone and must agree."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hocket.errors import UsageError
from hocket.training.loop.samples import Place, Samples


class Rank:
    """One of a job, as `hk.batches` uses its samples: batches are prepared before the loop gets them."""

    def __init__(
        self, place: Place, members: list[int], me: int, *, batch: int, ahead: int, accumulated: int
    ) -> None:
        self.samples = Samples(place, members=members, me=me)
        self._ahead = ahead
        self._got, self._accumulated = 0, accumulated
        self._upcoming: Iterator[list[int]] = iter(())
        self._prepared: list[list[int]] = []
        self.samples.begin(batch, drop_last=False)
        self._begin()

    def _begin(self) -> None:
        self._upcoming = self.samples.upcoming()
        self._prepared = list(itertools.islice(self._upcoming, self._ahead))

    def batch(self) -> list[int] | None:
        if self.samples.stale:
            self._begin()
        self._prepared += itertools.islice(self._upcoming, 1)
        if not self._prepared:
            self.samples.end()
            return None
        self.samples.hand_out(held=self._got % self._accumulated != 0)
        self._got += 1
        return self._prepared.pop(0)

    def change(self, members: list[int]) -> None:
        self.samples.change(members)

    def stands(self) -> int:
        """Number of samples in the step that has just been made."""
        before = self.samples.trained
        self.samples.stepped()
        return self.samples.trained - before


ORDER = ("lose", "join", "restart")
"""What happens in one step happens in this order."""

CHANGES = st.lists(
    st.tuples(st.integers(0, 9), st.sampled_from(("lose", *ORDER)), st.integers(0, 5)), max_size=8
)


@given(
    sizes=st.tuples(st.integers(1, 90), st.integers(1, 4), st.integers(1, 6), st.integers(0, 5)),
    accumulated=st.integers(1, 3),
    seed=st.integers(0, 2**64 - 1) | st.none(),
    changes=CHANGES,
)
def test_each_sample_counts_once_whoever_is_lost(
    sizes: tuple[int, int, int, int],
    accumulated: int,
    seed: int | None,
    changes: list[tuple[int, str, int]],
) -> None:
    """Broken: after a loss, some samples would never be trained on, or others twice; or ranks would disagree on what is left, and
    wait for one another. What a rank has in hand when it is lost is drawn again, and so are its batches before that in the same
    step; what may be repeated is less than a sample a rank, where fewer samples are left than there are ranks."""
    count, batch, world, ahead = sizes
    members = list(range(world))
    fresh = itertools.count(100)

    def rank(place: Place, me: int) -> Rank:
        return Rank(place, members, me, batch=batch, ahead=ahead, accumulated=accumulated)

    job = {me: rank(Place(seed=seed, samples=count), me) for me in members}
    counted: Counter[int] = Counter()
    repeats = 0
    is_over = False
    for step in itertools.count():
        got: dict[int, list[int]] = {me: [] for me in job}
        for _ in range(accumulated):
            batches = {me: each.batch() for me, each in job.items()}
            if None in batches.values():
                assert set(batches.values()) == {None}, "ranks disagree on where the pass ends"
                is_over = True
                break
            drawn = Counter(itertools.chain.from_iterable(each or [] for each in batches.values()))
            assert 0 < min(map(len, filter(None, batches.values()))) <= batch
            assert drawn.total() - len(drawn) < len(members)
            repeats += drawn.total() - len(drawn)
            for me, batch_of in batches.items():
                got[me] += batch_of or []
        if is_over:
            counted.update(itertools.chain.from_iterable(got.values()))
            break
        # Members come when what the others have in hand is sure to count: after losses.
        for at, kind, who in sorted(changes, key=lambda change: ORDER.index(change[1])):
            if at != step:
                continue
            if kind == "lose" and len(members) > 1:
                lost = members[who % len(members)]
                members = [each for each in members if each != lost]
                del job[lost], got[lost]
            elif kind == "join":
                place = next(iter(job.values())).samples.place()
                me = next(fresh)
                members = [*members, me]
                job[me] = rank(place, me)
            for each in job.values():
                each.change(members)
        counts = {each.stands() for me, each in job.items() if me in got}
        assert len(counts) == 1, "ranks disagree on how many samples stand"
        if not any(at == step and kind == "lose" for at, kind, _ in changes):
            assert counts == {len(set(itertools.chain.from_iterable(got.values())))}
        counted.update(itertools.chain.from_iterable(got.values()))
        if any(at == step and kind == "restart" for at, kind, _ in changes):
            places = [each.samples.place() for each in job.values()]
            assert all(each == places[0] for each in places)
            members = list(range(1 + step % 5))
            job = {me: rank(places[0], me) for me in members}
    assert set(counted) == set(range(count))
    assert counted.total() - count <= repeats


@given(count=st.integers(1, 200), batch=st.integers(2, 5), world=st.integers(1, 8), drop_last=st.booleans())
def test_what_is_left_is_shared(count: int, batch: int, world: int, drop_last: bool) -> None:
    """Broken: progress bars would be wrong, or without a loss a sample would come twice though there are enough for all ranks."""
    ranks = [Samples(Place(seed=1, samples=count), members=range(world), me=me) for me in range(world)]
    for number in range(2):
        passes = []
        for rank in ranks:
            assert rank.steps_left(batch, drop_last=drop_last) == (
                count // (batch * world) if drop_last else -(-count // (batch * world))
            )
            rank.begin(batch, drop_last=drop_last)
            assert rank.data_epoch == (number if count >= batch * world or not drop_last else 0)
            expected = rank.steps_left(batch, drop_last=drop_last)
            got = []
            for left, each in zip(itertools.count(expected, -1), rank.upcoming(), strict=False):
                assert rank.steps_left(batch, drop_last=drop_last) == left
                rank.hand_out()
                got.append(each)
            assert len(got) == expected
            rank.end()
            passes.append(got)
        every = [each for own in passes for each in itertools.chain.from_iterable(own)]
        if drop_last:
            assert len(every) == len(set(every)) == count // (batch * world) * batch * world
            assert all(len(each) == batch for own in passes for each in own)
        elif count >= world:
            assert sorted(every) == list(range(count))


@given(
    count=st.integers(1, 200),
    sizes=st.lists(st.integers(1, 6), min_size=1, max_size=5),
    drop_last=st.booleans(),
    redealt=st.integers(0, 6),
)
def test_batches_of_unequal_sizes(count: int, sizes: list[int], drop_last: bool, redealt: int) -> None:
    """Broken: with shares, samples would come twice or never, ranks have other numbers of batches, or other ideas of who has how
    many of a batch, by which gradients count; also after sizes were dealt anew in the middle of a pass."""
    world = len(sizes)
    members = range(world)
    ranks = [Samples(Place(seed=1, samples=count), members=members, me=me) for me in members]
    dealt = dict(enumerate(sizes))
    for rank in ranks:
        rank.dealt = lambda _: dealt
        rank.deal()
        rank.begin(3, drop_last=drop_last)
    upcoming = [rank.upcoming() for rank in ranks]
    every: list[int] = []
    for step in itertools.count():
        if step == redealt:
            dealt = dict(enumerate(sizes[::-1]))
            for rank in ranks:
                rank.deal()
            upcoming = [rank.upcoming() for rank in ranks]
        lefts = {rank.steps_left(3, drop_last=drop_last) for rank in ranks}
        drawn = [next(each, None) for each in upcoming]
        if None in drawn:
            assert set(map(type, drawn)) == {type(None)}
            assert lefts == {0}
            break
        counts = [rank.hand_out() for rank in ranks]
        assert all(each == counts[0] for each in counts)
        whole = sum(dealt.values()) <= sum(counts[0].values())
        for me, own in zip(members, drawn, strict=True):
            assert own is not None
            assert counts[0][me] <= dealt[me]
            assert counts[0][me] == dealt[me] or not whole
            every += own if counts[0][me] else []
    assert len(every) == len(set(every))
    assert set(every) == set(range(count)) if not drop_last else len(every) <= count


def test_a_loop_that_is_left_begins_another_pass() -> None:
    """Broken: a script that takes a hundred batches in each of its epochs would train on the same ones again, or an evaluation on a
    part of the data."""
    samples = Samples(Place(seed=1, samples=8), members=[0], me=0)
    orders = []
    for _ in range(3):
        samples.begin(2, drop_last=False)
        upcoming = samples.upcoming()
        orders.append([next(upcoming), next(upcoming)])
        samples.hand_out()
        samples.end()
        assert not samples.place().open
    assert orders[0] != orders[1] != orders[2]
    assert samples.data_epoch == 2


def test_a_place_that_is_none_is_refused() -> None:
    """Broken: a damaged checkpoint would be noticed in the middle of training, as samples that are not there."""
    for wrong in (
        Place(seed=1, samples=3, at=4),
        Place(seed=1, samples=3, at=2, returned=(2,)),
        Place(seed=1, samples=3, at=2, returned=(1, 1)),
    ):
        with pytest.raises(UsageError, match="not where a sampler can be"):
            Samples(wrong, members=[0], me=0)
