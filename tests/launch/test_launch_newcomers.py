"""Processes that want to join a job, and launchers of it that come and go meanwhile: over real sockets, without training."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor

import msgspec
import pytest

from hocket.errors import RendezvousError
from hocket.job.store import store
from hocket.job.store.server import Server
from hocket.members import member_messages
from hocket.members.membership import Membership
from hocket.settings import Settings

SECRET = b"0123456789abcdef"
PATIENCE_S = 10.0


class Launcher:
    """Hears newcomers, and says `answer` to them; with none it is one that dies before it answers."""

    def __init__(self, answer: member_messages.FromCoordinator | None) -> None:
        self.asked = threading.Event()
        self._answer = answer
        self._due: list[tuple[int, bytes]] = []

    def receive(self, client: int, payload: bytes, now_ns: int) -> None:
        del now_ns
        if isinstance(member_messages.read_from_client(payload), member_messages.Joins):
            if self._answer is not None:
                self._due.append((client, msgspec.json.encode(self._answer)))
            self.asked.set()

    def answers(self) -> Iterable[tuple[int, bytes]]:
        due, self._due = self._due, []
        return due

    def disconnect(self, client: int) -> None:
        del client

    def expire(self, now_ns: int) -> None:
        del now_ns

    def deadline_ns(self) -> int | None:
        return None

    def is_over(self, world: int) -> bool:
        del world
        return True


@pytest.fixture
def joins(port: int) -> Iterable[Callable[..., Future[str]]]:
    """Asks to join, and gives the refusal that is the answer."""
    settings = Settings(coordinator=f"127.0.0.1:{port}", start_timeout_s=PATIENCE_S)

    def ask(coordinator_timeout_s: float | None) -> str:
        own = dataclasses.replace(settings, coordinator_timeout_s=coordinator_timeout_s)
        membership = Membership(own, SECRET, "a newcomer")
        try:
            with pytest.raises(RendezvousError) as refused:
                membership.joining.knock("h", None)
                membership.joining.meeting("a newcomer")
        finally:
            membership.close()
        return str(refused.value)

    with ThreadPoolExecutor(1) as pool:
        yield lambda coordinator_timeout_s=PATIENCE_S: pool.submit(ask, coordinator_timeout_s)


def serves(port: int, answer: member_messages.FromCoordinator | None) -> tuple[Server, Launcher]:
    launcher = Launcher(answer)
    return Server(["127.0.0.1"], port, SECRET, launcher), launcher


def test_the_next_launcher_is_asked_again(port: int, joins: Callable[..., Future[str]]) -> None:
    """Broken: whoever had asked a launcher that died would end, or wait for its answer."""
    server, launcher = serves(port, None)
    with server:
        answer = joins()
        assert launcher.asked.wait(PATIENCE_S)
    server, _ = serves(port, member_messages.Answer(done=False, text="the next one has answered"))
    with server:
        assert "the next one has answered" in answer.result(PATIENCE_S)


def test_a_launcher_that_comes_later_is_waited_for(
    port: int,
    joins: Callable[..., Future[str]],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Broken: whoever joins while the launcher of a job with a journal is restarted would give up after some seconds."""
    monkeypatch.setattr(store, "PATIENCE_S", 0.2)
    monkeypatch.setattr(store, "SILENT_S", 0.0)
    answer = joins()
    while "nobody listens" not in caplog.text:
        time.sleep(0.01)
        assert not answer.done(), answer.result()
    time.sleep(2 * store.PATIENCE_S)
    server, _ = serves(port, member_messages.Answer(done=False, text="it has answered"))
    with server:
        assert "it has answered" in answer.result(PATIENCE_S)


def test_without_a_journal_nobody_waits_for_another_launcher(
    port: int, joins: Callable[..., Future[str]]
) -> None:
    """Broken: a newcomer of a job that has ended would wait for a minute."""
    server, launcher = serves(port, None)
    with server:
        answer = joins(coordinator_timeout_s=None)
        assert launcher.asked.wait(PATIENCE_S)
    assert "the coordinator is gone" in answer.result(PATIENCE_S)
