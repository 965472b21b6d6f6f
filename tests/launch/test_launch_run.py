"""`hocket run` with real processes: what it shows, how it ends, and that nothing is left however it ends."""

import io
import json
import os
import signal
import socket
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from hocket.artefacts import files
from hocket.errors import RendezvousError, UsageError
from hocket.planning.buckets import plan_of
from hocket.settings import Settings
from hocket.start import leash
from hocket.start import run as runs
from hocket.start.processes import LEASH, ProcessSpec
from hocket.start.run import launch
from tests.launch.processes import RUN, eventually, finish, start, with_token, write
from tests.support.commands import completed
from tests.support.groups import grouped

FAKE_SSH = """#!/bin/sh
shift
exec sh -c "$*"
"""
SLEEPERS = """
import os, subprocess, sys, time
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
print("up", flush=True)
# wait
time.sleep(600)
"""


@pytest.fixture
def token():
    """In the environment of everything that a test starts; nothing with it may be left."""
    token = f"hocket-test-{uuid.uuid4().hex}"
    yield token
    left = with_token(token)
    for process in left:
        os.kill(process, signal.SIGKILL)
    assert not left


@pytest.fixture
def ssh(tmp_path):
    path = write(tmp_path, FAKE_SSH, "ssh")
    os.chmod(path, 0o755)  # noqa: PTH101, S103
    return path


def wait_for_lines(process, count):
    return [process.stdout.readline() for _ in range(count)]


def test_ranks_meet_and_their_lines_are_marked(tmp_path):
    """`hocket run -n 3` would not make a job, or lines of ranks would run into each other."""
    script = write(
        tmp_path,
        "import sys\nfrom hocket.job.rendezvous import join\n"
        "with join() as job:\n    print(job.rank, job.world, job.local_rank, sys.argv[1:])\n"
        "    print('warning', file=sys.stderr)",
    )
    code, out, err = finish(start([*RUN, "-n", "3", script, "--lr", "1", "-n", "9"]))
    assert code == 0, err
    assert sorted(out.splitlines()) == [
        f"[{rank}] {rank} 3 {rank} ['--lr', '1', '-n', '9']" for rank in range(3)
    ]
    assert sorted(line for line in err.splitlines() if "warning" in line) == [
        f"[{rank}] warning" for rank in range(3)
    ]


def test_quiet_others_shows_rank_0_as_it_is(tmp_path):
    """A progress display of rank 0 would be torn apart by the other ranks' lines."""
    script = write(tmp_path, "import os\nprint('I am', os.environ['HOCKET_RANK'])")
    code, out, _ = finish(start([*RUN, "-n", "3", "--quiet-others", script]))
    assert (code, out) == (0, "I am 0\n")


def test_modules_and_options_reach_the_ranks(tmp_path):
    """`-m`, `--threads`, `--timeout`, `--trace` and `--plan` would be ignored."""
    write(tmp_path, "import os, sys\nfor each in sys.argv[1:]: print(each, os.environ[each])", "tell.py")
    plan = str(tmp_path / "plan.json")
    files.write(Path(plan), plan_of([], 1, label="none"))
    options = ["--threads", "2", "--timeout", "7.5", "--trace", str(tmp_path / "t"), "--plan", plan]
    names = ["HOCKET_THREADS", "HOCKET_TIMEOUT_S", "HOCKET_TRACE", "HOCKET_PLAN", "OMP_NUM_THREADS"]
    process = start([*RUN, *options, "-m", "tell", *names], PYTHONPATH=str(tmp_path))
    code, out, err = finish(process)
    assert code == 0, err
    cores = str(len(os.sched_getaffinity(0)))
    assert [line.split()[1] for line in out.splitlines()] == ["2", "7.5", str(tmp_path / "t"), plan, cores]


