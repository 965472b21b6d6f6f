"""Row `sites-loss` of `python -m benches delays`: time to a loss with steps alone between sites, over that of DDP's f16 hook.

Iterations are those of the row `sites`; learning is computed in one process, for four ranks and without codecs' rounding, at the
synchronous best rate, untuned. With `--keep`, iterations and curves that are there are not measured and computed again.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from benches.delays import tasks
from benches.delays.kept import NOTHING, Kept
from benches.delays.learning import WORSE, bucket_at
from benches.delays.sites import CASES, FIXED, HOOK, SMALL, WITHIN, Result, results
from benches.delays.study import KINDS, SYNCHRONOUS, Curves, Study, Way, upper_bound
from benches.row import Row
from hocket.artefacts.plan import Plan

ITERATIONS = 400

FASTER = 1 / 8
"""Target: time to the loss, over that of DDP's f16 hook."""


def rows(kept: Kept = NOTHING) -> Iterator[Row]:
    """Rows of the contenders that wait for exchanges, and of the planner's choices. PeerError: there are no network namespaces."""
    study = Study(tasks.bytes_transformer(), KINDS[1], ITERATIONS, kept)
    base = study.tuned(SYNCHRONOUS, study.kind.rate)
    found = results(SMALL, kept)
    hook_s = next(each.iteration_s for each in found if each.name == HOOK) * base.iterations_to(base.target)
    times_s = {}
    for each in found:
        if each.plan is None or not _is_learned(each):
            continue
        curves = study.at(way_of(each.plan), base.rate)
        times_s[each.name] = each.iteration_s * curves.iterations_to(base.target)
        what = f"{study.title}, {each.name} ({each.label})"
        yield _loss(what, curves, base)
        yield Row(
            name="sites-loss",
            what=f"{what}: time to a loss of {base.target:.4g}, over that of {HOOK}",
            value=times_s[each.name] / hook_s,
            target=FASTER,
        )
    best = min(times_s, key=times_s.__getitem__)
    for name in (each for each in times_s if each not in FIXED):
        yield Row(
            name="sites-loss",
            what=f"{name}: time to that loss, over the shortest ({best})",
            value=times_s[name] / times_s[best],
            target=WITHIN,
        )


def way_of(plan: Plan) -> Way:
    """Return a plan's schedule as a way to learn; where all buckets are exchanged together, one is as good as all."""
    schedule = plan.schedule
    if schedule.together:
        return Way(msgspec.structs.replace(schedule, turns=schedule.turns[:1]))
    return Way(schedule, bucket_at(CASES[SMALL].profile(), plan))


def _is_learned(each: Result) -> bool:
    fixed = FIXED.get(each.name)
    return not each.synchronous and (fixed is None or fixed.local.late == 0)


def _loss(what: str, found: Curves, base: Curves) -> Row:
    differences = [own - other for own, other in zip(found.last, base.last, strict=True)]
    return Row(
        name="sites-loss",
        what=f"{what}: final loss above the synchronous one, upper 90 % bound of the mean",
        value=upper_bound(differences),
        target=WORSE,
    )
