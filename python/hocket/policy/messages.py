"""Ops between two ranks: the k-th send from one to another meets the k-th receive there."""

from __future__ import annotations

from collections.abc import Sequence

from hocket.artefacts.dtypes import ITEM_BYTES
from hocket.policy import sources
from hocket.policy.handles import FLOATS, Buffer
from hocket.policy.recorder import Recorder


class MessageOps:
    """Messages between two ranks: `send, recv, recv_reduce`.

    `wire` is the element type on the wire (default: the buffer's own); another float type is converted while it is sent. `count`,
    one element of i64, determines at run time how many elements move. Both ends must hold the same count; the verifier
    proves it.
    """

    _recorder: Recorder

    def send(
        self, buffer: Buffer, to: int | Sequence[int], *, wire: str | None = None, count: Buffer | None = None
    ) -> None:
        """Send `buffer` to a rank, or to each rank of a group."""
        self._check(buffer, wire, count)
        draft, rank = self._recorder.draft, self._recorder.rank
        for peer in [to] if isinstance(to, int) else to:
            tag = draft.next_send(rank, self._recorder.peer(peer))
            draft.builder.send(
                rank,
                buffer.place,
                peer,
                tag,
                wire=wire or buffer.dtype,
                count=None if count is None else count.place,
                source=sources.line(),
            )

    def recv(
        self, into: Buffer, source: int, *, wire: str | None = None, count: Buffer | None = None
    ) -> Buffer:
        """Receive from a rank into `into`, whose elements are overwritten."""
        return self._receive(into, source, wire, count, None)

    def recv_reduce(
        self, into: Buffer, source: int | Sequence[int], op: str = "sum", *, wire: str | None = None
    ) -> Buffer:
        """Receive from a rank, or from each rank of a group in turn, and reduce into `into` with `op`."""
        for each in [source] if isinstance(source, int) else source:
            self._receive(into, each, wire, None, op)
        return into

    def _receive(
        self, into: Buffer, source: int, wire: str | None, count: Buffer | None, op: str | None
    ) -> Buffer:
        self._check(into, wire, count)
        draft, rank = self._recorder.draft, self._recorder.rank
        tag = draft.next_receive(self._recorder.peer(source), rank)
        draft.builder.recv(
            rank,
            into.place,
            source,
            tag,
            wire=wire or into.dtype,
            reduce=op,
            count=None if count is None else count.place,
            source=sources.line(),
        )
        return into

    def _check(self, buffer: Buffer, wire: str | None, count: Buffer | None) -> None:
        self._recorder.check(buffer, *([] if count is None else [count]))
        if wire is not None and wire not in ITEM_BYTES:
            raise sources.refusal(f"there is no element type `{wire}`\nhint: {', '.join(ITEM_BYTES)}")
        if wire not in (None, buffer.dtype) and not {wire, buffer.dtype} <= set(FLOATS):
            raise sources.refusal(f"{buffer.dtype} does not cross as {wire}: only floats convert")
        if count is not None and (count.dtype != "i64" or count.elements != 1):
            raise sources.refusal(f"a count is one element of i64, not {count!r}")