def test_cores_are_shared_out_among_ranks_and_it_says_so(tmp_path):
    """Ranks that each use all cores would slow each other down; or a setting would change silently."""
    script = write(tmp_path, "import os\nprint(os.environ['OMP_NUM_THREADS'])")
    share = max(1, len(os.sched_getaffinity(0)) // 2)
    _, out, err = finish(start([*RUN, "-n", "2", script]))
    assert sorted(out.splitlines()) == [f"[0] {share}", f"[1] {share}"]
    assert f"OMP_NUM_THREADS of each rank: {share}" in err
    _, out, err = finish(start([*RUN, "-n", "2", script], OMP_NUM_THREADS="7"))
    assert sorted(out.splitlines()) == ["[0] 7", "[1] 7"]
    assert "OMP_NUM_THREADS" not in err


def test_ranks_have_no_input_and_no_secret_in_their_arguments(tmp_path):
    """A rank would eat the terminal's input, or `ps` would show the job's secret to every user."""
    script = write(
        tmp_path,
        "import os, sys\nfrom pathlib import Path\n"
        "seen = [Path(f'/proc/{each}/cmdline').read_bytes() for each in (os.getpid(), os.getppid())]\n"
        "print(repr(sys.stdin.read()), any(os.environ['HOCKET_SECRET'].encode() in each for each in seen))",
    )
    process = completed([*RUN, script], input="typed")
    assert process.stdout == "'' False\n"


def test_a_failure_is_the_launcher_s_and_explained(tmp_path):
    """A failing job would look like a good one to a batch system, or not say which rank failed."""
    script = write(
        tmp_path,
        "import os, sys\nif os.environ['HOCKET_RANK'] == '1':\n"
        "    sys.exit('the disk is full') if len(sys.argv) < 2 else os._exit(7)",
    )
    code, _, err = finish(start([*RUN, "-n", "2", script]))
    assert code == 1
    assert err.splitlines()[-2:] == [
        "hocket: rank 1 on this machine failed: exit code 1; its last words:",
        "    the disk is full",
    ]
    code, _, err = finish(start([*RUN, "-n", "2", script, "x"]))
    assert code == 7
    assert err.splitlines()[-1] == "hocket: rank 1 on this machine failed: exit code 7"


def test_a_killed_rank_ends_the_job_and_is_named(tmp_path, token):
    """After the kernel killed a rank for memory the others would hang, and nobody would know which it was."""
    script = write(
        tmp_path,
        "import os, signal\nfrom hocket.job.rendezvous import join\njob = join()\n"
        "if job.rank == 1: os.kill(os.getpid(), signal.SIGKILL)\njob.store.get('never', 60)",
    )
    code, _, err = finish(start([*RUN, "-n", "3", script], TOKEN=token))
    assert code == 128 + signal.SIGKILL
    assert "rank 1 on" in err
    assert "ended or lost its connection" in err
    assert err.splitlines()[-1] == "hocket: rank 1 on this machine failed: SIGKILL (exit code 137)"


def test_a_rank_that_fails_before_it_joins_is_named_by_those_that_wait(tmp_path):
    """The others would wait for it until the launcher ends them, and none would say why."""
    script = write(
        tmp_path,
        "import os, sys\nif os.environ['HOCKET_RANK'] == '1': sys.exit(7)\n"
        "from hocket.job.rendezvous import join\njoin()",
    )
    settings = Settings(start_timeout_s=900)
    outcome = launch([ProcessSpec(argv=[sys.executable, script])] * 2, settings=settings, err=io.BytesIO())
    assert [failure.code for failure in outcome.failures] == [7, 1]
    said = "\n".join(outcome.failures[1].last_lines)
    assert "rank 1 on this machine ended before it joined the job: exit code 7" in said


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_nothing_is_left_when_the_launcher_ends(tmp_path, token, how):
    """Ranks, their children or even detached grandchildren would keep the cores and GPUs busy."""
    process = start([*RUN, "-n", "2", write(tmp_path, SLEEPERS)], TOKEN=token)
    assert sorted(wait_for_lines(process, 2)) == ["[0] up\n", "[1] up\n"]
    assert len(with_token(token)) >= 2 * 3 + 1
    process.send_signal(how)
    code = process.wait(30)
    process.stdout.close()
    process.stderr.close()
    assert code == {signal.SIGKILL: -9, signal.SIGINT: 130, signal.SIGTERM: 143}[how]
    assert eventually(lambda: not with_token(token))


def test_detached_children_of_a_finished_rank_are_ended(tmp_path, token):
    """A forgotten background process would keep the machine busy after the job."""
    script = write(tmp_path, SLEEPERS.replace("# wait", "raise SystemExit"))
    code, out, _ = finish(start([*RUN, script], TOKEN=token))
    assert (code, out) == (0, "up\n")
    assert not with_token(token)


def test_ranks_that_ignore_everything_are_killed(tmp_path, token, monkeypatch):
    """One stuck rank would keep the whole job, and the terminal, for ever."""
    monkeypatch.setattr(runs, "REPORT_S", 0.3)
    monkeypatch.setattr(runs, "TERMINATE_S", 0.3)
    script = write(
        tmp_path,
        "import os, signal, sys, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "if os.environ['HOCKET_RANK'] == '0': sys.exit(3)\ntime.sleep(600)",
    )
    specs = [ProcessSpec(argv=[sys.executable, script], environment={"TOKEN": token})] * 2
    outcome = launch(specs, out=io.BytesIO(), err=io.BytesIO())
    assert outcome.code == 3
    assert [failure.code for failure in outcome.failures] == [3, 128 + signal.SIGKILL]


def test_others_may_report_before_they_are_ended(tmp_path):
    """The rank that knows why the job failed would be ended in the middle of its sentence."""
    script = write(
        tmp_path,
        "import os, sys, time\nif os.environ['HOCKET_RANK'] == '0': os._exit(9)\n"
        "time.sleep(0.4)\nsys.exit('my view')",
    )
    err = io.BytesIO()
    outcome = launch([ProcessSpec(argv=[sys.executable, script])] * 2, out=io.BytesIO(), err=err)
    assert [failure.code for failure in outcome.failures] == [9, 1]
    assert err.getvalue() == b"[1] my view\n"


def test_hosts_are_reached_through_ssh(tmp_path, ssh, token):
    """A job on several machines would not start, or ranks would sit on other hosts than the file says."""
    script = write(
        tmp_path,
        "from hocket.job.rendezvous import join\n"
        "with join() as job:\n    print(job.rank, job.local_rank, *job.hosts)",
    )
    hosts = write(tmp_path, "# two\nnode1 slots=2\nnode2\n", "hosts.txt")
    command = [*RUN, "--hosts", hosts, "--ssh", ssh, "--store", "127.0.0.1", script]
    code, out, err = finish(start(command, TOKEN=token))
    assert code == 0, err
    assert sorted(out.splitlines()) == [
        "[0] 0 0 node1 node1 node2",
        "[1] 1 1 node1 node1 node2",
        "[2] 2 0 node1 node1 node2",
    ]


def test_a_host_that_cannot_be_reached_is_named_with_ssh_s_words(tmp_path):
    """The user would not learn that a key is missing."""
    ssh = write(tmp_path, '#!/bin/sh\necho "Permission denied for $1" >&2\nexit 255\n', "ssh")
    os.chmod(ssh, 0o755)  # noqa: PTH101, S103
    hosts = write(tmp_path, "node1\n", "hosts.txt")
    script = write(tmp_path, "")
    code, _, err = finish(start([*RUN, "--hosts", hosts, "--ssh", ssh, "--store", "127.0.0.1", script]))
    assert code == 255
    assert "rank 0 on node1 failed: exit code 255; its last words:\n    Permission denied for node1" in err


def test_remote_ranks_end_when_the_connection_drops(tmp_path, token):
    """A lost ssh connection would leave ranks running on the other machine."""
    ssh = write(tmp_path, '#!/bin/sh\nshift\ncat | setsid env TOKEN=$REMOTE sh -c "$*"\n', "ssh")
    os.chmod(ssh, 0o755)  # noqa: PTH101, S103
    hosts = write(tmp_path, "node1\n", "hosts.txt")
    script = write(tmp_path, SLEEPERS)
    process = start([*RUN, "--hosts", hosts, "--ssh", ssh, "--store", "127.0.0.1", script], REMOTE=token)
    assert wait_for_lines(process, 1) == ["up\n"]
    (cat,) = [each for each in with_token(token) if name_of(each) == "cat"]
    os.kill(cat, signal.SIGKILL)
    code, _, err = finish(process)
    assert code != 0
    assert "rank 0 on node1 failed" in err


def name_of(process):
    with open(f"/proc/{process}/comm") as comm:  # noqa: PTH123
        return comm.read().strip()


def test_remote_ranks_end_when_the_launcher_falls_silent(token):
    """A machine that lost its network without a word would leave ranks running on the others."""
    order = {
        "argv": ["sleep", "600"],
        "directory": "/",
        "ranks_here": 1,
        "silence_s": 0.2,
        "opens_meeting": False,
        "goes_on": None,
    }
    leash = subprocess.Popen([sys.executable, "-I", "-S", str(LEASH)], stdin=subprocess.PIPE)
    leash.stdin.write(json.dumps({**order, "environment": {"TOKEN": token}}).encode() + b"\n")
    leash.stdin.flush()
    assert leash.wait(20) == 128 + signal.SIGTERM
    leash.stdin.close()


def test_a_command_prefix_runs_ranks_elsewhere(tmp_path, token):
    """The emulated cluster could not be used: ranks in namespaces are started through a prefix."""
    script = write(
        tmp_path,
        "from os import environ as e\nprint(e['HOCKET_HOST'], e['MARK'], e['OMP_NUM_THREADS'])",
    )
    specs = [
        ProcessSpec(
            argv=[sys.executable, script],
            host=f"h{rank}",
            prefix=["env", f"MARK={rank}"],
            environment={"TOKEN": token},
        )
        for rank in range(2)
    ]
    out = io.BytesIO()
    assert launch(specs, out=out, err=io.BytesIO()).code == 0
    share = max(1, len(os.sched_getaffinity(0)) // 2)
    assert sorted(out.getvalue().decode().splitlines()) == [f"[0] h0 0 {share}", f"[1] h1 1 {share}"]


def test_rank_0_can_serve_the_store(tmp_path):
    """A launcher that ranks cannot reach, outside their namespaces, could not be used."""
    script = write(
        tmp_path,
        "from hocket.job.rendezvous import join\nwith join() as job: print(job.server is not None)",
    )
    out = io.BytesIO()
    specs = [ProcessSpec(argv=[sys.executable, script])] * 2
    outcome = launch(specs, store="127.0.0.1:0", serve=True, out=out, err=io.BytesIO())
    assert (outcome.code, sorted(out.getvalue().split(b"\n"))) == (0, [b"", b"[0] False", b"[1] False"])
    out = io.BytesIO()
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        store = f"127.0.0.1:{reserved.getsockname()[1]}"
    outcome = launch(specs, store=store, serve=False, out=out, err=io.BytesIO())
    assert (outcome.code, sorted(out.getvalue().split(b"\n"))) == (0, [b"", b"[0] True", b"[1] False"])


def test_what_cannot_be_started_says_so(tmp_path):
    """A mistyped script or prefix would end in a traceback."""
    with pytest.raises(RendezvousError, match="rank 0: `no-such-program` cannot be started"):
        launch([ProcessSpec(argv=["true"], prefix=["no-such-program"])])
    err = io.BytesIO()
    assert launch([ProcessSpec(argv=["no-such-program"])], out=io.BytesIO(), err=err).code == 127
    assert b"no-such-program cannot be used on" in err.getvalue()
    with pytest.raises(UsageError, match="no rank"):
        launch([])
    _, _, err_text = finish(start([*RUN, str(tmp_path / "missing.py")]))
    assert "missing.py does not exist" in err_text


def test_a_broken_pipe_ends_the_job(tmp_path, token):
    """`hocket run … | head` would leave the ranks running."""
    script = write(tmp_path, "import time\nwhile True: print('x' * 1000); time.sleep(0.01)")
    process = start([*RUN, "-n", "2", script], TOKEN=token)
    wait_for_lines(process, 1)
    process.stdout.close()
    process.stderr.close()
    assert process.wait(30) == 128 + signal.SIGPIPE
    assert eventually(lambda: not with_token(token))


@pytest.mark.parametrize(
    ("own", "limits", "cores"),
    [
        ("0::/", {"cpu.max": "200000 100000"}, 2),
        ("0::/", {"cpu.max": "max 100000"}, 8),
        ("0::/", {"cpu.max": "50000 100000"}, 1),
        ("0::/job/step", {"job/cpu.max": "350000 100000", "job/step/cpu.max": "max 100000"}, 3),
        ("3:cpu,cpuacct:/of/host", {"cpu/cpu.cfs_quota_us": "400000", "cpu/cpu.cfs_period_us": "100000"}, 4),
        ("3:cpu,cpuacct:/\n2:memory:/", {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, 8),
        ("2:memory:/\n0::/", {}, 8),
    ],
)
def test_cores_are_those_that_a_container_gives_time_of(monkeypatch, tmp_path, own, limits, cores):
    """Ranks in a container with a limit would have as many threads as the whole host has cores, and be stopped again and again."""
    monkeypatch.setattr(leash.os, "sched_getaffinity", lambda _process: range(8))
    grouped(tmp_path, own, limits)
    assert leash.cores(tmp_path) == cores
