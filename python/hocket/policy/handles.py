"""Handles that stand for data in traced handlers: slices of buffers that exist when the program runs.

A handle knows extents and types, never values. An operation that needs values is refused, with a hint.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from hocket.artefacts.dtypes import ITEM_BYTES
from hocket.policy import sources

if TYPE_CHECKING:
    from hocket.policy.recorder import Recorder

FLOATS = ("f64", "f32", "f16", "bf16")


class Buffer:
    """Elements `start..stop` of one buffer of one rank; `buffer[a:b]` is a slice of it."""

    def __init__(self, recorder: Recorder, number: int, start: int, stop: int, dtype: str) -> None:
        """Create a handle; only contexts do this."""
        self._recorder = recorder
        self._number = number
        self._start = start
        self._stop = stop
        self.dtype = dtype

    @property
    def elements(self) -> int:
        """Number of elements."""
        self._recorder.draft.knows_lengths = True
        return self._stop - self._start

    @property
    def bytes(self) -> int:
        """Size in bytes."""
        return self.elements * ITEM_BYTES[self.dtype]

    @property
    def place(self) -> tuple[int, int, int]:
        """(buffer, start, stop), as in programs.

        This is for tracing; handlers use `elements`, which notes that the length was used.
        """
        return self._number, self._start, self._stop

    def owned_by(self, recorder: Recorder) -> bool:
        """Return whether the buffer belongs to that rank's trace."""
        return self._recorder is recorder

    def __len__(self) -> int:
        """Number of elements."""
        return self.elements

    def __getitem__(self, at: slice) -> Buffer:
        """A slice with step one."""
        if not isinstance(at, slice):
            _refuse(
                "reads an element",
                "slice a buffer with `buffer[a:b]`; values are not known while a handler is traced",
            )
        start, stop, step = at.indices(self.elements)
        if step != 1:
            _refuse("slices with a step", "copy the parts that are wanted")
        return Buffer(
            self._recorder, self._number, self._start + start, self._start + max(start, stop), self.dtype
        )

    def __repr__(self) -> str:
        """A description for error messages."""
        return f"<{self.elements} {self.dtype} of %{self._number}[{self._start}:{self._stop}]>"

    def __bool__(self) -> bool:  # noqa: PLE0304  # it never returns
        """Refused: it would need values."""
        _refuse(
            "branches on a buffer",
            "branch on ranks, topology, agreed values or statistics; decide by values in a kernel (`cx.apply`)",
        )

    def __iter__(self) -> NoReturn:
        """Refused: it would need values."""
        _refuse("iterates over a buffer", "use `cx.split(buffer, n)` for parts")

    def __float__(self) -> NoReturn:
        """Refused: it would need values."""
        _refuse("takes a number out of a buffer", "use `cx.record` in `on_timer`, or a kernel (`cx.apply`)")

    __int__ = __index__ = __complex__ = __float__

    def __array__(self, *_: Any, **__: Any) -> NoReturn:
        """Refused: it would need values."""
        _refuse("calls NumPy on a buffer", "use `cx.add`, `cx.scale`, …, or a kernel (`cx.apply`)")

    def __setitem__(self, *_: Any) -> None:
        """Refused: changing memory is an op of the context."""
        _refuse("assigns to a buffer", "use `cx.copy(source, into)`")

    def _arithmetic(self, *_: Any) -> NoReturn:
        _refuse(
            "does arithmetic on a buffer",
            "use `cx.add`, `cx.sub`, `cx.mul`, `cx.scale`, or a kernel (`cx.apply`)",
        )

    def _comparison(self, *_: Any) -> NoReturn:
        _refuse(
            "compares a buffer",
            "compare ranks, topology, agreed values or statistics; compare values in a kernel (`cx.apply`)",
        )

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __neg__ = __abs__ = (
        _arithmetic
    )
    __iadd__ = __isub__ = __imul__ = __itruediv__ = __pow__ = __matmul__ = __rmatmul__ = _arithmetic
    __rtruediv__ = __rpow__ = __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = __divmod__ = __rdivmod__ = (
        _arithmetic
    )
    __and__ = __rand__ = __or__ = __ror__ = __xor__ = __rxor__ = __lshift__ = __rshift__ = __invert__ = (
        _arithmetic
    )
    __pos__ = __round__ = __trunc__ = __floor__ = __ceil__ = _arithmetic
    __lt__ = __le__ = __gt__ = __ge__ = _comparison

    def __eq__(self, other: object) -> bool:
        """Return whether both are the same slice; comparing with values is refused."""
        if not isinstance(other, Buffer):
            self._comparison()
        return self._recorder is other._recorder and self.place == other.place

    def __hash__(self) -> int:
        """Hash of the slice."""
        return hash((id(self._recorder), self.place))


class Gradient(Buffer):
    """One parameter's gradient: its slice of the bucket, name, shape and positions."""

    def __init__(
        self,
        recorder: Recorder,
        place: tuple[int, int, int],
        dtype: str,
        *,
        name: str,
        shape: tuple[int, ...],
        backward_order: int,
        forward_order: int,
    ) -> None:
        """Create a handle; only traces do this."""
        super().__init__(recorder, *place, dtype)
        self.name = name
        self.shape = shape
        self.backward_order = backward_order
        """Position in backward: 0 for the gradient that is produced first."""
        self.forward_order = forward_order
        """Position in forward: 0 for the gradient whose parameter the next forward needs first."""


def _refuse(what: str, instead: str) -> NoReturn:
    raise sources.refusal(f"{what}, which cannot be traced\nhint: {instead}")
