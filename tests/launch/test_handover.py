"""What newcomers of an elastic job get from the others when the script goes on."""

from __future__ import annotations

import threading

import pytest

from hocket.errors import RendezvousError
from hocket.members.handover import Handover
from hocket.members.member_messages import FromMember, Gives, Lacks


class Newcomer:
    """A member that joined with generation 2, of three."""

    def __init__(self) -> None:
        self.members = [0, 1, 3]
        self.told: list[FromMember] = []
        self.ended: str | None = None
        self.changed = threading.Condition(threading.RLock())
        self.handover = Handover(self.changed, self.told.append, lambda: self.members, lambda: self.ended)

    def take(self, timeout_s: float = 10.0) -> bytes | None:
        return self.handover.take(2, [0, 1], timeout_s)


def test_a_newcomer_waits_for_what_was_meant_for_it() -> None:
    """Broken: it would begin with what others gave to the one before."""
    newcomer = Newcomer()
    newcomer.handover.hear(Gives(generation=1, state=b"old"))

    def hear() -> None:
        with newcomer.changed:
            newcomer.handover.hear(Gives(generation=2, state=b"new"))
            newcomer.changed.notify_all()

    threading.Timer(0.05, hear).start()
    assert newcomer.take() == b"new"
    assert newcomer.told == [Lacks(generation=2)]


def test_a_newcomer_goes_on_without_what_nobody_has_any_more(caplog: pytest.LogCaptureFixture) -> None:
    """Broken: it would wait for the dead, or nobody would know that its scheduler begins anew."""
    newcomer = Newcomer()
    newcomer.members = [3]
    assert newcomer.take() is None
    assert "it begins anew here" in caplog.text


def test_a_newcomer_names_whom_it_waits_for() -> None:
    """Broken: it would wait for ever, or fail with no name."""
    newcomer = Newcomer()
    newcomer.members.remove(0)
    with pytest.raises(
        RendezvousError, match="rank 1 did not come to the forward after this rank joined within 0 s"
    ):
        newcomer.take(0.0)
    newcomer.ended = "the job ends: too few are left"
    with pytest.raises(RendezvousError, match="too few are left"):
        newcomer.take()
