"""`turns-N.json` of a trace: number of iterations whose gradients a rank made and applied, where gradients are merged or late."""

from __future__ import annotations

from pathlib import Path

import msgspec
from msgspec import Struct

from hocket import typed
from hocket.artefacts import writing
from hocket.artefacts.decoding import MALFORMED
from hocket.errors import ArtefactError


class TurnCounts(Struct, frozen=True, kw_only=True):
    """Counts of one rank, as it left the job.

    Attributes:
        made: iterations whose gradients were summed.
        applied: iterations of which all gradients were applied.
        saved_open: for each save of the model without them, the number of iterations whose gradients were made and not applied.
        extra_bytes: memory of slots after the first.
    """

    made: int
    applied: int
    saved_open: tuple[int, ...] = ()
    extra_bytes: int = 0


def turns_file(directory: Path, rank: int) -> Path:
    """Return the path of a rank's counts."""
    return directory / f"turns-{rank}.json"


def write_turns(directory: Path, rank: int, counts: TurnCounts) -> None:
    """Write a rank's counts, replacing earlier ones. Raises ArtefactError when that is not possible."""
    path = turns_file(directory, rank)
    try:
        writing.write(path, msgspec.json.encode(counts) + b"\n")
    except OSError as error:
        raise ArtefactError(f"{path} cannot be written: {error.strerror}") from None


def read_turns(directory: Path, rank: int) -> TurnCounts | None:
    """Return a rank's counts; None: it left none, or was interrupted while it wrote them."""
    try:
        return typed.of_json(turns_file(directory, rank).read_bytes(), TurnCounts)
    except (OSError, *MALFORMED):
        return None
