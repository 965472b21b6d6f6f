"""Limits of the system, in real processes: what is refused is named with the rank and what to raise, and nobody hangs."""

import contextlib
import shutil
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

RANK = Path(__file__).with_name("rank_process.py")
TIMEOUT_S = 60.0
HERE = ["a", "a", "a"]
APART = ["a", "b", "c"]


def run(hosts, *, limits=(), before=(), steps=3):
    """Exit code, output and errors of each rank. Rank 1 alone is started with `limits` (of `ulimit`) and by `before`."""
    job = uuid.uuid4().hex
    ranks = []
    try:
        for rank in range(len(hosts)):
            argv = [sys.executable, str(RANK), str(rank), job, "s", ",".join(hosts), str(steps)]
            if rank == 1:
                lines = "".join(f"ulimit {limit} && " for limit in limits) + 'exec "$@"'
                argv = [*before, "sh", "-c", lines, "sh", *argv]
            pipe = subprocess.PIPE
            ranks.append(subprocess.Popen(argv, stdin=pipe, stdout=pipe, stderr=pipe, text=True))
        # Who has no address has said why, and ends; the others wait for it in vain, for a time.
        addresses = [process.stdout.readline().strip() or "127.0.0.1:1" for process in ranks]
        told = " ".join(addresses) + "\n"
        for process in ranks:
            with contextlib.suppress(BrokenPipeError):
                process.stdin.write(told)
                process.stdin.flush()
        said = []
        for process in ranks:
            out, err = process.communicate(timeout=TIMEOUT_S)
            said.append((process.returncode, out, err))
        return said
    finally:
        for process in ranks:
            process.kill()
            process.wait()


def descriptors_of_a_start():
    """How many a rank has open before it meets the others."""
    script = "import os, hocket.planning.compile; print(len(os.listdir('/proc/self/fd')))"
    return int(
        subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    )


@pytest.mark.parametrize("hosts", [HERE, APART], ids=["one host", "three hosts"])
@pytest.mark.parametrize("more", [2, 4, 6, 7])
def test_too_few_descriptors_are_named_with_the_rank(hosts, more):
    """With many ranks the usual limit of 1024 is met: a rank would wait for a call that it cannot take."""
    few = descriptors_of_a_start() + more
    said = run(hosts, limits=[f"-n {few}"])
    code, out, err = said[1]
    if code == 0:
        # Enough for so small a mesh.
        assert "done" in out
        return
    assert "rank 1: " in err, err
    assert f"raise `ulimit -n`, which is {few}" in err, err
    # The others name it; none is killed.
    assert all(code == 1 and "rank 1 " in err for code, _, err in (said[0], said[2])), said


@pytest.mark.parametrize(
    ("limit", "hint"), [("-f 1000", "raise `ulimit -f` to `unlimited`"), ("-v 4000000", "raise `ulimit -v`")]
)
def test_limits_on_files_and_addresses_are_named(limit, hint):
    """A batch system's limits would end a rank with "File too large" about a file that the user never made."""
    said = run(HERE, limits=[limit])
    assert said[1][0] == 1
    assert "rank 1: " in said[1][2], said[1][2]
    assert hint in said[1][2], said[1][2]


def user_namespaces():
    argv = ["unshare", "--map-root-user", "--mount", "true"]
    return (
        shutil.which("unshare") is not None
        and subprocess.run(argv, capture_output=True, check=False).returncode == 0
    )


@pytest.mark.skipif(not user_namespaces(), reason="needs a mount namespace of its own")
def test_a_full_dev_shm_is_not_missed():
    """Containers give 64 MB of /dev/shm: jobs would stop where it is too small."""
    full = 'mount -t tmpfs -o size=4k tmpfs /dev/shm && head -c 4096 /dev/zero > /dev/shm/full; exec "$@"'
    said = run(HERE, before=["unshare", "--map-root-user", "--mount", "sh", "-c", full, "sh"])
    assert [code for code, _, _ in said] == [0, 0, 0], said
