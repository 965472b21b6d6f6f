"""Dumps of failing jobs, read by PyTorch's own `fr_trace`: it names the rank that was planted as the culprit."""

import pickle
import re
import signal
import subprocess
import sys
import time

import pytest

from hocket.job.dumps import pytorch
from hocket.job.dumps.calls import Call, Calls, Group
from tests.launch.processes import clean_environment, finish, start, told, write
from tests.live.jobs import CULPRIT, DEADLINE_S, WORLD
from tests.support import warm

pytestmark = pytest.mark.tools

pytest.importorskip("torch.distributed.flight_recorder")

SCRIPT = f"""
import ctypes, datetime, os, signal, sys, tempfile, time, torch
import torch.distributed as dist
import hocket.torch as hk
torch.set_num_threads(1)
tempfile.tempdir = None  # a warm process knows that of others; where ranks meet anew is announced there
rank, how, kind = int(os.environ.get("RANK", "-1")), sys.argv[1], sys.argv[2]  # one that joins has no RANK
wrong = rank == {CULPRIT}

def go_wrong():
    if kind == "hangs":
        time.sleep(900)
    if kind == "holds":
        nothing, writer = os.pipe()
        ctypes.PyDLL(None).read(nothing, ctypes.create_string_buffer(1), 1)
    if kind == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if kind == "stopped":
        os.kill(os.getpid(), signal.SIGSTOP)
    if kind == "raises":
        raise ValueError("bad batch")

def train():
    model, optimizer = torch.nn.Linear(16, 16), None
    model, optimizer = hk.distribute(model, torch.optim.SGD(model.parameters(), lr=1e-4))
    for step in range(10_000):
        if wrong and step == 10:
            go_wrong()
        optimizer.zero_grad()
        model(torch.randn(2, 16)).square().sum().backward()
        optimizer.step()
        time.sleep(0.01)

def call():
    dist.init_process_group("hocket", timeout=datetime.timedelta(seconds=4))
    some = dist.new_group([0, {CULPRIT}])
    ones = torch.ones(4)
    for step in range(3):
        dist.all_reduce(ones)
        dist.broadcast(ones, 1)
        dist.all_gather([torch.zeros(4) for _ in range({WORLD})], ones)
        dist.all_gather_into_tensor(torch.zeros({4 * WORLD}), ones)
        dist.reduce_scatter_tensor(torch.zeros(1), ones)
        dist.reduce_scatter(torch.zeros(1), list(ones.split(1)))
        dist.all_to_all_single(torch.zeros(4), ones)
        dist.gather(ones, [torch.zeros(4) for _ in range({WORLD})] if rank == 0 else None)
        dist.scatter(torch.zeros(4), [ones] * {WORLD} if rank == 0 else None)
        dist.reduce(ones, 0)
        dist.barrier()
        if rank in (0, {CULPRIT}):
            dist.all_reduce(ones, group=some)
        if rank in (0, 1):
            dist.send(ones, 1) if rank == 0 else dist.recv(ones, 0)
        dist.all_reduce(ones, async_op=True).wait()
    if wrong:
        go_wrong()
    if wrong and kind == "other op":
        dist.broadcast(ones, 0)
    elif wrong and kind == "other size":
        dist.all_reduce(torch.ones(7))
    elif wrong and kind == "other type":
        dist.all_reduce(torch.ones(8, dtype=torch.float16))
    elif wrong and kind == "other order":
        dist.broadcast(ones, 0)
        dist.all_reduce(ones)
    else:
        dist.all_reduce(ones)
        dist.broadcast(ones, 0)
    dist.barrier()

def train_in_group():
    dist.init_process_group("gloo")
    group, _ = dist.new_subgroups_by_enumeration([[0, 1], [{CULPRIT}, 3]])
    model = torch.nn.Linear(16, 16)
    model, optimizer = hk.distribute(model, torch.optim.SGD(model.parameters(), lr=1e-4), group=group)
    for step in range(10_000):
        if wrong and step == 10:
            go_wrong()
        optimizer.zero_grad()
        model(torch.randn(2, 16)).square().sum().backward()
        optimizer.step()
        time.sleep(0.01)

{{"distribute": train, "group": train_in_group, "backend": call}}[how]()
"""
SETTINGS = {"HOCKET_LATE_S": "0", "HOCKET_HEARTBEAT_TIMEOUT_S": "4", "OMP_NUM_THREADS": "1"}
INCOMPLETE = {"killed", "stopped", "holds"}
"""Culprits that cannot write a dump themselves."""


def run(place, how, kind, *options):
    script = write(place, SCRIPT)
    words = ["-n", str(WORLD), "--timeout", "4", "--dumps", str(place / "dumps"), *options]
    return start(warm.hocket("run", *words, script, how, kind), TMPDIR=str(place), **SETTINGS)


def fr_trace(folder, *options):
    """What PyTorch's analyser says."""
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.flight_recorder.fr_trace", str(folder), *options],
        capture_output=True,
        text=True,
        check=False,
        timeout=DEADLINE_S,
        env=clean_environment(),
    )
    return done.returncode, done.stdout + done.stderr


