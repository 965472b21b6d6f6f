"""Ranks that have no more batches: whether they may join the other ranks' steps with zeros, and the error if they have ended."""

from __future__ import annotations

from hocket.errors import PeerError
from hocket.job.rendezvous import Job
from hocket.refusals import JOIN, NO_MEANS, SERVERS, TURNS, refused
from hocket.training.memory.framework import Hints
from hocket.training.programs.source import ProgramSource


def check_joinable(source: ProgramSource, *, merges: bool) -> None:
    """Raise UsageError for parameter servers, turns of several iterations (`merges`), and policies that keep or round what a rank
    without batches would have to leave out."""
    if merges:
        raise refused(JOIN, TURNS)
    if source.served is not None:
        raise refused(JOIN, SERVERS)
    policy = next((each for each in source.policies if each.contract != "mean"), None)
    if policy is not None:
        raise refused(JOIN, NO_MEANS, policy=type(policy).__name__, contract=f"`{policy.contract}`")


def finished_first(error: PeerError, job: Job, iteration: int, hints: Hints) -> PeerError:
    """Return the error for a rank that has ended while this one is in an iteration."""
    how = f"ended after {iteration} iterations and left"
    if error.exit_code:
        how = f"exited with code {error.exit_code} after {iteration} iterations"
    return error.reworded(
        f"rank {error.rank} on {error.host} {how}, while rank {job.rank} on {job.host} is in iteration {iteration + 1} ({error})\n"
        f"hint: see how the script of rank {error.rank} ended, and with which exit code; if it had fewer batches, "
        f"{hints.unequal_batches}"
    )
