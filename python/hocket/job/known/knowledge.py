"""Knowledge from jobs about hosts and models, kept for the next job on the same ones: cluster, profile, tuning and plan; and
results of trials of plans, for jobs on any.

Rank 0 reads and writes them in the user's cache (`cache.py`); all ranks get what it read. A job starts from recalled knowledge
without relying on it: hosts may share their network with others now, and the model's batches may be of another size. So every part
has its age, and its user compares it with what the job itself measures.

Hosts are the same when their names, the addresses of their wire and the hardware addresses of those interfaces are, so that another
cluster with equal names, or equal private addresses, is another one. A profile also belongs to the model (names, shapes and element
types) and the ranks' places, a plan to the promise as well. All entries belong to one build of Hocket.
"""

from __future__ import annotations

import copy
import hashlib
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct

from hocket import typed
from hocket.artefacts.cluster import Cluster
from hocket.artefacts.experience import Experience
from hocket.artefacts.gradient import Gradient
from hocket.artefacts.plan import Plan
from hocket.artefacts.profile import Profile
from hocket.artefacts.promise import Promise
from hocket.artefacts.tuning import Tuning
from hocket.job.host import Host
from hocket.job.known import cache
from hocket.job.known.cache import Cache
from hocket.job.rendezvous import Job
from hocket.job.store import interfaces

Kind = Literal["cluster", "profile", "tuning", "plan", "experience"]

KINDS: dict[Kind, type] = {"cluster": Cluster, "profile": Profile, "tuning": Tuning, "plan": Plan}
"""Kinds of knowledge that a job begins with; experience is about all jobs, and rank 0's alone."""

PREFIX = "known-"
"""Prefix of these entries' names in the cache."""

log = logging.getLogger("hocket.knowledge")


class Entry(Struct, frozen=True, kw_only=True):
    """One part of knowledge, as kept. `about`: hosts and model in words, for people. `kept_at` has its time zone."""

    version: int = 1
    kind: Kind
    about: str
    kept_at: datetime
    value: msgspec.Raw


class Known(Struct, frozen=True, kw_only=True):
    """Knowledge that the last jobs on these hosts, with this model, have left; None: nothing.

    `kept_at`: time at which each part was kept; `digests`: equal for equal parts.
    """

    cluster: Cluster | None = None
    profile: Profile | None = None
    tuning: Tuning | None = None
    plan: Plan | None = None
    kept_at: dict[Kind, datetime] = {}
    digests: dict[Kind, str] = {}

    def age(self, kind: Kind) -> timedelta:
        """Return a part's age by this host's clock. KeyError: there is none."""
        return datetime.now(UTC) - self.kept_at[kind]


@dataclass(frozen=True)
class Kept:
    """Entry, for people. `entry` is None if this build of Hocket cannot read it."""

    path: Path
    bytes: int
    entry: Entry | None


