"""Jobs of clients, as tests start them: each rank in a process that has imported what it needs."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import torch

from tests.support import warm

HERE = Path(__file__).parent
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


def command(client, script, world, *arguments):
    """What starts a client's job. Lightning starts the other ranks itself."""
    arguments = [*map(str, arguments)]
    if client == "lightning":
        return warm.command(HERE / script, *arguments, imports=IMPORTED, servers=1)
    options = ["--standalone", f"--nproc-per-node={world}"]
    return warm.torchrun(options, HERE / script, *arguments, imports=IMPORTED, servers=1)


def ended(commands, folder, **variables):
    """Exit codes and outputs of these jobs, which run at the same time, each in a folder of its own."""
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("HOCKET_")},
        "OMP_NUM_THREADS": "1",
        # Of the ranks that Lightning starts, too.
        "PYTHONPATH": os.pathsep.join(sys.path),
        **variables,
    }
    jobs = {}
    for name, argv in commands.items():
        out = folder / name
        out.mkdir(exist_ok=True)
        with (out / "output").open("wb") as output:
            jobs[name] = subprocess.Popen(
                argv,
                env=environment,
                cwd=out,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
    try:
        for job in jobs.values():
            job.wait(LIMIT_S)
    finally:
        for job in jobs.values():
            if job.poll() is None:
                os.killpg(job.pid, signal.SIGKILL)
                job.wait()
    return {name: (job.returncode, (folder / name / "output").read_text()) for name, job in jobs.items()}


def learned(commands, world, folder):
    """What each rank of these jobs has saved; all must end well."""
    for name, (code, output) in ended(commands, folder).items():
        assert code == 0, f"{name}:\n{output}"
    return {
        name: [torch.load(folder / name / f"rank-{rank}.pt") for rank in range(world)] for name in commands
    }
