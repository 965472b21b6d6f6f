"""Row `sites` of `python -m benches delays`: four sites of two ranks, with 100 Mbit/s and a round trip of 50 ms between them.

Computation is a wait of 0.1 s an iteration for the 3.3 million parameters of the demo's transformer, and of 0.8 s for the 25.5
million of the same with 8 blocks of width 512. Between sites, an exchange of all gradients takes many iterations, so that ranks
step alone. Each contender has a job of its own, since memory is scarce, in turns with ranks that never exchange: what an iteration
takes beyond theirs is the wait for other sites. Bytes over a site's uplink are counted by the testbed's devices, with headers and
acknowledgements.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from statistics import median
from typing import NamedTuple

import msgspec
from msgspec import Struct

from benches.delays import cases
from benches.delays.contest import Contender, Course, Ddp, Never, Planned
from benches.delays.kept import NOTHING, Kept
from benches.delays.turns import in_turns
from benches.row import Row
from benches.uplinks import Uplinks
from hocket.artefacts.cluster import Cluster, Host, Rack
from hocket.artefacts.local import Local, localized
from hocket.artefacts.plan import Plan
from hocket.artefacts.profile import Profile
from hocket.artefacts.promise import ROUNDED, Promise
from hocket.planning import alone, search
from hocket.tools.report.quantity import TIMES
from hocket.tools.simulation import shortlist

SITES, RANKS = 4, 2

UPLINK_BIT_PER_S, LINK_BIT_PER_S = 100e6, 1e9

ROUND_TRIP_S = 0.05

NEVER, DDP, HOOK = "no exchange", "DDP on Gloo", "DDP, f16 hook"
"""Names of contenders."""

WAITS = 0.03
"""Target: share of the time that ranks wait for other sites."""

WITHIN = 1.1
"""Target: an iteration of the planner's choice, over the shortest measured one of steps alone."""

FOUR_BITS, SPARSE = "double_squeeze of racks in 4 bits", "sparse_int2 of racks"


class Fixed(NamedTuple):
    """Steps alone that no planner chose. `less`: target of DDP's bytes over a site's uplink, over theirs. Where ranks wait for an
    exchange, there is no target."""

    codec: str
    local: Local
    less: float | None = None


FIXED = {
    "f16, 30 steps": Fixed("", Local(every=30, late=12)),
    "4 bits, 30 steps": Fixed(FOUR_BITS, Local(every=30, late=6), 200),
    "4 bits, 50 steps": Fixed(FOUR_BITS, Local(every=50, late=6), 400),
    "sparse, 30 steps": Fixed(SPARSE, Local(every=30, late=6), 2000),
    "4 bits, 10 steps, waiting": Fixed(FOUR_BITS, Local(every=10)),
    "4 bits, 30 steps, waiting": Fixed(FOUR_BITS, Local(every=30)),
}

PROMISES = (Promise("local", local=500, delay=8), Promise("local", local=500, delay=8, loss="any"))


class Case(NamedTuple):
    """A model on the sites.

    Attributes:
        computed_s: seconds of an iteration's computation.
        fixed: names of `FIXED`.
        ddp_mb: sizes of buckets that DDP tries.
        course: of all contenders.
    """

    make: Callable[[], Profile]
    computed_s: float
    fixed: tuple[str, ...]
    ddp_mb: tuple[float, ...]
    course: Course

    def profile(self) -> Profile:
        """Return the model with the time of an iteration that is assumed here."""
        return paced(self.make(), self.computed_s)


SMALL, LARGE = "3.3 M", "25.5 M"

CASES = {
    SMALL: Case(
        cases.transformer, 0.1, tuple(FIXED), (4.0, 25.0), Course(turns=3, iterations=8, warm_up=2, tuning=3)
    ),
    LARGE: Case(
        functools.partial(cases.transformer, 512, 8),
        0.8,
        ("4 bits, 30 steps", "4 bits, 50 steps", "sparse, 30 steps"),
        (25.0,),
        Course(turns=1, iterations=3, warm_up=1, tuning=1),
    ),
}


class Result(Struct, frozen=True, kw_only=True):
    """A contender as measured, by turn: seconds of an iteration, those of ranks that never exchange, and the bytes over a site's
    uplink in one."""

    name: str
    label: str
    synchronous: bool
    iterations_s: tuple[float, ...]
    never_s: tuple[float, ...]
    uplink_bytes: tuple[float, ...]
    plan: Plan | None = None

    @property
    def iteration_s(self) -> float:
        return median(self.iterations_s)

    @property
    def sent_bytes(self) -> float:
        return median(self.uplink_bytes)


def sites(kept: Kept = NOTHING) -> Iterator[Row]:
    """Rows of both models. What is kept is not measured again. PeerError: there are no network namespaces."""
    for name in CASES:
        yield from rows(name, results(name, kept))


def results(name: str, kept: Kept) -> list[Result]:
    """Measure all contenders of a case."""
    case, cluster = CASES[name], network()
    profile = case.profile()
    never, *others = contenders(cluster, profile, case)
    return [
        each
        for at, other in enumerate(others)
        for each in kept.measured(
            f"sites-{name.replace(' ', '-')}-{at}",
            list[Result],
            functools.partial(measured, cluster, profile, [never, other], case.course),
        )
    ]


