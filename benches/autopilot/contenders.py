"""Distribution of a script for comparing jobs that drive themselves: `hocket`; `blind`, without the look before the first step;
`liar`, whose planner promises that a slow first plan is fast; `looker`, which looks at its network repeatedly, and keeps its plan;
`gloo` and `backend`, DDP on Gloo and on Hocket's backend of `torch.distributed`."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import torch
from torch import nn

from hocket.artefacts.gradient import Gradient
from hocket.artefacts.plan import Evidence, Plan
from hocket.planning.default import by_hosts, default_plan
from hocket.training import measurements
from hocket.training.autopilot.knowledge import Knowledge
from hocket.training.autopilot.pilot import Backoff
from hocket.training.autopilot.traffic import Traffic

BACKENDS = {"gloo": "gloo", "backend": "hocket"}
"""Backends of contenders that train with DDP."""


def distribute(
    contender: str, network: nn.Module, optimizer: torch.optim.Optimizer
) -> tuple[nn.Module, torch.optim.Optimizer]:
    """Distribute a contender's model and optimizer."""
    if contender in BACKENDS:
        torch.distributed.init_process_group(BACKENDS[contender])
        return nn.parallel.DistributedDataParallel(network), optimizer
    import hocket.torch as hk  # noqa: PLC0415  # DDP's ranks have none of it

    if contender in ("blind", "looker"):
        # Patched, so that the job's own behaviour is measured, without a setting that users lack.
        measurements.known_cluster = lambda _job, _engine, given: given  # type: ignore[attr-defined,assignment]
    if contender == "liar":
        _lie()
    if contender == "looker":
        _look_always()
    return hk.distribute(network, optimizer)


def _lie() -> None:
    """Replace the planner's first plan by a ring in the given order, which always crosses the trunk, with a fast prediction."""
    honest = Knowledge.proposal

    def proposal(
        self: Knowledge, current: Plan, step_s: float, least_bit_per_s: Mapping[tuple[int, int], float]
    ) -> tuple[Plan, float]:
        _, current_s = honest(self, current, step_s, least_bit_per_s)
        gradients = [Gradient(each.name, each.shape, each.dtype) for each in self.gradients]
        ring = default_plan(gradients[::-1], by_hosts(self.hosts))
        promised = Evidence(predicted_step_s=current_s / 3)
        return msgspec.structs.replace(ring, label="a lie", evidence=promised), current_s

    Knowledge.proposal = proposal  # type: ignore[method-assign]  # a planner that is wrong cannot be asked for


def _look_always() -> None:
    """Make connections always seem to have changed rates, and looks without effect."""

    def proposal(
        self: Knowledge,  # noqa: ARG001  # as what it replaces
        current: Plan,
        step_s: float,
        least_bit_per_s: Mapping[tuple[int, int], float],  # noqa: ARG001
    ) -> tuple[Plan, float]:
        return current, step_s

    Knowledge.proposal = proposal  # type: ignore[method-assign]
    Traffic.moved = property(lambda _: True)  # type: ignore[method-assign,assignment]
    Traffic.knows = property(lambda _: False)  # type: ignore[method-assign,assignment]
    Backoff.resting = lambda self, step, ratio: False  # type: ignore[method-assign]  # noqa: ARG005
