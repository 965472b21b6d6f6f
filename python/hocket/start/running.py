"""Elastic jobs of this user whose launchers run on this machine, for commands that connect to them.

Each launcher keeps a file in the user's private directory (`job.live.files`), since the file holds the job's secret.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from hocket import typed
from hocket.artefacts.decoding import MALFORMED, bytes_of, why
from hocket.errors import UsageError
from hocket.job.live.files import found, kept
from hocket.job.store import address as addresses
from hocket.settings import Settings
from hocket.start.variables import OF_A_RANK

SUFFIX = "json"

log = logging.getLogger("hocket.run")


class RunningJob(msgspec.Struct, frozen=True, kw_only=True):
    """Running job. `process`: its launcher's. `command`: command of a rank. `settings`: environment variables of its ranks."""

    process: int
    coordinator: str
    secret: str
    command: tuple[str, ...]
    settings: dict[str, str] = {}

    def __str__(self) -> str:
        return f"{self.process}: {shlex.join(self.command)}"

    @property
    def of_newcomer(self) -> dict[str, str | None]:
        """Variables of a process that is to join the job; None: the process must not have that one."""
        return {
            **dict.fromkeys(OF_A_RANK),
            "PYTHONUNBUFFERED": "1",
            **self.settings,
            "HOCKET_JOINS": "1",
            "HOCKET_COORDINATOR": self.coordinator,
            "HOCKET_SECRET": self.secret,
        }

    def for_newcomer(self, environment: Mapping[str, str]) -> dict[str, str]:
        """Return the environment of a process that is to join the job, based on that of this one."""
        changed = {**environment, **self.of_newcomer}
        return {name: value for name, value in changed.items() if value is not None}


@contextlib.contextmanager
def announced(
    coordinator: str, secret: str, command: Sequence[str], settings: Settings
) -> Iterator[RunningJob]:
    """Announce the job that this process launches, so that others find it. The job runs even if no file can be kept."""
    job = RunningJob(
        process=os.getpid(),
        coordinator=coordinator,
        secret=secret,
        command=tuple(command),
        # Files of this machine are not on others, and newcomers need none of them.
        settings=dataclasses.replace(
            settings, plan=None, cluster=None, tuning=None, trace=None
        ).to_environment(),
    )
    with contextlib.ExitStack() as stack:
        try:
            name = f"{job.process}-{job.coordinator.rpartition(':')[2]}"
            path = stack.enter_context(kept(name, job, SUFFIX))
            log.info("others may join with `hocket join --job-file %s`", path)
        except (OSError, UsageError) as error:
            log.warning("`hocket leave` and `hocket join` will not find this job: %s", error)
        yield job


def running() -> tuple[RunningJob, ...]:
    """Return the jobs that run now, by their launchers' process."""
    return tuple(sorted(found(SUFFIX, RunningJob), key=lambda job: job.process))


def secret_of(coordinator: str) -> str | None:
    """Return the secret of the job of this user whose coordinator is at that address of this machine; None: there is none."""
    with contextlib.suppress(OSError, UsageError):
        wanted = _where(coordinator)
        return next((each.secret for each in running() if _where(each.coordinator) == wanted), None)
    return None


def _where(coordinator: str) -> tuple[str, int]:
    host, port = addresses.split(coordinator)
    return "localhost" if addresses.is_loopback(host) else host, port


def read(path: Path) -> RunningJob:
    """Return the job in a file, which may be another machine's. UsageError: the file is none."""
    try:
        return typed.of_json(bytes_of(path), RunningJob)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None
    except MALFORMED as error:
        raise UsageError(
            f"{path} is no file of an elastic job: {why(error)}\n"
            "hint: `hocket run --elastic` and `hocket coordinator` keep one while they run, and say where"
        ) from None


def chosen(process: int | None) -> RunningJob:
    """Return the job of that launcher, or the only one. UsageError: there is none, or there are several."""
    jobs = running()
    wanted = [job for job in jobs if process in (None, job.process)]
    if len(wanted) == 1:
        return wanted[0]
    listed = "".join(f"\n  {job}" for job in jobs)
    if not jobs:
        raise UsageError(
            "no elastic job of yours was started on this machine, or it has ended\n"
            "hint: run this where `hocket run --elastic` or `hocket coordinator` runs, as the same user"
        )
    if not wanted:
        raise UsageError(
            f"{process} is no launcher or coordinator of an elastic job of yours on this machine; these are:{listed}"
        )
    raise UsageError(f"there are {len(wanted)} elastic jobs:{listed}\nhint: choose one by --job")
