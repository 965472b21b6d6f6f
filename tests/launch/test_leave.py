"""`hocket leave`, with real jobs."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from hocket.settings import Settings
from hocket.start.running import announced, running
from tests.launch.processes import clean_environment, finish, start, told, write
from tests.support import warm

pytestmark = pytest.mark.members

SCRIPT = """
import sys, time, torch, hocket.torch as hk
torch.set_num_threads(1)
model = torch.nn.Linear(4, 4)
model, optimizer = hk.distribute(model, torch.optim.SGD(model.parameters(), lr=0.1))
for step in range(6000):
    optimizer.zero_grad()
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    time.sleep(0.01)
    # The same step on all ranks.
    if hk.world(model) == int(sys.argv[1]):
        break
print("trained to the end on", hk.world(model))
"""


def test_ranks_leave_a_running_job_until_it_must_keep_the_others(place: Path) -> None:
    """Broken: nobody could take a machine back from a job without a loss."""
    script = write(place, SCRIPT)
    run = warm.hocket("run", "--elastic", "2:3", script, "2")
    job = start(run, TMPDIR=str(place), OMP_NUM_THREADS="1")
    try:
        deadline_s = time.monotonic() + 60
        while (answer := told(place, "leave", "7"))[0] == 2 or "not begun" in answer[2]:
            assert time.monotonic() < deadline_s, answer
        assert (answer[0], "rank 7 does not train; ranks 0, 1, 2 do" in answer[2]) == (1, True), answer
        code, said, errors = told(place, "leave", "1")
        assert (code, "has left, and 2 of 3 ranks go on" in said) == (0, True), errors
    finally:
        code, out, errors = finish(job, 60)
    assert code == 0, errors
    assert out.count("trained to the end on 2") == 2
    assert running() == ()


def test_a_job_is_chosen_among_several(place: Path) -> None:
    """Broken: a rank of another job would leave."""
    assert told(place, "leave", "0")[0] == 2
    with announced("127.0.0.1:1", "00", ["python", "one two.py"], Settings()):
        (job,) = running()
        assert job.command == ("python", "one two.py")
        assert (place / next(place.iterdir())).stat().st_mode & 0o777 == 0o700
        with announced("127.0.0.1:2", "00", ["three.py"], Settings()):
            code, _, errors = told(place, "leave", "0")
            assert (code, "'one two.py'" in errors, "three.py" in errors) == (2, True, True), errors
        code, _, errors = told(place, "leave", "0", "--job", "1")
        assert (code, "1 is no launcher or coordinator of an elastic job of yours" in errors) == (2, True), (
            errors
        )
        code, _, errors = told(place, "leave", "0", "--timeout", "2")
        assert (code, "127.0.0.1:1" in errors) == (1, True), errors
    assert running() == ()


def test_what_a_killed_launcher_has_left_is_removed(place: Path) -> None:
    """Broken: `hocket leave` would speak with whoever has the port now."""
    script = (
        "import os, signal\n"
        "from hocket.start.running import announced\n"
        "from hocket.settings import Settings\n"
        "with announced('127.0.0.1:1', '00', ['a'], Settings()): os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", script], env=clean_environment(TMPDIR=str(place)), check=False
    )
    assert ended.returncode == -9
    (folder,) = place.iterdir()
    assert len(list(folder.glob("*.json"))) == 1
    assert running() == ()
    assert list(folder.glob("*.json")) == []


def test_a_folder_that_others_may_read_is_refused_and_the_job_runs(
    place: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Broken: other users would read a job's secret, or could stop jobs from starting."""
    with announced("127.0.0.1:1", "00", ["a"], Settings()):
        pass
    (folder,) = place.iterdir()
    folder.chmod(0o755)
    with announced("127.0.0.1:1", "00", ["a"], Settings()):
        assert list(folder.iterdir()) == []
    assert "will not find this job" in caplog.text
