"""Times that users and peers give: none is longer than what a thread can wait for, and a thread that fails ends the job by name."""

import contextlib
import functools
import io
import logging
import sys
import threading
import time

import pytest

from hocket.errors import RendezvousError, UsageError
from hocket.job.store import frames, server
from hocket.job.store.ledger import Ledger
from hocket.job.store.messages import TIMEOUT_MAX_S
from hocket.job.store.server import Server
from hocket.job.store.store import Store, connect
from hocket.setting_values import SECONDS_MAX
from hocket.settings import Settings
from hocket.start import run as runs
from hocket.start.processes import ProcessSpec
from hocket.start.run import launch
from tests.launch.processes import write

SECRET = b"0123456789abcdef"
TIMES = ("timeout_s", "start_timeout_s", "heartbeat_timeout_s", "coordinator_timeout_s", "timer_interval_s")


class Broken(Ledger):
    """Fails when a key of that name is set."""

    def handle(self, client, request, now_ns):
        if getattr(request, "key", "") == "break":
            raise OverflowError("timeout is too large")
        super().handle(client, request, now_ns)


def connected(address, rank=0, **more):
    return Store(address, SECRET, rank=rank, who=f"rank {rank}", timeout_s=5, **more)


@pytest.mark.parametrize("timeout_s", [1e7, SECONDS_MAX, TIMEOUT_MAX_S, 1e308, float("inf")])
def test_a_long_wait_does_not_end_the_store(timeout_s, monkeypatch):
    """`--timeout 9999999` would stop the store's thread, and the job would hang for ever."""
    monkeypatch.setattr(server, "SLEEP_MAX_S", 0.05)
    with Server(["127.0.0.1"], 0, SECRET) as served, contextlib.ExitStack() as stack:
        one = stack.enter_context(connected(f"127.0.0.1:{served.port}", 0))
        other = stack.enter_context(connected(f"127.0.0.1:{served.port}", 1))
        one.set("given", 1)
        assert one.get("given", timeout_s) == 1
        # It waits, in another thread's request, while the store sleeps several times.
        found = []
        waits = threading.Thread(target=lambda: found.append(one.gather("all", 0, 2, "a", timeout_s)))
        waits.start()
        time.sleep(0.2)
        assert other.gather("all", 1, 2, "b", timeout_s) == ["a", "b"]
        waits.join(20)
        assert found == [["a", "b"]]
        assert served.failure is None


@pytest.mark.parametrize("timeout_s", ["1e308", "1e11", "-1", "null", "NaN"])
def test_a_peer_s_time_that_is_none_is_refused(timeout_s, caplog):
    """One member could stop the store of all others."""
    with Server(["127.0.0.1"], 0, SECRET) as served, contextlib.ExitStack() as stack:
        address = f"127.0.0.1:{served.port}"
        _, channel = connect(address, SECRET, 5)
        stack.callback(channel.close)
        channel.send(frames.encode(b'{"op": "hello", "rank": 1, "who": "it"}'), time.monotonic() + 5)
        channel.receive(time.monotonic() + 5)
        request = f'{{"op": "get", "key": "x", "timeout_s": {timeout_s}}}'.encode()
        channel.send(frames.encode(request), time.monotonic() + 5)
        with pytest.raises(ConnectionError):
            channel.receive(time.monotonic() + 5)
        assert "a frame that is no request" in caplog.text
        with connected(address) as store:
            store.set("still", "here")
        assert served.failure is None


def test_an_error_of_the_thread_ends_all_connections_by_name(caplog):
    """Ranks would wait for answers of a thread that is no more."""
    told = []
    with Server(["127.0.0.1"], 0, SECRET, Broken()) as served:
        served.on_failure(told.append)
        store = connected(f"127.0.0.1:{served.port}")
        with pytest.raises(RendezvousError, match=r"is gone"):
            store.set("break", 1)
        with pytest.raises(RendezvousError, match=r"nobody listens"):
            connected(f"127.0.0.1:{served.port}", patience_s=0.1)
        served.call(lambda: None)
    assert told == [served.failure]
    assert "OverflowError: timeout is too large" in served.failure
    assert any(record.levelno == logging.ERROR and record.exc_info for record in caplog.records)


def test_a_job_whose_store_fails_ends_by_name(tmp_path, monkeypatch):
    """The launcher would wait for ranks that train on, or wait, without the store that they need."""
    services = functools.partial(runs._Services, ledger=Broken())
    monkeypatch.setattr(runs, "_Services", services)
    monkeypatch.setattr(runs, "REPORT_S", 0.5)
    script = write(
        tmp_path,
        "import time\nfrom hocket.job.rendezvous import join\njob = join()\n"
        "if job.rank == 0: time.sleep(900)\njob.store.set('break', 1)",
    )
    err = io.BytesIO()
    outcome = launch(
        [ProcessSpec(argv=[sys.executable, script])] * 2, settings=Settings(start_timeout_s=900), err=err
    )
    assert outcome.code != 0
    assert outcome.ended is not None
    assert "failed: OverflowError: timeout is too large" in outcome.ended.why


@pytest.mark.parametrize("name", TIMES)
@pytest.mark.parametrize("given", ["nan", "inf", "-inf", "-1", "0", "1e10", "1e308", "soon", "1e-9"])
def test_a_setting_that_is_no_time_is_refused(name, given):
    """A wait would never end, or end in a panic of native code."""
    with pytest.raises(UsageError, match=r"is not a number of seconds from 0.001 to 1e9"):
        Settings.from_environment({f"HOCKET_{name.upper()}": given})
    if given != "soon":
        with pytest.raises(UsageError, match=rf"{name}=.* is not a number of seconds"):
            Settings(**{name: float(given)})


@pytest.mark.parametrize("name", ["threads", "servers", "helpers", "server_bucket_bytes", "cache_bytes"])
def test_a_setting_that_is_no_number_of_things_is_refused(name):
    """A negative number of ranks or bytes would be found out by whatever it breaks."""
    for given in ("-1", "1.5", "9" * 5000, ""):
        if given:
            with pytest.raises(UsageError, match=r"is not a whole number from [01]"):
                Settings.from_environment({f"HOCKET_{name.upper()}": given})
    with pytest.raises(UsageError, match=r"is not a whole number"):
        Settings(**{name: -1})
