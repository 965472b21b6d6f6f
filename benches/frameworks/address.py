"""Where this rank's own servers can be reached by the others."""

from __future__ import annotations

import os
import socket


def own_address(port: int) -> str:
    """Of the interface that leads to the first rank. `port`: any."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((os.environ["MASTER_ADDR"], port))
        address: str = probe.getsockname()[0]
        return address
