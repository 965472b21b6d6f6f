"""One tuning for all ranks of a job: rank 0's, so that all choose alike whatever files the others have."""

from __future__ import annotations

from pathlib import Path

import msgspec

from hocket.artefacts import files, shipped
from hocket.artefacts.tuning import Tuning
from hocket.errors import Error
from hocket.launch.rendezvous import Job


def agreed(job: Job) -> Tuning:
    """That of rank 0's HOCKET_TUNING, else the one that comes with Hocket; every rank must call it.

    Raises:
        ArtefactError: rank 0's file cannot be read, or is none.
        RendezvousError: rank 0 gave up for that.
    """
    path, given = job.settings.tuning, None
    if job.rank == 0 and path is not None:
        try:
            given = msgspec.to_builtins(files.read(Path(path), Tuning))
        except Error as error:
            job.close(str(error).partition("\n")[0])
            raise
    given = job.store.gather("tuning", job.rank, job.world, given, job.settings.start_timeout_s)[0]
    return shipped.tuning() if given is None else msgspec.convert(given, Tuning)
