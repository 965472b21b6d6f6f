"""Journal from which `hocket run --resume` goes on where a coordinator has died: its job, and its decisions.

The file is a line of JSON, then the native machine's records since the members last met. The line changes when members meet again
or a process joins: then the file is replaced, in one step. A crash can only tear the last record, which no member has heard of. The
writer holds a lock on the file, which has the job's secret and which only its user can read. When the disk fails, the job goes on
without a journal, and the file is removed: another launcher would resume from decisions that no longer hold.
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
    """Address, command and settings of a job that members reach, and the limits of its size.

    Attributes:
        host: the launcher's, as ranks reach it.
        coordinator: `HOST:PORT`.
        secret: the job's, in hexadecimal.
        command: command of a rank.
        settings: environment variables of ranks.
        members_min, members_max: number of members that the job may have.
        replacements: first number of the launcher's replacements for lost members, and the first number beyond them.
        job: as in `Entrance`.
    """

    host: str
    coordinator: str
    secret: str
    command: tuple[str, ...]
    settings: dict[str, str]
    members_min: int
    members_max: int
    replacements: tuple[int, int] = (0, 0)
    job: str = ""


class Generation(msgspec.Struct, frozen=True, kw_only=True):
    """Members that meet, by rank. `holders`: members that had the job's state before; `next_member`: number of the next process to
    join; `epochs_before`: number of epochs in earlier generations."""

    number: int
    members: tuple[int, ...]
    holders: tuple[int, ...]
    next_member: int
    epochs_before: int


class _Head(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    served: Served
    generation: Generation


class Journal:
    """Open, locked journal. A write is on the disk when its call returns, unless the journal is `lost`."""

    def __init__(self, path: Path, file: BinaryIO, served: Served, generation: Generation) -> None:
        """Use `create` or `reopen` instead."""
        self.path, self.served, self.generation = path, served, generation
        self._file = file
        self.lost = False
        """True if writing has failed: no launcher can resume from it any more."""

    @classmethod
    def create(cls, path: Path, served: Served, generation: Generation) -> Journal:
        """Create a journal. UsageError: the file exists, or cannot be created."""
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
        """Open the journal of a coordinator that died, without a torn record. UsageError: the coordinator lives, or this is no
        journal."""
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
    def begun(self) -> bool:
        """True if the job has begun: its founders have met."""
        return self.generation.number > 0 or bool(self.records)

    @property
    def records(self) -> bytes:
        self._file.seek(0)
        self._file.readline()
        return self._file.read()

    def append(self, record: bytes) -> None:
        def write() -> None:
            self._file.write(record)
            self._file.flush()
            os.fsync(self._file.fileno())

        self._keep(write)

    def change(self, generation: Generation) -> None:
        """Write a generation that meets, and begins without records; or the same one, which awaits another process."""

        def write() -> None:
            records = self.records if generation.number == self.generation.number else b""
            head = _Head(served=self.served, generation=generation)
            before, self._file = self._file, _replaced(self.path, head, records)
            before.close()

        self._keep(write)
        self.generation = generation

    def _keep(self, write: Callable[[], None]) -> None:
        """Call `write`. The first failure is logged, and ends all writing."""
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
        """Remove the file. Return the text to add to the log line if that fails, too."""
        try:
            self.path.unlink(missing_ok=True)
        except OSError as error:
            return f"\nhint: it cannot be removed, either ({error.strerror}); do not resume from it"
        return ""

    def close(self, *, done: bool) -> None:
        """Close the file. `done`: no launcher can resume from it, so it is removed."""
        if done and not self.lost:
            self.path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # a lost journal may have data in its buffer
            self._file.close()


def _replaced(path: Path, head: _Head, records: bytes) -> BinaryIO:
    """Replace the file by one with that head and these records. Return it, open and locked."""
    # A process that sees the name finds the whole file, locked; no other user may read it.
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
