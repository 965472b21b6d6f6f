"""The launcher's log, or rank 0's, names a rank for which all others wait, with its stack, whatever is wrong with it."""

import os
import re
import signal
import threading
import time

import msgspec
import pytest

from hocket.job.live import process
from tests.launch.processes import finish, start, write
from tests.live.jobs import CULPRIT, DEADLINE_S, LATE_S, SCRIPT, Job, process_of
from tests.support import warm

pytestmark = pytest.mark.tools

GOES_ON = f"rank {CULPRIT} on "


class Heard(Job):
    """A job whose errors are read as they come."""

    def __enter__(self):
        self.lines = []
        self._reader = threading.Thread(target=self._read)
        self._reader.start()
        return self

    def _read(self):
        for line in self.process.stderr:
            self.lines.append(line)

    @property
    def text(self):
        return "".join(self.lines)

    def hears(self, *words):
        """All that was said, once it has these words."""
        deadline_s = time.monotonic() + DEADLINE_S
        while not all(word in self.text for word in words):
            assert time.monotonic() < deadline_s, (words, self.text)
            assert self.process.poll() is None, (words, self.text)
            time.sleep(0.05)
        return self.text

    def end(self):
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(60)
        finally:
            self.process.kill()
            self._reader.join()
            self.process.stdout.close()
            self.process.stderr.close()


def warnings(text):
    """Ranks that were said to be late."""
    return [int(rank) for rank in re.findall(r"^rank (\d+) on \S+ is late: ", text, re.MULTILINE)]


def waiters(text):
    """Ranks that waited, by the first warning."""
    return [int(rank) for rank in re.search(r"is late: ranks ([\d, ]+) wait for it", text)[1].split(", ")]


OTHERS = [rank for rank in range(4) if rank != CULPRIT]


def test_a_slow_batch_is_warned_of_once_and_its_end(tmp_path):
    """Broken: a loader that stalls would be seen by nobody who does not look at that moment."""
    with Heard(tmp_path, "slow batch", "-n", "4") as job:
        text = job.hears(f"{GOES_ON}", " goes on after ")
        assert warnings(text) == [CULPRIT]
        assert waiters(text) == OTHERS
        assert "where it loads data" in text
        # The stack names the line of the script, and who called it.
        assert re.search(r'rank\.py", line \d+, in load\n\s+time\.sleep', text), text
        job.trains()
    assert warnings(job.text) == [CULPRIT]


def test_a_hang_in_python_is_warned_of(tmp_path):
    """Broken: the time-out, minutes later, would be the first to say so."""
    with Heard(tmp_path, "hangs", "-n", "4") as job:
        text = job.hears("is late: ", "in <module>")
        assert (warnings(text), waiters(text)) == ([CULPRIT], OTHERS)
    assert "goes on" not in job.text


def test_native_code_that_holds_the_interpreter_is_shown_all_the_same(tmp_path):
    """Broken: the rank that can say nothing would be the one of which nothing is known."""
    with Heard(tmp_path, "holds", "-n", "4") as job:
        text = job.hears("is late: ", "native code holds Python's lock", "in <module>")
        assert (warnings(text), waiters(text)) == ([CULPRIT], OTHERS)
        assert re.search(r'rank\.py", line \d+ in <module>', text), text
        code, out, err = job.top("--stack", str(CULPRIT))
        assert (code, "native code holds" in out, "in <module>" in out) == (0, True, True), err


def test_a_stopped_rank_is_said_to_be_stopped_and_goes_on(tmp_path):
    """Broken: a user would look for a fault in the script."""
    with Heard(tmp_path, "trains", "-n", "4") as job:
        number = process_of(job.trains(), CULPRIT)
        os.kill(number, signal.SIGSTOP)
        try:
            text = job.hears("is stopped, by a signal or a debugger", f"kill -CONT {number}")
            assert (warnings(text), waiters(text)) == ([CULPRIT], OTHERS)
            assert "silent for" in text
        finally:
            os.kill(number, signal.SIGCONT)
        job.hears(" goes on after ")


def test_what_all_do_at_once_is_not_warned_of(tmp_path):
    """Broken: each evaluation would fill the log."""
    with Heard(tmp_path, "all at once", "-n", "4") as job:
        job.looks(lambda each: each["ranks"] and min(_steps(each)) > 60)
    assert warnings(job.text) == []


def test_nobody_warns_when_told_not_to(tmp_path):
    """Broken: the setting would have no effect."""
    with Heard(tmp_path, "slow batch", "-n", "4", HOCKET_LATE_S="0") as job:
        job.looks(lambda each: each["ranks"] and min(_steps(each)) > 60)
    assert warnings(job.text) == []


