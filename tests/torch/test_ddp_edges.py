"""DDP on the backend `hocket` when a rank ends, is late or does something else: at each edge of a step, in real processes.

PyTorch's own tests of this kind are for other backends by name.
"""

import json
import secrets
from pathlib import Path

import pytest

from tests.support import warm
from tests.support.commands import alone
from tests.torch.ddp_edges import EDGES

SCRIPT = Path(__file__).parent / "ddp_edges.py"
WHY = {"raises": "gave_up", "leaves": "left", "dies": "lost", "late": "timeout"}


@pytest.mark.parametrize(
    ("kind", "world"),
    [("raises", 2), ("leaves", 3), ("dies", 2), ("late", 2), ("other shape", 2)],
)
def test_every_edge_of_a_step_names_who_is_missing(kind, world, tmp_path):
    """Broken: a process that only waited would die of a segmentation fault, wait for the time-out, or blame somebody else."""
    ran = alone(
        warm.command(SCRIPT, kind, str(world), str(tmp_path)),
        HOCKET_SECRET=secrets.token_hex(32),
        OMP_NUM_THREADS="1",
    )
    assert ran.returncode == 0, ran.stderr
    results = json.loads((tmp_path / "results.json").read_text())
    assert list(results) == list(EDGES)
    culprit = world - 1
    for at, (edge, result) in enumerate(results.items()):
        assert result["codes"][:culprit] == [0] * culprit, (
            edge,
            result,
            (tmp_path / f"{at}.0.log").read_text(),
        )
        for caught in result["caught"]:
            assert caught is not None, (edge, "nothing was noticed")
            assert "RuntimeError" in caught["type"], (edge, caught)
            assert f"rank {culprit}" in caught["text"], (edge, caught)
            if kind in WHY:
                assert "PeerError" in caught["type"], (edge, caught)
                assert (caught["rank"], caught["why"]) == (culprit, WHY[kind]), (edge, caught)
            else:
                assert "UsageError" in caught["type"], (edge, caught)
                assert "all_reduce (sum, f32) of 28 bytes" in caught["text"], (edge, caught)
