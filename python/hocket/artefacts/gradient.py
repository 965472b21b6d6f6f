"""Gradient of a parameter, with the properties that matter for moving it."""

from __future__ import annotations

from math import prod

from msgspec import Struct

from hocket.artefacts.dtypes import ITEM_BYTES
from hocket.artefacts.numbers import Amount
from hocket.errors import UsageError


class _Array(Struct, frozen=True):
    """Gradient as an array in memory."""

    name: str
    shape: tuple[Amount, ...]
    dtype: str

    @property
    def elements(self) -> int:
        """Number of elements."""
        return prod(self.shape)

    @property
    def rows(self) -> int:
        """Length of the first axis; 0 if there is none. A sparse gradient leaves out whole rows."""
        return self.shape[0] if self.shape else 0

    @property
    def item_bytes(self) -> int:
        """Size of an element in bytes. Raises UsageError for an element type without a known size."""
        if self.dtype not in ITEM_BYTES:
            known = ", ".join(ITEM_BYTES)
            raise UsageError(f"profile: gradient {self.name} has dtype {self.dtype}: known are {known}")
        return ITEM_BYTES[self.dtype]

    @property
    def bytes(self) -> int:
        """Size in bytes. Raises UsageError like `item_bytes`."""
        return self.elements * self.item_bytes


class Gradient(_Array, frozen=True, kw_only=True):
    """Gradient of the parameter of that name. `sparse`: the framework makes it as the rows that a batch has touched."""

    sparse: bool = False

    @property
    def as_array(self) -> tuple[str, tuple[int, ...]]:
        """Element type and shape of the framework's own array over the gradient's memory."""
        return self.dtype, self.shape
