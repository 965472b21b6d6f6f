"""The servers' protocol under adversarial orders of arrival: what it promises of each mode, whatever comes first."""

from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hocket.errors import PeerError
from hocket.parameter_server.consistency import Acknowledge, Answer, Consistency, Initialise, Update

PUSH, PULL = "push", "pull"
RATE = np.float32(0.1)


@cache
def gradient(worker, key, iteration):
    """Sums of these in f32 depend on the order of adding."""
    return np.random.default_rng((worker, key, iteration)).standard_normal(3).astype(np.float32)


class World:
    """Workers, one server and a network that delivers in any order; `steps[w]`: how many iterations worker w makes."""

    def __init__(self, steps, keys, staleness):
        self.steps, self.keys, self.staleness = steps, keys, staleness
        self.machine = Consistency(dict.fromkeys(range(keys), staleness), len(steps))
        self.value = {key: np.zeros(3, np.float32) for key in range(keys)}
        self.done = [-1] * len(steps)
        self.left = set()
        self.flying = {
            (PUSH if worker == 0 else PULL, key, worker)
            for key in range(keys)
            for worker in range(len(steps))
        }
        self.pushes = {key: [0] * len(steps) for key in range(keys)}
        self.answered = [0] * len(steps)
        self.seen = {}
        self.ahead = []

    def moves(self):
        leaves = [
            ("leave", None, worker)
            for worker, steps in enumerate(self.steps)
            if worker not in self.left and self.done[worker] == steps
        ]
        return sorted(self.flying) + leaves

    def make(self, move):
        what, key, worker = move
        self.flying.discard(move)
        if what == "leave":
            self.left.add(worker)
            return self.do(self.machine.handle_leave(worker))
        if what == PULL:
            return self.do(self.machine.handle_pull(key, worker))
        if self.done[worker] >= 0:
            self.pushes[key][worker] += 1
        return self.do(self.machine.handle_push(key, worker))

    def do(self, effects):
        for effect in effects:
            match effect:
                case Initialise(key, worker):
                    assert worker == 0
                    self.value[key] = np.ones(3, np.float32)
                case Update(key, workers):
                    mean = gradient(workers[0], key, self.pushes[key][workers[0]])
                    for worker in workers[1:]:
                        mean = mean + gradient(worker, key, self.pushes[key][worker])
                    self.value[key] = self.value[key] - RATE * mean / np.float32(len(workers))
                case Acknowledge(key, worker):
                    self.flying.add((PULL, key, worker))
                case Answer(key, worker, ahead):
                    others = [
                        self.pushes[key][each] for each in range(len(self.steps)) if each not in self.left
                    ]
                    assert ahead == self.pushes[key][worker] - min(others)
                    self.ahead.append(ahead)
                    self.seen[key, worker, self.pushes[key][worker]] = self.value[key].copy()
                    self.answer(worker)

    def answer(self, worker):
        self.answered[worker] += 1
        if self.answered[worker] < self.keys:
            return
        self.answered[worker] = 0
        self.done[worker] += 1
        if self.done[worker] < self.steps[worker]:
            self.flying |= {(PUSH, key, worker) for key in range(self.keys)}

    def run(self, choose):
        """To the end; an adversary that can stop it has found a deadlock."""
        moves = self.moves()
        while moves:
            self.make(choose(moves))
            moves = self.moves()
        assert self.left == set(range(len(self.steps))), "nobody can move, and some have not ended"
        assert self.done == self.steps


def adversary(random):
    """Any order, often one that holds a worker or a kind of message back for long."""
    favourite = random.choice([None, 0, 1, PUSH, PULL])

    def choose(moves):
        kept = [move for move in moves if favourite not in (move[0], move[2])]
        return random.choice(kept if kept and random.random() < 0.95 else moves)

    return choose


WORLDS = {"steps": st.lists(st.integers(0, 5), min_size=1, max_size=4), "keys": st.integers(1, 3)}


@given(**WORLDS, staleness=st.sampled_from([0, 1, 2, 3, None]), random=st.randoms(use_true_random=False))
@settings(max_examples=120)
def test_everybody_ends_and_nobody_runs_ahead(steps, keys, staleness, random):
    """A job would hang for ever, or workers would train on values older than the user allowed."""
    world = World(steps, keys, staleness)
    world.run(adversary(random))
    if staleness is not None:
        # A synchronous worker may have its answer while another's is still to be asked for, never an update more.
        assert max(world.ahead, default=0) <= staleness


@given(**WORLDS, random=st.randoms(use_true_random=False))
@settings(max_examples=120)
def test_synchronous_is_the_average_gradient_bit_for_bit(steps, keys, random):
    """Two runs of the same job would differ, because packets came in another order."""
    world = World(steps, keys, 0)
    world.run(adversary(random))
    for key in range(keys):
        value = np.ones(3, np.float32)
        for iteration in range(1, max(steps) + 1):
            workers = [worker for worker, count in enumerate(steps) if count >= iteration]
            mean = gradient(workers[0], key, iteration)
            for worker in workers[1:]:
                mean = mean + gradient(worker, key, iteration)
            value = value - RATE * mean / np.float32(len(workers))
            for worker in workers:
                assert np.array_equal(world.seen[key, worker, iteration], value)
        assert np.array_equal(world.value[key], value)


@given(
    random=st.randoms(use_true_random=False), slow=st.integers(0, 2), staleness=st.sampled_from([1, 3, None])
)
@settings(max_examples=60)
def test_how_far_a_worker_gets_without_the_slowest(random, slow, staleness):
    """A bound that is one off would let workers drift, or stall a job that was asked to be asynchronous."""
    world = World([9, 9, 9], 2, staleness)
    while any(done < 0 for done in world.done):
        world.make(adversary(random)(world.moves()))
    while moves := [move for move in world.moves() if move[2] != slow]:
        world.make(random.choice(moves))
    others = [done for worker, done in enumerate(world.done) if worker != slow]
    behind = min(world.pushes[key][slow] for key in range(2))
    assert all(done == (9 if staleness is None else min(9, behind + staleness)) for done in others)
    waits = [
        world.machine.waits_for(key, worker) for key in range(2) for worker in world.machine.present - {slow}
    ]
    assert all(each in ([], [slow]) for each in waits)
    assert ([slow] in waits) == any(done < 9 for done in others)


@pytest.mark.parametrize(
    ("told", "named"),
    [
        (lambda machine: machine.handle_push(0, 1), "worker 1 pushes key 0, which has no value yet"),
        (
            lambda machine: (machine.handle_pull(0, 1), machine.handle_pull(0, 1)),
            "worker 1 pulls key 0 before",
        ),
        (lambda machine: machine.handle_push(7, 0), "key 7, which is on another server"),
        (lambda machine: (machine.handle_leave(1), machine.handle_pull(0, 1)), "after it left"),
        (lambda machine: (machine.handle_pull(0, 1), machine.handle_leave(1)), "leaves while it waits"),
    ],
)
def test_what_a_worker_may_not_do_is_refused(told, named):
    """A worker out of step would be answered with another iteration's values."""
    with pytest.raises(PeerError, match=named):
        told(Consistency({0: 0}, 2))
