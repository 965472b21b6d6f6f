"""Programs that people have, on Gloo, on the backend `hocket`, and by `hk.distribute`: `make test-clients`.

They have an environment of their own. Each job is a script as a user would write it; it must end, and learn the same in all
three ways.
"""

import os

import pytest
import torch

from tests.clients.jobs import command, learned

TOLERANCES = {"backend": 1e-6, "distribute": 1e-5}
"""DDP divides before it adds, and `hk.distribute` after."""
os.environ["HF_HUB_OFFLINE"] = "1"  # read by what is imported


WRAPPED = "DistributedDataParallel"
USED = {
    "gloo": {client: ["gloo", WRAPPED] for client in ("lightning", "trainer", "accelerate")},
    "backend": {client: ["hocket", WRAPPED] for client in ("lightning", "trainer", "accelerate")},
    # Accelerate and the Trainer keep Gloo for metrics.
    "distribute": {
        "lightning": ["hocket", "Digits"],
        "trainer": ["gloo", "GPT2LMHeadModel"],
        "accelerate": ["gloo", "Sequential"],
    },
}
"""By way, the backend of the process group, and the class in which the model is trained."""


WORLD = 3
"""An odd number; `test_distribute.py` trains on two ranks."""


@pytest.mark.parametrize("client", ["lightning", "trainer", "accelerate"])
def test_learns_what_gloo_learns(client, tmp_path):
    """A framework that asks for what the backend lacks ends in its first validation; with other sums, it trains another model."""
    results = learned(
        {way: command(client, f"{client}_job.py", WORLD, way, WORLD, tmp_path / way) for way in USED},
        WORLD,
        tmp_path,
    )
    for way, ranks in results.items():
        assert [rank["used"] for rank in ranks] == [USED[way][client]] * WORLD
    for way in ("backend", "distribute"):
        for ours, theirs in zip(results[way], results["gloo"], strict=True):
            assert len(ours["losses"]) >= 16
            assert ours["losses"] == pytest.approx(theirs["losses"], rel=0, abs=TOLERANCES[way])
            assert ours["state"].keys() == theirs["state"].keys()
            for name, values in ours["state"].items():
                torch.testing.assert_close(
                    values,
                    theirs["state"][name],
                    rtol=0,
                    atol=TOLERANCES[way],
                    msg=lambda said, n=name, w=way: f"{w}: {n}: {said}",
                )
