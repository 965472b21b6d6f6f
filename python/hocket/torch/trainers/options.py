"""Keyword arguments of `hk.distribute` that a trainer's user gives, and what all trainers ask of a distributed model."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypedDict

import torch
import torch.distributed as dist

from hocket.artefacts.local import Local
from hocket.artefacts.plan import Plan
from hocket.artefacts.promise import Promise
from hocket.errors import UsageError
from hocket.policy.policy import Policy
from hocket.refusals import GIVEN, SERVERS, refused
from hocket.settings import Settings
from hocket.torch.distribute import distribute
from hocket.torch.group import check_given
from hocket.torch.in_training import clip_grad_norm_, distributed_of
from hocket.torch.module_buffers import Keep, check_keep
from hocket.torch.optimizers import all_parameters
from hocket.torch.trainers.group import group_of
from hocket.training.assemble.asked import policy_asked, promise_asked


class Asked(TypedDict, total=False):
    """Keyword arguments of `hk.distribute`, without that of parameter servers: all ranks of a trainer train."""

    plan: Plan | None
    policy: Policy | None
    promise: Promise | str | None
    search: str | None
    local: Local | None
    buffers: Keep | None
    settings: Settings | None


class Options:
    """Wishes of a trainer's user for `hk.distribute`. `trainer`: whose ranks train, for errors."""

    def __init__(self, trainer: str, asked: Asked) -> None:
        """Raise UsageError for arguments and settings that no job of this trainer's can have, before it does anything."""
        for name in asked.keys() - Asked.__annotations__.keys():
            raise TypeError(f"{trainer}: hk.distribute has no argument {name!r} there")
        self.trainer, self._asked = trainer, asked
        settings = self._settings()
        check_given(trainer, settings)
        policy_asked(asked.get("plan"), asked.get("policy"), settings)
        promise_asked(asked.get("promise"), settings)
        check_keep(asked.get("buffers"))
        local = asked.get("local")
        if local is not None and not isinstance(local, Local):
            raise UsageError(
                f"local={local!r}: steps alone are described by an object\nhint: hk.Local(every=30)"
            )

    def distribute(self, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
        """Distribute the model among the ranks of the trainer, which all call this. Errors are those of `hk.distribute`."""
        settings = self._settings()
        group = group_of(self.trainer, settings)
        asked: Asked = {**self._asked, "settings": settings}
        distribute(model, optimizer, **asked, group=group)
        together = dist.is_available() and dist.is_initialized()
        if together and distributed_of(model).session.job.world < dist.get_world_size():
            raise refused(SERVERS, GIVEN, whose=self.trainer)

    def _settings(self) -> Settings:
        return self._asked.get("settings") or Settings.from_environment()


def steps(optimizer: torch.optim.Optimizer, model: torch.nn.Module) -> bool:
    """Return whether the optimizer steps some of the model's parameters."""
    own = {id(each) for each in model.parameters() if each.requires_grad}
    return not own.isdisjoint(map(id, all_parameters(optimizer)))


def apply_late(model: torch.nn.Module) -> None:
    """Apply gradients that were made and not applied, before the model is evaluated or saved, on all ranks; where a step is not
    complete yet, as gradients are accumulated, leave it."""
    found = distributed_of(model)
    if not found.loop.accumulating:
        found.session.flush()


def clip_norm(
    model: torch.nn.Module, parameters: Iterable[torch.Tensor], max_norm: float, norm_type: float = 2.0
) -> torch.Tensor:
    """Clip gradients of some of a distributed model's parameters by their norm. If these are all that it trains, owners and own
    gradients that go first are clipped as `hk.clip_grad_norm_` does it."""
    given = list(parameters)
    trained = distributed_of(model).framework.trained
    if {id(each) for each in trained.values()} <= {id(each) for each in given}:
        return clip_grad_norm_(model, max_norm, norm_type)
    distributed_of(model).session.settle()
    return torch.nn.utils.clip_grad_norm_(given, max_norm, norm_type)
