"""Directory, under the temporary one, that this user's processes share, and that no other user may read or change.

Its name is known to every user of the machine, so another one may have made it first, or a link in its place.
"""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

from hocket.errors import UsageError

TEMPORARY = (
    "set TMPDIR to a directory that you can write to; in a container whose files are read-only: --tmpfs /tmp"
)


def directory() -> Path:
    """Return the path of the directory, made if missing. UsageError: it cannot be made, or others could read or change it."""
    try:
        path = Path(tempfile.gettempdir(), f"hocket-{os.getuid()}")
    except OSError as error:
        raise UsageError(f"{error.strerror}\nhint: {TEMPORARY}") from None
    try:
        path.mkdir(mode=0o700, exist_ok=True)
        safe = is_own(path, others=0)
    except FileExistsError:  # something else has the name
        safe = False
    except OSError as error:
        raise UsageError(
            f"{path} cannot be made: {error.strerror}\nhint: set TMPDIR to a directory that you can write to"
        ) from None
    if not safe:
        raise UsageError(
            f"{path} is not a directory that only you can use, and Hocket keeps secrets of jobs and commands there\n"
            "hint: remove it, or set TMPDIR to another directory"
        )
    return path


def is_own(path: Path, *, others: int) -> bool:
    """Return whether `path` is this user's directory, not a link to one, on which others have no rights but `others`.

    Raises OSError.
    """
    found = path.lstat()
    foreign = found.st_mode & 0o077 & ~others
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not foreign
