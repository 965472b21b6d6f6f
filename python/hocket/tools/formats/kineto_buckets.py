"""PyTorch profiler traces of DDP (Kineto JSON) as a profile: forward, backward and transfer of each bucket.

A trace has operators, kernels and collectives, and no buckets. As in DeFT's profiler (Meng and Sun, section IV-B), a collective
that a backward thread launches is a bucket, and the thread's work since the collective before it is the bucket's backward. A
backward function has the sequence number of its operator in forward: the first such operator is where the bucket's forward begins,
and where the forward of the bucket on its input side ends. Each kernel has the number of the operator that launched it.
"""

from __future__ import annotations

import bisect
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean, median
from typing import Literal, NamedTuple

from msgspec import Struct

from hocket.artefacts.profile import Gradient, Profile
from hocket.errors import ArtefactError
from hocket.tools.formats import kineto
from hocket.tools.formats.kineto import Collective, Operator, RankProfile

BACKWARD = "autograd::engine::evaluate_function: "
"""Prefix of the names of backward functions."""

ARTEFACT_DTYPES = {"Float": "f32", "Double": "f64", "Half": "f16", "BFloat16": "bf16"}
"""Element types that gradients can have, by PyTorch's names."""

NS = 1e-9

Stage = Literal["forward", "backward", "optimizer", "other"]

Span = tuple[int, int]
"""Start and end, nanoseconds."""


class BucketTimes(Struct, frozen=True, kw_only=True):
    """Bucket of DDP's, in the order in which buckets are ready. Seconds of kernels, means over steps and ranks.

    `collective_s` is the collective's kernel, which waits for the other ranks, too. `transfer_s` is its time without waiting. It is
    an `upper_bound` where files of other ranks are missing, so that waiting cannot be told apart: then it is the shortest of all
    steps.
    """

    elements: int
    dtype: str
    bytes: int
    forward_s: float
    backward_s: float
    collective_s: float
    transfer_s: float
    upper_bound: bool


class Profiled(Struct, frozen=True, kw_only=True):
    """Profile of a training step from a trace.

    Times of `profile` are those of the clock, without communication, medians over steps. Its gradients are the buckets, since a
    trace has no names of parameters. `optimizer_s` and `other_s`: means of kernels of neither forward, backward nor buckets.
    """

    profile: Profile
    buckets: tuple[BucketTimes, ...]
    optimizer_s: float
    other_s: float
    remarks: tuple[str, ...]


class _Step(NamedTuple):
    """Step of one rank: its span; its collectives by bucket, with the starts of the operators that launched them; kernels by stage
    and bucket, of which `optimizer` and `other` have the one bucket 0."""

    span: Span
    collectives: list[Collective]
    sent_ns: list[int]
    kernels: dict[tuple[Stage, int], list[Span]]

    def busy_ns(self, stage: Stage, bucket: int = 0) -> int:
        """Return the sum of its kernels' times."""
        return sum(end - start for start, end in self.kernels.get((stage, bucket), ()))


def profiled(path: Path) -> Profiled:
    """Return the profile of one rank's file, or of those of all ranks in a directory.

    Raises ArtefactError where a trace cannot be read, or lacks the signs of buckets: steps, backward functions, collectives
    with sizes.
    """
    ranks, remarks = kineto.profiles(path)
    steps = [step for rank in ranks for step in _steps(rank)]
    known = {tuple((each.elements, each.dtype) for each in step.collectives) for step in steps}
    if len(known) > 1:
        raise ArtefactError(
            f"{path}: not all steps have the same buckets: DDP makes new ones after the first step\n"
            "hint: leave out the first steps: torch.profiler.schedule(wait=1, warmup=2, active=3)"
        )
    world = max([len(ranks), *(rank.world or 0 for rank in ranks)])
    return Profiled(
        profile=_profile(path.name, steps, world),
        buckets=tuple(_bucket(steps, at) for at in range(len(steps[0].collectives))),
        optimizer_s=_mean_s(steps, lambda step: step.busy_ns("optimizer")),
        other_s=_mean_s(steps, lambda step: step.busy_ns("other")),
        remarks=tuple(remarks),
    )


