"""The user's choice: the number of servers and how far workers may drift apart; and the roles of ranks.

Workers are ranks 0 to W - 1, servers W to W + S - 1, as in DLC traces. The job's store and the wire do a scheduler's
tasks (membership, addresses, detecting lost ranks), so there is no scheduler rank.
"""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass

from hocket.artefacts.chunks import FIRST_BUCKET_BYTES
from hocket.errors import PeerError, UsageError
from hocket.job.rendezvous import Job
from hocket.settings import Settings

ANY = "any"
"""Staleness without a bound."""


@dataclass(frozen=True, kw_only=True)
class ParameterServer:
    """Parameters live on servers, which apply the optimizer to the gradients that workers push.

    Attributes:
        servers: number of ranks that serve, the last ones of the job.
        staleness: 0: an update uses all workers' gradients together. K: each push is an update of its own, and a pull waits until
        the slowest worker is at most K iterations behind. None: each push is an update, and no worker waits.
        bucket_bytes: neighbouring parameters travel together up to this size; 0: each alone.

    >>> ParameterServer.parse(servers=2, staleness="any").title
    '2 servers, asynchronous'
    """

    servers: int = 1
    staleness: int | None = 0
    bucket_bytes: int = FIRST_BUCKET_BYTES

    def __post_init__(self) -> None:
        """Raise UsageError for fewer than one server, or a negative staleness."""
        if self.servers < 1:
            raise UsageError(f"{self.servers} parameter servers\nhint: at least one rank serves")
        if self.staleness is not None and self.staleness < 0:
            raise UsageError(f"a staleness of {self.staleness}\nhint: 0 for synchronous, K, or `{ANY}`")

    @classmethod
    def parse(
        cls, *, servers: int, staleness: str, bucket_bytes: int = FIRST_BUCKET_BYTES
    ) -> ParameterServer:
        """Parse a staleness: a whole number, or `any`. UsageError for others."""
        if staleness != ANY and not re.fullmatch(r"[0-9]{1,9}", staleness):
            raise UsageError(
                f"staleness `{staleness}`: a whole number of iterations, 0 for synchronous, or `{ANY}`"
            )
        kept = None if staleness == ANY else int(staleness)
        return cls(servers=servers, staleness=kept, bucket_bytes=bucket_bytes)

    @classmethod
    def of(cls, settings: Settings) -> ParameterServer | None:
        """The choice in the settings; None: no servers. UsageError for a staleness without servers."""
        if settings.servers:
            return cls.parse(
                servers=settings.servers,
                staleness=settings.staleness,
                bucket_bytes=settings.server_bucket_bytes,
            )
        if settings.staleness != "0":
            raise UsageError(
                f"a staleness of {settings.staleness} needs parameter servers\nhint: --servers N, or HOCKET_SERVERS"
            )
        return None

    @property
    def title(self) -> str:
        kept = {0: "synchronous", None: "asynchronous"}.get(
            self.staleness, f"at most {self.staleness} iterations apart"
        )
        return f"{self.servers} server{'s' if self.servers > 1 else ''}, {kept}"

    def workers(self, world: int) -> int:
        """Number of workers among `world` ranks. UsageError if none would be left."""
        if self.servers >= world:
            raise UsageError(
                f"{self.servers} of {world} ranks are to serve, so none would train\n"
                "hint: `hocket run -n WORKERS --servers SERVERS` starts both; other launchers must start the sum of the two"
            )
        return world - self.servers


def among_workers(job: Job, workers: int) -> Job:
    """The job from its workers' view: a world of workers alone."""
    return dataclasses.replace(job, world=workers, hosts=job.hosts[:workers])


def with_roles(error: PeerError, workers: int) -> PeerError:
    """Return the error with a message that names parameter servers as such, if they are at fault or missing.

    >>> str(with_roles(PeerError("rank 2 on b left the job", rank=2), workers=2))
    'parameter server 0: rank 2 on b left the job'
    """
    ranks = {*error.missing} if error.rank is None else {error.rank, *error.missing}
    servers = [str(rank - workers) for rank in sorted(ranks) if rank >= workers]
    if not servers:
        return error
    return error.reworded(f"parameter server{'s' * (len(servers) > 1)} {', '.join(servers)}: {error}")
