"""Members of elastic jobs meet those that join, while others die, leave, stop, or are cut off, and launchers die.

The jobs are simulated; their coordinator and members are the real ones.

`make meetings CASES=5000` runs as many courses of events; `python -m tests.meetings SEED` shows one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any
from unittest import mock

import pytest

from hocket.members.meetings import Meetings
from hocket.members.membership import Membership
from hocket.members.preparing import Preparing
from tests.meetings import script
from tests.meetings.course import Course
from tests.support import drawn

pytestmark = pytest.mark.members

CASES = drawn.cases(48)
FOUND = (358, 484, 2155)
"""Seeds that have failed: newcomers gave up just before the member that hung, which they were to replace, was left behind."""
PARTS = 4
SEEDS_MAX = 2000
"""Among so many, each planted bug must be found."""


@pytest.mark.parametrize("part", range(PARTS))
def test_all_that_live_meet_and_come_to_the_end(part: int) -> None:
    """Broken: some moment of a loss would leave healthy ranks behind, waiting for each other, or with different sums."""
    for seed in (*range(part, CASES, PARTS), *FOUND[part::PARTS]):
        assert Course(seed).run() == [], f"python -m tests.meetings {seed}"


@pytest.mark.parametrize("part", range(PARTS))
def test_the_account_has_every_step(part: int) -> None:
    """Broken: goodput would be of more or less work than stands, when the rank that reports it leaves or dies."""
    for seed in range(part, CASES // 4, PARTS):
        course = Course(seed, reports=True)
        course.run()
        assert course.wrong_account() == [], seed


def test_a_course_follows_from_its_seed() -> None:
    """Broken: what was found once could not be looked at."""
    first, again = Course(7), Course(7)
    assert first.run() == again.run()
    assert first.log == again.log


@contextlib.contextmanager
def _gives_up(membership: Membership) -> Iterator[None]:
    """A time-out ends whoever has waited."""
    del membership
    yield


@pytest.mark.parametrize(
    ("owner", "name", "planted", "first"),
    [
        (script, "without_the_absent", _gives_up, 0),
        (Meetings, "must_be_newest", lambda *_: None, 0),
        (Membership, "newcomers", (), 0),
        (Preparing, "take", lambda *_: None, 0),
    ],
    ids=[
        "a time-out ends who waits",
        "an older meeting goes on beside a newer one",
        "members step on without newcomers",
        "members forget what the others go on with",
    ],
)
def test_planted_bugs_are_found(owner: Any, name: str, planted: Any, first: int) -> None:
    """Broken: courses would have become so tame that they find nothing. `first`: the seed to begin with."""
    with mock.patch.object(owner, name, planted):
        found = next(seed for seed in range(first, first + SEEDS_MAX) if Course(seed).run())
    assert Course(found).run() == [], "it goes wrong without the bug, too"
