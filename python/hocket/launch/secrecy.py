"""What keeps a job's bytes from others: a secret that only its ranks know, and channels that are encrypted when that is asked for.

A secret that is derived from what launchers say of a job, or that went through a store that anybody may read, keeps strays of other
jobs out and nobody who means harm. SECURITY.md has the promises; docs/secrets.md how to give one.
"""

from __future__ import annotations

import logging

from hocket.errors import UsageError
from hocket.launch.environment import Identity
from hocket.settings import Settings

HOW = "give all ranks one HOCKET_SECRET, such as `openssl rand -hex 32` prints; docs/secrets.md has the way for each launcher"

log = logging.getLogger("hocket.launch")


def check_secret(me: Identity, settings: Settings) -> None:
    """Refuse TLS that anybody could pass through; without TLS, rank 0 warns.

    Raises:
        UsageError: HOCKET_TLS=1 and no secret that only the job's ranks know.
    """
    if me.private:
        return
    # Hocket's own launcher gives one: its variables were set by hand.
    giver = "who started it" if me.launcher == "hocket run" else me.launcher
    if settings.tls:
        raise UsageError(
            f"HOCKET_TLS=1 needs a secret, and {giver} gives rank {me.rank} none: anybody could take part\nhint: {HOW}"
        )
    if me.rank == 0:
        log.warning(
            "hocket: %s gives this job no secret: whoever reaches its ports can take part in it\nhint: %s",
            giver,
            HOW,
        )


def refuse_clear(settings: Settings, what: str, instead: str) -> None:
    """For what moves bytes by connections that are not ours to encrypt.

    Args:
        what: which is refused, the subject of a sentence.
        instead: what to do.

    Raises:
        UsageError: HOCKET_TLS=1.
    """
    if settings.tls:
        raise UsageError(
            f"HOCKET_TLS=1, but {what} sends in the clear\nhint: {instead}, or set HOCKET_TLS=0 if that may be"
        )
