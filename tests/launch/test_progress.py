"""A member's reports of what stands: few, and none missing when another member takes over."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest

from hocket.members import progress
from hocket.members.member_messages import Committed, FromMember, Resumed
from hocket.members.progress import REPORT_S, Progress


class Member:
    """Its progress, by a clock of its own."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s, self.first = 100.0, True
        self.told: list[FromMember] = []
        monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: self.now_s))
        self.progress = Progress(threading.Lock(), self.told.append, lambda: self.first)

    def committed(self) -> list[tuple[int, int, int, int]]:
        found = [each for each in self.told if isinstance(each, Committed)]
        return [(each.generation, each.steps, each.shares, each.samples) for each in found]


@pytest.fixture
def member(monkeypatch: pytest.MonkeyPatch) -> Member:
    return Member(monkeypatch)


def test_one_member_reports_once_a_second(member: Member) -> None:
    """Broken: short steps would each cost a message, or the launcher hear the same from all ranks."""
    for step in range(1, 101):
        member.progress.stepped(step, ranks=2, samples=8 * step)
        member.now_s += REPORT_S / 10
    assert len(member.told) == pytest.approx(10, abs=1)
    member.first = False
    member.now_s += REPORT_S
    member.progress.stepped(101, ranks=2, samples=808)
    assert len(member.told) == pytest.approx(10, abs=1)


def test_the_next_first_member_tells_of_the_last_step_before_a_loss(member: Member) -> None:
    """Broken: steps that the lost first member had not reported would be taken for lost time."""
    member.first = False
    member.progress.stepped(1, ranks=3, samples=12)
    member.progress.stepped(2, ranks=3, samples=24)
    member.now_s += 0.5
    member.progress.stop()
    member.first = True
    member.now_s += 0.25
    member.progress.resumed(2, again=True, steps=0)
    last, resumed = member.told
    assert last == Committed(generation=0, steps=2, shares=6, samples=24, age_s=0.75)
    assert resumed == Resumed(epoch=2, took_s=0.25, again=True, steps=0)
    member.progress.stepped(3, ranks=2, samples=32)
    assert member.committed()[-1] == (0, 3, 8, 32)  # at once: the time of the loss ends with it


def test_work_is_counted_anew_when_ranks_have_met(member: Member) -> None:
    """Broken: a newcomer, which has counted less, would take back what the others had reported."""
    member.progress.begin(0, 0)
    member.progress.stepped(1, ranks=2, samples=8)
    member.progress.stepped(2, ranks=2, samples=16)
    member.progress.begin(1, 2)
    member.progress.resumed(3, again=False, steps=2)
    assert member.committed()[-1] == (0, 2, 4, 16)
    member.progress.stepped(3, ranks=3, samples=28)
    assert member.committed()[-1] == (1, 3, 3, 12)


def test_steps_alone_count_with_the_exchange_after_them(member: Member) -> None:
    """Broken: a job whose ranks step alone would seem to do a part of its work."""
    member.progress.stepped(30, ranks=4, samples=960)
    member.now_s += REPORT_S
    member.progress.stepped(60, ranks=3, samples=1680)
    assert member.committed() == [(0, 30, 120, 960), (0, 60, 210, 1680)]


def test_each_member_tells_of_its_last_step(member: Member) -> None:
    """Broken: the job would seem to lack a step if its first rank leaves with the last one."""
    member.first = False
    member.progress.stepped(1, ranks=2, samples=0)
    member.progress.report()
    assert member.told == []
    member.progress.report(ends=True)
    assert member.committed() == [(0, 1, 2, 0)]
