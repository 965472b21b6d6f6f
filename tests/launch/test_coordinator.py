"""A coordinator of its own: what it asks of its command, and what ranks hear that come to it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from hocket.errors import Error, RendezvousError, UsageError
from hocket.job.store import frames
from hocket.job.store.frames import FrameError
from hocket.members.arrival import arrive, comes
from hocket.members.coordination import Coordination
from hocket.members.entrance import Entrance
from hocket.members.member_limits import Limits
from hocket.members.member_messages import Back
from hocket.members.place_messages import Arrives, Place, Refuses, Waits, read_answer
from hocket.members.stores import Stores
from hocket.settings import Settings
from hocket.start.running import running, secret_of
from tests.launch.processes import eventually, finish, plain, start, told

pytestmark = pytest.mark.members

SECRET = "5e" * 16
OTHER = "07" * 16


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def rank(address: str, *, secret: str | None = SECRET, start_timeout_s: float = 20.0) -> Settings:
    """What a rank has that somebody starts."""
    return Settings(
        coordinator=address,
        secret=secret,
        start_timeout_s=start_timeout_s,
        timeout_s=1.0,
        rejoin_timeout_s=7.0,
    )


@pytest.fixture
def coordinator(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts `hocket coordinator` where nobody else's jobs are found."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    started = []

    def made(*words: str, waits: bool = True, **environment: str) -> subprocess.Popen[str]:
        process = start(plain("coordinator", *words), TMPDIR=str(tmp_path), **environment)
        started.append(process)
        if waits:
            assert eventually(lambda: any(each.process == process.pid for each in running()))
        return process

    yield made
    for each in started:
        each.kill()
        each.communicate()


def address_of(process: subprocess.Popen[str]) -> str:
    return next(each.coordinator for each in running() if each.process == process.pid)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--listen", "192.0.2.1:0"), "a coordinator to which other machines may come needs a secret"),
        (("--listen", "0.0.0.0:29400"), "ranks cannot come to that address"),
        (("--listen", "127.0.0.1"), "`127.0.0.1` is not of the form HOST:PORT"),
        (("--listen", "127.0.0.1:0", "-n", "3"), "-n 3 and --elastic 1:2"),
        (("--listen", "127.0.0.1:0", "--elastic", "1:2,respawn=3"), "`respawn=` is a word of `hocket run`"),
        (("--listen", "127.0.0.1:0", "--elastic", "1:2,journal=a"), "hint: give --journal FILE"),
        (("--listen", "127.0.0.1:0", "--elastic", "1:2,alone=3"), "hint: give --journal as well"),
        (("--listen", "127.0.0.1:0", "--secret-file", "/dev/null"), "/dev/null has 0 bytes: it needs 16"),
    ],
)
def test_what_a_coordinator_cannot_be_is_refused(words: tuple[str, ...], said: str, tmp_path: Path) -> None:
    """Broken: it would wait for ranks that cannot come, or anybody could take part in a job."""
    code, out, err = told(tmp_path, "coordinator", "--elastic", "1:2", *words)
    assert (code, out) == (2, "")
    assert said in err


def test_a_rank_beyond_this_machine_needs_the_secret() -> None:
    """Broken: it would train alone, or try a secret that anybody can derive."""
    with pytest.raises(UsageError, match="without the HOCKET_SECRET of that job"):
        arrive(rank("192.0.2.1:29400", secret=None), secret_of)


def test_a_rank_with_another_secret_is_told_so(coordinator: Callable[..., subprocess.Popen[str]]) -> None:
    """Broken: a forgotten variable would look like a network that is down."""
    job = coordinator("--elastic", "1:2", "--listen", "127.0.0.1:0", HOCKET_SECRET=SECRET)
    with pytest.raises(
        RendezvousError, match="is not this job's coordinator: it does not know this job's secret"
    ) as error:
        arrive(rank(address_of(job), secret=OTHER), secret_of)
    assert "hint: give each rank the HOCKET_COORDINATOR and the HOCKET_SECRET of one" in str(error.value)


def test_ranks_of_one_machine_find_the_secret_and_may_come_first(
    coordinator: Callable[..., subprocess.Popen[str]],
) -> None:
    """Broken: a rank that starts a second before its coordinator would end, or a user had to make a secret to try things out."""
    address = f"localhost:{free_port()}"
    places: list[Settings] = []

    def come() -> None:
        arrival = arrive(rank(address, secret=None), secret_of)
        places.append(arrival.placed(rank(address)))
        arrival.close()

    ranks = [threading.Thread(target=come) for _ in range(2)]
    for each in ranks:
        each.start()
    coordinator(*("--elastic", "1:2,rejoin=3", "--listen", address, "--timeout", "11"))
    for each in ranks:
        each.join()
    assert sorted((each.rank, each.world, each.store_served) for each in places) == [
        (0, 2, True),
        (1, 2, True),
    ]
    assert {(each.timeout_s, each.rejoin_timeout_s, each.start_timeout_s) for each in places} == {
        (11.0, 3.0, 20.0)
    }
    assert not any(map(comes, places))


def test_too_few_founders_are_named_on_both_sides(coordinator: Callable[..., subprocess.Popen[str]]) -> None:
    """Broken: the ranks that are there, or their coordinator, would wait for ever, or not say for how many."""
    words = ("--elastic", "1:2", "--listen", "127.0.0.1:0", "--wait", "3")
    job = coordinator(*words, HOCKET_SECRET=SECRET)
    address = address_of(job)
    with pytest.raises(RendezvousError, match="has not begun within 1 s") as error:
        arrive(rank(address, start_timeout_s=1.0), secret_of)
    assert f"1 of 2 ranks have come: process {os.getpid()} on " in str(error.value)
    assert "hint: start those that are missing; HOCKET_START_TIMEOUT_S" in str(error.value)
    with pytest.raises(RendezvousError, match="the job ends: 1 of 2 ranks have come within 3 s: process"):
        arrive(rank(address), secret_of)
    code, _, err = finish(job)
    assert code == 1
    assert "hocket: the job ends: 1 of 2 ranks have come within 3 s: process" in err


def test_a_rank_that_comes_when_nobody_coordinates_says_so() -> None:
    """Broken: a pod that is started again after the end of its job would hang."""
    port = free_port()
    with pytest.raises(
        RendezvousError,
        match=f"nobody listens at 127.0.0.1:{port}.*\nhint: see whether the job's coordinator",
    ):
        arrive(rank(f"127.0.0.1:{port}", start_timeout_s=1.0), secret_of)
    with pytest.raises(RendezvousError, match=f"no coordinator of yours is at 127.0.0.1:{port}"):
        arrive(rank(f"127.0.0.1:{port}", secret=None, start_timeout_s=1.0), secret_of)


def test_a_coordinator_that_is_told_to_end_says_so_to_those_that_wait(
    coordinator: Callable[..., subprocess.Popen[str]],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Broken: whoever ends it before the job begins would leave ranks that wait."""
    job = coordinator("--elastic", "1:2", "--listen", "127.0.0.1:0", HOCKET_SECRET=SECRET)
    monkeypatch.setattr("hocket.members.arrival.SAY_S", 0.0)
    address, heard = address_of(job), []

    def come() -> None:
        try:
            arrive(rank(address), secret_of)
        except Error as error:
            heard.append(str(error))

    waits = threading.Thread(target=come)
    waits.start()
    assert eventually(lambda: "1 of 2 ranks have come" in caplog.text)
    job.send_signal(signal.SIGINT)
    code, _, _ = finish(job)
    waits.join()
    assert code == 130
    assert "the job ends: its coordinator was told to end" in heard[0]


