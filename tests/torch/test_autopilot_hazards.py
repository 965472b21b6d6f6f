"""What jobs do while their autopilot looks and meets: end at once, fork, stop for a while, train two models. Nothing hangs."""

import io
import json
from pathlib import Path

import pytest

from hocket.settings import Settings
from hocket.start.processes import ProcessSpec
from hocket.start.run import launch
from tests.support import warm

pytestmark = pytest.mark.hosts

SCRIPT = Path(__file__).with_name("hazard_rank.py")
WORLD = 3


@pytest.mark.parametrize(("steps", "models"), [(3, 1), (300, 2)])
def test_jobs_end_with_one_model_on_all_ranks(tmp_path, steps, models):
    """A job would hang in its last step, or with the first data loader; or two models would take each other's messages."""
    argv = warm.command(SCRIPT, str(tmp_path), str(steps))
    # Hosts that differ in name alone: there is a network to look at.
    specs = [
        ProcessSpec(argv=argv, host=f"h{rank}", environment={"OMP_NUM_THREADS": "1"}) for rank in range(WORLD)
    ]
    said = io.BytesIO()
    outcome = launch(specs, settings=Settings(timeout_s=30, start_timeout_s=30), out=said, err=said)
    assert outcome.code == 0, said.getvalue().decode()
    found = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(WORLD)]
    assert found == [found[0]] * WORLD
    assert found[0][1] == models
    assert "Traceback" not in said.getvalue().decode()
