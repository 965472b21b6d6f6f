"""Row `profiler` of `python -m benches delays`: a real trace of ResNet-50 under DDP as a profile, against its kernels."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from benches.row import Row
from hocket.tools.formats import kineto, kineto_buckets

TRACE = Path(__file__).parents[2] / "tests/formats/vectors/kineto-resnet50-ddp-2xa100.json.gz"
"""Three steps of ResNet-50 on two A100, rank 0 of 2: its origin is in `tests/formats/vectors/README.md`."""

ELEMENTS = (2_049_000, 7_875_584, 6_563_840, 6_637_568, 2_431_040)
"""Elements of DDP's buckets, by the trace's collectives."""

OFF_MAX = 0.02


def rows() -> Iterator[Row]:
    """Buckets, and the error of the sums of their times against the trace's kernels."""
    found = kineto_buckets.profiled(TRACE)
    (rank,), _ = kineto.profiles(TRACE)
    steps = len(rank.steps)
    right = [bucket.elements == want for bucket, want in zip(found.buckets, ELEMENTS, strict=False)]
    yield _row("buckets of the right size", float(sum(right)), target=len(ELEMENTS), least=True)
    for at, bucket in enumerate(found.buckets):
        at_most = ", at most" if bucket.upper_bound else ""
        yield _row(f"bucket {at}: forward", bucket.forward_s * 1e3, unit="ms")
        yield _row(f"bucket {at}: backward", bucket.backward_s * 1e3, unit="ms")
        yield _row(
            f"bucket {at}: transfer of {bucket.bytes:,} bytes{at_most}", bucket.transfer_s * 1e3, unit="ms"
        )
    computed_s = sum(end - start for start, end, *_ in rank.kernels) * 1e-9 / steps
    own_s = sum(bucket.forward_s + bucket.backward_s for bucket in found.buckets) + found.optimizer_s
    yield _row("forward, backward and optimizer are off kernels by", abs(own_s / computed_s - 1), OFF_MAX)
    sent_s = sum(each.end_ns - each.start_ns for each in rank.collectives) * 1e-9 / steps
    collective_s = sum(bucket.collective_s for bucket in found.buckets)
    yield _row("collectives are off kernels by", abs(collective_s / sent_s - 1), OFF_MAX)


def _row(what: str, value: float, target: float | None = None, *, least: bool = False, unit: str = "") -> Row:
    return Row(name="profiler", what=what, value=value, target=target, least=least, unit=unit)
