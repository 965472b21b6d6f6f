"""The store as threads beside training use it in an elastic job (`members/members_store.py`)."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from hocket.errors import RendezvousError
from hocket.job.rendezvous import Job
from hocket.job.store.server import Server
from hocket.job.store.store import Store
from hocket.members.members_store import MembersStore
from hocket.settings import Settings

SECRET = b"0123456789abcdef"
TIMEOUT_S = 10.0


@pytest.fixture
def jobs() -> Iterator[list[Job]]:
    """Of three ranks on three hosts, as each sees it."""
    server = Server(["127.0.0.1"], 0, SECRET)
    address = f"127.0.0.1:{server.port}"
    made = []
    for rank in range(3):
        store = Store(address, SECRET, rank=rank, who=f"rank {rank}", timeout_s=TIMEOUT_S)
        job = Job(
            rank=rank,
            world=3,
            local_rank=0,
            local_world=1,
            host="abc"[rank],
            hosts=("a", "b", "c"),
            name="job",
            secret=SECRET,
            store=store,
            addresses=("127.0.0.1",),
            clocks=(0, 1, 2),
            members=(10, 11, 12),
            settings=Settings(start_timeout_s=TIMEOUT_S),
        )
        made.append(job)
    yield made
    for job in made:
        job.store.leave()
    server.close()


def both(jobs: list[Job]) -> tuple[MembersStore, MembersStore]:
    """Of the first and the third rank, which go on as ranks 0 and 1."""
    first, third = (
        MembersStore(job.among([0, 2]), job, f"a thread of rank {job.rank}") for job in (jobs[0], jobs[2])
    )
    return first, third


def test_members_that_are_left_gather_by_their_own_ranks(jobs: list[Job]) -> None:
    """Broken: after a loss, what ranks decide beside training would wait for the lost rank, or mix up the others."""
    jobs[1].store.leave("it is gone")
    stores = both(jobs)
    with ThreadPoolExecutor(2) as threads:
        asked = [
            threads.submit(store.gather, "n", rank, 2, value, TIMEOUT_S)
            for rank, (store, value) in enumerate(zip(stores, ("x", None), strict=True))
        ]
        assert [each.result() for each in asked] == [["x", None]] * 2
    for store in stores:
        store.leave()


def test_one_more_that_is_lost_ends_the_gather_by_name(jobs: list[Job]) -> None:
    """Broken: those that are left would wait for it for an hour."""
    jobs[1].store.leave("it is gone")
    stores = both(jobs)
    jobs[2].store.leave("so is it")
    with pytest.raises(RendezvousError, match="rank 1 on c is lost") as raised:
        stores[0].gather("n", 0, 2, "x", TIMEOUT_S)
    assert raised.value.rank == 1
    for store in stores:
        store.leave()


def test_another_thread_hangs_up(jobs: list[Job]) -> None:
    """Broken: a thread of an epoch that has ended would stay, and wait for ranks that ask no more."""
    first, third = both(jobs)
    with ThreadPoolExecutor(1) as threads:
        waits = threads.submit(first.gather, "n", 0, 2, "x", TIMEOUT_S)
        first.hang_up()
        assert isinstance(waits.exception(TIMEOUT_S), RendezvousError)
    third.leave()
