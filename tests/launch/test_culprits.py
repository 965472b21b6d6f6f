"""Three ranks of which one goes wrong, in many ways: the launcher's last word, and each survivor's, name that one."""

import io
import os
import re
import sys

import pytest

from benches.culprits import memory, words
from benches.culprits.cases import WRONG_AT
from benches.culprits.notes import Read
from hocket.settings import Settings
from hocket.start.processes import ProcessSpec
from hocket.start.run import launch
from tests.launch.culprits import BLAMED, SCRIPT, WORLD, blamed, patience_s
from tests.support import warm

pytestmark = pytest.mark.tools

KINDS = {
    "forward": "exit code 1",
    "backward": "exit code 1",
    "loader": "exit code 1",
    "in step": "exit code 1",
    "caught": "exit code 1",
    "sys.exit(3)": "exit code 3",
    "raise SystemExit(4)": "exit code 4",
    "os._exit(5)": "exit code 5",
    "SIGKILL": "SIGKILL (exit code 137)",
    "SIGSEGV": "SIGSEGV (exit code 139)",
    "out of memory": "SIGKILL (exit code 137)",
    "SIGSTOP": "ranks 0, 2 heard nothing of it any more",
    "loop": "ranks 0, 2 waited for it in vain",
    "native": "ranks 0, 2 waited for it in vain",
    "early end": "ranks 0, 2 still needed it",
    "late loader": "ranks 0, 2 waited for it in vain",
}
"""By what the culprit does: how the launcher tells its end."""

APART = ("forward", "caught", "sys.exit(3)", "SIGKILL", "SIGSTOP", "loop", "native", "early end")
"""Of these, ranks are on hosts of their own, too: then they wait for neighbours in a ring, not for all."""
JOBS = [(kind, (None,) * WORLD) for kind in KINDS] + [
    (kind, tuple("abc")) for kind in (*APART, "other shape")
]


@pytest.fixture
def directory(tmp_path):
    """Of a job's notes. Its ranks may have made groups of processes."""
    yield tmp_path
    for number in Read(tmp_path).processes().values():
        memory.remove(number)


@pytest.mark.parametrize(("kind", "hosts"), JOBS)
def test_the_launcher_s_last_word_is_of_the_culprit(kind, hosts, directory):
    """A user would look at the wrong rank, and the exit code of the one that failed would be lost."""
    culprit, how = 1, KINDS.get(kind, "exit code 1")
    argv = warm.command(SCRIPT, kind, str(culprit), str(directory))
    environment = {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    specs = [ProcessSpec(argv=argv, environment=environment, host=host) for host in hosts]
    err = io.BytesIO()
    settings = Settings(
        timeout_s=patience_s(kind), start_timeout_s=60, heartbeat_timeout_s=2, autopilot=False
    )
    outcome = launch(specs, settings=settings, out=err, err=err)
    said = err.getvalue().decode()
    first = outcome.failures[0]
    assert first.rank == culprit, f"{outcome}\n{said}"
    assert how in first.how, said
    codes = re.findall(r"exit code (\d+)", how)
    assert outcome.code == (int(codes[0]) if codes else 1), said
    error = first.error(str(first))
    assert (error.rank, error.why) == (culprit, "failed")
    if kind in ("sys.exit(3)", "early end"):
        # Nobody knows whether it had fewer batches.
        told = "exited with code 3 after" if codes == ["3"] else f"ended after {WRONG_AT} iterations and left"
        assert told in said, said
        assert f"see how the script of rank {culprit} ended, and with which exit code" in said, said
    named = f"rank {culprit} {'calls' if kind == 'other shape' else 'on'}"
    for rank in (0, 2):
        assert named in words.last_line(words.of_rank(said, rank)), said
        if kind != "other shape":
            assert blamed(directory, rank) == (culprit, *BLAMED.get(kind, ("gave_up", None))), said
