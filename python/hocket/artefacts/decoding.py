"""Decoding of files: exceptions that parsers raise for malformed bytes, and their reasons in words.

Parsers of JSON and TOML have an exception for malformed text. But a number of thousands of digits is a plain ValueError, text that
is no UTF-8 a UnicodeDecodeError, and deep nesting a RecursionError. A reader of foreign files catches all of them.
"""

from __future__ import annotations

import errno
import re
import sys
import tomllib
from io import BufferedIOBase
from pathlib import Path
from typing import Any

import msgspec

MALFORMED = (msgspec.MsgspecError, ValueError, RecursionError)
"""Exceptions that msgspec, `json` and `tomllib` raise for bytes that are no data."""

FILE_BYTES_MAX = 1 << 30
"""Size limit of a file that is read as a whole: /dev/zero has no end."""

PIECE_BYTES = 1 << 20

DEEP_KEY = re.compile(rb"""(?<![\w-])(?:(?:[\w-]+|"[^"\n]*"|'[^'\n]*')[ \t]*\.[ \t]*){128}""", re.ASCII)
"""Key of so many parts that `tomllib` takes time that grows with their square."""


def why(error: BaseException) -> str:
    """Return the reason, a phrase, why bytes are no data, from one of `MALFORMED`.

    >>> why(RecursionError("maximum recursion depth exceeded"))
    'it is nested too deeply'
    """
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    if type(error) is ValueError:  # of `int`: each parser has a kind of its own for all else
        return f"a number has more than {sys.get_int_max_str_digits()} digits"
    return str(error)


def clipped(text: str, most: int = 80) -> str:
    """Return a part of a file for a message: its beginning, if it is long.

    >>> clipped("x" * 100, 3)
    'xxx…'
    """
    return text if len(text) <= most else f"{text[:most]}…"


def bytes_of(path: Path) -> bytes:
    """Return a file's content. Raises OSError, also if it has more bytes than FILE_BYTES_MAX."""
    with path.open("rb") as file:
        return bytes_from(file, FILE_BYTES_MAX)


def bytes_from(file: BufferedIOBase, most: int) -> bytes:
    """Return the rest of an open file, which is read piece by piece: one large read would allocate all of `most` first.

    Raises OSError, also if there are more bytes than `most`.
    """
    pieces, size = [], 0
    try:
        while piece := file.read(PIECE_BYTES):
            pieces.append(piece)
            size += len(piece)
            if size > most:
                raise OSError(errno.EFBIG, f"it has more than {most} bytes")
        return b"".join(pieces)
    except MemoryError:
        raise OSError(errno.ENOMEM, "it does not fit into memory") from None


def text_of(path: Path) -> str:
    """Return a text file's content, without the byte order mark that Windows puts in front.

    Raises OSError, and ValueError if the file is no UTF-8.
    """
    return bytes_of(path).decode("utf-8-sig")


def toml_of(data: bytes) -> dict[str, Any]:
    """Return the tree of a TOML file. Raises one of MALFORMED."""
    if DEEP_KEY.search(data):
        raise RecursionError
    # Windows' editors put a byte order mark in front.
    return tomllib.loads(data.decode("utf-8-sig"))


def unreadable(error: OSError | ValueError) -> str:
    """Return the reason, a phrase, why `text_of` failed."""
    return error.strerror or str(error) if isinstance(error, OSError) else "it is not text"
