"""Connections of a path, of which the rank that calls chooses the number."""

import numpy as np
import pytest

from hocket.artefacts.plan import AllReduce
from hocket.planning.compile import all_reduce_program
from tests.support.engines import Job

ELEMENTS = 300_000


def test_the_rank_that_calls_says_how_many_connections_there_are():
    """A long path would have one slow connection, or ranks would wait for some that nobody opens."""
    ring = AllReduce(algorithm="ring")
    program = all_reduce_program(world=3, elements=ELEMENTS, dtype="f32", op="sum", scale=1.0, route=ring)
    # Rank 2 calls both others, rank 1 calls rank 0; those that are called leave it to them.
    with Job("abc", streams=[[0, 0, 0], [0, 0, 0], [3, 5, 0]]) as job:
        found = job.each(lambda engine, _: [None if path is None else path[0] for path in engine.paths()])
        values = [[np.arange(ELEMENTS, dtype=np.float32) % 64 + rank] for rank in range(3)]
        expected = sum(each[0] for each in values)
        job.run(program, values)
    assert found == [[None, 1, 3], [1, None, 5], [3, 5, None]]
    assert all((own == expected).all() for (own,) in values)


def test_more_connections_than_a_path_may_have_are_turned_away(capfd):
    """A rank would wait for connections without end, each a descriptor of its host."""
    with pytest.raises(AssertionError, match=r"rank 0 does not await connection|not connected after"):
        Job("ab", streams=[[0, 0], [40, 0]], timeout_s=2)