def named(said):
    """Ranks that its first finding names."""
    found = re.search(r"missing ranks: \{([\d, ]+)\}|missed FR dumps from ranks \(\{([\d, ]+)\}\)", said)
    if found:
        return {int(rank) for rank in (found[1] or found[2]).split(", ")}
    error = re.search(r"error msg: (.*)", said)
    ranks = {int(rank) for rank in re.findall(r"Culprit rank (\d+)", error[1])} if error else set()
    # It compares all ranks to the one whose file it reads first: if that is the culprit, the others differ from it.
    return set(range(WORLD)) - ranks if len(ranks) == WORLD - 1 else ranks


def ranks_in(folder):
    return {int(path.name.removeprefix("rank_")) for path in folder.iterdir()}


CASES = [
    *(("distribute", kind) for kind in ("hangs", "killed", "stopped", "raises")),
    *(("backend", kind) for kind in ("hangs", "holds", "killed", "stopped")),
    *(("backend", kind) for kind in ("other op", "other size", "other type", "other order")),
]


@pytest.mark.parametrize(("how", "kind"), CASES)
def test_the_culprit_is_named(tmp_path, how, kind):
    """Broken: dumps that the analyser cannot read, or by which it names a rank that has done nothing wrong."""
    code, _, err = finish(run(tmp_path, how, kind), DEADLINE_S)
    assert code != 0, err
    folder = tmp_path / "dumps"
    written = set(range(WORLD)) - ({CULPRIT} if kind in INCOMPLETE else set())
    assert ranks_in(folder) == written, err
    code, said = fr_trace(folder, "--allow-incomplete-ranks")
    assert code == 0, said
    assert "unrecognized" not in said
    assert named(said) == {CULPRIT}, said
    if kind in INCOMPLETE:
        code, said = fr_trace(folder)
        assert (code, f"Missing dump files from ranks {{{CULPRIT}}}" in said) == (1, True), said
    elif how == "backend":
        # The line of the script that made the call, of the first of all ranks that are in it.
        assert f"call at {tmp_path}/rank.py" in said, said
        # All calls before were found to be alike.
        assert len(re.findall(r"sequence number", said)) == 1, said


def test_groups_have_directories_of_their_own(tmp_path):
    """Broken: each group's rank 0 would write over the others', and `fr_trace` would compare ranks of different groups."""
    code, _, err = finish(run(tmp_path, "group", "hangs"), DEADLINE_S)
    assert code != 0, err
    folder = tmp_path / f"dumps-group-{CULPRIT}"
    assert ranks_in(folder) == {0, 1}, err
    code, said = fr_trace(folder)
    # The culprit is the first rank of its group.
    assert (code, "missing ranks: {0}" in said) == (0, True), said


def test_a_hang_is_dumped_on_demand_and_goes_on(tmp_path):
    """Broken: a user would have to wait for the time-out, and lose the job, to see who hangs."""
    job = run(tmp_path, "distribute", "hangs", "--timeout", "600")
    try:
        deadline_s = time.monotonic() + DEADLINE_S
        while True:
            code, out, err = told(tmp_path, "top", "--dump")
            if code == 0 and out == "written by ranks 0, 1, 2, 3\n":
                _, said = fr_trace(tmp_path / "dumps")
                if named(said) == {CULPRIT}:
                    break
            assert time.monotonic() < deadline_s, (out, err)
        assert job.poll() is None
        with (tmp_path / "dumps" / f"rank_{CULPRIT}").open("rb") as file:
            found = pickle.load(file)  # noqa: S301  # our own
        assert found["hocket"]["rank"] == CULPRIT
        assert any("go_wrong at" in frame for frame in found["hocket"]["stack"]), found["hocket"]
    finally:
        job.send_signal(signal.SIGTERM)
        finish(job, 60)


def test_a_job_without_dumps_says_so(tmp_path):
    """Broken: a user would look for files that nobody writes."""
    script = write(tmp_path, SCRIPT)
    argv = warm.hocket("run", "-n", str(WORLD), script, "distribute", "trains")
    job = start(argv, TMPDIR=str(tmp_path), **SETTINGS)
    try:
        deadline_s = time.monotonic() + DEADLINE_S
        while "--dumps DIR" not in (answer := told(tmp_path, "top", "--dump"))[2]:
            assert time.monotonic() < deadline_s, answer
        assert answer[0] == 2
    finally:
        job.send_signal(signal.SIGTERM)
        finish(job, 60)


def why_of(folder, member):
    with (folder / f"rank_{member}").open("rb") as file:
        return pickle.load(file)["hocket"]["why"]  # noqa: S301  # our own