def _steps(look):
    return [seen["status"]["steps"] for seen in look["ranks"].values()]


def test_a_rank_of_an_elastic_job_is_warned_of(tmp_path):
    """Broken: the launcher would look at the store where ranks met first, or call a lost rank late."""
    with Heard(tmp_path, "trains", "--elastic", "2:4", HOCKET_HEARTBEAT_TIMEOUT_S="20") as job:
        os.kill(process_of(job.trains(), 3), signal.SIGKILL)
        look = job.looks(lambda each: "3" in each["gone"])[-1]
        number = process_of(look, CULPRIT)
        os.kill(number, signal.SIGSTOP)
        try:
            # It would be given up 20 s later.
            job.hears("is late: ")
        finally:
            os.kill(number, signal.SIGCONT)
        assert warnings(job.text) == [CULPRIT]


def test_under_torchrun_rank_0_warns(tmp_path):
    """Broken: whoever does not start by `hocket run` would hear nothing."""
    script = write(tmp_path, SCRIPT)
    agent = warm.torchrun(["--nproc-per-node=4", "--standalone"], script, "slow batch")
    job = Heard.__new__(Heard)
    job.place, job.process = (
        tmp_path,
        start(agent, TMPDIR=str(tmp_path), OMP_NUM_THREADS="1", HOCKET_LATE_S=LATE_S),
    )
    with job:
        text = job.hears("is late: ", " goes on after ")
    # Beside other work, another rank may be late for a second, too.
    assert warnings(text)[0] == CULPRIT
    assert "in load" in text


BACKEND = f"""
import datetime, os, sys, time, torch
import torch.distributed as dist
from hocket.job.live import late
# As nobody knows how long a step takes, this is what a rank has: half a minute, but not in a test.
late.FIRST_S = 3.0
dist.init_process_group("hocket")
ones = torch.ones(4)
for step in range(100):
    dist.all_reduce(ones)
    time.sleep(0.02)
if dist.get_rank() == {CULPRIT}:
    time.sleep(8)
dist.all_reduce(ones)
time.sleep(2)
dist.barrier()
"""


def test_a_rank_that_does_not_come_to_a_collective_is_warned_of(tmp_path):
    """Broken: programs on the backend would hear of a hang at PyTorch's time-out, half an hour later."""
    script = write(tmp_path, BACKEND)
    argv = warm.hocket("run", "-n", "4", script)
    job = start(argv, TMPDIR=str(tmp_path), OMP_NUM_THREADS="1", HOCKET_LATE_S=LATE_S)
    code, _, err = finish(job, DEADLINE_S)
    assert code == 0, err
    # Groups meet at a store of their own, which rank 0 serves.
    said = "".join(line.removeprefix("[0] ") for line in err.splitlines(keepends=True))
    # Beside other work, another rank may be late with its first collective, for as long as this test has patience.
    assert re.search(rf"^rank {CULPRIT} on \S+ is late: ranks 0, 1, 3 wait for it", said, re.MULTILINE), err
    assert "time.sleep(8)" in said
    assert f"{GOES_ON}" in said
    assert " goes on after " in said


def test_a_program_keeps_its_own_handler():
    """Broken: a program that uses the signal would lose it, or be ended by ours."""
    caught = []
    before = signal.signal(process.SIGNAL, lambda *_: caught.append(True))
    try:
        door = process.Door()
        assert door.whereabouts.file is None
        assert process.native_stack(door.whereabouts) is None
        door.close()
        os.kill(os.getpid(), process.SIGNAL)
        assert caught == [True]
    finally:
        signal.signal(process.SIGNAL, before)


def test_a_stack_is_that_of_the_main_thread_and_nobody_elses_process_is_signalled():
    """Broken: a thread's idle loop would be shown, or a process that got the number since would be killed."""
    door = process.Door()
    again = process.Door()
    found = {}
    asker = threading.Thread(target=lambda: found.update(stack=process.native_stack(door.whereabouts)))
    asker.start()
    while asker.is_alive():
        time.sleep(0.01)
    assert "in test_a_stack_is_that_of_the_main_thread" in found["stack"]
    assert not process.is_stopped(door.whereabouts)
    for other in (
        msgspec.structs.replace(door.whereabouts, started=1),
        msgspec.structs.replace(door.whereabouts, machine="another"),
    ):
        assert not process.is_here(other)
        assert process.native_stack(other) is None
    door.close()
    again.close()
    # It would end by the signal now.
    assert process.is_here(door.whereabouts)
    assert process.native_stack(door.whereabouts) is None
    assert signal.getsignal(process.SIGNAL) in (signal.SIG_DFL, None)


@pytest.fixture(autouse=True)
def _no_handler_left():
    yield
    assert not process.is_handled(process.SIGNAL)
