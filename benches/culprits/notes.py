"""Notes of the ranks of a job while one of them goes wrong. Times are from the monotonic clock, which all processes share."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path

import msgspec

TO_WATCH = "to watch"
"""File that keeps ranks from going wrong until an observer of the job has looked at it."""
TICK_S = 0.01


class Caught(msgspec.Struct, frozen=True, kw_only=True):
    """Error with which a rank ended; `rank`, `why` and `exit_code`: its attributes, if any."""

    kind: str
    text: str
    rank: int | None
    why: str | None
    exit_code: int | None


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """A step of a rank: its end, and the number of ranks."""

    at_s: float
    world: int


class Notes:
    """Notes of one rank, in files of a shared directory."""

    def __init__(self, directory: Path, rank: int) -> None:
        """Note the beginning of the process."""
        self._directory, self.rank = directory, rank
        _write(directory / f"{rank}.process", str(os.getpid()))

    def stepped(self, world: int) -> None:
        step = msgspec.json.encode(Step(at_s=time.monotonic(), world=world))
        with (self._directory / f"{self.rank}.steps").open("ab") as file:
            file.write(step + b"\n")

    def await_observer(self) -> None:
        """Wait until somebody looks at the job, if somebody is to."""
        while (self._directory / TO_WATCH).exists():
            time.sleep(TICK_S)

    def goes_wrong(self) -> None:
        """Note that the culprit fails now."""
        _write(self._directory / "wrong", str(time.monotonic()))

    def caught(self, error: BaseException) -> None:
        """Note the error with which the rank ends."""
        data = {name: getattr(error, name, None) for name in ("rank", "why", "exit_code")}
        found = Caught(kind=type(error).__name__, text=str(error), **data)
        _write(self._directory / f"{self.rank}.error", msgspec.json.encode(found).decode())


class Read:
    """Notes in a directory up to now."""

    def __init__(self, directory: Path) -> None:
        """Read notes of ranks that may still run."""
        self._directory = directory

    def processes(self) -> Mapping[int, int]:
        return {int(file.stem): int(file.read_text()) for file in self._directory.glob("*.process")}

    def wrong_s(self) -> float | None:
        """Time at which the culprit failed, if it has."""
        file = self._directory / "wrong"
        return float(file.read_text()) if file.exists() else None

    def steps(self, rank: int) -> list[Step]:
        file = self._directory / f"{rank}.steps"
        lines = file.read_bytes().splitlines() if file.exists() else []
        return [msgspec.json.decode(line, type=Step) for line in lines]

    def error(self, rank: int) -> Caught | None:
        """Error with which the rank ended, if any."""
        file = self._directory / f"{rank}.error"
        return msgspec.json.decode(file.read_bytes(), type=Caught) if file.exists() else None


def _write(file: Path, text: str) -> None:
    """Write a file atomically."""
    part = file.with_name(f"{file.name}.part")
    part.write_text(text)
    part.replace(file)
