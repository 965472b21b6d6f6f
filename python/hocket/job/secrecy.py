"""Protection of a job's bytes: a secret that only its ranks know, and channels that are encrypted on request.

A secret that is derived from launchers' variables, or that went through a store that anybody may read, keeps processes of other
jobs out, but no attacker. SECURITY.md has the promises; docs/secrets.md describes how to set a secret.
"""

from __future__ import annotations

import functools
import logging

from hocket.errors import UsageError
from hocket.job.environment import Identity
from hocket.settings import Settings

HOW = "give all ranks one HOCKET_SECRET, such as `openssl rand -hex 32` prints; docs/secrets.md has the way for each launcher"

log = logging.getLogger("hocket.job")


def check_secret(me: Identity, settings: Settings) -> None:
    """Refuse TLS that any process could impersonate; without TLS, rank 0 warns.

    Raises:
        UsageError: HOCKET_TLS=1 and no secret that only the job's ranks know.
    """
    if me.private:
        return
    # Hocket's own launcher sets a secret, so its variables were set by hand here.
    giver = "who started it" if me.launcher == "hocket run" else me.launcher
    if settings.tls:
        raise UsageError(
            f"HOCKET_TLS=1 needs a secret, and {giver} gives rank {me.rank} none: anybody could take part\nhint: {HOW}"
        )
    if me.rank == 0:
        _warn(giver)


@functools.cache
def _warn(giver: str) -> None:
    """Warn once in a process, which may join one job after another."""
    log.warning(
        "hocket: %s gives this job no secret: whoever reaches its ports can take part in it\nhint: %s",
        giver,
        HOW,
    )
