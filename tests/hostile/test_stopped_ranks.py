"""A rank whose process is stopped, in real processes: named when it stays away, taken back when it goes on."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
import uuid

import pytest

TIMEOUT_S = 60.0
STEPS = 30
RANK = f"""
import json, sys, time
import numpy as np
from hocket import PeerError, _native
from hocket.artefacts.plan import AllReduce
from hocket.planning.compile import all_reduce_program
from hocket.settings import Settings

rank, job, hosts = int(sys.argv[1]), sys.argv[2], sys.argv[3].split(",")
engine = _native.Engine(
    rank=rank, world=len(hosts), job=job, secret=b"s", host=hosts[rank], bind=["127.0.0.1"],
    heartbeat_timeout_s=Settings.from_environment().silence_max_s(elastic=False),
)
print(engine.addresses[0], flush=True)
engine.connect([([address], host) for address, host in zip(sys.stdin.readline().split(), hosts)], {TIMEOUT_S})
algorithm = "ring" if len(set(hosts)) > 1 else "in_place"
program = all_reduce_program(
    world=len(hosts), elements=5000, dtype="f32", op="sum", scale=1.0, route=AllReduce(algorithm=algorithm)
)
memory = engine.allocate(20000)
values = np.frombuffer(memory, np.float32)
number = engine.load(program, {{0: (memory, 0)}}, priority=0, label="bucket 7")
for step in range({STEPS}):
    values[:] = rank + step
    try:
        engine.launch(number)
        engine.wait(number, {TIMEOUT_S})
    except PeerError as error:
        print(json.dumps(vars(error)), flush=True)
        sys.exit(1)
    assert (values == sum(range(len(hosts))) + step * len(hosts)).all()
    print("step", step, flush=True)
    time.sleep(0.02)
engine.close()
print("done", flush=True)
"""


@pytest.fixture
def ranks():
    """Starts ranks on the given hosts; none is left."""
    made = []

    def start(hosts, silence_s):
        job = uuid.uuid4().hex
        for rank in range(len(hosts)):
            environment = {**os.environ, "HOCKET_HEARTBEAT_TIMEOUT_S": str(silence_s)}
            argv = [sys.executable, "-c", RANK, str(rank), job, ",".join(hosts)]
            pipe = subprocess.PIPE
            made.append(
                subprocess.Popen(argv, stdin=pipe, stdout=pipe, stderr=pipe, text=True, env=environment)
            )
        addresses = " ".join(process.stdout.readline().strip() for process in made)
        for process in made:
            process.stdin.write(addresses + "\n")
            process.stdin.flush()
        return made

    yield start
    for process in made:
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout, process.stderr):
            with contextlib.suppress(OSError):
                stream.close()


def read_until(process, line):
    """Whether the process says so before it ends or a minute is over."""
    guard = threading.Timer(TIMEOUT_S, process.kill)
    guard.start()
    said = any(each.strip() == line for each in process.stdout)
    guard.cancel()
    return said


@pytest.mark.parametrize("hosts", [["a", "b", "c"], ["a", "a", "a"]], ids=["TCP", "shared memory"])
def test_a_rank_that_is_stopped_is_named(ranks, hosts):
    """A job whose one process is stopped, or whose host is cut off, would hang without a word until the step's own time-out."""
    started = ranks(hosts, silence_s=2)
    assert read_until(started[1], "step 3")
    started[1].send_signal(signal.SIGSTOP)
    noticed = []
    for rank in (0, 2):
        out, err = started[rank].communicate(timeout=TIMEOUT_S)
        assert started[rank].returncode == 1, err
        error = json.loads(out.splitlines()[-1])
        assert (error["rank"], error["host"], error["why"]) == (1, hosts[1], "silent")
        # Who noticed first knows where, and tells the other.
        noticed.append(error["program"] == 0 and error["launch"] >= 3 and error["op"] is not None)
    assert any(noticed)


@pytest.mark.parametrize("hosts", [["a", "b", "c"], ["a", "a", "a"]], ids=["TCP", "shared memory"])
def test_a_rank_that_goes_on_in_time_is_not_missed(ranks, hosts):
    """A short stop (a debugger, a snapshot of a virtual machine) would end the job."""
    started = ranks(hosts, silence_s=30)
    assert read_until(started[1], "step 3")
    started[1].send_signal(signal.SIGSTOP)
    # Long enough to be asked, and to be silent, several times over.
    time.sleep(3)
    started[1].send_signal(signal.SIGCONT)
    for process in started:
        said = read_until(process, "done")
        assert said, process.stderr.read()
