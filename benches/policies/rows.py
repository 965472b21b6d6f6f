"""`python -m benches policies`: the ready-made policies on emulated clusters, each against its baseline, in one run.

Contenders are trained in turns by the same processes; a row's number is a ratio of medians over blocks of steps.
"""

from __future__ import annotations

import io
import json
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from benches.emulated import hosts, in_emulation
from benches.policies import adaptive_gloo, tensor_events
from hocket import extras
from hocket.artefacts.cluster import Cluster
from hocket.artefacts.trace import read
from hocket.settings import Settings
from hocket.start.processes import ProcessSpec
from hocket.start.run import launch
from hocket.tools.bench.verify import measure_policy

GIGABIT = 1e9
TIMEOUT_S = 120.0


class Row(Struct, frozen=True, kw_only=True):
    """A line of the table: `value` is better when larger; `target` is the least wanted value (None: no target)."""

    name: str
    what: str
    value: float
    target: float | None
    unit: str = " times"
    met: bool
    details: dict[str, Any]


class Training(Struct, frozen=True, kw_only=True):
    """A training by ranks on a cluster."""

    cluster: Cluster
    contenders: tuple[str, ...]
    model: str
    rounds: int = 4
    steps: int = 4
    arguments: tuple[str, ...] = ()


def measure(names: Sequence[str] | None = None) -> Iterator[Row]:
    """Yield rows as they are measured; `names` chooses some."""
    for name, row in ROWS.items():
        if names is None or name in names:
            yield row(name)


def train(asked: Training, trace: Path | None = None) -> dict[str, Any]:
    """Run a training; return step times and losses by contender. `trace`: directory to write one to.

    Raises PeerError with the last words of the rank that failed.
    """
    slots = [host.name for host in asked.cluster.hosts for _ in range(host.slots)]
    extras.need("torch", "this benchmark")
    argv = [sys.executable, "-m", "benches.policies.rank", "--contenders", " ".join(asked.contenders)]
    argv += [
        "--model",
        asked.model,
        "--rounds",
        str(asked.rounds),
        "--steps",
        str(asked.steps),
        *asked.arguments,
    ]
    result: dict[str, Any] = in_emulation(asked.cluster, slots, argv, trace=trace)
    return result


def step_s(result: dict[str, Any], contender: str, asked: Training) -> float:
    """Median over blocks of the mean step: delayed steps belong to the block in which they end."""
    times = result[contender]["times_s"]
    blocks = [times[at : at + asked.steps] for at in range(0, len(times), asked.steps)]
    return statistics.median(statistics.fmean(block) for block in blocks)


def _ratio(name: str, what: str, asked: Training, *, ours: str, theirs: str, target: float | None) -> Row:
    result = train(asked)
    steps_s = {each: step_s(result, each, asked) for each in asked.contenders}
    value = steps_s[theirs] / steps_s[ours]
    details = {
        "step_s": steps_s,
        "step_times_s": {each: result[each]["times_s"] for each in asked.contenders},
    }
    return Row(
        name=name,
        what=what,
        value=value,
        target=target,
        met=target is None or value >= target,
        details=details,
    )


def _partial_f16(name: str) -> Row:
    asked = Training(
        cluster=hosts([GIGABIT, GIGABIT, GIGABIT, GIGABIT / 10]),
        contenders=("ddp", "ddp-f16", "partial_f16"),
        model="transformer",
        rounds=3,
        steps=3,
    )
    return _ratio(
        name,
        "partial f16 / DDP, steps per second, one slow link of 4 hosts",
        asked,
        ours="partial_f16",
        theirs="ddp",
        target=1.65,
    )


def _partial_f16_error(name: str) -> Row:
    asked = Training(
        cluster=hosts([GIGABIT, GIGABIT, GIGABIT, GIGABIT / 10]),
        contenders=("ddp-f16", "partial_f16", "ddp"),
        model="layers:4:512:1",
        arguments=("--error",),
    )
    result = train(asked)
    value = result["ddp-f16"] / result["partial_f16"]
    what = "L2 error of the mean gradient: f16 everywhere / partial f16"
    return Row(
        name=name, what=what, value=value, target=1.0, met=value > 1, details={"relative_error": result}
    )


def _two_level(name: str) -> Row:
    """Row in the order of the demo's testbed, which lists ranks in turn, like a scheduler that ignores racks."""
    return _two_level_in(name, "hosts alternating", alternating=True, target=1.83)


def _two_level_contiguous(name: str) -> Row:
    """Row in DDP's best order: its ring crosses the trunk once each way, with 7/4 of the bytes of two levels."""
    return _two_level_in(name, "hosts in the best order for a flat ring", alternating=False, target=None)


