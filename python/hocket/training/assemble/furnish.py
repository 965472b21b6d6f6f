"""Terms by which an elastic job trains, and programs and memory that its members and newcomers make by them before they meet.

Between that and the meeting, the members train on. So all compare the terms once more when they meet, and use what they have made
only where these are still the same.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import msgspec
import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from hocket import typed
from hocket.artefacts.gradient import Gradient
from hocket.artefacts.local import Local
from hocket.artefacts.plan import Plan
from hocket.setting_values import seconds_of
from hocket.settings import Settings
from hocket.training.assemble.asked import Given
from hocket.training.assemble.choice import source_among
from hocket.training.elastic.plans import following
from hocket.training.memory.framework import Framework
from hocket.training.memory.gradients import digest_of, gradients_of
from hocket.training.memory.turns import slots_for
from hocket.training.prepared import Ahead, Stay
from hocket.training.programs.source import ProgramSource
from hocket.training.step.apart import Laid, laid

PAGE_BYTES = 4096
TOUCHED_BYTES = 16 << 20
"""Bytes that are touched at once, while no other thread runs Python."""


class Terms(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Terms from which a job's programs follow, beside its hosts: the plan, the policy and the exchanges of steps alone that were
    given to it, the agreed values of its policies, and the time that is left for its search, as in the settings."""

    plan: Plan | None
    policy: str | None
    local: Local | None
    begin: tuple[int, dict[str, bool | int | float | str]]
    search: str | None

    def hold(self, later: Terms) -> bool:
        """Return whether programs of these terms are those of `later` ones: a search may have less time left."""
        searches = (self.search is None) == (later.search is None)
        return searches and replace(self, search=None) == replace(later, search=None)


class Furnished(NamedTuple):
    """Source of programs that was made by these terms, and memory for its first ones."""

    terms: Terms
    source: ProgramSource
    laid: Laid

    def at(self, terms: Terms) -> tuple[ProgramSource, Laid] | tuple[None, None]:
        """Return source and memory if they are those of these terms, else nothing."""
        if not self.terms.hold(terms):
            return None, None
        if self.source.autopilot is not None and terms.search is not None:
            self.source.autopilot.knowledge.search_s = seconds_of(terms.search)
        return self.source, self.laid


class _Offer(Struct, frozen=True, forbid_unknown_fields=True):
    """Knowledge of a rank beside training: the job's terms, unless it joins; a digest of its model; and whether it can furnish."""

    terms: Terms | None
    model: str
    able: bool


def source_by(
    terms: Terms, gradients: Mapping[str, Gradient], asked: Given, place: Stay, settings: Settings
) -> ProgramSource:
    """Return the source of programs by these terms, for all that meet at a place; all of them call it. Errors: as `source_of`."""
    plan = None if terms.plan is None else following(terms.plan, place.job.hosts)
    return source_among(
        gradients,
        asked._replace(plan=plan, search=None, local=terms.local),
        process=place,
        settings=dataclasses.replace(settings, search=terms.search),
        begin=terms.begin,
    )


def furnish(
    framework: Framework, asked: Given, terms: Callable[[], Terms | None], place: Ahead
) -> Furnished | None:
    """Make programs and memory for a place, in a thread beside training, on all ranks. None on all of them: their terms are not the
    same at this moment, or some cannot, since a policy's handlers belong to the thread that trains, and so does a device.

    `terms`: returns the job's; None: this rank joins. RendezvousError: some do not come.
    """
    job, parameters = place.job, framework.parameters()
    able = framework.device is None and asked.policy is None
    mine: Any = msgspec.to_builtins(_Offer(terms(), digest_of(parameters), able))
    given = job.store.gather("terms", job.rank, job.world, mine, job.settings.start_timeout_s)
    everyone = typed.of_builtins(given, list[_Offer])
    first, *others = [each.terms for each in everyone if each.terms is not None]
    alike = len({each.model for each in everyone}) == 1 and all(map(first.hold, others))
    if not alike or not all(each.able for each in everyone):
        return None
    source = source_by(first, gradients_of(parameters), asked, place, job.settings)
    buckets = source.ready = source.buckets()
    slots = slots_for(source.plan(source.epochs.current), len(buckets))
    made = laid(buckets, place.engine, framework, slots)
    _touch(made)
    return Furnished(first, source, made)


def _touch(made: Laid) -> None:
    """Let the system provide the memory, which is zero, before it is needed."""
    for area in made.areas:
        values = [] if area.bucket.values is None else [area.bucket.values]
        for each in (*area.bucket.slots, *area.sums, *values):
            pages = np.frombuffer(memoryview(each.memory), np.uint8)
            for start in range(0, len(pages), TOUCHED_BYTES):
                pages[start : start + TOUCHED_BYTES : PAGE_BYTES] = 0
