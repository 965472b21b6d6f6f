"""Job to look at: the only one of this user on this host, the one of a process, or one at an address."""

from __future__ import annotations

import os

from hocket.errors import UsageError
from hocket.job.live.files import LiveJob, live_jobs
from hocket.job.store import address as addresses
from hocket.start.coordinator import checked_secret


def job_of(text: str | None) -> LiveJob:
    """Return the job that a user names: by the number of a process, by `ADDRESS:PORT` of its store, or not at all.

    UsageError: there is none, there are several, or the secret of the one at the address is not known.
    """
    if text is not None and not text.isdigit():
        return _at(text)
    jobs = live_jobs()
    wanted = [each for each in jobs if text is None or each.process == int(text)]
    if len(wanted) == 1:
        return wanted[0]
    listed = "".join(f"\n  {each}" for each in jobs)
    if not jobs:
        raise UsageError(
            "no job of yours runs on this machine, or none that reports how it gets on\n"
            "hint: run this as the same user where `hocket run` or a rank runs, with the same TMPDIR; a job reports unless "
            "HOCKET_LIVE_INTERVAL_S is 0, and a process that trains alone, without a launcher, does not"
        )
    if not wanted:
        raise UsageError(f"{text} is no job of yours on this machine\nhint: these are:{listed}")
    raise UsageError(f"there are {len(wanted)} jobs on this machine\nhint: name one by its number:{listed}")


def _at(text: str) -> LiveJob:
    host, port = addresses.split(text, variable="JOB")
    secret = os.environ.get("HOCKET_SECRET")
    store = addresses.join(host, port)
    if secret is None:
        known = next((each for each in live_jobs() if each.store == store), None)
        if known is not None:
            return known
        raise UsageError(
            f"the secret of the job at {store} is not known here\n"
            "hint: give HOCKET_SECRET, the job's; or look on a host of the job, where `hocket top` finds it"
        )
    checked_secret(secret, "HOCKET_SECRET")
    return LiveJob(process=0, launches=False, store=store, secret=secret, command=(f"job at {store}",))