@pytest.mark.parametrize("kind", ["killed", "raises"])
def test_an_elastic_job_dumps_the_step_in_which_a_rank_is_lost(tmp_path, kind):
    """Broken: nobody could see afterwards what a rank that is gone had made, or the others would end to say it."""
    job = run(tmp_path, "distribute", kind, "--elastic", "2:4")
    folder, others = tmp_path / "dumps", set(range(WORLD)) - {CULPRIT}
    try:
        deadline_s = time.monotonic() + DEADLINE_S
        while not folder.exists() or not others <= ranks_in(folder):
            assert time.monotonic() < deadline_s
            time.sleep(0.05)
        for each in others:
            assert why_of(folder, each).startswith(f"rank {CULPRIT} on ")
            assert why_of(folder, each).endswith(" was lost, and 3 ranks go on")
        code, said = fr_trace(folder, "--allow-incomplete-ranks")
        assert (code, named(said)) == (0, {CULPRIT}), said
        assert (CULPRIT in ranks_in(folder)) == (kind == "raises")
        # They go on, and say what they have called since when they are asked.
        while (answer := told(tmp_path, "top", "--dump"))[0] != 0:
            assert time.monotonic() < deadline_s, answer
        assert {why_of(folder, each) for each in others} == {"another rank or a user asked for it"}
        assert job.poll() is None
    finally:
        job.send_signal(signal.SIGTERM)
        finish(job, 60)


def test_a_process_that_replaces_a_lost_rank_has_a_file_of_its_own(tmp_path):
    """Broken: ranks are dealt anew when it comes, and it would write over the dump of another one, or groups would lack it."""
    job = run(tmp_path, "distribute", "killed", "--elastic", "2:4,respawn=1")
    folder, newcomer = tmp_path / "dumps", WORLD
    try:
        deadline_s = time.monotonic() + DEADLINE_S
        while not (folder / f"rank_{newcomer}").exists():
            assert time.monotonic() < deadline_s, told(tmp_path, "top", "--dump")
            told(tmp_path, "top", "--dump")
        written = {*range(WORLD), newcomer} - {CULPRIT}
        while True:
            found = {}
            for each in written:
                with (folder / f"rank_{each}").open("rb") as file:
                    found[each] = pickle.load(file)  # noqa: S301  # our own
            groups = {str(each["pg_config"].get("hocket", {}).get("ranks")) for each in found.values()}
            if groups == {str(sorted(written))}:
                break
            assert time.monotonic() < deadline_s, groups
            told(tmp_path, "top", "--dump")
        assert {each["hocket"]["rank"] for each in found.values()} == written
        code, said = fr_trace(folder)
        assert code == 0, said
    finally:
        job.send_signal(signal.SIGTERM)
        finish(job, 60)


def test_too_few_ranks_dump_who_was_lost_last(tmp_path):
    """Broken: the job that ends for want of ranks would leave no dump, or one that names nobody."""
    code, _, err = finish(run(tmp_path, "distribute", "killed", "--elastic", "4:4"), DEADLINE_S)
    assert code != 0, err
    folder = tmp_path / "dumps"
    assert ranks_in(folder) == set(range(WORLD)) - {CULPRIT}, err
    assert "4 members" in why_of(folder, 0), err
    code, said = fr_trace(folder, "--allow-incomplete-ranks")
    assert (code, named(said)) == (0, {CULPRIT}), said


def test_a_directory_that_cannot_be_written_ends_no_job_otherwise(tmp_path):
    """Broken: the error of the job would be hidden by one of its dump."""
    (tmp_path / "file").write_text("")
    job = run(tmp_path, "distribute", "raises", "--dumps", str(tmp_path / "file" / "dumps"))
    code, _, err = finish(job, DEADLINE_S)
    assert code != 0
    assert "ValueError: bad batch" in err
    assert "no dump is written to" in err


def test_what_is_written_are_pytorchs_own_words():
    """Broken: another tool that reads these files would miss a field."""
    call = Call(
        record=7,
        group="0",
        number=3,
        what="all_reduce",
        inputs=(((2, 3), "float32"),),
        outputs=(((2, 3), "float32"),),
        state="started",
        created_ns=5,
        started_ns=6,
        ended_ns=None,
        timeout_s=1.5,
        frames=(("f", "a.py", 1),),
    )
    group = Group(name="0", text="default_pg", ranks=(0, 1))
    found = pickle.loads(pytorch.pickled([Calls(groups=(group,), calls=(call,))], {"rank": 0}))  # noqa: S301
    assert found["pg_config"] == {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}}
    assert found["pg_status"] == {
        "0": {
            "last_enqueued_collective": "3",
            "last_started_collective": "3",
            "last_completed_collective": "-1",
        }
    }
    (entry,) = found["entries"]
    assert entry["process_group"] == ("0", "default_pg")
    assert (entry["collective_seq_id"], entry["state"], entry["timeout_ms"]) == (3, "started", 1500)
    assert entry["input_sizes"] == [[2, 3]]
    assert entry["frames"] == [{"name": "f", "filename": "a.py", "line": 1}]
    # Gloo's recorder of this PyTorch writes the same fields.
    import torch

    assert found["version"] == pickle.loads(torch._C._distributed_c10d._dump_fr_trace())["version"]  # noqa: S301
