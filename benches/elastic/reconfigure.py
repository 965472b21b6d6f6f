"""Time of PyTorch's `reconfigure` on one host. `python -m benches.elastic.reconfigure BACKEND RANK WORLD STORE`: one rank."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed import TCPStore  # type: ignore[attr-defined]
from torch.distributed.distributed_c10d import _get_reconfigure_handle, _reconfigure

from benches.elastic.contenders import SECRET
from benches.elastic.jobs import environment
from hocket.settings import Settings

TURNS, LIMIT_S = 8, 120


def reconfigured_s(backend: str, world: int) -> list[float]:
    """Return the slowest rank's seconds in each of several turns, all but the first."""
    limit = timedelta(seconds=LIMIT_S)
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=limit)
    own = {**environment(Settings()), "OMP_NUM_THREADS": "1", "HOCKET_SECRET": SECRET}
    ranks = [
        subprocess.Popen(
            [sys.executable, "-m", __name__, backend, str(rank), str(world), str(store.port)],
            env=own,
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(world)
    ]
    try:
        said = [rank.communicate(timeout=LIMIT_S)[0] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
    return [max(turn) for turn in zip(*(json.loads(each) for each in said), strict=True)][1:]


def main() -> None:
    backend, rank, world, port = sys.argv[1], *map(int, sys.argv[2:5])
    torch.set_num_threads(1)
    limit = timedelta(seconds=LIMIT_S)
    store = TCPStore("127.0.0.1", port, is_master=False, timeout=limit)
    dist.init_process_group(
        backend, store=store, rank=rank, world_size=world, timeout=limit, enable_reconfigure=True
    )
    took_s = []
    for turn in range(TURNS):
        store.set(f"{turn}/{rank}", _get_reconfigure_handle())
        names = [f"{turn}/{each}" for each in range(world)]
        store.wait(names, limit)
        handles = [store.get(name).decode() for name in names]
        store.add(f"ready {turn}", 1)
        while store.add(f"ready {turn}", 0) < world:
            time.sleep(0.001)
        began_s = time.monotonic()
        _reconfigure(turn + 1, handles, timeout=limit).wait()
        took_s.append(time.monotonic() - began_s)
        dist.all_reduce(torch.ones(1))
    sys.stdout.write(json.dumps(took_s))
    sys.stdout.flush()
    store.add("done", 1)
    while store.add("done", 0) < world:
        time.sleep(0.01)
    os._exit(0)  # Gloo's ranks end each other


if __name__ == "__main__":
    main()
