"""Callbacks on the end of launches: what DDP's hook, and any adapter that has futures, rests on."""

import queue
import sys
import textwrap
import threading

import numpy as np
import pytest

from hocket.artefacts.plan import AllReduce
from hocket.errors import PeerError, UsageError
from hocket.planning.compile import all_reduce_program
from tests.support.commands import completed
from tests.support.engines import TIMEOUT_S, Job

ELEMENTS = 3


def program(world=2):
    return all_reduce_program(
        world=world,
        elements=ELEMENTS,
        dtype="f32",
        op="sum",
        scale=1.0,
        route=AllReduce(algorithm="direct"),
    )


def load(engine, world=2):
    """A bucket of ones: the program's number, and the elements."""
    memory = engine.allocate(ELEMENTS * 4)
    values = np.frombuffer(memoryview(memory), np.float32)
    values[:] = 1
    return engine.load(program(world), {0: (memory, 0)}, priority=0, label="bucket"), values


@pytest.fixture
def job():
    with Job(["a", "b"]) as job:
        yield job


def waiting(job):
    """Rank 1 has launched what rank 0 has not: its number, and the queue that its callback writes to."""
    numbers = [load(engine)[0] for engine in job.engines]
    told = queue.SimpleQueue()
    job.engines[1].launch(numbers[1])
    job.engines[1].on_complete(numbers[1], told.put, TIMEOUT_S)
    return numbers[1], told


def test_called_when_the_result_is_there(job):
    """A future would be complete before its gradients are reduced, or never."""
    (number, values), (_, _others) = (load(engine) for engine in job.engines)
    told = queue.SimpleQueue()

    def callback(error):
        told.put((error, values.copy(), threading.current_thread() is threading.main_thread()))

    job.engines[0].launch(number)
    job.engines[0].on_complete(number, callback, TIMEOUT_S)
    assert told.empty()
    job.engines[1].launch(number)
    error, seen, in_main_thread = told.get(timeout=TIMEOUT_S)
    assert error is None
    assert seen.tolist() == [2, 2, 2]
    assert not in_main_thread


def test_called_in_the_order_of_completion(job):
    """Whoever collects buckets as they come would see them in any order."""
    told = queue.SimpleQueue()

    def work(engine, rank):
        numbers = [load(engine)[0] for _ in range(20)]
        for number in numbers:
            engine.launch(number)
            if rank == 0:
                engine.on_complete(number, lambda error, number=number: told.put((number, error)), TIMEOUT_S)
        for number in numbers:
            engine.wait(number, TIMEOUT_S)
        return numbers

    numbers, _ = job.each(work)
    told = [told.get(timeout=TIMEOUT_S) for _ in numbers]
    assert sorted(told) == [(number, None) for number in numbers]


def test_a_failure_is_the_error_that_wait_would_raise(job):
    """A future would never end, or its error would not say which rank is at fault."""
    number, told = waiting(job)
    job.engines[0].abort("out of memory")
    error = told.get(timeout=TIMEOUT_S)
    assert isinstance(error, PeerError)
    assert (error.rank, error.host, error.why) == (0, "a", "gave_up")
    with pytest.raises(PeerError) as raised:
        job.engines[1].wait(number, TIMEOUT_S)
    assert str(raised.value) == str(error)
    job.engines[1].on_complete(number, told.put, TIMEOUT_S)
    assert isinstance(told.get(timeout=TIMEOUT_S), PeerError)


def test_a_time_out_names_the_rank(job):
    """A live rank that never sends would be waited for forever."""
    numbers = [load(engine)[0] for engine in job.engines]
    told = queue.SimpleQueue()
    job.engines[1].launch(numbers[1])
    job.engines[1].on_complete(numbers[1], told.put, 0.1)
    error = told.get(timeout=TIMEOUT_S)
    assert (error.why, error.missing) == ("timeout", (0,))
    # A job whose ranks leave one another waiting ends with an error.
    job.engines[0].launch(numbers[0])
    job.engines[1].wait(numbers[1], TIMEOUT_S)


def test_a_callback_that_raises_ends_the_job(job, monkeypatch):
    """Whoever waits for what the callback did not do would wait forever, on all ranks."""
    seen = queue.SimpleQueue()
    monkeypatch.setattr(sys, "unraisablehook", lambda raised: seen.put(raised.exc_value))
    numbers = [load(engine)[0] for engine in job.engines]

    def fail(_error):
        raise ValueError("boom")

    for engine, number in zip(job.engines, numbers, strict=True):
        engine.launch(number)
    job.engines[0].on_complete(numbers[0], fail, TIMEOUT_S)
    assert str(seen.get(timeout=TIMEOUT_S)) == "boom"
    other, _ = load(job.engines[1])
    job.engines[1].wait(numbers[1], TIMEOUT_S)
    with pytest.raises(PeerError) as raised:
        # Rank 0 never launches it.
        job.engines[1].launch(other)
        job.engines[1].wait(other, TIMEOUT_S)
    assert (raised.value.rank, raised.value.why) == (0, "gave_up")
    assert "completion callback of program 0 raised ValueError: boom" in str(raised.value)


def test_close_answers_what_is_open(job):
    """Whoever relies on the callback would never hear that the engine is gone."""
    number, told = waiting(job)
    job.engines[1].close()
    error = told.get_nowait()
    assert isinstance(error, UsageError)
    assert "closed while `bucket` runs" in str(error)
    with pytest.raises(UsageError, match="closed"):
        job.engines[1].on_complete(number, told.put, TIMEOUT_S)


def test_a_callback_may_wait_launch_and_close(job):
    """It would hang: the thread that calls Python would wait for itself."""
    done = queue.SimpleQueue()
    numbers = [load(engine)[0] for engine in job.engines]

    def again(error):
        assert error is None
        job.engines[0].launch(numbers[0])
        job.engines[0].wait(numbers[0], TIMEOUT_S)
        job.engines[0].close()
        done.put(True)

    job.engines[0].launch(numbers[0])
    job.engines[0].on_complete(numbers[0], again, TIMEOUT_S)
    for _ in range(2):
        job.engines[1].launch(numbers[1])
        job.engines[1].wait(numbers[1], TIMEOUT_S)
    assert done.get(timeout=TIMEOUT_S)


def test_python_ends_with_callbacks_open():
    """A script that fails before it closes its job would hang in place of ending."""
    script = """
        from hocket import _native
        from tests.engine.test_completion import load
        engine = _native.Engine(rank=0, world=1, job="ends", secret=b"s", host="a", bind=["127.0.0.1"])
        other = _native.Engine(rank=0, world=2, job="left", secret=b"s", host="a", bind=["127.0.0.1"])
        engine.connect([(engine.addresses, "a")], 10)
        number, _ = load(engine, world=1)
        for _ in range(100):
            engine.launch(number)
            engine.on_complete(number, lambda error: None, 10)
            engine.wait(number, 10)
    """
    ended = completed([sys.executable, "-c", textwrap.dedent(script)])
    assert (ended.returncode, ended.stderr) == (0, "")
