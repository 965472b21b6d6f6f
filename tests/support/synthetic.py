"""A generator of trace directories that look like real runs: 4 hosts, 2 racks, a ring per bucket.

All times come from a model of a step: compute, and a trunk that buckets share.
"""

from __future__ import annotations

import json
import math
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.hostile.trace_files import NO_PEER, RECORD, header

CAST, REDUCE, SEND, RECV, INSTANCE = 2, 3, 5, 6, 16
STEP, FORWARD, BACKWARD, WAIT, OPTIMIZER = 32, 33, 34, 35, 36
MS = 1_000_000


@dataclass(frozen=True)
class SyntheticRun:
    """What is generated: `steps` per rank, one bucket per entry of `bucket_bytes`."""

    steps: int = 60
    racks: tuple[str, ...] = ("north", "south", "north", "south")
    order: tuple[int, ...] = (0, 2, 1, 3)
    bucket_bytes: tuple[int, ...] = (3_158_016, 3_154_944, 3_154_944, 2_640_896, 1_052_672)
    trunk_byte_per_s: float = 11.9e6
    seed: int = 7

    @property
    def world(self) -> int:
        return len(self.order)

    @property
    def hosts(self) -> tuple[str, ...]:
        return tuple(f"node{rank + 1}" for rank in range(self.world))


def write_trace(directory: Path, shape: SyntheticRun = SyntheticRun(), *, comparison: bool = True) -> Path:
    """Fill `directory` with a trace of `shape`; the same shape always gives the same bytes."""
    directory.mkdir(parents=True, exist_ok=True)
    chance = random.Random(shape.seed)  # noqa: S311
    steps = _schedule(shape, chance)
    (directory / "run.json").write_text(json.dumps(run_info(shape), indent=1))
    for rank in range(shape.world):
        offset_ns = chance.randint(-40, 40) * MS
        records = _records(shape, rank, steps, offset_ns, chance)
        head = header(rank=rank, world=shape.world)
        (directory / f"rank-{rank}.hktrace").write_bytes(head + b"".join(records))
        readings = [{"at_ns": at_ns, "offset_ns": offset_ns, "error_ns": 90_000} for at_ns in (0, 10**12)]
        (directory / f"clock-{rank}.jsonl").write_text("\n".join(map(json.dumps, readings)) + "\n")
        looks = [_usage(at_s, rank) for at_s in (0.0, 1.0, 5.0, 20.0)]
        (directory / f"usage-{rank}.jsonl").write_text("\n".join(map(json.dumps, looks)) + "\n")
        metrics = [_metric(step, rank, steps, chance) for step in range(shape.steps)]
        (directory / f"metrics-{rank}.jsonl").write_text("\n".join(map(json.dumps, metrics)) + "\n")
    if comparison:
        (directory / "comparison.json").write_text(json.dumps(comparison_of(chance), indent=1))
    return directory


