"""Ranks of an elastic job that are killed or stopped, in real processes: the others go on in the same step, and nobody restarts.

The test decides as the coordinator does: a step that one survivor has committed stands, any other is reduced again.
"""

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
import uuid

import pytest

pytestmark = pytest.mark.members

TIMEOUT_S = 60.0
STEPS = 40
ELEMENTS = 1_000_000
RANK = f"""
import hashlib, json, select, sys, time
import numpy as np
from hocket import _native
from hocket.artefacts.plan import AllReduce
from hocket.errors import EpochError
from hocket.planning.compile import all_reduce_program

own, job, hosts = int(sys.argv[1]), sys.argv[2], sys.argv[3].split(",")
engine = _native.Engine(
    rank=own, world=len(hosts), job=job, secret=b"s", host=hosts[own], bind=["127.0.0.1"], elastic=True,
    heartbeat_timeout_s=float(sys.argv[4]), threads=2,
)

def say(**what):
    print(json.dumps(what), flush=True)

def meanwhile():
    if select.select([sys.stdin], [], [], 0)[0]:
        assert sys.stdin.readline() == "recall\\n"
        engine.interrupt("the coordinator asks")

def order():
    while (line := sys.stdin.readline()) == "recall\\n":
        pass
    return json.loads(line)

say(address=engine.addresses[0])
engine.connect([([address], host) for address, host in zip(sys.stdin.readline().split(), hosts)], {TIMEOUT_S})
memory, votes = engine.allocate({ELEMENTS * 4}), engine.allocate(4)
values = np.frombuffer(memory, np.float32)

def load():
    world = len(engine.members)
    algorithm = "ring" if world == 1 or len({{hosts[member] for member in engine.members}}) > 1 else "in_place"
    program = lambda elements: all_reduce_program(
        world=world, elements=elements, dtype="f32", op="sum", scale=1.0, route=AllReduce(algorithm=algorithm)
    )
    load = lambda elements, memory, label: engine.load(program(elements), {{0: (memory, 0)}}, priority=0, label=label)
    return load({ELEMENTS}, memory, "bucket"), load(1, votes, "done")

bucket, done = load()
for step in range({STEPS}):
    # What a step reduces is kept until it stands.
    kept = np.arange({ELEMENTS}, dtype=np.float32) % 97 + 100 * own + step
    while True:
        values[:] = kept
        prepared = False
        try:
            engine.launch(bucket)
            engine.wait(bucket, {TIMEOUT_S}, meanwhile)
            prepared = True
            members = engine.members
            engine.launch(done)
            engine.wait(done, {TIMEOUT_S}, meanwhile)
            break
        except EpochError:
            engine.quiesce("a member is lost", {TIMEOUT_S})
        while True:
            say(steps=step, prepared=prepared, lost=engine.lost)
            decided = order()
            try:
                engine.resume(decided["epoch"], decided["members"], 0.2)
                break
            except EpochError:
                engine.quiesce("another member is lost", {TIMEOUT_S})
        bucket, done = load()
        if decided["steps"] > step:
            assert prepared
            break
    time.sleep(0.01)
    say(step=step, members=members, digest=hashlib.sha256(values.tobytes()).hexdigest(), first=float(values[0]))
engine.close()
say(end=True)
"""


