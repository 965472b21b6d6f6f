"""The state of a job comes to a process beside training, over real sockets, whatever ranks and scripts do meanwhile."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from hocket.job.store import frames
from hocket.job.store.channel import Channel
from hocket.job.store.frames import FrameError
from hocket.job.store.store import connect
from hocket.settings import Settings
from hocket.training.elastic import fetching, giving
from hocket.training.elastic.fetching import Fetching
from hocket.training.elastic.giving import Giving
from hocket.training.elastic.state_messages import Steps as Stepped
from tests.torch.test_state_parts import OPTIMIZERS, Made, drawn, made, step

SECRET = b"0123456789abcdef"
PATIENCE_S, STEPS_MAX, MEMBER = 30.0, 3000, 7


class Joining:
    """What the process says to the coordinator, and hears of it."""

    def __init__(self) -> None:
        self.said_ready, self._is_called = threading.Event(), threading.Event()
        self.called: Callable[[], None] = lambda: None

    def ready(self) -> None:
        self.said_ready.set()

    def is_called(self, who: str) -> bool:
        del who
        return self._is_called.is_set()

    def call(self) -> None:
        """Call the process to a meeting."""
        self._is_called.set()
        self.called()


def waits(address: str) -> Any:
    """What a source knows of who waits to join."""
    return SimpleNamespace(joining=SimpleNamespace(wanting={MEMBER: address}))


@dataclass
class Job:
    """Sources that step alike, and the process that takes their state in a thread."""

    sources: list[Made]
    to: Made
    before: Callable[[Made, int], None] = lambda framework, at: None
    joining: Joining = field(default_factory=Joining)
    steps: int = 0

    def __post_init__(self) -> None:
        settings = Settings(timeout_s=PATIENCE_S, heartbeat_timeout_s=5)
        self.fetching = Fetching(settings, SECRET, self.to.parts, "127.0.0.1")
        self.giving = [Giving(waits(self.fetching.address), SECRET, each.parts) for each in self.sources]
        self._thread = threading.Thread(target=self._take)
        self._thread.start()

    def _take(self) -> None:
        self.fetching.until_called(self, "a process", PATIENCE_S)  # type: ignore[arg-type]

    def step(self) -> None:
        self.steps += 1
        for source, own in zip(self.sources, self.giving, strict=True):
            self.before(source, self.steps)
            own.backward_ended()
            step(source, self.steps)
            own.stepped()
        time.sleep(0.002)

    def sum(self, at: int) -> None:
        """Let all sums of step `at` be there, as of the step that is under way."""
        for source, own in zip(self.sources, self.giving, strict=True):
            own.give_sums({name: each for name, each in drawn(source, at).items() if each is not None})

    def until_ready(self, each_step: Callable[[int], None] = lambda at: None) -> None:
        while not self.joining.said_ready.is_set():
            assert self.steps < STEPS_MAX
            self.step()
            each_step(self.steps)

    def meet(self) -> int | None:
        """After some further steps: number of steps with which the process comes."""
        for _ in range(5):
            self.step()
        for each in self.giving:
            each.meets([MEMBER], self.steps)
        self.joining.call()
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()
        return self.fetching.steps

    def close(self) -> None:
        self.joining.call()
        self._thread.join(PATIENCE_S)
        self.fetching.close()


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Job]]:
    monkeypatch.setattr(fetching, "COME_S", 5.0)
    made_jobs: list[Job] = []

    def make(sources: int, optimizer: str = "AdamW", **options: Any) -> Job:
        own = [made(optimizer, 0) for _ in range(sources)]
        made_jobs.append(Job(own, options.pop("to", None) or made(optimizer, 1), **options))
        return made_jobs[-1]

    yield make
    for each in made_jobs:
        each.close()


def check_equal(job: Job) -> None:
    for one, other in zip(job.sources[0].model.parameters(), job.to.model.parameters(), strict=True):
        assert torch.equal(one, other)
    ours, theirs = job.sources[0].optimizer.state_dict(), job.to.optimizer.state_dict()
    for parameter, state in ours["state"].items():
        for name, value in state.items():
            assert torch.equal(value, theirs["state"][parameter][name]), name


@pytest.mark.parametrize("sources", [1, 3])
@pytest.mark.parametrize("optimizer", ["SGD", "AdamW"])
def test_the_state_comes_while_others_step(sources: int, optimizer: str, jobs: Callable[..., Job]) -> None:
    """Broken: a rank would join with parts of different steps, or without a step that the others have made meanwhile."""
    job = jobs(sources, optimizer)
    job.until_ready()
    assert job.meet() == job.steps
    check_equal(job)


class Queued:
    """What takers queue, and when the first source's optimizer steps, in order."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.events: list[Any] = []
        queue = giving.Taker._queue

        def noted(taker: giving.Taker, message: Any, *args: Any, **kwargs: Any) -> None:
            self.events.append(message)
            queue(taker, message, *args, **kwargs)

        monkeypatch.setattr(giving.Taker, "_queue", noted)

    def steps(self) -> list[int]:
        """Bytes of gradients that followed each step when it was told."""
        return [each.bytes for each in self.events if isinstance(each, Stepped)]


