"""Reports at the store, and what reporting leaves behind."""

import json
import os
import threading
import time

import msgspec
import pytest
from msgspec import Raw

from hocket.errors import RendezvousError, StoreGoneError
from hocket.job.live.files import LiveJob, live_jobs
from hocket.job.live.observer import Observer, view_of
from hocket.job.live.progress import RECENT, Progress
from hocket.job.rendezvous import join
from hocket.job.store import live
from hocket.job.store.ledger import Ledger
from hocket.job.store.messages import Done, Failed, Hello, Look, Tell
from hocket.job.store.server import Server
from hocket.job.store.store import Store
from hocket.settings import Settings
from tests.live.test_blame import STATUS

pytestmark = pytest.mark.tools

S = 1_000_000_000
SECRET = b"0123456789abcdef"
CLIENT = 7
"""An observer's connection."""

WANTS_NOTHING = Done(value=Raw(msgspec.json.encode(live.Wanted(stack=False, dumps=0))))


def wanted(room, tell):
    """What observers want of a rank that reports."""
    return msgspec.json.decode(bytes(room.tell(tell, 0).value), type=live.Wanted)


def ask(ledger, client, request, now_ns):
    ledger.handle(client, request, now_ns)
    ((whom, answer),) = ledger.poll()
    assert whom == client
    return answer


def test_a_look_has_the_age_of_each_report_and_who_is_gone():
    """Broken: a rank that has stopped would look alive."""
    ledger = Ledger()
    for rank in (0, 1):
        ask(ledger, rank, Hello(rank=rank, who=f"rank {rank}"), 0)
    ask(ledger, 9, Hello(rank=None, who="an observer"), 0)
    assert ask(ledger, 0, Tell(rank=0, status=Raw(b'"a"')), 1 * S) == WANTS_NOTHING
    ask(ledger, 1, Tell(rank=1, status=Raw(b'"b"')), 2 * S)
    ledger.disconnect(1)
    sight = json.loads(bytes(ask(ledger, 9, Look(), 5 * S).value))
    assert sight["reports"] == {"0": {"age_s": 4.0, "status": "a"}, "1": {"age_s": 3.0, "status": "b"}}
    assert sight["gone"]["1"]["fault"] == 1
    # Who looks keeps no job alive, or its last rank would wait.
    ledger.disconnect(0)
    assert ledger.is_over(2)


def test_a_stack_is_wanted_once():
    """Broken: a rank would send its stack for ever, or never."""
    room = live.Live()
    tell = Tell(rank=3, status=Raw(b"1"))
    room.look(CLIENT, Look(stack_of=3), {}, {}, 0)
    assert [wanted(room, tell).stack for _ in range(2)] == [True, False]


def test_dumps_are_wanted_of_each_rank_once_for_all_who_ask_at_once():
    """Broken: as ranks fail one after the other, each would have all others write anew."""
    room = live.Live()
    tell = Tell(rank=3, status=Raw(b"1"))
    assert wanted(room, tell).dumps == 0
    for now_ns in (0, 1, S):
        room.look(CLIENT, Look(dumps=True), {}, {}, now_ns)
    assert wanted(room, tell).dumps == 1
    room.look(CLIENT, Look(), {}, {}, 9 * S)
    assert wanted(room, tell).dumps == 1
    room.look(CLIENT, Look(dumps=True), {}, {}, 9 * S)
    assert wanted(room, tell).dumps == 2


def test_reports_are_bounded(monkeypatch):
    """Broken: a rank could fill the launcher's memory."""
    room = live.Live()
    large = Tell(rank=0, status=Raw(b'"' + b"a" * live.STATUS_BYTES_MAX + b'"'))
    assert "STATUS_BYTES_MAX" in room.tell(large, 0).message
    monkeypatch.setattr(live, "RANKS_MAX", 1)
    assert isinstance(room.tell(Tell(rank=0, status=Raw(b"1")), 0), Done)
    refused = room.tell(Tell(rank=1, status=Raw(b"1")), 0)
    assert isinstance(refused, Failed)
    assert "RANKS_MAX" in refused.message


def test_reports_in_other_words_are_said_to_be_such():
    """Broken: a look with another version of Hocket would show an empty job."""
    newer = msgspec.structs.replace(STATUS, version=99)
    for status in (Raw(msgspec.json.encode(newer)), Raw(b'{"of": "another version"}')):
        sight = live.Sight(reports={0: live.Report(age_s=0.1, status=status)}, gone={})
        with pytest.raises(RendezvousError, match="another version of Hocket"):
            view_of(sight)


def test_progress_adds_up():
    """Broken: shares of waiting and loading would be of other steps."""
    progress = Progress()
    for _ in range(RECENT + 5):
        progress.forward_began()
        progress.backward_began()
        progress.wait_began()
        progress.wait_ended()
        progress.step_ended()
        progress.stepped()
    assert progress.steps == RECENT + 5
    assert len(progress.recent) == RECENT
    assert all(0 < waited + loaded <= step for step, waited, loaded in progress.recent)
    whole, waited, loaded = progress.total
    assert waited + loaded <= whole


def test_a_rank_reports_and_leaves_nothing_behind(tmp_path, monkeypatch):
    """Broken: processes that outlive a job would gather threads, files and connections."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    before = threading.active_count(), len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    with Server(["127.0.0.1"], 0, SECRET) as server:
        settings = Settings(
            rank=0,
            world=1,
            store=f"127.0.0.1:{server.port}",
            store_served=True,
            secret=SECRET.hex(),
            live_interval_s=0.01,
        )
        for _ in range(2):
            with join(settings, environment={}) as job:
                job.publish()
                deadline_s = time.monotonic() + 60
                while not live_jobs():
                    assert time.monotonic() < deadline_s
                (found,) = live_jobs()
                # A job of one rank has a secret of its own.
                assert found.secret == job.secret.hex()
                job.close()
                nobody = msgspec.structs.replace(found, store="127.0.0.1:1")
                with pytest.raises((StoreGoneError, RendezvousError)):
                    Observer(lambda nobody=nobody: nobody).look()
            assert live_jobs() == ()
    assert (threading.active_count(), len(os.listdir("/proc/self/fd"))) == before  # noqa: PTH208


def test_a_rank_goes_on_reporting_when_the_store_comes_back_and_stops_with_it(tmp_path, monkeypatch):
    """Broken: a launcher's end would leave a thread that calls for ever."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    from hocket.job.live.publisher import Publisher
    from hocket.job.live.status import Reporter

    with Server(["127.0.0.1"], 0, SECRET) as server:
        where = f"127.0.0.1:{server.port}"
        job = LiveJob(process=1, launches=False, store=where, secret=SECRET.hex(), command=("a",))
        reporter = Reporter(Progress(), rank=0, world=1, member=0, host="h", elastic=False, interval_s=0.01)
        publisher = Publisher(reporter, job, rank=0, announces=False)
        with Store(where, SECRET, rank=None, who="observer", timeout_s=30) as store:
            deadline_s = time.monotonic() + 60
            while not store.look(stack_of=0).reports or view_of(store.look()).ranks[0].status.stack is None:
                assert time.monotonic() < deadline_s
            assert "test_reports.py" in view_of(store.look()).ranks[0].status.stack
    # By now it looks for a store that has ended, and would for seconds.
    time.sleep(0.3)
    publisher.close()
    assert "hocket-live" not in {each.name for each in threading.enumerate()}
