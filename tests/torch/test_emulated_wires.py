"""An emulated network, whose rates the wire keeps by itself, under jobs on any transport."""

import io
import json
from pathlib import Path

import pytest
import torch

from hocket.job import emulated_links
from hocket.settings import Settings
from hocket.start.processes import ProcessSpec
from hocket.start.run import launch
from tests.support import warm
from tests.support.engines import FABRICS
from tests.torch.emulated_rank import BYTES, WORLD, alone

pytestmark = pytest.mark.hosts

SCRIPT = Path(__file__).with_name("emulated_rank.py")
BIT_PER_S = 8e7
HOSTS = "ab"


@pytest.mark.parametrize("wire", ["tcp", *FABRICS])
def test_a_job_is_as_fast_as_its_emulated_network_whatever_carries_it(tmp_path, wire):
    """A fabric would be tried on a network that is not there, or train another model on it."""
    routes = {"a": {"a": (), "b": (0, 2)}, "b": {"a": (1, 2), "b": ()}}
    links = emulated_links.write(tmp_path, (1e10, 1e10, BIT_PER_S), routes)
    specs = [
        ProcessSpec(argv=warm.command(SCRIPT, str(tmp_path)), host=host, environment={"OMP_NUM_THREADS": "1"})
        for host in HOSTS
    ]
    out = io.BytesIO()
    settings = Settings(timeout_s=60, start_timeout_s=60, wire=wire, emulated_links=str(links))
    outcome = launch(specs, settings=settings, out=out, err=out)
    assert outcome.code == 0, out.getvalue().decode()
    up, down, trunk = emulated_links.bytes_so_far(tmp_path)
    # Both hosts' parameters and gradients share the trunk. The last piece does not wait for its own time.
    assert min(up, down) >= BYTES
    assert trunk == up + down
    took_s = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(WORLD)]
    assert min(took_s) > 0.9 * WORLD * BYTES * 8 / BIT_PER_S
    for rank in range(WORLD):
        torch.testing.assert_close(torch.load(tmp_path / f"{rank}.pt"), alone(), rtol=1e-5, atol=1e-6)