def test_the_last_sums_come_while_the_others_still_step(
    jobs: Callable[..., Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Broken: all ranks would stand still until the last step's gradients have gone to the newcomer, as long as the link takes."""
    job = jobs(1)
    job.until_ready()
    queued = Queued(monkeypatch)
    job.sources[0].optimizer.register_step_post_hook(lambda *_: queued.events.append("optimizer"))
    job.sum(job.steps + 1)
    taken = {
        part for part, name in enumerate(job.to.trained) if drawn(job.to, job.steps + 1)[name] is not None
    }
    deadline_s = time.monotonic() + PATIENCE_S
    while {part for own in job.fetching._ahead.values() for part in own} != taken:
        assert time.monotonic() < deadline_s
        time.sleep(0.01)
    job.step()
    assert set(queued.steps()) == {0}
    assert isinstance(queued.events[queued.events.index("optimizer") - 1], Stepped)
    assert job.meet() == job.steps
    check_equal(job)


def test_a_step_that_is_done_again_has_other_sums(
    jobs: Callable[..., Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Broken: a rank would join with sums of ranks that are lost, or a step later with what a script has left of them."""
    job = jobs(2)
    job.until_ready()
    queued = Queued(monkeypatch)
    job.sum(5)
    job.sum(job.steps + 1)
    job.step()
    assert set(queued.steps()) == {0}
    told = len(queued.steps())
    job.sum(5)
    job.step()
    assert min(queued.steps()[told:]) > 0
    assert not any(each.follows for each in job.giving), (
        "a script that clips would have everything sent twice"
    )
    assert job.meet() == job.steps
    check_equal(job)


def test_sums_that_have_not_come_are_refused() -> None:
    """Broken: a source that has lost count would have this process step with gradients of another step."""
    whole = Stepped(rates=[], parts=(0, 1), sizes=(4, 2), here=(0,), behind=0, bytes=2)
    data, sums = memoryview(b"ab"), memoryview(b"cdef")
    assert fetching._gradients(whole, data, {0: sums}) == [(0, sums), (1, data)]
    for ahead in ({}, {1: sums}, {0: data}):
        with pytest.raises(FrameError):
            fetching._gradients(whole, data, ahead)


def test_a_source_is_lost_while_it_gives(jobs: Callable[..., Job], monkeypatch: pytest.MonkeyPatch) -> None:
    """Broken: the process would wait for what the lost rank owed, or come with parts to which it sends no more gradients."""
    monkeypatch.setattr("hocket.training.elastic.wanted.OPEN_BYTES", 1000)
    job = jobs(3)

    def lose(at: int) -> None:
        if at in (10, 20):
            for taker in job.giving.pop()._takers.values():
                taker.end()
            job.sources.pop()

    job.until_ready(lose)
    while job.steps < 40 or not job.fetching._wanted.proved:
        assert job.steps < STEPS_MAX
        job.step()
        lose(job.steps)
    assert job.meet() == job.steps
    check_equal(job)


def test_a_script_changes_parameters_beside_its_optimizer(jobs: Callable[..., Job]) -> None:
    """Broken: a rank would join with parameters that were not clamped."""

    def clamp(framework: Made, at: int) -> None:
        if at % 4 == 0:
            with torch.no_grad():
                framework.trained["2.weight"].clamp_(-0.05, 0.05)

    job = jobs(2, before=clamp)
    job.until_ready()
    assert job.meet() == job.steps
    check_equal(job)


def test_a_script_averages_what_it_trains(jobs: Callable[..., Job]) -> None:
    """Broken: a rank would join with a teacher that lags behind the others', for as long as they train."""

    made_jobs: list[Job] = []

    def average(framework: Made, at: int) -> None:
        last = made_jobs and made_jobs[0].joining.said_ready.is_set() and at % 5 == 0
        if last or at % 40 == 0:
            with torch.no_grad():
                framework.model.frozen.lerp_(framework.trained["2.weight"].mean(), 0.1)

    made_jobs.append(jobs(2, before=average))
    (job,) = made_jobs
    assert "frozen" not in job.sources[0].trained
    job.until_ready()
    assert job.meet() == job.steps
    check_equal(job)


class Counting(torch.optim.SGD):
    """Steps by a number of its own, which it counts apart from its state."""

    count = 0

    def step(self, closure: Any = None) -> Any:  # type: ignore[override]
        self.count += 1
        for group in self.param_groups:
            for each in group["params"]:
                if each.grad is not None:
                    each.grad.mul_(1 + 1 / self.count)
        return super().step(closure)


def test_an_optimizer_with_hidden_state_is_noticed(
    jobs: Callable[..., Job], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Broken: a rank would join with other parameters than the others, without a word."""
    monkeypatch.setitem(OPTIMIZERS, "counting", lambda own: Counting(own, lr=0.1))
    job = jobs(2, "counting")
    job.until_ready()
    assert job.meet() is None
    assert "steps of this optimizer do not give the same bits here" in caplog.text


def test_training_outruns_the_link(
    jobs: Callable[..., Job], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Broken: ranks that train would fill their memory with gradients for a rank that never catches up."""
    monkeypatch.setattr(giving, "BEHIND_BYTES", 0)
    monkeypatch.setattr(giving.Taker, "_serve", carries_only_ends)
    job = jobs(1)
    job.until_ready()
    assert job.meet() is None
    assert "gradients faster than they reach it" in caplog.text


def carries_only_ends(taker: giving.Taker, channel: Channel) -> None:
    """As a link does that carries nothing between the first message and the last."""
    for due in (lambda: True, lambda: taker._over):
        while not due():
            time.sleep(0.01)
            taker._hear(channel, frames.Frames())
        message, _ = taker._unsent[-1 if taker._over else 0]
        for payload in message:
            channel.send(frames.encode(payload), time.monotonic() + PATIENCE_S)
    time.sleep(0.5)


def test_late_gradients_say_why_not(jobs: Callable[..., Job], caplog: pytest.LogCaptureFixture) -> None:
    """Broken: a rank would wait, or join with one rank's working parameters."""
    job = jobs(1)
    while not job.joining.said_ready.is_set():
        job.giving[0].stepped("gradients are merged or late")
        time.sleep(0.01)
    assert job.meet() is None
    assert "beside training, but when all ranks meet: gradients are merged or late" in caplog.text


def test_nobody_offers_the_state(jobs: Callable[..., Job], caplog: pytest.LogCaptureFixture) -> None:
    """Broken: a rank would wait for ever for sources that cannot reach it."""
    job = jobs(0)
    assert job.joining.said_ready.wait(PATIENCE_S)
    assert "no rank has offered it within 5 s" in caplog.text


def test_another_model_is_told(jobs: Callable[..., Job], caplog: pytest.LogCaptureFixture) -> None:
    """Broken: a rank would fill another model with what comes, or wait."""
    job = jobs(1, to=made("AdamW", 0, width=7))
    job.until_ready()
    assert job.meet() is None
    assert "the models differ" in caplog.text


@pytest.mark.parametrize(
    "payload",
    [
        b"{}",
        b"\xff",
        b'{"op":"asks","parts":[0]}',
        b'{"op":"gives","part":0,"described":{"value_bytes":-1},"bytes":1}',
        b"[" * 9000,
    ],
)
def test_a_source_that_sends_no_messages_is_dropped(payload: bytes, jobs: Callable[..., Job]) -> None:
    """Broken: a forged or broken source would end the process that takes the state, or keep the others from giving theirs."""
    job = jobs(1)
    _, channel = connect(job.fetching.address, SECRET, PATIENCE_S)
    channel.send(frames.encode(payload), time.monotonic() + PATIENCE_S)
    job.until_ready()
    assert job.meet() == job.steps
    check_equal(job)
    channel.close()
