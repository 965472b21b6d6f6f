"""Use of its machine by a rank's process while it ran: lines of a trace's `usage-N.jsonl`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from msgspec import Meta, Struct

from hocket import typed
from hocket.artefacts.lines import append, read_lines

Size = Annotated[int, Meta(ge=0)]


class Usage(Struct, frozen=True, kw_only=True):
    """One look at a process.

    Attributes:
        at_s: since the first look, in seconds.
        resident_bytes: memory of the process; `most_bytes`: the most that it had until then.
        processor_s: time of all its threads on processors, since it began.
        cores: number of processors that the process may use.
    """

    at_s: Annotated[float, Meta(ge=0)]
    resident_bytes: Size
    most_bytes: Size
    processor_s: Annotated[float, Meta(ge=0)]
    cores: Annotated[int, Meta(ge=1)]


_decoder = typed.json_decoder(Usage)


def usage_file(directory: Path, rank: int) -> Path:
    """Return the path of what the process of a rank took of its machine, one `Usage` a line."""
    return directory / f"usage-{rank}.jsonl"


def append_usage(directory: Path, rank: int, usage: Usage) -> None:
    """Add a look. Raises ArtefactError when the file cannot be written."""
    append(usage_file(directory, rank), usage)


def read_usage(directory: Path, rank: int) -> tuple[Usage, ...]:
    """Return the looks in their order; none without a file. A last line that was cut off is left out.

    Raises ArtefactError when another line is no look.
    """
    return read_lines(usage_file(directory, rank), _decoder.decode, "what a process took of its machine")


def busy_cores(usage: Sequence[Usage]) -> float | None:
    """Return how many processors the process kept busy on average between the first look and the last; None: too few looks.

    >>> first = Usage(at_s=0.0, resident_bytes=1, most_bytes=1, processor_s=2.0, cores=4)
    >>> busy_cores([first, Usage(at_s=4.0, resident_bytes=1, most_bytes=1, processor_s=8.0, cores=4)])
    1.5
    """
    if len(usage) < 2 or usage[-1].at_s <= usage[0].at_s:
        return None
    return max(0.0, usage[-1].processor_s - usage[0].processor_s) / (usage[-1].at_s - usage[0].at_s)