def _two_level_in(name: str, order: str, *, alternating: bool, target: float | None) -> Row:
    asked = Training(
        cluster=hosts([GIGABIT] * 8, racks=2, trunk_bit_per_s=GIGABIT / 10, alternating=alternating),
        contenders=("ddp", "two_level"),
        model="layers:8:512:1",
        rounds=3,
        steps=3,
    )
    return _ratio(
        name,
        f"two-level / DDP, 2 racks of 4 ranks, slow trunk, {order}",
        asked,
        ours="two_level",
        theirs="ddp",
        target=target,
    )


def _adaptive(name: str, base: str, adaptive: str, latency_s: float | None = None) -> Row:
    sizes = [1 << at for at in range(18, 26)]
    fixed = {size: f"{base},fusion_bytes={size},first_fusion_bytes={size}" for size in sizes}
    asked = Training(
        cluster=hosts([10 * GIGABIT] * 8, latency_s=latency_s),
        contenders=(adaptive, *fixed.values()),
        model="layers:400:64:1",
        rounds=5,
        steps=5,
        arguments=("--climb", adaptive),
    )
    result = train(asked)
    after_s = step_s(result, adaptive, asked)
    fixed_s = {size: step_s(result, each, asked) for size, each in fixed.items()}
    way = result[adaptive]["start"]
    start_s = fixed_s[sizes[0]]
    value, of_best = start_s / after_s, min(fixed_s.values()) / after_s
    # A climber keeps searching while it is compared: its steps with worse settings count.
    details = {
        "after_s": after_s,
        "fixed_s": fixed_s,
        "share_of_best": of_best,
        "way": way,
    }
    wire = "Gloo" if "Gloo" in adaptive else "native"
    where = "" if latency_s is None else f", {2e3 * latency_s:g} ms from host to host"
    what = (
        f"adaptive fusion from 256 KB / its start ({wire}{where}); {of_best:.2f} of the best fixed threshold"
    )
    return Row(
        name=name, what=what, value=value, target=2.1, met=value >= 2.1 and of_best >= 0.98, details=details
    )


def _adaptive_native(name: str) -> Row:
    return _adaptive(name, "empty", "adaptive_fusion")


def _adaptive_latency(name: str) -> Row:
    return _adaptive(name, "empty", "adaptive_fusion", latency_s=1e-3)


def _adaptive_gloo(name: str) -> Row:
    file = adaptive_gloo.__file__
    return _adaptive(name, f"{file}:OverGloo", f"{file}:AdaptiveOverGloo")


def _hill(name: str) -> Row:
    """Row of the possible gain over the native wire: fixed sizes of buckets and chunks, without a climber."""
    settings = [(fused, chunk) for fused in (256, 1024, 4096) for chunk in (64, 512, 4096)]
    named = {
        f"{fused} KiB in chunks of {chunk} KiB": (
            f"empty,fusion_bytes={fused << 10},first_fusion_bytes={fused << 10},chunk_bytes={chunk << 10}"
        )
        for fused, chunk in settings
        if chunk <= max(fused, 512)
    }
    asked = Training(
        cluster=hosts([10 * GIGABIT] * 8),
        contenders=tuple(named.values()),
        model="layers:400:64:1",
        rounds=3,
        steps=4,
    )
    result = train(asked)
    steps_s = {each: step_s(result, contender, asked) for each, contender in named.items()}
    what = f"worst / best of {len(named)} fixed sizes of buckets and chunks, native wire"
    value = max(steps_s.values()) / min(steps_s.values())
    return Row(name=name, what=what, value=value, target=None, met=True, details={"step_s": steps_s})


def _priority(name: str) -> Row:
    asked = Training(
        cluster=hosts([0.6 * GIGABIT] * 4),
        contenders=("priority", "empty,gates=true", "empty"),
        model="layers:16:512:256",
        rounds=3,
        steps=12,
    )
    what = "priority and partition / the same in backward order and whole buckets, communication-bound"
    return _ratio(name, what, asked, ours="priority", theirs="empty,gates=true", target=1.06)


def _tensor_work(name: str) -> Row:
    """Row of how much of the work per gradient backward hides, by the trace."""
    each = f"{tensor_events.__file__}:RoundEach"
    asked = Training(
        cluster=hosts([GIGABIT] * 2), contenders=(each,), model="layers:32:512:256", rounds=1, steps=12
    )
    with tempfile.TemporaryDirectory(prefix="hocket-bench-") as directory:
        train(asked, trace=Path(directory))
        value = tensor_events.hidden_share(read(Path(directory)))
    what = "share of two casts of each gradient that runs while backward does"
    return Row(name=name, what=what, value=value, target=0.9, unit="", met=value >= 0.9, details={})


