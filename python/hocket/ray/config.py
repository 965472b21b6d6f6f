"""Requests to a Ray cluster, and the place of results. Data alone: this module loads no Ray."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, get_args

from hocket.errors import UsageError
from hocket.job.store.messages import WORLD_MAX

Placement = Literal["PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD"]
"""Ray's strategies to place workers: on few nodes or on many, if possible or in any case."""


@dataclass(frozen=True, kw_only=True)
class ScalingConfig:
    """Number of workers, each a rank in an actor of its own, and the resources that each needs of its node.

    Attributes:
        num_workers: number of ranks; parameter servers or helpers are among them.
        resources_per_worker: amounts by Ray's names, such as `{"CPU": 2, "memory": 4e9}`.
        placement_strategy: how Ray spreads workers over nodes.

    Raises:
        UsageError: a value makes no sense.

    >>> ScalingConfig(num_workers=2).resources_per_worker
    {'CPU': 1}
    """

    num_workers: int = 1
    resources_per_worker: Mapping[str, float] = field(default_factory=lambda: {"CPU": 1})
    placement_strategy: Placement = "PACK"

    def __post_init__(self) -> None:
        """Check all values."""
        if not isinstance(self.num_workers, int) or not 1 <= self.num_workers <= WORLD_MAX:
            raise UsageError(
                f"num_workers={self.num_workers!r}: a job has from 1 to messages.WORLD_MAX = {WORLD_MAX} ranks\n"
                "hint: ScalingConfig(num_workers=4)"
            )
        for name, amount in self.resources_per_worker.items():
            if not isinstance(amount, int | float) or not 0 <= amount < math.inf:
                raise UsageError(f"resources_per_worker: {name!r} is {amount!r}, which is no amount from 0")
        if not any(self.resources_per_worker.values()):
            raise UsageError(
                f"resources_per_worker={dict(self.resources_per_worker)!r}: a placement of nothing has no node\n"
                'hint: give each worker a part of one at least: {"CPU": 1}'
            )
        if self.placement_strategy not in get_args(Placement):
            raise UsageError(
                f"placement_strategy={self.placement_strategy!r}: Ray has {', '.join(get_args(Placement))}"
            )


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """Place of checkpoints: `storage_path/name` on the machine that calls `fit`.

    Attributes:
        storage_path: directory, made if need be.
        name: name of the run; a run that was there already is not touched. Default: from the time.
        checkpoints_max: number of checkpoints that are kept, the newest; None: all.

    Raises:
        UsageError: `checkpoints_max` is less than one.
    """

    storage_path: str | Path = "hocket-results"
    name: str = field(default_factory=lambda: time.strftime("run-%Y-%m-%d-%H-%M-%S"))
    checkpoints_max: int | None = None

    def __post_init__(self) -> None:
        """Check the number."""
        if self.checkpoints_max is not None and self.checkpoints_max < 1:
            raise UsageError(
                f"checkpoints_max={self.checkpoints_max}\nhint: 1 or more, or None to keep all checkpoints"
            )

    @property
    def path(self) -> Path:
        """Directory of the run."""
        return Path(self.storage_path, self.name).absolute()
