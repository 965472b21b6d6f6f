"""Errors of a member of an elastic job about others that do not come."""

from __future__ import annotations

from collections.abc import Mapping

from hocket.errors import PeerError, RendezvousError


def not_all_came(me: str, newcomers: Mapping[int, str], timeout_s: float) -> PeerError:
    """Error of `me`, which has waited `timeout_s` to meet these `newcomers`: hosts by number."""
    named = " and ".join(f"rank {each} on {host}" for each, host in newcomers.items())
    return PeerError(
        f"{me}: not all ranks came to meet {named} within {timeout_s:g} s\nhint: see what the others printed",
        why="timeout",
    )


def not_founded(world: int, timeout_s: float, why: str | None) -> RendezvousError:
    """Error of a job that does not begin because of `why`; None: not all ranks came within `timeout_s`."""
    missing = f"not all {world} ranks came to the coordinator within {timeout_s:g} s"
    return RendezvousError(f"{why or missing}\nhint: see what the others printed")


def undecided(me: str, timeout_s: float) -> PeerError:
    """Error of `me`, which has waited `timeout_s` for the coordinator."""
    return PeerError(
        f"{me}: the coordinator has not decided within {timeout_s:g} s how the job goes on\n"
        "hint: see what `hocket run` and the other ranks printed",
        why="timeout",
    )
