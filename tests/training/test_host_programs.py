"""Programs that ranks of a host share without agreeing on anything: each must end with what it would have compiled itself."""

import dataclasses
import threading
from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from hocket.artefacts.gradient import Gradient
from hocket.artefacts.plan import AllReduce
from hocket.errors import ProgramError
from hocket.job.known.cache import DIGEST_BYTES, Cache
from hocket.planning import compile as compiling
from hocket.planning.buckets import buckets, plan_of
from hocket.settings import Settings
from hocket.training.memory import buckets as bucket_memory
from hocket.training.memory import host_programs

HOSTS = ("a", "a", "b", "b", "b")
GRADIENTS = {
    name: Gradient(name, (length,), "f32")
    for name, length in (("a", 300_000), ("b", 300_001), ("c", 7), ("d", 300_000))
}


def plan(algorithm="ring"):
    order = range(len(HOSTS))
    made = buckets([[each] for each in GRADIENTS.values()], AllReduce(algorithm=algorithm), order)
    return plan_of(made, len(HOSTS), label=algorithm)


@pytest.fixture
def compiled(monkeypatch):
    """Names of the threads that compiled, one for each program."""
    by, original = [], compiling.bucket_program

    def counted(*arguments):
        by.append(threading.current_thread().name)
        return original(*arguments)

    monkeypatch.setattr(bucket_memory, "bucket_program", counted)
    return by


def start(settings, made=None, hosts=HOSTS):
    """What each rank of a job ends with: its buckets, or its error."""
    outcomes = [None] * len(hosts)

    def run(rank):
        job = SimpleNamespace(rank=rank, world=len(hosts), hosts=hosts, settings=settings(rank), relays=tuple)
        try:
            outcomes[rank] = bucket_memory.of_plan(made or plan(), GRADIENTS, job=job)
        except ProgramError as error:
            outcomes[rank] = error

    ranks = [threading.Thread(target=run, args=(rank,), name=str(rank)) for rank in range(len(hosts))]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join()
    return outcomes


def comparable(outcomes):
    """By rank: what it will run, and where."""
    return [
        [
            (each.ranges, each.program.name, each.program.ops(rank), each.program.buffers(rank))
            for each in made
        ]
        for rank, made in enumerate(outcomes)
    ]


def at(path, **settings):
    made = dataclasses.replace(Settings(), cache=str(path), **settings)
    return lambda _rank: made


@pytest.fixture
def alone(tmp_path):
    return comparable(start(at(tmp_path / "none", cache_bytes=0)))


def test_one_rank_of_each_host_compiles(tmp_path, alone, compiled):
    """Eight ranks of a host would each do the work of one."""
    assert comparable(start(at(tmp_path))) == alone
    by_host = [{HOSTS[int(each)] for each in set(compiled)}, len(set(compiled)), len(compiled)]
    assert by_host == [{"a", "b"}, 2, 2 * len(GRADIENTS)]
    compiled.clear()
    assert comparable(start(at(tmp_path))) == alone
    assert compiled == [], "the next start of the job finds everything"


def test_other_programs_are_others(tmp_path, alone, compiled):
    """A job would run the plan of the job before."""
    start(at(tmp_path))
    for changed in (
        plan("direct"),
        changed_plan(chunk_bytes=4096),
        changed_plan(order=(1, 0, 2, 3, 4)),
        changed_plan(codec="f16", codec_links=((0, 1),)),
    ):
        compiled.clear()
        assert comparable(start(at(tmp_path), changed)) != alone
        assert len(compiled) == 2 * len(GRADIENTS)


def changed_plan(**changes):
    made = plan()
    changed = tuple(replace(each, **changes) for each in made.buckets)
    return replace(made, buckets=changed)


def test_an_edited_checkout_compiles_anew(tmp_path, compiled, monkeypatch):
    """A developer would test the programs of the code before the last edit."""
    start(at(tmp_path))
    compiled.clear()
    monkeypatch.setattr(host_programs, "_code", lambda: b"edited")
    start(at(tmp_path))
    assert len(compiled) == 2 * len(GRADIENTS)


def test_damaged_entries_are_compiled_again(tmp_path, alone, compiled):
    """A rank would run what a failing disk made of its program."""
    start(at(tmp_path))
    compiled.clear()
    for number, (path, _) in enumerate(Cache(tmp_path, 1).entries()):
        entry = bytearray(path.read_bytes())
        entry[DIGEST_BYTES + number * 97 % (len(entry) - DIGEST_BYTES)] ^= 0x10
        path.write_bytes(entry)
    assert comparable(start(at(tmp_path))) == alone
    assert {HOSTS[int(each)] for each in compiled} == {"a", "b"}


def test_a_rank_that_hangs_with_the_lock_holds_up_nobody_for_ever(tmp_path, alone, compiled):
    """A rank that was stopped while it compiled would stop its host's others, and no time-out would say so."""
    settings = at(tmp_path, timeout_s=0.2)
    kept, names = Cache.of(settings(0)), []
    original = Cache.locked

    def noted(self, name, timeout_s):
        names.append(name)
        return original(self, name, timeout_s)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Cache, "locked", noted)
        start(at(tmp_path))
    for path, _ in kept.entries():
        path.unlink()
    compiled.clear()
    first, second = sorted(set(names))
    with kept.locked(first, 1) as one, kept.locked(second, 1) as other:
        assert one
        assert other
        assert comparable(start(settings)) == alone
    assert compiled, "whoever holds the lock makes nothing"


def test_every_rank_says_why_a_program_is_refused(tmp_path, monkeypatch):
    """All but one rank of a host would say that another one is gone, or wait for it."""

    def refuse(*_):
        raise ProgramError("lacks a contribution")

    monkeypatch.setattr(bucket_memory, "bucket_program", refuse)
    assert {str(each) for each in start(at(tmp_path))} == {"lacks a contribution"}
    assert list(Cache(tmp_path, 1).entries()) == []
