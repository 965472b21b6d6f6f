"""Comparison of the arguments with which ranks distribute their model, before ranks act on them together: a rank with other
arguments would wait for what the others never do."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from hocket.artefacts.local import Local
from hocket.artefacts.plan import Plan
from hocket.artefacts.promise import Promise
from hocket.job.alike import compare
from hocket.policy.policy import Policy
from hocket.training.process import Process


class Given(NamedTuple):
    """Arguments with which a script distributes its model.

    Attributes:
        plan: how gradients travel, from `workers_of`; None: one for the network.
        policy: instead of a plan.
        promise: allowed distance of results from DDP's; default: exact, or the promise of a given plan.
        search: how long the job tries plans while it trains; default: by the settings.
        local: ranks step alone, and exchange how far they came; default: by the plan.
    """

    plan: Plan | None = None
    policy: Policy | None = None
    promise: Promise | None = None
    search: str | None = None
    local: Local | None = None

    @property
    def policy_name(self) -> str | None:
        """Name of the policy's class; None: no policy was given."""
        return None if self.policy is None else type(self.policy).__name__


def agree_on_call(process: Process, asked: Mapping[str, object], *, call: str = "distribute") -> None:
    """Compare the arguments of a `call`; called by all ranks of the job that know its model. Newcomers compare theirs later.

    RendezvousError: the arguments differ; on all ranks it names arguments, values and ranks.
    """
    job = process.everyone
    mine = {name: _named(value) for name, value in asked.items() if value is not None}
    # Ranks that serve or help since an earlier call make no other one.
    trains = min(process.job.world, job.world - job.settings.besides)
    if process.is_newcomer or job.rank >= trains:
        return
    given = job.store.gather(f"{call} of {trains}", job.rank, trains, mine, job.settings.start_timeout_s)
    compare(given, job.hosts, defaults={}, hint=f"give `{call}` the same arguments on all ranks")


def _named(value: object) -> str:
    if isinstance(value, Plan):
        return f"{value.label} ({hashlib.sha256(msgspec.json.encode(value)).hexdigest()[:8]})"
    return type(value).__name__ if isinstance(value, Policy) else str(value)