def rows(where: str, found: Sequence[Result]) -> Iterator[Row]:
    """Rows of a case: iterations, waits, bytes, and how good the planner's choice is."""
    by_name = {each.name: each for each in found}
    hook_s, ddp_bytes = by_name[HOOK].iteration_s, by_name[DDP].sent_bytes
    shortest = min((each for each in found if not each.synchronous), key=lambda each: each.iteration_s)
    for each in found:
        what = f"{where}, {each.name}" + (f" ({each.label})" if each.plan else "")
        yield Row(name="sites", what=f"{what}: iteration", value=each.iteration_s * 1e3, unit="ms")
        yield Row(
            name="sites",
            what=f"{what}: bytes over a site's uplink in it",
            value=each.sent_bytes / 1e3,
            unit="kB",
        )
        if each.synchronous:
            continue
        fixed = FIXED.get(each.name)
        goes_on = fixed is None or fixed.local.late > 0
        yield Row(
            name="sites", what=f"{what}: speed over {HOOK}", value=hook_s / each.iteration_s, unit=TIMES
        )
        yield Row.over(
            [1 - never_s / own_s for never_s, own_s in zip(each.never_s, each.iterations_s, strict=True)],
            name="sites",
            what=f"{what}: share of the time that ranks wait for other sites",
            target=WAITS if goes_on else None,
        )
        yield Row(
            name="sites",
            what=f"{what}: bytes of {DDP} over a site's uplink, over these",
            value=ddp_bytes / each.sent_bytes,
            target=fixed.less if fixed else None,
            least=True,
            unit=TIMES,
        )
        if fixed is None:
            yield Row(
                name="sites",
                what=f"{what}: iteration over the shortest of steps alone ({shortest.name})",
                value=each.iteration_s / shortest.iteration_s,
                target=WITHIN,
                unit=TIMES,
            )


def network() -> Cluster:
    """Make the sites, whose uplinks' latencies add up to the round trip."""
    return Cluster(
        hosts=tuple(
            Host(name=f"h{at}", rack=f"site{at // RANKS}", bandwidth_bit_per_s=LINK_BIT_PER_S)
            for at in range(SITES * RANKS)
        ),
        racks=tuple(
            Rack(
                name=f"site{at}",
                uplink_bit_per_s=UPLINK_BIT_PER_S,
                uplink_latency_s=ROUND_TRIP_S / 4,
            )
            for at in range(SITES)
        ),
    )


def paced(profile: Profile, computed_s: float) -> Profile:
    """Return the profile with this time of an iteration."""
    factor = computed_s / (profile.forward_s + profile.backward_s)
    return msgspec.structs.replace(
        profile,
        world=SITES * RANKS,
        forward_s=factor * profile.forward_s,
        backward_s=factor * profile.backward_s,
        step_s=computed_s,
        gradients=tuple(
            msgspec.structs.replace(each, ready_s=factor * each.ready_s, needed_s=factor * each.needed_s)
            for each in profile.gradients
        ),
    )


def contenders(cluster: Cluster, profile: Profile, case: Case) -> list[Contender]:
    """Make the contenders: those that never exchange first, the planner's last."""
    considered = search.considered(cluster, profile, SITES * RANKS, promise=ROUNDED)
    best, graph = considered.explained(considered.best), considered.question.graph
    simulated_s = shortlist.alone_on(cluster, SITES * RANKS, profile)
    found = {
        name: localized(alone.coded(best, each.codec), each.local)
        for name, each in FIXED.items()
        if name in case.fixed
    }
    for promise in PROMISES:
        found[f"planned for {promise}"] = alone.instead_of(
            best, best, graph, profile, promise, simulated_s=simulated_s
        )
    return [
        Contender(name=NEVER, variants=(Never(),)),
        Contender(name=DDP, variants=tuple(Ddp(bucket_mb=each) for each in case.ddp_mb[-1:])),
        Contender(name=HOOK, variants=tuple(Ddp(bucket_mb=each, f16=True) for each in case.ddp_mb)),
        Contender(name="Hocket, f16", variants=(Planned(plan=best),)),
        *(
            Contender(name=name, variants=(Planned(plan=plan),), synchronous=False)
            for name, plan in found.items()
        ),
    ]


def measured(cluster: Cluster, profile: Profile, all_of: Sequence[Contender], course: Course) -> list[Result]:
    """Measure contenders beside ranks that never exchange, which are the first."""
    uplinks = Uplinks()
    never, *others = in_turns(cluster, profile, all_of, course, uplinks)
    found = []
    for contender, own in zip(all_of[1:], others, strict=True):
        variant = contender.variants[own.variant]
        found.append(
            Result(
                name=contender.name,
                label=variant.title,
                synchronous=contender.synchronous,
                iterations_s=own.iterations_s,
                never_s=never.iterations_s,
                uplink_bytes=tuple(
                    uplinks.sent(*span_s) / SITES * own_s / (span_s[1] - span_s[0])
                    for own_s, span_s in zip(own.iterations_s, own.spans_s, strict=True)
                ),
                plan=variant.plan if isinstance(variant, Planned) else None,
            )
        )
    return found
