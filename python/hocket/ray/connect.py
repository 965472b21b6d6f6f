"""Connection of this process to a Ray cluster. Ray itself looks for minutes for a cluster that is not there."""

from __future__ import annotations

import os
import socket
from typing import Any

import ray

from hocket.errors import UsageError
from hocket.job.store import address as addresses

AUTO, LOCAL = "auto", "local"
"""Ray's names for the cluster of this machine, and for a cluster that Ray starts."""
CONNECT_TIMEOUT_S = 5.0


def connect(address: str | None, *, variable: str, **options: Any) -> None:
    """Connect as `ray.init(address, …)` does; without an address, to that of RAY_ADDRESS.

    UsageError: there is no cluster, or it has another version of Ray or Python; `variable` names the address's source.
    """
    asked = address or os.environ.get("RAY_ADDRESS")
    try:
        if asked and asked not in (AUTO, LOCAL) and "://" not in asked:
            socket.create_connection(addresses.split(asked, variable=variable), CONNECT_TIMEOUT_S).close()
        ray.init(address=address, **options)
    except (OSError, RuntimeError, ValueError) as error:
        where = f"at `{asked}` that this process could use" if asked else "that this process could use"
        raise UsageError(
            f"there is no Ray cluster {where}: {str(error).splitlines()[0]}\n"
            f"hint: `ray start --head` starts one, and prints its address{'' if address else ' for RAY_ADDRESS'}"
        ) from error
