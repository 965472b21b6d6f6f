"""Server that a client looks for at an address, in the words of its errors: a job's store, or an elastic job's coordinator."""

from __future__ import annotations

from typing import NamedTuple


class Sought(NamedTuple):
    """Words for what should listen at an address. `comes_late`: whoever waits for it also waits for its machine and its name.

    `absent`, `unreachable`, `another`: hints for when nobody listens, when no way leads there, and when another program listens.
    """

    name: str
    whole_name: str
    absent: str
    unreachable: str
    another: str
    comes_late: bool = False


STORE = Sought(
    name="store",
    whole_name="this job's store",
    absent="see whether rank 0, or the launcher, was started and what it printed",
    unreachable="check address, routes and firewalls; HOCKET_STORE sets another ADDRESS:PORT of rank 0's machine",
    another="set HOCKET_STORE to a free ADDRESS:PORT of rank 0's machine, on all ranks",
)

COORDINATOR = Sought(
    name="coordinator",
    whole_name="this job's coordinator",
    absent="see whether the job's coordinator runs, and what it printed: it ends with the job",
    unreachable="check address, routes and firewalls; HOCKET_COORDINATOR is the ADDRESS:PORT of the job's coordinator",
    another="give each rank the HOCKET_COORDINATOR and the HOCKET_SECRET of one coordinator",
    comes_late=True,
)
