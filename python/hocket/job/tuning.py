"""Tuning for all ranks of a job: rank 0's, so that all choose alike whatever files the others have."""

from __future__ import annotations

from hocket.artefacts import shipped
from hocket.artefacts.tuning import Tuning
from hocket.job.first_file import of_rank_0
from hocket.job.rendezvous import Job


def agreed(job: Job) -> Tuning:
    """Return rank 0's HOCKET_TUNING, or the tuning that comes with Hocket; every rank must call this. Raises as `of_rank_0`."""
    given = of_rank_0(job, "tuning", job.settings.tuning, Tuning)
    return shipped.tuning() if given is None else given
