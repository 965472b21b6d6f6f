"""Newcomers get the state of those that have it: a part from each, of those that have the same."""

from __future__ import annotations

import json
import re
from contextlib import contextmanager

import numpy as np
import pytest

from hocket.settings import Settings
from hocket.training.checkpoint.replicate import BLOCK_BYTES, WINDOW_BYTES, WORD_BYTES, digest, replicate
from hocket.training.process import joined
from tests.support import ranks

HERE = "tests.training.test_replicate"
WORLD, STATE_BYTES, SAVED = 4, 2 * WINDOW_BYTES + BLOCK_BYTES + 13, b"an optimizer's"
SPLIT = WINDOW_BYTES + 5


class Held:
    """A model whose state is bytes. `odd`: this rank has gone apart from the others."""

    def __init__(self, rank: int, *, holds: bool, odd: bool) -> None:
        self.bytes = np.random.default_rng(0 if holds else rank + 1).integers(0, 256, STATE_BYTES, np.uint8)
        self.saved = SAVED if holds else b""
        if odd:
            self.bytes[-1] ^= 1
            self.saved += b" longer"

    def state(self):
        return [self.bytes[:SPLIT], self.bytes[SPLIT:]]

    @contextmanager
    def filling(self):
        yield self.state()

    def optimizer_state(self):
        return self.saved

    def load_optimizer_state(self, saved):
        self.saved = saved


def replicated(holders: str, odd: str) -> list[str]:
    """On one rank: the digest of its state, and its optimizer's."""
    process = joined(Settings.from_environment())
    having = json.loads(holders)
    rank = process.job.rank
    model = Held(rank, holds=rank in having, odd=rank in json.loads(odd))
    replicate(model, process.job, process.engine, having)
    return [digest(model.state()), model.saved.decode()]


def test_newcomers_get_what_the_first_holder_has(tmp_path):
    """Broken: a newcomer would train on parts of states that are not the same one; or ranks that train would be given others'."""
    cases = [([0], []), ([0, 1, 2], []), ([1, 3], []), ([0, 1, 2], [1]), ([0, 2], [0])]
    calls = [(f"{HERE}:replicated", *map(json.dumps, each)) for each in cases]
    ended = ranks.in_turn(calls, WORLD, tmp_path)
    assert ended.outcome.code == 0, ended.output
    for rank, found in enumerate(ended.returned):
        for (holders, odd), (state, saved) in zip(cases, found, strict=True):
            source = rank if rank in holders else holders[0]
            model = Held(source, holds=True, odd=source in odd)
            assert (state, saved) == (digest(model.state()), model.saved.decode()), (rank, holders, odd)
    apart = re.findall(r"(\d) has other parameters or buffers than rank (\d)", ended.output)
    assert apart == [("1", "0"), ("2", "0")], ended.output


@pytest.mark.parametrize("at", [0, 7, BLOCK_BYTES, STATE_BYTES - 1])
def test_a_digest_tells_states_apart(at):
    """Broken: ranks that differ in one byte would each give a part of a newcomer's state."""
    state = np.zeros(STATE_BYTES, np.uint8)
    before = digest([state])
    state[at] = 1
    assert digest([state]) != before


@pytest.mark.parametrize("size", [0, 1, WORD_BYTES, BLOCK_BYTES + 1])
def test_states_of_any_size_have_one(size):
    """Broken: joining would fail with a model of a few bytes."""
    assert digest([np.zeros(size, np.uint8)]) == digest([np.zeros(size, np.uint8)])
