"""Ops on a rank's own memory."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import SupportsFloat

from hocket.artefacts.dtypes import ITEM_BYTES
from hocket.policy import sources
from hocket.policy.handles import FLOATS, Buffer
from hocket.policy.kernels import Kernel, builtin
from hocket.policy.recorder import Recorder


class DataOps:
    """Ops on one rank's buffers: `alloc, state, copy, cast, add, sub, mul, scale, clamp, fill, reduce, apply, split, concat`.

    An op that produces elements returns their buffer: a new one, or `into`, which may be an operand.
    """

    _recorder: Recorder

    def alloc(self, elements: int, dtype: str = "f32") -> Buffer:
        """Return a new buffer of `elements` elements, undefined until written."""
        self._known(dtype)
        return self._recorder.alloc(int(elements), dtype)

    def state(
        self,
        name: str,
        like: Buffer | None = None,
        *,
        elements: int = 0,
        dtype: str = "f32",
        shared: bool = False,
        starts_as: Buffer | None = None,
    ) -> Buffer:
        """Return a buffer that keeps its elements from step to step.

        Args:
            name: unique within the bucket.
            like: the buffer that determines length and type; otherwise `elements` and `dtype` do.
            elements: its length.
            dtype: its element type.
            shared: whether the verifier must prove its elements equal on all ranks.
            starts_as: a slice of the bucket with its initial values when training starts; default: zeros.
        """
        like = like if starts_as is None else starts_as
        if like is not None:
            self._recorder.check(like)
            elements, dtype = like.elements, like.dtype
        self._known(dtype)
        return self._recorder.state(name, int(elements), dtype, shared, starts_as)

    def copy(self, source: Buffer, into: Buffer | None = None) -> Buffer:
        """Copy `source`, converted to the type of `into` if that differs (rounded to nearest even)."""
        into = self._target(source, into, source.dtype)
        casts = source.dtype != into.dtype
        self._floats_if(casts, source, into)
        builder = self._recorder.draft.builder
        builder.copy(self._rank, source.place, into.place, casts=casts, source=sources.line())
        return into

    def cast(self, source: Buffer, dtype: str, into: Buffer | None = None) -> Buffer:
        """Convert `source` to another float type, rounded to nearest even."""
        self._known(dtype)
        self._recorder.check(source)
        return self.copy(source, self.alloc(source.elements, dtype) if into is None else into)

    def round(self, buffer: Buffer, dtype: str) -> Buffer:
        """Round in place to the nearest values of `dtype`; the buffer keeps its type.

        A rank uses this on its own copy of a value that others receive over a lossy link.
        """
        self._recorder.check(buffer)
        self._known(dtype)
        self._recorder.draft.builder.round(self._rank, dtype, buffer.place, source=sources.line())
        return buffer

    def reduce(self, source: Buffer, into: Buffer, op: str = "sum") -> Buffer:
        """`into = into ⊕ source`, where ⊕ is `sum`, `min` or `max`. A source of another float type is converted first."""
        self._recorder.check(source, into)
        self._recorder.same_length(source, into)
        self._floats_if(source.dtype != into.dtype, source, into)
        builder = self._recorder.draft.builder
        builder.reduce(self._rank, _reduction(op), source.place, into.place, source=sources.line())
        return into

    def add(self, left: Buffer, right: Buffer, into: Buffer | None = None) -> Buffer:
        """`left + right`."""
        self._recorder.check(left, right)
        self._recorder.same_length(left, right)
        if into is not None and into == right:
            left, right = right, left
        if into is None or into != left:
            into = self.copy(left, into)
        return self.reduce(right, into)

    def sub(self, left: Buffer, right: Buffer, into: Buffer | None = None) -> Buffer:
        """`left - right`."""
        return self._binary("sub", left, right, into)

    def mul(self, left: Buffer, right: Buffer, into: Buffer | None = None) -> Buffer:
        """`left · right`, element by element. To multiply by a number, use `scale`."""
        return self._binary("mul", left, right, into)

    def scale(self, buffer: Buffer, factor: SupportsFloat) -> Buffer:
        """Multiply in place by a constant."""
        self._recorder.check(buffer)
        self._floats_if(True, buffer)
        self._recorder.draft.builder.scale(self._rank, float(factor), buffer.place, source=sources.line())
        return buffer

    def clamp(
        self, buffer: Buffer, low: SupportsFloat, high: SupportsFloat, into: Buffer | None = None
    ) -> Buffer:
        """Clamp every element to the range from `low` to `high`."""
        self._recorder.check(buffer)
        target = self.alloc(buffer.elements, buffer.dtype) if into is None or into == buffer else into
        self.apply(f"clamp.{buffer.dtype}", [buffer], [target], low, high)
        return self.copy(target, into) if into is not None and into != target else target

    def fill(self, buffer: Buffer, value: SupportsFloat) -> Buffer:
        """Set every element to `value`."""
        self._recorder.check(buffer)
        self.apply(f"fill.{buffer.dtype}", [], [buffer], value)
        return buffer

    def apply(
        self,
        kernel: Kernel | str,
        inputs: Sequence[Buffer],
        outputs: Sequence[Buffer],
        *constants: SupportsFloat,
    ) -> None:
        """Run a kernel on whole slices: a built-in by name, or the user's. Inputs and outputs may share no elements."""
        found = builtin(kernel) if isinstance(kernel, str) else kernel
        self._recorder.check(*inputs, *outputs)
        found.check_call([each.dtype for each in inputs], [each.dtype for each in outputs])
        draft = self._recorder.draft
        if found.address is not None and draft.kernels.setdefault(found.name, found) != found:
            raise sources.refusal(f"two kernels are called `{found.name}`")
        number = draft.builder.kernel(
            found.name,
            elementwise=found.elementwise,
            updates=found.updates,
            joins=found.joins,
            constants=[float(each) for each in constants],
        )
        places = [each.place for each in inputs], [each.place for each in outputs]
        draft.builder.call(self._rank, number, *places, source=sources.line())

    def split(self, buffer: Buffer, parts: int) -> list[Buffer]:
        """Split into `parts` slices, as even as the number of elements allows. Part `i` belongs to member `i` of a group."""
        self._recorder.check(buffer)
        edges = [buffer.elements * at // parts for at in range(parts + 1)]
        return [buffer[a:b] for a, b in pairwise(edges)]

    def slice(self, buffer: Buffer, start: int, stop: int) -> Buffer:
        """`buffer[start:stop]`."""
        return buffer[start:stop]

    def concat(self, buffers: Sequence[Buffer]) -> Buffer:
        """Return a new buffer that concatenates all `buffers`, which have one element type."""
        self._recorder.check(*buffers)
        if not buffers or len({each.dtype for each in buffers}) > 1:
            raise sources.refusal("concat takes buffers of one type, at least one")
        whole = self.alloc(sum(each.elements for each in buffers), buffers[0].dtype)
        start = 0
        for each in buffers:
            self.copy(each, whole[start : start + each.elements])
            start += each.elements
        return whole

    @property
    def _rank(self) -> int:
        return self._recorder.rank

    def _binary(self, name: str, left: Buffer, right: Buffer, into: Buffer | None) -> Buffer:
        self._recorder.check(left, right)
        self._recorder.same_length(left, right)
        # A kernel's output must not overlap its inputs.
        own = into is not None and into.place[0] not in (left.place[0], right.place[0])
        target = into if own and into is not None else self.alloc(left.elements, left.dtype)
        self.apply(f"{name}.{left.dtype}", [left, right], [target])
        return self.copy(target, into) if into is not None and into != target else target

    def _target(self, source: Buffer, into: Buffer | None, dtype: str) -> Buffer:
        self._recorder.check(source)
        if into is None:
            return self.alloc(source.elements, dtype)
        self._recorder.check(into)
        self._recorder.same_length(source, into)
        return into

    def _known(self, dtype: str) -> None:
        if dtype not in ITEM_BYTES:
            raise sources.refusal(f"there is no element type `{dtype}`\nhint: {', '.join(ITEM_BYTES)}")

    def _floats_if(self, needed: bool, *buffers: Buffer) -> None:
        wrong = next((each for each in buffers if needed and each.dtype not in FLOATS), None)
        if wrong is not None:
            raise sources.refusal(
                f"{wrong.dtype} is no float, which this needs\nhint: use a kernel (`cx.apply`)"
            )


def _reduction(op: str) -> str:
    if op not in ("sum", "min", "max"):
        raise sources.refusal(f"there is no reduction `{op}`\nhint: sum, mean (in collectives), min or max")
    return op
