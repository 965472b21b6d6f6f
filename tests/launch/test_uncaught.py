"""Exceptions that nothing catches: which calls hear of them, in any order of hooks."""

from __future__ import annotations

import gc
import sys
import threading
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

from hocket.job.uncaught import Uncaught

ERROR = ValueError("wrong")


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """What the hook that was there before has heard, and what tests add."""
    found: list[Any] = []
    monkeypatch.setattr(sys, "excepthook", lambda _kind, error, _trace: found.append(("before", error)))
    return found


def raised() -> None:
    sys.excepthook(type(ERROR), ERROR, None)


def test_each_hears_once_after_the_hook_that_was_there(heard: list[Any]) -> None:
    """Broken: the error is printed after others have ended this process, or twice, or a second job does not hear of it."""
    before, uncaught = sys.excepthook, Uncaught()
    calls = [lambda error, each=each: heard.append((each, error)) for each in range(3)]
    for call in calls:
        uncaught.tell(call)
    raised()
    assert heard == [("before", ERROR), (0, ERROR), (1, ERROR), (2, ERROR)]
    heard.clear()
    uncaught.forget(calls[1])
    raised()
    assert heard == [("before", ERROR), (0, ERROR), (2, ERROR)]
    uncaught.forget(calls[2])
    uncaught.forget(calls[0])
    assert sys.excepthook is before


def test_a_hook_of_others_above_it_stays(heard: list[Any]) -> None:
    """Broken: an error goes round between this hook and torch's, or is told twice once another job begins."""
    uncaught = Uncaught()
    first, second = (lambda error, each=each: heard.append((each, error)) for each in range(2))
    uncaught.tell(first)
    ours = sys.excepthook

    def above(*what: Any) -> None:
        heard.append("above")
        ours(*what)

    sys.excepthook = above
    uncaught.forget(first)
    assert sys.excepthook is above
    uncaught.tell(second)
    raised()
    assert heard == ["above", ("before", ERROR), (1, ERROR)]
    uncaught.forget(second)
    assert sys.excepthook is above


def test_all_hear_of_it_even_if_one_fails(heard: list[Any]) -> None:
    """Broken: ranks of a second job wait, since telling those of the first has failed."""
    uncaught = Uncaught()

    def fails(error: BaseException) -> None:
        raise RuntimeError("cannot be told") from error

    uncaught.tell(fails)
    uncaught.tell(heard.append)
    with pytest.raises(RuntimeError, match="cannot be told"):
        raised()
    assert heard == [("before", ERROR), ERROR]
    uncaught.forget(fails)
    uncaught.forget(heard.append)


@pytest.mark.usefixtures("heard")
def test_who_is_forgotten_is_not_kept() -> None:
    """Broken: a job that has ended keeps its memory while another one or a thread goes on."""

    class Job:
        def told(self, error: BaseException) -> None:
            raise AssertionError from error

    uncaught, jobs = Uncaught(), [Job() for _ in range(3)]
    gc.disable()
    try:
        for each in jobs:
            uncaught.tell(each.told)
        thread = threading.Thread(target=lambda: None)
        last, ended = jobs.pop(), [weakref.ref(each) for each in jobs]
        for each in jobs:
            uncaught.forget(each.told)
        del each, jobs
        assert [each() for each in ended] == [None, None]
        uncaught.forget(last.told)
        thread.start()
        thread.join()
    finally:
        gc.enable()
