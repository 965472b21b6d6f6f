"""Programs that know nothing of Hocket under `hocket run`: torchrun's variables, torch's own store, commands of any kind."""

import io
import json
import shlex
import shutil
import subprocess
import sys
import time

import pytest

from hocket.artefacts.cluster import Cluster, Host
from hocket.errors import UsageError
from hocket.job.environment import identify
from hocket.settings import Settings
from hocket.start.output import Channel, Screen
from hocket.start.processes import Process, ProcessSpec, end_all
from hocket.start.script import argv_of
from hocket.start.variables import variables
from tests.launch.processes import RUN, clean_environment, finish, start, write
from tests.support import warm

TORCH = """
import os, sys
import torch
import torch.distributed as dist

dist.init_process_group(sys.argv[1])
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(3, 1))
model(torch.full((2, 3), float(dist.get_rank()))).sum().backward()
total = torch.tensor([dist.get_rank() + 1.0])
dist.all_reduce(total)
gradient = model.module.weight.grad[0, 0].item()
sys.stdout.write(f"rank {dist.get_rank()} of {dist.get_world_size()}: {total.item()} {gradient}\\n")
dist.destroy_process_group()
"""

C = """
#include <stdio.h>
#include <stdlib.h>
int main(int argc, char **argv) {
    printf("%s of %s, %s, %s\\n", getenv("RANK"), getenv("WORLD_SIZE"), getenv("LOCAL_RANK"), argv[1]);
    return 0;
}
"""


@pytest.mark.parametrize("backend", ["gloo", "hocket"])
def test_torch_trains_by_its_environment(backend, tmp_path):
    """A script written for torchrun would end with `RANK expected, but not set`."""
    code, out, err = finish(
        start([*RUN, "-n", "2", "--", *warm.command(write(tmp_path, TORCH), backend)]), 100
    )
    assert code == 0, (out, err)
    assert sorted(out.splitlines()) == [f"[{rank}] rank {rank} of 2: 3.0 1.0" for rank in range(2)]


@pytest.mark.parametrize("backend", ["gloo", "hocket"])
def test_torch_trains_on_several_hosts(backend, emulated, tmp_path):
    """Ranks of other hosts would look for torch's store, and for Gloo's peers, on their own loopback."""
    command = warm.command(write(tmp_path, TORCH), backend)
    hosts = tmp_path / "hosts"
    hosts.write_text("a slots=1\nb slots=2\n")
    with emulated(Cluster(hosts=tuple(Host(name=name, bandwidth_bit_per_s=1e9) for name in "ab"))) as bed:
        ways = "".join(f'{name}) exec {shlex.join(bed.command(name))} sh -c "$*";;\n' for name in "ab")
        ssh = tmp_path / "ssh"
        ssh.write_text(f"#!/bin/sh\nhost=$1; shift\ncase $host in\n{ways}esac\n")
        ssh.chmod(0o755)
        run = [*RUN, "--hosts", str(hosts), "--ssh", str(ssh), "--store", bed.address("a"), "--", *command]
        code, out, err = finish(start(bed.command("a", run)), 100)
    assert code == 0, (out, err)
    assert sorted(out.splitlines()) == [f"[{rank}] rank {rank} of 3: 6.0 2.0" for rank in range(3)]


