"""Check that a rank without batches may join the other ranks' steps with zeros."""

from __future__ import annotations

from hocket.errors import UsageError
from hocket.training.programs.source import ProgramSource
from hocket.training.step.owners import Owners, check_joins


def check_joinable(owners: Owners, source: ProgramSource) -> None:
    """Raise UsageError for owners that update, for parameter servers, and for policies that keep or round what a finished rank
    would have to leave out."""
    check_joins(owners)
    if source.served is not None:
        raise UsageError(
            "join: parameter servers let workers finish one after the other by themselves, if no other bucket waits for them\n"
            "hint: give every rank the same number of batches"
        )
    policy = next((each for each in source.policies if each.contract != "mean"), None)
    if policy is not None:
        raise UsageError(
            f"join: {type(policy).__name__} promises `{policy.contract}`, not the mean of what ranks add: "
            "it keeps or rounds what a finished rank would have to leave out\n"
            "hint: give every rank the same number of batches"
        )
