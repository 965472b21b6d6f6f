"""Members and newcomers prepare beside training to meet: what the coordinator makes of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from hocket.members.member_messages import Hears, Prepared, Prepares
from tests.launch.coordinated import NEWCOMERS, SILENCE_S, Newcomers


@pytest.fixture
def jobs() -> Iterator[Callable[..., Newcomers]]:
    made = []

    def make(world: int, **options: Any) -> Newcomers:
        made.append(Newcomers(world, members_max=4, **options))
        return made[-1]

    yield make
    for each in made:
        each.stores.close()


def orders(job: Newcomers, client: int) -> list[Prepares]:
    return [each for each in job.told[client] if isinstance(each, Prepares)]


def test_all_meet_with_what_they_have_prepared(jobs: Callable[..., Newcomers]) -> None:
    """Broken: members would stop for a newcomer before it could go on, or connect once more while all stand still."""
    job = jobs(2)
    job.prepares = False
    job.join(NEWCOMERS[0])
    (order,) = orders(job, 0)
    assert order.members == (0, 1, 2)
    assert order.store is not None
    for client in (0, NEWCOMERS[0]):
        job.say(client, Prepared(store=order.store, done=True))
    job.say(1, Prepared(store="another", done=True))
    job.step(0)
    assert job.meetings(0) == [], "member 1 has not prepared anything yet"
    job.say(1, Prepared(store=order.store, done=True))
    job.deliver()
    job.step(1)
    assert [(each.members, each.store, each.prepared) for each in job.meetings(0)] == [
        (order.members, order.store, True)
    ]


@pytest.mark.parametrize("unable", [1, NEWCOMERS[0]])
def test_who_cannot_prepare_is_met_all_the_same(unable: int, jobs: Callable[..., Newcomers]) -> None:
    """Broken: a process that may not open another port could not join, or the others would go on with connections to nobody."""
    job = jobs(2)
    job.unable.add(unable)
    job.join(NEWCOMERS[0])
    job.step(0)
    (meeting,) = job.meetings(0)
    first, forgets = orders(job, 0)
    assert not meeting.prepared
    assert meeting.store != first.store
    assert forgets == Prepares()


def test_who_hangs_while_it_prepares_does_not_hold_up_others(jobs: Callable[..., Newcomers]) -> None:
    """Broken: nobody could join any more after one that hangs."""
    job = jobs(2, heartbeat_s=SILENCE_S)
    job.prepares = False
    job.join(NEWCOMERS[0])
    job.until(lambda: orders(job, 0)[-1] == Prepares())
    job.step(0)
    assert [each.prepared for each in job.meetings(0)] == [False]


def test_a_newcomer_that_dies_while_it_prepares_is_never_met(jobs: Callable[..., Newcomers]) -> None:
    """Broken: members would stop for a process that is gone, or keep its connections."""
    job = jobs(2)
    job.prepares = False
    job.join(NEWCOMERS[0])
    job.coordination.disconnect(NEWCOMERS[0])
    job.deliver()
    assert orders(job, 0)[-1] == orders(job, 1)[-1] == Prepares()
    job.step(0)
    assert job.meetings(0) == []
    assert [member.in_force for member in job.members] == [1, 1]
    job.prepares = True
    job.join(NEWCOMERS[1])
    job.step(1)
    assert [each.prepared for each in job.meetings(0)] == [True]


def test_a_member_that_is_lost_takes_what_all_have_prepared_with_it(jobs: Callable[..., Newcomers]) -> None:
    """Broken: the others would go on with connections to a rank that is gone."""
    job = jobs(3)
    job.join(NEWCOMERS[0])
    job.lose(1)
    assert orders(job, 0)[-1] == orders(job, NEWCOMERS[0])[-1] == Prepares()


def test_a_newcomer_that_is_silent_while_it_prepares_is_not_met_until_it_is_heard(
    jobs: Callable[..., Newcomers],
) -> None:
    """Broken: members would stop for a process that is stopped, and stand still until a time-out."""
    job = jobs(2, heartbeat_s=SILENCE_S)
    job.prepares = False
    member = job.join(NEWCOMERS[0])
    job.silent = {NEWCOMERS[0]}
    job.until(lambda: job.unheard(member))
    job.goes_by(SILENCE_S)
    job.step(0)
    assert job.meetings(0) == []
    assert [each.in_force for each in job.members] == [1, 1]
    job.silent, job.prepares = set(), True
    job.say(NEWCOMERS[0], Hears())
    job.deliver()
    job.goes_by(SILENCE_S)
    job.step(1)
    assert [each.prepared for each in job.meetings(0)] == [True]
