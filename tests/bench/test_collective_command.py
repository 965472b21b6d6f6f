"""`hocket bench all_reduce` and its like as a person calls them, with real ranks."""

import importlib.util
import json
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from hocket.cli.bench import command
from hocket.errors import Error, UsageError
from hocket.tools.bench.collectives import mpirun, run
from hocket.tools.bench.collectives.definitions import BUS
from hocket.tools.bench.collectives.result import Contestant, Result, row
from tests.support import warm
from tests.support.commands import completed

pytestmark = pytest.mark.tools

HOCKET = str(Path(sys.executable).with_name("hocket"))


def bench(*arguments, hocket=warm.hocket):
    return completed(hocket("bench", *arguments))


def rows(path, contenders, sizes):
    measured = json.loads(path.read_text())
    found = [(each["size_bytes"], each["contender"]) for each in measured["rows"]]
    assert found == [(size, name) for size in sizes for name in contenders]
    for each in measured["rows"]:
        assert each["wrong"] == 0, each
        assert 0 < each["p5_s"] <= each["median_s"] <= each["p95_s"], each
    assert all(each["empty_call_s"] > 0 for each in measured["contenders"])
    return measured["rows"]


def test_all_reduce_against_gloo(tmp_path):
    """The benchmark that the project's numbers come from would not run."""
    written, drawn = tmp_path / "out.json", tmp_path / "out.svg"
    ended = bench(
        *(
            "all_reduce",
            "-n",
            "2",
            "--smallest",
            "4KB",
            "--largest",
            "64KiB",
            "--factor",
            "8",
            "--rounds",
            "3",
        ),
        *("--against", "gloo", "-o", str(written), "--svg", str(drawn)),
    )
    assert ended.returncode == 0, ended.stderr
    sizes = [4_000, 32_000, 65_536]
    measured = rows(written, ["engine", "gloo"], sizes)
    assert {each["ratio"] for each in measured if each["contender"] == "engine"} == {1.0}
    assert "2 ranks" in ended.stdout
    assert "all_reduce of 4.00\u202fkB" in ended.stderr, "progress"
    assert drawn.read_text().count("<circle") == 2 * 2 * len(sizes)


def test_plain_against_tls(tmp_path):
    """What encryption costs could not be measured, or the contender would not encrypt."""
    written = tmp_path / "out.json"
    ended = bench(
        *("all_reduce", "-n", "2", "--sizes", "4KB,1MB", "--rounds", "2", "--tcp", "--ours", "engine,tls"),
        *("-o", str(written)),
    )
    assert ended.returncode == 0, ended.stderr
    rows(written, ["engine", "tls"], [4_000, 1_000_000])


def test_contenders_that_send_in_the_clear_are_said_to(monkeypatch):
    """Encrypted traffic would be compared with plain one, and nobody told."""
    monkeypatch.setenv("HOCKET_TLS", "1")
    ended = bench("all_reduce", "-n", "2", "--sizes", "4KB", "--rounds", "1", "--tcp", "--against", "gloo")
    assert ended.returncode == 0, ended.stderr
    assert "loopback TCP, in the clear" in ended.stdout


@pytest.mark.parametrize("what", BUS)
def test_every_collective_of_the_engine(tmp_path, what):
    """A collective would be measured that does not do what it is called."""
    written = tmp_path / "out.json"
    ended = bench(
        *(what, "-n", "3", "--sizes", "12,3MB", "--rounds", "1", "--tcp", "--dtype", "i32"),
        *("-o", str(written)),
    )
    assert ended.returncode == 0, ended.stderr
    rows(written, ["engine"], [12, 3_000_000])


@pytest.mark.parametrize("what", ["all_reduce", "all_gather", "reduce_scatter"])
def test_against_mpi(tmp_path, what):
    """MPI would be called with arguments of another function, or the ranks not find each other below mpirun."""
    if importlib.util.find_spec("mpi4py") is None or importlib.util.find_spec("numba") is None:
        pytest.skip("no mpi4py with numba here: the extra `mpi,kernels`")
    try:
        mpirun.find()
    except UsageError:
        pytest.skip("no mpirun here")
    written = tmp_path / "out.json"
    ended = bench(
        *(what, "-n", "3", "--sizes", "4KB", "--rounds", "2", "--dtype", "f64", "--against", "mpi"),
        *("-o", str(written)),
        # MPI looks for its ranks among the processes that it has started.
        hocket=lambda *arguments: [HOCKET, *arguments],
    )
    assert ended.returncode == 0, ended.stderr
    rows(written, ["engine", "mpi"], [3_984])


