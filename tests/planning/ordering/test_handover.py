"""Files as launchers take them, against golden ones; HOCKET_BLESS=1 writes these anew."""

from __future__ import annotations

import os
import shutil
import stat
import sys
from pathlib import Path

import pytest

from hocket.errors import UsageError
from hocket.tools.ordering.execute import run, with_order
from hocket.tools.ordering.handover import FORMATS
from hocket.tools.ordering.handover.layout import Layout
from tests.support.commands import completed

GOLDEN = Path(__file__).parent / "golden"
LAYOUT = Layout((("rack1-b", 2), ("rack1-a.example.org", 1), ("10.0.0.7", 3)))


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_files_are_as_their_launchers_want_them(name: str) -> None:
    """Broken: a launcher would start ranks on other hosts than the order says, or not at all."""
    text = FORMATS[name](LAYOUT)
    golden = GOLDEN / f"{name}.txt"
    if os.environ.get("HOCKET_BLESS") == "1":
        golden.write_text(text)
    assert text == golden.read_text()


def launcher(path: Path, version: str) -> str:
    """A command that says which launcher it is, and otherwise prints its arguments."""
    path.write_text(f'#!/bin/sh\nif [ "$1" = --version ]; then echo "{version}"; else echo "$@"; fi\n')
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


FILES = {name: Path("/tmp") / name for name in FORMATS}


@pytest.mark.parametrize(
    ("name", "version", "options"),
    [
        (
            "mpirun",
            "mpirun (Open MPI) 5.0.7",
            ["--hostfile", "/tmp/openmpi-hostfile", "--map-by", "rankfile:file=/tmp/openmpi-rankfile"],
        ),
        (
            "mpiexec",
            "mpiexec (OpenRTE) 4.1.8",
            ["--hostfile", "/tmp/openmpi-hostfile", "--rankfile", "/tmp/openmpi-rankfile"],
        ),
        (
            "mpirun",
            "mpirun (Open MPI) 4.1.8",
            ["--hostfile", "/tmp/openmpi-hostfile", "--rankfile", "/tmp/openmpi-rankfile"],
        ),
        ("mpiexec", "HYDRA build details:", ["-f", "/tmp/mpich"]),
    ],
)
def test_mpi_launchers_are_told_apart(tmp_path: Path, name: str, version: str, options: list[str]) -> None:
    """Broken: a launcher would be given an option that it does not know."""
    argv = [launcher(tmp_path / name, version), "-n", "2", "./program"]
    assert with_order(argv, FILES) == ([argv[0], *options, *argv[1:]], {})


def test_other_launchers_and_named_files() -> None:
    """Broken: SLURM would place tasks as it likes, and files could not be named."""
    assert with_order(["srun", "x"], FILES) == (
        ["srun", "--distribution=arbitrary", "x"],
        {"SLURM_HOSTFILE": "/tmp/slurm"},
    )
    assert with_order(["hocket", "run", "x.py"], FILES)[0] == [
        "hocket",
        "run",
        "--hosts",
        "/tmp/hosts",
        "x.py",
    ]
    assert with_order(["own", "--list={mpich}"], FILES)[0] == ["own", "--list=/tmp/mpich"]
    with pytest.raises(UsageError, match="ls is no launcher that takes a list of hosts"):
        with_order(["ls"], FILES)


def test_commands_run_with_the_files_which_are_gone_afterwards(capfd: pytest.CaptureFixture[str]) -> None:
    """Broken: a launcher would find no file, its exit code would be lost, or temporary files would stay behind."""
    script = (
        "import pathlib, sys; print(sys.argv[1]); print(pathlib.Path(sys.argv[1]).read_text()); sys.exit(7)"
    )
    assert run(LAYOUT, [sys.executable, "-c", script, "{hosts}"]) == 7
    path, *lines = capfd.readouterr().out.split("\n")
    assert lines[0] == "rack1-b slots=2"
    assert not Path(path).parent.exists()


def test_a_command_that_is_not_there_is_named() -> None:
    """Broken: a typing error would end in a traceback."""
    with pytest.raises(UsageError, match=r"/nonexistent/mpirun cannot be run: No such file"):
        run(LAYOUT, ["/nonexistent/mpirun", "x"])
    with pytest.raises(UsageError, match=r"/nonexistent/x cannot be run: No such file"):
        run(LAYOUT, ["/nonexistent/x", "{hosts}"])


def test_open_mpi_takes_what_is_written_for_it(tmp_path: Path) -> None:
    """Broken: the files would be right by the documentation and wrong for the program."""
    mpirun = shutil.which("mpirun", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if mpirun is None:
        pytest.skip("no Open MPI here")
    here = Layout((("localhost", 2),))
    script = tmp_path / "run.py"
    script.write_text(
        "import sys\nfrom hocket.tools.ordering.execute import run\n"
        "from hocket.tools.ordering.handover.layout import Layout\n"
        f"sys.exit(run(Layout({here.hosts!r}), [{mpirun!r}, '--allow-run-as-root', "
        "'sh', '-c', 'echo rank $OMPI_COMM_WORLD_RANK']))\n"
    )
    done = completed([sys.executable, str(script)], PATH=f"{Path(mpirun).parent}:{os.environ['PATH']}")
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.split()) == ["0", "1", "rank", "rank"]
