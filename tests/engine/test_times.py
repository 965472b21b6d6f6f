"""Times that callers give native code: however long, no thread may fail in computing a deadline."""

import math
import queue

import pytest

from hocket import _native
from hocket.errors import UsageError
from hocket.job.store.messages import TIMEOUT_MAX_S
from tests.engine.test_completion import load
from tests.support.engines import TIMEOUT_S, Job

LONG = (1e9, 1e11, 1e20, 1e308, math.inf)


@pytest.mark.parametrize("timeout_s", LONG)
def test_no_time_is_too_long(timeout_s):
    """Broken: `deadline = now + timeout` ends the thread that computes it, and whoever waits for that one never ends."""
    with Job(["a", "b"]) as job:
        loaded = [load(engine)[0] for engine in job.engines]
        told = queue.SimpleQueue()
        for engine, number in zip(job.engines, loaded, strict=True):
            engine.launch(number)
            engine.on_complete(number, told.put, timeout_s)
            assert engine.next_external(0.0) is None
        for engine, number in zip(job.engines, loaded, strict=True):
            engine.wait(number, timeout_s)
            assert told.get(timeout=TIMEOUT_S) is None
        sent = job.engines[0].allocate(4)
        message = job.engines[1].receive(0, 7, sent_to := job.engines[1].allocate(4), 4)
        job.engines[0].send(1, 7, sent, 4)
        assert job.engines[1].wait_message(message, timeout_s) == 0
        assert len(sent_to) == 4
        _native.Liveness(silence_max_s=timeout_s, now_s=1.0).poll(timeout_s)


@pytest.mark.parametrize("timeout_s", [-1.0, -math.inf, math.nan])
def test_what_is_no_time_is_refused(timeout_s):
    """A wait would be over before it began, or never."""
    with Job(["a", "b"]) as job:
        number, _ = load(job.engines[0])
        with pytest.raises(UsageError, match="a number from 0"):
            job.engines[0].wait(number, timeout_s)


def test_python_and_native_code_have_one_limit():
    """What one of them accepts, the other would refuse, or fail of."""
    assert _native.TIMEOUT_MAX_S == TIMEOUT_MAX_S
