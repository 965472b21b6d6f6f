"""Programs that people have, on the backend `hocket` and on Gloo: `make test-clients`, in an environment of its own.

Each job is a script as a user would write it; it must end, and learn the same on both backends.
"""

import os
import signal
import subprocess
from pathlib import Path

import pytest
import torch

from tests.support import warm

HERE = Path(__file__).parent
TOLERANCE = 1e-6
LIMIT_S = 240
"""Of two jobs at once, importing what they need included."""
IMPORTED = (
    *warm.IMPORTED,
    "accelerate",
    "lightning",
    "torchmetrics",
    "transformers.trainer",
)
"""What the jobs import, which takes a rank longer than all else that it does."""
os.environ["HF_HUB_OFFLINE"] = "1"  # read by what is imported


def command(client, backend, world, out):
    script, arguments = HERE / f"{client}_job.py", (backend, str(world), str(out))
    if client == "lightning":
        return warm.command(script, *arguments, imports=IMPORTED, servers=1)
    options = ["--standalone", f"--nproc-per-node={world}"]
    return warm.torchrun(options, script, *arguments, imports=IMPORTED, servers=1)


def trained(client, world, folder):
    """What each rank of both backends has learned; their jobs run at the same time."""
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("HOCKET_")},
        "OMP_NUM_THREADS": "1",
    }
    jobs = {}
    for backend in ("gloo", "hocket"):
        out = folder / backend
        out.mkdir()
        with (out / "output").open("wb") as output:
            jobs[backend] = subprocess.Popen(
                command(client, backend, world, out),
                env=environment,
                cwd=out,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
    try:
        for backend, job in jobs.items():
            job.wait(LIMIT_S)
            assert job.returncode == 0, f"{backend}:\n{(folder / backend / 'output').read_text()}"
    finally:
        for job in jobs.values():
            if job.poll() is None:
                os.killpg(job.pid, signal.SIGKILL)
                job.wait()
    return {
        backend: [torch.load(folder / backend / f"rank-{rank}.pt") for rank in range(world)]
        for backend in jobs
    }


@pytest.mark.parametrize("world", [2, 3])
@pytest.mark.parametrize("client", ["lightning", "trainer", "accelerate"])
def test_learns_what_gloo_learns(client, world, tmp_path):
    """A framework that asks for what the backend lacks ends in its first validation; with other sums, it trains another model."""
    results = trained(client, world, tmp_path)
    for backend, ranks in results.items():
        assert [rank["backend"] for rank in ranks] == [backend] * world
    for ours, theirs in zip(results["hocket"], results["gloo"], strict=True):
        assert len(ours["losses"]) >= 16
        assert ours["losses"] == pytest.approx(theirs["losses"], rel=0, abs=TOLERANCE)
        assert ours["state"].keys() == theirs["state"].keys()
        for name, values in ours["state"].items():
            torch.testing.assert_close(
                values, theirs["state"][name], rtol=0, atol=TOLERANCE, msg=lambda said, n=name: f"{n}: {said}"
            )