class Memory:
    """Access of a job to the user's knowledge. All ranks make one, call `recall` and may call `keep`; rank 0 has the files."""

    def __init__(self, job: Job) -> None:
        """Compare hosts; every rank must call it. RendezvousError: a rank has left."""
        self._job = job
        self._cache = Cache.of(job.settings)
        timeout_s = job.settings.start_timeout_s
        given = job.store.gather("knowledge/hosts", job.rank, job.world, _seen(job), timeout_s)
        self._hosts = dict(sorted(zip(job.hosts, map(str, given), strict=True)))

    def among(self, job: Job) -> Memory:
        """Return the access for the remaining ranks of an elastic job; the others' hosts are known already."""
        left = copy.copy(self)
        left._job = job
        left._hosts = {name: seen for name, seen in self._hosts.items() if name in job.hosts}
        return left

    def recall(self, gradients: Sequence[Gradient], promise: Promise) -> Known:
        """Return the knowledge of the hosts, the model with these gradients, and the promise: equal on all ranks, which must call
        it.

        Unusable entries are dropped, with a line in rank 0's log. RendezvousError: a rank has left.
        """
        job = self._job
        found = msgspec.to_builtins(self._read(gradients, promise)) if job.rank == 0 else None
        given = job.store.gather("knowledge/known", job.rank, job.world, found, job.settings.start_timeout_s)[
            0
        ]
        return typed.of_builtins(given, Known)

    def keep(
        self,
        gradients: Sequence[Gradient],
        promise: Promise,
        parts: Mapping[Kind, Cluster | Profile | Tuning | Plan],
    ) -> None:
        """Keep these parts for the next job, replacing earlier ones. No-op on ranks other than 0, and without a cache."""
        if self._job.rank != 0:
            return
        for kind, value in parts.items():
            assert isinstance(value, KINDS[kind]), (kind, value)  # noqa: S101  # the caller's mistake
            self._put(kind, gradients, promise, msgspec.json.encode(value))

    def learn(self, gradients: Sequence[Gradient], promise: Promise, experience: Experience) -> None:
        """Keep the results of this job's trials for any other job of this user, replacing those of the last such job. No-op on
        ranks other than 0, and without a cache."""
        if self._job.rank == 0:
            self._put("experience", gradients, promise, msgspec.json.encode(experience))

    def experiences(self) -> list[Experience]:
        """Return the results of trials of all jobs of this user, the latest at the end; none on other ranks than 0.

        Unusable entries are left out, with a line in the log.
        """
        found = []
        for each in kept(self._cache) if self._job.rank == 0 else ():
            if each.entry is not None and each.entry.kind == "experience":
                try:
                    found.append((each.entry.kept_at, typed.of_json(each.entry.value, Experience)))
                except msgspec.MsgspecError as error:
                    log.warning("experience that was kept is left out: %s", error)
        return [experience for _, experience in sorted(found, key=lambda entry: entry[0])]

    def _put(self, kind: Kind, gradients: Sequence[Gradient], promise: Promise, value: bytes) -> None:
        entry = Entry(
            kind=kind,
            about=self._about(kind, gradients, promise),
            kept_at=datetime.now(UTC),
            value=msgspec.Raw(value),
        )
        self._cache.put(self._name(kind, gradients, promise), msgspec.json.encode(entry))

    def _read(self, gradients: Sequence[Gradient], promise: Promise) -> Known:
        parts: dict[str, Any] = {}
        kept_at: dict[Kind, datetime] = {}
        digests: dict[Kind, str] = {}
        for kind, of in KINDS.items():
            name = self._name(kind, gradients, promise)
            content = self._cache.get(name)
            if content is None:
                continue
            try:
                entry = typed.of_json(content, Entry)
                parts[kind] = typed.of_json(entry.value, of)
            except msgspec.MsgspecError as error:
                log.warning("the %s that was kept for these hosts is dropped: %s", kind, error)
                self._cache.remove(name)
                continue
            kept_at[kind] = entry.kept_at
            digests[kind] = hashlib.sha256(entry.value).hexdigest()[:16]
        return Known(kept_at=kept_at, digests=digests, **parts)

    def _name(self, kind: Kind, gradients: Sequence[Gradient], promise: Promise) -> str:
        of: list[object] = [kind, self._hosts]
        if kind in ("profile", "plan", "experience"):
            of += [self._job.hosts, gradients]
        if kind in ("plan", "experience"):
            of.append(str(promise))
        return PREFIX + cache.key(msgspec.json.encode(of))

    def _about(self, kind: Kind, gradients: Sequence[Gradient], promise: Promise) -> str:
        names = list(self._hosts)
        text = ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
        if kind in ("profile", "plan", "experience"):
            elements = sum(each.elements for each in gradients)
            text += (
                f": {self._job.world} ranks, {len(gradients)} gradients of {elements / 1e6:.3g} M elements"
            )
        return f"{text}, {promise}" if kind in ("plan", "experience") else text


def kept(where: Cache) -> Iterator[Kept]:
    """Return all knowledge in a user's cache, of any job; the least recently used first."""
    for path, stat in where.entries():
        if path.name.startswith(PREFIX):
            yield Kept(path, stat.st_size, _entry(where, path.name.removesuffix(cache.SUFFIX)))


def forget(where: Cache) -> int:
    """Remove all of these entries; return their number."""
    names = [each.path.name.removesuffix(cache.SUFFIX) for each in kept(where)]
    for name in names:
        where.remove(name)
    return len(names)


def _entry(where: Cache, name: str) -> Entry | None:
    content = where.get(name, used=False)
    try:
        return None if content is None else typed.of_json(content, Entry)
    except msgspec.MsgspecError:
        return None


def _seen(job: Job) -> str:
    """Return this rank's host as seen from the network; over loopback, the boot counts instead."""
    hardware = [interfaces.hardware(address) for address in job.addresses]
    place = "" if any(hardware) else Host.here().place
    path = job.settings.emulated_links
    emulated = "" if path is None else Path(path).read_text()
    return f"{job.host} {job.addresses} {hardware} {place} {job.settings.tls} {emulated}"
