"""Libraries by their names; each is imported when a program first needs it."""

from __future__ import annotations

from collections.abc import Callable

from hocket.errors import UsageError
from hocket.job.rendezvous import Job
from hocket.libraries.call import Library, place
from hocket.policy.libraries import KNOWN
from hocket.refusals import LIBRARY, TLS, refused


def open_library(name: str, job: Job, ended: Callable[[], bool] = lambda: False) -> Library:
    """Open a library. `ended`: returns whether the job has, so that nobody is to be waited for.

    Raises UsageError when the name is unknown, the library is not installed, or it would send protected data in the
    clear.
    """
    if name not in KNOWN:
        raise UsageError(f"there is no library `{name}`\nhint: {', '.join(KNOWN)}")
    if job.settings.tls:
        raise refused(TLS, LIBRARY, what=place(job, name), instead="leave the collective to the native wire")
    return _mpi(job) if name == "mpi" else _torch(name, job, ended)


def _torch(backend: str, job: Job, ended: Callable[[], bool]) -> Library:
    from hocket.libraries.torch_distributed import TorchDistributed  # noqa: PLC0415  # loads torch

    return TorchDistributed(backend, job, ended)


def _mpi(job: Job) -> Library:
    from hocket.libraries.mpi import Mpi  # noqa: PLC0415  # loads mpi4py

    return Mpi(job)