def _steps(rank: RankProfile) -> list[_Step]:
    """Return steps whose backward launches collectives of known sizes."""
    if not rank.steps:
        raise ArtefactError(
            f"{rank.path} has no steps\nhint: call prof.step() after each, with torch.profiler.schedule"
        )
    if not any(each.name.startswith(BACKWARD) for each in rank.operators):
        raise ArtefactError(
            f"{rank.path} has no backward functions\n"
            "hint: activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]"
        )
    found = [_step(rank, (start_ns, end_ns)) for _, start_ns, end_ns in rank.steps]
    steps = [each for each in found if each is not None]
    if not steps:
        raise ArtefactError(
            f"{rank.path}: no backward launches a collective of known size, so no bucket of DDP's is in it"
        )
    return steps


def _step(rank: RankProfile, span: Span) -> _Step | None:
    """Return the step in that span; None where buckets or their sizes are missing."""
    first, last = (bisect.bisect_left(rank.operators, at, key=lambda each: each.start_ns) for at in span)
    operators = rank.operators[first:last]
    by_number: dict[int | None, Operator] = {
        each.number: each for each in operators if each.number is not None
    }
    backward = _Backward.of(operators)
    sent = [
        (by_number[each.operator].start_ns, each)
        for each in rank.collectives
        if each.operator in by_number and backward.has(by_number[each.operator])
    ]
    if not sent or any(each.bytes is None or each.dtype not in ARTEFACT_DTYPES for _, each in sent):
        return None
    sent.sort(key=lambda each: each[0])
    sent_ns = [start_ns for start_ns, _ in sent]
    stage_of = _stages(operators, backward, sent_ns, rank.updates)
    kernels = defaultdict[tuple[Stage, int], list[Span]](list)
    buckets = {id(each) for _, each in sent}
    for each in rank.collectives:
        if id(each) not in buckets and span[0] <= each.start_ns < span[1]:
            kernels["other", 0].append((each.start_ns, each.end_ns))
    for start_ns, end_ns, _, number in rank.kernels:
        operator = by_number.get(number)
        if operator is not None:
            kernels[stage_of(operator)].append((start_ns, end_ns))
        elif number is None and span[0] <= start_ns < span[1]:
            kernels["other", 0].append((start_ns, end_ns))
    return _Step(span, [each for _, each in sent], sent_ns, kernels)


class _Backward(NamedTuple):
    """Threads that run backward functions, and their times. On a CPU alone it is the thread of forward."""

    functions: list[Operator]
    threads: frozenset[int]
    span: Span

    @classmethod
    def of(cls, operators: Sequence[Operator]) -> _Backward:
        functions = [each for each in operators if each.name.startswith(BACKWARD)]
        start_ns = min((each.start_ns for each in functions), default=0)
        end_ns = max((each.end_ns for each in functions), default=0)
        return cls(functions, frozenset(each.thread for each in functions), (start_ns, end_ns))

    def has(self, operator: Operator) -> bool:
        """Return whether the operator runs in backward."""
        return operator.thread in self.threads and self.span[0] <= operator.start_ns < self.span[1]


def _stages(
    operators: Sequence[Operator], backward: _Backward, sent_ns: list[int], updates: Sequence[Span]
) -> Callable[[Operator], tuple[Stage, int]]:
    """Return a function from an operator to its stage and bucket."""
    begins_ns = _forward_begins(operators, backward, sent_ns)
    # Buckets from the input side on.
    inputs_first = sorted(range(len(sent_ns)), key=lambda bucket: (begins_ns[bucket], -bucket))
    sorted_ns = [begins_ns[bucket] for bucket in inputs_first]

    def stage(operator: Operator) -> tuple[Stage, int]:
        if any(start_ns <= operator.start_ns < end_ns for start_ns, end_ns in updates):
            return "optimizer", 0
        if backward.has(operator):
            bucket = bisect.bisect_left(sent_ns, operator.start_ns)
            return ("backward", bucket) if bucket < len(sent_ns) else ("other", 0)
        if operator.start_ns < backward.span[0]:
            return "forward", inputs_first[max(0, bisect.bisect_right(sorted_ns, operator.start_ns) - 1)]
        return "other", 0

    return stage