def test_a_journal_is_of_one_running_coordinator_and_one_secret(
    coordinator: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    """Broken: two coordinators would decide about one job; or one that ends before its job has begun could not start again."""
    words = ("--elastic", "1:2", "--listen", "127.0.0.1:0", "--journal", str(tmp_path / "journal"))
    first = coordinator(*words, HOCKET_SECRET=SECRET)
    code, _, err = finish(coordinator(*words, HOCKET_SECRET=SECRET, waits=False))
    assert (code, "still runs" in err) == (2, True), err
    first.kill()
    first.wait()
    code, _, err = finish(coordinator(*words, HOCKET_SECRET=OTHER, waits=False))
    assert (code, "is of a job with another secret" in err) == (2, True), err
    coordinator(*words, HOCKET_SECRET=SECRET).terminate()


class Guests:
    """An entrance, and processes that come to it, each over a client of its own number."""

    def __init__(self, founders: int) -> None:
        self.stores = Stores("127.0.0.1", ["127.0.0.1"], bytes(32), (0, 0))
        limits = Limits.of(Settings(), 1, founders)
        made = lambda: Coordination(founders, limits, self.stores)  # noqa: E731
        self.entrance = Entrance(made, self.stores, {"HOCKET_TIMEOUT_S": "9"}, founders=founders)

    def come(self, client: int, host: str, *, version: str | None = None) -> None:
        from hocket import __version__

        guest = Arrives(host=host, process=client, version=version or __version__)
        self.entrance.receive(client, msgspec.json.encode(guest), 0)

    def heard(self) -> dict[int, Waits | Refuses | Place]:
        """The last thing that each has heard since which had no place before."""
        answers = self.entrance.answers()
        return {client: read_answer(answer) for client, answer in answers if b'"answer"' not in answer}


@pytest.fixture
def guests() -> Iterator[Guests]:
    made = Guests(3)
    yield made
    made.stores.close()


def test_ranks_of_one_host_have_numbers_in_a_row_and_who_leaves_while_waiting_counts_no_more(
    guests: Guests,
) -> None:
    """Broken: a ring would go back and forth between hosts; or a job would begin with a process that is gone."""
    for client, host in enumerate("aba"):
        if client == 2:
            guests.entrance.disconnect(1)
        guests.come(client, host)
    waits = guests.heard()[2]
    assert isinstance(waits, Waits)
    assert waits.why == "2 of 3 ranks have come: process 0 on a, process 2 on a"
    guests.come(3, "b")
    places = guests.heard()
    assert {client: place.rank for client, place in places.items() if isinstance(place, Place)} == {
        0: 0,
        2: 1,
        3: 2,
    }
    guests.come(4, "b")
    waits = guests.heard()[4]
    assert isinstance(waits, Waits)
    assert waits.why == "others begin just now"


def test_a_founder_that_ends_before_training_begins_makes_room_for_the_next(guests: Guests) -> None:
    """Broken: those that wait would wait for ever, or meet some that are gone."""
    for client in range(5):
        guests.come(client, "a")
    first = guests.entrance.coordination
    guests.heard()
    guests.entrance.disconnect(1)
    assert first.roster.ended is not None
    assert "rank 1 on a (process 1) ended before training had begun" in first.roster.ended.why
    for client in (0, 2):
        guests.entrance.disconnect(client)
    guests.come(5, "a")
    places = [each for each in guests.heard().values() if isinstance(each, Place)]
    assert [place.rank for place in places] == [0, 1, 2]
    assert guests.entrance.coordination is not first


def test_another_version_and_who_speaks_too_early_are_turned_away(guests: Guests) -> None:
    """Broken: versions that do not understand each other would begin a job."""
    guests.come(1, "a", version="0.0.1")
    refused = guests.heard()[1]
    assert isinstance(refused, Refuses)
    assert "hint: install the same version" in refused.why
    guests.come(2, "a")
    with pytest.raises(FrameError, match="before it has its place"):
        guests.come(2, "a")
    with pytest.raises(FrameError, match="a frame that no coordinator sends"):
        read_answer(frames.encode(b"{}"))


def test_a_member_of_another_job_with_the_same_secret_is_turned_away(guests: Guests) -> None:
    """Broken: a rank that outlived its coordinator would end the next job, or be taken for one of its members."""
    back = Back(member=0, who="rank 0", host="a", generation=0, job="another")
    guests.entrance.receive(7, msgspec.json.encode(back), 0)
    assert guests.entrance.coordination.roster.ended is None
    ((client, answer),) = guests.entrance.answers()
    assert (client, b"is another job's" in answer) == (7, True)


def test_a_job_that_ends_before_it_begins_does_not_begin_anew(guests: Guests) -> None:
    """Broken: its founders, which end then, would have the coordinator wait for others, and end with exit code 0."""
    for client in range(3):
        guests.come(client, "a")
    guests.entrance.coordination.end("nobody needs it")
    guests.entrance.disconnect(1)
    ended = guests.entrance.coordination.roster.ended
    assert ended is not None
    assert ended.why == "nobody needs it"
