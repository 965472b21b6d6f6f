"""Contents of a trace directory, read once for all sections: run, records on one clock, metrics, comparison.

This module knows the files' meaning, but no HTML apart from the length of names. `notes` reports incomplete data.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct, structs

from hocket import typed
from hocket.artefacts import trace
from hocket.artefacts.change import Change
from hocket.artefacts.decoding import MALFORMED, why
from hocket.artefacts.goodput import Goodput
from hocket.artefacts.members_change import MembersChange
from hocket.artefacts.plan import Candidate
from hocket.artefacts.trace import RUN_FILE, RankRecords, Recording, RunInfo, metrics_file, records_file
from hocket.artefacts.usage import Usage, read_usage
from hocket.errors import ArtefactError
from hocket.tools.analysis.analyse import Analysis, analyse_records
from hocket.tools.report.markup import NAME_CHARACTERS_MAX, clipped

Records = npt.NDArray[np.void]

# Limit of ranks: their pairs' traffic takes 134 MB then; beyond it a single page answers nothing.
WORLD_MAX = 4_096
SEND, INSTANCE = 5, 16
STEP, FORWARD, BACKWARD, WAIT, OPTIMIZER, UPDATE = 32, 33, 34, 35, 36, 37


class Strategy(Struct, frozen=True, kw_only=True):
    """Compared way of training; unmeasured values are None."""

    name: str
    label: str
    step_s: float | None = None
    steps_per_s: float | None = None
    wait_share: float | None = None
    trunk_bytes_per_step: float | None = None
    loss: float | None = None
    metric: float | None = None
    metric_std: float | None = None
    losses: tuple[float | None, ...] = ()
    times_s: tuple[float | None, ...] = ()


class Comparison(Struct, frozen=True, kw_only=True):
    """Contents of `comparison.json`: strategies on the same cluster, and candidates with measured step times."""

    model: str = ""
    metric_name: str = "metric"
    cluster: str = ""
    strategies: tuple[Strategy, ...] = ()
    candidates: tuple[Candidate, ...] = ()
    plan_reason: str = ""

    @property
    def ours(self) -> Strategy | None:
        """The fastest strategy whose name begins with `hocket`."""
        return min(
            (s for s in self.strategies if s.name.startswith("hocket") and s.step_s),
            key=lambda s: s.step_s or 0.0,
            default=None,
        )

    @property
    def baseline(self) -> Strategy | None:
        """Plain DDP, or the first strategy that is not ours."""
        others = [s for s in self.strategies if not s.name.startswith("hocket")]
        return next((s for s in others if s.name == "ddp"), others[0] if others else None)


@dataclass(frozen=True, eq=False)
class Material:
    """All data for the sections.

    `records[rank]` is empty for a rank without a file; `clock_errors_ns[rank]` bounds the error of its times on the
    job's clock; None: unknown.
    """

    directory: Path
    run: RunInfo
    records: tuple[Records, ...]
    clock_errors_ns: tuple[float | None, ...]
    metrics: tuple[tuple[dict[str, Any], ...], ...]
    usage: tuple[tuple[Usage, ...], ...]
    comparison: Comparison | None
    changes: tuple[Change, ...]
    members_changes: tuple[MembersChange, ...]
    goodput: Goodput | None
    notes: tuple[str, ...]
    runs: bool = False
    """True if the job runs: its latest steps are of interest, and what ends in the middle of a record goes on there."""

    def of_kind(self, rank: int, kind: int) -> Records:
        """Return the records of one kind of one rank, by start."""
        chosen = self.records[rank][self.records[rank]["kind"] == kind]
        ordered: Records = chosen[np.argsort(chosen["start_ns"], kind="stable")]
        return ordered

    @cached_property
    def analysis(self) -> Analysis:
        """Answers of `hocket trace analyse`. Raises UsageError if servers' records need an absent extra."""
        return analyse_records(Recording(self.run, self.records))

    @property
    def ranks(self) -> list[int]:
        return [rank for rank, records in enumerate(self.records) if len(records)]

    def host(self, rank: int) -> str:
        """Host name of `rank`, cut to the width of a column."""
        return clipped(self._host(rank), NAME_CHARACTERS_MAX)

    def rack(self, rank: int) -> str | None:
        """Rack name of `rank`, if the cluster names it."""
        hosts = self.run.cluster.hosts if self.run.cluster else ()
        return next((host.rack for host in hosts if host.name == self._host(rank)), None)

    def _host(self, rank: int) -> str:
        return self.run.hosts[rank] if rank < len(self.run.hosts) else f"rank {rank}"

    @property
    def candidates(self) -> tuple[Candidate, ...]:
        """The planner's candidates, or its choice alone, with measured times where a comparison has them."""
        plan = self.run.plan
        planned = plan.evidence.candidates if plan else ()
        if plan and not planned and plan.predicted_step_s > 0:
            planned = (Candidate(label=plan.label, predicted_step_s=plan.predicted_step_s),)
        compared = self.comparison.candidates if self.comparison else ()
        merged = {candidate.label: candidate for candidate in planned}
        merged.update((candidate.label, candidate) for candidate in compared)
        return tuple(merged.values())


