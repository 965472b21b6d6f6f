"""What ranks of a host share: each must end with what it would have compiled itself, and nobody may take what is damaged."""

import dataclasses
import os
import threading
from types import SimpleNamespace

import pytest

from hocket.artefacts.gradient import Gradient
from hocket.errors import PolicyError
from hocket.job.known.cache import DIGEST_BYTES, Cache
from hocket.job.store.server import Server
from hocket.job.store.store import Store
from hocket.policies.two_level import TwoLevelRing
from hocket.policy.policy import Policy
from hocket.policy.topology import Topology
from hocket.policy.trace import Programs, TraceContext, layout
from hocket.settings import Settings
from hocket.training.memory.buckets import ordered
from hocket.training.programs import shared

SECRET = b"0123456789abcdef"
HOSTS = ("a", "a", "b", "b", "b")
TIMEOUT_S = 60.0


@pytest.fixture
def compiled(monkeypatch):
    """Names of the threads that compiled, one for each program."""
    by, original = [], Programs.compiled

    def counted(self, trace):
        by.append(threading.current_thread().name)
        return original(self, trace)

    monkeypatch.setattr(Programs, "compiled", counted)
    return by


GRADIENTS = {
    name: Gradient(name, (length,), "f32")
    for name, length in (("a", 300_000), ("b", 300_001), ("c", 7), ("d", 300_000))
}


def start(policies, settings, hosts=HOSTS):
    """What each rank of a job ends with: its buckets, or its error."""
    server = Server(["127.0.0.1"], 0, SECRET)
    outcomes = [None] * len(hosts)

    def run(rank):
        address = f"127.0.0.1:{server.port}"
        store = Store(address, SECRET, rank=rank, who=f"rank {rank}", timeout_s=TIMEOUT_S)
        job = SimpleNamespace(
            rank=rank, world=len(hosts), hosts=hosts, store=store, settings=settings(rank), relays=tuple
        )
        # A bucket for each gradient.
        context = TraceContext.of(policies[rank], Topology.of(hosts), {"fusion_bytes": 0})
        try:
            found = layout(policies[rank], ordered(GRADIENTS), context)
            outcomes[rank], _ = shared.of_policy(policies[rank], found.buckets, context, job)
        except PolicyError as error:
            outcomes[rank] = error
        finally:
            store.leave()

    ranks = [threading.Thread(target=run, args=(rank,), name=str(rank)) for rank in range(len(hosts))]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join()
    server.close()
    return outcomes


def comparable(outcomes):
    """By rank: what it will run, and where."""
    return [
        [
            (each.gradients, each.priority, each.program.ops(rank), each.program.buffers(rank), each.starts)
            for each in made
        ]
        for rank, made in enumerate(outcomes)
    ]


def at(path, bytes_max=1 << 30):
    settings = dataclasses.replace(Settings(), cache=str(path), cache_bytes=bytes_max)
    return lambda _rank: settings


@pytest.fixture
def alone(tmp_path):
    return comparable(start([TwoLevelRing()] * len(HOSTS), at(tmp_path / "none", 0)))


def test_one_rank_of_each_host_compiles(tmp_path, alone, compiled):
    """Eight ranks of a host would each do the work of one."""
    outcomes = start([TwoLevelRing()] * len(HOSTS), at(tmp_path))
    assert comparable(outcomes) == alone
    assert set(compiled) == {"0", "2"}
    compiled.clear()
    assert comparable(start([TwoLevelRing()] * len(HOSTS), at(tmp_path))) == alone
    assert compiled == [], "the next start of the job finds everything"


def test_a_rank_that_cannot_read_what_is_offered_compiles_itself(tmp_path, alone, compiled):
    """A rank in a container of its own would have no program."""
    own = at(tmp_path / "own")
    common = at(tmp_path / "common")
    outcomes = start([TwoLevelRing()] * len(HOSTS), lambda rank: (own if rank == 3 else common)(rank))
    assert comparable(outcomes) == alone
    assert set(compiled) == {"0", "2", "3"}


def test_damaged_entries_are_compiled_again(tmp_path, alone, compiled):
    """A rank would run what a failing disk made of its program."""
    start([TwoLevelRing()] * len(HOSTS), at(tmp_path))
    compiled.clear()
    for number, (path, _) in enumerate(Cache(tmp_path, 1).entries()):
        entry = bytearray(path.read_bytes())
        entry[DIGEST_BYTES + number * 97 % (len(entry) - DIGEST_BYTES)] ^= 0x10
        path.write_bytes(entry)
    assert comparable(start([TwoLevelRing()] * len(HOSTS), at(tmp_path))) == alone
    assert set(compiled) == {"0", "2"}


def test_an_entry_that_is_not_the_one_offered_is_not_taken(tmp_path, monkeypatch, alone, compiled):
    """Another job that writes the same entry in between would decide what this one runs."""
    original = Cache.get

    def other(self, name):
        content = original(self, name)
        return content if content is None or threading.current_thread().name != "4" else content + b"!"

    monkeypatch.setattr(Cache, "get", other)
    assert comparable(start([TwoLevelRing()] * len(HOSTS), at(tmp_path))) == alone
    assert "4" in compiled


class ByRank(Policy):
    def on_buffer_ready(self, cx, buffer):
        cx.all_reduce(buffer, op="mean", algorithm="ring")
        cx.fill(cx.alloc(1 + self.number), 0)


@pytest.mark.parametrize("rank", [1, 2, 4])
def test_a_rank_that_traces_something_else_is_named(tmp_path, rank):
    """Ranks would run programs that do not match, or one rank's would be taken for all."""
    policies = [ByRank() for _ in HOSTS]
    for number, policy in enumerate(policies):
        policy.number = int(number == rank)
    outcomes = start(policies, at(tmp_path))
    assert all(isinstance(each, PolicyError) for each in outcomes)
    assert {f"rank {rank} than on rank 0" in str(each) for each in outcomes} == {True}


class Loses(Policy):
    def on_buffer_ready(self, cx, buffer):
        cx.scale(buffer, 1 / cx.world)


def test_every_rank_says_why_a_policy_is_refused(tmp_path):
    """All but one rank of a host would say that another one is gone."""
    outcomes = start([Loses()] * len(HOSTS), at(tmp_path))
    assert {"lacks the contribution" in str(each) for each in outcomes} == {True}
    assert not list(os.scandir(tmp_path))
