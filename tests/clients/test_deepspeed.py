"""DeepSpeed's ZeRO-1 on the CPU, on Gloo and on the backend `hocket`: a smoke test."""

import importlib.util
import os

import pytest
import torch

from tests.clients.jobs import HERE, learned
from tests.support import warm

if importlib.util.find_spec("deepspeed") is None:
    pytest.skip("no package deepspeed here", allow_module_level=True)

WORLD = 2
os.environ["DS_ACCELERATOR"] = "cpu"  # read by what is imported


def test_zero_1_learns_what_it_learns_on_gloo(tmp_path):
    """Broken: a collective that ZeRO needs (reductions to owners, gathers of parts) would fail, or give other sums."""
    options = ["--standalone", f"--nproc-per-node={WORLD}"]
    imports = (*warm.IMPORTED, "deepspeed")
    commands = {
        backend: warm.torchrun(
            options,
            HERE / "deepspeed_job.py",
            backend,
            str(tmp_path / backend),
            imports=imports,
            servers=1,
        )
        for backend in ("gloo", "hocket")
    }
    results = learned(commands, WORLD, tmp_path)
    for backend, ranks in results.items():
        assert [rank["used"] for rank in ranks] == [[backend, "DeepSpeedZeroOptimizer"]] * WORLD
        assert all(rank["state"].keys() == ranks[0]["state"].keys() for rank in ranks)
        for name, values in ranks[0]["state"].items():
            assert torch.equal(values, ranks[1]["state"][name]), name
    for ours, theirs in zip(results["hocket"], results["gloo"], strict=True):
        assert ours["losses"][-1] < ours["losses"][0]
        assert ours["losses"] == pytest.approx(theirs["losses"], rel=0, abs=1e-6)
        for name, values in ours["state"].items():
            torch.testing.assert_close(values, theirs["state"][name], rtol=0, atol=1e-6)
