"""Frames of the store's protocol, without I/O: a length of four bytes (big-endian), then that many bytes of JSON.

A decoder never holds more than one frame and one read; a length beyond the limit ends the connection.
"""

from __future__ import annotations

from hocket.errors import RendezvousError

HEADER_BYTES = 4
FRAME_BYTES_MAX = 16 << 20
"""Room for one gather of 1 KiB from each of 16 Ki ranks; a plan is below 1 MiB."""


class FrameError(RendezvousError):
    """Error: the other side sent bytes that are no frame, or a frame that is no message."""


def encode(payload: bytes) -> bytes:
    """Return the frame around `payload`; FrameError when it is empty or above FRAME_BYTES_MAX."""
    _check(len(payload))
    return len(payload).to_bytes(HEADER_BYTES, "big") + payload


class Frames:
    """Decoder that takes bytes as they arrive and returns payloads in order.

    >>> frames = Frames()
    >>> frames.feed(encode(b"{}")[:3])
    >>> frames.poll() is None
    True
    >>> frames.feed(encode(b"{}")[3:])
    >>> frames.poll()
    b'{}'
    """

    def __init__(self) -> None:
        self._held = bytearray()

    def feed(self, data: bytes) -> None:
        """Add received bytes; then call `poll` until it returns None."""
        self._held += data

    def poll(self) -> bytes | None:
        """Return the next complete payload, None if bytes are missing; FrameError for an invalid length."""
        if len(self._held) < HEADER_BYTES:
            return None
        size = int.from_bytes(self._held[:HEADER_BYTES], "big")
        _check(size)
        end = HEADER_BYTES + size
        if len(self._held) < end:
            return None
        payload = bytes(self._held[HEADER_BYTES:end])
        del self._held[:end]
        return payload


def _check(size: int) -> None:
    if not 0 < size <= FRAME_BYTES_MAX:
        raise FrameError(
            f"a frame of {size} bytes: frames.FRAME_BYTES_MAX is {FRAME_BYTES_MAX}, the least is 1"
        )
