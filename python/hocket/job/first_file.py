"""Reading of a file on rank 0 for all ranks, so that all decide alike whatever files the others have."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

import msgspec

from hocket import typed
from hocket.artefacts import files
from hocket.artefacts.cluster import Cluster
from hocket.artefacts.plan import Plan
from hocket.artefacts.tuning import Tuning
from hocket.errors import Error
from hocket.job.rendezvous import Job

Artefact = TypeVar("Artefact", Cluster, Plan, Tuning)


def of_rank_0(job: Job, what: str, path: str | None, kind: type[Artefact]) -> Artefact | None:
    """Return the content of rank 0's `path`, None if it has none; every rank must call this, with the same `what`.

    Raises:
        ArtefactError: rank 0's file cannot be read, or is invalid.
        RendezvousError: rank 0 gave up because of that.
    """
    given = None
    if job.rank == 0 and path is not None:
        try:
            given = msgspec.to_builtins(files.read(Path(path), kind))
        except Error as error:
            job.close(error.summary)
            raise
    given = job.store.gather(what, job.rank, job.world, given, job.settings.start_timeout_s)[0]
    return None if given is None else typed.of_builtins(given, kind)
