"""Damaged files for tests of parsers, drawn by Hypothesis, which prints and shrinks the first one that a parser fails on."""

from collections.abc import Sequence

from hypothesis import strategies as st

EDITS_MAX = 4
PIECE_BYTES_MAX = 9


@st.composite
def damaged(draw: st.DrawFn, whole: bytes, others: Sequence[bytes] = ()) -> bytes:
    """`whole` with up to four places changed, removed, doubled or filled from `others`, or cut off.

    Without edits it is the whole file, towards which Hypothesis shrinks.
    """
    data = bytearray(whole)
    for _ in range(draw(st.integers(0, EDITS_MAX))):
        at, length = draw(st.integers(0, len(data))), draw(st.integers(0, 3))
        pieces = [st.binary(max_size=length), st.just(bytes(data[at : at + PIECE_BYTES_MAX] * 2))]
        pieces += [st.integers(0, len(each)).map(_piece(each, length)) for each in others]
        data[at : at + length] = draw(st.one_of(pieces))
    if draw(st.integers(0, 9)) == 9:
        del data[draw(st.integers(0, len(data))) :]
    return bytes(data)


def _piece(of: bytes, length: int):
    return lambda at: of[at : at + length]
