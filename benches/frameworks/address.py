"""Address at which other ranks reach this rank's own servers."""

from __future__ import annotations

import os
import socket


def own_address(port: int) -> str:
    """Address of the interface that leads to the first rank. `port`: any."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((os.environ["MASTER_ADDR"], port))
        address: str = probe.getsockname()[0]
        return address
