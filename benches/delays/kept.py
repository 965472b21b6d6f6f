"""Results of a long benchmark that were kept in a folder: what is there is not computed again, so that a table may be gathered over
several runs.

Curves are kept by all that they depend on, with a digest of the code that computes them. Measurements of iterations are kept by
coverage rate, as they were: of another machine, take another folder.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import math
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import click
import msgspec
from msgspec import Struct

from benches.delays import alone, learner, tasks, working
from hocket.artefacts.lines import append, read_lines
from hocket.planning import walk
from hocket.torch import anchor, local
from hocket.training.step import own_first

COMPUTED_BY = (alone, learner, tasks, working, walk, anchor, local, own_first)


class Curve(Struct, frozen=True, kw_only=True):
    """Losses of a training at each evaluation; None: not finite."""

    key: str
    losses: tuple[float | None, ...]


class Kept:
    """Folder of results; None: nothing is kept."""

    def __init__(self, folder: Path | None) -> None:
        """Read what is there. ArtefactError: a file is no list of curves."""
        self._folder = folder
        self._curves: dict[str, tuple[float, ...]] = {}
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            self._end_lines()
            decoder = msgspec.json.Decoder(Curve)
            for each in read_lines(self._file, decoder.decode, "a curve"):
                self._curves[each.key] = tuple(math.inf if loss is None else loss for loss in each.losses)

    def curve(
        self,
        key: str,
        computed: Callable[[], tuple[float, ...]],
        by: tuple[ModuleType, ...] = (),
    ) -> tuple[float, ...]:
        """Return the curve of a key, which is computed and kept if it is not here. `by`: further code that computes it."""
        key = f"{code(by)} {key}"
        if key not in self._curves:
            self._curves[key] = losses = computed()
            if self._folder is not None:
                finite = tuple(loss if math.isfinite(loss) else None for loss in losses)
                append(self._file, Curve(key=key, losses=finite))
                click.echo(f"{len(self._curves)} curves kept: {key.partition(':')[0]}", err=True)
        return self._curves[key]

    def measured(self, name: str, kind: Any, measure: Callable[[], Any]) -> Any:
        """Return a measurement of this type, which is made and kept if it is not here."""
        if self._folder is None:
            return measure()
        file = self._folder / f"{name}.json"
        if file.exists():
            return msgspec.json.decode(file.read_bytes(), type=kind)
        found = measure()
        file.write_bytes(msgspec.json.encode(found))
        return found

    def _end_lines(self) -> None:
        """Leave out a last line that was cut off, so that others may follow."""
        text = self._file.read_bytes() if self._file.exists() else b""
        if not text.endswith(b"\n"):
            self._file.write_bytes(text[: text.rfind(b"\n") + 1])

    @property
    def _file(self) -> Path:
        assert self._folder is not None  # noqa: S101  # callers have looked
        return self._folder / "curves.jsonl"


@functools.cache
def code(by: tuple[ModuleType, ...] = ()) -> str:
    """Return a digest of the code that computes curves, and of this."""
    text = "".join(inspect.getsource(each) for each in (*COMPUTED_BY, *by))
    return hashlib.sha256(text.encode()).hexdigest()[:12]


NOTHING = Kept(None)