def _forward_begins(operators: Sequence[Operator], backward: _Backward, sent_ns: Sequence[int]) -> list[int]:
    """Return, by bucket, the start of the first operator in forward that has a sequence number of the bucket's backward.

    A bucket without one begins where backward does: it has no operator.
    """
    bucket_of: dict[int | None, int] = {
        each.sequence: bisect.bisect_left(sent_ns, each.start_ns)
        for each in backward.functions
        if each.sequence is not None
    }
    begins_ns = [backward.span[0]] * len(sent_ns)
    for each in operators:
        bucket = bucket_of.get(each.sequence, len(sent_ns))
        if each.sequence is not None and bucket < len(sent_ns) and each.start_ns < backward.span[0]:
            begins_ns[bucket] = min(begins_ns[bucket], each.start_ns)
    return begins_ns


def _bucket(steps: Sequence[_Step], at: int) -> BucketTimes:
    sent = [step.collectives[at] for step in steps]
    durations_ns = [each.end_ns - each.start_ns for each in sent]
    transfers_ns = [each.transfer_ns for each in sent if each.transfer_ns is not None]
    bounded = len(transfers_ns) < len(sent)
    return BucketTimes(
        elements=sent[0].elements or 0,
        dtype=ARTEFACT_DTYPES[sent[0].dtype or ""],
        bytes=sent[0].bytes or 0,
        forward_s=_mean_s(steps, lambda step: step.busy_ns("forward", at)),
        backward_s=_mean_s(steps, lambda step: step.busy_ns("backward", at)),
        collective_s=fmean(durations_ns) * NS,
        transfer_s=(min(durations_ns) if bounded else median(transfers_ns)) * NS,
        upper_bound=bounded,
    )


class _Moments(NamedTuple):
    """Moments of a step by the clock, nanoseconds after the first kernel of forward; by bucket: needed and ready."""

    needed: list[int]
    ready: list[int]
    forward_end: int
    optimizer: int
    length: int


def _moments(step: _Step) -> _Moments:
    buckets = range(len(step.collectives))
    forward = [step.kernels.get(("forward", at), []) for at in buckets]
    started = [start_ns for spans in forward for start_ns, _ in spans]
    zero_ns = min(started, default=step.span[0])
    ready, latest_ns = [], zero_ns
    for at in buckets:
        # A bucket is launched when its operator runs, and not before its gradients and those of earlier buckets are there.
        ends = [end_ns for _, end_ns in step.kernels.get(("backward", at), [])]
        latest_ns = max([latest_ns, step.sent_ns[at], *ends])
        ready.append(latest_ns - zero_ns)
    needed, later_ns = [], max((end_ns for spans in forward for _, end_ns in spans), default=zero_ns)
    forward_end_ns = later_ns
    for spans in forward:
        later_ns = min([later_ns, *(start_ns for start_ns, _ in spans)])
        needed.append(later_ns - zero_ns)
    updates = [each for span in step.kernels.get(("optimizer", 0), []) for each in span]
    waited_ns = max(0, min(updates) - latest_ns) if updates else 0
    return _Moments(
        needed=needed,
        ready=ready,
        forward_end=forward_end_ns - zero_ns,
        optimizer=max(updates) - min(updates) if updates else 0,
        length=step.span[1] - step.span[0] - waited_ns,
    )


def _profile(name: str, steps: Sequence[_Step], world: int) -> Profile:
    moments = [_moments(step) for step in steps]

    def median_s(of: Callable[[_Moments], int]) -> float:
        return median(of(each) for each in moments) * NS

    forward_s = median_s(lambda each: each.forward_end)
    backward_s = median_s(lambda each: each.ready[-1] - each.forward_end)
    optimizer_s = median_s(lambda each: each.optimizer)
    buckets = steps[0].collectives
    gradients = [
        Gradient(
            name=f"bucket {at}",
            shape=(each.elements or 0,),
            dtype=ARTEFACT_DTYPES[each.dtype or ""],
            ready_s=median(moment.ready[at] for moment in moments) * NS,
            needed_s=median(moment.needed[at] for moment in moments) * NS,
        )
        for at, each in enumerate(buckets)
    ]
    return Profile(
        model=name,
        world=world,
        steps=len(steps),
        forward_s=forward_s,
        backward_s=backward_s,
        optimizer_s=optimizer_s,
        step_s=max(median_s(lambda each: each.length), forward_s + backward_s + optimizer_s),
        # In the order of parameters: DDP's first bucket has the last of them.
        gradients=tuple(reversed(gradients)),
    )


def _mean_s(steps: Sequence[_Step], of: Callable[[_Step], int]) -> float:
    return fmean(of(step) for step in steps) * NS
