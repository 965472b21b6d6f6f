"""`ddp_edges.py KIND WORLD OUT`: DDP on the backend `hocket`, a job per edge, whose last rank does KIND there.

Writes to OUT, by edge: how the processes ended, and the error that each rank but the last caught.
"""

import atexit
import json
import os
import signal
import sys
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch._dynamo  # DDP loads it, which takes longer than all else; once, before the forks
import torch.distributed as dist

STEPS = 3
AT_ONCE = 4
LATE_S = 1.0
"""The time-out of jobs in which a rank is late. All others must be over long before theirs."""
LIMIT_S = 40.0
WIDTH = 48

EDGES = (
    "before the model is wrapped",
    "before a forward",
    "in a forward",
    "in a backward, before the first bucket",
    "in a backward, between buckets",
    "in a backward, at the last bucket",
    "in the backward after buckets were rebuilt",
    "in a backward inside no_sync",
    "between backward and step",
    "in a step",
    "before a collective of the script",
    "at the end",
)


class Peer:
    """The last rank's part: `at(edge)` acts where the edge is the job's, else returns. Of others, does nothing."""

    def __init__(self, kind, edge, *, culprit):
        self.kind, self.edge, self.culprit = kind, edge, culprit

    def at(self, edge):
        if not self.culprit or edge != self.edge:
            return
        if self.kind == "raises":
            raise ValueError("of my own")
        if self.kind == "leaves":
            sys.exit(0)
        if self.kind == "dies":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.kind == "late":
            time.sleep(6 * LATE_S)
        if self.kind == "other shape":
            dist.all_reduce(torch.ones(7))


class Watched(torch.nn.Module):
    """A layer in whose forward and backward the peer may act."""

    def __init__(self, layer, peer, forward, backward):
        super().__init__()
        self.layer, self.peer, self.forward_edge, self.backward_edge = layer, peer, forward, backward

    def forward(self, x):
        self.peer.at(self.forward_edge)
        y = self.layer(x)
        if y.requires_grad and self.backward_edge:
            y.register_hook(lambda _: self.peer.at(self.backward_edge))
        return y


def train(peer):
    layers = torch.nn.Linear(WIDTH, WIDTH), torch.nn.Linear(WIDTH, WIDTH), torch.nn.Linear(WIDTH, WIDTH)
    first = Watched(layers[0], peer, None, EDGES[5])
    middle = Watched(layers[1], peer, EDGES[2], EDGES[4])
    last = Watched(layers[2], peer, None, EDGES[3])
    peer.at(EDGES[0])
    model = torch.nn.parallel.DistributedDataParallel(
        torch.nn.Sequential(first, middle, torch.nn.BatchNorm1d(WIDTH), last), bucket_cap_mb=0.005
    )
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    optimizer.register_step_pre_hook(lambda *_: peer.at(EDGES[9]))
    for step in range(STEPS):
        if step == 1:
            last.backward_edge = EDGES[6]
            with model.no_sync():
                loss = model(torch.randn(4, WIDTH)).square().mean()
                last.backward_edge, kept = EDGES[7], last.backward_edge
                loss.register_hook(lambda _: peer.at(EDGES[7]))
                loss.backward()
                last.backward_edge = kept
        peer.at(EDGES[1])
        loss = model(torch.randn(4, WIDTH)).square().mean()
        loss.backward()
        peer.at(EDGES[8])
        optimizer.step()
        optimizer.zero_grad()
        peer.at(EDGES[10])
        dist.all_reduce(loss.detach())
    peer.at(EDGES[11])
    dist.barrier()


def rank(peer, own, world, files):
    """One rank, in a process of its own. `files`: where it writes, by suffix."""
    dist.init_process_group(
        "hocket",
        init_method=f"file://{files.with_suffix('.store')}",
        rank=own,
        world_size=world,
        timeout=timedelta(seconds=LATE_S if peer.kind == "late" else 900),
    )
    if peer.culprit:
        train(peer)
        dist.destroy_process_group()
        return
    caught = None
    try:
        train(peer)
        dist.destroy_process_group()
    except Exception as error:
        caught = {
            "type": [each.__name__ for each in type(error).__mro__],
            "text": str(error),
            "rank": getattr(error, "rank", None),
            "why": getattr(error, "why", None),
        }
    files.with_suffix(f".{own}.json").write_text(json.dumps(caught))


def finish(act, *arguments):
    """Ends the process after `act` as Python does, but for the modules, which take a rank longer to take down than all else."""
    code = 0
    try:
        act(*arguments)
    except SystemExit as error:
        code = error.code or 0
    except BaseException:
        sys.excepthook(*sys.exc_info())
        code = 1
    atexit._run_exitfuncs()
    sys.stdout.flush()
    os._exit(code)


def start(kind, edge, world, files):
    processes = []
    for own in range(world):
        process = os.fork()
        if process == 0:
            log = os.open(files.with_suffix(f".{own}.log"), os.O_WRONLY | os.O_CREAT)
            os.dup2(log, 1)
            os.dup2(log, 2)
            torch.set_num_threads(1)
            finish(rank, Peer(kind, edge, culprit=own == world - 1), own, world, files)
        processes.append(process)
    return processes


def ended(processes, deadline):
    """Exit codes; None of one that had to be stopped."""
    codes = []
    for process in processes:
        while (found := os.waitpid(process, os.WNOHANG)) == (0, 0) and time.monotonic() < deadline:
            time.sleep(0.01)
        if found == (0, 0):
            os.kill(process, signal.SIGKILL)
            os.waitpid(process, 0)
            codes.append(None)
        else:
            codes.append(os.waitstatus_to_exitcode(found[1]))
    return codes


def main():
    kind, world, out = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])
    results = {}
    for first in range(0, len(EDGES), AT_ONCE):
        numbers = range(first, min(first + AT_ONCE, len(EDGES)))
        jobs = {at: start(kind, EDGES[at], world, out / str(at)) for at in numbers}
        deadline = time.monotonic() + LIMIT_S
        for at, processes in jobs.items():
            codes = ended(processes, deadline)
            files = [out / f"{at}.{own}.json" for own in range(world - 1)]
            caught = [json.loads(each.read_text()) if each.exists() else None for each in files]
            results[EDGES[at]] = {"codes": codes, "caught": caught}
    (out / "results.json").write_text(json.dumps(results))


if __name__ == "__main__":
    main()
