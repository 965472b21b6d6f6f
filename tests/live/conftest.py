"""What several of these tests need."""

import pytest

from tests.live.jobs import Job


@pytest.fixture(scope="module")
def slow_job(tmp_path_factory):
    """A job of which one rank loads its batches slowly."""
    with Job(tmp_path_factory.mktemp("slow"), "slow loader", "-n", "4") as job:
        job.trains()
        yield job
