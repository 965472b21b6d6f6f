"""Values of the store by key, of limited number and size."""

from __future__ import annotations

from msgspec import Raw

from hocket.job.store.frames import FRAME_BYTES_MAX

KEYS_MAX = 1 << 16
STORED_BYTES_MAX = 16 * FRAME_BYTES_MAX


class Values:
    """Values that clients have set."""

    def __init__(self) -> None:
        """Begin without values."""
        self._of: dict[str, Raw] = {}
        self._bytes = 0

    def get(self, key: str) -> Raw | None:
        """Return the value of a key, or None."""
        return self._of.get(key)

    def put(self, key: str, value: Raw) -> str | None:
        """Set a value; return why it cannot be kept, or None."""
        before = self._of.get(key)
        size = self._bytes - (0 if before is None else len(bytes(before))) + len(bytes(value))
        if before is None and len(self._of) >= KEYS_MAX:
            return f"the store is full: values.KEYS_MAX is {KEYS_MAX}"
        if size > STORED_BYTES_MAX:
            return f"the store is full: values.STORED_BYTES_MAX is {STORED_BYTES_MAX}"
        self._of[key] = value.copy()
        self._bytes = size
        return None
