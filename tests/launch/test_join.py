"""`hocket join`, with real jobs."""

import time
from pathlib import Path

import pytest

from hocket.settings import Settings
from hocket.start.running import announced
from tests.launch.processes import finish, start, told, write
from tests.support import warm

pytestmark = pytest.mark.members

SCRIPT = """
import sys, time, torch, hocket.torch as hk
torch.set_num_threads(1)
model = torch.nn.Linear(4, 4)
model, optimizer = hk.distribute(model, torch.optim.SGD(model.parameters(), lr=0.1))
print("begins among", hk.world(model))
for step in range(6000):
    optimizer.zero_grad()
    model(torch.ones(2, 4)).sum().backward()
    world = hk.world(model)
    optimizer.step()
    time.sleep(0.01)
    # The same step on all ranks.
    if world == int(sys.argv[1]):
        break
print("trained to the end on", hk.world(model), float(model.weight.sum()))
"""


def test_a_process_joins_a_running_job(place: Path) -> None:
    """Broken: nobody could add a machine to a job without a restart."""
    script = write(place, SCRIPT)
    run = warm.hocket("run", "-n", "1", "--elastic", "1:2", script, "2")
    job = start(run, TMPDIR=str(place), OMP_NUM_THREADS="1")
    try:
        deadline_s = time.monotonic() + 60
        while (ended := told(place, "join", script, "2", hocket=warm.hocket))[0] != 0 and (
            "no elastic job" in ended[2] or "has not begun yet" in ended[2]
        ):
            assert time.monotonic() < deadline_s, ended
    finally:
        code, out, errors = finish(job, 60)
    assert (ended[0], code) == (0, 0), ended[2] + errors
    assert "begins among 1" in out
    assert "begins among 2" in ended[1]
    assert "2 ranks go on" in errors
    (there,) = (line for line in out.splitlines() if "trained to the end on 2" in line)
    assert there.removeprefix("[0] ") in ended[1]


def test_what_cannot_be_joined_is_named(place: Path) -> None:
    """Broken: whoever mistypes gets a traceback, waits for nothing, or joins another job."""
    script = write(place, SCRIPT)
    (place / "damaged.json").write_text("{")
    gone = place / "gone.json"
    with announced("127.0.0.1:1", "00" * 32, ["python", "train.py"], Settings(start_timeout_s=1)):
        found = next(each for each in place.rglob("*.json") if each.name != "damaged.json")
        gone.write_bytes(found.read_bytes())
    cases = {
        ("--job", "1", "--job-file", str(gone), script): "each names a job",
        (script,): "no elastic job of yours",
        ("--job-file", str(place / "none.json"), script): "cannot be read: No such file",
        ("--job-file", str(place / "damaged.json"), script): "is no file of an elastic job",
        ("--job-file", str(gone), "missing.py"): "missing.py",
        ("--job-file", str(gone), script, "2"): "127.0.0.1:1",
    }
    for arguments, said in cases.items():
        code, _, errors = told(place, "join", *arguments)
        assert code != 0
        assert said in errors, errors
