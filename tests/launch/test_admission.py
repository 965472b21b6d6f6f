"""Numbers of the processes that join an elastic job."""

import pytest

from hocket.job.store.frames import FrameError
from hocket.members.admission import Admission
from hocket.members.member_messages import Joins


def joins(member: int | None) -> Joins:
    return Joins(host="c", process=1, version="1", member=member)


def test_a_number_is_kept_for_who_was_told_to_ask_for_it() -> None:
    """Broken: two processes would be the same member, or any process could take the number of another."""
    admission = Admission(3, range(3, 5))
    assert admission.number(joins(None), {0, 1, 2}) == 5
    admission.take(5)
    assert admission.number(joins(4), {0, 1, 2, 5}) == 4
    admission.take(4)
    assert admission.number(joins(None), {0, 1, 2, 4, 5}) == 6
    for asked, known in ((0, {0, 1, 2}), (4, {0, 4}), (5, set()), (6, set())):
        with pytest.raises(FrameError, match=f"asks to be member {asked}"):
            admission.number(joins(asked), known)