def load(directory: Path, *, runs: bool = False) -> Material:
    """Read a trace directory; if a file is truncated, whole records are used, and `notes` reports it, unless the job still `runs`.

    Raises ArtefactError: no such directory, `run.json` missing or invalid, a file of a newer version.
    """
    if not directory.is_dir():
        raise ArtefactError(
            f"{directory} is not a directory\nhint: give the one that `hocket run --trace DIR` wrote"
        )
    read = trace.read(directory)
    run = read.run
    if run.world > WORLD_MAX:
        raise ArtefactError(
            f"{directory / RUN_FILE}: a world of {run.world} ranks: a report shows 1 to {WORLD_MAX}"
        )
    notes: list[str] = []
    records: list[Records] = []
    clock_errors_ns = []
    missing: list[int] = []
    metrics = []
    for rank in range(run.world):
        own = read.rank_records(rank)
        records.append(own.records)
        clock_errors_ns.append(own.clock_error_ns)
        if own.missing:
            missing.append(rank)
        notes += _not_whole(records_file(directory, rank).name, own, runs=runs)
        metrics.append(_metrics(metrics_file(directory, rank), notes, runs=runs))
    if missing:
        notes.append(f"No records of rank {', '.join(map(str, missing))}: rank-N.hktrace is missing.")
    return Material(
        directory,
        run,
        tuple(records),
        tuple(clock_errors_ns),
        tuple(metrics),
        tuple(read_usage(directory, rank) for rank in range(run.world)),
        _comparison(directory / "comparison.json"),
        read.changes(),
        read.members_changes(),
        read.goodput(),
        tuple(notes),
        runs,
    )


def _not_whole(name: str, own: RankRecords, *, runs: bool) -> list[str]:
    """Return a sentence for each incomplete part."""
    notes = []
    if own.truncated and not runs:
        notes.append(f"{name} is truncated: its {len(own.records)} whole records are shown.")
    notes += [f"{name} {limit}." for limit in own.limits]
    if own.dropped and own.end == "whole":
        notes.append(f"{name}: {own.dropped} records did not fit the recorder's buffer and are missing.")
    return notes


def number(value: object) -> float | None:
    """Return `value` as a finite float, else None."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)


def _metrics(path: Path, notes: list[str], *, runs: bool) -> tuple[dict[str, Any], ...]:
    """Return the objects of a metrics file up to the first line that is not one."""
    if not path.exists():
        return ()
    rows = []
    lines = path.read_bytes().splitlines()
    for position, line in enumerate(lines, 1):
        try:
            rows.append(typed.of_json(line.replace(b"NaN", b"null"), dict[str, Any]))
        except MALFORMED:
            if runs and position == len(lines):
                break
            notes.append(
                f"{path.name}: line {position} is not whole; the {len(rows)} steps before it are shown."
            )
            break
    return tuple(rows)


def _comparison(path: Path) -> Comparison | None:
    if not path.exists():
        return None
    try:
        read = typed.of_json(path.read_bytes(), Comparison)
    except OSError as error:
        raise ArtefactError(f"{path} cannot be read: {error.strerror}") from None
    except MALFORMED as error:
        raise ArtefactError(
            f"{path} is not a comparison: {why(error)}\nhint: remove it, or run the comparison again"
        ) from None
    strategies = (structs.replace(s, label=clipped(s.label, NAME_CHARACTERS_MAX)) for s in read.strategies)
    metric_name = clipped(read.metric_name, NAME_CHARACTERS_MAX)
    return structs.replace(read, strategies=tuple(strategies), metric_name=metric_name)
