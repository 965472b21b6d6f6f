"""Comparison of the arguments with which ranks distribute their model, before ranks act on them together: a rank with other
arguments would wait for what the others never do."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import msgspec

from hocket.artefacts.plan import Plan
from hocket.job.alike import compare
from hocket.policy.policy import Policy
from hocket.training.process import Process


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