def call(*arguments):
    return CliRunner().invoke(command, ["all_reduce", *arguments])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--sizes", "4KB,many"], "`many` is not a size such as 4KB"),
        (["--sizes", "0"], "`0` is not a size"),
        (["--sizes", "4KX"], "`4KX` is not a size"),
        (["--sizes", ""], "`` is not a size"),
        (["--ours", ","], "`` is not a name"),
        (["--smallest", "4KB"], "by --smallest, --largest"),
        (["--smallest", "4KB,8KB", "--largest", "1MB"], "`4KB,8KB` is not a size"),
        (["--sizes", "4KB", "--smallest", "4KB", "--largest", "1MB"], "by --smallest, --largest"),
        (
            ["--smallest", "2MB", "--largest", "1MB"],
            "--smallest 2,000,000 bytes is more than --largest 1,000,000 bytes",
        ),
        (["--factor", "1"], "--factor"),
        (["--svg", "/there/is/no/such.svg"], "there is no folder /there/is/no"),
        (["-o", "/there/is/no/such.json"], "there is no folder /there/is/no"),
    ],
)
def test_options_that_make_no_sense(arguments, said):
    """A typing error would show a traceback, or measure something else."""
    ended = call(*arguments)
    assert ended.exit_code == 2
    assert said in ended.output


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ["--against", "gluu"],
            "there is no contender `gluu`\nhint: engine, tls, native, torch, gloo, nccl, mpi",
        ),
        (["--against", "gloo,gloo"], "engine, gloo, gloo: each can be there only once"),
    ],
)
def test_contenders_that_make_no_sense(arguments, said):
    """The user would have to guess which names there are."""
    ended = call(*arguments)
    assert isinstance(ended.exception, UsageError)
    assert said in str(ended.exception)


def test_without_mpirun(monkeypatch):
    """The user would see that a file was not found, and not which."""
    monkeypatch.setattr(mpirun.shutil, "which", lambda *_, **__: None)
    ended = call("--against", "mpi")
    assert isinstance(ended.exception, UsageError)
    assert "contender `mpi` needs mpirun, which is not here\nhint: install" in str(ended.exception)


@pytest.mark.parametrize(
    ("sizes", "bytes_of_each"),
    [
        (["--sizes", "4KB, 1.5kib,25m,25MB,7"], (4_000, 1_536, 25_000_000, 7)),
        (["--smallest", "4KB", "--largest", "1MB"], (4_000, 16_000, 64_000, 256_000, 1_000_000)),
        (["--smallest", "1K", "--largest", "1K", "--factor", "2"], (1_000,)),
        ([], (4_000, 64_000, 1_000_000, 25_000_000)),
    ],
)
def test_sizes(monkeypatch, sizes, bytes_of_each):
    """Other sizes would be measured than were asked for."""
    asked = []

    def note(request, *, world):
        asked.append((request.sizes_bytes, request.contenders, world))
        raise Error("seen enough")

    monkeypatch.setattr(run, "measure", note)
    call(*sizes, "-n", "3", "--against", "gloo, mpi")
    assert asked == [(bytes_of_each, ("engine", "gloo", "mpi"), 3)]


def test_wrong_elements_are_an_error(monkeypatch):
    """A script would take the numbers of a contender that does not work."""
    numbers = {"what": "all_reduce", "world": 2, "size_bytes": 8, "elements": 2, "calls": 1}
    made = Result(
        collective="all_reduce",
        world=2,
        cores=2,
        dtype="f32",
        tcp=False,
        cache_line_ns=None,
        contenders=(Contestant(name="engine", about="", empty_call_s=1.0),),
        rows=(row("engine", [1.0], [1.0], wrong=3, cpu_s=2.0, **numbers),),
    )
    monkeypatch.setattr(run, "measure", lambda *_, **__: made)
    ended = call()
    assert isinstance(ended.exception, Error)
    assert str(ended.exception).startswith("3 elements are wrong")
    assert "engine" in ended.output, "the table is shown all the same"


STUCK = """
import time
from hocket.tools.bench.collectives.deadline import Deadline
deadline = Deadline("rank 3 on node7", timeout_s=0.2)
with deadline.over("gloo, set-up"):
    pass
with deadline.over("mpi, all_reduce of 4 kB, round 2"):
    time.sleep(60)
"""


def test_a_contender_that_is_stuck():
    """MPI waits without a deadline: the benchmark would hang, and nobody know where."""
    ended = completed([sys.executable, "-c", STUCK])
    assert ended.returncode == 1
    assert "rank 3 on node7: mpi, all_reduce of 4 kB, round 2 is not over after 0.2 s\nhint:" in ended.stderr
