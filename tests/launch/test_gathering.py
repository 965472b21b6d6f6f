"""Members of an elastic job that meet: without whom the others do, when some cannot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from hocket.members.gathering import Gathering
from hocket.members.member_messages import Gives, Lacks

PATIENCE_NS = 1000


def gathering(complaints: Mapping[int, Sequence[int]], *, present: Sequence[int] = ()) -> Gathering:
    """Of four that are to meet, of whom some complain."""
    made = Gathering(range(3))
    made.begin((0, 1, 2, 7), epochs=2)
    made.present.update(present)
    for member, missing in complaints.items():
        made.complain(member, missing, now_ns=0)
    return made


@pytest.mark.parametrize(
    ("complaints", "blamed"),
    [
        # It hangs, and says nothing.
        ({0: [7], 1: [7], 2: [7]}, (7, 3)),
        ({0: [1], 2: [1], 7: [1]}, (1, 3)),
        # One way between two is closed: both miss each other.
        ({1: [7], 7: [1], 0: [], 2: []}, (7, 1)),
        # Nobody reaches member 1. Those behind it, who waited for it, came to nobody else in time.
        ({1: [2, 7], 2: [1, 7], 7: [1], 0: []}, (1, 2)),
        # Each was late because of another one: somebody has to go.
        ({0: [1], 1: [2], 2: [0], 7: []}, (2, 1)),
    ],
)
def test_whoever_most_cannot_reach_is_left_out(
    complaints: Mapping[int, Sequence[int]], blamed: tuple[int, int]
) -> None:
    """Broken: a job would go on with one rank whose network is out of order, without those that are well."""
    present = [each for each, missing in complaints.items() if missing]
    assert gathering(complaints, present=present).to_blame(1, PATIENCE_NS) in (blamed, None)
    assert gathering(complaints, present=[0, 1, 2, 7]).to_blame(PATIENCE_NS + 1, PATIENCE_NS) == blamed


def test_who_may_still_complain_is_waited_for() -> None:
    """Broken: the first complaint would decide, whoever is at fault."""
    meeting = gathering({2: [1]})
    assert meeting.to_blame(PATIENCE_NS, PATIENCE_NS) is None
    meeting.complain(7, [1], now_ns=500)
    assert meeting.to_blame(PATIENCE_NS, PATIENCE_NS) is None
    meeting.complain(0, [1], now_ns=600)
    assert meeting.to_blame(PATIENCE_NS, PATIENCE_NS) == (1, 3)
    meeting.begin((0, 2, 7), epochs=0)
    assert meeting.to_blame(10 * PATIENCE_NS, PATIENCE_NS) is None


def test_who_has_come_misses_those_that_have_not() -> None:
    """Broken: members that wait for others, and cannot see for whom, would wait for ever, or end."""
    assert gathering({0: [], 1: []}, present=[0, 1, 2]).to_blame(PATIENCE_NS + 1, PATIENCE_NS) == (7, 2)


def test_newcomers_get_what_the_first_gives_whenever_they_come_for_it() -> None:
    """Broken: a newcomer would wait in vain that comes for it before the others are so far, or after; or get another meeting's."""
    meeting = gathering({})
    gives, lacks = Gives(generation=1, state=b"rates"), Lacks(generation=1)
    assert list(meeting.hand_over(7, lacks)) == []
    assert list(meeting.hand_over(0, Gives(generation=0, state=b"old"))) == []
    assert list(meeting.hand_over(0, gives)) == [(7, gives)]
    assert list(meeting.hand_over(1, Gives(generation=1, state=b"same"))) == []
    assert list(meeting.hand_over(7, lacks)) == [(7, gives)]
    assert list(meeting.hand_over(5, lacks)) == [], "no member of it"
    meeting.begin((0, 1, 2, 7, 8), epochs=1)
    assert list(meeting.hand_over(8, Lacks(generation=2))) == []
    meeting.drop(8)
    assert list(meeting.hand_over(0, Gives(generation=2, state=b""))) == [], "it is gone"