def _schedule(shape: SyntheticRun, chance: random.Random) -> list[dict[str, Any]]:
    """When things happen in each step, ns on the common clock: compute, then buckets through one trunk."""
    now, steps = 5_000 * MS, []
    for step in range(shape.steps):
        slow = 1.6 if step % 23 == 11 else 1.0  # now and then a straggler
        forward = int(chance.gauss(34, 1.2) * MS * slow)
        backward = int(chance.gauss(71, 2.0) * MS * slow)
        count = len(shape.bucket_bytes)
        spans, trunk_free = [], 0
        for bucket, size in enumerate(shape.bucket_bytes):
            ready = now + forward + backward * (bucket + 1) // (count + 1) + chance.randint(0, MS)
            crossing_ns = int(size / 2 * 1.5 / shape.trunk_byte_per_s * 1e9 * chance.uniform(0.97, 1.06))
            start = ready + 60_000
            end = (
                max(start, trunk_free - crossing_ns // 3) + crossing_ns
            )  # overlaps with the one before by a third
            trunk_free = end
            spans.append((ready, start, end))
        slowest = now + forward + 3 * MS + backward
        waited = max(slowest, *(end for _, _, end in spans)) + 200_000
        steps.append(
            {"start": now, "forward": forward, "backward": backward, "spans": spans, "waited": waited}
        )
        now = waited + 6 * MS + 400_000
    return steps


def _records(
    shape: SyntheticRun, rank: int, steps: list[dict[str, Any]], offset_ns: int, chance: random.Random
) -> list[bytes]:
    """One rank's records; written on its own clock, which is the common one less `offset_ns`."""
    out: list[bytes] = []

    def add(kind: int, ready: int, start: int, end: int, **more: int) -> None:
        own = [t - offset_ns for t in (ready, start, end)]
        out.append(
            RECORD.pack(
                *own, more.get("size", 0), more.get("program", 0), more.get("instance", 0), more.get("op", 0),
                more.get("peer", NO_PEER), kind, 0, more.get("thread", 0), 0,
            )
        )  # fmt: skip

    logical = shape.order.index(rank)
    after, before = shape.order[(logical + 1) % shape.world], shape.order[logical - 1]
    for index, step in enumerate(steps):
        own_ms = chance.uniform(0, 3)
        forward_at = step["start"]
        backward_at = forward_at + step["forward"] + int(own_ms * MS)
        wait_at = backward_at + step["backward"]
        add(FORWARD, forward_at, forward_at, backward_at, instance=index)
        add(BACKWARD, backward_at, backward_at, wait_at, instance=index)
        for bucket, (ready, start, end) in enumerate(step["spans"]):
            size = shape.bucket_bytes[bucket]
            add(INSTANCE, ready, start, end, size=size, program=bucket, instance=index)
            rounds = 2 * (shape.world - 1)
            for turn in range(rounds):
                a = start + (end - start) * turn // rounds
                z = start + (end - start) * (turn + 1) // rounds
                crosses = shape.racks[rank] != shape.racks[after]
                wire = size // shape.world // (2 if crosses else 1)
                took = z - a if crosses else max(1, (z - a) // 9)
                ids = {"program": bucket, "instance": index, "op": turn * 2}
                if crosses:
                    add(CAST, a, a, a + took // 20, size=wire, **ids)
                add(SEND, a, a + took // 20, a + took, size=wire, peer=after, **ids)
                add(RECV, a, a, z, size=wire, peer=before, **{**ids, "op": turn * 2 + 1})
                if turn < shape.world - 1:
                    add(REDUCE, z, z, z + 90_000, size=size // shape.world, **{**ids, "op": turn * 2 + 1})
        add(WAIT, wait_at, wait_at, step["waited"], instance=index)
        add(OPTIMIZER, step["waited"], step["waited"], step["waited"] + 6 * MS, instance=index)
        add(STEP, forward_at, forward_at, step["waited"] + 6 * MS, instance=index)
    return out


def _usage(at_s: float, rank: int) -> dict[str, float]:
    """A process that grows to 1.2 GB by its fifth second and gives some back, and keeps half a core more busy with each rank."""
    most = int(4e8 + 8e8 * min(1.0, at_s / 5)) + rank * 1_000_000
    resident = most if at_s <= 5 else most - 100_000_000
    busy = 3.0 + at_s * (1 + rank / 2)
    return {"at_s": at_s, "resident_bytes": resident, "most_bytes": most, "processor_s": busy, "cores": 8}


def _metric(step: int, rank: int, steps: list[dict[str, Any]], chance: random.Random) -> dict[str, float]:
    time_s = (steps[step]["waited"] + 6 * MS - steps[0]["start"]) / 1e9
    return {"step": step, "time_s": time_s, "loss": _loss(step, chance) + rank * 0.004}


def _loss(step: int, chance: random.Random) -> float:
    return 2.2 + 3.4 * math.exp(-step / 14) + chance.gauss(0, 0.035)


def run_info(shape: SyntheticRun) -> dict[str, Any]:
    """The content of `run.json`."""
    racks = tuple(dict.fromkeys(shape.racks))
    count = shape.world
    near, far = 0.11e-3, 0.62e-3
    latency = [
        [0.0 if a == b else near if shape.racks[a] == shape.racks[b] else far for b in range(count)]
        for a in range(count)
    ]
    width = [
        [38.2e9 if a == b else 0.941e9 if shape.racks[a] == shape.racks[b] else 95.3e6 for b in range(count)]
        for a in range(count)
    ]
    cross = [[a, b] for a in range(count) for b in range(count) if shape.racks[a] != shape.racks[b]]
    return {
        "clocks": list(range(count)),
        "versions": {"Hocket": "0.1.0", "Python": "3.12.3", "torch": "2.9.0", "Linux": "6.1.0 x86_64"},
        "version": 1,
        "world": count,
        "hosts": list(shape.hosts),
        "script": "train.py --model transformer --steps 60",
        "started_at": "2026-05-14T09:21:07+00:00",
        "plan": _plan(shape, cross),
        "cluster": {
            "version": 1,
            "hosts": [
                {"name": name, "rack": rack, "slots": 1, "bandwidth_bit_per_s": 1e9}
                for name, rack in zip(shape.hosts, shape.racks, strict=True)
            ],
            "racks": [{"name": rack, "uplink_bit_per_s": 1e8} for rack in racks],
            "latency_s": latency,
            "bandwidth_bit_per_s": width,
            "measured_at": "2026-05-14T09:20:41+00:00",
        },
        "profile": _profile(shape),
        "programs": [
            {"program": bucket, "label": f"bucket {bucket}", "bucket": bucket, "bytes": size}
            for bucket, size in enumerate(shape.bucket_bytes)
        ],
    }


def _profile(shape: SyntheticRun) -> dict[str, Any]:
    names = [f"block{bucket}.weight" for bucket in range(len(shape.bucket_bytes))]
    own = {"dtype": "float32", "ready_s": 0.05, "needed_s": 0.03}
    return {
        "version": 1,
        "model": "transformer",
        "world": shape.world,
        "steps": 5,
        "forward_s": 0.034,
        "backward_s": 0.071,
        "optimizer_s": 0.006,
        "step_s": 0.111,
        "gradients": [
            {"name": name, "shape": [size // 4], **own}
            for name, size in zip(names, shape.bucket_bytes, strict=True)
        ],
    }


def _plan(shape: SyntheticRun, cross: list[list[int]]) -> dict[str, Any]:
    synchroniser = {"algorithm": "ring", "codec": "f16", "codec_links": cross, "chunk_bytes": 262_144}
    return {
        "version": 1,
        "world": shape.world,
        "order": list(shape.order),
        "buckets": [
            {
                "gradients": [f"block{bucket}.weight"],
                "elements": size // 4,
                "dtype": "float32",
                "priority": len(shape.bucket_bytes) - bucket,
                "synchroniser": synchroniser,
            }
            for bucket, size in enumerate(shape.bucket_bytes)
        ],
        "label": "contiguous, ring, f16 across racks, 3 MiB",
        "reason": REASON,
        "predicted_step_s": 0.61,
        "candidates": [
            {"label": label, "predicted_step_s": predicted, "measured_step_s": measured}
            for label, predicted, measured in CANDIDATES
        ],
    }


REASON = (
    "The trunk bounds the step: the contiguous order crosses it once each way, and f16 halves what crosses."
)
CANDIDATES = (
    ("given order, ring, none, 25 MiB", 3.31, 3.48),
    ("given order, ring, f16 across racks, 3 MiB", 1.72, 1.80),
    ("contiguous, ring, none, 3 MiB", 1.12, 1.16),
    ("contiguous, ring, f16 across racks, 1 MiB", 0.66, 0.71),
    ("contiguous, ring, f16 across racks, 3 MiB", 0.61, 0.612),
    ("contiguous, ring, f16 across racks, 25 MiB", 0.69, 0.72),
    ("contiguous, two-level 2 + 2, none, 3 MiB", 1.15, 1.22),
    ("contiguous, two-level 2 + 2, f16 across racks, 3 MiB", 0.63, 0.655),
)


def comparison_of(chance: random.Random) -> dict[str, Any]:
    """The content of `comparison.json`: DDP, DDP with its f16 hook, and Hocket after as many steps."""
    table = (
        ("ddp", "PyTorch DDP", 3.73, 0.97, 39_483_392, 3.262),
        ("ddp_f16", "PyTorch DDP, f16 hook", 1.93, 0.94, 19_741_696, 3.266),
        ("hocket", "Hocket", 0.61, 0.81, 9_870_848, 3.264),
    )
    return {
        "model": "transformer",
        "metric_name": "bits per byte",
        "cluster": "4 hosts, 2 racks, 1 Gbit/s each, 100 Mbit/s trunk",
        "strategies": [
            {
                "name": name, "label": label, "step_s": step_s, "steps_per_s": 1 / step_s, "wait_share": wait,
                "trunk_bytes_per_step": trunk, "loss": 2.23, "metric": metric, "metric_std": 0.011,
                "losses": [_loss(step, chance) for step in range(60)],
                "times_s": [step_s * (step + 1) for step in range(60)],
            }
            for name, label, step_s, wait, trunk, metric in table
        ],
        "candidates": [{"label": a, "predicted_step_s": b, "measured_step_s": c} for a, b, c in CANDIDATES],
        "plan_reason": REASON,
    }  # fmt: skip
