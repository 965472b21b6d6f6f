"""Profiles in place of communication: measures a training step of this model under the load of all ranks.

Ranks run side by side without synchronising gradients, so that cores and caches are shared as in the job. After enough
steps the first rank writes the medians, averaged over ranks, and every rank ends its script. If the script distributes its model
again before that, the steps before do not count. An elastic job goes on without ranks that it loses: its profile is of those that
come to the end, with their steps from before a loss. Ranks that want to join hear at the end that the job is over.
"""

from __future__ import annotations

import base64
import contextlib
import logging
import math
import statistics
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch

from hocket import typed
from hocket.artefacts import files
from hocket.artefacts.learning import Learning
from hocket.artefacts.profile import Bus, Gradient, Profile, RankStep
from hocket.job.rendezvous import Job
from hocket.policy.policy import Value
from hocket.refusals import AGAIN, ELASTIC, SECOND, refused
from hocket.torch import bus
from hocket.torch.framework import Torch
from hocket.torch.sketch import sketch
from hocket.torch.workload import Workload
from hocket.training.beside.spans import Spans
from hocket.training.checkpoint.saved import SavedSession
from hocket.training.guard.gauge import Gauge, Norms, Report, learning_of
from hocket.training.memory.gradients import gradients_of
from hocket.training.process import Process
from hocket.training.step.commit import ends_together

log = logging.getLogger("hocket.profiler")

WARM_UP_STEPS = 2
STEPS = 8

WORKLOAD = ("batch", "backwards")
"""Facts of a step for which schedules of merged and late gradients are made."""


