"""Notes of the ranks of a job while one of them goes wrong. Times are of the monotonic clock that all processes share."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path

import msgspec


class Caught(msgspec.Struct, frozen=True, kw_only=True):
    """The error with which a rank ended; `rank`, `why` and `exit_code`: its attributes, if it has them."""

    kind: str
    text: str
    rank: int | None
    why: str | None
    exit_code: int | None


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One that a rank has made, with so many ranks."""

    at_s: float
    world: int


class Notes:
    """Notes of one rank, in files of a directory that all share."""

    def __init__(self, directory: Path, rank: int) -> None:
        """Its process begins."""
        self._directory, self._rank = directory, rank
        _write(directory / f"{rank}.process", str(os.getpid()))

    def stepped(self, world: int) -> None:
        """It has made a step."""
        step = msgspec.json.encode(Step(at_s=time.monotonic(), world=world))
        with (self._directory / f"{self._rank}.steps").open("ab") as file:
            file.write(step + b"\n")

    def goes_wrong(self) -> None:
        """From now on."""
        _write(self._directory / "wrong", str(time.monotonic()))

    def caught(self, error: BaseException) -> None:
        """It ends with that error."""
        data = {name: getattr(error, name, None) for name in ("rank", "why", "exit_code")}
        found = Caught(kind=type(error).__name__, text=str(error), **data)
        _write(self._directory / f"{self._rank}.error", msgspec.json.encode(found).decode())


class Read:
    """All that was noted in a directory up to now."""

    def __init__(self, directory: Path) -> None:
        """By ranks that may still run."""
        self._directory = directory

    def processes(self) -> Mapping[int, int]:
        """By rank."""
        return {int(file.stem): int(file.read_text()) for file in self._directory.glob("*.process")}

    def wrong_s(self) -> float | None:
        """When the culprit went wrong, if it has."""
        file = self._directory / "wrong"
        return float(file.read_text()) if file.exists() else None

    def steps(self, rank: int) -> list[Step]:
        """Steps that the rank has made."""
        file = self._directory / f"{rank}.steps"
        lines = file.read_bytes().splitlines() if file.exists() else []
        return [msgspec.json.decode(line, type=Step) for line in lines]

    def error(self, rank: int) -> Caught | None:
        """With which it ended, if it did."""
        file = self._directory / f"{rank}.error"
        return msgspec.json.decode(file.read_bytes(), type=Caught) if file.exists() else None


def _write(file: Path, text: str) -> None:
    """Whoever reads it finds all of it."""
    part = file.with_name(f"{file.name}.part")
    part.write_text(text)
    part.replace(file)
