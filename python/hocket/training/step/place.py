"""Place of a model's session in its job."""

from __future__ import annotations

from dataclasses import dataclass

from hocket import _native
from hocket.job.rendezvous import Job
from hocket.libraries.service import Service
from hocket.training.beside.spans import Spans
from hocket.training.memory.device import Lanes
from hocket.training.programs.source import Loaded, ProgramSource


@dataclass(frozen=True)
class Place:
    """Parts of a process that a session uses. `spans`: its trace, if one is written; `loaded`: called with each epoch's buckets."""

    source: ProgramSource
    job: Job
    engine: _native.Engine
    libraries: Service
    lanes: Lanes
    spans: Spans | None
    loaded: Loaded
