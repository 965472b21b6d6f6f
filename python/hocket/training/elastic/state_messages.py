"""Messages between a rank that joins and each of those that give it the state, without I/O.

A message is a frame of JSON. One with `bytes` is followed by that many bytes of data, in frames of their own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta, Struct

from hocket import typed
from hocket.artefacts.plan import Outer
from hocket.job.store.frames import FrameError
from hocket.training.memory.state_parts import Described, StateBytes

DATA_BYTES = 1 << 20
"""Size of a frame of data."""
PART_BYTES_MAX = 1 << 40

T = TypeVar("T")

Count = Annotated[int, Meta(ge=0)]
Size = Annotated[int, Meta(ge=0, le=PART_BYTES_MAX)]


class Offers(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="op", tag="offers"):
    """First message of a rank that has the state: sizes of its parts. `trained`: the first so many parts change in steps; `outer`:
    the optimizer that makes these, where ranks step alone."""

    sizes: tuple[Size, ...]
    trained: Count
    outer: Outer | None = None


class Gives(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="op", tag="gives"):
    """A part as it is now. The source sends the gradients of each later step for it, if it is trained."""

    part: Count
    described: Described
    bytes: Size


class Ahead(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="op", tag="ahead"):
    """Sums of parts' gradients in the step under way. They may not be the last ones: a loss makes others, and so may the script."""

    parts: tuple[Count, ...]
    sizes: tuple[Size, ...]
    bytes: Size


class Steps(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="op", tag="steps"):
    """A step of the optimizer: numbers of its groups, and parts with the sizes of their gradients. `here`: parts whose gradients
    have come ahead; the others' follow. `behind`: bytes that the source had still to send when it made this."""

    rates: list[dict[str, Any]]
    parts: tuple[Count, ...]
    sizes: tuple[Size, ...]
    here: tuple[Count, ...]
    behind: Count
    bytes: Size


class Sums(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="op", tag="sums"):
    """Digests of parts as they are now."""

    digests: dict[Count, str]


class Meets(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="op", tag="meets"):
    """Last message: the source meets those that join, after so many steps of the job."""

    steps: Count


class Stops(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="op", tag="stops"):
    """Last message: why the source gives no more."""

    why: str


class Asks(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="op", tag="asks"):
    """Request of the joining rank for these parts, in this order."""

    parts: tuple[Count, ...]


FromSource = Offers | Gives | Ahead | Steps | Sums | Meets | Stops

_from_source: typed.Decoder[FromSource] = typed.json_decoder(FromSource)
_asks: typed.Decoder[Asks] = typed.json_decoder(Asks)


class Received(Struct, frozen=True):
    """Message with its data."""

    message: FromSource
    data: memoryview


class Inbox:
    """Messages of one source from its frames."""

    def __init__(self) -> None:
        self._message: FromSource | None = None
        self._data = bytearray()
        self._filled = 0

    def feed(self, payload: bytes) -> Received | None:
        """Return the message that this frame completes, or None. FrameError: a source sends no such frame."""
        if self._message is None:
            message = _read(_from_source, payload)
            size_bytes = message.bytes if isinstance(message, Gives | Ahead | Steps) else 0
            if not size_bytes:
                return Received(message, memoryview(b""))
            self._message, self._data, self._filled = message, bytearray(size_bytes), 0
            return None
        end = self._filled + len(payload)
        if end > len(self._data):
            raise FrameError(f"{end} bytes of data, where {len(self._data)} were announced")
        self._data[self._filled : end] = payload
        self._filled = end
        if end < len(self._data):
            return None
        message, self._message = self._message, None
        return Received(message, memoryview(self._data))


def frames_of(message: FromSource | Asks, arrays: Sequence[StateBytes] = ()) -> Iterator[bytes]:
    """Yield the payloads of a message's frames."""
    yield msgspec.json.encode(message)
    for each in arrays:
        for start in range(0, len(each), DATA_BYTES):
            yield each[start : start + DATA_BYTES].tobytes()


def read_asks(payload: bytes) -> Asks:
    """Decode a request. FrameError: it is none."""
    return _read(_asks, payload)


def _read(decoder: typed.Decoder[T], payload: bytes) -> T:
    try:
        return decoder.decode(payload)
    except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
        raise FrameError(f"a frame that nobody sends who gives or takes the state: {error}") from None
