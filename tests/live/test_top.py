"""`hocket top` on real jobs: the rank that is at fault is named, whatever is wrong with it."""

import json
import os
import signal
import sys
import time

import pytest

from tests.launch.processes import start, told
from tests.live.jobs import CULPRIT, DEADLINE_S, WORLD, Job, process_of

pytestmark = pytest.mark.tools

PLAIN = [sys.executable, "-c", "from hocket.cli.main import main; main()"]


def test_a_slow_loader_is_told_from_a_slow_network(slow_job):
    """Broken: a user would look at the network, as all other ranks wait."""
    (*_, look) = slow_job.looks(lambda each: each["blame"] is not None)
    assert (look["blame"]["rank"], look["blame"]["how"]) == (CULPRIT, "slow"), look["blame"]
    assert "it loads data for 0.3" in look["blame"]["why"], look["blame"]
    status = look["ranks"][str(CULPRIT)]["status"]
    assert status["loading_s"] > 0.3 > look["network_s"]
    others = [each["status"] for rank, each in look["ranks"].items() if rank != str(CULPRIT)]
    assert all(each["wait_s"] > 0.2 > each["loading_s"] for each in others), others
    assert status["plan"], status
    assert status["promise"] == "exact"
    assert status["resident_bytes"] > 1 << 20


def test_without_a_terminal_one_table_is_printed(slow_job):
    """Broken: `hocket top > file` would fill the file with control characters, or never end."""
    slow_job.looks(lambda each: each["blame"] is not None)
    code, out, err = slow_job.top()
    assert (code, err) == (0, "")
    assert "\x1b" not in out
    lines = out.splitlines()
    (header,) = (at for at, line in enumerate(lines) if line.startswith("rank "))
    assert sorted(int(line.split()[0]) for line in lines[header + 1 : header + 1 + WORLD]) == [
        *range(WORLD)
    ], out
    assert f"for rank {CULPRIT} on" in out


def test_the_stack_of_a_rank_names_the_line(slow_job):
    """Broken: nobody would know what the rank does for which all others wait."""
    code, out, err = slow_job.top("--stack", str(CULPRIT))
    assert code == 0, err
    assert "rank.py" in out, out
    code, _, err = slow_job.top("--stack", "9")
    assert (code, "these have: 0, 1, 2, 3" in err) == (2, True), err


def test_a_job_is_found_by_its_process_and_by_its_address(slow_job):
    """Broken: with two jobs, or from another terminal, nobody could look at one."""
    (name,) = (slow_job.place / f"hocket-{os.getuid()}").glob(f"{slow_job.process.pid}-*.live")
    assert name.stat().st_mode & 0o777 == 0o600
    assert slow_job.top(str(slow_job.process.pid), "--once")[0] == 0
    store = json.loads(name.read_text())["store"]
    code, out, err = slow_job.top(store, "--once")
    assert (code, "4 ranks" in out) == (0, True), err
    wrong = told(slow_job.place, "top", "--once", store.replace(":", ":1")[:15])
    assert (wrong[0], "hint:" in wrong[2]) == (2, True), wrong


def test_a_stopped_rank_is_named(tmp_path):
    """Broken: all ranks would seem to wait for one another."""
    with Job(tmp_path, "trains", "-n", "4") as job:
        number = process_of(job.trains(), CULPRIT)
        os.kill(number, signal.SIGSTOP)
        try:
            *before, look = job.looks(lambda each: (each["blame"] or {}).get("how") == "silent")
            assert look["blame"]["rank"] == CULPRIT
            assert f"process {number}" in look["blame"]["why"]
            assert {
                (each["blame"] or look["blame"])["rank"]
                for each in before
                if (each["blame"] or {}).get("how") == "late"
            } <= {CULPRIT}
            code, _, err = job.top("--stack", str(CULPRIT))
            assert (code, f"kill -CONT {number}" in err) == (1, True), err
        finally:
            os.kill(number, signal.SIGCONT)


def test_a_rank_that_hangs_in_python_is_named_with_its_stack(tmp_path):
    """Broken: the others' time-out, minutes later, would be the first to say so."""
    with Job(tmp_path, "hangs", "-n", "4") as job:
        *_, look = job.looks(lambda each: (each["blame"] or {}).get("how") == "late")
        assert look["blame"]["rank"] == CULPRIT
        code, out, err = job.top("--stack", str(CULPRIT))
        assert (code, "in <module>" in out) == (0, True), err


