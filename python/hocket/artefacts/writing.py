"""Files that appear whole or not at all: they are written under another, unpredictable name, and then renamed."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path

from hocket.errors import UsageError


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a new, empty file beside `path`, which takes its place when the context ends, and is removed if it raises.

    In a directory that others write to, too, a predictable name could be a link of theirs to a file of this user's.
    A device, a pipe or a link, such as /dev/stdout, is not replaced: `path` itself is written then.

    Raises OSError.
    """
    if path.is_symlink() or (path.exists() and not path.is_file()):
        yield path
        return
    partial = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    os.close(os.open(partial, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o666))
    try:
        yield partial
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def write(path: Path, data: bytes) -> None:
    """Write a file, replacing one that is there. Raises OSError."""
    with replacing(path) as partial:
        partial.write_bytes(data)


def makeable(path: Path) -> Path:
    """Return the path if there can be such a directory to write to: fails before minutes are spent on its content.

    Raises UsageError.
    """
    there = next(
        each for each in (path.absolute(), *path.absolute().parents) if each.exists() or each.is_symlink()
    )
    if not there.is_dir():
        raise UsageError(f"{path} cannot be made: {there} is not a directory")
    if not os.access(there, os.W_OK | os.X_OK):
        raise UsageError(f"{path} cannot be made or written to: {there} does not let you write")
    return path
