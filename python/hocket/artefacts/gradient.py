"""A parameter's gradient, with the properties that matter for moving it."""

from __future__ import annotations

from math import prod

from msgspec import Struct

from hocket.artefacts.dtypes import ITEM_BYTES
from hocket.errors import UsageError


class Gradient(Struct, frozen=True):
    """The gradient of the parameter of that name."""

    name: str
    shape: tuple[int, ...]
    dtype: str

    @property
    def elements(self) -> int:
        """Number of elements."""
        return prod(self.shape)

    @property
    def item_bytes(self) -> int:
        """Size of an element in bytes. Raises UsageError for an element type without a known size."""
        if self.dtype not in ITEM_BYTES:
            known = ", ".join(ITEM_BYTES)
            raise UsageError(f"profile: gradient {self.name} has dtype {self.dtype}: known are {known}")
        return ITEM_BYTES[self.dtype]

    @property
    def bytes(self) -> int:
        """Size in bytes. Raises UsageError as `item_bytes`."""
        return self.elements * self.item_bytes
