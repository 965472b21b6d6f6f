"""The file from which `hocket run --resume` goes on where a coordinator has died: what it was of, and what it had decided.

A line of JSON, then the records of the native machine since the members met last. The line changes when they meet again, or when
somebody comes: then the file is replaced, in one step. A crash can only tear the last record, which nobody has been told of.
Whoever writes holds a lock on the file. It has the job's secret, and only its user can read it. A job does not end with the disk
that its journal is on: it goes on without, and the file is removed, as another launcher would go on from what no longer holds.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import msgspec

from hocket import _native, typed
from hocket.artefacts.decoding import MALFORMED, why
from hocket.errors import UsageError

log = logging.getLogger("hocket.coordinator")


class Served(msgspec.Struct, frozen=True, kw_only=True):
    """What members reach, and how long they are waited for.

    Attributes:
        host: of the launcher, as ranks reach it.
        coordinator: `HOST:PORT`.
        secret: of the job, hexadecimal.
        command: of a rank.
        settings: of ranks, as environment variables.
        members_min, members_max: that the job may have.
        replacements: first number of processes that its launcher started in the place of others, and the first beyond them.
    """

    host: str
    coordinator: str
    secret: str
    command: tuple[str, ...]
    settings: dict[str, str]
    members_min: int
    members_max: int
    replacements: tuple[int, int] = (0, 0)


class Generation(msgspec.Struct, frozen=True, kw_only=True):
    """Members that meet, by rank. `holders`: those that had the job's state before; `next_member`: the number that the next process
    to join gets; `epochs_before`: of generations before."""

    number: int
    members: tuple[int, ...]
    holders: tuple[int, ...]
    next_member: int
    epochs_before: int


class _Head(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    served: Served
    generation: Generation


class Journal:
    """An open one, which is locked. Whatever is written is on the disk when the call ends, unless the journal is `lost`."""

    def __init__(self, path: Path, file: BinaryIO, served: Served, generation: Generation) -> None:
        """See `create` and `reopen`."""
        self.path, self.served, self.generation = path, served, generation
        self._file = file
        self.lost = False
        """Whether it could not be written: nobody can go on from it any more."""

    @classmethod
    def create(cls, path: Path, served: Served, generation: Generation) -> Journal:
        """A new one. UsageError: there is a file, or there cannot be one."""
        if path.exists():
            raise UsageError(
                f"{path} exists: it may be the journal of a job that still runs\n"
                f"hint: go on with that by `hocket run --resume {path}`, or remove the file"
            )
        try:
            return cls(
                path, _replaced(path, _Head(served=served, generation=generation), b""), served, generation
            )
        except OSError as error:
            raise UsageError(f"the journal {path} cannot be written: {error.strerror}") from None

    @classmethod
    def reopen(cls, path: Path) -> Journal:
        """That of a coordinator that has died, without what its death has torn. UsageError: it lives, or this is no journal."""
        try:
            file = path.open("r+b")
        except OSError as error:
            raise UsageError(f"the journal {path} cannot be read: {error.strerror}") from None
        with contextlib.ExitStack() as undo:
            undo.callback(file.close)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise UsageError(
                    f"the launcher that keeps the journal {path} still runs\nhint: end it first, or let it go on"
                ) from None
            line = file.readline()
            try:
                head = typed.of_json(line, _Head)
            except MALFORMED as error:
                raise UsageError(f"{path} is no journal of an elastic job: {why(error)}") from None
            try:
                _, whole = _native.read_journal(file.read())
            except UsageError as error:
                raise UsageError(f"{path}: {error}") from None
            file.truncate(len(line) + whole)
            file.seek(0, os.SEEK_END)
            undo.pop_all()
        return cls(path, file, head.served, head.generation)

    @property
    def records(self) -> bytes:
        """Of this generation."""
        self._file.seek(0)
        self._file.readline()
        return self._file.read()

    def append(self, record: bytes) -> None:
        """A decision that was made."""

        def write() -> None:
            self._file.write(record)
            self._file.flush()
            os.fsync(self._file.fileno())

        self._keep(write)

    def change(self, generation: Generation) -> None:
        """Members meet anew, and begin without records; or the same ones await another process."""

        def write() -> None:
            records = self.records if generation.number == self.generation.number else b""
            head = _Head(served=self.served, generation=generation)
            before, self._file = self._file, _replaced(self.path, head, records)
            before.close()

        self._keep(write)
        self.generation = generation

    def _keep(self, write: Callable[[], None]) -> None:
        """`write`, until that fails: then it is said, once."""
        if self.lost:
            return
        try:
            write()
        except OSError as error:
            self.lost = True
            log.warning(
                "the journal %s cannot be written: %s; the job goes on without it, and from now on no other launcher can take this "
                "one's place%s",
                self.path,
                error.strerror,
                self._removed(),
            )

    def _removed(self) -> str:
        """Remove what is there. What to say if that fails, too."""
        try:
            self.path.unlink(missing_ok=True)
        except OSError as error:
            return f"\nhint: it cannot be removed, either ({error.strerror}); do not resume from it"
        return ""

    def close(self, *, done: bool) -> None:
        """`done`: nobody can go on from it, so that it is removed."""
        if done and not self.lost:
            self.path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # what a lost one had in its buffer
            self._file.close()


def _replaced(path: Path, head: _Head, records: bytes) -> BinaryIO:
    """The file with that in it, open and locked."""
    # Whoever sees the name finds the whole file, which is locked; nobody else may read it.
    descriptor, name = tempfile.mkstemp(dir=path.absolute().parent, prefix=".")
    file = os.fdopen(descriptor, "r+b")
    with contextlib.ExitStack() as undo:
        undo.callback(file.close)
        undo.callback(Path(name).unlink, missing_ok=True)
        fcntl.flock(file, fcntl.LOCK_EX)
        file.write(msgspec.json.encode(head) + b"\n" + records)
        file.flush()
        os.fsync(file.fileno())
        Path(name).replace(path)
        parent = os.open(path.absolute().parent, os.O_RDONLY)
        try:
            os.fsync(parent)
        finally:
            os.close(parent)
        undo.pop_all()
    return file
