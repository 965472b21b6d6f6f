"""`Trainer`: a training function on all workers, in the way of Ray Train."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import ray

from hocket.errors import PeerError, UsageError
from hocket.ray.checkpoint import Checkpoint
from hocket.ray.config import RunConfig, ScalingConfig
from hocket.ray.connect import connect
from hocket.ray.job import begin
from hocket.ray.links import by_links
from hocket.ray.results import Kept, Result
from hocket.ray.watch import Watch
from hocket.ray.workers import started
from hocket.refusals import ELASTIC, GIVEN, refused
from hocket.settings import Settings


class Trainer:
    """Run of `train_function` once per worker, each a rank of one job. The function calls `hk.distribute` as any script does.

    Args:
        train_function: takes the config, or nothing. It travels to the nodes as Ray's tasks do: by its module's name, or with its
            code if that is the script.
        config: argument of the function; any object that can be pickled.
        scaling_config: number of workers, and the resources that each needs.
        run_config: place of checkpoints.
        resume_from_checkpoint: checkpoint that workers get by `get_checkpoint()`.
        settings: settings of all ranks; default: from the environment of the process that calls `fit`.

    Raises:
        UsageError: the function cannot be called with these arguments, or the settings ask for an elastic job.
    """

    def __init__(
        self,
        train_function: Callable[..., object],
        config: Any = None,
        *,
        scaling_config: ScalingConfig | None = None,
        run_config: RunConfig | None = None,
        resume_from_checkpoint: Checkpoint | None = None,
        settings: Settings | None = None,
    ) -> None:
        """Check the arguments; nothing runs before `fit`."""
        self._function = train_function
        self._arguments = _arguments(train_function, config)
        self._scaling = scaling_config or ScalingConfig()
        self._run = run_config or RunConfig()
        self._resume = resume_from_checkpoint
        self._settings = settings or Settings.from_environment()
        if self._settings.coordinator is not None:
            raise refused(ELASTIC, GIVEN, whose="a Trainer of Ray")
        if self._settings.besides >= self._scaling.num_workers:
            raise UsageError(
                f"of {self._scaling.num_workers} workers, {self._settings.besides} serve or help, and none would train\n"
                "hint: a larger num_workers"
            )

    def fit(self) -> Result:
        """Run the function on all workers, to the end. A process without a cluster connects to one as `ray.init()` does.

        Raises:
            PeerError: a worker was lost or its function raised; `rank` and `host` say which, the message what happened. The others
                have been ended. Checkpoints that came before are kept.
            RendezvousError: the cluster has no room for the workers within `start_timeout_s`, or lacks what the function imports.
            UsageError: the run's directory is another run's, the function cannot be pickled, or there is no cluster at RAY_ADDRESS.
        """
        kept = Kept(self._run)
        resume = None if self._resume is None else self._resume.packed()
        if not ray.is_initialized():
            connect(None, variable="RAY_ADDRESS")
        with started(self._scaling, self._settings.start_timeout_s) as workers:
            members, order = by_links(workers, self._settings)
            begin(members, self._function, self._arguments, self._settings, resume)
            watch = Watch(members, lambda rank, each: kept.take(rank, each.index, each.metrics, each.packed))
            try:
                watch.until_the_end()
            except PeerError as error:
                newest = kept.newest
                goes_on = "" if newest is None else f"\nhint: the newest checkpoint is {newest.path}"
                raise PeerError(
                    f"{error}{goes_on}", rank=error.rank, host=error.host, why=error.why
                ) from None
        return kept.result(order)


def _arguments(function: Callable[..., object], config: Any) -> tuple[Any, ...]:
    """Return the config, if the function takes one, as arguments."""
    if not callable(function):
        raise UsageError(f"{function!r} is not a training function\nhint: Trainer(train, config)")
    takes = bool(inspect.signature(function).parameters)
    if config is not None and not takes:
        raise UsageError(
            f"{getattr(function, '__name__', function)} takes no argument, but there is a config for it\n"
            "hint: def train(config): …"
        )
    return (config,) if takes else ()