class Profiler:
    """Times of each step's parts, seconds since its forward began, and how many rows of gradients are not zero."""

    counts_steps = False
    owners = None

    def __init__(
        self,
        framework: Torch,
        process: Process,
        out: Path,
    ) -> None:
        """Hook forward, gradients and the optimizer. UsageError: an elastic job profiles another model already."""
        job = process.job
        if process.is_member:
            raise refused(ELASTIC, SECOND)
        model, optimizer, parameters = framework.model, framework.optimizer, framework.trained
        self.job, self._process = job, process
        self.spans: Spans | None = None
        self._framework = framework
        self._parameters = parameters
        self._gradients = gradients_of(framework.parameters())
        self._model_name = type(model).__name__
        self._out = out
        self._steps: list[dict[str, float]] = []
        self.iteration = 0
        self._now: dict[str, float] = {}
        self._began_s = 0.0
        self._gauge = Gauge()
        self._sketches: list[bytes] = []
        self._workload = Workload(model, parameters)
        self._restored: SavedSession | None = None
        self._warned = False
        self._hooks: list[torch.utils.hooks.RemovableHandle] = [
            model.register_forward_pre_hook(self._on_forward),
            model.register_forward_hook(self._on_forward_end),
        ]
        names = {id(parameter): name for name, parameter in parameters.items()}
        for module in model.modules():
            owned = [names[id(each)] for each in module.parameters(recurse=False) if id(each) in names]
            if owned:
                self._hooks.append(module.register_forward_pre_hook(self._needed(owned)))
        for name, parameter in parameters.items():
            self._hooks.append(parameter.register_post_accumulate_grad_hook(self._ready(name)))
        self._hooks.append(optimizer.register_step_pre_hook(lambda *_: self._mark("optimizer")))
        self._hooks.append(optimizer.register_step_post_hook(self._on_step_end))
        job.store.gather("profile/start", job.rank, job.world, None, job.settings.start_timeout_s)
        if process.elastic:
            process.begin()

    def start(self) -> None:
        """Do nothing: profiling has no other threads."""

    def retire(self) -> None:
        """Measure nothing more: the profile is of what is distributed next. UsageError: an elastic job distributes once."""
        if self._process.elastic:
            raise refused(ELASTIC, AGAIN)
        self._workload.stop()
        for hook in self._hooks:
            hook.remove()
        self._hooks = []

    def forward_begins(self, *, syncs: bool) -> None:
        """Do nothing: profiling synchronises nothing."""

    def close(self) -> None:
        """Finish: in an elastic job, wait for the other ranks' ends."""
        if self._process.elastic:
            self._process.membership.finish(self.job.settings.timeout_s)

    def no_sync(self) -> contextlib.AbstractContextManager[None]:
        """Return an empty context: profiling synchronises nothing."""
        return contextlib.nullcontext()

    def communicates(self) -> bool:
        """Return False: profiling synchronises nothing."""
        return False

    def record(self, name: str, value: float) -> None:
        """Do nothing: profiling uses no statistics."""

    def observe(
        self, *, loss: float | None = None, curvature: float | None = None, weight: float | None = None
    ) -> None:
        """Note loss and curvature for the guard of merged and late gradients; `weight` counts nothing here."""
        del weight
        self._gauge.observe(loss=loss, curvature=curvature)

    def agreed(self) -> dict[str, Value]:
        """Return the number of the only epoch."""
        return {"epoch": 0}

    def leave(self) -> None:
        """Raise UsageError."""
        raise ends_together()

    def finish_step(self) -> None:
        """Do nothing: no step was put off."""

    def settle(self) -> None:
        """Do nothing: gradients are this rank's own, and final."""

    def flush(self) -> None:
        """Do nothing: each step was applied."""

    def saved(self) -> SavedSession:
        """Return the state that was restored, or that of a job's beginning: nothing of a profile becomes part of it."""
        if not self._warned:
            self._warned = True
            log.warning(
                "this run measures a profile, in which each rank trains by itself: a checkpoint of it is of this rank alone"
            )
        return self._restored or SavedSession(rank=self.job.rank, world=self.job.world)

    def restore(self, saved: SavedSession, *, strict: bool) -> None:  # noqa: ARG002  # no state of parameters is used
        """Keep the state as it is: a profile does not depend on it."""
        self._restored = saved

    def joinable(self) -> None:
        """Do nothing: no rank waits for another."""

    def _mark(self, what: str) -> None:
        if self._framework.device is not None:
            # What the device was given has begun, at best.
            self._framework.device.synchronize()
        self._now[what] = time.perf_counter() - self._began_s

    def _on_forward(self, model: torch.nn.Module, _inputs: Any) -> None:
        if not self._now and model.training:
            self._began_s = time.perf_counter()
            self._mark("begin")
            self._began_s += self._now["begin"]

    def _on_forward_end(self, *_: Any) -> None:
        self._mark("forward")

    def _needed(self, names: list[str]) -> Any:
        def hook(*_: Any) -> None:
            for name in names:
                if f"needed {name}" not in self._now:
                    self._mark(f"needed {name}")

        return hook

    def _ready(self, name: str) -> Any:
        def hook(_: torch.nn.Parameter) -> None:
            self._mark(f"ready {name}")
            self._mark("backward")

        return hook

    def _on_step_end(self, *_: Any) -> None:
        self._mark("step")
        for name, parameter in self._parameters.items():
            if parameter.dim() > 1:
                self._now[f"rows {name}"] = len(self._framework.rows(name, 1.0)[0])
        if len(self._steps) < WARM_UP_STEPS:
            # Times of these steps do not count.
            self._sketches.append(sketch(self._parameters.values(), seed=len(self._steps)))
        self._now["backwards"] = self._workload.backwards
        if self._workload.batch is not None:
            self._now["batch"] = self._workload.batch
        self._workload.again()
        self._steps.append(self._now)
        self.iteration = len(self._steps)
        self._now = {}
        if len(self._steps) == WARM_UP_STEPS + STEPS:
            self._finish()

    def _finish(self) -> None:
        measured = self._steps[WARM_UP_STEPS:]
        keys = set.intersection(*(set(step) for step in measured))
        mine = {key: statistics.median(step[key] for step in measured) for key in keys}
        for key in WORKLOAD:
            if _common([step.get(key) for step in measured]) is None:
                mine.pop(key, None)
        given = _gathered(self.job, "profile", mine)
        report = self._gauge.report(self._framework.learning())
        # Ranks of a host copy at the same time, as in the job.
        device = self._framework.device
        own_bus = None if device is None else bus.measured(device.device)
        sketches = [base64.b64encode(each).decode() for each in self._sketches]
        seen = sketches, msgspec.to_builtins(report), msgspec.to_builtins(own_bus)
        given_seen = _gathered(self.job, "profile/learning", seen)
        # A rank may be lost between the two.
        ranks = [rank for rank in given if rank in given_seen]
        everyone, all_seen = [given[rank] for rank in ranks], [given_seen[rank] for rank in ranks]
        if self.job.rank == ranks[0]:
            self._write(
                {key: statistics.fmean(each[key] for each in everyone if key in each) for key in mine},
                {key: max(each.get(key, 0) for each in everyone) for key in mine if key.startswith("rows ")},
                {key: _common([each.get(key) for each in everyone]) for key in WORKLOAD},
                _learning(all_seen),
                ranks=[_rank_step(each) for each in everyone],
                buses=[typed.of_builtins(each, Bus) for *_, each in all_seen if each is not None],
            )
        self.job.close()
        raise SystemExit(0)

    def _write(
        self,
        times_s: dict[str, float],
        rows: dict[str, float],
        workload: dict[str, int | None],
        learning: Learning | None,
        *,
        ranks: Sequence[RankStep],
        buses: Sequence[Bus],
    ) -> None:
        forward_s, backward_s = times_s["forward"], times_s["backward"] - times_s["forward"]
        gradients = tuple(
            Gradient(
                name=name,
                shape=self._gradients[name].shape,
                dtype=self._gradients[name].dtype,
                # A parameter that no step used counts as ready when backward ends, because it is sent then.
                ready_s=times_s.get(f"ready {name}", times_s["backward"]),
                needed_s=times_s.get(f"needed {name}", 0.0),
                sparse=self._gradients[name].sparse,
                touched=math.ceil(rows[f"rows {name}"]) if f"rows {name}" in rows else None,
            )
            for name in self._parameters
        )
        profile = Profile(
            model=self._model_name,
            world=len(ranks),
            steps=STEPS,
            forward_s=forward_s,
            backward_s=backward_s,
            optimizer_s=times_s["step"] - times_s["optimizer"],
            step_s=times_s["step"],
            gradients=gradients,
            batch=workload["batch"],
            accumulation=workload["backwards"],
            learning=learning,
            ranks=tuple(ranks),
            bus=_slowest(buses),
        )
        files.write(self._out, profile)


