"""When processes start in the place of lost ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import pytest

from hocket.errors import RendezvousError
from hocket.members.coordination import Coordination
from hocket.start import replacements
from hocket.start.processes import Process
from hocket.start.replacements import STEADY_S, WAIT_MAX_S, WAIT_S, Replacements


@dataclass
class Rank:
    rank: int
    code: int | None = None
    host: str = "a"


class Job:
    """What they know of a job, and the launcher: at a time that the test sets."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, most: int) -> None:
        self.members, self.room, self.finished = {0, 1}, 0, False
        self.roster = self
        self.now_s, self.fails = 0.0, False
        monkeypatch.setattr(replacements.time, "monotonic", lambda: self.now_s)
        self.replacements = Replacements(cast("Coordination", self), 2, most, self.start)

    def has(self, member: int) -> bool:
        return member in self.members

    def misses(self, member: int) -> bool:
        del member
        return not self.finished

    def start(self, number: int, before: Process) -> Process:
        if self.fails:
            raise RendezvousError(f"rank {number}: `ssh` cannot be started")
        return cast("Process", Rank(number, host=before.host))

    def loses(self, rank: Rank) -> None:
        rank.code = 1
        self.members.discard(rank.rank)
        self.room = 2 - len(self.members)
        self.replacements.lost(cast("Process", rank))

    def waits(self) -> tuple[float, Rank]:
        """How long it is until another one starts, and which."""
        since_s = self.now_s
        while True:
            for process in self.replacements.started():
                return self.now_s - since_s, cast("Rank", process)
            self.now_s += 0.5
            assert self.now_s < since_s + 2 * WAIT_MAX_S

    def trains(self, rank: Rank, time_s: float) -> None:
        """It has met the others, and goes on for so long."""
        self.members.add(rank.rank)
        self.room = 0
        assert list(self.replacements.started()) == []
        self.now_s += time_s


def test_waits_get_longer_until_one_has_trained_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    """Broken: a script that fails at once would be started many times a second; or a job of months would wait a minute for each."""
    job, rank = Job(monkeypatch, 100), Rank(1)
    waited = []
    for _ in range(8):
        job.loses(rank)
        wait_s, rank = job.waits()
        waited.append(wait_s)
    assert waited == [WAIT_S, 2, 4, 8, 16, 32, WAIT_MAX_S, WAIT_MAX_S]
    job.trains(rank, STEADY_S / 2)
    job.loses(rank)
    wait_s, rank = job.waits()
    assert wait_s == WAIT_MAX_S
    job.trains(rank, STEADY_S)
    job.loses(rank)
    assert job.waits()[0] == WAIT_S


def test_places_are_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Broken: a bad host would keep lost ranks of good ones away."""
    job, bad = Job(monkeypatch, 100), Rank(1)
    for _ in range(5):
        job.loses(bad)
        _, bad = job.waits()
    job.trains(bad, 1)
    job.loses(Rank(0))
    assert job.waits()[0] == WAIT_S


def test_nobody_starts_who_finds_no_room_or_nothing_to_do(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Broken: processes would wait for a place until they give up, and be counted as lost; or come when the script has ended."""
    job = Job(monkeypatch, 100)
    job.loses(Rank(1))
    job.room = 0
    job.now_s += WAIT_S
    assert list(job.replacements.started()) == list(job.replacements.started()) == []
    assert caplog.text.count("rank 2 does not start yet: the job has as many ranks as it may") == 1
    job.room = 1
    (_, first) = job.waits()
    job.loses(Rank(0))
    job.room = 1
    job.now_s += WAIT_S
    assert list(job.replacements.started()) == [], "the first one takes the room"
    job.finished = True
    job.loses(first)
    job.room, job.now_s = 2, job.now_s + WAIT_MAX_S
    assert list(job.replacements.started()) == []


def test_those_that_are_lost_at_once_are_all_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Broken: a job that must have all of its ranks would never have them again, since each replacement took the room of two."""
    job = Job(monkeypatch, 100)
    job.loses(Rank(0))
    job.loses(Rank(1))
    job.room = 2
    job.now_s += WAIT_S
    started = list(job.replacements.started())
    assert [each.rank for each in started] == [2, 3]
    # Another one, while the first has yet to train.
    job.loses(cast("Rank", started[1]))
    job.room = 2
    job.now_s += 2 * WAIT_S
    assert [each.rank for each in job.replacements.started()] == [4]


def test_one_that_cannot_be_started_counts_and_another_follows(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Broken: a launcher without descriptors would end a job that trains, or give a rank up at once."""
    job = Job(monkeypatch, 2)
    job.fails = True
    job.loses(Rank(1))
    job.now_s += WAIT_S
    assert list(job.replacements.started()) == []
    job.fails = False
    assert (job.waits()[0], "cannot be started" in caplog.text) == (2 * WAIT_S, True)


def test_what_a_successor_made_up_for_is_not_held_against_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    """Broken: a job that ends for another reason would name a rank that was replaced long ago."""
    job, first = Job(monkeypatch, 5), Rank(1)
    job.loses(first)
    _, second = job.waits()
    assert not job.replacements.made_up_for(cast("Process", first))
    job.loses(second)
    _, third = job.waits()
    job.trains(third, 1)
    for rank, made_up in ((first, True), (second, True), (third, False)):
        assert job.replacements.made_up_for(cast("Process", rank)) is made_up
