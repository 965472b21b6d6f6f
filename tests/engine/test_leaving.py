"""Ranks that leave at once, while something between them is not complete."""

import pytest

from tests.support.engines import Job

TAG = 7


def receive(engine, rank):
    engine.receive(1 - rank, TAG, engine.allocate(64), 64)


@pytest.mark.parametrize("hosts", ["aa", "ab"])
def test_ranks_of_an_elastic_job_leave_a_look_at_the_network_behind(hosts):
    """Broken: ranks that meet newcomers in the middle of a look would take it for an error, and the others would wait for them."""
    with Job(list(hosts), elastic=True) as job:
        job.each(receive)