def _tensor_events(name: str) -> Row:
    """Row of the cost of work per gradient."""
    each = f"{tensor_events.__file__}:RoundEach"
    alone = f"{each},fusion_bytes=0,first_fusion_bytes=0"
    asked = Training(
        cluster=hosts([GIGABIT] * 4),
        contenders=(each, alone, "empty"),
        model="layers:32:512:256",
        rounds=4,
        steps=4,
    )
    result = train(asked)
    steps_s = {contender: step_s(result, contender, asked) for contender in asked.contenders}
    value = steps_s[each] / steps_s["empty"]
    what = (
        f"two casts of each gradient in its bucket / no work; {steps_s[alone] / steps_s['empty']:.3f} with one "
        "program per gradient"
    )
    return Row(name=name, what=what, value=value, target=None, met=True, details={"step_s": steps_s})


def _partitions(name: str) -> Row:
    """Row of the same parameters, eight per layer: each an entry of the queue, or all in one whose chunks overtake."""
    layer_bytes = 4 * 512 * 512
    asked = Training(
        cluster=hosts([0.6 * GIGABIT] * 4),
        contenders=(
            "priority,fusion_bytes=0,first_fusion_bytes=0",
            f"priority,fusion_bytes={layer_bytes},first_fusion_bytes={layer_bytes}",
        ),
        model="parts:16:512:256:8",
        rounds=3,
        steps=12,
    )
    parts, whole = asked.contenders
    what = "layers as one entry each, chunks of 128 KiB / as eight entries of 128 KiB, communication-bound"
    return _ratio(name, what, asked, ours=whole, theirs=parts, target=None)


def _empty(name: str) -> Row:
    asked = Training(
        cluster=hosts([GIGABIT] * 4),
        contenders=("plan", "empty"),
        model="transformer",
        rounds=14,
        steps=4,
    )
    result = train(asked)
    value = step_s(result, "empty", asked) / step_s(result, "plan", asked)
    details = {each: result[each]["times_s"] for each in asked.contenders}
    what = "step time, empty policy / engine called directly"
    return Row(name=name, what=what, value=value, target=1.01, met=value <= 1.01, details=details)


def _ring(name: str) -> Row:
    with tempfile.TemporaryDirectory(prefix="hocket-bench-") as directory:
        out = Path(directory) / "result.json"
        argv = [sys.executable, "-m", "benches.policies.ring_rank", "--sizes", "1000000,10000000,100000000"]
        argv += ["--rounds", "80", "--out", str(out)]
        output = io.BytesIO()
        specs = [ProcessSpec(argv=argv, environment={"OMP_NUM_THREADS": "1"})] * 4
        outcome = launch(specs, settings=Settings(), out=output, err=output)
        if outcome.failures:
            first = outcome.failures[0]
            raise first.error(str(first))
        rows = json.loads(out.read_text())
    value = min(row["engine"] / row["policy"] for row in rows)
    what = "ring written in a policy / the engine's own, bus bandwidth, worst of 1, 10 and 100 MB"
    wrong = sum(row["wrong"] for row in rows)
    return Row(
        name=name,
        what=what,
        value=value,
        target=0.99,
        met=value >= 0.99 and wrong == 0,
        details={"rows": rows},
    )


def _losses(name: str) -> Row:
    asked = Training(
        cluster=hosts([GIGABIT] * 4, racks=2, trunk_bit_per_s=GIGABIT / 2),
        contenders=("ddp", "empty", "priority", "two_level", "adaptive_fusion"),
        model="digits-sgd",
        rounds=1,
        steps=100,
        arguments=("--warm-up", "0"),
    )
    result = train(asked)
    reference = result["ddp"]["losses"]
    worst = {
        each: max(abs(a - b) / abs(b) for a, b in zip(result[each]["losses"], reference, strict=True))
        for each in asked.contenders[1:]
    }
    value = max(worst.values())
    what = "loss curves of lossless policies against DDP, 100 steps, largest relative difference"
    return Row(
        name=name, what=what, value=value, target=1e-5, unit="", met=value <= 1e-5, details={"largest": worst}
    )


def _verify(name: str) -> Row:
    cost = measure_policy(world=64)
    what = f"trace and verify {cost.world} ranks, {cost.buckets} different buckets, two-level"
    return Row(
        name=name, what=what, value=cost.total_s, target=1.0, unit=" s", met=cost.total_s <= 1, details={}
    )


ROWS: dict[str, Callable[[str], Row]] = {
    "partial_f16": _partial_f16,
    "partial_f16_error": _partial_f16_error,
    "two_level": _two_level,
    "two_level_contiguous": _two_level_contiguous,
    "adaptive_fusion": _adaptive_native,
    "adaptive_fusion_hill": _hill,
    "adaptive_fusion_latency": _adaptive_latency,
    "adaptive_fusion_gloo": _adaptive_gloo,
    "priority": _priority,
    "tensor_events": _tensor_events,
    "tensor_work": _tensor_work,
    "partitions": _partitions,
    "ring": _ring,
    "empty": _empty,
    "losses": _losses,
    "verify": _verify,
}
"""Rows by their names for `--row`."""
