"""Real processes for these tests: starting them, and proving that none is left."""

import os
import subprocess
import sys
import time
from pathlib import Path

from tests.support.commands import completed

RUN = [sys.executable, "-c", "import sys; from hocket.cli.run import command; command()"]
LAUNCHERS = (
    "HOCKET_",
    "OMPI_",
    "PMI",
    "MPI_",
    "SLURM_",
    "TORCHELASTIC_",
    "MASTER_",
    "RANK",
    "WORLD_SIZE",
    "LOCAL_",
)


def clean_environment(**more):
    """Ours without the variables of any launcher."""
    return {name: value for name, value in os.environ.items() if not name.startswith(LAUNCHERS)} | more


def write(folder, text, name="rank.py"):
    path = folder / name
    path.write_text(text)
    return str(path)


def start(argv, **environment):
    """A process whose output is kept, in its own group."""
    return subprocess.Popen(
        argv,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=clean_environment(**environment),
        start_new_session=True,
    )


def plain(*words):
    """The command `hocket`; `warm.hocket` is the same for ranks that load PyTorch."""
    return [sys.executable, "-c", "from hocket.cli.main import main; main()", *words]


def told(place, *words, hocket=plain):
    """Exit code, output and errors of `hocket`, which finds the jobs of this place."""
    ended = completed(hocket(*words), env=clean_environment(TMPDIR=str(place), OMP_NUM_THREADS="1"))
    return ended.returncode, ended.stdout, ended.stderr


def finish(process, timeout_s=30):
    """(exit code, output, errors)."""
    try:
        out, err = process.communicate(timeout=timeout_s)
    finally:
        process.kill()
    return process.returncode, out, err


def with_token(token):
    """Ids of processes that have `token` in their environment or arguments, zombies aside."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                text = (entry / "environ").read_bytes() + (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if token.encode() in text:
                found.append(int(entry.name))
    return found


def eventually(condition, timeout_s=20):
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline_s:
            return False
        time.sleep(0.02)
    return True
