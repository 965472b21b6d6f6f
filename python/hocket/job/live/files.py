"""Files by which observers on a host find this user's running jobs, in the user's private directory.

A file holds the job's secret. Whoever keeps it locks it for life: an unlocked file was left by a killed process, and is removed.
"""

from __future__ import annotations

import contextlib
import fcntl
import shlex
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from hocket import typed
from hocket.artefacts.decoding import MALFORMED
from hocket.errors import UsageError
from hocket.job.private import directory

SUFFIX = "live"

Entry = TypeVar("Entry", bound=msgspec.Struct)


class LiveJob(msgspec.Struct, frozen=True, kw_only=True):
    """Job that can be looked at.

    Attributes:
        process: id of the process that keeps the file: the launcher, or a rank.
        launches: True for a launcher.
        store: `HOST:PORT` of the store, as the process reaches it.
        secret: the job's.
        command: of the script, or of the launcher.
        generation: number of times that the ranks of an elastic job have met anew; they report at the last one's store.
        trace: absolute path of its trace directory; "": it writes none.
    """

    process: int
    launches: bool
    store: str
    secret: str
    command: tuple[str, ...]
    generation: int = 0
    trace: str = ""

    def __str__(self) -> str:
        return f"{self.process}: {shlex.join(self.command)}"


def traced(directory: str | Path | None) -> str:
    """Return the `trace` of a job whose setting that is."""
    return "" if directory is None else str(Path(directory).resolve())


@contextlib.contextmanager
def kept(name: str, entry: msgspec.Struct, suffix: str) -> Iterator[Path]:
    """Keep a file while the body runs. OSError, UsageError: it cannot be kept."""
    path = directory() / f"{name}.{suffix}"
    # A process that sees the name finds the whole file, locked.
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".", delete=False) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.write(msgspec.json.encode(entry))
        file.flush()
        Path(file.name).replace(path)
        try:
            yield path
        finally:
            path.unlink(missing_ok=True)


def found(suffix: str, kind: type[Entry]) -> list[Entry]:
    """Return the entries of running processes; files of others are removed."""
    entries = []
    for path in directory().glob(f"*.{suffix}"):
        with contextlib.suppress(FileNotFoundError), path.open("rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                with contextlib.suppress(*MALFORMED):  # a file of another version of Hocket
                    entries.append(typed.of_json(file.read(), kind))
            else:
                path.unlink(missing_ok=True)
    return entries


def live_jobs() -> tuple[LiveJob, ...]:
    """Return this user's jobs on this host, each once, by process: as its launcher keeps it if that is here, else its first rank;
    with the store of the latest meeting."""
    of_secret: dict[str, list[LiveJob]] = {}
    for each in found(SUFFIX, LiveJob):
        of_secret.setdefault(each.secret, []).append(each)
    return tuple(sorted(map(_one, of_secret.values()), key=lambda job: job.process))


def newest(job: LiveJob) -> LiveJob:
    """Return the job with the store at which its ranks have met last, as far as files of this host tell, if it can have any."""
    try:
        entries = found(SUFFIX, LiveJob)
    except (OSError, UsageError):
        return job  # there is no place for such files, or none that is safe
    return _one([*(each for each in entries if each.secret == job.secret), job])


def _one(entries: Sequence[LiveJob]) -> LiveJob:
    shown = min(entries, key=lambda each: (not each.launches, each.process))
    latest = max(entries, key=lambda each: each.generation)
    return msgspec.structs.replace(shown, store=latest.store, generation=latest.generation)