def test_a_compiled_program_runs_as_ranks(tmp_path):
    """`source code cannot contain null bytes`: programs would be given to Python."""
    compiler = shutil.which("cc")
    assert compiler, "the Rust toolchain links with cc"
    (tmp_path / "a.c").write_text(C)
    subprocess.run([compiler, "-o", tmp_path / "a.out", tmp_path / "a.c"], check=True)
    for program in ("./a.out", "a.out"):
        ran = subprocess.run(
            [*RUN, "-n", "2", "--", program, "--quick"],
            cwd=tmp_path,
            env=clean_environment(),
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        assert sorted(ran.stdout.splitlines()) == [
            f"[{rank}] {rank} of 2, {rank}, --quick" for rank in (0, 1)
        ]


def test_a_meeting_is_read_whole_after_the_deadline_and_the_end():
    """Rank 0 of a program that ends at once would be all of the job, and the line stand in its output."""
    shown = io.BytesIO()
    spec = ProcessSpec(argv=["true"], prefix=["sh", "-c", "echo hello; echo 'hocket: meeting at 10.0.0.1 7'"])
    process = Process(0, spec, out=Channel(Screen(shown), b""), err=Channel(None, b""))
    try:
        while process.code is None:
            time.sleep(0.01)
        assert process.meeting(0) is None
        assert process.meeting(0) == {"MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "7"}
        assert shown.getvalue() == b"hello\n"
    finally:
        end_all([process])


def test_what_is_run(tmp_path, monkeypatch):
    """A script without its bit would be refused, or a program given to Python."""

    def argv(script, *, elsewhere=False):
        return argv_of(script, ["x"], interpreter="PYTHON", as_module=False, elsewhere=elsewhere)

    monkeypatch.chdir(tmp_path)
    for name, content in (
        ("train.py", b"1"),
        ("train", b"1"),
        ("tool", b"#!/bin/sh"),
        ("binary", b"\x7fELF\0"),
    ):
        (tmp_path / name).write_bytes(content)
    (tmp_path / "tool").chmod(0o755)
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__main__.py").write_text("1")
    assert argv("train.py") == ["PYTHON", "train.py", "x"]
    assert argv("train") == ["PYTHON", "train", "x"]
    assert argv("package") == ["PYTHON", "package", "x"]
    assert argv("tool") == ["./tool", "x"]
    assert argv(str(tmp_path / "tool")) == [str(tmp_path / "tool"), "x"]
    assert argv("sh") == ["sh", "x"]
    assert argv("only-there", elsewhere=True) == ["only-there", "x"]
    for wrong in ("only-there", "missing.py", "./missing", "package/missing"):
        with pytest.raises(UsageError, match=f"script {wrong} does not exist"):
            argv(wrong)
    with pytest.raises(UsageError, match="binary is neither Python nor executable"):
        argv("binary")


def test_ranks_are_numbered_as_torchrun_numbers_them():
    """Servers would count as ranks of torch's, or ranks behind other prefixes as neighbours."""
    here, there = (ProcessSpec(argv=["x"], prefix=prefix) for prefix in (["a"], ["b"]))
    made = variables(
        [here, there, there, here], Settings(servers=1), store="127.0.0.1:1", served=True, secret="00" * 16
    )
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE")
    assert [[each.get(name) for name in names] for each in made] == [
        ["0", "3", "0", "1", "0", "2"],
        ["1", "3", "0", "2", "1", "2"],
        ["2", "3", "1", "2", "1", "2"],
        [None] * 6,
    ]
    assert [identify(each).rank for each in made] == [0, 1, 2, 3]


def test_a_launcher_below_ours_is_refused():
    """Each rank of a torchrun under `hocket run` would train alone, without a word."""
    outer = variables(
        [ProcessSpec(argv=["x"])], Settings(), store="127.0.0.1:1", served=True, secret="00" * 16
    )[0]
    with pytest.raises(UsageError, match="RANK is 1 and WORLD_SIZE 2\nhint: start the job with one launcher"):
        identify({**outer, "RANK": "1", "WORLD_SIZE": "2"})


def test_rank_0_that_cannot_start_is_named():
    """Its peers would wait for the place of torch's store for ever."""
    prefix = json.dumps([sys.executable, "-c", "raise SystemExit(3)"])
    script = (
        "import json, sys\nfrom hocket.start.processes import ProcessSpec\nfrom hocket.start.run import launch\n"
        f"spec = ProcessSpec(argv=['true'], host='node7', prefix=json.loads({prefix!r}))\n"
        "print(*launch([spec, spec]).failures)"
    )
    code, out, err = finish(start([sys.executable, "-c", script]), 60)
    assert (code, out) == (0, "rank 0 on node7 failed: exit code 3\n"), err
