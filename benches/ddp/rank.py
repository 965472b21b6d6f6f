"""One rank of `python -m benches ddp`: every way with DistributedDataParallel on Gloo, then with Hocket, in one process."""

from __future__ import annotations

import datetime
import hashlib
import json
import os
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from benches.ddp.catalogue import UNSHARED, WAYS
from benches.ddp.side import Kind, Side

SEED = 1234
TIMEOUT = datetime.timedelta(seconds=60)


def main() -> None:
    """Run all ways; rank 0 writes a row for each: the largest differences, and whether Hocket's ranks are equal."""
    directory, names = Path(sys.argv[1]), sys.argv[2].split("|")
    rank, world = int(os.environ["HOCKET_RANK"]), int(os.environ["HOCKET_WORLD"])
    torch.set_num_threads(1)
    # Warnings of deliberately unused parameters, of options that newer releases rename, of a deliberate overflow.
    for kind in (UserWarning, FutureWarning, RuntimeWarning):
        warnings.simplefilter("ignore", kind)
    dist.init_process_group(
        "gloo", init_method=f"file://{directory / 'store'}", rank=rank, world_size=world, timeout=TIMEOUT
    )
    rows = rows_of(names, rank, world)
    if rank == 0:
        (directory / "rows.json").write_text(json.dumps(rows))
    dist.barrier()
    dist.destroy_process_group()


def rows_of(
    names: Sequence[str], rank: int, world: int, where: str | torch.device = "cpu"
) -> list[dict[str, Any]]:
    """Train in these ways, with DDP on the CPU and with Hocket on a device; return a row for each."""
    rows = []
    for name in names:
        sys.stderr.write(f"{name}\n")
        ddp = _trained(name, "ddp", rank, "cpu")
        hocket = _trained(name, "hocket", rank, where)
        mine: dict[str, Any] = {
            "parameters": _difference(ddp["parameters"], hocket["parameters"]),
            "buffers": _difference(ddp["buffers"], hocket["buffers"]),
            "digest": _digest({**hocket["parameters"], **hocket["buffers"]}),
        }
        everyone: list[Any] = [None] * world
        dist.all_gather_object(everyone, mine)
        # If ranks get rank 0's buffers, the others' equal DistributedDataParallel's only before the next forward.
        compared = everyone if name in UNSHARED else everyone[:1]
        rows.append(
            {
                "way": name,
                "parameters": max(each["parameters"] for each in everyone),
                "buffers": max(each["buffers"] for each in compared) if ddp["buffers"] else None,
                "ranks_equal": name in UNSHARED or len({each["digest"] for each in everyone}) == 1,
            }
        )
    return rows


def _trained(
    name: str, kind: Kind, rank: int, where: str | torch.device
) -> dict[str, dict[str, torch.Tensor]]:
    """Train in one way, and return parameters and buffers of all its models."""
    torch.manual_seed(SEED)
    side = Side(kind, rank, torch.Generator().manual_seed(SEED + 1 + rank), torch.device(where))
    WAYS[name](side)
    found: dict[str, dict[str, torch.Tensor]] = {"parameters": {}, "buffers": {}}
    for at, trained in enumerate(side.started):
        for what, tensors in (
            ("parameters", trained.module.named_parameters()),
            ("buffers", trained.module.named_buffers()),
        ):
            found[what] |= {f"{at}.{key}": each.detach().cpu().double().clone() for key, each in tensors}
    return found


def _difference(expected: dict[str, torch.Tensor], found: dict[str, torch.Tensor]) -> float:
    """Largest ratio, over tensors, of the norm of the difference to the norm."""
    largest = 0.0
    for key, theirs in expected.items():
        norm = float(torch.linalg.vector_norm(theirs))
        difference = float(torch.linalg.vector_norm(found[key] - theirs))
        largest = max(largest, difference / norm if norm else difference)
    return largest


def _digest(tensors: dict[str, torch.Tensor]) -> str:
    digest = hashlib.sha256()
    for key, each in sorted(tensors.items()):
        digest.update(key.encode() + each.contiguous().numpy().tobytes())
    return digest.hexdigest()


if __name__ == "__main__":
    main()
