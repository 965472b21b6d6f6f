"""Experience of jobs with plans: a file of lines, each a job's cluster and model, or one of its trials.

Trials follow the line of their job. Ranks of a trial's plan are places of the cluster: its hosts have as many slots as the job had
ranks on them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from hocket import __version__, typed
from hocket.artefacts.cluster import Cluster
from hocket.artefacts.decoding import MALFORMED, bytes_of, why
from hocket.artefacts.numbers import Real
from hocket.artefacts.plan import Plan
from hocket.artefacts.plan_check import check
from hocket.artefacts.profile import Profile
from hocket.artefacts.promise import Word
from hocket.errors import ArtefactError

VERSION = 1


class Trial(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="line", tag="trial"):
    """Plan, predicted time of its step, and the median of its measured steps with that median's standard error, in seconds."""

    plan: Plan
    predicted_s: Real | None = None
    measured_s: Real
    error_s: Real = 0.0


class Job(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="line", tag="job"):
    """Cluster and model as they were known, the promise that plans kept, and the version of Hocket."""

    version: int = VERSION
    hocket: str = __version__
    cluster: Cluster
    profile: Profile
    promise: Word


class Experience(Struct, frozen=True, kw_only=True):
    """Experience of one job."""

    job: Job
    trials: tuple[Trial, ...] = ()


_decoder = typed.json_decoder(Job | Trial)


def lines(experience: Experience) -> bytes:
    """Return the job and its trials as bytes of a file."""
    return b"".join(msgspec.json.encode(each) + b"\n" for each in (experience.job, *experience.trials))


def read(path: Path) -> tuple[Experience, ...]:
    """Return a file's jobs. Raises ArtefactError, with the place: the file is missing, damaged, truncated or of a newer version."""
    try:
        data = bytes_of(path)
    except OSError as error:
        raise ArtefactError(f"experience file {path} cannot be read: {error.strerror}") from None
    return parsed(data, name=f"experience file {path}")


def parsed(data: bytes, *, name: str) -> tuple[Experience, ...]:
    """Parse the bytes of a file; `name`: the file's name in messages."""
    found: list[tuple[Job, list[Trial]]] = []
    for where, line in _decoded(data.splitlines(), name):
        if isinstance(line, Job):
            found.append((line, []))
        elif found:
            check(line.plan, name=f"{where}: its plan")
            if line.measured_s <= 0 or line.error_s < 0:
                raise ArtefactError(
                    f"{where}: {line.measured_s} s, give or take {line.error_s} s, is no time"
                )
            found[-1][1].append(line)
        else:
            raise ArtefactError(f"{where} is a trial of no job: the line of its job is missing")
    if not found:
        raise ArtefactError(f"{name} is empty: it has no job")
    return tuple(Experience(job=job, trials=tuple(trials)) for job, trials in found)


def _decoded(read_lines: Iterable[bytes], name: str) -> Iterator[tuple[str, Job | Trial]]:
    for number, line in enumerate(read_lines, 1):
        where = f"{name}, line {number}"
        try:
            tree: Any = typed.of_json(line)
        except MALFORMED as error:
            raise ArtefactError(f"{where} is damaged or truncated: {why(error)}") from None
        version = tree.get("version", VERSION) if isinstance(tree, dict) else VERSION
        if isinstance(version, int) and version != VERSION and tree.get("line") == "job":
            raise ArtefactError(
                f"{where} has version {version}: this Hocket reads {VERSION}\n"
                "hint: use the Hocket that wrote it, or leave the file out"
            )
        try:
            yield where, _decoder.decode(line)
        except MALFORMED as error:
            raise ArtefactError(f"{where} is neither a job nor a trial: {why(error)}") from None
