"""Schedule of a trace for a replay: when each rank launched each bucket, and how long it continued after the last.

The plan's programs determine messages and their dependencies; the record adds the gaps between launches.
"""

from __future__ import annotations

from msgspec import Struct

from hocket.artefacts.plan import Plan
from hocket.artefacts.trace import Recording, Trace
from hocket.errors import ArtefactError
from hocket.planning.routes import known
from hocket.tools.formats.launches import Iteration, iterations

NS = 1e-9


class Step(Struct, frozen=True, kw_only=True):
    """Step of one rank. `launches`: bucket, and seconds after the step began. `tail_s`: from the last bucket's end to the
    step's."""

    launches: tuple[tuple[int, float], ...]
    tail_s: float
    step_s: float


class Schedule(Struct, frozen=True, kw_only=True):
    """Schedule of all ranks. `ranks[rank]`: steps that all ranks recorded, in order; `hosts[rank]`: its host in the record."""

    plan: Plan
    hosts: tuple[str, ...]
    ranks: tuple[tuple[Step, ...], ...]

    def slowest_s(self) -> list[float]:
        """Times of the slowest rank, by step."""
        return [max(step.step_s for step in steps) for steps in zip(*self.ranks, strict=True)]


def schedule(trace: Trace | Recording) -> Schedule:
    """Return the schedule of a run of one plan.

    Raises ArtefactError: the run had no plan, a rank's records are missing, or ranks have no step in common.
    """
    run = trace.run
    if run.plan is None or not known(run.plan):
        raise ArtefactError(
            "the trace is not of a plan: a policy's programs are not in it\nhint: replay a run of `--plan`"
        )
    buckets = {each.program: each.bucket for each in run.programs if each.bucket is not None}
    by_rank = [{each.number: each for each in iterations(trace.records(rank))} for rank in range(run.world)]
    shared = sorted(set.intersection(*map(set, by_rank)))
    whole = [
        number
        for number in shared
        if all(len(_launches(own[number], buckets)) == len(run.plan.buckets) for own in by_rank)
    ]
    if not whole:
        raise ArtefactError(f"the trace has no step that all {run.world} ranks recorded whole")
    ranks = tuple(tuple(_step(own[number], buckets) for number in whole) for own in by_rank)
    return Schedule(plan=run.plan, hosts=run.hosts, ranks=ranks)


def _launches(iteration: Iteration, buckets: dict[int, int]) -> list[tuple[int, int, int]]:
    """Return bucket, launch and end in nanoseconds."""
    return [
        (buckets[each.program], each.ready_ns, each.end_ns)
        for each in iteration.launches
        if each.program in buckets
    ]


def _step(iteration: Iteration, buckets: dict[int, int]) -> Step:
    launches = _launches(iteration, buckets)
    last_ns = max(end_ns for _, _, end_ns in launches)
    return Step(
        launches=tuple(
            (bucket, max(0, ready_ns - iteration.start_ns) * NS) for bucket, ready_ns, _ in launches
        ),
        tail_s=max(0, iteration.end_ns - last_ns) * NS,
        step_s=(iteration.end_ns - iteration.start_ns) * NS,
    )
