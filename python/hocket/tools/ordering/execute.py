"""Runs of a launcher with an order: its files are written into one folder, and passed to the command.

`{openmpi-rankfile}` and so on in an argument stand for files. Known launchers without a named file get their option:
Open MPI, MPICH and its derivatives, srun, `hocket run`.
"""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from hocket.errors import UsageError
from hocket.tools.ordering.handover import FORMATS
from hocket.tools.ordering.handover.layout import Layout

VERSION_TIMEOUT_S = 20.0
"""Longest wait for a launcher to identify itself."""

MPI = (
    "mpirun",
    "mpiexec",
    "mpiexec.hydra",
    "mpirun.openmpi",
    "mpiexec.openmpi",
    "mpirun.mpich",
    "mpiexec.mpich",
)


def run(layout: Layout, argv: Sequence[str]) -> int:
    """Run the command and return its exit code, or 128 plus the number of the signal that killed it; leaves no files behind.

    Raises UsageError when the command is missing, or is a launcher that takes no order and names no file.
    """
    with tempfile.TemporaryDirectory(prefix="hocket-order-") as directory:
        files = {name: Path(directory) / name for name in FORMATS}
        for name, path in files.items():
            path.write_text(FORMATS[name](layout))
        command, added = with_order(argv, files)
        try:
            child = subprocess.Popen(command, env={**os.environ, **added})
        except OSError as error:
            raise UsageError(f"order: {command[0]} cannot be run: {error.strerror}") from None
        handler = signal.signal(signal.SIGTERM, lambda *_: child.terminate())
        try:
            code = child.wait()
        except KeyboardInterrupt:
            code = child.wait()  # the terminal has sent it the signal as well
        finally:
            signal.signal(signal.SIGTERM, handler)
        return code if code >= 0 else 128 - code


def with_order(argv: Sequence[str], files: Mapping[str, Path]) -> tuple[list[str], dict[str, str]]:
    """The command with its files, and additions to its environment.

    >>> with_order(["lamboot", "{hosts}"], {"hosts": Path("/tmp/hosts")})
    (['lamboot', '/tmp/hosts'], {})
    """
    command = [_filled(argument, files) for argument in argv]
    if command != list(argv):
        return command, {}
    name = Path(argv[0]).name
    if name == "srun":
        return [argv[0], "--distribution=arbitrary", *argv[1:]], {"SLURM_HOSTFILE": str(files["slurm"])}
    if name == "hocket" and argv[1:2] == ["run"]:
        return [*argv[:2], "--hosts", str(files["hosts"]), *argv[2:]], {}
    if name in MPI:
        return [argv[0], *_mpi_options(argv[0], files), *argv[1:]], {}
    raise UsageError(
        f"order: {argv[0]} is no launcher that takes a list of hosts\n"
        f"hint: name a file in its arguments, such as {{hosts}}; there are {', '.join(FORMATS)}"
    )


def _filled(argument: str, files: Mapping[str, Path]) -> str:
    for name, path in files.items():
        argument = argument.replace(f"{{{name}}}", str(path))
    return argument


def _mpi_options(launcher: str, files: Mapping[str, Path]) -> list[str]:
    try:
        answer = subprocess.run(
            [launcher, "--version"], capture_output=True, text=True, timeout=VERSION_TIMEOUT_S, check=False
        ).stdout
    except OSError as error:
        raise UsageError(f"order: {launcher} cannot be run: {error.strerror}") from None
    except subprocess.TimeoutExpired:
        raise UsageError(f"order: {launcher} --version says nothing for {VERSION_TIMEOUT_S:.0f} s") from None
    if "Open MPI" not in answer and "OpenRTE" not in answer:
        return ["-f", str(files["mpich"])]
    hostfile = ["--hostfile", str(files["openmpi-hostfile"])]
    # Version 5 no longer has an option of its own for rankfiles.
    if "(Open MPI) 4" in answer or "OpenRTE" in answer:
        return [*hostfile, "--rankfile", str(files["openmpi-rankfile"])]
    return [*hostfile, "--map-by", f"rankfile:file={files['openmpi-rankfile']}"]
