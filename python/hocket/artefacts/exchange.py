"""Exchange of ranks that step alone, as rank 0 saw it: a line of a trace's `exchanges.jsonl`."""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct

from hocket import typed
from hocket.artefacts.lines import append, read_lines


class Exchange(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One exchange of a fragment. Lengths are Euclidean, over the fragment's parameters; None: not finite, or unknown.

    Attributes:
        step: number of steps that ranks had made when the anchor took it.
        fragment: its first bucket.
        steps: number of those that ranks had stepped alone.
        drift: distance of ranks' own parameters to the anchor, root of the mean square over ranks.
        drift_max: that of the farthest rank.
        moved: length of the mean of what ranks have moved: the anchor's step at an outer rate of 1.
        agreement: squared length of that mean over the mean of squared lengths: 1 where ranks moved alike, 1 over their number
            where their moves have nothing in common.
        loss_first, loss_last: means of the losses that ranks logged in the first few steps from the anchor, and in the last quarter
            of the turn.
        taken: False: the anchor did not take it, as training diverged.
        late: number of ranks that came too late: it has what they had stepped by then.
    """

    step: int
    fragment: int
    steps: int
    drift: float | None
    drift_max: float | None
    moved: float | None
    agreement: float | None
    loss_first: float | None = None
    loss_last: float | None = None
    taken: bool = True
    late: int = 0


_decoder = typed.json_decoder(Exchange)


def append_exchange(directory: Path, exchange: Exchange) -> None:
    """Add an exchange. Raises ArtefactError when the file cannot be written."""
    append(exchanges_file(directory), exchange)


def read_exchanges(directory: Path) -> tuple[Exchange, ...]:
    """Return a trace's exchanges in their order; none without a file. A last line that was cut off is left out.

    Raises ArtefactError when another line is no exchange.
    """
    return read_lines(exchanges_file(directory), _decoder.decode, "an exchange of ranks that step alone")


def exchanges_file(directory: Path) -> Path:
    """Return the path of exchanges, which rank 0 writes, one `Exchange` a line."""
    return directory / "exchanges.jsonl"
