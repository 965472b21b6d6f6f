"""Epochs begin at one iteration on every rank, whatever arrives when: a deterministic simulation with seeds."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hocket.errors import Error
from hocket.policy.epoch import Epoch, Epochs


@settings(max_examples=200)
@given(st.integers(1, 8), st.integers(0, 2**32 - 1))
def test_all_ranks_begin_at_one_iteration(world, seed):
    """Ranks would run different programs in one iteration, and hang or mix gradients up."""
    chance = random.Random(seed)  # noqa: S311  # a simulation
    ranks = [Epochs(Epoch(0)) for _ in range(world)]
    began: list[list[tuple[int, int]]] = [[] for _ in range(world)]
    proposals = 5
    announced = 0
    waiting: list[tuple[int, Epoch]] = []
    for iteration in range(400):
        # Timers meet: once no epoch waits anywhere, the next one may be announced; it reaches ranks one by one.
        settled = all(each.settled for each in ranks) and not waiting
        if settled and announced < proposals and chance.random() < 0.3:
            announced += 1
            waiting = [(rank, Epoch(announced)) for rank in range(world)]
            chance.shuffle(waiting)
        votes = []
        for rank in range(world):
            # What arrives between two ranks' votes is where an epoch could begin on some only.
            while waiting and chance.random() < 0.2:
                late, epoch = waiting.pop()
                ranks[late].learn(epoch)
            votes.append(ranks[rank].vote())
        for rank in range(world):
            epoch = ranks[rank].decide(min(votes))
            if epoch is not None:
                began[rank].append((iteration, epoch.number))
    assert all(each == began[0] for each in began)
    assert [number for _, number in began[0]] == list(range(1, proposals + 1))


def test_an_epoch_out_of_turn_is_refused():
    """A lost epoch would be skipped in silence."""
    epochs = Epochs(Epoch(0))
    with pytest.raises(Error, match="epoch 2 cannot follow epoch 0"):
        epochs.learn(Epoch(2))
    epochs.learn(Epoch(1))
    with pytest.raises(Error, match="epoch 2 cannot follow epoch 0"):
        epochs.learn(Epoch(2))
    with pytest.raises(Error, match="ranks vote for epoch 3"):
        epochs.decide(3)
