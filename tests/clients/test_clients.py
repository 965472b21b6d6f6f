"""Programs that people have, on Gloo, on the backend `hocket`, and by `hk.distribute`: `make test-clients`, in an environment of its
own.

Each job is a script as a user would write it; it must end, and learn the same in all three ways.
"""

import os
import signal
import subprocess
from pathlib import Path

import pytest
import torch

from tests.support import warm

HERE = Path(__file__).parent
TOLERANCES = {"backend": 1e-6, "distribute": 1e-5}
"""DDP divides before it adds, and `hk.distribute` after."""
LIMIT_S = 240
"""Of three jobs at once, importing what they need included."""
IMPORTED = (
    *warm.IMPORTED,
    "accelerate",
    "lightning",
    "torchmetrics",
    "transformers.trainer",
)
"""What the jobs import, which takes a rank longer than all else that it does."""
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


def command(client, way, world, out):
    script, arguments = HERE / f"{client}_job.py", (way, str(world), str(out))
    if client == "lightning":
        return warm.command(script, *arguments, imports=IMPORTED, servers=1)
    options = ["--standalone", f"--nproc-per-node={world}"]
    return warm.torchrun(options, script, *arguments, imports=IMPORTED, servers=1)


def trained(client, world, folder):
    """What each rank has learned in each way; the jobs run at the same time."""
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("HOCKET_")},
        "OMP_NUM_THREADS": "1",
    }
    jobs = {}
    for way in USED:
        out = folder / way
        out.mkdir()
        with (out / "output").open("wb") as output:
            jobs[way] = subprocess.Popen(
                command(client, way, world, out),
                env=environment,
                cwd=out,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
    try:
        for way, job in jobs.items():
            job.wait(LIMIT_S)
            assert job.returncode == 0, f"{way}:\n{(folder / way / 'output').read_text()}"
    finally:
        for job in jobs.values():
            if job.poll() is None:
                os.killpg(job.pid, signal.SIGKILL)
                job.wait()
    return {way: [torch.load(folder / way / f"rank-{rank}.pt") for rank in range(world)] for way in jobs}


@pytest.mark.parametrize("world", [2, 3])
@pytest.mark.parametrize("client", ["lightning", "trainer", "accelerate"])
def test_learns_what_gloo_learns(client, world, tmp_path):
    """A framework that asks for what the backend lacks ends in its first validation; with other sums, it trains another model."""
    results = trained(client, world, tmp_path)
    for way, ranks in results.items():
        assert [rank["used"] for rank in ranks] == [USED[way][client]] * world
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
