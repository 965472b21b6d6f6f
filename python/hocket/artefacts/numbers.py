"""Numbers in files, with the ranges in which others can calculate with them: beyond, a file is damaged or invented."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

Seconds = Annotated[float, Meta(ge=0, le=1e9)]
"""Time; 30 years are enough."""

Amount = Annotated[int, Meta(ge=0, le=1 << 50)]
"""Number of elements, bytes, steps or rows."""

Positive = Annotated[int, Meta(ge=1, le=1 << 50)]

Ranks = Annotated[int, Meta(ge=1, le=1 << 16)]
"""Number of ranks, whose own numbers have 16 bits."""

Share = Annotated[int, Meta(ge=0, le=1 << 16)]
"""Share, or a number of ranks where there may be none."""

Small = Annotated[int, Meta(ge=-(1 << 31), lt=1 << 31)]
"""Place, index or priority."""

BitPerS = Annotated[float, Meta(ge=1, le=1e18)]

BytesPerS = Annotated[float, Meta(ge=1, le=1e18)]

Factor = Annotated[float, Meta(ge=0, le=1e30)]

Real = Annotated[float, Meta(ge=-1e30, le=1e30)]