def test_a_lost_rank_of_an_elastic_job_is_named(tmp_path):
    """Broken: a job that goes on with fewer ranks would look like one that never had more."""
    with Job(tmp_path, "trains", "--elastic", "2:4") as job:
        os.kill(process_of(job.trains(), CULPRIT), signal.SIGKILL)
        *_, look = job.looks(lambda each: str(CULPRIT) in each["gone"])
        assert look["gone"][str(CULPRIT)]["fault"] == CULPRIT
        *_, later = job.looks(
            lambda each: all(
                seen["status"]["steps"] > look["ranks"][rank]["status"]["steps"]
                for rank, seen in each["ranks"].items()
                if rank != str(CULPRIT)
            )
        )
        assert str(CULPRIT) in later["gone"]
        *_, known = job.looks(lambda each: each["goodput"] is not None)
        assert 0 < known["goodput"] <= 1


def test_a_job_that_ends_is_said_to_have_ended(tmp_path):
    """Broken: a script that follows a job would end in an error, or never."""
    with Job(tmp_path, "trains", "-n", "4") as job:
        job.trains()
        watching = start([*PLAIN, "top", "--json", "--interval", "0.2"], TMPDIR=str(tmp_path))
        try:
            assert json.loads(watching.stdout.readline())["ranks"]
            job.end()
            out, err = watching.communicate(timeout=DEADLINE_S)
        finally:
            watching.kill()
            watching.communicate()
    assert (watching.returncode, err) == (0, "hocket: the job has ended\n")
    assert all(json.loads(line) for line in out.splitlines())
    assert [*(tmp_path / f"hocket-{os.getuid()}").glob("*.live")] == []
    code, _, err = job.top("--once")
    assert (code, "hint: run this as the same user" in err) == (2, True), err


def test_a_job_that_fails_is_said_to_have_ended_because_of_a_rank(tmp_path):
    """Broken: who looks at a job when a rank is killed would see it vanish, and not learn which."""
    with Job(tmp_path, "trains", "-n", "4") as job:
        number = process_of(job.trains(), CULPRIT)
        watching = start([*PLAIN, "top", "--json"], TMPDIR=str(tmp_path))
        try:
            assert json.loads(watching.stdout.readline())["ended"] is None
            os.kill(number, signal.SIGKILL)
            out, err = watching.communicate(timeout=DEADLINE_S)
        finally:
            watching.kill()
            watching.communicate()
    last = json.loads(out.splitlines()[-1])
    assert (last["blame"]["rank"], last["blame"]["how"]) == (CULPRIT, "failed"), last["blame"]
    assert f"rank {CULPRIT} on" in last["ended"], last["ended"]
    assert "SIGKILL" in last["ended"], last["ended"]
    assert (watching.returncode, err) == (0, f"hocket: the job has ended: {last['ended']}\n")
    blamed = [json.loads(line)["blame"] for line in out.splitlines()]
    assert {each["rank"] for each in blamed if each is not None} == {CULPRIT}, blamed


def test_two_jobs_are_listed(tmp_path):
    """Broken: a user would look at some job of theirs, and not know which."""
    keeper = (
        "import sys, time\nfrom hocket.job.live.files import LiveJob, kept\n"
        "job = LiveJob(process=int(sys.argv[1]), launches=True, store='127.0.0.1:1', secret='ab' * 16 + sys.argv[1],\n"
        "              command=('train.py', sys.argv[1]))\n"
        "with kept(sys.argv[1], job, 'live'): print(flush=True); time.sleep(600)"
    )
    keepers = [start([PLAIN[0], "-c", keeper, number], TMPDIR=str(tmp_path)) for number in ("11", "12")]
    try:
        for each in keepers:
            each.stdout.readline()
        code, _, err = told(tmp_path, "top", "--once")
        assert code == 2
        assert all(
            said in err
            for said in ("there are 2 jobs", "11: train.py 11", "12: train.py 12", "hint: name one")
        ), err
        code, _, err = told(tmp_path, "top", "13", "--once")
        assert (code, "13 is no job of yours" in err) == (2, True), err
        code, _, err = told(tmp_path, "top", "11", "--once")
        assert (code, "127.0.0.1:1" in err) == (1, True), err
    finally:
        for each in keepers:
            each.kill()
            each.communicate()
    deadline_s = time.monotonic() + DEADLINE_S
    while "no job of yours runs" not in (err := told(tmp_path, "top")[2]):
        assert time.monotonic() < deadline_s, err