def _gathered(job: Job, name: str, value: Any) -> dict[int, Any]:
    """Return the values that all ranks give, by rank; lost ones give none."""
    given = job.store.gather(
        name, job.rank, job.world, value, job.settings.timeout_s, without_lost=job.elastic
    )
    return {rank: each for rank, each in enumerate(given) if each is not None}


def _rank_step(medians: Mapping[str, float]) -> RankStep:
    return RankStep(step_s=medians["step"], batch=_common([medians.get("batch")]))


def _slowest(buses: Sequence[Bus]) -> Bus | None:
    if not buses:
        return None
    return Bus(
        down_bytes_per_s=min(each.down_bytes_per_s for each in buses),
        up_bytes_per_s=min(each.up_bytes_per_s for each in buses),
        copy_s=max(each.copy_s for each in buses),
    )


def _common(of_all: list[float | None]) -> int | None:
    """Return the value that all ranks, or steps, have; None where they differ, or one does not know it.

    >>> _common([8, 8]), _common([8, 7]), _common([8, None])
    (8, None, None)
    """
    first, *others = of_all
    return None if first is None or any(each != first for each in others) else round(first)


def _learning(all_seen: list[Any]) -> Learning | None:
    """Return facts of learning from all ranks' reports: products of sketches approximate those of gradients."""
    sketches = [[np.frombuffer(base64.b64decode(each), np.float64) for each in seen[0]] for seen in all_seen]
    reports = []
    for own, (_, report, _) in zip(sketches, all_seen, strict=True):
        norms = []
        for at, each in enumerate(own):
            mean = np.mean([of_rank[at] for of_rank in sketches], axis=0)
            norms.append(Norms(own=float(each @ each), product=float(each @ mean), mean=float(mean @ mean)))
        reports.append(msgspec.structs.replace(typed.of_builtins(report, Report), norms=tuple(norms)))
    return learning_of(reports, len(reports))
