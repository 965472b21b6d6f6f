"""Sites: ranks of a host or a rack that step together, while sites step alone between exchanges.

All sites average their gradients by one program of the whole job, in which each rank has the collective of its site alone. It has
a contract for each site, so the verifier proves of every one that its ranks end with the mean of theirs, in the same bits.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from hocket._native import PassOptions, Program
from hocket.artefacts.chunks import CHUNK_BYTES, SHARED_CHUNK_BYTES
from hocket.artefacts.local import Local, Sites
from hocket.artefacts.plan import Plan
from hocket.errors import UsageError
from hocket.planning.compile import packed, verified
from hocket.policy.topology import Topology

_GIVE = "the ranks of each site: inside=((0, 1), (2, 3))"


def with_sites(local: Local, topology: Topology) -> Local:
    """Return how ranks step alone, with the ranks of each site, if sites are asked for and one has several ranks.

    UsageError: there is one site, or a rank is in none or in several.

    >>> two = Topology.even(world=4, racks=2)
    >>> with_sites(Local(every=30, inside="rack"), two).inside
    ((0, 1), (2, 3))
    >>> print(with_sites(Local(every=30, inside="host"), two).inside)
    None
    """
    if local.inside is None:
        return local
    sites = _sites(local, topology)
    if sorted(rank for site in sites for rank in site) != list(topology.ranks):
        raise UsageError(
            f"local: inside={local.inside!r}: each of the {topology.world} ranks is in one site\nhint: {_GIVE}"
        )
    if len(sites) == 1:
        where, hint = _ONE.get(str(local.inside), ("in one site", "leave `local` out"))
        raise UsageError(
            f"local: inside={local.inside!r}: all ranks are {where}, so they would step together and exchange in vain\n"
            f"hint: {hint}"
        )
    return replace(local, inside=sites if any(len(site) > 1 for site in sites) else None)


_ONE = {
    "rack": ("in one rack", f"a cluster file whose hosts have a `rack` each (HOCKET_CLUSTER); or {_GIVE}"),
    "host": ("on one host", f'inside="rack" with a cluster file; or {_GIVE}'),
}
"""Place of all ranks where there is one site, and a hint, by a word for sites."""


def _sites(local: Local, topology: Topology) -> Sites:
    if local.inside == "host":
        return tuple(map(topology.local_ranks, topology.leaders))
    if local.inside == "rack":
        return tuple(map(topology.rack_ranks, topology.rack_leaders))
    if isinstance(local.inside, str):
        raise UsageError(f"local: inside={local.inside!r}: `host`, `rack`, or {_GIVE}")
    return tuple(sorted(tuple(sorted(site)) for site in local.inside or () if site))


def sites_of(plan: Plan) -> Sites:
    """Return the ranks of each site that steps together by the plan's schedule; none: ranks step by themselves, or all together."""
    return () if plan.schedule.outer is None else plan.schedule.outer.inside


def means(index: int, plan: Plan, hosts: Sequence[str], lengths: Sequence[int] = ()) -> Program:
    """Return the program for the mean of bucket `index` within each site. `hosts`: of each rank; `lengths`: see `bucket_program`.

    ProgramError: it would not be the mean of a site's ranks, with the ops at fault.

    >>> from hocket.artefacts.local import localized
    >>> from hocket.artefacts.plan import AllReduce, Bucket
    >>> from hocket.planning.buckets import plan_of
    >>> bucket = Bucket(parts=(), elements=8, dtype="f32", route=AllReduce(algorithm="ring"), order=(0, 1, 2), priority=0)
    >>> plan = localized(plan_of([bucket], 3, label=""), Local(every=30, inside=((0, 2), (1,))))
    >>> means(0, plan, ["a", "b", "c"]).pairs()
    [(0, 2), (2, 0)]
    """
    bucket, groups = plan.buckets[index], _groups(sites_of(plan), hosts, far="ring", mean=True)
    program = Program.all_reduces(
        name=f"bucket.{index}.sites",
        world=plan.world,
        elements=bucket.elements,
        dtype=bucket.dtype,
        op="sum",
        groups=groups,
        record_non_finite=False,
    )
    whole = packed(program, lengths) if len(lengths) > 1 else program
    shared = all(algorithm == "in_place" for _, _, algorithm, _ in groups)
    return verified(whole, PassOptions(chunk_bytes=SHARED_CHUNK_BYTES if shared else CHUNK_BYTES))


def votes(sites: Sites, hosts: Sequence[str], elements: int) -> Program:
    """Return a program for the maximum of f32 elements within each site: messages are small, so it minimizes rounds."""
    program = Program.all_reduces(
        name="votes.sites",
        world=len(hosts),
        elements=elements,
        dtype="f32",
        op="max",
        groups=_groups(sites, hosts, far="halving_doubling", mean=False),
        record_non_finite=False,
    )
    return verified(program, PassOptions(chunk_bytes=CHUNK_BYTES))


def _groups(
    sites: Sites, hosts: Sequence[str], *, far: str, mean: bool
) -> list[tuple[list[int], float, str, list[int]]]:
    """Return the ranks of each site with several, those of a host next to one another, with scale, algorithm and its numbers.
    `far`: algorithm of a site of several hosts."""
    found = []
    for site in sites:
        if len(site) > 1:
            one_host = len({hosts[rank] for rank in site}) == 1
            ranks = sorted(site, key=lambda rank: (hosts[rank], rank))
            scale = 1 / len(site) if mean else 1.0
            found.append((ranks, scale, "in_place" if one_host else far, list[int]()))
    return found
