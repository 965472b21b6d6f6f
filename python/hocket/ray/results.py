"""Reports of workers, as the process that calls `fit` keeps them. Loads no Ray."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hocket.errors import UsageError
from hocket.ray.checkpoint import Checkpoint, unpack
from hocket.ray.config import RunConfig
from hocket.ray.order import RankOrder


@dataclass(frozen=True, kw_only=True)
class Report:
    """One call of `report`: the rank, the call's number among that rank's (from 0), and its values.

    The files of an older checkpoint are removed when `checkpoints_max` newer ones have come.
    """

    rank: int
    index: int
    metrics: Mapping[str, Any]
    checkpoint: Checkpoint | None = None


@dataclass(frozen=True, kw_only=True)
class Result:
    """Outcome of a training.

    Attributes:
        metrics: rank 0's last; None: it has reported nothing.
        checkpoint: the newest checkpoint; None: there is none.
        reports: reports of all ranks, in the order in which they came.
        path: directory of checkpoints.
        rank_order: hosts of ranks, and the reason for their order.
    """

    metrics: Mapping[str, Any] | None
    checkpoint: Checkpoint | None
    reports: tuple[Report, ...]
    path: Path
    rank_order: RankOrder


class Kept:
    """Reports of one training so far, whose checkpoints it writes."""

    def __init__(self, config: RunConfig) -> None:
        """Start with no report. UsageError: the run's directory is another run's, or cannot be made."""
        self._config = config
        self._reports: list[Report] = []
        self._checkpoints: dict[int, Checkpoint] = {}
        if config.path.exists() and (not config.path.is_dir() or any(config.path.iterdir())):
            raise UsageError(
                f"{config.path} is there already, and may be another run's\n"
                "hint: RunConfig(name=…) gives this run another name"
            )

    def take(self, rank: int, index: int, metrics: Mapping[str, Any], packed: bytes | None) -> None:
        """Take a report. UsageError: files of its checkpoint have names of another rank's."""
        checkpoint = None if packed is None else self._written(rank, index, packed)
        self._reports.append(Report(rank=rank, index=index, metrics=metrics, checkpoint=checkpoint))

    @property
    def newest(self) -> Checkpoint | None:
        """Last checkpoint that has come; None: none has."""
        last = max(self._checkpoints, default=None)
        return None if last is None else self._checkpoints[last]

    def result(self, rank_order: RankOrder) -> Result:
        """Return the result, as far as reports have come."""
        metrics = [each.metrics for each in self._reports if each.rank == 0]
        return Result(
            metrics=metrics[-1] if metrics else None,
            checkpoint=self.newest,
            reports=tuple(self._reports),
            path=self._config.path,
            rank_order=rank_order,
        )

    def _written(self, rank: int, index: int, packed: bytes) -> Checkpoint:
        """Write a checkpoint. Files of several ranks, with the same index, are one. A directory with its name is whole."""
        self._config.path.mkdir(parents=True, exist_ok=True)
        target = self._config.path / f"checkpoint_{index:06d}"
        with tempfile.TemporaryDirectory(dir=self._config.path, prefix=".") as directory:
            fresh = unpack(packed, Path(directory, "files"))
            if target.exists():
                twice = sorted(each.name for each in fresh.iterdir() if (target / each.name).exists())
                if twice:
                    raise UsageError(
                        f"rank {rank} reported a checkpoint with {twice[0]}, which another rank's has as well\n"
                        "hint: let rank 0 alone report it, or give the files names with their rank"
                    )
                for each in fresh.iterdir():
                    each.replace(target / each.name)
            else:
                fresh.replace(target)
        self._checkpoints[index] = written = Checkpoint(target)
        if self._config.checkpoints_max is not None:
            for old in sorted(self._checkpoints)[: -self._config.checkpoints_max]:
                shutil.rmtree(self._checkpoints.pop(old).path)
        return written
