"""Cache of expensive, reproducible results, as files in a directory of the user's.

The name of an entry is a digest of everything that determines it. An entry begins with a digest of its own content: a damaged or
truncated entry is detected, removed and computed again. Entries appear whole or not at all, even with concurrent writers. When the
total size exceeds the limit, the least recently used entries are removed.

A digest does not tell who wrote an entry. A directory that others own or may write to is not used.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import hashlib
import logging
import os
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from hocket import __version__, _native
from hocket.job.private import is_own
from hocket.settings import Settings

log = logging.getLogger("hocket.cache")

SUFFIX, UNFINISHED, LOCK = ".hkcache", ".part", ".lock"
UNFINISHED_S = 3600.0
"""Age at which an unfinished file counts as left over by a dead process."""
LOCK_PAUSE_S, LOCK_PAUSE_S_MAX = 0.002, 0.05
"""Pauses between tries for a lock."""
READ = 0o055
"""Rights of others that do not matter here."""
DIGEST_BYTES = hashlib.sha256().digest_size


def build() -> bytes:
    """Return bytes that distinguish this build of Hocket from others."""
    extension = Path(_native.__file__).stat()
    return f"{__version__} {extension.st_size} {extension.st_mtime_ns}".encode()


def key(*parts: bytes) -> str:
    """Return the name of the entry that these parts, and this build, determine.

    >>> key(b"ab", b"c") == key(b"a", b"bc")
    False
    """
    digest = hashlib.sha256()
    for part in (build(), *parts):
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return digest.hexdigest()


@dataclass(frozen=True)
class Cache:
    """Cache of entries of up to `bytes_max` in all in `directory`; it keeps nothing if that is 0 or nothing can be written."""

    directory: Path
    bytes_max: int

    @classmethod
    def of(cls, settings: Settings) -> Cache:
        """Return the cache that the settings choose; default: `hocket` in the user's cache directory."""
        home = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
        directory = Path(home, "hocket") if settings.cache is None else Path(settings.cache)
        found = cls(directory.expanduser(), settings.cache_bytes)
        if found.directory.exists() and not found.is_own():
            _say_unused(found.directory)
        return found

    def is_own(self) -> bool:
        """Return whether the directory exists, and entries in it are this user's."""
        try:
            return is_own(self.directory.resolve(), others=READ)
        except OSError:
            return False

    def get(self, name: str, *, used: bool = True) -> bytes | None:
        """Return the content of an entry; None if it is missing or damaged. With `used=False`, the entry's age does not change."""
        path = self._path(name)
        if not self.is_own():
            return None
        try:
            entry = path.read_bytes()
        except OSError:
            return None
        digest, content = entry[:DIGEST_BYTES], entry[DIGEST_BYTES:]
        if hashlib.sha256(content).digest() != digest:
            self.remove(name)
            return None
        if used:
            with contextlib.suppress(OSError):
                os.utime(path)
        return content

    def put(self, name: str, content: bytes) -> bool:
        """Keep `content`; return whether it is kept now."""
        return self.put_all({name: content})

    def put_all(self, contents: Mapping[str, bytes]) -> bool:
        """Keep contents by name; return whether all are kept now: the last one is, unless it is too large.

        The directory is looked through once: for each of many, that takes longer than to write it.
        """
        kept = {
            name: content
            for name, content in contents.items()
            if len(content) + DIGEST_BYTES <= self.bytes_max
        }
        if not kept:
            return not contents
        try:
            self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not self.is_own():
                return False
            for name, content in kept.items():
                with tempfile.NamedTemporaryFile(dir=self.directory, suffix=UNFINISHED, delete=False) as file:
                    file.write(hashlib.sha256(content).digest() + content)
                Path(file.name).replace(self._path(name))
        except OSError:
            return False
        self._trim(next(reversed(kept)))
        return len(kept) == len(contents)

    @contextlib.contextmanager
    def locked(self, name: str, timeout_s: float) -> Iterator[bool]:
        """Hold the lock of that name, released at the latest when the process ends. False: another process has held it for
        `timeout_s` seconds, or nothing can be written."""
        with contextlib.ExitStack() as stack:
            yield self.bytes_max > 0 and self._lock(name, time.monotonic() + timeout_s, stack)

    def _lock(self, name: str, deadline_s: float, stack: contextlib.ExitStack) -> bool:
        pause_s = LOCK_PAUSE_S
        try:
            self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not self.is_own():
                return False
            file = stack.enter_context((self.directory / (name + LOCK)).open("wb"))
            while True:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    if time.monotonic() > deadline_s:
                        return False
                    time.sleep(pause_s)
                    pause_s = min(2 * pause_s, LOCK_PAUSE_S_MAX)
                else:
                    # Removed while held: a process that waits for this file finds the entry, and others make a new file.
                    stack.callback(Path(file.name).unlink, missing_ok=True)
                    return True
        except OSError:
            return False

    def remove(self, name: str) -> None:
        with contextlib.suppress(OSError):
            self._path(name).unlink(missing_ok=True)

    def entries(self) -> list[tuple[Path, os.stat_result]]:
        """Return all entries with their sizes, least recently used first."""
        found = []
        with contextlib.suppress(OSError):
            for path in self.directory.glob(f"*{SUFFIX}"):
                with contextlib.suppress(FileNotFoundError):
                    found.append((path, path.stat()))
        return sorted(found, key=lambda entry: entry[1].st_mtime_ns)

    def _trim(self, newest: str) -> None:
        # Time from the file system's clock, which sets the files' times.
        for path in (each for left in (UNFINISHED, LOCK) for each in self.directory.glob(f"*{left}")):
            with contextlib.suppress(OSError):
                if self._path(newest).stat().st_mtime - path.stat().st_mtime > UNFINISHED_S:
                    path.unlink()
        entries = self.entries()
        held = sum(stat.st_size for _, stat in entries)
        for path, stat in entries:
            if held <= self.bytes_max:
                return
            if path != self._path(newest):
                with contextlib.suppress(OSError):
                    path.unlink(missing_ok=True)
                held -= stat.st_size

    def _path(self, name: str) -> Path:
        return self.directory / (name + SUFFIX)


@functools.cache  # once in a process
def _say_unused(directory: Path) -> None:
    log.warning(
        "nothing is kept in %s, and nothing is taken from there: it is not yours, or others may write to it\n"
        "hint: chmod go-w %s, or set HOCKET_CACHE to a directory of your own",
        directory,
        directory,
    )
