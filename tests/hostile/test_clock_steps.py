"""Clocks that are set while a job runs: NTP, a resumed virtual machine, a person."""

import io
import shutil
import subprocess
import sys

import pytest

from hocket.settings import Settings
from hocket.start.processes import ProcessSpec
from hocket.start.run import launch

STEPPING = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static _Atomic long looks;

/* Every look at the wall clock finds it another day, before or after. */
static long step(void) {
    long look = ++looks;
    return (look % 2 ? 1 : -1) * 86400L * (look % 7);
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    long failed = syscall(SYS_clock_gettime, clock, now);
    if (!failed && clock == CLOCK_REALTIME) now->tv_sec += step();
    return (int)failed;
}

int gettimeofday(struct timeval *now, void *zone) {
    (void)zone;
    struct timespec exact;
    clock_gettime(CLOCK_REALTIME, &exact);
    now->tv_sec = exact.tv_sec;
    now->tv_usec = exact.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *now) {
    struct timespec exact;
    clock_gettime(CLOCK_REALTIME, &exact);
    if (now) *now = exact.tv_sec;
    return exact.tv_sec;
}
"""

RANK = """
import sys, time
import numpy as np
from hocket.artefacts.plan import AllReduce
from hocket.job.rendezvous import join
from hocket.planning.compile import all_reduce_program

dates = [time.time() for _ in range(20)]
print("the clock steps back", sum(later < earlier for earlier, later in zip(dates, dates[1:])) > 3, flush=True)
with join() as job:
    engine = job.engine()
    program = all_reduce_program(
        world=job.world, elements=5000, dtype="f32", op="sum", scale=1.0, route=AllReduce(algorithm="ring")
    )
    memory = engine.allocate(20_000)
    values = np.frombuffer(memory, np.float32)
    number = engine.load(program, {0: (memory, 0)}, priority=0, label="x")
    for step in range(50):
        values[:] = job.rank + step
        engine.launch(number)
        if step == 25 and job.rank == 0:
            time.sleep(2.5)  # the others wait, and ask whether we are alive
        engine.wait(number, 20.0)
        assert (values == sum(range(job.world)) + step * job.world).all()
    print("is right", flush=True)
    engine.close()
"""


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler here to make a clock that steps")
@pytest.mark.parametrize("hosts", [("a", "a"), ("a", "b")], ids=["one host", "two hosts"])
def test_clock_steps_end_no_wait(tmp_path, hosts):
    """Each step of the clock would end a job's waits at once, call live ranks silent, or make time-outs endless."""
    source, library = tmp_path / "stepping.c", tmp_path / "stepping.so"
    source.write_text(STEPPING)
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, source], check=True)
    out = io.BytesIO()
    ranks = [
        ProcessSpec(argv=[sys.executable, "-c", RANK], host=host, environment={"LD_PRELOAD": str(library)})
        for host in hosts
    ]
    outcome = launch(
        ranks,
        settings=Settings(timeout_s=20, start_timeout_s=20, heartbeat_timeout_s=10),
        out=out,
        err=out,
    )
    said = out.getvalue().decode()
    assert outcome.code == 0, said
    assert said.count("the clock steps back True") == 2, "the library is not in the ranks' way"
    assert said.count("is right") == 2
