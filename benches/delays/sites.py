"""Row `sites` of `python -m benches delays`: four sites of two ranks, with 100 Mbit/s and a round trip of 50 ms between them.

Computation is a wait of 0.1 s an iteration for the 3.3 million parameters of the demo's transformer. Between sites, an exchange of
all gradients takes many iterations, so that ranks step alone.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median

import msgspec

from benches.delays import cases
from benches.delays.contest import Contender, Ddp, Measured, Planned
from benches.emulated import in_emulation
from benches.row import Row
from hocket.artefacts import files
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

COMPUTED_S = 0.1

ALONE = (Local(every=30), Local(every=30, late=12), Local(every=30, late=6, fragments=4))

PROMISE = Promise("local", local=500, delay=8)

DDP_MB = (4.0, 25.0)


def sites() -> Iterator[Row]:
    """Iteration of each contender, and how much shorter it is with steps alone."""
    cluster, profile = network(), model()
    all_of = contenders(cluster, profile)
    found = list(zip(all_of, measured(cluster, profile, all_of), strict=True))
    hook_s = min(own_s for each, own_s in found if each.synchronous)
    for each, own_s in found:
        yield Row(name="sites", what=f"{each.name}: iteration", value=own_s * 1e3, unit="ms")
        if not each.synchronous:
            yield Row(
                name="sites",
                what=f"{each.name}: speed over the fastest that steps together",
                value=hook_s / own_s,
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


def model() -> Profile:
    """Return the profile of the demo's transformer, with the time of an iteration that is assumed here."""
    profile = cases.transformer()
    factor = COMPUTED_S / (profile.forward_s + profile.backward_s)
    return msgspec.structs.replace(
        profile,
        world=SITES * RANKS,
        forward_s=factor * profile.forward_s,
        backward_s=factor * profile.backward_s,
        step_s=COMPUTED_S,
        gradients=tuple(
            msgspec.structs.replace(each, ready_s=factor * each.ready_s, needed_s=factor * each.needed_s)
            for each in profile.gradients
        ),
    )


def contenders(cluster: Cluster, profile: Profile) -> list[Contender]:
    """Make the contenders, of which the last is the planner's."""
    considered = search.considered(cluster, profile, SITES * RANKS, promise=ROUNDED)
    best = considered.explained(considered.best)
    simulated_s = shortlist.alone_on(cluster, SITES * RANKS, profile)
    chosen = alone.instead_of(
        best, best, considered.question.graph, profile, PROMISE, simulated_s=simulated_s
    )
    apart: list[Plan] = [localized(best, each) for each in ALONE if each.fragments <= len(best.buckets)]
    return [
        Contender(name="DDP, f16 hook", variants=tuple(Ddp(bucket_mb=each, f16=True) for each in DDP_MB)),
        Contender(name="Hocket, f16", variants=(Planned(plan=best),)),
        *(
            Contender(name=f"Hocket, {each.label}", variants=(Planned(plan=each),), synchronous=False)
            for each in apart
        ),
        Contender(
            name=f"Hocket, planned: {chosen.label}", variants=(Planned(plan=chosen),), synchronous=False
        ),
    ]


def measured(cluster: Cluster, profile: Profile, all_of: Sequence[Contender]) -> list[float]:
    """Return the seconds of an iteration of each contender. PeerError: there are no network namespaces."""
    with tempfile.TemporaryDirectory(prefix="hocket-sites-") as directory:
        files.write(Path(directory) / "profile.json", profile)
        given = msgspec.json.encode(all_of)
        (Path(directory) / "contenders.json").write_bytes(given)
        argv = [sys.executable, "-m", "benches.delays.rank", directory]
        found = in_emulation(cluster, [host.name for host in cluster.hosts], argv)
    return [median(each.iterations_s) for each in msgspec.convert(found, list[Measured])]