class Ranks:
    """The processes of a job and what they have said."""

    def __init__(self, hosts, heartbeat_s=20.0):
        self.hosts = hosts
        job = uuid.uuid4().hex
        pipe = subprocess.PIPE
        argv = [sys.executable, "-c", RANK]
        self.processes = [
            subprocess.Popen(
                [*argv, str(rank), job, ",".join(hosts), str(heartbeat_s)],
                stdin=pipe,
                stdout=pipe,
                stderr=pipe,
                env=dict(os.environ),
            )
            for rank in range(len(hosts))
        ]
        self.members = list(range(len(hosts)))
        self.epoch = 1
        self.unread = [b"" for _ in hosts]
        self.steps = [{} for _ in hosts]
        addresses = " ".join(self.hear(rank)["address"] for rank in self.members)
        for rank in self.members:
            self.tell(rank, addresses)

    def tell(self, rank, line):
        self.processes[rank].stdin.write(line.encode() + b"\n")
        self.processes[rank].stdin.flush()

    def hear(self, rank):
        """The next line of a rank as an object."""
        deadline = time.monotonic() + TIMEOUT_S
        out = self.processes[rank].stdout.fileno()
        while b"\n" not in self.unread[rank]:
            ready, _, _ = select.select([out], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, f"rank {rank} says nothing"
            more = os.read(out, 1 << 16)
            assert more, f"rank {rank} ended: {self.processes[rank].stderr.read().decode()}"
            self.unread[rank] += more
        line, self.unread[rank] = self.unread[rank].split(b"\n", 1)
        return json.loads(line)

    def speaking(self):
        """Members that have said something, or do within a second."""
        said = [rank for rank in self.members if b"\n" in self.unread[rank]]
        outs = {self.processes[rank].stdout.fileno(): rank for rank in self.members}
        return said or [outs[out] for out in select.select(list(outs), [], [], 1.0)[0]]

    def until_report(self, rank):
        """Notes a rank's steps until it reports or ends; its report."""
        while "end" not in (said := self.hear(rank)):
            if "step" not in said:
                return said
            self.steps[rank][said["step"]] = said
        return None

    def reach(self, rank, step):
        """Waits until a rank has committed a step."""
        while step not in self.steps[rank]:
            said = self.hear(rank)
            self.steps[rank][said["step"]] = said

    def decide(self, lost):
        """What the coordinator does after a loss: whoever misses nobody is told to stop, too."""
        self.members = [rank for rank in self.members if rank not in lost]
        reports = {}
        deadline = time.monotonic() + TIMEOUT_S
        while not reports:
            assert time.monotonic() < deadline, "nobody misses the lost ranks"
            for rank in self.speaking():
                said = self.hear(rank)
                if "step" in said:
                    self.steps[rank][said["step"]] = said
                else:
                    reports[rank] = said
        for rank in self.members:
            if rank not in reports:
                self.tell(rank, "recall")
                reports[rank] = self.until_report(rank)
        reports = [reports[rank] for rank in self.members]
        assert any(set(report["lost"]) & set(lost) for report in reports), reports
        self.epoch += 1
        # `steps` is the step that a rank is in: whoever is a step further has committed the one before.
        steps = max(report["steps"] for report in reports)
        assert all(r["steps"] == steps or (r["steps"] + 1 == steps and r["prepared"]) for r in reports), (
            reports
        )
        # All members of the epoch have the sums of a step that is prepared everywhere: then it stands.
        order = {"epoch": self.epoch, "members": self.members, "steps": steps}
        for rank in self.members:
            self.tell(rank, json.dumps(order))

    def check(self):
        """Survivors have the same bits at every step, and each sum is one of the members that it names."""
        for rank in self.members:
            assert self.until_report(rank) is None
        records = [self.steps[rank] for rank in self.members]
        for step in range(STEPS):
            first = records[0][step]
            assert all(record[step] == first for record in records), step
            assert first["first"] == sum(100 * member + step for member in first["members"]), first
        worlds = [len(records[0][step]["members"]) for step in range(STEPS)]
        assert worlds == sorted(worlds, reverse=True)
        assert worlds[0] == len(self.hosts)
        assert worlds[-1] == len(self.members)
        assert all(self.processes[rank].wait(TIMEOUT_S) == 0 for rank in self.members)


@pytest.fixture
def start():
    made = []

    def start(*arguments, **options):
        made.append(Ranks(*arguments, **options))
        return made[-1]

    yield start
    for process in (process for ranks in made for process in ranks.processes):
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout, process.stderr):
            with contextlib.suppress(OSError):
                stream.close()


@pytest.mark.parametrize("hosts", ["aaaa", "abcd", "aabb"])
def test_killed_ranks_are_left_behind(start, hosts):
    """One loss would end the job, or survivors would disagree about a step, or count the dead rank's gradients half."""
    ranks = start(list(hosts))
    for step, victim, delay_s in ((5, 1, 0.0), (15, 3, 0.012), (25, 0, 0.02)):
        for rank in ranks.members:
            ranks.reach(rank, step)
        time.sleep(delay_s)
        ranks.processes[victim].send_signal(signal.SIGKILL)
        ranks.decide([victim])
    ranks.check()


@pytest.mark.parametrize("hosts", ["aaa", "abc"])
def test_a_stopped_rank_is_shut_out_for_good(start, hosts):
    """A process that wakes up after its eviction would write into the others' memory, or be heard by them."""
    ranks = start(list(hosts), heartbeat_s=1.0)
    victim = 1
    for rank in ranks.members:
        ranks.reach(rank, 5)
    ranks.processes[victim].send_signal(signal.SIGSTOP)
    ranks.decide([victim])
    for rank in ranks.members:
        ranks.reach(rank, 10)
    ranks.processes[victim].send_signal(signal.SIGCONT)
    if hosts == "aaa":
        # Whoever shares memory with others is ended before they go on.
        assert ranks.processes[victim].wait(TIMEOUT_S) == -signal.SIGKILL
    else:
        report = ranks.until_report(victim)
        assert report["lost"]
        assert set(report["lost"]) <= {0, 2}
    ranks.check()
