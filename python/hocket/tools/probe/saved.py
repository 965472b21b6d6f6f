"""Finished steps of a probe, in a file beside its output: an interrupted command resumes from it when run again.

One JSON value per line: first the options and the hosts, which must be the same on resuming; then the steps, as they
end.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO, Literal

import msgspec

from hocket import typed
from hocket.artefacts.decoding import MALFORMED, why
from hocket.errors import UsageError
from hocket.tools.probe.options import ProbeOptions
from hocket.tools.probe.steps import Step

Tool = Literal["agents", "fping"]
"""Measuring tool: steps of one tool are useless to another."""


class Head(msgspec.Struct, frozen=True, kw_only=True):
    version: int = 2
    hosts: tuple[str, ...]
    options: ProbeOptions
    tool: Tool


def beside(output: Path) -> Path:
    """The file of an output's finished steps.

    >>> beside(Path("out/cluster.toml")).name
    'cluster.toml.unfinished'
    """
    return output.with_name(output.name + ".unfinished")


class Saved:
    """The file, open for appending; `steps` are the steps in the file when it was opened. A context manager; `finished` removes the
    file."""

    def __init__(
        self, path: Path, hosts: Sequence[str], options: ProbeOptions, *, tool: Tool = "agents"
    ) -> None:
        """Read an existing file, or begin a new one.

        Raises UsageError if the file is for other hosts or options, or cannot be written. Drops a truncated last line.
        """
        self._path = path
        head = Head(hosts=tuple(hosts), options=options, tool=tool)
        self.steps, whole = _read(path, head) if path.exists() else ([], 0)
        try:
            self._file: BinaryIO = path.open("r+b" if whole else "wb")
            self._file.truncate(whole)
            self._file.seek(whole)
            if not whole:
                self._line(head)
        except OSError as error:
            raise UsageError(f"{path} cannot be written: {error.strerror}") from None

    def __enter__(self) -> Saved:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def add(self, step: Step) -> None:
        """Append a step; it is on disk before this returns and the next is measured."""
        self._line(step)

    def finished(self) -> None:
        """Remove the file: the output is written."""
        self._path.unlink(missing_ok=True)

    def _line(self, what: Head | Step) -> None:
        self._file.write(msgspec.json.encode(what) + b"\n")
        self._file.flush()


def _read(path: Path, head: Head) -> tuple[list[Step], int]:
    """The steps, and the number of bytes in whole lines."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None
    whole = data.rfind(b"\n") + 1
    lines = data[:whole].splitlines()
    if not lines:
        return [], 0
    again = f"hint: remove {path} to begin anew"
    try:
        found = typed.of_json(lines[0], Head)
        steps = [typed.of_json(line, Step) for line in lines[1:]]
    except MALFORMED as error:
        raise UsageError(f"{path} is not of an interrupted probe: {why(error)}\n{again}") from None
    if found.version != head.version:
        raise UsageError(f"{path} has version {found.version}: this Hocket reads {head.version}\n{again}")
    if found.hosts != head.hosts:
        raise UsageError(
            f"{path} is of a probe of other hosts: {_difference(found.hosts, head.hosts)}\n{again}"
        )
    if (found.options, found.tool) != (head.options, head.tool):
        raise UsageError(f"{path} is of a probe with other options\n{again}")
    if [step.number for step in steps] != list(range(len(steps))):
        raise UsageError(f"{path} is damaged: its steps are not in a row\n{again}")
    return steps, whole


def _difference(before: Sequence[str], now: Sequence[str]) -> str:
    gone = [host for host in before if host not in now]
    new = [host for host in now if host not in before]
    parts = [f"without {', '.join(gone)}"] if gone else []
    parts += [f"with {', '.join(new)}"] if new else []
    return "the list is now " + (" and ".join(parts) if parts else "in another order")
